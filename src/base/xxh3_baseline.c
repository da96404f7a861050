/* xxh3_baseline.c - see xxh3.h; also the streamed form, which headers need. */
#define CAIRN__XXH3_NAME cairn__xxh3_128_baseline
#include "base/xxh3_impl.h"

#include <assert.h>

cairn__xxh128 cairn__xxh3_128_zeroed(const void *data, size_t size, size_t zero_at, size_t zero_size)
{
    static const uint8_t zeros[64];
    const uint8_t       *bytes = data;
    XXH3_state_t         state;
    XXH128_canonical_t   canonical;
    cairn__xxh128        ret;
    assert(zero_size <= sizeof(zeros) && zero_at <= size && zero_size <= size - zero_at);
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, bytes, zero_at);
    XXH3_128bits_update(&state, zeros, zero_size);
    XXH3_128bits_update(&state, bytes + zero_at + zero_size, size - zero_at - zero_size);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(ret.bytes, canonical.digest, sizeof(ret.bytes));
    return ret;
}
