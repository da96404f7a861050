/* A runtime that fails now and then: the request is computed once more from
 * nothing, and only a runtime that goes on failing fails it. cairn__decode() is
 * wrapped by the linker; the real model does the rest. */
#include "harness.h"

#define N 200u

static _Atomic int      fail_at, fail_count; /* call number from 1; how many from there */
static _Atomic int      n_calls;
static cairn_status     failure;
static harness         *leaves; /* the client of job leaving_id leaves during the call that fails */
static _Atomic uint64_t leaving_id;

cairn_status __real_cairn__decode(cairn__runtime *rt, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t pos,
                                  bool want_logits);
cairn_status __wrap_cairn__decode(cairn__runtime *rt, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t pos,
                                  bool want_logits);

static void leave(void)
{
    for (int i = 0; i < 5000 && leaving_id == 0; i++)
        usleep(1000);
    cairn__engine_cancel(leaves->engine, leaving_id);
}

cairn_status __wrap_cairn__decode(cairn__runtime *rt, uint32_t seq, const int32_t *tokens, uint32_t n, uint32_t pos,
                                  bool want_logits)
{
    int call = ++n_calls;
    if (call >= fail_at && call < fail_at + fail_count) {
        if (leaves)
            leave();
        return failure;
    }
    return __real_cairn__decode(rt, seq, tokens, n, pos, want_logits);
}

static void fail_calls(int at, int count, cairn_status status)
{
    n_calls = 0;
    failure = status;
    fail_at = at;
    fail_count = count;
}

static void open_engine(harness *h, bool reproducible)
{
    fail_calls(0, 0, CAIRN_OK);
    harness_open(h, (cairn__runtime_options){.n_ctx = 512, .n_batch = 64, .n_seq = 2, .reproducible = reproducible}, 4);
}

static void assert_same_answer(const outcome *a, const outcome *b)
{
    assert_int_equal(a->last.type, CAIRN__EVENT_END);
    assert_int_equal(a->n_infos, 6);
    assert_int_equal(b->n_infos, 6);
    assert_memory_equal(a->infos, b->infos, 6 * sizeof *a->infos);
}

/* Calls of a cold request: 64, 64, 64, 8 tokens, then one token each. */
static void one_failure_in_the_prefill_costs_time_only(void **state)
{
    (void)state;
    static const cairn_status failures[] = {CAIRN_ERUNTIME, CAIRN_EBUSY};
    harness                   h;
    open_engine(&h, true);
    int32_t *tokens = made_up_tokens(&h, N, 0, 1), *other = made_up_tokens(&h, 20, 0, 2);
    outcome *cold = harness_ask(&h, tokens, N);
    for (int at = 1; at <= 4; at++) {
        for (int k = 0; k < 2; k++) {
            outcome_destroy(harness_ask(&h, other, 20));
            fail_calls(at, 1, failures[k]);
            outcome *o = harness_ask(&h, tokens, N);
            assert_int_equal(n_calls, at + 4 + 5);
            assert_int_equal(o->last.n_cached, 0);
            assert_same_answer(o, cold);
            outcome_destroy(o);
        }
    }
    assert_true(harness_logged("computing it from nothing"));
    fail_calls(1, 1, CAIRN_ERUNTIME); /* the resident beginning is not trusted after a failure */
    outcome *o = harness_ask(&h, tokens, N);
    assert_int_equal(o->last.n_cached, 0);
    assert_same_answer(o, cold);
    outcome_destroy(o);
    outcome_destroy(cold);
    free(tokens);
    free(other);
    harness_close(&h);
}

static void a_runtime_that_goes_on_failing_fails_the_request(void **state)
{
    (void)state;
    harness h;
    open_engine(&h, false);
    int32_t *tokens = made_up_tokens(&h, N, 0, 3);
    fail_calls(2, 1000, CAIRN_ERUNTIME);
    outcome *o = harness_ask(&h, tokens, N);
    assert_int_equal(o->last.type, CAIRN__EVENT_ERROR);
    assert_int_equal(o->last.status, CAIRN_ERUNTIME);
    assert_int_equal(n_calls, 3); /* one more try, from the start */
    outcome_destroy(o);
    fail_calls(0, 0, CAIRN_OK);
    o = harness_ask(&h, tokens, N);
    assert_int_equal(o->last.type, CAIRN__EVENT_END);
    assert_int_equal(o->last.n_cached, 0); /* nothing of the failed one is believed */
    outcome_destroy(o);
    free(tokens);
    harness_close(&h);
}

static void a_failure_in_the_answer_goes_on_where_it_was(void **state)
{
    (void)state;
    harness h;
    open_engine(&h, false);
    int32_t *tokens = made_up_tokens(&h, N, 0, 4);
    outcome *whole = harness_ask(&h, tokens, N);
    cairn__engine_stop(h.engine, 1000);
    cairn__engine_destroy(h.engine);
    open_engine(&h, false);
    fail_calls(7, 1, CAIRN_ERUNTIME); /* the third token of the answer */
    outcome *o = harness_ask(&h, tokens, N);
    assert_int_equal(o->last.type, CAIRN__EVENT_END);
    assert_int_equal(o->last.n_generated, 6);
    assert_int_equal(o->n_infos, 6);
    assert_memory_equal(o->infos, whole->infos, 3 * sizeof *o->infos); /* what was said stays said */
    outcome_destroy(whole);
    outcome_destroy(o);
    free(tokens);
    harness_close(&h);
}

/* Computed in one call its bits would be others. */
static void a_failure_in_a_reproducible_answer_ends_it(void **state)
{
    (void)state;
    harness h;
    open_engine(&h, true);
    int32_t *tokens = made_up_tokens(&h, N, 0, 5);
    outcome *cold = harness_ask(&h, tokens, N);
    fail_calls(4, 1, CAIRN_ERUNTIME); /* 8 tokens, then the answer's second */
    outcome *o = harness_ask(&h, tokens, N);
    assert_int_equal(o->last.type, CAIRN__EVENT_ERROR);
    outcome_destroy(o);
    fail_calls(0, 0, CAIRN_OK);
    o = harness_ask(&h, tokens, N);
    assert_same_answer(o, cold);
    outcome_destroy(o);
    outcome_destroy(cold);
    free(tokens);
    harness_close(&h);
}

static void no_room_frees_the_idle_first(void **state)
{
    (void)state;
    harness h;
    open_engine(&h, false);
    int32_t *a = made_up_tokens(&h, 100, 0, 6), *b = made_up_tokens(&h, 100, 0, 7);
    outcome_destroy(harness_ask(&h, a, 100));
    fail_calls(2, 1, CAIRN_EBUSY);
    outcome *o = harness_ask(&h, b, 100);
    assert_int_equal(o->last.type, CAIRN__EVENT_END);
    assert_int_equal(n_calls, 2 + 1 + 5); /* the call was repeated, nothing was computed again */
    assert_false(harness_logged("from nothing"));
    outcome_destroy(o);
    o = harness_ask(&h, a, 100);
    assert_int_equal(o->last.n_cached, 0); /* it had to go */
    outcome_destroy(o);
    free(a);
    free(b);
    harness_close(&h);
}

/* What a runtime with recurrent state reports when its call is aborted: the state
 * can't be rolled back. That is no failure, and costs that one sequence alone. */
static void a_client_that_leaves_costs_its_own_sequence_only(void **state)
{
    (void)state;
    static const int    calls[] = {2, 6}; /* in the prefill, in the answer */
    harness             h;
    cairn__engine_stats stats;
    for (int k = 0; k < 2; k++) {
        open_engine(&h, false);
        int32_t *stays = made_up_tokens(&h, 100, 0, 8), *tokens = made_up_tokens(&h, N, 0, 9);
        outcome_destroy(harness_ask(&h, stays, 100));
        leaving_id = 0;
        leaves = &h;
        fail_calls(calls[k], 1, CAIRN_ERUNTIME);
        outcome *o =
            harness_submit(&h, &(cairn__job){.tokens = tokens, .n_tokens = N, .max_tokens = 6, .ignore_eos = true});
        leaving_id = o->id;
        outcome_wait(o);
        leaves = NULL;
        assert_int_equal(o->last.type, CAIRN__EVENT_END);
        assert_int_equal(o->last.finish, CAIRN__FINISH_CANCELED);
        assert_int_equal(n_calls, calls[k]);
        assert_false(harness_logged("failed"));
        outcome_destroy(o);
        o = harness_ask(&h, stays, 100);
        assert_int_equal(o->last.n_cached, 99);
        outcome_destroy(o);
        o = harness_ask(&h, tokens, N);
        assert_int_equal(o->last.n_cached, 0); /* nothing of the aborted one is believed */
        outcome_destroy(o);
        cairn__engine_get_stats(h.engine, &stats);
        assert_int_equal(stats.jobs_failed, 0);
        assert_int_equal(stats.jobs_canceled, 1);
        free(stays);
        free(tokens);
        harness_close(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_failure_in_the_prefill_costs_time_only),
        cmocka_unit_test(a_runtime_that_goes_on_failing_fails_the_request),
        cmocka_unit_test(a_failure_in_the_answer_goes_on_where_it_was),
        cmocka_unit_test(a_failure_in_a_reproducible_answer_ends_it),
        cmocka_unit_test(no_room_frees_the_idle_first),
        cmocka_unit_test(a_client_that_leaves_costs_its_own_sequence_only),
    };
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
