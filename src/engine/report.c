/* report.c - events and log lines of a request. Log lines carry numbers only,
 * never a byte of a prompt or an answer. */
#include "engine/job.h"
#include "os/clock.h"

#include <stdio.h>

#define LOG_EVERY_NS 5000000000ull

static void send(cairn__run *run, cairn__event *event)
{
    event->n_prompt = run->n_prompt;
    event->n_cached = run->n_cached;
    event->n_generated = run->n_generated;
    run->request->fn(run->request->ctx, event);
}

void cairn__run_send_prefill(cairn__run *run, uint32_t n_done)
{
    cairn__event event = {.type = CAIRN__EVENT_PREFILL};
    event.n_done = n_done < run->n_prompt ? n_done : run->n_prompt;
    if (run->n_generated == 0) /* computing an answer's tokens again is nobody's progress */
        send(run, &event);
}

void cairn__run_send_text(cairn__run *run)
{
    cairn__text_view view = cairn__text_ready(&run->text);
    if (view.size == 0 && view.n_infos == 0)
        return;
    cairn__event event = {.type = CAIRN__EVENT_TEXT,
                          .n_done = run->n_prompt,
                          .text = view.text,
                          .text_size = view.size,
                          .infos = view.infos,
                          .n_infos = view.n_infos};
    send(run, &event);
    cairn__text_consume(&run->text);
}

static double per_second(uint32_t n, uint64_t ns)
{
    return ns > 0 ? n * 1e9 / (double)ns : 0.0;
}

void cairn__run_log_prefill(cairn__run *run)
{
    uint64_t now = cairn__monotonic_ns();
    uint32_t n = cairn__run_held(run);
    if (now - run->logged_ns < LOG_EVERY_NS || n >= run->n_tokens)
        return;
    run->logged_ns = now;
    cairn__engine_log(run->engine, "request %llu: prefill %u of %u tokens, %.0f tokens/s",
                      (unsigned long long)run->request->id, n, run->n_tokens,
                      per_second(n - run->n_cached, run->prefill_ns));
}

static const char *outcome(const cairn__run *run, cairn_status status)
{
    if (status)
        return run->message[0] ? run->message : cairn_status_text(status);
    switch (run->finish) {
    case CAIRN__FINISH_LENGTH:
        return "length";
    case CAIRN__FINISH_CANCELED:
        return "cancelled";
    case CAIRN__FINISH_STOP:
        break;
    }
    return "stop";
}

/* "request 7: 7512 prompt tokens, 7400 cached (200 resident, 7200 from store in 25 ms), ..."
 * The two add up: of what was resident in a page that the store gave, the page counts. */
static void log_line(const cairn__run *run, cairn_status status)
{
    char     miss[96] = "";
    uint32_t held = run->placed ? cairn__run_held(run) : 0;
    uint32_t prompt_held = held < run->n_prompt ? held : run->n_prompt;
    uint32_t computed = prompt_held > run->n_cached ? prompt_held - run->n_cached : 0;
    if (run->miss == CAIRN_MISS_EVICTED)
        snprintf(miss, sizeof miss, "; rest not cached: evicted %llu s ago", (unsigned long long)run->evicted_s);
    else if (run->miss != CAIRN_MISS_NONE)
        snprintf(miss, sizeof miss, "; rest not cached: %s", cairn_miss_text(run->miss));
    cairn__engine_log(
        run->engine,
        "request %llu: %u prompt tokens, %u cached (%u resident, %u from store in %.1f ms), %u prefilled at "
        "%.0f tokens/s, first token after %.3f s, %u generated at %.1f tokens/s; %s%s",
        (unsigned long long)run->request->id, run->n_prompt, run->n_cached, run->n_cached - run->from_store,
        run->from_store, (double)run->restore_ns / 1e6, computed, per_second(computed, run->prefill_ns), (double)run->ttft_ns / 1e9,
        run->n_generated, per_second(run->n_generated > 1 ? run->n_generated - 1 : 0, run->decode_ns),
        outcome(run, status), miss);
}

static void count(cairn__run *run, cairn_status status)
{
    cairn__engine *engine = run->engine;
    pthread_mutex_lock(&engine->mutex);
    engine->stats.jobs++;
    engine->stats.jobs_failed += status != CAIRN_OK;
    engine->stats.jobs_canceled += !status && run->finish == CAIRN__FINISH_CANCELED;
    if (!status) {
        engine->stats.prompt_tokens += run->n_prompt;
        engine->stats.cached_tokens += run->n_cached;
        engine->stats.misses[run->miss] += run->miss != CAIRN_MISS_NONE;
    }
    engine->stats.generated_tokens += run->n_generated;
    pthread_mutex_unlock(&engine->mutex);
}

void cairn__run_report(cairn__run *run, cairn_status status)
{
    uint32_t     held = run->placed ? cairn__run_held(run) : 0;
    cairn__event event = {.type = status ? CAIRN__EVENT_ERROR : CAIRN__EVENT_END,
                          .n_done = held < run->n_prompt ? held : run->n_prompt,
                          .finish = run->finish,
                          .miss = run->miss,
                          .restore_ns = run->restore_ns,
                          .prefill_ns = run->prefill_ns,
                          .decode_ns = run->decode_ns,
                          .ttft_ns = run->ttft_ns,
                          .restored_bytes = run->restored_bytes,
                          .from_store = run->from_store,
                          .status = status,
                          .message = status ? outcome(run, status) : NULL};
    count(run, status);
    log_line(run, status);
    send(run, &event);
}
