/* A real model with a sliding window (gemma3-270m) after its ring of window cells
 * has wrapped: what a fresh process restores, at the end and in the middle, goes on
 * bit for bit as the process that was cut at the same positions. And the order that
 * this needs: a run that does not put its window back after taking it parts from
 * the restored one, so that the test can tell.
 *
 * CAIRN_TEST_MODEL_SWA: the model. CAIRN_TEST_SWA_TOKENS: length of the prompt,
 * default 1,600; the ring has 1,152 cells (512 for each of two sequences, and a
 * batch), so 4,096 tokens wrap it three times. */
#include "support.h"

enum { STEP = 128, BATCH = 17, SINGLE = 3, N_SEQ = 2, TIMEOUT_S = 900 };

typedef struct site {
    runtime      rt;
    cairn_store *store;
    cairn_llama *cache;
    llama_token *tokens;
    uint32_t     n;
    const char  *dir;
} site;

static uint32_t n_tokens(void)
{
    const char *given = getenv("CAIRN_TEST_SWA_TOKENS");
    uint32_t    n = given ? (uint32_t)atoi(given) : 1600;
    return n / STEP * STEP;
}

static site open_site(const char *dir)
{
    const kv_setup kv = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true};
    site           s = {.dir = dir, .n = n_tokens()};
    init_llama();
    s.rt = load(getenv("CAIRN_TEST_MODEL_SWA"));
    struct llama_context_params params = context_params(&kv, s.n + 512, STEP);
    params.n_seq_max = N_SEQ;
    params.n_threads = params.n_threads_batch = 2;
    open_context(&s.rt, params);
    s.store = open_store(dir, 0, 0);
    cairn_llama_options options = cache_options(&s.rt, s.store);
    s.cache = open_cache(&s.rt, &options);
    s.tokens = make_tokens(s.n + 2 * STEP, s.rt.n_vocab, 5);
    return s;
}

static void close_site(site *s)
{
    cairn_llama_close(s->cache);
    cairn_store_close(s->store);
    free(s->tokens);
    unload(&s->rt);
}

static void compute(site *s, uint32_t n, bool put_back)
{
    llama_memory_clear(s->rt.memory, true);
    for (uint32_t at = 0; at < n; at += STEP) {
        REQUIRE(decode(&s->rt, 0, s->tokens, at, at + STEP) == 0);
        cairn_llama_record(s->cache, 0, s->tokens, at + STEP);
        REQUIRE(!put_back || cairn_llama_checkpoint(s->cache, 0, s->tokens, at + STEP));
    }
}

static uint32_t position(const site *s, int i)
{
    return i == 0 ? s->n : s->n / 2 / STEP * STEP;
}

static char *path_of(const site *s, const char *name, int i)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s-%d", s->dir, name, i);
    return path;
}

static float *go_on(site *s, uint32_t from)
{
    return decode_tail(&s->rt, 0, s->tokens, (tail){from, BATCH, SINGLE});
}

static int record_child(const char *dir)
{
    site   s = open_site(dir);
    size_t size = tail_size(&s.rt, (tail){0, BATCH, SINGLE});
    for (int i = 0; i < 2; i++) {
        compute(&s, position(&s, i), true);
        float *logits = go_on(&s, position(&s, i));
        write_file(path_of(&s, "expected", i), logits, size);
        free(logits);
    }
    REQUIRE(cairn_store_flush(s.store, 60000) == CAIRN_OK);
    REQUIRE(cairn_llama_checkpoints_given_up(s.cache) == 0);
    compute(&s, s.n, false);
    float *logits = go_on(&s, s.n);
    write_file(path_of(&s, "parted", 0), logits, size);
    free(logits);
    fflush(NULL);
    kill(getpid(), SIGKILL);
    return 1;
}

static bool twice(void *ctx)
{
    return (*(int *)ctx)++ < 2;
}

/* Pages without the window at their end would decode, and be wrong. */
static void stop_on_the_way(site *s)
{
    int                  asked = 0;
    cairn_llama_restored r;
    REQUIRE(cairn_llama_restore_ahead(s->cache, 0, s->tokens, s->n + 1, 0, twice, &asked, &r) == CAIRN_OK);
    REQUIRE(asked == 3 && r.miss == CAIRN_MISS_STOPPED && r.n_tokens == 0 && r.from_store == 0);
    REQUIRE(llama_memory_seq_pos_max(s->rt.memory, 0) < 0);
}

static int restore_child(const char *dir)
{
    site s = open_site(dir);
    stop_on_the_way(&s);
    bool all_equal = true;
    for (int i = 0; i < 2; i++) {
        size_t               size;
        const uint32_t       at = position(&s, i);
        float               *expected = read_file(path_of(&s, "expected", i), &size);
        cairn_llama_restored r = restore(s.cache, 0, s.tokens, at + 1, 0);
        REQUIRE(r.n_tokens == at && r.from_store == at);
        float *logits = go_on(&s, at);
        all_equal = all_equal && !memcmp(logits, expected, size);
        printf("%u of %u tokens restored, %s\n", r.n_tokens, s.n, memcmp(logits, expected, size) ? "differs" : "exact");
        if (i == 0) {
            float *parted = read_file(path_of(&s, "parted", 0), &size);
            printf("without putting the window back: %s\n", memcmp(logits, parted, size) ? "differs" : "equal");
            free(parted);
        }
        free(logits);
        free(expected);
        llama_memory_clear(s.rt.memory, true);
    }
    close_site(&s);
    return all_equal ? 0 : 2;
}

static void after_the_ring_has_wrapped(void **state)
{
    char        dir[4096], log[4200];
    const char *model = getenv("CAIRN_TEST_MODEL_SWA");
    (void)state;
    if (!model || !*model) {
        print_message("no model: set CAIRN_TEST_MODEL_SWA\n");
        test_skip();
    }
    make_temp(dir, sizeof dir);
    snprintf(log, sizeof log, "%s/log", dir);
    assert_int_not_equal(run_again(log, TIMEOUT_S, "--record", dir, NULL), 0); /* it kills itself */
    int     rc = run_again(log, TIMEOUT_S, "--restore", dir, NULL);
    size_t  size;
    char   *text = read_file(log, &size);
    text[size] = 0;
    print_message("%s", text);
    remove_tree(dir);
    assert_int_equal(rc, 0);
    free(text);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--record"))
        return record_child(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "--restore"))
        return restore_child(argv[2]);
    sleep_at_barriers(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(after_the_ring_has_wrapped)};
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
