/* estimate.h - how long a prefill takes, from those that were measured. Pure. */
#ifndef CAIRN_ENGINE_ESTIMATE_H
#define CAIRN_ENGINE_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cairn__estimate {
    double   ns_per_token; /* 0: nothing measured */
    uint32_t n_measured;
} cairn__estimate;

/* Calls of few tokens say little about a prefill and are left out, unless nothing
 * else is known yet. */
void     cairn__estimate_add(cairn__estimate *estimate, uint32_t n_tokens, uint64_t elapsed_ns);
uint64_t cairn__estimate_ns(const cairn__estimate *estimate, uint32_t n_tokens);

/* What is left of a job of total units of which `done` took elapsed_ns; with
 * nothing done yet, from a guessed rate. */
uint64_t cairn__estimate_rest_ns(uint64_t done, uint64_t total, uint64_t elapsed_ns, double guessed_ns_per_unit);

/* What restores from the store cost so far. */
typedef struct cairn__restore_estimate {
    double   bytes_per_token, ns_per_byte; /* 0: unknown */
    uint32_t n_skipped;                    /* in a row */
} cairn__restore_estimate;

void cairn__restore_estimate_add(cairn__restore_estimate *estimate, uint32_t n_tokens, uint64_t bytes,
                                 uint64_t elapsed_ns);
/* Is restoring n_tokens expected to be faster than computing them? Counts the
 * answer: after many refusals in a row one is tried again, or a disk that was
 * slow once would be slow for ever. */
bool cairn__restore_estimate_pays(cairn__restore_estimate *estimate, const cairn__estimate *prefill, uint32_t n_tokens);

#endif
