/* weights.c - the digest of a model, whose cache of digests may lie in the root. */
#include "store/internal.h"

#include "core/weights_cache.h"

/* The most that can be written is counted before, what was written after; then the
 * first is taken back, unless the root was counted meanwhile: that count has forgotten
 * it, and may have come too early for the files. So the ledger never says too little. */
cairn_status cairn_store_weights_digest(cairn_store *store, const cairn_weights_request *request,
                                        cairn_digest *ret_digest, cairn_error *error)
{
    if (!store || store->off || !request || !request->cache_dir)
        return cairn_weights_digest(request, ret_digest, error);
    const uint64_t most = request->n_paths * CAIRN__WEIGHTS_CACHE_STEP;
    const uint64_t last_count = cairn__ledger_last_count(store->ledger);
    const uint64_t before = cairn__weights_cache_bytes(request->cache_dir);
    cairn__ledger_commit(store->ledger, 0, most);
    cairn__store_fit_soon(store);
    cairn_status   status = cairn_weights_digest(request, ret_digest, error);
    const uint64_t after = cairn__weights_cache_bytes(request->cache_dir);
    if (after > before)
        cairn__ledger_commit(store->ledger, 0, after - before);
    cairn__ledger_freed(store->ledger, most + (after < before ? before - after : 0), last_count);
    return status;
}
