/* identity.h - what KV was computed with, and the chain keys built on it.
 *
 * An identity is a canonical text of sorted `key=value` lines; its SHA-256
 * names a directory of the store. Everything that changes the bytes of KV
 * except the tokens must be in it (docs/architecture.md lists the fields), and
 * nothing else: no ids, times, ports, paths or display names. */
#ifndef CAIRN_IDENTITY_H
#define CAIRN_IDENTITY_H

#include "cairn/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_identity cairn_identity; /* opaque; not thread-safe while set, read-only afterwards */

/* A SHA-256. */
typedef struct cairn_digest {
    uint8_t bytes[32];
} cairn_digest;

/* Names a page and everything before it:
 * SHA-256("cairn page 1\0" | identity digest | parent key | u32le n | n x i32le token).
 * The digest is the one that the store knows the identity by: cairn_store_namespace().
 * The parent of the first page is 32 zero bytes. */
typedef struct cairn_key {
    uint8_t bytes[32];
} cairn_key;

CAIRN_API CAIRN_MUST_USE cairn_status cairn_identity_create(cairn_identity **ret_identity);
CAIRN_API void cairn_identity_destroy(cairn_identity *identity); /* accepts NULL */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_identity_copy(const cairn_identity *identity, cairn_identity **ret_copy);

/* Sets one field, replacing an earlier value. `key`: 1-63 characters of
 * [a-z0-9_.]; `value`: UTF-8 without line breaks or control characters, at most
 * 4,095 bytes. Errors: CAIRN_EINVAL, CAIRN_ENOMEM. */
CAIRN_API CAIRN_MUST_USE cairn_status cairn_identity_set(cairn_identity *identity, const char *key, const char *value);
CAIRN_API CAIRN_MUST_USE cairn_status cairn_identity_set_u64(cairn_identity *identity, const char *key, uint64_t value);
CAIRN_API CAIRN_MUST_USE cairn_status cairn_identity_set_digest(cairn_identity *identity, const char *key,
                                                                const cairn_digest *value);

/* The canonical text, NUL-terminated, lines sorted by key; valid until the next
 * set or destroy. *ret_size excludes the NUL; ret_size may be NULL. */
CAIRN_API const char *cairn_identity_text(const cairn_identity *identity, size_t *ret_size);
/* SHA-256 of that text. */
CAIRN_API cairn_digest cairn_identity_digest(const cairn_identity *identity);

/* Key of the page `tokens[0..n_tokens)` that follows `parent` (NULL: first page). */
CAIRN_API cairn_key cairn_chain_key(const cairn_digest *identity, const cairn_key *parent, const int32_t *tokens,
                                    uint32_t n_tokens);

/* Key of the checkpoint at position start + n_tokens, where `parent` is the key of
 * the full pages of [0, start) (NULL: start is 0) and 1 <= n_tokens <= page size:
 * as above under the domain "cairn checkpoint 1\0", so that no page can be taken
 * for a checkpoint. */
CAIRN_API cairn_key cairn_checkpoint_key(const cairn_digest *identity, const cairn_key *parent, const int32_t *tokens,
                                         uint32_t n_tokens);

/* Digest of model files ("weights digest", docs/format.md): each file is cut in
 * chunks of 16 MiB, every chunk is hashed with SHA-256 on `n_threads` threads
 * (0: all cores); the digest of a file is the SHA-256 over its size and its
 * chunks' digests, and the result the SHA-256 over those of all files. It is
 * not what sha256sum prints. `cache_dir`, created if missing, keeps the digest
 * of each file beside its dev, inode, size, mtime and ctime (NULL: no cache; a
 * folder that can't be used is as good as none). `progress` is called from the
 * calling thread at most 10 times a second, first before anything is hashed,
 * with bytes done and in all; returning false cancels.
 * Errors: CAIRN_EIO (unreadable, or changed while it was read), CAIRN_ENOMEM,
 * CAIRN_ECANCELED, CAIRN_EINVAL (no paths); *ret_digest is then untouched.
 * Thread-safe. Cost: one read of the files; 256 KiB of memory for each of
 * 2 * n_threads chunks in flight. */
typedef struct cairn_weights_request {
    const char *const *paths; /* all shards, in order */
    uint32_t           n_paths;
    uint32_t           n_threads;
    const char        *cache_dir;
    bool (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_ctx;
} cairn_weights_request;
CAIRN_API CAIRN_MUST_USE cairn_status cairn_weights_digest(const cairn_weights_request *request,
                                                           cairn_digest *ret_digest, cairn_error *error);

#ifdef __cplusplus
}
#endif
#endif
