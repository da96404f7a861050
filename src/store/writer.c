/* writer.c - the one thread that publishes.
 *
 * A batch is what is queued, up to CAIRN__BATCH_PAGES or CAIRN__BATCH_BYTES, so
 * that pages become visible soon and a sync serves many. Per page: is it wanted at
 * all, is there room, into a temporary file; then the batch as a whole becomes
 * visible, and short pages that a published one covers are unlinked.
 *
 * Invariants:
 *   W1  no page is published before its parent: one whose parent was given up is
 *       given up too
 *   W2  after a write or sync error nothing is written any more: what a device did
 *       with the pages before it is unknown, and a second sync that succeeds
 *       proves nothing
 *   W3  space is reserved before the temporary file is created
 *   W4  every job is ended exactly once, in order */
#include "store/internal.h"

#include "os/clock.h"

#include <stdlib.h>
#include <string.h>

/* Keys of pages that were given up, for W1. They expire, since the parent may have
 * been stored since by another process. */
#define MAX_FAILED 512u
#define FAILED_NS (UINT64_C(60) * 1000 * 1000 * 1000)

typedef struct failed_key {
    cairn_key key;
    uint64_t  until_ns;
} failed_key;

typedef struct item {
    cairn__put_job   *job;
    const cairn_page *page;
    bool              written; /* in the tier's batch */
} item;

typedef struct writer {
    cairn_store  *store;
    cairn__batch *batch;
    item          items[CAIRN__BATCH_PAGES];
    size_t        n_items;
    uint64_t      reserved;
    failed_key    failed[MAX_FAILED];
    size_t        next_failed;
} writer;

/* ---- pages given up ---- */

static bool has_failed(const writer *w, const cairn_key *key)
{
    uint64_t now = cairn__monotonic_ns();
    for (size_t i = 0; i < MAX_FAILED; i++)
        if (w->failed[i].until_ns > now && memcmp(&w->failed[i].key, key, sizeof(*key)) == 0)
            return true;
    return false;
}

static void give_up(writer *w, const cairn_page *page)
{
    w->failed[w->next_failed] = (failed_key){page->key, cairn__monotonic_ns() + FAILED_NS};
    w->next_failed = (w->next_failed + 1) % MAX_FAILED;
    cairn__count(&w->store->counters.pages_given_up, 1);
}

static void forget_failure(writer *w, const cairn_key *key)
{
    for (size_t i = 0; i < MAX_FAILED; i++)
        if (memcmp(&w->failed[i].key, key, sizeof(*key)) == 0)
            w->failed[i].until_ns = 0;
}

static void skip(writer *w, const cairn_page *page)
{
    forget_failure(w, &page->key);
    cairn__count(&w->store->counters.pages_skipped, 1);
}

/* ---- errors ---- */

static void note_error(writer *w, cairn_status status, bool fatal)
{
    cairn_store *store = w->store;
    cairn__count(&store->counters.write_errors, 1);
    if (fatal)
        cairn__store_fail_writes(store); /* W2 */
    else if (status != CAIRN_ENOENT && status != CAIRN_EINVAL)
        cairn__store_block(store, status == CAIRN_ENOSPC ? NULL : cairn__os_error_text());
}

/* ---- a page into the batch ---- */

static void write_item(writer *w, item *it)
{
    cairn_store *store = w->store;
    uint64_t     cost = cairn__batch_page_cost(it->page, it->job->identity_text);
    bool         fatal = false;
    if (has_failed(w, &it->page->parent) || !cairn__store_can_write(store)) {
        give_up(w, it->page);
        return;
    }
    if (cairn__page_is_stored(store, &it->job->identity, it->page)) {
        skip(w, it->page);
        return;
    }
    cairn_status status = cairn__store_reserve(store, cost);
    if (status) {
        cairn__count(&store->counters.pages_over_day, status == CAIRN_EACCES);
        give_up(w, it->page);
        return;
    }
    w->reserved += cost;
    status =
        cairn__batch_add(w->batch, &it->job->identity, it->job->identity_text, it->page, cairn__wall_seconds(), &fatal);
    if (status) {
        note_error(w, status, fatal);
        give_up(w, it->page);
        return;
    }
    it->written = true;
}

/* ---- short pages that are covered now ---- */

static bool is_prefix(const cairn__page_name *name, const item *it, const cairn__page_name *published)
{
    const cairn_page *page = it->page;
    if (name->is_checkpoint || name->n_tokens >= page->n_tokens || memcmp(name->parent, published->parent, sizeof(name->parent)) != 0)
        return false;
    for (size_t i = 0; i < CAIRN__PAGE_PREFIXES && cairn__page_prefix_tokens[i] <= name->n_tokens; i++)
        if (memcmp(name->prefix[i], published->prefix[i], sizeof(name->prefix[i])) != 0)
            return false;
    cairn_key key = cairn_chain_key(&it->job->identity, &page->parent, page->tokens, name->n_tokens);
    return memcmp(key.bytes, name->key, sizeof(name->key)) == 0;
}

static void unlink_short(cairn_store *store, int folder_fd, const cairn__page_name *name)
{
    char             text[CAIRN__PAGE_NAME_SIZE];
    cairn__file_info info;
    cairn__page_name_format(name, text);
    if (cairn__store_is_pinned(store, name->key)) /* its blocks would stay in use, uncounted */
        return;
    uint64_t last_count = cairn__ledger_last_count(store->ledger);
    if (cairn__stat(folder_fd, text, &info) != CAIRN_OK)
        return;
    const bool counted = cairn__page_file_is_as_counted(&store->root, folder_fd, name, &info);
    if (cairn__unlink(folder_fd, text) != CAIRN_OK)
        return;
    if (counted)
        cairn__ledger_freed(store->ledger, info.disk_bytes, last_count);
    else
        cairn__ledger_freed_unsure(store->ledger);
}

static void supersede(cairn_store *store, const item *it)
{
    const cairn_page *page = it->page;
    cairn__page_name  published = cairn__disk_name(&it->job->identity, page);
    cairn__listing *listing;
    int             identity_fd, folder_fd;
    if (cairn__disk_open_identity(&store->root, &it->job->identity, &identity_fd) != CAIRN_OK)
        return;
    if (cairn__disk_open_folder(identity_fd, &page->parent, &folder_fd) == CAIRN_OK) {
        if (cairn__listing_get(store->listings, folder_fd, &listing) == CAIRN_OK) {
            for (size_t i = 0; i < listing->n_names; i++)
                if (is_prefix(&listing->names[i], it, &published))
                    unlink_short(store, folder_fd, &listing->names[i]);
            cairn__listing_release(store->listings, listing);
        }
        cairn__close(folder_fd);
    }
    cairn__close(identity_fd);
}

/* ---- a batch ---- */

static uint64_t payload_of(const cairn_page *page)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < page->n_blocks; i++)
        bytes += page->blocks[i].size; /* checked by put */
    return bytes;
}

static void note_published(writer *w, const item *it)
{
    forget_failure(w, &it->page->key);
    atomic_store(&w->store->said_blocked, false);
    cairn__count(&w->store->counters.pages_published, 1);
    cairn__count(&w->store->counters.bytes_written, payload_of(it->page));
    if (it->page->kind == CAIRN_PAGE)
        supersede(w->store, it);
}

static void publish(writer *w)
{
    bool         published[CAIRN__BATCH_PAGES];
    bool         failed;
    size_t       n = 0;
    cairn_status status = CAIRN_EIO;
    pthread_mutex_lock(&w->store->lock);
    failed = w->store->write_failed;
    pthread_mutex_unlock(&w->store->lock);
    if (!failed) {
        status = cairn__batch_publish(w->batch, published);
        if (status)
            note_error(w, status,
                       status != CAIRN_ENOSPC && status != CAIRN_ENOENT); /* not there: removed by somebody */
    }
    uint64_t used = cairn__batch_finish(w->batch);
    if (w->reserved || used)
        cairn__ledger_commit(w->store->ledger, w->reserved, used);
    w->reserved = 0;
    for (size_t i = 0; i < w->n_items; i++) {
        const item *it = &w->items[i];
        if (!it->written)
            continue;
        if (status)
            give_up(w, it->page);
        else if (published[n++])
            note_published(w, it);
        else
            skip(w, it->page);
    }
}

/* ---- the queue's other end ---- */

static void take_batch_locked(writer *w)
{
    uint64_t bytes = 0;
    w->n_items = 0;
    for (cairn__put_job *job = w->store->queue_head; job; job = job->next)
        for (uint32_t i = job->n_ended; i < job->n_pages; i++) {
            bytes += payload_of(&job->pages[i]);
            if (w->n_items == CAIRN__BATCH_PAGES || (w->n_items > 0 && bytes > CAIRN__BATCH_BYTES))
                return;
            w->items[w->n_items++] = (item){job, &job->pages[i], false};
        }
}

/* Takes ended jobs off the queue; returns them as a list. */
static cairn__put_job *end_batch(writer *w)
{
    cairn_store     *store = w->store;
    cairn__put_job  *ended = NULL;
    cairn__put_job **tail = &ended;
    for (size_t i = 0; i < w->n_items; i++)
        w->items[i].job->n_ended++;
    pthread_mutex_lock(&store->lock);
    while (store->queue_head && store->queue_head->n_ended == store->queue_head->n_pages) {
        cairn__put_job *job = store->queue_head;
        store->queue_head = job->next;
        if (!store->queue_head)
            store->queue_tail = NULL;
        store->queued_bytes -= job->bytes;
        job->next = NULL;
        *tail = job;
        tail = &job->next;
    }
    pthread_mutex_unlock(&store->lock);
    return ended;
}

static void end_jobs(cairn_store *store, cairn__put_job *jobs)
{
    while (jobs) {
        cairn__put_job *next = jobs->next;
        uint64_t        seq = jobs->seq;
        cairn__job_end(jobs);
        pthread_mutex_lock(&store->lock);
        store->done_seq = seq;
        pthread_cond_broadcast(&store->done);
        pthread_mutex_unlock(&store->lock);
        jobs = next;
    }
}

/* False: told to stop, and nothing is queued. */
static bool wait_for_work(writer *w)
{
    cairn_store *store = w->store;
    pthread_mutex_lock(&store->lock);
    while (!store->queue_head && !store->notes && !store->stop && !store->fit_wanted && !store->root_suspect)
        pthread_cond_wait(&store->work, &store->lock);
    bool fit = store->fit_wanted;
    store->fit_wanted = store->root_suspect = false;
    take_batch_locked(w);
    cairn__note *notes = w->n_items == 0 ? cairn__notes_take_locked(store) : NULL;
    bool         go_on = w->n_items > 0 || notes || !store->stop;
    pthread_mutex_unlock(&store->lock);
    if (go_on && !cairn__store_check_root(store)) /* which said so */
        cairn__store_block(store, "the folder is gone");
    if (fit)
        cairn__store_fit_budget(store);
    cairn__notes_write(store, notes);
    return go_on;
}

static void *writer_main(void *ctx)
{
    writer *w = ctx;
    cairn__store_fit_budget(w->store);
    while (wait_for_work(w)) {
        for (size_t i = 0; i < w->n_items; i++)
            write_item(w, &w->items[i]);
        publish(w);
        end_jobs(w->store, end_batch(w));
    }
    cairn__batch_destroy(w->batch);
    free(w);
    return NULL;
}

cairn_status cairn__writer_start(cairn_store *store)
{
    writer      *w = calloc(1, sizeof(*w));
    cairn_status status = w ? cairn__batch_create(&store->root, &w->batch) : CAIRN_ENOMEM;
    if (!status) {
        w->store = store;
        if (pthread_create(&store->writer, NULL, writer_main, w) != 0)
            status = CAIRN_ENOMEM;
    }
    if (status) {
        if (w)
            cairn__batch_destroy(w->batch);
        free(w);
        return status;
    }
    store->has_writer = true;
    return CAIRN_OK;
}
