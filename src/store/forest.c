/* forest.c - see forest.h.
 *
 * The order between pages that cost differently to compute needs their headers;
 * they are read for the leaves used longest ago, up to MAX_HEADERS; a page that
 * becomes a leaf costs what the one behind it did, and the others count as
 * average, as do those that are encrypted with another key. An orphan (parent gone)
 * can't be reached and goes first, once it is old enough not to be half of somebody's
 * batch; so do the pages of an identity that no process has opened for STALE_S. */
#include "store/forest.h"

#include "core/page_use.h"
#include "os/clock.h"
#include "policy/evict.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PAGES (UINT32_MAX / 4)
#define MAX_HEADERS 1024u /* 10 ms of opens when warm, some seconds from a disk that turns */
#define ORPHAN_AGE_S 60
#define STALE_S (INT64_C(30) * 86400) /* guess: longer than any pause of a model that is still in use */
#define DEFAULT_NS_PER_BYTE 1.0       /* only ever compared with itself */

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
void cairn__forest_push(cairn__evictor *ev, uint32_t index)
{
    uint32_t at = ev->n_heap++;
    ev->heap[at] = index;
    for (; at > 0 && lower(ev, at, (at - 1) / 2); at = (at - 1) / 2)
        swap(ev, at, (at - 1) / 2);
}

uint32_t cairn__forest_pop(cairn__evictor *ev)
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

void cairn__forest_judge(const cairn__evictor *ev, cairn__node *n, int64_t now_s)
{
    cairn__evict_case c = {.disk_bytes = n->disk_bytes,
                           .prefill_ns = n->prefill_ns,
                           .restore_ns = (uint64_t)((double)n->disk_bytes * (double)ev->restore_ps / 1000.0),
                           .used_s = n->used_s,
                           .default_ns_per_byte = ev->ns_per_byte,
                           .unused = n->unused,
                           .unwanted = n->orphan || ev->identities[n->identity].stale};
    n->score = cairn__evict_score(&c, now_s);
}

/* ---- building: what the scan saw ---- */

static uint32_t identity_index(cairn__evictor *ev, const char *text)
{
    if (strlen(text) != CAIRN__IDENTITY_NAME_SIZE - 1)
        return CAIRN__NO_NODE;
    /* The scan goes identity by identity. */
    if (ev->n_identities && strcmp(ev->identities[ev->n_identities - 1].text, text) == 0)
        return ev->n_identities - 1;
    if (ev->n_identities == ev->identity_room) {
        uint32_t                room = ev->identity_room * 2 + 8;
        cairn__forest_identity *identities = realloc(ev->identities, room * sizeof(*identities));
        if (!identities)
            return CAIRN__NO_NODE;
        ev->identities = identities;
        ev->identity_room = room;
    }
    ev->identities[ev->n_identities] = (cairn__forest_identity){.n_pages = 0};
    memcpy(ev->identities[ev->n_identities].text, text, CAIRN__IDENTITY_NAME_SIZE);
    return ev->n_identities++;
}

static bool see_page(void *ctx, const cairn__scan_page *page)
{
    cairn__evictor *ev = ctx;
    uint32_t        identity = identity_index(ev, page->identity);
    if (identity == CAIRN__NO_NODE)
        return true;
    if (ev->n_nodes == ev->room) {
        uint32_t     room = ev->room * 2 + 256;
        cairn__node *nodes = room < MAX_PAGES ? realloc(ev->nodes, room * sizeof(*nodes)) : NULL;
        if (!nodes)
            return true; /* evict among those that are known */
        ev->nodes = nodes;
        ev->room = room;
    }
    cairn__page_use         use = cairn__page_use_of(page->info->mtime_ns);
    cairn__forest_identity *id = &ev->identities[identity];
    id->n_pages++;
    id->has_checkpoints = id->has_checkpoints || page->name->is_checkpoint;
    id->has_others = id->has_others || !page->name->is_checkpoint;
    id->used_s = use.used_s > id->used_s ? use.used_s : id->used_s;
    ev->nodes[ev->n_nodes++] = (cairn__node){.name = *page->name,
                                             .identity = identity,
                                             .parent = CAIRN__NO_NODE,
                                             .disk_bytes = page->info->disk_bytes,
                                             .unused = use.n_uses == 0,
                                             .used_s = use.used_s};
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
    for (uint32_t at = hash(identity, key) & mask; table[at] != CAIRN__NO_NODE; at = (at + 1) & mask) {
        const cairn__node *n = &ev->nodes[table[at]];
        if (n->identity == identity && memcmp(n->name.key, key, sizeof(n->name.key)) == 0)
            return table[at];
    }
    return CAIRN__NO_NODE;
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
        while (table[at] != CAIRN__NO_NODE)
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
        cairn__node *n = &ev->nodes[i];
        cairn__forest_identity *id = &ev->identities[n->identity];
        if (memcmp(n->name.parent, first, sizeof(first)) == 0) {
            id->leads_on = id->leads_on || n->name.is_checkpoint;
            continue;
        }
        n->parent = find_node(ev, table, mask, n->identity, n->name.parent);
        if (n->parent == i) /* its own parent: no hash is, so somebody made it up */
            n->parent = CAIRN__NO_NODE;
        if (n->parent != CAIRN__NO_NODE) {
            ev->nodes[n->parent].n_children++;
            ev->nodes[n->parent].leads_on = ev->nodes[n->parent].leads_on || n->name.is_checkpoint;
        } else if (!n->name.is_checkpoint || id->has_others) { /* else a model without pages */
            n->orphan = now_s - n->used_s >= ORPHAN_AGE_S;
        }
    }
    free(table);
    return true;
}

/* Where there are checkpoints a page serves only those that lie behind it or in it;
 * the last page of a branch without any is of no use. Not while it is new: the
 * checkpoint may be on its way. */
static void find_useless(cairn__evictor *ev, int64_t now_s)
{
    for (uint32_t i = 0; i < ev->n_nodes; i++) {
        cairn__node                  *n = &ev->nodes[i];
        const cairn__forest_identity *id = &ev->identities[n->identity];
        bool leads_on = n->parent == CAIRN__NO_NODE ? id->leads_on : ev->nodes[n->parent].leads_on;
        if (id->has_checkpoints && !n->name.is_checkpoint && n->n_children == 0 && !leads_on &&
            now_s - n->used_s >= ORPHAN_AGE_S)
            n->orphan = true;
    }
}

enum { UNKNOWN, CLIMBING, REACHED, LOST }; /* of cairn__node.reach */

/* What lies behind an orphan can't be reached either. Names may be made up, so a
 * chain may bite its own tail: nobody reaches that. */
static void find_lost(cairn__evictor *ev)
{
    for (uint32_t i = 0; i < ev->n_nodes; i++) {
        uint32_t top = i, p = i;
        for (; p != CAIRN__NO_NODE && ev->nodes[p].reach == UNKNOWN; p = ev->nodes[p].parent) {
            ev->nodes[p].reach = CLIMBING;
            top = p;
        }
        uint8_t verdict = p == CAIRN__NO_NODE              ? (ev->nodes[top].orphan ? LOST : REACHED)
                          : ev->nodes[p].reach == CLIMBING ? LOST
                                                           : ev->nodes[p].reach;
        for (p = i; p != CAIRN__NO_NODE && ev->nodes[p].reach == CLIMBING; p = ev->nodes[p].parent) {
            ev->nodes[p].reach = verdict;
            ev->nodes[p].orphan = verdict == LOST;
        }
    }
}

/* A use of a page is one of all before it, though only the page's own time is
 * touched: else a system prompt would go right after the last of its tails. And two
 * that begin alike have used what they share. */
static void pass_use_up(cairn__evictor *ev)
{
    for (uint32_t i = 0; i < ev->n_nodes; i++) {
        int64_t used_s = ev->nodes[i].used_s;
        ev->nodes[i].unused &= ev->nodes[i].n_children < 2;
        for (uint32_t p = ev->nodes[i].parent; p != CAIRN__NO_NODE && ev->nodes[p].used_s < used_s;
             p = ev->nodes[p].parent)
            ev->nodes[p].used_s = used_s;
    }
    for (uint32_t i = 0; i < ev->n_nodes; i++)
        if (!ev->nodes[i].unused)
            for (uint32_t p = ev->nodes[i].parent; p != CAIRN__NO_NODE && ev->nodes[p].unused; p = ev->nodes[p].parent)
                ev->nodes[p].unused = false;
}

/* The time of an identity's folder is when somebody last opened it (lookup.c). */
static void find_stale(const cairn_store *store, cairn__evictor *ev, int64_t now_s)
{
    int pages_fd;
    if (cairn__open_dir(store->root.fd, CAIRN__ROOT_PAGES, &pages_fd) != CAIRN_OK)
        return;
    for (uint32_t i = 0; i < ev->n_identities; i++) {
        cairn__forest_identity *id = &ev->identities[i];
        cairn__file_info        info;
        if (cairn__stat(pages_fd, id->text, &info) != CAIRN_OK)
            continue;
        int64_t opened_s = info.mtime_ns / INT64_C(1000000000);
        id->used_s = opened_s > id->used_s ? opened_s : id->used_s;
        id->stale = now_s - id->used_s > STALE_S;
    }
    cairn__close(pages_fd);
}

/* ---- building: prices ---- */

cairn_status cairn__forest_open_identity(const cairn_store *store, const cairn__evictor *ev, const cairn__node *n,
                                         int *ret_fd)
{
    return cairn__disk_open_identity_named(&store->root, ev->identities[n->identity].text, ret_fd);
}

/* Folders depend on the first bytes of a key alone, which names have. */
cairn_key cairn__forest_key(const uint8_t bytes[CAIRN__PAGE_NAME_KEY_SIZE])
{
    cairn_key key = {{0}};
    memcpy(key.bytes, bytes, CAIRN__PAGE_NAME_KEY_SIZE);
    return key;
}

/* A page sealed under another key is one of those that count as average. */
static uint64_t prefill_ns_of(const cairn_store *store, uint8_t *buf, uint32_t size)
{
    cairn__page_header header;
    cairn_status       status = cairn__page_peek(buf, size, &header);
    if (status || (header.sealed && !store->keyring))
        return 0;
    status = header.sealed ? cairn__page_decode_sealed(store->keyring, buf, size, &header)
                           : cairn__page_decode(buf, size, &header);
    return status ? 0 : header.prefill_ns;
}

static uint64_t read_prefill_ns(const cairn_store *store, const cairn__evictor *ev, const cairn__node *n)
{
    uint8_t   buf[CAIRN__PAGE_HEADER_SIZE_MAX];
    char      text[CAIRN__PAGE_NAME_SIZE];
    cairn_key parent = cairn__forest_key(n->name.parent);
    uint32_t  size = 0;
    int       identity_fd = -1, folder_fd = -1, fd = -1;
    cairn__page_name_format(&n->name, text);
    cairn_status status = cairn__forest_open_identity(store, ev, n, &identity_fd);
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
    cairn__close(fd);
    cairn__close(folder_fd);
    cairn__close(identity_fd);
    return status ? 0 : prefill_ns_of(store, buf, size);
}

static int by_use(const void *a, const void *b)
{
    const cairn__node *const *x = a, *const *y = b;
    return (*x)->used_s < (*y)->used_s ? -1 : (*x)->used_s > (*y)->used_s;
}

static bool read_prices(const cairn_store *store, cairn__evictor *ev)
{
    cairn__node **leaves = malloc((ev->n_nodes + (size_t)1) * sizeof(*leaves));
    uint32_t      n = 0;
    double        ns = 0, bytes = 0;
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

cairn__evictor *cairn__forest_build(cairn_store *store)
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
    find_lost(ev);
    find_useless(ev, now_s);
    pass_use_up(ev);
    find_stale(store, ev, now_s);
    ev->restore_ps = cairn__restore_price(store);
    for (uint32_t i = 0; i < ev->n_nodes; i++) {
        cairn__forest_judge(ev, &ev->nodes[i], now_s);
        if (ev->nodes[i].n_children == 0)
            cairn__forest_push(ev, i);
    }
    ev->built_ns = cairn__monotonic_ns();
    return ev;
}
