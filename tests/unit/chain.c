/* chain.c - chain keys against python3's hashlib, over the bytes that
 * docs/format.md says. */
#include "testing.h"

#include "cairn/identity.h"

static cairn_digest identity(void)
{
    cairn_digest d;
    for (int i = 0; i < 32; i++)
        d.bytes[i] = (uint8_t)i;
    return d;
}

static void exact_keys(void **state)
{
    (void)state;
    const int32_t first[] = {1, 2, 3}, second[] = {-1, 0, INT32_MAX, INT32_MIN};
    int32_t       many[300];
    for (int i = 0; i < 300; i++)
        many[i] = i * 7919 % 49152;
    cairn_digest id = identity();
    cairn_key    none = {{0}};
    cairn_key    k1 = cairn_chain_key(&id, NULL, first, 3), k2 = cairn_chain_key(&id, &k1, second, 4);
    assert_hex(k1.bytes, 32, "ce7ae71cac2c79b3faa94f737e068a9f80963e504f9de7706f13b548a275d5f6");
    assert_hex(cairn_chain_key(&id, &none, first, 3).bytes, 32,
               "ce7ae71cac2c79b3faa94f737e068a9f80963e504f9de7706f13b548a275d5f6");
    assert_hex(cairn_checkpoint_key(&id, NULL, first, 3).bytes, 32,
               "fa40329ca2a5da4ffdb9c3f39d3cdd349bd4d088f4082d211c96c05f3eda340c");
    assert_hex(k2.bytes, 32, "4b45121cb8cc8981f02a6add32023b95dcfbfcd84af957e891827b6d926a8250");
    assert_hex(cairn_chain_key(&id, &k2, many, 256).bytes, 32,
               "b7126d8154451122194145abb7c9958282d01ce2f6c9bcec28e279b06884b841");
    assert_hex(cairn_chain_key(&id, &k2, many, 300).bytes, 32, /* more than one buffer of tokens */
               "a60efde7955c696b850039f4800290cf88f75e09fb3170a3f0ede627ed1fa49b");
    assert_hex(cairn_chain_key(&id, NULL, NULL, 0).bytes, 32,
               "88f287246c047e7062a4b80f47505a398dc302cc9232307cb3a55d7d53afc4c7");
}

static bool same(cairn_key a, cairn_key b)
{
    return memcmp(a.bytes, b.bytes, sizeof(a.bytes)) == 0;
}

static void everything_counts(void **state)
{
    (void)state;
    int32_t      tokens[4] = {5, 6, 7, 8};
    cairn_digest id = identity(), other = id;
    cairn_key    parent = {{1}};
    cairn_key    key = cairn_chain_key(&id, &parent, tokens, 4);
    assert_true(same(key, cairn_chain_key(&id, &parent, tokens, 4)));
    other.bytes[31] ^= 1;
    assert_false(same(key, cairn_chain_key(&other, &parent, tokens, 4)));
    assert_false(same(key, cairn_chain_key(&id, NULL, tokens, 4)));
    assert_false(same(key, cairn_chain_key(&id, &parent, tokens, 3)));
    for (int i = 0; i < 4; i++) {
        tokens[i]++;
        assert_false(same(key, cairn_chain_key(&id, &parent, tokens, 4)));
        tokens[i]--;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_keys),
        cmocka_unit_test(everything_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
