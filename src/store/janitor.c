/* janitor.c - scans in the background, so that opening a store never waits for
 * the number of files in it.
 *
 * After open: remove temporaries of dead processes and, where the ledger asks for
 * it, count what the root occupies. When some temporaries were too young to judge
 * (a server that is restarted right after a crash), once more later. */
#include "store/internal.h"

#include "os/clock.h"

#include <time.h>

/* So that no orphan gets older than a minute where its server is started again: too
 * young for the scan at open, old enough for the one after it. */
#define AGAIN_S 25

cairn_status cairn__store_scan(cairn_store *store, cairn__scan_request request, bool count,
                               cairn__scan_result *ret_result, bool *ret_counted)
{
    cairn__scan_result result = {0};
    uint64_t           count_id = 0;
    request.now_ns = cairn__wall_ns();
    request.grace_ns = CAIRN__ORPHAN_NS;
    pthread_mutex_lock(&store->scan_lock);
    uint64_t last_count = cairn__ledger_last_count(store->ledger);
    bool     counting = count && cairn__ledger_count_begin(store->ledger, &count_id) == CAIRN_OK;
    request.stat_files |= counting;
    cairn_status status = cairn__scan(&store->root, &request, &result);
    if (counting)
        cairn__ledger_count_end(store->ledger, count_id, result.total_bytes, !status && result.complete);
    else
        cairn__ledger_freed(store->ledger, result.freed_bytes, last_count);
    pthread_mutex_unlock(&store->scan_lock);
    *ret_counted = counting && !status && result.complete;
    *ret_result = result;
    return status;
}

cairn_status cairn__store_count(cairn_store *store)
{
    cairn__scan_request request = {.stat_files = true, .now_ns = cairn__wall_ns(), .grace_ns = CAIRN__ORPHAN_NS};
    cairn__scan_result  result = {0};
    uint64_t            count_id = 0;
    pthread_mutex_lock(&store->scan_lock);
    cairn_status status = cairn__ledger_count_begin(store->ledger, &count_id);
    if (!status) {
        status = cairn__scan(&store->root, &request, &result);
        if (!status && !result.complete)
            status = CAIRN_EIO;
        cairn__ledger_count_end(store->ledger, count_id, result.total_bytes, !status);
    }
    pthread_mutex_unlock(&store->scan_lock);
    return status;
}

static bool must_stop(void *ctx)
{
    cairn_store *store = ctx;
    pthread_mutex_lock(&store->lock);
    bool stop = store->stop;
    pthread_mutex_unlock(&store->lock);
    return stop;
}

/* False: told to stop. */
static bool sleep_s(cairn_store *store, time_t seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&store->lock);
    int error = 0;
    while (!store->stop && error == 0)
        error = pthread_cond_timedwait(&store->work, &store->lock, &until);
    bool stop = store->stop;
    pthread_mutex_unlock(&store->lock);
    return !stop;
}

void *cairn__janitor_main(void *ctx)
{
    cairn_store        *store = ctx;
    cairn__scan_request request = {.stop = must_stop, .ctx = store};
    cairn__scan_result  result;
    bool                counted;
    do {
        bool count = cairn__ledger_wants_count(store->ledger);
        if (cairn__store_scan(store, request, count, &result, &counted) != CAIRN_OK)
            break;
    } while (result.n_left > 0 && sleep_s(store, AGAIN_S));
    return NULL;
}
