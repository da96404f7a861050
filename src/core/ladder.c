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

/* What a rung must be away from the one before it, or from what was restored, and
 * from the one behind it. A rung close behind another saves next to nothing; one
 * close before another may save all that lies before it. */
typedef struct gap {
    uint32_t before, behind;
} gap;

/* `at` is where the position belongs. */
static bool is_clear(const ladder *l, uint32_t at, uint32_t position, gap gap)
{
    const uint32_t before = at > 0 ? l->rungs[at - 1] : l->plan->from;
    return position - before >= gap.before && (at == l->n || l->rungs[at] - position >= gap.behind);
}

static bool add(ladder *l, uint32_t position, gap gap)
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
    add(&l, last, (gap){1, 1});
    for (uint32_t i = 0; i < plan->n_mandatory; i++)
        add(&l, plan->mandatory[i], (gap){1, 1});
    for (uint32_t i = 0; i < plan->n_marks && left > 0; i++)
        left -= add(&l, plan->marks[i], (gap){CAIRN__LADDER_MARK_GAP, 1});
    for (uint64_t back = step; back < last && left > 0; back *= 2)
        left -= add(&l, last - (uint32_t)back, (gap){step, step});
    return l.n;
}
