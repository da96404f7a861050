/* file.c - see file.h. Linux: OFD locks, RENAME_NOREPLACE, getdents64.
 *
 * Every function makes its calls through sys.h, retries EINTR where the call
 * can be interrupted before it did anything, and turns errno into a status.
 * The errno of the last failure stays in this thread for the operator's text.
 * close() and sync are never retried: after a failed sync the kernel may have
 * dropped the dirty pages, and a second call would succeed without them. */
#include "os/file.h"

#include "os/clock.h"
#include "os/posix/sys.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The kernel moves at most 0x7ffff000 bytes a call; ask for less, so that a
 * short count always means the end of the file or a full device. */
#define MAX_IO_SIZE ((size_t)1 << 30)
#define READ_AHEAD_SIZE (UINT64_C(128) << 10)

enum { SHORT_READ = -1, NAME_TOO_ODD = -2 }; /* beside errno values in last_error */

static _Thread_local int  last_error;
static _Thread_local char error_text[128];

static cairn_status status_of(int error)
{
    switch (error) {
    case EINVAL:
    case ENOTDIR: /* also a symlink where a directory was wanted */
    case EISDIR:
    case ENAMETOOLONG:
    case EBADF:
        return CAIRN_EINVAL;
    case ENOMEM:
        return CAIRN_ENOMEM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return CAIRN_ENOSPC;
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP: /* a symlink in the last component */
        return CAIRN_EACCES;
    case ENOENT:
        return CAIRN_ENOENT;
    case EEXIST:
    case ENOTEMPTY:
    case EAGAIN:
    case EBUSY:
        return CAIRN_EBUSY;
    case ENOTSUP:
    case ENOSYS:
    case ENXIO: /* a socket */
        return CAIRN_ENOTSUP;
    default:
        return CAIRN_EIO;
    }
}

static cairn_status fail(void)
{
    last_error = errno;
    return status_of(last_error);
}

static cairn_status status_of_result(int result)
{
    return result < 0 ? fail() : CAIRN_OK;
}

const char *cairn__os_error_text(void)
{
    if (last_error == SHORT_READ)
        return "unexpected end of file";
    if (last_error == NAME_TOO_ODD)
        return "directory entry without end";
    return strerror_r(last_error, error_text, sizeof(error_text)); /* the GNU one: returns the text */
}

static cairn_status open_fd(int dir_fd, const char *name, int flags, int *ret_fd)
{
    int fd;
    do
        fd = cairn__sys_openat(dir_fd, name, flags | O_CLOEXEC | O_NOCTTY, 0600);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return fail();
    *ret_fd = fd;
    return CAIRN_OK;
}

cairn_status cairn__open_dir(int dir_fd, const char *name, int *ret_fd)
{
    return open_fd(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, ret_fd);
}

cairn_status cairn__open_read(int dir_fd, const char *name, int *ret_fd)
{
    return open_fd(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, ret_fd);
}

cairn_status cairn__open_read_in(int dir_fd, const char *path, int *ret_fd)
{
    int fd;
    do
        fd = cairn__sys_open_beneath(dir_fd, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return fail();
    *ret_fd = fd;
    return CAIRN_OK;
}

cairn_status cairn__open_user_file(const char *path, int *ret_fd)
{
    return open_fd(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, ret_fd);
}

cairn_status cairn__create_new(int dir_fd, const char *name, int *ret_fd)
{
    return open_fd(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, ret_fd);
}

cairn_status cairn__open_shared(int dir_fd, const char *name, int *ret_fd)
{
    return open_fd(dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, ret_fd);
}

void cairn__close(int fd)
{
    if (fd >= 0)
        cairn__sys_close(fd);
}

/* False: the range ends beyond what off_t can say. */
static bool range_fits(size_t size, uint64_t offset)
{
    return offset <= INT64_MAX && size <= (uint64_t)INT64_MAX - offset;
}

cairn_status cairn__read_at(int fd, void *buf, size_t size, uint64_t offset)
{
    if (!range_fits(size, offset))
        return CAIRN_EINVAL;
    for (uint8_t *p = buf; size > 0;) {
        ssize_t n = cairn__sys_pread(fd, p, size < MAX_IO_SIZE ? size : MAX_IO_SIZE, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail();
        if (n == 0) {
            last_error = SHORT_READ;
            return CAIRN_ECORRUPT;
        }
        p += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return CAIRN_OK;
}

bool cairn__is_cold(int fd, uint64_t offset)
{
    return range_fits(1, offset) && cairn__sys_in_memory(fd, (off_t)offset) == 0;
}

cairn_status cairn__read_direct(int fd, void *buf, size_t size, size_t needed, uint64_t offset)
{
    char path[sizeof "/proc/self/fd/" + 12];
    int  direct = -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    cairn_status status = open_fd(AT_FDCWD, path, O_RDONLY | O_DIRECT | O_NONBLOCK, &direct);
    if (status)
        return status;
    size_t have = 0;
    while (!status && have < needed) {
        /* What is short ends the file, or is odd enough to be read in the ordinary way. */
        ssize_t n = have % CAIRN__DIRECT_ALIGNMENT
                        ? 0
                        : cairn__sys_pread(direct, (uint8_t *)buf + have, size - have, (off_t)(offset + have));
        if (n > 0)
            have += (size_t)n;
        else if (n == 0 || errno != EINTR)
            status = n ? fail() : CAIRN_ECORRUPT;
    }
    cairn__close(direct);
    return status;
}

/* In pieces that every device takes whole: of a longer one the kernel reads the
 * beginning alone, silently (read_ahead_kb, 128 by default). */
void cairn__read_ahead(int fd, uint64_t offset, uint64_t size)
{
    if (!range_fits((size_t)size, offset))
        return;
    for (uint64_t at = 0; at < size; at += READ_AHEAD_SIZE) {
        uint64_t piece = size - at < READ_AHEAD_SIZE ? size - at : READ_AHEAD_SIZE;
        if (cairn__sys_read_ahead(fd, (off_t)(offset + at), (off_t)piece) != 0)
            return;
    }
}

cairn_status cairn__write_at(int fd, const void *buf, size_t size, uint64_t offset)
{
    if (!range_fits(size, offset))
        return CAIRN_EINVAL;
    for (const uint8_t *p = buf; size > 0;) {
        ssize_t n = cairn__sys_pwrite(fd, p, size < MAX_IO_SIZE ? size : MAX_IO_SIZE, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n == 0) /* else this would spin: nothing written and no error */
                errno = EIO;
            return fail();
        }
        p += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return CAIRN_OK;
}

void cairn__start_write(int fd)
{
    (void)cairn__sys_start_write(fd); /* an error shows again in the sync */
}

cairn_status cairn__sync_data(int fd)
{
    return status_of_result(cairn__sys_fdatasync(fd));
}

cairn_status cairn__sync_dir(int dir_fd)
{
    return status_of_result(cairn__sys_fsync(dir_fd));
}

/* File systems without RENAME_NOREPLACE (some network ones) say EINVAL; a hard
 * link refuses an existing name as well. A crash in between leaves the
 * temporary name beside the final one, and so does an unlink that fails: the file
 * has its name, and the next clean-up removes the other. */
static cairn_status link_and_unlink(int dir_fd, const char *from, const char *to)
{
    if (cairn__sys_linkat(dir_fd, from, dir_fd, to) < 0)
        return fail();
    (void)cairn__sys_unlinkat(dir_fd, from);
    return CAIRN_OK;
}

cairn_status cairn__rename_new(int dir_fd, const char *from, const char *to)
{
    if (cairn__sys_rename_noreplace(dir_fd, from, dir_fd, to) == 0)
        return CAIRN_OK;
    if (errno == EINVAL || errno == ENOSYS)
        return link_and_unlink(dir_fd, from, to);
    return fail();
}

cairn_status cairn__rename_across(int from_dir, const char *from, int to_dir, const char *to)
{
    return status_of_result(cairn__sys_renameat(from_dir, from, to_dir, to));
}

cairn_status cairn__unlink(int dir_fd, const char *name)
{
    return status_of_result(cairn__sys_unlinkat(dir_fd, name));
}

cairn_status cairn__remove_dir(int dir_fd, const char *name)
{
    return status_of_result(cairn__sys_rmdirat(dir_fd, name));
}

cairn_status cairn__set_mode(int fd, uint32_t mode)
{
    return status_of_result(cairn__sys_fchmod(fd, (mode_t)mode));
}

cairn_status cairn__make_dir(int dir_fd, const char *name, bool *ret_created)
{
    bool created = cairn__sys_mkdirat(dir_fd, name, 0700) == 0;
    if (!created && errno != EEXIST)
        return fail();
    if (ret_created)
        *ret_created = created;
    return CAIRN_OK;
}

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static cairn__file_info info_of(const struct stat *st)
{
    return (cairn__file_info){
        .dev = (uint64_t)st->st_dev,
        .inode = (uint64_t)st->st_ino,
        .size_bytes = (uint64_t)st->st_size,
        .disk_bytes = (uint64_t)st->st_blocks * 512, /* st_blocks counts 512 bytes whatever the block size */
        .mtime_ns = ns_of(st->st_mtim),
        .ctime_ns = ns_of(st->st_ctim),
        .n_links = (uint64_t)st->st_nlink,
        .mode = (uint32_t)st->st_mode,
        .uid = (uint32_t)st->st_uid,
        .is_regular = S_ISREG(st->st_mode),
        .is_directory = S_ISDIR(st->st_mode),
    };
}

cairn_status cairn__stat(int dir_fd, const char *name, cairn__file_info *ret_info)
{
    struct stat st;
    if (cairn__sys_fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail();
    *ret_info = info_of(&st);
    return CAIRN_OK;
}

cairn_status cairn__stat_user_file(const char *path, cairn__file_info *ret_info)
{
    struct stat st;
    if (cairn__sys_fstatat(AT_FDCWD, path, &st, 0) < 0)
        return fail();
    *ret_info = info_of(&st);
    return CAIRN_OK;
}

cairn_status cairn__fstat(int fd, cairn__file_info *ret_info)
{
    struct stat st;
    if (cairn__sys_fstat(fd, &st) < 0)
        return fail();
    *ret_info = info_of(&st);
    return CAIRN_OK;
}

cairn_status cairn__set_mtime(int fd, int64_t mtime_ns)
{
    int64_t               seconds = mtime_ns / INT64_C(1000000000) - (mtime_ns % INT64_C(1000000000) < 0);
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = (time_t)seconds, .tv_nsec = (long)(mtime_ns - seconds * INT64_C(1000000000))}};
    return status_of_result(cairn__sys_futimens(fd, times));
}

cairn_status cairn__replace(int fd, int by)
{
    int result;
    do
        result = cairn__sys_dup3(by, fd);
    while (result < 0 && (errno == EINTR || errno == EBUSY));
    return status_of_result(result);
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Entries of one getdents64 answer. *ret_stop: the visitor has had enough. */
static cairn_status visit_entries(const char *buf, size_t size, bool (*visit)(void *ctx, const char *name), void *ctx,
                                  bool *ret_stop)
{
    for (size_t at = 0; at < size;) {
        const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buf + at);
        size_t                 room = size - at;
        if (room < offsetof(struct dirent64, d_name) || entry->d_reclen <= offsetof(struct dirent64, d_name) ||
            entry->d_reclen > room || !memchr(entry->d_name, 0, entry->d_reclen - offsetof(struct dirent64, d_name))) {
            last_error = NAME_TOO_ODD; /* a broken FUSE server */
            return CAIRN_EIO;
        }
        if (!is_dot(entry->d_name) && !visit(ctx, entry->d_name)) {
            *ret_stop = true;
            return CAIRN_OK;
        }
        at += entry->d_reclen;
    }
    return CAIRN_OK;
}

cairn_status cairn__list_dir(int dir_fd, bool (*visit)(void *ctx, const char *name), void *ctx)
{
    /* 32 KiB holds 200 page names; opened anew because the position in a
     * directory belongs to the descriptor and threads share dir_fd. */
    _Alignas(struct dirent64) char buf[32768];
    int                            fd = -1;
    cairn_status                   status = cairn__open_dir(dir_fd, ".", &fd);
    if (status)
        return status;
    for (bool stop = false; !stop;) {
        ssize_t n = cairn__sys_getdents64(fd, buf, sizeof(buf));
        if (n < 0)
            status = fail();
        if (n <= 0)
            break;
        status = visit_entries(buf, (size_t)n, visit, ctx, &stop);
        if (status)
            break;
    }
    cairn__close(fd);
    return status;
}

cairn_status cairn__disk_space_of(int fd, cairn__disk_space *ret_space)
{
    struct statvfs st;
    int            result;
    do
        result = cairn__sys_fstatvfs(fd, &st);
    while (result < 0 && errno == EINTR);
    if (result < 0)
        return fail();
    ret_space->total_bytes = (uint64_t)st.f_blocks * st.f_frsize;
    ret_space->available_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return CAIRN_OK;
}

/* l_pid must be 0 for OFD locks. */
static struct flock range_lock(short type, uint64_t offset, uint64_t size)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)size};
}

cairn_status cairn__lock_range(int fd, uint64_t offset, uint64_t size, bool wait)
{
    if (size == 0 || !range_fits(size, offset)) /* the kernel takes length 0 as "to the end" */
        return CAIRN_EINVAL;
    struct flock lock = range_lock(F_WRLCK, offset, size);
    int          result;
    do
        result = cairn__sys_lock(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
    while (result < 0 && errno == EINTR);
    if (result == 0)
        return CAIRN_OK;
    if (errno == EACCES) /* POSIX allows it in place of EAGAIN */
        errno = EAGAIN;
    return fail();
}

void cairn__unlock_range(int fd, uint64_t offset, uint64_t size)
{
    struct flock lock = range_lock(F_UNLCK, offset, size);
    (void)cairn__sys_lock(fd, F_OFD_SETLK, &lock); /* fails only for a closed fd, whose locks are gone */
}

cairn_status cairn__is_range_locked(int fd, uint64_t offset, uint64_t size, bool *ret_locked)
{
    if (size == 0 || !range_fits(size, offset))
        return CAIRN_EINVAL;
    struct flock lock = range_lock(F_WRLCK, offset, size);
    if (cairn__sys_lock(fd, F_OFD_GETLK, &lock) < 0)
        return fail();
    *ret_locked = lock.l_type != F_UNLCK;
    return CAIRN_OK;
}

/* Without getrandom (a sandbox that forbids it): names that differ between
 * calls and processes are all that is needed. */
static void weak_random(uint8_t *p, size_t size)
{
    uint64_t state = cairn__monotonic_ns() ^ (uint64_t)(uintptr_t)p;
    for (size_t i = 0; i < size; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth's MMIX constants */
        p[i] = (uint8_t)(state >> 56);
    }
}

/* Returns how many bytes at the end of buf are missing. */
static size_t kernel_random(uint8_t *p, size_t size)
{
    while (size > 0) {
        ssize_t n = cairn__sys_getrandom(p, size < 256 ? size : 256);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        p += n;
        size -= (size_t)n;
    }
    return size;
}

void cairn__random_bytes(void *buf, size_t size)
{
    size_t missing = kernel_random(buf, size);
    weak_random((uint8_t *)buf + (size - missing), missing);
}

cairn_status cairn__random_salt(void *buf, size_t size)
{
    if (kernel_random(buf, size) == 0)
        return CAIRN_OK;
    last_error = errno;
    return CAIRN_EIO;
}
