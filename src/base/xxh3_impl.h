/* xxh3_impl.h - defines CAIRN__XXH3_NAME(data, size) with the instruction set
 * of the including file's compiler flags. XXH_INLINE_ALL makes every xxHash
 * symbol static, so that the builds do not collide. */
#define XXH_INLINE_ALL
#define XXH_NO_PREFETCH /* a block is verified right behind its read: it is in the cache */
#include <xxhash.h>

#include "base/xxh3.h"

#include <string.h>

_Static_assert(sizeof(XXH128_canonical_t) == sizeof(cairn__xxh128), "16 bytes");

cairn__xxh128 CAIRN__XXH3_NAME(const void *data, size_t size)
{
    XXH128_canonical_t canonical;
    cairn__xxh128      ret;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
    memcpy(ret.bytes, canonical.digest, sizeof(ret.bytes));
    return ret;
}
