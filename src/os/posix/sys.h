/* sys.h - the system calls that file.c makes, one thin function each.
 *
 * No policy: no retries, no mapping, errno as the kernel left it. They sit in a
 * file of their own (sys.c) so that a test can link its own definitions of all
 * of them in front of the library and fail or hold back the Nth call. */
#ifndef CAIRN_OS_POSIX_SYS_H
#define CAIRN_OS_POSIX_SYS_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

int     cairn__sys_openat(int dir_fd, const char *name, int flags, mode_t mode);
int     cairn__sys_open_beneath(int dir_fd, const char *path, int flags); /* openat2: no symlink, not upwards */
int     cairn__sys_close(int fd);
ssize_t cairn__sys_pread(int fd, void *buf, size_t size, off_t offset);
int     cairn__sys_in_memory(int fd, off_t offset);                            /* mincore of that page: 1, 0, or an error */
int     cairn__sys_read_ahead(int fd, off_t offset, off_t size);               /* posix_fadvise: an errno, or 0 */
ssize_t cairn__sys_pwrite(int fd, const void *buf, size_t size, off_t offset);
int     cairn__sys_fdatasync(int fd);
int     cairn__sys_fsync(int fd);
int     cairn__sys_start_write(int fd); /* sync_file_range */
int     cairn__sys_rename_noreplace(int from_dir, const char *from, int to_dir, const char *to);
int     cairn__sys_renameat(int from_dir, const char *from, int to_dir, const char *to);
int     cairn__sys_linkat(int from_dir, const char *from, int to_dir, const char *to);
int     cairn__sys_unlinkat(int dir_fd, const char *name);
int     cairn__sys_rmdirat(int dir_fd, const char *name);
int     cairn__sys_fchmod(int fd, mode_t mode);
int     cairn__sys_mkdirat(int dir_fd, const char *name, mode_t mode);
int     cairn__sys_fstatat(int dir_fd, const char *name, struct stat *st, int flags);
int     cairn__sys_fstat(int fd, struct stat *st);
int     cairn__sys_futimens(int fd, const struct timespec times[2]);
ssize_t cairn__sys_getdents64(int dir_fd, void *buf, size_t size);
int     cairn__sys_fstatvfs(int fd, struct statvfs *st);
int     cairn__sys_lock(int fd, int command, struct flock *lock); /* fcntl */
int     cairn__sys_dup3(int fd, int to); /* O_CLOEXEC */
ssize_t cairn__sys_getrandom(void *buf, size_t size);

#endif
