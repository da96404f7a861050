/* Every way in which a page file can be bad is a miss, a count and a quarantine;
 * no wrong byte is ever returned with CAIRN_OK. Small pages, so that every single
 * bit can be tried. All of it twice: with plain pages, and with sealed ones. */
#include "store_testing.h"

#include "base/digest.h"

#include <sys/socket.h>
#include <sys/un.h>

#define P 16u
#define N (3 * P)

static const uint8_t KEY[32] = "the tests' key is not a secret.";

typedef struct fixture {
    char           *root, *path[3];
    cairn_store    *store;
    cairn_identity *id;
    int32_t         t[N];
    cairn_key       key[3];
    uint8_t         good[3][16384];
    size_t          size[3];
    uint32_t        header_size, payload_offset;
} fixture;

static void open_store(fixture *f)
{
    f->store = test_open(f->root, UINT64_C(1) << 30, P);
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    f->root = test_make_dir();
    f->id = test_identity("corrupt");
    open_store(f);
    test_tokens(f->t, N, 42);
    test_put *p = test_make_put(f->id, f->t, N, P, 0);
    for (int i = 0; i < 3; i++) {
        f->path[i] = test_page_path(f->root, f->id, &p->pages[i]);
        f->key[i] = p->pages[i].key;
    }
    test_release(p);
    test_store(f->store, f->id, f->t, N);
    for (int i = 0; i < 3; i++)
        f->size[i] = test_read_file(f->path[i], f->good[i], sizeof(f->good[i]));
    f->header_size = cairn__page_header_size(P, TEST_BLOCKS);
    f->payload_offset = cairn__page_payload_offset(P, TEST_BLOCKS);
    assert_true(f->size[0] > f->payload_offset && f->size[0] < sizeof(f->good[0]));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    cairn_store_close(f->store);
    cairn_identity_destroy(f->id);
    for (int i = 0; i < 3; i++)
        free(f->path[i]);
    test_remove_dir(f->root);
    free(f);
    return 0;
}

static void put_file(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), size);
    close(fd);
}

/* Looks all three pages up and reads them. Returns how many tokens are good:
 * those before the first page that is missing or has a bad block. */
static uint32_t good_tokens(fixture *f)
{
    cairn_pin *pin;
    cairn_hit  hit = test_lookup(f->store, f->id, f->t, N, 0, 0, &pin);
    uint32_t   good = 0;
    for (uint32_t i = 0; i < hit.n_pages; i++) {
        if (test_read_page(pin, i, &f->key[i]) != CAIRN_OK)
            break;
        good += cairn_pin_page(pin, i).used_tokens;
    }
    cairn_pin_release(pin);
    return good;
}

/* Page `page` is bad now: seen once, gone from its name, pages before it good. */
static void expect_bad(fixture *f, int page)
{
    cairn_store_stats before = test_stats(f->store);
    assert_int_equal(good_tokens(f), page * P);
    cairn_store_stats after = test_stats(f->store);
    assert_int_equal(after.pages_corrupt, before.pages_corrupt + 1);
    assert_int_equal(after.pages_quarantined, before.pages_quarantined + 1);
    assert_false(test_exists(f->path[page]));
    /* Once is enough: now it is an ordinary miss. */
    assert_int_equal(good_tokens(f), page * P);
    assert_int_equal(test_stats(f->store).pages_corrupt, after.pages_corrupt);
}

static void make_good(fixture *f, int page)
{
    put_file(f->path[page], f->good[page], f->size[page]);
}

static void every_bit(void **state)
{
    fixture *f = *state;
    uint8_t  data[sizeof(f->good[0])];
    uint32_t n_header = 0, n_payload = 0;
    assert_int_equal(good_tokens(f), N);
    for (size_t at = 0; at < f->size[1]; at++) {
        if (at >= f->header_size && at < f->payload_offset)
            continue;
        for (int bit = 0; bit < 8; bit++) {
            if (test_key && bit != (int)(at % 8)) /* tests/unit/seal.c has every bit of a sealed header */
                continue;
            memcpy(data, f->good[1], f->size[1]);
            data[at] ^= (uint8_t)(1 << bit);
            put_file(f->path[1], data, f->size[1]);
            expect_bad(f, 1);
            if (at < f->header_size)
                n_header++;
            else
                n_payload++;
        }
    }
    make_good(f, 1);
    assert_int_equal(good_tokens(f), N);
    const uint32_t of_byte = test_key ? 1 : 8;
    assert_int_equal(n_header, of_byte * f->header_size);
    assert_int_equal(n_payload, of_byte * (f->size[1] - f->payload_offset));
    printf("%u bits of the header, %u of the payload: each a miss\n", n_header, n_payload);
}

/* The zeros between header and payload are not part of anything. */
static void padding_is_nothing(void **state)
{
    fixture *f = *state;
    uint8_t  data[sizeof(f->good[0])];
    memcpy(data, f->good[1], f->size[1]);
    memset(data + f->header_size, 0xff, f->payload_offset - f->header_size);
    put_file(f->path[1], data, f->size[1]);
    assert_int_equal(good_tokens(f), N);
    assert_int_equal(test_stats(f->store).pages_corrupt, 0);
}

static void every_length(void **state)
{
    fixture *f = *state;
    for (size_t size = 0; size < f->size[1]; size++) {
        put_file(f->path[1], f->good[1], size);
        expect_bad(f, 1);
    }
    uint8_t longer[sizeof(f->good[0])] = {0};
    memcpy(longer, f->good[1], f->size[1]);
    for (size_t more = 1; more <= 4097; more += 4096 / 4) {
        assert_true(f->size[1] + more <= sizeof(longer));
        put_file(f->path[1], longer, f->size[1] + more);
        expect_bad(f, 1);
    }
    /* The same length, but a hole. */
    put_file(f->path[1], "", 0);
    assert_int_equal(truncate(f->path[1], (off_t)f->size[1]), 0);
    expect_bad(f, 1);
}

static void another_valid_page(void **state)
{
    fixture *f = *state;
    put_file(f->path[1], f->good[0], f->size[0]);
    expect_bad(f, 1);
    put_file(f->path[1], f->good[2], f->size[2]);
    expect_bad(f, 1);
    put_file(f->path[0], f->good[1], f->size[1]);
    expect_bad(f, 0);
    /* A page of the same tokens of another identity. */
    cairn_identity *other = test_identity("other");
    test_store(f->store, other, f->t, N);
    test_put *p = test_make_put(other, f->t, N, P, 0);
    char     *path = test_page_path(f->root, other, &p->pages[0]);
    uint8_t   data[16384];
    size_t    size = test_read_file(path, data, sizeof(data));
    put_file(f->path[0], data, size);
    expect_bad(f, 0);
    free(path);
    test_release(p);
    cairn_identity_destroy(other);
}

/* A header with the right checksum, or sealed with the right key, encoded anew after `change`. */
static void forge(fixture *f, int page, void (*change)(cairn__page_header *h, int32_t *tokens))
{
    cairn__page_header h;
    cairn__page_block  blocks[TEST_BLOCKS];
    int32_t            tokens[P];
    uint8_t            data[16384];
    uint8_t            header[16384];
    cairn__keyring    *keyring = test_keyring();
    memcpy(header, f->good[page], f->size[page]);
    assert_int_equal(keyring ? cairn__page_decode_sealed(keyring, header, f->size[page], &h)
                             : cairn__page_decode(header, f->size[page], &h),
                     CAIRN_OK);
    for (uint32_t i = 0; i < P; i++)
        tokens[i] = cairn__page_token(&h, i);
    for (uint32_t i = 0; i < TEST_BLOCKS; i++)
        blocks[i] = cairn__page_block_at(&h, i);
    h.tokens = tokens;
    h.blocks = blocks;
    h.raw_tokens = h.raw_table = NULL;
    memcpy(data, f->good[page], f->size[page]);
    change(&h, tokens);
    assert_int_equal(keyring ? cairn__page_encode_sealed(keyring, &h, data, sizeof(data))
                             : cairn__page_encode(&h, data, sizeof(data)),
                     CAIRN_OK);
    cairn__keyring_destroy(keyring);
    put_file(f->path[page], data, f->size[page]);
}

static void change_last_token(cairn__page_header *h, int32_t *tokens)
{
    (void)h;
    tokens[P - 1]++;
}
static void change_first_token(cairn__page_header *h, int32_t *tokens)
{
    (void)h;
    tokens[0] += 65536;
}
static void change_hidden_key(cairn__page_header *h, int32_t *tokens)
{
    (void)tokens;
    h->key.bytes[31] ^= 1; /* beyond what the name has */
}
static void change_hidden_parent(cairn__page_header *h, int32_t *tokens)
{
    (void)tokens;
    h->parent.bytes[31] ^= 1;
}
static void change_start(cairn__page_header *h, int32_t *tokens)
{
    (void)tokens;
    h->start += P;
}
static void change_identity(cairn__page_header *h, int32_t *tokens)
{
    (void)tokens;
    h->identity.bytes[31] ^= 1;
}
static void change_nothing(cairn__page_header *h, int32_t *tokens)
{
    (void)h;
    (void)tokens;
}

/* As if the hash were constant: name and key are right, the contents are others'. */
static void same_key_other_contents(void **state)
{
    fixture *f = *state;
    void (*changes[])(cairn__page_header *, int32_t *) = {change_last_token,    change_first_token, change_hidden_key,
                                                          change_hidden_parent, change_start,       change_identity};
    forge(f, 1, change_nothing);
    assert_int_equal(good_tokens(f), N); /* the forger's work is good */
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        forge(f, 1, changes[i]);
        expect_bad(f, 1);
    }
}

/* The same through the search among children: a request that only shares a part. */
static void forged_child(void **state)
{
    fixture   *f = *state;
    int32_t    ask[N];
    cairn_pin *pin;
    memcpy(ask, f->t, sizeof(ask));
    ask[P + 10]++;
    assert_int_equal(test_lookup(f->store, f->id, ask, N, 0, 0, &pin).cached_tokens, P + 10);
    cairn_pin_release(pin);
    forge(f, 1, change_last_token); /* now its key is no hash of its tokens */
    assert_int_equal(test_lookup(f->store, f->id, ask, N, 0, 0, &pin).cached_tokens, P);
    cairn_pin_release(pin);
    assert_false(test_exists(f->path[1]));
    forge(f, 1, change_start);
    assert_int_equal(test_lookup(f->store, f->id, ask, N, 0, 0, &pin).cached_tokens, P);
    cairn_pin_release(pin);
    assert_false(test_exists(f->path[1]));
}

static void not_a_file(void **state)
{
    fixture *f = *state;
    assert_int_equal(unlink(f->path[1]), 0);
    assert_int_equal(mkdir(f->path[1], 0700), 0);
    expect_bad(f, 1);
    assert_int_equal(mkfifo(f->path[1], 0600), 0);
    expect_bad(f, 1);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char               here[4096];
    int                fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && getcwd(here, sizeof(here)) && chdir(f->root) == 0); /* its path is longer than an address */
    strcpy(address.sun_path, "socket");
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(rename("socket", f->path[1]), 0);
    assert_int_equal(chdir(here), 0);
    close(fd);
    expect_bad(f, 1);
    char *elsewhere = NULL;
    assert_true(asprintf(&elsewhere, "%s/elsewhere", f->root) > 0);
    put_file(elsewhere, f->good[1], f->size[1]);
    assert_int_equal(symlink(elsewhere, f->path[1]), 0); /* even to a good page */
    expect_bad(f, 1);
    assert_true(test_exists(elsewhere));
    free(elsewhere);
    make_good(f, 1);
    assert_int_equal(good_tokens(f), N);
}

static void changes_while_pinned(void **state)
{
    fixture   *f = *state;
    cairn_pin *pin;
    char      *aside = NULL;
    assert_true(asprintf(&aside, "%s/aside", f->root) > 0);

    /* Cut after the header was verified. */
    test_lookup(f->store, f->id, f->t, N, 0, 0, &pin);
    assert_int_equal(truncate(f->path[1], (off_t)f->size[1] - 1), 0);
    assert_int_equal(test_read_page(pin, 0, &f->key[0]), CAIRN_OK);
    assert_int_equal(test_read_page(pin, 1, &f->key[1]), CAIRN_ECORRUPT);
    assert_int_equal(test_read_page(pin, 1, &f->key[1]), CAIRN_ECORRUPT);
    assert_int_equal(test_stats(f->store).pages_corrupt, 1); /* counted once */
    assert_false(test_exists(f->path[1]));
    cairn_pin_release(pin);
    make_good(f, 1);

    /* Unlinked: what is pinned stays readable. */
    test_lookup(f->store, f->id, f->t, N, 0, 0, &pin);
    assert_int_equal(unlink(f->path[1]), 0);
    assert_int_equal(test_read_page(pin, 1, &f->key[1]), CAIRN_OK);
    cairn_pin_release(pin);
    make_good(f, 1);

    /* The header's table of checksums rewritten together with the block: the table
     * in memory counts. */
    test_lookup(f->store, f->id, f->t, N, 0, 0, &pin);
    put_file(f->path[1], f->good[2], f->size[2]);
    assert_int_equal(test_read_page(pin, 1, &f->key[1]), CAIRN_ECORRUPT);
    cairn_pin_release(pin);
    make_good(f, 1);

    /* A bad file whose name meanwhile leads to a good one: that one stays. */
    test_lookup(f->store, f->id, f->t, N, 0, 0, &pin);
    assert_int_equal(rename(f->path[1], aside), 0);
    assert_int_equal(truncate(aside, (off_t)f->size[1] - 1), 0);
    make_good(f, 1);
    assert_int_equal(test_read_page(pin, 1, &f->key[1]), CAIRN_ECORRUPT);
    cairn_pin_release(pin);
    assert_true(test_exists(f->path[1]));
    assert_int_equal(good_tokens(f), N);
    free(aside);
}

static void quarantine_is_bounded(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 150; i++) {
        put_file(f->path[1], f->good[1], f->size[1] - 1);
        expect_bad(f, 1);
    }
    test_tree t = test_tree_of(f->root);
    assert_int_equal(t.n_quarantined, 64);
}

/* A page computed again takes the bad one's place. */
static void heals(void **state)
{
    fixture *f = *state;
    put_file(f->path[1], f->good[1], f->size[1] - 1);
    expect_bad(f, 1);
    test_store(f->store, f->id, f->t, N);
    assert_int_equal(good_tokens(f), N);
}

/* A file we may not read is bad; tried as another user, since root may read all. */
static int unreadable_child(const char *root)
{
    cairn_store_options o = {.root = root, .budget_bytes = 1 << 30, .reserve_bytes = 1, .page_tokens = P};
    cairn_store        *store;
    cairn_error         error;
    cairn_identity     *id;
    cairn_hit           hit;
    cairn_pin          *pin;
    int32_t             t[P];
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return 77;
    if (cairn_store_open(&o, &store, &error) != CAIRN_OK || cairn_identity_create(&id) != CAIRN_OK)
        return 1;
    test_tokens(t, P, 1);
    test_put   *p = test_make_put(id, t, P, P, 0);
    char       *path = test_page_path(root, id, &p->pages[0]);
    cairn_query q = {.identity = id, .tokens = t, .n_tokens = P};
    if (cairn_store_put(store, &p->put) != CAIRN_OK || cairn_store_flush(store, 60000) != CAIRN_OK ||
        chmod(path, 0) != 0 || cairn_store_lookup(store, &q, &hit, &pin) != CAIRN_OK)
        return 2;
    if (hit.cached_tokens != 0 || hit.miss != CAIRN_MISS_CORRUPT || test_exists(path))
        return 3;
    free(path);
    cairn_store_close(store);
    cairn_identity_destroy(id);
    return 0;
}

static void unreadable(void **state)
{
    (void)state;
    char *dir = test_make_dir(), *root = NULL;
    int   status;
    assert_true(asprintf(&root, "%s/root", dir) > 0);
    assert_int_equal(chmod(dir, 0777), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(unreadable_child(root));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        printf("skipped: can't become another user\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
    free(root);
    test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest first[] = {cmocka_unit_test(unreadable)}; /* forks: before any store has threads */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(padding_is_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(every_length, setup, teardown),
        cmocka_unit_test_setup_teardown(another_valid_page, setup, teardown),
        cmocka_unit_test_setup_teardown(same_key_other_contents, setup, teardown),
        cmocka_unit_test_setup_teardown(forged_child, setup, teardown),
        cmocka_unit_test_setup_teardown(not_a_file, setup, teardown),
        cmocka_unit_test_setup_teardown(changes_while_pinned, setup, teardown),
        cmocka_unit_test_setup_teardown(quarantine_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(heals, setup, teardown),
    };
    int failed = cmocka_run_group_tests(first, NULL, NULL) + cmocka_run_group_tests(tests, NULL, NULL);
    test_key = KEY;
    return failed + cmocka_run_group_tests_name("sealed", tests, NULL, NULL);
}
