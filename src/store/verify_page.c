/* verify_page.c - one page file: its place, header, keys, and its blocks if asked.
 * What a lookup compares with a request is compared with the page itself here: the
 * key follows from identity, parent and tokens, and the name from all of them. */
#include "store/verify_internal.h"

#include <stdlib.h>
#include <string.h>

/* Of a folder without a text: the pages agree on the first half by the folder's
 * name, so the first one's word is as good as any. A sealed one says nothing. */
static cairn_status learn_from_page(int folder_fd, const char *text, cairn__verify_space *space)
{
    uint8_t            buf[CAIRN__PAGE_FIXED_SIZE];
    char               name[CAIRN__IDENTITY_NAME_SIZE];
    cairn__page_header header;
    int                fd = -1;
    cairn_status       status = cairn__open_read(folder_fd, text, &fd);
    if (!status)
        status = cairn__read_at(fd, buf, sizeof(buf), 0);
    cairn__close(fd);
    if (!status)
        status = cairn__page_peek(buf, sizeof(buf), &header);
    if (status)
        return status;
    space->sealed = header.sealed;
    if (header.sealed)
        return CAIRN_OK;
    space->digest = header.identity;
    space->known = true;
    cairn__identity_name(&space->digest, name);
    return strcmp(name, space->name) == 0 ? CAIRN_OK : CAIRN_ECORRUPT;
}

/* NULL: all is well. */
static const char *compare(const cairn__page_header *h, const cairn__page_name *name)
{
    static const cairn_key first;
    int32_t                tokens[CAIRN__PAGE_TOKENS_MAX];
    char                   is[CAIRN__PAGE_NAME_SIZE], should[CAIRN__PAGE_NAME_SIZE];
    for (uint32_t i = 0; i < h->n_tokens; i++)
        tokens[i] = cairn__page_token(h, i);
    const bool is_checkpoint = h->kind == CAIRN__PAGE_CHECKPOINT;
    cairn_key  key = (is_checkpoint ? cairn_checkpoint_key : cairn_chain_key)(&h->identity, &h->parent, tokens, h->n_tokens);
    if (memcmp(&key, &h->key, sizeof(key)) != 0)
        return "its key is not that of its tokens";
    if ((h->start == 0) != (memcmp(&h->parent, &first, sizeof(first)) == 0))
        return "its position does not fit its parent";
    cairn__page_name own = cairn__page_name_of(&h->identity, &h->key, &h->parent, tokens, h->n_tokens);
    own.is_checkpoint = is_checkpoint;
    cairn__page_name_format(name, is);
    cairn__page_name_format(&own, should);
    return strcmp(is, should) == 0 ? NULL : "its name is not that of its tokens";
}

/* The first block of a checkpoint: all tokens up to its end, the header's the last. */
static const char *compare_prefix(const cairn__page_header *h, const uint8_t *data, size_t size)
{
    const size_t tail = (size_t)h->n_tokens * 4, whole = ((size_t)h->start + h->n_tokens) * 4;
    if (size != whole)
        return "its tokens are not all there";
    for (uint32_t i = 0; i < h->n_tokens; i++) {
        int32_t token = cairn__page_token(h, i);
        if (memcmp(data + whole - tail + 4 * (size_t)i, &token, 4) != 0)
            return "its first block does not end with its tokens";
    }
    return NULL;
}

/* NULL: all is well. CAIRN_EIO in *ret_status: can't be told. */
static const char *read_blocks(cairn__verifier *v, const cairn__root *root, const cairn__page_file *file,
                               cairn_status *ret_status)
{
    const char *what = NULL;
    for (uint32_t i = 0; i < file->header.n_blocks && !*ret_status && !what; i++) {
        size_t   size = (size_t)file->block_size[i];
        uint8_t *data = malloc(size ? size : 1);
        *ret_status = data ? cairn__page_file_read(root, file, i, data) : CAIRN_ENOMEM;
        if (*ret_status == CAIRN_OK)
            v->result.read_bytes += size;
        if (*ret_status == CAIRN_OK && i == 0 && file->header.kind == CAIRN__PAGE_CHECKPOINT)
            what = compare_prefix(&file->header, data, size);
        free(data);
    }
    if (*ret_status != CAIRN_ECORRUPT)
        return what;
    *ret_status = CAIRN_OK;
    return "a block is not what was stored";
}

static bool bad(cairn__verifier *v, int folder_fd, const char *text, uint64_t inode, cairn__problem problem,
                const char *what)
{
    cairn__verify_report(v, problem, text, what, cairn__verify_quarantine(v, folder_fd, text, inode));
    return false;
}

static cairn_status open_page(const cairn__root *root, int folder_fd, const cairn__page_name *name,
                              const cairn__verify_space *space, cairn__page_file *ret_file)
{
    return space->known ? cairn__page_file_open(root, folder_fd, name, &space->digest, ret_file)
                        : cairn__page_file_open_shape(root, folder_fd, name, ret_file);
}

static bool look(cairn__verifier *v, int folder_fd, const char *text, const cairn__page_name *name,
                 const cairn__verify_space *space, cairn__verify_page *ret_page)
{
    cairn__root      root = v->store->root;
    cairn__page_file file = {.fd = -1};
    if (!space->sealed)
        root.keyring = NULL;
    cairn_status status = open_page(&root, folder_fd, name, space, &file);
    uint64_t     inode = file.info.inode;
    if (status == CAIRN_ENOENT)
        return false; /* evicted meanwhile */
    if (status == CAIRN_ECORRUPT)
        return bad(v, folder_fd, text, inode, CAIRN__PROBLEM_PAGE, "its header, size or kind is wrong");
    if (!status) {
        cairn__problem problem = CAIRN__PROBLEM_PAGE;
        const char    *what = space->known ? compare(&file.header, name) : NULL;
        if (!what && space->known && v->request->deep) {
            problem = CAIRN__PROBLEM_BLOCK;
            what = read_blocks(v, &root, &file, &status);
        }
        *ret_page = (cairn__verify_page){*name, file.header.start, !space->known, file.info.mtime_ns};
        v->result.n_sealed += !space->known;
        v->result.page_bytes += file.info.disk_bytes;
        cairn__page_file_close(&file);
        if (what)
            return bad(v, folder_fd, text, inode, problem, what);
    }
    if (status == CAIRN_ENOMEM)
        v->status = status;
    else if (status)
        cairn__verify_report(v, CAIRN__PROBLEM_UNREADABLE, text, "it can't be read", false);
    return !status;
}

bool cairn__verify_one_page(cairn__verifier *v, int folder_fd, const char *fanout, const char *text,
                            const cairn__verify_space *space, cairn__verify_page *ret_page)
{
    cairn__page_name    name;
    cairn__file_info    info;
    cairn__verify_space own = *space;
    char                place[CAIRN__FANOUT_NAME_SIZE];
    cairn_key           parent = {{0}};
    if (!cairn__page_name_parse(text, &name))
        return false;
    if (!cairn__verify_entry(v, folder_fd, text, false, &info))
        return false;
    v->result.n_pages++;
    memcpy(parent.bytes, name.parent, sizeof(name.parent));
    cairn__fanout_name(&parent, place);
    if (strcmp(place, fanout) != 0)
        return bad(v, folder_fd, text, info.inode, CAIRN__PROBLEM_PLACE, "it lies in another parent's folder");
    if (!space->known && !space->sealed) {
        cairn_status status = learn_from_page(folder_fd, text, &own);
        if (status == CAIRN_ENOENT)
            return false;
        if (status == CAIRN_ECORRUPT)
            return bad(v, folder_fd, text, info.inode, CAIRN__PROBLEM_PAGE, "its header, size or kind is wrong");
        if (status) {
            cairn__verify_report(v, CAIRN__PROBLEM_UNREADABLE, text, "it can't be read", false);
            return false;
        }
    }
    return look(v, folder_fd, text, &name, &own, ret_page);
}
