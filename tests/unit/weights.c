/* weights.c - the weights digest against python3's hashlib, and its cache: what
 * it must not believe, and what it does. */
#include "testing.h"

#include "cairn/identity.h"
#include "core/weights_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK ((size_t)16 << 20)
static const char A_TEXT[] = "first shard", B_TEXT[] = "second";
static const char A_HEX[] = "fa82944cf71e056b65345d37b641668c10155a651940d98b6426a4402433e758";

/* Files that are old enough to be cached; nobody writes to them later. */
static char *dir, *path_a, *path_b;

static char *join(const char *name)
{
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
    return path;
}

static int setup(void **state)
{
    (void)state;
    dir = test_make_dir();
    path_a = join("a.gguf");
    path_b = join("b.gguf");
    test_write_file(path_a, A_TEXT, strlen(A_TEXT));
    test_write_file(path_b, B_TEXT, strlen(B_TEXT));
    nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 100000000}, NULL); /* "settled" is 2 s */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(path_a);
    free(path_b);
    test_remove_dir(dir);
    return 0;
}

typedef struct watch {
    uint64_t calls, first_done, last_done, total;
    uint64_t stop_at; /* cancel in the call with this number, from 1; 0: never */
    bool     backwards;
    void (*act)(void); /* in the first call */
} watch;

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    watch *w = ctx;
    w->calls++;
    if (w->calls == 1) {
        w->first_done = done;
        if (w->act)
            w->act();
    }
    w->backwards |= done < w->last_done || done > total;
    w->last_done = done;
    w->total = total;
    return w->calls != w->stop_at;
}

static cairn_error error;

static cairn_status digest(const char *const *paths, uint32_t n, const char *cache, watch *w, cairn_digest *ret)
{
    cairn_weights_request request = {.paths = paths,
                                     .n_paths = n,
                                     .n_threads = 2,
                                     .cache_dir = cache,
                                     .progress = w ? on_progress : NULL,
                                     .progress_ctx = w};
    memset(&error, 'e', sizeof(error));
    cairn_status status = cairn_weights_digest(&request, ret, &error);
    assert_non_null(memchr(error.text, 0, sizeof(error.text)));
    assert_true(status == CAIRN_OK ? error.text[0] == 0 : error.text[0] != 0);
    return status;
}

static void expect(const char *const *paths, uint32_t n, const char *hex)
{
    cairn_digest d;
    assert_int_equal(digest(paths, n, NULL, NULL, &d), CAIRN_OK);
    assert_hex(d.bytes, 32, hex);
}

static void small_files(void **state)
{
    (void)state;
    const char *ab[] = {path_a, path_b}, *ba[] = {path_b, path_a};
    char       *empty = join("empty"), *link = join("link");
    test_write_file(empty, "", 0);
    assert_int_equal(symlink("a.gguf", link), 0); /* as model caches have it */
    expect(ab, 1, A_HEX);
    expect(ab, 2, "d106b2ab94757823ff45c5a4ad88ec2a67b5556a0ea2dbbbe68b4585efe3e1b6");
    expect(ba, 2, "c46989258fcfb625857d24705758389932bff35da13673337657938b22d32291");
    expect((const char *[]){empty}, 1, "b12438bca3edc8fb4ef9ef86e839ee6e2d5dbfdba2a55c0c76bede8271c7fd0d");
    expect((const char *[]){link}, 1, A_HEX);
    free(empty);
    free(link);
}

/* byte i = bits 24..31 of i * 2654435761 */
static void make_big(const char *path, size_t size)
{
    uint8_t *data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)((uint32_t)(i * 2654435761u) >> 24);
    test_write_file(path, data, size);
    free(data);
}

static void chunks_and_threads(void **state)
{
    (void)state;
    static const struct {
        size_t      size;
        const char *hex;
    } files[] = {
        {2 * CHUNK + 5, "d11a9775ac57b22b75bf193d63e35a9b5d929628bd3e9ffaf0128ecf1da66ee2"},
        {CHUNK, "ebac825a382a66c875639cdbf152964c4a10582e6f3ca9adb37a75b3c948734e"},
        {CHUNK + 1, "b231a43f1688b3d87f26859a5e1ab0a4329b34e63c726ba7b99a17f515c2419d"},
    };
    static const uint32_t threads[] = {0, 1, 2, 5};
    char                 *path = join("big");
    for (size_t i = 0; i < 3; i++) {
        make_big(path, files[i].size);
        for (size_t t = 0; t < 4; t++) {
            watch                 w = {0};
            cairn_digest          d;
            cairn_weights_request r = {.paths = (const char *[]){path},
                                       .n_paths = 1,
                                       .n_threads = threads[t],
                                       .progress = on_progress,
                                       .progress_ctx = &w};
            assert_int_equal(cairn_weights_digest(&r, &d, NULL), CAIRN_OK);
            assert_hex(d.bytes, 32, files[i].hex);
            assert_true(w.calls >= 1 && w.first_done == 0 && !w.backwards && w.total == files[i].size);
        }
    }
    assert_int_equal(unlink(path), 0);
    free(path);
}

static void cancel(void **state)
{
    (void)state;
    char        *path = join("big");
    watch        w = {.stop_at = 1};
    cairn_digest d, before;
    make_big(path, 5 * CHUNK);
    memset(&d, 0x5a, sizeof(d));
    before = d;
    assert_int_equal(digest((const char *[]){path}, 1, NULL, &w, &d), CAIRN_ECANCELED);
    assert_int_equal(w.calls, 1);
    assert_memory_equal(&d, &before, sizeof(d));
    assert_int_equal(unlink(path), 0);
    free(path);
}

static char *victim; /* what the actions below work on */

static void append(void)
{
    FILE *file = fopen(victim, "ab");
    assert_non_null(file);
    fputc('x', file);
    fclose(file);
}

static void shrink(void)
{
    assert_int_equal(truncate(victim, 3), 0);
}

static void overwrite(void)
{
    struct stat st;
    assert_int_equal(stat(victim, &st), 0);
    test_write_file(victim, "FIRST SHARD", 11);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, victim, times, 0), 0); /* ctime still tells */
}

static void replace(void)
{
    char *other = join("other");
    test_write_file(other, A_TEXT, strlen(A_TEXT));
    assert_int_equal(rename(other, victim), 0);
    free(other);
}

static void drop(void)
{
    assert_int_equal(unlink(victim), 0);
}

static void changes_while_reading(void **state)
{
    (void)state;
    static void (*const actions[])(void) = {append, shrink, overwrite, replace, drop};
    victim = join("victim");
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        watch        w = {.act = actions[i]};
        cairn_digest d;
        test_write_file(victim, A_TEXT, strlen(A_TEXT));
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* more than a tick of file times */
        assert_int_equal(digest((const char *[]){victim}, 1, NULL, &w, &d), CAIRN_EIO);
        assert_non_null(strstr(error.text, victim));
    }
    free(victim);
}

static void relink(void)
{
    assert_int_equal(unlink(victim), 0);
    assert_int_equal(symlink("b.gguf", victim), 0);
}

/* The file that was opened stays as it was; the path leads to another one. */
static void path_leads_elsewhere(void **state)
{
    (void)state;
    watch        w = {.act = relink};
    cairn_digest d;
    victim = join("victimlink");
    assert_int_equal(symlink("a.gguf", victim), 0);
    assert_int_equal(digest((const char *[]){victim}, 1, NULL, &w, &d), CAIRN_EIO);
    assert_non_null(strstr(error.text, "changed while it was read"));
    free(victim);
}

static void unreadable(void **state)
{
    (void)state;
    char        *missing = join("missing");
    cairn_digest d;
    assert_int_equal(digest((const char *[]){path_a, missing}, 2, NULL, NULL, &d), CAIRN_EIO);
    assert_non_null(strstr(error.text, missing));
    assert_non_null(strstr(error.text, "No such file or directory"));
    assert_int_equal(digest((const char *[]){dir}, 1, NULL, NULL, &d), CAIRN_EIO);
    assert_non_null(strstr(error.text, "not a regular file"));
    assert_int_equal(digest(NULL, 1, NULL, NULL, &d), CAIRN_EINVAL);
    assert_int_equal(digest((const char *[]){path_a}, 0, NULL, NULL, &d), CAIRN_EINVAL);
    assert_int_equal(digest((const char *[]){NULL}, 1, NULL, NULL, &d), CAIRN_EINVAL);
    assert_int_equal(cairn_weights_digest(NULL, &d, NULL), CAIRN_EINVAL);
    free(missing);
}

static uint32_t count_files(const char *path)
{
    uint32_t n = 0;
    DIR     *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.' || strncmp(e->d_name, ".tmp-", 5) == 0;
    closedir(d);
    return n;
}

static void second_time_reads_nothing(void **state)
{
    (void)state;
    char        *cache = join("cache1");
    watch        first = {0}, second = {0}, third = {0};
    const char  *paths[] = {path_a, path_b}, *swapped[] = {path_b, path_a};
    cairn_digest d;
    struct stat  st;
    assert_int_equal(digest(paths, 2, cache, &first, &d), CAIRN_OK);
    assert_int_equal(first.calls, 1);
    assert_int_equal(first.total, strlen(A_TEXT) + strlen(B_TEXT));
    assert_int_equal(count_files(cache), 2); /* and no temporary file */
    assert_int_equal(stat(cache, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(digest(paths, 2, cache, &second, &d), CAIRN_OK);
    assert_int_equal(second.calls, 0);
    assert_hex(d.bytes, 32, "d106b2ab94757823ff45c5a4ad88ec2a67b5556a0ea2dbbbe68b4585efe3e1b6");
    assert_int_equal(digest(swapped, 2, cache, &third, &d), CAIRN_OK); /* entries are of files, not of models */
    assert_int_equal(third.calls, 0);
    assert_hex(d.bytes, 32, "c46989258fcfb625857d24705758389932bff35da13673337657938b22d32291");
    free(cache);
}

static void fresh_file_is_not_cached(void **state)
{
    (void)state;
    char        *cache = join("cache2"), *path = join("fresh");
    cairn_digest d;
    test_write_file(path, A_TEXT, strlen(A_TEXT));
    assert_int_equal(digest((const char *[]){path}, 1, cache, NULL, &d), CAIRN_OK);
    assert_int_equal(count_files(cache), 0);
    free(cache);
    free(path);
}

static cairn__file_info info_of(const char *path)
{
    cairn__file_info info;
    assert_int_equal(cairn__stat_user_file(path, &info), CAIRN_OK);
    return info;
}

static void rewrite_with_old_mtime_is_seen(void **state)
{
    (void)state;
    char            *cache = join("cache3"), *path = join("rewritten");
    cairn_digest     d;
    cairn__file_info before, after;
    test_write_file(path, A_TEXT, strlen(A_TEXT));
    before = info_of(path);
    int fd = cairn__weights_cache_open(cache);
    assert_true(fd >= 0);
    cairn_digest wrong = {{0x77}}; /* what a cache that trusted mtime would answer */
    cairn__weights_cache_put(fd, &before, INT64_MAX, &wrong);
    cairn__close(fd);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* more than a tick of file times */
    test_write_file(path, A_TEXT, strlen(A_TEXT));            /* same bytes: the value below is known */
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                {.tv_sec = before.mtime_ns / 1000000000, .tv_nsec = before.mtime_ns % 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    after = info_of(path);
    assert_true(after.inode == before.inode && after.size_bytes == before.size_bytes &&
                after.mtime_ns == before.mtime_ns);
    assert_int_equal(digest((const char *[]){path}, 1, cache, NULL, &d), CAIRN_OK);
    assert_hex(d.bytes, 32, A_HEX);
    free(cache);
    free(path);
}

static cairn__file_info made_up_info(void)
{
    return (cairn__file_info){.dev = 0x2a,
                              .inode = 0x1234567,
                              .size_bytes = 98362432,
                              .mtime_ns = INT64_C(1767225600123456789),
                              .ctime_ns = INT64_C(1767225601000000001)};
}

/* By hand and sha256sum from docs/format.md. */
static const char ENTRY_NAME[] = "000000000000002a-0000000001234567.digest";
static const char ENTRY[] = "cairn digest 1\n"
                            "dev=42\n"
                            "inode=19088743\n"
                            "size=98362432\n"
                            "mtime_ns=1767225600123456789\n"
                            "ctime_ns=1767225601000000001\n"
                            "digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53\n"
                            "check=e07f538b7da44a643cd688cb1d92fcb97763b9ed3dc47ca4eab27338c578aeac\n";
static const char ENTRY_DIGEST[] = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

static void entry_is_exact(void **state)
{
    (void)state;
    char            *cache = join("cache4"), *path = join("cache4/000000000000002a-0000000001234567.digest"), buf[1024];
    cairn__file_info info = made_up_info();
    cairn_digest     d, got;
    int              fd = cairn__weights_cache_open(cache);
    const int64_t    settled_ns = info.ctime_ns + INT64_C(2000000000);
    test_unhex(ENTRY_DIGEST, d.bytes, 32);
    cairn__weights_cache_put(fd, &info, settled_ns - 1, &d);
    assert_int_equal(count_files(cache), 0); /* a nanosecond too young */
    cairn__weights_cache_put(fd, &info, settled_ns, &d);
    assert_int_equal(test_read_file(path, buf, sizeof(buf)), sizeof(ENTRY) - 1);
    assert_memory_equal(buf, ENTRY, sizeof(ENTRY) - 1);
    assert_true(cairn__weights_cache_get(fd, &info, &got));
    assert_memory_equal(got.bytes, d.bytes, 32);
    cairn__close(fd);
    free(cache);
    free(path);
}

static void damaged_entry_is_none(void **state)
{
    (void)state;
    char            *cache = join("cache5"), buf[sizeof(ENTRY)];
    cairn__file_info info = made_up_info();
    cairn_digest     got;
    int              dir_fd = cairn__weights_cache_open(cache);
    int              fd = openat(dir_fd, ENTRY_NAME, O_RDWR | O_CREAT, 0600);
    assert_true(dir_fd >= 0 && fd >= 0);
    const size_t size = sizeof(ENTRY) - 1;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        memcpy(buf, ENTRY, size);
        buf[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(pwrite(fd, buf, size, 0), size);
        assert_false(cairn__weights_cache_get(dir_fd, &info, &got));
    }
    assert_int_equal(pwrite(fd, ENTRY, size, 0), size);
    assert_true(cairn__weights_cache_get(dir_fd, &info, &got)); /* else the loop shows nothing */
    assert_int_equal(pwrite(fd, "\n", 1, (off_t)size), 1);
    assert_false(cairn__weights_cache_get(dir_fd, &info, &got)); /* longer */
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(ftruncate(fd, (off_t)(size - 1 - cut)), 0);
        assert_false(cairn__weights_cache_get(dir_fd, &info, &got));
    }
    assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0); /* huge: not read */
    assert_false(cairn__weights_cache_get(dir_fd, &info, &got));
    close(fd);
    cairn__close(dir_fd);
    free(cache);
}

static void entry_of_another_file_is_none(void **state)
{
    (void)state;
    char                  *cache = join("cache6");
    const cairn__file_info good = made_up_info();
    cairn_digest           d = {{1}}, got;
    int                    fd = cairn__weights_cache_open(cache);
    cairn__weights_cache_put(fd, &good, INT64_MAX, &d);
    assert_true(cairn__weights_cache_get(fd, &good, &got));
#define MISS(change)                                                                                                   \
    do {                                                                                                               \
        cairn__file_info info = good;                                                                                  \
        info.change;                                                                                                   \
        assert_false(cairn__weights_cache_get(fd, &info, &got));                                                       \
    } while (0)
    MISS(dev++);
    MISS(inode++);
    MISS(size_bytes++);
    MISS(mtime_ns++);
    MISS(ctime_ns--);
#undef MISS
    /* A valid entry put under another file's name. */
    cairn__file_info other = good;
    other.inode++;
    assert_int_equal(renameat(fd, ENTRY_NAME, fd, "000000000000002a-0000000001234568.digest"), 0);
    assert_false(cairn__weights_cache_get(fd, &other, &got));
    assert_false(cairn__weights_cache_get(fd, &good, &got));
    cairn__close(fd);
    free(cache);
}

static void odd_entries_are_none(void **state)
{
    (void)state;
    char            *cache = join("cache7");
    cairn__file_info info = made_up_info();
    cairn_digest     d = {{1}}, got;
    int              fd = cairn__weights_cache_open(cache);
    cairn__weights_cache_put(fd, &info, INT64_MAX, &d);
    assert_int_equal(renameat(fd, ENTRY_NAME, fd, "real"), 0);
    assert_int_equal(symlinkat("real", fd, ENTRY_NAME), 0);
    assert_false(cairn__weights_cache_get(fd, &info, &got));
    assert_int_equal(unlinkat(fd, ENTRY_NAME, 0), 0);
    assert_int_equal(mkfifoat(fd, ENTRY_NAME, 0600), 0);
    assert_false(cairn__weights_cache_get(fd, &info, &got)); /* and does not hang */
    cairn__weights_cache_put(fd, &info, INT64_MAX, &d);      /* replaces it */
    assert_true(cairn__weights_cache_get(fd, &info, &got));
    assert_int_equal(unlinkat(fd, ENTRY_NAME, 0), 0);
    assert_int_equal(mkdirat(fd, ENTRY_NAME, 0700), 0);
    assert_false(cairn__weights_cache_get(fd, &info, &got));
    cairn__weights_cache_put(fd, &info, INT64_MAX, &d); /* can't: no temporary file stays */
    assert_int_equal(count_files(cache), 2);
    cairn__close(fd);
    free(cache);
}

static void folder_that_is_not_ours_is_not_used(void **state)
{
    (void)state;
    char *open_to_all = join("open"), *link = join("cachelink"), *deep = join("no/such/dir");
    assert_int_equal(mkdir(open_to_all, 0700), 0);
    assert_int_equal(chmod(open_to_all, 0777), 0);
    assert_int_equal(symlink(dir, link), 0);
    assert_int_equal(cairn__weights_cache_open(open_to_all), -1);
    assert_int_equal(cairn__weights_cache_open(link), -1);
    assert_int_equal(cairn__weights_cache_open(path_a), -1);
    assert_int_equal(cairn__weights_cache_open(deep), -1);
    assert_int_equal(cairn__weights_cache_open(NULL), -1);
    cairn_digest d;
    assert_int_equal(digest((const char *[]){path_a}, 1, deep, NULL, &d), CAIRN_OK); /* only not cached */
    assert_hex(d.bytes, 32, A_HEX);
    free(open_to_all);
    free(link);
    free(deep);
}

static void folder_is_bounded(void **state)
{
    (void)state;
    char            *cache = join("cache8"), name[64];
    cairn__file_info info = made_up_info();
    cairn_digest     d = {{1}}, got;
    int              fd = cairn__weights_cache_open(cache);
    assert_int_equal(close(openat(fd, "not ours", O_WRONLY | O_CREAT, 0600)), 0);
    for (int i = 0; i < 511; i++) {
        snprintf(name, sizeof(name), i == 0 ? ".tmp-%016x" : "0000000000000001-%016x.digest", (unsigned)i);
        assert_int_equal(close(openat(fd, name, O_WRONLY | O_CREAT, 0600)), 0);
    }
    cairn__weights_cache_put(fd, &info, INT64_MAX, &d);
    assert_int_equal(count_files(cache), 513);
    info.inode++;
    cairn__weights_cache_put(fd, &info, INT64_MAX, &d); /* 512 are there: dropped first */
    assert_int_equal(count_files(cache), 2);
    assert_true(cairn__weights_cache_get(fd, &info, &got));
    cairn__close(fd);
    free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_files),
        cmocka_unit_test(chunks_and_threads),
        cmocka_unit_test(cancel),
        cmocka_unit_test(changes_while_reading),
        cmocka_unit_test(path_leads_elsewhere),
        cmocka_unit_test(unreadable),
        cmocka_unit_test(second_time_reads_nothing),
        cmocka_unit_test(fresh_file_is_not_cached),
        cmocka_unit_test(rewrite_with_old_mtime_is_seen),
        cmocka_unit_test(entry_is_exact),
        cmocka_unit_test(damaged_entry_is_none),
        cmocka_unit_test(entry_of_another_file_is_none),
        cmocka_unit_test(odd_entries_are_none),
        cmocka_unit_test(folder_that_is_not_ours_is_not_used),
        cmocka_unit_test(folder_is_bounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
