/* sys.c - see sys.h: the kernel itself. Off_t is 64 bits wide everywhere. */
#include "os/posix/sys.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "files over 2 GiB");

int cairn__sys_openat(int dir_fd, const char *name, int flags, mode_t mode)
{
    return openat(dir_fd, name, flags, mode);
}

int cairn__sys_open_beneath(int dir_fd, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)flags, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
}

int cairn__sys_close(int fd)
{
    return close(fd);
}

ssize_t cairn__sys_pread(int fd, void *buf, size_t size, off_t offset)
{
    return pread(fd, buf, size, offset);
}

int cairn__sys_in_memory(int fd, off_t offset)
{
    const off_t   page = sysconf(_SC_PAGESIZE);
    unsigned char there = 0;
    void         *map = mmap(NULL, (size_t)page, PROT_READ, MAP_SHARED, fd, offset / page * page);
    if (map == MAP_FAILED)
        return -1;
    int result = mincore(map, (size_t)page, &there);
    munmap(map, (size_t)page);
    return result < 0 ? result : there & 1;
}

int cairn__sys_read_ahead(int fd, off_t offset, off_t size)
{
    return posix_fadvise(fd, offset, size, POSIX_FADV_WILLNEED);
}

ssize_t cairn__sys_pwrite(int fd, const void *buf, size_t size, off_t offset)
{
    return pwrite(fd, buf, size, offset);
}

int cairn__sys_fdatasync(int fd)
{
    return fdatasync(fd);
}

int cairn__sys_fsync(int fd)
{
    return fsync(fd);
}

int cairn__sys_start_write(int fd)
{
    return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

int cairn__sys_rename_noreplace(int from_dir, const char *from, int to_dir, const char *to)
{
    return renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE);
}

int cairn__sys_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return renameat(from_dir, from, to_dir, to);
}

int cairn__sys_linkat(int from_dir, const char *from, int to_dir, const char *to)
{
    return linkat(from_dir, from, to_dir, to, 0);
}

int cairn__sys_unlinkat(int dir_fd, const char *name)
{
    return unlinkat(dir_fd, name, 0);
}

int cairn__sys_rmdirat(int dir_fd, const char *name)
{
    return unlinkat(dir_fd, name, AT_REMOVEDIR);
}

int cairn__sys_fchmod(int fd, mode_t mode)
{
    return fchmod(fd, mode);
}

int cairn__sys_mkdirat(int dir_fd, const char *name, mode_t mode)
{
    return mkdirat(dir_fd, name, mode);
}

int cairn__sys_fstatat(int dir_fd, const char *name, struct stat *st, int flags)
{
    return fstatat(dir_fd, name, st, flags);
}

int cairn__sys_fstat(int fd, struct stat *st)
{
    return fstat(fd, st);
}

int cairn__sys_futimens(int fd, const struct timespec times[2])
{
    return futimens(fd, times);
}

ssize_t cairn__sys_getdents64(int dir_fd, void *buf, size_t size)
{
    return getdents64(dir_fd, buf, size);
}

int cairn__sys_fstatvfs(int fd, struct statvfs *st)
{
    return fstatvfs(fd, st);
}

int cairn__sys_lock(int fd, int command, struct flock *lock)
{
    return fcntl(fd, command, lock);
}

int cairn__sys_dup3(int fd, int to)
{
    return dup3(fd, to, O_CLOEXEC);
}

ssize_t cairn__sys_getrandom(void *buf, size_t size)
{
    return getrandom(buf, size, 0);
}
