/* bytes.c - little-endian fields, hex, arithmetic. */
#include "testing.h"

static void little_endian(void **state)
{
    (void)state;
    uint8_t b[9] = {0};
    cairn__put_u32(b + 1, 0x89abcdefu); /* at an odd address: no alignment assumed */
    assert_hex(b, 9, "00efcdab8900000000");
    assert_int_equal(cairn__get_u32(b + 1), 0x89abcdefu);
    cairn__put_u64(b + 1, UINT64_C(0xfedcba9876543210));
    assert_hex(b, 9, "001032547698badcfe");
    assert_true(cairn__get_u64(b + 1) == UINT64_C(0xfedcba9876543210));
    cairn__put_u64(b, UINT64_MAX);
    assert_true(cairn__get_u64(b) == UINT64_MAX);
}

static void checked_arithmetic(void **state)
{
    (void)state;
    uint64_t r = 0;
    assert_true(cairn__add_u64(UINT64_MAX - 1, 1, &r) && r == UINT64_MAX);
    assert_false(cairn__add_u64(UINT64_MAX, 1, &r));
    assert_true(cairn__mul_u64(UINT64_C(1) << 32, UINT32_MAX, &r) && r == UINT64_C(0xffffffff00000000));
    assert_false(cairn__mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &r));
    assert_true(cairn__mul_u64(0, UINT64_MAX, &r) && r == 0);
}

static void hex_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < 256; i++) {
        uint8_t in = (uint8_t)i, out = (uint8_t)~in;
        char    hex[3], want[3];
        snprintf(want, sizeof(want), "%02x", (unsigned)i);
        cairn__hex(&in, 1, hex);
        assert_string_equal(hex, want);
        assert_true(cairn__unhex(hex, &out, 1));
        assert_int_equal(out, in);
    }
}

static void unhex_refuses(void **state)
{
    (void)state;
    uint8_t                  out[2];
    static const char *const bad[] = {"",     "0",    "00",  "000", "00g0", "00A0", "0 00", "0x00", "\xff\xff\xff\xff",
                                      "/000", ":000", "`000"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        /* A copy of its exact size, so that a read past the NUL is seen. */
        char *copy = strdup(bad[i]);
        assert_non_null(copy);
        assert_false(cairn__unhex(copy, out, 2));
        free(copy);
    }
    assert_true(cairn__unhex("00ffzz", out, 2)); /* what follows is the caller's business */
    assert_int_equal(out[1], 0xff);
    assert_true(cairn__unhex("", out, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_endian),
        cmocka_unit_test(checked_arithmetic),
        cmocka_unit_test(hex_round_trip),
        cmocka_unit_test(unhex_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
