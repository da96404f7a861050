/* JSON text from outside: depth, repairs, numbers that keep their digits. */
#include "testing.h"

#include "server/json_text.h"

/* Parses and prints; NULL when it does not parse. Freed by the caller. */
static char *through(const char *text, size_t size)
{
    char   reason[200];
    bool   no_memory = true;
    char  *copy      = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    copy[size]    = 0;
    json_t *value = cairn__json_parse(copy, size, reason, sizeof reason, &no_memory);
    char   *out   = value ? cairn__json_print(value) : NULL;
    assert_false(no_memory);
    json_decref(value);
    free(copy);
    return out;
}

static void stays(const char *text, const char *expected)
{
    char *out = through(text, strlen(text));
    assert_non_null(out);
    assert_string_equal(out, expected);
    free(out);
}

static void refused(const char *text)
{
    char *out = through(text, strlen(text));
    if (out)
        fail_msg("%s was accepted as %s", text, out);
}

static void test_numbers_keep_their_digits(void **state)
{
    static const char *const numbers[] = {
        "0", "-0", "1", "-1", "1.0", "1.50", "-0.0", "1e5", "1E+5", "2.5e-10", "9223372036854775807",
        "9223372036854775808", "-9223372036854775807", "-9223372036854775808", "18446744073709551615",
        "123456789012345678901234567890", "0.1", "1e400"};
    char text[200];
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *n = strcmp(numbers[i], "-0") == 0 ? "0" : numbers[i]; /* an integer, so no sign of zero */
        char        expected[200];
        snprintf(text, sizeof text, "{ \"a\" : [ %s , %s ] }", numbers[i], numbers[i]);
        snprintf(expected, sizeof expected, "{\"a\":[%s,%s]}", n, n);
        stays(text, expected);
        stays(numbers[i], n);
    }
}

static void test_long_numbers(void **state)
{
    static char digits[5001];
    (void)state;
    for (size_t n = 300; n <= 5000; n *= 4) {
        memset(digits, '7', n);
        digits[n] = 0;
        stays(digits, digits);
        digits[0] = '-';
        stays(digits, digits);
    }
}

static void test_numbers_that_are_none(void **state)
{
    static const char *const bad[] = {"01", "1.", ".5", "1e", "1e+", "+1", "-", "1.2.3", "1-2", "--1", "0x10", "1.5.",
                                      "{1.5:2}", "{1.5 : 2}", "[1.5 2.5]", "NaN", "-Infinity", "1.5e", "00.5", "-01.5"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i]);
}

static void test_strings_are_not_numbers(void **state)
{
    char text[200], *out;
    (void)state;
    stays("[\"1.0\",\"\\\"2.5\\\"\",\"a\\\\\",3]", "[\"1.0\",\"\\\"2.5\\\"\",\"a\\\\\",3]");
    /* The mark without a number behind it, and escaped quotes around it, as a client might guess it. */
    snprintf(text, sizeof text, "[\"%sx\"]", cairn__json_mark());
    out = through(text, strlen(text));
    assert_non_null(out);
    free(out);
}

static void test_values_of_marked_numbers(void **state)
{
    char    reason[200], text[] = "{\"a\":2.5,\"b\":7,\"c\":\"2.5\",\"d\":1e400,\"e\":null}";
    bool    no_memory;
    json_t *v = cairn__json_parse(text, sizeof text - 1, reason, sizeof reason, &no_memory);
    (void)state;
    assert_non_null(v);
    assert_true(cairn__json_is_number(json_object_get(v, "a")));
    assert_false(cairn__json_is_text(json_object_get(v, "a")));
    assert_true(cairn__json_number(json_object_get(v, "a")) == 2.5);
    assert_true(cairn__json_number(json_object_get(v, "b")) == 7);
    assert_false(cairn__json_is_number(json_object_get(v, "c")));
    assert_true(cairn__json_is_text(json_object_get(v, "c")));
    assert_true(cairn__json_number(json_object_get(v, "d")) > 1e300);
    assert_false(cairn__json_is_number(json_object_get(v, "e")));
    json_decref(v);
}

static void test_depth(void **state)
{
    char text[2 * 129 + 1];
    (void)state;
    for (int depth = 127; depth <= 129; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        assert_int_equal(cairn__json_depth_ok(text, 2 * (size_t)depth), depth <= 128);
        char *out = through(text, 2 * (size_t)depth);
        assert_int_equal(out != NULL, depth <= 128);
        free(out);
    }
    stays("[\"[[[[{{{\\\"[\"]", "[\"[[[[{{{\\\"[\"]");
    size_t size = 1000000; /* in a loop, not in recursion */
    char  *bomb = malloc(size);
    assert_non_null(bomb);
    memset(bomb, '[', size);
    assert_null(through(bomb, size));
    free(bomb);
}

static void test_repairs(void **state)
{
    (void)state;
    stays("\"a\\u0000b\"", "\"a\xEF\xBF\xBD" "b\"");
    stays("\"\\ud83d\"", "\"\xEF\xBF\xBD\"");
    stays("\"\\uDE00x\"", "\"\xEF\xBF\xBDx\"");
    stays("\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\"");
    stays("\"\\ud83d\\ud83d\\ude00\"", "\"\xEF\xBF\xBD\xF0\x9F\x98\x80\"");
    stays("\"\\ud83d\\n\"", "\"\xEF\xBF\xBD\\n\"");
    stays("\"\\\\u0000\"", "\"\\\\u0000\"");
    refused("\"\\u12\"");
    refused("\"\\ud83d\\u12\"");
    refused("\"\\");
    refused("\"\\u");
    refused("\"\xED\xA0\x80\"");
}

static void test_marked_objects(void **state)
{
    static const char given[] = "{\"a\": 2.50, \"b\":\t\"\\ud83d\"}";
    char             *text    = cairn__json_marked_object(given, sizeof given - 1);
    (void)state;
    assert_non_null(text);
    assert_non_null(strstr(text, cairn__json_mark()));
    assert_non_null(strstr(text, "\\ufffd"));
    assert_non_null(strstr(text, "\"b\":\t\"")); /* to the byte as it was */
    free(text);
    static const char *const bad[] = {"", "5", "[1]", "{", "{}x", "nope", "\"{}\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_null(cairn__json_marked_object(bad[i], strlen(bad[i])));
    text = cairn__json_marked_object("{ }", 3);
    assert_string_equal(text, "{ }");
    free(text);
}

static void string_is(const char *bytes, size_t size, const char *expected)
{
    json_t *v = cairn__json_string(bytes, size);
    assert_non_null(v);
    assert_string_equal(json_string_value(v), expected);
    json_decref(v);
}

static void test_bytes_to_strings(void **state)
{
    (void)state;
    string_is("abc", 3, "abc");
    string_is(NULL, 0, "");
    string_is("a\xFF" "b", 3, "a\xEF\xBF\xBD" "b");
    string_is("\xE2\x82", 2, "\xEF\xBF\xBD\xEF\xBF\xBD");
    string_is("\xC0\xAF", 2, "\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_int_equal(cairn__utf8_valid_prefix("\xE6\x97\xA5\xE6\x9C", 5), 3);
    assert_int_equal(cairn__utf8_valid_prefix("\xF4\x90\x80\x80", 4), 0);
    assert_int_equal(cairn__utf8_valid_prefix("\xF4\x8F\xBF\xBF", 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_keep_their_digits), cmocka_unit_test(test_numbers_that_are_none),
        cmocka_unit_test(test_strings_are_not_numbers),   cmocka_unit_test(test_values_of_marked_numbers),
        cmocka_unit_test(test_depth),                     cmocka_unit_test(test_repairs),
        cmocka_unit_test(test_marked_objects),            cmocka_unit_test(test_bytes_to_strings),
        cmocka_unit_test(test_long_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
