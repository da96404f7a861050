/* The cap is never passed; what goes first; and that whatever is left can still be
 * reached. Pages of 16 tokens: a file takes 8 KiB, its folder 4. */
#include "store_testing.h"

#include "store/ledger.h"

#include <utime.h>

#define P 16u

/* ---- every page's parent is there ---- */

typedef struct forest {
    cairn__page_name names[20000];
    uint32_t         n;
} forest;

static void collect(void *ctx, const char *path)
{
    forest *all = ctx;
    assert_true(all->n < 20000);
    assert_true(cairn__page_name_parse(strrchr(path, '/') + 1, &all->names[all->n++]));
}

static void check_parents(const char *root)
{
    static forest        all;
    static const uint8_t none[CAIRN__PAGE_NAME_KEY_SIZE];
    test_tree            t = {.page = collect, .ctx = &all};
    all.n = 0;
    test_walk(&t, root);
    for (uint32_t i = 0; i < all.n; i++) {
        bool found = memcmp(all.names[i].parent, none, sizeof(none)) == 0;
        for (uint32_t k = 0; k < all.n && !found; k++)
            found = memcmp(all.names[i].parent, all.names[k].key, sizeof(none)) == 0;
        assert_true(found);
    }
}

/* ---- */

static void never_passed(void **state)
{
    test_fixture       *f = *state;
    const uint64_t budget = 512 << 10;
    test_random    r = {4711};
    int32_t        t[12 * P];
    uint64_t       most = 0;
    cairn_store   *store = test_open(f->root, budget, P);
    for (int i = 0; i < 250; i++) {
        /* Chains of up to 12 pages; some begin like one of eight before. */
        uint32_t pages = 1 + test_below(&r, 12), n = pages * P - test_below(&r, P);
        test_tokens(t, n, test_below(&r, 8));
        uint32_t own = test_below(&r, pages + 1) * P;
        if (own < n)
            test_tokens(t + own, n - own, 100 + (uint64_t)i);
        test_store(store, f->id, t, n);
        uint64_t used = test_tree_of(f->root).disk_bytes;
        if (used > budget)
            fail_msg("round %d: %llu bytes of %llu", i, (unsigned long long)used, (unsigned long long)budget);
        most = used > most ? used : most;
        cairn_store_stats s = test_stats(store);
        assert_true(s.used_bytes <= budget);
        if (s.used_bytes < used) /* the ledger errs on the side of too much */
            fail_msg("round %d: the ledger says %llu, there are %llu", i, (unsigned long long)s.used_bytes,
                     (unsigned long long)used);
        if (i % 50 == 0)
            check_parents(f->root);
        if (i % 80 == 79) { /* what another process would see */
            assert_int_equal(s.pages_put, s.pages_published + s.pages_skipped + s.pages_given_up);
            assert_int_equal(s.write_errors, 0);
            assert_true(s.pages_evicted > 50);
            cairn_store_close(store);
            store = test_open(f->root, budget, P);
        }
    }
    check_parents(f->root);
    assert_true(most > budget * 3 / 4); /* and it is used */
    printf("most in use: %llu of %llu bytes\n", (unsigned long long)most, (unsigned long long)budget);
    cairn_store_close(store);
}

static void set_age(const test_fixture *f, const int32_t *t, uint32_t n, int64_t age_s)
{
    test_put      *p = test_make_put(f->id, t, n, P, 0);
    struct utimbuf times = {.actime = time(NULL), .modtime = time(NULL) - age_s};
    for (uint32_t i = 0; i < p->put.n_pages; i++) {
        char *path = test_page_path(f->root, f->id, &p->pages[i]);
        if (test_exists(path))
            assert_int_equal(utime(path, &times), 0);
        free(path);
    }
    test_release(p);
}

static void set_uses(const char *path, long n)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = st.st_mtime, .tv_nsec = n}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static uint32_t cached(cairn_store *store, const test_fixture *f, const int32_t *t, uint32_t n)
{
    cairn_pin *pin;
    uint32_t   tokens = test_lookup(store, f->id, t, n, 0, 0, &pin).cached_tokens;
    cairn_pin_release(pin);
    return tokens;
}

/* Ten chains of three pages, older and older, stored in another order. Whatever
 * goes to make room, goes from the ends of the oldest. */
static void oldest_first_from_the_end(void **state)
{
    test_fixture     *f = *state;
    int32_t      t[11][3 * P];
    cairn_store *store = test_open(f->root, 8 << 20, P);
    for (int i = 0; i < 10; i++) {
        int chain = i * 7 % 10; /* chain 9 is the oldest */
        test_tokens(t[chain], 3 * P, 200 + (uint64_t)chain);
        test_store(store, f->id, t[chain], 3 * P);
        set_age(f, t[chain], 3 * P, 1000 + 1000 * chain);
    }
    set_age(f, t[8], 3 * P, -100 * 365 * 86400LL); /* a future stamp counts as now */
    uint64_t used = test_tree_of(f->root).disk_bytes;
    cairn_store_close(store);

    uint32_t n_gone_before = 0;
    for (uint64_t budget = used + 20000; budget > used / 2; budget -= used / 8) {
        store = test_open(f->root, budget, P);
        test_tokens(t[10], 3 * P, budget);
        test_store(store, f->id, t[10], P);
        assert_int_equal(cached(store, f, t[10], P), P);
        assert_true(test_stats(store).pages_evicted >= 1);
        uint32_t n_gone = 0;
        bool     rest_is_whole = false;
        for (int i = 9; i >= 0; i--) {
            if (i == 8)
                continue;
            /* set_age() made all pages of a chain alike, lookups touch them: no lookup here. */
            test_put *p = test_make_put(f->id, t[i], 3 * P, P, 0);
            uint32_t  there = 0;
            for (uint32_t page = 0; page < 3; page++) {
                char *path = test_page_path(f->root, f->id, &p->pages[page]);
                if (test_exists(path))
                    there++;
                else
                    n_gone++;
                assert_true(there == page + 1 || !test_exists(path)); /* from the end */
                free(path);
            }
            test_release(p);
            assert_true(!rest_is_whole || there == 3);
            rest_is_whole |= there > 0;
        }
        assert_true(n_gone >= n_gone_before);
        n_gone_before = n_gone;
        check_parents(f->root);
        cairn_store_close(store);
    }
    assert_true(n_gone_before >= 10 && n_gone_before < 27);
    store = test_open(f->root, 8 << 20, P);
    assert_int_equal(cached(store, f, t[8], 3 * P), 3 * P);
    cairn_store_close(store);
}

/* A prefix that many share outlives its tails, and a use of a tail is one of it. */
static void anchor_survives(void **state)
{
    test_fixture     *f = *state;
    int32_t      t[6 * P];
    cairn_store *store = test_open(f->root, 300 << 10, P);
    test_tokens(t, 2 * P, 1);
    for (int i = 0; i < 36; i++) {
        test_tokens(t + 2 * P, 4 * P, 500 + (uint64_t)i);
        test_store(store, f->id, t, 6 * P);
        assert_true(test_tree_of(f->root).disk_bytes <= 300 << 10);
        assert_true(cached(store, f, t, 2 * P) == 2 * P);
        assert_true(cached(store, f, t, 6 * P) == 6 * P); /* nor does it evict what it just stored */
    }
    assert_true(test_stats(store).pages_evicted > 60);
    cairn_store_close(store);
}

static void pinned_stays(void **state)
{
    test_fixture     *f = *state;
    int32_t      t[4 * P], u[4 * P];
    cairn_pin   *pin;
    cairn_store *store = test_open(f->root, 400 << 10, P);
    test_tokens(t, 4 * P, 1);
    test_store(store, f->id, t, 4 * P);
    set_age(f, t, 4 * P, 100000);
    cairn_hit hit = test_lookup(store, f->id, t, 4 * P, 0, 0, &pin);
    assert_int_equal(hit.cached_tokens, 4 * P);
    for (int i = 0; i < 25; i++) {
        test_tokens(u, 4 * P, 50 + (uint64_t)i);
        test_store(store, f->id, u, 4 * P);
    }
    assert_true(test_stats(store).pages_evicted > 0);
    test_check_pin(pin, &hit, f->id, t, 4 * P, P, 0);
    assert_int_equal(cached(store, f, t, 4 * P), 4 * P);
    cairn_pin_release(pin);
    set_age(f, t, 4 * P, 100000);
    for (int i = 0; i < 25; i++) {
        test_tokens(u, 4 * P, 150 + (uint64_t)i);
        test_store(store, f->id, u, 4 * P);
    }
    assert_true(cached(store, f, t, 4 * P) < 4 * P);
    cairn_store_close(store);
}

/* Using a page touches the deepest one: the first time, then at most once a minute.
 * The nanoseconds count how often. */
static void use_is_remembered(void **state)
{
    test_fixture     *f = *state;
    int32_t      t[3 * P];
    struct stat  before, after;
    cairn_store *store = test_open(f->root, 1 << 20, P);
    test_tokens(t, 3 * P, 9);
    test_store(store, f->id, t, 3 * P);
    test_put *p = test_make_put(f->id, t, 3 * P, P, 0);
    char *first = test_page_path(f->root, f->id, &p->pages[0]), *last = test_page_path(f->root, f->id, &p->pages[2]);
    assert_int_equal(stat(last, &before), 0);
    assert_int_equal(before.st_mtim.tv_nsec, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cached(store, f, t, 3 * P), 3 * P);
        assert_int_equal(stat(last, &after), 0);
        assert_int_equal(after.st_mtim.tv_nsec, 1);
    }
    set_age(f, t, 3 * P, 59);
    set_uses(last, 1);
    assert_int_equal(cached(store, f, t, 3 * P), 3 * P);
    assert_int_equal(stat(last, &after), 0);
    assert_true(time(NULL) - after.st_mtime >= 58);
    assert_int_equal(after.st_mtim.tv_nsec, 1);
    set_age(f, t, 3 * P, 61);
    set_uses(last, 1);
    assert_int_equal(cached(store, f, t, 3 * P), 3 * P);
    assert_int_equal(stat(last, &after), 0);
    assert_true(time(NULL) - after.st_mtime <= 2);
    assert_int_equal(after.st_mtim.tv_nsec, 2);
    assert_int_equal(stat(first, &after), 0);
    assert_true(time(NULL) - after.st_mtime >= 58);
    free(first);
    free(last);
    test_release(p);
    cairn_store_close(store);
}

/* Longer than the budget: what fits from the front is kept, the rest is given up. */
static void longer_than_the_budget(void **state)
{
    test_fixture     *f = *state;
    int32_t      t[40 * P];
    cairn_store *store = test_open(f->root, 200 << 10, P);
    test_tokens(t, 40 * P, 3);
    test_store(store, f->id, t, 40 * P);
    assert_true(test_tree_of(f->root).disk_bytes <= 200 << 10);
    cairn_store_stats s = test_stats(store);
    assert_true(s.pages_published >= 5 && s.pages_given_up > 0);
    assert_int_equal(s.pages_published + s.pages_given_up, 40);
    assert_int_equal(s.pages_evicted, 0);
    assert_int_equal(cached(store, f, t, 40 * P), s.pages_published * P);
    assert_false(s.read_only);
    check_parents(f->root);
    /* Its end, put alone, is not stored without what comes before. */
    test_put *p = test_make_put(f->id, t, 40 * P, P, (uint32_t)s.pages_published * P + P);
    assert_int_equal(cairn_store_put(store, &p->put), CAIRN_OK);
    assert_int_equal(cairn_store_flush(store, 60000), CAIRN_OK);
    assert_int_equal(test_stats(store).pages_published, s.pages_published);
    cairn_store_close(store);
}

/* A page larger than the budget evicts nothing. */
static void larger_than_the_budget(void **state)
{
    test_fixture     *f = *state;
    int32_t      t[P], u[4096];
    cairn_store *store = test_open(f->root, 100 << 10, P);
    test_tokens(t, P, 3);
    test_store(store, f->id, t, P);
    cairn_store *large = test_open(f->root, 100 << 10, 4096);
    test_tokens(u, 4096, 4);
    test_store(large, f->id, u, 4096);
    assert_int_equal(test_stats(large).pages_given_up, 1);
    assert_int_equal(test_stats(large).pages_evicted, 0);
    assert_int_equal(cached(store, f, t, P), P);
    cairn_store_close(large);
    cairn_store_close(store);
}

/* Two with different budgets: each keeps its own against what both use. */
static void two_budgets(void **state)
{
    test_fixture     *f = *state;
    int32_t      t[4 * P];
    cairn_store *wide = test_open(f->root, 600 << 10, P), *narrow = test_open(f->root, 300 << 10, P);
    for (int i = 0; i < 18; i++) { /* on tmpfs folders take nothing */
        test_tokens(t, 4 * P, 10 + (uint64_t)i);
        test_store(wide, f->id, t, 4 * P);
        assert_true(test_tree_of(f->root).disk_bytes <= 600 << 10);
    }
    assert_true(test_tree_of(f->root).disk_bytes > 400 << 10);
    test_tokens(t, 4 * P, 99);
    test_store(narrow, f->id, t, 4 * P);
    assert_true(test_tree_of(f->root).disk_bytes <= 300 << 10);
    assert_int_equal(cached(wide, f, t, 4 * P), 4 * P);
    cairn_store_close(narrow);
    cairn_store_close(wide);
    /* A smaller budget at the next start: fitted without a write. */
    narrow = test_open(f->root, 150 << 10, P);
    for (int i = 0; i < 1000 && test_tree_of(f->root).disk_bytes > 150 << 10; i++)
        test_sleep_ms(10);
    assert_true(test_tree_of(f->root).disk_bytes <= 150 << 10);
    check_parents(f->root);
    cairn_store_close(narrow);
}

/* The ledger may be lost or damaged at any time: what is used is counted anew. */
static void ledger_lost(void **state)
{
    test_fixture       *f = *state;
    const uint64_t budget = 400 << 10;
    int32_t        t[4 * P];
    char           path[600];
    cairn_store   *store = test_open(f->root, budget, P);
    snprintf(path, sizeof(path), "%s/ledger", f->root);
    for (int i = 0; i < 36; i++) {
        switch (i % 6) {
        case 1:
            assert_int_equal(unlink(path), 0);
            break;
        case 2:
            assert_int_equal(truncate(path, 100), 0);
            break;
        case 3: {
            uint8_t data[4096];
            assert_int_equal(test_read_file(path, data, sizeof(data)), sizeof(data));
            data[17] ^= 0x40;
            test_write_file(path, data, sizeof(data));
            break;
        }
        case 4:
            cairn_store_close(store);
            assert_int_equal(unlink(path), 0);
            store = test_open(f->root, budget, P);
            break;
        default:
            break;
        }
        test_tokens(t, 4 * P, 1000 + (uint64_t)i);
        test_store(store, f->id, t, 4 * P);
        uint64_t used = test_tree_of(f->root).disk_bytes;
        assert_true(used <= budget);
        assert_int_equal(cached(store, f, t, 4 * P), 4 * P);
        assert_true(test_stats(store).used_bytes >= used);
    }
    cairn_store_close(store);
}

/* A leaf that can't be removed is passed over. */
static void undeletable(void **state)
{
    test_fixture     *f = *state;
    int32_t      t[P], u[4 * P];
    cairn_store *store = test_open(f->root, 300 << 10, P);
    test_tokens(t, P, 1);
    test_store(store, f->id, t, P);
    set_age(f, t, P, 1000000);
    test_put *p = test_make_put(f->id, t, P, P, 0);
    char     *path = test_page_path(f->root, f->id, &p->pages[0]), *command = NULL;
    assert_true(asprintf(&command, "chattr +i '%s' 2>/dev/null", path) > 0);
    bool immutable = geteuid() == 0 && system(command) == 0;
    free(command);
    for (int i = 0; i < 30; i++) {
        test_tokens(u, 4 * P, 50 + (uint64_t)i);
        test_store(store, f->id, u, 4 * P);
        assert_int_equal(cached(store, f, u, 4 * P), 4 * P);
        assert_true(test_tree_of(f->root).disk_bytes <= 300 << 10);
    }
    assert_int_equal(test_exists(path), immutable);
    if (immutable) {
        assert_true(asprintf(&command, "chattr -i '%s'", path) > 0);
        assert_int_equal(system(command), 0);
        free(command);
    } else {
        printf("skipped in part: can't make a file immutable\n");
    }
    free(path);
    test_release(p);
    cairn_store_close(store);
}

/* A digest is written while the root that was just opened is counted: wherever the two
 * meet, the ledger does not say less than there is. */
static void digests_are_counted(void **state)
{
    test_fixture *f = *state;
    char         *model, *digests;
    assert_true(asprintf(&model, "%s/model", f->root) > 0);
    test_write_file(model, "weights", 7);
    test_sleep_ms(2100); /* younger ones are not kept */
    for (int i = 0; i < 100; i++) {
        char *root;
        assert_true(asprintf(&root, "%s/%d", f->root, i) > 0);
        assert_true(asprintf(&digests, "%s/digests", root) > 0);
        cairn_store                *store = test_open(root, 64u << 10, P);
        const char                 *paths[1] = {model};
        const cairn_weights_request request = {.paths = paths, .n_paths = 1, .cache_dir = digests};
        cairn_digest                digest;
        cairn_error                 error;
        if (i % 2)
            test_sleep_ms((uint32_t)i / 20);
        assert_int_equal(cairn_store_weights_digest(store, &request, &digest, &error), CAIRN_OK);
        assert_int_equal(cairn_store_flush(store, 60000), CAIRN_OK);
        assert_true(test_stats(store).used_bytes >= test_tree_of(digests).disk_bytes);
        cairn_store_close(store);
        store = test_open(root, 64u << 10, P);
        cairn_store_close(store);
        const uint64_t is = test_tree_of(root).disk_bytes;
        store = test_open(root, 64u << 10, P);
        assert_true(test_stats(store).used_bytes >= is);
        cairn_store_close(store);
        free(root);
        free(digests);
    }
    free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(never_passed, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(oldest_first_from_the_end, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(anchor_survives, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(pinned_stays, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(use_is_remembered, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(longer_than_the_budget, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(larger_than_the_budget, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(two_budgets, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(ledger_lost, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(undeletable, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(digests_are_counted, test_setup, test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
