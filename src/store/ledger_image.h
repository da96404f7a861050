/* ledger_image.h - the block that a ledger file consists of, as a value: bytes to
 * numbers and back. Pure; docs/format.md, "Ledger", is normative. */
#ifndef CAIRN_STORE_LEDGER_IMAGE_H
#define CAIRN_STORE_LEDGER_IMAGE_H

#include "cairn/base.h"

#define CAIRN__LEDGER_SIZE 4096u
#define CAIRN__LEDGER_HEADER_SIZE 64u /* under one lock: who holds it may read and change the block */
#define CAIRN__LEDGER_SLOT_SIZE 32u   /* its bytes are locked by its process */
#define CAIRN__LEDGER_SLOTS 125u

#define CAIRN__LEDGER_KNOWN 1u  /* used is not below the truth */
#define CAIRN__LEDGER_WANTED 2u /* it is above: count when there is time */

typedef struct cairn__ledger_slot {
    uint64_t reserved;
    uint32_t pid; /* for a person */
} cairn__ledger_slot;

typedef struct cairn__ledger_image {
    uint32_t           flags;
    uint32_t           count_slot; /* whose count is running */
    uint64_t           used, count_id, count_added, boot_id;
    uint64_t           last_count; /* id of the last complete one, 0: none */
    cairn__ledger_slot slots[CAIRN__LEDGER_SLOTS];
    uint64_t           written_today;       /* bytes for pages on `day`, all processes */
    uint32_t           day;                 /* days since 1970, UTC */
    uint32_t           restore_ps_per_byte; /* measured, 0 = unknown */
} cairn__ledger_image;

void cairn__ledger_encode(const cairn__ledger_image *image, uint8_t buf[CAIRN__LEDGER_SIZE]);
/* False: not a ledger of this version, or damaged; *ret_image is then untouched. */
bool cairn__ledger_decode(const uint8_t buf[CAIRN__LEDGER_SIZE], cairn__ledger_image *ret_image);

/* Used plus all reservations. Numbers from disk saturate: they must not wrap into
 * "plenty of room". */
uint64_t cairn__ledger_image_total(const cairn__ledger_image *image);
uint64_t cairn__ledger_plus(uint64_t a, uint64_t b);

#endif
