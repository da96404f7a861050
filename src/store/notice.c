/* notice.c - one line for the operator when the state of the tier changes; nothing
 * is said twice for one change. Never under a lock: the line goes to the program. */
#include "store/internal.h"

#include "os/clock.h"

#include <stdarg.h>
#include <stdio.h>

#define SIZE_TEXT 32

void cairn__notice(cairn_store *store, const char *format, ...)
{
    char    line[512];
    va_list args;
    if (!store->notice)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    store->notice(store->notice_ctx, line);
}

static const char *size_text(uint64_t bytes, char buf[SIZE_TEXT])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double                   number = (double)bytes;
    size_t                   unit = 0;
    for (; number >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        number /= 1024;
    snprintf(buf, SIZE_TEXT, "%.4g %s", number, units[unit]);
    return buf;
}

/* ---- below the reserve, and back ---- */

static void say_low(cairn_store *store)
{
    char              left[SIZE_TEXT], reserve[SIZE_TEXT];
    cairn__disk_space space = {0};
    (void)!cairn__disk_space_of(store->root.fd, &space);
    size_text(space.available_bytes, left);
    size_text(store->reserve_bytes, reserve);
    if (space.total_bytes && space.total_bytes <= store->reserve_bytes)
        cairn__notice(store,
                      "disk cache: nothing is stored: %s must stay free on the disk, which is smaller than that; set a "
                      "smaller reserve, or choose another disk",
                      reserve);
    else
        cairn__notice(store,
                      "disk cache: nothing is stored for now: %s are free on the disk, and %s must stay free; what is "
                      "there is served",
                      left, reserve);
}

void cairn__store_set_low(cairn_store *store, bool low)
{
    pthread_mutex_lock(&store->lock);
    bool changed = store->low_space != low;
    store->low_space = low;
    pthread_mutex_unlock(&store->lock);
    if (changed && low)
        say_low(store);
    else if (changed)
        cairn__notice(store, "disk cache: there is room on the disk again, pages are stored");
}

void cairn__store_fail_writes(cairn_store *store)
{
    pthread_mutex_lock(&store->lock);
    bool changed = !store->write_failed;
    store->write_failed = true;
    pthread_mutex_unlock(&store->lock);
    if (changed)
        cairn__notice(store,
                      "disk cache: writing failed (%s): nothing is stored until the next start; what is there "
                      "is served",
                      cairn__os_error_text());
}

void cairn__store_say_blocked(cairn_store *store, const char *why)
{
    if (!atomic_load(&store->lost) && !atomic_exchange(&store->said_blocked, true))
        cairn__notice(store, "disk cache: nothing is stored for now: %s; what is there is served", why);
}

/* ---- what may be written a day ---- */

static uint32_t today(void)
{
    return (uint32_t)(cairn__wall_seconds() / 86400);
}

bool cairn__store_is_spent(cairn_store *store)
{
    return atomic_load_explicit(&store->spent_day, memory_order_relaxed) == today();
}

void cairn__store_set_spent(cairn_store *store)
{
    char     most[SIZE_TEXT];
    uint32_t day = today();
    if (atomic_exchange_explicit(&store->spent_day, day, memory_order_relaxed) != day)
        cairn__notice(store,
                      "disk cache: the %s that may be written a day are written; nothing more is stored until "
                      "midnight UTC",
                      size_text(store->day_bytes, most));
}

/* ---- a budget that is less than there is, or that no page fits ---- */

void cairn__store_say_fitted(cairn_store *store, uint64_t freed_bytes)
{
    char freed[SIZE_TEXT], most[SIZE_TEXT];
    size_text(freed_bytes, freed);
    size_text(store->budget_bytes, most);
    if (freed_bytes > 0)
        cairn__notice(store, "disk cache: %s were evicted: it had more than the %s that it may have", freed, most);
}

void cairn__store_say_small(cairn_store *store, uint64_t page_bytes)
{
    char           page[SIZE_TEXT], most[SIZE_TEXT];
    const uint64_t budget = store->budget_bytes;
    if (atomic_exchange_explicit(&store->small_budget, budget, memory_order_relaxed) == budget)
        return;
    size_text(page_bytes, page);
    cairn__notice(store,
                  "disk cache: one page takes %s, more than the %s that the cache may have, and is not stored; "
                  "give it more",
                  page, size_text(budget, most));
}

/* ---- a root that is gone ---- */

static bool marker_is_there(const cairn_store *store)
{
    cairn__file_info info;
    return cairn__stat(store->root.fd, CAIRN__ROOT_MARKER, &info) != CAIRN_ENOENT;
}

static cairn_status make_again(cairn_store *store, cairn_error *error)
{
    cairn__root  root = {.fd = -1};
    cairn_status status = cairn__root_open(store->root.path, &root, error);
    if (!status) /* lookups use the descriptor meanwhile: it changes under its number */
        status = cairn__replace(store->root.fd, root.fd);
    cairn__root_close(&root);
    return status;
}

bool cairn__store_check_root(cairn_store *store)
{
    cairn_error error = {{0}};
    if (marker_is_there(store)) {
        atomic_store(&store->lost, false);
        return true;
    }
    cairn_status status = make_again(store, &error);
    if (!status)
        cairn__notice(store, "disk cache: the folder %s was removed, and is there again, empty", store->root.path);
    else if (!atomic_load(&store->lost))
        cairn__notice(store, "disk cache off: the folder %s was removed and can't be made again: %s", store->root.path,
                      error.text[0] ? error.text : cairn_status_text(status));
    atomic_store(&store->lost, status != CAIRN_OK);
    return !status;
}

void cairn__store_suspect_root(cairn_store *store)
{
    cairn__file_info info;
    if (cairn__fstat(store->root.fd, &info) != CAIRN_OK || info.n_links > 0 || atomic_load(&store->lost))
        return;
    pthread_mutex_lock(&store->lock);
    store->root_suspect = true;
    pthread_cond_broadcast(&store->work);
    pthread_mutex_unlock(&store->lock);
}
