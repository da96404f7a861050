/* text.h - turns token pieces into text that may be shown.
 *
 * T1 What comes out is valid UTF-8 and ends at a character; bytes that can't
 *    become a character are replaced by U+FFFD, one for each maximal wrong run
 *    that a decoder would stop at (Unicode 3.9, "substitution of maximal subparts").
 * T2 No byte of a stop string comes out, also when it arrives in many pieces:
 *    what could become one is held back until it can't.
 * T3 The info of a token comes with the text that holds its first byte; tokens
 *    whose text begins in or after a stop string are dropped with it.
 * [one thread] */
#ifndef CAIRN_ENGINE_TEXT_H
#define CAIRN_ENGINE_TEXT_H

#include "engine/engine.h"

typedef struct cairn__text {
    const char *const *stops; /* borrowed */
    uint32_t           n_stops;
    size_t             longest_stop;
    char              *buf; /* characters not yet consumed */
    size_t             size, cap;
    size_t             n_ready;    /* buf[0..n_ready) may be shown */
    uint64_t           base;       /* bytes consumed before buf[0] */
    uint8_t            partial[4]; /* begin of a character */
    size_t             n_partial;
    cairn__token_info *infos;   /* not yet consumed */
    uint64_t          *offsets; /* where the text of infos[i] begins */
    uint32_t           n_infos, cap_infos;
    bool               stopped, ended;
} cairn__text;

typedef struct cairn__text_view { /* valid until the next call */
    const char              *text;
    size_t                   size;
    const cairn__token_info *infos;
    uint32_t                 n_infos;
} cairn__text_view;

void cairn__text_init(cairn__text *text, const char *const *stops, uint32_t n_stops);
void cairn__text_done(cairn__text *text);

/* Adds the piece of one token; info may be NULL. text->stopped afterwards: a stop
 * string is complete, everything from it on is gone, feed no more. */
CAIRN_MUST_USE cairn_status cairn__text_feed(cairn__text *text, const char *piece, size_t size,
                                             const cairn__token_info *info);
/* Nothing follows: what is held back becomes ready. */
CAIRN_MUST_USE cairn_status cairn__text_end(cairn__text *text);

/* What may be shown now; then consume exactly that. */
cairn__text_view cairn__text_ready(const cairn__text *text);
void             cairn__text_consume(cairn__text *text);

#endif
