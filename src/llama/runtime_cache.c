/* runtime_cache.c - the runtime's side of the durable tier: hands model, context
 * and the settings they were made from to the adapter, and asks it to restore
 * and record. Without a store everything here does nothing. */
#include "llama/runtime_internal.h"

#include "base/bytes.h"
#include "cairn/llama.h"

#include <string.h>

cairn_status cairn__runtime_attach_store(cairn__runtime *rt, cairn_store *store, const cairn_digest *weights,
                                         cairn_error *error)
{
    if (rt->cache)
        return cairn__runtime_fail(error, CAIRN_EINVAL, "a store is attached already");
    cairn_llama_options options = {
        .model_params = &rt->model_params,
        .context_params = &rt->context_params,
        .model_paths = (const char *const *)rt->files.paths,
        .n_model_paths = rt->files.n,
        .store = store,
        .scratch_seq = (llama_seq_id)rt->n_seq,
        .grid_tokens = rt->reproducible ? rt->n_batch : 0,
        .weights = weights,
        .patience_ms = rt->patience_ms,
    };
    return cairn_llama_open(rt->model, rt->ctx, &options, &rt->cache, error);
}

void cairn__runtime_cache_close(cairn__runtime *rt)
{
    cairn_llama_close(rt->cache);
    rt->cache = NULL;
}

const char *cairn__runtime_unsupported(const cairn__runtime *rt)
{
    return rt->cache ? cairn_llama_unsupported(rt->cache) : NULL;
}

static const cairn_digest NO_SALT;

static bool set_salt(cairn__runtime *rt, uint32_t seq, const cairn_digest *salt)
{
    char                      text[2 * sizeof salt->bytes + 1];
    cairn__hex(salt->bytes, sizeof salt->bytes, text);
    bool salted = memcmp(salt, &NO_SALT, sizeof NO_SALT) != 0;
    return cairn_llama_set_salt(rt->cache, (llama_seq_id)seq, salted ? text : NULL) == CAIRN_OK;
}

/* Positions [0,n) of at most n_tokens - 1, and in reproducible mode on the grid. */
static bool holds_as_promised(const cairn__runtime *rt, uint32_t seq, uint32_t n_tokens, uint32_t n)
{
    return n < n_tokens && llama_memory_seq_pos_max(rt->memory, (llama_seq_id)seq) + 1 == (llama_pos)n &&
           (!rt->reproducible || n % rt->n_batch == 0);
}

static cairn__restored restore(cairn__runtime *rt, uint32_t seq, const cairn_digest *salt, const cairn_prompt *prompt,
                               uint32_t n_resident, bool (*go_on)(void *ctx), void *ctx)
{
    cairn__restored nothing = {.n_tokens = n_resident, .miss = CAIRN_MISS_TIER_OFF};
    if (!rt->cache)
        return nothing;
    if (cairn__runtime_unsupported(rt)) {
        nothing.miss = CAIRN_MISS_UNSUPPORTED_MODEL;
        return nothing;
    }
    cairn_llama_restored r = {0};
    if (!set_salt(rt, seq, salt) || cairn_llama_restore_ahead(rt->cache, (llama_seq_id)seq, prompt->tokens,
                                                              prompt->n_tokens, n_resident, go_on, ctx, &r)) {
        nothing.miss = CAIRN_MISS_IO;
        return nothing;
    }
    cairn__restored result = {r.n_tokens, r.from_store, r.bytes, r.elapsed_ns, r.miss, r.evicted_s, r.shared};
    if (!holds_as_promised(rt, seq, prompt->n_tokens, r.n_tokens)) {
        /* Read back, not believed: what is in doubt is computed again. */
        llama_memory_seq_rm(rt->memory, (llama_seq_id)seq, -1, -1);
        result = (cairn__restored){.elapsed_ns = r.elapsed_ns, .miss = CAIRN_MISS_IO};
    }
    return result;
}

cairn__restored cairn__seq_restore(cairn__runtime *rt, uint32_t seq, const cairn_digest *salt, const int32_t *tokens,
                                   uint32_t n_tokens, uint32_t n_resident)
{
    const cairn_prompt prompt = {tokens, n_tokens};
    return restore(rt, seq, salt, &prompt, n_resident, NULL, NULL);
}

cairn__restored cairn__seq_restore_ahead(cairn__runtime *rt, uint32_t seq, const cairn_prompt *prompt,
                                         uint32_t n_resident, bool (*go_on)(void *ctx), void *ctx)
{
    return restore(rt, seq, &NO_SALT, prompt, n_resident, go_on, ctx);
}

cairn_prompt *cairn__runtime_recent(cairn__runtime *rt, uint32_t *ret_n_prompts)
{
    cairn_prompt *prompts = NULL;
    *ret_n_prompts = 0;
    if (rt->cache)
        (void)!cairn_llama_recent(rt->cache, &prompts, ret_n_prompts);
    return prompts;
}

void cairn__runtime_note_recent(cairn__runtime *rt, const cairn_prompt *prompts, uint32_t n_prompts)
{
    if (rt->cache)
        (void)!cairn_llama_note_recent(rt->cache, prompts, n_prompts);
}

void cairn__seq_record(cairn__runtime *rt, uint32_t seq, const cairn_digest *salt, const int32_t *tokens,
                       uint32_t n_tokens, bool end)
{
    if (!rt->cache || n_tokens == 0 || cairn__runtime_unsupported(rt) || !set_salt(rt, seq, salt))
        return;
    if (end)
        cairn_llama_record_end(rt->cache, (llama_seq_id)seq, tokens, n_tokens);
    else
        cairn_llama_record(rt->cache, (llama_seq_id)seq, tokens, n_tokens);
}

uint64_t cairn__runtime_checkpoint_bytes(const cairn__runtime *rt)
{
    return rt->cache ? cairn_llama_checkpoint_bytes(rt->cache) : 0;
}

bool cairn__seq_checkpoint(cairn__runtime *rt, uint32_t seq, const cairn_digest *salt, const int32_t *tokens,
                           uint32_t n_tokens)
{
    return !rt->cache || !set_salt(rt, seq, salt) || cairn_llama_checkpoint(rt->cache, (llama_seq_id)seq, tokens, n_tokens);
}
