/* What goes first when several things speak for and against a page, and what is
 * known of it afterwards. Pages of 16 tokens: a file takes 8 KiB. */
#include "store_testing.h"

#include "store/ring.h"
#include "store/tool.h"

#define P 16u
#define DAY INT64_C(86400)

/* Age and number of uses of one page. */
static void set_use(const test_fixture *f, const cairn_identity *id, const int32_t *t, uint32_t n, uint32_t page,
                    int64_t age_s, long n_uses)
{
    test_put             *p = test_make_put(id, t, n, P, 0);
    char                 *path = test_page_path(f->root, id, &p->pages[page]);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - age_s, .tv_nsec = n_uses}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    free(path);
    test_release(p);
}

static bool is_there(const test_fixture *f, const cairn_identity *id, const int32_t *t, uint32_t n, uint32_t page)
{
    test_put *p = test_make_put(id, t, n, P, 0);
    char     *path = test_page_path(f->root, id, &p->pages[page]);
    bool      there = test_exists(path);
    free(path);
    test_release(p);
    return there;
}

/* Evicts until `less` bytes less are used. */
static cairn__tool_result evict(const test_fixture *f, uint64_t less)
{
    cairn_store       *store = NULL;
    cairn_error        error;
    cairn__tool_result r;
    uint64_t           used = test_tree_of(f->root).disk_bytes;
    assert_int_equal(cairn__tool_open(f->root, true, &store, &error), CAIRN_OK);
    assert_int_equal(cairn__store_count(store), CAIRN_OK); /* the test removes files behind the ledger's back */
    assert_int_equal(cairn__tool_prune(store, used - less, &r), CAIRN_OK);
    cairn_store_close(store);
    return r;
}

static char *folder_of(const test_fixture *f, const cairn_identity *id)
{
    char         name[CAIRN__IDENTITY_NAME_SIZE], *path;
    cairn_digest digest = cairn_identity_digest(id);
    cairn__identity_name(&digest, name);
    assert_true(asprintf(&path, "%s/v1/%s", f->root, name) > 0);
    return path;
}

/* Single pages that differ in age and use only. */
static void probation(void **state)
{
    test_fixture *f = *state;
    int32_t       t[4][P];
    cairn_store  *store = test_open(f->root, 8 << 20, P);
    for (int i = 0; i < 4; i++) {
        test_tokens(t[i], P, 10 + (uint64_t)i);
        test_store(store, f->id, t[i], P);
    }
    cairn_store_close(store);
    set_use(f, f->id, t[0], P, 0, 1000, 0); /* as good as 4,000 s old */
    set_use(f, f->id, t[1], P, 0, 3000, 1);
    set_use(f, f->id, t[2], P, 0, 5000, 1);
    set_use(f, f->id, t[3], P, 0, 500, 0);
    static const int order[] = {2, 0, 1, 3};
    for (int i = 0; i < 4; i++) {
        assert_true(is_there(f, f->id, t[order[i]], P, 0));
        assert_int_equal(evict(f, 1).n_pages, 1);
        if (is_there(f, f->id, t[order[i]], P, 0))
            fail_msg("step %d: another page went than %d", i, order[i]);
    }
}

/* What two prompts share is not on probation, nor what lies before a used page. */
static void shared_is_used(void **state)
{
    test_fixture *f = *state;
    int32_t       a[2 * P], b[2 * P], c[P], d[2 * P];
    cairn_store  *store = test_open(f->root, 8 << 20, P);
    test_tokens(a, 2 * P, 1);
    test_tokens(b, 2 * P, 2);
    memcpy(b, a, P * sizeof(int32_t));
    test_tokens(c, P, 3);
    test_tokens(d, 2 * P, 4);
    test_store(store, f->id, a, 2 * P);
    test_store(store, f->id, b, 2 * P);
    test_store(store, f->id, c, P);
    test_store(store, f->id, d, 2 * P);
    cairn_store_close(store);
    for (uint32_t page = 0; page < 2; page++) {
        set_use(f, f->id, a, 2 * P, page, 3000, 0);
        set_use(f, f->id, d, 2 * P, page, 3000, 0);
    }
    set_use(f, f->id, b, 2 * P, 1, 3000, 0);
    set_use(f, f->id, d, 2 * P, 1, 3000, 1);
    set_use(f, f->id, c, P, 0, 1000, 0);             /* as good as 4,000 s old */
    assert_int_equal(evict(f, 3 * 8192).n_pages, 3); /* both tails, as good as 12,000 s old, then c */
    assert_false(is_there(f, f->id, a, 2 * P, 1) || is_there(f, f->id, b, 2 * P, 1) || is_there(f, f->id, c, P, 0));
    assert_true(is_there(f, f->id, a, 2 * P, 0) && is_there(f, f->id, d, 2 * P, 0) && is_there(f, f->id, d, 2 * P, 1));
}

static void orphans_first(void **state)
{
    test_fixture *f = *state;
    int32_t       old[P], lost[3 * P];
    cairn_store  *store = test_open(f->root, 8 << 20, P);
    test_tokens(old, P, 1);
    test_tokens(lost, 3 * P, 2);
    test_store(store, f->id, old, P);
    test_store(store, f->id, lost, 3 * P);
    cairn_store_close(store);
    set_use(f, f->id, old, P, 0, 100 * DAY / 10, 0);
    for (uint32_t page = 0; page < 3; page++)
        set_use(f, f->id, lost, 3 * P, page, 70, 5);
    test_put *p = test_make_put(f->id, lost, 3 * P, P, 0);
    char     *path = test_page_path(f->root, f->id, &p->pages[0]);
    assert_int_equal(unlink(path), 0);
    free(path);
    test_release(p);
    assert_int_equal(evict(f, 8192).n_pages, 1); /* a leaf, still: from the end */
    assert_false(is_there(f, f->id, lost, 3 * P, 2));
    assert_int_equal(evict(f, 8192).n_pages, 1);
    assert_false(is_there(f, f->id, lost, 3 * P, 1));
    assert_true(is_there(f, f->id, old, P, 0));
}

/* Of an identity that nobody has opened for a month all goes before a page that is
 * on probation elsewhere, and its folder with it. */
static void stale_identity_first(void **state)
{
    test_fixture   *f = *state;
    cairn_identity *stale = test_identity("stale");
    int32_t         t[P], u[2 * P];
    struct stat     st;
    cairn_store    *store = test_open(f->root, 8 << 20, P);
    test_tokens(t, P, 1);
    test_tokens(u, 2 * P, 2);
    test_store(store, f->id, t, P);
    test_store(store, stale, u, 2 * P);
    cairn_store_close(store);
    char                 *folder = folder_of(f, stale);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 31 * DAY}};
    set_use(f, stale, u, 2 * P, 0, 31 * DAY, 900);
    set_use(f, stale, u, 2 * P, 1, 31 * DAY, 900);
    set_use(f, f->id, t, P, 0, 29 * DAY, 0); /* as good as 116 days old */
    assert_int_equal(utimensat(AT_FDCWD, folder, times, 0), 0);

    store = test_open(f->root, 8 << 20, P); /* a lookup opens it, hit or not: not stale any more */
    test_expect(store, stale, t, P, 0, t, P);
    assert_int_equal(stat(folder, &st), 0);
    assert_true(time(NULL) - st.st_mtime <= 2);
    cairn_store_close(store);
    assert_int_equal(utimensat(AT_FDCWD, folder, times, 0), 0);

    uint64_t before = test_tree_of(f->root).disk_bytes;
    assert_int_equal(evict(f, 3 * 4096 + 1).n_pages, 2); /* more than a page and its folder */
    assert_true(is_there(f, f->id, t, P, 0));
    assert_false(test_exists(folder));
    assert_true(test_tree_of(f->root).disk_bytes < before - 2 * 8192);
    store = test_open(f->root, 8 << 20, P); /* and back it comes */
    test_store(store, stale, u, 2 * P);
    test_expect(store, stale, u, 2 * P, 2 * P, u, 2 * P);
    cairn_store_close(store);
    free(folder);
    cairn_identity_destroy(stale);
}

/* What restores cost is measured by whoever reads enough, and found by whoever evicts. */
static void restores_are_measured(void **state)
{
    test_fixture  *f = *state;
    const uint32_t large = 4096;
    int32_t       *t = malloc(2 * large * sizeof(*t));
    cairn_pin     *pin;
    cairn_store   *store = test_open(f->root, 8 << 20, large), *tool = NULL;
    cairn_error    error;
    test_tokens(t, 2 * large, 3);
    test_store(store, f->id, t, 2 * large);
    assert_int_equal(cairn__restore_price(store), 0);
    cairn_hit hit = test_lookup(store, f->id, t, 2 * large, 0, 0, &pin);
    test_check_pin(pin, &hit, f->id, t, 2 * large, large, 0);
    test_sleep_ms(20); /* an import */
    cairn_pin_release(pin);
    uint64_t ps = cairn__restore_price(store);
    assert_true(hit.stored_bytes > 300000);
    assert_true(ps >= UINT64_C(20000000000) / hit.stored_bytes); /* 20 ms at least */
    assert_true(ps < UINT64_C(20000000000000) / hit.stored_bytes);
    assert_int_equal(cairn_store_set_budget(store, 100 << 10), CAIRN_OK); /* evicts */
    for (int i = 0; i < 1000 && test_stats(store).pages_evicted < 2; i++)
        test_sleep_ms(10);
    cairn_store_close(store);
    assert_int_equal(cairn__tool_open(f->root, true, &tool, &error), CAIRN_OK);
    assert_int_equal(cairn__restore_price(tool), ps);
    cairn_store_close(tool);
    free(t);
}

/* ---- the ring of evicted keys ---- */

static void ring_values(void **state)
{
    (void)state;
    uint8_t ring[CAIRN__RING_SIZE] = {0}, key[16] = {0}, zero[16] = {0};
    int64_t when;
    assert_false(cairn__ring_get(ring, zero, &when)); /* zeros are no entry, not even of that key */
    for (uint8_t i = 1; i <= 6; i++) {
        key[0] = i;
        cairn__ring_put(ring, key, 100 + i);
    }
    for (uint8_t i = 1; i <= 6; i++) { /* four places: the oldest two are gone */
        key[0] = i;
        assert_int_equal(cairn__ring_get(ring, key, &when), i > 2);
        if (i > 2)
            assert_true(when == 100 + i);
    }
    key[0] = 4;
    cairn__ring_put(ring, key, 200); /* again: no second place */
    assert_true(cairn__ring_get(ring, key, &when) && when == 200);
    key[0] = 3;
    assert_true(cairn__ring_get(ring, key, &when) && when == 103);
    for (size_t i = 0; i < 8 * sizeof(ring); i++) { /* a flipped bit: unknown, or another's, never a crash */
        ring[i / 8] ^= (uint8_t)(1u << i % 8);
        if (cairn__ring_get(ring, key, &when))
            assert_true(when == 103);
        ring[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    assert_int_equal(cairn__ring_file_size(1 << 20), 4096);
    assert_int_equal(cairn__ring_file_size((1 << 20) - 1), 0);
    assert_int_equal(cairn__ring_file_size(UINT64_C(1) << 40), 1 << 20);
}

static cairn_hit look(cairn_store *store, const test_fixture *f, const int32_t *t, uint32_t n)
{
    cairn_pin *pin;
    cairn_hit  hit = test_lookup(store, f->id, t, n, 0, 0, &pin);
    cairn_pin_release(pin);
    return hit;
}

enum { N_PROMPTS = 36, PAGE = 64 * P }; /* 64 KiB each: with budgets for so much there may be a ring */

static void set_budget(cairn_store *store, uint64_t budget)
{
    assert_int_equal(cairn_store_set_budget(store, budget), CAIRN_OK);
    for (int i = 0; i < 1000 && test_stats(store).used_bytes > budget; i++)
        usleep(10000);
    assert_true(test_stats(store).used_bytes <= budget);
    usleep(200000); /* keys are written behind that */
}

static uint32_t count_evicted(cairn_store *store, const test_fixture *f, int32_t t[N_PROMPTS][PAGE])
{
    uint32_t n_evicted = 0;
    for (int i = 0; i < N_PROMPTS; i++) {
        cairn_hit hit = look(store, f, t[i], PAGE);
        assert_int_equal(hit.miss, hit.cached_tokens == PAGE ? CAIRN_MISS_NONE : CAIRN_MISS_EVICTED);
        n_evicted += hit.miss == CAIRN_MISS_EVICTED;
    }
    return n_evicted;
}

/* There is no ring before the first eviction, nor room for one. */
static void first_eviction_is_said(void **state)
{
    test_fixture *f = *state;
    int32_t       t[N_PROMPTS][PAGE];
    cairn_store  *store = test_open(f->root, 16 << 20, PAGE);
    for (int i = 0; i < N_PROMPTS; i++) {
        test_tokens(t[i], PAGE, 100 + (uint64_t)i);
        test_store(store, f->id, t[i], PAGE);
    }
    assert_int_equal(count_evicted(store, f, t), 0);
    assert_true(test_stats(store).used_bytes > 2 << 20);
    set_budget(store, test_stats(store).used_bytes * 9 / 10);
    assert_in_range(count_evicted(store, f, t), 1, N_PROMPTS / 4);
    set_budget(store, 32 << 10); /* less than a page: the identity goes too */
    assert_int_equal(count_evicted(store, f, t), N_PROMPTS);
    cairn_store_close(store);
}

static void evicted_is_said(void **state)
{
    test_fixture  *f = *state;
    const uint64_t budget = 2 << 20;
    int32_t        t[40][4 * P], u[P];
    char           path[600];
    uint8_t        garbage[8192];
    uint32_t       n_evicted = 0;
    cairn_store   *store = test_open(f->root, budget, P);
    for (int i = 0; i < 40; i++) {
        test_tokens(t[i], 4 * P, 100 + (uint64_t)i);
        test_store(store, f->id, t[i], 4 * P);
    }
    test_tokens(u, P, 9999);
    for (int i = 0; i < 100 && test_stats(store).pages_evicted < 20; i++) {
        int32_t more[4 * P];
        test_tokens(more, 4 * P, 1000 + (uint64_t)i);
        test_store(store, f->id, more, 4 * P);
        assert_true(test_tree_of(f->root).disk_bytes <= budget);
    }
    snprintf(path, sizeof(path), "%s/evicted", f->root);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 8192);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_true(test_stats(store).used_bytes >= test_tree_of(f->root).disk_bytes);
    for (int i = 0; i < 40; i++) {
        cairn_hit hit = look(store, f, t[i], 4 * P);
        if (hit.cached_tokens == 4 * P)
            continue;
        n_evicted += hit.miss == CAIRN_MISS_EVICTED;
        if (hit.miss == CAIRN_MISS_EVICTED)
            assert_true(hit.evicted_s <= 60);
    }
    assert_true(n_evicted >= 3);
    assert_int_equal(test_stats(store).misses[CAIRN_MISS_EVICTED], n_evicted);
    assert_int_equal(look(store, f, u, P).miss, CAIRN_MISS_NEVER_SEEN);
    test_random r = {77};
    for (size_t i = 0; i < sizeof(garbage); i++)
        garbage[i] = (uint8_t)test_next(&r);
    test_write_file(path, garbage, sizeof(garbage)); /* harmless */
    for (int i = 0; i < 40; i++)
        assert_int_not_equal(look(store, f, t[i], 4 * P).miss, CAIRN_MISS_EVICTED);
    test_write_file(path, garbage, 100); /* of no use: another one is made */
    for (int i = 0; i < 40; i++) {
        int32_t more[4 * P];
        test_tokens(more, 4 * P, 3000 + (uint64_t)i);
        test_store(store, f->id, more, 4 * P);
    }
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 8192);
    assert_true(test_stats(store).used_bytes >= test_tree_of(f->root).disk_bytes);
    test_store(store, f->id, u, P);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* so is this */
    for (int i = 0; i < 40; i++) {
        int32_t more[4 * P];
        (void)look(store, f, t[i], 4 * P);
        test_tokens(more, 4 * P, 2000 + (uint64_t)i);
        test_store(store, f->id, more, 4 * P);
    }
    assert_int_equal(test_stats(store).write_errors, 0);
    cairn_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(probation, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(shared_is_used, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(orphans_first, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(stale_identity_first, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(restores_are_measured, test_setup, test_teardown),
        cmocka_unit_test(ring_values),
        cmocka_unit_test_setup_teardown(first_eviction_is_said, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(evicted_is_said, test_setup, test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
