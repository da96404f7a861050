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
 * nearly everything that is, and found by the next one.
 *
 * The order between pages that cost differently to compute needs their headers;
 * they are read for the leaves used longest ago, up to MAX_HEADERS, and the others
 * count as average. An orphan (parent gone) can't be reached and goes first, once
 * it is old enough not to be half of somebody's batch. */
#include "store/internal.h"

#include "os/clock.h"
#include "policy/evict.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define MAX_PAGES (UINT32_MAX / 4)
#define MAX_HEADERS 4096u /* 40 ms of opens when warm */
#define MAX_AGE_NS (UINT64_C(600) * 1000 * 1000 * 1000)
#define ORPHAN_AGE_S 60
#define DEFAULT_NS_PER_BYTE 1.0 /* only ever compared with itself */

typedef struct node {
    cairn__page_name name;
    uint32_t         identity; /* index */
    uint32_t         parent;   /* index, or NONE: first page, or orphan */
    uint32_t         n_children;
    bool             orphan;
    uint64_t         disk_bytes, prefill_ns;
    int64_t          used_s;
    double           score;
} node;

typedef struct identity_name {
    char text[CAIRN__IDENTITY_NAME_SIZE];
} identity_name;

struct cairn__evictor {
    node          *nodes;
    uint32_t       n_nodes, room;
    identity_name *identities;
    uint32_t       n_identities, identity_room;
    uint32_t      *heap; /* indices of leaves, lowest score first */
    uint32_t       n_heap;
    uint64_t       built_ns;
    double         ns_per_byte;
};

void cairn__evictor_destroy(cairn__evictor *ev)
{
    if (!ev)
        return;
    free(ev->nodes);
    free(ev->identities);
    free(ev->heap);
    free(ev);
}

/* ---- heap ---- */

static bool lower(const cairn__evictor *ev, uint32_t a, uint32_t b)
{
    return ev->nodes[ev->heap[a]].score < ev->nodes[ev->heap[b]].score;
}

static void swap(cairn__evictor *ev, uint32_t a, uint32_t b)
{
    uint32_t t = ev->heap[a];
    ev->heap[a] = ev->heap[b];
    ev->heap[b] = t;
}

/* A node is in the heap at most once, so it never holds more than n_nodes. */
static void push(cairn__evictor *ev, uint32_t index)
{
    uint32_t at = ev->n_heap++;
    ev->heap[at] = index;
    for (; at > 0 && lower(ev, at, (at - 1) / 2); at = (at - 1) / 2)
        swap(ev, at, (at - 1) / 2);
}

static uint32_t pop(cairn__evictor *ev)
{
    uint32_t top = ev->heap[0]; /* NOLINT(clang-analyzer-core.uninitialized.Assign): the heap is not empty */
    ev->heap[0] = ev->heap[--ev->n_heap];
    for (uint32_t at = 0;;) {
        uint32_t low = at, left = 2 * at + 1;
        if (left < ev->n_heap && lower(ev, left, low))
            low = left;
        if (left + 1 < ev->n_heap && lower(ev, left + 1, low))
            low = left + 1;
        if (low == at)
            return top;
        swap(ev, at, low);
        at = low;
    }
}

static void judge(const cairn__evictor *ev, node *n, int64_t now_s)
{
    cairn__evict_case c = {.disk_bytes = n->disk_bytes,
                           .prefill_ns = n->prefill_ns,
                           .used_s = n->used_s,
                           .default_ns_per_byte = ev->ns_per_byte};
    n->score = n->orphan ? -1.0 : cairn__evict_score(&c, now_s);
}

/* ---- building: what the scan saw ---- */

static uint32_t identity_index(cairn__evictor *ev, const char *text)
{
    identity_name name = {{0}};
    if (strlen(text) != sizeof(name.text) - 1)
        return NONE;
    memcpy(name.text, text, sizeof(name.text) - 1);
    /* The scan goes identity by identity. */
    if (ev->n_identities && memcmp(&ev->identities[ev->n_identities - 1], &name, sizeof(name)) == 0)
        return ev->n_identities - 1;
    if (ev->n_identities == ev->identity_room) {
        uint32_t       room = ev->identity_room * 2 + 8;
        identity_name *identities = realloc(ev->identities, room * sizeof(*identities));
        if (!identities)
            return NONE;
        ev->identities = identities;
        ev->identity_room = room;
    }
    ev->identities[ev->n_identities] = name;
    return ev->n_identities++;
}

static bool see_page(void *ctx, const cairn__scan_page *page)
{
    cairn__evictor *ev = ctx;
    uint32_t        identity = identity_index(ev, page->identity);
    if (identity == NONE)
        return true;
    if (ev->n_nodes == ev->room) {
        uint32_t room = ev->room * 2 + 256;
        node    *nodes = room < MAX_PAGES ? realloc(ev->nodes, room * sizeof(*nodes)) : NULL;
        if (!nodes)
            return true; /* evict among those that are known */
        ev->nodes = nodes;
        ev->room = room;
    }
    ev->nodes[ev->n_nodes++] = (node){.name = *page->name,
                                      .identity = identity,
                                      .parent = NONE,
                                      .disk_bytes = page->info->disk_bytes,
                                      .used_s = page->info->mtime_ns / INT64_C(1000000000)};
    return true;
}

/* ---- building: the forest ---- */

/* Keys are cryptographic hashes: any of their bits will do. */
static uint32_t hash(uint32_t identity, const uint8_t *key)
{
    uint32_t h;
    memcpy(&h, key, sizeof(h));
    return h ^ identity * 2654435761u;
}

static uint32_t find_node(const cairn__evictor *ev, const uint32_t *table, uint32_t mask, uint32_t identity,
                          const uint8_t *key)
{
    for (uint32_t at = hash(identity, key) & mask; table[at] != NONE; at = (at + 1) & mask) {
        const node *n = &ev->nodes[table[at]];
        if (n->identity == identity && memcmp(n->name.key, key, sizeof(n->name.key)) == 0)
            return table[at];
    }
    return NONE;
}

static uint32_t *index_nodes(const cairn__evictor *ev, uint32_t *ret_mask)
{
    uint32_t size = 16;
    while (size < ev->n_nodes * 2)
        size *= 2;
    uint32_t *table = malloc(size * sizeof(*table));
    if (!table)
        return NULL;
    memset(table, 0xff, size * sizeof(*table));
    for (uint32_t i = 0; i < ev->n_nodes; i++) {
        uint32_t at = hash(ev->nodes[i].identity, ev->nodes[i].name.key) & (size - 1);
        while (table[at] != NONE)
            at = (at + 1) & (size - 1);
        table[at] = i;
    }
    *ret_mask = size - 1;
    return table;
}

static bool link_nodes(cairn__evictor *ev, int64_t now_s)
{
    static const uint8_t first[CAIRN__PAGE_NAME_KEY_SIZE];
    uint32_t             mask;
    uint32_t            *table = index_nodes(ev, &mask);
    if (!table)
        return false;
    for (uint32_t i = 0; i < ev->n_nodes; i++) {
        node *n = &ev->nodes[i];
        if (memcmp(n->name.parent, first, sizeof(first)) == 0)
            continue;
        n->parent = find_node(ev, table, mask, n->identity, n->name.parent);
        if (n->parent == i) /* its own parent: no hash is, so somebody made it up */
            n->parent = NONE;
        if (n->parent != NONE)
            ev->nodes[n->parent].n_children++;
        else
            n->orphan = now_s - n->used_s >= ORPHAN_AGE_S;
    }
    free(table);
    return true;
}

/* A use of a page is one of all before it, though only the page's own time is
 * touched: else a system prompt would go right after the last of its tails. */
static void pass_use_up(cairn__evictor *ev)
{
    for (uint32_t i = 0; i < ev->n_nodes; i++) {
        int64_t used_s = ev->nodes[i].used_s;
        for (uint32_t p = ev->nodes[i].parent; p != NONE && ev->nodes[p].used_s < used_s; p = ev->nodes[p].parent)
            ev->nodes[p].used_s = used_s;
    }
}

/* ---- building: prices ---- */

static cairn_status open_identity(const cairn_store *store, const cairn__evictor *ev, const node *n, int *ret_fd)
{
    int          pages_fd;
    cairn_status status = cairn__open_dir(store->root.fd, CAIRN__ROOT_PAGES, &pages_fd);
    if (status)
        return status;
    status = cairn__open_dir(pages_fd, ev->identities[n->identity].text, ret_fd);
    cairn__close(pages_fd);
    return status;
}

/* Folders depend on the first bytes of a key alone, which names have. */
static cairn_key key_of(const uint8_t bytes[CAIRN__PAGE_NAME_KEY_SIZE])
{
    cairn_key key = {{0}};
    memcpy(key.bytes, bytes, CAIRN__PAGE_NAME_KEY_SIZE);
    return key;
}

static uint64_t read_prefill_ns(const cairn_store *store, const cairn__evictor *ev, const node *n)
{
    uint8_t            buf[CAIRN__PAGE_HEADER_SIZE_MAX];
    char               text[CAIRN__PAGE_NAME_SIZE];
    cairn_key          parent = key_of(n->name.parent);
    cairn__page_header header = {.prefill_ns = 0};
    uint32_t           size;
    int                identity_fd = -1, folder_fd = -1, fd = -1;
    cairn__page_name_format(&n->name, text);
    cairn_status status = open_identity(store, ev, n, &identity_fd);
    if (!status)
        status = cairn__disk_open_folder(identity_fd, &parent, &folder_fd);
    if (!status)
        status = cairn__open_read(folder_fd, text, &fd);
    if (!status)
        status = cairn__read_at(fd, buf, CAIRN__PAGE_FIXED_SIZE, 0);
    if (!status)
        status = cairn__page_header_size_peek(buf, CAIRN__PAGE_FIXED_SIZE, &size);
    if (!status)
        status = cairn__read_at(fd, buf, size, 0);
    if (!status)
        status = cairn__page_decode(buf, size, &header);
    cairn__close(fd);
    cairn__close(folder_fd);
    cairn__close(identity_fd);
    return status ? 0 : header.prefill_ns;
}

static int by_use(const void *a, const void *b)
{
    const node *const *x = a, *const *y = b;
    return (*x)->used_s < (*y)->used_s ? -1 : (*x)->used_s > (*y)->used_s;
}

static bool read_prices(const cairn_store *store, cairn__evictor *ev)
{
    node   **leaves = malloc((ev->n_nodes + (size_t)1) * sizeof(*leaves));
    uint32_t n = 0;
    double   ns = 0, bytes = 0;
    if (!leaves)
        return false;
    for (uint32_t i = 0; i < ev->n_nodes; i++)
        if (ev->nodes[i].n_children == 0)
            leaves[n++] = &ev->nodes[i];
    qsort(leaves, n, sizeof(*leaves), by_use);
    for (uint32_t i = 0; i < n && i < MAX_HEADERS; i++) {
        leaves[i]->prefill_ns = read_prefill_ns(store, ev, leaves[i]);
        if (leaves[i]->prefill_ns == 0)
            continue;
        ns += (double)leaves[i]->prefill_ns;
        bytes += (double)leaves[i]->disk_bytes;
    }
    ev->ns_per_byte = bytes > 0 ? ns / bytes : DEFAULT_NS_PER_BYTE;
    free(leaves);
    return true;
}

static cairn__evictor *build(cairn_store *store)
{
    int64_t             now_s = cairn__wall_seconds();
    cairn__evictor     *ev = calloc(1, sizeof(*ev));
    cairn__scan_request request = {.stat_files = true, .page = see_page, .ctx = ev};
    cairn__scan_result  result;
    bool                counted;
    if (!ev)
        return NULL;
    bool ok = cairn__store_scan(store, request, true, &result, &counted) == CAIRN_OK && link_nodes(ev, now_s) &&
              read_prices(store, ev);
    if (ok)
        ev->heap = malloc((ev->n_nodes + (size_t)1) * sizeof(*ev->heap));
    if (!ok || !ev->heap) {
        cairn__evictor_destroy(ev);
        return NULL;
    }
    pass_use_up(ev);
    for (uint32_t i = 0; i < ev->n_nodes; i++) {
        judge(ev, &ev->nodes[i], now_s);
        if (ev->nodes[i].n_children == 0)
            push(ev, i);
    }
    ev->built_ns = cairn__monotonic_ns();
    return ev;
}

/* ---- evicting one ---- */

typedef enum verdict { GONE, STAYS, LATER, AGAIN } verdict;

/* E2. In doubt it has some. */
static bool has_children(cairn_store *store, int identity_fd, const node *n)
{
    cairn_key       key = key_of(n->name.key);
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

/* A root with 4,096 empty folders for each identity would fill a small budget. */
static uint64_t remove_empty_folder(int identity_fd, const cairn_key *parent)
{
    char             name[CAIRN__FANOUT_NAME_SIZE];
    cairn__file_info info;
    cairn__fanout_name(parent, name);
    if (cairn__stat(identity_fd, name, &info) != CAIRN_OK || cairn__remove_dir(identity_fd, name) != CAIRN_OK)
        return 0;
    return info.disk_bytes;
}

static verdict evict_from(cairn_store *store, cairn__evictor *ev, int identity_fd, int folder_fd, node *n,
                          uint64_t *freed)
{
    char             text[CAIRN__PAGE_NAME_SIZE];
    cairn__file_info info;
    cairn__page_name_format(&n->name, text);
    cairn_status status = cairn__stat(folder_fd, text, &info);
    if (status)
        return status == CAIRN_ENOENT ? GONE : STAYS;
    int64_t used_s = info.mtime_ns / INT64_C(1000000000);
    if (used_s > n->used_s) { /* E1 */
        n->used_s = used_s;
        judge(ev, n, cairn__wall_seconds());
        return AGAIN;
    }
    if (has_children(store, identity_fd, n))
        return STAYS;
    if (cairn__unlink(folder_fd, text) != CAIRN_OK) /* E4 */
        return STAYS;
    *freed += info.disk_bytes;
    cairn__count(&store->counters.pages_evicted, 1);
    return GONE;
}

static verdict evict_node(cairn_store *store, cairn__evictor *ev, node *n, uint64_t *freed)
{
    cairn_key parent = key_of(n->name.parent);
    int       identity_fd, folder_fd;
    if (cairn__store_is_pinned(store, n->name.key) || cairn__store_is_queued(store, n->name.key)) /* E3 */
        return LATER;
    cairn_status status = open_identity(store, ev, n, &identity_fd);
    if (status)
        return status == CAIRN_ENOENT ? GONE : STAYS;
    status = cairn__disk_open_folder(identity_fd, &parent, &folder_fd);
    verdict v = status == CAIRN_ENOENT ? GONE : STAYS;
    if (!status) {
        v = evict_from(store, ev, identity_fd, folder_fd, n, freed);
        cairn__close(folder_fd);
        if (v == GONE)
            *freed += remove_empty_folder(identity_fd, &parent);
    }
    cairn__close(identity_fd);
    return v;
}

static void lost_child(cairn__evictor *ev, uint32_t parent, int64_t now_s)
{
    if (parent == NONE || --ev->nodes[parent].n_children > 0)
        return;
    judge(ev, &ev->nodes[parent], now_s);
    push(ev, parent);
}

/* Frees from the forest as it is. Pages to be judged later are put back at the end. */
static uint64_t evict_known(cairn_store *store, cairn__evictor *ev, uint64_t bytes)
{
    uint64_t  freed = 0;
    int64_t   now_s = cairn__wall_seconds();
    uint32_t *later = malloc((ev->n_heap + (size_t)1) * sizeof(*later));
    uint32_t  n_later = 0, later_room = later ? ev->n_heap : 0;
    while (freed < bytes && ev->n_heap > 0) {
        uint32_t i = pop(ev);
        switch (evict_node(store, ev, &ev->nodes[i], &freed)) {
        case GONE:
            lost_child(ev, ev->nodes[i].parent, now_s);
            break;
        case AGAIN:
            push(ev, i);
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
        push(ev, later[--n_later]);
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
    store->evictor = build(store);
}

/* Told to the ledger at once: a count that comes after must not see the same bytes
 * gone twice. */
static uint64_t account(cairn_store *store, uint64_t freed)
{
    cairn__ledger_freed(store->ledger, freed);
    return freed;
}

static uint64_t evict_some(cairn_store *store, uint64_t bytes)
{
    return store->evictor ? account(store, evict_known(store, store->evictor, bytes)) : 0;
}

uint64_t cairn__evict(cairn_store *store, uint64_t bytes)
{
    uint64_t freed = account(store, cairn__quarantine_trim(&store->root, 0));
    bool     fresh = is_stale(store->evictor);
    if (freed >= bytes)
        return freed;
    if (fresh)
        rebuild(store);
    freed += evict_some(store, bytes - freed);
    if (!fresh && freed < bytes) {
        rebuild(store);
        freed += evict_some(store, bytes - freed);
    }
    return freed;
}
