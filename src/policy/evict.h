/* evict.h - which stored page is worth least. Pure: numbers and the time in, a
 * number out. */
#ifndef CAIRN_POLICY_EVICT_H
#define CAIRN_POLICY_EVICT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cairn__evict_case {
    uint64_t disk_bytes;          /* given back when it goes */
    uint64_t prefill_ns;          /* measured cost of computing it again; 0 = unknown */
    uint64_t restore_ns;          /* measured cost of reading it; 0 = unknown */
    int64_t  used_s;              /* when it was last used, unix seconds; the future counts as now */
    double   default_ns_per_byte; /* stands in for an unknown prefill_ns */
    bool     unused;              /* never used since it was stored: on probation */
    bool     unwanted;            /* can't be reached, or its identity is out of use: goes first */
} cairn__evict_case;

/* Used or stored less long ago than this: goes only when nothing else is left, or a
 * full cache would evict what it has just stored because it is cheap. Longer than
 * a batch takes to be written and the next request to come; guess, unmeasured. */
#define CAIRN__EVICT_YOUNG_S 10

/* The lowest goes first. Never NaN. Three classes, each above the one before:
 *   unwanted   below 0, older ones lower
 *   the rest   nanoseconds of prefill that a byte of it is expected to save, per
 *              second of waiting: 0 or more
 *   young      CAIRN__EVICT_YOUNG and more, in the same order
 *
 * P(reuse soon) is taken as 1 / (age + 60 s): among pages of one price that is
 * least recently used order, and a page twice as dear to compute is kept twice as
 * long. The 60 s keep a burst of new pages comparable with each other. A page on
 * probation ages four times as fast, so that what is read once - a long document, a
 * benchmark - does not push out what is read every hour. Guesses, unmeasured. */
#define CAIRN__EVICT_YOUNG 1e30
double cairn__evict_score(const cairn__evict_case *c, int64_t now_s);

#endif
