/* fetch.c - fetch.h has the idea. */
#include "llama/fetch.h"

#include <stdlib.h>
#include <string.h>

#define WRITER_MS 500u /* a batch and its syncs on a slow disk; a prefill takes longer */
/* Blocks begin on a page of their file. A kernel's copy to 1 to 31 bytes behind that,
 * where malloc puts large memory, runs at half the speed (Zen 4). */
#define PAGE 4096u

struct cairn__fetch_task {
    cairn__task       task; /* first: the pool hands it back */
    cairn__fetch_run *run;
};

static cairn__fetch *fetch_of(cairn__task *task, size_t offset)
{
    return (cairn__fetch *)(void *)((char *)task - offset);
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
static void accept_pages(cairn__fetch *fetch, uint32_t n_pages, uint32_t end)
{
    uint32_t start = cairn_pin_page(fetch->pin, 0).start;
    if (start > fetch->from) {
        fetch->miss = CAIRN_MISS_CORRUPT;
        return;
    }
    for (uint32_t i = 0; i < n_pages; i++) {
        const cairn_page_view view = cairn_pin_page(fetch->pin, i);
        bool cut = view.used_tokens < view.n_tokens;
        bool fits = page_fits(fetch->cache, &view, start);
        if (!fits)
            cairn_pin_reject(fetch->pin, i);
        if (!fits || (cut && i + 1 < n_pages) || view.used_tokens > end - start) {
            fetch->miss = CAIRN_MISS_CORRUPT;
            return;
        }
        start += view.used_tokens;
        fetch->n_pages = i + 1;
    }
}

/* ---- the clerk ---- */

static bool page_found(void *ctx)
{
    cairn__fetch *fetch = ctx;
    cairn__errand_moved(&fetch->errand, CAIRN__ERRAND_CALL_BYTES);
    return cairn__errand_wanted(&fetch->errand) && !atomic_load(&fetch->stopped);
}

/* Where a checkpoint can't be cut, all of what is found before it counts or nothing. */
static cairn_status read_checkpoint(cairn__fetch *fetch, uint32_t page, uint32_t at)
{
    const cairn__layout  *layout = fetch->cache->partial;
    const cairn_page_view view = cairn_pin_page(fetch->pin, page);
    if (view.layout != layout->id || view.n_blocks != 2 || view.start + view.used_tokens != at ||
        (!layout->opaque && view.block_size[1] > cairn__blob_size(layout, at))) {
        cairn_pin_reject(fetch->pin, page);
        return CAIRN_ECORRUPT;
    }
    fetch->checkpoint_size = view.block_size[1];
    fetch->checkpoint = malloc(fetch->checkpoint_size);
    if (!fetch->checkpoint)
        return CAIRN_ENOMEM;
    cairn__errand_moved(&fetch->errand, CAIRN__ERRAND_CALL_BYTES);
    cairn_status status = cairn_pin_read_block(fetch->pin, page, 1, fetch->checkpoint);
    cairn__errand_moved(&fetch->errand, fetch->checkpoint_size);
    return status;
}

static void accept_checkpoint(cairn__fetch *fetch, const cairn_hit *hit)
{
    cairn_status status = CAIRN_ECORRUPT;
    if (fetch->n_pages == hit->n_pages)
        status = read_checkpoint(fetch, hit->n_pages, hit->cached_tokens);
    if (!status) {
        fetch->checkpoint_at = hit->cached_tokens;
        return;
    }
    free(fetch->checkpoint);
    fetch->checkpoint = NULL;
    fetch->n_pages = 0;
    fetch->miss = status == CAIRN_ECORRUPT ? CAIRN_MISS_CORRUPT : CAIRN_MISS_IO;
}

/* All as if they were warm, if that takes memory that is not there. */
static void find_cold(cairn__fetch *fetch)
{
    for (uint32_t i = 0; i < fetch->n_pages; i++) {
        if (!cairn_pin_is_cold(fetch->pin, i))
            continue;
        if (!fetch->cold && !(fetch->cold = calloc(fetch->n_pages, sizeof *fetch->cold)))
            return;
        fetch->cold[i] = true;
    }
}

static void look_up(cairn__task *task)
{
    cairn__fetch     *fetch = fetch_of(task, offsetof(cairn__fetch, look_up));
    cairn_hit         hit = {0};
    const cairn_query query = {.identity = fetch->identity,
                               .tokens = fetch->tokens,
                               .n_tokens = fetch->limit,
                               .from_tokens = fetch->from,
                               .grid_tokens = fetch->cache->grid_tokens,
                               .needs_checkpoint = fetch->cache->partial != NULL,
                               .no_pages = fetch->cache->layout == NULL,
                               .page_found = page_found,
                               .page_found_ctx = fetch};
    /* A sequence that can't be cut is restored even for the prompt it has just
     * answered, whose checkpoints may be on their way to the disk. */
    if (fetch->cache->partial)
        (void)!cairn_store_flush(fetch->cache->store, WRITER_MS);
    if (cairn_store_lookup(fetch->cache->store, &query, &hit, &fetch->pin)) {
        fetch->miss = CAIRN_MISS_IO;
        return;
    }
    fetch->miss = hit.miss;
    fetch->evicted_s = hit.evicted_s;
    fetch->reached = hit.reached_tokens;
    if (hit.cached_tokens > fetch->from && hit.n_pages > 0)
        accept_pages(fetch, hit.n_pages, hit.cached_tokens < fetch->limit ? hit.cached_tokens : fetch->limit);
    if (hit.has_checkpoint)
        accept_checkpoint(fetch, &hit);
    find_cold(fetch);
}

static void bring_in(cairn__fetch *fetch, uint32_t page)
{
    const uint32_t n_blocks = cairn_pin_page(fetch->pin, page).n_blocks;
    for (uint32_t block = 0; block < n_blocks && cairn__errand_has_time(&fetch->errand); block++)
        cairn_pin_read_ahead(fetch->pin, page, block);
}

static void release_pin(cairn__task *task)
{
    cairn__fetch *fetch = fetch_of(task, offsetof(cairn__fetch, release));
    for (uint32_t i = 0; fetch->cold && i < fetch->n_pages; i++)
        if (fetch->cold[i])
            bring_in(fetch, i);
    cairn_pin_release(fetch->pin);
}

/* ---- reading (pool threads) ---- */

/* A reader's own memory. */
typedef struct reader {
    cairn__fetch_run *run;
    cairn_pin_window *window;
    uint8_t          *private; /* for a block that is not read where it is imported from */
    uint64_t          private_size;
} reader;

static cairn_status read_into(reader *reader, uint32_t page, uint32_t block, uint32_t end, void *dst)
{
    const cairn__fetch_run *r = reader->run;
    const uint32_t          at = r->first_page + page;
    return reader->window && r->fetch->cold[at]
               ? cairn_pin_read_through(r->fetch->pin, reader->window, at, block, end, dst)
               : cairn_pin_read_block(r->fetch->pin, at, block, dst);
}

static cairn_status read_indirect(reader *reader, uint32_t page, uint32_t block, uint32_t end,
                                  const cairn_page_view *view)
{
    cairn__fetch_run    *r = reader->run;
    const cairn__layout *layout = r->fetch->cache->layout;
    cairn_status         status = read_into(reader, page, block, end, reader->private);
    if (status)
        return status;
    if (layout->blocks[block].segment < 0 &&
        !cairn__block_ext_check(reader->private, view->used_tokens, view->start, r->fetch->tokens + view->start)) {
        cairn_pin_reject(r->fetch->pin, r->first_page + page);
        return CAIRN_ECORRUPT;
    }
    cairn__block_span span = {r->n_cells, view->start - r->start, view->used_tokens, view->n_tokens, NULL};
    cairn__block_scatter(layout, block, cairn__stage_data(r->stage), &span, reader->private);
    return CAIRN_OK;
}

static cairn_status read_one(reader *reader, uint32_t page, uint32_t block, uint32_t end)
{
    cairn__fetch_run     *r = reader->run;
    const cairn__layout  *layout = r->fetch->cache->layout;
    const cairn_page_view view = cairn_pin_page(r->fetch->pin, r->first_page + page);
    if (cairn__block_is_contiguous(layout, block) && view.used_tokens == view.n_tokens) {
        uint64_t at = cairn__block_offset(layout, block, r->n_cells, view.start - r->start);
        return read_into(reader, page, block, end, cairn__stage_data(r->stage) + at);
    }
    const uint64_t size = cairn__block_size(layout, block, view.n_tokens);
    if (reader->private_size < size) {
        free(reader->private);
        reader->private = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
        reader->private_size = reader->private ? size : 0;
        if (!reader->private)
            return CAIRN_ENOMEM;
    }
    return read_indirect(reader, page, block, end, &view);
}

static void fail(cairn__fetch_run *r, uint32_t page, cairn_status status)
{
    unsigned bad = atomic_load(&r->bad);
    while (page < bad && !atomic_compare_exchange_weak(&r->bad, &bad, page))
        continue;
    if (page < bad)
        atomic_store(&r->error, status);
}

static void read_group(reader *reader, uint32_t page, uint32_t first)
{
    cairn__fetch_run *r = reader->run;
    const uint32_t    n_blocks = r->fetch->cache->layout->n_blocks;
    const uint32_t    end = first + r->group < n_blocks ? first + r->group : n_blocks;
    for (uint32_t block = first; block < end && page < atomic_load(&r->bad); block++) {
        cairn_status status = read_one(reader, page, block, end);
        if (status)
            fail(r, page, status);
        else
            cairn__errand_moved(&r->fetch->errand,
                                cairn_pin_page(r->fetch->pin, r->first_page + page).block_size[block]);
    }
}

static uint32_t groups_of(const cairn__fetch_run *r)
{
    const uint32_t n_blocks = r->fetch->cache->layout->n_blocks;
    return (n_blocks + r->group - 1) / r->group;
}

/* A window's memory lives as long as the fetch; a reader has one while it reads. */
static cairn_pin_window *take_window(cairn__fetch *fetch)
{
    cairn_pin_window *window = NULL;
    for (uint32_t i = 0; i < CAIRN__MAX_READERS && !window; i++)
        window = atomic_exchange(&fetch->windows[i], NULL);
    return window ? window : cairn_pin_window_create();
}

static void give_window(cairn__fetch *fetch, cairn_pin_window *window)
{
    for (uint32_t i = 0; i < CAIRN__MAX_READERS && window; i++)
        window = atomic_exchange(&fetch->windows[i], window);
    cairn_pin_window_destroy(window);
}

static void read_blocks(cairn__task *task)
{
    cairn__fetch_run *r = ((cairn__fetch_task *)task)->run;
    const uint32_t    n_groups = groups_of(r);
    reader            reader = {.run = r, .window = r->fetch->cold ? take_window(r->fetch) : NULL};
    for (;;) {
        uint32_t i = atomic_fetch_add(&r->next, 1);
        if (i / n_groups >= atomic_load(&r->bad))
            break; /* the end, or behind a page that failed */
        read_group(&reader, i / n_groups, i % n_groups * r->group);
    }
    give_window(r->fetch, reader.window);
    free(reader.private);
}

/* ---- the owner's side ---- */

/* Runs that are read ahead share them: more at work than cores would take turns. */
static cairn__pool *readers_of(const cairn__fetch *fetch)
{
    return fetch->cold ? fetch->cache->cold_pool : fetch->cache->pool;
}

static uint32_t window_blocks(const cairn_llama *cache)
{
    const uint32_t n_blocks = cache->layout->n_blocks;
    const uint64_t n = (uint64_t)CAIRN__WINDOW_BYTES * n_blocks / (cache->layout->row_size * cache->page_tokens);
    return n == 0 ? 1 : n < n_blocks ? (uint32_t)n : n_blocks;
}

void cairn__fetch_start(cairn__fetch_run *r)
{
    const cairn_llama *cache = r->fetch->cache;
    cairn__blob_frame(cache->layout, cairn__stage_data(r->stage), r->start, r->n_cells, cache->scratch);
    atomic_store(&r->next, 0);
    atomic_store(&r->bad, r->n_pages);
    r->group = r->fetch->cold ? window_blocks(cache) : 1;
    const uint32_t n_readers = r->fetch->cold ? cache->n_cold_readers : cache->n_readers;
    const uint64_t items = (uint64_t)r->n_pages * groups_of(r);
    r->n_tasks = items < n_readers ? (uint32_t)items : n_readers;
    cairn__errand_mark(&r->fetch->errand);
    for (uint32_t i = 0; i < r->n_tasks; i++) {
        r->tasks[i] = (cairn__fetch_task){.task = {.run = read_blocks}, .run = r};
        cairn__pool_submit(readers_of(r->fetch), &r->tasks[i].task);
    }
}

bool cairn__fetch_finish(cairn__fetch_run *r)
{
    cairn_llama *cache = r->fetch->cache;
    for (uint32_t i = 0; i < r->n_tasks; i++)
        if (!cairn__errand_wait(cache, readers_of(r->fetch), &r->tasks[i].task))
            return false;
    r->n_tasks = 0;
    return true;
}

void cairn__fetch_stop(cairn__fetch *fetch)
{
    atomic_store(&fetch->stopped, true);
    for (uint32_t i = 0; i < CAIRN__FETCH_RUNS; i++)
        atomic_store(&fetch->runs[i].bad, 0);
}

/* One buffer in any case; more only if they need not be made first, which takes
 * longer than reading ahead gains. */
uint32_t cairn__fetch_acquire(cairn__fetch *fetch)
{
    cairn__staging *staging = fetch->cache->staging;
    uint32_t        n = 0;
    while (n < CAIRN__FETCH_RUNS && n < fetch->n_pages) {
        cairn__fetch_run *r = &fetch->runs[n];
        r->fetch = fetch;
        r->stage = n ? cairn__stage_acquire_ready(staging) : cairn__stage_acquire(staging);
        if (!r->stage)
            break;
        r->tasks = malloc(sizeof *r->tasks * CAIRN__MAX_READERS);
        if (!r->tasks)
            return 0; /* out of memory: released by the caller */
        n++;
    }
    return n;
}

void cairn__fetch_release(cairn__fetch *fetch)
{
    for (uint32_t i = 0; i < CAIRN__FETCH_RUNS; i++) {
        cairn__fetch_run *r = &fetch->runs[i];
        cairn__stage_release(r->stage);
        free(r->tasks);
        r->stage = NULL;
        r->tasks = NULL;
        r->n_tasks = 0;
    }
}

bool cairn__fetch_look_up(cairn__fetch *fetch)
{
    cairn_llama *cache = fetch->cache;
    cairn__pool_submit(cache->clerk, &fetch->look_up);
    return cairn__errand_wait(cache, cache->clerk, &fetch->look_up);
}

/* ---- as an errand ---- */

static bool settle(cairn__errand *errand, uint64_t until_ns)
{
    cairn__fetch *fetch = (cairn__fetch *)errand;
    cairn_llama  *cache = fetch->cache;
    if (!cairn__pool_wait_until(cache->clerk, &fetch->look_up, until_ns))
        return false;
    for (uint32_t i = 0; i < CAIRN__FETCH_RUNS; i++)
        for (uint32_t j = 0; j < fetch->runs[i].n_tasks; j++)
            if (!cairn__pool_wait_until(readers_of(fetch), &fetch->runs[i].tasks[j].task, until_ns))
                return false;
    cairn__fetch_release(fetch);
    if (!fetch->pin)
        return true;
    if (!fetch->releasing)
        cairn__pool_submit(cache->clerk, &fetch->release);
    fetch->releasing = true;
    return cairn__pool_wait_until(cache->clerk, &fetch->release, until_ns);
}

void cairn__fetch_destroy(cairn__errand *errand)
{
    cairn__fetch *fetch = (cairn__fetch *)errand;
    cairn_identity_destroy(fetch->identity);
    free(fetch->checkpoint);
    free(fetch->cold);
    for (uint32_t i = 0; i < CAIRN__MAX_READERS; i++)
        cairn_pin_window_destroy(fetch->windows[i]);
    free(fetch);
}

static void stop(cairn__errand *errand)
{
    cairn__fetch_stop((cairn__fetch *)errand);
}

cairn__fetch *cairn__fetch_create(cairn_llama *cache, const cairn_identity *identity, const llama_token *tokens,
                                  uint32_t from, uint32_t limit)
{
    cairn__fetch *fetch = calloc(1, sizeof *fetch + limit * sizeof *tokens);
    if (!fetch || cairn_identity_copy(identity, &fetch->identity)) {
        free(fetch);
        return NULL;
    }
    fetch->errand.settle = settle;
    fetch->errand.destroy = cairn__fetch_destroy;
    fetch->errand.stop = stop;
    fetch->look_up.run = look_up;
    fetch->release.run = release_pin;
    fetch->cache = cache;
    fetch->from = from;
    fetch->limit = limit;
    memcpy(fetch->tokens, tokens, limit * sizeof *tokens);
    return fetch;
}
