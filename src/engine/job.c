/* job.c - the road of one request through the engine:
 *
 *   checked -> waits for the digest, if that pays -> placed (resident cells) ->
 *   restored (store) -> prefilled, recording -> generated -> reported -> recorded
 *
 * Wherever it ends, the resident list says exactly what the runtime holds. */
#include "engine/job.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t cairn__run_held(const cairn__run *run)
{
    return run->engine->seqs.items[run->seq].n;
}

bool cairn__run_canceled(const cairn__run *run)
{
    return atomic_load(&run->request->canceled);
}

static cairn_status check(cairn__run *run)
{
    const cairn__job *job = &run->request->job;
    uint32_t          n_ctx = cairn__runtime_n_ctx(run->engine->rt);
    uint32_t          n_vocab = cairn__runtime_n_vocab(run->engine->rt);
    run->n_prompt = job->n_tokens;
    if (job->n_tokens == 0) {
        snprintf(run->message, sizeof run->message, "the prompt is empty");
        return CAIRN_EINVAL;
    }
    if (job->n_tokens >= n_ctx) {
        snprintf(run->message, sizeof run->message, "prompt has %u tokens, context is %u", job->n_tokens, n_ctx);
        return CAIRN_EINVAL;
    }
    for (uint32_t i = 0; i < job->n_tokens; i++) {
        if (job->tokens[i] < 0 || (uint32_t)job->tokens[i] >= n_vocab) {
            snprintf(run->message, sizeof run->message, "token id %d is not in the vocabulary of %u", job->tokens[i],
                     n_vocab);
            return CAIRN_EINVAL;
        }
    }
    return CAIRN_OK;
}

static cairn_status begin(cairn__run *run)
{
    const cairn__job *job = &run->request->job;
    cairn_status      status = check(run);
    if (status)
        return status;
    uint32_t room = cairn__runtime_n_ctx(run->engine->rt) - job->n_tokens;
    run->n_max = job->n_tokens + (job->max_tokens < room ? job->max_tokens : room);
    run->tokens = malloc((size_t)run->n_max * sizeof *run->tokens);
    if (!run->tokens)
        return CAIRN_ENOMEM;
    memcpy(run->tokens, job->tokens, job->n_tokens * sizeof *run->tokens);
    run->n_tokens = job->n_tokens;
    cairn__text_init(&run->text, job->stops, job->n_stops);
    status = cairn__sampler_create(run->engine->rt, &job->sampling, job->tokens, job->n_tokens, &run->sampler);
    if (status == CAIRN_EINVAL)
        snprintf(run->message, sizeof run->message, "the grammar or one of its triggers does not parse");
    return status;
}

static bool still_waiting(void *ctx)
{
    cairn__run *run = ctx;
    cairn__engine_service(run->engine);
    cairn__run_send_prefill(run, 0);
    return !cairn__run_canceled(run);
}

static void wait_for_digest(cairn__run *run)
{
    uint32_t shared = 0;
    cairn__sequences_best(&run->engine->seqs, &run->request->job.salt, run->tokens, run->n_prompt, &shared);
    cairn__attach_wait(run->engine, run->request->id, run->n_prompt - shared, still_waiting, run);
}

/* An import needs cells that lie together; where idle sequences are in the way it is
 * cheaper to restore those later than to compute this one now. */
static cairn__restored restore_making_room(cairn__run *run)
{
    cairn__restored all = {.n_tokens = run->n_resident};
    do {
        cairn__restored r = cairn__seq_restore(run->engine->rt, run->seq, &run->request->job.salt, run->tokens,
                                               run->n_prompt, all.n_tokens);
        r.from_store = r.n_tokens < all.from_store + r.from_store ? r.n_tokens : all.from_store + r.from_store;
        r.bytes += all.bytes;
        r.elapsed_ns += all.elapsed_ns;
        all = r;
    } while (all.miss == CAIRN_MISS_NO_ROOM && cairn__resident_evict(run->engine, run->seq));
    return all;
}

static cairn__restored restore(cairn__run *run)
{
    cairn__engine  *engine = run->engine;
    cairn__restored r = {.n_tokens = run->n_resident, .miss = CAIRN_MISS_NONE};
    if (run->n_resident + 1 >= run->n_prompt)
        return r; /* resident already */
    cairn_miss why = cairn__attach_miss(engine);
    uint32_t   n_missing = run->n_prompt - 1 - run->n_resident;
    if (!why && !cairn__restore_estimate_pays(&engine->restore_estimate, &engine->estimate, n_missing))
        why = CAIRN_MISS_SLOWER_THAN_PREFILL;
    r.miss = why;
    if (why)
        return r;
    r = restore_making_room(run);
    cairn__engine_watch_disk(engine, r.miss);
    cairn__restore_estimate_add(&engine->restore_estimate, r.from_store, r.bytes, r.elapsed_ns);
    return r;
}

/* After this the sequence holds the longest prefix that was computed for this salt. */
static void place_and_restore(cairn__run *run)
{
    cairn__engine *engine = run->engine;
    run->n_resident = cairn__resident_prepare(engine, &run->request->job, &run->seq);
    run->placed = true;
    cairn__resident_make_room(engine, run->seq, run->n_prompt - run->n_resident + 1);

    cairn__restored r = restore(run);
    run->miss = r.miss;
    run->evicted_s = r.evicted_s;
    run->restore_ns = r.elapsed_ns;
    run->restored_bytes = r.bytes;
    run->from_store = r.from_store;
    run->parts_at = r.shared;
    cairn__resident_restored(engine, run->seq, run->tokens, r.n_tokens);
    run->n_cached = engine->seqs.items[run->seq].n;
    cairn__run_plan_rungs(run);
}

/* A sequence that was used in a failed call may hold anything. */
static void after_failure(cairn__run *run, cairn_status status)
{
    char cause[384];
    cairn__runtime_last_error(cause, sizeof cause);
    if (status == CAIRN_ERUNTIME && cause[0] && !run->message[0])
        snprintf(run->message, sizeof run->message, "%s: %s", cairn_status_text(status), cause);
    if (status == CAIRN_EBUSY && !run->message[0])
        snprintf(run->message, sizeof run->message, "no room in the context");
    if (run->placed)
        cairn__resident_remove(run->engine, run->seq);
}

static cairn_status compute(cairn__run *run)
{
    cairn_status status = CAIRN_OK;
    wait_for_digest(run);
    if (cairn__run_canceled(run))
        return CAIRN_ECANCELED;
    place_and_restore(run);
    cairn__run_send_prefill(run, run->n_cached);
    status = cairn__run_prefill(run);
    return status ? status : cairn__run_generate(run);
}

/* After the client has heard the end. A prefill that was cancelled leaves its
 * complete pages and waits for nothing; the same prompt comes back. */
static void record_rest(cairn__run *run)
{
    bool prompt_is_complete = cairn__run_held(run) >= run->n_prompt;
    if (!prompt_is_complete)
        cairn__resident_record(run->engine, run->seq, false);
    else if (run->n_generated > 1 && !run->engine->options.reproducible)
        cairn__resident_record(run->engine, run->seq, true);
}

void cairn__job_run(cairn__engine *engine, cairn__request *request)
{
    cairn__run run = {.engine = engine, .request = request, .started_ns = cairn__monotonic_ns()};
    run.logged_ns = run.started_ns;
    cairn_status status = begin(&run);
    if (!status) {
        status = compute(&run);
        if (status && status != CAIRN_ECANCELED)
            after_failure(&run, status);
        if (status == CAIRN_ERUNTIME && cairn__run_canceled(&run)) /* recurrent state can't be rolled back */
            status = CAIRN_ECANCELED;
    }
    if (status == CAIRN_ECANCELED) {
        run.finish = CAIRN__FINISH_CANCELED;
        status = CAIRN_OK;
    }
    if (run.placed)
        cairn__sequences_touch(&engine->seqs, run.seq);
    cairn__run_report(&run, status);
    if (run.placed && !status) {
        record_rest(&run);
        cairn__warm_note(engine);
    }
    cairn__sampler_destroy(run.sampler);
    cairn__text_done(&run.text);
    free(run.tokens);
}
