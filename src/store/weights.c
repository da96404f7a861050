/* weights.c - the digest of a model, whose cache of digests may lie in the root. */
#include "store/internal.h"

#include "core/weights_cache.h"

cairn_status cairn_store_weights_digest(cairn_store *store, const cairn_weights_request *request,
                                        cairn_digest *ret_digest, cairn_error *error)
{
    const int64_t most = request->cache_dir ? (int64_t)(request->n_paths * CAIRN__WEIGHTS_CACHE_STEP) : 0;
    const int64_t before = (int64_t)cairn__weights_cache_bytes(request->cache_dir);
    cairn__store_count_side(store, most);
    cairn_status status = cairn_weights_digest(request, ret_digest, error);
    cairn__store_count_side(store, (int64_t)cairn__weights_cache_bytes(request->cache_dir) - before - most);
    return status;
}
