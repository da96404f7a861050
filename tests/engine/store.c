/* The engine with a store: what was computed outlives it, and what comes back is
 * reported, recorded late if it has to be, and has the right bits. */
#include "harness.h"

#include <fcntl.h>
#include <sys/stat.h>

#define N 600u

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/cairn-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

typedef struct site { /* one life of a server */
    harness      h;
    cairn_store *store;
    char         digests[80];
} site;

static void open_site_queueing(site *s, cairn__runtime_options options, uint64_t write_queue_bytes)
{
    cairn_error         error;
    cairn_store_options store_options = {.root = root, .budget_bytes = 1u << 30, .reserve_bytes = 1};
    if (!options.n_ctx)
        options.n_ctx = 1024;
    if (!options.n_batch)
        options.n_batch = 64;
    store_options.write_queue_bytes = write_queue_bytes;
    harness_open(&s->h, options, 4);
    if (cairn_store_open(&store_options, &s->store, &error))
        fail_msg("%s", error.text);
    snprintf(s->digests, sizeof s->digests, "%s/digests", root);
}

static void open_site(site *s, cairn__runtime_options options)
{
    open_site_queueing(s, options, 0);
}

static void attach(site *s)
{
    assert_int_equal(cairn__engine_attach_store(s->h.engine, s->store, s->digests), CAIRN_OK);
}

static void attach_and_wait(site *s)
{
    attach(s);
    harness_wait_logged("disk cache on");
}

static void close_site(site *s)
{
    harness_close(&s->h);
    cairn_store_close(s->store);
}

static outcome *ask_as(site *s, uint8_t salt, const int32_t *tokens, uint32_t n)
{
    outcome *o = harness_ask_as(&s->h, salt, tokens, n);
    assert_int_equal(o->last.type, CAIRN__EVENT_END);
    return o;
}

static outcome *ask(site *s, const int32_t *tokens, uint32_t n)
{
    return ask_as(s, 0, tokens, n);
}

static void a_prompt_outlives_the_engine(void **state)
{
    (void)state;
    site s;
    open_site(&s, (cairn__runtime_options){.n_seq = 2});
    attach_and_wait(&s);
    int32_t *a = made_up_tokens(&s.h, N, 400, 1), *b = made_up_tokens(&s.h, N, 400, 2);
    outcome *o = ask(&s, a, N);
    assert_int_equal(o->last.n_cached, 0);
    assert_int_equal(o->last.miss, CAIRN_MISS_NEVER_SEEN);
    close_site(&s);
    outcome_destroy(o);

    open_site(&s, (cairn__runtime_options){.n_seq = 2});
    attach_and_wait(&s);
    o = ask(&s, a, N);
    assert_int_equal(o->last.n_cached, N - 1);
    assert_int_equal(o->last.from_store, N - 1);
    assert_true(o->last.restored_bytes > 0);
    outcome_destroy(o);
    o = ask(&s, a, N);
    assert_int_equal(o->last.n_cached, N - 1); /* resident by now */
    assert_int_equal(o->last.from_store, 0);
    outcome_destroy(o);
    close_site(&s);

    open_site(&s, (cairn__runtime_options){.n_seq = 2});
    attach_and_wait(&s);
    o = ask(&s, b, N); /* shares 400 tokens: a page, and 144 tokens of the next */
    assert_int_equal(o->last.n_cached, 400);
    assert_int_equal(o->last.from_store, 400);
    outcome_destroy(o);
    close_site(&s);
    free(a);
    free(b);
}

#define NOTED 300u

static void open_warm(site *s, uint32_t n_ctx, const char *said)
{
    open_site(s, (cairn__runtime_options){.n_seq = 3, .n_ctx = n_ctx});
    attach(s);
    assert_true(cairn__engine_await_store(s->h.engine, 60000));
    assert_true(harness_logged(said));
}

static void expect_in_memory(site *s, const int32_t *prompt)
{
    outcome *o = ask(s, prompt, NOTED);
    assert_int_equal(o->last.n_cached, NOTED - 1);
    assert_int_equal(o->last.from_store, 0);
    outcome_destroy(o);
}

/* Both are in memory before anybody asks; the one asked last was brought first, and when
 * there is room for one alone it is that one. */
static void begins_with_the_prompts_of_before(void **state)
{
    (void)state;
    site s;
    harness_warm_start = true;
    open_site(&s, (cairn__runtime_options){.n_seq = 3, .n_ctx = 2048});
    attach_and_wait(&s);
    int32_t *a = made_up_tokens(&s.h, NOTED, 200, 1), *b = made_up_tokens(&s.h, NOTED, 0, 2);
    outcome_destroy(ask(&s, a, NOTED));
    outcome_destroy(ask(&s, b, NOTED));
    outcome_destroy(ask_as(&s, 7, b, NOTED)); /* a tenant's is not noted */
    close_site(&s);

    open_warm(&s, 2048, "warm start: 2 prompts of before, 598 tokens");
    expect_in_memory(&s, a);
    expect_in_memory(&s, b);
    close_site(&s);
    open_warm(&s, 512, "warm start: 1 prompt of before, 299 tokens");
    expect_in_memory(&s, b);
    close_site(&s);
    harness_warm_start = false;
    free(a);
    free(b);
}

/* Who was asked already does not keep the one who asks waiting for prompts of before. */
static void a_request_comes_before_a_warm_start(void **state)
{
    (void)state;
    site s;
    harness_warm_start = true;
    open_site(&s, (cairn__runtime_options){.n_ctx = 2048});
    attach_and_wait(&s);
    int32_t *a = made_up_tokens(&s.h, NOTED, 200, 1), *b = made_up_tokens(&s.h, NOTED, 0, 2);
    outcome_destroy(ask(&s, a, NOTED));
    close_site(&s);
    open_site(&s, (cairn__runtime_options){.n_ctx = 2048});
    outcome_destroy(ask(&s, b, 40)); /* before there is a store */
    attach_and_wait(&s);
    outcome *o = ask(&s, a, NOTED);
    assert_int_equal(o->last.from_store, NOTED - 1);
    assert_false(harness_logged("warm start"));
    outcome_destroy(o);
    close_site(&s);
    harness_warm_start = false;
    free(a);
    free(b);
}

static void an_answer_is_stored_with_its_prompt(void **state)
{
    (void)state;
    site     s;
    int32_t *tokens = NULL;
    open_site(&s, (cairn__runtime_options){0});
    attach_and_wait(&s);
    tokens = made_up_tokens(&s.h, N, 0, 3);
    outcome *o = ask(&s, tokens, 300);
    for (uint32_t i = 0; i < 6; i++)
        tokens[300 + i] = o->infos[i].token;
    close_site(&s);
    outcome_destroy(o);
    open_site(&s, (cairn__runtime_options){0});
    attach_and_wait(&s);
    o = ask(&s, tokens, 400);
    assert_int_equal(o->last.from_store, 305); /* the sixth token was never decoded */
    outcome_destroy(o);
    close_site(&s);
    free(tokens);
}

static void what_was_computed_before_the_digest_is_stored_too(void **state)
{
    (void)state;
    site s;
    open_site(&s, (cairn__runtime_options){0});
    int32_t *tokens = made_up_tokens(&s.h, N, 0, 4);
    outcome *o = ask(&s, tokens, N);
    assert_int_equal(o->last.miss, CAIRN_MISS_TIER_OFF);
    attach_and_wait(&s);
    outcome_destroy(o);
    close_site(&s);
    open_site(&s, (cairn__runtime_options){0});
    attach_and_wait(&s);
    o = ask(&s, tokens, N);
    assert_int_equal(o->last.from_store, N - 1);
    outcome_destroy(o);
    close_site(&s);
    free(tokens);
}

/* Hashing takes a tenth of a second, the prefill seconds: it waits, and finds. */
static void a_long_prompt_waits_for_the_digest(void **state)
{
    (void)state;
    site s;
    open_site(&s, (cairn__runtime_options){0});
    attach_and_wait(&s);
    int32_t *tokens = made_up_tokens(&s.h, 900, 0, 5);
    outcome_destroy(ask(&s, tokens, 900));
    close_site(&s);
    open_site(&s, (cairn__runtime_options){0});
    assert_int_equal(cairn__engine_attach_store(s.h.engine, s.store, NULL), CAIRN_OK); /* no digest cache */
    outcome *o = ask(&s, tokens, 900);
    assert_int_equal(o->last.from_store, 899);
    outcome_destroy(o);
    close_site(&s);
    free(tokens);
}

static bool half_done(const outcome *o)
{
    return o->n_done >= 320;
}

static void a_client_that_left_leaves_its_pages(void **state)
{
    (void)state;
    site s;
    open_site(&s, (cairn__runtime_options){0});
    attach_and_wait(&s);
    int32_t   *tokens = made_up_tokens(&s.h, N, 0, 6);
    cairn__job job = {.tokens = tokens, .n_tokens = N, .max_tokens = 2};
    outcome   *o = harness_submit(&s.h, &job);
    outcome_wait_for(o, half_done);
    cairn__engine_cancel(s.h.engine, o->id);
    outcome_wait(o);
    close_site(&s);
    outcome_destroy(o);
    open_site(&s, (cairn__runtime_options){0});
    attach_and_wait(&s);
    o = ask(&s, tokens, N);
    assert_true(o->last.from_store >= 256);
    outcome_destroy(o);
    close_site(&s);
    free(tokens);
}

static void assert_same_bits(const outcome *a, const outcome *b)
{
    assert_int_equal(a->n_infos, 6);
    assert_int_equal(b->n_infos, 6);
    assert_memory_equal(a->infos, b->infos, 6 * sizeof *a->infos);
}

static void reproducible_over_a_restart(void **state)
{
    (void)state;
    static const cairn__runtime_options options = {.reproducible = true};
    site                                s;
    open_site(&s, options);
    int32_t *a = made_up_tokens(&s.h, N, 400, 7), *b = made_up_tokens(&s.h, N, 400, 8);
    outcome *cold_b = ask(&s, b, N); /* without a store */
    close_site(&s);

    open_site(&s, options);
    attach_and_wait(&s);
    outcome *cold_a = ask(&s, a, N);
    assert_int_equal(cold_a->last.n_cached, 0);
    close_site(&s);

    open_site(&s, options);
    attach_and_wait(&s);
    outcome *o = ask(&s, a, N);
    assert_int_equal(o->last.from_store, 512); /* two pages; the rest of the grid has no full page */
    assert_same_bits(o, cold_a);
    outcome_destroy(o);
    close_site(&s);

    open_site(&s, options);
    attach_and_wait(&s);
    o = ask(&s, b, N);
    assert_in_range(o->last.from_store, 256, 384);
    assert_int_equal(o->last.from_store % 64, 0);
    assert_same_bits(o, cold_b);
    outcome_destroy(o);
    close_site(&s);
    outcome_destroy(cold_a);
    outcome_destroy(cold_b);
    free(a);
    free(b);
}

/* Asks and gives back how much of it was cached. */
static uint32_t cached_for(site *s, uint8_t salt, const int32_t *tokens, uint32_t n)
{
    outcome *o = ask_as(s, salt, tokens, n);
    uint32_t cached = o->last.n_cached;
    if (cached == 0)
        assert_int_equal(o->last.miss, CAIRN_MISS_NEVER_SEEN);
    outcome_destroy(o);
    return cached;
}

/* One prompt, a salt and none, then another: cold for each the first time, in memory and on disk,
 * also where a sequence of one is taken for another. */
static void salts_share_nothing(cairn__runtime_options options, uint32_t n, uint32_t resident, uint32_t stored)
{
    site s;
    open_site(&s, options);
    attach_and_wait(&s);
    int32_t *tokens = made_up_tokens(&s.h, n, 0, 13);
    for (uint8_t salt = 0; salt < 2; salt++) {
        assert_int_equal(cached_for(&s, salt, tokens, n), 0);
        assert_int_equal(cached_for(&s, salt, tokens, n), resident);
    }
    close_site(&s);
    open_site(&s, options);
    attach_and_wait(&s);
    for (uint8_t salt = 0; salt < 2; salt++)
        assert_int_equal(cached_for(&s, salt, tokens, n), stored);
    assert_int_equal(cached_for(&s, 2, tokens, n), 0);
    close_site(&s);
    free(tokens);
}

static void salts_share_nothing_in_any_tier(void **state)
{
    (void)state;
    salts_share_nothing((cairn__runtime_options){.n_seq = 4}, 100, 99, 99);
}

static void salts_that_take_each_others_sequence_share_nothing(void **state)
{
    (void)state;
    salts_share_nothing((cairn__runtime_options){.n_seq = 1}, 100, 99, 99);
}

static void salts_share_nothing_in_reproducible_mode(void **state)
{
    (void)state;
    salts_share_nothing((cairn__runtime_options){.reproducible = true}, 264, 256, 256);
}

/* The sequences that wait for the digest are stored under their own salts. */
static void salts_are_kept_until_the_digest_is_there(void **state)
{
    (void)state;
    site s;
    open_site(&s, (cairn__runtime_options){.n_seq = 2});
    int32_t *a = made_up_tokens(&s.h, 100, 60, 14), *b = made_up_tokens(&s.h, 100, 60, 15);
    outcome_destroy(ask_as(&s, 1, a, 100));
    outcome *o = ask_as(&s, 2, b, 100);
    assert_int_equal(o->last.n_cached, 0); /* the 60 tokens in common are another's */
    outcome_destroy(o);
    attach_and_wait(&s);
    close_site(&s);
    open_site(&s, (cairn__runtime_options){.n_seq = 2});
    attach_and_wait(&s);
    assert_int_equal(cached_for(&s, 2, a, 100), 60);
    assert_int_equal(cached_for(&s, 1, a, 100), 99);
    assert_int_equal(cached_for(&s, 0, a, 100), 0);
    close_site(&s);
    free(a);
    free(b);
}

/* Another process evicted it, or somebody removed it: whoever computes the prompt
 * again stores it again, though the sequence has stored the same tokens before. */
static void what_is_lost_is_stored_again(void **state)
{
    (void)state;
    char command[128];
    site s;
    open_site(&s, (cairn__runtime_options){.reproducible = true});
    attach_and_wait(&s);
    int32_t *a = made_up_tokens(&s.h, N, 0, 11), *b = made_up_tokens(&s.h, 100, 0, 12);
    outcome *cold = ask(&s, a, N);
    assert_int_equal(cairn_store_flush(s.store, 30000), CAIRN_OK);
    outcome_destroy(ask(&s, b, 100)); /* a is not resident any more */
    snprintf(command, sizeof command, "find '%s' -name '*.page' -delete", root);
    assert_int_equal(system(command), 0);
    outcome *o = ask(&s, a, N);
    assert_int_equal(o->last.n_cached, 0);
    outcome_destroy(o);
    assert_int_equal(cairn_store_flush(s.store, 30000), CAIRN_OK);
    outcome_destroy(ask(&s, b, 100));
    o = ask(&s, a, N);
    assert_int_equal(o->last.from_store, 512);
    assert_same_bits(o, cold);
    outcome_destroy(o);
    outcome_destroy(cold);
    close_site(&s);
    free(a);
    free(b);
}

static void open_site_of_copy(site *s, char copy[96])
{
    char command[512];
    snprintf(copy, 96, "%s-copy.gguf", root);
    snprintf(command, sizeof command, "cp '%s' '%s'", test_model(), copy);
    assert_int_equal(system(command), 0);
    open_site(s, (cairn__runtime_options){.model_path = copy});
}

static void assert_serves_without_store(site *s)
{
    assert_false(harness_logged("disk cache on"));
    int32_t *tokens = made_up_tokens(&s->h, 50, 0, 9);
    outcome *o = ask(s, tokens, 50);
    assert_int_equal(o->last.miss, CAIRN_MISS_TIER_OFF);
    outcome_destroy(o);
    free(tokens);
}

/* It is mapped, so the model computes on; what it is can't be told any more. */
static void without_a_digest_there_is_no_store(void **state)
{
    (void)state;
    char copy[96];
    site s;
    if (!test_model())
        test_skip();
    open_site_of_copy(&s, copy);
    assert_int_equal(unlink(copy), 0);
    attach(&s);
    harness_wait_logged("disk cache off: ");
    harness_wait_logged(copy);
    harness_wait_logged("No such file");
    assert_serves_without_store(&s);
    close_site(&s);
}

static void a_model_replaced_meanwhile_has_no_store(void **state)
{
    (void)state;
    char copy[96];
    site s;
    if (!test_model())
        test_skip();
    open_site_of_copy(&s, copy);
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, copy, times, 0), 0);
    attach(&s);
    harness_wait_logged("changed");
    assert_serves_without_store(&s);
    close_site(&s);
    assert_int_equal(unlink(copy), 0);
}

/* What can't be cut goes on at checkpoints: of the same prompt all but its last
 * token, and where another one was seen to part, the next one that parts there. */
static void a_window_goes_on_at_checkpoints(void **state)
{
    (void)state;
    const char *path = getenv("CAIRN_TEST_MODEL_SWA");
    if (!path || !*path)
        test_skip();
    site                   s;
    cairn__runtime_options options = {.model_path = path, .n_ctx = 1024, .n_batch = 128};
    open_site(&s, options);
    attach_and_wait(&s);
    int32_t *a = made_up_tokens(&s.h, N, 0, 21), *b = made_up_tokens(&s.h, N, N - 50, 22),
            *c = made_up_tokens(&s.h, N, N - 50, 23);
    memcpy(b, a, (N - 50) * sizeof *a);
    memcpy(c, a, (N - 50) * sizeof *a);
    b[N - 50] = a[N - 50] + 1;
    c[N - 50] = a[N - 50] + 2;
    assert_int_equal(cached_for(&s, 0, a, N), 0);
    assert_int_equal(cached_for(&s, 0, a, N), N - 1); /* regenerate: no wait for the disk in between */
    assert_true(cached_for(&s, 0, b, N) < N - 50);    /* no rung where nothing was known to part */
    close_site(&s);
    open_site(&s, options);
    attach_and_wait(&s);
    assert_int_equal(cached_for(&s, 0, c, N), N - 50);
    assert_int_equal(cached_for(&s, 0, b, N), N - 1);
    assert_int_equal(cached_for(&s, 0, a, N), N - 1);
    close_site(&s);
    free(a);
    free(b);
    free(c);
}

/* Checkpoints that find no room are given up, and nobody sees that in the bits. */
static void reproducible_where_no_checkpoint_has_room(void **state)
{
    (void)state;
    enum { LONG = 1000 }; /* the window's ring wraps */
    const char *path = getenv("CAIRN_TEST_MODEL_SWA");
    if (!path || !*path)
        test_skip();
    site                   s;
    cairn__runtime_options options = {.model_path = path, .n_ctx = 1088, .n_batch = 64, .reproducible = true};
    open_site(&s, options);
    int32_t *tokens = made_up_tokens(&s.h, LONG, 0, 24);
    outcome *cold = ask(&s, tokens, LONG); /* without a store */
    close_site(&s);

    open_site_queueing(&s, options, 1);
    attach_and_wait(&s);
    outcome *o = ask(&s, tokens, LONG);
    assert_same_bits(o, cold);
    outcome_destroy(o);
    outcome_destroy(cold);
    close_site(&s);

    open_site(&s, options);
    attach_and_wait(&s);
    assert_int_equal(cached_for(&s, 0, tokens, LONG), 0); /* nothing had been stored */
    close_site(&s);
    free(tokens);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_prompt_outlives_the_engine), TEST(begins_with_the_prompts_of_before),
        TEST(a_request_comes_before_a_warm_start),
        TEST(an_answer_is_stored_with_its_prompt),
        TEST(what_was_computed_before_the_digest_is_stored_too),
        TEST(a_long_prompt_waits_for_the_digest),
        TEST(a_client_that_left_leaves_its_pages),
        TEST(reproducible_over_a_restart),
        TEST(salts_share_nothing_in_any_tier),
        TEST(salts_that_take_each_others_sequence_share_nothing),
        TEST(salts_share_nothing_in_reproducible_mode),
        TEST(salts_are_kept_until_the_digest_is_there),
        TEST(what_is_lost_is_stored_again),
        TEST(without_a_digest_there_is_no_store),
        TEST(a_model_replaced_meanwhile_has_no_store),
        TEST(a_window_goes_on_at_checkpoints),
        TEST(reproducible_where_no_checkpoint_has_room),
    };
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
