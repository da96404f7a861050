/* text.c - see text.h. Buffers stay small: what is held back is shorter than a
 * character plus the longest stop string. */
#include "engine/text.h"

#include <stdlib.h>
#include <string.h>

static const char replacement[3] = {'\xef', '\xbf', '\xbd'};

void cairn__text_init(cairn__text *text, const char *const *stops, uint32_t n_stops)
{
    memset(text, 0, sizeof *text);
    text->stops = stops;
    text->n_stops = n_stops;
    for (uint32_t i = 0; i < n_stops; i++) {
        size_t size = strlen(stops[i]);
        if (size > text->longest_stop)
            text->longest_stop = size;
    }
}

void cairn__text_done(cairn__text *text)
{
    free(text->buf);
    free(text->infos);
    free(text->offsets);
    memset(text, 0, sizeof *text);
}

/* Length of the character that lead byte c begins and the allowed range of its
 * second byte; 0: c begins none. */
static size_t lead(uint8_t c, uint8_t *low, uint8_t *high)
{
    *low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    *high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

typedef enum char_state { CHAR_COMPLETE, CHAR_INCOMPLETE, CHAR_WRONG } char_state;

/* Looks at the first character of p[0..n), n > 0; *ret_size: its bytes, or the
 * bytes of the wrong run. */
static char_state next_char(const uint8_t *p, size_t n, size_t *ret_size)
{
    uint8_t low, high;
    size_t  len = lead(p[0], &low, &high);
    *ret_size = 1;
    if (len == 0)
        return CHAR_WRONG;
    for (size_t i = 1; i < len; i++) {
        if (i == n)
            return CHAR_INCOMPLETE;
        if (p[i] < low || p[i] > high)
            return CHAR_WRONG;
        *ret_size = i + 1;
        low = 0x80;
        high = 0xbf;
    }
    return CHAR_COMPLETE;
}

static bool reserve(cairn__text *text, size_t more)
{
    if (text->cap - text->size >= more)
        return true;
    size_t cap = (text->size + more) * 2;
    char  *buf = realloc(text->buf, cap);
    if (!buf)
        return false;
    text->buf = buf;
    text->cap = cap;
    return true;
}

static void append(cairn__text *text, const void *bytes, size_t size)
{
    memcpy(text->buf + text->size, bytes, size);
    text->size += size;
}

/* Appends the characters of one byte more; room was reserved. */
static void push_byte(cairn__text *text, uint8_t byte)
{
    text->partial[text->n_partial++] = byte;
    while (text->n_partial > 0) {
        size_t     size;
        char_state state = next_char(text->partial, text->n_partial, &size);
        if (state == CHAR_INCOMPLETE)
            return;
        if (state == CHAR_COMPLETE)
            append(text, text->partial, size);
        else
            append(text, replacement, sizeof replacement);
        text->n_partial -= size;
        memmove(text->partial, text->partial + size, text->n_partial);
    }
}

static bool add_info(cairn__text *text, const cairn__token_info *info)
{
    if (text->n_infos == text->cap_infos) {
        uint32_t           cap = text->cap_infos * 2 + 8;
        cairn__token_info *infos = realloc(text->infos, cap * sizeof *infos);
        if (infos)
            text->infos = infos;
        uint64_t *offsets = infos ? realloc(text->offsets, cap * sizeof *offsets) : NULL;
        if (!offsets)
            return false;
        text->offsets = offsets;
        text->cap_infos = cap;
    }
    text->infos[text->n_infos] = *info;
    text->offsets[text->n_infos++] = text->base + text->size;
    return true;
}

/* First position at or after `from` where a whole stop string stands. */
static bool find_stop(const cairn__text *text, size_t from, size_t *ret_at)
{
    for (size_t at = from; at < text->size; at++) {
        for (uint32_t i = 0; i < text->n_stops; i++) {
            size_t size = strlen(text->stops[i]);
            if (size > 0 && size <= text->size - at && memcmp(text->buf + at, text->stops[i], size) == 0) {
                *ret_at = at;
                return true;
            }
        }
    }
    return false;
}

/* First position from which the rest of the buffer is the begin of a stop string. */
static size_t begin_of_stop(const cairn__text *text)
{
    size_t from = text->size >= text->longest_stop ? text->size - text->longest_stop : 0;
    for (size_t at = from; at < text->size; at++) {
        for (uint32_t i = 0; i < text->n_stops; i++) {
            size_t rest = text->size - at;
            if (rest < strlen(text->stops[i]) && memcmp(text->stops[i], text->buf + at, rest) == 0)
                return at;
        }
    }
    return text->size;
}

static void drop_infos_from(cairn__text *text, uint64_t offset)
{
    while (text->n_infos > 0 && text->offsets[text->n_infos - 1] >= offset)
        text->n_infos--;
}

static void find_ready(cairn__text *text, size_t old_size)
{
    size_t at = 0;
    size_t from = old_size >= text->longest_stop ? old_size - text->longest_stop : 0;
    if (text->longest_stop > 0 && find_stop(text, from, &at)) {
        text->stopped = true;
        text->size = text->n_ready = at;
        text->n_partial = 0;
        drop_infos_from(text, text->base + at);
    } else {
        text->n_ready = text->longest_stop > 0 ? begin_of_stop(text) : text->size;
    }
}

cairn_status cairn__text_feed(cairn__text *text, const char *piece, size_t size, const cairn__token_info *info)
{
    size_t old_size = text->size;
    /* Every byte can turn into a replacement, and set a held partial free as well. */
    if (!reserve(text, (size + text->n_partial) * sizeof replacement) || (info && !add_info(text, info)))
        return CAIRN_ENOMEM;
    for (size_t i = 0; i < size; i++)
        push_byte(text, (uint8_t)piece[i]);
    find_ready(text, old_size);
    return CAIRN_OK;
}

cairn_status cairn__text_end(cairn__text *text)
{
    size_t old_size = text->size;
    if (text->n_partial > 0) {
        if (!reserve(text, sizeof replacement))
            return CAIRN_ENOMEM;
        append(text, replacement, sizeof replacement);
        text->n_partial = 0;
        find_ready(text, old_size);
    }
    text->n_ready = text->size;
    text->ended = true;
    return CAIRN_OK;
}

cairn__text_view cairn__text_ready(const cairn__text *text)
{
    cairn__text_view view = {text->buf, text->n_ready, text->infos, 0};
    while (view.n_infos < text->n_infos && (text->ended || text->offsets[view.n_infos] < text->base + text->n_ready))
        view.n_infos++;
    return view;
}

void cairn__text_consume(cairn__text *text)
{
    cairn__text_view view = cairn__text_ready(text);
    text->size -= view.size;
    text->base += view.size;
    text->n_ready = 0;
    if (view.size > 0)
        memmove(text->buf, text->buf + view.size, text->size);
    text->n_infos -= view.n_infos;
    if (view.n_infos > 0) {
        memmove(text->infos, text->infos + view.n_infos, text->n_infos * sizeof *text->infos);
        memmove(text->offsets, text->offsets + view.n_infos, text->n_infos * sizeof *text->offsets);
    }
}
