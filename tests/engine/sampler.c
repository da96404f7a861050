/* Choosing tokens: greedy, seeds, penalties, grammars, log-probabilities. The
 * logits are made up here; the model lends its vocabulary. */
#include "testing.h"

#include "llama/sampler.h"

#include <math.h>

static cairn__runtime *rt;
static float          *logits;
static uint32_t        n_vocab;

static int setup(void **state)
{
    (void)state;
    cairn__runtime_options options = {.model_path = test_model(), .n_ctx = 64, .n_batch = 16, .n_seq = 1};
    cairn_error            error;
    if (!options.model_path)
        return 0;
    if (cairn__runtime_open(&options, &rt, &error))
        fail_msg("%s", error.text);
    n_vocab = cairn__runtime_n_vocab(rt);
    logits = malloc(n_vocab * sizeof *logits);
    assert_non_null(logits);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cairn__runtime_close(rt);
    free(logits);
    return 0;
}

static void flat(float value)
{
    if (!rt)
        test_skip();
    for (uint32_t i = 0; i < n_vocab; i++)
        logits[i] = value;
}

static void noise(uint64_t seed)
{
    flat(0.0f);
    for (uint32_t i = 0; i < n_vocab; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)(seed >> 40) / (float)(1 << 24) * 12.0f - 6.0f;
    }
}

static cairn__sampler *sampler_with(cairn__sampling params, const int32_t *prompt, uint32_t n_prompt)
{
    cairn__sampler *s = NULL;
    if (params.top_p == 0.0f)
        params.top_p = 1.0f;
    assert_int_equal(cairn__sampler_create(rt, &params, prompt, n_prompt, &s), CAIRN_OK);
    return s;
}

static void greedy_takes_the_best_and_the_lower_of_equals(void **state)
{
    (void)state;
    noise(1);
    logits[500] = logits[400] = 50.0f;
    cairn__sampler *s = sampler_with((cairn__sampling){0}, NULL, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cairn__sampler_pick(s, logits), 400);
    logits[30000] = 51.0f;
    assert_int_equal(cairn__sampler_pick(s, logits), 30000);
    cairn__sampler_destroy(s);
}

static void a_seed_decides(void **state)
{
    (void)state;
    noise(2);
    static const uint32_t seeds[] = {0, 1, 0xffffffffu};
    int32_t               picks[3][40];
    for (int k = 0; k < 3; k++) {
        cairn__sampling params = {.temperature = 1.0f, .seed = seeds[k]};
        cairn__sampler *a = sampler_with(params, NULL, 0), *b = sampler_with(params, NULL, 0);
        for (int i = 0; i < 40; i++) {
            picks[k][i] = cairn__sampler_pick(a, logits);
            assert_int_equal(cairn__sampler_pick(b, logits), picks[k][i]);
        }
        cairn__sampler_destroy(a);
        cairn__sampler_destroy(b);
    }
    assert_memory_not_equal(picks[0], picks[1], sizeof picks[0]);
    assert_memory_not_equal(picks[0], picks[2], sizeof picks[0]);
}

/* Two tokens with probability 0.75 and 0.25: 4,000 draws, 5 sigma. */
static void frequencies_follow_the_probabilities(void **state)
{
    (void)state;
    flat(-INFINITY);
    logits[100] = logf(3.0f);
    logits[200] = 0.0f;
    cairn__sampler *s = sampler_with((cairn__sampling){.temperature = 1.0f, .seed = 3}, NULL, 0);
    int             n = 0;
    for (int i = 0; i < 4000; i++) {
        int32_t token = cairn__sampler_pick(s, logits);
        assert_true(token == 100 || token == 200);
        n += token == 100;
    }
    assert_in_range(n, 3000 - 137, 3000 + 137);
    cairn__sampler_destroy(s);
}

static void top_k_top_p_and_min_p_narrow(void **state)
{
    (void)state;
    flat(-20.0f);
    logits[10] = 5.0f;
    logits[11] = 4.9f;
    logits[12] = 1.0f;
    cairn__sampling cases[] = {{.temperature = 2.0f, .top_k = 2, .seed = 1},
                               {.temperature = 2.0f, .top_p = 0.9f, .seed = 1},
                               {.temperature = 2.0f, .min_p = 0.5f, .seed = 1}};
    for (int k = 0; k < 3; k++) {
        cairn__sampler *s = sampler_with(cases[k], NULL, 0);
        bool            seen[2] = {false, false};
        for (int i = 0; i < 200; i++) {
            int32_t token = cairn__sampler_pick(s, logits);
            assert_in_range(token, 10, 11);
            seen[token - 10] = true;
        }
        assert_true(seen[0] && seen[1]);
        cairn__sampler_destroy(s);
    }
}

static void presence_and_frequency_count_what_was_generated(void **state)
{
    (void)state;
    flat(0.0f);
    logits[7] = 1.0f;
    logits[8] = 0.75f;
    static const int32_t prompt[3] = {7, 7, 7}; /* does not count */
    cairn__sampler      *s = sampler_with((cairn__sampling){.presence_penalty = 0.5f}, prompt, 3);
    assert_int_equal(cairn__sampler_pick(s, logits), 7); /* 7: 1.0 -> 0.5 */
    assert_int_equal(cairn__sampler_pick(s, logits), 8); /* 8: 0.75 -> 0.25 */
    assert_int_equal(cairn__sampler_pick(s, logits), 7); /* said twice, punished once */
    assert_int_equal(cairn__sampler_pick(s, logits), 7);
    cairn__sampler_destroy(s);
    s = sampler_with((cairn__sampling){.frequency_penalty = 0.125f}, prompt, 3);
    static const int32_t expected[6] = {7, 7, 7, 8, 7, 8}; /* 1, .875, .75=.75 -> 7, .75 > .625, .625=.625 -> 7 */
    for (int i = 0; i < 6; i++)
        assert_int_equal(cairn__sampler_pick(s, logits), expected[i]);
    cairn__sampler_destroy(s);
}

static void repeat_penalty_looks_back_64_tokens_into_the_prompt(void **state)
{
    (void)state;
    flat(-4.0f);
    logits[7] = 3.0f;
    logits[8] = 2.0f;
    int32_t prompt[65];
    for (int i = 0; i < 65; i++)
        prompt[i] = 9;
    prompt[0] = 7; /* one too far back */
    cairn__sampler *s = sampler_with((cairn__sampling){.repeat_penalty = 2.0f}, prompt, 65);
    assert_int_equal(cairn__sampler_pick(s, logits), 7);
    assert_int_equal(cairn__sampler_pick(s, logits), 8); /* 7: 1.5 */
    assert_int_equal(cairn__sampler_pick(s, logits), 7); /* 8: 1.0; 7 stands twice, halved once */
    cairn__sampler_destroy(s);
    logits[7] = -3.0f; /* a negative logit moves away from zero */
    s = sampler_with((cairn__sampling){.repeat_penalty = 2.0f}, (int32_t[]){7, 8}, 2);
    logits[8] = -3.5f; /* -6 and -7, the rest -4 */
    assert_int_equal(cairn__sampler_pick(s, logits), 0);
    cairn__sampler_destroy(s);
}

static void bias_and_ban(void **state)
{
    (void)state;
    flat(0.0f);
    int32_t eog = 0;
    while (!cairn__token_is_eog(rt, eog))
        eog++;
    logits[eog] = 9.0f;
    cairn__logit_bias bias[] = {{1234, 5.0f}, {1235, -100.0f}, {-1, 50.0f}, {1 << 30, 50.0f}};
    cairn__sampler   *s = sampler_with((cairn__sampling){.logit_bias = bias, .n_logit_bias = 4}, NULL, 0);
    assert_int_equal(cairn__sampler_pick(s, logits), eog);
    cairn__sampler_destroy(s);
    s = sampler_with((cairn__sampling){.logit_bias = bias, .n_logit_bias = 4, .ban_eog = true}, NULL, 0);
    assert_int_equal(cairn__sampler_pick(s, logits), 1234);
    cairn__sampler_destroy(s);
}

static void nothing_allowed_is_minus_one(void **state)
{
    (void)state;
    flat(-INFINITY);
    for (int greedy = 0; greedy < 2; greedy++) {
        cairn__sampler *s = sampler_with((cairn__sampling){.temperature = greedy ? 0.0f : 1.0f}, NULL, 0);
        assert_int_equal(cairn__sampler_pick(s, logits), -1);
        cairn__sampler_destroy(s);
    }
}

/* Picks until the end of generation; the text goes to out. */
static void write_under(cairn__sampler *s, uint64_t seed, char *out, size_t out_size)
{
    size_t size = 0;
    for (int i = 0; i < 60; i++) {
        noise(seed + (uint64_t)i);
        int32_t token = cairn__sampler_pick(s, logits);
        assert_true(token >= 0);
        if (cairn__token_is_eog(rt, token))
            break;
        size += cairn__token_piece(rt, token, false, out + size, out_size - size - 1);
    }
    out[size] = 0;
}

static void a_grammar_is_never_broken(void **state)
{
    (void)state;
    if (!rt)
        test_skip();
    for (int i = 0; i < 6; i++) {
        char            text[512];
        cairn__sampling params = {.temperature = i % 2 ? 1.5f : 0.0f,
                                  .seed = (uint32_t)i,
                                  .top_k = i % 3 ? 40 : 0,
                                  .grammar = "root ::= \"[\" [0-9]{1,3} (\", \" [0-9]{1,3}){2} \"]\""};
        cairn__sampler *s = sampler_with(params, NULL, 0);
        write_under(s, 100 + (uint64_t)i, text, sizeof text);
        int a, b, c, used = 0;
        assert_int_equal(sscanf(text, "[%3d, %3d, %3d]%n", &a, &b, &c, &used), 3);
        assert_int_equal(used, strlen(text));
        cairn__sampler_destroy(s);
    }
}

static void a_finished_grammar_with_the_end_banned_allows_nothing(void **state)
{
    (void)state;
    noise(5);
    cairn__sampler *s = sampler_with((cairn__sampling){.grammar = "root ::= \"a\"", .ban_eog = true}, NULL, 0);
    assert_true(cairn__sampler_pick(s, logits) >= 0);
    assert_int_equal(cairn__sampler_pick(s, logits), -1);
    cairn__sampler_destroy(s);
}

static int32_t token_of(const char *text)
{
    int32_t *tokens = NULL, token;
    uint32_t n = 0;
    assert_int_equal(cairn__tokenize(rt, text, strlen(text), false, true, &tokens, &n), CAIRN_OK);
    assert_int_equal(n, 1);
    token = tokens[0];
    free(tokens);
    return token;
}

static void a_lazy_grammar_sleeps_until_its_trigger(void **state)
{
    (void)state;
    flat(0.0f);
    static const char *const patterns[] = {"call"};
    int32_t                  call = token_of("call"), hello = token_of("hello");
    cairn__sampling          params = {.grammar = "root ::= \"call\" \"1\"",
                                       .grammar_lazy = true,
                                       .trigger_patterns = patterns,
                                       .n_trigger_patterns = 1};
    cairn__sampler          *s = sampler_with(params, NULL, 0);
    logits[hello] = 5.0f;
    for (int i = 0; i < 3; i++)
        assert_int_equal(cairn__sampler_pick(s, logits), hello);
    logits[call] = 6.0f;
    assert_int_equal(cairn__sampler_pick(s, logits), call);
    assert_int_equal(cairn__sampler_pick(s, logits), token_of("1"));
    assert_true(cairn__token_is_eog(rt, cairn__sampler_pick(s, logits)));
    cairn__sampler_destroy(s);
}

static void a_trigger_token_wakes_it_too(void **state)
{
    (void)state;
    flat(0.0f);
    int32_t         trigger = token_of("<|im_start|>"), hello = token_of("hello");
    cairn__sampling params = {.grammar = "root ::= \"<|im_start|>\" \"1\"",
                              .grammar_lazy = true,
                              .trigger_tokens = &trigger,
                              .n_trigger_tokens = 1};
    cairn__sampler *s = sampler_with(params, NULL, 0);
    logits[hello] = 5.0f;
    assert_int_equal(cairn__sampler_pick(s, logits), hello);
    logits[trigger] = 6.0f;
    assert_int_equal(cairn__sampler_pick(s, logits), trigger);
    assert_int_equal(cairn__sampler_pick(s, logits), token_of("1"));
    cairn__sampler_destroy(s);
}

/* The grammar can't swallow the text that woke it; llama.cpp throws there. */
static void a_trigger_that_its_grammar_refuses_ends_nothing(void **state)
{
    (void)state;
    flat(0.0f);
    static const char *const patterns[] = {"hello"};
    int32_t                  hello = token_of("hello");
    cairn__sampling          params = {
                 .grammar = "root ::= \"x\"", .grammar_lazy = true, .trigger_patterns = patterns, .n_trigger_patterns = 1};
    cairn__sampler *s = sampler_with(params, NULL, 0);
    logits[hello] = 5.0f;
    for (int i = 0; i < 3; i++)
        assert_int_equal(cairn__sampler_pick(s, logits), hello);
    cairn__sampler_destroy(s);
}

static void text_without_a_trigger_may_be_long(void **state)
{
    (void)state;
    flat(0.0f);
    static const char *const patterns[] = {"^(?:[\\s\\S]*?)(<tool_call>)[\\s\\S]*$"};
    int32_t                  hello = token_of("hello");
    cairn__sampling          params = {.grammar = "root ::= \"<tool_call>\"",
                                       .grammar_lazy = true,
                                       .trigger_patterns = patterns,
                                       .n_trigger_patterns = 1};
    cairn__sampler          *s = sampler_with(params, NULL, 0);
    logits[hello] = 5.0f;
    for (int i = 0; i < 2000; i++)
        assert_int_equal(cairn__sampler_pick(s, logits), hello);
    cairn__sampler_destroy(s);
}

static void a_grammar_can_begin_in_the_prompt(void **state)
{
    (void)state;
    flat(0.0f);
    int32_t        *prompt = NULL;
    uint32_t        n = 0;
    cairn__sampler *s = NULL;
    assert_int_equal(cairn__tokenize(rt, "hello<|im_end|>call", 19, false, true, &prompt, &n), CAIRN_OK);
    assert_int_equal(n, 3);
    cairn__sampling params = {.grammar = "root ::= \"call\" \"1\"", .n_grammar_prompt = 1};
    s = sampler_with(params, prompt, n);
    assert_int_equal(cairn__sampler_pick(s, logits), token_of("1"));
    cairn__sampler_destroy(s);
    for (params.n_grammar_prompt = 2; params.n_grammar_prompt <= 4; params.n_grammar_prompt++) {
        s = NULL; /* an end in the wrong place, other text, more than there is */
        assert_int_equal(cairn__sampler_create(rt, &params, prompt, n, &s), CAIRN_EINVAL);
        assert_null(s);
    }
    free(prompt);
}

static void what_does_not_parse_is_refused(void **state)
{
    (void)state;
    flat(0.0f);
    static const char *const bad_pattern[] = {"(["};
    cairn__sampling          cases[] = {
                 {.grammar = "root ::= ("},
                 {.grammar = "nothing here"},
                 {.grammar = "root ::= missing"},
                 {.grammar = "root ::= \"a\"", .grammar_lazy = true, .trigger_patterns = bad_pattern, .n_trigger_patterns = 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cairn__sampler *s = NULL;
        assert_int_equal(cairn__sampler_create(rt, &cases[i], NULL, 0, &s), CAIRN_EINVAL);
        assert_null(s);
    }
}

static void logprobs_equal_a_naive_sum(void **state)
{
    (void)state;
    noise(9);
    logits[77] = logits[78] = 40.0f; /* equal: the lower id first */
    logits[40000] = 41.0f;
    long double sum = 0.0L;
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += expl((long double)logits[i]);
    cairn__logprob top[20];
    cairn__logprob one = cairn__logprobs(logits, n_vocab, 123, top, 20);
    assert_int_equal(one.token, 123);
    assert_true(fabsl((long double)one.logprob - ((long double)logits[123] - logl(sum))) < 4e-6L);
    assert_int_equal(top[0].token, 40000);
    assert_int_equal(top[1].token, 77);
    assert_int_equal(top[2].token, 78);
    for (int i = 0; i < 20; i++) {
        long double exact = (long double)logits[top[i].token] - logl(sum);
        assert_true(fabsl((long double)top[i].logprob - exact) < 4e-6L);
        uint32_t n_better = 0;
        for (uint32_t t = 0; t < n_vocab; t++)
            n_better += logits[t] > logits[top[i].token];
        assert_true(n_better <= (uint32_t)i);
        assert_true(i == 0 || top[i].logprob <= top[i - 1].logprob);
    }
    cairn__logprob again[20];
    cairn__logprobs(logits, n_vocab, 123, again, 20);
    assert_memory_equal(top, again, sizeof top);
    cairn__logprob few[5];
    cairn__logprobs(logits, n_vocab, 123, few, 5);
    assert_memory_equal(top, few, sizeof few);
}

static void logprobs_of_huge_logits_do_not_overflow(void **state)
{
    (void)state;
    flat(-1e30f);
    logits[3] = 3e38f;
    logits[4] = 3e38f;
    cairn__logprob top[2];
    cairn__logprob one = cairn__logprobs(logits, n_vocab, 4, top, 2);
    assert_true(fabsf(one.logprob + logf(2.0f)) < 1e-6f);
    assert_int_equal(top[0].token, 3);
    cairn__logprobs(logits, n_vocab, 4, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_best_and_the_lower_of_equals),
        cmocka_unit_test(a_seed_decides),
        cmocka_unit_test(frequencies_follow_the_probabilities),
        cmocka_unit_test(top_k_top_p_and_min_p_narrow),
        cmocka_unit_test(presence_and_frequency_count_what_was_generated),
        cmocka_unit_test(repeat_penalty_looks_back_64_tokens_into_the_prompt),
        cmocka_unit_test(bias_and_ban),
        cmocka_unit_test(nothing_allowed_is_minus_one),
        cmocka_unit_test(a_grammar_is_never_broken),
        cmocka_unit_test(a_finished_grammar_with_the_end_banned_allows_nothing),
        cmocka_unit_test(a_lazy_grammar_sleeps_until_its_trigger),
        cmocka_unit_test(a_trigger_token_wakes_it_too),
        cmocka_unit_test(a_trigger_that_its_grammar_refuses_ends_nothing),
        cmocka_unit_test(text_without_a_trigger_may_be_long),
        cmocka_unit_test(a_grammar_can_begin_in_the_prompt),
        cmocka_unit_test(what_does_not_parse_is_refused),
        cmocka_unit_test(logprobs_equal_a_naive_sum),
        cmocka_unit_test(logprobs_of_huge_logits_do_not_overflow),
    };
    return test_exit_code(cmocka_run_group_tests(tests, setup, teardown));
}
