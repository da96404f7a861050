/* digest.c - SHA-256 by OpenSSL, and the choice among the builds of XXH3-128.
 *
 * SHA-256 goes through OpenSSL's SHA256_* functions, which work in the caller's
 * memory, and not through EVP, which allocates and therefore can fail: there is
 * no right thing to do when the key of a page can't be computed half way. They
 * run the same assembly (SHA extensions where the CPU has them) and spare short
 * inputs the cost of an EVP context. OpenSSL 3 calls them deprecated, which is
 * silenced in this file alone. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "base/digest.h"
#include "base/xxh3.h"

_Static_assert(sizeof(SHA256_CTX) <= sizeof(cairn__sha256), "cairn__sha256 has room for SHA256_CTX");
_Static_assert(_Alignof(SHA256_CTX) <= _Alignof(cairn__sha256), "cairn__sha256 is aligned for SHA256_CTX");
_Static_assert(sizeof(cairn_digest) == SHA256_DIGEST_LENGTH, "a digest is a SHA-256");

void cairn__sha256_init(cairn__sha256 *sha)
{
    SHA256_Init((SHA256_CTX *)(void *)sha->state);
}

void cairn__sha256_update(cairn__sha256 *sha, const void *data, size_t size)
{
    SHA256_Update((SHA256_CTX *)(void *)sha->state, data, size);
}

cairn_digest cairn__sha256_done(cairn__sha256 *sha)
{
    cairn_digest digest;
    SHA256_Final(digest.bytes, (SHA256_CTX *)(void *)sha->state);
    return digest;
}

cairn_digest cairn__sha256_once(const void *data, size_t size)
{
    SHA256_CTX   ctx;
    cairn_digest digest;
    SHA256_Init(&ctx);
    SHA256_Update(&ctx, data, size);
    SHA256_Final(digest.bytes, &ctx);
    return digest;
}

/* The CPU's features lie in a constant that the start-up code filled: asking
 * is two bit tests, so nothing is remembered here. */
#if defined(__x86_64__)
cairn__xxh128 cairn__xxh3_128(const void *data, size_t size)
{
    if (__builtin_cpu_supports("avx512f"))
        return cairn__xxh3_128_avx512(data, size);
    if (__builtin_cpu_supports("avx2"))
        return cairn__xxh3_128_avx2(data, size);
    return cairn__xxh3_128_baseline(data, size);
}
#else
cairn__xxh128 cairn__xxh3_128(const void *data, size_t size)
{
    return cairn__xxh3_128_baseline(data, size);
}
#endif
