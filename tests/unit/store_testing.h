/* store_testing.h - what the store's tests share: pages whose bytes follow from
 * their key, so that whoever finds a page can tell whether it is right. */
#ifndef CAIRN_STORE_TESTING_H
#define CAIRN_STORE_TESTING_H

#include "testing.h"

#include "cairn/store.h"
#include "core/page.h"
#include "core/page_name.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEST_BLOCKS 4u
#define TEST_LAYOUT UINT64_C(0x1122334455667788)

/* Numbers that can be repeated (Marsaglia's xorshift64). */
typedef struct test_random {
    uint64_t state;
} test_random;

static inline uint64_t test_next(test_random *r)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return r->state;
}

static inline uint32_t test_below(test_random *r, uint32_t n)
{
    return (uint32_t)(test_next(r) >> 33) % n;
}

static inline void test_tokens(int32_t *tokens, uint32_t n, uint64_t seed)
{
    test_random r = {seed * 2654435761u + 88172645463325252u};
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)test_below(&r, 50000);
}

/* The key that test_open() opens with; NULL: none. */
static const uint8_t *test_key;

static inline cairn__keyring *test_keyring(void)
{
    cairn__keyring *keyring = NULL;
    if (test_key)
        assert_int_equal(cairn__keyring_create(test_key, &keyring), CAIRN_OK);
    return keyring;
}

/* What a store opened with that key knows an identity by. */
static inline cairn_digest test_namespace(const cairn_identity *identity)
{
    cairn_digest    digest = cairn_identity_digest(identity);
    cairn__keyring *keyring = test_keyring();
    digest = cairn__namespace_digest(keyring, &digest);
    cairn__keyring_destroy(keyring);
    return digest;
}

static inline cairn_identity *test_identity(const char *name)
{
    cairn_identity *identity;
    assert_int_equal(cairn_identity_create(&identity), CAIRN_OK);
    assert_int_equal(cairn_identity_set(identity, "test", name), CAIRN_OK);
    return identity;
}

/* ---- the bytes of a page ---- */

static inline uint64_t test_block_size(const cairn_key *key, uint32_t n_tokens, uint32_t block)
{
    static const uint64_t base[TEST_BLOCKS] = {37, 0, 3, 11};
    return base[block] * n_tokens + (block == 3 ? key->bytes[0] : 0) + (block == 0);
}

static inline void test_fill_block(const cairn_key *key, uint32_t block, uint8_t *data, uint64_t size)
{
    test_random r = {cairn__get_u64(key->bytes) ^ (block + 1)};
    for (uint64_t i = 0; i < size; i++)
        data[i] = (uint8_t)test_next(&r);
}

/* A checkpoint at n tokens: its first block has all of them, its second one the state. */
#define TEST_STATE_SIZE 333u

static inline void test_fill_state(const cairn_key *key, uint8_t state[TEST_STATE_SIZE])
{
    test_fill_block(key, 9, state, TEST_STATE_SIZE);
}

/* What is without its blocks. */
static inline cairn_page test_checkpoint(const cairn_identity *identity, const int32_t *tokens, uint32_t n,
                                         uint32_t page_tokens)
{
    cairn_digest digest = test_namespace(identity);
    cairn_page   page = {.kind = CAIRN_CHECKPOINT, .start = (n - 1) / page_tokens * page_tokens, .layout = TEST_LAYOUT};
    for (uint32_t at = 0; at < page.start; at += page_tokens)
        page.parent = cairn_chain_key(&digest, &page.parent, tokens + at, page_tokens);
    page.n_tokens = n - page.start;
    page.tokens = tokens + page.start;
    page.key = cairn_checkpoint_key(&digest, &page.parent, page.tokens, page.n_tokens);
    return page;
}

/* ---- putting ---- */

typedef struct test_put {
    cairn_put   put;
    cairn_page  pages[64];
    cairn_block blocks[64][TEST_BLOCKS];
    atomic_int *released;
} test_put;

static inline void test_release(void *ctx)
{
    test_put *p = ctx;
    if (p->released)
        atomic_fetch_add(p->released, 1);
    for (uint32_t i = 0; i < p->put.n_pages; i++)
        for (uint32_t b = 0; b < TEST_BLOCKS; b++)
            free((void *)p->blocks[i][b].data);
    free(p);
}

/* The pages [from, n) of a sequence of n tokens. */
static inline test_put *test_make_put(const cairn_identity *identity, const int32_t *tokens, uint32_t n,
                                      uint32_t page_tokens, uint32_t from)
{
    test_put    *p = calloc(1, sizeof(*p));
    cairn_digest digest = test_namespace(identity);
    cairn_key    parent = {{0}};
    for (uint32_t at = 0; at < n; at += page_tokens) {
        uint32_t  count = n - at < page_tokens ? n - at : page_tokens;
        cairn_key key = cairn_chain_key(&digest, &parent, tokens + at, count);
        if (at >= from) {
            uint32_t i = p->put.n_pages++;
            assert_true(i < 64);
            for (uint32_t b = 0; b < TEST_BLOCKS; b++) {
                uint64_t size = test_block_size(&key, count, b);
                uint8_t *data = malloc(size ? size : 1);
                test_fill_block(&key, b, data, size);
                p->blocks[i][b] = (cairn_block){data, size};
            }
            p->pages[i] = (cairn_page){.key = key,
                                       .parent = parent,
                                       .start = at,
                                       .n_tokens = count,
                                       .tokens = tokens + at,
                                       .blocks = p->blocks[i],
                                       .n_blocks = TEST_BLOCKS,
                                       .layout = TEST_LAYOUT,
                                       .prefill_ns = 1000 * count};
        }
        parent = key;
    }
    p->put.identity = identity;
    p->put.pages = p->pages;
    p->put.release = test_release;
    p->put.release_ctx = p;
    return p;
}

/* Puts all pages of a sequence and waits until they are there. */
static inline void test_store(cairn_store *store, const cairn_identity *identity, const int32_t *tokens, uint32_t n)
{
    test_put *p = test_make_put(identity, tokens, n, cairn_store_page_tokens(store), 0);
    assert_int_equal(cairn_store_put(store, &p->put), CAIRN_OK);
    assert_int_equal(cairn_store_flush(store, 60000), CAIRN_OK);
}

/* ---- finding ---- */

static inline cairn_hit test_lookup(cairn_store *store, const cairn_identity *identity, const int32_t *tokens,
                                    uint32_t n, uint32_t from, uint32_t grid, cairn_pin **ret_pin)
{
    cairn_query query = {
        .identity = identity, .tokens = tokens, .n_tokens = n, .from_tokens = from, .grid_tokens = grid};
    cairn_hit hit;
    assert_int_equal(cairn_store_lookup(store, &query, &hit, ret_pin), CAIRN_OK);
    assert_int_equal(hit.cached_tokens > 0, *ret_pin != NULL);
    assert_true(hit.cached_tokens == 0 || (hit.cached_tokens > from && hit.cached_tokens <= n));
    return hit;
}

/* Reads every block of a page: the first status that is not CAIRN_OK; with
 * CAIRN_OK the bytes are those that `key` gives. Every other time past the page cache. */
static inline cairn_status test_read_page(cairn_pin *pin, uint32_t page, const cairn_key *key)
{
    static unsigned   n_calls;
    cairn_page_view   v = cairn_pin_page(pin, page);
    cairn_status      first = CAIRN_OK;
    cairn_pin_window *window = n_calls++ % 2 ? cairn_pin_window_create() : NULL;
    assert_int_equal(v.n_blocks, TEST_BLOCKS);
    assert_true(v.layout == TEST_LAYOUT);
    assert_int_equal(v.prefill_ns, 1000 * v.n_tokens);
    for (uint32_t b = 0; b < v.n_blocks; b++) {
        uint64_t size = test_block_size(key, v.n_tokens, b);
        assert_int_equal(v.block_size[b], size);
        uint8_t     *data = malloc(size ? size : 1);
        uint8_t     *expected = malloc(size ? size : 1);
        cairn_status status = window ? cairn_pin_read_through(pin, window, page, b, b < 2 ? 2 : v.n_blocks, data)
                                     : cairn_pin_read_block(pin, page, b, data);
        test_fill_block(key, b, expected, size);
        if (status == CAIRN_OK)
            assert_memory_equal(data, expected, size);
        else if (first == CAIRN_OK)
            first = status;
        free(data);
        free(expected);
    }
    cairn_pin_window_destroy(window);
    return first;
}

/* A hit on a sequence that was stored with `stored` tokens: right to the byte. */
static inline void test_check_pin(cairn_pin *pin, const cairn_hit *hit, const cairn_identity *identity,
                                  const int32_t *stored, uint32_t n_stored, uint32_t page_tokens, uint32_t from)
{
    cairn_digest digest = test_namespace(identity);
    cairn_key    parent = {{0}};
    uint32_t     page = 0, end = 0;
    uint64_t     bytes = 0;
    for (uint32_t at = 0; at < n_stored && page < hit->n_pages; at += page_tokens) {
        uint32_t  count = n_stored - at < page_tokens ? n_stored - at : page_tokens;
        cairn_key key = cairn_chain_key(&digest, &parent, stored + at, count);
        parent = key;
        if (at + page_tokens <= from)
            continue;
        cairn_page_view v = cairn_pin_page(pin, page);
        assert_int_equal(v.start, at);
        assert_int_equal(v.n_tokens, count);
        assert_true(v.used_tokens >= 1 && v.used_tokens <= count);
        if (page + 1 < hit->n_pages)
            assert_int_equal(v.used_tokens, count);
        assert_int_equal(test_read_page(pin, page, &key), CAIRN_OK);
        for (uint32_t b = 0; b < TEST_BLOCKS; b++)
            bytes += v.block_size[b];
        end = at + v.used_tokens;
        page++;
    }
    assert_int_equal(page, hit->n_pages);
    assert_int_equal(end, hit->cached_tokens);
    assert_int_equal(bytes, hit->stored_bytes);
}

/* Looks up tokens[0..n), expects `cached` tokens of the sequence stored[0..n_stored). */
static inline void test_expect(cairn_store *store, const cairn_identity *identity, const int32_t *tokens, uint32_t n,
                               uint32_t cached, const int32_t *stored, uint32_t n_stored)
{
    cairn_pin *pin;
    cairn_hit  hit = test_lookup(store, identity, tokens, n, 0, 0, &pin);
    assert_int_equal(hit.cached_tokens, cached);
    if (cached)
        test_check_pin(pin, &hit, identity, stored, n_stored, cairn_store_page_tokens(store), 0);
    cairn_pin_release(pin);
}

/* ---- files ---- */

static inline cairn_store *test_open(const char *root, uint64_t budget, uint32_t page_tokens)
{
    cairn_store_options o = {
        .root = root, .budget_bytes = budget, .reserve_bytes = 1, .page_tokens = page_tokens, .key = test_key};
    cairn_store *store;
    cairn_error  error;
    cairn_status status = cairn_store_open(&o, &store, &error);
    if (status)
        fail_msg("open: %s", error.text);
    assert_string_equal(error.text, "");
    return store;
}

typedef struct test_tree {
    uint64_t disk_bytes;
    uint32_t n_pages, n_checkpoints, n_temps, n_quarantined;
    void (*page)(void *ctx, const char *path);
    void *ctx;
} test_tree;

static inline bool test_ends_with(const char *name, const char *end)
{
    const size_t size = strlen(name), end_size = strlen(end);
    return size > end_size && strcmp(name + size - end_size, end) == 0;
}

static inline void test_walk(test_tree *t, const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return;
    t->disk_bytes += (uint64_t)st.st_blocks * 512;
    if (!S_ISDIR(st.st_mode)) {
        const char *name = strrchr(path, '/') + 1;
        if (strstr(path, "/quarantine/"))
            t->n_quarantined++;
        else if (strncmp(name, ".tmp-", 5) == 0)
            t->n_temps++;
        else if (test_ends_with(name, ".page") || test_ends_with(name, ".ckpt")) {
            t->n_pages += test_ends_with(name, ".page");
            t->n_checkpoints += test_ends_with(name, ".ckpt");
            if (t->page)
                t->page(t->ctx, path);
        }
        return;
    }
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *child;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        assert_true(asprintf(&child, "%s/%s", path, e->d_name) > 0);
        test_walk(t, child);
        free(child);
    }
    if (dir)
        closedir(dir);
}

static inline test_tree test_tree_of(const char *root)
{
    test_tree t = {0};
    test_walk(&t, root);
    return t;
}

static inline char *test_page_path(const char *root, const cairn_identity *identity, const cairn_page *page)
{
    char             id[CAIRN__IDENTITY_NAME_SIZE], fanout[CAIRN__FANOUT_NAME_SIZE], text[CAIRN__PAGE_NAME_SIZE];
    cairn_digest     digest = test_namespace(identity);
    cairn__page_name name = cairn__page_name_of(&digest, &page->key, &page->parent, page->tokens, page->n_tokens);
    char            *path;
    cairn__identity_name(&digest, id);
    cairn__fanout_name(&page->parent, fanout);
    cairn__page_name_format(&name, text);
    assert_true(asprintf(&path, "%s/v1/%s/%s/%s", root, id, fanout, text) > 0);
    return path;
}

static inline bool test_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static inline cairn_store_stats test_stats(cairn_store *store)
{
    cairn_store_stats stats;
    cairn_store_get_stats(store, &stats);
    return stats;
}

static inline uint64_t test_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void test_sleep_ms(uint32_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

/* A folder of its own and an identity, for tests that open stores themselves. */
typedef struct test_fixture {
    char           *root;
    cairn_identity *id;
} test_fixture;

static inline int test_setup(void **state)
{
    test_fixture *f = calloc(1, sizeof(*f));
    f->root = test_make_dir();
    f->id = test_identity("fixture");
    *state = f;
    return 0;
}

static inline int test_teardown(void **state)
{
    test_fixture *f = *state;
    cairn_identity_destroy(f->id);
    test_remove_dir(f->root);
    free(f);
    return 0;
}

#endif
