/* checkpoint.c - the deepest checkpoint behind a parent that a request can use.
 *
 * A checkpoint can't be cut, so it is wanted as a whole or not at all: its key is
 * that of the request's own tokens. Names tell how many tokens each has, so the
 * deepest is tried first and none is opened whose key is another's. All its tokens
 * lie in its first block; they are read, proven and compared before it is a hit:
 * the state depends on each of them, and the header has only the last. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

/* True when the checkpoint was taken behind exactly these tokens. */
static cairn_status compare_prefix(const cairn_store *store, const cairn__page_file *file, const int32_t *prefix,
                                   uint32_t n_tokens)
{
    const size_t size = (size_t)n_tokens * sizeof(*prefix);
    if (file->block_size[0] != size)
        return CAIRN_ECORRUPT;
    int32_t *tokens = malloc(size);
    if (!tokens)
        return CAIRN_ENOMEM;
    cairn_status status = cairn__page_file_read(&store->root, file, 0, tokens);
    if (!status && memcmp(tokens, prefix, size) != 0)
        status = CAIRN_ECORRUPT;
    free(tokens);
    return status;
}

/* CAIRN_ENOENT: not there, or bad; the next shorter one may do. */
static cairn_status open_at(cairn_store *store, int folder_fd, const cairn__want *want, const int32_t *prefix,
                            uint32_t n_tokens, cairn__page_file *ret_file)
{
    cairn_key        key = cairn_checkpoint_key(want->identity, &want->parent, want->tokens, n_tokens);
    cairn__page_name name = cairn__page_name_of(want->identity, &key, &want->parent, want->tokens, n_tokens);
    cairn__page_file file;
    name.is_checkpoint = true;
    cairn_status status = cairn__open_child(store, folder_fd, &name, want, &key, &file);
    if (status)
        return status == CAIRN_ECORRUPT ? CAIRN_ENOENT : status;
    status = compare_prefix(store, &file, prefix, want->start + n_tokens);
    if (status == CAIRN_ECORRUPT) {
        (void)!cairn__reject_child(store, folder_fd, &name, &file);
        return CAIRN_ENOENT;
    }
    if (status) {
        cairn__page_file_close(&file);
        return status;
    }
    *ret_file = file;
    return CAIRN_OK;
}

/* Lengths for which a checkpoint is listed; whose it is, its key tells. */
static void mark_lengths(const cairn__listing *listing, const cairn__want *want, bool *lengths)
{
    for (size_t i = 0; i < listing->n_names; i++) {
        const cairn__page_name *name = &listing->names[i];
        if (name->is_checkpoint && name->n_tokens <= want->n_tokens &&
            memcmp(name->parent, want->parent.bytes, sizeof(name->parent)) == 0)
            lengths[name->n_tokens] = true;
    }
}

static cairn_status open_deepest(cairn_store *store, int folder_fd, const cairn__want *want, const int32_t *prefix,
                                 uint32_t grid, const bool *lengths, cairn__page_file *ret_file, uint32_t *ret_tokens)
{
    for (uint32_t n = want->n_tokens; n > 0; n--) {
        if (!lengths[n] || (grid && (want->start + n) % grid != 0))
            continue;
        cairn_status status = open_at(store, folder_fd, want, prefix, n, ret_file);
        if (status == CAIRN_ENOENT)
            continue;
        *ret_tokens = status ? 0 : n;
        return status;
    }
    return CAIRN_OK;
}

cairn_status cairn__open_checkpoint(cairn_store *store, const cairn__want *want, const int32_t *prefix, uint32_t grid,
                                    cairn__page_file *ret_file, uint32_t *ret_tokens)
{
    cairn__listing *listing = NULL;
    bool            lengths[CAIRN__PAGE_TOKENS_MAX + 1] = {false};
    int             folder_fd = -1;
    *ret_tokens = 0;
    cairn_status status = cairn__disk_open_folder(want->identity_fd, &want->parent, &folder_fd);
    if (status)
        return status == CAIRN_ENOENT ? CAIRN_OK : CAIRN_EIO;
    status = cairn__listing_get(store->listings, folder_fd, &listing);
    if (!status) {
        mark_lengths(listing, want, lengths);
        status = open_deepest(store, folder_fd, want, prefix, grid, lengths, ret_file, ret_tokens);
        cairn__listing_release(store->listings, listing);
    }
    cairn__close(folder_fd);
    return status;
}
