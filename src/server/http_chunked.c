/* http_chunked.c - the chunked transfer coding as a state machine that may be
 * fed in pieces of any size. Extensions and trailers are read and dropped; lines
 * end with CRLF only; sizes are at most 2^40. */
#include "server/http.h"

enum { SIZE_FIRST, SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER_START, TRAILER, TRAILER_LF, END_LF, DONE };

#define MAX_LINE 4096     /* of a size line with its extensions, or of one trailer line */
#define MAX_TRAILERS 8192

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A character of the size line. False: not allowed there. */
static bool size_line(cairn__chunked *s, char c)
{
    int digit = hex_digit(c);
    if (++s->line_size > MAX_LINE)
        return false;
    if (s->state != EXTENSION && digit >= 0) {
        s->left  = s->left * 16 + (uint64_t)digit;
        s->state = SIZE;
        return s->left <= (uint64_t)1 << 40;
    }
    if (s->state == SIZE_FIRST)
        return false; /* no digit at all */
    if (c == '\r') {
        s->state = SIZE_LF;
        return true;
    }
    if (s->state == SIZE && c != ';' && c != ' ' && c != '\t')
        return false;
    s->state = EXTENSION;
    return (unsigned char)c >= ' ' || c == '\t';
}

static bool trailer(cairn__chunked *s, char c)
{
    if (++s->trailer_size > MAX_TRAILERS)
        return false;
    if (c == '\r')
        s->state = s->state == TRAILER_START ? END_LF : TRAILER_LF;
    else if ((unsigned char)c < ' ' && c != '\t')
        return false;
    else
        s->state = TRAILER;
    return true;
}

static bool line_feed(cairn__chunked *s)
{
    switch (s->state) {
    case SIZE_LF: s->state = s->left ? DATA : TRAILER_START; break;
    case DATA_LF:
        s->state     = SIZE_FIRST;
        s->line_size = 0;
        break;
    case TRAILER_LF: s->state = TRAILER_START; break;
    default: s->state = DONE; break;
    }
    return true;
}

static bool one_char(cairn__chunked *s, char c)
{
    switch (s->state) {
    case SIZE_FIRST:
    case SIZE:
    case EXTENSION: return size_line(s, c);
    case DATA_CR: s->state = DATA_LF; return c == '\r';
    case TRAILER_START:
    case TRAILER: return trailer(s, c);
    default: return c == '\n' && line_feed(s);
    }
}

cairn__chunked_result cairn__chunked_read(cairn__chunked *state, const char *input, size_t size, size_t *ret_used,
                                          void (*body)(void *ctx, const char *data, size_t size), void *ctx)
{
    size_t at = 0;
    while (at < size && state->state != DONE) {
        if (state->state == DATA) {
            size_t n = size - at < state->left ? size - at : (size_t)state->left;
            body(ctx, input + at, n);
            at += n;
            state->left -= n;
            if (state->left == 0)
                state->state = DATA_CR;
        } else if (!one_char(state, input[at++])) {
            *ret_used = at;
            return CAIRN__CHUNKED_BAD;
        }
    }
    *ret_used = at;
    return state->state == DONE ? CAIRN__CHUNKED_DONE : CAIRN__CHUNKED_MORE;
}
