/* runtime_sequences.c - decoding, cutting, forking and clearing sequences.
 *
 * After every call a sequence holds positions [0,n) without a hole or was
 * reported as lost; the numbers are read back from the memory and not believed. */
#include "llama/runtime_internal.h"

#include <math.h>
#include <stdlib.h>

static uint32_t held(const cairn__runtime *rt, uint32_t seq)
{
    return (uint32_t)(llama_memory_seq_pos_max(rt->memory, (llama_seq_id)seq) + 1);
}

static void fill_batch(struct llama_batch *batch, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t pos,
                       bool want_logits)
{
    for (uint32_t i = 0; i < n; i++) {
        batch->token[i] = tokens[i];
        batch->pos[i] = (llama_pos)(pos + i);
        batch->n_seq_id[i] = 1;
        batch->seq_id[i][0] = (llama_seq_id)seq;
        batch->logits[i] = want_logits && i + 1 == n;
    }
    batch->n_tokens = (int32_t)n;
}

/* The aborted call's positions are removed; what came before stays. */
static cairn_status after_abort(cairn__runtime *rt, uint32_t seq, uint32_t pos)
{
    if (held(rt, seq) != pos)
        llama_memory_seq_rm(rt->memory, (llama_seq_id)seq, (llama_pos)pos, -1);
    if (held(rt, seq) == pos)
        return CAIRN_ECANCELED;
    rt->poisoned = true; /* recurrent state can't be rolled back */
    return CAIRN_ERUNTIME;
}

/* Numbers that are none would be sampled as token 0 for ever. */
static bool logits_are_numbers(cairn__runtime *rt)
{
    const float *logits = cairn__logits(rt);
    uint32_t     n_wrong = logits ? 0 : 1;
    for (uint32_t i = 0; logits && i < rt->n_vocab; i++)
        n_wrong += isnan(logits[i]) != 0; /* no early end: the loop is vectorized */
    return n_wrong == 0;
}

cairn_status cairn__decode(cairn__runtime *rt, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t pos,
                           bool want_logits)
{
    if (n == 0 || n > rt->n_batch || seq >= rt->n_seq || pos > rt->n_ctx || n > rt->n_ctx - pos)
        return CAIRN_EINVAL;
    cairn__runtime_log_reset();
    fill_batch(&rt->batch, seq, tokens, n, pos, want_logits);
    int code = cairn__guard_decode(rt->ctx, &rt->batch);
    if (code == 1)
        return CAIRN_EBUSY;
    if (code == 2)
        return after_abort(rt, seq, pos);
    if (code != 0 || (want_logits && !logits_are_numbers(rt))) {
        rt->poisoned = true;
        return CAIRN_ERUNTIME;
    }
    return CAIRN_OK;
}

const float *cairn__logits(cairn__runtime *rt)
{
    return llama_get_logits_ith(rt->ctx, -1);
}

void cairn__runtime_abort(cairn__runtime *rt, bool abort)
{
    atomic_store_explicit(&rt->abort, abort, memory_order_relaxed);
}

bool cairn__seq_cut(cairn__runtime *rt, uint32_t seq, uint32_t from)
{
    uint32_t n = held(rt, seq);
    if (from == 0) {
        llama_memory_seq_rm(rt->memory, (llama_seq_id)seq, -1, -1);
        return held(rt, seq) == 0;
    }
    if (from >= n)
        return from == n;
    if (rt->memory_kind == CAIRN__MEMORY_OTHER)
        return false;
    /* A window that has dropped its first position may lack some in front of `from`. */
    if (rt->memory_kind == CAIRN__MEMORY_WINDOW && llama_memory_seq_pos_min(rt->memory, (llama_seq_id)seq) != 0)
        return false;
    return llama_memory_seq_rm(rt->memory, (llama_seq_id)seq, (llama_pos)from, -1) && held(rt, seq) == from;
}

bool cairn__seq_fork(cairn__runtime *rt, uint32_t src, uint32_t dst, uint32_t n)
{
    if (rt->memory_kind != CAIRN__MEMORY_ATTENTION || src == dst || n == 0 || n > held(rt, src) || held(rt, dst) != 0)
        return false;
    llama_memory_seq_cp(rt->memory, (llama_seq_id)src, (llama_seq_id)dst, 0, (llama_pos)n);
    if (held(rt, dst) == n)
        return true;
    llama_memory_seq_rm(rt->memory, (llama_seq_id)dst, -1, -1);
    return false;
}

void cairn__runtime_clear(cairn__runtime *rt)
{
    /* NaN outlives the removal of its cells (LLAMA_CPP.md); zeroing gigabytes
     * takes a while, so only when something went wrong. */
    llama_memory_clear(rt->memory, rt->poisoned);
    rt->poisoned = false;
}

bool cairn__seq_settle(cairn__runtime *rt, uint32_t seq)
{
    const llama_state_seq_flags flags = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    if (rt->memory_kind == CAIRN__MEMORY_ATTENTION)
        return true;
    const size_t size = llama_state_seq_get_size_ext(rt->ctx, (llama_seq_id)seq, flags);
    uint8_t     *blob = malloc(size);
    bool         ok = blob && llama_state_seq_get_data_ext(rt->ctx, blob, size, (llama_seq_id)seq, flags) == size &&
              llama_state_seq_set_data_ext(rt->ctx, blob, size, (llama_seq_id)seq, flags) == size;
    free(blob);
    return ok;
}
