/* runtime_guard.cpp - calls of llama.cpp that can throw, made safe for C.
 *
 * llama.h is a C interface but lets C++ exceptions out: bad_alloc of a graph,
 * "unexpected empty grammar stack", a regular expression that is none. Unwinding
 * through C would end the process. Every function here turns one into a result. */
#include "llama/runtime_internal.h"

#include <cstdio>
#include <exception>

static void report(const char *what)
{
    /* Through llama.cpp's own log, where cairn__runtime_last_error() finds it. */
    ggml_log_callback callback = nullptr;
    void             *user_data = nullptr;
    llama_log_get(&callback, &user_data);
    if (callback)
        callback(GGML_LOG_LEVEL_ERROR, what, user_data);
}

template <typename Result, typename Call> static Result guarded(Result on_throw, Call call)
{
    try {
        return call();
    } catch (const std::exception &e) {
        report(e.what());
    } catch (...) {
        report("unknown exception");
    }
    return on_throw;
}

int cairn__guard_decode(struct llama_context *ctx, const struct llama_batch *batch)
{
    return guarded<int>(CAIRN__GUARD_THREW, [&] {
        int code = llama_decode(ctx, *batch);
        llama_synchronize(ctx);
        return code;
    });
}

struct llama_context *cairn__guard_context(struct llama_model *model, const struct llama_context_params *params)
{
    return guarded<llama_context *>(nullptr, [&] { return llama_init_from_model(model, *params); });
}

struct llama_sampler *cairn__guard_grammar(const struct llama_vocab *vocab, const char *grammar, bool lazy,
                                           const char **patterns, size_t n_patterns, const int32_t *tokens,
                                           size_t n_tokens)
{
    return guarded<llama_sampler *>(nullptr, [&] {
        return lazy ? llama_sampler_init_grammar_lazy_patterns(vocab, grammar, "root", patterns, n_patterns, tokens,
                                                               n_tokens)
                    : llama_sampler_init_grammar(vocab, grammar, "root");
    });
}

bool cairn__guard_accept(struct llama_sampler *sampler, int32_t token)
{
    return guarded<bool>(false, [&] {
        llama_sampler_accept(sampler, token);
        return true;
    });
}

bool cairn__guard_apply(struct llama_sampler *sampler, llama_token_data_array *candidates)
{
    return guarded<bool>(false, [&] {
        llama_sampler_apply(sampler, candidates);
        return true;
    });
}

int32_t cairn__guard_tokenize(const struct llama_vocab *vocab, const char *text, int32_t text_size, int32_t *tokens,
                              int32_t n_max, bool add_special, bool parse_special)
{
    return guarded<int32_t>(
        INT32_MIN, [&] { return llama_tokenize(vocab, text, text_size, tokens, n_max, add_special, parse_special); });
}
