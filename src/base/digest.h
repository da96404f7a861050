/* digest.h - SHA-256 for identities and keys, HMAC with it for secrets, XXH3-128
 * for block integrity. */
#ifndef CAIRN_BASE_DIGEST_H
#define CAIRN_BASE_DIGEST_H

#include "cairn/identity.h"

/* Incremental SHA-256 in the caller's memory. Allocates nothing and can't
 * fail: there is nothing right to do with half a key. */
typedef struct cairn__sha256 {
    uint64_t state[16]; /* opaque; room for OpenSSL's SHA256_CTX */
} cairn__sha256;
void         cairn__sha256_init(cairn__sha256 *sha);
void         cairn__sha256_update(cairn__sha256 *sha, const void *data, size_t size);
cairn_digest cairn__sha256_done(cairn__sha256 *sha);
cairn_digest cairn__sha256_once(const void *data, size_t size);

/* HMAC-SHA-256 (FIPS 198-1) of `label` with its NUL (NULL: no label), then data.
 * Leaves nothing of the key behind. */
#define CAIRN__SECRET_SIZE 32u
cairn_digest cairn__hmac_sha256(const uint8_t key[CAIRN__SECRET_SIZE], const char *label, const void *data,
                                size_t size);
/* Overwrites a secret; not optimised away. */
void cairn__wipe(void *secret, size_t size);

/* XXH3-128 with seed 0 in canonical (big-endian) byte order; the AVX2 or
 * AVX-512 build is chosen at run time. */
typedef struct cairn__xxh128 {
    uint8_t bytes[16];
} cairn__xxh128;
cairn__xxh128 cairn__xxh3_128(const void *data, size_t size);
/* The same of data with zero_size bytes at zero_at taken as zeros, for a
 * checksum that lies inside what it covers. Baseline only: for headers. */
cairn__xxh128 cairn__xxh3_128_zeroed(const void *data, size_t size, size_t zero_at, size_t zero_size);

#endif
