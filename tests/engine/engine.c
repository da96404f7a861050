/* The engine on a real model: queue, cancelling, sharing, ends. */
#include "harness.h"

#define QUESTION "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"

static int setup(void **state)
{
    harness *h = calloc(1, sizeof *h);
    assert_non_null(h);
    if (test_model())
        harness_open(h, (cairn__runtime_options){.n_ctx = 512, .n_batch = 64, .n_seq = 3}, 2);
    *state = h;
    return 0;
}

static int teardown(void **state)
{
    harness *h = *state;
    if (h->engine)
        harness_close(h);
    free(h);
    return 0;
}

static harness *engine_of(void **state)
{
    harness *h = *state;
    if (!h->engine)
        test_skip();
    return h;
}

static void an_answer_is_text_and_ends(void **state)
{
    harness   *h = engine_of(state);
    cairn__job job = {.max_tokens = 60};
    int32_t   *tokens = tokens_of(h, QUESTION, &job.n_tokens);
    job.tokens = tokens;
    outcome *o = harness_run(h, &job);
    assert_int_equal(o->last.type, CAIRN__EVENT_END);
    assert_int_equal(o->last.finish, CAIRN__FINISH_STOP);
    assert_int_equal(o->last.n_prompt, job.n_tokens);
    assert_int_equal(o->last.n_cached, 0);
    assert_int_equal(o->last.miss, CAIRN_MISS_TIER_OFF);
    assert_in_range(o->last.n_generated, 1, 59);
    assert_true(o->text_size > 0);
    assert_null(strstr(o->text, "<|im_end|>"));
    assert_in_range(o->last.ttft_ns, 1, 60000000000ull);
    outcome_destroy(o);
    free(tokens);
}

static void the_same_prompt_again_computes_one_token(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *tokens = made_up_tokens(h, 200, 0, 1);
    cairn__job job = {.tokens = tokens, .n_tokens = 200, .max_tokens = 8, .ignore_eos = true};
    outcome   *first = harness_run(h, &job), *again = harness_run(h, &job);
    assert_int_equal(first->last.n_cached, 0);
    assert_int_equal(again->last.n_cached, 199);
    assert_int_equal(again->last.from_store, 0);
    assert_int_equal(again->last.miss, CAIRN_MISS_NONE);
    assert_int_equal(again->last.n_generated, 8);
    outcome_destroy(first);
    outcome_destroy(again);
    free(tokens);
}

/* Two questions under one beginning; both conversations stay resident. */
static void a_fork_shares_and_spares_its_source(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *a = made_up_tokens(h, 200, 150, 1), *b = made_up_tokens(h, 200, 150, 2);
    cairn__job job = {.tokens = a, .n_tokens = 200, .max_tokens = 4, .ignore_eos = true};
    outcome   *first = harness_run(h, &job);
    job.tokens = b;
    outcome *second = harness_run(h, &job);
    assert_int_equal(second->last.n_cached, 150);
    job.tokens = a;
    outcome *again = harness_run(h, &job);
    assert_int_equal(again->last.n_cached, 199);
    outcome_destroy(first);
    outcome_destroy(second);
    outcome_destroy(again);
    free(a);
    free(b);
}

/* Prompt and answer go on as the next prompt's beginning. */
static void a_conversation_goes_on_from_its_end(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *tokens = made_up_tokens(h, 300, 0, 3);
    cairn__job job = {.tokens = tokens, .n_tokens = 100, .max_tokens = 10, .ignore_eos = true, .want_logprobs = true};
    outcome   *first = harness_run(h, &job);
    assert_int_equal(first->n_infos, 10);
    for (uint32_t i = 0; i < 10; i++)
        tokens[100 + i] = first->infos[i].token;
    job.n_tokens = 150;
    outcome *second = harness_run(h, &job);
    assert_int_equal(second->last.n_cached, 109); /* the last token was shown, never decoded */
    outcome_destroy(first);
    outcome_destroy(second);
    free(tokens);
}

static void no_tokens_wanted_is_a_prefill(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *tokens = made_up_tokens(h, 100, 0, 4);
    cairn__job job = {.tokens = tokens, .n_tokens = 100};
    outcome   *o = harness_run(h, &job);
    assert_int_equal(o->last.type, CAIRN__EVENT_END);
    assert_int_equal(o->last.finish, CAIRN__FINISH_LENGTH);
    assert_int_equal(o->last.n_generated, 0);
    assert_int_equal(o->last.n_done, 100);
    assert_int_equal(o->n_texts, 0);
    assert_int_equal(o->n_prefills, 3); /* the start, 64, 100 */
    outcome *again = harness_run(h, &job);
    assert_int_equal(again->last.n_cached, 99);
    outcome_destroy(o);
    outcome_destroy(again);
    free(tokens);
}

static void the_answer_ends_at_the_end_of_the_context(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *tokens = made_up_tokens(h, 512, 0, 5);
    cairn__job job = {.tokens = tokens, .n_tokens = 508, .max_tokens = 100, .ignore_eos = true};
    outcome   *o = harness_run(h, &job);
    assert_int_equal(o->last.type, CAIRN__EVENT_END);
    assert_int_equal(o->last.finish, CAIRN__FINISH_LENGTH);
    assert_int_equal(o->last.n_generated, 4);
    job.n_tokens = 512;
    outcome *full = harness_run(h, &job);
    assert_int_equal(full->last.type, CAIRN__EVENT_ERROR);
    assert_int_equal(full->last.status, CAIRN_EINVAL);
    assert_string_equal(full->message, "prompt has 512 tokens, context is 512");
    outcome_destroy(o);
    outcome_destroy(full);
    free(tokens);
}

/* Three conversations fill the context; a fourth needs their cells. */
static void idle_sequences_give_way(void **state)
{
    harness   *h = engine_of(state);
    cairn__job job = {.n_tokens = 200, .max_tokens = 2, .ignore_eos = true};
    int32_t   *tokens[3];
    for (uint32_t i = 0; i < 3; i++) {
        tokens[i] = made_up_tokens(h, 200, 0, 20 + i);
        job.tokens = tokens[i];
        outcome *o = harness_run(h, &job);
        assert_int_equal(o->last.type, CAIRN__EVENT_END);
        outcome_destroy(o);
    }
    outcome *o = harness_run(h, &job); /* the third is there, the first had to go */
    assert_int_equal(o->last.n_cached, 199);
    outcome_destroy(o);
    job.tokens = tokens[0];
    o = harness_run(h, &job);
    assert_int_equal(o->last.n_cached, 0);
    outcome_destroy(o);
    for (uint32_t i = 0; i < 3; i++)
        free(tokens[i]);
}

static void wrong_input_is_refused(void **state)
{
    harness   *h = engine_of(state);
    int32_t    bad[2] = {5, 1 << 30};
    cairn__job job = {.tokens = bad, .n_tokens = 0, .max_tokens = 5};
    outcome   *empty = harness_run(h, &job);
    assert_int_equal(empty->last.status, CAIRN_EINVAL);
    job.n_tokens = 2;
    outcome *alien = harness_run(h, &job);
    assert_int_equal(alien->last.status, CAIRN_EINVAL);
    assert_non_null(strstr(alien->message, "1073741824"));
    job.n_tokens = 1;
    job.sampling.grammar = "root ::= (";
    outcome *grammar = harness_run(h, &job);
    assert_int_equal(grammar->last.status, CAIRN_EINVAL);
    assert_non_null(strstr(grammar->message, "grammar"));
    outcome_destroy(empty);
    outcome_destroy(alien);
    outcome_destroy(grammar);
}

static void a_stop_string_ends_the_answer(void **state)
{
    harness   *h = engine_of(state);
    cairn__job job = {.max_tokens = 60};
    int32_t   *tokens = tokens_of(h, QUESTION, &job.n_tokens);
    job.tokens = tokens;
    outcome *free_run = harness_run(h, &job);
    assert_true(free_run->text_size > 8);
    char stop[5] = ""; /* from the middle of what it says anyway; ASCII, so any cut is a character */
    memcpy(stop, free_run->text + 4, 4);
    const char *stops[] = {stop};
    job.stops = stops;
    job.n_stops = 1;
    outcome    *o = harness_run(h, &job);
    const char *at = strstr(free_run->text, stop);
    assert_int_equal(o->last.finish, CAIRN__FINISH_STOP);
    assert_int_equal(o->text_size, at - free_run->text);
    assert_memory_equal(o->text, free_run->text, o->text_size);
    assert_true(o->last.n_generated < free_run->last.n_generated);
    outcome_destroy(free_run);
    outcome_destroy(o);
    free(tokens);
}

static void a_grammar_forces_the_answer(void **state)
{
    harness   *h = engine_of(state);
    cairn__job job = {.max_tokens = 30, .sampling.grammar = "root ::= \"yes\" | \"no\""};
    int32_t   *tokens = tokens_of(h, QUESTION, &job.n_tokens);
    job.tokens = tokens;
    outcome *o = harness_run(h, &job);
    assert_int_equal(o->last.finish, CAIRN__FINISH_STOP);
    assert_true(strcmp(o->text, "yes") == 0 || strcmp(o->text, "no") == 0);
    outcome_destroy(o);
    free(tokens);
}

/* ---- cancelling ---- */

static bool half_done(const outcome *o)
{
    return o->n_done >= 128;
}

static void cancelling_in_the_middle_keeps_the_prefix(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *tokens = made_up_tokens(h, 320, 0, 6);
    cairn__job job = {.tokens = tokens, .n_tokens = 320, .max_tokens = 2, .ignore_eos = true};
    outcome   *o = harness_submit(h, &job);
    outcome_wait_for(o, half_done);
    cairn__engine_cancel(h->engine, o->id);
    outcome_wait(o);
    assert_int_equal(o->last.type, CAIRN__EVENT_END);
    assert_int_equal(o->last.finish, CAIRN__FINISH_CANCELED);
    assert_int_equal(o->n_texts, 0);
    assert_in_range(o->last.n_done, 128, 256);
    outcome *again = harness_run(h, &job);
    assert_int_equal(again->last.n_cached, o->last.n_done);
    assert_int_equal(again->last.n_generated, 2);
    outcome_destroy(o);
    outcome_destroy(again);
    free(tokens);
}

static void cancelling_an_answer_keeps_what_was_said(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *tokens = made_up_tokens(h, 64, 0, 7);
    cairn__job job = {.tokens = tokens, .n_tokens = 64, .max_tokens = 440, .ignore_eos = true};
    outcome   *o = harness_submit(h, &job);
    outcome_wait_for(o, outcome_has_text);
    cairn__engine_cancel(h->engine, o->id);
    outcome_wait(o);
    assert_int_equal(o->last.finish, CAIRN__FINISH_CANCELED);
    assert_in_range(o->last.n_generated, 1, 439);
    outcome *next = harness_run(h, &(cairn__job){.tokens = tokens, .n_tokens = 64});
    assert_int_equal(next->last.n_cached, 63);
    outcome_destroy(o);
    outcome_destroy(next);
    free(tokens);
}

static bool is_queued(const outcome *o)
{
    return o->n_queued > 0;
}

/* The request has left the queue. */
static void wait_until_running(harness *h)
{
    cairn__engine_stats stats;
    do {
        cairn__engine_get_stats(h->engine, &stats);
        usleep(1000);
    } while (!stats.running);
}

static void cancelling_a_queued_request_disturbs_nobody(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *a = made_up_tokens(h, 320, 0, 8), *b = made_up_tokens(h, 30, 0, 9);
    cairn__job long_job = {.tokens = a, .n_tokens = 320, .max_tokens = 3, .ignore_eos = true};
    cairn__job short_job = {.tokens = b, .n_tokens = 30, .max_tokens = 3, .ignore_eos = true};
    outcome   *running = harness_submit(h, &long_job);
    wait_until_running(h);
    outcome *second = harness_submit(h, &short_job), *third = harness_submit(h, &short_job);
    outcome_wait_for(third, is_queued);
    cairn__engine_cancel(h->engine, second->id);
    outcome_wait(second);
    assert_false(outcome_is_over(running)); /* its end did not wait for the long one */
    assert_int_equal(second->last.finish, CAIRN__FINISH_CANCELED);
    assert_int_equal(second->n_prefills, 0);
    outcome_wait(running);
    outcome_wait(third);
    assert_int_equal(running->last.finish, CAIRN__FINISH_LENGTH);
    assert_int_equal(running->last.n_generated, 3);
    assert_int_equal(third->last.n_generated, 3);
    assert_in_range(third->n_queued, 2, 3); /* it moved up when the second left */
    assert_int_equal(third->position, 0);
    cairn__engine_cancel(h->engine, third->id); /* over: ignored */
    cairn__engine_cancel(h->engine, 123456);
    outcome_destroy(running);
    outcome_destroy(second);
    outcome_destroy(third);
    free(a);
    free(b);
}

static void a_full_queue_says_so(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *tokens = made_up_tokens(h, 320, 0, 10);
    cairn__job job = {.tokens = tokens, .n_tokens = 320};
    outcome   *running = harness_submit(h, &job);
    wait_until_running(h);
    outcome *o[2] = {harness_submit(h, &job), harness_submit(h, &job)};
    outcome *refused = outcome_create(h);
    assert_int_equal(cairn__engine_submit(h->engine, &job, outcome_event, refused, &refused->id), CAIRN_EBUSY);
    cairn__engine_cancel(h->engine, running->id);
    for (int i = 0; i < 2; i++)
        cairn__engine_cancel(h->engine, o[i]->id);
    outcome_wait(running);
    for (int i = 0; i < 2; i++) {
        outcome_wait(o[i]);
        outcome_destroy(o[i]);
    }
    assert_int_equal(refused->n_ends, 0);
    outcome_destroy(running);
    outcome_destroy(refused);
    free(tokens);
}

/* ---- stopping ---- */

static void stopping_lets_the_running_one_finish(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *tokens = made_up_tokens(h, 128, 0, 11);
    cairn__job job = {.tokens = tokens, .n_tokens = 128, .max_tokens = 20, .ignore_eos = true};
    outcome   *running = harness_submit(h, &job), *queued = harness_submit(h, &job);
    outcome_wait_for(running, outcome_has_text);
    cairn__engine_stop(h->engine, 60000);
    assert_true(running->over);
    assert_int_equal(running->last.finish, CAIRN__FINISH_LENGTH);
    assert_int_equal(running->last.n_generated, 20);
    assert_true(queued->over);
    assert_int_equal(queued->last.type, CAIRN__EVENT_ERROR);
    assert_int_equal(queued->last.status, CAIRN_EBUSY);
    uint64_t id;
    assert_int_equal(cairn__engine_submit(h->engine, &job, outcome_event, queued, &id), CAIRN_EBUSY);
    outcome_destroy(running);
    outcome_destroy(queued);
    free(tokens);
}

static void stopping_has_a_limit(void **state)
{
    harness   *h = engine_of(state);
    int32_t   *tokens = made_up_tokens(h, 64, 0, 12);
    cairn__job job = {.tokens = tokens, .n_tokens = 64, .max_tokens = 440, .ignore_eos = true};
    outcome   *o = harness_submit(h, &job);
    outcome_wait_for(o, outcome_has_text);
    cairn__engine_stop(h->engine, 50);
    assert_true(o->over);
    assert_int_equal(o->last.finish, CAIRN__FINISH_CANCELED);
    assert_true(o->last.n_generated < 440);
    cairn__engine_stats stats;
    cairn__engine_get_stats(h->engine, &stats);
    assert_int_equal(stats.jobs, 1);
    assert_int_equal(stats.jobs_canceled, 1);
    assert_int_equal(stats.running, 0);
    outcome_destroy(o);
    free(tokens);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_is_text_and_ends),
        TEST(the_same_prompt_again_computes_one_token),
        TEST(a_fork_shares_and_spares_its_source),
        TEST(a_conversation_goes_on_from_its_end),
        TEST(no_tokens_wanted_is_a_prefill),
        TEST(the_answer_ends_at_the_end_of_the_context),
        TEST(idle_sequences_give_way),
        TEST(wrong_input_is_refused),
        TEST(a_stop_string_ends_the_answer),
        TEST(a_grammar_forces_the_answer),
        TEST(cancelling_in_the_middle_keeps_the_prefix),
        TEST(cancelling_an_answer_keeps_what_was_said),
        TEST(cancelling_a_queued_request_disturbs_nobody),
        TEST(a_full_queue_says_so),
        TEST(stopping_lets_the_running_one_finish),
        TEST(stopping_has_a_limit),
    };
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
