/* attach.c - the durable tier comes up while requests are served already.
 *
 * A thread of its own hashes the weights, at a lower priority than the model's
 * threads: a prefill that runs meanwhile is what somebody waits for. The engine's
 * thread attaches between requests, since the self-test decodes. */
#include "engine/internal.h"
#include "os/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOG_EVERY_NS 5000000000ull
#define NICENESS 10 /* about a tenth of a busy core's time: hashing goes on, but gives way */
/* Before the first progress: 1.3 GB/s, SHA-256 of OpenSSL 3 on one core (DEPENDENCIES.md). */
#define GUESSED_NS_PER_BYTE 0.77
#define MIB 1048576.0

static void finish(cairn__engine *engine, cairn__attach_state state)
{
    pthread_mutex_lock(&engine->mutex);
    engine->attach.state = state;
    pthread_cond_broadcast(&engine->wake);
    pthread_mutex_unlock(&engine->mutex);
}

static bool hash_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
    cairn__engine *engine = ctx;
    cairn__attach *a = &engine->attach;
    uint64_t       now = cairn__monotonic_ns(), started;
    pthread_mutex_lock(&engine->mutex);
    a->done_bytes = done_bytes;
    a->total_bytes = total_bytes;
    started = a->started_ns;
    bool say = now - a->logged_ns >= LOG_EVERY_NS;
    if (say)
        a->logged_ns = now;
    pthread_mutex_unlock(&engine->mutex);
    if (say && total_bytes > 0)
        cairn__engine_log(engine, "hashing the weights: %.0f %% of %.0f MiB, %.0f MiB/s",
                          100.0 * (double)done_bytes / (double)total_bytes, (double)total_bytes / MIB,
                          (double)done_bytes / MIB / ((double)(now - started) / 1e9));
    return !atomic_load(&a->stop);
}

static void *hash_main(void *ctx)
{
    cairn__engine *engine = ctx;
    cairn__attach *a = &engine->attach;
    cairn_error    error = {{0}};
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICENESS); /* of this thread; its pool inherits it */
    cairn_weights_request request = {
        .cache_dir = a->digest_cache_dir, .progress = hash_progress, .progress_ctx = engine};
    cairn_digest digest;
    request.paths = cairn__runtime_model_paths(engine->rt, &request.n_paths);
    cairn_status status = cairn_store_weights_digest(a->store, &request, &digest, &error);
    if (status == CAIRN_OK) {
        pthread_mutex_lock(&engine->mutex);
        a->digest = digest;
        pthread_mutex_unlock(&engine->mutex);
    } else if (status != CAIRN_ECANCELED) {
        cairn__engine_log(engine, "disk cache off: %s", error.text[0] ? error.text : cairn_status_text(status));
    }
    finish(engine, status == CAIRN_OK ? CAIRN__ATTACH_HASHED : CAIRN__ATTACH_OFF);
    return NULL;
}

cairn_status cairn__engine_attach_store(cairn__engine *engine, cairn_store *store, const char *digest_cache_dir)
{
    cairn__attach *a = &engine->attach;
    if (a->store)
        return CAIRN_EINVAL;
    a->digest_cache_dir = digest_cache_dir ? strdup(digest_cache_dir) : NULL;
    if (digest_cache_dir && !a->digest_cache_dir)
        return CAIRN_ENOMEM;
    a->store = store;
    pthread_mutex_lock(&engine->mutex);
    a->total_bytes = cairn__runtime_model_bytes(engine->rt);
    a->started_ns = a->logged_ns = cairn__monotonic_ns();
    a->state = CAIRN__ATTACH_HASHING;
    pthread_mutex_unlock(&engine->mutex);
    if (pthread_create(&a->thread, NULL, hash_main, engine) != 0) {
        finish(engine, CAIRN__ATTACH_OFF);
        return CAIRN_ENOMEM;
    }
    a->thread_started = true;
    return CAIRN_OK;
}

bool cairn__engine_await_store(cairn__engine *engine, uint32_t timeout_ms)
{
    const uint64_t until = cairn__monotonic_ns() + timeout_ms * 1000000ull;
    pthread_mutex_lock(&engine->mutex);
    cairn__attach_state *state = &engine->attach.state;
    while ((*state == CAIRN__ATTACH_HASHING || *state == CAIRN__ATTACH_HASHED) && cairn__monotonic_ns() < until)
        cairn__engine_wait(engine, 50);
    bool settled = *state != CAIRN__ATTACH_HASHING && *state != CAIRN__ATTACH_HASHED;
    pthread_mutex_unlock(&engine->mutex);
    return settled;
}

static cairn__attach_state state_of(cairn__engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    cairn__attach_state state = engine->attach.state;
    pthread_mutex_unlock(&engine->mutex);
    return state;
}

/* What was computed before the digest was known is stored now. */
static void record_all(cairn__engine *engine)
{
    for (uint32_t s = 0; s < engine->seqs.n_seq; s++) {
        const uint32_t n = engine->seqs.items[s].n;
        cairn__resident_record(engine, s, true);
        if (n > 0 && cairn__resident_recordable(engine, s) == n)
            (void)!cairn__resident_checkpoint(engine, s, true);
    }
}

/* The weights are mapped: who writes into their file changes what is computed from
 * then on, and a file that was replaced can't be told from that for certain. Nothing
 * goes on from what other weights may have computed, in memory either. */
static void turn_off(cairn__engine *engine)
{
    cairn__engine_log(engine, "disk cache off: the model's file changed after it was loaded; restart to use it");
    finish(engine, CAIRN__ATTACH_OFF);
    cairn__resident_clear(engine);
}

void cairn__attach_poll(cairn__engine *engine)
{
    cairn__attach *a = &engine->attach;
    cairn_error    error = {{0}};
    const cairn__attach_state state = state_of(engine);
    if ((state == CAIRN__ATTACH_HASHED || state == CAIRN__ATTACHED) && !cairn__runtime_model_unchanged(engine->rt)) {
        turn_off(engine);
        return;
    }
    if (state != CAIRN__ATTACH_HASHED)
        return;
    cairn__engine_undisturbed_begin(engine); /* an aborted self-test would turn the cache off for good */
    cairn_status status = cairn__runtime_attach_store(engine->rt, a->store, &a->digest, &error);
    cairn__engine_undisturbed_end(engine);
    const char *why = status ? NULL : cairn__runtime_unsupported(engine->rt);
    if (status)
        cairn__engine_log(engine, "disk cache off: %s", error.text[0] ? error.text : cairn_status_text(status));
    else if (why)
        cairn__engine_log(engine, "disk cache off for this model: %s", why);
    else
        cairn__engine_log(engine, "disk cache on: %s", cairn_store_root(a->store));
    if (!status && !why) {
        record_all(engine);
        cairn__warm_start(engine); /* before the state changes: that is what a server that starts waits for */
    }
    finish(engine, status || why ? CAIRN__ATTACH_OFF : CAIRN__ATTACHED);
}

/* Nanoseconds until the digest is there, never 0 while it is not; 0: nothing to
 * wait for. Under the mutex. */
static uint64_t rest_ns(const cairn__attach *a)
{
    if (a->state != CAIRN__ATTACH_HASHING)
        return 0;
    uint64_t elapsed = cairn__monotonic_ns() - a->started_ns;
    uint64_t rest = cairn__estimate_rest_ns(a->done_bytes, a->total_bytes, elapsed, GUESSED_NS_PER_BYTE);
    return rest > 1000000 ? rest : 1000000;
}

static void say_waiting(const cairn__engine *engine, uint64_t request_id, uint64_t rest, uint64_t prefill)
{
    cairn__engine_log(engine, "request %llu: waits for the weights digest, %.1f s more; its prefill would take %.1f s",
                      (unsigned long long)request_id, (double)rest / 1e9, (double)prefill / 1e9);
}

void cairn__attach_wait(cairn__engine *engine, uint64_t request_id, uint32_t n_tokens, bool (*tick)(void *ctx),
                        void *ctx)
{
    uint64_t       prefill = cairn__estimate_ns(&engine->estimate, n_tokens), rest = 0;
    const uint64_t began = cairn__monotonic_ns();
    bool           waiting = true, said = false;
    while (waiting) { /* not longer than the prefill takes: with a disk that hangs `rest` stays as it is */
        pthread_mutex_lock(&engine->mutex);
        rest = rest_ns(&engine->attach);
        waiting = rest > 0 && rest < prefill && cairn__monotonic_ns() - began < prefill;
        if (waiting)
            cairn__engine_wait(engine, 1000);
        rest = rest_ns(&engine->attach);
        pthread_mutex_unlock(&engine->mutex);
        if (waiting && rest > 0 && !said) {
            say_waiting(engine, request_id, rest, prefill);
            said = true;
        }
        waiting = waiting && tick(ctx);
    }
    cairn__attach_poll(engine);
}

cairn_miss cairn__attach_miss(cairn__engine *engine)
{
    switch (state_of(engine)) {
    case CAIRN__ATTACHED:
        return CAIRN_MISS_NONE;
    case CAIRN__ATTACH_HASHING:
    case CAIRN__ATTACH_HASHED:
        return CAIRN_MISS_NO_DIGEST;
    case CAIRN__ATTACH_OFF:
        return cairn__runtime_unsupported(engine->rt) ? CAIRN_MISS_UNSUPPORTED_MODEL : CAIRN_MISS_TIER_OFF;
    case CAIRN__ATTACH_NONE:
        break;
    }
    return CAIRN_MISS_TIER_OFF;
}

void cairn__attach_stop(cairn__engine *engine)
{
    cairn__attach *a = &engine->attach;
    atomic_store(&a->stop, true);
    if (a->thread_started)
        pthread_join(a->thread, NULL);
    a->thread_started = false;
}
