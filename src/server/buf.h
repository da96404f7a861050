/* buf.h - a growing byte buffer with a sticky out-of-memory flag: append freely,
 * look at `failed` once. Inline, one thread. */
#ifndef CAIRN_SERVER_BUF_H
#define CAIRN_SERVER_BUF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct cairn__buf {
    char  *data; /* NUL-terminated when not NULL; the NUL is not counted */
    size_t size, cap;
    bool   failed;
} cairn__buf;

static inline bool cairn__buf_reserve(cairn__buf *buf, size_t more)
{
    if (buf->failed || more > SIZE_MAX / 4 - buf->size) {
        buf->failed = true;
        return false;
    }
    if (buf->size + more + 1 <= buf->cap)
        return true;
    size_t cap  = (buf->size + more + 1) * 2;
    char  *data = realloc(buf->data, cap);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->cap  = cap;
    return true;
}

static inline void cairn__buf_add(cairn__buf *buf, const char *data, size_t size)
{
    if (!cairn__buf_reserve(buf, size))
        return;
    if (size)
        memcpy(buf->data + buf->size, data, size);
    buf->size += size;
    buf->data[buf->size] = 0;
}

static inline void cairn__buf_text(cairn__buf *buf, const char *text)
{
    cairn__buf_add(buf, text, strlen(text));
}

static inline void cairn__buf_done(cairn__buf *buf)
{
    free(buf->data);
    *buf = (cairn__buf){0};
}

#endif
