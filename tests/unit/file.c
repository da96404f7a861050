/* file.c - src/os/file.h on a real file system. */
#include "testing.h"

#include "os/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct fixture {
    char *path;
    int   dir;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    f->path = test_make_dir();
    f->dir = -1;
    assert_int_equal(cairn__open_dir(AT_FDCWD, f->path, &f->dir), CAIRN_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    cairn__close(f->dir);
    test_remove_dir(f->path);
    free(f);
    return 0;
}

static void make_file(int dir, const char *name, const char *text)
{
    int fd = -1;
    assert_int_equal(cairn__create_new(dir, name, &fd), CAIRN_OK);
    assert_int_equal(cairn__write_at(fd, text, strlen(text), 0), CAIRN_OK);
    assert_int_equal(cairn__sync_data(fd), CAIRN_OK);
    cairn__close(fd);
}

static void write_and_read(void **state)
{
    fixture         *f = *state;
    int              fd = -1;
    char             buf[8] = "";
    cairn__file_info info;
    umask(0); /* the mode is ours, not the umask's */
    make_file(f->dir, "a", "hello");
    assert_int_equal(cairn__create_new(f->dir, "a", &fd), CAIRN_EBUSY);
    assert_int_equal(cairn__open_read(f->dir, "a", &fd), CAIRN_OK);
    assert_int_equal(cairn__read_at(fd, buf, 3, 2), CAIRN_OK);
    assert_string_equal(buf, "llo");
    assert_int_equal(cairn__read_at(fd, buf, 4, 2), CAIRN_ECORRUPT); /* one byte more than there is */
    assert_string_equal(cairn__os_error_text(), "unexpected end of file");
    assert_int_equal(cairn__read_at(fd, buf, 0, 99), CAIRN_OK);
    assert_int_equal(cairn__read_at(fd, buf, 1, UINT64_MAX), CAIRN_EINVAL);
    assert_int_equal(cairn__write_at(fd, "x", 1, 0), CAIRN_EINVAL); /* opened for reading */
    assert_int_equal(cairn__fstat(fd, &info), CAIRN_OK);
    assert_int_equal(info.size_bytes, 5);
    assert_int_equal(info.mode & 07777, 0600);
    assert_int_equal(info.uid, geteuid());
    assert_true(info.is_regular && !info.is_directory);
    cairn__close(fd);
    cairn__close(-1);
    assert_int_equal(cairn__open_read(f->dir, "b", &fd), CAIRN_ENOENT);
    assert_string_equal(cairn__os_error_text(), "No such file or directory");
}

static void rename_and_unlink(void **state)
{
    fixture         *f = *state;
    cairn__file_info info;
    make_file(f->dir, "old", "1");
    make_file(f->dir, "new", "22");
    assert_int_equal(cairn__rename_new(f->dir, "old", "new"), CAIRN_EBUSY);
    assert_int_equal(cairn__stat(f->dir, "new", &info), CAIRN_OK);
    assert_int_equal(info.size_bytes, 2);
    assert_int_equal(cairn__rename_new(f->dir, "old", "third"), CAIRN_OK);
    assert_int_equal(cairn__stat(f->dir, "old", &info), CAIRN_ENOENT);
    assert_int_equal(cairn__rename_across(f->dir, "third", f->dir, "new"), CAIRN_OK); /* over it */
    assert_int_equal(cairn__stat(f->dir, "new", &info), CAIRN_OK);
    assert_int_equal(info.size_bytes, 1);
    assert_int_equal(cairn__sync_dir(f->dir), CAIRN_OK);
    assert_int_equal(cairn__unlink(f->dir, "new"), CAIRN_OK);
    assert_int_equal(cairn__unlink(f->dir, "new"), CAIRN_ENOENT);
}

static void folders(void **state)
{
    fixture         *f = *state;
    bool             created = false;
    int              fd = -1;
    cairn__file_info info;
    assert_int_equal(cairn__make_dir(f->dir, "d", &created), CAIRN_OK);
    assert_true(created);
    assert_int_equal(cairn__make_dir(f->dir, "d", &created), CAIRN_OK);
    assert_false(created);
    assert_int_equal(cairn__make_dir(f->dir, "d", NULL), CAIRN_OK);
    assert_int_equal(cairn__make_dir(f->dir, "no/d", NULL), CAIRN_ENOENT);
    assert_int_equal(cairn__stat(f->dir, "d", &info), CAIRN_OK);
    assert_true(info.is_directory && !info.is_regular);
    assert_int_equal(info.mode & 07777, 0700);
    make_file(f->dir, "a", "");
    assert_int_equal(cairn__open_dir(f->dir, "a", &fd), CAIRN_EINVAL);
    assert_int_equal(cairn__remove_dir(f->dir, "d"), CAIRN_OK);
    assert_int_equal(cairn__stat(f->dir, "d", &info), CAIRN_ENOENT);
}

static void symlinks_are_not_followed(void **state)
{
    fixture         *f = *state;
    int              fd = -1;
    char            *path = NULL;
    cairn__file_info info;
    make_file(f->dir, "target", "x");
    assert_int_equal(cairn__make_dir(f->dir, "dir", NULL), CAIRN_OK);
    assert_int_equal(symlinkat("target", f->dir, "link"), 0);
    assert_int_equal(symlinkat("dir", f->dir, "dirlink"), 0);
    assert_int_equal(cairn__open_read(f->dir, "link", &fd), CAIRN_EACCES);
    assert_int_equal(cairn__open_shared(f->dir, "link", &fd), CAIRN_EACCES);
    assert_int_equal(cairn__create_new(f->dir, "link", &fd), CAIRN_EBUSY);
    assert_true(cairn__open_dir(f->dir, "dirlink", &fd) != CAIRN_OK);
    assert_int_equal(fd, -1);
    assert_int_equal(cairn__stat(f->dir, "link", &info), CAIRN_OK);
    assert_false(info.is_regular);
    assert_true(asprintf(&path, "%s/link", f->path) > 0); /* but for the user's own paths */
    assert_int_equal(cairn__stat_user_file(path, &info), CAIRN_OK);
    assert_true(info.is_regular);
    assert_int_equal(cairn__open_user_file(path, &fd), CAIRN_OK);
    cairn__close(fd);
    free(path);
}

static void a_fifo_does_not_block(void **state)
{
    fixture         *f = *state;
    int              fd = -1;
    cairn__file_info info;
    assert_int_equal(mkfifoat(f->dir, "fifo", 0600), 0);
    assert_int_equal(cairn__open_read(f->dir, "fifo", &fd), CAIRN_OK);
    assert_int_equal(cairn__fstat(fd, &info), CAIRN_OK);
    assert_false(info.is_regular);
    cairn__close(fd);
}

typedef struct listing {
    int  n, stop_after;
    bool seen[300];
} listing;

static bool see(void *ctx, const char *name)
{
    listing *l = ctx;
    int      i = atoi(name + 1);
    assert_true(name[0] == 'f' && i >= 0 && i < 300 && !l->seen[i]);
    l->seen[i] = true;
    return ++l->n != l->stop_after;
}

static void list(void **state)
{
    fixture *f = *state;
    listing  all = {0}, some = {.stop_after = 7}, again = {0};
    char     name[200];
    for (int i = 0; i < 300; i++) { /* long names: more than one buffer of entries */
        snprintf(name, sizeof(name), "f%03d-%0150d", i, 0);
        make_file(f->dir, name, "");
    }
    assert_int_equal(cairn__list_dir(f->dir, see, &all), CAIRN_OK);
    assert_int_equal(all.n, 300);
    assert_int_equal(cairn__list_dir(f->dir, see, &some), CAIRN_OK);
    assert_int_equal(some.n, 7);
    assert_int_equal(cairn__list_dir(f->dir, see, &again), CAIRN_OK); /* from the start again */
    assert_int_equal(again.n, 300);
}

static void locks(void **state)
{
    fixture *f = *state;
    int      a = -1, b = -1;
    assert_int_equal(cairn__open_shared(f->dir, "ledger", &a), CAIRN_OK);
    assert_int_equal(cairn__open_shared(f->dir, "ledger", &b), CAIRN_OK);
    assert_int_equal(cairn__lock_range(a, 0, 64, false), CAIRN_OK);
    assert_int_equal(cairn__lock_range(b, 63, 1, false), CAIRN_EBUSY); /* of the same process: OFD locks */
    bool locked = false;
    assert_int_equal(cairn__is_range_locked(b, 63, 1, &locked), CAIRN_OK);
    assert_true(locked);
    assert_int_equal(cairn__is_range_locked(b, 64, 1, &locked), CAIRN_OK);
    assert_false(locked); /* and asking took none */
    assert_int_equal(cairn__is_range_locked(a, 0, 64, &locked), CAIRN_OK);
    assert_false(locked); /* one's own does not count */
    assert_int_equal(cairn__is_range_locked(a, 0, 0, &locked), CAIRN_EINVAL);
    assert_int_equal(cairn__lock_range(b, 64, 64, false), CAIRN_OK);
    cairn__unlock_range(a, 0, 64);
    assert_int_equal(cairn__lock_range(b, 0, 64, true), CAIRN_OK);
    cairn__close(b); /* a closed descriptor holds nothing */
    assert_int_equal(cairn__lock_range(a, 0, 128, false), CAIRN_OK);
    assert_int_equal(cairn__lock_range(a, 0, 0, false), CAIRN_EINVAL);
    assert_int_equal(cairn__lock_range(a, UINT64_MAX, 1, false), CAIRN_EINVAL);
    cairn__close(a);
}

static void lock_of_a_dead_process_is_free(void **state)
{
    fixture *f = *state;
    int      fd = -1, status = 0;
    assert_int_equal(cairn__open_shared(f->dir, "ledger", &fd), CAIRN_OK);
    pid_t pid = fork();
    if (pid == 0) {
        int own = -1;
        if (cairn__open_shared(f->dir, "ledger", &own) || cairn__lock_range(own, 0, 8, false))
            _exit(1);
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(cairn__lock_range(fd, 0, 8, false), CAIRN_OK);
    cairn__close(fd);
}

static void touch_and_space(void **state)
{
    fixture              *f = *state;
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    int                   fd = -1;
    cairn__file_info      info;
    cairn__disk_space     space = {0};
    make_file(f->dir, "a", "x");
    assert_int_equal(utimensat(f->dir, "a", old, 0), 0);
    assert_int_equal(cairn__open_read(f->dir, "a", &fd), CAIRN_OK);
    assert_int_equal(cairn__fstat(fd, &info), CAIRN_OK);
    assert_true(info.mtime_ns == INT64_C(1000000000000));
    assert_int_equal(cairn__set_mtime(fd, INT64_C(1700000000000000007)), CAIRN_OK);
    assert_int_equal(cairn__fstat(fd, &info), CAIRN_OK);
    assert_true(info.mtime_ns == INT64_C(1700000000000000007));
    assert_int_equal(cairn__set_mtime(fd, INT64_C(-1)), CAIRN_OK); /* just before 1970 */
    assert_int_equal(cairn__fstat(fd, &info), CAIRN_OK);
    assert_true(info.mtime_ns == -1);
    assert_int_equal(cairn__disk_space_of(fd, &space), CAIRN_OK);
    assert_true(space.total_bytes > 0 && space.available_bytes <= space.total_bytes);
    cairn__close(fd);
}

static void random_bytes_differ(void **state)
{
    (void)state;
    uint8_t a[1000] = {0}, b[1000] = {0}, none[16] = {0};
    cairn__random_bytes(a, sizeof(a));
    cairn__random_bytes(b, sizeof(b));
    assert_memory_not_equal(a, b, 16);
    assert_memory_not_equal(a + sizeof(a) - 16, none, 16); /* to the end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(write_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(rename_and_unlink, setup, teardown),
        cmocka_unit_test_setup_teardown(folders, setup, teardown),
        cmocka_unit_test_setup_teardown(symlinks_are_not_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_fifo_does_not_block, setup, teardown),
        cmocka_unit_test_setup_teardown(list, setup, teardown),
        cmocka_unit_test_setup_teardown(locks, setup, teardown),
        cmocka_unit_test_setup_teardown(lock_of_a_dead_process_is_free, setup, teardown),
        cmocka_unit_test_setup_teardown(touch_and_space, setup, teardown),
        cmocka_unit_test(random_bytes_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
