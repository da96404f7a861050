/* Every system call that opening, writing and reading a store makes fails once, and
 * for good from there on: nothing crashes or hangs, no wrong byte is returned, what
 * was acknowledged is there after a restart, and what was not is absent or whole.
 *
 * The system calls of src/os are replaced by the definitions in this file: those of
 * sys.c itself, and in front of the ones that can fail a counter. */
#include "store_testing.h"

#include <errno.h>

#define cairn__sys_openat real_openat
#define cairn__sys_pread real_pread
#define cairn__sys_pwrite real_pwrite
#define cairn__sys_fdatasync real_fdatasync
#define cairn__sys_fsync real_fsync
#define cairn__sys_rename_noreplace real_rename_noreplace
#define cairn__sys_renameat real_renameat
#define cairn__sys_unlinkat real_unlinkat
#define cairn__sys_mkdirat real_mkdirat
#define cairn__sys_fstatat real_fstatat
#define cairn__sys_fstat real_fstat
#define cairn__sys_getdents64 real_getdents64
#define cairn__sys_fstatvfs real_fstatvfs
#define cairn__sys_lock real_lock
#include "os/posix/sys.c"
#undef cairn__sys_openat
#undef cairn__sys_pread
#undef cairn__sys_pwrite
#undef cairn__sys_fdatasync
#undef cairn__sys_fsync
#undef cairn__sys_rename_noreplace
#undef cairn__sys_renameat
#undef cairn__sys_unlinkat
#undef cairn__sys_mkdirat
#undef cairn__sys_fstatat
#undef cairn__sys_fstat
#undef cairn__sys_getdents64
#undef cairn__sys_fstatvfs
#undef cairn__sys_lock

/* ---- faults ---- */

enum { NOWHERE, IN_SYNC, ANYWHERE };
static atomic_int where;      /* which calls count */
static atomic_int calls_left; /* until the fault */
static atomic_int stays;      /* 1: every call from there on fails */
static atomic_int fault_errno;
static atomic_int fired;

static bool fault(int kind)
{
    int w = atomic_load(&where);
    if (w == NOWHERE || (w == IN_SYNC && kind != IN_SYNC))
        return false;
    int left = atomic_fetch_sub(&calls_left, 1);
    if (left > 0 || (left < 0 && !atomic_load(&stays)))
        return false;
    atomic_store(&fired, 1);
    errno = atomic_load(&fault_errno);
    return true;
}

int cairn__sys_openat(int dir_fd, const char *name, int flags, mode_t mode)
{
    return fault(ANYWHERE) ? -1 : real_openat(dir_fd, name, flags, mode);
}
ssize_t cairn__sys_pread(int fd, void *buf, size_t size, off_t offset)
{
    return fault(ANYWHERE) ? -1 : real_pread(fd, buf, size, offset);
}
ssize_t cairn__sys_pwrite(int fd, const void *buf, size_t size, off_t offset)
{
    if (!fault(ANYWHERE))
        return real_pwrite(fd, buf, size, offset);
    if (size > 1) /* half of it arrives */
        (void)!real_pwrite(fd, buf, size / 2, offset);
    errno = atomic_load(&fault_errno);
    return -1;
}
int cairn__sys_fdatasync(int fd)
{
    return fault(IN_SYNC) ? -1 : real_fdatasync(fd);
}
int cairn__sys_fsync(int fd)
{
    return fault(IN_SYNC) ? -1 : real_fsync(fd);
}
int cairn__sys_rename_noreplace(int from_dir, const char *from, int to_dir, const char *to)
{
    return fault(ANYWHERE) ? -1 : real_rename_noreplace(from_dir, from, to_dir, to);
}
int cairn__sys_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return fault(ANYWHERE) ? -1 : real_renameat(from_dir, from, to_dir, to);
}
int cairn__sys_unlinkat(int dir_fd, const char *name)
{
    return fault(ANYWHERE) ? -1 : real_unlinkat(dir_fd, name);
}
int cairn__sys_mkdirat(int dir_fd, const char *name, mode_t mode)
{
    return fault(ANYWHERE) ? -1 : real_mkdirat(dir_fd, name, mode);
}
int cairn__sys_fstatat(int dir_fd, const char *name, struct stat *st, int flags)
{
    return fault(ANYWHERE) ? -1 : real_fstatat(dir_fd, name, st, flags);
}
int cairn__sys_fstat(int fd, struct stat *st)
{
    return fault(ANYWHERE) ? -1 : real_fstat(fd, st);
}
ssize_t cairn__sys_getdents64(int dir_fd, void *buf, size_t size)
{
    return fault(ANYWHERE) ? -1 : real_getdents64(dir_fd, buf, size);
}
int cairn__sys_fstatvfs(int fd, struct statvfs *st)
{
    return fault(ANYWHERE) ? -1 : real_fstatvfs(fd, st);
}
int cairn__sys_lock(int fd, int command, struct flock *lock)
{
    return fault(ANYWHERE) ? -1 : real_lock(fd, command, lock);
}

/* ---- the scenario ---- */

#define P 16u
#define N_PAGES 5u
#define BUDGET (UINT64_C(4) << 20)

static char *make_root(void)
{
    struct stat st;
    if (stat("/dev/shm", &st) == 0) /* hundreds of roots: not on a disk */
        setenv("TMPDIR", "/dev/shm", 0);
    return test_make_dir();
}

static uint32_t found_pages(cairn_store *store, const cairn_identity *id, const int32_t *t, uint32_t n)
{
    cairn_pin *pin;
    cairn_hit  hit = test_lookup(store, id, t, n, 0, 0, &pin);
    if (pin)
        test_check_pin(pin, &hit, id, t, n, P, 0);
    cairn_pin_release(pin);
    return hit.n_pages;
}

/* Under faults a read may fail, but never with wrong bytes and CAIRN_OK. */
static void read_what_there_is(cairn_store *store, const cairn_identity *id, const int32_t *t, uint32_t n)
{
    cairn_query query = {.identity = id, .tokens = t, .n_tokens = n};
    cairn_hit   hit;
    cairn_pin  *pin = NULL;
    if (cairn_store_lookup(store, &query, &hit, &pin) != CAIRN_OK)
        return;
    cairn_digest digest = cairn_identity_digest(id);
    cairn_key    parent = {{0}};
    for (uint32_t i = 0; i < hit.n_pages; i++) {
        cairn_key key = cairn_chain_key(&digest, &parent, t + i * P, P);
        (void)test_read_page(pin, i, &key);
        parent = key;
    }
    cairn_pin_release(pin);
}

/* One life under faults. Returns how many pages were acknowledged. */
static uint64_t live(const char *root, const cairn_identity *id, const int32_t *old, const int32_t *t)
{
    cairn_store_options o = {.root = root, .budget_bytes = BUDGET, .reserve_bytes = 1, .page_tokens = P};
    cairn_store        *store;
    cairn_error         error;
    atomic_int          released = 0;
    cairn_status        status = cairn_store_open(&o, &store, &error);
    if (status) {
        assert_true(error.text[0] != 0);
        return 0;
    }
    read_what_there_is(store, id, old, 3 * P);
    test_put *p = test_make_put(id, t, N_PAGES * P, P, 0);
    p->released = &released;
    assert_int_equal(cairn_store_put(store, &p->put), CAIRN_OK);
    assert_int_equal(cairn_store_flush(store, 60000), CAIRN_OK);
    assert_int_equal(released, 1);
    read_what_there_is(store, id, t, N_PAGES * P);
    cairn_store_stats s = test_stats(store);
    assert_int_equal(s.pages_put, N_PAGES);
    assert_int_equal(s.pages_published + s.pages_skipped + s.pages_given_up, N_PAGES);
    cairn_store_close(store);
    return s.pages_published;
}

static int try_all(int error, bool for_good)
{
    cairn_identity *id = test_identity("faults");
    int32_t         old[3 * P], t[N_PAGES * P];
    int             n = 0;
    test_tokens(old, 3 * P, 1);
    test_tokens(t, N_PAGES * P, 2);
    for (bool again = true; again; n++) {
        char        *root = make_root();
        cairn_store *store = test_open(root, BUDGET, P);
        test_store(store, id, old, 3 * P);
        cairn_store_close(store);

        atomic_store(&fault_errno, error);
        atomic_store(&stays, for_good);
        atomic_store(&calls_left, n);
        atomic_store(&fired, 0);
        atomic_store(&where, ANYWHERE);
        uint64_t published = live(root, id, old, t);
        atomic_store(&where, NOWHERE);
        again = atomic_load(&fired);

        store = test_open(root, BUDGET, P);
        /* A failed open of a page may have sent it to quarantine, not more than that one. */
        uint64_t lost = test_tree_of(root).n_quarantined;
        uint32_t found = found_pages(store, id, t, N_PAGES * P);
        if (lost == 0) {
            assert_true(found >= published);
            assert_int_equal(found_pages(store, id, old, 3 * P), 3);
        }
        assert_true(for_good || lost <= 1);
        test_store(store, id, t, N_PAGES * P); /* and all is well again */
        test_store(store, id, old, 3 * P);
        assert_int_equal(found_pages(store, id, t, N_PAGES * P), N_PAGES);
        assert_int_equal(found_pages(store, id, old, 3 * P), 3);
        assert_int_equal(test_stats(store).pages_corrupt, 0);
        cairn_store_close(store);
        assert_true(test_tree_of(root).disk_bytes <= BUDGET);
        test_remove_dir(root);
    }
    cairn_identity_destroy(id);
    return n;
}

static void each_call_fails(void **state)
{
    (void)state;
    static const struct {
        int         error;
        bool        for_good;
        const char *name;
    } cases[] = {{EIO, false, "EIO once"},          {EIO, true, "EIO for good"},    {ENOSPC, false, "ENOSPC once"},
                 {ENOSPC, true, "ENOSPC for good"}, {EMFILE, false, "EMFILE once"}, {EACCES, false, "EACCES once"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int n = try_all(cases[i].error, cases[i].for_good);
        printf("%s: %d places\n", cases[i].name, n - 1);
        assert_true(n > 50);
    }
}

/* After a failed sync nothing is written any more, and what is there is served. */
static void a_failed_sync_ends_writing(void **state)
{
    (void)state;
    cairn_identity *id = test_identity("faults");
    int32_t         t[P], u[P];
    for (int n = 0;; n++) {
        char        *root = make_root();
        cairn_store *store = test_open(root, BUDGET, P);
        test_tokens(t, P, 1);
        test_store(store, id, t, P);
        atomic_store(&fault_errno, EIO);
        atomic_store(&stays, false);
        atomic_store(&fired, 0);
        atomic_store(&calls_left, n);
        atomic_store(&where, IN_SYNC);
        test_tokens(u, P, 2);
        test_store(store, id, u, P);
        atomic_store(&where, NOWHERE);
        bool hit = atomic_load(&fired);
        assert_int_equal(test_stats(store).read_only, hit);
        assert_int_equal(cairn_store_put_room(store) == 0, hit);
        assert_int_equal(test_stats(store).pages_published, hit ? 1 : 2);
        test_tokens(u, P, 3);
        test_store(store, id, u, P);
        assert_int_equal(found_pages(store, id, u, P), hit ? 0 : 1);
        assert_int_equal(found_pages(store, id, t, P), 1);
        cairn_store_close(store);
        store = test_open(root, BUDGET, P); /* a new start tries again */
        test_store(store, id, u, P);
        assert_int_equal(found_pages(store, id, u, P), 1);
        cairn_store_close(store);
        test_remove_dir(root);
        if (!hit) {
            assert_true(n >= 2); /* the file, its folder */
            break;
        }
    }
    cairn_identity_destroy(id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_sync_ends_writing),
        cmocka_unit_test(each_call_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
