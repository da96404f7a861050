/* harness.h - an engine on the tests' model, and jobs that are waited for. */
#ifndef CAIRN_TESTS_ENGINE_HARNESS_H
#define CAIRN_TESTS_ENGINE_HARNESS_H

#include "testing.h"

#include "engine/engine.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

typedef struct harness {
    cairn__engine        *engine;
    const cairn__runtime *rt;
} harness;

/* What one job reported. */
typedef struct outcome {
    pthread_mutex_t   mutex;
    pthread_cond_t    changed;
    harness          *h;
    uint64_t          id;
    char              text[16384];
    size_t            text_size;
    uint32_t          n_texts, n_prefills, n_queued, n_ends;
    cairn__token_info infos[512];
    uint32_t          n_infos;
    cairn__event      last; /* END or ERROR; its pointers are not valid */
    char              message[256];
    uint32_t          n_done, position; /* of the latest PREFILL, QUEUED */
    bool              over;
} outcome;

/* All log lines since the last harness_open(). */
static pthread_mutex_t harness_log_mutex = PTHREAD_MUTEX_INITIALIZER;
static char            harness_lines[65536];

/* Of the engines that are opened from then on. */
static bool harness_warm_start;

static void harness_log(void *ctx, const char *line)
{
    (void)ctx;
    pthread_mutex_lock(&harness_log_mutex);
    size_t size = strlen(harness_lines);
    snprintf(harness_lines + size, sizeof harness_lines - size, "%s\n", line);
    pthread_mutex_unlock(&harness_log_mutex);
    if (getenv("CAIRN_TEST_VERBOSE"))
        printf("log: %s\n", line);
}

static inline bool harness_logged(const char *part)
{
    pthread_mutex_lock(&harness_log_mutex);
    bool found = strstr(harness_lines, part) != NULL;
    pthread_mutex_unlock(&harness_log_mutex);
    return found;
}

static inline void harness_wait_logged(const char *part)
{
    for (int i = 0; i < 18000 && !harness_logged(part); i++)
        usleep(10000);
    if (!harness_logged(part))
        fail_msg("never said: %s", part);
}

static inline void harness_open(harness *h, cairn__runtime_options options, uint32_t max_queue)
{
    cairn_error     error;
    cairn__runtime *rt = NULL;
    if (!options.model_path)
        options.model_path = test_model();
    if (!options.model_path)
        test_skip();
    harness_lines[0] = 0;
    if (cairn__runtime_open(&options, &rt, &error))
        fail_msg("%s", error.text);
    cairn__engine_options engine_options = {
        .reproducible = options.reproducible, .warm_start = harness_warm_start, .max_queue = max_queue, .log = harness_log};
    assert_int_equal(cairn__engine_create(rt, &engine_options, &h->engine), CAIRN_OK);
    h->rt = cairn__engine_runtime(h->engine);
}

static inline void harness_close(harness *h)
{
    cairn__engine_stop(h->engine, 10000);
    cairn__engine_destroy(h->engine);
}

static void outcome_event(void *ctx, const cairn__event *event)
{
    outcome *o = ctx;
    pthread_mutex_lock(&o->mutex);
    switch (event->type) {
    case CAIRN__EVENT_QUEUED:
        o->n_queued++;
        o->position = event->queue_position;
        break;
    case CAIRN__EVENT_PREFILL:
        o->n_prefills++;
        o->n_done = event->n_done;
        break;
    case CAIRN__EVENT_TEXT:
        if (o->text_size + event->text_size < sizeof o->text) {
            memcpy(o->text + o->text_size, event->text, event->text_size);
            o->text_size += event->text_size;
        }
        for (uint32_t i = 0; i < event->n_infos && o->n_infos < 512; i++)
            o->infos[o->n_infos++] = event->infos[i];
        o->n_texts++;
        break;
    case CAIRN__EVENT_END:
    case CAIRN__EVENT_ERROR:
        o->last = *event;
        snprintf(o->message, sizeof o->message, "%s", event->message ? event->message : "");
        o->n_ends++;
        o->over = true;
        break;
    }
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->mutex);
}

static inline outcome *outcome_create(harness *h)
{
    outcome *o = calloc(1, sizeof *o);
    assert_non_null(o);
    o->h = h;
    pthread_mutex_init(&o->mutex, NULL);
    pthread_cond_init(&o->changed, NULL);
    return o;
}

static inline void outcome_destroy(outcome *o)
{
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->mutex);
    free(o);
}

static inline outcome *harness_submit(harness *h, const cairn__job *job)
{
    outcome *o = outcome_create(h);
    assert_int_equal(cairn__engine_submit(h->engine, job, outcome_event, o, &o->id), CAIRN_OK);
    return o;
}

/* Waits until test(o) holds, at most three minutes. */
static inline void outcome_wait_for(outcome *o, bool (*test)(const outcome *o))
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 180;
    pthread_mutex_lock(&o->mutex);
    int code = 0;
    while (!test(o) && code == 0)
        code = pthread_cond_timedwait(&o->changed, &o->mutex, &until);
    pthread_mutex_unlock(&o->mutex);
    assert_int_equal(code, 0);
}

static inline bool outcome_is_over(const outcome *o)
{
    return o->over;
}

static inline bool outcome_has_text(const outcome *o)
{
    return o->text_size > 0;
}

static inline void outcome_wait(outcome *o)
{
    outcome_wait_for(o, outcome_is_over);
    assert_int_equal(o->n_ends, 1);
}

static inline outcome *harness_run(harness *h, const cairn__job *job)
{
    outcome *o = harness_submit(h, job);
    outcome_wait(o);
    return o;
}

/* Six tokens of an answer with the logprobs of 20. salt: 0 is none. */
static inline outcome *harness_ask_as(harness *h, uint8_t salt, const int32_t *tokens, uint32_t n)
{
    cairn__job job = {.tokens = tokens,
                      .n_tokens = n,
                      .max_tokens = 6,
                      .salt = {{salt}},
                      .ignore_eos = true,
                      .want_logprobs = true,
                      .n_top_logprobs = 20};
    return harness_run(h, &job);
}

static inline outcome *harness_ask(harness *h, const int32_t *tokens, uint32_t n)
{
    return harness_ask_as(h, 0, tokens, n);
}

/* n tokens, other ones for every `seed`; the first `shared` are the same for all. */
static inline int32_t *made_up_tokens(const harness *h, uint32_t n, uint32_t shared, uint32_t seed)
{
    int32_t *tokens = malloc(n * sizeof *tokens);
    assert_non_null(tokens);
    uint64_t state = 88172645463325252u;
    for (uint32_t i = 0; i < n; i++) {
        if (i == shared)
            state ^= (uint64_t)(seed + 1) * 0x9e3779b97f4a7c15u;
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = 1000 + (int32_t)((state >> 33) % (cairn__runtime_n_vocab(h->rt) - 2000));
    }
    return tokens;
}

static inline int32_t *tokens_of(const harness *h, const char *text, uint32_t *ret_n)
{
    int32_t *tokens = NULL;
    assert_int_equal(cairn__tokenize(h->rt, text, strlen(text), true, true, &tokens, ret_n), CAIRN_OK);
    return tokens;
}

#endif
