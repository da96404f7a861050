/* transfer.c - one run into or out of the runtime.
 *
 * Every blob is checked on its way: imports because a wrong cell list is
 * accepted silently or eats all memory (LLAMA_CPP.md), exports because a page
 * must hold exactly the positions its key names. */
#include "llama/adapter.h"

#include <stdlib.h>
#include <string.h>

/* Both directions empty the scratch sequence: not if somebody put something there. */
static bool scratch_is_free(const cairn_llama *cache)
{
    return llama_memory_seq_pos_max(cache->memory, cache->scratch) < 0;
}

cairn_status cairn__import(cairn_llama *cache, llama_seq_id seq, bool seq_is_empty, const uint8_t *blob, uint64_t size,
                           uint32_t first_pos, uint32_t n_cells)
{
    if (!cairn__blob_check(cache->layout, blob, size, first_pos, n_cells, cache->scratch))
        return CAIRN_ECORRUPT;
    /* set_data empties its target first, so only an empty sequence is one. */
    llama_seq_id target = seq_is_empty ? seq : cache->scratch;
    if (target != seq && !scratch_is_free(cache))
        return CAIRN_EINVAL;
    if (llama_state_seq_set_data(cache->ctx, blob, size, target) != size) {
        llama_memory_seq_rm(cache->memory, target, -1, -1); /* a refused set can leave a part behind */
        return CAIRN_ENOSPC;
    }
    if (target != seq) {
        llama_memory_seq_cp(cache->memory, target, seq, -1, -1);
        llama_memory_seq_rm(cache->memory, target, -1, -1);
    }
    return CAIRN_OK;
}

/* What lies behind the attention sections is of the sequence, not of the range:
 * recurrent state is emptied before the export, to save its bytes; a window can't
 * be, it is cut off the end and an empty one put there. */
static bool get_page(cairn_llama *cache, uint8_t *buf, uint64_t size, uint64_t room)
{
    const uint64_t suffix = cache->layout->suffix_size;
    if (!cache->partial)
        return llama_state_seq_get_size(cache->ctx, cache->scratch) == size &&
               llama_state_seq_get_data(cache->ctx, buf, size, cache->scratch) == size;
    if (cache->partial->n_states > 0 &&
        llama_state_seq_set_data_ext(cache->ctx, cache->empty_partial, cache->empty_partial_size, cache->scratch,
                                     LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) != cache->empty_partial_size)
        return false;
    const uint64_t full = llama_state_seq_get_size(cache->ctx, cache->scratch);
    const uint64_t part = cairn__partial_size(cache, cache->scratch);
    if (part < 8 || full - (part - 8) + suffix != size || full > room ||
        llama_state_seq_get_data(cache->ctx, buf, full, cache->scratch) != full)
        return false;
    memcpy(buf + size - suffix, cache->layout->suffix, suffix);
    return true;
}

bool cairn__export(cairn_llama *cache, llama_seq_id seq, uint32_t first_pos, uint32_t n_cells, uint8_t *buf,
                   uint32_t *order)
{
    const uint64_t size = cairn__blob_size(cache->layout, n_cells);
    if (seq != cache->scratch && !scratch_is_free(cache))
        return false;
    if (seq != cache->scratch)
        llama_memory_seq_cp(cache->memory, seq, cache->scratch, (llama_pos)first_pos, (llama_pos)(first_pos + n_cells));
    bool ok = get_page(cache, buf, size, cairn__export_size(cache, n_cells));
    if (seq != cache->scratch)
        llama_memory_seq_rm(cache->memory, cache->scratch, -1, -1);
    return ok && cairn__blob_check_order(cache->layout, buf, size, first_pos, n_cells, cache->scratch, order);
}

uint64_t cairn__export_size(const cairn_llama *cache, uint32_t n_cells)
{
    const uint64_t size = cairn__blob_size(cache->layout, n_cells);
    return cache->partial ? size + cairn__blob_size(cache->partial, n_cells) : size;
}

uint64_t cairn__partial_size(const cairn_llama *cache, llama_seq_id seq)
{
    return llama_state_seq_get_size_ext(cache->ctx, seq, cache->checkpoint_flags);
}

bool cairn__take_partial(cairn_llama *cache, llama_seq_id seq, uint32_t n_tokens, uint8_t *buf, uint64_t size)
{
    if (llama_state_seq_get_data_ext(cache->ctx, buf, size, seq, cache->checkpoint_flags) != size ||
        !cairn__partial_check(cache->partial, buf, size, n_tokens, seq, cache->order, cache->n_ctx))
        return false;
    cairn__partial_retarget(cache->partial, buf, 0);
    return true;
}

cairn_status cairn__set_partial(cairn_llama *cache, llama_seq_id seq, uint32_t n_tokens, const uint8_t *blob,
                                uint64_t size)
{
    cairn_status status = CAIRN_OK;
    if (!cairn__partial_check(cache->partial, blob, size, n_tokens, 0, cache->order, cache->n_ctx))
        status = CAIRN_ECORRUPT;
    else if (llama_state_seq_set_data_ext(cache->ctx, blob, size, seq, cache->checkpoint_flags) != size)
        status = CAIRN_ENOSPC;
    if (status)
        llama_memory_seq_rm(cache->memory, seq, -1, -1);
    return status;
}
