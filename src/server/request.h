/* request.h - a body of the API turned into a job for the engine. Runs on the
 * worker thread; touches only the functions of the runtime that any thread may
 * call, and the chat template, which belongs to the worker. */
#ifndef CAIRN_SERVER_REQUEST_H
#define CAIRN_SERVER_REQUEST_H

#include "engine/engine.h"
#include "llama/chat.h"
#include "server/error.h"
#include "server/json_text.h"

typedef enum cairn__api_request_kind { CAIRN__REQUEST_CHAT, CAIRN__REQUEST_COMPLETION } cairn__api_request_kind;

typedef struct cairn__api_request_env { /* the same for all requests; borrowed */
    const cairn__runtime *rt;
    cairn__chat          *chat;       /* NULL: no template, then why: */
    const char           *chat_error; /* for the client */
    bool                  reproducible;
} cairn__api_request_env;

typedef struct cairn__api_request {
    cairn__api_request_kind kind;
    bool                stream, include_usage;
    bool                tools;          /* calls may come */
    bool                parallel_calls; /* more than one of them */
    bool                echo;           /* completions: the prompt's text goes before the answer */
    char               *echo_text;      /* echo: the prompt's text */
    size_t              echo_size;
    cairn__job          job;    /* points into what follows */
    cairn__chat_prompt  prompt; /* chat; prompt.parser NULL: the answer is plain text */
    int32_t            *tokens;
    char              **stops;
    cairn__logit_bias  *logit_bias;
} cairn__api_request;

typedef struct cairn__api_body { /* a request as it came in */
    cairn__api_request_kind kind;
    const char             *tenant; /* whose key it has, see keys.h; NULL: the server has no keys */
    char                   *text;   /* changed by parsing */
    size_t                  size;
} cairn__api_body;

/* False: *refusal says why. */
bool cairn__api_request_parse(const cairn__api_request_env *env, const cairn__api_body *body,
                          cairn__api_request **ret_request, cairn__refusal *refusal);
void cairn__api_request_destroy(cairn__api_request *request); /* accepts NULL */

/* ---- the parts, each in its file ---- */
bool cairn__api_request_sampling(const cairn__api_request_env *env, const json_t *body, cairn__api_request *request,
                             cairn__refusal *refusal);
bool cairn__api_request_stops(const json_t *body, cairn__api_request *request, cairn__refusal *refusal);
bool cairn__api_request_chat(const cairn__api_request_env *env, const json_t *body, cairn__api_request *request,
                         cairn__refusal *refusal);
/* Fills job.marks of a request that was rendered and tokenized; input: as the template got it. */
void cairn__api_request_marks(const cairn__api_request_env *env, const char *input, cairn__api_request *request);
bool cairn__api_request_completion(const cairn__api_request_env *env, const json_t *body, cairn__api_request *request,
                               cairn__refusal *refusal);
/* The messages, and the tools, as the template may see them: new references; NULL with *refusal filled. */
json_t *cairn__chat_messages(const json_t *messages, cairn__refusal *refusal);
json_t *cairn__chat_tools(const json_t *tools, cairn__refusal *refusal);

#define CAIRN__MAX_STOPS 16
bool cairn__refuse_memory(cairn__refusal *refusal); /* 503, returns false */

#endif
