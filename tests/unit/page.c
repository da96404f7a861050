/* page.c - the page header: a golden file, round trips, and everything that a
 * hostile or damaged one can be. tests/vectors/page-v1.bin was made by a python3
 * script from docs/format.md, with xxh128sum for the checksums, and is read for
 * ever. Buffers to decode are allocated at their exact size, so that the
 * address sanitizer sees a read beyond them. */
#include "testing.h"

#include "core/page.h"

#include <libgen.h>

enum { N_TOKENS = 20, N_BLOCKS = 3, HEADER_SIZE = 224 + 24 * N_BLOCKS + 4 * N_TOKENS, FILE_SIZE = 4096 + 800 };

static int32_t           golden_tokens[N_TOKENS];
static cairn__page_block golden_blocks[N_BLOCKS] = {{.size = 100}, {.size = 0}, {.size = 700}};

static cairn__page_header golden_header(void)
{
    cairn__page_header h = {
        .start = 256,
        .n_tokens = N_TOKENS,
        .n_blocks = N_BLOCKS,
        .kind = CAIRN__PAGE_ATTENTION,
        .codec = CAIRN__CODEC_RAW,
        .layout = UINT64_C(0x1122334455667788),
        .created_s = 1767225600,
        .prefill_ns = UINT64_C(123456789012),
        .tokens = golden_tokens,
        .blocks = golden_blocks,
    };
    test_unhex("b372d278ca5ca718bd7b7a20d5f81701dead204919297dff73ddca0e8008fbc6", h.identity.bytes, 32);
    test_unhex("79dfd1e46cceaaa74f4f4cbde8af616b806b80af9a27711f9b542657913aaf45", h.key.bytes, 32);
    test_unhex("2689016a53a702805aa21b61c8a80a6873c35853712d9d31cc816af992c066b5", h.parent.bytes, 32);
    for (int i = 0; i < N_TOKENS; i++)
        golden_tokens[i] = i == N_TOKENS - 1 ? -7 : i * 7919 % 49152;
    test_unhex("76b536586de98b82580b061a98a5a9b4", golden_blocks[0].checksum.bytes, 16);
    test_unhex("99aa06d3014798d86001c324468d497f", golden_blocks[1].checksum.bytes, 16);
    test_unhex("740c3cddac1a78d27b749e49290f5152", golden_blocks[2].checksum.bytes, 16);
    return h;
}

/* Decodes a copy of exactly `size` bytes; *ret_header is of no use afterwards
 * but for its scalars. */
static cairn_status decode_copy(const uint8_t *buf, size_t size, cairn__page_header *ret_header)
{
    uint8_t *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, buf, size);
    cairn_status status = cairn__page_decode(size ? copy : copy + 1, size, ret_header);
    free(copy);
    return status;
}

static void read_golden(uint8_t file[FILE_SIZE + 1])
{
    char  source[] = __FILE__;
    char *path = NULL;
    assert_true(asprintf(&path, "%s/../vectors/page-v1.bin", dirname(source)) > 0);
    assert_int_equal(test_read_file(path, file, FILE_SIZE + 1), FILE_SIZE);
    free(path);
}

static void golden_file_is_written(void **state)
{
    (void)state;
    uint8_t            file[FILE_SIZE + 1], buf[4096];
    cairn__page_header h = golden_header();
    read_golden(file);
    memset(buf, 0xee, sizeof(buf));
    assert_int_equal(cairn__page_encode(&h, buf, sizeof(buf)), CAIRN_OK);
    assert_memory_equal(buf, file, sizeof(buf));
}

static void golden_file_is_read(void **state)
{
    (void)state;
    uint8_t            file[FILE_SIZE + 1];
    uint64_t           offset[N_BLOCKS];
    uint32_t           header_size = 0;
    cairn__page_header h, want = golden_header();
    read_golden(file);
    assert_int_equal(cairn__page_header_size_peek(file, 224, &header_size), CAIRN_OK);
    assert_int_equal(header_size, HEADER_SIZE);
    assert_int_equal(cairn__page_decode(file, header_size, &h), CAIRN_OK);
    assert_memory_equal(h.identity.bytes, want.identity.bytes, 32);
    assert_memory_equal(h.key.bytes, want.key.bytes, 32);
    assert_memory_equal(h.parent.bytes, want.parent.bytes, 32);
    assert_int_equal(h.start, 256);
    assert_int_equal(h.n_tokens, N_TOKENS);
    assert_int_equal(h.n_blocks, N_BLOCKS);
    assert_int_equal(h.kind, CAIRN__PAGE_ATTENTION);
    assert_int_equal(h.codec, CAIRN__CODEC_RAW);
    assert_true(h.layout == UINT64_C(0x1122334455667788));
    assert_int_equal(h.payload_size, 800);
    assert_int_equal(h.created_s, 1767225600);
    assert_true(h.prefill_ns == UINT64_C(123456789012));
    for (uint32_t i = 0; i < N_TOKENS; i++)
        assert_int_equal(cairn__page_token(&h, i), golden_tokens[i]);
    assert_int_equal(cairn__page_file_size(&h), FILE_SIZE);
    cairn__page_block_offsets(&h, offset);
    assert_int_equal(offset[0], 4096);
    assert_int_equal(offset[1], 4196);
    assert_int_equal(offset[2], 4196);
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        cairn__page_block block = cairn__page_block_at(&h, i);
        assert_int_equal(block.size, golden_blocks[i].size);
        assert_memory_equal(block.checksum.bytes, golden_blocks[i].checksum.bytes, 16);
        assert_memory_equal(cairn__xxh3_128(file + offset[i], block.size).bytes, block.checksum.bytes, 16);
    }
}

static void match(void **state)
{
    (void)state;
    uint8_t            buf[4096];
    int32_t            other[N_TOKENS + 1] = {0};
    cairn__page_header h = golden_header();
    assert_int_equal(cairn__page_encode(&h, buf, sizeof(buf)), CAIRN_OK);
    assert_int_equal(cairn__page_decode(buf, sizeof(buf), &h), CAIRN_OK);
    memcpy(other, golden_tokens, sizeof(golden_tokens));
    assert_int_equal(cairn__page_match(&h, other, N_TOKENS + 1), N_TOKENS);
    assert_int_equal(cairn__page_match(&h, other, N_TOKENS), N_TOKENS);
    assert_int_equal(cairn__page_match(&h, other, 7), 7);
    assert_int_equal(cairn__page_match(&h, NULL, 0), 0);
    other[N_TOKENS - 1]++;
    assert_int_equal(cairn__page_match(&h, other, N_TOKENS + 1), N_TOKENS - 1);
    other[0]++;
    assert_int_equal(cairn__page_match(&h, other, N_TOKENS + 1), 0);
}

static void every_bit_flip_is_seen(void **state)
{
    (void)state;
    uint8_t            buf[4096];
    uint32_t           n = 0;
    cairn__page_header h = golden_header();
    assert_int_equal(cairn__page_encode(&h, buf, sizeof(buf)), CAIRN_OK);
    for (size_t bit = 0; bit < 8 * (size_t)HEADER_SIZE; bit++) {
        buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
        n += decode_copy(buf, sizeof(buf), &h) == CAIRN_ECORRUPT;
        buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(n, 8 * HEADER_SIZE);
    assert_int_equal(decode_copy(buf, HEADER_SIZE, &h), CAIRN_OK);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    uint8_t            buf[4096];
    uint32_t           size_read = 7;
    cairn__page_header h = golden_header(), before;
    assert_int_equal(cairn__page_encode(&h, buf, sizeof(buf)), CAIRN_OK);
    memset(&h, 0x5a, sizeof(h));
    before = h;
    for (size_t size = 0; size < HEADER_SIZE; size++)
        assert_int_equal(decode_copy(buf, size, &h), CAIRN_ECORRUPT);
    for (size_t size = 0; size < 224; size++)
        assert_int_equal(cairn__page_header_size_peek(buf, size, &size_read), CAIRN_ECORRUPT);
    assert_int_equal(size_read, 7);
    assert_memory_equal(&h, &before, sizeof(h)); /* on error untouched */
    assert_int_equal(decode_copy(buf, HEADER_SIZE, &h), CAIRN_OK);
}

/* Puts a valid checksum on whatever the header now says, as an attacker would. */
static void reseal(uint8_t *buf)
{
    cairn__xxh128 sum = cairn__xxh3_128_zeroed(buf, HEADER_SIZE, 80, 16);
    memcpy(buf + 80, sum.bytes, 16);
}

static void hostile_fields_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t offset, size;
        uint64_t value;
    } bad[] = {
        {8, 4, 0}, {8, 4, 2}, {8, 4, UINT32_MAX},                            /* version */
        {12, 4, 0x04030201}, {12, 4, 0},                                     /* byte order */
        {16, 4, 0}, {16, 4, HEADER_SIZE - 1}, {16, 4, HEADER_SIZE + 1}, {16, 4, UINT32_MAX}, /* header_size */
        {20, 4, 0}, {20, 4, 3}, {20, 4, UINT32_MAX},                         /* kind */
        {24, 4, 1}, {24, 4, UINT32_MAX},                                     /* codec */
        {28, 4, 1}, {28, 4, 2}, {28, 4, 3}, {48, 4, 1}, {76, 4, 1u << 31},    /* flags, salt */
        {196, 4, 1},                                                         /* must be zero */
        {192, 4, UINT32_MAX - N_TOKENS + 1},                                 /* start + n_tokens overflows */
        {32, 4, 0}, {32, 4, N_TOKENS - 1}, {32, 4, N_TOKENS + 1},         /* n_tokens */
        {32, 4, 4097}, {32, 4, UINT32_MAX},
        {36, 4, 0}, {36, 4, 1}, {36, 4, 4097}, {36, 4, 0x80000000u}, {36, 4, UINT32_MAX}, /* n_blocks */
        {40, 8, 0}, {40, 8, 799}, {40, 8, 801}, {40, 8, UINT64_MAX},     /* payload_size */
        {224, 8, 99}, {224, 8, 101}, {224, 8, (UINT64_C(1) << 30) + 1},      /* size of block 0 */
        {224, 8, UINT64_C(1) << 63}, {224, 8, UINT64_MAX},
        {224, 8, UINT64_C(0) - 600}, /* would add up to the right sum modulo 2^64 with block 1 below */
    };
    uint8_t            good[4096], buf[4096];
    cairn__page_header h = golden_header();
    assert_int_equal(cairn__page_encode(&h, good, sizeof(good)), CAIRN_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        memcpy(buf, good, sizeof(buf));
        if (bad[i].size == 4)
            cairn__put_u32(buf + bad[i].offset, (uint32_t)bad[i].value);
        else
            cairn__put_u64(buf + bad[i].offset, bad[i].value);
        if (bad[i].value == UINT64_C(0) - 600)
            cairn__put_u64(buf + 224 + 24, 700);
        reseal(buf);
        if (decode_copy(buf, sizeof(buf), &h) != CAIRN_ECORRUPT)
            fail_msg("row %zu was not refused", i);
    }
    memcpy(buf, good, sizeof(buf));
    reseal(buf);
    assert_memory_equal(buf, good, sizeof(buf)); /* reseal() is right, else all of the above is void */
}

static void other_values_are_carried(void **state)
{
    (void)state;
    uint8_t            buf[4096];
    cairn__page_header h = golden_header(), got;
    h.start = UINT32_MAX - N_TOKENS;
    h.layout = UINT64_MAX;
    h.created_s = -1;
    h.prefill_ns = UINT64_MAX;
    h.payload_size = 5; /* ignored */
    assert_int_equal(cairn__page_encode(&h, buf, sizeof(buf)), CAIRN_OK);
    assert_int_equal(cairn__page_decode(buf, sizeof(buf), &got), CAIRN_OK);
    assert_int_equal(got.start, UINT32_MAX - N_TOKENS);
    assert_true(got.layout == UINT64_MAX && got.prefill_ns == UINT64_MAX && got.created_s == -1);
    assert_int_equal(got.payload_size, 800);
}

static void encode_refuses(void **state)
{
    (void)state;
    uint8_t            buf[8192];
    cairn__page_header good = golden_header(), h;
#define REFUSED(change)                                                                                                \
    do {                                                                                                               \
        h = good;                                                                                                      \
        change;                                                                                                        \
        assert_int_equal(cairn__page_encode(&h, buf, sizeof(buf)), CAIRN_EINVAL);                                      \
    } while (0)
    REFUSED(h.n_tokens = 0);
    REFUSED(h.n_tokens = 4097);
    REFUSED(h.n_blocks = 0);
    REFUSED(h.n_blocks = 4097);
    REFUSED(h.kind = (cairn__page_kind)3);
    REFUSED(h.codec = (cairn__page_codec)1);
    REFUSED(h.start = UINT32_MAX - N_TOKENS + 1);
    cairn__page_block large = {.size = (UINT64_C(1) << 30) + 1}, nothing = {.size = 0};
    REFUSED((h.n_blocks = 1, h.blocks = &large));
    REFUSED((h.n_blocks = 1, h.blocks = &nothing)); /* a page without payload */
#undef REFUSED
    h = good;
    assert_int_equal(cairn__page_encode(&h, buf, 4095), CAIRN_EINVAL);
    assert_int_equal(cairn__page_encode(&h, buf, 4096), CAIRN_OK);
}

static void largest_page(void **state)
{
    (void)state;
    const uint32_t     n = 4096, size = cairn__page_payload_offset(n, n);
    uint8_t           *buf = malloc(size);
    int32_t           *tokens = calloc(n, sizeof(*tokens));
    cairn__page_block *blocks = calloc(n, sizeof(*blocks));
    cairn__page_header h = golden_header();
    assert_true(buf && tokens && blocks);
    assert_int_equal(cairn__page_header_size(n, n), 114912);
    assert_int_equal(size, 118784);
    h.n_tokens = h.n_blocks = n;
    h.tokens = tokens;
    h.blocks = blocks;
    for (uint32_t i = 0; i < n; i++)
        blocks[i].size = UINT64_C(1) << 24; /* adds up to the limit of 64 GiB */
    assert_int_equal(cairn__page_encode(&h, buf, size), CAIRN_OK);
    assert_int_equal(cairn__page_decode(buf, size, &h), CAIRN_OK);
    assert_true(h.payload_size == UINT64_C(1) << 36);
    h.tokens = tokens;
    h.blocks = blocks;
    blocks[17].size++;
    assert_int_equal(cairn__page_encode(&h, buf, size), CAIRN_EINVAL);
    free(buf);
    free(tokens);
    free(blocks);
}

static void payload_is_aligned(void **state)
{
    (void)state;
    assert_int_equal(cairn__page_header_size(1, 1), 252);
    assert_int_equal(cairn__page_payload_offset(1, 1), 4096);
    assert_int_equal(cairn__page_header_size(248, 120), 4096);
    assert_int_equal(cairn__page_payload_offset(248, 120), 4096);
    assert_int_equal(cairn__page_payload_offset(249, 120), 8192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_file_is_written),
        cmocka_unit_test(golden_file_is_read),
        cmocka_unit_test(match),
        cmocka_unit_test(every_bit_flip_is_seen),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(hostile_fields_are_refused),
        cmocka_unit_test(other_values_are_carried),
        cmocka_unit_test(encode_refuses),
        cmocka_unit_test(largest_page),
        cmocka_unit_test(payload_is_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
