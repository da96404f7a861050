/* queue.c - between callers that hand over pages and the writer thread.
 *
 * A put is copied, except for the blocks' data, and becomes one job in a list;
 * jobs end in the order in which they came. What the queue holds is bounded by
 * the bytes of the blocks; a put that is larger than the bound alone is taken
 * when the queue is empty, since its memory is the caller's and exists already.
 * While the tier can't write, puts are taken and dropped at once: their memory is
 * worth more to the caller than a retry. */
#include "store/internal.h"

#include "base/bytes.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- checking ---- */

static bool page_is_valid(const cairn_store *store, const cairn_digest *identity, const cairn_page *p,
                          uint64_t *ret_bytes)
{
    if (!p->tokens || !p->blocks || p->n_tokens < 1 || p->n_tokens > store->page_tokens || p->n_blocks < 1 ||
        p->n_blocks > CAIRN__PAGE_BLOCKS_MAX || p->start % store->page_tokens || p->start > UINT32_MAX - p->n_tokens)
        return false;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        const cairn_block *b = &p->blocks[i];
        if ((!b->data && b->size) || b->size > CAIRN__PAGE_BLOCK_SIZE_MAX || !cairn__add_u64(bytes, b->size, &bytes))
            return false;
    }
    if (bytes < 1 || bytes > CAIRN__PAGE_PAYLOAD_MAX || !cairn__add_u64(*ret_bytes, bytes, ret_bytes))
        return false;
    /* A page under a wrong key would be found corrupt by its first reader. */
    bool      is_checkpoint = p->kind == CAIRN_CHECKPOINT;
    cairn_key key = (is_checkpoint ? cairn_checkpoint_key : cairn_chain_key)(identity, &p->parent, p->tokens, p->n_tokens);
    return memcmp(&key, &p->key, sizeof(key)) == 0 &&
           (!is_checkpoint || p->blocks[0].size == 4 * ((uint64_t)p->start + p->n_tokens));
}

/* ---- jobs ---- */

static void destroy_job(cairn__put_job *job)
{
    for (uint32_t i = 0; job->pages && i < job->n_pages; i++) {
        free((void *)job->pages[i].tokens);
        free((void *)job->pages[i].blocks);
    }
    free(job->pages);
    free(job->identity_text);
    free(job);
}

static void *copy_of(const void *from, size_t size)
{
    void *to = malloc(size);
    if (to)
        memcpy(to, from, size);
    return to;
}

static bool copy_page(cairn_page *to, const cairn_page *from)
{
    *to = *from;
    to->tokens = copy_of(from->tokens, from->n_tokens * sizeof(*from->tokens));
    to->blocks = copy_of(from->blocks, from->n_blocks * sizeof(*from->blocks));
    return to->tokens && to->blocks;
}

static cairn__put_job *create_job(const cairn_put *put, const cairn_digest *identity, uint64_t bytes)
{
    size_t          size = 0;
    const char     *text = cairn_identity_text(put->identity, &size);
    cairn__put_job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->bytes = bytes;
    job->identity = *identity;
    job->release = put->release;
    job->release_ctx = put->release_ctx;
    job->identity_text = copy_of(text, size + 1);
    job->pages = calloc(put->n_pages, sizeof(*job->pages));
    bool ok = job->identity_text && job->pages;
    for (uint32_t i = 0; ok && i < put->n_pages; i++) {
        job->n_pages = i + 1;
        ok = copy_page(&job->pages[i], &put->pages[i]);
    }
    if (ok)
        return job;
    destroy_job(job);
    return NULL;
}

void cairn__job_end(cairn__put_job *job)
{
    if (job->release)
        job->release(job->release_ctx);
    destroy_job(job);
}

/* ---- state of the tier ---- */

bool cairn__store_space_left(cairn_store *store, uint64_t bytes)
{
    cairn__disk_space space;
    uint64_t          needed;
    return cairn__add_u64(store->reserve_bytes, bytes, &needed) &&
           cairn__disk_space_of(store->root.fd, &space) == CAIRN_OK && space.available_bytes >= needed;
}

bool cairn__store_can_write(cairn_store *store)
{
    if (store->off || cairn__store_is_spent(store))
        return false;
    pthread_mutex_lock(&store->lock);
    bool     failed = store->write_failed;
    uint64_t until = store->blocked_until_ns;
    pthread_mutex_unlock(&store->lock);
    if (failed || until == 0)
        return !failed;
    uint64_t now = cairn__monotonic_ns();
    if (now < until)
        return false;
    bool room = cairn__store_space_left(store, 0);
    pthread_mutex_lock(&store->lock);
    store->blocked_until_ns = room ? 0 : now + CAIRN__RECHECK_NS;
    pthread_mutex_unlock(&store->lock);
    cairn__store_set_low(store, !room);
    return room;
}

/* The same as far as it is known without asking the device: a caller must not hang
 * with it. A full one is looked at again by the writer, which gives the pages up if
 * it still is. */
static bool may_write(cairn_store *store)
{
    if (store->off || cairn__store_is_spent(store))
        return false;
    pthread_mutex_lock(&store->lock);
    bool may = !store->write_failed && (!store->blocked_until_ns || cairn__monotonic_ns() >= store->blocked_until_ns);
    pthread_mutex_unlock(&store->lock);
    return may;
}

static uint64_t room_locked(const cairn_store *store)
{
    return store->queued_bytes < store->queue_limit_bytes ? store->queue_limit_bytes - store->queued_bytes : 0;
}

uint64_t cairn_store_put_room(cairn_store *store)
{
    if (!store || !may_write(store))
        return 0;
    pthread_mutex_lock(&store->lock);
    uint64_t room = room_locked(store);
    pthread_mutex_unlock(&store->lock);
    return room;
}

bool cairn__store_is_queued(cairn_store *store, const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE])
{
    bool queued = false;
    pthread_mutex_lock(&store->lock);
    for (const cairn__put_job *job = store->queue_head; job && !queued; job = job->next)
        for (uint32_t i = 0; i < job->n_pages && !queued; i++)
            queued = memcmp(job->pages[i].key.bytes, key, CAIRN__PAGE_NAME_KEY_SIZE) == 0 ||
                     memcmp(job->pages[i].parent.bytes, key, CAIRN__PAGE_NAME_KEY_SIZE) == 0;
    pthread_mutex_unlock(&store->lock);
    return queued;
}

/* ---- put ---- */

static cairn_status drop(cairn_store *store, const cairn_put *put)
{
    cairn__count(&store->counters.pages_put, put->n_pages);
    cairn__count(&store->counters.pages_given_up, put->n_pages);
    if (!store->off && cairn__store_is_spent(store))
        cairn__count(&store->counters.pages_over_day, put->n_pages);
    if (put->release)
        put->release(put->release_ctx);
    return CAIRN_OK;
}

static cairn_status enqueue(cairn_store *store, cairn__put_job *job)
{
    pthread_mutex_lock(&store->lock);
    if (store->queue_head && job->bytes > room_locked(store)) {
        pthread_mutex_unlock(&store->lock);
        return CAIRN_EBUSY;
    }
    job->seq = ++store->put_seq;
    if (store->queue_tail)
        store->queue_tail->next = job;
    else
        store->queue_head = job;
    store->queue_tail = job;
    store->queued_bytes += job->bytes;
    /* Before the writer can end the job and count it as published. */
    cairn__count(&store->counters.pages_put, job->n_pages);
    pthread_cond_broadcast(&store->work);
    pthread_mutex_unlock(&store->lock);
    return CAIRN_OK;
}

/* Copying a put only to find the queue full would be waste. */
static bool is_full_for(cairn_store *store, uint64_t bytes)
{
    pthread_mutex_lock(&store->lock);
    bool full = store->queue_head && bytes > room_locked(store);
    pthread_mutex_unlock(&store->lock);
    return full;
}

cairn_status cairn_store_put(cairn_store *store, const cairn_put *put)
{
    if (!store || !put || !put->identity || (!put->pages && put->n_pages))
        return CAIRN_EINVAL;
    cairn_digest identity = cairn_store_namespace(store, put->identity);
    uint64_t     bytes = 0;
    for (uint32_t i = 0; i < put->n_pages; i++)
        if (!page_is_valid(store, &identity, &put->pages[i], &bytes))
            return CAIRN_EINVAL;
    if (put->n_pages == 0 || !may_write(store))
        return drop(store, put);
    if (is_full_for(store, bytes))
        return CAIRN_EBUSY;
    cairn__put_job *job = create_job(put, &identity, bytes);
    if (!job)
        return CAIRN_ENOMEM;
    cairn_status status = enqueue(store, job);
    if (status)
        destroy_job(job);
    return status;
}

/* ---- has, flush ---- */

static bool key_is_queued(cairn_store *store, const cairn_key *key)
{
    bool queued = false;
    pthread_mutex_lock(&store->lock);
    for (const cairn__put_job *job = store->queue_head; job && !queued; job = job->next)
        for (uint32_t i = 0; i < job->n_pages && !queued; i++)
            queued = memcmp(&job->pages[i].key, key, sizeof(*key)) == 0;
    pthread_mutex_unlock(&store->lock);
    return queued;
}

/* One stat. The folders on the way may be symbolic links here: it is a hint, and
 * nothing is opened. */
static bool name_exists(const cairn_store *store, const cairn_digest *identity, const cairn_page *page)
{
    char             folder[CAIRN__IDENTITY_NAME_SIZE], fanout[CAIRN__FANOUT_NAME_SIZE], text[CAIRN__PAGE_NAME_SIZE];
    char             path[sizeof(CAIRN__ROOT_PAGES) + sizeof(folder) + sizeof(fanout) + sizeof(text)];
    cairn__page_name name = cairn__disk_name(identity, page);
    cairn__file_info info;
    cairn__identity_name(identity, folder);
    cairn__fanout_name(&page->parent, fanout);
    cairn__page_name_format(&name, text);
    snprintf(path, sizeof(path), "%s/%s/%s/%s", CAIRN__ROOT_PAGES, folder, fanout, text);
    return cairn__stat(store->root.fd, path, &info) == CAIRN_OK && info.is_regular;
}

/* A short page is as good as stored when a longer one begins with it. */
static bool is_covered(cairn_store *store, const cairn_digest *identity, const cairn_page *page)
{
    cairn__page_file file;
    uint32_t         run = 0;
    cairn__want      want = {.identity = identity,
                             .parent = page->parent,
                             .start = page->start,
                             .tokens = page->tokens,
                             .n_tokens = page->n_tokens};
    if (cairn__disk_open_identity(&store->root, identity, &want.identity_fd) != CAIRN_OK)
        return false;
    if (cairn__open_longest_child(store, &want, &file, &run) == CAIRN_OK && run > 0)
        cairn__page_file_close(&file);
    cairn__close(want.identity_fd);
    return run == page->n_tokens;
}

bool cairn__page_is_stored(cairn_store *store, const cairn_digest *identity, const cairn_page *page)
{
    return name_exists(store, identity, page) ||
           (page->kind == CAIRN_PAGE && page->n_tokens < store->page_tokens && is_covered(store, identity, page));
}

bool cairn_store_has(cairn_store *store, const cairn_identity *identity, const cairn_page *page)
{
    if (!store || store->off || !identity || !page || !page->tokens || page->n_tokens < 1 ||
        page->n_tokens > store->page_tokens)
        return false;
    cairn_digest digest = cairn_store_namespace(store, identity);
    return key_is_queued(store, &page->key) || cairn__page_is_stored(store, &digest, page);
}

static bool is_done_locked(const cairn_store *store, uint64_t seq)
{
    return store->done_seq >= seq && !store->notes && !store->notes_under_way;
}

cairn_status cairn_store_flush(cairn_store *store, uint32_t timeout_ms)
{
    struct timespec until;
    if (!store)
        return CAIRN_EINVAL;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)timeout_ms % 1000 * 1000000;
    until.tv_sec += (time_t)(timeout_ms / 1000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&store->lock);
    uint64_t seq = store->put_seq;
    int      error = 0;
    while (!is_done_locked(store, seq) && error == 0)
        error = pthread_cond_timedwait(&store->done, &store->lock, &until);
    bool done = is_done_locked(store, seq);
    pthread_mutex_unlock(&store->lock);
    return done ? CAIRN_OK : CAIRN_ETIMEDOUT;
}
