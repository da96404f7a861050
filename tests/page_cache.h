/* page_cache.h - what of a file is in the kernel's page cache, for tests. */
#ifndef CAIRN_TESTS_PAGE_CACHE_H
#define CAIRN_TESTS_PAGE_CACHE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Share of the file's pages that are there, in percent; -1: can't be told. */
static inline int page_cache_percent(const char *path)
{
    struct stat st;
    int         fd = open(path, O_RDONLY | O_CLOEXEC), percent = -1;
    if (fd < 0 || fstat(fd, &st) != 0)
        return -1;
    size_t         n = ((size_t)st.st_size + 4095) / 4096, there = 0;
    unsigned char *pages = malloc(n);
    void          *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (pages && map != MAP_FAILED && mincore(map, (size_t)st.st_size, pages) == 0) {
        for (size_t i = 0; i < n; i++)
            there += pages[i] & 1;
        percent = (int)(100 * there / n);
    }
    if (map != MAP_FAILED)
        munmap(map, (size_t)st.st_size);
    free(pages);
    close(fd);
    return percent;
}

static inline void page_cache_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

/* False: this file system keeps its files in memory. */
static inline bool page_cache_drop(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        return false;
    for (int i = 0; i < 100 && page_cache_percent(path) > 0; i++) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        page_cache_pause();
    }
    close(fd);
    return page_cache_percent(path) == 0;
}

/* Waits, 20 s at most. */
static inline bool page_cache_becomes(const char *path, int percent)
{
    for (int i = 0; i < 2000 && page_cache_percent(path) < percent; i++)
        page_cache_pause();
    return page_cache_percent(path) >= percent;
}

#endif
