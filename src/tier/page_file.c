/* page_file.c - opening a page file: see disk.h, D2.
 *
 * Everything that is read here comes from a file that somebody else may have
 * written: lengths are checked against the limits of the format before memory
 * is asked for, the header's checksum before a field is used, and the file's
 * size against the header. The header is copied into private memory once, and
 * the block table used later is that copy. A sealed one is decrypted there. */
#include "tier/disk.h"

#include "os/memory.h"

#include <stdlib.h>
#include <string.h>

/* One read gets the header of 256 tokens and up to 286 blocks. */
#define FIRST_READ_SIZE 8192u

cairn_status cairn__disk_open_folder(int identity_fd, const cairn_key *parent, int *ret_fd)
{
    char name[CAIRN__FANOUT_NAME_SIZE];
    cairn__fanout_name(parent, name);
    return cairn__open_dir(identity_fd, name, ret_fd);
}

cairn_status cairn__disk_open_identity_named(const cairn__root *root, const char *name, int *ret_fd)
{
    int          pages_fd;
    cairn_status status = cairn__open_dir(root->fd, CAIRN__ROOT_PAGES, &pages_fd);
    if (status)
        return status;
    status = cairn__open_dir(pages_fd, name, ret_fd);
    cairn__close(pages_fd);
    return status;
}

cairn_status cairn__disk_open_identity(const cairn__root *root, const cairn_digest *identity, int *ret_fd)
{
    char name[CAIRN__IDENTITY_NAME_SIZE];
    cairn__identity_name(identity, name);
    return cairn__disk_open_identity_named(root, name, ret_fd);
}

cairn_status cairn__disk_read_whole(int folder_fd, const char *name, uint64_t max_size, uint8_t **ret_data,
                                    cairn__file_info *ret_info)
{
    int          fd = -1;
    uint8_t     *data = NULL;
    cairn_status status = cairn__open_read(folder_fd, name, &fd);
    *ret_data = NULL;
    if (!status)
        status = cairn__fstat(fd, ret_info);
    if (!status && (!ret_info->is_regular || ret_info->size_bytes > max_size))
        status = CAIRN_ECORRUPT;
    if (!status && !(data = malloc((size_t)ret_info->size_bytes + 1)))
        status = CAIRN_ENOMEM;
    if (!status)
        status = cairn__read_at(fd, data, (size_t)ret_info->size_bytes, 0);
    cairn__close(fd);
    if (status)
        free(data);
    else
        *ret_data = data;
    return status;
}

cairn_status cairn__disk_read_identity_text(int identity_fd, uint8_t **ret_text, cairn__file_info *ret_info)
{
    return cairn__disk_read_whole(identity_fd, CAIRN__IDENTITY_TEXT, CAIRN__IDENTITY_FILE_MAX, ret_text, ret_info);
}

/* What kind of thing was opened. */
static cairn_status look_at(const cairn__root *root, cairn__page_file *file)
{
    cairn_status status = cairn__fstat(file->fd, &file->info);
    if (status)
        return status;
    bool good = file->info.is_regular && file->info.uid == root->uid;
    return good ? CAIRN_OK : CAIRN_ECORRUPT;
}

static cairn_status open_regular(const cairn__root *root, int folder_fd, const char *name, cairn__page_file *file)
{
    cairn_status status = cairn__open_read(folder_fd, name, &file->fd);
    if (status == CAIRN_EACCES || status == CAIRN_EINVAL || status == CAIRN_ENOTSUP)
        return CAIRN_ECORRUPT; /* a symlink, a file we may not read, a socket */
    return status ? status : look_at(root, file);
}

/* Reads the whole header into file->memory, behind it room for both arrays. */
static cairn_status read_header(cairn__page_file *file, uint32_t *ret_size)
{
    uint8_t  first[FIRST_READ_SIZE];
    uint32_t size = 0;
    size_t   have = file->info.size_bytes < sizeof(first) ? (size_t)file->info.size_bytes : sizeof(first);
    if (have < CAIRN__PAGE_FIXED_SIZE)
        return CAIRN_ECORRUPT;
    cairn_status status = cairn__read_at(file->fd, first, have, 0);
    if (!status)
        status = cairn__page_header_size_peek(first, have, &size);
    if (status)
        return status;
    if (size > file->info.size_bytes)
        return CAIRN_ECORRUPT;
    /* Each block has 24 bytes in the header and takes 16 in the arrays, so the
     * header's size is room enough. */
    _Static_assert(CAIRN__PAGE_BLOCK_ENTRY_SIZE >= 2 * sizeof(uint64_t), "room for both arrays");
    size_t header_room = ((size_t)size + 7) & ~(size_t)7;
    file->memory = malloc(header_room + (size_t)size);
    if (!file->memory)
        return CAIRN_ENOMEM;
    file->block_size = (uint64_t *)(void *)((uint8_t *)file->memory + header_room);
    memcpy(file->memory, first, size < have ? size : have);
    if (size > have)
        status = cairn__read_at(file->fd, (uint8_t *)file->memory + have, size - have, have);
    *ret_size = size;
    return status;
}

/* A keyring makes sealed pages the only ones that are taken: who can write here but
 * does not know the key could else put plain ones. */
static cairn_status decode(const cairn__root *root, uint32_t size, cairn__page_file *file)
{
    return root->keyring ? cairn__page_decode_sealed(root->keyring, file->memory, size, &file->header)
                         : cairn__page_decode(file->memory, size, &file->header);
}

static bool is_checkpoint(const cairn__page_header *header)
{
    return header->kind == CAIRN__PAGE_CHECKPOINT;
}

static bool fits_name(const cairn__page_file *file, const cairn__page_name *name)
{
    const cairn__page_header *h = &file->header;
    return memcmp(h->key.bytes, name->key, sizeof(name->key)) == 0 &&
           memcmp(h->parent.bytes, name->parent, sizeof(name->parent)) == 0 && h->n_tokens == name->n_tokens &&
           is_checkpoint(h) == name->is_checkpoint && cairn__page_file_size(h) == file->info.size_bytes;
}

static void fill_arrays(cairn__page_file *file)
{
    file->block_offset = file->block_size + file->header.n_blocks;
    for (uint32_t i = 0; i < file->header.n_blocks; i++)
        file->block_size[i] = cairn__page_block_at(&file->header, i).size;
    cairn__page_block_offsets(&file->header, file->block_offset);
}

static cairn_status open_named(const cairn__root *root, int folder_fd, const cairn__page_name *name,
                               cairn__page_file *file)
{
    char text[CAIRN__PAGE_NAME_SIZE];
    cairn__page_name_format(name, text);
    return open_regular(root, folder_fd, text, file);
}

/* Reads the header of a file that is open, and proves it. */
static cairn_status load(const cairn__root *root, const cairn__page_name *name, const cairn_digest *identity,
                         cairn__page_file *file)
{
    uint32_t     size = 0;
    cairn_status status = read_header(file, &size);
    if (!status)
        status = decode(root, size, file);
    if (status)
        return status;
    if (!fits_name(file, name) || memcmp(&file->header.identity, identity, sizeof(*identity)) != 0)
        return CAIRN_ECORRUPT;
    fill_arrays(file);
    return CAIRN_OK;
}

/* Without its key a sealed page shows its counts and size, and no more. */
static cairn_status load_shape(cairn__page_file *file, const cairn__page_name *name)
{
    cairn_status status = cairn__page_peek(file->memory, CAIRN__PAGE_FIXED_SIZE, &file->header);
    if (status)
        return status;
    bool good = file->header.sealed && file->header.n_tokens == name->n_tokens &&
                is_checkpoint(&file->header) == name->is_checkpoint &&
                cairn__page_file_size(&file->header) == file->info.size_bytes;
    return good ? CAIRN_OK : CAIRN_ECORRUPT;
}

cairn_status cairn__page_file_open(const cairn__root *root, int folder_fd, const cairn__page_name *name,
                                   const cairn_digest *identity, cairn__page_file *ret_file)
{
    cairn__page_file file = {.fd = -1};
    cairn_status     status = open_named(root, folder_fd, name, &file);
    if (!status)
        status = load(root, name, identity, &file);
    if (status) {
        cairn__page_file_close(&file);
        ret_file->info = file.info;
        return status;
    }
    *ret_file = file;
    return CAIRN_OK;
}

cairn_status cairn__page_file_open_in(const cairn__root *root, int identity_fd, const cairn__page_name *name,
                                      const cairn_key *parent, const cairn_digest *identity, cairn__page_file *ret_file)
{
    char             path[CAIRN__FANOUT_NAME_SIZE + CAIRN__PAGE_NAME_SIZE];
    cairn__page_file file = {.fd = -1};
    cairn__fanout_name(parent, path);
    path[CAIRN__FANOUT_NAME_SIZE - 1] = '/';
    cairn__page_name_format(name, path + CAIRN__FANOUT_NAME_SIZE);
    cairn_status status = cairn__open_read_in(identity_fd, path, &file.fd);
    if (!status)
        status = look_at(root, &file);
    if (!status)
        status = load(root, name, identity, &file);
    if (status)
        cairn__page_file_close(&file);
    else
        *ret_file = file;
    return status;
}

cairn_status cairn__page_file_open_shape(const cairn__root *root, int folder_fd, const cairn__page_name *name,
                                         cairn__page_file *ret_file)
{
    cairn__page_file file = {.fd = -1};
    uint32_t         size = 0;
    cairn_status     status = open_named(root, folder_fd, name, &file);
    if (!status)
        status = read_header(&file, &size);
    if (!status)
        status = load_shape(&file, name);
    if (status) {
        cairn__page_file_close(&file);
        ret_file->info = file.info;
        return status;
    }
    *ret_file = file;
    return CAIRN_OK;
}

cairn_status cairn__page_file_read(const cairn__root *root, const cairn__page_file *file, uint32_t block, void *dst)
{
    cairn_status status = cairn__read_at(file->fd, dst, (size_t)file->block_size[block], file->block_offset[block]);
    return status ? status : cairn__page_prove_block(root->keyring, &file->header, block, dst);
}

/* Blocks beyond the end, and the extent tree: what cairn__batch_page_cost() allows for. */
static bool takes_what_it_should(const cairn__file_info *info)
{
    return info->n_links == 1 && info->disk_bytes <= info->size_bytes + info->size_bytes / 256 + 3 * UINT64_C(4096);
}

static cairn_status load_as_far_as_known(const cairn__root *root, const cairn__page_name *name, cairn__page_file *file)
{
    uint32_t     size = 0;
    cairn_status status = read_header(file, &size);
    if (!status)
        status = cairn__page_peek(file->memory, CAIRN__PAGE_FIXED_SIZE, &file->header);
    if (status)
        return status;
    if (file->header.sealed &&
        (!root->keyring || cairn__page_decode_sealed(root->keyring, file->memory, size, &file->header) != CAIRN_OK))
        return load_shape(file, name);
    if (!file->header.sealed)
        status = cairn__page_decode(file->memory, size, &file->header);
    return status ? status : fits_name(file, name) ? CAIRN_OK : CAIRN_ECORRUPT;
}

bool cairn__page_file_is_as_counted(const cairn__root *root, int folder_fd, const cairn__page_name *name,
                                    const cairn__file_info *info)
{
    cairn__page_file file = {.fd = -1};
    bool             good = takes_what_it_should(info) && open_named(root, folder_fd, name, &file) == CAIRN_OK &&
                file.info.inode == info->inode && file.info.size_bytes == info->size_bytes &&
                load_as_far_as_known(root, name, &file) == CAIRN_OK;
    cairn__page_file_close(&file);
    return good;
}

static bool take_from(const cairn__window *window, const cairn__page_file *file, uint32_t block, void *dst)
{
    const uint64_t offset = file->block_offset[block], size = file->block_size[block];
    if (window->file != file || offset < window->offset || offset + size > window->offset + window->size)
        return false;
    memcpy(dst, window->data + (offset - window->offset), (size_t)size);
    return true;
}

/* False: it can't be read so, or there is no memory. */
static bool fill(cairn__window *window, const cairn__page_file *file, uint32_t block, uint32_t end)
{
    const uint64_t align = CAIRN__DIRECT_ALIGNMENT;
    const uint64_t from = file->block_offset[block] / align * align;
    const uint64_t to = file->block_offset[end - 1] + file->block_size[end - 1];
    const size_t   size = (size_t)((to - from + align - 1) / align * align);
    window->file = NULL;
    if (size > window->room) {
        free(window->data);
        window->data = cairn__alloc_large(size);
        window->room = window->data ? size : 0;
    }
    if (!window->data || cairn__read_direct(file->fd, window->data, size, (size_t)(to - from), from))
        return false;
    window->file = file;
    window->offset = from;
    window->size = to - from;
    return true;
}

cairn_status cairn__page_file_read_through(const cairn__root *root, const cairn__page_file *file, cairn__window *window,
                                           uint32_t block, uint32_t end, void *dst)
{
    bool have =
        take_from(window, file, block, dst) || (fill(window, file, block, end) && take_from(window, file, block, dst));
    return have ? cairn__page_prove_block(root->keyring, &file->header, block, dst)
                : cairn__page_file_read(root, file, block, dst);
}

bool cairn__page_file_is_cold(const cairn__page_file *file)
{
    return cairn__is_cold(file->fd, file->info.size_bytes - 1);
}

void cairn__page_file_read_ahead(const cairn__page_file *file, uint32_t block)
{
    cairn__read_ahead(file->fd, file->block_offset[block], file->block_size[block]);
}

void cairn__page_file_close(cairn__page_file *file)
{
    cairn__close(file->fd);
    free(file->memory);
    file->fd = -1;
    file->memory = NULL;
}
