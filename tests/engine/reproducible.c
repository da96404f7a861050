/* --reproducible: the answer to a request has the same bits whatever the engine
 * did before. Compared are the tokens, the text and the log-probabilities (the
 * top 20 of every token, as bits), which are a function of the logits alone.
 *
 * The control runs the same comparison in the default mode and must see it fail:
 * else equal bits here would prove nothing. */
#include "harness.h"

#define GRID 32u
#define N_PROMPT 150u
#define N_ANSWER 12u

static const cairn__runtime_options reproducible = {.n_ctx = 512, .n_batch = GRID, .reproducible = true};
static const cairn__runtime_options ordinary = {.n_ctx = 512, .n_batch = GRID, .n_seq = 2};

static outcome *ask(harness *h, const int32_t *tokens, uint32_t n)
{
    cairn__job job = {.tokens = tokens,
                      .n_tokens = n,
                      .max_tokens = N_ANSWER,
                      .ignore_eos = true,
                      .want_logprobs = true,
                      .n_top_logprobs = 20};
    outcome   *o = harness_run(h, &job);
    assert_int_equal(o->last.type, CAIRN__EVENT_END);
    assert_int_equal(o->n_infos, N_ANSWER);
    return o;
}

/* What a new engine answers. */
static outcome *ask_cold(const int32_t *tokens, uint32_t n)
{
    harness h;
    harness_open(&h, reproducible, 4);
    outcome *o = ask(&h, tokens, n);
    assert_int_equal(o->last.n_cached, 0);
    harness_close(&h);
    return o;
}

static bool same_bits(const outcome *a, const outcome *b)
{
    return a->text_size == b->text_size && memcmp(a->text, b->text, a->text_size) == 0 &&
           memcmp(a->infos, b->infos, N_ANSWER * sizeof *a->infos) == 0;
}

/* Asks, checks how much was reused, and compares with the cold answer. */
static void assert_same(harness *h, const int32_t *tokens, uint32_t n, uint32_t n_cached, const outcome *cold)
{
    outcome *o = ask(h, tokens, n);
    assert_int_equal(o->last.n_cached, n_cached);
    assert_true(same_bits(o, cold));
    outcome_destroy(o);
}

static harness *opened(void **state)
{
    static harness h;
    (void)state;
    harness_open(&h, reproducible, 4);
    return &h;
}

static void the_same_again_and_after_others(void **state)
{
    harness *h = opened(state);
    int32_t *tokens = made_up_tokens(h, N_PROMPT, 0, 1), *other = made_up_tokens(h, 90, 0, 2);
    outcome *cold = ask_cold(tokens, N_PROMPT);
    assert_same(h, tokens, N_PROMPT, 0, cold);
    assert_same(h, tokens, N_PROMPT, 128, cold);
    outcome_destroy(ask(h, other, 90));
    assert_same(h, tokens, N_PROMPT, 0, cold); /* the other one took all cells */
    assert_same(h, tokens, N_PROMPT, 128, cold);
    outcome_destroy(cold);
    free(tokens);
    free(other);
    harness_close(h);
}

static void after_a_partial_reuse(void **state)
{
    harness *h = opened(state);
    int32_t *a = made_up_tokens(h, N_PROMPT, 75, 1), *b = made_up_tokens(h, N_PROMPT, 75, 2);
    outcome *cold_a = ask_cold(a, N_PROMPT), *cold_b = ask_cold(b, N_PROMPT);
    assert_same(h, a, N_PROMPT, 0, cold_a);
    assert_same(h, b, N_PROMPT, 64, cold_b);
    assert_same(h, a, N_PROMPT, 64, cold_a);
    outcome_destroy(cold_a);
    outcome_destroy(cold_b);
    free(a);
    free(b);
    harness_close(h);
}

/* The answer's KV was computed token by token; the next turn computes it again. */
static void after_a_turn_of_conversation(void **state)
{
    harness *h = opened(state);
    int32_t *tokens = made_up_tokens(h, 2 * N_PROMPT, 0, 3);
    outcome *first = ask(h, tokens, N_PROMPT);
    for (uint32_t i = 0; i < N_ANSWER; i++)
        tokens[N_PROMPT + i] = first->infos[i].token;
    outcome *cold = ask_cold(tokens, 200);
    assert_same(h, tokens, 200, 128, cold);
    assert_same(h, tokens, 200, 192, cold);
    outcome_destroy(first);
    outcome_destroy(cold);
    free(tokens);
    harness_close(h);
}

static void at_the_edges_of_the_grid(void **state)
{
    static const struct {
        uint32_t n, again;
    } cases[] = {{GRID - 1, 0}, {GRID, 0}, {GRID + 1, GRID}, {2 * GRID, GRID}, {2 * GRID + 1, 2 * GRID}};
    harness *h = opened(state);
    int32_t *tokens = made_up_tokens(h, N_PROMPT, 0, 4), *other = made_up_tokens(h, 20, 0, 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        outcome *cold = ask_cold(tokens, cases[i].n);
        outcome_destroy(ask(h, other, 20));
        assert_same(h, tokens, cases[i].n, 0, cold);
        assert_same(h, tokens, cases[i].n, cases[i].again, cold);
        outcome_destroy(cold);
    }
    free(tokens);
    free(other);
    harness_close(h);
}

static bool begun(const outcome *o)
{
    return o->n_done >= 2 * GRID;
}

static void after_a_client_that_left(void **state)
{
    harness   *h = opened(state);
    int32_t   *tokens = made_up_tokens(h, N_PROMPT, 0, 6);
    outcome   *cold = ask_cold(tokens, N_PROMPT);
    cairn__job job = {.tokens = tokens, .n_tokens = N_PROMPT, .max_tokens = N_ANSWER, .ignore_eos = true};
    outcome   *gone = harness_submit(h, &job);
    outcome_wait_for(gone, begun);
    cairn__engine_cancel(h->engine, gone->id);
    outcome_wait(gone);
    assert_int_equal(gone->last.finish, CAIRN__FINISH_CANCELED);
    assert_in_range(gone->last.n_done, 2 * GRID, 4 * GRID);
    assert_same(h, tokens, N_PROMPT, gone->last.n_done, cold);
    outcome_destroy(gone);
    outcome_destroy(cold);
    free(tokens);
    harness_close(h);
}

static void sampled_answers_too(void **state)
{
    harness   *h = opened(state);
    int32_t   *tokens = made_up_tokens(h, N_PROMPT, 0, 7);
    cairn__job job = {.tokens = tokens,
                      .n_tokens = N_PROMPT,
                      .max_tokens = N_ANSWER,
                      .ignore_eos = true,
                      .want_logprobs = true,
                      .sampling = {.temperature = 1.2f, .top_p = 0.95f, .seed = 77, .presence_penalty = 0.5f}};
    outcome   *a = harness_run(h, &job), *b = harness_run(h, &job);
    job.sampling.seed = 78;
    outcome *c = harness_run(h, &job);
    assert_true(same_bits(a, b));
    assert_false(same_bits(a, c));
    outcome_destroy(a);
    outcome_destroy(b);
    outcome_destroy(c);
    free(tokens);
    harness_close(h);
}

static void control_the_default_mode_is_seen_to_differ(void **state)
{
    (void)state;
    harness  h;
    uint32_t n_different = 0;
    harness_open(&h, ordinary, 4);
    for (uint32_t i = 0; i < 4; i++) {
        int32_t *tokens = made_up_tokens(&h, N_PROMPT, 0, 30 + i);
        outcome *first = ask(&h, tokens, N_PROMPT), *again = ask(&h, tokens, N_PROMPT);
        assert_int_equal(again->last.n_cached, N_PROMPT - 1);
        n_different += !same_bits(first, again);
        outcome_destroy(first);
        outcome_destroy(again);
        free(tokens);
    }
    assert_true(n_different > 0);
    harness_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_again_and_after_others),
        cmocka_unit_test(after_a_partial_reuse),
        cmocka_unit_test(after_a_turn_of_conversation),
        cmocka_unit_test(at_the_edges_of_the_grid),
        cmocka_unit_test(after_a_client_that_left),
        cmocka_unit_test(sampled_answers_too),
        cmocka_unit_test(control_the_default_mode_is_seen_to_differ),
    };
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
