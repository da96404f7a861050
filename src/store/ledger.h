/* ledger.h - what a root occupies, agreed on by all processes that use it.
 *
 * ROOT/ledger is one block of 4,096 bytes (docs/format.md, "Ledger"): bytes used,
 * and per process a slot with the bytes it has reserved for files it is about to
 * write. used + all reserved never falls below what lies on disk, so a process
 * that reserves before it writes and refuses to pass its budget keeps the cap.
 *
 * Invariants:
 *   L1  it is read and changed only under the lock of its first 64 bytes
 *   L2  a process holds the lock of its slot's bytes as long as it lives; a slot
 *       that can be locked is dead: its reservation counts as used, until the
 *       next count finds out
 *   L3  every error is on the side of too much, except for power cuts, which a
 *       new boot answers with a count
 *   L4  while `used` is unknown nothing can be reserved
 * Thread-safe. It does not survive fork(). */
#ifndef CAIRN_STORE_LEDGER_H
#define CAIRN_STORE_LEDGER_H

#include "cairn/base.h"

typedef struct cairn__ledger cairn__ledger;

/* root_fd is borrowed. Errors: CAIRN_EACCES, CAIRN_ENOSPC, CAIRN_EIO, CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__ledger_open(int root_fd, cairn__ledger **ret_ledger);
void                        cairn__ledger_close(cairn__ledger *ledger); /* gives back what is reserved; accepts NULL */

typedef struct cairn__ledger_limits {
    uint64_t budget_bytes; /* on disk */
    uint64_t day_bytes;    /* written a day, UTC; 0: no bound */
} cairn__ledger_limits;

/* CAIRN_ENOSPC: used + reserved + bytes would pass the budget; *ret_missing says by
 * how much. CAIRN_EACCES: the day's bytes would be passed. CAIRN_EBUSY: used is
 * unknown, count first. CAIRN_EIO otherwise. */
CAIRN_MUST_USE cairn_status cairn__ledger_reserve(cairn__ledger *ledger, uint64_t bytes,
                                                  const cairn__ledger_limits *limits, uint64_t *ret_missing);
/* A reservation became `used_bytes` on disk. Never fails: what can't be written
 * now goes with the next change. */
void cairn__ledger_commit(cairn__ledger *ledger, uint64_t reserved_bytes, uint64_t used_bytes);
/* Files of `bytes` were removed since cairn__ledger_last_count() gave `last_count`.
 * When a count was completed in between it may not have seen them: then nothing is
 * subtracted, and a count wanted. */
void     cairn__ledger_freed(cairn__ledger *ledger, uint64_t bytes, uint64_t last_count);
uint64_t cairn__ledger_last_count(cairn__ledger *ledger); /* takes no lock */
/* Something was removed, and as what it was counted is not known, since it may have
 * grown after that: nothing is subtracted, and a count wanted. */
void cairn__ledger_freed_unsure(cairn__ledger *ledger);

/* True when used is unknown, or known to be too much. */
bool cairn__ledger_wants_count(cairn__ledger *ledger);
/* Brackets a scan: `total_bytes` of everything seen becomes the truth, plus what
 * was committed meanwhile by anyone. CAIRN_EBUSY: another process is counting.
 * complete false: the scan failed, nothing changes. */
CAIRN_MUST_USE cairn_status cairn__ledger_count_begin(cairn__ledger *ledger, uint64_t *ret_count_id);
void cairn__ledger_count_end(cairn__ledger *ledger, uint64_t count_id, uint64_t total_bytes, bool complete);

/* As last written by anyone; take no lock. Used plus reserved; what was reserved
 * today for pages, less what was given back. */
uint64_t cairn__ledger_total(cairn__ledger *ledger);
uint64_t cairn__ledger_written_today(cairn__ledger *ledger);

/* The measured price of a restore, picoseconds for a byte, is kept here for processes
 * that evict without having restored. 0: unknown. */
uint32_t cairn__ledger_restore_ps(cairn__ledger *ledger);
void     cairn__ledger_note_restore_ps(cairn__ledger *ledger, uint32_t ps_per_byte);

#endif
