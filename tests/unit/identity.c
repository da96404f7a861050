/* identity.c - canonical text, its digest, what is refused. Digests by
 * python3's hashlib over the text as it is written here. */
#include "testing.h"

#include "cairn/identity.h"

static void empty(void **state)
{
    (void)state;
    cairn_identity *id = NULL;
    size_t          size = 1;
    assert_int_equal(cairn_identity_create(&id), CAIRN_OK);
    assert_string_equal(cairn_identity_text(id, &size), "");
    assert_int_equal(size, 0);
    assert_hex(cairn_identity_digest(id).bytes, 32,
               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    cairn_identity_destroy(id);
    cairn_identity_destroy(NULL);
    assert_int_equal(cairn_identity_create(NULL), CAIRN_EINVAL);
}

#define NAME "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xab" /* two, three and four bytes of UTF-8 */
static const char TEXT[] = "a=1\na.b=2\na_b=3\nab=4\nkv.type_k=f16\nmodel.name=" NAME "\n"
                           "weights=50e721e49c013f00c62cf59f2163542a9d8df02464efeb615d31051b0fddc326\nz=\n";
static const char TEXT_DIGEST[] = "b372d278ca5ca718bd7b7a20d5f81701dead204919297dff73ddca0e8008fbc6";

static void set_field(cairn_identity *id, int i)
{
    cairn_digest w;
    test_unhex("50e721e49c013f00c62cf59f2163542a9d8df02464efeb615d31051b0fddc326", w.bytes, 32);
    switch (i) {
    case 0: assert_int_equal(cairn_identity_set(id, "ab", "4"), CAIRN_OK); break;
    case 1: assert_int_equal(cairn_identity_set_u64(id, "a", 1), CAIRN_OK); break;
    case 2: assert_int_equal(cairn_identity_set(id, "z", ""), CAIRN_OK); break;
    case 3: assert_int_equal(cairn_identity_set(id, "a_b", "3"), CAIRN_OK); break;
    case 4: assert_int_equal(cairn_identity_set_digest(id, "weights", &w), CAIRN_OK); break;
    case 5: assert_int_equal(cairn_identity_set(id, "a.b", "2"), CAIRN_OK); break;
    case 6: assert_int_equal(cairn_identity_set(id, "model.name", NAME), CAIRN_OK); break;
    case 7: assert_int_equal(cairn_identity_set(id, "kv.type_k", "f16"), CAIRN_OK); break;
    }
}

static void text_does_not_depend_on_order(void **state)
{
    (void)state;
    for (int step = 1; step < 8; step += 2) { /* odd: visits all eight */
        cairn_identity *id = NULL;
        size_t          size = 0;
        assert_int_equal(cairn_identity_create(&id), CAIRN_OK);
        for (int i = 0; i < 8; i++)
            set_field(id, (i * step + step) % 8);
        assert_string_equal(cairn_identity_text(id, &size), TEXT);
        assert_int_equal(size, sizeof(TEXT) - 1);
        assert_string_equal(cairn_identity_text(id, NULL), TEXT);
        assert_hex(cairn_identity_digest(id).bytes, 32, TEXT_DIGEST);
        cairn_identity_destroy(id);
    }
}

static void set_replaces(void **state)
{
    (void)state;
    cairn_identity *id = NULL;
    assert_int_equal(cairn_identity_create(&id), CAIRN_OK);
    assert_int_equal(cairn_identity_set(id, "b", "old"), CAIRN_OK);
    assert_int_equal(cairn_identity_set(id, "c", "=x="), CAIRN_OK);
    assert_int_equal(cairn_identity_set(id, "a", "1"), CAIRN_OK);
    assert_int_equal(cairn_identity_set(id, "b", "a longer one"), CAIRN_OK);
    assert_string_equal(cairn_identity_text(id, NULL), "a=1\nb=a longer one\nc==x=\n");
    assert_int_equal(cairn_identity_set(id, "b", ""), CAIRN_OK);
    assert_int_equal(cairn_identity_set_u64(id, "c", UINT64_MAX), CAIRN_OK);
    assert_string_equal(cairn_identity_text(id, NULL), "a=1\nb=\nc=18446744073709551615\n");
    cairn_identity_destroy(id);
}

static void refuses(void **state)
{
    (void)state;
    static const char *const bad_keys[] = {"", "A", "a b", "a=b", "a\n", "a-b", "\xc3\xa9", "a/b"};
    static const char *const bad_values[] = {
        "\n", "a\rb", "\t", "\x01", "\x1f", "\x7f", "\xc2\x80", "\xc2\x85", "\xc2\x9f", /* control characters */
        "\xe2\x80\xa8", "\xe2\x80\xa9",                                                 /* U+2028, U+2029 */
        "\x80", "\xc3", "\xc3\x28", "\xe2\x82", "\xf0\x9f\x90",                         /* cut or stray */
        "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf", /* overlong */
        "\xed\xa0\x80", "\xed\xbf\xbf",                                                 /* surrogates */
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "ok\xfe", /* above U+10FFFF, never valid */
    };
    static const char *const good_values[] = {
        " ", "~", "\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "\xe2\x80\xaa",
    };
    cairn_identity *id = NULL;
    assert_int_equal(cairn_identity_create(&id), CAIRN_OK);
    for (size_t i = 0; i < sizeof(bad_keys) / sizeof(bad_keys[0]); i++)
        assert_int_equal(cairn_identity_set(id, bad_keys[i], "v"), CAIRN_EINVAL);
    for (size_t i = 0; i < sizeof(bad_values) / sizeof(bad_values[0]); i++)
        assert_int_equal(cairn_identity_set(id, "k", bad_values[i]), CAIRN_EINVAL);
    assert_int_equal(cairn_identity_set(NULL, "k", "v"), CAIRN_EINVAL);
    assert_int_equal(cairn_identity_set(id, NULL, "v"), CAIRN_EINVAL);
    assert_int_equal(cairn_identity_set(id, "k", NULL), CAIRN_EINVAL);
    assert_int_equal(cairn_identity_set_digest(id, "k", NULL), CAIRN_EINVAL);
    assert_string_equal(cairn_identity_text(id, NULL), ""); /* nothing of it stayed */
    for (size_t i = 0; i < sizeof(good_values) / sizeof(good_values[0]); i++)
        assert_int_equal(cairn_identity_set(id, "k", good_values[i]), CAIRN_OK);
    cairn_identity_destroy(id);
}

static void limits(void **state)
{
    (void)state;
    char key[65], value[4097];
    memset(key, 'k', sizeof(key));
    memset(value, 'v', sizeof(value));
    cairn_identity *id = NULL;
    size_t          size;
    assert_int_equal(cairn_identity_create(&id), CAIRN_OK);
    key[64] = value[4096] = 0;
    assert_int_equal(cairn_identity_set(id, key, "v"), CAIRN_EINVAL);
    assert_int_equal(cairn_identity_set(id, "k", value), CAIRN_EINVAL);
    key[63] = value[4095] = 0;
    assert_int_equal(cairn_identity_set(id, key, value), CAIRN_OK);
    cairn_identity_text(id, &size);
    assert_int_equal(size, 63 + 1 + 4095 + 1);
    /* 1 MiB of text is the end; what is there stays whole. */
    cairn_status status = CAIRN_OK;
    int          n = 0;
    for (; n < 400 && status == CAIRN_OK; n++) {
        snprintf(key, sizeof(key), "f%03d", n);
        status = cairn_identity_set(id, key, value);
    }
    assert_int_equal(status, CAIRN_EINVAL);
    assert_int_equal(n, 255); /* (1048576 - 4160) / 4101 = 254.7: 254 fit, the 255th is refused */
    cairn_identity_destroy(id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty),   cmocka_unit_test(text_does_not_depend_on_order),
        cmocka_unit_test(set_replaces), cmocka_unit_test(refuses), cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
