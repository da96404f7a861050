/* digest.c - SHA-256 by OpenSSL, and the choice among the builds of XXH3-128.
 *
 * SHA-256 goes through OpenSSL's SHA256_* functions, which work in the caller's
 * memory, and not through EVP, which allocates and therefore can fail: there is
 * no right thing to do when the key of a page can't be computed half way. They
 * run the same assembly (SHA extensions where the CPU has them) and spare short
 * inputs the cost of an EVP context. OpenSSL 3 calls them deprecated, which is
 * silenced in this file alone. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/digest.h"
#include "base/xxh3.h"

#include <string.h>

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

void cairn__wipe(void *secret, size_t size)
{
    OPENSSL_cleanse(secret, size);
}

/* One of HMAC's two hashes: over the key with `pad` in every byte, label and data. */
static cairn_digest padded_hash(const uint8_t key[CAIRN__SECRET_SIZE], uint8_t pad, const void *data, size_t size,
                                const char *label)
{
    uint8_t      block[SHA256_CBLOCK];
    SHA256_CTX   ctx;
    cairn_digest digest;
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = pad ^ (i < CAIRN__SECRET_SIZE ? key[i] : 0);
    SHA256_Init(&ctx);
    SHA256_Update(&ctx, block, sizeof(block));
    if (label)
        SHA256_Update(&ctx, label, strlen(label) + 1);
    SHA256_Update(&ctx, data, size);
    SHA256_Final(digest.bytes, &ctx);
    cairn__wipe(block, sizeof(block));
    cairn__wipe(&ctx, sizeof(ctx));
    return digest;
}

cairn_digest cairn__hmac_sha256(const uint8_t key[CAIRN__SECRET_SIZE], const char *label, const void *data, size_t size)
{
    cairn_digest inner = padded_hash(key, 0x36, data, size, label);
    cairn_digest outer = padded_hash(key, 0x5c, inner.bytes, sizeof(inner.bytes), NULL);
    cairn__wipe(&inner, sizeof(inner));
    return outer;
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
