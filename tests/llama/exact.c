/* Exactness on a real model: after a restore in a fresh process the logits equal
 * those of the process that computed the prefix, bit for bit, over several
 * tokens. Both cut their calls at the same positions (like with like).
 *
 * For each KV type one recording process prefills 640 tokens in calls of 128,
 * records them, and computes the reference logits by cutting its sequence back
 * to each position; it has ended before the restoring process starts. Every
 * restore must report exactly the tokens that came from the store; a control
 * with one altered block must change the logits, so that the comparison can
 * fail. */
#include "support.h"

enum { PAGE = 96, N = 640, STEP = 128, FORK = 300, N_FORKED = 400, BATCH = 17, SINGLES = 2, TIMEOUT_S = 300 };
enum { FILL = 64, SHARED = 2 * PAGE }; /* beside other sequences */

static const kv_setup setups[] = {
    {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true},
    {"q8_0", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, true},
    {"q4_0", GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, true},
    {"f16-noflash", GGML_TYPE_F16, GGML_TYPE_F16, false},
    {"q8_0-f16-noflash", GGML_TYPE_Q8_0, GGML_TYPE_F16, false},
};

typedef struct point {
    const char *name;
    tail        t;
    bool        forked; /* of the prompt that left the recorded one at FORK */
    bool        same;   /* goes on with the recorded tokens: the same prompt again */
} point;

/* In the order in which the recording process cuts back. */
static const point points[] = {
    {"end of the short last page", {N, BATCH, SINGLES}, false, false},
    {"inside the short last page", {600, BATCH, SINGLES}, false, false},
    {"the same prompt again", {511, 1, SINGLES}, false, true},
    {"page boundary", {5 * PAGE, BATCH, SINGLES}, false, false},
    {"inside a page", {FORK, BATCH, SINGLES}, false, false},
    {"sibling page", {N_FORKED, BATCH, SINGLES}, true, false},
    {"inside the first page", {50, BATCH, SINGLES}, false, false},
};
enum { N_POINTS = sizeof points / sizeof points[0], BOUNDARY = 3 };

typedef struct child {
    runtime         rt;
    const kv_setup *kv;
    const char     *dir;
    llama_token    *recorded, *forked, *filler;
    llama_token    *prompts[N_POINTS]; /* what is restored, then the tail */
    llama_token    *beside;            /* tail of a second sequence behind [0, SHARED) */
} child;

/* Two threads in the first setup, as bits depend on their number. */
static void open_sized_context(child *c, uint32_t n_ctx)
{
    struct llama_context_params params = context_params(c->kv, n_ctx, STEP);
    if (c->kv == setups)
        params.n_threads = params.n_threads_batch = 2;
    open_context(&c->rt, params);
}

static llama_token *branch(const child *c, const llama_token *base, uint32_t from, uint64_t seed)
{
    llama_token *tokens = make_tokens(N + 64, c->rt.n_vocab, seed);
    memcpy(tokens, base, from * sizeof *base);
    if (tokens[from] == base[from])
        tokens[from] = (llama_token)((uint32_t)(base[from] + 1) % c->rt.n_vocab);
    return tokens;
}

static child open_child(const char *dir, const char *name)
{
    child c = {.dir = dir};
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++)
        if (!strcmp(setups[i].name, name))
            c.kv = &setups[i];
    REQUIRE(c.kv != NULL);
    init_llama();
    c.rt = load(model_path());
    c.recorded = make_tokens(N + 64, c.rt.n_vocab, 7);
    c.forked = branch(&c, c.recorded, FORK, 8);
    c.filler = make_tokens(FILL, c.rt.n_vocab, 9);
    c.beside = branch(&c, c.recorded, SHARED, 10);
    for (uint32_t i = 0; i < N_POINTS; i++) {
        const llama_token *base = points[i].forked ? c.forked : c.recorded;
        c.prompts[i] = branch(&c, base, points[i].t.from, 20 + i);
        if (points[i].same)
            memcpy(c.prompts[i], base, (N + 64) * sizeof *base);
    }
    return c;
}

static void close_child(child *c)
{
    free(c->recorded);
    free(c->forked);
    free(c->filler);
    free(c->beside);
    for (uint32_t i = 0; i < N_POINTS; i++)
        free(c->prompts[i]);
    unload(&c->rt);
}

static const char *reference_path(const child *c, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/reference %s", c->dir, name);
    return path;
}

static void save(child *c, llama_seq_id seq, const llama_token *tokens, tail t, const char *name)
{
    float *logits = decode_tail(&c->rt, seq, tokens, t);
    write_file(reference_path(c, name), logits, tail_size(&c->rt, t));
    free(logits);
}

static bool equals(child *c, llama_seq_id seq, const llama_token *tokens, tail t, const char *name)
{
    size_t size;
    float *expected = read_file(reference_path(c, name), &size);
    float *logits = decode_tail(&c->rt, seq, tokens, t);
    REQUIRE(size == tail_size(&c->rt, t));
    bool equal = !memcmp(logits, expected, size);
    free(expected);
    free(logits);
    return equal;
}

static void check(bool ok, const char *what)
{
    printf("  %-44s %s\n", what, ok ? "exact" : "DIFFERS");
    if (!ok)
        exit(2);
}

/* ---- the two processes ---- */

static const tail busy_tail = {SHARED, BATCH, SINGLES};

/* [0, SHARED) in sequence 0, behind FILL tokens of another sequence and beside a
 * third one that shares it. */
static void reference_beside_others(child *c)
{
    llama_memory_clear(c->rt.memory, true);
    REQUIRE(decode(&c->rt, 2, c->filler, 0, FILL) == 0);
    prefill(&c->rt, 0, c->recorded, 0, SHARED, STEP);
    save(c, 0, c->prompts[BOUNDARY], busy_tail, "non-empty context");
    REQUIRE(llama_memory_seq_rm(c->rt.memory, 0, SHARED, -1));
    llama_memory_seq_cp(c->rt.memory, 0, 1, 0, SHARED);
    save(c, 1, c->beside, busy_tail, "second sequence");
    save(c, 0, c->prompts[BOUNDARY], busy_tail, "first sequence");
}

static void record_all(child *c, cairn_llama *cache, cairn_store *store)
{
    for (uint32_t at = 0; at < N; at += STEP) {
        REQUIRE(decode(&c->rt, 0, c->recorded, at, at + STEP) == 0);
        cairn_llama_record(cache, 0, c->recorded, at + STEP);
    }
    record_to_end(cache, store, c->recorded, N);
    for (uint32_t i = 0; i < N_POINTS; i++) {
        const point *p = &points[i];
        if (p->forked) {
            REQUIRE(llama_memory_seq_rm(c->rt.memory, 0, FORK, -1));
            REQUIRE(decode(&c->rt, 0, c->forked, FORK, N_FORKED) == 0);
            record_to_end(cache, store, c->forked, N_FORKED);
        }
        REQUIRE(llama_memory_seq_rm(c->rt.memory, 0, (llama_pos)p->t.from, -1));
        save(c, 0, c->prompts[i], p->t, p->name);
    }
}

static int record_child(const char *dir, const char *name)
{
    child c = open_child(dir, name);
    open_sized_context(&c, 1024);
    cairn_store        *store = open_store(dir, PAGE, 0);
    cairn_llama_options options = cache_options(&c.rt, store);
    cairn_llama        *cache = open_cache(&c.rt, &options);
    record_all(&c, cache, store);
    cairn_llama_close(cache);
    cairn_store_stats stats;
    cairn_store_get_stats(store, &stats);
    REQUIRE(stats.pages_published == 9); /* six full and a short one; of the fork only its own two */
    cairn_store_close(store);
    reference_beside_others(&c);
    close_child(&c);
    return 0;
}

/* Restores the prompt of a point behind n_resident tokens and compares. */
static void check_point(child *c, cairn_llama *cache, uint32_t i, uint32_t n_resident, const char *what)
{
    const point         *p = &points[i];
    const uint32_t       n_prompt = p->t.from + p->t.n_batch;
    const uint32_t       first = n_resident / PAGE * PAGE;
    cairn_llama_restored r = restore(cache, 0, c->prompts[i], n_prompt, n_resident);
    REQUIRE(r.n_tokens == p->t.from);
    REQUIRE(r.from_store == p->t.from - first);
    REQUIRE(r.bytes > 0);
    REQUIRE(llama_memory_seq_pos_min(c->rt.memory, 0) == 0);
    REQUIRE(llama_memory_seq_pos_max(c->rt.memory, 0) == (llama_pos)p->t.from - 1);
    REQUIRE(llama_memory_seq_pos_max(c->rt.memory, 3) < 0); /* the scratch sequence */
    check(equals(c, 0, c->prompts[i], p->t, p->name), what);
    llama_memory_seq_rm(c->rt.memory, 0, -1, -1);
}

/* Runs of one page each, or of 1, 2 and 4 (they grow); all points, or only one. */
static void check_points(child *c, cairn_store *store, uint32_t run_tokens, bool all)
{
    cairn_llama_options options = cache_options(&c->rt, store);
    options.run_tokens = run_tokens;
    open_sized_context(c, 1024);
    cairn_llama *cache = open_cache(&c->rt, &options);
    for (uint32_t i = 0; i < N_POINTS; i++) {
        char what[100];
        snprintf(what, sizeof what, "runs of %u: %s", run_tokens, points[i].name);
        if (all || i == 1)
            check_point(c, cache, i, 0, what);
    }
    check_point(c, cache, 0, 0, "again after the resident copy was evicted");
    for (uint32_t n = 100; all && n <= FORK; n += FORK - 100) {
        REQUIRE(restore(cache, 0, c->recorded, n + 1, 0).n_tokens == n);
        check_point(c, cache, BOUNDARY, n, n == 100 ? "behind 100 resident tokens" : "behind 300 resident tokens");
    }
    cairn_llama_close(cache);
}

static void check_other_context_size(child *c, cairn_store *store)
{
    cairn_llama_options options = cache_options(&c->rt, store);
    open_sized_context(c, 2048);
    cairn_llama *cache = open_cache(&c->rt, &options);
    check_point(c, cache, BOUNDARY, 0, "into a context of twice the size");
    cairn_llama_close(cache);
}

static void check_beside_others(child *c, cairn_store *store)
{
    cairn_llama_options options = cache_options(&c->rt, store);
    open_sized_context(c, 1024);
    cairn_llama *cache = open_cache(&c->rt, &options);
    REQUIRE(decode(&c->rt, 2, c->filler, 0, FILL) == 0);
    cairn_llama_restored r = restore(cache, 0, c->recorded, SHARED + 1, 0);
    REQUIRE(r.n_tokens == SHARED && r.from_store == SHARED);
    check(equals(c, 0, c->prompts[BOUNDARY], busy_tail, "non-empty context"), "into a context that is not empty");
    REQUIRE(llama_memory_seq_rm(c->rt.memory, 0, SHARED, -1));
    llama_memory_seq_cp(c->rt.memory, 0, 1, 0, SHARED);
    check(equals(c, 1, c->beside, busy_tail, "second sequence"), "two sequences share a prefix: the second");
    check(equals(c, 0, c->prompts[BOUNDARY], busy_tail, "first sequence"), "two sequences share a prefix: the first");
    cairn_llama_close(cache);
}

/* ---- the control ---- */

/* Puts the recorded pages [0, 5 * PAGE) into another store, one block of the second
 * page altered, with checksums that hold. */
static void copy_altered(child *c, cairn_llama *cache, cairn_store *from, cairn_store *to)
{
    const cairn_identity *identity = cairn_llama_identity(cache);
    const cairn_digest    digest = cairn_identity_digest(identity);
    const cairn_query     query = {.identity = identity, .tokens = c->recorded, .n_tokens = 5 * PAGE};
    cairn_hit             hit;
    cairn_pin            *pin;
    cairn_key             parent = {{0}};
    REQUIRE(cairn_store_lookup(from, &query, &hit, &pin) == CAIRN_OK && hit.cached_tokens == 5 * PAGE && hit.n_pages == 5);
    for (uint32_t i = 0; i < hit.n_pages; i++) {
        cairn_page_view view = cairn_pin_page(pin, i);
        cairn_block    *blocks = calloc(view.n_blocks, sizeof *blocks);
        for (uint32_t b = 0; b < view.n_blocks; b++) {
            uint8_t *data = malloc(view.block_size[b]);
            REQUIRE(cairn_pin_read_block(pin, i, b, data) == CAIRN_OK);
            for (uint64_t k = 1; i == 1 && b == 5 && k < view.block_size[b]; k += 2)
                data[k] ^= 0x80; /* the sign of every f16 of one layer's K */
            blocks[b] = (cairn_block){data, view.block_size[b]};
        }
        const cairn_page page = {.key = cairn_chain_key(&digest, i ? &parent : NULL, c->recorded + view.start, PAGE),
                                 .parent = parent,
                                 .start = view.start,
                                 .n_tokens = PAGE,
                                 .tokens = c->recorded + view.start,
                                 .blocks = blocks,
                                 .n_blocks = view.n_blocks,
                                 .layout = view.layout};
        const cairn_put put = {.identity = identity, .pages = &page, .n_pages = 1};
        REQUIRE(cairn_store_put(to, &put) == CAIRN_OK && cairn_store_flush(to, 10000) == CAIRN_OK);
        for (uint32_t b = 0; b < view.n_blocks; b++)
            free((void *)blocks[b].data);
        free(blocks);
        parent = page.key;
    }
    cairn_pin_release(pin);
}

static void check_control(child *c, cairn_store *store)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s/altered", c->dir);
    REQUIRE(mkdir(dir, 0700) == 0);
    cairn_store        *altered = open_store(dir, PAGE, 0);
    cairn_llama_options options = cache_options(&c->rt, altered);
    open_sized_context(c, 1024);
    cairn_llama *cache = open_cache(&c->rt, &options);
    copy_altered(c, cache, store, altered);
    REQUIRE(restore(cache, 0, c->prompts[BOUNDARY], 5 * PAGE + BATCH, 0).from_store == 5 * PAGE);
    REQUIRE(!equals(c, 0, c->prompts[BOUNDARY], points[BOUNDARY].t, points[BOUNDARY].name));
    printf("  control: an altered block changes the logits\n");
    cairn_llama_close(cache);
    cairn_store_close(altered);
}

static int restore_child(const char *dir, const char *name)
{
    child        c = open_child(dir, name);
    cairn_store *store = open_store(dir, PAGE, 0);
    printf("%s\n", name);
    check_points(&c, store, 2048, true);
    check_points(&c, store, PAGE, c.kv == setups);
    check_other_context_size(&c, store);
    check_beside_others(&c, store);
    check_control(&c, store);
    cairn_store_close(store);
    close_child(&c);
    return 0;
}

/* ---- the tests ---- */

static void run_setup(const kv_setup *kv)
{
    char dir[4096];
    if (!is_file(model_path())) {
        print_message("no model at %s: set CAIRN_TEST_MODEL\n", model_path());
        test_skip();
    }
    make_temp(dir, sizeof dir);
    int recorded = run_again(NULL, TIMEOUT_S, "--record", dir, kv->name, NULL);
    int restored = recorded == 0 ? run_again(NULL, TIMEOUT_S, "--restore", dir, kv->name, NULL) : -1;
    remove_tree(dir);
    assert_int_equal(recorded, 0);
    assert_int_equal(restored, 0);
}

static void f16_with_flash_attention(void **state)
{
    (void)state;
    run_setup(&setups[0]);
}

static void q8_0_with_flash_attention(void **state)
{
    (void)state;
    run_setup(&setups[1]);
}

static void q4_0_with_flash_attention(void **state)
{
    (void)state;
    run_setup(&setups[2]);
}

static void f16_without_flash_attention(void **state)
{
    (void)state;
    run_setup(&setups[3]);
}

static void q8_0_keys_without_flash_attention(void **state)
{
    (void)state;
    run_setup(&setups[4]);
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--record"))
        return record_child(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "--restore"))
        return restore_child(argv[2], argv[3]);
    sleep_at_barriers(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_with_flash_attention),    cmocka_unit_test(q8_0_with_flash_attention),
        cmocka_unit_test(q4_0_with_flash_attention),   cmocka_unit_test(f16_without_flash_attention),
        cmocka_unit_test(q8_0_keys_without_flash_attention),
    };
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
