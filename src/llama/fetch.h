/* fetch.h - the part of a restore that asks the disk: an errand (errand.h).
 *
 *   look up -> [read run 0 | read run 1 | ...] -> release
 *
 * The clerk, a thread of its own, looks up and releases; pool threads read and
 * verify the blocks of a run in the buffer from which it is imported. The thread
 * that decodes plans runs, starts them and waits.
 *
 * A reader takes some neighbouring blocks at a time. What is not in the page cache
 * comes past it, about WINDOW bytes at a time, by more readers than what is: they
 * sleep. The clerk brings it into that cache afterwards, for the next process.
 *
 * Rows go straight where the blob wants them and are verified there. Blocks whose
 * bytes do not lie together (transposed V, extensions) and all blocks of a page that
 * is cut are read into private memory, verified, then copied.
 *
 * F1 A run's buffer holds bytes that verified, once it is finished with bad == n_pages.
 * F2 A buffer is given back when no reader uses it: of a fetch that was left, not
 *    before its last read has returned.
 * F3 When a function here says that the fetch is left, its fields are the tasks': they
 *    may still write them, and nothing but its errand may be looked at. */
#ifndef CAIRN_LLAMA_FETCH_H
#define CAIRN_LLAMA_FETCH_H

#include "llama/adapter.h"

#define CAIRN__FETCH_RUNS 3u /* one imported, two read ahead */

typedef struct cairn__fetch      cairn__fetch;
typedef struct cairn__fetch_run  cairn__fetch_run;
typedef struct cairn__fetch_task cairn__fetch_task;

struct cairn__fetch_run {
    cairn__fetch      *fetch;
    cairn__stage      *stage;
    uint32_t           first_page, n_pages;
    uint32_t           start, n_cells;
    uint32_t           group; /* blocks that a reader takes at a time, of one page */
    atomic_uint        next;  /* next group of the run to read, counted over its pages */
    atomic_uint        bad;   /* first page that failed, relative; n_pages: none */
    atomic_int         error; /* why */
    uint32_t           n_tasks;
    cairn__fetch_task *tasks; /* [CAIRN__MAX_READERS] */
};

struct cairn__fetch {
    cairn__errand    errand; /* first */
    cairn__task      look_up, release;
    bool             releasing;
    atomic_bool      stopped; /* nobody wants more of it */
    cairn_llama     *cache;
    cairn_identity  *identity; /* a copy, like the tokens: tasks may outlive the call */
    cairn_pin       *pin;
    cairn_miss       miss;        /* why there are no more pages; NONE: all that were asked for */
    uint64_t         evicted_s;   /* how long ago, with CAIRN_MISS_EVICTED */
    uint32_t         n_pages;     /* that fit this context, one behind the other */
    uint32_t         from, limit; /* tokens that are there, and asked for */
    uint8_t         *checkpoint;  /* for a model that needs one: at checkpoint_at, verified; NULL: none was found */
    uint64_t         checkpoint_size;
    uint32_t         checkpoint_at;
    uint32_t         reached; /* end of the pages that are there */
    bool            *cold; /* [n_pages], which are not in the page cache; NULL: none */
    _Atomic(cairn_pin_window *) windows[CAIRN__MAX_READERS]; /* of no reader now; NULL: none */
    cairn__fetch_run runs[CAIRN__FETCH_RUNS];
    llama_token      tokens[]; /* [limit] */
};

/* NULL: out of memory. Begun with cairn__errand_begin(), ended with cairn__errand_end(). */
cairn__fetch *cairn__fetch_create(cairn_llama *cache, const cairn_identity *identity, const llama_token *tokens,
                                  uint32_t from, uint32_t limit);
void          cairn__fetch_destroy(cairn__errand *fetch); /* one that was not begun */
/* Pins what is stored behind `from`. False: left. */
CAIRN_MUST_USE bool cairn__fetch_look_up(cairn__fetch *fetch);

/* Buffers for runs, at least one unless memory is out; given back with the second. */
uint32_t cairn__fetch_acquire(cairn__fetch *fetch);
void     cairn__fetch_release(cairn__fetch *fetch);

/* Lets readers at the run; then waits for them. False: left. */
void                cairn__fetch_start(cairn__fetch_run *run);
CAIRN_MUST_USE bool cairn__fetch_finish(cairn__fetch_run *run);
/* The search stops at its next page, readers of all runs at their next block. */
void cairn__fetch_stop(cairn__fetch *fetch);

#endif
