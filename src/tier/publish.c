/* publish.c - a batch of pages from memory to names: see disk.h, D1, D3, D4.
 *
 *     add      open or create the folder, create and lock a temporary file,
 *              write the page (page_write.h)
 *     publish  sync every file; rename each, in the order they were added; sync
 *              every folder that changed or leads to one, once
 *     finish   remove what was not published, sum up what the batch occupies
 *
 * Writing out begins as soon as a file is complete; when all are, the first sync
 * makes the file system commit its journal for all of them, and the others find
 * little left to do.
 * A folder can be removed under us by another process that evicted its last
 * page; creating a file in it then fails with ENOENT and is tried again from the
 * top. */
#include "tier/disk.h"

#include "base/bytes.h"
#include "core/identity_file.h"
#include "tier/page_write.h"

#include <stdlib.h>
#include <string.h>

/* Per page: fan-out folder; per batch in the worst case also as many identities;
 * and once more of both for those that vanish under us. */
#define MAX_FOLDERS (4 * CAIRN__BATCH_PAGES + 2)
#define MAX_ATTEMPTS 6 /* at a folder that others remove: eviction and clear at once; a bound, not a tuning */
#define ROOT_FOLDER 0u /* the first that a batch enters */

typedef struct folder {
    int      fd; /* -1: given up */
    uint64_t dev, inode;
    uint64_t bytes_before; /* blocks, 0 when it was made by us */
    bool     changed;      /* needs a sync */
} folder;

typedef struct item {
    int    fd;
    size_t folder;
    char   temp[CAIRN__TEMP_NAME_SIZE];
    char   name[CAIRN__PAGE_NAME_SIZE];
    bool   renamed;
} item;

struct cairn__batch {
    const cairn__root *root;
    folder             folders[MAX_FOLDERS];
    size_t             n_folders;
    item               items[CAIRN__BATCH_PAGES];
    size_t             n_items;
    uint64_t           side_bytes; /* identity texts written, temporaries that stay */
    uint64_t           cost_bytes; /* of all pages added, as reserved */
    bool               blind;      /* not all could be looked at: it may occupy all of that */
    uint8_t           *gather;     /* [CAIRN__GATHER_SIZE] */
};

cairn_status cairn__batch_create(const cairn__root *root, cairn__batch **ret_batch)
{
    cairn__batch *batch = calloc(1, sizeof(*batch));
    if (batch)
        batch->gather = malloc(CAIRN__GATHER_SIZE);
    if (!batch || !batch->gather) {
        free(batch);
        return CAIRN_ENOMEM;
    }
    batch->root = root;
    *ret_batch = batch;
    return CAIRN_OK;
}

static uint64_t round_up(uint64_t size, uint64_t unit)
{
    return (size + unit - 1) / unit * unit;
}

uint64_t cairn__batch_page_cost(const cairn_page *page, const char *identity_text)
{
    /* Unit: 4 KiB blocks, what every file system in use here allocates by (a
     * larger block size costs at most one block more for each of the five).
     * Beside the data: the extent tree (12 bytes per 4 KiB at worst), a new
     * fan-out folder, growth of the identity's folder and of the fan-out folder,
     * the identity's file. */
    uint64_t size = cairn__page_payload_offset(page->n_tokens, page->n_blocks);
    for (uint32_t i = 0; i < page->n_blocks; i++)
        if (!cairn__add_u64(size, page->blocks[i].size, &size))
            return UINT64_MAX;
    if (size > UINT64_MAX / 2)
        return UINT64_MAX;
    return round_up(size + size / 256, 4096) + 5 * 4096 +
           round_up(CAIRN__IDENTITY_SEAL_SIZE + strlen(identity_text), 4096);
}

/* ---- folders ---- */

static cairn_status remember_folder(cairn__batch *batch, int fd, bool created, size_t *ret_index)
{
    cairn__file_info info;
    cairn_status     status = cairn__fstat(fd, &info);
    for (size_t i = 0; i < batch->n_folders && !status; i++) {
        const folder *f = &batch->folders[i];
        if (f->fd < 0 || f->dev != info.dev || f->inode != info.inode)
            continue;
        cairn__close(fd);
        *ret_index = i;
        return CAIRN_OK;
    }
    if (!status && batch->n_folders == MAX_FOLDERS)
        status = CAIRN_EBUSY; /* folders kept vanishing */
    if (status) {
        cairn__close(fd);
        return status;
    }
    batch->folders[batch->n_folders] =
        (folder){fd, info.dev, info.inode, created ? 0 : info.disk_bytes, /* changed */ false};
    *ret_index = batch->n_folders++;
    return CAIRN_OK;
}

/* Opens or makes the folder `name` in `parent_fd`. */
static cairn_status enter(cairn__batch *batch, int parent_fd, const char *name, size_t *ret_index, bool *ret_created)
{
    int          fd;
    cairn_status status = cairn__open_dir(parent_fd, name, &fd);
    *ret_created = false;
    if (status == CAIRN_ENOENT) {
        status = cairn__make_dir(parent_fd, name, ret_created);
        if (!status)
            status = cairn__open_dir(parent_fd, name, &fd);
    }
    return status ? status : remember_folder(batch, fd, *ret_created, ret_index);
}

static cairn_status enter_root(cairn__batch *batch, size_t *ret_index)
{
    int          fd;
    cairn_status status = cairn__open_dir(batch->root->fd, ".", &fd);
    return status ? status : remember_folder(batch, fd, false, ret_index);
}

static cairn_status enter_below(cairn__batch *batch, size_t parent, const char *name, size_t *ret_index)
{
    bool         created;
    cairn_status status = enter(batch, batch->folders[parent].fd, name, ret_index, &created);
    /* From v1/ down whoever made the folder: a process that was killed right after
     * that did not sync what it lies in. The root is synced when it is opened. */
    batch->folders[parent].changed |= created || parent != ROOT_FOLDER;
    return status;
}

static uint64_t blocks_of(cairn__batch *batch, int fd)
{
    cairn__file_info info;
    if (cairn__fstat(fd, &info) == CAIRN_OK)
        return info.disk_bytes;
    batch->blind = true;
    return 0;
}

/* Removes a temporary file that is still open. What can't be removed stays, and
 * counts as what the batch occupies. */
static void remove_temp(cairn__batch *batch, int folder_fd, const char *temp, int fd)
{
    if (cairn__unlink(folder_fd, temp) != CAIRN_OK)
        batch->side_bytes += blocks_of(batch, fd);
}

/* The text that a person compares two identities by, as it shall lie there. */
typedef struct identity_file {
    const void *data;
    size_t      size;
    uint8_t    *sealed; /* what data points into, or NULL */
} identity_file;

static cairn_status make_identity_file(const cairn__root *root, const char *text, identity_file *ret_file)
{
    uint8_t       salt[CAIRN__SALT_SIZE];
    identity_file file = {.data = text, .size = strlen(text)};
    if (root->keyring) {
        file.sealed = malloc(CAIRN__IDENTITY_SEAL_SIZE + file.size);
        cairn_status status = file.sealed ? cairn__random_salt(salt, sizeof(salt)) : CAIRN_ENOMEM;
        if (!status)
            status = cairn__identity_file_seal(root->keyring, salt, text, file.size, file.sealed);
        if (status) {
            free(file.sealed);
            return status;
        }
        file.data = file.sealed;
        file.size += CAIRN__IDENTITY_SEAL_SIZE;
    }
    *ret_file = file;
    return CAIRN_OK;
}

static cairn_status write_identity_file(cairn__batch *batch, folder *f, const identity_file *file)
{
    char temp[CAIRN__TEMP_NAME_SIZE];
    int  fd = -1;
    cairn__temp_name(temp);
    cairn_status status = cairn__create_new(f->fd, temp, &fd);
    if (!status)
        status = cairn__lock_range(fd, 0, 1, false);
    if (!status)
        status = cairn__write_at(fd, file->data, file->size, 0);
    if (!status)
        status = cairn__sync_data(fd);
    if (!status)
        status = cairn__rename_new(f->fd, temp, CAIRN__IDENTITY_TEXT);
    if (!status)
        batch->side_bytes += blocks_of(batch, fd);
    if (status && fd >= 0)
        remove_temp(batch, f->fd, temp, fd);
    cairn__close(fd);
    f->changed = true;
    return status == CAIRN_EBUSY ? CAIRN_OK : status;
}

static cairn_status write_identity_text(cairn__batch *batch, size_t index, const char *text)
{
    folder          *f = &batch->folders[index];
    identity_file    file;
    cairn__file_info info;
    if (cairn__stat(f->fd, CAIRN__IDENTITY_TEXT, &info) == CAIRN_OK)
        return CAIRN_OK;
    cairn_status status = make_identity_file(batch->root, text, &file);
    if (status)
        return status;
    status = write_identity_file(batch, f, &file);
    free(file.sealed);
    return status;
}

static cairn_status enter_folder(cairn__batch *batch, const cairn_digest *identity, const char *identity_text,
                                 const cairn_key *parent, size_t *ret_index)
{
    char   name[CAIRN__IDENTITY_NAME_SIZE], fanout[CAIRN__FANOUT_NAME_SIZE];
    size_t at = 0;
    cairn__identity_name(identity, name);
    cairn__fanout_name(parent, fanout);
    cairn_status status = enter_root(batch, &at);
    if (!status)
        status = enter_below(batch, at, CAIRN__ROOT_PAGES, &at);
    if (!status)
        status = enter_below(batch, at, name, &at);
    if (!status)
        status = write_identity_text(batch, at, identity_text);
    if (!status)
        status = enter_below(batch, at, fanout, &at);
    *ret_index = at;
    return status;
}

static void forget_folder(folder *f)
{
    cairn__close(f->fd);
    f->fd = -1;
}

/* Creates the locked temporary file of one item. */
static cairn_status create_temp(cairn__batch *batch, const cairn_digest *identity, const char *identity_text,
                                const cairn_key *parent, item *it)
{
    cairn_status status = CAIRN_ENOENT;
    for (int attempt = 0; attempt < MAX_ATTEMPTS && status == CAIRN_ENOENT; attempt++) {
        status = enter_folder(batch, identity, identity_text, parent, &it->folder);
        if (status)
            continue;
        cairn__temp_name(it->temp);
        status = cairn__create_new(batch->folders[it->folder].fd, it->temp, &it->fd);
        if (status == CAIRN_ENOENT && batch->folders[it->folder].fd >= 0)
            forget_folder(&batch->folders[it->folder]);
    }
    if (status)
        return status;
    batch->folders[it->folder].changed = true;
    return cairn__lock_range(it->fd, 0, 1, false);
}

/* ---- adding ---- */

cairn__page_name cairn__disk_name(const cairn_digest *identity, const cairn_page *page)
{
    cairn__page_name name = cairn__page_name_of(identity, &page->key, &page->parent, page->tokens, page->n_tokens);
    name.is_checkpoint = page->kind == CAIRN_CHECKPOINT;
    return name;
}

cairn_status cairn__batch_add(cairn__batch *batch, const cairn_digest *identity, const char *identity_text,
                              const cairn_page *page, int64_t now_s, bool *ret_fatal)
{
    item            *it = &batch->items[batch->n_items];
    cairn__page_name name = cairn__disk_name(identity, page);
    *ret_fatal = false;
    batch->cost_bytes += cairn__batch_page_cost(page, identity_text);
    *it = (item){.fd = -1};
    cairn__page_name_format(&name, it->name);
    cairn__page_write write = {.fd = -1, .root = batch->root, .identity = identity, .page = page, .now_s = now_s};
    cairn_status      status = batch->root->keyring ? cairn__random_salt(write.salt, sizeof(write.salt)) : CAIRN_OK;
    if (!status)
        status = create_temp(batch, identity, identity_text, &page->parent, it);
    if (!status) {
        write.fd = it->fd;
        write.gather = batch->gather;
        status = cairn__page_write_to(&write);
        *ret_fatal = status == CAIRN_EIO;
    }
    if (status) {
        if (it->fd >= 0)
            remove_temp(batch, batch->folders[it->folder].fd, it->temp, it->fd);
        cairn__close(it->fd);
    } else
        batch->n_items++;
    return status;
}

/* ---- visible ---- */

static cairn_status sync_folders(cairn__batch *batch)
{
    for (size_t i = 0; i < batch->n_folders; i++) {
        folder *f = &batch->folders[i];
        if (f->fd < 0 || !f->changed)
            continue;
        cairn_status status = cairn__sync_dir(f->fd);
        if (status)
            return status;
        f->changed = false;
    }
    return CAIRN_OK;
}

cairn_status cairn__batch_publish(cairn__batch *batch, bool ret_published[CAIRN__BATCH_PAGES])
{
    cairn_status status = CAIRN_OK;
    memset(ret_published, 0, CAIRN__BATCH_PAGES * sizeof(bool));
    for (size_t i = 0; i < batch->n_items && !status; i++)
        status = cairn__sync_data(batch->items[i].fd);
    for (size_t i = 0; i < batch->n_items && !status; i++) {
        item *it = &batch->items[i];
        status = cairn__rename_new(batch->folders[it->folder].fd, it->temp, it->name);
        it->renamed = status == CAIRN_OK;
        if (status == CAIRN_EBUSY)
            status = CAIRN_OK; /* another process was first with the same page */
    }
    if (!status)
        status = sync_folders(batch);
    for (size_t i = 0; i < batch->n_items && !status; i++)
        ret_published[i] = batch->items[i].renamed;
    return status;
}

uint64_t cairn__batch_finish(cairn__batch *batch)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < batch->n_items; i++) {
        item *it = &batch->items[i];
        bool  stays = it->renamed;
        if (!stays && it->fd >= 0)
            stays = cairn__unlink(batch->folders[it->folder].fd, it->temp) != CAIRN_OK;
        if (stays)
            bytes += blocks_of(batch, it->fd);
        cairn__close(it->fd);
    }
    for (size_t i = 0; i < batch->n_folders; i++) {
        folder  *f = &batch->folders[i];
        uint64_t now = f->fd >= 0 ? blocks_of(batch, f->fd) : 0;
        if (now > f->bytes_before)
            bytes += now - f->bytes_before;
        cairn__close(f->fd);
    }
    bytes += batch->side_bytes;
    if (batch->blind && bytes < batch->cost_bytes)
        bytes = batch->cost_bytes;
    batch->n_items = batch->n_folders = 0;
    batch->side_bytes = batch->cost_bytes = 0;
    batch->blind = false;
    return bytes;
}

void cairn__batch_destroy(cairn__batch *batch)
{
    if (!batch)
        return;
    (void)cairn__batch_finish(batch);
    free(batch->gather);
    free(batch);
}
