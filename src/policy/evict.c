/* evict.c - see evict.h. */
#include "policy/evict.h"

#define SOFTEN_S 60.0
#define PROBATION 4.0

double cairn__evict_score(const cairn__evict_case *c, int64_t now_s)
{
    double bytes = c->disk_bytes ? (double)c->disk_bytes : 1.0;
    double age_s = c->used_s < now_s ? (double)now_s - (double)c->used_s : 0.0;
    double saved_ns = c->prefill_ns ? (double)c->prefill_ns - (double)c->restore_ns : bytes * c->default_ns_per_byte;
    if (c->unwanted)
        return -1.0 - age_s;
    if (!(saved_ns > 0)) /* reading it costs more than computing it: no reason to keep it */
        saved_ns = 0;
    double score = saved_ns / bytes / (age_s * (c->unused ? PROBATION : 1.0) + SOFTEN_S);
    return age_s < CAIRN__EVICT_YOUNG_S ? CAIRN__EVICT_YOUNG + score * CAIRN__EVICT_YOUNG : score;
}
