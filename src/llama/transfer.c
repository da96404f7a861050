/* transfer.c - one run into or out of the runtime.
 *
 * Every blob is checked on its way: imports because a wrong cell list is
 * accepted silently or eats all memory (LLAMA_CPP.md), exports because a page
 * must hold exactly the positions its key names. */
#include "llama/adapter.h"

#include <stdlib.h>

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

bool cairn__export(cairn_llama *cache, llama_seq_id seq, uint32_t first_pos, uint32_t n_cells, uint8_t *buf,
                   uint32_t *order)
{
    const uint64_t size = cairn__blob_size(cache->layout, n_cells);
    if (seq != cache->scratch && !scratch_is_free(cache))
        return false;
    if (seq != cache->scratch)
        llama_memory_seq_cp(cache->memory, seq, cache->scratch, (llama_pos)first_pos, (llama_pos)(first_pos + n_cells));
    bool ok = llama_state_seq_get_size(cache->ctx, cache->scratch) == size &&
              llama_state_seq_get_data(cache->ctx, buf, size, cache->scratch) == size;
    if (seq != cache->scratch)
        llama_memory_seq_rm(cache->memory, cache->scratch, -1, -1);
    return ok && cairn__blob_check_order(cache->layout, buf, size, first_pos, n_cells, cache->scratch, order);
}
