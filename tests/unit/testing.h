/* testing.h - what every unit test includes: cmocka with its prerequisites, and
 * a few helpers. Temporary folders are made under $TMPDIR or /tmp and removed
 * at the end of the test that made them. */
#ifndef CAIRN_TESTING_H
#define CAIRN_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "cairn/base.h"

/* The tests' input everywhere, easy to make in any language:
 * byte i = (131 i + 17 floor(i / 256) + 7) mod 256. */
static inline void test_fill(uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i * 131 + (i >> 8) * 17 + 7);
}

/* bytes[0..size) are exactly those of `hex`. */
#define assert_hex(bytes, size, expected)                                                                              \
    do {                                                                                                               \
        char hex_[2 * 64 + 1];                                                                                         \
        assert_true((size) <= 64);                                                                                     \
        cairn__hex((bytes), (size), hex_);                                                                             \
        assert_string_equal(hex_, (expected));                                                                         \
    } while (0)

static inline void test_unhex(const char *hex, uint8_t *bytes, size_t size)
{
    assert_int_equal(strlen(hex), 2 * size);
    assert_true(cairn__unhex(hex, bytes, size));
}

/* Creates a folder; *ret_path is to be given to test_remove_dir(). */
static inline char *test_make_dir(void)
{
    const char *base = getenv("TMPDIR");
    char       *path = NULL;
    assert_true(asprintf(&path, "%s/cairn-test-XXXXXX", base && *base ? base : "/tmp") > 0);
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void test_remove_dir(char *path)
{
    char *command = NULL;
    assert_true(asprintf(&command, "rm -rf '%s'", path) > 0);
    assert_int_equal(system(command), 0);
    free(command);
    free(path);
}

static inline void test_write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Reads at most room bytes; returns how many. */
static inline size_t test_read_file(const char *path, void *data, size_t room)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(data, 1, room, file);
    assert_int_equal(fclose(file), 0);
    return size;
}

#endif
