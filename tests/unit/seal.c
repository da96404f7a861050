/* seal.c - what is derived from a key, and sealed files against vectors: HMAC of
 * RFC 4231, AES-256-GCM of the GCM specification (McGrew and Viega, test cases 14
 * and 16), and files made by a python3 script from docs/format.md with the
 * cryptography package. */
#include "testing.h"

#include "base/gcm.h"
#include "core/identity_file.h"
#include "core/page.h"

#include <libgen.h>

enum { HEADER_SIZE = 224 + 24 * 3 + 4 * 20, FILE_SIZE = 4096 + 800, TEXT_SIZE = 21 };

static cairn__keyring *keyring_of(uint8_t first)
{
    uint8_t         key[CAIRN__SECRET_SIZE];
    cairn__keyring *keyring;
    for (int i = 0; i < 32; i++)
        key[i] = (uint8_t)(first + i);
    assert_int_equal(cairn__keyring_create(key, &keyring), CAIRN_OK);
    return keyring;
}

static size_t read_vector(const char *name, uint8_t *data, size_t room)
{
    char  source[] = __FILE__;
    char *path = NULL;
    assert_true(asprintf(&path, "%s/../vectors/%s", dirname(source), name) > 0);
    size_t size = test_read_file(path, data, room);
    free(path);
    return size;
}

static void hmac_vectors(void **state)
{
    (void)state;
    uint8_t key[CAIRN__SECRET_SIZE] = {0};
    memset(key, 0x0b, 20); /* a short key is one with zeros behind it */
    assert_hex(cairn__hmac_sha256(key, NULL, "Hi There", 8).bytes, 32,
               "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    for (int i = 0; i < 32; i++)
        key[i] = (uint8_t)i;
    assert_hex(cairn__hmac_sha256(key, "cairn test", "abc", 3).bytes, 32, /* python3 hmac */
               "5c9fc0e08849432d0daeb2bcddeea6dea5594b7ed3758f6f66eab305ce14d5c7");
}

/* Seals `size` bytes in pieces of `step` and opens them again where they lie. */
static void check_gcm(cairn__gcm_cipher *cipher, cairn__gcm_message m, const uint8_t *text, size_t size, size_t step,
                      const char *hex, const char *tag_hex)
{
    uint8_t     out[64] = {0}, tag[CAIRN__GCM_TAG_SIZE];
    cairn__gcm *gcm;
    assert_int_equal(cairn__gcm_begin(cipher, &m, &gcm), CAIRN_OK);
    for (size_t at = 0; at < size; at += step) {
        size_t n = size - at < step ? size - at : step;
        assert_int_equal(cairn__gcm_part(gcm, text + at, n, out + at), CAIRN_OK);
    }
    assert_int_equal(cairn__gcm_seal_tag(gcm, tag), CAIRN_OK);
    cairn__gcm_end(gcm);
    assert_hex(out, size, hex);
    assert_hex(tag, sizeof(tag), tag_hex);
    m.opening = true;
    for (int bad = 0; bad < 2; bad++) {
        uint8_t copy[64];
        memcpy(copy, out, sizeof(copy));
        tag[15] ^= (uint8_t)bad;
        assert_int_equal(cairn__gcm_begin(cipher, &m, &gcm), CAIRN_OK);
        assert_int_equal(cairn__gcm_part(gcm, copy, size, copy), CAIRN_OK);
        assert_int_equal(cairn__gcm_open_tag(gcm, tag), bad ? CAIRN_ECORRUPT : CAIRN_OK);
        cairn__gcm_end(gcm);
        assert_memory_equal(copy, text, size);
    }
}

static void gcm_vectors(void **state)
{
    (void)state;
    static const uint8_t zeros[32];
    uint8_t              key[32], nonce[12], text[60], plain[20];
    cairn__gcm_cipher   *cipher = cairn__gcm_cipher_create();
    assert_non_null(cipher);
    check_gcm(cipher, (cairn__gcm_message){.key = zeros, .nonce = zeros}, zeros, 16, 16,
              "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919");
    check_gcm(cipher, (cairn__gcm_message){.key = zeros, .nonce = zeros}, zeros, 0, 1, "",
              "530f8afbc74536b9a963b4f1c4cb738b");
    test_unhex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", key, 32);
    test_unhex("cafebabefacedbaddecaf888", nonce, 12);
    test_unhex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
               "b16aedf5aa0de657ba637b39",
               text, 60);
    test_unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2", plain, 20);
    static const size_t steps[] = {1, 7, 16, 60};
    for (size_t i = 0; i < 4; i++)
        check_gcm(cipher, (cairn__gcm_message){.key = key, .nonce = nonce, .plain = plain, .plain_size = 20}, text, 60,
                  steps[i],
                  "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5"
                  "f61e6393ba7a0abcc9f662",
                  "76fc6ece0f4e1768cddf8853bb2d551b");
    cairn__gcm_cipher_destroy(cipher);
}

static void namespaces(void **state)
{
    (void)state;
    cairn__keyring *a = keyring_of(0), *b = keyring_of(1);
    cairn_digest    id;
    for (int i = 0; i < 32; i++)
        id.bytes[i] = (uint8_t)i;
    assert_hex(cairn__namespace_digest(a, &id).bytes, 32,
               "a923595819117594d6daa281d67ef67016f8ad35ccd6c4dcb440ea29807ddc8f");
    assert_memory_equal(cairn__namespace_digest(NULL, &id).bytes, id.bytes, 32);
    cairn_digest other = cairn__namespace_digest(b, &id);
    assert_memory_not_equal(cairn__namespace_digest(a, &id).bytes, other.bytes, 16);
    cairn__keyring_destroy(a);
    cairn__keyring_destroy(b);
    cairn__keyring_destroy(NULL);
}

/* ---- a page ---- */

static void golden_page_is_read(void **state)
{
    (void)state;
    uint8_t            sealed[FILE_SIZE + 1], plain[FILE_SIZE + 1];
    uint64_t           offset[3];
    cairn__keyring    *keyring = keyring_of(0);
    cairn__page_header h, want, seen;
    assert_int_equal(read_vector("page-sealed-v1.bin", sealed, sizeof(sealed)), FILE_SIZE);
    assert_int_equal(read_vector("page-v1.bin", plain, sizeof(plain)), FILE_SIZE);
    assert_int_equal(cairn__page_decode(plain, FILE_SIZE, &want), CAIRN_OK);
    assert_int_equal(cairn__page_decode(sealed, FILE_SIZE, &h), CAIRN_ECORRUPT);
    assert_int_equal(cairn__page_peek(sealed, FILE_SIZE, &seen), CAIRN_OK);
    assert_true(seen.sealed && seen.n_tokens == 20 && seen.n_blocks == 3 && seen.payload_size == 800);
    assert_int_equal(cairn__page_decode_sealed(keyring, sealed, HEADER_SIZE, &h), CAIRN_OK);
    assert_true(h.sealed && !want.sealed);
    cairn_digest namespace = cairn__namespace_digest(keyring, &want.identity);
    assert_memory_equal(h.identity.bytes, namespace.bytes, 32);
    assert_memory_equal(h.parent.bytes, want.parent.bytes, 32);
    int32_t tokens[20];
    for (uint32_t i = 0; i < 20; i++) {
        tokens[i] = cairn__page_token(&want, i);
        assert_int_equal(cairn__page_token(&h, i), tokens[i]);
    }
    cairn_key key = cairn_chain_key(&namespace, &h.parent, tokens, 20);
    assert_memory_equal(h.key.bytes, key.bytes, 32);
    assert_true(h.start == want.start && h.layout == want.layout && h.created_s == want.created_s &&
                h.prefill_ns == want.prefill_ns && h.payload_size == want.payload_size);
    cairn__page_block_offsets(&h, offset);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(cairn__page_prove_block(keyring, &h, i, sealed + offset[i]), CAIRN_OK);
    assert_memory_equal(sealed + 4096, plain + 4096, 800);
    cairn__keyring_destroy(keyring);
}

/* The golden page decoded, and its header sealed anew with the same salt. */
static void golden_page_is_written(void **state)
{
    (void)state;
    uint8_t            golden[FILE_SIZE + 1], work[FILE_SIZE + 1], again[4096];
    int32_t            tokens[20];
    cairn__page_block  blocks[3];
    cairn__keyring    *keyring = keyring_of(0);
    cairn__page_header h;
    assert_int_equal(read_vector("page-sealed-v1.bin", golden, sizeof(golden)), FILE_SIZE);
    memcpy(work, golden, sizeof(work));
    assert_int_equal(cairn__page_decode_sealed(keyring, work, HEADER_SIZE, &h), CAIRN_OK);
    for (uint32_t i = 0; i < 20; i++)
        tokens[i] = cairn__page_token(&h, i);
    for (uint32_t i = 0, at = 4096; i < 3; i++) {
        uint8_t            tag[CAIRN__GCM_TAG_SIZE];
        cairn__sealed_part part = {.salt = h.salt, .number = i};
        blocks[i] = cairn__page_block_at(&h, i);
        assert_int_equal(cairn__page_prove_block(keyring, &h, i, work + at), CAIRN_OK);
        assert_int_equal(cairn__seal(keyring, &part, work + at, blocks[i].size, tag), CAIRN_OK);
        assert_memory_equal(tag, blocks[i].checksum.bytes, sizeof(tag));
        at += (uint32_t)blocks[i].size;
    }
    assert_memory_equal(work + 4096, golden + 4096, 800);
    h.tokens = tokens;
    h.blocks = blocks;
    assert_int_equal(cairn__page_encode_sealed(keyring, &h, again, sizeof(again)), CAIRN_OK);
    assert_memory_equal(again, golden, sizeof(again));
    cairn__keyring_destroy(keyring);
}

static void every_bit_of_a_header_counts(void **state)
{
    (void)state;
    uint8_t            golden[FILE_SIZE + 1], work[HEADER_SIZE];
    static uint8_t     zeros[HEADER_SIZE];
    uint32_t           n_wiped = 0;
    cairn__keyring    *keyring = keyring_of(0), *other = keyring_of(1);
    cairn__page_header h;
    assert_int_equal(read_vector("page-sealed-v1.bin", golden, sizeof(golden)), FILE_SIZE);
    for (size_t bit = 0; bit < 8 * (size_t)HEADER_SIZE; bit++) {
        memcpy(work, golden, sizeof(work));
        work[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (cairn__page_decode_sealed(keyring, work, sizeof(work), &h) != CAIRN_ECORRUPT)
            fail_msg("bit %zu", bit);
        n_wiped += memcmp(work + 96, zeros, HEADER_SIZE - 96) == 0;
    }
    assert_true(n_wiped >= 8 * (HEADER_SIZE - 48)); /* wherever the tag was looked at */
    for (size_t size = 0; size < HEADER_SIZE; size++) {
        memcpy(work, golden, sizeof(work));
        assert_int_equal(cairn__page_decode_sealed(keyring, work, size, &h), CAIRN_ECORRUPT);
    }
    memcpy(work, golden, sizeof(work));
    assert_int_equal(cairn__page_decode_sealed(other, work, sizeof(work), &h), CAIRN_ECORRUPT);
    memcpy(work, golden, sizeof(work));
    assert_int_equal(cairn__page_decode_sealed(keyring, work, sizeof(work), &h), CAIRN_OK);
    assert_int_equal(cairn__page_decode_sealed(keyring, work, sizeof(work), &h), CAIRN_ECORRUPT); /* not twice */
    cairn__keyring_destroy(keyring);
    cairn__keyring_destroy(other);
}

static void a_plain_page_is_none_where_sealed_ones_belong(void **state)
{
    (void)state;
    uint8_t            plain[FILE_SIZE + 1];
    cairn__keyring    *keyring = keyring_of(0);
    cairn__page_header h;
    assert_int_equal(read_vector("page-v1.bin", plain, sizeof(plain)), FILE_SIZE);
    assert_int_equal(cairn__page_decode_sealed(keyring, plain, FILE_SIZE, &h), CAIRN_ECORRUPT);
    cairn__keyring_destroy(keyring);
}

/* A block that is not what was sealed leaves zeros, not the bytes of an attacker. */
static void a_bad_block_is_wiped(void **state)
{
    (void)state;
    uint8_t            file[FILE_SIZE + 1], block[700];
    static uint8_t     zeros[700];
    cairn__keyring    *keyring = keyring_of(0);
    cairn__page_header h;
    assert_int_equal(read_vector("page-sealed-v1.bin", file, sizeof(file)), FILE_SIZE);
    assert_int_equal(cairn__page_decode_sealed(keyring, file, HEADER_SIZE, &h), CAIRN_OK);
    for (size_t i = 0; i < sizeof(block); i++) {
        memcpy(block, file + 4196, sizeof(block));
        block[i] ^= 0x80;
        assert_int_equal(cairn__page_prove_block(keyring, &h, 2, block), CAIRN_ECORRUPT);
        assert_memory_equal(block, zeros, sizeof(block));
    }
    /* One block is not another: 0 has the size of the first 100 bytes of 2. */
    memcpy(block, file + 4096, 100);
    cairn__sealed_part part = {.salt = h.salt, .number = 1};
    assert_int_equal(cairn__unseal(keyring, &part, block, 100, cairn__page_block_at(&h, 0).checksum.bytes),
                     CAIRN_ECORRUPT);
    cairn__keyring_destroy(keyring);
}

/* ---- identity file ---- */

static void identity_file(void **state)
{
    (void)state;
    static const char TEXT[] = "a=1\na.b=2\na_b=3\nab=4\n";
    uint8_t           golden[128], work[128];
    const char       *text;
    size_t            size;
    cairn__keyring   *keyring = keyring_of(0), *other = keyring_of(1);
    const size_t      file_size = CAIRN__IDENTITY_SEAL_SIZE + TEXT_SIZE;
    assert_int_equal(read_vector("identity-sealed-v1.bin", golden, sizeof(golden)), file_size);
    assert_int_equal(cairn__identity_file_seal(keyring, golden + 16, TEXT, TEXT_SIZE, work), CAIRN_OK);
    assert_memory_equal(work, golden, file_size);
    for (size_t bit = 0; bit < 8 * file_size; bit++) {
        memcpy(work, golden, file_size);
        work[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(cairn__identity_file_unseal(keyring, work, file_size, &text, &size), CAIRN_ECORRUPT);
    }
    for (size_t n = 0; n < file_size; n++) {
        memcpy(work, golden, file_size);
        assert_int_equal(cairn__identity_file_unseal(keyring, work, n, &text, &size), CAIRN_ECORRUPT);
    }
    memcpy(work, golden, file_size);
    assert_int_equal(cairn__identity_file_unseal(other, work, file_size, &text, &size), CAIRN_ECORRUPT);
    memcpy(work, golden, file_size);
    assert_int_equal(cairn__identity_file_unseal(keyring, work, file_size, &text, &size), CAIRN_OK);
    assert_int_equal(size, TEXT_SIZE);
    assert_memory_equal(text, TEXT, size);
    cairn__keyring_destroy(keyring);
    cairn__keyring_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hmac_vectors),
        cmocka_unit_test(gcm_vectors),
        cmocka_unit_test(namespaces),
        cmocka_unit_test(golden_page_is_read),
        cmocka_unit_test(golden_page_is_written),
        cmocka_unit_test(every_bit_of_a_header_counts),
        cmocka_unit_test(a_plain_page_is_none_where_sealed_ones_belong),
        cmocka_unit_test(a_bad_block_is_wiped),
        cmocka_unit_test(identity_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
