/* room.c - space for a page before it is written: the device's reserve, then the
 * budget, evicting where that helps. Writer thread only, but for block and stats. */
#include "store/internal.h"

#include "os/clock.h"

#include <time.h>

#define MAX_TRIES 16 /* other processes may take what we freed; a bound, not a tuning */

/* Freed beyond what is missing, so that the next pages find room at once. */
static uint64_t slack(const cairn_store *store)
{
    return store->budget_bytes / 100;
}

void cairn__store_block(cairn_store *store, const char *why)
{
    pthread_mutex_lock(&store->lock);
    store->blocked_until_ns = cairn__monotonic_ns() + CAIRN__RECHECK_NS;
    pthread_mutex_unlock(&store->lock);
    if (why)
        cairn__store_say_blocked(store, why);
    else
        cairn__store_set_low(store, true);
}

/* What lookups freed goes to the ledger here, so that they never wait for it. */
static void pass_on_freed(cairn_store *store)
{
    if (atomic_exchange(&store->freed_unsure, false))
        cairn__ledger_freed_unsure(store->ledger);
}

static bool is_stopping(cairn_store *store)
{
    pthread_mutex_lock(&store->lock);
    bool stop = store->stop;
    pthread_mutex_unlock(&store->lock);
    return stop;
}

/* A root that can't be counted, since a folder of it can't be read, is not waited for. */
bool cairn__store_find_used(cairn_store *store)
{
    for (int i = 0; i < 200; i++) {
        if (!cairn__ledger_wants_count(store->ledger))
            return true;
        cairn_status status = cairn__store_count(store);
        if (status != CAIRN_EBUSY)
            return !status;
        if (is_stopping(store))
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    }
    return false;
}

cairn_status cairn__store_reserve(cairn_store *store, uint64_t bytes)
{
    bool hopeless = false;
    if (!cairn__store_space_left(store, bytes)) {
        cairn__store_block(store, NULL);
        return CAIRN_ENOSPC;
    }
    if (bytes > store->budget_bytes) { /* else everything would be evicted for nothing */
        cairn__store_say_small(store, bytes);
        return CAIRN_ENOSPC;
    }
    pass_on_freed(store);
    for (int i = 0; i < MAX_TRIES; i++) {
        uint64_t             missing = 0;
        cairn__ledger_limits limits = {store->budget_bytes, store->day_bytes};
        cairn_status         status = cairn__ledger_reserve(store->ledger, bytes, &limits, &missing);
        if (status == CAIRN_EBUSY && cairn__store_find_used(store))
            continue;
        if (status == CAIRN_EBUSY || status == CAIRN_EIO) {
            /* Else each page would walk the root, or wait for a lock, in vain. */
            cairn__store_block(store, status == CAIRN_EBUSY ? "what lies in the folder can't be counted"
                                                            : "the file ledger can't be locked or written");
            return CAIRN_EIO;
        }
        if (status == CAIRN_EACCES)
            cairn__store_set_spent(store);
        if (status != CAIRN_ENOSPC || hopeless)
            return status;
        /* Evicting nothing can still help: it counts, and finds less in use. */
        hopeless = cairn__evict(store, missing + slack(store)) == 0;
    }
    return CAIRN_ENOSPC;
}

void cairn__store_fit_budget(cairn_store *store)
{
    if (!cairn__store_find_used(store))
        return;
    uint64_t total = cairn__ledger_total(store->ledger), budget = store->budget_bytes;
    if (total > budget)
        cairn__store_say_fitted(store, cairn__evict(store, total - budget + slack(store)));
}
