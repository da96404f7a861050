/* Pages that are not in memory: the device gives many blocks at a time, past the page
 * cache; what it gave is proven as ever, and is in memory when somebody asked for that. */
#include "store_testing.h"

#include "base/digest.h"
#include "page_cache.h"

#define P 64u
#define N_BLOCKS 5u
#define LAYOUT 77u

static const uint64_t SIZES[N_BLOCKS] = {100003, 4096, 70000, 1, 262145}; /* no two begin alike within a page */

typedef struct fixture {
    char           *root, *path;
    cairn_store    *store;
    cairn_identity *id;
    int32_t         tokens[P];
    uint8_t        *data[N_BLOCKS];
    cairn_pin      *pin;
} fixture;

static void store_page(fixture *f)
{
    test_random random = {99};
    cairn_block blocks[N_BLOCKS];
    for (uint32_t b = 0; b < N_BLOCKS; b++) {
        f->data[b] = malloc(SIZES[b]);
        for (uint64_t i = 0; i < SIZES[b]; i++)
            f->data[b][i] = (uint8_t)test_next(&random);
        blocks[b] = (cairn_block){f->data[b], SIZES[b]};
    }
    test_tokens(f->tokens, P, 5);
    cairn_digest digest = test_namespace(f->id);
    cairn_page   page = {.kind = CAIRN_PAGE, .n_tokens = P, .tokens = f->tokens, .n_blocks = N_BLOCKS, .blocks = blocks,
                         .layout = LAYOUT};
    page.key = cairn_chain_key(&digest, &page.parent, f->tokens, P);
    cairn_put put = {.identity = f->id, .n_pages = 1, .pages = &page};
    assert_int_equal(cairn_store_put(f->store, &put), CAIRN_OK);
    assert_int_equal(cairn_store_flush(f->store, 60000), CAIRN_OK);
    f->path = test_page_path(f->root, f->id, &page);
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    f->root = test_make_dir();
    f->id = test_identity("cold");
    f->store = test_open(f->root, UINT64_C(1) << 30, P);
    store_page(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    cairn_pin_release(f->pin);
    cairn_store_close(f->store);
    cairn_identity_destroy(f->id);
    for (uint32_t b = 0; b < N_BLOCKS; b++)
        free(f->data[b]);
    free(f->path);
    test_remove_dir(f->root);
    free(f);
    return 0;
}

static void look_up(fixture *f)
{
    cairn_hit hit = test_lookup(f->store, f->id, f->tokens, P, 0, 0, &f->pin);
    assert_int_equal(hit.n_pages, 1);
}

/* A file system that takes no O_DIRECT, or has no device, gives the same bytes. */
static bool can_pass_the_cache(const fixture *f)
{
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void past_the_cache(void **state)
{
    fixture  *f = *state;
    const bool cold = page_cache_drop(f->path);
    look_up(f); /* reads the header, and what the kernel reads around it */
    for (int i = 0; cold && i < 2; i++)
        assert_true(cairn_pin_is_cold(f->pin, 0));
    assert_true(!cold || page_cache_drop(f->path));
    for (uint32_t end = N_BLOCKS; end >= 1; end--) {
        cairn_pin_window *window = cairn_pin_window_create();
        for (uint32_t b = 0; b < end; b++) {
            uint8_t *got = calloc(1, SIZES[b]);
            assert_int_equal(cairn_pin_read_through(f->pin, window, 0, b, end, got), CAIRN_OK);
            assert_memory_equal(got, f->data[b], SIZES[b]);
            free(got);
        }
        cairn_pin_window_destroy(window);
    }
    if (cold && can_pass_the_cache(f))
        assert_int_equal(page_cache_percent(f->path), 0);
    if (cold)
        assert_true(cairn_pin_is_cold(f->pin, 0)); /* also when asked before */
    for (uint32_t b = 0; b < N_BLOCKS; b++)
        cairn_pin_read_ahead(f->pin, 0, b);
    assert_true(page_cache_becomes(f->path, 95)); /* but for the header */
    assert_false(cairn_pin_is_cold(f->pin, 0));
}

static void wrong_calls(void **state)
{
    fixture          *f = *state;
    cairn_pin_window *window = cairn_pin_window_create();
    uint8_t           byte;
    look_up(f);
    assert_int_equal(cairn_pin_read_through(f->pin, window, 0, 3, 3, &byte), CAIRN_EINVAL);
    assert_int_equal(cairn_pin_read_through(f->pin, window, 0, 3, N_BLOCKS + 1, &byte), CAIRN_EINVAL);
    assert_int_equal(cairn_pin_read_through(f->pin, window, 1, 3, 4, &byte), CAIRN_EINVAL);
    assert_int_equal(cairn_pin_read_through(f->pin, NULL, 0, 3, 4, &byte), CAIRN_EINVAL);
    assert_int_equal(cairn_pin_read_through(f->pin, window, 0, 3, 4, &byte), CAIRN_OK);
    assert_int_equal(byte, f->data[3][0]);
    cairn_pin_window_destroy(window);
    cairn_pin_window_destroy(NULL);
}

/* Changed between two blocks of one window: what was in the window is good, what
 * comes from the device again is not. */
static void changes_while_it_is_read(void **state)
{
    fixture          *f = *state;
    cairn_pin_window *window = cairn_pin_window_create();
    uint8_t          *got = malloc(SIZES[4]);
    struct stat       st;
    look_up(f);
    assert_int_equal(cairn_pin_read_through(f->pin, window, 0, 0, 3, got), CAIRN_OK);
    int fd = open(f->path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(pwrite(fd, "\0\1\2\3", 4, st.st_size - 4), 4);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(cairn_pin_read_through(f->pin, window, 0, 2, 3, got), CAIRN_OK);
    assert_memory_equal(got, f->data[2], SIZES[2]);
    assert_int_equal(cairn_pin_read_through(f->pin, window, 0, 4, 5, got), CAIRN_ECORRUPT);
    assert_int_equal(ftruncate(fd, st.st_size / 2), 0);
    assert_int_equal(cairn_pin_read_through(f->pin, window, 0, 4, 5, got), CAIRN_ECORRUPT);
    assert_int_equal(test_stats(f->store).pages_corrupt, 1);
    close(fd);
    free(got);
    cairn_pin_window_destroy(window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(past_the_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(changes_while_it_is_read, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
