/* staging.c - staging.h has the idea. One mutex guards the states; memory is
 * made outside of it.
 *
 *   COLD -> WARMING -> FREE <-> BUSY
 *     ^--------'  (out of memory: tried again by the next acquire) */
#include "llama/staging.h"

#include "os/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum stage_state { COLD, WARMING, FREE, BUSY } stage_state;

struct cairn__stage {
    cairn__task           task; /* first: the pool hands it back */
    cairn__staging       *staging;
    stage_state           state;
    uint8_t              *data;
    ggml_backend_buffer_t pinned; /* NULL: data is plain memory */
};

struct cairn__staging {
    pthread_mutex_t        mutex;
    pthread_cond_t         changed;
    cairn__staging_options options;
    uint32_t               n_busy;
    bool                   dropped;
    cairn__stage           stages[];
};

static uint8_t *make_plain(uint64_t size)
{
    uint8_t *data = cairn__alloc_large(size);
    if (data)
        memset(data, 0, size);
    return data;
}

/* Called by the stage's only user, without the mutex. */
static bool make(cairn__stage *stage)
{
    const cairn__staging_options *options = &stage->staging->options;
    if (options->pinned)
        stage->pinned = ggml_backend_buft_alloc_buffer(options->pinned, options->size);
    stage->data = stage->pinned ? ggml_backend_buffer_get_base(stage->pinned) : make_plain(options->size);
    return stage->data != NULL;
}

static void set_state(cairn__stage *stage, stage_state state)
{
    cairn__staging *staging = stage->staging;
    pthread_mutex_lock(&staging->mutex);
    stage->state = state;
    pthread_cond_broadcast(&staging->changed);
    pthread_mutex_unlock(&staging->mutex);
}

static void warm(cairn__task *task)
{
    cairn__stage   *stage = (cairn__stage *)task;
    cairn__staging *staging = stage->staging;
    pthread_mutex_lock(&staging->mutex);
    bool mine = stage->state == COLD; /* else an acquire was faster */
    if (mine)
        stage->state = WARMING;
    pthread_mutex_unlock(&staging->mutex);
    if (mine)
        set_state(stage, make(stage) ? FREE : COLD);
}

static void init_clock(cairn__staging *staging)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&staging->changed, &attr);
    pthread_condattr_destroy(&attr);
}

cairn_status cairn__staging_create(const cairn__staging_options *options, cairn__pool *pool,
                                   cairn__staging **ret_staging)
{
    cairn__staging *staging = calloc(1, sizeof *staging + options->n_buffers * sizeof staging->stages[0]);
    if (!staging)
        return CAIRN_ENOMEM;
    pthread_mutex_init(&staging->mutex, NULL);
    init_clock(staging);
    staging->options = *options;
    for (uint32_t i = 0; i < options->n_buffers; i++) {
        staging->stages[i].staging = staging;
        staging->stages[i].task.run = warm;
    }
    for (uint32_t i = 0; i < options->n_warm && i < options->n_buffers; i++)
        cairn__pool_submit(pool, &staging->stages[i].task);
    *ret_staging = staging;
    return CAIRN_OK;
}

void cairn__staging_warmed(cairn__staging *staging, cairn__pool *pool)
{
    for (uint32_t i = 0; i < staging->options.n_warm && i < staging->options.n_buffers; i++)
        cairn__pool_wait(pool, &staging->stages[i].task);
}

static void destroy(cairn__staging *staging)
{
    for (uint32_t i = 0; i < staging->options.n_buffers; i++) {
        cairn__stage *stage = &staging->stages[i];
        if (stage->pinned)
            ggml_backend_buffer_free(stage->pinned);
        else
            free(stage->data);
    }
    pthread_cond_destroy(&staging->changed);
    pthread_mutex_destroy(&staging->mutex);
    free(staging);
}

void cairn__staging_drop(cairn__staging *staging)
{
    if (!staging)
        return;
    pthread_mutex_lock(&staging->mutex);
    staging->dropped = true;
    bool last = staging->n_busy == 0;
    pthread_mutex_unlock(&staging->mutex);
    if (last)
        destroy(staging);
}

static cairn__stage *find(cairn__staging *staging, stage_state state)
{
    for (uint32_t i = 0; i < staging->options.n_buffers; i++)
        if (staging->stages[i].state == state)
            return &staging->stages[i];
    return NULL;
}

cairn__stage *cairn__stage_acquire(cairn__staging *staging)
{
    pthread_mutex_lock(&staging->mutex);
    cairn__stage *stage;
    while (!(stage = find(staging, FREE)) && !(stage = find(staging, COLD)) && find(staging, WARMING))
        pthread_cond_wait(&staging->changed, &staging->mutex);
    bool cold = stage && stage->state == COLD;
    if (stage) {
        stage->state = BUSY;
        staging->n_busy++;
    }
    pthread_mutex_unlock(&staging->mutex);
    if (!cold || make(stage))
        return stage;
    pthread_mutex_lock(&staging->mutex);
    stage->state = COLD;
    staging->n_busy--;
    pthread_mutex_unlock(&staging->mutex);
    return NULL;
}

cairn__stage *cairn__stage_acquire_ready(cairn__staging *staging)
{
    pthread_mutex_lock(&staging->mutex);
    cairn__stage *stage = find(staging, FREE);
    if (stage) {
        stage->state = BUSY;
        staging->n_busy++;
    }
    pthread_mutex_unlock(&staging->mutex);
    return stage;
}

uint8_t *cairn__stage_data(cairn__stage *stage)
{
    return stage->data;
}

void cairn__stage_release(void *context)
{
    cairn__stage *stage = context;
    if (!stage)
        return;
    cairn__staging *staging = stage->staging;
    pthread_mutex_lock(&staging->mutex);
    stage->state = FREE;
    staging->n_busy--;
    bool last = staging->dropped && staging->n_busy == 0;
    pthread_cond_broadcast(&staging->changed);
    pthread_mutex_unlock(&staging->mutex);
    if (last)
        destroy(staging);
}

void cairn__staging_wait(cairn__staging *staging, uint32_t timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    until.tv_sec += timeout_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&staging->mutex);
    uint32_t busy = staging->n_busy;
    while (staging->n_busy >= busy && pthread_cond_timedwait(&staging->changed, &staging->mutex, &until) == 0)
        continue;
    pthread_mutex_unlock(&staging->mutex);
}

uint32_t cairn__staging_in_use(cairn__staging *staging)
{
    pthread_mutex_lock(&staging->mutex);
    uint32_t n = staging->n_busy;
    pthread_mutex_unlock(&staging->mutex);
    return n;
}
