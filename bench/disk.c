/* bench_disk - what verifying costs, and what a restore from the device itself takes.
 *
 *     bench_disk verify|cold --model M --root DIR [--tokens N] [--rounds N] [--readers N]
 *
 * `verify`: the same restore with every checksum computed and with none, in one
 * process, taking turns. Leaving them out is possible in this program alone: the
 * linker puts a function of its own before the library's.
 * `cold`: the pages are dropped from the page cache before each restore, which is
 * checked, and before each plain reading of the same files by 1 to 16 threads,
 * buffered and direct; the best of those is what the device can give. */
#include "cells.h"

#include "core/page.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ROUNDS 64
#define MAX_FILES 8192
#define PIECE ((size_t)1 << 20)

typedef struct options {
    const char *model, *root;
    uint32_t    n_tokens, n_readers;
    int         rounds;
} options;

static atomic_bool verifies = true;

cairn_status __real_cairn__page_prove_block(const cairn__keyring *keyring, const cairn__page_header *header,
                                            uint32_t block, void *data);
cairn_status __wrap_cairn__page_prove_block(const cairn__keyring *keyring, const cairn__page_header *header,
                                            uint32_t block, void *data);
cairn_status __wrap_cairn__page_prove_block(const cairn__keyring *keyring, const cairn__page_header *header,
                                            uint32_t block, void *data)
{
    return atomic_load(&verifies) ? __real_cairn__page_prove_block(keyring, header, block, data) : CAIRN_OK;
}

typedef struct bench {
    bench_model  model;
    bench_cache  cache;
    llama_token *tokens;
    uint64_t     bytes;
} bench;

static void open_bench(const options *o, bench *b)
{
    bench_model_open(&(bench_model_options){.path = o->model, .n_ctx = o->n_tokens + 1024}, &b->model);
    b->tokens = bench_tokens(o->n_tokens + 1, b->model.n_vocab, 1);
    bench_fill(&b->model, b->tokens, o->n_tokens);
    bench_cache_open(&b->model, &(bench_cache_options){.root = o->root, .n_readers = o->n_readers}, &b->cache);
    (void)bench_record_all(&b->cache, b->tokens, o->n_tokens);
}

static void close_bench(bench *b)
{
    bench_cache_close(&b->cache);
    bench_model_close(&b->model);
    free(b->tokens);
}

static double restore_ms(const options *o, bench *b)
{
    double start = bench_now_ms();
    b->bytes = bench_restore(&b->model, &b->cache, b->tokens, o->n_tokens + 1, o->n_tokens).bytes;
    return bench_now_ms() - start;
}

static void verify(const options *o)
{
    static double with[MAX_ROUNDS], without[MAX_ROUNDS];
    bench         b;
    open_bench(o, &b);
    for (int i = -1; i < o->rounds; i++) /* the first one fills the buffers */
        for (int side = 0; side < 2; side++) {
            bool checks = (i + side) % 2 == 0;
            atomic_store(&verifies, checks);
            double ms = restore_ms(o, &b);
            if (i >= 0)
                (checks ? with : without)[i] = ms;
        }
    atomic_store(&verifies, true);
    double a = bench_median(with, o->rounds), c = bench_median(without, o->rounds);
    json_begin();
    json_number("tokens", o->n_tokens);
    json_number("bytes", (double)b.bytes);
    json_number("verified_ms", a);
    json_number("unverified_ms", c);
    json_number("speed_ratio", c / a);
    json_end();
    close_bench(&b);
}

/* ---- cold ---- */

static char    *files[MAX_FILES];
static size_t   n_files;
static uint64_t file_bytes;

static int add_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    size_t n = strlen(path);
    (void)ftw;
    if (type == FTW_F && n > 5 && !strcmp(path + n - 5, ".page") && n_files < MAX_FILES) {
        files[n_files++] = strdup(path);
        file_bytes += (uint64_t)st->st_size;
    }
    return 0;
}

/* How many of the file's pages are in the page cache; asking by reading would change it. */
static size_t n_cached(int fd, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n_pages = (size + page - 1) / page;
    unsigned char *there = bench_alloc(n_pages);
    void          *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    size_t         n = 0;
    if (map == MAP_FAILED || mincore(map, size, there) != 0)
        bench_die("this file system can't tell what is in the page cache: %s", strerror(errno));
    for (size_t i = 0; i < n_pages; i++)
        n += there[i] & 1;
    munmap(map, size);
    free(there);
    return n;
}

/* A restore from the device is followed by bringing the files into memory. */
static void await_cache(void)
{
    for (size_t i = 0; i < n_files; i++) {
        struct stat st;
        int         fd = open(files[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0)
            bench_die("%s: %s", files[i], strerror(errno));
        for (int tries = 0; n_cached(fd, (size_t)st.st_size) == 0; tries++) {
            if (tries == 1000)
                bench_die("%s does not come into the page cache", files[i]);
            usleep(10000);
        }
        close(fd);
    }
}

static void drop_from_cache(void)
{
    sync();
    for (size_t i = 0; i < n_files; i++) {
        struct stat st;
        int         fd = open(files[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
            bench_die("%s: %s", files[i], strerror(errno));
        for (int tries = 0; n_cached(fd, (size_t)st.st_size) > 0; tries++) { /* pages on their way can't be dropped */
            if (tries == 200)
                bench_die("%s stays in the page cache", files[i]);
            usleep(10000);
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        }
        close(fd);
    }
}

typedef struct reading {
    atomic_size_t next;
    int           flags;
} reading;

static void *read_files(void *ctx)
{
    reading *r = ctx;
    void    *buf = aligned_alloc(4096, PIECE);
    for (size_t i; buf && (i = atomic_fetch_add(&r->next, 1)) < n_files;) {
        int     fd = open(files[i], O_RDONLY | O_CLOEXEC | r->flags);
        ssize_t n = 1;
        for (off_t at = 0; fd >= 0 && n > 0; at += n)
            n = pread(fd, buf, PIECE, at);
        if (fd < 0 || n < 0)
            bench_die("%s: %s", files[i], strerror(errno));
        close(fd);
    }
    free(buf);
    return NULL;
}

static double read_ms(int n_threads, int flags)
{
    pthread_t threads[16];
    reading   r = {.flags = flags};
    drop_from_cache();
    double start = bench_now_ms();
    for (int i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, read_files, &r) != 0)
            bench_die("no thread");
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    return bench_now_ms() - start;
}

static bool direct_works(void)
{
    int fd = open(files[0], O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void cold(const options *o)
{
    static double restore[MAX_ROUNDS], plain[2][5][MAX_ROUNDS];
    double        best = 0;
    int           best_threads = 0, best_direct = 0;
    bench         b;
    open_bench(o, &b);
    nftw(o->root, add_file, 16, FTW_PHYS);
    if (n_files == 0)
        bench_die("no pages below %s", o->root);
    (void)restore_ms(o, &b); /* fills the buffers */
    const int kinds = direct_works() ? 2 : 1;
    for (int i = 0; i < o->rounds; i++) {
        drop_from_cache();
        restore[i] = restore_ms(o, &b);
        await_cache();
        for (int direct = 0; direct < kinds; direct++)
            for (int t = 0; t < 5; t++)
                plain[direct][t][i] = read_ms(1 << t, direct ? O_DIRECT : 0);
    }
    for (int direct = 0; direct < kinds; direct++)
        for (int t = 0; t < 5; t++) {
            double ms = bench_median(plain[direct][t], o->rounds);
            if (best == 0 || ms < best) {
                best = ms;
                best_threads = 1 << t;
                best_direct = direct;
            }
        }
    double ms = bench_median(restore, o->rounds);
    json_begin();
    json_number("tokens", o->n_tokens);
    json_number("bytes", (double)b.bytes);
    json_number("file_bytes", (double)file_bytes);
    json_number("cold_restore_ms", ms);
    json_number("best_read_ms", best);
    json_number("best_threads", best_threads);
    json_number("best_is_direct", best_direct);
    json_number("time_ratio", ms / best);
    json_end();
    close_bench(&b);
    for (size_t i = 0; i < n_files; i++)
        free(files[i]);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"model", required_argument, NULL, 'm'},
                                          {"root", required_argument, NULL, 'd'},
                                          {"tokens", required_argument, NULL, 'n'},
                                          {"readers", required_argument, NULL, 'j'},
                                          {"rounds", required_argument, NULL, 'c'},
                                          {NULL, 0, NULL, 0}};
    options                    o = {.n_tokens = 4096, .rounds = 5};
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        switch (c) {
        case 'm':
            o.model = optarg;
            break;
        case 'd':
            o.root = optarg;
            break;
        case 'n':
            o.n_tokens = bench_count(optarg, 1u << 20) / BENCH_PAGE * BENCH_PAGE;
            break;
        case 'j':
            o.n_readers = bench_count(optarg, 256);
            break;
        case 'c':
            o.rounds = (int)bench_count(optarg, MAX_ROUNDS);
            break;
        default:
            return 2;
        }
    const char *verb = optind + 1 == argc ? argv[optind] : "";
    if (!o.model || !o.root || o.n_tokens < 2 * BENCH_PAGE || o.rounds < 1 || (strcmp(verb, "verify") && strcmp(verb, "cold"))) {
        fputs("usage: bench_disk verify|cold --model M --root DIR [--tokens N] [--rounds N] [--readers N]\n", stderr);
        return 2;
    }
    (verb[0] == 'v' ? verify : cold)(&o);
    return 0;
}
