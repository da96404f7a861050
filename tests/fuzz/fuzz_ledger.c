/* fuzz_ledger.c - the block of a root's ledger, as found and with its checksum made
 * right: what decodes is what encodes, and no sum wraps into "plenty of room". */
#include "base/digest.h"
#include "store/ledger_image.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const uint8_t block[CAIRN__LEDGER_SIZE])
{
    static cairn__ledger_image im, again;
    uint8_t                    written[CAIRN__LEDGER_SIZE];
    if (!cairn__ledger_decode(block, &im))
        return;
    uint64_t total = cairn__ledger_image_total(&im);
    if (total < im.used)
        abort();
    for (uint32_t i = 0; i < CAIRN__LEDGER_SLOTS; i++)
        if (total < im.slots[i].reserved)
            abort();
    cairn__ledger_encode(&im, written);
    if (!cairn__ledger_decode(written, &again) || cairn__ledger_image_total(&again) != total ||
        again.written_today != im.written_today || again.day != im.day || again.flags != im.flags)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t block[CAIRN__LEDGER_SIZE] = {0};
    if (size > 0)
        memcpy(block, data, size < sizeof(block) ? size : sizeof(block));
    decode(block);
    const size_t  body = sizeof(block) - 8;
    cairn__xxh128 sum = cairn__xxh3_128(block, body);
    memcpy(block + body, sum.bytes, 8);
    decode(block);
    return 0;
}
