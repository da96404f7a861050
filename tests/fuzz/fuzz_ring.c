/* fuzz_ring.c - a ring of evicted keys with anything in it: what is put is found,
 * and what is found was put or has a right check. */
#include "store/ring.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* 16 bytes of a key, 8 of a time, then the ring. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t input[24 + CAIRN__RING_SIZE] = {0};
    int64_t when = 0;
    if (size > 0)
        memcpy(input, data, size < sizeof(input) ? size : sizeof(input));
    uint8_t *ring = input + 24;
    int64_t  now = (int64_t)cairn__get_u64(input + 16);
    (void)cairn__ring_get(ring, input, &when);
    cairn__ring_put(ring, input, now);
    if (!cairn__ring_get(ring, input, &when) || when < now) /* one with a later time may have been there */
        abort();
    return 0;
}
