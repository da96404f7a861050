/* chain.c - the key of a page or checkpoint: a hash over what it was computed from.
 *
 *     SHA-256("cairn page 1\0" | identity, 32 | parent key, 32 | u32le n | n x i32le)
 *
 * Every part has a fixed size or is preceded by its count, so that no two
 * different inputs give the same bytes. The first part, "cairn checkpoint 1\0" for
 * the other kind, keeps keys apart from every other SHA-256 in use and names the
 * version of this rule. */
#include "base/bytes.h"
#include "base/digest.h"
#include "cairn/identity.h"
#include "core/tokens.h"

/* Their NULs are hashed too. */
static const char PAGE[] = "cairn page 1", CHECKPOINT[] = "cairn checkpoint 1";

static cairn_key key_of(const char *domain, size_t domain_size, const cairn_digest *identity, const cairn_key *parent,
                        const int32_t *tokens, uint32_t n_tokens)
{
    static const cairn_key no_parent;
    cairn__sha256          sha;
    uint8_t                count[4];
    cairn_key              key;
    cairn__sha256_init(&sha);
    cairn__sha256_update(&sha, domain, domain_size);
    cairn__sha256_update(&sha, identity->bytes, sizeof(identity->bytes));
    cairn__sha256_update(&sha, (parent ? parent : &no_parent)->bytes, sizeof(no_parent.bytes));
    cairn__put_u32(count, n_tokens);
    cairn__sha256_update(&sha, count, sizeof(count));
    cairn__sha256_tokens(&sha, tokens, n_tokens);
    cairn_digest digest = cairn__sha256_done(&sha);
    memcpy(key.bytes, digest.bytes, sizeof(key.bytes));
    return key;
}

cairn_key cairn_chain_key(const cairn_digest *identity, const cairn_key *parent, const int32_t *tokens,
                          uint32_t n_tokens)
{
    return key_of(PAGE, sizeof(PAGE), identity, parent, tokens, n_tokens);
}

cairn_key cairn_checkpoint_key(const cairn_digest *identity, const cairn_key *parent, const int32_t *tokens,
                               uint32_t n_tokens)
{
    return key_of(CHECKPOINT, sizeof(CHECKPOINT), identity, parent, tokens, n_tokens);
}
