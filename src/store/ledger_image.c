/* ledger_image.c - see ledger_image.h. */
#include "store/ledger_image.h"

#include "base/bytes.h"
#include "base/digest.h"

#include <string.h>

#define LEDGER_VERSION 2u
#define WEAR_AT 4064u
#define CHECKSUM_AT 4088u
_Static_assert(CAIRN__LEDGER_HEADER_SIZE + CAIRN__LEDGER_SLOTS * CAIRN__LEDGER_SLOT_SIZE == WEAR_AT,
               "slots end where the rest begins");

static const char MAGIC[8] = {'C', 'A', 'I', 'R', 'N', 'L', 'D', 'G'};

void cairn__ledger_encode(const cairn__ledger_image *im, uint8_t buf[CAIRN__LEDGER_SIZE])
{
    memset(buf, 0, CAIRN__LEDGER_SIZE);
    memcpy(buf, MAGIC, sizeof(MAGIC));
    cairn__put_u32(buf + 8, LEDGER_VERSION);
    cairn__put_u32(buf + 12, CAIRN__LEDGER_SLOTS);
    cairn__put_u64(buf + 16, im->used);
    cairn__put_u64(buf + 24, im->count_id);
    cairn__put_u64(buf + 32, im->count_added);
    cairn__put_u32(buf + 40, im->flags);
    cairn__put_u32(buf + 44, im->count_slot);
    cairn__put_u64(buf + 48, im->boot_id);
    cairn__put_u64(buf + 56, im->last_count);
    for (uint32_t i = 0; i < CAIRN__LEDGER_SLOTS; i++) {
        uint8_t *at = buf + CAIRN__LEDGER_HEADER_SIZE + i * CAIRN__LEDGER_SLOT_SIZE;
        cairn__put_u64(at, im->slots[i].reserved);
        cairn__put_u32(at + 8, im->slots[i].pid);
    }
    cairn__put_u64(buf + WEAR_AT, im->written_today);
    cairn__put_u32(buf + WEAR_AT + 8, im->day);
    cairn__put_u32(buf + WEAR_AT + 12, im->restore_ps_per_byte);
    cairn__xxh128 sum = cairn__xxh3_128(buf, CHECKSUM_AT);
    memcpy(buf + CHECKSUM_AT, sum.bytes, CAIRN__LEDGER_SIZE - CHECKSUM_AT);
}

bool cairn__ledger_decode(const uint8_t buf[CAIRN__LEDGER_SIZE], cairn__ledger_image *im)
{
    cairn__xxh128 sum = cairn__xxh3_128(buf, CHECKSUM_AT);
    if (memcmp(buf, MAGIC, sizeof(MAGIC)) != 0 || cairn__get_u32(buf + 8) != LEDGER_VERSION ||
        cairn__get_u32(buf + 12) != CAIRN__LEDGER_SLOTS ||
        memcmp(buf + CHECKSUM_AT, sum.bytes, CAIRN__LEDGER_SIZE - CHECKSUM_AT) != 0)
        return false;
    im->used = cairn__get_u64(buf + 16);
    im->count_id = cairn__get_u64(buf + 24);
    im->count_added = cairn__get_u64(buf + 32);
    im->flags = cairn__get_u32(buf + 40);
    im->count_slot = cairn__get_u32(buf + 44);
    im->boot_id = cairn__get_u64(buf + 48);
    im->last_count = cairn__get_u64(buf + 56);
    for (uint32_t i = 0; i < CAIRN__LEDGER_SLOTS; i++) {
        const uint8_t *at = buf + CAIRN__LEDGER_HEADER_SIZE + i * CAIRN__LEDGER_SLOT_SIZE;
        im->slots[i].reserved = cairn__get_u64(at);
        im->slots[i].pid = cairn__get_u32(at + 8);
    }
    im->written_today = cairn__get_u64(buf + WEAR_AT);
    im->day = cairn__get_u32(buf + WEAR_AT + 8);
    im->restore_ps_per_byte = cairn__get_u32(buf + WEAR_AT + 12);
    return true;
}

uint64_t cairn__ledger_plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return cairn__add_u64(a, b, &sum) ? sum : UINT64_MAX;
}

uint64_t cairn__ledger_image_total(const cairn__ledger_image *im)
{
    uint64_t total = im->used;
    for (uint32_t i = 0; i < CAIRN__LEDGER_SLOTS; i++)
        total = cairn__ledger_plus(total, im->slots[i].reserved);
    return total;
}
