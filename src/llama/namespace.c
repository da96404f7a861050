/* namespace.c - whose pages a sequence reads and writes: its identity, and the
 * seed that all its chain keys begin with.
 *
 *   options.salt -> the cache's own namespace, which every sequence begins with
 *   cairn_llama_set_salt() -> one of the sequence's own, in its track
 *
 * So there are at most as many as sequences, whatever number of tenants there
 * is. Two namespaces differ in the line `salt` of the identity alone.
 *
 * N1 A chain key of a track was made from the seed of the track's namespace: a
 *    change of salt drops the keys, and what they say is stored.
 * N2 A sequence whose namespace could not be made has none: it restores nothing
 *    and records nothing, rather than under another tenant's. */
#include "llama/adapter.h"

#include "base/digest.h"

#include <string.h>

void cairn__namespace_init(const cairn_llama *cache, cairn__namespace *space, cairn_identity *identity_take)
{
    space->identity = identity_take;
    space->seed = cairn_store_namespace(cache->store, identity_take);
}

void cairn__namespace_done(cairn__namespace *space)
{
    cairn_identity_destroy(space->identity);
    *space = (cairn__namespace){0};
}

const cairn__namespace *cairn__namespace_of(const cairn_llama *cache, llama_seq_id seq)
{
    const cairn__track *track = &cache->tracks[seq];
    if (!track->salted)
        return &cache->space;
    return track->space.identity ? &track->space : NULL;
}

static cairn_status copy_with_salt(const cairn_identity *from, const cairn_digest *salt, cairn_identity **ret_identity)
{
    cairn_identity *identity = NULL;
    cairn_status    status = cairn_identity_copy(from, &identity);
    if (!status)
        status = cairn_identity_set_digest(identity, "salt", salt);
    if (status)
        cairn_identity_destroy(identity);
    else
        *ret_identity = identity;
    return status;
}

/* N1: what was known of the sequence was known of another namespace. */
static void forget(cairn__track *track)
{
    cairn__namespace_done(&track->space);
    track->n_keys = track->n_stored = 0;
    track->mark_ns = track->ns_per_token = 0;
    track->salted = false;
}

cairn_status cairn_llama_set_salt(cairn_llama *cache, llama_seq_id seq, const char *salt)
{
    if (!cache || seq < 0 || (uint32_t)seq >= cache->n_seq || seq == cache->scratch)
        return CAIRN_EINVAL;
    if (!cairn__is_supported(cache))
        return CAIRN_OK;
    cairn__track *track = &cache->tracks[seq];
    if (!salt) {
        if (track->salted)
            forget(track);
        return CAIRN_OK;
    }
    const cairn_digest digest = cairn__sha256_once(salt, strlen(salt));
    if (track->salted && track->space.identity && !memcmp(&track->salt, &digest, sizeof digest))
        return CAIRN_OK;
    forget(track);
    track->salted = true;
    track->salt = digest;
    cairn_identity *identity = NULL;
    cairn_status    status = copy_with_salt(cache->space.identity, &digest, &identity);
    if (!status)
        cairn__namespace_init(cache, &track->space, identity);
    return status;
}
