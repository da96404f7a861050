/* skip.h - a test program in which anything was skipped must not look passed:
 * it exits with 77, which CTest shows as "Skipped". After <cmocka.h>. */
#ifndef CAIRN_TESTS_SKIP_H
#define CAIRN_TESTS_SKIP_H

#include <stdbool.h>

static bool test_was_skipped;

/* Ends the running test, like cmocka's skip(). */
#define test_skip()              \
    do {                         \
        test_was_skipped = true; \
        skip();                  \
    } while (0)

/* What main() returns, from the number of failed tests. */
static inline int test_exit_code(int n_failed)
{
    return n_failed ? 1 : test_was_skipped ? 77 : 0;
}

#endif
