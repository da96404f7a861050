/* ladder.h - the positions of a prompt at which checkpoints are taken.
 *
 * A checkpoint can't be cut, so a later request restores only at a position that
 * was a rung of an earlier one. Which positions will be wanted again:
 *
 *   n - 1              the same prompt again
 *   mandatory marks    where agents and templates fork: the caller knows them
 *   optional marks     where sharing is likely, the best first
 *   geometric rungs    from the end backwards, each twice as far as the one before
 *
 * Optional marks and geometric rungs are taken while their budget lasts: marks
 * unless they are a few tokens behind a rung, which would save nothing, geometric ones
 * a step or more away from all others. Pure functions of numbers. */
#ifndef CAIRN_CORE_LADDER_H
#define CAIRN_CORE_LADDER_H

#include <stdint.h>

#define CAIRN__LADDER_RUNGS_MAX 64u
#define CAIRN__LADDER_MARK_GAP 16u /* fewer tokens are computed in the time that a checkpoint takes */

typedef struct cairn__ladder_plan {
    uint32_t        n_tokens;    /* of the prompt */
    uint32_t        from;        /* restored or resident: no rung at or before it */
    uint32_t        grid;        /* > 0: reproducible; rungs are rounded down to multiples of it */
    uint32_t        step;        /* least distance of a geometric rung from others: a batch */
    uint32_t        n_optional;  /* budget: so many optional rungs */
    const uint32_t *mandatory, *marks; /* positions, [n_mandatory], [n_marks]; any order, any value */
    uint32_t        n_mandatory, n_marks;
} cairn__ladder_plan;

/* Rungs in ascending order, each in (from, n_tokens - 1], no two alike, at most
 * CAIRN__LADDER_RUNGS_MAX. Returns their number. */
uint32_t cairn__ladder(const cairn__ladder_plan *plan, uint32_t ret_rungs[CAIRN__LADDER_RUNGS_MAX]);

#endif
