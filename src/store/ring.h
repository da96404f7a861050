/* ring.h - which pages were evicted lately, and when: for the reason of a miss, and
 * nothing else.
 *
 * ROOT/evicted is a table of small rings: a page's key says which ring, and the
 * oldest entry of a full ring makes place. Entries carry a check of their own and
 * are written in place without locks, syncs or order; whatever is lost, torn or
 * made up costs or gives a word in a log line. docs/format.md, "Evicted keys". */
#ifndef CAIRN_STORE_RING_H
#define CAIRN_STORE_RING_H

#include "cairn/base.h"
#include "core/page_name.h"

#define CAIRN__RING_FILE "evicted"
#define CAIRN__RING_ENTRY_SIZE 32u
#define CAIRN__RING_ENTRIES 4u /* of a ring */
#define CAIRN__RING_SIZE (CAIRN__RING_ENTRIES * CAIRN__RING_ENTRY_SIZE)
#define CAIRN__RING_FILE_STEP 4096u              /* a file's size is a multiple of it */
#define CAIRN__RING_FILE_MAX (UINT32_C(1) << 20) /* 32,768 keys */

/* ---- pure ---- */

void cairn__ring_put(uint8_t ring[CAIRN__RING_SIZE], const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE], int64_t when_s);
/* The latest eviction of the key in the ring. */
bool cairn__ring_get(const uint8_t ring[CAIRN__RING_SIZE], const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE],
                     int64_t *ret_when_s);

/* ---- the file ---- */

/* How large the file of a root with this budget is; 0: none. At most a 256th of it. */
uint32_t cairn__ring_file_size(uint64_t budget_bytes);
/* Makes one of `size` zeros, unless there is one. *ret_bytes: blocks that came to be. */
CAIRN_MUST_USE cairn_status cairn__ring_create(int root_fd, uint32_t size, uint64_t *ret_bytes);
/* For both: CAIRN_ENOENT where there is none, or one of an odd size. */
CAIRN_MUST_USE cairn_status cairn__ring_open(int root_fd, bool write, int *ret_fd, uint32_t *ret_n_rings);

void cairn__ring_note(int fd, uint32_t n_rings, const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE], int64_t now_s);
/* False: not evicted lately, as far as is known. */
bool cairn__ring_find(int root_fd, const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE], int64_t *ret_when_s);

#endif
