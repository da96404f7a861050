/* digest.c - SHA-256 and XXH3-128 against values of sha256sum and xxh128sum
 * (xxHash 0.8.1's own program), over test_fill()'s bytes. */
#include "testing.h"

#include "base/digest.h"
#include "base/xxh3.h"

enum { SIZE_MAX_TESTED = 65537 };
static uint8_t data[SIZE_MAX_TESTED];

static int fill(void **state)
{
    (void)state;
    test_fill(data, sizeof(data));
    return 0;
}

static void sha256_vectors(void **state)
{
    (void)state;
    assert_hex(cairn__sha256_once("", 0).bytes, 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_hex(cairn__sha256_once("abc", 3).bytes, 32,
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_hex(cairn__sha256_once(data, sizeof(data)).bytes, 32,
               "2b895c22beff4b2bb6a9416b37feb9aee849555d274e7c965596438941a5e497");
}

static void sha256_in_pieces(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 55, 56, 63, 64, 65, 4096};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        cairn__sha256 sha;
        cairn__sha256_init(&sha);
        for (size_t at = 0; at < sizeof(data); at += steps[i])
            cairn__sha256_update(&sha, data + at, sizeof(data) - at < steps[i] ? sizeof(data) - at : steps[i]);
        assert_hex(cairn__sha256_done(&sha).bytes, 32,
                   "2b895c22beff4b2bb6a9416b37feb9aee849555d274e7c965596438941a5e497");
    }
}

static const struct {
    size_t      size;
    const char *hex;
} xxh[] = { /* every branch of XXH3: 0, 1-3, 4-8, 9-16, 17-128, 129-240, stripes, blocks */
    {0, "99aa06d3014798d86001c324468d497f"},    {1, "495b62073ef70ca44c5cca45d0f4811f"},
    {3, "390cdc5b4a895dd76e3e2670e61106ac"},    {4, "aa6e2f274640a3f43d668af6f2a44d77"},
    {8, "6a86a3bda6af4e3d61ddbe7f31a6100d"},    {9, "664c7ca18afd62558c7b67fd458a936b"},
    {16, "7f9a218b0425449ae2ce54a7c19c730d"},   {17, "66fc23f6439dbd778d96ef110fcdebb4"},
    {128, "aec730751478556cff361dec1385710a"},  {129, "98cd36ccbb5579264545b3a09738e31a"},
    {240, "5293e17bf553903d3f2c53e72293711f"},  {241, "b53840fe3fedf161956cae592c67279e"},
    {512, "1a7e53736720a2e631cc4c8456761b50"},  {1024, "f3fc143cd81d51baa1e16f2edf2cbed6"},
    {1025, "90bcb44432d2e5020a6d2c17259fe4bb"}, {65537, "31d2175b9b02af8516210440cfed656e"},
};
#define N_XXH (sizeof(xxh) / sizeof(xxh[0]))

static void check_xxh(cairn__xxh128 (*hash)(const void *data, size_t size))
{
    /* At an odd address too: blocks lie anywhere in a joined blob. */
    uint8_t *odd = malloc(SIZE_MAX_TESTED + 1);
    assert_non_null(odd);
    memcpy(odd + 1, data, SIZE_MAX_TESTED);
    for (size_t i = 0; i < N_XXH; i++) {
        assert_hex(hash(data, xxh[i].size).bytes, 16, xxh[i].hex);
        assert_hex(hash(odd + 1, xxh[i].size).bytes, 16, xxh[i].hex);
    }
    free(odd);
}

static void xxh3_vectors(void **state)
{
    (void)state;
    check_xxh(cairn__xxh3_128);
}

static void xxh3_every_build(void **state)
{
    (void)state;
    check_xxh(cairn__xxh3_128_baseline);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        check_xxh(cairn__xxh3_128_avx2);
    if (__builtin_cpu_supports("avx512f"))
        check_xxh(cairn__xxh3_128_avx512);
#endif
}

static void xxh3_zeroed(void **state)
{
    (void)state;
    assert_hex(cairn__xxh3_128_zeroed(data, 4096, 176, 16).bytes, 16, "9fbd905bcf7ae8bc1016ec13caab5ff9");
    assert_hex(cairn__xxh3_128_zeroed(data, 100, 84, 16).bytes, 16, "f3b6e53512013d2680c9370ae406314c");
    assert_hex(cairn__xxh3_128_zeroed(data, 16, 0, 16).bytes, 16, "e5189a9599e3f86205ea23ef06e28b2d");
    assert_hex(cairn__xxh3_128_zeroed(data, 1025, 7, 0).bytes, 16, "90bcb44432d2e5020a6d2c17259fe4bb");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_vectors),   cmocka_unit_test(sha256_in_pieces), cmocka_unit_test(xxh3_vectors),
        cmocka_unit_test(xxh3_every_build), cmocka_unit_test(xxh3_zeroed),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
