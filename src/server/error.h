/* error.h - errors as OpenAI's API shapes them:
 * {"error":{"message":...,"type":...,"param":...,"code":...}} */
#ifndef CAIRN_SERVER_ERROR_H
#define CAIRN_SERVER_ERROR_H

#include "cairn/base.h"

typedef struct cairn__refusal { /* why a request is not served */
    int         http_status; /* 0: none */
    char        message[600];
    char        param[80]; /* field of the request, "": none */
    const char *code;      /* NULL: none */
} cairn__refusal;

/* Fills *refusal; returns false, so that checks can end with it. */
bool cairn__refuse(cairn__refusal *refusal, int http_status, const char *code, const char *param, const char *format,
                   ...) __attribute__((format(printf, 5, 6)));

/* malloc()ed JSON text; NULL: out of memory. */
char *cairn__error_json(const cairn__refusal *refusal);

const char *cairn__http_reason(int http_status); /* "Not Found" */

#endif
