/* janitor.c - scans in the background, so that opening a store never waits for
 * the number of files in it.
 *
 * After open: remove temporaries of dead processes and, where the ledger asks for
 * it, count what the root occupies. Again where some temporaries were too young to judge
 * (a server that is restarted right after a crash), and where the ledger wants a count:
 * another process may have died with something reserved. */
#include "store/internal.h"

#include "os/clock.h"

#include <time.h>

/* So that no orphan gets older than a minute: too young for the first scan that meets
 * it, old enough for the one after it. */
#define AGAIN_S 25
#define AFTER_ERROR_S 600
#define SHARE 20 /* of the time at most a twentieth is spent scanning */

static void note_young(cairn_store *store, const cairn__scan_result *result)
{
    if (result->n_young > 0)
        atomic_store(&store->young_temps, true);
}

cairn_status cairn__store_scan(cairn_store *store, cairn__scan_request request, bool count,
                               cairn__scan_result *ret_result, bool *ret_counted)
{
    cairn__scan_result result = {0};
    uint64_t           count_id = 0;
    request.now_ns = cairn__wall_ns();
    request.grace_ns = CAIRN__ORPHAN_NS;
    pthread_mutex_lock(&store->scan_lock);
    bool counting = count && cairn__ledger_count_begin(store->ledger, &count_id) == CAIRN_OK;
    request.stat_files |= counting;
    cairn_status status = cairn__scan(&store->root, &request, &result);
    if (counting)
        cairn__ledger_count_end(store->ledger, count_id, result.total_bytes, !status && result.complete);
    else if (result.n_removed > 0)
        cairn__ledger_freed_unsure(store->ledger);
    pthread_mutex_unlock(&store->scan_lock);
    note_young(store, &result);
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
    note_young(store, &result);
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

/* Returns how long to rest. */
static time_t tidy_up(cairn_store *store)
{
    cairn__scan_request request = {.stop = must_stop, .ctx = store};
    cairn__scan_result  result;
    bool                counted;
    const uint64_t      began_ns = cairn__monotonic_ns();
    const bool          count = cairn__ledger_wants_count(store->ledger);
    cairn_status        status = cairn__store_scan(store, request, count, &result, &counted);
    if (status || !result.complete)
        return AFTER_ERROR_S;
    const uint64_t rest_s = (cairn__monotonic_ns() - began_ns) / 1000000000u * SHARE;
    return rest_s > AGAIN_S ? (time_t)rest_s : AGAIN_S;
}

void *cairn__janitor_main(void *ctx)
{
    cairn_store *store = ctx;
    time_t       rest_s = tidy_up(store);
    while (sleep_s(store, rest_s)) {
        bool young = atomic_exchange(&store->young_temps, false);
        if (young || cairn__ledger_wants_count(store->ledger))
            rest_s = tidy_up(store);
    }
    return NULL;
}
