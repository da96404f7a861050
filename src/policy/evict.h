/* evict.h - which stored page is worth least. Pure: numbers and the time in, a
 * number out. */
#ifndef CAIRN_POLICY_EVICT_H
#define CAIRN_POLICY_EVICT_H

#include <stdint.h>

typedef struct cairn__evict_case {
    uint64_t disk_bytes;          /* given back when it goes */
    uint64_t prefill_ns;          /* measured cost of computing it again; 0 = unknown */
    uint64_t restore_ns;          /* measured cost of reading it; 0 = unknown */
    int64_t  used_s;              /* when it was last used, unix seconds; the future counts as now */
    double   default_ns_per_byte; /* stands in for an unknown prefill_ns */
} cairn__evict_case;

/* Nanoseconds of prefill that a byte of it is expected to save, per second of
 * waiting: the lowest goes first. Never negative, never NaN.
 *
 * P(reuse soon) is taken as 1 / (age + 60 s): among pages of one price that is
 * least recently used order, and a page twice as dear to compute is kept twice as
 * long. The 60 s keep a burst of new pages comparable with each other. Guess,
 * unmeasured. */
double cairn__evict_score(const cairn__evict_case *c, int64_t now_s);

#endif
