/* tool.c - see tool.h.
 *
 * `clear` goes folder by folder: pages are unlinked where they lie, so that whoever
 * reads one keeps it until it is closed. Temporary files are left to the count that
 * follows, which removes those of dead processes: a living writer publishes what it
 * has begun into a folder that is still there, since a folder with a file in it
 * can't be removed. Each folder's bytes are told to the ledger at once. */
#include "store/tool.h"

#include "store/ring.h"
#include "tier/names.h"
#include "tier/remove.h"

#include <stdio.h>
#include <string.h>

#define PRUNE_ROUNDS 16 /* others may write as fast as we evict; a bound, not a tuning */

static cairn_status open_parts(cairn_store *store, const char *root, bool ledger, cairn_error *error)
{
    cairn_status status = cairn__root_open_existing(root, &store->root, error);
    if (!status)
        status = cairn__listings_create(&store->listings);
    if (!status && ledger) {
        status = cairn__ledger_open(store->root.fd, &store->ledger);
        if (status && error)
            snprintf(error->text, sizeof(error->text),
                     "cannot use the file ledger in the cache directory %s: %s (verify --dry-run does without)",
                     store->root.path, cairn_status_text(status));
    }
    return status;
}

cairn_status cairn__tool_open(const char *root, bool ledger, cairn_store **ret_store, cairn_error *error)
{
    cairn_store *store = cairn__store_alloc();
    if (!store)
        return CAIRN_ENOMEM;
    store->page_tokens = CAIRN__PAGE_TOKENS_MAX;
    store->budget_bytes = UINT64_MAX;
    cairn_status status = open_parts(store, root, ledger, error);
    if (status)
        cairn_store_close(store);
    else
        *ret_store = store;
    return status;
}

cairn_status cairn__tool_set_key(cairn_store *store, const uint8_t key[CAIRN__SECRET_SIZE])
{
    cairn_status status = cairn__keyring_create(key, &store->keyring);
    store->root.keyring = store->keyring;
    return status;
}

/* ---- clear ---- */

typedef struct clearing {
    cairn_store       *store;
    cairn__tool_result result;
    cairn_status       status;
    const char        *identity, *fanout; /* folders it is in */
} clearing;

/* Calls `each` for all folders in dir_fd whose names are of `size` hex digits. */
static void for_folders(clearing *c, int dir_fd, size_t size, void (*each)(clearing *c, int dir_fd, const char *name))
{
    cairn__names names;
    const char  *name = NULL;
    cairn_status status = cairn__names_read(dir_fd, &names);
    if (status && status != CAIRN_ENOENT)
        c->status = status;
    while (!status && (name = cairn__names_next(&names, name)) != NULL)
        if (strlen(name) == size && strspn(name, "0123456789abcdef") == size)
            each(c, dir_fd, name);
    cairn__names_done(&names);
}

static void clear_file(clearing *c, int folder_fd, const char *name, uint64_t *freed)
{
    cairn__file_info info;
    if (cairn__stat(folder_fd, name, &info) != CAIRN_OK)
        return; /* evicted by another process */
    if (cairn__unlink(folder_fd, name) != CAIRN_OK && cairn__remove_dir(folder_fd, name) != CAIRN_OK) {
        if (c->result.n_stuck++ == 0)
            snprintf(c->result.stuck, sizeof(c->result.stuck), CAIRN__ROOT_PAGES "/%s/%s/%s", c->identity, c->fanout,
                     name);
        return;
    }
    c->result.n_pages++;
    if (info.n_links == 1)
        *freed += info.disk_bytes;
}

static void clear_folder(clearing *c, int identity_fd, const char *fanout)
{
    cairn__names     names;
    cairn__page_name page;
    const char      *name = NULL;
    int              fd;
    uint64_t         freed = 0;
    if (cairn__open_dir(identity_fd, fanout, &fd) != CAIRN_OK)
        return;
    cairn_status status = cairn__names_read(fd, &names);
    c->fanout = fanout;
    if (status && status != CAIRN_ENOENT)
        c->status = status;
    while (!status && (name = cairn__names_next(&names, name)) != NULL)
        if (cairn__page_name_parse(name, &page))
            clear_file(c, fd, name, &freed);
    cairn__names_done(&names);
    cairn__close(fd);
    c->result.freed_bytes += freed + cairn__remove_folder(identity_fd, fanout);
}

static void drop_empty_folder(clearing *c, int identity_fd, const char *fanout)
{
    c->result.freed_bytes += cairn__remove_folder(identity_fd, fanout);
}

/* The folders of an identity, by `each`, and then itself if no page is in it. */
static void for_identity(clearing *c, int pages_fd, const char *name,
                         void (*each)(clearing *c, int identity_fd, const char *fanout), bool forget)
{
    int fd;
    if (cairn__open_dir(pages_fd, name, &fd) != CAIRN_OK)
        return;
    c->identity = name;
    for_folders(c, fd, CAIRN__FANOUT_NAME_SIZE - 1, each);
    c->result.freed_bytes += forget ? cairn__remove_recent(fd) : 0;
    cairn__close(fd);
    c->result.freed_bytes += cairn__remove_identity(pages_fd, name);
}

static void clear_identity(clearing *c, int pages_fd, const char *name)
{
    for_identity(c, pages_fd, name, clear_folder, true); /* the note has prompts in it: it goes whatever stays */
}

static void drop_empty_identity(clearing *c, int pages_fd, const char *name)
{
    for_identity(c, pages_fd, name, drop_empty_folder, false);
}

static cairn_status for_identities(clearing *c, void (*each)(clearing *c, int pages_fd, const char *name))
{
    int          pages_fd;
    cairn_status status = cairn__open_dir(c->store->root.fd, CAIRN__ROOT_PAGES, &pages_fd);
    if (status)
        return status;
    for_folders(c, pages_fd, CAIRN__IDENTITY_NAME_SIZE - 1, each);
    cairn__close(pages_fd);
    return c->status;
}

/* It names what was there. */
static uint64_t clear_ring(cairn_store *store)
{
    cairn__file_info info;
    if (cairn__stat(store->root.fd, CAIRN__RING_FILE, &info) != CAIRN_OK ||
        cairn__unlink(store->root.fd, CAIRN__RING_FILE) != CAIRN_OK)
        return 0;
    return info.disk_bytes;
}

cairn_status cairn__tool_clear(cairn_store *store, cairn__tool_result *ret_result)
{
    clearing c = {.store = store};
    cairn__ledger_freed_unsure(store->ledger); /* what goes is subtracted by the count at the end, ... */
    cairn_status status = for_identities(&c, clear_identity);
    c.result.freed_bytes += cairn__empty_quarantine(store) + clear_ring(store);
    cairn__ledger_freed_unsure(store->ledger); /* ... and not by another process's that came too early */
    cairn_status counted = cairn__store_count(store); /* the ledger is right again, dead temporaries are gone */
    if (counted == CAIRN_EBUSY && cairn__store_find_used(store))
        counted = CAIRN_OK;
    c.result.left_bytes = cairn__ledger_total(store->ledger);
    *ret_result = c.result;
    if (status && status != CAIRN_ENOENT)
        return status;
    return counted;
}

/* ---- prune ---- */

cairn_status cairn__tool_prune(cairn_store *store, uint64_t to_bytes, cairn__tool_result *ret_result)
{
    clearing           c = {.store = store};
    cairn__tool_result r = {0};
    uint64_t           freed = 1;
    (void)!for_identities(&c, drop_empty_identity); /* eviction knows those with pages alone */
    if (c.result.freed_bytes > 0)
        cairn__ledger_freed_unsure(store->ledger);
    bool known = cairn__store_find_used(store);
    r.freed_bytes = c.result.freed_bytes;
    for (int i = 0; known && i < PRUNE_ROUNDS && freed; i++) {
        uint64_t total = cairn__ledger_total(store->ledger);
        if (total <= to_bytes)
            break;
        freed = cairn__evict(store, total - to_bytes);
        r.freed_bytes += freed;
    }
    r.n_pages = atomic_load_explicit(&store->counters.pages_evicted, memory_order_relaxed);
    r.left_bytes = cairn__ledger_total(store->ledger);
    *ret_result = r;
    return known ? CAIRN_OK : CAIRN_EIO;
}
