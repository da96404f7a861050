/* answer.h - engine events turned into the JSON of the API, streamed or whole.
 * One answer belongs to one exchange, on the loop thread. Knows no HTTP: it
 * writes server-sent events or one object into a buffer. */
#ifndef CAIRN_SERVER_ANSWER_H
#define CAIRN_SERVER_ANSWER_H

#include "server/buf.h"
#include "server/delta.h"
#include "server/request.h"

typedef struct cairn__answer {
    const cairn__api_request *request; /* borrowed */
    const cairn__runtime *rt;      /* borrowed */
    const char           *model;   /* borrowed */
    char                  id[48];
    int64_t               created;
    cairn__buf            text;     /* all of the answer */
    json_t               *logprobs; /* array, of tokens not yet sent; NULL: not wanted */
    size_t                text_offset; /* completions: of the next token with logprobs */
    bool                  started;  /* the first chunk was written */
    cairn__delta_state    deltas;
    uint64_t              parsed_at_ns, parse_cost_ns; /* of the last reading */
    bool                  failed;   /* out of memory */
} cairn__answer;

/* What the server measured, beside the event's own numbers. */
typedef struct cairn__answer_times {
    uint64_t ttft_ns; /* request received to first text handed to the socket; 0: none came */
} cairn__answer_times;

bool cairn__answer_init(cairn__answer *answer, const cairn__api_request *request, const cairn__runtime *rt,
                        const char *model);
void cairn__answer_done(cairn__answer *answer);

/* A TEXT event. Streams: chunks are appended to `out`, which may stay empty. */
void cairn__answer_text(cairn__answer *answer, const cairn__event *event, uint64_t now_ns, cairn__buf *out);
/* An END event. Streams: the last chunks and [DONE]; else the whole object.
 * False: the answer could not be finished and *refusal says why. */
bool cairn__answer_end(cairn__answer *answer, const cairn__event *event, const cairn__answer_times *times,
                       cairn__buf *out, cairn__refusal *refusal);

/* answer_parts.c */
json_t *cairn__answer_usage(const cairn__event *event);
json_t *cairn__answer_timings(const cairn__event *event, const cairn__answer_times *times);
/* Entries of `infos`, appended to answer->logprobs. */
void    cairn__answer_add_logprobs(cairn__answer *answer, const cairn__event *event);
/* What was collected, in the form of the kind; the collection starts again. json null when not wanted. */
json_t *cairn__answer_take_logprobs(cairn__answer *answer);
/* {"id":...,"object":...,"created":...,"model":...,"choices":choices} */
json_t *cairn__answer_object(const cairn__answer *answer, const char *object, json_t *choices_take);
/* "data: {...}\n\n"; takes the object. */
void cairn__answer_emit(cairn__answer *answer, json_t *object_take, cairn__buf *out);

#endif
