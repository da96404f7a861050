/* recent.c - the note of prompts that the next process of an identity begins with.
 *
 *   note_recent: encoded at once -> store->notes, one for each identity, the newest
 *   writer thread, when no page is queued: reserve -> temporary file -> rename over
 *
 * It is not synced: after a power cut it may be gone or damaged, which its checksum
 * shows, and the next process begins with nothing in memory. */
#include "store/internal.h"

#include "core/recent_file.h"

#include <stdlib.h>
#include <string.h>

#define SIDE_BYTES (UINT64_C(2) * 4096) /* of a file: its extent tree, growth of the folder */

static uint64_t whole_blocks(uint64_t size)
{
    return (size + 4095) / 4096 * 4096;
}

struct cairn__note {
    cairn__note *next;
    cairn_digest identity;
    uint8_t     *file;
    size_t       size;
};

/* ---- leaving one ---- */

static bool prompts_are_valid(const cairn_prompt *prompts, uint32_t n)
{
    for (uint32_t i = 0; prompts && i < n; i++)
        if (!prompts[i].tokens && prompts[i].n_tokens > 0)
            return false;
    return prompts || n == 0;
}

static void destroy(cairn__note *note)
{
    if (note)
        free(note->file);
    free(note);
}

/* Takes out the note of this identity that nobody has written yet; NULL: none. */
static cairn__note *take_out_locked(cairn_store *store, const cairn_digest *identity)
{
    for (cairn__note **at = &store->notes; *at; at = &(*at)->next) {
        cairn__note *note = *at;
        if (memcmp(&note->identity, identity, sizeof(*identity)) != 0)
            continue;
        *at = note->next;
        return note;
    }
    return NULL;
}

cairn_status cairn_store_note_recent(cairn_store *store, const cairn_identity *identity, const cairn_prompt *prompts,
                                     uint32_t n_prompts)
{
    if (!store || !identity || !prompts_are_valid(prompts, n_prompts))
        return CAIRN_EINVAL;
    if (store->off)
        return CAIRN_OK;
    cairn__note *note = calloc(1, sizeof(*note));
    cairn_status status = note ? cairn__recent_file_make(prompts, n_prompts, &note->file, &note->size) : CAIRN_ENOMEM;
    if (status) {
        free(note);
        return status;
    }
    note->identity = cairn_store_namespace(store, identity);
    pthread_mutex_lock(&store->lock);
    cairn__note *before = take_out_locked(store, &note->identity);
    note->next = store->notes;
    store->notes = note;
    pthread_cond_broadcast(&store->work);
    pthread_mutex_unlock(&store->lock);
    destroy(before);
    return CAIRN_OK;
}

/* ---- writing them (writer thread) ---- */

static cairn_status seal(const cairn_store *store, const cairn__note *note)
{
    uint8_t      salt[CAIRN__SALT_SIZE] = {0};
    cairn_status status = store->keyring ? cairn__random_salt(salt, sizeof(salt)) : CAIRN_OK;
    return status ? status : cairn__recent_file_seal(store->keyring, salt, note->file, note->size);
}

/* *ret_bytes: blocks that it occupies, also where it could not get its name. *ret_info:
 * what it is under that. */
static cairn_status write_file(int folder_fd, const cairn__note *note, uint64_t *ret_bytes, cairn__file_info *ret_info)
{
    char             temp[CAIRN__TEMP_NAME_SIZE];
    cairn__file_info info = {0};
    int              fd = -1;
    cairn__temp_name(temp);
    cairn_status status = cairn__create_new(folder_fd, temp, &fd);
    if (status)
        return status;
    status = cairn__lock_range(fd, 0, 1, false);
    if (!status)
        status = cairn__write_at(fd, note->file, note->size, 0);
    if (cairn__fstat(fd, &info) != CAIRN_OK || info.disk_bytes < note->size) /* some give blocks late */
        info.disk_bytes = whole_blocks(note->size);
    if (!status)
        status = cairn__rename_across(folder_fd, temp, folder_fd, CAIRN__IDENTITY_RECENT);
    if (!status || cairn__unlink(folder_fd, temp) != CAIRN_OK)
        *ret_bytes = info.disk_bytes;
    if (cairn__fstat(fd, ret_info) != CAIRN_OK)
        ret_info->inode = 0;
    cairn__close(fd);
    return status;
}

/* Nobody touched it since this process wrote it. */
static bool is_own(const cairn_store *store, const cairn__file_info *info)
{
    return info->inode == store->last_note.inode && info->ctime_ns == store->last_note.ctime_ns;
}

static void replace(cairn_store *store, int folder_fd, const cairn__note *note)
{
    const uint64_t   cost = whole_blocks(note->size) + SIDE_BYTES;
    const uint64_t   last_count = cairn__ledger_last_count(store->ledger);
    uint64_t         written = 0;
    cairn__file_info old = {0}, new = {0};
    if (cairn__store_reserve(store, cost) != CAIRN_OK)
        return;
    const bool   replaces = cairn__stat(folder_fd, CAIRN__IDENTITY_RECENT, &old) == CAIRN_OK;
    cairn_status status = write_file(folder_fd, note, &written, &new);
    cairn__ledger_commit(store->ledger, cost, written);
    if (!status && replaces && is_own(store, &old))
        cairn__ledger_freed(store->ledger, store->last_note.disk_bytes, last_count);
    else if (!status && replaces)
        cairn__ledger_freed_unsure(store->ledger);
    if (!status) {
        store->last_note = new;
        store->last_note.disk_bytes = written;
    } else if (status != CAIRN_ENOENT) /* evicted meanwhile, folder and all */
        cairn__count(&store->counters.write_errors, 1);
}

static void write_note(cairn_store *store, const cairn__note *note)
{
    int fd;
    if (!cairn__store_can_write(store) || cairn__disk_open_identity(&store->root, &note->identity, &fd) != CAIRN_OK)
        return;
    if (seal(store, note) == CAIRN_OK)
        replace(store, fd, note);
    cairn__close(fd);
}

cairn__note *cairn__notes_take_locked(cairn_store *store)
{
    cairn__note *notes = store->notes;
    store->notes = NULL;
    store->notes_under_way = notes != NULL;
    return notes;
}

void cairn__notes_write(cairn_store *store, cairn__note *notes)
{
    if (!notes)
        return;
    while (notes) {
        cairn__note *next = notes->next;
        write_note(store, notes);
        destroy(notes);
        notes = next;
    }
    pthread_mutex_lock(&store->lock);
    store->notes_under_way = false;
    pthread_cond_broadcast(&store->done);
    pthread_mutex_unlock(&store->lock);
}

void cairn__notes_destroy(cairn_store *store)
{
    while (store->notes) {
        cairn__note *next = store->notes->next;
        destroy(store->notes);
        store->notes = next;
    }
}

/* ---- finding one ---- */

cairn_status cairn__recent_read(const cairn_store *store, int folder_fd, uint8_t **ret_file, cairn__file_info *ret_info)
{
    cairn_status status =
        cairn__disk_read_whole(folder_fd, CAIRN__IDENTITY_RECENT, CAIRN__RECENT_SIZE_MAX, ret_file, ret_info);
    if (status || ret_info->uid == store->root.uid)
        return status;
    free(*ret_file);
    *ret_file = NULL;
    return CAIRN_ECORRUPT;
}

cairn_status cairn__recent_check(const cairn__keyring *keyring, uint8_t *file, size_t size, cairn_prompt **ret_prompts,
                                 uint32_t *ret_n)
{
    cairn_status status = cairn__recent_file_open(keyring, file, size);
    return status ? status : cairn__recent_file_prompts(file, size, ret_prompts, ret_n);
}

bool cairn__recent_remove_bad(cairn_store *store, int folder_fd, uint64_t inode)
{
    cairn__file_info info;
    const uint64_t   last_count = cairn__ledger_last_count(store->ledger);
    if (cairn__stat(folder_fd, CAIRN__IDENTITY_RECENT, &info) != CAIRN_OK || info.inode != inode ||
        cairn__unlink(folder_fd, CAIRN__IDENTITY_RECENT) != CAIRN_OK)
        return false;
    cairn__ledger_freed(store->ledger, info.disk_bytes, last_count);
    return true;
}

cairn_status cairn_store_recent(cairn_store *store, const cairn_identity *identity, cairn_prompt **ret_prompts,
                                uint32_t *ret_n_prompts)
{
    if (!store || !identity || !ret_prompts || !ret_n_prompts)
        return CAIRN_EINVAL;
    cairn_digest     digest = cairn_store_namespace(store, identity);
    uint8_t         *file = NULL;
    cairn__file_info info = {0};
    int              fd = -1;
    *ret_prompts = NULL;
    *ret_n_prompts = 0;
    if (store->off || cairn__disk_open_identity(&store->root, &digest, &fd) != CAIRN_OK)
        return CAIRN_OK;
    cairn_status status = cairn__recent_read(store, fd, &file, &info);
    if (!status)
        status = cairn__recent_check(store->keyring, file, (size_t)info.size_bytes, ret_prompts, ret_n_prompts);
    if (status == CAIRN_ECORRUPT)
        (void)cairn__recent_remove_bad(store, fd, info.inode);
    if (*ret_n_prompts == 0) {
        free(*ret_prompts);
        *ret_prompts = NULL;
    }
    free(file);
    cairn__close(fd);
    return status == CAIRN_ENOMEM ? status : CAIRN_OK;
}
