/* record.c - complete pages of a sequence, to the store, while it is prefilled.
 *
 *   not stored -> exported into a staging buffer -> handed to the writer -> stored
 *
 * Export is pulled: a page leaves its cells only when a buffer is free and the
 * writer has room for it, else it is offered again at the next call. So nothing
 * queues here, and memory is what staging holds: the writer may keep two
 * buffers at a time, the third is left for restores.
 *
 * W1 Pages are handed over in order of position, parents first.
 * W2 What was handed over or found stored is not looked at again while the
 *    sequence keeps the same tokens (the track compares them). A restore that
 *    ends before it says that it is lost: evicted, damaged or removed since.
 * W3 A page is exactly its positions: every export is checked before it is put.
 * W4 Nothing here waits for the disk: what is stored is asked by an errand, and a
 *    writer that gave nothing back in a whole wait is not waited for again before
 *    it did.
 *
 * Blocks are put where they lie in the exported run if its rows are together and
 * in order. Otherwise - transposed V, extensions, cells in another order than
 * positions - pages are exported one by one to the end of the buffer and their
 * blocks gathered in front. */
#include "llama/adapter.h"

#include "os/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_PUTS = 2,            /* buffers the writer may hold */
    MIN_STRETCH_TOKENS = 16, /* shorter stretches are decoding, which says nothing about prefill */
    END_WAIT_MS = 2000,      /* record_end, as llama.h promises */
    POLL_MS = 5
};

typedef struct record {
    cairn_llama            *cache;
    cairn__track           *track;
    const cairn__namespace *space;
    llama_seq_id            seq;
    const llama_token      *tokens;
    uint32_t                n_full, n_pages; /* full pages; with the short last one */
    uint32_t                n_tokens;        /* end of the last page */
    cairn_key               tail_key;        /* of the short last page, if n_pages > n_full */
    uint32_t                asked_from;
    bool                   *stored; /* of the pages from there on */
} record;

/* ---- the track of a sequence ---- */

static bool grow(cairn__track *track, uint32_t n_pages, uint32_t page_tokens)
{
    if (n_pages <= track->capacity)
        return true;
    uint32_t   capacity = n_pages + n_pages / 2 + 8;
    int32_t   *tokens = realloc(track->tokens, sizeof *tokens * page_tokens * capacity);
    cairn_key *keys = NULL;
    if (tokens) {
        track->tokens = tokens;
        keys = realloc(track->keys, sizeof *keys * capacity);
    }
    if (!keys)
        return false;
    track->keys = keys;
    track->capacity = capacity;
    return true;
}

bool cairn__track_follow(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_pages)
{
    const cairn__namespace *space = cairn__namespace_of(cache, seq);
    cairn__track           *track = &cache->tracks[seq];
    const uint32_t          size = cache->page_tokens;
    uint32_t       same = 0, known = track->n_keys < n_pages ? track->n_keys : n_pages;
    while (same < known &&
           !memcmp(track->tokens + (size_t)same * size, tokens + (size_t)same * size, size * sizeof *tokens))
        same++;
    if (!space || same == n_pages)
        return space != NULL;
    track->n_keys = same;
    if (track->n_stored > same)
        track->n_stored = same;
    if (!grow(track, n_pages, size))
        return false;
    for (uint32_t i = same; i < n_pages; i++) {
        const llama_token *page = tokens + (size_t)i * size;
        memcpy(track->tokens + (size_t)i * size, page, size * sizeof *page);
        track->keys[i] = cairn_chain_key(&space->seed, i ? &track->keys[i - 1] : NULL, page, size);
    }
    track->n_keys = n_pages;
    return true;
}

void cairn__track_restored(cairn_llama *cache, llama_seq_id seq, uint32_t n_tokens)
{
    cairn__track  *track = &cache->tracks[seq];
    const uint32_t found = n_tokens / cache->page_tokens;
    if (track->n_stored > found)
        track->n_stored = found;
    track->mark_tokens = track->checkpoint_tokens = n_tokens;
    track->mark_ns = cairn__monotonic_ns();
}

static void measure(cairn__track *track, uint32_t n_tokens)
{
    if (track->mark_ns && n_tokens >= track->mark_tokens + MIN_STRETCH_TOKENS)
        track->ns_per_token = (cairn__monotonic_ns() - track->mark_ns) / (n_tokens - track->mark_tokens);
}

void cairn__track_done(cairn__track *track)
{
    cairn__namespace_done(&track->space);
    free(track->tokens);
    free(track->keys);
}

/* ---- pages ---- */

static cairn_page describe(const record *job, uint32_t index)
{
    const cairn_llama *cache = job->cache;
    const uint32_t     start = index * cache->page_tokens;
    const uint32_t     n = index < job->n_full ? cache->page_tokens : job->n_tokens - start;
    cairn_page         page = {
                .key = index < job->n_full ? job->track->keys[index] : job->tail_key,
                .start = start,
                .n_tokens = n,
                .tokens = job->tokens + start,
                .n_blocks = cache->layout->n_blocks,
                .layout = cache->layout->id,
                .prefill_ns = job->track->ns_per_token * n,
    };
    if (index > 0)
        page.parent = job->track->keys[index - 1];
    return page;
}

/* Finds out which pages from `first` on are stored. False: not known. */
static bool ask_stored(record *job, uint32_t first)
{
    const uint32_t n = job->n_pages - first;
    if (n == 0)
        return true;
    cairn_page *pages = malloc(n * sizeof *pages);
    job->asked_from = first;
    job->stored = malloc(n * sizeof *job->stored);
    bool known = pages && job->stored;
    for (uint32_t i = 0; known && i < n; i++)
        pages[i] = describe(job, first + i);
    known = known && cairn__ask_stored(job->cache, job->space->identity, pages, n, job->stored);
    free(pages);
    return known;
}

static bool is_stored(const record *job, uint32_t index)
{
    return job->stored[index - job->asked_from];
}

/* Pages from `first`, which is not stored, that are not stored; at most `max`. */
static uint32_t missing(const record *job, uint32_t first, uint32_t max)
{
    uint32_t n = 1;
    while (n < max && first + n < job->n_pages && !is_stored(job, first + n))
        n++;
    return n;
}

/* Pages whose payload the writer takes now. */
static uint32_t room(const record *job)
{
    const cairn_llama *cache = job->cache;
    if (cairn__staging_in_use(cache->staging) >= MAX_PUTS)
        return 0;
    uint64_t pages = cairn_store_put_room(cache->store) / (cache->layout->row_size * cache->page_tokens);
    uint32_t run = cache->run_tokens / cache->page_tokens;
    return pages < run ? (uint32_t)pages : run;
}

/* ---- export ---- */

static cairn_block *blocks_of(const cairn_llama *cache, uint32_t i)
{
    return cache->blocks + (size_t)i * cache->layout->n_blocks;
}

static bool has_only_rows(const cairn__layout *layout)
{
    for (uint32_t i = 0; i < layout->n_blocks; i++)
        if (!cairn__block_is_contiguous(layout, i))
            return false;
    return true;
}

static bool in_order(const uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (order[i] != i)
            return false;
    return true;
}

/* All pages in one export, their blocks where they lie. False: not possible or
 * not in order. */
static bool export_joined(const record *job, const cairn_page *pages, uint32_t n_pages, uint8_t *buf)
{
    cairn_llama         *cache = job->cache;
    const cairn__layout *layout = cache->layout;
    const uint32_t       start = pages[0].start;
    const uint32_t       n = pages[n_pages - 1].start + pages[n_pages - 1].n_tokens - start;
    if (!has_only_rows(layout) || !cairn__export(cache, job->seq, start, n, buf, cache->order) ||
        !in_order(cache->order, n))
        return false;
    for (uint32_t i = 0; i < n_pages; i++)
        for (uint32_t block = 0; block < layout->n_blocks; block++)
            blocks_of(cache, i)[block] =
                (cairn_block){buf + cairn__block_offset(layout, block, n, pages[i].start - start),
                              cairn__block_size(layout, block, pages[i].n_tokens)};
    return true;
}

/* Page by page: exported at the end of the buffer, blocks gathered from *at on. */
static bool export_gathered(const record *job, const cairn_page *page, uint32_t i, uint8_t *buf, uint64_t *at)
{
    cairn_llama         *cache = job->cache;
    const cairn__layout *layout = cache->layout;
    const uint32_t       n = page->n_tokens;
    uint8_t             *blob = buf + cache->stage_size - cairn__export_size(cache, cache->page_tokens);
    if (!cairn__export(cache, job->seq, page->start, n, blob, cache->order))
        return false;
    const cairn__block_span span = {n, 0, n, n, cache->order};
    for (uint32_t block = 0; block < layout->n_blocks; block++) {
        uint8_t *data = buf + *at;
        cairn__block_gather(layout, block, blob, &span, data);
        if (layout->blocks[block].segment < 0 && !cairn__block_ext_check(data, n, page->start, page->tokens))
            return false;
        blocks_of(cache, i)[block] = (cairn_block){data, cairn__block_size(layout, block, n)};
        *at += cairn__block_size(layout, block, n);
    }
    return true;
}

/* Pages [first, first + n) into the stage and cache->pages; returns how many
 * leading ones were exported. */
static uint32_t export_pages(const record *job, uint32_t first, uint32_t n, uint8_t *buf)
{
    cairn_llama *cache = job->cache;
    for (uint32_t i = 0; i < n; i++) {
        cache->pages[i] = describe(job, first + i);
        cache->pages[i].blocks = blocks_of(cache, i);
    }
    if (export_joined(job, cache->pages, n, buf))
        return n;
    uint64_t at = 0;
    uint32_t done = 0;
    while (done < n && export_gathered(job, &cache->pages[done], done, buf, &at))
        done++;
    return done;
}

typedef enum outcome { DONE, NO_ROOM, REFUSED } outcome;

/* Exports and puts up to `n` missing pages from `first`; *ret_n of them left. */
static outcome send(const record *job, uint32_t first, uint32_t n, uint32_t *ret_n)
{
    cairn_llama  *cache = job->cache;
    cairn__stage *stage = cairn__stage_acquire(cache->staging);
    if (!stage)
        return NO_ROOM;
    uint32_t exported = export_pages(job, first, n, cairn__stage_data(stage));
    if (exported == 0) {
        cairn__stage_release(stage);
        return REFUSED; /* cells that are not [start, start + n) of text */
    }
    const cairn_put put = {job->space->identity, cache->pages, exported, cairn__stage_release, stage};
    if (cairn_store_put(cache->store, &put)) {
        cairn__stage_release(stage);
        return NO_ROOM;
    }
    *ret_n = exported;
    return DONE;
}

/* Offers pages from *at on until all are stored or queued. */
static outcome offer(const record *job, uint32_t *at)
{
    while (*at < job->n_pages) {
        if (is_stored(job, *at)) {
            ++*at;
            continue;
        }
        uint32_t max = room(job), sent;
        if (max == 0)
            return NO_ROOM;
        outcome o = send(job, *at, missing(job, *at, max), &sent);
        if (o != DONE)
            return o;
        *at += sent;
    }
    return DONE;
}

/* ---- the calls ---- */

/* False when no amount of waiting makes room. */
static bool is_writing(const cairn_llama *cache)
{
    return cairn_store_flush(cache->store, 0) == CAIRN_ETIMEDOUT || cairn__staging_in_use(cache->staging) > 0;
}

/* Where to go on: the short last page is never known to be stored. */
static uint32_t first_open(const record *job)
{
    return job->track->n_stored < job->n_full ? job->track->n_stored : job->n_full;
}

static void remember(record *job, uint32_t at)
{
    uint32_t full = at < job->n_full ? at : job->n_full;
    if (full > job->track->n_stored)
        job->track->n_stored = full;
}

static bool begin(record *job, cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens)
{
    if (!cache || !cache->layout || !tokens || seq < 0 || (uint32_t)seq >= cache->n_seq || seq == cache->scratch)
        return false;
    uint32_t step = cache->grid_tokens > cache->page_tokens ? cache->grid_tokens : cache->page_tokens;
    *job = (record){.cache = cache, .track = &cache->tracks[seq], .seq = seq, .tokens = tokens};
    job->space = cairn__namespace_of(cache, seq);
    if (!job->space)
        return false;
    job->n_tokens = n_tokens / step * step;
    job->n_full = job->n_pages = job->n_tokens / cache->page_tokens;
    measure(job->track, n_tokens);
    return cairn__track_follow(cache, seq, tokens, job->n_full);
}

static void finish(record *job, uint32_t n_tokens)
{
    free(job->stored);
    job->track->mark_tokens = n_tokens;
    job->track->mark_ns = cairn__monotonic_ns();
}

void cairn_llama_record(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens)
{
    record job;
    if (!begin(&job, cache, seq, tokens, n_tokens))
        return;
    uint32_t at = first_open(&job);
    if (ask_stored(&job, at))
        (void)offer(&job, &at);
    remember(&job, at);
    finish(&job, n_tokens);
}

/* Adds the tokens that fill no page as a short last one. */
static void add_tail(record *job, uint32_t n_tokens)
{
    const cairn_llama *cache = job->cache;
    if (cache->grid_tokens || n_tokens == job->n_tokens)
        return;
    const uint32_t start = job->n_tokens;
    job->tail_key = cairn_chain_key(&job->space->seed, job->n_full ? &job->track->keys[job->n_full - 1] : NULL,
                                    job->tokens + start, n_tokens - start);
    job->n_tokens = n_tokens;
    job->n_pages++;
}

/* What was stored once may be gone: given up after a write error, evicted,
 * removed. One stat a page (7 us) finds where, and a prefix in use comes back to
 * the disk from there. */
static void forget_lost(const record *job)
{
    const uint32_t known = first_open(job);
    uint32_t       at = 0;
    while (at < known && is_stored(job, at))
        at++;
    if (at < known)
        job->track->n_stored = at;
}

static void wait_for_room(cairn_llama *cache)
{
    if (cairn__staging_in_use(cache->staging) >= MAX_PUTS)
        cairn__staging_wait(cache->staging, POLL_MS);
    else
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
}

/* Offers until all is handed over, waiting for a writer that is not known to hang. */
static void offer_patiently(const record *job, uint32_t *at)
{
    cairn_llama   *cache = job->cache;
    const uint64_t until = cairn__monotonic_ns() + END_WAIT_MS * UINT64_C(1000000);
    const uint32_t first = *at;
    const bool     waits = !cache->n_silent || cairn__staging_in_use(cache->staging) < cache->n_silent;
    bool           writing = true; /* it may end, and make room, right behind an offer: then once more */
    outcome        o;
    while ((o = offer(job, at)) == NO_ROOM && waits && writing && cairn__monotonic_ns() < until) {
        writing = is_writing(cache);
        if (writing)
            wait_for_room(cache);
    }
    if (waits)
        cache->n_silent = o == NO_ROOM && *at == first ? cairn__staging_in_use(cache->staging) : 0;
}

void cairn_llama_record_end(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens, uint32_t n_tokens)
{
    record job;
    if (!begin(&job, cache, seq, tokens, n_tokens))
        return;
    add_tail(&job, n_tokens);
    uint32_t at = first_open(&job);
    if (ask_stored(&job, 0)) {
        forget_lost(&job);
        at = first_open(&job);
        offer_patiently(&job, &at);
    }
    cache->pages_given_up += job.n_pages - at;
    remember(&job, at);
    finish(&job, n_tokens);
}
