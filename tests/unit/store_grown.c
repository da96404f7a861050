/* Files that grew behind the store's back: what they were counted as nobody knows, so
 * the ledger never subtracts what they take when they go. Nor does it give up counting
 * what others put into the folder, however deep. Pages of 16 tokens take 8 KiB. */
#include "store_testing.h"

#include <utime.h>

#define P 16u
#define BUDGET (512u << 10)
#define N 20

static void grow(const char *path)
{
    static const uint8_t zeros[200 << 10];
    FILE                *file = fopen(path, "ab");
    assert_non_null(file);
    assert_int_equal(fwrite(zeros, 1, sizeof(zeros), file), sizeof(zeros));
    assert_int_equal(fclose(file), 0);
}

static char *path_of(const test_fixture *f, const int32_t *t, uint32_t n)
{
    test_put *p = test_make_put(f->id, t, n, P, 0);
    char     *path = test_page_path(f->root, f->id, &p->pages[0]);
    test_release(p);
    return path;
}

static void set_age(const char *path, int64_t age_s)
{
    struct utimbuf times = {.actime = time(NULL), .modtime = time(NULL) - age_s};
    assert_int_equal(utime(path, &times), 0);
}

static void says_enough(cairn_store *store, const test_fixture *f)
{
    assert_int_equal(cairn_store_flush(store, 60000), CAIRN_OK);
    assert_true(test_stats(store).used_bytes >= test_tree_of(f->root).disk_bytes);
}

static void await_gone(const char *path)
{
    for (int i = 0; i < 1000 && test_exists(path); i++)
        test_sleep_ms(10);
    assert_false(test_exists(path));
    test_sleep_ms(200); /* what is freed is told behind that */
}

static void evicted(void **state)
{
    test_fixture *f = *state;
    int32_t       t[N][P];
    char         *path[N];
    cairn_store  *store = test_open(f->root, BUDGET, P);
    for (int i = 0; i < N; i++) {
        test_tokens(t[i], P, 100 + (uint64_t)i);
        test_store(store, f->id, t[i], P);
        path[i] = path_of(f, t[i], P);
    }
    grow(path[0]);
    for (int i = 0; i < N; i++)
        set_age(path[i], i == 0 ? 5000 : 60);
    assert_int_equal(cairn_store_set_budget(store, test_stats(store).used_bytes - 1), CAIRN_OK);
    await_gone(path[0]);
    says_enough(store, f);
    for (int i = 0; i < N; i++)
        free(path[i]);
    cairn_store_close(store);
}

static void quarantined(void **state)
{
    test_fixture *f = *state;
    int32_t       t[N][P];
    cairn_store  *store = test_open(f->root, BUDGET, P);
    cairn_pin    *pin;
    for (int i = 0; i < N; i++) {
        test_tokens(t[i], P, 100 + (uint64_t)i);
        if (i + 1 < N)
            test_store(store, f->id, t[i], P);
    }
    char *path = path_of(f, t[0], P);
    grow(path);
    assert_int_equal(test_lookup(store, f->id, t[0], P, 0, 0, &pin).miss, CAIRN_MISS_CORRUPT);
    await_gone(path); /* and not kept in quarantine, for which it is too large */
    test_store(store, f->id, t[N - 1], P);
    says_enough(store, f);
    free(path);
    cairn_store_close(store);
}

static void superseded(void **state)
{
    test_fixture *f = *state;
    int32_t       t[P];
    cairn_store  *store = test_open(f->root, BUDGET, P);
    test_tokens(t, P, 1);
    test_store(store, f->id, t, P - 4);
    char *path = path_of(f, t, P - 4);
    grow(path);
    test_store(store, f->id, t, P);
    await_gone(path);
    says_enough(store, f);
    free(path);
    cairn_store_close(store);
}

static void note_replaced(void **state)
{
    test_fixture      *f = *state;
    int32_t            t[P];
    char              *path;
    char               name[CAIRN__IDENTITY_NAME_SIZE];
    cairn_store       *store = test_open(f->root, BUDGET, P);
    const cairn_digest digest = test_namespace(f->id);
    const cairn_prompt prompt = {t, P};
    test_sleep_ms(300); /* the count that follows opening is over */
    test_tokens(t, P, 1);
    test_store(store, f->id, t, P);
    cairn__identity_name(&digest, name);
    assert_true(asprintf(&path, "%s/v1/%s/recent", f->root, name) > 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cairn_store_note_recent(store, f->id, &prompt, 1), CAIRN_OK);
        says_enough(store, f);
        uint64_t used = test_stats(store).used_bytes;
        assert_int_equal(cairn_store_note_recent(store, f->id, &prompt, 1), CAIRN_OK);
        says_enough(store, f);
        assert_int_equal(test_stats(store).used_bytes, used); /* its own, untouched, is subtracted */
        grow(path);
    }
    free(path);
    cairn_store_close(store);
}

static void deep_folders(void **state)
{
    test_fixture *f = *state;
    int32_t       t[P];
    char          path[600], file[700];
    cairn_store_close(test_open(f->root, BUDGET, P));
    snprintf(path, sizeof(path), "%s", f->root);
    for (int i = 0; i < 12; i++) {
        strcat(path, "/d");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(file, sizeof(file), "%s/file", path);
    grow(file);
    snprintf(path, sizeof(path), "%s/ledger", f->root);
    assert_int_equal(unlink(path), 0);
    cairn_store *store = test_open(f->root, BUDGET, P);
    test_tokens(t, P, 1);
    test_store(store, f->id, t, P);
    says_enough(store, f);
    assert_int_equal(test_stats(store).pages_published, 1);
    assert_true(test_stats(store).used_bytes > 200 << 10);
    cairn_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(evicted, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(quarantined, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(superseded, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(note_replaced, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(deep_folders, test_setup, test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
