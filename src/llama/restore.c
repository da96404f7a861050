/* restore.c - the longest stored prefix, from the store into a sequence.
 *
 *   look up -> [run 0 | run 1 | ...]    a run: neighbouring pages, run_tokens at most
 *   fetch.c        reads and verifies runs i+1, i+2
 *   this thread    imports run i
 *
 * A run lies in one staging buffer as the blob that the runtime takes: its frame
 * is written first, then the readers put each block where the blob wants it.
 *
 * R1 Bytes reach the runtime only from a buffer in which their checksums held.
 * R2 Runs are imported in order of position, each whole or not at all.
 * R3 The sequence is touched for the first time when the first run is verified:
 *    a resident part that ends inside its first page is cut to that page's
 *    start then.
 * R4 At most as many runs are in flight as there are buffers.
 * R5 This thread never asks the disk. When the disk hangs, what was imported so
 *    far is the result, and the rest is left to itself (errand.h).
 *
 * A page that fails ends the restore: the pages of its run before it are read
 * once more and imported as a shorter run.
 *
 * A model that needs checkpoints gets all or nothing: pages without the state at
 * their end decode without an error and are wrong. So
 * R6 such a sequence ends at a checkpoint that was set, or it is empty. What was
 *    resident in it is given up only for more than that, and a file that fails is
 *    out of the way when the store is asked once more. */
#include "llama/fetch.h"

#include "os/clock.h"

#include <stdlib.h>

#define MAX_LOOKUPS 3 /* each but the last found a file that was corrupt, and is in quarantine */
#define FIRST_PART 8u /* the first run is this part of a full one, see plan_run() */

typedef struct restore {
    cairn_llama  *cache;
    cairn__fetch *fetch;
    llama_seq_id  seq;
    uint32_t      next_tokens; /* size of the next run */
    uint32_t      at;          /* the sequence holds [0, at) */
    uint32_t      first;       /* [first, at) came from the store, when bytes > 0 */
    cairn_miss    miss;        /* why it ends here; NONE: it doesn't yet */
    uint64_t      evicted_s;   /* how long ago, with CAIRN_MISS_EVICTED */
    uint64_t      bytes;
    uint32_t      shared;
    bool (*go_on)(void *ctx); /* asked before each run; NULL: always */
    void *ctx;
} restore;

/* ---- importing ---- */

static cairn_miss miss_of(cairn_status status)
{
    return status == CAIRN_ECORRUPT ? CAIRN_MISS_CORRUPT : status == CAIRN_ENOSPC ? CAIRN_MISS_NO_ROOM : CAIRN_MISS_IO;
}

/* Waits for the run. False, and the restore ends: the disk hangs. */
static bool finish(restore *job, cairn__fetch_run *r)
{
    if (cairn__fetch_finish(r))
        return true;
    job->miss = CAIRN_MISS_TIMEOUT;
    cairn__fetch_stop(job->fetch);
    return false;
}

/* Shortens the run to the pages before the one that failed and reads them again
 * until all are good. False: none is left, or the disk hangs. */
static bool retry_shorter(restore *job, cairn__fetch_run *r)
{
    while (atomic_load(&r->bad) < r->n_pages) {
        job->miss = miss_of((cairn_status)atomic_load(&r->error));
        r->n_pages = atomic_load(&r->bad);
        if (r->n_pages == 0 || job->cache->partial)
            return false;
        cairn_page_view last = cairn_pin_page(job->fetch->pin, r->first_page + r->n_pages - 1);
        r->n_cells = last.start + last.used_tokens - r->start;
        cairn__fetch_start(r);
        if (!finish(job, r))
            return false;
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

static void import_run(restore *job, cairn__fetch_run *r)
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

/* Sets up the run that begins with `page`; returns the page after it. Runs grow
 * from small to full ones: nothing is imported while the first one is read. */
static uint32_t plan_run(restore *job, cairn__fetch_run *r, uint32_t page)
{
    const uint32_t limit = job->next_tokens;
    job->next_tokens = limit > job->cache->run_tokens / 2 ? job->cache->run_tokens : 2 * limit;
    r->first_page = page;
    r->n_pages = r->n_cells = 0;
    r->start = cairn_pin_page(job->fetch->pin, page).start;
    for (; page < job->fetch->n_pages; page++) {
        const uint32_t used = cairn_pin_page(job->fetch->pin, page).used_tokens;
        if (r->n_pages > 0 && r->n_cells + used > limit)
            break;
        r->n_cells += used;
        r->n_pages++;
    }
    return page;
}

/* ---- the pipeline ---- */

/* Also where it was asked while it waited, and stopped. */
static bool may_go_on(restore *job)
{
    if (!job->miss && job->go_on && (atomic_load(&job->fetch->stopped) || !job->go_on(job->ctx)))
        job->miss = CAIRN_MISS_STOPPED;
    return !job->miss;
}

static void run_pipeline(restore *job)
{
    cairn__fetch  *fetch = job->fetch;
    const uint32_t n_slots = cairn__fetch_acquire(fetch);
    uint32_t       page = 0, started = 0, done = 0;
    job->next_tokens = job->cache->run_tokens / FIRST_PART;
    if (n_slots == 0)
        job->miss = CAIRN_MISS_IO;
    while (n_slots > 0 && (done < started || page < fetch->n_pages)) {
        for (; page < fetch->n_pages && started - done < n_slots && may_go_on(job); started++) {
            cairn__fetch_run *r = &fetch->runs[started % n_slots];
            page = plan_run(job, r, page);
            cairn__fetch_start(r);
        }
        if (done == started)
            break; /* ended early and nothing is in flight */
        cairn__fetch_run *r = &fetch->runs[done++ % n_slots];
        if (job->miss)
            atomic_store(&r->bad, 0); /* ended early: let its readers stop */
        if (finish(job, r) && may_go_on(job) && retry_shorter(job, r))
            import_run(job, r);
        if (job->miss == CAIRN_MISS_TIMEOUT)
            return;
    }
    cairn__fetch_release(fetch);
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
    if (max != (llama_pos)n - 1 || (!cache->partial && min != 0))
        return false;
    uint64_t size = cache->layout ? cairn__blob_size(cache->layout, n) : 8;
    if (cache->partial) /* in place of the empty part behind the pages, what the sequence has there */
        size += cairn__partial_size(cache, seq) - 8 - (cache->layout ? cache->layout->suffix_size : 0);
    return llama_state_seq_get_size(cache->ctx, seq) == size;
}

static void empty(restore *job)
{
    llama_memory_seq_rm(job->cache->memory, job->seq, -1, -1);
    job->at = 0;
    job->bytes = 0;
}

/* Cuts the sequence to n tokens, or to none where it can't be cut. */
static void cut(restore *job, uint32_t n)
{
    if (n >= job->at)
        return;
    if (job->cache->partial) {
        empty(job);
        return;
    }
    llama_memory_seq_rm(job->cache->memory, job->seq, (llama_pos)n, -1);
    job->at = n;
}

static void restore_pages(restore *job)
{
    const cairn_miss listed = job->fetch->miss;
    if (job->fetch->n_pages > 0)
        run_pipeline(job);
    if (!job->miss)
        job->miss = listed;
}

/* The pages, if the model has any, and the state at their end: R6. */
static void restore_to_checkpoint(restore *job)
{
    const cairn__fetch *fetch = job->fetch;
    const cairn_miss    listed = fetch->miss;
    const uint32_t      resident = job->at, end = fetch->checkpoint_at;
    job->shared = fetch->reached;
    if (end <= resident) {
        job->miss = listed;
        return;
    }
    if (job->cache->layout) {
        run_pipeline(job);
    } else {
        empty(job);
        job->at = end;
    }
    if (!job->miss && job->at != end)
        job->miss = CAIRN_MISS_IO;
    if (!job->miss) {
        cairn_status status =
            cairn__set_partial(job->cache, job->seq, end, fetch->checkpoint, fetch->checkpoint_size);
        job->miss = status ? miss_of(status) : CAIRN_MISS_NONE;
    }
    if (!job->miss) {
        job->bytes += fetch->checkpoint_size;
        job->miss = listed;
    } else if (job->at != resident || job->bytes > 0) { /* else nothing was touched */
        empty(job);
    }
}

static void ask_store(restore *job, const llama_token *tokens, uint32_t limit)
{
    cairn_llama            *cache = job->cache;
    const cairn__namespace *space = cairn__namespace_of(cache, job->seq);
    const uint32_t          from = cache->partial ? 0 : job->at;
    job->miss = CAIRN_MISS_NONE;
    job->fetch = space ? cairn__fetch_create(cache, space->identity, tokens, from, limit) : NULL;
    if (!job->fetch) {
        job->miss = CAIRN_MISS_IO;
        return;
    }
    job->fetch->errand.go_on = job->go_on;
    job->fetch->errand.go_on_ctx = job->ctx;
    if (!cairn__errand_begin(cache, &job->fetch->errand)) {
        cairn__fetch_destroy(&job->fetch->errand);
        job->miss = CAIRN_MISS_TIMEOUT;
        return;
    }
    if (!cairn__fetch_look_up(job->fetch)) {
        job->miss = CAIRN_MISS_TIMEOUT;
    } else {
        job->evicted_s = job->fetch->evicted_s;
        (cache->partial ? restore_to_checkpoint : restore_pages)(job);
    }
    cairn__errand_end(cache);
}

/* Brings what is stored behind job->at. */
static void restore_rest(restore *job, const llama_token *tokens, uint32_t limit)
{
    for (int i = 0; i < MAX_LOOKUPS && job->at < limit; i++) {
        ask_store(job, tokens, limit);
        if (!job->cache->partial || job->miss != CAIRN_MISS_CORRUPT)
            break;
    }
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
    const bool all_of_the_grid = grid && job->at >= limit / grid * grid;
    if (job->at == limit || (all_of_the_grid && job->miss == CAIRN_MISS_NEVER_SEEN))
        job->miss = CAIRN_MISS_NONE; /* no more was ever to come from the store */
}

static bool arguments_ok(const cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens,
                         uint32_t n_resident)
{
    return cache && seq >= 0 && (uint32_t)seq < cache->n_seq && seq != cache->scratch && n_resident <= n_tokens &&
           (tokens || n_tokens == 0);
}

cairn_status cairn_llama_restore_ahead(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens,
                                       uint32_t n_tokens, uint32_t n_resident, bool (*go_on)(void *ctx), void *ctx,
                                       cairn_llama_restored *ret_restored)
{
    if (!ret_restored || !arguments_ok(cache, seq, tokens, n_tokens, n_resident))
        return CAIRN_EINVAL;
    const uint64_t began_ns = cairn__monotonic_ns();
    if (!cairn__is_supported(cache)) {
        *ret_restored = (cairn_llama_restored){.n_tokens = n_resident, .miss = CAIRN_MISS_UNSUPPORTED_MODEL};
        return CAIRN_OK;
    }
    if (!holds_exactly(cache, seq, n_resident))
        return CAIRN_EINVAL;
    restore        job = {.cache = cache, .seq = seq, .at = n_resident, .go_on = go_on, .ctx = ctx};
    const uint32_t limit = n_tokens > 0 ? n_tokens - 1 : 0;
    cut(&job, limit);
    restore_rest(&job, tokens, limit);
    settle(&job, limit);
    cairn__track_restored(cache, seq, job.at);
    *ret_restored = (cairn_llama_restored){
        .n_tokens = job.at,
        .from_store = job.bytes > 0 && job.at > job.first ? job.at - job.first : 0,
        .bytes = job.bytes,
        .elapsed_ns = cairn__monotonic_ns() - began_ns,
        .miss = job.miss,
        .evicted_s = job.miss == CAIRN_MISS_EVICTED ? job.evicted_s : 0,
        .shared = job.shared > job.at ? job.shared : job.at,
    };
    return CAIRN_OK;
}

cairn_status cairn_llama_restore(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens,
                                 uint32_t n_resident, cairn_llama_restored *ret_restored)
{
    return cairn_llama_restore_ahead(cache, seq, tokens, n_tokens, n_resident, NULL, NULL, ret_restored);
}
