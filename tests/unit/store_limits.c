/* Limits that change or run out while a store is open, and the line that says so:
 * the budget, what may be written a day, the reserve, the folder itself. */
#include "store_testing.h"

#include "store/internal.h"
#include "store/ledger_image.h"

#define P 16u

typedef struct told {
    atomic_int n;
    char       last[600];
} told;

static void tell(void *ctx, const char *line)
{
    told *t = ctx;
    snprintf(t->last, sizeof(t->last), "%s", line);
    atomic_fetch_add(&t->n, 1);
}

static cairn_store *open_with(const test_fixture *f, told *t, uint64_t budget, uint64_t reserve, uint64_t day)
{
    cairn_store_options o = {.root = f->root,
                             .budget_bytes = budget,
                             .reserve_bytes = reserve,
                             .page_tokens = P,
                             .day_bytes = day,
                             .notice = tell,
                             .notice_ctx = t};
    cairn_store        *store;
    cairn_error         error;
    if (cairn_store_open(&o, &store, &error))
        fail_msg("%s", error.text);
    return store;
}

static void put_one(cairn_store *store, const test_fixture *f, uint64_t seed)
{
    int32_t t[4 * P];
    test_tokens(t, 4 * P, seed);
    test_store(store, f->id, t, 4 * P);
}

static bool fits(const test_fixture *f, uint64_t bytes)
{
    for (int i = 0; i < 1000; i++) {
        if (test_tree_of(f->root).disk_bytes <= bytes)
            return true;
        test_sleep_ms(10);
    }
    return false;
}

static void live_budget(void **state)
{
    test_fixture *f = *state;
    told          t = {.n = 0};
    int32_t       tokens[4 * P];
    cairn_store  *store = open_with(f, &t, 1 << 20, 1, 0);
    for (uint64_t i = 0; i < 20; i++)
        put_one(store, f, 100 + i);
    assert_true(test_tree_of(f->root).disk_bytes > 600 << 10);
    assert_int_equal(cairn_store_set_budget(store, CAIRN_BUDGET_OFF), CAIRN_EINVAL);
    assert_int_equal(cairn_store_set_budget(store, 300 << 10), CAIRN_OK);
    assert_int_equal(test_stats(store).budget_bytes, 300 << 10);
    assert_true(fits(f, 300 << 10)); /* with nothing to write */
    for (uint64_t i = 0; i < 10; i++) {
        put_one(store, f, 200 + i);
        assert_true(test_tree_of(f->root).disk_bytes <= 300 << 10);
    }
    test_tokens(tokens, 4 * P, 209);
    test_expect(store, f->id, tokens, 4 * P, 4 * P, tokens, 4 * P);
    assert_int_equal(cairn_store_set_budget(store, 600 << 10), CAIRN_OK);
    for (uint64_t i = 0; i < 20; i++)
        put_one(store, f, 300 + i);
    uint64_t used = test_tree_of(f->root).disk_bytes;
    assert_true(used > 400 << 10 && used <= 600 << 10);
    assert_int_equal(cairn_store_set_budget(store, CAIRN_BUDGET_AUTO), CAIRN_OK);
    assert_true(test_stats(store).budget_bytes > 1 << 20);
    assert_int_equal(atomic_load(&t.n), 1);
    assert_non_null(strstr(t.last, "were evicted"));
    cairn_store_close(store);
}

static void set_day(const test_fixture *f, int32_t offset)
{
    uint8_t             buf[CAIRN__LEDGER_SIZE];
    cairn__ledger_image im;
    char                path[600];
    snprintf(path, sizeof(path), "%s/ledger", f->root);
    assert_int_equal(test_read_file(path, buf, sizeof(buf)), sizeof(buf));
    assert_true(cairn__ledger_decode(buf, &im));
    im.day += (uint32_t)offset;
    cairn__ledger_encode(&im, buf);
    test_write_file(path, buf, sizeof(buf));
}

/* All processes of a root together, across restarts, said once. */
static void written_a_day(void **state)
{
    test_fixture  *f = *state;
    const uint64_t day = 400 << 10;
    told           t = {.n = 0}, u = {.n = 0};
    char           path[600];
    if (time(NULL) % 86400 > 86400 - 60)
        skip(); /* midnight comes */
    cairn_store *store = open_with(f, &t, 8 << 20, 1, day), *other = open_with(f, &u, 8 << 20, 1, day);
    for (uint64_t i = 0; i < 2; i++) {
        put_one(store, f, i);
        put_one(other, f, 50 + i);
    }
    cairn_store_stats s = test_stats(store);
    assert_int_equal(s.pages_given_up, 0);
    assert_true(s.written_today_bytes >= 16 * 8192 && s.written_today_bytes <= day);
    assert_int_equal(atomic_load(&t.n), 0);
    for (uint64_t i = 0; i < 10; i++)
        put_one(store, f, 10 + i);
    s = test_stats(store);
    assert_true(s.pages_given_up >= 16 && s.pages_over_day > 0 && s.pages_over_day <= s.pages_given_up);
    assert_true(s.read_only);
    assert_int_equal(s.write_errors, 0);
    assert_int_equal(s.pages_evicted, 0);
    assert_true(s.written_today_bytes <= day);
    assert_true(test_tree_of(f->root).disk_bytes <= day + (64 << 10)); /* folders and side files are not pages */
    assert_int_equal(atomic_load(&t.n), 1);
    assert_non_null(strstr(t.last, "400 KiB"));
    assert_non_null(strstr(t.last, "midnight"));
    assert_int_equal(cairn_store_put_room(store), 0);
    put_one(other, f, 60); /* as it finds out by itself */
    assert_true(test_stats(other).pages_over_day > 0);
    assert_int_equal(atomic_load(&u.n), 1);
    cairn_store_close(other);
    cairn_store_close(store);

    for (uint64_t i = 0; i < 4; i++) { /* what was reserved and not used is used up, too */
        store = open_with(f, &t, 8 << 20, 1, day);
        put_one(store, f, 65 + i);
        cairn_store_close(store);
    }
    store = open_with(f, &t, 8 << 20, 1, day); /* a restart changes nothing */
    uint64_t before = test_tree_of(f->root).n_pages;
    put_one(store, f, 70);
    assert_int_equal(test_tree_of(f->root).n_pages, before);
    snprintf(path, sizeof(path), "%s/ledger", f->root);
    assert_int_equal(unlink(path), 0);                       /* nor does a lost ledger, while a process knows */
    cairn_store *free_one = open_with(f, &u, 8 << 20, 1, 0); /* without a bound: it writes, and it counts */
    put_one(free_one, f, 80);
    assert_true(test_tree_of(f->root).n_pages > before);
    cairn_store_close(free_one);
    cairn_store_close(store);

    set_day(f, -1); /* another day */
    store = open_with(f, &t, 8 << 20, 1, day);
    before = test_tree_of(f->root).n_pages;
    assert_int_equal(test_stats(store).written_today_bytes, 0);
    put_one(store, f, 90);
    assert_int_equal(test_tree_of(f->root).n_pages, before + 4);
    assert_false(test_stats(store).read_only);
    cairn_store_close(store);
}

static void below_the_reserve_is_said(void **state)
{
    test_fixture *f = *state;
    told          t = {.n = 0};
    cairn_store  *store = open_with(f, &t, 8 << 20, UINT64_C(1) << 55, 0);
    put_one(store, f, 1);
    put_one(store, f, 2);
    assert_true(test_stats(store).read_only);
    assert_int_equal(test_tree_of(f->root).n_pages, 0);
    assert_int_equal(atomic_load(&t.n), 1);
    assert_non_null(strstr(t.last, "smaller than that")); /* no disk is that large */
    cairn_store_close(store);
}

static void remove_all(const char *path, bool itself)
{
    char *command = NULL;
    assert_true(asprintf(&command, itself ? "rm -rf '%s'" : "rm -rf '%s'/*", path) > 0);
    bool gone = false;
    for (int i = 0; i < 10 && !gone; i++) /* the store may be making its ledger again meanwhile */
        gone = system(command) == 0;
    free(command);
    assert_true(gone);
}

static bool was_told(told *t, int n)
{
    for (int i = 0; i < 500 && atomic_load(&t->n) < n; i++)
        test_sleep_ms(10);
    return atomic_load(&t->n) == n;
}

/* Removed by somebody while it is in use: said once, made again, and it works. */
static void folder_removed(void **state)
{
    test_fixture *f = *state;
    told          t = {.n = 0};
    int32_t       tokens[4 * P];
    cairn_store  *store = open_with(f, &t, 8 << 20, 1, 0);
    test_tokens(tokens, 4 * P, 5);
    for (int round = 0; round < 4; round++) {
        bool itself = round % 2 == 0;
        test_store(store, f->id, tokens, 4 * P);
        test_expect(store, f->id, tokens, 4 * P, 4 * P, tokens, 4 * P);
        remove_all(f->root, itself);
        test_expect(store, f->id, tokens, 4 * P, 0, tokens, 4 * P); /* notices a folder that is gone */
        if (!itself)
            put_one(store, f, 6); /* and the next write what was in it */
        if (!was_told(&t, round + 1))
            fail_msg("round %d: told %d times, last: %s", round, atomic_load(&t.n), t.last);
        assert_non_null(strstr(t.last, f->root));
        assert_non_null(strstr(t.last, "again"));
    }
    test_store(store, f->id, tokens, 4 * P);
    test_expect(store, f->id, tokens, 4 * P, 4 * P, tokens, 4 * P);
    assert_false(test_stats(store).read_only);
    assert_true(test_stats(store).used_bytes >= test_tree_of(f->root).disk_bytes); /* counted beside the writer: more */
    assert_int_equal(cairn__store_count(store), CAIRN_OK);
    assert_int_equal(test_stats(store).used_bytes, test_tree_of(f->root).disk_bytes);
    cairn_store_close(store);
    store = open_with(f, &t, 8 << 20, 1, 0); /* a root like any other */
    test_expect(store, f->id, tokens, 4 * P, 4 * P, tokens, 4 * P);
    cairn_store_close(store);
    assert_int_equal(atomic_load(&t.n), 4);
}

/* Replaced by what is no folder of ours: the tier is off, said once; and on again
 * when that is put right. */
static void folder_replaced(void **state)
{
    test_fixture *f = *state;
    told          t = {.n = 0};
    int32_t       tokens[4 * P];
    cairn_pin    *pin;
    cairn_store  *store = open_with(f, &t, 8 << 20, 1, 0);
    test_tokens(tokens, 4 * P, 5);
    remove_all(f->root, true);
    test_write_file(f->root, "mine", 4);
    test_expect(store, f->id, tokens, 4 * P, 0, tokens, 4 * P);
    assert_true(was_told(&t, 1));
    assert_non_null(strstr(t.last, "off"));
    for (int i = 0; i < 3; i++) {
        put_one(store, f, 6);
        assert_int_equal(test_lookup(store, f->id, tokens, 4 * P, 0, 0, &pin).miss, CAIRN_MISS_TIER_OFF);
    }
    assert_true(test_stats(store).read_only);
    assert_int_equal(atomic_load(&t.n), 1);
    assert_int_equal(test_stats(store).pages_published, 0);
    cairn_store_close(store);
    assert_int_equal(unlink(f->root), 0);
    assert_int_equal(mkdir(f->root, 0700), 0);
}

/* Removes the folder at *ctx as soon as somebody has opened it. */
static bool remove_opened(void *ctx)
{
    char link[64], at[4096];
    for (int fd = 3; fd < 64; fd++) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, at, sizeof(at) - 1);
        at[n < 0 ? 0 : n] = 0;
        if (strcmp(at, ctx) == 0)
            assert_int_equal(rmdir(ctx), 0);
    }
    return false;
}

/* A folder that goes away between being opened and being listed, as when its last page
 * is evicted by another process, is no reason not to know what the root occupies. */
static void folder_removed_while_counted(void **state)
{
    test_fixture      *f = *state;
    char               path[600];
    cairn__scan_result r;
    cairn_store       *store = test_open(f->root, 8 << 20, P);
    snprintf(path, sizeof(path), "%s/v1/0123456789abcdef0123456789abcdef", f->root);
    assert_int_equal(mkdir(path, 0700), 0);
    const cairn__scan_request request = {.stat_files = true, .stop = remove_opened, .ctx = path};
    assert_int_equal(cairn__scan(&store->root, &request, &r), CAIRN_OK);
    assert_int_equal(access(path, F_OK), -1);
    assert_true(r.complete);
    assert_int_equal(cairn__store_count(store), CAIRN_OK);
    assert_int_equal(test_stats(store).used_bytes, test_tree_of(f->root).disk_bytes);
    cairn_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(live_budget, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(written_a_day, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(below_the_reserve_is_said, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(folder_removed, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(folder_replaced, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(folder_removed_while_counted, test_setup, test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
