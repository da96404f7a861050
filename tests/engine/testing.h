/* testing.h - cmocka with its prerequisites, and the model of the tests.
 * $CAIRN_TEST_MODEL (SmolLM2-135M-Instruct) is required by tests with a model;
 * without it they are skipped and say so. */
#ifndef CAIRN_TESTS_ENGINE_TESTING_H
#define CAIRN_TESTS_ENGINE_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../skip.h"

#include "cairn/base.h"

static inline const char *test_model(void)
{
    const char *path = getenv("CAIRN_TEST_MODEL");
    if (!path || !*path) {
        printf("skipped: CAIRN_TEST_MODEL is not set\n");
        return NULL;
    }
    return path;
}

#endif
