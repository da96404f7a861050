/* compute.c - decode calls of a request, and what is done when one fails.
 *
 * Chunks: by default n_batch tokens from wherever the request starts; in
 * reproducible mode they end on multiples of n_batch, so that every position is
 * computed in the same call whatever was resident or restored before. They also
 * end where a checkpoint is to be taken: at a rung of the ladder.
 *
 * No room: idle sequences go, the one used longest ago first. Any other failure,
 * or no room with nothing left to free: everything is removed and the request
 * computed once more from nothing. Only then it fails. */
#include "engine/job.h"
#include "os/clock.h"

#include <string.h>

/* Optional checkpoints of one prompt: enough for the ends of its first messages
 * and a few rungs, and no more disk than a handful of pages of a large model. */
#define OPTIONAL_RUNGS 8u
#define OPTIONAL_BYTES (UINT64_C(256) << 20)

void cairn__run_plan_rungs(cairn__run *run)
{
    const cairn__engine *engine = run->engine;
    const cairn__marks  *marks = &run->request->job.marks;
    const uint64_t       bytes = cairn__runtime_checkpoint_bytes(engine->rt);
    const uint32_t       n_batch = cairn__runtime_n_batch(engine->rt);
    uint32_t             ends[1 + sizeof marks->end / sizeof marks->end[0]] = {run->parts_at};
    run->n_rungs = 0;
    if (bytes == 0)
        return;
    memcpy(ends + 1, marks->end, marks->n_end * sizeof *ends);
    const cairn__ladder_plan plan = {
        .n_tokens = run->n_prompt,
        .from = cairn__run_held(run),
        .grid = engine->options.reproducible ? n_batch : 0,
        .step = n_batch,
        .n_optional = OPTIONAL_BYTES / bytes < OPTIONAL_RUNGS ? (uint32_t)(OPTIONAL_BYTES / bytes) : OPTIONAL_RUNGS,
        .mandatory = marks->fork,
        .n_mandatory = marks->n_fork,
        .marks = ends,
        .n_marks = 1 + marks->n_end,
    };
    run->n_rungs = cairn__ladder(&plan, run->rungs);
}

/* The first rung behind pos; n_tokens: none. */
static uint32_t next_rung(const cairn__run *run, uint32_t pos)
{
    for (uint32_t i = 0; i < run->n_rungs; i++)
        if (run->rungs[i] > pos)
            return run->rungs[i];
    return run->n_tokens;
}

static uint32_t chunk_end(const cairn__run *run, uint32_t pos)
{
    uint32_t n_batch = cairn__runtime_n_batch(run->engine->rt);
    uint32_t end = run->engine->options.reproducible ? (pos / n_batch + 1) * n_batch : pos + n_batch;
    uint32_t limit = next_rung(run, pos);
    return end < limit ? end : limit;
}

/* Pages and, at a rung, the checkpoint of what was computed up to `end`. On the
 * grid the state is put in place again at every step, so that it does not matter
 * at which of them a checkpoint was taken or restored. */
static cairn_status record(cairn__run *run, uint32_t end)
{
    cairn__engine *engine = run->engine;
    bool           is_rung = end > 0 && end < run->n_tokens && next_rung(run, end - 1) == end;
    cairn__resident_record(engine, run->seq, false);
    return cairn__resident_checkpoint(engine, run->seq, is_rung) ? CAIRN_OK : CAIRN_ERUNTIME;
}

/* One call for tokens[pos..end). The sequence list follows what the runtime did. */
static cairn_status decode(cairn__run *run, uint32_t end, bool want_logits)
{
    cairn__engine *engine = run->engine;
    cairn_status   status;
    uint32_t       pos = cairn__run_held(run);
    do {
        status = cairn__decode(engine->rt, run->seq, run->tokens + pos, end - pos, pos, want_logits);
    } while (status == CAIRN_EBUSY && cairn__resident_evict(engine, run->seq));
    if (status == CAIRN_OK)
        cairn__sequences_append(&engine->seqs, run->seq, run->tokens + pos, end - pos);
    return status;
}

/* n_grid and n_prompt follow; only the prefill counts. */
static void note_prefilled(cairn__run *run, uint32_t pos)
{
    cairn__resident *item = &run->engine->seqs.items[run->seq];
    uint32_t         n_batch = cairn__runtime_n_batch(run->engine->rt);
    item->n_prompt = item->n;
    if (run->engine->options.reproducible && pos == item->n_grid && item->n == pos + n_batch)
        item->n_grid = item->n;
}

static cairn_status prefill_from_here(cairn__run *run)
{
    cairn__engine *engine = run->engine;
    for (uint32_t pos = cairn__run_held(run); pos < run->n_tokens; pos = cairn__run_held(run)) {
        if (cairn__run_canceled(run))
            return CAIRN_ECANCELED;
        uint32_t     end = chunk_end(run, pos);
        uint64_t     begin_ns = cairn__monotonic_ns();
        cairn_status status = decode(run, end, end == run->n_tokens);
        uint64_t     elapsed_ns = cairn__monotonic_ns() - begin_ns;
        if (status)
            return status;
        note_prefilled(run, pos);
        run->prefill_ns += elapsed_ns;
        cairn__estimate_add(&engine->estimate, end - pos, elapsed_ns);
        if (end < run->n_tokens) /* at the end generate.c records, after the first token went out */
            status = record(run, end);
        if (status)
            return status;
        cairn__run_send_prefill(run, end);
        cairn__run_log_prefill(run);
        cairn__engine_service(engine);
    }
    return CAIRN_OK;
}

static cairn_status start_over(cairn__run *run, cairn_status why)
{
    char cause[384];
    cairn__runtime_last_error(cause, sizeof cause);
    cairn__engine_log(run->engine, "request %llu: %s%s%s; computing it from nothing",
                      (unsigned long long)run->request->id, cairn_status_text(why), cause[0] ? ": " : "", cause);
    cairn__resident_clear(run->engine);
    run->fell_back = true;
    run->n_cached = run->n_resident = run->from_store = 0;
    cairn__run_plan_rungs(run);
    return prefill_from_here(run);
}

static bool may_start_over(const cairn__run *run, cairn_status status)
{
    bool is_curable = status == CAIRN_EBUSY || status == CAIRN_ERUNTIME;
    return is_curable && !run->fell_back && !cairn__run_canceled(run);
}

cairn_status cairn__run_prefill(cairn__run *run)
{
    cairn_status status = prefill_from_here(run);
    return may_start_over(run, status) ? start_over(run, status) : status;
}

cairn_status cairn__run_decode_one(cairn__run *run)
{
    cairn_status status = decode(run, run->n_tokens, true);
    /* In chunks the generated tokens get other bits than one by one: no second
     * try where bits are promised. */
    if (may_start_over(run, status) && !run->engine->options.reproducible)
        status = start_over(run, status);
    return status;
}
