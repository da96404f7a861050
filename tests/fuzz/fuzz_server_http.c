/* fuzz_server_http.c - heads of requests and chunked bodies. A body means the
 * same however the network cuts it: each input is read whole, and in pieces. */
#include "server/http.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct sum { /* of the body bytes, in order */
    uint64_t hash;
    size_t   size;
} sum;

static void add(void *ctx, const char *data, size_t size)
{
    sum *s = ctx;
    for (size_t i = 0; i < size; i++)
        s->hash = s->hash * 1099511628211u + (unsigned char)data[i];
    s->size += size;
}

/* Reads in pieces of at most `piece` bytes; returns the result of the last one. */
static cairn__chunked_result read_chunked(const char *text, size_t size, size_t piece, sum *ret_sum, size_t *ret_used)
{
    cairn__chunked        state = {0};
    cairn__chunked_result result = CAIRN__CHUNKED_MORE;
    *ret_used = 0;
    while (result == CAIRN__CHUNKED_MORE && *ret_used < size) {
        size_t left = size - *ret_used, used = 0;
        result = cairn__chunked_read(&state, text + *ret_used, left < piece ? left : piece, &used, add, ret_sum);
        if (used > left)
            abort();
        if (used == 0 && result == CAIRN__CHUNKED_MORE)
            break; /* wants more than a piece; whole input is the other run's */
        *ret_used += used;
    }
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = 0;

    cairn__http_head head;
    const char      *reason = NULL;
    int              status = cairn__http_head_parse(text, size, &head, &reason);
    if (status != 0 && (status < 400 || status > 599 || !reason))
        abort();
    if (status == 0 && (memchr(head.path, 0, sizeof head.path) == NULL || memchr(head.method, 0, sizeof head.method) == NULL))
        abort();

    sum                   whole = {0}, pieces = {0};
    size_t                used_whole, used_pieces;
    cairn__chunked_result result = read_chunked(text, size, size + 1, &whole, &used_whole);
    if (read_chunked(text, size, 1, &pieces, &used_pieces) != result)
        abort();
    if (result == CAIRN__CHUNKED_DONE &&
        (whole.hash != pieces.hash || whole.size != pieces.size || used_whole != used_pieces))
        abort();
    free(text);
    return 0;
}
