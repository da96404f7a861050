/* request.c - the order of checks that all requests share. */
#include "server/request.h"
#include "server/fields.h"
#include "server/keys.h"

#include <stdlib.h>

bool cairn__refuse_memory(cairn__refusal *refusal)
{
    return cairn__refuse(refusal, 503, "out_of_memory", NULL, "out of memory; try again later");
}

void cairn__api_request_destroy(cairn__api_request *request)
{
    if (!request)
        return;
    for (uint32_t i = 0; request->stops && i < request->job.n_stops; i++)
        free(request->stops[i]);
    free(request->stops);
    free(request->tokens);
    free(request->logit_bias);
    free(request->echo_text);
    cairn__chat_prompt_done(&request->prompt);
    free(request);
}

/* max_tokens and its younger name; null and -1 mean: to the end of the context. */
static bool read_limit(const json_t *body, int64_t *ret_limit, cairn__refusal *refusal)
{
    static const char *const names[] = {"max_tokens", "max_completion_tokens"};
    *ret_limit                       = INT64_MAX;
    for (int i = 0; i < 2; i++) {
        int64_t value = -1;
        if (!cairn__field_int(body, names[i], (cairn__int_range){-1, INT64_MAX}, &value, refusal))
            return false;
        if (value >= 0 && value < *ret_limit)
            *ret_limit = value;
    }
    return true;
}

/* The prompt must fit, with room for one token of an answer. */
static bool fit_context(const cairn__api_request_env *env, const json_t *body, cairn__api_request *request,
                        cairn__refusal *refusal)
{
    int64_t  limit;
    uint32_t n_ctx = cairn__runtime_n_ctx(env->rt), n = request->job.n_tokens;
    if (!read_limit(body, &limit, refusal))
        return false;
    const char *param = request->kind == CAIRN__REQUEST_CHAT ? "messages" : "prompt";
    if (n == 0)
        return cairn__refuse(refusal, 400, "invalid_value", param, "the prompt is empty: it has no tokens");
    if (n >= n_ctx)
        return cairn__refuse(refusal, 400, "context_length_exceeded", param,
                             "the prompt has %u tokens, the context holds %u with the answer; shorten the prompt, or "
                             "start the server with a larger --ctx",
                             n, n_ctx);
    int64_t left            = (int64_t)n_ctx - n;
    request->job.max_tokens = (uint32_t)(limit < left ? limit : left);
    return true;
}

static bool read_stream(const json_t *body, cairn__api_request *request, cairn__refusal *refusal)
{
    const json_t *options = NULL, *usage;
    const char   *model   = NULL;
    if (!cairn__field_string(body, "model", &model, refusal) ||
        !cairn__field_bool(body, "stream", &request->stream, refusal) ||
        !cairn__field_object(body, "stream_options", &options, refusal))
        return false;
    usage = cairn__field(options, "include_usage");
    if (usage && !json_is_boolean(usage))
        return cairn__refuse(refusal, 400, "invalid_type", "stream_options.include_usage",
                             "'stream_options.include_usage' must be true or false, not %s", cairn__json_kind(usage));
    request->include_usage = json_is_true(usage);
    return true;
}

/* As vLLM has it: a text that only requests with the same one share the cache with. */
static bool read_salt(const json_t *body, const char *tenant, cairn__api_request *request, cairn__refusal *refusal)
{
    const char *salt = NULL;
    if (!cairn__field_string(body, "cache_salt", &salt, refusal))
        return false;
    if (salt && !*salt)
        return cairn__refuse(refusal, 400, "invalid_value", "cache_salt",
                             "'cache_salt' must not be empty; leave it out to have none");
    request->job.salt = cairn__tenant_salt(tenant, salt);
    return true;
}

static bool parse_body(const cairn__api_request_env *env, const json_t *body, const char *tenant,
                       cairn__api_request *request, cairn__refusal *refusal)
{
    if (!json_is_object(body))
        return cairn__refuse(refusal, 400, "invalid_json", NULL, "the body must be a JSON object, not %s",
                             cairn__json_kind(body));
    if (!read_stream(body, request, refusal) || !read_salt(body, tenant, request, refusal) ||
        !cairn__api_request_sampling(env, body, request, refusal))
        return false;
    bool ok = request->kind == CAIRN__REQUEST_CHAT ? cairn__api_request_chat(env, body, request, refusal)
                                                   : cairn__api_request_completion(env, body, request, refusal);
    return ok && cairn__api_request_stops(body, request, refusal) && fit_context(env, body, request, refusal);
}

bool cairn__api_request_parse(const cairn__api_request_env *env, const cairn__api_body *body,
                          cairn__api_request **ret_request, cairn__refusal *refusal)
{
    char    reason[200];
    bool    no_memory;
    json_t *root = cairn__json_parse(body->text, body->size, reason, sizeof reason, &no_memory);
    if (!root)
        return no_memory ? cairn__refuse_memory(refusal)
                         : cairn__refuse(refusal, 400, "invalid_json", NULL, "the body is not valid JSON: %s", reason);
    cairn__api_request *request = calloc(1, sizeof *request);
    bool            ok      = request != NULL;
    if (ok) {
        request->kind = body->kind;
        ok            = parse_body(env, root, body->tenant, request, refusal);
    } else {
        cairn__refuse_memory(refusal);
    }
    json_decref(root);
    if (ok)
        *ret_request = request;
    else
        cairn__api_request_destroy(request);
    return ok;
}
