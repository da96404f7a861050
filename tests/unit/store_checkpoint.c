/* Checkpoints in the store: the deepest usable one, its tokens compared to the
 * first, and a miss where none is left - with plain and with sealed files. */
#include "store_testing.h"

#include "store/tool.h"

#include <ftw.h>
#include <utime.h>

#define P 16u
#define N (6 * P)

static const uint8_t secret[32] = {1, 2, 3};

typedef struct fixture {
    char           *root;
    cairn_store    *store;
    cairn_identity *id;
    int32_t         t[N + P];
} fixture;

static int setup_with(void **state, const uint8_t *key)
{
    fixture *f = calloc(1, sizeof(*f));
    test_key = key;
    f->root = test_make_dir();
    f->store = test_open(f->root, UINT64_C(1) << 30, P);
    f->id = test_identity("checkpoint");
    test_tokens(f->t, N + P, 1);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, NULL);
}

static int setup_sealed(void **state)
{
    return setup_with(state, secret);
}

static int teardown(void **state)
{
    fixture *f = *state;
    cairn_store_close(f->store);
    cairn_identity_destroy(f->id);
    test_remove_dir(f->root);
    free(f);
    test_key = NULL;
    return 0;
}

/* The checkpoint at n; its first block has `all`, which should be its tokens. */
static cairn_status put_with(fixture *f, const int32_t *tokens, uint32_t n, const int32_t *all, uint32_t n_all)
{
    uint8_t     state[TEST_STATE_SIZE];
    cairn_page  page = test_checkpoint(f->id, tokens, n, P);
    cairn_block blocks[2] = {{all, n_all * sizeof(*all)}, {state, sizeof(state)}};
    cairn_put   put = {.identity = f->id, .pages = &page, .n_pages = 1};
    page.blocks = blocks;
    page.n_blocks = 2;
    test_fill_state(&page.key, state);
    cairn_status status = cairn_store_put(f->store, &put);
    assert_int_equal(cairn_store_flush(f->store, 60000), CAIRN_OK);
    return status;
}

static void put_at(fixture *f, const int32_t *tokens, uint32_t n)
{
    assert_int_equal(put_with(f, tokens, n, tokens, n), CAIRN_OK);
    cairn_page page = test_checkpoint(f->id, tokens, n, P);
    assert_true(cairn_store_has(f->store, f->id, &page));
}

static void expect_query(fixture *f, cairn_query query, uint32_t want, cairn_miss miss)
{
    cairn_hit  hit;
    cairn_pin *pin = NULL;
    query.identity = f->id;
    query.needs_checkpoint = true;
    assert_int_equal(cairn_store_lookup(f->store, &query, &hit, &pin), CAIRN_OK);
    assert_int_equal(hit.cached_tokens, want);
    assert_int_equal(hit.miss, miss);
    assert_int_equal(hit.has_checkpoint, want > 0);
    if (want > 0) {
        uint8_t         state[TEST_STATE_SIZE], expected[TEST_STATE_SIZE];
        cairn_page      page = test_checkpoint(f->id, query.tokens, want, P);
        cairn_page_view v = cairn_pin_page(pin, hit.n_pages);
        assert_int_equal(v.kind, CAIRN_CHECKPOINT);
        assert_int_equal(v.start + v.used_tokens, want);
        assert_int_equal(v.used_tokens, v.n_tokens);
        assert_int_equal(cairn_pin_read_block(pin, hit.n_pages, 1, state), CAIRN_OK);
        test_fill_state(&page.key, expected);
        assert_memory_equal(state, expected, sizeof(state));
        uint32_t end = query.from_tokens / P * P;
        for (uint32_t i = 0; i < hit.n_pages; i++) {
            assert_int_equal(cairn_pin_page(pin, i).kind, CAIRN_PAGE);
            assert_int_equal(cairn_pin_page(pin, i).start, end);
            end += cairn_pin_page(pin, i).used_tokens;
        }
        assert_int_equal(query.no_pages ? want : end, want);
    } else {
        assert_null(pin);
    }
    cairn_pin_release(pin);
}

static void expect(fixture *f, const int32_t *tokens, uint32_t n, uint32_t want, cairn_miss miss)
{
    expect_query(f, (cairn_query){.tokens = tokens, .n_tokens = n}, want, miss);
}

static void the_deepest_one_at_or_before_the_end(void **state)
{
    fixture *f = *state;
    test_store(f->store, f->id, f->t, N - 3);
    expect(f, f->t, N, 0, CAIRN_MISS_CHECKPOINT);
    put_at(f, f->t, 7);
    expect(f, f->t, N, 7, CAIRN_MISS_NEVER_SEEN);
    put_at(f, f->t, 2 * P); /* ends with a page */
    put_at(f, f->t, 2 * P + 1);
    put_at(f, f->t, N - 3);
    put_at(f, f->t, N - 1); /* no page covers it */
    expect(f, f->t, N, N - 3, CAIRN_MISS_NEVER_SEEN);
    expect(f, f->t, N - 3, N - 3, CAIRN_MISS_NONE);
    expect(f, f->t, N - 4, 2 * P + 1, CAIRN_MISS_CHECKPOINT);
    expect(f, f->t, 2 * P, 2 * P, CAIRN_MISS_NONE);
    expect(f, f->t, 2 * P - 1, 7, CAIRN_MISS_CHECKPOINT);
    expect(f, f->t, 6, 0, CAIRN_MISS_CHECKPOINT);
    test_expect(f->store, f->id, f->t, N, N - 3, f->t, N - 3); /* pages alone are found as ever */
}

static void only_behind_the_same_tokens(void **state)
{
    fixture *f = *state;
    int32_t  other[N];
    memcpy(other, f->t, sizeof(other));
    other[3 * P + 2]++;
    test_store(f->store, f->id, f->t, N);
    put_at(f, f->t, 3 * P);
    put_at(f, f->t, 3 * P + 2);
    put_at(f, f->t, 3 * P + 3);
    put_at(f, f->t, 5 * P);
    expect(f, other, N, 3 * P + 2, CAIRN_MISS_NEVER_SEEN); /* at 3 P + 3 another token */
    put_at(f, other, 3 * P + 3);
    test_store(f->store, f->id, other, 4 * P);
    expect(f, other, N, 3 * P + 3, CAIRN_MISS_NEVER_SEEN);
    expect(f, f->t, 4 * P, 3 * P + 3, CAIRN_MISS_CHECKPOINT);
    other[0]++;
    expect(f, other, N, 0, CAIRN_MISS_NEVER_SEEN);
}

/* Its key and its last tokens are right; what it was taken behind is not. */
static void a_lie_about_the_first_tokens_is_found(void **state)
{
    fixture *f = *state;
    int32_t  lie[N];
    memcpy(lie, f->t, sizeof(lie));
    lie[0]++;
    test_store(f->store, f->id, f->t, N);
    put_at(f, f->t, 2 * P);
    assert_int_equal(put_with(f, f->t, 4 * P, lie, 4 * P), CAIRN_OK);
    expect(f, f->t, N, 2 * P, CAIRN_MISS_CHECKPOINT);
    assert_int_equal(test_stats(f->store).pages_corrupt, 1);
    assert_int_equal(test_stats(f->store).pages_quarantined, 1);
    expect(f, f->t, N, 2 * P, CAIRN_MISS_CHECKPOINT);
    assert_int_equal(test_stats(f->store).pages_corrupt, 1);
    put_at(f, f->t, 4 * P); /* can be stored anew */
    expect(f, f->t, N, 4 * P, CAIRN_MISS_CHECKPOINT);
}

static void what_is_no_checkpoint_is_refused(void **state)
{
    fixture   *f = *state;
    cairn_page page = test_checkpoint(f->id, f->t, 20, P);
    cairn_put  put = {.identity = f->id, .pages = &page, .n_pages = 1};
    assert_int_equal(put_with(f, f->t, 20, f->t, 19), CAIRN_EINVAL); /* not all its tokens */
    assert_int_equal(put_with(f, f->t, 20, f->t, 21), CAIRN_EINVAL);
    cairn_block block = {f->t, 80};
    page.blocks = &block;
    page.n_blocks = 1;
    page.kind = CAIRN_PAGE; /* the key of the other kind */
    assert_int_equal(cairn_store_put(f->store, &put), CAIRN_EINVAL);
    cairn_hit   hit;
    cairn_pin  *pin;
    cairn_query query = {.identity = f->id, .tokens = f->t, .n_tokens = N, .no_pages = true};
    assert_int_equal(cairn_store_lookup(f->store, &query, &hit, &pin), CAIRN_EINVAL);
}

static void on_a_grid(void **state)
{
    fixture *f = *state;
    test_store(f->store, f->id, f->t, N);
    put_at(f, f->t, 3 * P);
    put_at(f, f->t, 4 * P);
    put_at(f, f->t, 5 * P + 1);
    expect_query(f, (cairn_query){.tokens = f->t, .n_tokens = N, .grid_tokens = 2 * P}, 4 * P, CAIRN_MISS_CHECKPOINT);
    expect_query(f, (cairn_query){.tokens = f->t, .n_tokens = 4 * P - 1, .grid_tokens = 2 * P}, 0,
                 CAIRN_MISS_CHECKPOINT);
}

static void behind_what_is_resident(void **state)
{
    fixture *f = *state;
    test_store(f->store, f->id, f->t, N);
    put_at(f, f->t, 2 * P);
    put_at(f, f->t, 4 * P + 5);
    expect_query(f, (cairn_query){.tokens = f->t, .n_tokens = N, .from_tokens = 2 * P + 3}, 4 * P + 5,
                 CAIRN_MISS_CHECKPOINT);
    expect_query(f, (cairn_query){.tokens = f->t, .n_tokens = N, .from_tokens = 4 * P + 5}, 0, CAIRN_MISS_CHECKPOINT);
}

static void without_pages(void **state)
{
    fixture *f = *state;
    put_at(f, f->t, 5);
    put_at(f, f->t, 3 * P + 1);
    expect_query(f, (cairn_query){.tokens = f->t, .n_tokens = N, .no_pages = true}, 3 * P + 1, CAIRN_MISS_CHECKPOINT);
    expect_query(f, (cairn_query){.tokens = f->t, .n_tokens = 3 * P + 1, .no_pages = true}, 3 * P + 1, CAIRN_MISS_NONE);
    expect_query(f, (cairn_query){.tokens = f->t, .n_tokens = 3 * P, .no_pages = true}, 5, CAIRN_MISS_CHECKPOINT);
    expect(f, f->t, N, 0, CAIRN_MISS_NEVER_SEEN); /* one who needs pages finds none */
}

static char found_path[4096];

static int find_checkpoint(const char *path, const struct stat *st, int type)
{
    size_t length = strlen(path);
    (void)st;
    if (type != FTW_F || length < 5 || strcmp(path + length - 5, ".ckpt") != 0 || strstr(path, "quarantine"))
        return 0;
    snprintf(found_path, sizeof(found_path), "%s", path);
    return 1;
}

/* Any changed byte of the header or the tokens: the next shorter one. Of the
 * state: an error when it is read, and the shorter one from then on. */
static void every_changed_byte(void **state)
{
    fixture       *f = *state;
    static uint8_t good[1 << 14];
    test_store(f->store, f->id, f->t, N);
    put_at(f, f->t, 4 * P);
    assert_int_equal(ftw(f->root, find_checkpoint, 8), 1);
    char path[sizeof(found_path)];
    memcpy(path, found_path, sizeof(path));
    size_t size = test_read_file(path, good, sizeof(good));
    put_at(f, f->t, P);
    const size_t header = CAIRN__PAGE_FIXED_SIZE + 2 * CAIRN__PAGE_BLOCK_ENTRY_SIZE + 4 * P;
    const size_t payload = size - TEST_STATE_SIZE - 4 * 4 * P;
    for (size_t at = 0; at < size; at += at < header || at >= payload ? 1 : 211) {
        cairn_hit   hit;
        cairn_pin  *pin;
        cairn_query query = {.identity = f->id, .tokens = f->t, .n_tokens = N, .needs_checkpoint = true};
        uint8_t     state_read[TEST_STATE_SIZE];
        bool        in_padding = at >= header && at < payload;
        good[at] ^= 0x10;
        test_write_file(path, good, size);
        good[at] ^= 0x10;
        assert_int_equal(cairn_store_lookup(f->store, &query, &hit, &pin), CAIRN_OK);
        if (at < size - TEST_STATE_SIZE && !in_padding)
            assert_int_equal(hit.cached_tokens, P);
        else if (!in_padding) {
            assert_int_equal(hit.cached_tokens, 4 * P);
            assert_int_equal(cairn_pin_read_block(pin, hit.n_pages, 1, state_read), CAIRN_ECORRUPT);
        }
        cairn_pin_release(pin);
        unlink(path);
    }
}

static int make_old(const char *path, const struct stat *st, int type)
{
    struct utimbuf old = {st->st_mtime - 3600, st->st_mtime - 3600};
    return type == FTW_F ? utime(path, &old) : 0;
}

/* Evicts at least one byte: one file. */
static void prune_one(fixture *f)
{
    cairn_store       *store;
    cairn_error        error;
    cairn__tool_result r;
    assert_int_equal(cairn__tool_open(f->root, true, &store, &error), CAIRN_OK);
    uint64_t used = test_tree_of(f->root).disk_bytes; /* the ledger may say more until it is counted again */
    assert_int_equal(cairn__tool_prune(store, used - 1, &r), CAIRN_OK);
    assert_int_equal(r.n_pages, 1);
    cairn_store_close(store);
}

/* Pages that no checkpoint needs go before a checkpoint, and before those it needs. */
static void what_no_checkpoint_needs_goes_first(void **state)
{
    fixture *f = *state;
    test_store(f->store, f->id, f->t, N);
    put_at(f, f->t, 2 * P);
    put_at(f, f->t, 2 * P + 1);
    cairn_store_close(f->store);
    assert_int_equal(ftw(f->root, make_old, 8), 0);
    for (uint32_t left = N / P; left > 3; left--) {
        prune_one(f);
        assert_int_equal(test_tree_of(f->root).n_pages, left - 1);
    }
    f->store = test_open(f->root, UINT64_C(1) << 30, P);
    expect(f, f->t, N, 2 * P + 1, CAIRN_MISS_NEVER_SEEN);
}

int main(void)
{
#define BOTH(test) cmocka_unit_test_setup_teardown(test, setup, teardown), \
                   cmocka_unit_test_setup_teardown(test, setup_sealed, teardown)
    const struct CMUnitTest tests[] = {
        BOTH(the_deepest_one_at_or_before_the_end), BOTH(only_behind_the_same_tokens),
        BOTH(a_lie_about_the_first_tokens_is_found), BOTH(what_is_no_checkpoint_is_refused),
        BOTH(on_a_grid), BOTH(what_no_checkpoint_needs_goes_first), BOTH(behind_what_is_resident), BOTH(without_pages), BOTH(every_changed_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
