/* hang.c - preloaded into the program under test (test_hang.py): while the file named
 * by CAIRN_TEST_HANG exists, the calls that the cache's disk answers do not return.
 * The model and the clients are reached by other calls. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static void wait_for_the_disk(void)
{
    const char *path = getenv("CAIRN_TEST_HANG");
    while (path && access(path, F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

#define HELD(result, name, parameters, arguments)                                                                      \
    result name parameters                                                                                             \
    {                                                                                                                  \
        result(*real) parameters = (result(*) parameters)dlsym(RTLD_NEXT, #name);                                      \
        wait_for_the_disk();                                                                                           \
        return real arguments;                                                                                         \
    }

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    int (*real)(int, const char *, int, ...) = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    wait_for_the_disk();
    return real(dir, path, flags, mode);
}

/* openat2 has no function of its own. */
long syscall(long number, ...)
{
    long    a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_openat2)
        wait_for_the_disk();
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

HELD(ssize_t, pread, (int fd, void *buf, size_t size, off_t offset), (fd, buf, size, offset))
HELD(ssize_t, pwrite, (int fd, const void *buf, size_t size, off_t offset), (fd, buf, size, offset))
HELD(int, posix_fadvise, (int fd, off_t offset, off_t size, int advice), (fd, offset, size, advice))
HELD(int, fdatasync, (int fd), (fd))
HELD(int, fsync, (int fd), (fd))

/* The model's file, which is looked at before each request, lies on another disk:
 * its weights are mapped, so a hang of that one stops everything anyway. */
int fstatat(int dir, const char *path, struct stat *st, int flags)
{
    int (*real)(int, const char *, struct stat *, int) =
        (int (*)(int, const char *, struct stat *, int))dlsym(RTLD_NEXT, "fstatat");
    if (!strstr(path, ".gguf"))
        wait_for_the_disk();
    return real(dir, path, st, flags);
}

HELD(int, futimens, (int fd, const struct timespec times[2]), (fd, times))
HELD(ssize_t, getdents64, (int fd, void *buf, size_t size), (fd, buf, size))
HELD(int, renameat2, (int from, const char *old, int to, const char *new, unsigned flags), (from, old, to, new, flags))
