/* What to evict, and whether to restore: tables of numbers. */
#include "testing.h"

#include "core/page_use.h"
#include "policy/evict.h"
#include "policy/restore.h"

#include <math.h>

#define NOW INT64_C(1000000)

static double score(uint64_t bytes, uint64_t prefill, uint64_t restore, int64_t used, double otherwise)
{
    cairn__evict_case c = {.disk_bytes = bytes,
                           .prefill_ns = prefill,
                           .restore_ns = restore,
                           .used_s = used,
                           .default_ns_per_byte = otherwise};
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
        if (t[i].used > NOW - CAIRN__EVICT_YOUNG_S) /* above all others, in the same order */
            s = s / CAIRN__EVICT_YOUNG - 1;
        if (!(fabs(s - t[i].expected) <= 1e-9 * (1 + t[i].expected)))
            fail_msg("case %zu: %.12g, not %.12g", i, s, t[i].expected);
    }
    assert_true(score(1000, 0, 0, NOW - 60, NAN) == 0.0);
}

static void evict_classes(void **state)
{
    (void)state;
    cairn__evict_case c = {.disk_bytes = 1000, .prefill_ns = 60000, .used_s = NOW - 60, .unused = true};
    assert_true(fabs(cairn__evict_score(&c, NOW) - 60.0 / (4 * 60 + 60)) < 1e-12); /* probation: four times as old */
    c.unused = false;
    double normal = cairn__evict_score(&c, NOW);
    assert_true(fabs(normal - 0.5) < 1e-12);
    /* Just stored: above everything, however cheap; a second later than that: not. */
    cairn__evict_case cheap = {.disk_bytes = 1000000, .prefill_ns = 1, .used_s = NOW - 9, .unused = true};
    cairn__evict_case dear = {.disk_bytes = 1, .prefill_ns = UINT64_MAX, .used_s = NOW - 10};
    assert_true(cairn__evict_score(&cheap, NOW) > cairn__evict_score(&dear, NOW));
    cheap.used_s = NOW - 10;
    assert_true(cairn__evict_score(&cheap, NOW) < cairn__evict_score(&dear, NOW));
    /* Unwanted: below everything, also when young; older ones first. */
    cairn__evict_case orphan = {.disk_bytes = 1, .prefill_ns = UINT64_MAX, .used_s = NOW, .unwanted = true};
    cairn__evict_case worthless = {.disk_bytes = 1, .prefill_ns = 1, .restore_ns = 2, .used_s = 0};
    assert_true(cairn__evict_score(&orphan, NOW) < cairn__evict_score(&worthless, NOW));
    double young = cairn__evict_score(&orphan, NOW);
    orphan.used_s = NOW - 1;
    assert_true(cairn__evict_score(&orphan, NOW) < young);
}

static void page_uses(void **state)
{
    (void)state;
    cairn__page_use use = cairn__page_use_of(INT64_C(1700000000000000000));
    assert_true(use.used_s == 1700000000 && use.n_uses == 0);
    for (uint32_t i = 1; i <= 1200; i++) {
        use = cairn__page_use_again(use, 1700000000 + i);
        assert_int_equal(use.n_uses, i < 999 ? i : 999);
        cairn__page_use back = cairn__page_use_of(cairn__page_use_mtime_ns(use));
        assert_true(back.used_s == use.used_s && back.n_uses == use.n_uses);
    }
    assert_int_equal(cairn__page_use_of(INT64_C(1700000000123456789)).n_uses, 1); /* another tool's */
    assert_int_equal(cairn__page_use_of(INT64_C(1700000000000001000)).n_uses, 1);
    use = cairn__page_use_of(-1); /* before 1970 */
    assert_true(use.used_s == -1 && use.n_uses == 1);
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
        cmocka_unit_test(evict_values), cmocka_unit_test(evict_classes), cmocka_unit_test(page_uses),
        cmocka_unit_test(evict_order),
        cmocka_unit_test(restore_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
