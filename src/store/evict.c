/* evict.c - pages that are worth least make place.
 *
 * A scan gives every page of the root, of all identities, with its parent: a
 * forest. Only leaves may go, so that what is left can always be reached; when a
 * page's last child went it becomes a leaf itself. Leaves wait in a heap by their
 * score (policy/evict.h). The forest is kept and used up over many calls: it is
 * scanned anew when nothing is left in it or it is older than MAX_AGE_NS, not for
 * each page. What it says may be out of date, so before a page is unlinked
 *   E1  it is looked at again: one used since is judged anew
 *   E2  its children are listed again: one that has some stays
 *   E3  one that is pinned here, or queued, or the parent of a queued one, stays
 *   E4  one that can't be unlinked is left out until the next scan
 * What another process published since the scan is not in it: that is newer than
 * nearly everything that is, and found by the next one. */
#include "store/forest.h"

#include "core/page_use.h"
#include "os/clock.h"
#include "store/ring.h"
#include "tier/remove.h"

#include <stdlib.h>
#include <string.h>

#define RING_EXTRA (UINT64_C(2) * 4096) /* its extent tree, and growth of the root's folder */
#define UNNOTED_MAX 1024u
#define MAX_AGE_NS (UINT64_C(600) * 1000 * 1000 * 1000)

/* ---- evicting one ---- */

typedef enum verdict { GONE, STAYS, LATER, AGAIN } verdict;

/* E2. In doubt it has some. */
static bool has_children(cairn_store *store, int identity_fd, const cairn__node *n)
{
    cairn_key       key = cairn__forest_key(n->name.key);
    cairn__listing *listing;
    int             folder_fd;
    cairn_status    status = cairn__disk_open_folder(identity_fd, &key, &folder_fd);
    if (status)
        return status != CAIRN_ENOENT;
    bool found = true;
    if (cairn__listing_get(store->listings, folder_fd, &listing) == CAIRN_OK) {
        found = false;
        for (size_t i = 0; i < listing->n_names && !found; i++)
            found = memcmp(listing->names[i].parent, n->name.key, sizeof(n->name.key)) == 0;
        cairn__listing_release(store->listings, listing);
    }
    cairn__close(folder_fd);
    return found;
}

/* Where there is no ring yet, keys wait for it: what goes makes the room for it. */
static void note_evicted(cairn_store *store, const uint8_t key[CAIRN__PAGE_NAME_KEY_SIZE])
{
    if (store->ring_fd >= 0) {
        cairn__ring_note(store->ring_fd, store->n_rings, key, cairn__wall_seconds());
        return;
    }
    if (!store->unnoted)
        store->unnoted = malloc(UNNOTED_MAX * sizeof(*store->unnoted));
    if (store->unnoted && store->n_unnoted < UNNOTED_MAX)
        memcpy(store->unnoted[store->n_unnoted++], key, CAIRN__PAGE_NAME_KEY_SIZE);
}

static verdict evict_from(cairn_store *store, cairn__evictor *ev, int identity_fd, int folder_fd, cairn__node *n,
                          uint64_t *freed)
{
    char             text[CAIRN__PAGE_NAME_SIZE];
    cairn__file_info info;
    cairn__page_name_format(&n->name, text);
    cairn_status status = cairn__stat(folder_fd, text, &info);
    if (status)
        return status == CAIRN_ENOENT ? GONE : STAYS;
    cairn__page_use use = cairn__page_use_of(info.mtime_ns);
    if (use.used_s > n->used_s || (n->unused && use.n_uses > 0)) { /* E1 */
        n->used_s = use.used_s > n->used_s ? use.used_s : n->used_s;
        n->unused = false;
        cairn__forest_judge(ev, n, cairn__wall_seconds());
        return AGAIN;
    }
    if (has_children(store, identity_fd, n))
        return STAYS;
    const bool counted = cairn__page_file_is_as_counted(&store->root, folder_fd, &n->name, &info);
    if (cairn__unlink(folder_fd, text) != CAIRN_OK) /* E4 */
        return STAYS;
    if (counted)
        *freed += info.disk_bytes;
    else
        cairn__ledger_freed_unsure(store->ledger);
    cairn__count(&store->counters.pages_evicted, 1);
    note_evicted(store, n->name.key);
    return GONE;
}

static uint64_t remove_folder_of(int identity_fd, const cairn_key *parent)
{
    char name[CAIRN__FANOUT_NAME_SIZE];
    cairn__fanout_name(parent, name);
    return cairn__remove_folder(identity_fd, name);
}

static verdict evict_node(cairn_store *store, cairn__evictor *ev, cairn__node *n, uint64_t *freed)
{
    cairn_key parent = cairn__forest_key(n->name.parent);
    int       identity_fd, folder_fd;
    if (cairn__store_is_pinned(store, n->name.key) || cairn__store_is_queued(store, n->name.key)) /* E3 */
        return LATER;
    cairn_status status = cairn__forest_open_identity(store, ev, n, &identity_fd);
    if (status)
        return status == CAIRN_ENOENT ? GONE : STAYS;
    status = cairn__disk_open_folder(identity_fd, &parent, &folder_fd);
    verdict v = status == CAIRN_ENOENT ? GONE : STAYS;
    if (!status) {
        v = evict_from(store, ev, identity_fd, folder_fd, n, freed);
        cairn__close(folder_fd);
        if (v == GONE)
            *freed += remove_folder_of(identity_fd, &parent);
    }
    cairn__close(identity_fd);
    return v;
}

/* A page costs about what the one behind it did: reading its header to know better
 * would be a disk access for each page that goes. */
static void lost_child(cairn__evictor *ev, const cairn__node *child, int64_t now_s)
{
    if (child->parent == CAIRN__NO_NODE || --ev->nodes[child->parent].n_children > 0)
        return;
    cairn__node *parent = &ev->nodes[child->parent];
    if (!parent->prefill_ns && child->disk_bytes)
        parent->prefill_ns =
            (uint64_t)((double)child->prefill_ns / (double)child->disk_bytes * (double)parent->disk_bytes);
    cairn__forest_judge(ev, parent, now_s);
    cairn__forest_push(ev, child->parent);
}

/* The last page of an identity went: its folder and text follow, of which nothing says
 * how they were counted. */
static void lost_page(cairn_store *store, cairn__evictor *ev, uint32_t identity)
{
    int pages_fd;
    if (--ev->identities[identity].n_pages > 0 ||
        cairn__open_dir(store->root.fd, CAIRN__ROOT_PAGES, &pages_fd) != CAIRN_OK)
        return;
    if (cairn__remove_identity(pages_fd, ev->identities[identity].text) > 0)
        cairn__ledger_freed_unsure(store->ledger);
    cairn__close(pages_fd);
}

/* Frees from the forest as it is. Pages to be judged later are put back at the end. */
static uint64_t evict_known(cairn_store *store, cairn__evictor *ev, uint64_t bytes)
{
    uint64_t  freed = 0;
    int64_t   now_s = cairn__wall_seconds();
    uint32_t *later = malloc((ev->n_heap + (size_t)1) * sizeof(*later));
    uint32_t  n_later = 0, later_room = later ? ev->n_heap : 0;
    while (freed < bytes && ev->n_heap > 0) {
        uint32_t i = cairn__forest_pop(ev);
        switch (evict_node(store, ev, &ev->nodes[i], &freed)) {
        case GONE:
            lost_child(ev, &ev->nodes[i], now_s);
            lost_page(store, ev, ev->nodes[i].identity);
            break;
        case AGAIN:
            cairn__forest_push(ev, i);
            break;
        case LATER:
            if (n_later < later_room)
                later[n_later++] = i;
            break;
        case STAYS:
            break;
        }
    }
    while (n_later > 0)
        cairn__forest_push(ev, later[--n_later]);
    free(later);
    return freed;
}

/* ---- the whole ---- */

static bool is_stale(const cairn__evictor *ev)
{
    return !ev || ev->n_heap == 0 || cairn__monotonic_ns() - ev->built_ns > MAX_AGE_NS;
}

static void rebuild(cairn_store *store)
{
    cairn__evictor_destroy(store->evictor);
    store->evictor = cairn__forest_build(store);
}

static void open_ring(cairn_store *store)
{
    if (cairn__ring_open(store->root.fd, true, &store->ring_fd, &store->n_rings) != CAIRN_OK)
        store->ring_fd = -1;
}

static void close_ring(cairn_store *store)
{
    cairn__close(store->ring_fd);
    store->ring_fd = -1;
}

/* What goes is told to the ledger at once, with the count that it is based on: the
 * same bytes must not be gone twice. */
static uint64_t evict_some(cairn_store *store, uint64_t bytes)
{
    uint64_t last_count = cairn__ledger_last_count(store->ledger);
    open_ring(store);
    uint64_t freed = store->evictor ? evict_known(store, store->evictor, bytes) : 0;
    close_ring(store);
    cairn__ledger_freed(store->ledger, freed, last_count);
    return freed;
}

/* True: there is none, or no longer one that is of no use. */
static bool wants_ring(cairn_store *store)
{
    cairn__file_info info;
    uint32_t         n_rings;
    int              fd = -1;
    cairn_status     status = cairn__ring_open(store->root.fd, true, &fd, &n_rings);
    cairn__close(fd);
    if (status != CAIRN_ENOENT)
        return false;
    if (cairn__stat(store->root.fd, CAIRN__RING_FILE, &info) == CAIRN_ENOENT)
        return true;
    if (cairn__unlink(store->root.fd, CAIRN__RING_FILE) != CAIRN_OK)
        return false;
    cairn__ledger_freed_unsure(store->ledger);
    return true;
}

/* The ring of evicted keys is made when there is something to note and room for it;
 * a tool uses one that is there. */
static void make_ring(cairn_store *store)
{
    uint64_t             made = 0, missing;
    uint32_t             size = cairn__ring_file_size(store->budget_bytes);
    cairn__ledger_limits limits = {.budget_bytes = store->budget_bytes};
    const uint64_t       reserved = size + RING_EXTRA;
    if (!store->has_writer || size == 0 || !wants_ring(store) ||
        cairn__ledger_reserve(store->ledger, reserved, &limits, &missing) != CAIRN_OK)
        return;
    cairn_status status = cairn__ring_create(store->root.fd, size, &made);
    cairn__ledger_commit(store->ledger, reserved, status ? made : made + RING_EXTRA / 2);
}

static void note_late(cairn_store *store)
{
    if (store->n_unnoted == 0)
        return;
    open_ring(store);
    if (store->ring_fd < 0)
        return;
    while (store->n_unnoted > 0)
        note_evicted(store, store->unnoted[--store->n_unnoted]);
    close_ring(store);
}

/* What restores cost is kept for whoever evicts next. */
static void pass_on_price(cairn_store *store)
{
    uint64_t own = atomic_load(&store->restore_ps);
    if (own && own != cairn__ledger_restore_ps(store->ledger))
        cairn__ledger_note_restore_ps(store->ledger, (uint32_t)own);
}

uint64_t cairn__empty_quarantine(cairn_store *store)
{
    uint64_t freed = cairn__quarantine_trim(&store->root, 0);
    if (freed > 0)
        cairn__ledger_freed_unsure(store->ledger);
    return freed;
}

uint64_t cairn__evict(cairn_store *store, uint64_t bytes)
{
    uint64_t freed = cairn__empty_quarantine(store);
    bool     fresh = freed > 0 || is_stale(store->evictor);
    pass_on_price(store);
    if (fresh)
        rebuild(store); /* which counts: else pages would have to go for what is free already */
    if (freed >= bytes)
        return freed;
    freed += evict_some(store, bytes - freed);
    if (!fresh && freed < bytes) {
        rebuild(store);
        freed += evict_some(store, bytes - freed);
    }
    make_ring(store);
    note_late(store);
    return freed;
}
