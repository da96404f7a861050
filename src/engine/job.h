/* job.h - one request while it runs. [engine's thread] */
#ifndef CAIRN_ENGINE_JOB_H
#define CAIRN_ENGINE_JOB_H

#include "core/ladder.h"
#include "engine/internal.h"
#include "engine/text.h"

typedef struct cairn__run {
    cairn__engine  *engine;
    cairn__request *request;
    cairn__sampler *sampler;
    cairn__text     text;
    int32_t        *tokens;                                 /* prompt, then what was generated */
    uint32_t        n_tokens, n_prompt, n_generated, n_max; /* n_max: room in tokens */
    uint32_t        seq;                                    /* resident sequence; valid once `placed` */
    bool            placed;
    bool            fell_back; /* computed from nothing after a failure of the runtime; once per request */
    uint32_t        n_resident, n_cached, from_store;
    uint32_t        rungs[CAIRN__LADDER_RUNGS_MAX];         /* where checkpoints are taken, ascending */
    uint32_t        n_rungs;
    uint32_t        parts_at;                               /* where an earlier prompt parted from this one; 0: unknown */
    uint64_t        restored_bytes, restore_ns, prefill_ns, decode_ns, ttft_ns, started_ns, logged_ns;
    cairn_miss      miss;
    uint64_t        evicted_s; /* how long ago, with CAIRN_MISS_EVICTED */
    cairn__finish   finish;
    char            message[640];
} cairn__run;

/* Tokens that the sequence holds now. */
uint32_t cairn__run_held(const cairn__run *run);
bool     cairn__run_canceled(const cairn__run *run);

/* compute.c: decides where checkpoints are taken, if the model needs them, behind
 * what the sequence holds now. */
void cairn__run_plan_rungs(cairn__run *run);
/* Decodes until the sequence holds tokens[0..n), the last with
 * logits; makes room, and starts from nothing once when the runtime fails.
 * CAIRN_ECANCELED: what was computed stays. */
CAIRN_MUST_USE cairn_status cairn__run_prefill(cairn__run *run);
CAIRN_MUST_USE cairn_status cairn__run_decode_one(cairn__run *run);

/* generate.c: after the prefill; sets run->finish. */
CAIRN_MUST_USE cairn_status cairn__run_generate(cairn__run *run);

/* report.c */
void cairn__run_send_prefill(cairn__run *run, uint32_t n_done);
void cairn__run_send_text(cairn__run *run);
void cairn__run_report(cairn__run *run, cairn_status status); /* END or ERROR, stats, log line */
void cairn__run_log_prefill(cairn__run *run);                 /* at most every 5 s */

#endif
