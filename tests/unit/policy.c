/* What to evict, and whether to restore: tables of numbers. */
#include "testing.h"

#include "policy/evict.h"
#include "policy/restore.h"

#include <math.h>

#define NOW INT64_C(1000000)

static double score(uint64_t bytes, uint64_t prefill, uint64_t restore, int64_t used, double otherwise)
{
    cairn__evict_case c = {bytes, prefill, restore, used, otherwise};
    return cairn__evict_score(&c, NOW);
}

static void evict_values(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes, prefill, restore;
        int64_t  used;
        double   otherwise, expected;
    } t[] = {
        {1000, 60000, 0, NOW, 1, 1.0},           /* 60 ns a byte, just used */
        {1000, 60000, 0, NOW - 60, 1, 0.5},      /* a minute ago */
        {2000, 60000, 0, NOW, 1, 0.5},           /* twice as large */
        {1000, 60000, 30000, NOW, 1, 0.5},       /* reading costs half of it */
        {1000, 60000, 60000, NOW, 1, 0.0},       /* nothing is saved */
        {1000, 60000, 90000, NOW, 1, 0.0},       /* less than nothing */
        {1000, 60000, 0, NOW + 1000000, 1, 1.0}, /* used in the future: now */
        {1000, 0, 0, NOW, 60, 1.0},              /* unknown: as the others */
        {1000, 0, 90000, NOW - 60, 60, 0.5},     /* unknown price of computing: restore does not count */
        {1000, 0, 0, NOW, 0, 0.0},
        {0, 60, 0, NOW, 1, 1.0}, /* nothing to gain by removing an empty file */
        {UINT64_MAX, UINT64_MAX, 0, NOW, 1, 1.0 / 60},
        {1000, 60000, 0, INT64_MIN, 1, 60.0 / (1e6 + 9223372036854775808.0 + 60)},
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        double s = score(t[i].bytes, t[i].prefill, t[i].restore, t[i].used, t[i].otherwise);
        if (!(fabs(s - t[i].expected) <= 1e-9 * t[i].expected))
            fail_msg("case %zu: %.12g, not %.12g", i, s, t[i].expected);
    }
    assert_true(score(1000, 0, 0, NOW, NAN) == 0.0);
}

static void evict_order(void **state)
{
    (void)state;
    /* Of one price: the one used longest ago. */
    for (int64_t age = 0; age < 1000000; age = age * 2 + 1)
        assert_true(score(1000, 5000, 0, NOW - age - 1, 1) < score(1000, 5000, 0, NOW - age, 1));
    /* A page a hundred times as dear to compute is kept, though older. */
    assert_true(score(1000, 100000, 0, NOW - 600, 1) > score(1000, 1000, 0, NOW - 60, 1));
    /* But not for ever. */
    assert_true(score(1000, 100000, 0, NOW - 86400, 1) < score(1000, 1000, 0, NOW - 60, 1));
}

static void restore_values(void **state)
{
    (void)state;
    static const struct {
        cairn__restore_case c;
        bool                expected;
    } t[] = {
        {{0, 0, 0, 0, 0}, false},     /* nothing to gain */
        {{0, 0, 1e6, 1, 0}, false},   /* nor here */
        {{1, 100000, 0, 0, 0}, true}, /* nothing known: try */
        {{1, 100000, 0, 5, 1e9}, true},
        {{1, 100000, 5, 0, 1e9}, true},
        {{100, 1000, 1000, 99, 0}, true},     /* 99,000 ns against 100,000 */
        {{100, 1000, 1000, 100, 0}, false},   /* even: computing needs no disk */
        {{100, 1000, 1000, 99, 1000}, false}, /* the overhead eats it */
        {{100, 1000, 1000, 99, 999}, true},
        {{256, 256 * 147456, 60000, 0.25, 2e6}, true}, /* 8B on a GPU from page cache: 15 ms, 11 ms */
        {{8, 256 * 147456, 60000, 0.25, 2e6}, false},  /* a page for eight tokens */
        {{UINT32_MAX, UINT64_MAX, 1e9, 1e9, 1e9}, false},
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
        if (cairn__restore_pays(&t[i].c) != t[i].expected)
            fail_msg("case %zu", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evict_values),
        cmocka_unit_test(evict_order),
        cmocka_unit_test(restore_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
