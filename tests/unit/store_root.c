/* Opening a root: what is taken, what is refused, and that the reason is said. */
#include "store_testing.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

typedef struct fixture {
    char *dir;
    char  root[512];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    f->dir = test_make_dir();
    snprintf(f->root, sizeof(f->root), "%s/root", f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    test_remove_dir(f->dir);
    free(f);
    return 0;
}

static cairn_status try_open(const char *root, cairn_store **ret_store, cairn_error *error)
{
    cairn_store_options o = {.root = root, .budget_bytes = 1 << 30, .reserve_bytes = 1};
    return cairn_store_open(&o, ret_store, error);
}

/* Refused with this status, and a text that has both words in it. */
static void refuse(const char *root, cairn_status expected, const char *path, const char *word)
{
    cairn_store *store = NULL;
    cairn_error  error;
    cairn_status status = try_open(root, &store, &error);
    if (status != expected || !strstr(error.text, path) || !strstr(error.text, word))
        fail_msg("%s: status %s, text: %s", root, cairn_status_name(status), error.text);
    assert_null(store);
    assert_int_equal(cairn_store_open(&(cairn_store_options){.root = root}, &store, NULL), expected);
}

static void accept(const char *root)
{
    cairn_store *store;
    cairn_error  error;
    if (try_open(root, &store, &error) != CAIRN_OK)
        fail_msg("%s", error.text);
    assert_string_equal(error.text, "");
    cairn_store_close(store);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static void creates_it_private(void **state)
{
    fixture *f = *state;
    char     deep[600], path[700], text[32] = {0};
    mode_t   old = umask(0);
    snprintf(deep, sizeof(deep), "%s/a/b/c", f->dir);
    accept(deep);
    umask(old);
    assert_int_equal(mode_of(deep), 0700);
    snprintf(path, sizeof(path), "%s/CAIRN", deep);
    assert_int_equal(test_read_file(path, text, sizeof(text) - 1), 13);
    assert_string_equal(text, "cairn root 1\n");
    assert_int_equal(mode_of(path), 0600);
    snprintf(path, sizeof(path), "%s/ledger", deep);
    assert_int_equal(mode_of(path), 0600);
    accept(deep); /* and again */
}

static void takes_an_empty_one(void **state)
{
    fixture *f = *state;
    char     path[600];
    assert_int_equal(mkdir(f->root, 0755), 0);
    snprintf(path, sizeof(path), "%s/lost+found", f->root);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/.tmp-0123456789abcdef", f->root); /* killed while creating */
    test_write_file(path, "", 0);
    accept(f->root);
    assert_int_equal(mode_of(f->root), 0700);
}

static void refuses_what_is_not_ours(void **state)
{
    fixture *f = *state;
    char     path[700], slash[600];
    assert_int_equal(mkdir(f->root, 0700), 0);
    snprintf(path, sizeof(path), "%s/letters.txt", f->root);
    test_write_file(path, "x", 1);
    refuse(f->root, CAIRN_EINVAL, f->root, "not empty");
    assert_true(test_exists(path));
    refuse(path, CAIRN_EINVAL, path, "not a directory");
    snprintf(path, sizeof(path), "%s/letters.txt/root", f->root);
    refuse(path, CAIRN_EINVAL, "letters.txt", "create");
    refuse("", CAIRN_EINVAL, "", "empty name");

    char link[600], target[600];
    snprintf(target, sizeof(target), "%s/target", f->dir);
    snprintf(link, sizeof(link), "%s/link", f->dir);
    snprintf(slash, sizeof(slash), "%s/link/", f->dir);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, link), 0);
    refuse(link, CAIRN_EINVAL, link, "symbolic link");
    refuse(slash, CAIRN_EINVAL, link, "symbolic link");
    accept(target);
    /* A link among the parents is the user's own way to say where. */
    snprintf(path, sizeof(path), "%s/below", link);
    snprintf(target, sizeof(target), "%s/target2", f->dir);
    assert_int_equal(mkdir(target, 0700), 0);
    snprintf(link, sizeof(link), "%s/link2", f->dir);
    assert_int_equal(symlink(target, link), 0);
    snprintf(path, sizeof(path), "%s/below", link);
    accept(path);
}

static void refuses_another_version(void **state)
{
    fixture *f = *state;
    char     path[600];
    accept(f->root);
    snprintf(path, sizeof(path), "%s/CAIRN", f->root);
    test_write_file(path, "cairn root 2\n", 13);
    refuse(f->root, CAIRN_EINVAL, f->root, "version");
    test_write_file(path, "", 0);
    refuse(f->root, CAIRN_EINVAL, f->root, "version");
}

static void relative_and_default_paths(void **state)
{
    fixture     *f = *state;
    cairn_store *store;
    char         expected[600], cwd[512];
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    assert_int_equal(chdir(f->dir), 0);
    cairn_store_options o = {.root = "rel//", .budget_bytes = 1 << 30, .reserve_bytes = 1};
    assert_int_equal(cairn_store_open(&o, &store, NULL), CAIRN_OK);
    snprintf(expected, sizeof(expected), "%s/rel", f->dir);
    assert_string_equal(cairn_store_root(store), expected);
    cairn_store_close(store);
    assert_int_equal(chdir(cwd), 0);

    o.root = NULL;
    setenv("XDG_CACHE_HOME", f->dir, 1);
    assert_int_equal(cairn_store_open(&o, &store, NULL), CAIRN_OK);
    snprintf(expected, sizeof(expected), "%s/cairn", f->dir);
    assert_string_equal(cairn_store_root(store), expected);
    cairn_store_close(store);
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    setenv("HOME", f->dir, 1);
    assert_int_equal(cairn_store_open(&o, &store, NULL), CAIRN_OK);
    snprintf(expected, sizeof(expected), "%s/.cache/cairn", f->dir);
    assert_string_equal(cairn_store_root(store), expected);
    cairn_store_close(store);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    cairn_error error;
    assert_int_equal(cairn_store_open(&o, &store, &error), CAIRN_EINVAL);
    assert_non_null(strstr(error.text, "HOME"));
}

static void options_are_checked(void **state)
{
    fixture              *f = *state;
    static const uint32_t bad[] = {1, 15, 17, 100, 4112, UINT32_MAX};
    cairn_store          *store;
    cairn_error           error;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cairn_store_options o = {.root = f->root, .page_tokens = bad[i]};
        assert_int_equal(cairn_store_open(&o, &store, &error), CAIRN_EINVAL);
        assert_non_null(strstr(error.text, "page_tokens"));
    }
    assert_false(test_exists(f->root));
    cairn_store_options o = {.root = f->root, .reserve_bytes = 1, .page_tokens = 4096};
    assert_int_equal(cairn_store_open(&o, &store, &error), CAIRN_OK);
    cairn_store_stats s = test_stats(store);
    assert_true(s.budget_bytes > 0 && s.budget_bytes <= UINT64_C(64) << 30); /* auto */
    cairn_store_close(store);
}

/* Free space below the reserve: opens, serves, does not write, and says so. */
static void below_the_reserve(void **state)
{
    fixture            *f = *state;
    cairn_store_options o = {.root = f->root, .budget_bytes = 1 << 30, .reserve_bytes = UINT64_MAX / 2};
    cairn_store        *store;
    cairn_error         error;
    cairn_identity     *id = test_identity("reserve");
    int32_t             t[256];
    atomic_int          released = 0;
    test_tokens(t, 256, 1);
    store = test_open(f->root, 1 << 30, 0);
    test_store(store, id, t, 256);
    cairn_store_close(store);
    assert_int_equal(cairn_store_open(&o, &store, &error), CAIRN_OK);
    assert_true(test_stats(store).read_only);
    assert_int_equal(cairn_store_put_room(store), 0);
    test_expect(store, id, t, 256, 256, t, 256);
    t[0]++;
    test_put *p = test_make_put(id, t, 256, 256, 0);
    p->released = &released;
    assert_int_equal(cairn_store_put(store, &p->put), CAIRN_OK);
    assert_int_equal(cairn_store_flush(store, 1000), CAIRN_OK);
    assert_int_equal(released, 1);
    assert_int_equal(test_stats(store).pages_given_up, 1);
    test_expect(store, id, t, 256, 0, NULL, 0);
    cairn_store_close(store);
    cairn_identity_destroy(id);
}

/* ---- as another user, or in a mount namespace of its own: in a child ---- */

static int in_child(int (*body)(fixture *f), fixture *f)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(body(f));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static bool is_refused(const char *root, cairn_status expected, const char *word)
{
    cairn_store *store;
    cairn_error  error;
    cairn_status status = try_open(root, &store, &error);
    if (status == expected && strstr(error.text, root) && strstr(error.text, word))
        return true;
    fprintf(stderr, "%s: status %s, text: %s\n", root, cairn_status_name(status), error.text);
    return false;
}

static int become_nobody(void)
{
    return geteuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0) ? 0 : 77;
}

static int not_writable_body(fixture *f)
{
    char below[600];
    if (become_nobody())
        return 77;
    if (mkdir(f->root, 0500) != 0)
        return 1;
    if (!is_refused(f->root, CAIRN_EACCES, "writable"))
        return 2;
    snprintf(below, sizeof(below), "%s/below", f->root);
    if (!is_refused(below, CAIRN_EACCES, "create"))
        return 3;
    return rmdir(f->root) != 0;
}

static int not_ours_body(fixture *f)
{
    if (become_nobody())
        return 77;
    return !is_refused(f->root, CAIRN_EACCES, "belongs to") && !is_refused(f->root, CAIRN_EACCES, "cannot open");
}

static void expect_child(int (*body)(fixture *f), fixture *f, const char *why_skipped)
{
    int code = in_child(body, f);
    if (code == 77)
        printf("skipped: %s\n", why_skipped);
    else
        assert_int_equal(code, 0);
}

static void not_writable(void **state)
{
    fixture *f = *state;
    assert_int_equal(chmod(f->dir, 0777), 0);
    expect_child(not_writable_body, f, "can't become another user");
}

static void not_ours(void **state)
{
    fixture *f = *state;
    if (geteuid() != 0) {
        printf("skipped: only root can make a directory of another user\n");
        return;
    }
    assert_int_equal(chmod(f->dir, 0755), 0);
    assert_int_equal(mkdir(f->root, 0755), 0);
    expect_child(not_ours_body, f, "can't become another user");
    /* And root does not take over a user's. */
    assert_int_equal(chown(f->root, 65534, 65534), 0);
    refuse(f->root, CAIRN_EACCES, f->root, "belongs to");
}

static int mount_tmpfs(const char *path, unsigned long flags, const char *options)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -1;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return -1;
    return mount("cairn-test", path, "tmpfs", flags, options);
}

static int read_only_body(fixture *f)
{
    if (mount_tmpfs(f->root, MS_RDONLY, "size=1m,mode=0700") != 0)
        return 77;
    return !is_refused(f->root, CAIRN_EACCES, "writable");
}

static void read_only_file_system(void **state)
{
    expect_child(read_only_body, *state, "can't mount");
}

static int full_disk_body(fixture *f)
{
    char path[600];
    if (mount_tmpfs(f->root, 0, "size=64k,mode=0700") != 0)
        return 77;
    /* The filler lies under a name that an empty root may have. */
    snprintf(path, sizeof(path), "%s/.tmp-0123456789abcdef", f->root);
    int  fd = open(path, O_CREAT | O_WRONLY, 0600);
    char block[4096] = {0};
    while (write(fd, block, sizeof(block)) > 0)
        ;
    close(fd);
    if (!is_refused(f->root, CAIRN_ENOSPC, "room"))
        return 1;
    if (unlink(path) != 0)
        return 2;
    cairn_store *store;
    if (try_open(f->root, &store, NULL) != CAIRN_OK)
        return 3;
    cairn_store_close(store);
    return 0;
}

static void full_disk(void **state)
{
    expect_child(full_disk_body, *state, "can't mount");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(not_writable, setup, teardown),
        cmocka_unit_test_setup_teardown(not_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(read_only_file_system, setup, teardown),
        cmocka_unit_test_setup_teardown(full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(creates_it_private, setup, teardown),
        cmocka_unit_test_setup_teardown(takes_an_empty_one, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_what_is_not_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_another_version, setup, teardown),
        cmocka_unit_test_setup_teardown(relative_and_default_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(options_are_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(below_the_reserve, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
