/* status.c - the numbers of the public list are fixed for ever. */
#include "testing.h"

static void numbers_and_texts(void **state)
{
    (void)state;
    static const struct {
        cairn_status status;
        int          value;
        const char  *name, *text;
        int          http, code;
    } want[] = {
        {CAIRN_OK, 0, "CAIRN_OK", "success", 200, 0},
        {CAIRN_EINVAL, -1, "CAIRN_EINVAL", "invalid argument", 400, 2},
        {CAIRN_ENOMEM, -2, "CAIRN_ENOMEM", "out of memory", 503, 1},
        {CAIRN_EIO, -3, "CAIRN_EIO", "input/output error", 500, 1},
        {CAIRN_ENOSPC, -4, "CAIRN_ENOSPC", "no space within the budget or on the device", 507, 2},
        {CAIRN_EACCES, -5, "CAIRN_EACCES", "permission denied", 403, 2},
        {CAIRN_ECORRUPT, -6, "CAIRN_ECORRUPT", "stored data failed verification", 500, 1},
        {CAIRN_ENOTSUP, -7, "CAIRN_ENOTSUP", "not supported", 501, 2},
        {CAIRN_EBUSY, -8, "CAIRN_EBUSY", "busy", 503, 1},
        {CAIRN_ETIMEDOUT, -9, "CAIRN_ETIMEDOUT", "timed out", 504, 1},
        {CAIRN_ECANCELED, -10, "CAIRN_ECANCELED", "cancelled", 499, 1},
        {CAIRN_ENOENT, -11, "CAIRN_ENOENT", "not found", 404, 2},
        {CAIRN_ERUNTIME, -12, "CAIRN_ERUNTIME", "the model runtime failed", 500, 1},
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        assert_int_equal(want[i].status, want[i].value);
        assert_string_equal(cairn_status_name(want[i].status), want[i].name);
        assert_string_equal(cairn_status_text(want[i].status), want[i].text);
        assert_int_equal(cairn_status_http(want[i].status), want[i].http);
        assert_int_equal(cairn_status_exit_code(want[i].status), want[i].code);
    }
#define COUNT(name, value, text, http, code) +1
    assert_int_equal(sizeof(want) / sizeof(want[0]), 0 CAIRN_STATUS_LIST(COUNT));
#undef COUNT
}

static void unknown_status(void **state)
{
    (void)state;
    cairn_status odd = (cairn_status)-13;
    assert_string_equal(cairn_status_name(odd), "CAIRN_UNKNOWN");
    assert_string_equal(cairn_status_text(odd), "unknown status");
    assert_int_equal(cairn_status_http(odd), 500);
    assert_int_equal(cairn_status_exit_code(odd), 1);
}

static void version(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", CAIRN_VERSION_MAJOR, CAIRN_VERSION_MINOR, CAIRN_VERSION_PATCH);
    assert_string_equal(cairn_version(), text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_texts),
        cmocka_unit_test(unknown_status),
        cmocka_unit_test(version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
