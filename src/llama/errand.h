/* errand.h - what may hang with the disk is done by other threads.
 *
 *   under way --> over                the caller goes on with what it brought
 *       |
 *       +------> left --> over        no progress for too long: the caller goes on
 *                                     without it; later calls find it over, or not
 *
 * Every call of the store that may touch the disk (open, read, stat, list, touch,
 * close) belongs to an errand: memory of its own, with all that its tasks read or
 * write. The thread that decodes only waits for it, and never longer than patience
 * allows. A task that hangs inside a system call can't be stopped, so a left errand
 * keeps what it has - staging buffers too, since a read that returns late still
 * writes into them - until its last task has returned.
 *
 * E1 A cache has at most one errand. While that one is left nothing new is begun:
 *    neither threads nor memory pile up behind a disk that hangs, and one timeout
 *    is all that requests wait.
 * E2 The first call that finds it over takes it apart, and the disk is used again.
 * E3 Only the thread that owns the cache calls the functions here, but for _moved()
 *    and _wanted(), which tasks call. */
#ifndef CAIRN_LLAMA_ERRAND_H
#define CAIRN_LLAMA_ERRAND_H

#include "os/pool.h"

#include <stdatomic.h>

/* Progress that a call without data stands for: a few seeks of a slow disk. */
#define CAIRN__ERRAND_CALL_BYTES (64u << 10)

struct cairn_llama;

typedef struct cairn__errand {
    /* Waits until no thread uses the errand, at most until then; begins what is
     * still to be done at its end. False: not over. */
    bool (*settle)(struct cairn__errand *errand, uint64_t until_ns);
    void (*destroy)(struct cairn__errand *errand);
    /* Asked now and then while somebody waits, NULL: never. When it says no, `stop` is
     * called once: tasks are to end soon. */
    bool (*go_on)(void *ctx);
    void *go_on_ctx;
    void (*stop)(struct cairn__errand *errand);
    atomic_uint_fast64_t moved; /* bytes, as a measure of progress */
    atomic_bool          left;
    atomic_bool          in_the_way; /* another one waits for its end */
    uint64_t             began_ns, seen_ns, seen; /* the owner's: when `moved` became `seen` */
} cairn__errand;

/* True: none is under way, and `errand` is the cache's now. False: one is left and
 * not over; the disk is not to be used. */
CAIRN_MUST_USE bool cairn__errand_begin(struct cairn_llama *cache, cairn__errand *errand);
/* Something new was submitted: patience begins anew. */
void cairn__errand_mark(cairn__errand *errand);
/* Waits for one of its tasks. False: no progress for too long; the errand is left. */
CAIRN_MUST_USE bool cairn__errand_wait(struct cairn_llama *cache, cairn__pool *pool, cairn__task *task);
/* The caller is done with the errand that it began, left or not; does not wait. */
void cairn__errand_end(struct cairn_llama *cache);
/* Waits without limit for what is still under way and takes it apart. */
void cairn__errand_finish(struct cairn_llama *cache);

/* ---- for tasks ---- */
static inline void cairn__errand_moved(cairn__errand *errand, uint64_t bytes)
{
    atomic_fetch_add_explicit(&errand->moved, bytes, memory_order_relaxed);
}
static inline bool cairn__errand_wanted(const cairn__errand *errand)
{
    return !atomic_load_explicit(&errand->left, memory_order_relaxed);
}

/* For what may as well not be done. */
static inline bool cairn__errand_has_time(const cairn__errand *errand)
{
    return cairn__errand_wanted(errand) && !atomic_load_explicit(&errand->in_the_way, memory_order_relaxed);
}

#endif
