/* remove.c - see remove.h. */
#include "tier/remove.h"

#include "os/file.h"
#include "tier/disk.h"
#include "tier/names.h"
#include "tier/root.h"

#include <stdlib.h>
#include <string.h>

uint64_t cairn__remove_folder(int identity_fd, const char *fanout)
{
    cairn__file_info info;
    if (cairn__stat(identity_fd, fanout, &info) != CAIRN_OK || cairn__remove_dir(identity_fd, fanout) != CAIRN_OK)
        return 0;
    return info.disk_bytes;
}

static bool holds_no_page(int dir_fd)
{
    cairn__names names;
    const char  *name = NULL;
    bool         only = cairn__names_read(dir_fd, &names) == CAIRN_OK;
    while (only && (name = cairn__names_next(&names, name)) != NULL)
        only = strcmp(name, CAIRN__IDENTITY_TEXT) == 0 || strcmp(name, CAIRN__IDENTITY_RECENT) == 0;
    cairn__names_done(&names);
    return only;
}

/* A page came between the look and the removal, and its writer saw the text there. */
static void put_text_back(int dir_fd, const uint8_t *text, size_t size)
{
    char temp[CAIRN__TEMP_NAME_SIZE];
    int  fd = -1;
    cairn__temp_name(temp);
    cairn_status status = cairn__create_new(dir_fd, temp, &fd);
    if (!status)
        status = cairn__lock_range(fd, 0, 1, false);
    if (!status)
        status = cairn__write_at(fd, text, size, 0);
    if (!status)
        status = cairn__sync_data(fd);
    if (!status)
        status = cairn__rename_new(dir_fd, temp, CAIRN__IDENTITY_TEXT);
    if (status && fd >= 0)
        (void)!cairn__unlink(dir_fd, temp); /* the next page of it brings its text again */
    cairn__close(fd);
}

uint64_t cairn__remove_recent(int identity_fd)
{
    cairn__file_info info;
    if (cairn__stat(identity_fd, CAIRN__IDENTITY_RECENT, &info) != CAIRN_OK ||
        (cairn__unlink(identity_fd, CAIRN__IDENTITY_RECENT) != CAIRN_OK &&
         cairn__remove_dir(identity_fd, CAIRN__IDENTITY_RECENT) != CAIRN_OK))
        return 0;
    return info.disk_bytes;
}

static uint64_t remove_open(int pages_fd, const char *identity, int fd)
{
    cairn__file_info folder, text_info;
    uint8_t         *text;
    uint64_t         freed = 0;
    if (!holds_no_page(fd) || cairn__fstat(fd, &folder) != CAIRN_OK)
        return 0;
    cairn_status status = cairn__disk_read_identity_text(fd, &text, &text_info);
    if (status && status != CAIRN_ENOENT)
        return 0;
    freed = cairn__remove_recent(fd);
    bool unlinked = !status && cairn__unlink(fd, CAIRN__IDENTITY_TEXT) == CAIRN_OK;
    if (cairn__remove_dir(pages_fd, identity) == CAIRN_OK)
        freed += folder.disk_bytes + (unlinked ? text_info.disk_bytes : 0);
    else if (unlinked)
        put_text_back(fd, text, (size_t)text_info.size_bytes);
    free(text);
    return freed;
}

uint64_t cairn__remove_identity(int pages_fd, const char *identity)
{
    int fd;
    if (cairn__open_dir(pages_fd, identity, &fd) != CAIRN_OK)
        return 0;
    uint64_t freed = remove_open(pages_fd, identity, fd);
    cairn__close(fd);
    return freed;
}
