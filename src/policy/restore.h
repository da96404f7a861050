/* restore.h - does it pay to read stored pages instead of computing them? Pure. */
#ifndef CAIRN_POLICY_RESTORE_H
#define CAIRN_POLICY_RESTORE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cairn__restore_case {
    uint32_t n_tokens;             /* that need not be computed */
    uint64_t bytes;                /* that have to be read */
    double   prefill_ns_per_token; /* measured; 0 = unknown */
    double   restore_ns_per_byte;  /* measured, read to import; 0 = unknown */
    double   overhead_ns;          /* of a restore, whatever its size */
} cairn__restore_case;

/* True when reading is expected to be faster, or when either speed is unknown:
 * without trying it would stay unknown. False for n_tokens 0. */
bool cairn__restore_pays(const cairn__restore_case *c);

#endif
