/* delta.h - what is new in an assistant message since it was last sent.
 *
 * The parser reads the whole answer again and again as it grows; a stream wants
 * the differences. Text is only ever appended: what was sent can't be taken back,
 * so a reading that contradicts it is waited out, and reported if it is final. */
#ifndef CAIRN_SERVER_DELTA_H
#define CAIRN_SERVER_DELTA_H

#include <jansson.h>
#include <stdbool.h>

#define CAIRN__MAX_CALLS 128 /* tool calls of one answer; more are left out */

typedef struct cairn__delta_state { /* zero-initialise */
    size_t content_size, reasoning_size; /* bytes sent */
    char  *content, *reasoning;          /* the sent bytes; NULL: none */
    struct {
        char   id[32];
        char  *arguments; /* sent; NULL: none */
        size_t arguments_size;
        bool   opened; /* id and name were sent */
    } calls[CAIRN__MAX_CALLS];
    unsigned n_opened;
    bool     contradiction, failed; /* final reading differs from what was sent; out of memory */
} cairn__delta_state;

typedef struct cairn__delta_options {
    bool final;        /* no more text comes */
    bool hold_blank;   /* content of white space alone may still turn out to be the run-up to a call */
    bool single_call;  /* only the first call counts */
} cairn__delta_options;

/* New references to delta objects, appended to `out`. `message` is in OpenAI's
 * form, as cairn__chat_parse() gives it. */
void cairn__delta_update(cairn__delta_state *state, const json_t *message, cairn__delta_options options, json_t *out);
void cairn__delta_done(cairn__delta_state *state);

/* The whole message for an answer that was not streamed: content, reasoning,
 * calls with ids; new reference, NULL: out of memory. */
json_t *cairn__delta_message(const json_t *message, bool single_call);

/* "call_" and 24 random characters. */
void cairn__call_id(char out[32]);

#endif
