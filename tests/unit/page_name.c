/* page_name.c - names of pages and folders; expected ones by python3's hashlib. */
#include "testing.h"

#include "core/page_name.h"

static const char K1[] = "ce7ae71cac2c79b3faa94f737e068a9f80963e504f9de7706f13b548a275d5f6";
static const char K2[] = "4b45121cb8cc8981f02a6add32023b95dcfbfcd84af957e891827b6d926a8250";
static const char K3[] = "b7126d8154451122194145abb7c9958282d01ce2f6c9bcec28e279b06884b841";
static const char FULL[] = "b7126d8154451122194145abb7c99582-4b45121cb8cc8981f02a6add32023b95-"
                           "b64fd030182a4455aea6e4f834f2ed210004bae8-256.page";

static cairn_digest identity_of(void)
{
    cairn_digest id;
    for (int i = 0; i < 32; i++)
        id.bytes[i] = (uint8_t)i;
    return id;
}

static cairn_key key_of(const char *hex)
{
    cairn_key key;
    test_unhex(hex, key.bytes, 32);
    return key;
}

static void check(const char *key_hex, const char *parent_hex, const int32_t *tokens, uint32_t n, const char *want)
{
    char             text[CAIRN__PAGE_NAME_SIZE];
    cairn_key        key = key_of(key_hex), parent = parent_hex ? key_of(parent_hex) : key;
    cairn_digest     id = identity_of();
    cairn__page_name name = cairn__page_name_of(&id, &key, parent_hex ? &parent : NULL, tokens, n), parsed;
    cairn__page_name_format(&name, text);
    assert_string_equal(text, want);
    assert_true(cairn__page_name_parse(text, &parsed));
    assert_memory_equal(parsed.key, name.key, sizeof(name.key));
    assert_memory_equal(parsed.parent, name.parent, sizeof(name.parent));
    assert_memory_equal(parsed.prefix, name.prefix, sizeof(name.prefix));
    assert_int_equal(parsed.n_tokens, n);
}

static void make_tokens(int32_t *tokens, int n)
{
    for (int i = 0; i < n; i++)
        tokens[i] = i % 256 * 7919 % 49152;
}

static void exact_names(void **state)
{
    (void)state;
    int32_t       tokens[4096];
    const int32_t few[] = {1, 2, 3};
    make_tokens(tokens, 4096);
    check(K3, K2, tokens, 256, FULL);
    check(K3, K2, tokens, 130,
          "b7126d8154451122194145abb7c99582-4b45121cb8cc8981f02a6add32023b95-"
          "b64fd030182a4455aea6e4f834f2ed2100000000-130.page");
    check(K1, NULL, few, 3,
          "ce7ae71cac2c79b3faa94f737e068a9f-00000000000000000000000000000000-"
          "0000000000000000000000000000000000000000-3.page");
    check(K3, K2, tokens, 4096,
          "b7126d8154451122194145abb7c99582-4b45121cb8cc8981f02a6add32023b95-"
          "b64fd030182a4455aea6e4f834f2ed210004bae8-4096.page");
}

static void prefix_exists_from_its_length_on(void **state)
{
    (void)state;
    static const uint8_t none[4];
    int32_t              tokens[256];
    cairn_key            key = key_of(K3);
    cairn_digest         id = identity_of();
    make_tokens(tokens, 256);
    for (uint32_t n = 1; n <= 256; n++) {
        cairn__page_name name = cairn__page_name_of(&id, &key, NULL, tokens, n);
        for (uint32_t i = 0; i < CAIRN__PAGE_PREFIXES; i++)
            assert_int_equal(memcmp(name.prefix[i], none, 4) != 0, n >= cairn__page_prefix_tokens[i]);
    }
}

/* Who does not know the namespace can't compute an h_i of a guess. */
static void prefixes_depend_on_the_identity(void **state)
{
    (void)state;
    int32_t          tokens[256];
    cairn_key        key = key_of(K3);
    cairn_digest     id = identity_of(), other = id;
    cairn__page_name a, b;
    make_tokens(tokens, 256);
    other.bytes[31] ^= 1;
    a = cairn__page_name_of(&id, &key, NULL, tokens, 256);
    b = cairn__page_name_of(&other, &key, NULL, tokens, 256);
    for (uint32_t i = 0; i < CAIRN__PAGE_PREFIXES; i++)
        assert_memory_not_equal(a.prefix[i], b.prefix[i], 4);
}

static bool parses(const char *text)
{
    /* A copy of its exact size: a read past its end is seen by the sanitizer. */
    char            *copy = strdup(text);
    cairn__page_name name;
    assert_non_null(copy);
    bool ok = cairn__page_name_parse(copy, &name);
    free(copy);
    return ok;
}

static void every_changed_character_is_refused_or_means_something_else(void **state)
{
    (void)state;
    char             text[sizeof(FULL)], again[CAIRN__PAGE_NAME_SIZE];
    cairn__page_name name;
    uint32_t         n_parsed = 0;
    for (size_t i = 0; i < sizeof(FULL) - 1; i++) {
        for (int c = 0; c < 256; c++) {
            memcpy(text, FULL, sizeof(FULL));
            text[i] = (char)c;
            if (!cairn__page_name_parse(text, &name))
                continue;
            n_parsed++;
            cairn__page_name_format(&name, again);
            assert_string_equal(again, text); /* only what format() writes */
        }
    }
    /* 16 digits at each of 104 places of hex; the other 8 fixed characters as
     * they are; "256": 2-9 (156 is shorter than the last h says), 0-9, 0-9. */
    assert_int_equal(n_parsed, 104 * 16 + 8 + 8 + 10 + 10);
}

static void truncations_and_extensions_are_refused(void **state)
{
    (void)state;
    char text[sizeof(FULL) + 2];
    for (size_t size = 0; size < sizeof(FULL) - 1; size++) {
        memcpy(text, FULL, size);
        text[size] = 0;
        assert_false(parses(text));
    }
    assert_true(parses(FULL));
    snprintf(text, sizeof(text), "%sx", FULL);
    assert_false(parses(text));
    snprintf(text, sizeof(text), " %s", FULL);
    assert_false(parses(text));
}

static void refuses(void **state)
{
    (void)state;
#define KEYS "b7126d8154451122194145abb7c99582-4b45121cb8cc8981f02a6add32023b95-"
#define ALL "b64fd030182a4455aea6e4f834f2ed210004bae8"
#define NONE "0000000000000000000000000000000000000000"
    static const char *const bad[] = {
        "", ".", "..", ".page", "/", ".tmp-0011223344556677", "identity.txt",
        KEYS ALL "-256.pag", KEYS ALL "-256.PAGE", KEYS ALL "-256", KEYS ALL "-256.page/", KEYS ALL "-256.page.page",
        KEYS ALL "-0.page", KEYS ALL "-.page", KEYS ALL "-0256.page", KEYS ALL "-4097.page", KEYS ALL "-00256.page",
        KEYS ALL "-+256.page", KEYS ALL "--256.page", KEYS ALL "- 256.page", KEYS ALL "-4294967552.page",
        KEYS ALL "-191.page", /* a hash of 192 tokens in a page of 191 */
        KEYS ALL "-15.page", KEYS "0000000000000000000000000000000000000001-191.page",
        KEYS "EC8FF821eadbcb6161d332b0c82bbff1c5204907-256.page", KEYS "-256.page",
        "../6d8154451122194145abb7c99582-4b45121cb8cc8981f02a6add32023b95-" ALL "-256.page",
        "B7126d8154451122194145abb7c99582-4b45121cb8cc8981f02a6add32023b95-" ALL "-256.page",
        "b7126d8154451122194145abb7c9958-4b45121cb8cc8981f02a6add32023b95-" ALL "-256.page",
        "b7126d8154451122194145abb7c995822-4b45121cb8cc8981f02a6add32023b95-" ALL "-256.page",
        "b7126d8154451122194145abb7c99582_4b45121cb8cc8981f02a6add32023b95-" ALL "-256.page",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (parses(bad[i]))
            fail_msg("accepted: %s", bad[i]);
    assert_true(parses(KEYS NONE "-15.page"));
    assert_true(parses(KEYS NONE "-1.page"));
    assert_true(parses(KEYS ALL "-192.page"));
    assert_true(parses(KEYS ALL "-4096.page"));
}

static void shared(void **state)
{
    (void)state;
    int32_t      a[256], b[256];
    cairn_key    key = key_of(K3);
    cairn_digest id = identity_of();
    make_tokens(a, 256);
    static const struct {
        uint32_t parts_at, n_a, n_b, want;
    } rows[] = {
        {256, 256, 256, 192}, {255, 256, 256, 192}, {192, 256, 256, 192}, {191, 256, 256, 128}, {128, 256, 256, 128},
        {127, 256, 256, 64},  {64, 256, 256, 64},   {63, 256, 256, 32},   {32, 256, 256, 32},   {31, 256, 256, 16},
        {16, 256, 256, 16},   {15, 256, 256, 0},    {0, 256, 256, 0},     {256, 100, 256, 64},  {256, 256, 100, 64},
        {256, 15, 15, 0},     {256, 100, 20, 16},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memcpy(b, a, sizeof(a));
        if (rows[i].parts_at < 256)
            b[rows[i].parts_at]++;
        cairn__page_name x = cairn__page_name_of(&id, &key, NULL, a, rows[i].n_a);
        cairn__page_name y = cairn__page_name_of(&id, &key, NULL, b, rows[i].n_b);
        assert_int_equal(cairn__page_name_shared(&x, &y), rows[i].want);
        assert_int_equal(cairn__page_name_shared(&y, &x), rows[i].want);
    }
}

static void folders(void **state)
{
    (void)state;
    char         identity[CAIRN__IDENTITY_NAME_SIZE], fanout[CAIRN__FANOUT_NAME_SIZE];
    cairn_digest id = identity_of();
    cairn_key    key = key_of(K2);
    cairn__identity_name(&id, identity);
    assert_string_equal(identity, "000102030405060708090a0b0c0d0e0f");
    cairn__fanout_name(&key, fanout);
    assert_string_equal(fanout, "4b4");
    cairn__fanout_name(NULL, fanout);
    assert_string_equal(fanout, "000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_names),
        cmocka_unit_test(prefix_exists_from_its_length_on),
        cmocka_unit_test(prefixes_depend_on_the_identity),
        cmocka_unit_test(every_changed_character_is_refused_or_means_something_else),
        cmocka_unit_test(truncations_and_extensions_are_refused),
        cmocka_unit_test(refuses),
        cmocka_unit_test(shared),
        cmocka_unit_test(folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
