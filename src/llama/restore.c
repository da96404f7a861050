/* restore.c - the longest stored prefix, from the store into a sequence.
 *
 *   lookup -> [run 0 | run 1 | ...]     a run: neighbouring pages, run_tokens at most
 *   readers (pool threads)  read + verify every block of runs i+1, i+2 in place
 *   calling thread                import run i
 *
 * A run lies in one staging buffer as the blob that the runtime takes: its frame
 * is written first, then the readers put each block where the blob wants it.
 * Rows go straight there and are verified there. Blocks whose bytes do not lie
 * together (transposed V, extensions) and all blocks of a page that is cut are
 * read into private memory, verified, then copied.
 *
 * R1 Bytes reach the runtime only from a buffer in which their checksums held.
 * R2 Runs are imported in order of position, each whole or not at all.
 * R3 The sequence is touched for the first time when the first run is verified:
 *    a resident part that ends inside its first page is cut to that page's
 *    start then.
 * R4 At most as many runs are in flight as there are buffers.
 *
 * A page that fails ends the restore: the pages of its run before it are read
 * once more and imported as a shorter run. */
#include "llama/adapter.h"

#include "os/clock.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
    MAX_RUNS = 3,  /* one imported, two read ahead */
    FIRST_PART = 8 /* the first run is this part of a full one, see plan_run() */
};

typedef struct run run;

typedef struct read_task {
    cairn__task task; /* first: the pool hands it back */
    run        *run;
} read_task;

struct run {
    struct restore *restore;
    cairn__stage   *stage;
    uint32_t        first_page, n_pages;
    uint32_t        start, n_cells;
    atomic_uint     next; /* next block of the run to read, counted over its pages */
    atomic_uint     bad;  /* first page that failed, relative; n_pages: none */
    atomic_int      error; /* why */
    uint32_t        n_tasks;
    read_task      *tasks; /* [n_readers] */
};

typedef struct restore {
    cairn_llama       *cache;
    cairn_pin         *pin;
    llama_seq_id       seq;
    const llama_token *tokens;
    uint32_t           n_pages;
    uint32_t           next_tokens; /* size of the next run */
    uint32_t           at;    /* the sequence holds [0, at) */
    uint32_t           first; /* [first, at) came from the store, when bytes > 0 */
    cairn_miss         miss;  /* why it ends here; NONE: it doesn't yet */
    uint64_t           bytes;
    run                runs[MAX_RUNS];
} restore;

/* ---- reading (pool threads) ---- */

static cairn_status read_indirect(run *r, uint32_t page, uint32_t block, uint32_t cell, const cairn_page_view *view,
                                  uint8_t *private)
{
    const cairn__layout *layout = r->restore->cache->layout;
    cairn_status status = cairn_pin_read_block(r->restore->pin, r->first_page + page, block, private);
    if (status)
        return status;
    if (layout->blocks[block].segment < 0 &&
        !cairn__block_ext_check(private, view->used_tokens, view->start, r->restore->tokens + view->start)) {
        cairn_pin_reject(r->restore->pin, r->first_page + page);
        return CAIRN_ECORRUPT;
    }
    cairn__block_span span = {r->n_cells, cell, view->used_tokens, view->n_tokens, NULL};
    cairn__block_scatter(layout, block, cairn__stage_data(r->stage), &span, private);
    return CAIRN_OK;
}

static cairn_status read_one(run *r, uint32_t page, uint32_t block, uint8_t **private, uint64_t *private_size)
{
    const cairn__layout  *layout = r->restore->cache->layout;
    const cairn_page_view view = cairn_pin_page(r->restore->pin, r->first_page + page);
    const uint32_t        cell = view.start - r->start;
    if (cairn__block_is_contiguous(layout, block) && view.used_tokens == view.n_tokens) {
        uint64_t at = cairn__block_offset(layout, block, r->n_cells, cell);
        return cairn_pin_read_block(r->restore->pin, r->first_page + page, block, cairn__stage_data(r->stage) + at);
    }
    const uint64_t size = cairn__block_size(layout, block, view.n_tokens);
    if (*private_size < size) {
        free(*private);
        *private = malloc(size);
        *private_size = *private ? size : 0;
        if (!*private)
            return CAIRN_ENOMEM;
    }
    return read_indirect(r, page, block, cell, &view, *private);
}

static void fail(run *r, uint32_t page, cairn_status status)
{
    unsigned bad = atomic_load(&r->bad);
    while (page < bad && !atomic_compare_exchange_weak(&r->bad, &bad, page))
        continue;
    if (page < bad)
        atomic_store(&r->error, status);
}

static void read_blocks(cairn__task *task)
{
    run           *r = ((read_task *)task)->run;
    const uint32_t n_blocks = r->restore->cache->layout->n_blocks;
    uint8_t       *private = NULL;
    uint64_t       private_size = 0;
    for (;;) {
        uint32_t i = atomic_fetch_add(&r->next, 1);
        uint32_t page = i / n_blocks;
        if (page >= atomic_load(&r->bad))
            break; /* the end, or behind a page that failed */
        cairn_status status = read_one(r, page, i % n_blocks, &private, &private_size);
        if (status)
            fail(r, page, status);
    }
    free(private);
}

static void start_run(run *r)
{
    const cairn_llama *cache = r->restore->cache;
    cairn__blob_frame(cache->layout, cairn__stage_data(r->stage), r->start, r->n_cells, cache->scratch);
    atomic_store(&r->next, 0);
    atomic_store(&r->bad, r->n_pages);
    const uint64_t items = (uint64_t)r->n_pages * cache->layout->n_blocks;
    r->n_tasks = items < cache->n_readers ? (uint32_t)items : cache->n_readers;
    for (uint32_t i = 0; i < r->n_tasks; i++) {
        r->tasks[i] = (read_task){.task = {.run = read_blocks}, .run = r};
        cairn__pool_submit(cache->pool, &r->tasks[i].task);
    }
}

static void finish_run(run *r)
{
    for (uint32_t i = 0; i < r->n_tasks; i++)
        cairn__pool_wait(r->restore->cache->pool, &r->tasks[i].task);
    r->n_tasks = 0;
}

/* ---- importing (calling thread) ---- */

static cairn_miss miss_of(cairn_status status)
{
    return status == CAIRN_ECORRUPT ? CAIRN_MISS_CORRUPT : status == CAIRN_ENOSPC ? CAIRN_MISS_NO_ROOM : CAIRN_MISS_IO;
}

/* Shortens the run to the pages before the one that failed and reads them again
 * until all are good. False: none is left. */
static bool retry_shorter(restore *job, run *r)
{
    while (atomic_load(&r->bad) < r->n_pages) {
        job->miss = miss_of((cairn_status)atomic_load(&r->error));
        r->n_pages = atomic_load(&r->bad);
        if (r->n_pages == 0)
            return false;
        cairn_page_view last = cairn_pin_page(job->pin, r->first_page + r->n_pages - 1);
        r->n_cells = last.start + last.used_tokens - r->start;
        start_run(r);
        finish_run(r);
    }
    return true;
}

/* Cuts the resident part to where the first run begins (R3). */
static bool make_place(restore *job, uint32_t start)
{
    if (start == job->at)
        return true;
    if (start > job->at || !llama_memory_seq_rm(job->cache->memory, job->seq, (llama_pos)start, -1))
        return false;
    job->at = start;
    return true;
}

static void import_run(restore *job, run *r)
{
    const cairn_llama *cache = job->cache;
    if (!make_place(job, r->start)) {
        job->miss = CAIRN_MISS_IO;
        return;
    }
    cairn_status status = cairn__import(job->cache, job->seq, job->at == 0, cairn__stage_data(r->stage),
                                        cairn__blob_size(cache->layout, r->n_cells), r->start, r->n_cells);
    if (status) {
        job->miss = miss_of(status);
        return;
    }
    if (job->bytes == 0)
        job->first = r->start;
    job->at = r->start + r->n_cells;
    job->bytes += cache->layout->row_size * r->n_cells;
}

/* ---- the pages of a pin ---- */

static bool page_fits(const cairn_llama *cache, const cairn_page_view *view, uint32_t start)
{
    const cairn__layout *layout = cache->layout;
    if (view->start != start || view->n_tokens == 0 || view->n_tokens > cache->page_tokens || view->used_tokens == 0 ||
        view->used_tokens > view->n_tokens || view->layout != layout->id || view->n_blocks != layout->n_blocks)
        return false;
    for (uint32_t i = 0; i < view->n_blocks; i++)
        if (view->block_size[i] != cairn__block_size(layout, i, view->n_tokens))
            return false;
    return true;
}

/* Pages that are what this context needs, one after another up to `end`; the
 * identity should see to that, so one that is not is corrupt and must not stay. */
static void accept_pages(restore *job, uint32_t n_pages, uint32_t end)
{
    uint32_t start = cairn_pin_page(job->pin, 0).start;
    if (start > job->at) {
        job->miss = CAIRN_MISS_CORRUPT;
        return;
    }
    for (uint32_t i = 0; i < n_pages; i++) {
        const cairn_page_view view = cairn_pin_page(job->pin, i);
        bool cut = view.used_tokens < view.n_tokens;
        bool fits = page_fits(job->cache, &view, start);
        if (!fits)
            cairn_pin_reject(job->pin, i);
        if (!fits || (cut && i + 1 < n_pages) || view.used_tokens > end - start) {
            job->miss = CAIRN_MISS_CORRUPT;
            return;
        }
        start += view.used_tokens;
        job->n_pages = i + 1;
    }
}

/* Sets up the run that begins with `page`; returns the page after it. Runs grow
 * from small to full ones: nothing is imported while the first one is read. */
static uint32_t plan_run(restore *job, run *r, uint32_t page)
{
    const uint32_t limit = job->next_tokens;
    job->next_tokens = limit > job->cache->run_tokens / 2 ? job->cache->run_tokens : 2 * limit;
    r->restore = job;
    r->first_page = page;
    r->n_pages = r->n_cells = 0;
    r->start = cairn_pin_page(job->pin, page).start;
    for (; page < job->n_pages; page++) {
        const uint32_t used = cairn_pin_page(job->pin, page).used_tokens;
        if (r->n_pages > 0 && r->n_cells + used > limit)
            break;
        r->n_cells += used;
        r->n_pages++;
    }
    return page;
}

/* ---- the pipeline ---- */

/* One buffer in any case; more only if they need not be made first, which takes
 * longer than reading ahead gains. */
static uint32_t acquire_stages(restore *job)
{
    cairn__staging *staging = job->cache->staging;
    uint32_t        n = 0;
    while (n < MAX_RUNS && n < job->n_pages) {
        run *r = &job->runs[n];
        r->stage = n ? cairn__stage_acquire_ready(staging) : cairn__stage_acquire(staging);
        if (!r->stage)
            break;
        r->tasks = malloc(sizeof *r->tasks * job->cache->n_readers);
        if (!r->tasks)
            return 0; /* out of memory: released by the caller */
        n++;
    }
    return n;
}

static void release_stages(restore *job)
{
    for (uint32_t i = 0; i < MAX_RUNS; i++) {
        cairn__stage_release(job->runs[i].stage);
        free(job->runs[i].tasks);
    }
}

static void run_pipeline(restore *job)
{
    const uint32_t n_slots = acquire_stages(job);
    uint32_t       page = 0, started = 0, done = 0;
    job->next_tokens = job->cache->run_tokens / FIRST_PART;
    if (n_slots == 0)
        job->miss = CAIRN_MISS_IO;
    while (n_slots > 0 && (done < started || page < job->n_pages)) {
        for (; page < job->n_pages && started - done < n_slots && !job->miss; started++) {
            run *r = &job->runs[started % n_slots];
            page = plan_run(job, r, page);
            start_run(r);
        }
        if (done == started)
            break; /* ended early and nothing is in flight */
        run *r = &job->runs[done++ % n_slots];
        if (job->miss)
            atomic_store(&r->bad, 0); /* ended early: let its readers stop */
        finish_run(r);
        if (!job->miss && retry_shorter(job, r))
            import_run(job, r);
    }
    release_stages(job);
}

/* ---- the call ---- */

/* What the sequence must look like: nothing, or exactly [0, n). The size of its
 * blob shows a hole, which the two ends do not. */
static bool holds_exactly(const cairn_llama *cache, llama_seq_id seq, uint32_t n)
{
    llama_pos min = llama_memory_seq_pos_min(cache->memory, seq);
    llama_pos max = llama_memory_seq_pos_max(cache->memory, seq);
    if (n == 0)
        return min < 0 && max < 0;
    return min == 0 && max == (llama_pos)n - 1 &&
           llama_state_seq_get_size(cache->ctx, seq) == cairn__blob_size(cache->layout, n);
}

/* Cuts the sequence to n tokens. */
static void cut(restore *job, uint32_t n)
{
    if (n >= job->at)
        return;
    llama_memory_seq_rm(job->cache->memory, job->seq, (llama_pos)n, -1);
    job->at = n;
}

static void fetch(restore *job, uint32_t limit)
{
    cairn_hit               hit = {0};
    const cairn__namespace *space = cairn__namespace_of(job->cache, job->seq);
    const cairn_query       query = {
        .identity = space ? space->identity : NULL, /* refused: a miss */
        .tokens = job->tokens,
        .n_tokens = limit,
        .from_tokens = job->at,
        .grid_tokens = job->cache->grid_tokens,
    };
    if (job->at >= limit)
        return;
    if (cairn_store_lookup(job->cache->store, &query, &hit, &job->pin)) {
        job->miss = CAIRN_MISS_IO;
        return;
    }
    if (hit.cached_tokens > job->at && hit.n_pages > 0)
        accept_pages(job, hit.n_pages, hit.cached_tokens < limit ? hit.cached_tokens : limit);
    if (job->n_pages > 0) {
        /* A bad page ends the list of pages, not the restore of those before it. */
        cairn_miss listed = job->miss;
        job->miss = CAIRN_MISS_NONE;
        run_pipeline(job);
        if (!job->miss)
            job->miss = listed;
    }
    if (!job->miss)
        job->miss = hit.miss;
    cairn_pin_release(job->pin);
}

/* Grid, and the last look at the sequence. */
static void settle(restore *job, uint32_t limit)
{
    const uint32_t grid = job->cache->grid_tokens;
    if (grid)
        cut(job, job->at / grid * grid);
    if (!holds_exactly(job->cache, job->seq, job->at)) {
        /* Nothing here explains it, so nothing in it can be trusted. */
        llama_memory_seq_rm(job->cache->memory, job->seq, -1, -1);
        job->at = 0;
        job->miss = CAIRN_MISS_IO;
    }
    if (job->at == limit)
        job->miss = CAIRN_MISS_NONE;
}

static bool arguments_ok(const cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens,
                         uint32_t n_resident)
{
    return cache && seq >= 0 && (uint32_t)seq < cache->n_seq && seq != cache->scratch && n_resident <= n_tokens &&
           (tokens || n_tokens == 0);
}

cairn_status cairn_llama_restore(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens,
                                 uint32_t n_resident, cairn_llama_restored *ret_restored)
{
    if (!ret_restored || !arguments_ok(cache, seq, tokens, n_tokens, n_resident))
        return CAIRN_EINVAL;
    const uint64_t began_ns = cairn__monotonic_ns();
    if (!cache->layout) {
        *ret_restored = (cairn_llama_restored){.n_tokens = n_resident, .miss = CAIRN_MISS_UNSUPPORTED_MODEL};
        return CAIRN_OK;
    }
    if (!holds_exactly(cache, seq, n_resident))
        return CAIRN_EINVAL;
    restore        job = {.cache = cache, .seq = seq, .tokens = tokens, .at = n_resident};
    const uint32_t limit = n_tokens > 0 ? n_tokens - 1 : 0;
    cut(&job, limit);
    fetch(&job, limit);
    settle(&job, limit);
    cairn__track_restored(cache, seq, job.at);
    *ret_restored = (cairn_llama_restored){
        .n_tokens = job.at,
        .from_store = job.bytes > 0 && job.at > job.first ? job.at - job.first : 0,
        .bytes = job.bytes,
        .elapsed_ns = cairn__monotonic_ns() - began_ns,
        .miss = job.miss,
    };
    return CAIRN_OK;
}
