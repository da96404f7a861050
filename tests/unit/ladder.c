/* The ladder: exact positions for plans written out by hand, and its promises for
 * any plan. */
#include "testing.h"

#include "core/ladder.h"

static void expect(const cairn__ladder_plan *plan, const uint32_t *want, uint32_t n)
{
    uint32_t rungs[CAIRN__LADDER_RUNGS_MAX];
    assert_int_equal(cairn__ladder(plan, rungs), n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(rungs[i], want[i]);
}

#define PLAN(...) &(cairn__ladder_plan){__VA_ARGS__}
#define EXPECT(plan, ...)                                          \
    do {                                                           \
        const uint32_t want[] = {__VA_ARGS__};                     \
        expect(plan, want, sizeof want / sizeof want[0]);          \
    } while (0)

static void the_end_is_always_a_rung(void **state)
{
    (void)state;
    EXPECT(PLAN(.n_tokens = 2), 1);
    EXPECT(PLAN(.n_tokens = 1000, .step = 512), 999);
    expect(PLAN(.n_tokens = 1), NULL, 0);
    expect(PLAN(.n_tokens = 0), NULL, 0);
}

static void mandatory_marks_may_be_close(void **state)
{
    (void)state;
    const uint32_t marks[] = {995, 40, 995, 0, 5000};
    EXPECT(PLAN(.n_tokens = 1000, .step = 512, .mandatory = marks, .n_mandatory = 5), 40, 995, 999);
}

static void optional_ones_keep_their_distance_and_their_budget(void **state)
{
    (void)state;
    const uint32_t     marks[] = {700, 715, 15, 100, 984, 300, 500};
    cairn__ladder_plan plan = {.n_tokens = 1000, .step = 100, .marks = marks, .n_marks = 7, .n_optional = 3};
    EXPECT(&plan, 100, 700, 984, 999); /* 15 and 715 save next to nothing; then no budget is left */
    plan.n_optional = 1;
    EXPECT(&plan, 700, 999);
    plan.n_optional = 0;
    EXPECT(&plan, 999);
}

static void geometric_rungs_go_backwards(void **state)
{
    (void)state;
    cairn__ladder_plan plan = {.n_tokens = 8001, .step = 500, .n_optional = 8};
    EXPECT(&plan, 4000, 6000, 7000, 7500, 8000);
    plan.n_optional = 2;
    EXPECT(&plan, 7000, 7500, 8000);
    const uint32_t marks[] = {7100};
    plan.marks = marks, plan.n_marks = 1;
    EXPECT(&plan, 6000, 7100, 8000); /* 7500 and 7000 are nearer than a step */
}

static void nothing_behind_what_was_restored(void **state)
{
    (void)state;
    const uint32_t marks[] = {100, 4000, 4001};
    EXPECT(PLAN(.n_tokens = 8001, .from = 4000, .step = 1000, .mandatory = marks, .n_mandatory = 3),
           4001, 8000);
    expect(PLAN(.n_tokens = 8001, .from = 8000, .step = 1000), NULL, 0);
}

static void on_the_grid(void **state)
{
    (void)state;
    const uint32_t marks[] = {100, 600, 1030};
    EXPECT(PLAN(.n_tokens = 1100, .grid = 256, .step = 256, .mandatory = marks, .n_mandatory = 3), 512,
           1024);
    expect(PLAN(.n_tokens = 256, .grid = 256, .step = 256), NULL, 0); /* 255 rounds to 0 */
}

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

static void promises_hold_for_any_plan(void **state)
{
    uint64_t x = 42;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint32_t           mandatory[80], marks[80], rungs[CAIRN__LADDER_RUNGS_MAX];
        cairn__ladder_plan plan = {.n_tokens = next(&x) % 3000, .from = next(&x) % 3000,
                                   .grid = next(&x) % 2 ? 0 : 1 + (uint32_t)(next(&x) % 300), .step = next(&x) % 600,
                                   .n_optional = next(&x) % 100, .mandatory = mandatory, .marks = marks,
                                   .n_mandatory = next(&x) % 81, .n_marks = next(&x) % 81};
        for (int i = 0; i < 80; i++) {
            mandatory[i] = (uint32_t)(next(&x) % 4000);
            marks[i] = (uint32_t)(next(&x) % 4000);
        }
        uint32_t n = cairn__ladder(&plan, rungs);
        assert_true(n <= CAIRN__LADDER_RUNGS_MAX);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(rungs[i] > (i ? rungs[i - 1] : plan.from) && rungs[i] < plan.n_tokens);
            assert_true(!plan.grid || rungs[i] % plan.grid == 0);
        }
        if (plan.n_tokens >= 2 && plan.from < plan.n_tokens - 1 && !plan.grid)
            assert_int_equal(rungs[n - 1], plan.n_tokens - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_is_always_a_rung),
        cmocka_unit_test(mandatory_marks_may_be_close),
        cmocka_unit_test(optional_ones_keep_their_distance_and_their_budget),
        cmocka_unit_test(geometric_rungs_go_backwards),
        cmocka_unit_test(nothing_behind_what_was_restored),
        cmocka_unit_test(on_the_grid),
        cmocka_unit_test(promises_hold_for_any_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
