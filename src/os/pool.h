/* pool.h - a fixed set of threads that run small tasks in the order given.
 * Used for reading ahead and hashing. A task may hang with the disk that it asks:
 * who must not hang with it waits with cairn__pool_wait_until(). */
#ifndef CAIRN_OS_POOL_H
#define CAIRN_OS_POOL_H

#include "cairn/base.h"

typedef struct cairn__pool cairn__pool;

/* Cores this process may run on, at least 1. */
uint32_t cairn__cpu_count(void);

CAIRN_MUST_USE cairn_status cairn__pool_create(uint32_t n_threads, cairn__pool **ret_pool);
void cairn__pool_destroy(cairn__pool *pool); /* runs what is queued first; accepts NULL */

/* A task lives in the caller's memory until it was waited for. `run` may be
 * called on any pool thread. */
typedef struct cairn__task {
    void (*run)(struct cairn__task *task);
    struct cairn__task *next; /* the pool's */
    bool                done; /* the pool's */
} cairn__task;
void cairn__pool_submit(cairn__pool *pool, cairn__task *task);
/* Waits for one task; runs queued tasks itself meanwhile, so that a pool of n
 * threads and the waiter make n + 1. */
void cairn__pool_wait(cairn__pool *pool, cairn__task *task);
/* Waits until the monotonic clock says until_ns, UINT64_MAX: without end, and runs
 * nothing itself. False: the task is not over and its memory still the pool's. */
CAIRN_MUST_USE bool cairn__pool_wait_until(cairn__pool *pool, cairn__task *task, uint64_t until_ns);

#endif
