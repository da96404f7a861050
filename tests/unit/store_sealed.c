/* store_sealed.c - a store with a key: nothing in its root tells a guess from
 * another, another key finds nothing and harms nothing, and both kinds of pages
 * live side by side. What a damaged sealed page does is in store_corrupt.c. */
#include "store_testing.h"

#include "store/tool.h"
#include "store/verify.h"
#include "tier/disk.h"

#include <pthread.h>

#define P 64u
#define N (3 * P + 20)
#define BUDGET (UINT64_C(1) << 30)

static const uint8_t KEY_A[32] = "one key of the tests, no secret";
static const uint8_t KEY_B[32] = "another key of the tests, too..";

static cairn_store *open_with(const char *root, const uint8_t *key)
{
    test_key = key;
    return test_open(root, BUDGET, P);
}

static void store_with(const char *root, const uint8_t *key, const cairn_identity *id, const int32_t *t, uint32_t n)
{
    cairn_store *store = open_with(root, key);
    test_store(store, id, t, n);
    cairn_store_close(store);
}

/* How many tokens this key finds, right to the byte; nothing may be found bad. */
static uint32_t found_with(const char *root, const uint8_t *key, const cairn_identity *id, const int32_t *t,
                           uint32_t n_stored)
{
    cairn_pin   *pin;
    cairn_store *store = open_with(root, key);
    cairn_hit    hit = test_lookup(store, id, t, N, 0, 0, &pin);
    if (hit.cached_tokens)
        test_check_pin(pin, &hit, id, t, n_stored, P, 0);
    else
        assert_int_equal(hit.miss, CAIRN_MISS_NEVER_SEEN);
    cairn_pin_release(pin);
    cairn_store_stats stats = test_stats(store);
    assert_int_equal(stats.pages_corrupt + stats.pages_quarantined + stats.read_errors, 0);
    cairn_store_close(store);
    return hit.cached_tokens;
}

/* ---- keys ---- */

static void a_key_finds_its_own_pages_only(void **state)
{
    const test_fixture *f = *state;
    int32_t             t[N];
    test_tokens(t, N, 7);
    store_with(f->root, KEY_A, f->id, t, N);
    assert_int_equal(found_with(f->root, KEY_A, f->id, t, N), N);
    assert_int_equal(found_with(f->root, KEY_B, f->id, t, 0), 0);
    assert_int_equal(found_with(f->root, NULL, f->id, t, 0), 0);
    store_with(f->root, NULL, f->id, t, N);
    store_with(f->root, KEY_B, f->id, t, N - 30);
    assert_int_equal(test_tree_of(f->root).n_pages, 3 * 4 - 1);
    assert_int_equal(found_with(f->root, KEY_A, f->id, t, N), N);
    assert_int_equal(found_with(f->root, KEY_B, f->id, t, N - 30), N - 30);
    assert_int_equal(found_with(f->root, NULL, f->id, t, N), N);
    assert_int_equal(test_tree_of(f->root).n_quarantined, 0);
}

static void namespace_is_what_keys_are_made_of(void **state)
{
    const test_fixture *f = *state;
    cairn_digest        plain = cairn_identity_digest(f->id), keyed;
    cairn_store        *store = open_with(f->root, KEY_A);
    keyed = cairn_store_namespace(store, f->id);
    assert_memory_equal(keyed.bytes, test_namespace(f->id).bytes, 32);
    assert_memory_not_equal(keyed.bytes, plain.bytes, 16);
    cairn_store_close(store);
    /* Whether or not there is a disk tier: who asks need not know. */
    cairn_store_options off = {.root = f->root, .budget_bytes = CAIRN_BUDGET_OFF, .key = KEY_A};
    assert_int_equal(cairn_store_open(&off, &store, NULL), CAIRN_OK);
    assert_memory_equal(cairn_store_namespace(store, f->id).bytes, keyed.bytes, 32);
    cairn_store_close(store);
    store = open_with(f->root, NULL);
    assert_memory_equal(cairn_store_namespace(store, f->id).bytes, plain.bytes, 32);
    cairn_store_close(store);
    test_put *p;
    int32_t   t[N];
    test_tokens(t, N, 1);
    p = test_make_put(f->id, t, N, P, 0); /* under the plain digest */
    store = open_with(f->root, KEY_A);
    assert_int_equal(cairn_store_put(store, &p->put), CAIRN_EINVAL);
    test_release(p);
    cairn_store_close(store);
}

/* ---- what the root shows ---- */

typedef struct needles {
    const uint8_t *text[16];
    size_t         size[16];
    uint32_t       n, seen; /* bit i: text i was found */
    uint32_t       n_files;
} needles;

static void look_in(needles *all, const void *data, size_t size)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (memmem(data, size, all->text[i], all->size[i]))
            all->seen |= 1u << i;
}

static void look_below(needles *all, const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    look_in(all, path, strlen(path)); /* names too */
    if (S_ISREG(st.st_mode)) {
        uint8_t *data = malloc((size_t)st.st_size + 1);
        assert_int_equal(test_read_file(path, data, (size_t)st.st_size + 1), st.st_size);
        look_in(all, data, (size_t)st.st_size);
        free(data);
        all->n_files++;
        return;
    }
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char *child;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        assert_true(asprintf(&child, "%s/%s", path, e->d_name) > 0);
        look_below(all, child);
        free(child);
    }
    closedir(dir);
}

static void add_needle(needles *all, const void *text, size_t size)
{
    assert_true(all->n < 16);
    all->text[all->n] = text;
    all->size[all->n++] = size;
}

/* All that must not be there. What a plain root has of it is found in that: else
 * this would prove nothing. */
typedef struct secrets {
    uint8_t tokens[4 * P], block[64];
    char    digest_hex[33], key_hex[33], prefix_hex[9];
    cairn_digest namespace, identity;
    cairn_key     key;
    cairn__xxh128 sum;
    needles       all;
} secrets;

static void collect(secrets *s, const cairn_identity *id, const int32_t *t)
{
    const uint8_t *key = test_key;
    *s = (secrets){.namespace = test_namespace(id)};
    test_key = NULL;
    test_put *p = test_make_put(id, t, N, P, 0);
    s->identity = cairn_identity_digest(id);
    s->key = p->pages[0].key;
    cairn__page_name name = cairn__page_name_of(&s->identity, &s->key, NULL, t, P);
    for (uint32_t i = 0; i < P; i++)
        cairn__put_u32(s->tokens + 4 * i, (uint32_t)t[i]);
    memcpy(s->block, p->blocks[0][0].data, sizeof(s->block));
    s->sum = cairn__xxh3_128(p->blocks[0][0].data, (size_t)p->blocks[0][0].size);
    cairn__hex(s->identity.bytes, 16, s->digest_hex);
    cairn__hex(name.key, 16, s->key_hex);
    cairn__hex(name.prefix[2], 4, s->prefix_hex);
    add_needle(&s->all, s->tokens, 16); /* four tokens in a row */
    add_needle(&s->all, s->block, 16);
    add_needle(&s->all, s->sum.bytes, 16);
    add_needle(&s->all, s->identity.bytes, 32);
    add_needle(&s->all, s->key.bytes, 16);
    add_needle(&s->all, s->digest_hex, 32);
    add_needle(&s->all, s->key_hex, 32);
    add_needle(&s->all, s->prefix_hex, 8);
    add_needle(&s->all, "test=fixture", 12);
    test_release(p);
    test_key = key;
}

static void a_plain_root_shows_it(void **state)
{
    const test_fixture *f = *state;
    int32_t             t[N];
    secrets             s;
    test_tokens(t, N, 11);
    store_with(f->root, NULL, f->id, t, N);
    collect(&s, f->id, t);
    look_below(&s.all, f->root);
    assert_int_equal(s.all.seen, (1u << s.all.n) - 1);
}

static void a_sealed_root_shows_nothing(void **state)
{
    const test_fixture *f = *state;
    int32_t             t[N];
    secrets             s;
    test_tokens(t, N, 11);
    store_with(f->root, KEY_A, f->id, t, N);
    collect(&s, f->id, t);
    add_needle(&s.all, KEY_A, 8);
    add_needle(&s.all, s.namespace.bytes, 16);      /* not as bytes: it is in the folder's name as hex */
    add_needle(&s.all, s.namespace.bytes + 16, 16); /* this half nowhere */
    char hex[33];
    cairn__hex(s.namespace.bytes + 16, 16, hex);
    add_needle(&s.all, hex, 32);
    look_below(&s.all, f->root);
    assert_int_equal(s.all.seen, 0);
    assert_int_equal(s.all.n_files, 4 + 3); /* pages; identity.txt, marker, ledger */
    /* Nor in what goes to quarantine. */
    test_put *p = test_make_put(f->id, t, N, P, 0);
    char     *path = test_page_path(f->root, f->id, &p->pages[1]);
    assert_int_equal(truncate(path, 5000), 0);
    cairn_store *store = open_with(f->root, KEY_A);
    cairn_pin   *pin;
    assert_int_equal(test_lookup(store, f->id, t, N, 0, 0, &pin).miss, CAIRN_MISS_CORRUPT);
    cairn_pin_release(pin);
    cairn_store_close(store);
    look_below(&s.all, f->root);
    assert_int_equal(s.all.seen, 0);
    assert_int_equal(test_tree_of(f->root).n_quarantined, 1);
    free(path);
    test_release(p);
}

/* Two files of one page have nothing in common but the plain part and the zeros. */
static void each_file_has_its_own_salt(void **state)
{
    const test_fixture *f = *state;
    int32_t             t[P];
    uint8_t             a[16384], b[16384];
    test_tokens(t, P, 3);
    test_key = KEY_A;
    test_put *p = test_make_put(f->id, t, P, P, 0);
    char     *path = test_page_path(f->root, f->id, &p->pages[0]);
    test_release(p);
    store_with(f->root, KEY_A, f->id, t, P);
    size_t size = test_read_file(path, a, sizeof(a));
    assert_int_equal(unlink(path), 0);
    store_with(f->root, KEY_A, f->id, t, P);
    assert_int_equal(test_read_file(path, b, sizeof(b)), size);
    const uint32_t header = cairn__page_header_size(P, TEST_BLOCKS);
    const uint32_t payload = cairn__page_payload_offset(P, TEST_BLOCKS);
    uint32_t       same = 0, n = 0;
    assert_memory_equal(a, b, 48);
    for (size_t i = 48; i < size; i++) {
        if (i >= header && i < payload)
            continue;
        n++;
        same += a[i] == b[i];
    }
    assert_true(n > 1000 && same < n / 64); /* one in 256 by chance */
    free(path);
}

/* ---- contents ---- */

typedef struct reader {
    cairn_pin *pin;
    uint8_t   *data[3];
    uint64_t   size[3];
    uint8_t   *expected[3];
    int        bad;
} reader;

static void *read_all(void *ctx)
{
    reader *r = ctx;
    for (int round = 0; round < 20; round++)
        for (uint32_t b = 0; b < 3; b++)
            if (cairn_pin_read_block(r->pin, 0, b, r->data[b]) != CAIRN_OK ||
                memcmp(r->data[b], r->expected[b], r->size[b]) != 0)
                r->bad++;
    return NULL;
}

/* Blocks larger than what is encrypted at once, read by several threads. */
static void large_blocks_in_parallel(void **state)
{
    const test_fixture *f = *state;
    static const size_t sizes[3] = {700001, (256 << 10) - 3, 1};
    int32_t             t[P];
    uint8_t            *data[3], *copy[3];
    reader              readers[4] = {0};
    pthread_t           threads[4];
    cairn_store        *store = open_with(f->root, KEY_A);
    cairn_digest namespace = cairn_store_namespace(store, f->id);
    cairn_block blocks[3];
    test_tokens(t, P, 5);
    for (int b = 0; b < 3; b++) {
        data[b] = malloc(sizes[b]);
        copy[b] = malloc(sizes[b]);
        test_fill(data[b], sizes[b]);
        data[b][0] = (uint8_t)b;
        memcpy(copy[b], data[b], sizes[b]);
        blocks[b] = (cairn_block){data[b], sizes[b]};
    }
    cairn_page page = {
        .key = cairn_chain_key(&namespace, NULL, t, P), .n_tokens = P, .tokens = t, .blocks = blocks, .n_blocks = 3};
    assert_int_equal(cairn_store_put(store, &(cairn_put){.identity = f->id, .pages = &page, .n_pages = 1}), CAIRN_OK);
    assert_int_equal(cairn_store_flush(store, 60000), CAIRN_OK);
    for (int b = 0; b < 3; b++)
        assert_memory_equal(data[b], copy[b], sizes[b]); /* the caller's are borrowed, not scratch */
    cairn_pin *pin;
    assert_int_equal(test_lookup(store, f->id, t, P, 0, 0, &pin).cached_tokens, P);
    for (int i = 0; i < 4; i++) {
        readers[i].pin = pin;
        for (int b = 0; b < 3; b++) {
            readers[i].data[b] = malloc(sizes[b]);
            readers[i].size[b] = sizes[b];
            readers[i].expected[b] = copy[b];
        }
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].bad, 0);
        for (int b = 0; b < 3; b++)
            free(readers[i].data[b]);
    }
    cairn_pin_release(pin);
    cairn_store_close(store);
    for (int b = 0; b < 3; b++) {
        free(data[b]);
        free(copy[b]);
    }
}

/* Who can write here but has no key can't put a page: a plain one with the right
 * name, fields and checksum is bad. */
static void a_plain_page_in_a_sealed_namespace_is_bad(void **state)
{
    const test_fixture *f = *state;
    int32_t             t[P];
    uint8_t             file[16384];
    cairn_pin          *pin;
    test_tokens(t, P, 9);
    store_with(f->root, KEY_A, f->id, t, P);
    test_put          *p = test_make_put(f->id, t, P, P, 0);
    char              *path = test_page_path(f->root, f->id, &p->pages[0]);
    uint32_t           size = cairn__page_payload_offset(P, TEST_BLOCKS);
    cairn__page_block  blocks[TEST_BLOCKS];
    cairn__page_header h = {.identity = test_namespace(f->id),
                            .key = p->pages[0].key,
                            .n_tokens = P,
                            .n_blocks = TEST_BLOCKS,
                            .kind = CAIRN__PAGE_ATTENTION,
                            .layout = TEST_LAYOUT,
                            .tokens = t,
                            .blocks = blocks};
    uint32_t           end = size;
    for (uint32_t b = 0; b < TEST_BLOCKS; b++) {
        const cairn_block *from = &p->blocks[0][b];
        blocks[b] = (cairn__page_block){from->size, cairn__xxh3_128(from->data, (size_t)from->size)};
        memcpy(file + end, from->data, (size_t)from->size);
        end += (uint32_t)from->size;
    }
    assert_int_equal(cairn__page_encode(&h, file, size), CAIRN_OK);
    test_write_file(path, file, end);
    cairn_store *store = open_with(f->root, KEY_A);
    assert_int_equal(test_lookup(store, f->id, t, P, 0, 0, &pin).miss, CAIRN_MISS_CORRUPT);
    assert_int_equal(test_stats(store).pages_quarantined, 1);
    cairn_store_close(store);
    free(path);
    test_release(p);
}

/* ---- without the key ---- */

static void shape_without_the_key(void **state)
{
    const test_fixture *f = *state;
    int32_t             t[N];
    cairn__root         root;
    cairn__page_file    file;
    cairn_error         error;
    int                 identity_fd, folder_fd;
    test_tokens(t, N, 13);
    store_with(f->root, KEY_A, f->id, t, N);
    test_put *p = test_make_put(f->id, t, N, P, 0);
    cairn_digest namespace = test_namespace(f->id);
    assert_int_equal(cairn__root_open(f->root, &root, &error), CAIRN_OK);
    assert_int_equal(cairn__disk_open_identity(&root, &namespace, &identity_fd), CAIRN_OK);
    for (uint32_t i = 0; i < p->put.n_pages; i++) {
        const cairn_page *page = &p->pages[i];
        cairn__page_name  name =
            cairn__page_name_of(&namespace, &page->key, &page->parent, page->tokens, page->n_tokens);
        assert_int_equal(cairn__disk_open_folder(identity_fd, &page->parent, &folder_fd), CAIRN_OK);
        assert_int_equal(cairn__page_file_open(&root, folder_fd, &name, &namespace, &file), CAIRN_ECORRUPT);
        assert_int_equal(cairn__page_file_open_shape(&root, folder_fd, &name, &file), CAIRN_OK);
        assert_int_equal(file.header.n_tokens, page->n_tokens);
        assert_int_equal(file.header.n_blocks, TEST_BLOCKS);
        assert_true(file.header.sealed);
        cairn__page_file_close(&file);
        char *path = test_page_path(f->root, f->id, page);
        assert_int_equal(truncate(path, (off_t)file.info.size_bytes - 1), 0);
        assert_int_equal(cairn__page_file_open_shape(&root, folder_fd, &name, &file), CAIRN_ECORRUPT);
        free(path);
        cairn__close(folder_fd);
    }
    cairn__close(identity_fd);
    cairn__root_close(&root);
    test_release(p);
}

typedef struct verdict {
    cairn__verify_result v;
    char                 what[128]; /* of the first finding */
} verdict;

static void note_finding(void *ctx, const cairn__finding *finding)
{
    verdict *r = ctx;
    if (!r->what[0])
        snprintf(r->what, sizeof(r->what), "%s", finding->what);
}

static verdict verify_with(const char *root, const uint8_t *key)
{
    verdict               r = {.what = ""};
    cairn__verify_request request = {.deep = true, .dry_run = true, .finding = note_finding, .ctx = &r};
    cairn_store          *store;
    assert_int_equal(cairn__tool_open(root, false, &store, NULL), CAIRN_OK);
    if (key)
        assert_int_equal(cairn__tool_set_key(store, key), CAIRN_OK);
    assert_int_equal(cairn__verify(store, &request, &r.v), CAIRN_OK);
    cairn_store_close(store);
    return r;
}

static void flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_not_equal(fputc(byte ^ 1, file), EOF);
    assert_int_equal(fclose(file), 0);
}

/* A root with pages of two keys and of none, looked at with either and without. */
static void verify_looks_as_deep_as_its_key(void **state)
{
    const test_fixture *f = *state;
    int32_t             t[N];
    verdict             r;
    test_tokens(t, N, 31);
    store_with(f->root, NULL, f->id, t, N);
    store_with(f->root, KEY_B, f->id, t, N);
    store_with(f->root, KEY_A, f->id, t, N);
    r = verify_with(f->root, NULL);
    assert_string_equal(r.what, "");
    assert_int_equal(r.v.n_pages, 12);
    assert_int_equal(r.v.n_sealed, 8);
    uint64_t plain_bytes = r.v.read_bytes;
    r = verify_with(f->root, KEY_A);
    assert_string_equal(r.what, "");
    assert_int_equal(r.v.n_sealed, 4);
    assert_true(r.v.read_bytes > plain_bytes);
    test_put *p = test_make_put(f->id, t, N, P, 0);
    char     *path = test_page_path(f->root, f->id, &p->pages[1]);
    flip(path, cairn__page_payload_offset(P, TEST_BLOCKS)); /* only the key shows it */
    assert_string_equal(verify_with(f->root, KEY_B).what, "");
    assert_string_equal(verify_with(f->root, KEY_A).what, "a block is not what was stored");
    flip(path, cairn__page_payload_offset(P, TEST_BLOCKS));
    flip(path, 100); /* likewise in the header */
    assert_string_equal(verify_with(f->root, NULL).what, "");
    assert_string_equal(verify_with(f->root, KEY_A).what, "its header, size or kind is wrong");
    flip(path, 100);
    flip(path, 16); /* the size of the header: for everyone */
    assert_string_equal(verify_with(f->root, NULL).what, "its header, size or kind is wrong");
    assert_string_equal(verify_with(f->root, KEY_A).what, "its header, size or kind is wrong");
    flip(path, 16);
    assert_string_equal(verify_with(f->root, KEY_A).what, "");
    free(path);
    test_release(p);
}

/* Eviction needs no key: a store without one makes room out of pages that it can't
 * read, and one with a key out of others'. */
static void eviction_needs_no_key(void **state)
{
    const test_fixture         *f = *state;
    static const uint8_t *const keys[] = {KEY_A, NULL, KEY_B};
    int32_t                     t[64 * P];
    const uint64_t              budget = UINT64_C(1) << 20; /* 8 KiB a page, and folders */
    for (int i = 0; i < 3; i++) {
        test_key = keys[i];
        cairn_store *store = test_open(f->root, budget, P);
        test_tokens(t, 64 * P, 20 + (uint64_t)i);
        for (uint32_t at = 0; at < 64; at += 4) /* short chains: many leaves */
            test_store(store, f->id, t + at * P, 4 * P);
        cairn_store_stats stats = test_stats(store);
        assert_int_equal(stats.pages_published, 64);
        assert_int_equal(stats.pages_quarantined, 0);
        assert_true(stats.used_bytes <= budget);
        if (i > 0)
            assert_true(stats.pages_evicted > 0);
        cairn_store_close(store);
        assert_true(test_tree_of(f->root).disk_bytes <= budget);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_finds_its_own_pages_only, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(namespace_is_what_keys_are_made_of, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(a_plain_root_shows_it, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(a_sealed_root_shows_nothing, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(each_file_has_its_own_salt, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(large_blocks_in_parallel, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(a_plain_page_in_a_sealed_namespace_is_bad, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(shape_without_the_key, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(verify_looks_as_deep_as_its_key, test_setup, test_teardown),
        cmocka_unit_test_setup_teardown(eviction_needs_no_key, test_setup, test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
