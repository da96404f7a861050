/* request_sampling.c - how the next token is chosen: the fields and their limits
 * (docs/operate.md has the table). */
#include "server/fields.h"
#include "server/request.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint32_t random_seed(void)
{
    uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = 1;
    return seed;
}

static bool read_reals(const json_t *body, cairn__sampling *s, cairn__refusal *refusal)
{
    const struct {
        const char       *name;
        cairn__real_range range;
        float            *value;
    } fields[] = {
        {"temperature", {0, 100}, &s->temperature},
        {"top_p", {0, 1}, &s->top_p},
        {"min_p", {0, 1}, &s->min_p},
        {"presence_penalty", {-2, 2}, &s->presence_penalty},
        {"frequency_penalty", {-2, 2}, &s->frequency_penalty},
        {"repeat_penalty", {0.01, 10}, &s->repeat_penalty},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!cairn__field_real(body, fields[i].name, fields[i].range, fields[i].value, refusal))
            return false;
    return true;
}

/* {"TOKEN ID": bias}, as OpenAI has it. */
static bool read_logit_bias(const cairn__api_request_env *env, const json_t *body, cairn__api_request *request,
                            cairn__refusal *refusal)
{
    const json_t *object = NULL, *value;
    const char   *key;
    if (!cairn__field_object(body, "logit_bias", &object, refusal))
        return false;
    size_t n = json_object_size(object);
    if (n == 0)
        return true;
    if (n > cairn__runtime_n_vocab(env->rt))
        return cairn__refuse(refusal, 400, "invalid_value", "logit_bias", "'logit_bias' has too many entries");
    request->logit_bias = calloc(n, sizeof *request->logit_bias);
    if (!request->logit_bias)
        return cairn__refuse_memory(refusal);
    uint32_t i = 0;
    json_object_foreach((json_t *)object, key, value)
    {
        char         *end;
        unsigned long token = strtoul(key, &end, 10);
        bool          id_ok = key[0] >= '0' && key[0] <= '9' && *end == 0 && token < cairn__runtime_n_vocab(env->rt);
        if (!id_ok || !cairn__json_is_number(value) || !(cairn__json_number(value) >= -100 && cairn__json_number(value) <= 100))
            return cairn__refuse(refusal, 400, "invalid_value", "logit_bias",
                                 "'logit_bias' must map token ids of this model (0 to %u) to numbers from -100 to 100",
                                 cairn__runtime_n_vocab(env->rt) - 1);
        request->logit_bias[i++] = (cairn__logit_bias){(int32_t)token, (float)cairn__json_number(value)};
    }
    request->job.sampling.logit_bias   = request->logit_bias;
    request->job.sampling.n_logit_bias = i;
    return true;
}

/* chat: logprobs true, top_logprobs N; completions: logprobs N. */
static bool read_logprobs(const json_t *body, cairn__api_request *request, cairn__refusal *refusal)
{
    int64_t n = request->kind == CAIRN__REQUEST_CHAT ? 0 : -1;
    if (request->kind == CAIRN__REQUEST_COMPLETION) {
        if (json_is_boolean(json_object_get(body, "logprobs")))
            return cairn__refuse(refusal, 400, "invalid_type", "logprobs", "'logprobs' must be an integer here");
        if (!cairn__field_int(body, "logprobs", (cairn__int_range){0, 20}, &n, refusal))
            return false;
        request->job.want_logprobs = n >= 0;
    } else {
        if (!cairn__field_bool(body, "logprobs", &request->job.want_logprobs, refusal) ||
            !cairn__field_int(body, "top_logprobs", (cairn__int_range){0, 20}, &n, refusal))
            return false;
        if (n > 0 && !request->job.want_logprobs)
            return cairn__refuse(refusal, 400, "invalid_value", "top_logprobs",
                                 "'top_logprobs' needs 'logprobs': true");
    }
    request->job.n_top_logprobs = n > 0 ? (uint32_t)n : 0;
    return true;
}

static bool read_counts(const json_t *body, cairn__refusal *refusal)
{
    static const char *const names[] = {"n", "best_of"};
    for (int i = 0; i < 2; i++) {
        int64_t n = 1;
        if (!cairn__field_int(body, names[i], (cairn__int_range){INT64_MIN, INT64_MAX}, &n, refusal))
            return false;
        if (n != 1)
            return cairn__refuse(refusal, 400, "invalid_value", names[i], "'%s' must be 1: one answer a request",
                                 names[i]);
    }
    return true;
}

bool cairn__api_request_sampling(const cairn__api_request_env *env, const json_t *body, cairn__api_request *request,
                             cairn__refusal *refusal)
{
    cairn__sampling *s = &request->job.sampling;
    s->temperature     = 1;
    s->top_p           = 1;
    s->repeat_penalty  = 1;
    int64_t top_k = -1, seed = -1;
    if (!read_counts(body, refusal) || !read_reals(body, s, refusal) ||
        !cairn__field_int(body, "top_k", (cairn__int_range){-1, INT32_MAX}, &top_k, refusal) ||
        !cairn__field_int(body, "seed", (cairn__int_range){INT64_MIN, INT64_MAX}, &seed, refusal) ||
        !cairn__field_bool(body, "ignore_eos", &request->job.ignore_eos, refusal) ||
        !read_logprobs(body, request, refusal))
        return false;
    s->top_k = top_k > 0 ? (int32_t)top_k : 0;
    /* --reproducible promises the same answer to the same request, so chance may
     * only come from the request. */
    s->seed = seed >= 0 || seed < -1 ? (uint32_t)seed : env->reproducible ? 0 : random_seed();
    return read_logit_bias(env, body, request, refusal);
}

static bool add_stop(cairn__api_request *request, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return false;
    request->stops[request->job.n_stops++] = copy;
    return true;
}

/* Stop strings of the request, then those of the chat format. */
bool cairn__api_request_stops(const json_t *body, cairn__api_request *request, cairn__refusal *refusal)
{
    const json_t *stop = cairn__field(body, "stop");
    size_t        n    = json_is_array(stop) ? json_array_size(stop) : 1;
    if (stop && !json_is_array(stop) && !cairn__json_is_text(stop))
        return cairn__refuse(refusal, 400, "invalid_type", "stop", "'stop' must be a string or an array of strings");
    if (n > CAIRN__MAX_STOPS)
        return cairn__refuse(refusal, 400, "invalid_value", "stop", "'stop' has %zu strings, at most %d are allowed", n,
                             CAIRN__MAX_STOPS);
    request->stops = calloc(n + request->prompt.n_stops + 1, sizeof *request->stops);
    if (!request->stops)
        return cairn__refuse_memory(refusal);
    request->job.stops = (const char *const *)request->stops;
    for (size_t i = 0; stop && i < n; i++) {
        const json_t *one = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!cairn__json_is_text(one))
            return cairn__refuse(refusal, 400, "invalid_type", "stop", "'stop' must contain strings only, not %s",
                                 cairn__json_kind(one));
        if (json_string_length(one) > 0 && !add_stop(request, json_string_value(one))) /* "" stops nothing */
            return cairn__refuse_memory(refusal);
    }
    for (uint32_t i = 0; i < request->prompt.n_stops; i++)
        if (!add_stop(request, request->prompt.stops[i]))
            return cairn__refuse_memory(refusal);
    return true;
}
