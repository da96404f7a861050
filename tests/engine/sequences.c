/* What a request makes of the resident sequences: pure plans. */
#include "testing.h"

#include "engine/estimate.h"
#include "engine/sequences.h"

#define N_CTX 1000u

static int32_t            system_a[1000], system_b[1000];
static const cairn_digest nobody;

/* Prompt: n tokens of `base`, then one token `last` if it is not 0. */
static uint32_t prompt(int32_t *out, const int32_t *base, uint32_t n, int32_t last)
{
    memcpy(out, base, n * sizeof *out);
    if (last)
        out[n++] = last;
    return n;
}

static void hold(cairn__sequences *seqs, uint32_t seq, const int32_t *tokens, uint32_t n_prompt, uint32_t n_generated)
{
    cairn__sequences_cut(seqs, seq, 0);
    cairn__sequences_append(seqs, seq, tokens, n_prompt);
    seqs->items[seq].n_prompt = n_prompt;
    for (uint32_t i = 0; i < n_generated; i++) {
        int32_t token = 900000 + (int32_t)i;
        cairn__sequences_append(seqs, seq, &token, 1);
    }
    cairn__sequences_touch(seqs, seq);
}

static int setup(void **state)
{
    for (int i = 0; i < 1000; i++) {
        system_a[i] = 1000 + i;
        system_b[i] = 5000 + i;
    }
    cairn__sequences *seqs = malloc(sizeof *seqs);
    assert_non_null(seqs);
    assert_int_equal(cairn__sequences_init(seqs, 3, N_CTX), CAIRN_OK);
    *state = seqs;
    return 0;
}

static int teardown(void **state)
{
    cairn__sequences_done(*state);
    free(*state);
    return 0;
}

static void assert_plan(cairn__sequence_plan plan, uint32_t seq, uint32_t keep, bool fork, uint32_t source)
{
    assert_int_equal(plan.seq, seq);
    assert_int_equal(plan.keep, keep);
    assert_int_equal(plan.fork, fork);
    if (fork)
        assert_int_equal(plan.source, source);
}

static void nothing_shared_takes_an_empty_sequence(void **state)
{
    cairn__sequences *seqs = *state;
    assert_plan(cairn__sequences_plan(seqs, &nobody, system_a, 50), 0, 0, false, 0);
    hold(seqs, 0, system_a, 50, 0);
    assert_plan(cairn__sequences_plan(seqs, &nobody, system_b, 50), 1, 0, false, 0);
}

static void nothing_shared_and_all_taken_takes_the_oldest(void **state)
{
    cairn__sequences    *seqs = *state;
    static const int32_t other[5] = {7, 7, 7, 7, 7};
    hold(seqs, 0, system_a, 50, 0);
    hold(seqs, 1, system_b, 50, 0);
    hold(seqs, 2, system_b + 100, 50, 0);
    cairn__sequences_touch(seqs, 0);
    assert_plan(cairn__sequences_plan(seqs, &nobody, other, 5), 1, 0, false, 0);
}

static void a_conversation_goes_on_in_place(void **state)
{
    cairn__sequences *seqs = *state;
    int32_t           next[200];
    hold(seqs, 1, system_a, 60, 10);
    memcpy(next, seqs->items[1].tokens, 70 * sizeof *next);
    next[70] = 42;
    assert_plan(cairn__sequences_plan(seqs, &nobody, next, 71), 1, 70, false, 0);
}

static void an_answer_that_came_back_changed_is_cut(void **state)
{
    cairn__sequences *seqs = *state;
    int32_t           next[200];
    hold(seqs, 1, system_a, 60, 10);
    memcpy(next, seqs->items[1].tokens, 64 * sizeof *next);
    next[64] = 42;
    assert_plan(cairn__sequences_plan(seqs, &nobody, next, 65), 1, 64, false, 0);
}

static void the_same_prompt_again_leaves_one_token(void **state)
{
    cairn__sequences *seqs = *state;
    hold(seqs, 2, system_a, 60, 10);
    assert_plan(cairn__sequences_plan(seqs, &nobody, system_a, 60), 2, 59, false, 0);
}

static void another_question_under_the_same_system_prompt_forks(void **state)
{
    cairn__sequences *seqs = *state;
    int32_t           first[100], second[100];
    uint32_t          n = prompt(first, system_a, 40, 1);
    memcpy(first + n, system_b, 20 * sizeof *first);
    hold(seqs, 0, first, n + 20, 5);
    n = prompt(second, system_a, 40, 2);
    assert_plan(cairn__sequences_plan(seqs, &nobody, second, n), 1, 40, true, 0);
}

/* A branch from an early turn must not destroy the long conversation. */
static void a_prefix_of_a_longer_prompt_forks(void **state)
{
    cairn__sequences *seqs = *state;
    hold(seqs, 0, system_a, 500, 5);
    assert_plan(cairn__sequences_plan(seqs, &nobody, system_a, 100), 1, 99, true, 0);
}

static void a_fork_into_a_full_house_spares_its_source(void **state)
{
    cairn__sequences *seqs = *state;
    int32_t           question[100];
    uint32_t          n = prompt(question, system_a, 30, 3);
    hold(seqs, 0, system_a, 60, 0); /* the oldest, but the source */
    hold(seqs, 1, system_b, 60, 0);
    hold(seqs, 2, system_b + 100, 60, 0);
    assert_plan(cairn__sequences_plan(seqs, &nobody, question, n), 1, 30, true, 0);
}

static void one_sequence_can_only_be_cut(void **state)
{
    (void)state;
    cairn__sequences seqs;
    int32_t          question[100];
    uint32_t         n = prompt(question, system_a, 30, 3);
    assert_int_equal(cairn__sequences_init(&seqs, 1, N_CTX), CAIRN_OK);
    hold(&seqs, 0, system_a, 60, 0);
    assert_plan(cairn__sequences_plan(&seqs, &nobody, question, n), 0, 30, false, 0);
    cairn__sequences_done(&seqs);
}

static void a_prompt_of_one_token_keeps_nothing(void **state)
{
    cairn__sequences *seqs = *state;
    hold(seqs, 0, system_a, 60, 0);
    assert_int_equal(cairn__sequences_plan(seqs, &nobody, system_a, 1).keep, 0);
}

static void the_grid_keeps_complete_prefilled_chunks_only(void **state)
{
    cairn__sequences *seqs = *state;
    hold(seqs, 0, system_a, 300, 100); /* prefilled to 300, generated to 400 */
    seqs->items[0].n_grid = 256;
    int32_t next[600];
    memcpy(next, seqs->items[0].tokens, 400 * sizeof *next);
    memcpy(next + 400, system_b, 200 * sizeof *next);
    assert_plan(cairn__sequences_plan_grid(seqs, &nobody, next, 600, 64), 0, 256, false, 0);
    assert_plan(cairn__sequences_plan_grid(seqs, &nobody, next, 300, 64), 0, 256, false, 0);
    assert_plan(cairn__sequences_plan_grid(seqs, &nobody, next, 257, 64), 0, 256, false, 0);
    assert_plan(cairn__sequences_plan_grid(seqs, &nobody, next, 256, 64), 0, 192, false, 0); /* one token must be computed */
    next[130] = 1;
    assert_plan(cairn__sequences_plan_grid(seqs, &nobody, next, 600, 64), 0, 128, false, 0);
    assert_plan(cairn__sequences_plan_grid(seqs, &nobody, system_b, 600, 64), 0, 0, false, 0);
}

static void cutting_takes_the_marks_along(void **state)
{
    cairn__sequences *seqs = *state;
    hold(seqs, 0, system_a, 300, 100);
    seqs->items[0].n_grid = 256;
    cairn__sequences_cut(seqs, 0, 350);
    assert_int_equal(seqs->items[0].n, 350);
    assert_int_equal(seqs->items[0].n_prompt, 300);
    cairn__sequences_cut(seqs, 0, 200);
    assert_int_equal(seqs->items[0].n_prompt, 200);
    assert_int_equal(seqs->items[0].n_grid, 200);
}

static void shared_cells_count_once(void **state)
{
    cairn__sequences *seqs = *state;
    int32_t           other[100];
    hold(seqs, 0, system_a, 60, 0);
    assert_int_equal(cairn__sequences_cells(seqs), 60);
    cairn__sequences_fork(seqs, 0, 1, 40);
    assert_int_equal(cairn__sequences_cells(seqs), 60);
    other[0] = 1;
    cairn__sequences_append(seqs, 1, other, 1);
    assert_int_equal(cairn__sequences_cells(seqs), 61);
    hold(seqs, 2, system_b, 10, 0);
    assert_int_equal(cairn__sequences_cells(seqs), 71);
    cairn__sequences_cut(seqs, 0, 0);
    assert_int_equal(cairn__sequences_cells(seqs), 51);
}

static const cairn_digest anna = {{1}}, bert = {{2}};

static void hold_as(cairn__sequences *seqs, uint32_t seq, const cairn_digest *salt, const int32_t *tokens, uint32_t n)
{
    cairn__sequences_cut(seqs, seq, 0);
    cairn__sequences_assign(seqs, seq, salt);
    hold(seqs, seq, tokens, n, 0);
}

static void another_salt_shares_nothing(void **state)
{
    cairn__sequences *seqs = *state;
    uint32_t          shared = 99;
    hold_as(seqs, 0, &anna, system_a, 60);
    assert_int_equal(cairn__sequences_shared(seqs, 0, &anna, system_a, 60), 60);
    assert_int_equal(cairn__sequences_shared(seqs, 0, &bert, system_a, 60), 0);
    cairn__sequences_best(seqs, &bert, system_a, 60, &shared);
    assert_int_equal(shared, 0);
    assert_plan(cairn__sequences_plan(seqs, &bert, system_a, 60), 1, 0, false, 0);
    assert_plan(cairn__sequences_plan(seqs, &nobody, system_a, 60), 1, 0, false, 0);
    assert_plan(cairn__sequences_plan(seqs, &anna, system_a, 60), 0, 59, false, 0);
    seqs->items[0].n_grid = 32;
    assert_plan(cairn__sequences_plan_grid(seqs, &bert, system_a, 60, 16), 0, 0, false, 0);
    assert_plan(cairn__sequences_plan_grid(seqs, &anna, system_a, 60, 16), 0, 32, false, 0);
}

/* Each finds its own, though the other's fits better or was used last. */
static void two_salts_with_one_prompt_keep_their_sequences(void **state)
{
    cairn__sequences *seqs = *state;
    hold_as(seqs, 0, &anna, system_a, 40);
    hold_as(seqs, 1, &bert, system_a, 60);
    assert_plan(cairn__sequences_plan(seqs, &anna, system_a, 60), 0, 40, false, 0);
    assert_plan(cairn__sequences_plan(seqs, &bert, system_a, 60), 1, 59, false, 0);
    hold_as(seqs, 2, &bert, system_b, 60);
    assert_plan(cairn__sequences_plan(seqs, &nobody, system_a, 60), 0, 0, false, 0); /* the oldest goes */
}

static void a_fork_stays_with_its_salt(void **state)
{
    cairn__sequences *seqs = *state;
    hold_as(seqs, 0, &anna, system_a, 60);
    hold_as(seqs, 1, &bert, system_b, 60);
    cairn__sequences_fork(seqs, 0, 1, 40);
    assert_int_equal(cairn__sequences_shared(seqs, 1, &anna, system_a, 60), 40);
    assert_int_equal(cairn__sequences_shared(seqs, 1, &bert, system_a, 60), 0);
}

/* Else somebody's room would tell whether another has the same prompt. */
static void cells_of_two_salts_are_never_shared(void **state)
{
    cairn__sequences *seqs = *state;
    hold_as(seqs, 0, &anna, system_a, 60);
    hold_as(seqs, 1, &bert, system_a, 60);
    assert_int_equal(cairn__sequences_cells(seqs), 120);
    hold_as(seqs, 1, &anna, system_a, 60);
    assert_int_equal(cairn__sequences_cells(seqs), 60);
}

static void the_oldest_is_never_the_excepted_one(void **state)
{
    cairn__sequences *seqs = *state;
    uint32_t          seq = 99;
    assert_false(cairn__sequences_oldest(seqs, 0, &seq));
    hold(seqs, 0, system_a, 10, 0);
    assert_false(cairn__sequences_oldest(seqs, 0, &seq));
    hold(seqs, 2, system_b, 10, 0);
    assert_true(cairn__sequences_oldest(seqs, 0, &seq));
    assert_int_equal(seq, 2);
    assert_true(cairn__sequences_oldest(seqs, UINT32_MAX, &seq));
    assert_int_equal(seq, 0);
}

static void an_estimate_follows_what_was_measured(void **state)
{
    (void)state;
    cairn__estimate e = {0};
    assert_int_equal(cairn__estimate_ns(&e, 100), 0);
    cairn__estimate_add(&e, 32, 32000); /* few tokens: better than nothing */
    assert_int_equal(cairn__estimate_ns(&e, 100), 100000);
    cairn__estimate_add(&e, 512, 512 * 200); /* the first real one replaces it */
    assert_int_equal(cairn__estimate_ns(&e, 100), 20000);
    cairn__estimate_add(&e, 1, 1000000); /* and few tokens count no more */
    assert_int_equal(cairn__estimate_ns(&e, 100), 20000);
    cairn__estimate_add(&e, 512, 512 * 400);
    assert_int_equal(cairn__estimate_ns(&e, 100), 25000);
    cairn__estimate_add(&e, 0, 5);
    assert_int_equal(cairn__estimate_ns(&e, 100), 25000);
}

static void the_rest_of_a_job_is_extrapolated(void **state)
{
    (void)state;
    assert_int_equal(cairn__estimate_rest_ns(25, 100, 50, 9.0), 150);
    assert_int_equal(cairn__estimate_rest_ns(0, 100, 50, 9.0), 900);
    assert_int_equal(cairn__estimate_rest_ns(100, 100, 50, 9.0), 0);
    assert_true(cairn__estimate_rest_ns(1, UINT64_MAX, UINT64_MAX / 2, 1.0) == UINT64_MAX);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_shared_takes_an_empty_sequence),
        TEST(nothing_shared_and_all_taken_takes_the_oldest),
        TEST(a_conversation_goes_on_in_place),
        TEST(an_answer_that_came_back_changed_is_cut),
        TEST(the_same_prompt_again_leaves_one_token),
        TEST(another_question_under_the_same_system_prompt_forks),
        TEST(a_prefix_of_a_longer_prompt_forks),
        TEST(a_fork_into_a_full_house_spares_its_source),
        TEST(one_sequence_can_only_be_cut),
        TEST(a_prompt_of_one_token_keeps_nothing),
        TEST(the_grid_keeps_complete_prefilled_chunks_only),
        TEST(cutting_takes_the_marks_along),
        TEST(shared_cells_count_once),
        TEST(another_salt_shares_nothing),
        TEST(two_salts_with_one_prompt_keep_their_sequences),
        TEST(a_fork_stays_with_its_salt),
        TEST(cells_of_two_salts_are_never_shared),
        TEST(the_oldest_is_never_the_excepted_one),
        TEST(an_estimate_follows_what_was_measured),
        TEST(the_rest_of_a_job_is_extrapolated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
