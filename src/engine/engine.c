/* engine.c - queue, thread and life of the engine. Invariants: internal.h.
 *
 *   submit -> queue -> running -> freed          cancel, stop: queue -> ended -> freed
 *
 * One thread runs the requests; between its decode calls it serves the queue, so
 * that nobody waits for a long prefill to hear where he stands. */
#include "engine/internal.h"
#include "os/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define QUEUE_DEFAULT 64u
/* Regular expressions of lazy grammars recurse: sampler.c bounds them to 10 MiB. */
#define STACK_SIZE (64u << 20)
#define FLUSH_MS 30000u    /* a full write queue of 256 MiB at 10 MB/s */
#define FLUSH_SILENT_MS 1000u /* of a disk that did not answer when it was asked last */
#define WARM_UP_TOKENS 32u /* enough to see a speed, 0.2 s on two cores with a 135M model */
#define WARM_UP_FAST_NS 10000000ull /* bounds what a full batch (16 to 64 times as many) adds to a start */

typedef struct position {
    cairn__request *request;
    uint32_t        position;
} position;

void cairn__engine_log(const cairn__engine *engine, const char *format, ...)
{
    char    line[1024];
    va_list args;
    if (!engine->options.log)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    engine->options.log(engine->options.log_ctx, line);
}

void cairn__engine_wait(cairn__engine *engine, uint32_t timeout_ms)
{
    uint64_t        until = cairn__monotonic_ns() + timeout_ms * 1000000ull;
    struct timespec at = {(time_t)(until / 1000000000ull), (long)(until % 1000000000ull)};
    pthread_cond_timedwait(&engine->wake, &engine->mutex, &at);
}

void cairn__engine_undisturbed_begin(cairn__engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->undisturbed = true;
    cairn__runtime_abort(engine->rt, false);
    pthread_mutex_unlock(&engine->mutex);
}

void cairn__engine_undisturbed_end(cairn__engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->undisturbed = false;
    pthread_mutex_unlock(&engine->mutex);
}

void cairn__engine_watch_disk(cairn__engine *engine, cairn_miss miss)
{
    bool silent = miss == CAIRN_MISS_TIMEOUT;
    if (silent && !engine->disk_is_silent)
        cairn__engine_log(engine, "the disk of the cache does not answer: until it does, prompts are computed");
    if (!silent && engine->disk_is_silent)
        cairn__engine_log(engine, "the disk of the cache answers again");
    engine->disk_is_silent = silent;
}

/* ---- telling requests that wait ---- */

static void end_waiting(cairn__engine *engine, cairn__request *r)
{
    cairn__event event = {.type = CAIRN__EVENT_END, .n_prompt = r->job.n_tokens, .finish = CAIRN__FINISH_CANCELED};
    if (r->end_status != CAIRN_ECANCELED) {
        event.type = CAIRN__EVENT_ERROR;
        event.status = r->end_status;
        event.message = "the server is stopping";
    }
    pthread_mutex_lock(&engine->mutex);
    engine->stats.jobs++;
    engine->stats.jobs_canceled += event.type == CAIRN__EVENT_END;
    engine->stats.jobs_failed += event.type == CAIRN__EVENT_ERROR;
    pthread_mutex_unlock(&engine->mutex);
    r->fn(r->ctx, &event);
    cairn__request_destroy(r);
}

/* Requests whose place changed. They stay alive until this thread frees them (E3). */
static uint32_t collect_positions(cairn__engine *engine)
{
    uint32_t n = 0, place = engine->running ? 1 : 0;
    for (cairn__request *r = engine->queue.first; r; r = r->next, place++) {
        if (r->told_position != place) {
            r->told_position = place;
            engine->positions[n++] = (position){r, place};
        }
    }
    return n;
}

void cairn__engine_service(cairn__engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    uint32_t            n = collect_positions(engine);
    cairn__request_list ended = engine->ended;
    engine->ended = (cairn__request_list){0};
    pthread_mutex_unlock(&engine->mutex);
    for (uint32_t i = 0; i < n; i++) {
        cairn__request *r = engine->positions[i].request;
        cairn__event    event = {
               .type = CAIRN__EVENT_QUEUED, .queue_position = engine->positions[i].position, .n_prompt = r->job.n_tokens};
        r->fn(r->ctx, &event);
    }
    for (cairn__request *r = cairn__request_pop(&ended); r; r = cairn__request_pop(&ended))
        end_waiting(engine, r);
}

/* ---- the engine's thread ---- */

static void run_next(cairn__engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    cairn__request *r = cairn__request_pop(&engine->queue);
    engine->running = r;
    pthread_mutex_unlock(&engine->mutex);
    if (!r)
        return;
    cairn__job_run(engine, r);
    pthread_mutex_lock(&engine->mutex);
    engine->running = NULL;
    cairn__runtime_abort(engine->rt, false);
    pthread_cond_broadcast(&engine->finished);
    pthread_mutex_unlock(&engine->mutex);
    cairn__request_destroy(r);
}

static bool nothing_to_do(const cairn__engine *engine)
{
    return !engine->stopping && engine->queue.n == 0 && engine->ended.n == 0 &&
           engine->attach.state != CAIRN__ATTACH_HASHED;
}

/* Decodes n made-up tokens; weights come into memory on the way. */
static cairn_status warm_up_with(cairn__engine *engine, uint32_t n, uint64_t *ret_ns)
{
    uint32_t n_vocab = cairn__runtime_n_vocab(engine->rt);
    int32_t *tokens = malloc(n * sizeof *tokens);
    if (!tokens)
        return CAIRN_ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((i * 7u + 1u) % n_vocab);
    uint64_t     begin_ns = cairn__monotonic_ns();
    cairn_status status = cairn__decode(engine->rt, 0, tokens, n, 0, true);
    *ret_ns = cairn__monotonic_ns() - begin_ns;
    cairn__runtime_clear(engine->rt);
    free(tokens);
    return status;
}

/* The second call is timed. One that is over at once (a GPU) tells about its
 * latency only: then a full batch is timed. */
static cairn_status warm_up(cairn__engine *engine)
{
    uint64_t     ns = 0;
    uint32_t     n_batch = cairn__runtime_n_batch(engine->rt);
    uint32_t     n = n_batch < WARM_UP_TOKENS ? n_batch : WARM_UP_TOKENS;
    cairn_status status = warm_up_with(engine, 1, &ns);
    if (!status)
        status = warm_up_with(engine, n, &ns);
    if (!status && ns < WARM_UP_FAST_NS)
        status = warm_up_with(engine, n = n_batch, &ns);
    if (!status)
        cairn__estimate_add(&engine->estimate, n, ns);
    return status;
}

/* On this thread, like every decode call: each thread that runs OpenMP regions has
 * a team of its own, and with more threads in teams than cores libgomp sleeps at
 * every barrier instead of spinning (a tenth of the time in the kernel, measured). */
static cairn_status warm_up_here(cairn__engine *engine)
{
    cairn_status status = warm_up(engine);
    pthread_mutex_lock(&engine->mutex);
    engine->warm_status = status;
    engine->warmed = true;
    pthread_cond_broadcast(&engine->finished);
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

static void *engine_main(void *ctx)
{
    cairn__engine *engine = ctx;
    bool           stopping = warm_up_here(engine) != CAIRN_OK;
    while (!stopping) {
        pthread_mutex_lock(&engine->mutex);
        while (nothing_to_do(engine))
            pthread_cond_wait(&engine->wake, &engine->mutex);
        stopping = engine->stopping;
        pthread_mutex_unlock(&engine->mutex);
        cairn__engine_service(engine);
        if (!stopping) {
            cairn__attach_poll(engine);
            run_next(engine);
        }
    }
    cairn__engine_service(engine);
    return NULL;
}

/* ---- life ---- */

static bool start_thread(cairn__engine *engine)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0)
        return false;
    int code = pthread_attr_setstacksize(&attr, STACK_SIZE);
    if (code == 0)
        code = pthread_create(&engine->thread, &attr, engine_main, engine);
    pthread_attr_destroy(&attr);
    engine->thread_started = code == 0;
    return engine->thread_started;
}

/* The thread, warm; on failure there is none. */
static cairn_status start_warm(cairn__engine *engine)
{
    if (!start_thread(engine))
        return CAIRN_ENOMEM;
    pthread_mutex_lock(&engine->mutex);
    while (!engine->warmed)
        pthread_cond_wait(&engine->finished, &engine->mutex);
    cairn_status status = engine->warm_status;
    pthread_mutex_unlock(&engine->mutex);
    if (status)
        pthread_join(engine->thread, NULL);
    return status;
}

static bool init_locks(cairn__engine *engine)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0)
        return false;
    bool ok = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 && pthread_mutex_init(&engine->mutex, NULL) == 0 &&
              pthread_cond_init(&engine->wake, &attr) == 0 && pthread_cond_init(&engine->finished, &attr) == 0;
    pthread_condattr_destroy(&attr);
    return ok;
}

static void free_engine(cairn__engine *engine)
{
    cairn__sequences_done(&engine->seqs);
    free(engine->attach.digest_cache_dir);
    free(engine->positions);
    free(engine);
}

cairn_status cairn__engine_create(cairn__runtime *rt_take, const cairn__engine_options *options,
                                  cairn__engine **ret_engine)
{
    cairn__engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return CAIRN_ENOMEM;
    engine->rt = rt_take;
    engine->options = *options;
    if (!engine->options.max_queue)
        engine->options.max_queue = QUEUE_DEFAULT;
    atomic_init(&engine->attach.stop, false);
    engine->positions = calloc((size_t)engine->options.max_queue + 1, sizeof *engine->positions);
    cairn_status status =
        cairn__sequences_init(&engine->seqs, cairn__runtime_n_seq(rt_take), cairn__runtime_n_ctx(rt_take));
    if (!status && options->reproducible != cairn__runtime_reproducible(rt_take))
        status = CAIRN_EINVAL; /* the runtime's sequences and the adapter's grid depend on it */
    if (!status && (!engine->positions || !init_locks(engine)))
        status = CAIRN_ENOMEM;
    if (!status)
        status = start_warm(engine);
    if (status)
        free_engine(engine);
    else
        *ret_engine = engine;
    return status;
}

cairn_status cairn__engine_submit(cairn__engine *engine, const cairn__job *job, cairn__event_fn fn, void *ctx,
                                  uint64_t *ret_job_id)
{
    cairn__request *r = NULL;
    cairn_status    status = cairn__request_create(job, &r);
    if (status)
        return status;
    r->fn = fn;
    r->ctx = ctx;
    r->submitted_ns = cairn__monotonic_ns();
    pthread_mutex_lock(&engine->mutex);
    uint32_t places = engine->options.max_queue + (engine->running ? 0 : 1); /* the next to run takes none */
    if (engine->stopping || engine->queue.n >= places) {
        status = CAIRN_EBUSY;
    } else {
        *ret_job_id = r->id = ++engine->last_id;
        cairn__request_push(&engine->queue, r);
        pthread_cond_signal(&engine->wake);
    }
    pthread_mutex_unlock(&engine->mutex);
    if (status)
        cairn__request_destroy(r);
    return status;
}

static void cancel_running(cairn__engine *engine)
{
    atomic_store(&engine->running->canceled, true);
    if (!engine->undisturbed)
        cairn__runtime_abort(engine->rt, true);
    pthread_cond_broadcast(&engine->wake); /* it may be waiting for the digest */
}

void cairn__engine_cancel(cairn__engine *engine, uint64_t job_id)
{
    pthread_mutex_lock(&engine->mutex);
    cairn__request *r = cairn__request_remove(&engine->queue, job_id);
    if (r) {
        r->end_status = CAIRN_ECANCELED;
        cairn__request_push(&engine->ended, r);
        pthread_cond_signal(&engine->wake);
    } else if (engine->running && engine->running->id == job_id) {
        cancel_running(engine);
    }
    pthread_mutex_unlock(&engine->mutex);
}

static void wait_for_running(cairn__engine *engine, uint32_t grace_ms)
{
    uint64_t        until = cairn__monotonic_ns() + grace_ms * 1000000ull;
    struct timespec at = {(time_t)(until / 1000000000ull), (long)(until % 1000000000ull)};
    int             code = 0;
    while (engine->running && code == 0)
        code = pthread_cond_timedwait(&engine->finished, &engine->mutex, &at);
    if (engine->running)
        cancel_running(engine);
}

void cairn__engine_stop(cairn__engine *engine, uint32_t grace_ms)
{
    pthread_mutex_lock(&engine->mutex);
    bool again = engine->stopping;
    engine->stopping = true;
    for (cairn__request *r = cairn__request_pop(&engine->queue); r; r = cairn__request_pop(&engine->queue)) {
        r->end_status = CAIRN_EBUSY;
        cairn__request_push(&engine->ended, r);
    }
    pthread_cond_broadcast(&engine->wake);
    if (!again)
        wait_for_running(engine, grace_ms);
    pthread_mutex_unlock(&engine->mutex);
    if (again)
        return;
    pthread_join(engine->thread, NULL);
    cairn__attach_stop(engine);
    const uint32_t flush_ms = engine->disk_is_silent ? FLUSH_SILENT_MS : FLUSH_MS;
    if (engine->attach.store && cairn_store_flush(engine->attach.store, flush_ms) != CAIRN_OK)
        cairn__engine_log(engine, "not all pages could be written before the end; they will be computed again");
    engine->stopped = true;
}

void cairn__engine_destroy(cairn__engine *engine)
{
    if (!engine)
        return;
    if (!engine->stopped)
        cairn__engine_stop(engine, 0);
    cairn__runtime_close(engine->rt);
    pthread_cond_destroy(&engine->wake);
    pthread_cond_destroy(&engine->finished);
    pthread_mutex_destroy(&engine->mutex);
    free_engine(engine);
}

void cairn__engine_get_stats(cairn__engine *engine, cairn__engine_stats *ret_stats)
{
    pthread_mutex_lock(&engine->mutex);
    *ret_stats = engine->stats;
    ret_stats->queued = engine->queue.n;
    ret_stats->running = engine->running != NULL;
    pthread_mutex_unlock(&engine->mutex);
}

const cairn__runtime *cairn__engine_runtime(const cairn__engine *engine)
{
    return engine->rt;
}
