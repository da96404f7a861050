/* error.c - see error.h. */
#include "server/error.h"
#include "server/json_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool cairn__refuse(cairn__refusal *refusal, int http_status, const char *code, const char *param, const char *format,
                   ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(refusal->message, sizeof refusal->message, format, args);
    va_end(args);
    snprintf(refusal->param, sizeof refusal->param, "%s", param ? param : "");
    refusal->http_status = http_status;
    refusal->code        = code;
    return false;
}

static const char *type_of(int http_status)
{
    if (http_status == 503)
        return "unavailable_error";
    if (http_status == 404)
        return "not_found_error";
    return http_status >= 500 ? "server_error" : "invalid_request_error";
}

char *cairn__error_json(const cairn__refusal *refusal)
{
    json_t *param = refusal->param[0] ? cairn__json_string(refusal->param, strlen(refusal->param)) : json_null();
    json_t *code  = refusal->code ? json_string(refusal->code) : json_null();
    json_t *root  = json_pack("{s:{s:o,s:s,s:o,s:o}}", "error", "message",
                              cairn__json_string(refusal->message, strlen(refusal->message)), "type",
                              type_of(refusal->http_status), "param", param, "code", code);
    char   *text  = root ? cairn__json_print(root) : NULL;
    json_decref(root);
    return text;
}

const char *cairn__http_reason(int http_status)
{
    switch (http_status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    }
    return http_status < 500 ? "Bad Request" : "Internal Server Error";
}
