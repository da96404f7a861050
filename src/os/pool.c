/* pool.c - a fixed set of threads over one first-in-first-out list.
 *
 * One mutex guards everything. A worker sleeps on `work`, a waiter on
 * `finished`; a waiter first runs what is queued, so it sleeps only while its
 * task runs on another thread. A task's memory belongs to the caller again as
 * soon as `done` was seen under the mutex: the pool sets it as its last touch.
 *
 * Threads block every signal: handlers run on the program's own threads. */
#include "os/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct cairn__pool {
    pthread_mutex_t mutex;
    pthread_cond_t  work, finished;
    cairn__task    *first, **end; /* queued; *end is the NULL after the last */
    bool            stopping;
    uint32_t        n_threads;
    pthread_t       threads[];
};

uint32_t cairn__cpu_count(void)
{
    cpu_set_t set;
    /* Fails on machines with more CPUs than a cpu_set_t holds (1,024). */
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (uint32_t)n;
}

/* With the mutex held; NULL: nothing queued. */
static cairn__task *take_first(cairn__pool *pool)
{
    cairn__task *task = pool->first;
    if (task) {
        pool->first = task->next;
        if (!pool->first)
            pool->end = &pool->first;
    }
    return task;
}

/* With the mutex held, which is let go while the task runs. */
static void run_unlocked(cairn__pool *pool, cairn__task *task)
{
    pthread_mutex_unlock(&pool->mutex);
    task->run(task);
    pthread_mutex_lock(&pool->mutex);
    task->done = true;
    pthread_cond_broadcast(&pool->finished);
}

static void *worker(void *arg)
{
    cairn__pool *pool = arg;
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        cairn__task *task = take_first(pool);
        if (task)
            run_unlocked(pool, task);
        else if (pool->stopping)
            break;
        else
            pthread_cond_wait(&pool->work, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

cairn_status cairn__pool_create(uint32_t n_threads, cairn__pool **ret_pool)
{
    cairn__pool *pool = calloc(1, sizeof(*pool) + n_threads * sizeof(pool->threads[0]));
    if (!pool)
        return CAIRN_ENOMEM;
    pthread_condattr_t attr;
    pthread_mutex_init(&pool->mutex, NULL); /* these can't fail on Linux with such attributes */
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->finished, &attr);
    pthread_condattr_destroy(&attr);
    pool->end = &pool->first;

    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (pool->n_threads < n_threads && !error) {
        error = pthread_create(&pool->threads[pool->n_threads], NULL, worker, pool);
        if (!error)
            pool->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        cairn__pool_destroy(pool);
        return CAIRN_ENOMEM;
    }
    *ret_pool = pool;
    return CAIRN_OK;
}

void cairn__pool_destroy(cairn__pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    for (cairn__task *task; (task = take_first(pool)) != NULL;)
        run_unlocked(pool, task);
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < pool->n_threads; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

void cairn__pool_submit(cairn__pool *pool, cairn__task *task)
{
    task->next = NULL;
    task->done = false;
    pthread_mutex_lock(&pool->mutex);
    *pool->end = task;
    pool->end = &task->next;
    pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

void cairn__pool_wait(cairn__pool *pool, cairn__task *task)
{
    pthread_mutex_lock(&pool->mutex);
    while (!task->done) {
        cairn__task *other = take_first(pool);
        if (other)
            run_unlocked(pool, other);
        else
            pthread_cond_wait(&pool->finished, &pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
}

bool cairn__pool_wait_until(cairn__pool *pool, cairn__task *task, uint64_t until_ns)
{
    const struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    int                   error = 0;
    pthread_mutex_lock(&pool->mutex);
    while (!task->done && !error)
        error = until_ns == UINT64_MAX ? pthread_cond_wait(&pool->finished, &pool->mutex)
                                       : pthread_cond_timedwait(&pool->finished, &pool->mutex, &until);
    bool done = task->done;
    pthread_mutex_unlock(&pool->mutex);
    return done;
}
