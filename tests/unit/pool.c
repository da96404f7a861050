/* pool.c - tasks run once each, in the order given, and are waited for; run
 * under the thread sanitizer by ./dev check. */
#include "testing.h"

#include "os/clock.h"
#include "os/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

typedef struct job {
    cairn__task  task; /* first */
    atomic_uint *counter;
    uint32_t     order; /* what the counter said when it ran */
    uint32_t     runs;
} job;

static void run_job(cairn__task *task)
{
    job *j = (job *)task;
    j->order = atomic_fetch_add(j->counter, 1);
    j->runs++;
}

static void all_tasks_run_once(void **state)
{
    (void)state;
    enum { N = 500 };
    for (uint32_t n_threads = 0; n_threads <= 8; n_threads += 4) {
        cairn__pool *pool = NULL;
        atomic_uint  counter = 0;
        job          jobs[N] = {0};
        assert_int_equal(cairn__pool_create(n_threads, &pool), CAIRN_OK);
        for (int round = 1; round <= 3; round++) { /* tasks can be used again */
            for (int i = 0; i < N; i++) {
                jobs[i].task.run = run_job;
                jobs[i].counter = &counter;
                cairn__pool_submit(pool, &jobs[i].task);
            }
            for (int i = N - 1; i >= 0; i--) {
                cairn__pool_wait(pool, &jobs[i].task);
                assert_int_equal(jobs[i].runs, round);
            }
        }
        assert_int_equal(counter, 3 * N);
        cairn__pool_destroy(pool);
    }
}

static void one_worker_keeps_the_order(void **state)
{
    (void)state;
    enum { N = 100 };
    cairn__pool *pool = NULL;
    atomic_uint  counter = 0;
    job          jobs[N] = {0};
    assert_int_equal(cairn__pool_create(0, &pool), CAIRN_OK); /* the waiter is the worker */
    for (int i = 0; i < N; i++) {
        jobs[i].task.run = run_job;
        jobs[i].counter = &counter;
        cairn__pool_submit(pool, &jobs[i].task);
    }
    cairn__pool_wait(pool, &jobs[49].task);
    assert_int_equal(counter, 50); /* no more than needed */
    cairn__pool_wait(pool, &jobs[10].task);
    assert_int_equal(counter, 50);
    cairn__pool_destroy(pool); /* runs the rest */
    assert_int_equal(counter, N);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(jobs[i].order, i);
}

static void destroy_runs_what_is_queued(void **state)
{
    (void)state;
    enum { N = 200 };
    cairn__pool *pool = NULL;
    atomic_uint  counter = 0;
    job          jobs[N] = {0};
    assert_int_equal(cairn__pool_create(3, &pool), CAIRN_OK);
    for (int i = 0; i < N; i++) {
        jobs[i].task.run = run_job;
        jobs[i].counter = &counter;
        cairn__pool_submit(pool, &jobs[i].task);
    }
    cairn__pool_destroy(pool);
    assert_int_equal(counter, N);
    cairn__pool_destroy(NULL);
}

/* Runs on a pool thread only once the other one has started as well. */
typedef struct meeting {
    cairn__task      task; /* first */
    pthread_mutex_t *mutex;
    pthread_cond_t  *cond;
    int             *here;
} meeting;

static void meet(cairn__task *task)
{
    meeting *m = (meeting *)task;
    pthread_mutex_lock(m->mutex);
    ++*m->here;
    pthread_cond_broadcast(m->cond);
    while (*m->here < 3)
        pthread_cond_wait(m->cond, m->mutex);
    pthread_mutex_unlock(m->mutex);
}

static void two_threads_and_the_waiter_make_three(void **state)
{
    (void)state;
    cairn__pool    *pool = NULL;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t  cond = PTHREAD_COND_INITIALIZER;
    int             here = 0;
    meeting         m[3];
    assert_int_equal(cairn__pool_create(2, &pool), CAIRN_OK);
    for (int i = 0; i < 3; i++) {
        m[i] = (meeting){.task.run = meet, .mutex = &mutex, .cond = &cond, .here = &here};
        cairn__pool_submit(pool, &m[i].task);
    }
    cairn__pool_wait(pool, &m[2].task); /* hangs (and is ended by ctest) if the waiter does not help */
    cairn__pool_destroy(pool);
    assert_int_equal(here, 3);
}

typedef struct gate {
    cairn__task task; /* first */
    atomic_bool open, passed;
} gate;

static void wait_at_gate(cairn__task *task)
{
    gate *g = (gate *)task;
    while (!atomic_load(&g->open))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_store(&g->passed, true);
}

static void a_wait_that_ends_runs_nothing_and_keeps_its_time(void **state)
{
    (void)state;
    cairn__pool *pool = NULL;
    atomic_uint  counter = 0;
    gate         g = {.task.run = wait_at_gate};
    job          behind = {.task.run = run_job, .counter = &counter};
    assert_int_equal(cairn__pool_create(1, &pool), CAIRN_OK);
    cairn__pool_submit(pool, &g.task);
    cairn__pool_submit(pool, &behind.task);
    uint64_t began = cairn__monotonic_ns();
    assert_false(cairn__pool_wait_until(pool, &behind.task, began + 30000000));
    assert_true(cairn__monotonic_ns() >= began + 30000000);
    assert_false(cairn__pool_wait_until(pool, &behind.task, 0)); /* long past: only looks */
    assert_int_equal(counter, 0);                                /* the one worker hangs, and the waiter did not help */
    atomic_store(&g.open, true);
    assert_true(cairn__pool_wait_until(pool, &behind.task, UINT64_MAX));
    assert_true(g.passed && counter == 1);
    assert_true(cairn__pool_wait_until(pool, &g.task, 0));
    cairn__pool_destroy(pool);
}

static void submit_many(cairn__pool *pool, atomic_uint *counter)
{
    enum { N = 300 };
    job *jobs = calloc(N, sizeof(*jobs));
    for (int i = 0; jobs && i < N; i++) {
        jobs[i].task.run = run_job;
        jobs[i].counter = counter;
        cairn__pool_submit(pool, &jobs[i].task);
    }
    for (int i = 0; jobs && i < N; i++)
        cairn__pool_wait(pool, &jobs[i].task);
    free(jobs); /* at once: a pool that still touched a task would be seen */
}

static cairn__pool *shared_pool;
static atomic_uint  shared_counter;

static void *client(void *arg)
{
    (void)arg;
    submit_many(shared_pool, &shared_counter);
    return NULL;
}

static void several_clients(void **state)
{
    (void)state;
    pthread_t threads[4];
    assert_int_equal(cairn__pool_create(2, &shared_pool), CAIRN_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cairn__pool_destroy(shared_pool);
    assert_int_equal(shared_counter, 1200);
}

typedef struct mask_job {
    cairn__task task; /* first */
    sigset_t    mask;
    pthread_t   thread;
} mask_job;

static void read_mask(cairn__task *task)
{
    mask_job *j = (mask_job *)task;
    pthread_sigmask(SIG_SETMASK, NULL, &j->mask);
    j->thread = pthread_self();
}

static void threads_block_signals(void **state)
{
    (void)state;
    cairn__pool *pool = NULL;
    sigset_t     mine;
    mask_job     j = {.task.run = read_mask};
    assert_int_equal(cairn__pool_create(1, &pool), CAIRN_OK);
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_false(sigismember(&mine, SIGTERM)); /* the creator's own mask is as before */
    do {                                       /* until the worker and not the waiter ran it */
        cairn__pool_submit(pool, &j.task);
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        cairn__pool_wait(pool, &j.task);
    } while (pthread_equal(j.thread, pthread_self()));
    assert_true(sigismember(&j.mask, SIGTERM) && sigismember(&j.mask, SIGINT));
    cairn__pool_destroy(pool);
}

static void cpu_count(void **state)
{
    (void)state;
    assert_true(cairn__cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_tasks_run_once),
        cmocka_unit_test(one_worker_keeps_the_order),
        cmocka_unit_test(destroy_runs_what_is_queued),
        cmocka_unit_test(two_threads_and_the_waiter_make_three),
        cmocka_unit_test(a_wait_that_ends_runs_nothing_and_keeps_its_time),
        cmocka_unit_test(several_clients),
        cmocka_unit_test(threads_block_signals),
        cmocka_unit_test(cpu_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
