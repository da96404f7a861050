/* request_completion.c - POST /v1/completions: the prompt as text or token ids.
 *
 * Text is tokenized as llama-server does it: with the model's BOS, and text of
 * control tokens becomes control tokens, since a raw prompt has no other way to
 * write them. Token ids are used as they are. */
#include "server/fields.h"
#include "server/request.h"

#include <stdlib.h>
#include <string.h>

static bool from_text(const cairn__api_request_env *env, const json_t *text, cairn__api_request *request,
                      cairn__refusal *refusal)
{
    cairn_status status =
        cairn__tokenize(env->rt, json_string_value(text), json_string_length(text), true, true, &request->tokens,
                        &request->job.n_tokens);
    if (status == CAIRN_ENOMEM)
        return cairn__refuse_memory(refusal);
    if (status != CAIRN_OK)
        return cairn__refuse(refusal, 400, "invalid_value", "prompt", "the prompt can't be tokenized");
    if (!request->echo)
        return true;
    request->echo_text = malloc(json_string_length(text) + 1);
    if (!request->echo_text)
        return cairn__refuse_memory(refusal);
    request->echo_size = json_string_length(text);
    memcpy(request->echo_text, json_string_value(text), request->echo_size + 1);
    return true;
}

static bool echo_tokens(const cairn__api_request_env *env, cairn__api_request *request)
{
    char *text = malloc((size_t)request->job.n_tokens * 256 + 1);
    if (!text)
        return false;
    for (uint32_t i = 0; i < request->job.n_tokens; i++)
        request->echo_size += cairn__token_piece(env->rt, request->tokens[i], true, text + request->echo_size, 256);
    request->echo_text = text;
    return true;
}

static bool from_ids(const cairn__api_request_env *env, const json_t *ids, cairn__api_request *request, cairn__refusal *refusal)
{
    size_t n = json_array_size(ids);
    /* Before memory is taken for them; the exact limit is checked with the others. */
    if (n > cairn__runtime_n_ctx(env->rt))
        return cairn__refuse(refusal, 400, "context_length_exceeded", "prompt",
                             "the prompt has %zu tokens, the context holds %u", n, cairn__runtime_n_ctx(env->rt));
    request->tokens = malloc(n * sizeof *request->tokens);
    if (!request->tokens)
        return cairn__refuse_memory(refusal);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= cairn__runtime_n_vocab(env->rt))
            return cairn__refuse(refusal, 400, "invalid_value", "prompt",
                                 "'prompt' holds something that is not a token id of this model (0 to %u) at place %zu",
                                 cairn__runtime_n_vocab(env->rt) - 1, i);
        request->tokens[i] = (int32_t)json_integer_value(id);
    }
    request->job.n_tokens = (uint32_t)n;
    return !request->echo || echo_tokens(env, request) || cairn__refuse_memory(refusal);
}

bool cairn__api_request_completion(const cairn__api_request_env *env, const json_t *body, cairn__api_request *request,
                               cairn__refusal *refusal)
{
    const json_t *prompt = cairn__field(body, "prompt");
    if (!cairn__field_bool(body, "echo", &request->echo, refusal))
        return false;
    if (json_is_array(prompt) && json_array_size(prompt) > 0 && !json_is_integer(json_array_get(prompt, 0))) {
        if (json_array_size(prompt) > 1)
            return cairn__refuse(refusal, 400, "invalid_value", "prompt",
                                 "'prompt' must be one prompt: a string, or an array of token ids");
        prompt = json_array_get(prompt, 0);
    }
    bool ok;
    if (cairn__json_is_text(prompt))
        ok = from_text(env, prompt, request, refusal);
    else if (json_is_array(prompt) && json_array_size(prompt) > 0)
        ok = from_ids(env, prompt, request, refusal);
    else
        return cairn__refuse(refusal, 400, "invalid_type", "prompt",
                             "'prompt' must be a string or an array of token ids, not %s",
                             json_is_array(prompt) ? "an empty array" : cairn__json_kind(prompt));
    request->job.tokens = request->tokens;
    return ok;
}
