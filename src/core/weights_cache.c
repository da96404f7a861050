/* weights_cache.c - see weights_cache.h; the format is in docs/format.md.
 *
 * An entry is read by writing it again: the digest is taken from its fixed
 * place, the text that put() would write for it is made, and the two are
 * compared. So there is no parser to get wrong, and a field that differs from
 * the file's stat is a miss like any flipped bit. */
#include "core/weights_cache.h"

#include "base/bytes.h"
#include "base/digest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEX_SIZE (2 * sizeof(cairn_digest))
#define ENTRY_SIZE_MAX CAIRN__DIGEST_ENTRY_MAX /* 5 numbers of at most 20 characters, 2 digests, the words between */
/* Entries in a folder before all are dropped: inodes change with every
 * download, and nothing else bounds the folder. They take 4 KiB each on disk. */
#define N_ENTRIES_MAX 512u
#define SETTLED_NS (INT64_C(2) * 1000000000) /* the coarsest file times in use: 2 s (exFAT, some NFS servers) */

static const char FIRST_LINE[] = "cairn digest 1\n";
static const char CHECK[] = "check=";
static const char SUFFIX[] = ".digest";
static const char TEMPORARY[] = ".tmp-";

/* Writes the entry for info and digest; returns its size. */
static size_t format_entry(const cairn__file_info *info, const cairn_digest *digest, char buf[ENTRY_SIZE_MAX])
{
    char hex[HEX_SIZE + 1];
    cairn__hex(digest->bytes, sizeof(digest->bytes), hex);
    int          size = snprintf(buf, ENTRY_SIZE_MAX,
                                 "cairn digest 1\ndev=%" PRIu64 "\ninode=%" PRIu64 "\nsize=%" PRIu64
                                 "\nmtime_ns=%" PRId64 "\nctime_ns=%" PRId64 "\ndigest=%s\n",
                                 info->dev, info->inode, info->size_bytes, info->mtime_ns, info->ctime_ns, hex);
    cairn_digest check = cairn__sha256_once(buf, (size_t)size);
    cairn__hex(check.bytes, sizeof(check.bytes), hex);
    size += snprintf(buf + size, ENTRY_SIZE_MAX - (size_t)size, "check=%s\n", hex);
    return (size_t)size;
}

static void entry_name(const cairn__file_info *info, char buf[64])
{
    snprintf(buf, 64, "%016" PRIx64 "-%016" PRIx64 "%s", info->dev, info->inode, SUFFIX);
}

static bool is_private_dir(const cairn__file_info *info)
{
    return info->is_directory && info->uid == (uint32_t)geteuid() && (info->mode & (S_IWGRP | S_IWOTH)) == 0;
}

int cairn__weights_cache_open(const char *path)
{
    int              fd = -1;
    cairn__file_info info;
    if (!path || cairn__make_dir(AT_FDCWD, path, NULL) || cairn__open_dir(AT_FDCWD, path, &fd))
        return -1;
    if (cairn__fstat(fd, &info) || !is_private_dir(&info)) {
        cairn__close(fd);
        return -1;
    }
    return fd;
}

/* Reads a whole entry; 0: none, or not of a size an entry can have. */
static size_t read_entry(int dir_fd, const char *name, char buf[ENTRY_SIZE_MAX])
{
    int              fd = -1;
    size_t           size = 0;
    cairn__file_info info;
    if (cairn__open_read(dir_fd, name, &fd))
        return 0;
    if (!cairn__fstat(fd, &info) && info.is_regular && info.uid == (uint32_t)geteuid() &&
        info.size_bytes <= ENTRY_SIZE_MAX && !cairn__read_at(fd, buf, (size_t)info.size_bytes, 0))
        size = (size_t)info.size_bytes;
    cairn__close(fd);
    return size;
}

bool cairn__weights_cache_get(int dir_fd, const cairn__file_info *info, cairn_digest *ret_digest)
{
    char         name[64], have[ENTRY_SIZE_MAX], want[ENTRY_SIZE_MAX];
    char         hex[HEX_SIZE + 1] = "";
    cairn_digest digest;
    /* What follows the digest's hex: "\ncheck=", the check, "\n". */
    const size_t tail = 1 + strlen("check=") + HEX_SIZE + 1;
    if (dir_fd < 0)
        return false;
    entry_name(info, name);
    size_t size = read_entry(dir_fd, name, have);
    if (size < tail + HEX_SIZE)
        return false;
    memcpy(hex, have + size - tail - HEX_SIZE, HEX_SIZE);
    if (!cairn__unhex(hex, digest.bytes, sizeof(digest.bytes)))
        return false;
    if (format_entry(info, &digest, want) != size || memcmp(have, want, size) != 0)
        return false;
    *ret_digest = digest;
    return true;
}

bool cairn__weights_cache_is_name(const char *name)
{
    uint8_t number[8];
    return strlen(name) == 33 + sizeof(SUFFIX) - 1 && cairn__unhex(name, number, sizeof(number)) && name[16] == '-' &&
           cairn__unhex(name + 17, number, sizeof(number)) && strcmp(name + 33, SUFFIX) == 0;
}

bool cairn__weights_cache_is_entry(const void *data, size_t size)
{
    const char  *text = data;
    const size_t tail = sizeof(CHECK) - 1 + HEX_SIZE + 1;
    char         hex[HEX_SIZE + 1];
    if (size < sizeof(FIRST_LINE) - 1 + tail || size > ENTRY_SIZE_MAX ||
        memcmp(text, FIRST_LINE, sizeof(FIRST_LINE) - 1) != 0 ||
        memcmp(text + size - tail, CHECK, sizeof(CHECK) - 1) != 0 || text[size - 1] != '\n')
        return false;
    cairn_digest check = cairn__sha256_once(text, size - tail);
    cairn__hex(check.bytes, sizeof(check.bytes), hex);
    return memcmp(text + size - 1 - HEX_SIZE, hex, HEX_SIZE) == 0;
}

static bool is_entry_or_temporary(const char *name)
{
    size_t size = strlen(name), suffix = sizeof(SUFFIX) - 1;
    return strncmp(name, TEMPORARY, sizeof(TEMPORARY) - 1) == 0 ||
           (size > suffix && strcmp(name + size - suffix, SUFFIX) == 0);
}

static bool count_entry(void *ctx, const char *name)
{
    if (is_entry_or_temporary(name))
        ++*(uint32_t *)ctx;
    return true;
}

static bool drop_entry(void *ctx, const char *name)
{
    if (is_entry_or_temporary(name))
        (void)!cairn__unlink(*(int *)ctx, name); /* another process may have been first */
    return true;
}

static void bound_entries(int dir_fd)
{
    uint32_t n = 0;
    if (!cairn__list_dir(dir_fd, count_entry, &n) && n >= N_ENTRIES_MAX)
        (void)!cairn__list_dir(dir_fd, drop_entry, &dir_fd);
}

/* Temporary file, sync, rename over the old entry, sync of the folder. close()
 * comes last: the lock goes with it. */
static cairn_status write_entry(int dir_fd, const char *name, const char *data, size_t size)
{
    uint8_t random[8];
    char    temporary[sizeof(TEMPORARY) + 2 * sizeof(random)];
    int     fd = -1;
    cairn__random_bytes(random, sizeof(random));
    memcpy(temporary, TEMPORARY, sizeof(TEMPORARY));
    cairn__hex(random, sizeof(random), temporary + sizeof(TEMPORARY) - 1);
    cairn_status status = cairn__create_new(dir_fd, temporary, &fd);
    if (status)
        return status;
    /* Tells a clean-up of the root that this temporary file has a living writer. */
    status = cairn__lock_range(fd, 0, 1, false);
    if (!status)
        status = cairn__write_at(fd, data, size, 0);
    if (!status)
        status = cairn__sync_data(fd);
    if (!status)
        status = cairn__rename_across(dir_fd, temporary, dir_fd, name);
    if (status)
        (void)!cairn__unlink(dir_fd, temporary);
    cairn__close(fd);
    return status ? status : cairn__sync_dir(dir_fd);
}

void cairn__weights_cache_put(int dir_fd, const cairn__file_info *info, int64_t hashing_began_ns,
                              const cairn_digest *digest)
{
    char name[64], entry[ENTRY_SIZE_MAX];
    if (dir_fd < 0 || info->ctime_ns > hashing_began_ns - SETTLED_NS)
        return;
    bound_entries(dir_fd);
    entry_name(info, name);
    size_t size = format_entry(info, digest, entry);
    (void)!write_entry(dir_fd, name, entry, size); /* not cached: the next start hashes again */
}

typedef struct weighing {
    int      dir_fd;
    uint64_t bytes;
} weighing;

static bool weigh_entry(void *ctx, const char *name)
{
    weighing        *w = ctx;
    cairn__file_info info;
    if (!cairn__stat(w->dir_fd, name, &info))
        w->bytes += info.disk_bytes;
    return true;
}

uint64_t cairn__weights_cache_bytes(const char *path)
{
    weighing         w = {.dir_fd = -1};
    cairn__file_info info;
    if (!path || cairn__open_dir(AT_FDCWD, path, &w.dir_fd))
        return 0;
    if (!cairn__fstat(w.dir_fd, &info))
        w.bytes = info.disk_bytes;
    (void)!cairn__list_dir(w.dir_fd, weigh_entry, &w);
    cairn__close(w.dir_fd);
    return w.bytes;
}
