/* http_head.c - request line and header fields, strictly (RFC 9112).
 *
 * What two implementations could read in two ways is refused, because a proxy in
 * front may be the other one: bare LF, folded lines, space before a colon, two
 * lengths, a length beside a transfer coding, codings other than chunked. */
#include "server/http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct slice {
    const char *data;
    size_t      size;
} slice;

static bool is_token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool equals(slice s, const char *text)
{
    return s.size == strlen(text) && strncasecmp(s.data, text, s.size) == 0;
}

static slice trimmed(slice s)
{
    while (s.size && (s.data[0] == ' ' || s.data[0] == '\t')) {
        s.data++;
        s.size--;
    }
    while (s.size && (s.data[s.size - 1] == ' ' || s.data[s.size - 1] == '\t'))
        s.size--;
    return s;
}

/* Takes the text up to CRLF off *rest. False: no CRLF, or a control character. */
static bool take_line(slice *rest, slice *ret_line)
{
    for (size_t i = 0; i + 1 < rest->size; i++) {
        char c = rest->data[i];
        if (c == '\r' && rest->data[i + 1] == '\n') {
            *ret_line = (slice){rest->data, i};
            rest->data += i + 2;
            rest->size -= i + 2;
            return true;
        }
        if (((unsigned char)c < ' ' && c != '\t') || c == 0x7F)
            return false;
    }
    return false;
}

static slice take_word(slice *line)
{
    size_t n = 0;
    while (n < line->size && line->data[n] != ' ')
        n++;
    slice word = {line->data, n};
    line->data += n + (n < line->size);
    line->size -= n + (n < line->size);
    return word;
}

static int set_path(slice target, cairn__http_head *head, const char **ret_reason)
{
    if (target.size > 7 && strncasecmp(target.data, "http://", 7) == 0) { /* as sent to a proxy */
        const char *slash = memchr(target.data + 7, '/', target.size - 7);
        target = slash ? (slice){slash, target.size - (size_t)(slash - target.data)} : (slice){"/", 1};
    }
    if (target.size == 0 || (target.data[0] != '/' && !equals(target, "*"))) {
        *ret_reason = "the request target must be a path";
        return 400;
    }
    const char *query = memchr(target.data, '?', target.size);
    if (query)
        target.size = (size_t)(query - target.data);
    head->path_cut = target.size >= sizeof head->path;
    snprintf(head->path, sizeof head->path, "%.*s", (int)target.size, target.data);
    return 0;
}

static int request_line(slice line, cairn__http_head *head, const char **ret_reason)
{
    slice method = take_word(&line), target = take_word(&line);
    *ret_reason  = "the request line is malformed";
    if (method.size == 0 || method.size >= sizeof head->method)
        return 400;
    for (size_t i = 0; i < method.size; i++)
        if (!is_token_char(method.data[i]))
            return 400;
    for (size_t i = 0; i < target.size; i++)
        if ((unsigned char)target.data[i] <= ' ' || (unsigned char)target.data[i] >= 0x7F)
            return 400;
    if (line.size != 8 || strncmp(line.data, "HTTP/", 5) != 0)
        return 400;
    if (!equals(line, "HTTP/1.1") && !equals(line, "HTTP/1.0")) {
        *ret_reason = "this server speaks HTTP/1.1";
        return 505;
    }
    head->http10     = equals(line, "HTTP/1.0");
    head->keep_alive = !head->http10;
    snprintf(head->method, sizeof head->method, "%.*s", (int)method.size, method.data);
    return set_path(target, head, ret_reason);
}

static int content_length(slice value, cairn__http_head *head, const char **ret_reason)
{
    uint64_t n  = 0;
    bool     ok = value.size > 0 && value.size <= 15 && !head->has_length;
    for (size_t i = 0; ok && i < value.size; i++) {
        ok = value.data[i] >= '0' && value.data[i] <= '9';
        n  = n * 10 + (uint64_t)(value.data[i] - '0');
    }
    *ret_reason          = "Content-Length must be one decimal number";
    head->has_length     = true;
    head->content_length = n;
    return ok ? 0 : 400;
}

static void connection_options(slice value, cairn__http_head *head)
{
    while (value.size) {
        const char *comma = memchr(value.data, ',', value.size);
        size_t      n     = comma ? (size_t)(comma - value.data) : value.size;
        slice       word  = trimmed((slice){value.data, n});
        if (equals(word, "close"))
            head->keep_alive = false;
        else if (equals(word, "keep-alive") && head->http10)
            head->keep_alive = true;
        n += comma != NULL;
        value.data += n;
        value.size -= n;
    }
}

static int transfer_encoding(slice value, cairn__http_head *head, const char **ret_reason)
{
    *ret_reason = "the only Transfer-Encoding is chunked, once, with HTTP/1.1";
    if (head->chunked || head->http10)
        return 400;
    head->chunked = equals(value, "chunked");
    return head->chunked ? 0 : 501;
}

static void credential(slice value, cairn__http_credential *credential)
{
    bool usable = !credential->seen && value.size < sizeof credential->text;
    credential->seen = true;
    snprintf(credential->text, sizeof credential->text, "%.*s", usable ? (int)value.size : 0, value.data);
}

static int field(slice name, slice value, cairn__http_head *head, unsigned *n_hosts, const char **ret_reason)
{
    if (equals(name, "Content-Length"))
        return content_length(value, head, ret_reason);
    if (equals(name, "Transfer-Encoding"))
        return transfer_encoding(value, head, ret_reason);
    if (equals(name, "Connection"))
        connection_options(value, head);
    else if (equals(name, "Host"))
        ++*n_hosts;
    else if (equals(name, "Authorization"))
        credential(value, &head->authorization);
    else if (equals(name, "X-Api-Key"))
        credential(value, &head->api_key);
    else if (equals(name, "Content-Encoding"))
        head->encoded |= !equals(value, "identity") && value.size > 0;
    else if (equals(name, "Expect")) {
        *ret_reason           = "the only expectation met here is 100-continue";
        head->expect_continue = true;
        return equals(value, "100-continue") ? 0 : 417;
    }
    return 0;
}

static int header_line(slice line, cairn__http_head *head, unsigned *n_hosts, const char **ret_reason)
{
    size_t n = 0;
    while (n < line.size && is_token_char(line.data[n]))
        n++;
    *ret_reason = "a header line is malformed";
    if (n == 0 || n == line.size || line.data[n] != ':')
        return 400;
    return field((slice){line.data, n}, trimmed((slice){line.data + n + 1, line.size - n - 1}), head, n_hosts,
                 ret_reason);
}

int cairn__http_head_parse(const char *text, size_t size, cairn__http_head *ret_head, const char **ret_reason)
{
    cairn__http_head head    = {0};
    slice            rest    = {text, size}, line;
    unsigned         n_hosts = 0;
    *ret_reason              = "the request line is malformed";
    int status               = take_line(&rest, &line) ? request_line(line, &head, ret_reason) : 400;
    while (status == 0) {
        *ret_reason = "a header line is malformed";
        if (!take_line(&rest, &line))
            return 400;
        if (line.size == 0)
            break;
        status = header_line(line, &head, &n_hosts, ret_reason);
    }
    if (status)
        return status;
    if (n_hosts > 1 || (n_hosts == 0 && !head.http10)) {
        *ret_reason = "there must be one Host header";
        return 400;
    }
    if (head.chunked && head.has_length) {
        *ret_reason = "Content-Length and Transfer-Encoding exclude each other";
        return 400;
    }
    *ret_head   = head;
    *ret_reason = NULL;
    return 0;
}
