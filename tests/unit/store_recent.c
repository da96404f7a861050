/* The note of prompts for the next process: its format against files made by a python3
 * script from docs/format.md, every way in which it can be bad, and its place in a
 * root - plain and sealed. */
#include "store_testing.h"

#include "core/recent_file.h"
#include "store/tool.h"
#include "store/verify.h"

#include <libgen.h>

#define P 16u
#define N (6 * P)
#define FILE_SIZE 200u

static const int32_t EXPECTED[3][20] = {
    {100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119},
    {100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 7, 8, 9, 10, 11},
    {5, 6, 7}};
static const uint32_t EXPECTED_N[3] = {20, 17, 3};

/* ---- the format ---- */

static void read_vector(const char *name, uint8_t data[FILE_SIZE])
{
    char  source[] = __FILE__;
    char *path = NULL;
    assert_true(asprintf(&path, "%s/../vectors/%s", dirname(source), name) > 0);
    assert_int_equal(test_read_file(path, data, FILE_SIZE), FILE_SIZE);
    free(path);
}

static cairn__keyring *vector_keyring(void)
{
    uint8_t         key[CAIRN__SECRET_SIZE];
    cairn__keyring *keyring;
    for (int i = 0; i < 32; i++)
        key[i] = (uint8_t)i;
    assert_int_equal(cairn__keyring_create(key, &keyring), CAIRN_OK);
    return keyring;
}

static cairn_status open_note(const cairn__keyring *keyring, const uint8_t *data, size_t size, cairn_prompt **ret_prompts,
                              uint32_t *ret_n)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    cairn_status status = cairn__recent_file_open(keyring, copy, size);
    if (!status)
        status = cairn__recent_file_prompts(copy, size, ret_prompts, ret_n);
    free(copy);
    return status;
}

/* What is read is what was noted, and noting it gives the same bytes. */
static void check_vector(const char *name, const cairn__keyring *keyring)
{
    uint8_t       data[FILE_SIZE], salt[CAIRN__SALT_SIZE], *file;
    cairn_prompt *prompts;
    uint32_t      n;
    size_t        size;
    read_vector(name, data);
    for (int i = 0; i < 32; i++)
        salt[i] = (uint8_t)(0x80 + i);
    assert_int_equal(cairn__recent_file_is_sealed(data, FILE_SIZE), keyring != NULL);
    assert_int_equal(open_note(keyring, data, FILE_SIZE, &prompts, &n), CAIRN_OK);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(prompts[i].n_tokens, EXPECTED_N[i]);
        assert_memory_equal(prompts[i].tokens, EXPECTED[i], EXPECTED_N[i] * sizeof(int32_t));
    }
    assert_int_equal(cairn__recent_file_make(prompts, n, &file, &size), CAIRN_OK);
    assert_int_equal(cairn__recent_file_seal(keyring, salt, file, size), CAIRN_OK);
    assert_int_equal(size, FILE_SIZE);
    assert_memory_equal(file, data, FILE_SIZE);
    free(file);
    free(prompts);
}

static void vectors(void **state)
{
    (void)state;
    cairn__keyring *keyring = vector_keyring();
    check_vector("recent-v1.bin", NULL);
    check_vector("recent-sealed-v1.bin", keyring);
    cairn__keyring_destroy(keyring);
}

/* Any bit, any length, either kind in place of the other. */
static void changed_in_any_way(void **state)
{
    (void)state;
    uint8_t         data[2][FILE_SIZE];
    cairn__keyring *keyrings[2] = {NULL, vector_keyring()};
    cairn_prompt   *prompts;
    uint32_t        n;
    read_vector("recent-v1.bin", data[0]);
    read_vector("recent-sealed-v1.bin", data[1]);
    for (int kind = 0; kind < 2; kind++) {
        for (size_t bit = 0; bit < 8 * FILE_SIZE; bit++) {
            data[kind][bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(open_note(keyrings[kind], data[kind], FILE_SIZE, &prompts, &n), CAIRN_ECORRUPT);
            data[kind][bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t size = 0; size < FILE_SIZE; size++)
            assert_int_equal(open_note(keyrings[kind], data[kind], size, &prompts, &n), CAIRN_ECORRUPT);
        assert_int_equal(open_note(keyrings[1 - kind], data[kind], FILE_SIZE, &prompts, &n), CAIRN_ECORRUPT);
    }
    cairn__keyring_destroy(keyrings[1]);
}

static void hostile(size_t at, uint32_t value)
{
    uint8_t       data[FILE_SIZE];
    cairn_prompt *prompts;
    uint32_t      n;
    read_vector("recent-v1.bin", data);
    cairn__put_u32(data + at, value);
    assert_int_equal(cairn__recent_file_seal(NULL, NULL, data, FILE_SIZE), CAIRN_OK);
    assert_int_equal(open_note(NULL, data, FILE_SIZE, &prompts, &n), CAIRN_ECORRUPT);
}

/* Under a checksum that is right. */
static void counts_that_lie(void **state)
{
    (void)state;
    hostile(8, 2);                /* another version */
    hostile(12, 2);               /* prompts: something is left behind them */
    hostile(12, 4);               /* one more than there is */
    hostile(12, 257);             /* more than there may be */
    hostile(12, UINT32_MAX);
    hostile(64, 1);               /* the first can't share */
    hostile(64, UINT32_MAX);
    hostile(68, 21);              /* shifts all that follows */
    hostile(68, 35);              /* beyond the end */
    hostile(68, UINT32_MAX / 4 + 1);
    hostile(68, UINT32_MAX);
    hostile(64 + 8 + 80, 21);     /* shares more than the one before has */
    hostile(64 + 8 + 80 + 4, 9);
}

/* Prompts that would not fit are left out from the end, and none is torn. */
static void too_many(void **state)
{
    (void)state;
    const uint32_t large = (uint32_t)CAIRN__RECENT_TOKENS_MAX - 5;
    int32_t       *tokens = calloc(large, sizeof(*tokens));
    cairn_prompt   many[300], *prompts;
    uint8_t       *file;
    size_t         size;
    uint32_t       n;
    for (int i = 0; i < 300; i++)
        many[i] = (cairn_prompt){tokens, 3};
    assert_int_equal(cairn__recent_file_make(many, 300, &file, &size), CAIRN_OK);
    assert_int_equal(cairn__recent_file_prompts(file, size, &prompts, &n), CAIRN_OK);
    assert_int_equal(n, 256);
    free(prompts);
    free(file);
    many[0].n_tokens = large;
    assert_int_equal(cairn__recent_file_make(many, 3, &file, &size), CAIRN_OK);
    assert_int_equal(cairn__recent_file_prompts(file, size, &prompts, &n), CAIRN_OK);
    assert_int_equal(n, 2);
    assert_int_equal(prompts[0].n_tokens, large);
    assert_int_equal(prompts[1].n_tokens, 3);
    free(prompts);
    free(file);
    free(tokens);
}

/* ---- in a root ---- */

typedef struct fixture {
    char           *root, *note; /* note: the path of this identity's */
    cairn_store    *store;
    cairn_identity *id;
    int32_t         a[N], b[N];
} fixture;

static int setup_with(void **state, const uint8_t *key)
{
    char         name[CAIRN__IDENTITY_NAME_SIZE];
    fixture     *f = calloc(1, sizeof(*f));
    test_key = key;
    f->root = test_make_dir();
    f->store = test_open(f->root, UINT64_C(1) << 30, P);
    f->id = test_identity("recent");
    cairn_digest digest = test_namespace(f->id);
    cairn__identity_name(&digest, name);
    assert_true(asprintf(&f->note, "%s/v1/%s/recent", f->root, name) > 0);
    test_tokens(f->a, N, 1);
    test_tokens(f->b, N, 2);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, NULL);
}

static int setup_sealed(void **state)
{
    static const uint8_t secret[32] = {1, 2, 3};
    return setup_with(state, secret);
}

static int teardown(void **state)
{
    fixture *f = *state;
    cairn_store_close(f->store);
    cairn_identity_destroy(f->id);
    test_remove_dir(f->root);
    free(f->note);
    free(f);
    test_key = NULL;
    return 0;
}

static void note(fixture *f, const cairn_prompt *prompts, uint32_t n)
{
    assert_int_equal(cairn_store_note_recent(f->store, f->id, prompts, n), CAIRN_OK);
    assert_int_equal(cairn_store_flush(f->store, 60000), CAIRN_OK);
}

static void expect(cairn_store *store, const cairn_identity *id, const cairn_prompt *expected, uint32_t n_expected)
{
    cairn_prompt *prompts = (cairn_prompt *)1;
    uint32_t      n = 99;
    assert_int_equal(cairn_store_recent(store, id, &prompts, &n), CAIRN_OK);
    assert_int_equal(n, n_expected);
    if (n == 0)
        assert_null(prompts);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(prompts[i].n_tokens, expected[i].n_tokens);
        assert_memory_equal(prompts[i].tokens, expected[i].tokens, expected[i].n_tokens * sizeof(int32_t));
    }
    free(prompts);
}

/* Never too little; too much by one note of the process before, of which this one does not
 * know as what it counts. More is for what was written while the root was counted: then
 * the ledger wants another count, and the janitor sees to that within a minute. */
static void expect_counted(const fixture *f)
{
    uint64_t says = 0, is = 0;
    for (int i = 0; i < 600; i++) {
        says = test_stats(f->store).used_bytes;
        is = test_tree_of(f->root).disk_bytes;
        if (says < is || says - is <= 4096)
            break;
        test_sleep_ms(100);
    }
    assert_true(says >= is && says - is <= 4096);
}

static void for_the_next_process(void **state)
{
    fixture           *f = *state;
    const cairn_prompt prompts[2] = {{f->a, N}, {f->b, 40}};
    cairn_identity    *other = test_identity("another");
    expect(f->store, f->id, NULL, 0);
    note(f, prompts, 2); /* there is no page of it yet */
    assert_false(test_exists(f->note));
    test_store(f->store, f->id, f->a, N);
    note(f, prompts, 2);
    assert_true(test_exists(f->note));
    expect_counted(f);
    expect(f->store, f->id, prompts, 2);
    expect(f->store, other, NULL, 0);
    cairn_store_close(f->store);
    f->store = test_open(f->root, UINT64_C(1) << 30, P);
    expect(f->store, f->id, prompts, 2);
    for (int i = 0; i < 20; i++)
        note(f, prompts + 1, 1); /* in its place */
    expect(f->store, f->id, prompts + 1, 1);
    expect_counted(f);
    cairn_identity_destroy(other);
}

/* Two identities that note at once lose nothing; of one, the last note counts. Closing
 * writes what is left. */
static void the_last_note_of_each(void **state)
{
    fixture           *f = *state;
    const cairn_prompt prompts[2] = {{f->a, N}, {f->b, 40}};
    cairn_identity    *other = test_identity("another");
    test_store(f->store, f->id, f->a, N);
    test_store(f->store, other, f->a, N);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(cairn_store_note_recent(f->store, f->id, prompts, 2), CAIRN_OK);
        assert_int_equal(cairn_store_note_recent(f->store, other, prompts + 1, 1), CAIRN_OK);
    }
    assert_int_equal(cairn_store_note_recent(f->store, f->id, prompts, 1), CAIRN_OK);
    cairn_store_close(f->store);
    f->store = test_open(f->root, UINT64_C(1) << 30, P);
    expect(f->store, f->id, prompts, 1);
    expect(f->store, other, prompts + 1, 1);
    assert_int_equal(test_tree_of(f->root).n_temps, 0);
    cairn_identity_destroy(other);
}

/* Whatever lies there: no prompts, nothing hangs, and a file that was ours to remove is gone. */
static void bad_ones(void **state)
{
    fixture           *f = *state;
    const cairn_prompt prompts[2] = {{f->a, N}, {f->b, 40}};
    uint8_t            data[4096];
    test_store(f->store, f->id, f->a, N);
    note(f, prompts, 2);
    size_t size = test_read_file(f->note, data, sizeof(data));
    for (size_t at = 0; at < size; at += 7) {
        data[at] ^= 1;
        test_write_file(f->note, data, size);
        data[at] ^= 1;
        expect(f->store, f->id, NULL, 0);
        assert_false(test_exists(f->note));
    }
    for (size_t cut = 0; cut < size; cut += 13) {
        test_write_file(f->note, data, cut);
        expect(f->store, f->id, NULL, 0);
        assert_false(test_exists(f->note));
    }
    assert_int_equal(mkfifo(f->note, 0600), 0);
    expect(f->store, f->id, NULL, 0);
    (void)unlink(f->note);
    assert_int_equal(symlink("/etc/passwd", f->note), 0);
    expect(f->store, f->id, NULL, 0);
    (void)unlink(f->note);
    assert_int_equal(mkdir(f->note, 0700), 0);
    expect(f->store, f->id, NULL, 0);
    note(f, prompts, 2); /* can't take a folder's place */
    expect(f->store, f->id, NULL, 0);
    assert_int_equal(rmdir(f->note), 0);
    note(f, prompts, 2);
    expect(f->store, f->id, prompts, 2);
    assert_int_equal(test_tree_of(f->root).n_temps, 0);
}

static void wrong_arguments(void **state)
{
    fixture           *f = *state;
    const cairn_prompt none = {NULL, 3}, empty = {NULL, 0};
    cairn_prompt      *prompts;
    uint32_t           n;
    assert_int_equal(cairn_store_note_recent(NULL, f->id, &empty, 1), CAIRN_EINVAL);
    assert_int_equal(cairn_store_note_recent(f->store, NULL, &empty, 1), CAIRN_EINVAL);
    assert_int_equal(cairn_store_note_recent(f->store, f->id, NULL, 1), CAIRN_EINVAL);
    assert_int_equal(cairn_store_note_recent(f->store, f->id, &none, 1), CAIRN_EINVAL);
    assert_int_equal(cairn_store_recent(f->store, f->id, NULL, &n), CAIRN_EINVAL);
    assert_int_equal(cairn_store_recent(f->store, f->id, &prompts, NULL), CAIRN_EINVAL);
    test_store(f->store, f->id, f->a, N);
    note(f, &empty, 1);
    expect(f->store, f->id, &empty, 1);
    note(f, NULL, 0);
    expect(f->store, f->id, NULL, 0);
    cairn_store *off = test_open(f->root, CAIRN_BUDGET_OFF, P);
    assert_int_equal(cairn_store_note_recent(off, f->id, &empty, 1), CAIRN_OK);
    assert_int_equal(cairn_store_flush(off, 1000), CAIRN_OK);
    expect(off, f->id, NULL, 0);
    cairn_store_close(off);
}

/* It counts against the budget, and goes with the last page of its identity. */
static void within_the_budget(void **state)
{
    fixture           *f = *state;
    const cairn_prompt prompts[2] = {{f->a, N}, {f->b, N}};
    cairn__tool_result r;
    cairn_store       *tool;
    cairn_error        error;
    cairn_store_close(f->store);
    const uint64_t budget = 300u << 10;
    f->store = test_open(f->root, budget, P);
    for (uint64_t seed = 10; seed < 40; seed++) {
        int32_t tokens[N];
        test_tokens(tokens, N, seed);
        test_store(f->store, f->id, tokens, N);
        note(f, prompts, 2);
        assert_true(test_tree_of(f->root).disk_bytes <= budget);
        assert_true(test_tree_of(f->root).disk_bytes <= test_stats(f->store).used_bytes);
    }
    expect(f->store, f->id, prompts, 2);
    assert_int_equal(cairn__tool_open(f->root, true, &tool, &error), CAIRN_OK);
    assert_int_equal(cairn__tool_clear(tool, &r), CAIRN_OK);
    cairn_store_close(tool);
    assert_false(test_exists(f->note));
    assert_int_equal(r.n_stuck, 0);
    test_tree left = test_tree_of(f->root);
    assert_int_equal(left.n_pages, 0);
    expect(f->store, f->id, NULL, 0);
}

static void find_side_file(void *ctx, const cairn__finding *finding)
{
    if (finding->problem == CAIRN__PROBLEM_SIDE_FILE)
        ++*(uint32_t *)ctx;
}

static uint64_t verify_root(const fixture *f, const uint8_t *key, uint32_t *ret_side_files)
{
    cairn__verify_request request = {.finding = find_side_file, .ctx = ret_side_files};
    cairn__verify_result  r;
    cairn_store          *tool;
    cairn_error           error;
    *ret_side_files = 0;
    assert_int_equal(cairn__tool_open(f->root, true, &tool, &error), CAIRN_OK);
    if (key)
        assert_int_equal(cairn__tool_set_key(tool, key), CAIRN_OK);
    assert_int_equal(cairn__verify(tool, &request, &r), CAIRN_OK);
    cairn_store_close(tool);
    uint64_t n = 0;
    for (int i = 0; i < CAIRN__PROBLEM_COUNT; i++)
        n += r.n_problems[i];
    return n;
}

static void verified(void **state)
{
    fixture             *f = *state;
    const cairn_prompt   prompts[2] = {{f->a, N}, {f->b, N}};
    static const uint8_t wrong[32] = {9};
    uint8_t              data[4096];
    uint32_t             n;
    test_store(f->store, f->id, f->a, N);
    note(f, prompts, 2);
    assert_int_equal(verify_root(f, test_key, &n), 0);
    assert_int_equal(verify_root(f, NULL, &n), 0); /* a sealed one without its key: left alone */
    if (test_key)
        assert_int_equal(verify_root(f, wrong, &n), 0);
    assert_true(test_exists(f->note));
    size_t size = test_read_file(f->note, data, sizeof(data));
    data[size - 1] ^= 0x10;
    test_write_file(f->note, data, size);
    assert_int_equal(verify_root(f, test_key, &n), 1);
    assert_int_equal(n, 1);
    assert_false(test_exists(f->note));
    assert_int_equal(verify_root(f, test_key, &n), 0);
}

static cairn__tool_result use_tool(const fixture *f, bool prune)
{
    cairn__tool_result r;
    cairn_store       *tool;
    cairn_error        error;
    assert_int_equal(cairn__tool_open(f->root, true, &tool, &error), CAIRN_OK);
    assert_int_equal(prune ? cairn__tool_prune(tool, 0, &r) : cairn__tool_clear(tool, &r), CAIRN_OK);
    cairn_store_close(tool);
    return r;
}

/* `clear` leaves no prompt, whatever else it has to leave in the folder; and prune
 * takes a note whose pages went another way. */
static void goes_with_the_pages(void **state)
{
    fixture           *f = *state;
    const cairn_prompt prompts[2] = {{f->a, N}, {f->b, N}};
    char              *beside = NULL;
    assert_true(asprintf(&beside, "%.*s/.tmp-0123456789abcdef", (int)(strrchr(f->note, '/') - f->note), f->note) > 0);
    for (int kind = 0; kind < 2; kind++) {
        test_store(f->store, f->id, f->a, N);
        note(f, prompts, 2);
        test_write_file(beside, "x", 1); /* a young one: left alone */
        if (kind) {
            assert_int_equal(unlink(f->note), 0);
            assert_int_equal(mkdir(f->note, 0700), 0);
        }
        (void)use_tool(f, false);
        assert_false(test_exists(f->note));
        assert_true(test_exists(beside));
        assert_int_equal(unlink(beside), 0);
    }
    test_store(f->store, f->id, f->a, N);
    note(f, prompts, 2);
    for (uint32_t left = N / P; left-- > 0;) {
        test_put *p = test_make_put(f->id, f->a, N, P, 0);
        char     *path = test_page_path(f->root, f->id, &p->pages[left]);
        assert_int_equal(unlink(path), 0);
        free(path);
        test_release(p);
    }
    assert_true(test_exists(f->note));
    (void)use_tool(f, true);
    assert_false(test_exists(f->note));
    free(beside);
}

/* A sealed note shows no token: neither as it is nor which prompts begin alike. */
static void shows_nothing(void **state)
{
    fixture           *f = *state;
    const cairn_prompt prompts[2] = {{f->a, N}, {f->a, 40}};
    uint8_t            data[2][4096];
    test_store(f->store, f->id, f->a, N);
    for (int i = 0; i < 2; i++) {
        note(f, prompts, 2);
        size_t size = test_read_file(f->note, data[i], sizeof(data[i]));
        assert_null(memmem(data[i], size, f->a, 2 * sizeof(int32_t)));
    }
    assert_memory_not_equal(data[0] + 16, data[1] + 16, 48); /* salt and tag */
    assert_memory_not_equal(data[0] + 64, data[1] + 64, 64);
}

#define BOTH(test)                                                                                                     \
    cmocka_unit_test_setup_teardown(test, setup, teardown), cmocka_unit_test_setup_teardown(test, setup_sealed, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(changed_in_any_way),
        cmocka_unit_test(counts_that_lie),
        cmocka_unit_test(too_many),
        BOTH(for_the_next_process),
        BOTH(the_last_note_of_each),
        BOTH(bad_ones),
        BOTH(wrong_arguments),
        BOTH(within_the_budget),
        BOTH(verified),
        BOTH(goes_with_the_pages),
        cmocka_unit_test_setup_teardown(shows_nothing, setup_sealed, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
