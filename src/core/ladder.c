/* ladder.c - see ladder.h. */
#include "core/ladder.h"

#include <stdbool.h>
#include <string.h>

typedef struct ladder {
    const cairn__ladder_plan *plan;
    uint32_t                 *rungs; /* ascending */
    uint32_t                  n;
} ladder;

/* Index of the first rung at or behind `position`. */
static uint32_t find(const ladder *l, uint32_t position)
{
    uint32_t i = 0;
    while (i < l->n && l->rungs[i] < position)
        i++;
    return i;
}

/* True when no rung is nearer than `gap`; `at` is where the position belongs. */
static bool is_clear(const ladder *l, uint32_t at, uint32_t position, uint32_t gap)
{
    if (at < l->n && l->rungs[at] - position < gap)
        return false;
    return at == 0 || position - l->rungs[at - 1] >= gap;
}

static bool add(ladder *l, uint32_t position, uint32_t gap)
{
    const cairn__ladder_plan *plan = l->plan;
    if (position >= plan->n_tokens)
        position = plan->n_tokens - 1; /* at least one token is always computed */
    if (plan->grid)
        position -= position % plan->grid;
    uint32_t at = find(l, position);
    if (position <= plan->from || l->n == CAIRN__LADDER_RUNGS_MAX || !is_clear(l, at, position, gap))
        return false;
    memmove(l->rungs + at + 1, l->rungs + at, (l->n - at) * sizeof *l->rungs);
    l->rungs[at] = position;
    l->n++;
    return true;
}

uint32_t cairn__ladder(const cairn__ladder_plan *plan, uint32_t ret_rungs[CAIRN__LADDER_RUNGS_MAX])
{
    ladder   l = {plan, ret_rungs, 0};
    uint32_t left = plan->n_optional, step = plan->step ? plan->step : 1;
    if (plan->n_tokens < 2 || plan->from >= plan->n_tokens - 1)
        return 0;
    const uint32_t last = plan->n_tokens - 1;
    add(&l, last, 1);
    for (uint32_t i = 0; i < plan->n_mandatory; i++)
        add(&l, plan->mandatory[i], 1);
    for (uint32_t i = 0; i < plan->n_marks && left > 0; i++)
        left -= add(&l, plan->marks[i], step);
    for (uint64_t back = step; back < last && left > 0; back *= 2)
        left -= add(&l, last - (uint32_t)back, step);
    return l.n;
}
