/* Ten thousand conversations that part in the same page: the right child is found
 * without opening them all, also by a process that wrote none of them. The files
 * are written directly, since ten thousand synced ones would take a minute. Times
 * are printed and not asserted. */
#include "store_testing.h"

#include "base/digest.h"

#define P 256u
#define N_SIBLINGS 10000u

static uint8_t      page_buf[1 << 16];
static int32_t      system_prompt[P];
static cairn_digest digest;

/* Sibling i shares a page and i % 256 tokens of the next with all others that share
 * as many, and goes its own way from there. */
static void sibling_tokens(uint32_t i, int32_t *tokens)
{
    uint32_t shared = i % P;
    memcpy(tokens, system_prompt, sizeof(system_prompt));
    test_tokens(tokens + P, shared, 77);
    test_tokens(tokens + P + shared, P - shared, 1000 + i);
}

static void write_page(const char *root, const cairn_identity *id, const cairn_key *parent, uint32_t start,
                       const int32_t *tokens, cairn_key *ret_key)
{
    cairn_key         key = cairn_chain_key(&digest, parent, tokens, P);
    cairn__page_block blocks[TEST_BLOCKS];
    uint32_t          offset = cairn__page_payload_offset(P, TEST_BLOCKS);
    size_t            size = offset;
    for (uint32_t b = 0; b < TEST_BLOCKS; b++) {
        uint64_t n = test_block_size(&key, P, b);
        assert_true(size + n <= sizeof(page_buf));
        test_fill_block(&key, b, page_buf + size, n);
        blocks[b] = (cairn__page_block){n, cairn__xxh3_128(page_buf + size, n)};
        size += n;
    }
    cairn__page_header h = {.identity = digest,
                            .key = key,
                            .parent = *parent,
                            .start = start,
                            .n_tokens = P,
                            .n_blocks = TEST_BLOCKS,
                            .kind = CAIRN__PAGE_ATTENTION,
                            .layout = TEST_LAYOUT,
                            .prefill_ns = 1000 * P,
                            .tokens = tokens,
                            .blocks = blocks};
    assert_int_equal(cairn__page_encode(&h, page_buf, offset), CAIRN_OK);
    cairn_page page = {.key = key, .parent = *parent, .start = start, .n_tokens = P, .tokens = tokens};
    char      *path = test_page_path(root, id, &page);
    int        fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, page_buf, size), size);
    close(fd);
    free(path);
    *ret_key = key;
}

static void write_all(const char *root, const cairn_identity *id)
{
    cairn_key parent, key;
    char      fanout[CAIRN__FANOUT_NAME_SIZE], name[CAIRN__IDENTITY_NAME_SIZE], path[1024];
    int32_t   tokens[2 * P];
    cairn_store_close(test_open(root, UINT64_C(8) << 30, P)); /* makes the root */
    cairn__identity_name(&digest, name);
    snprintf(path, sizeof(path), "%s/v1/%s", root, name);
    assert_int_equal(mkdir(path, 0700), 0);
    cairn_key none = {{0}};
    cairn__fanout_name(&none, fanout);
    snprintf(path, sizeof(path), "%s/v1/%s/%s", root, name, fanout);
    assert_int_equal(mkdir(path, 0700), 0);
    write_page(root, id, &none, 0, system_prompt, &parent);
    cairn__fanout_name(&parent, fanout);
    snprintf(path, sizeof(path), "%s/v1/%s/%s", root, name, fanout);
    assert_int_equal(mkdir(path, 0700), 0);
    for (uint32_t i = 0; i < N_SIBLINGS; i++) {
        sibling_tokens(i, tokens);
        write_page(root, id, &parent, P, tokens + P, &key);
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Conversation i goes on, then parts `more` tokens after it left the others. */
static void search(const char *root, const cairn_identity *id, const char *who)
{
    enum { ROUNDS = 400 };
    static uint64_t ns[ROUNDS];
    cairn_store    *store = test_open(root, UINT64_C(8) << 30, P);
    uint64_t        first_ns = 0, first_cpu_ns = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t i = (round * 2477 + 11) % N_SIBLINGS, shared = i % P;
        uint32_t more = 20 + round % 40, end = shared + more < P ? shared + more : P;
        int32_t  stored[2 * P], ask[2 * P];
        sibling_tokens(i, stored);
        memcpy(ask, stored, sizeof(ask));
        for (uint32_t k = end; k < P; k++)
            ask[P + k] = -1 - (int32_t)k;
        cairn_pin *pin;
        uint64_t   begun = test_now_ns(), cpu_begun = cpu_ns();
        cairn_hit  hit = test_lookup(store, id, ask, 2 * P, 0, 0, &pin);
        ns[round] = test_now_ns() - begun;
        if (round == 0) {
            first_ns = ns[0];
            first_cpu_ns = cpu_ns() - cpu_begun;
        }
        /* Its own child: where a name tells. Those that left the others after token
         * 192 carry no hash that tells them apart, unless nothing else was asked. */
        static const uint32_t levels[] = {0, 16, 32, 64, 128, 192, 256};
        uint32_t              told = 0;
        for (size_t l = 0; l < 7; l++)
            if (levels[l] <= end)
                told = levels[l];
        if (told > shared || end == P) {
            assert_int_equal(hit.cached_tokens, P + end);
            test_check_pin(pin, &hit, id, stored, 2 * P, P, 0);
        } else {
            assert_true(hit.cached_tokens >= P + told);
        }
        cairn_pin_release(pin);
    }
    qsort(ns, ROUNDS, sizeof(ns[0]), by_value);
    printf("%s: %u siblings, first lookup %.2f ms (CPU %.2f), then median %.3f ms, 99th percentile %.3f ms, worst %.3f "
           "ms\n",
           who, N_SIBLINGS, (double)first_ns / 1e6, (double)first_cpu_ns / 1e6, (double)ns[ROUNDS / 2] / 1e6,
           (double)ns[ROUNDS * 99 / 100] / 1e6, (double)ns[ROUNDS - 1] / 1e6);
    assert_int_equal(test_stats(store).pages_corrupt, 0);
    cairn_store_close(store);
}

static void finds_the_right_one(void **state)
{
    (void)state;
    char           *root = test_make_dir();
    cairn_identity *id = test_identity("siblings");
    int             status;
    digest = cairn_identity_digest(id);
    test_tokens(system_prompt, P, 5);
    write_all(root, id);
    test_sleep_ms(30); /* else the folder's times are too young for its listing to be kept */
    fflush(NULL);
    pid_t pid = fork(); /* this process has no store open now */
    if (pid == 0) {
        search(root, id, "a second process");
        fflush(NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    search(root, id, "this process");
    cairn_identity_destroy(id);
    test_remove_dir(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_the_right_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
