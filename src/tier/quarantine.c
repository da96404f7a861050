/* quarantine.c - bad files, moved aside for a person to look at: see disk.h.
 *
 * A file that failed verification must not stay under its name: it would fail
 * again at every request, and its good copy, computed anew, could never be
 * published. It is moved and not deleted, because a checksum that fails is often
 * the first sign of a dying disk. The number and size kept are small. */
#include "tier/disk.h"

#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_SEEN 4096u /* names looked at in one trim; more is somebody else's doing */

typedef struct entry {
    char     name[256];
    int64_t  ctime_ns; /* when it was moved here */
    uint64_t disk_bytes;
} entry;

typedef struct inventory {
    int      dir_fd;
    entry   *entries;
    size_t   n_entries;
    uint64_t disk_bytes;
} inventory;

static bool take_stock(void *ctx, const char *name)
{
    inventory       *inv = ctx;
    cairn__file_info info;
    if (strlen(name) >= sizeof(inv->entries[0].name) || cairn__stat(inv->dir_fd, name, &info) != CAIRN_OK)
        return true;
    entry *e = &inv->entries[inv->n_entries++];
    memcpy(e->name, name, strlen(name) + 1);
    e->ctime_ns = info.ctime_ns;
    e->disk_bytes = info.disk_bytes;
    inv->disk_bytes += info.disk_bytes;
    return inv->n_entries < MAX_SEEN;
}

static int older_first(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->ctime_ns < y->ctime_ns ? -1 : x->ctime_ns > y->ctime_ns;
}

static bool remove_any(int dir_fd, const char *name)
{
    return cairn__unlink(dir_fd, name) == CAIRN_OK || cairn__remove_dir(dir_fd, name) == CAIRN_OK;
}

static uint64_t trim(int dir_fd, uint64_t max_bytes)
{
    inventory inv = {.dir_fd = dir_fd, .entries = malloc(MAX_SEEN * sizeof(entry))};
    uint64_t  freed = 0;
    if (!inv.entries)
        return 0;
    if (cairn__list_dir(dir_fd, take_stock, &inv) == CAIRN_OK) {
        qsort(inv.entries, inv.n_entries, sizeof(entry), older_first);
        size_t left = inv.n_entries;
        for (size_t i = 0; i < inv.n_entries; i++) {
            if (left <= CAIRN__QUARANTINE_FILES && inv.disk_bytes - freed <= max_bytes)
                break;
            if (!remove_any(dir_fd, inv.entries[i].name))
                continue;
            freed += inv.entries[i].disk_bytes;
            left--;
        }
    }
    free(inv.entries);
    return freed;
}

uint64_t cairn__quarantine_trim(const cairn__root *root, uint64_t max_bytes)
{
    int dir_fd;
    if (cairn__open_dir(root->fd, CAIRN__ROOT_QUARANTINE, &dir_fd) != CAIRN_OK)
        return 0;
    uint64_t freed = trim(dir_fd, max_bytes);
    cairn__close(dir_fd);
    return freed;
}

static bool move_aside(int folder_fd, const char *name, int dir_fd)
{
    uint8_t random[4];
    char    suffix[2 * sizeof(random) + 1];
    char    to[CAIRN__PAGE_NAME_SIZE + 16];
    cairn__random_bytes(random, sizeof(random));
    cairn__hex(random, sizeof(random), suffix);
    snprintf(to, sizeof(to), "%s.%s", name, suffix);
    return cairn__rename_across(folder_fd, name, dir_fd, to) == CAIRN_OK;
}

bool cairn__quarantine(const cairn__root *root, int folder_fd, const char *name, uint64_t inode, uint64_t max_bytes,
                       uint64_t *ret_freed)
{
    cairn__file_info info;
    int              dir_fd = -1;
    *ret_freed = 0;
    if (cairn__stat(folder_fd, name, &info) != CAIRN_OK || (inode && info.inode != inode))
        return true; /* gone, or already another file */
    (void)!cairn__make_dir(root->fd, CAIRN__ROOT_QUARANTINE, NULL);
    bool gone =
        cairn__open_dir(root->fd, CAIRN__ROOT_QUARANTINE, &dir_fd) == CAIRN_OK && move_aside(folder_fd, name, dir_fd);
    if (gone)
        *ret_freed = trim(dir_fd, max_bytes);
    cairn__close(dir_fd);
    if (!gone && remove_any(folder_fd, name)) {
        *ret_freed = info.disk_bytes;
        gone = true;
    }
    return gone;
}
