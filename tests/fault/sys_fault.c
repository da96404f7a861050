/* sys_fault.c - every function of sys.h, linked in front of the library's: asks
 * the plan first, tells the journal afterwards. */
#include "fault.h"
#include "journal.h"
#include "os/posix/sys.h"

#include <dirent.h>
#include <errno.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *boot_id_file;
static void (*written)(void *ctx, int fd);
static void *written_ctx;

void fault_set_boot_id_file(const char *path)
{
    boot_id_file = path;
}

void fault_watch(void (*fn)(void *ctx, int fd), void *ctx)
{
    written = fn;
    written_ctx = ctx;
}

static ssize_t do_write(int fd, const void *buf, size_t size, off_t offset)
{
    ssize_t n = journal_pwrite(fd, buf, size, offset);
    int     error = errno;
    if (written)
        written(written_ctx, fd);
    errno = error;
    return n;
}

/* Does `call` unless the plan is against it; the result of the enclosing function.
 * FAULT_LATE_ERROR: does it and says that it failed. */
#define GUARDED(kind, call)                                                                                            \
    do {                                                                                                               \
        fault_effect effect_;                                                                                          \
        if (fault_hits(kind, &effect_)) {                                                                              \
            int error_ = errno;                                                                                        \
            if (effect_ == FAULT_LATE_ERROR)                                                                           \
                (void)(call);                                                                                          \
            errno = error_;                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
        return call;                                                                                                   \
    } while (0)

static int do_open(int dir_fd, const char *name, int flags, mode_t mode)
{
    if (boot_id_file && strcmp(name, "/proc/sys/kernel/random/boot_id") == 0)
        name = boot_id_file;
    return (flags & O_CREAT) ? journal_open(dir_fd, name, flags, mode) : openat(dir_fd, name, flags, mode);
}

int cairn__sys_openat(int dir_fd, const char *name, int flags, mode_t mode)
{
    fault_effect effect;
    if (fault_hits(flags & O_CREAT ? FAULT_CREATE : FAULT_OPEN, &effect)) {
        int error = errno;
        if (effect == FAULT_LATE_ERROR) {
            int fd = do_open(dir_fd, name, flags, mode);
            if (fd >= 0)
                close(fd);
        }
        errno = error;
        return -1;
    }
    return do_open(dir_fd, name, flags, mode);
}

int cairn__sys_open_beneath(int dir_fd, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)flags, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    GUARDED(FAULT_OPEN, (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof how));
}

/* Linux closes the descriptor whatever it reports. */
int cairn__sys_close(int fd)
{
    fault_effect effect;
    int          error = fault_hits(FAULT_CLOSE, &effect) ? errno : 0;
    int          result = close(fd);
    if (!error)
        return result;
    errno = error;
    return -1;
}

ssize_t cairn__sys_pread(int fd, void *buf, size_t size, off_t offset)
{
    fault_effect effect;
    if (!fault_hits(FAULT_READ, &effect))
        return pread(fd, buf, size, offset);
    switch (effect) {
    case FAULT_SHORT:
        return pread(fd, buf, size > 1 ? size / 2 : size, offset);
    case FAULT_NOTHING:
        return 0;
    case FAULT_GARBLE: {
        ssize_t n = pread(fd, buf, size, offset);
        if (n > 0)
            ((uint8_t *)buf)[n / 2] ^= 0x10;
        return n;
    }
    default:
        return -1;
    }
}

/* Nothing is in memory, so that the device is asked each time. */
int cairn__sys_in_memory(int fd, off_t offset)
{
    (void)fd, (void)offset;
    return 0;
}

int cairn__sys_read_ahead(int fd, off_t offset, off_t size)
{
    GUARDED(FAULT_READ_AHEAD, posix_fadvise(fd, offset, size, POSIX_FADV_WILLNEED));
}

ssize_t cairn__sys_pwrite(int fd, const void *buf, size_t size, off_t offset)
{
    fault_effect effect;
    if (!fault_hits(FAULT_WRITE, &effect))
        return do_write(fd, buf, size, offset);
    int error = errno;
    switch (effect) {
    case FAULT_SHORT:
        return do_write(fd, buf, size > 1 ? size / 2 : size, offset);
    case FAULT_NOTHING:
        return 0;
    case FAULT_LATE_ERROR:
        (void)!do_write(fd, buf, size, offset);
        break;
    default:
        break;
    }
    errno = error;
    return -1;
}

int cairn__sys_fdatasync(int fd)
{
    GUARDED(FAULT_SYNC, journal_sync(fd));
}

int cairn__sys_fsync(int fd)
{
    GUARDED(FAULT_SYNC_DIR, journal_sync(fd));
}

int cairn__sys_start_write(int fd)
{
    GUARDED(FAULT_START_WRITE, sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
}

int cairn__sys_rename_noreplace(int from_dir, const char *from, int to_dir, const char *to)
{
    GUARDED(FAULT_RENAME_NEW, journal_rename(from_dir, from, to_dir, to, RENAME_NOREPLACE));
}

int cairn__sys_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    GUARDED(FAULT_RENAME, journal_rename(from_dir, from, to_dir, to, 0));
}

int cairn__sys_linkat(int from_dir, const char *from, int to_dir, const char *to)
{
    GUARDED(FAULT_LINK, journal_link(from_dir, from, to_dir, to));
}

int cairn__sys_unlinkat(int dir_fd, const char *name)
{
    GUARDED(FAULT_UNLINK, journal_unlink(dir_fd, name, 0));
}

int cairn__sys_rmdirat(int dir_fd, const char *name)
{
    GUARDED(FAULT_RMDIR, journal_unlink(dir_fd, name, AT_REMOVEDIR));
}

int cairn__sys_fchmod(int fd, mode_t mode)
{
    GUARDED(FAULT_CHMOD, fchmod(fd, mode));
}

int cairn__sys_mkdirat(int dir_fd, const char *name, mode_t mode)
{
    GUARDED(FAULT_MKDIR, journal_mkdir(dir_fd, name, mode));
}

int cairn__sys_fstatat(int dir_fd, const char *name, struct stat *st, int flags)
{
    GUARDED(FAULT_STAT, fstatat(dir_fd, name, st, flags));
}

int cairn__sys_fstat(int fd, struct stat *st)
{
    GUARDED(FAULT_FSTAT, fstat(fd, st));
}

int cairn__sys_futimens(int fd, const struct timespec times[2])
{
    GUARDED(FAULT_TOUCH, futimens(fd, times));
}

ssize_t cairn__sys_getdents64(int dir_fd, void *buf, size_t size)
{
    fault_effect effect;
    if (!fault_hits(FAULT_LIST, &effect))
        return getdents64(dir_fd, buf, size);
    return effect == FAULT_NOTHING ? 0 : -1;
}

int cairn__sys_fstatvfs(int fd, struct statvfs *st)
{
    GUARDED(FAULT_SPACE, fstatvfs(fd, st));
}

/* Giving a lock back fails on no kernel. */
int cairn__sys_lock(int fd, int command, struct flock *lock)
{
    if (lock->l_type == F_UNLCK)
        return fcntl(fd, command, lock);
    GUARDED(FAULT_LOCK, fcntl(fd, command, lock));
}

int cairn__sys_dup3(int fd, int to)
{
    GUARDED(FAULT_OPEN, dup3(fd, to, O_CLOEXEC));
}

ssize_t cairn__sys_getrandom(void *buf, size_t size)
{
    fault_effect effect;
    if (!fault_hits(FAULT_RANDOM, &effect))
        return getrandom(buf, size, 0);
    return effect == FAULT_NOTHING ? 0 : -1;
}
