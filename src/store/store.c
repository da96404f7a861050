/* store.c - opening, closing, numbers. The road of a page is in queue.c,
 * writer.c and room.c; that of a request in lookup.c, child.c and pin.c. */
#include "store/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)
#define PAGE_TOKENS_STEP 16u
#define QUEUE_DEFAULT (UINT64_C(256) << 20)
#define QUARANTINE_MAX (UINT64_C(256) << 20) /* and a sixteenth of the budget */
_Static_assert(sizeof(atomic_uint_fast64_t) == sizeof(uint64_t), "counters are as wide as they look");

const char *cairn_miss_text(cairn_miss miss)
{
    switch (miss) {
#define X(name, text)                                                                                                  \
    case name:                                                                                                         \
        return text;
        CAIRN_MISS_LIST(X)
#undef X
    case CAIRN_MISS_COUNT:
        break;
    }
    return "unknown";
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- opening ---- */

static cairn_status say(cairn_error *error, cairn_status status, const char *format, const char *path)
{
    if (error)
        snprintf(error->text, sizeof(error->text), format, path, cairn_status_text(status));
    return status;
}

static cairn_status set_shape(cairn_store *store, const cairn_store_options *o, cairn_error *error)
{
    store->page_tokens = o->page_tokens ? o->page_tokens : CAIRN_PAGE_TOKENS_DEFAULT;
    if (store->page_tokens % PAGE_TOKENS_STEP || store->page_tokens > CAIRN__PAGE_TOKENS_MAX) {
        if (error)
            snprintf(error->text, sizeof(error->text), "page_tokens is %u; it must be a multiple of %u up to %u",
                     store->page_tokens, PAGE_TOKENS_STEP, CAIRN__PAGE_TOKENS_MAX);
        return CAIRN_EINVAL;
    }
    store->queue_limit_bytes = o->write_queue_bytes ? o->write_queue_bytes : QUEUE_DEFAULT;
    store->off = o->budget_bytes == CAIRN_BUDGET_OFF;
    store->budget_bytes = store->off ? 0 : o->budget_bytes;
    store->reserve_bytes = o->reserve_bytes;
    store->day_bytes = o->day_bytes;
    store->notice = o->notice;
    store->notice_ctx = o->notice_ctx;
    return CAIRN_OK;
}

static uint64_t auto_budget(const cairn__disk_space *space)
{
    return min_u64(space->total_bytes / 5, 64 * GIB);
}

uint64_t cairn__quarantine_limit(const cairn_store *store)
{
    return min_u64(QUARANTINE_MAX, store->budget_bytes / 16);
}

static cairn_status set_limits(cairn_store *store, cairn_error *error)
{
    cairn__disk_space space;
    cairn_status      status = cairn__disk_space_of(store->root.fd, &space);
    if (status)
        return say(error, CAIRN_EIO, "cannot learn how much space there is around %s: %s", store->root.path);
    if (store->budget_bytes == CAIRN_BUDGET_AUTO)
        store->budget_bytes = auto_budget(&space);
    if (store->reserve_bytes == 0)
        store->reserve_bytes = max_u64(min_u64(16 * GIB, space.total_bytes / 10), GIB);
    if (!cairn__store_space_left(store, 0))
        cairn__store_block(store, NULL);
    return CAIRN_OK;
}

static cairn_status open_tier(cairn_store *store, const char *path, cairn_error *error)
{
    cairn_status status = cairn__root_open(path, &store->root, error);
    if (status)
        return status;
    store->root.keyring = store->keyring;
    status = cairn__listings_create(&store->listings);
    if (!status)
        status = cairn__ledger_open(store->root.fd, &store->ledger);
    if (status)
        return say(error, status,
                   "cannot use the file ledger in the cache directory %s: %s; make it writable, on a file system "
                   "with locks and room, or name another directory",
                   store->root.path);
    return set_limits(store, error);
}

static cairn_status start_threads(cairn_store *store)
{
    cairn_status status = cairn__writer_start(store);
    if (status)
        return status;
    store->has_janitor = pthread_create(&store->janitor, NULL, cairn__janitor_main, store) == 0;
    return store->has_janitor ? CAIRN_OK : CAIRN_ENOMEM;
}

static void init_locks(cairn_store *store)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->scan_lock, NULL);
    pthread_cond_init(&store->work, &attr);
    pthread_cond_init(&store->done, &attr);
    pthread_condattr_destroy(&attr);
}

cairn_store *cairn__store_alloc(void)
{
    cairn_store *store = calloc(1, sizeof(*store));
    if (!store)
        return NULL;
    store->root.fd = -1;
    store->ring_fd = -1;
    init_locks(store);
    return store;
}

cairn_status cairn_store_open(const cairn_store_options *options, cairn_store **ret_store, cairn_error *error)
{
    static const cairn_store_options defaults;
    const cairn_store_options       *o = options ? options : &defaults;
    if (error)
        error->text[0] = 0;
    if (!ret_store)
        return say(error, CAIRN_EINVAL, "no place for the store's pointer%s: %s", "");
    cairn_store *store = cairn__store_alloc();
    if (!store)
        return say(error, CAIRN_ENOMEM, "cannot open the cache%s: %s", "");
    cairn_status status = set_shape(store, o, error);
    if (!status && o->key)
        status = cairn__keyring_create(o->key, &store->keyring);
    if (!status && store->off)
        (void)!cairn__root_path(o->root, &store->root.path, NULL); /* only to be shown */
    else if (!status)
        status = open_tier(store, o->root, error);
    if (!status && !store->off) {
        status = start_threads(store);
        if (status)
            say(error, status, "cannot start the threads of the cache in %s: %s", store->root.path);
    }
    if (status) {
        cairn_store_close(store);
        if (error && !error->text[0])
            say(error, status, "cannot open the cache%s: %s", "");
        return status;
    }
    if (error)
        error->text[0] = 0;
    *ret_store = store;
    return CAIRN_OK;
}

void cairn_store_close(cairn_store *store)
{
    if (!store)
        return;
    pthread_mutex_lock(&store->lock);
    store->stop = true;
    pthread_cond_broadcast(&store->work);
    pthread_mutex_unlock(&store->lock);
    if (store->has_writer)
        pthread_join(store->writer, NULL);
    if (store->has_janitor)
        pthread_join(store->janitor, NULL);
    cairn__notes_destroy(store);
    cairn__evictor_destroy(store->evictor);
    free(store->unnoted);
    cairn__listings_destroy(store->listings);
    cairn__ledger_close(store->ledger);
    cairn__root_close(&store->root);
    cairn__keyring_destroy(store->keyring);
    pthread_cond_destroy(&store->done);
    pthread_cond_destroy(&store->work);
    pthread_mutex_destroy(&store->scan_lock);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

cairn_digest cairn_store_namespace(const cairn_store *store, const cairn_identity *identity)
{
    cairn_digest digest = cairn_identity_digest(identity);
    return cairn__namespace_digest(store->keyring, &digest);
}

/* ---- the budget ---- */

void cairn__store_fit_soon(cairn_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->fit_wanted = true;
    pthread_cond_broadcast(&store->work);
    pthread_mutex_unlock(&store->lock);
}

cairn_status cairn_store_set_budget(cairn_store *store, uint64_t budget_bytes)
{
    cairn__disk_space space;
    if (!store || store->off || budget_bytes == CAIRN_BUDGET_OFF)
        return CAIRN_EINVAL;
    if (budget_bytes == CAIRN_BUDGET_AUTO) {
        if (cairn__disk_space_of(store->root.fd, &space) != CAIRN_OK)
            return CAIRN_EIO;
        budget_bytes = auto_budget(&space);
    }
    store->budget_bytes = budget_bytes;
    cairn__store_fit_soon(store);
    return CAIRN_OK;
}

/* ---- numbers ---- */

static uint64_t get(atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void cairn_store_get_stats(cairn_store *store, cairn_store_stats *ret_stats)
{
    cairn__counters *c = &store->counters;
    /* Given up, skipped and published before put: a page is counted as put first,
     * so that no snapshot shows more ended than put. */
    cairn_store_stats s = {.pages_published = get(&c->pages_published),
                           .pages_skipped = get(&c->pages_skipped),
                           .pages_given_up = get(&c->pages_given_up),
                           .pages_put = get(&c->pages_put),
                           .pages_over_day = get(&c->pages_over_day),
                           .lookups = get(&c->lookups),
                           .hits = get(&c->hits),
                           .hit_tokens = get(&c->hit_tokens),
                           .bytes_written = get(&c->bytes_written),
                           .bytes_read = get(&c->bytes_read),
                           .pages_corrupt = get(&c->pages_corrupt),
                           .pages_quarantined = get(&c->pages_quarantined),
                           .pages_evicted = get(&c->pages_evicted),
                           .write_errors = get(&c->write_errors),
                           .read_errors = get(&c->read_errors),
                           .budget_bytes = store->budget_bytes,
                           .reserve_bytes = store->off ? 0 : store->reserve_bytes};
    for (int i = 0; i < CAIRN_MISS_COUNT; i++)
        s.misses[i] = get(&c->misses[i]);
    if (!store->off) {
        s.used_bytes = cairn__ledger_total(store->ledger);
        s.written_today_bytes = cairn__ledger_written_today(store->ledger);
    }
    pthread_mutex_lock(&store->lock);
    s.queued_bytes = store->queued_bytes;
    s.read_only = store->write_failed || store->low_space;
    pthread_mutex_unlock(&store->lock);
    s.read_only |= atomic_load(&store->lost) || (!store->off && cairn__store_is_spent(store));
    *ret_stats = s;
}

const char *cairn_store_root(const cairn_store *store)
{
    return store->root.path ? store->root.path : "";
}

uint32_t cairn_store_page_tokens(const cairn_store *store)
{
    return store->page_tokens;
}
