/* Finding pages: whole, to the exact token, short, superseded, cut to a grid; and
 * nothing that only looks alike. */
#include "store_testing.h"

#define P 256u

typedef struct fixture {
    char           *root;
    cairn_store    *store;
    cairn_identity *id;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    f->root = test_make_dir();
    f->store = test_open(f->root, UINT64_C(1) << 30, 0);
    f->id = test_identity("lookup");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    cairn_store_close(f->store);
    cairn_identity_destroy(f->id);
    test_remove_dir(f->root);
    free(f);
    return 0;
}

static void round_trip(void **state)
{
    fixture *f = *state;
    int32_t  t[5 * P];
    test_tokens(t, 5 * P, 1);
    test_expect(f->store, f->id, t, 5 * P, 0, NULL, 0);
    test_store(f->store, f->id, t, 5 * P);
    test_expect(f->store, f->id, t, 5 * P, 5 * P, t, 5 * P);
    cairn_store_stats s = test_stats(f->store);
    assert_int_equal(s.pages_put, 5);
    assert_int_equal(s.pages_published, 5);
    assert_int_equal(s.lookups, 2);
    assert_int_equal(s.hits, 1);
    assert_int_equal(s.hit_tokens, 5 * P);
    assert_int_equal(s.misses[CAIRN_MISS_NEVER_SEEN], 1);
    assert_int_equal(s.queued_bytes, 0);
    /* A second time nothing is written. */
    test_store(f->store, f->id, t, 5 * P);
    s = test_stats(f->store);
    assert_int_equal(s.pages_published, 5);
    assert_int_equal(s.pages_skipped, 5);
    assert_int_equal(test_tree_of(f->root).n_pages, 5);
}

static void survives_reopening(void **state)
{
    fixture *f = *state;
    int32_t  t[3 * P + 77];
    test_tokens(t, 3 * P + 77, 2);
    test_store(f->store, f->id, t, 3 * P + 77);
    cairn_store_close(f->store);
    f->store = test_open(f->root, UINT64_C(1) << 30, 0);
    test_expect(f->store, f->id, t, 3 * P + 77, 3 * P + 77, t, 3 * P + 77);
}

/* Stored: two pages. Asked: the same up to n, then others. Every n. */
static void to_the_exact_token(void **state)
{
    fixture *f = *state;
    int32_t  t[2 * P], q[2 * P];
    test_tokens(t, 2 * P, 3);
    test_store(f->store, f->id, t, 2 * P);
    for (uint32_t n = 0; n <= 2 * P; n++) {
        memcpy(q, t, sizeof(q));
        for (uint32_t i = n; i < 2 * P; i++)
            q[i] = t[i] + 1;
        test_expect(f->store, f->id, q, 2 * P, n, t, 2 * P);
        /* Only one token differs, all after it agree. */
        memcpy(q, t, sizeof(q));
        if (n < 2 * P)
            q[n]++;
        test_expect(f->store, f->id, q, 2 * P, n, t, 2 * P);
        /* The request just ends there. */
        test_expect(f->store, f->id, t, n, n, t, 2 * P);
    }
}

/* Many children of one parent part at every length; each request finds its own. */
static void among_siblings(void **state)
{
    fixture *f = *state;
    int32_t  t[P], q[2 * P];
    test_tokens(t, P, 4);
    for (uint32_t n = 3; n < P; n += 5) { /* sibling n shares n tokens with t */
        memcpy(q, t, sizeof(t));
        for (uint32_t i = n; i < P; i++)
            q[i] = t[i] + (int32_t)n + 1;
        test_store(f->store, f->id, q, P);
    }
    for (uint32_t n = 3; n < P; n += 5) {
        memcpy(q, t, sizeof(t));
        for (uint32_t i = n; i < P; i++)
            q[i] = t[i] + (int32_t)n + 1;
        for (uint32_t same = n + 1; same <= P; same += 13) {
            int32_t ask[P];
            memcpy(ask, q, sizeof(ask));
            for (uint32_t i = same; i < P; i++)
                ask[i] = -5;
            cairn_pin *pin;
            cairn_hit  hit = test_lookup(f->store, f->id, ask, P, 0, 0, &pin);
            /* At most as many as its own sibling has; never fewer than the names tell. */
            assert_true(hit.cached_tokens <= same);
            static const uint32_t levels[] = {0, 16, 32, 64, 128, 192};
            uint32_t              floor = 0;
            for (size_t i = 0; i < 6; i++)
                if (levels[i] <= same)
                    floor = levels[i];
            assert_true(hit.cached_tokens >= floor);
            cairn_pin_release(pin);
        }
        test_expect(f->store, f->id, q, P, P, q, P);
    }
    assert_int_equal(test_stats(f->store).pages_corrupt, 0);
}

/* Two siblings only: whatever the lengths, the better one is taken. */
static void the_better_of_two(void **state)
{
    fixture              *f = *state;
    static const uint32_t lengths[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 254, 255};
    const size_t          n_lengths = sizeof(lengths) / sizeof(lengths[0]);
    for (size_t a = 0; a < n_lengths; a++)
        for (size_t b = a + 1; b < n_lengths; b++) {
            int32_t t[P], x[P], y[P];
            test_tokens(t, P, 1000 + a * 100 + b);
            memcpy(x, t, sizeof(x));
            memcpy(y, t, sizeof(y));
            for (uint32_t i = lengths[a]; i < P; i++)
                x[i] = t[i] + 1;
            for (uint32_t i = lengths[b]; i < P; i++)
                y[i] = t[i] + 2;
            test_put *px = test_make_put(f->id, x, P, P, 0), *py = test_make_put(f->id, y, P, P, 0);
            assert_int_equal(cairn_store_put(f->store, &px->put), CAIRN_OK);
            assert_int_equal(cairn_store_put(f->store, &py->put), CAIRN_OK);
            assert_int_equal(cairn_store_flush(f->store, 60000), CAIRN_OK);
            test_expect(f->store, f->id, t, P, lengths[b], y, P);
            test_expect(f->store, f->id, x, P, P, x, P);
        }
}

static void short_last_page(void **state)
{
    fixture *f = *state;
    int32_t  t[2 * P];
    test_tokens(t, 2 * P, 5);
    test_store(f->store, f->id, t, P + 100);
    test_expect(f->store, f->id, t, P + 100, P + 100, t, P + 100);
    test_expect(f->store, f->id, t, P + 99, P + 99, t, P + 100);
    test_expect(f->store, f->id, t, 2 * P, P + 100, t, P + 100);
    /* A longer one takes its place; a shorter one is not stored beside it. */
    test_store(f->store, f->id, t, P + 150);
    test_expect(f->store, f->id, t, 2 * P, P + 150, t, P + 150);
    assert_int_equal(test_tree_of(f->root).n_pages, 2);
    test_store(f->store, f->id, t, P + 20);
    assert_int_equal(test_tree_of(f->root).n_pages, 2);
    test_store(f->store, f->id, t, 2 * P);
    assert_int_equal(test_tree_of(f->root).n_pages, 2);
    test_expect(f->store, f->id, t, 2 * P, 2 * P, t, 2 * P);
    test_expect(f->store, f->id, t, P + 100, P + 100, t, 2 * P);
    /* One that only begins alike stays. */
    int32_t u[P + 60];
    memcpy(u, t, sizeof(u));
    u[P + 59]++;
    test_store(f->store, f->id, u, P + 60);
    assert_int_equal(test_tree_of(f->root).n_pages, 3);
    test_expect(f->store, f->id, u, P + 60, P + 60, u, P + 60);
}

static void has_tells(void **state)
{
    fixture *f = *state;
    int32_t  t[P + 50];
    test_tokens(t, P + 50, 6);
    test_put  *p = test_make_put(f->id, t, P + 50, P, 0);
    cairn_page first = p->pages[0], last = p->pages[1];
    assert_false(cairn_store_has(f->store, f->id, &first));
    test_put *longer = test_make_put(f->id, t, P + 50, P, 0);
    assert_int_equal(cairn_store_put(f->store, &longer->put), CAIRN_OK);
    assert_true(cairn_store_has(f->store, f->id, &first)); /* queued or there */
    assert_int_equal(cairn_store_flush(f->store, 60000), CAIRN_OK);
    assert_true(cairn_store_has(f->store, f->id, &first));
    assert_true(cairn_store_has(f->store, f->id, &last));
    /* A shorter last page is covered by this one; a longer one is not. */
    test_put *shorter = test_make_put(f->id, t, P + 49, P, 0);
    assert_true(cairn_store_has(f->store, f->id, &shorter->pages[1]));
    t[P + 49]++;
    test_put *other = test_make_put(f->id, t, P + 50, P, 0);
    assert_false(cairn_store_has(f->store, f->id, &other->pages[1]));
    cairn_identity *another = test_identity("another");
    assert_false(cairn_store_has(f->store, another, &first));
    cairn_identity_destroy(another);
    test_release(other);
    test_release(shorter);
    test_release(p);
}

static void cut_to_the_grid(void **state)
{
    fixture   *f = *state;
    int32_t    t[4 * P];
    cairn_pin *pin;
    test_tokens(t, 4 * P, 7);
    test_store(f->store, f->id, t, 3 * P + 200);
    static const struct {
        uint32_t grid, n, from, cached, pages;
    } cases[] = {
        {512, 4 * P, 0, 2 * P, 2},
        {512, 2 * P + 10, 0, 2 * P, 2},
        {512, 511, 0, 0, 0},
        {128, 4 * P, 0, 3 * P + 128, 4},
        {128, 3 * P + 127, 0, 3 * P, 3},
        {1024, 4 * P, 0, 0, 0},
        {512, 4 * P, 2 * P, 0, 0},
        {64, 4 * P, 3 * P + 10, 3 * P + 192, 1},
        {1, 4 * P, 0, 3 * P + 200, 4},
        {512, 4 * P, P + 1, 2 * P, 1},
        {192, 4 * P, 0, 5 * 192, 4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cairn_hit hit = test_lookup(f->store, f->id, t, cases[i].n, cases[i].from, cases[i].grid, &pin);
        assert_int_equal(hit.cached_tokens, cases[i].cached);
        assert_int_equal(hit.n_pages, cases[i].pages);
        if (pin)
            test_check_pin(pin, &hit, f->id, t, 3 * P + 200, P, cases[i].from);
        cairn_pin_release(pin);
    }
}

/* From every resident length: the first page contains it, and nothing is offered
 * that adds nothing. Earlier pages need not exist. */
static void from_the_middle(void **state)
{
    fixture   *f = *state;
    int32_t    t[4 * P];
    cairn_pin *pin;
    test_tokens(t, 4 * P, 8);
    test_put *p = test_make_put(f->id, t, 3 * P + 40, P, P); /* the first page is missing */
    assert_int_equal(cairn_store_put(f->store, &p->put), CAIRN_OK);
    assert_int_equal(cairn_store_flush(f->store, 60000), CAIRN_OK);
    test_expect(f->store, f->id, t, 4 * P, 0, NULL, 0);
    for (uint32_t from = 0; from <= 4 * P; from += 4) {
        cairn_hit hit = test_lookup(f->store, f->id, t, 4 * P, from, 0, &pin);
        bool      some = from >= P && from < 3 * P + 40;
        assert_int_equal(hit.cached_tokens, some ? 3 * P + 40 : 0);
        assert_int_equal(hit.miss, from == 4 * P ? CAIRN_MISS_NONE : CAIRN_MISS_NEVER_SEEN);
        if (some) {
            cairn_page_view v = cairn_pin_page(pin, 0);
            assert_true(v.start <= from && from < v.start + v.used_tokens);
            test_check_pin(pin, &hit, f->id, t, 3 * P + 40, P, from);
        }
        cairn_pin_release(pin);
    }
}

static void other_tokens_never_hit(void **state)
{
    fixture *f = *state;
    int32_t  t[P], q[P];
    test_tokens(t, P, 9);
    t[0] = 7;
    t[1] = 23;
    test_store(f->store, f->id, t, P);
    static const int32_t steps[] = {256, 65536, 1 << 24, INT32_MIN};
    for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++)
        for (uint32_t at = 0; at < P; at += 51) {
            memcpy(q, t, sizeof(q));
            q[at] = (int32_t)((uint32_t)t[at] + (uint32_t)steps[s]);
            test_expect(f->store, f->id, q, P, at, t, P);
        }
    /* [7,23] is not [723], and trailing zeros are tokens. */
    q[0] = 723;
    memcpy(q + 1, t + 2, (P - 2) * sizeof(*t));
    test_expect(f->store, f->id, q, P - 1, 0, NULL, 0);
    cairn_identity *another = test_identity("lookup2");
    test_expect(f->store, another, t, P, 0, NULL, 0);
    cairn_identity_destroy(another);
    int32_t zeros[40] = {0};
    test_store(f->store, f->id, zeros, 20);
    test_expect(f->store, f->id, zeros, 40, 20, zeros, 20);
    test_store(f->store, f->id, zeros, 21);
    test_expect(f->store, f->id, zeros, 40, 21, zeros, 21);
    int32_t odd[4] = {-1, INT32_MIN, INT32_MAX, 0};
    test_store(f->store, f->id, odd, 4);
    test_expect(f->store, f->id, odd, 4, 4, odd, 4);
}

static void bad_arguments(void **state)
{
    fixture    *f = *state;
    int32_t     t[P];
    cairn_hit   hit = {.cached_tokens = 123};
    cairn_pin  *pin = (cairn_pin *)&hit;
    cairn_query q = {.identity = f->id, .tokens = t, .n_tokens = P, .from_tokens = P + 1};
    test_tokens(t, P, 10);
    assert_int_equal(cairn_store_lookup(f->store, &q, &hit, &pin), CAIRN_EINVAL);
    q = (cairn_query){.identity = NULL, .tokens = t, .n_tokens = P};
    assert_int_equal(cairn_store_lookup(f->store, &q, &hit, &pin), CAIRN_EINVAL);
    assert_int_equal(hit.cached_tokens, 123);
    assert_ptr_equal(pin, &hit);
    q = (cairn_query){.identity = f->id};
    assert_int_equal(cairn_store_lookup(f->store, &q, &hit, &pin), CAIRN_OK);
    assert_int_equal(hit.cached_tokens, 0);
    assert_null(pin);

    test_put  *p = test_make_put(f->id, t, P, P, 0);
    cairn_put  bad = p->put;
    cairn_page page = p->pages[0];
    bad.pages = &page;
    page.key.bytes[31] ^= 1;
    assert_int_equal(cairn_store_put(f->store, &bad), CAIRN_EINVAL);
    page = p->pages[0];
    page.start = 3;
    assert_int_equal(cairn_store_put(f->store, &bad), CAIRN_EINVAL);
    page = p->pages[0];
    page.n_tokens = 0;
    assert_int_equal(cairn_store_put(f->store, &bad), CAIRN_EINVAL);
    page.n_tokens = P + 1;
    assert_int_equal(cairn_store_put(f->store, &bad), CAIRN_EINVAL);
    page = p->pages[0];
    page.n_blocks = 0;
    assert_int_equal(cairn_store_put(f->store, &bad), CAIRN_EINVAL);
    assert_int_equal(test_stats(f->store).pages_put, 0);
    test_release(p);

    test_store(f->store, f->id, t, P);
    q = (cairn_query){.identity = f->id, .tokens = t, .n_tokens = P};
    assert_int_equal(cairn_store_lookup(f->store, &q, &hit, &pin), CAIRN_OK);
    uint8_t byte;
    assert_int_equal(cairn_pin_read_block(pin, 1, 0, &byte), CAIRN_EINVAL);
    assert_int_equal(cairn_pin_read_block(pin, 0, TEST_BLOCKS, &byte), CAIRN_EINVAL);
    cairn_pin_release(pin);
    cairn_pin_release(NULL);
    cairn_store_close(NULL);
}

static void page_of_another_size(void **state)
{
    fixture *f = *state;
    int32_t  t[2 * P];
    test_tokens(t, 2 * P, 11);
    test_store(f->store, f->id, t, 2 * P);
    cairn_store *small = test_open(f->root, UINT64_C(1) << 30, 64);
    test_expect(small, f->id, t, 2 * P, 0, NULL, 0);
    test_store(small, f->id, t, 2 * P);
    test_expect(small, f->id, t, 2 * P, 2 * P, t, 2 * P);
    cairn_store_close(small);
    test_expect(f->store, f->id, t, 2 * P, 2 * P, t, 2 * P);
}

static void tier_off(void **state)
{
    (void)state;
    char           *dir = test_make_dir(), *root = NULL;
    cairn_store    *store;
    cairn_error     error;
    int32_t         t[P];
    atomic_int      released = 0;
    cairn_identity *id = test_identity("off");
    assert_true(asprintf(&root, "%s/none", dir) > 0);
    cairn_store_options o = {.root = root, .budget_bytes = CAIRN_BUDGET_OFF};
    assert_int_equal(cairn_store_open(&o, &store, &error), CAIRN_OK);
    test_tokens(t, P, 12);
    assert_int_equal(cairn_store_put_room(store), 0);
    test_put *p = test_make_put(id, t, P, P, 0);
    p->released = &released;
    assert_int_equal(cairn_store_put(store, &p->put), CAIRN_OK);
    assert_int_equal(released, 1);
    assert_int_equal(cairn_store_flush(store, 0), CAIRN_OK);
    cairn_pin *pin;
    assert_int_equal(test_lookup(store, id, t, P, 0, 0, &pin).miss, CAIRN_MISS_TIER_OFF);
    assert_string_equal(cairn_store_root(store), root);
    assert_int_equal(test_stats(store).pages_given_up, 1);
    assert_false(test_exists(root));
    cairn_store_close(store);
    cairn_identity_destroy(id);
    free(root);
    test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(survives_reopening, setup, teardown),
        cmocka_unit_test_setup_teardown(to_the_exact_token, setup, teardown),
        cmocka_unit_test_setup_teardown(among_siblings, setup, teardown),
        cmocka_unit_test_setup_teardown(the_better_of_two, setup, teardown),
        cmocka_unit_test_setup_teardown(short_last_page, setup, teardown),
        cmocka_unit_test_setup_teardown(has_tells, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_to_the_grid, setup, teardown),
        cmocka_unit_test_setup_teardown(from_the_middle, setup, teardown),
        cmocka_unit_test_setup_teardown(other_tokens_never_hit, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown(page_of_another_size, setup, teardown),
        cmocka_unit_test(tier_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
