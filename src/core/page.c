/* page.c - the page header: bytes to fields and back. See page.h for the shape;
 * the offsets below are those of docs/format.md.
 *
 * Decoding is in the order that hostile bytes demand: the buffer's size, magic,
 * version, byte order, each count against its limit, header_size against what
 * the counts give and against the buffer, the checksum or tag, and only then the
 * fields with meaning. Nothing is read that was not bounded before. The fields
 * that this needs come first, since they stay plain in a sealed page. */
#include "core/page.h"

#include "base/bytes.h"
#include "core/tokens.h"

#include <assert.h>
#include <stddef.h>

/* Offsets of the fixed part. */
enum {
    AT_MAGIC = 0,         /* 8 */
    AT_VERSION = 8,       /* u32 */
    AT_BYTE_ORDER = 12,   /* u32, native */
    AT_HEADER_SIZE = 16,  /* u32 */
    AT_KIND = 20,         /* u32 */
    AT_CODEC = 24,        /* u32 */
    AT_FLAGS = 28,        /* u32 */
    AT_N_TOKENS = 32,     /* u32 */
    AT_N_BLOCKS = 36,     /* u32 */
    AT_PAYLOAD_SIZE = 40, /* u64 */
    AT_SALT = 48,         /* 32 */
    AT_CHECKSUM = 80,     /* 16: XXH3-128, or the tag of AT_SECRET.. with all before as plain */
    AT_SECRET = 96,       /* from here on encrypted in a sealed page */
    AT_IDENTITY = 96,     /* 32 */
    AT_KEY = 128,         /* 32 */
    AT_PARENT = 160,      /* 32 */
    AT_START = 192,       /* u32 */
    AT_RESERVED = 196,    /* u32, zero */
    AT_LAYOUT = 200,      /* u64 */
    AT_CREATED = 208,     /* i64 */
    AT_PREFILL_NS = 216,  /* u64 */
    AT_END = 224,
};
_Static_assert(AT_END == CAIRN__PAGE_FIXED_SIZE, "the fixed part has no gaps");
_Static_assert(AT_SALT + CAIRN__SALT_SIZE == AT_CHECKSUM, "the plain part ends with the salt");
_Static_assert(AT_CHECKSUM + sizeof(cairn__xxh128) == AT_SECRET, "checksum and tag have the same place");
_Static_assert(sizeof(cairn__xxh128) == CAIRN__GCM_TAG_SIZE, "and the same size");
_Static_assert(CAIRN__PAGE_HEADER_SIZE_MAX == 114912, "as docs/format.md says");

#define FLAG_SEALED 1u

static const uint8_t  MAGIC[8] = {'C', 'A', 'I', 'R', 'N', 'P', 'G', '1'};
static const uint32_t BYTE_ORDER_MARK = 0x01020304;

uint32_t cairn__page_header_size(uint32_t n_tokens, uint32_t n_blocks)
{
    assert(n_tokens <= CAIRN__PAGE_TOKENS_MAX && n_blocks <= CAIRN__PAGE_BLOCKS_MAX);
    return CAIRN__PAGE_FIXED_SIZE + n_blocks * CAIRN__PAGE_BLOCK_ENTRY_SIZE + n_tokens * 4;
}

uint32_t cairn__page_payload_offset(uint32_t n_tokens, uint32_t n_blocks)
{
    uint32_t size = cairn__page_header_size(n_tokens, n_blocks);
    return (size + CAIRN__PAGE_ALIGNMENT - 1) / CAIRN__PAGE_ALIGNMENT * CAIRN__PAGE_ALIGNMENT;
}

uint64_t cairn__page_file_size(const cairn__page_header *header)
{
    return cairn__page_payload_offset(header->n_tokens, header->n_blocks) + header->payload_size;
}

static bool counts_within_limits(uint32_t n_tokens, uint32_t n_blocks)
{
    return n_tokens >= 1 && n_tokens <= CAIRN__PAGE_TOKENS_MAX && n_blocks >= 1 && n_blocks <= CAIRN__PAGE_BLOCKS_MAX;
}

static bool kind_is_known(cairn__page_kind kind)
{
    return kind == CAIRN__PAGE_ATTENTION || kind == CAIRN__PAGE_CHECKPOINT;
}

static bool meaning_is_valid(const cairn__page_header *header)
{
    return kind_is_known(header->kind) && header->codec == CAIRN__CODEC_RAW &&
           header->start <= UINT32_MAX - header->n_tokens;
}

static cairn__xxh128 checksum_of(const uint8_t *buf, uint32_t header_size)
{
    return cairn__xxh3_128_zeroed(buf, header_size, AT_CHECKSUM, sizeof(cairn__xxh128));
}

static bool checksum_holds(const uint8_t *buf, uint32_t header_size)
{
    cairn__xxh128 want = checksum_of(buf, header_size);
    return memcmp(want.bytes, buf + AT_CHECKSUM, sizeof(want.bytes)) == 0;
}

/* One block more; false when it or the sum is too large (P2). */
static bool add_block(uint64_t size, uint64_t *sum)
{
    if (size > CAIRN__PAGE_BLOCK_SIZE_MAX || size > CAIRN__PAGE_PAYLOAD_MAX - *sum)
        return false;
    *sum += size;
    return true;
}

static void put_fixed(const cairn__page_header *header, uint64_t payload_size, bool sealed, uint8_t *buf)
{
    memcpy(buf + AT_MAGIC, MAGIC, sizeof(MAGIC));
    cairn__put_u32(buf + AT_VERSION, CAIRN__PAGE_VERSION);
    memcpy(buf + AT_BYTE_ORDER, &BYTE_ORDER_MARK, sizeof(BYTE_ORDER_MARK));
    cairn__put_u32(buf + AT_HEADER_SIZE, cairn__page_header_size(header->n_tokens, header->n_blocks));
    cairn__put_u32(buf + AT_KIND, (uint32_t)header->kind);
    cairn__put_u32(buf + AT_CODEC, (uint32_t)header->codec);
    cairn__put_u32(buf + AT_FLAGS, sealed ? FLAG_SEALED : 0);
    cairn__put_u32(buf + AT_N_TOKENS, header->n_tokens);
    cairn__put_u32(buf + AT_N_BLOCKS, header->n_blocks);
    cairn__put_u64(buf + AT_PAYLOAD_SIZE, payload_size);
    memset(buf + AT_SALT, 0, CAIRN__SALT_SIZE);
    if (sealed)
        memcpy(buf + AT_SALT, header->salt, CAIRN__SALT_SIZE);
    memcpy(buf + AT_IDENTITY, header->identity.bytes, sizeof(header->identity.bytes));
    memcpy(buf + AT_KEY, header->key.bytes, sizeof(header->key.bytes));
    memcpy(buf + AT_PARENT, header->parent.bytes, sizeof(header->parent.bytes));
    cairn__put_u32(buf + AT_START, header->start);
    cairn__put_u32(buf + AT_RESERVED, 0);
    cairn__put_u64(buf + AT_LAYOUT, header->layout);
    cairn__put_u64(buf + AT_CREATED, (uint64_t)header->created_s);
    cairn__put_u64(buf + AT_PREFILL_NS, header->prefill_ns);
}

/* All but what proves it. */
static cairn_status put_header(const cairn__page_header *header, bool sealed, uint8_t *buf, size_t buf_size,
                               uint32_t *ret_header_size)
{
    uint64_t payload_size = 0;
    if (!counts_within_limits(header->n_tokens, header->n_blocks) || !meaning_is_valid(header))
        return CAIRN_EINVAL;
    uint32_t header_size = cairn__page_header_size(header->n_tokens, header->n_blocks);
    uint32_t offset = cairn__page_payload_offset(header->n_tokens, header->n_blocks);
    if (buf_size < offset)
        return CAIRN_EINVAL;
    uint8_t *entry = buf + AT_END;
    for (uint32_t i = 0; i < header->n_blocks; i++, entry += CAIRN__PAGE_BLOCK_ENTRY_SIZE) {
        const cairn__page_block *block = &header->blocks[i];
        if (!add_block(block->size, &payload_size))
            return CAIRN_EINVAL;
        cairn__put_u64(entry, block->size);
        memcpy(entry + 8, block->checksum.bytes, sizeof(block->checksum.bytes));
    }
    if (payload_size == 0)
        return CAIRN_EINVAL;
    cairn__put_tokens(entry, header->tokens, header->n_tokens);
    put_fixed(header, payload_size, sealed, buf);
    memset(buf + header_size, 0, offset - header_size);
    *ret_header_size = header_size;
    return CAIRN_OK;
}

cairn_status cairn__page_encode(const cairn__page_header *header, uint8_t *buf, size_t buf_size)
{
    uint32_t     header_size;
    cairn_status status = put_header(header, false, buf, buf_size, &header_size);
    if (status)
        return status;
    cairn__xxh128 checksum = checksum_of(buf, header_size);
    memcpy(buf + AT_CHECKSUM, checksum.bytes, sizeof(checksum.bytes));
    return CAIRN_OK;
}

/* The encrypted part of a header, authenticated with the plain one. */
static cairn__sealed_part secret_part(const uint8_t *buf)
{
    return (cairn__sealed_part){
        .salt = buf + AT_SALT, .number = CAIRN__SEAL_HEADER, .plain = buf, .plain_size = AT_CHECKSUM};
}

cairn_status cairn__page_encode_sealed(const cairn__keyring *keyring, const cairn__page_header *header, uint8_t *buf,
                                       size_t buf_size)
{
    uint32_t     header_size;
    cairn_status status = put_header(header, true, buf, buf_size, &header_size);
    if (status)
        return status;
    cairn__sealed_part part = secret_part(buf);
    return cairn__seal(keyring, &part, buf + AT_SECRET, header_size - AT_SECRET, buf + AT_CHECKSUM);
}

cairn_status cairn__page_header_size_peek(const uint8_t *buf, size_t size, uint32_t *ret_header_size)
{
    if (size < CAIRN__PAGE_FIXED_SIZE || memcmp(buf + AT_MAGIC, MAGIC, sizeof(MAGIC)) != 0 ||
        cairn__get_u32(buf + AT_VERSION) != CAIRN__PAGE_VERSION ||
        memcmp(buf + AT_BYTE_ORDER, &BYTE_ORDER_MARK, sizeof(BYTE_ORDER_MARK)) != 0)
        return CAIRN_ECORRUPT;
    uint32_t n_tokens = cairn__get_u32(buf + AT_N_TOKENS), n_blocks = cairn__get_u32(buf + AT_N_BLOCKS);
    if (!counts_within_limits(n_tokens, n_blocks) ||
        cairn__get_u32(buf + AT_HEADER_SIZE) != cairn__page_header_size(n_tokens, n_blocks))
        return CAIRN_ECORRUPT;
    *ret_header_size = cairn__get_u32(buf + AT_HEADER_SIZE);
    return CAIRN_OK;
}

/* Of a buffer whose sizes were peeked at. */
static cairn__page_header get_plain(const uint8_t *buf)
{
    cairn__page_header header = {
        .n_tokens = cairn__get_u32(buf + AT_N_TOKENS),
        .n_blocks = cairn__get_u32(buf + AT_N_BLOCKS),
        .kind = (cairn__page_kind)cairn__get_u32(buf + AT_KIND),
        .codec = (cairn__page_codec)cairn__get_u32(buf + AT_CODEC),
        .payload_size = cairn__get_u64(buf + AT_PAYLOAD_SIZE),
        .sealed = cairn__get_u32(buf + AT_FLAGS) == FLAG_SEALED,
    };
    memcpy(header.salt, buf + AT_SALT, sizeof(header.salt));
    return header;
}

static void get_secret(const uint8_t *buf, cairn__page_header *header)
{
    memcpy(header->identity.bytes, buf + AT_IDENTITY, sizeof(header->identity.bytes));
    memcpy(header->key.bytes, buf + AT_KEY, sizeof(header->key.bytes));
    memcpy(header->parent.bytes, buf + AT_PARENT, sizeof(header->parent.bytes));
    header->start = cairn__get_u32(buf + AT_START);
    header->layout = cairn__get_u64(buf + AT_LAYOUT);
    header->created_s = (int64_t)cairn__get_u64(buf + AT_CREATED);
    header->prefill_ns = cairn__get_u64(buf + AT_PREFILL_NS);
    header->raw_table = buf + AT_END;
    header->raw_tokens = header->raw_table + (size_t)header->n_blocks * CAIRN__PAGE_BLOCK_ENTRY_SIZE;
}

/* Flags are none or "sealed" today, and a plain page has no salt; a later meaning
 * must not be read past by this version. */
static bool plain_is_valid(const uint8_t *buf, const cairn__page_header *header)
{
    static const uint8_t none[CAIRN__SALT_SIZE];
    uint32_t             flags = cairn__get_u32(buf + AT_FLAGS);
    return kind_is_known(header->kind) && header->codec == CAIRN__CODEC_RAW &&
           (flags == FLAG_SEALED || (flags == 0 && memcmp(header->salt, none, sizeof(none)) == 0)) &&
           header->payload_size >= 1 && header->payload_size <= CAIRN__PAGE_PAYLOAD_MAX;
}

cairn_status cairn__page_peek(const uint8_t *buf, size_t size, cairn__page_header *ret_header)
{
    uint32_t     header_size;
    cairn_status status = cairn__page_header_size_peek(buf, size, &header_size);
    if (status)
        return status;
    cairn__page_header header = get_plain(buf);
    if (!plain_is_valid(buf, &header))
        return CAIRN_ECORRUPT;
    if (!header.sealed)
        memcpy(header.identity.bytes, buf + AT_IDENTITY, sizeof(header.identity.bytes));
    *ret_header = header;
    return CAIRN_OK;
}

/* The table's sizes are within limits and add up to what the header says. */
static bool table_is_valid(const cairn__page_header *header)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < header->n_blocks; i++)
        if (!add_block(cairn__page_block_at(header, i).size, &sum))
            return false;
    return sum >= 1 && sum == header->payload_size;
}

/* The fields of a header that was proven. */
static cairn_status get_header(const uint8_t *buf, cairn__page_header *ret_header)
{
    cairn__page_header header = get_plain(buf);
    get_secret(buf, &header);
    if (cairn__get_u32(buf + AT_RESERVED) != 0 || !plain_is_valid(buf, &header) || !meaning_is_valid(&header) ||
        !table_is_valid(&header))
        return CAIRN_ECORRUPT;
    *ret_header = header;
    return CAIRN_OK;
}

cairn_status cairn__page_decode(const uint8_t *buf, size_t size, cairn__page_header *ret_header)
{
    uint32_t     header_size;
    cairn_status status = cairn__page_header_size_peek(buf, size, &header_size);
    if (status)
        return status;
    if (size < header_size || cairn__get_u32(buf + AT_FLAGS) == FLAG_SEALED || !checksum_holds(buf, header_size))
        return CAIRN_ECORRUPT;
    return get_header(buf, ret_header);
}

cairn_status cairn__page_decode_sealed(const cairn__keyring *keyring, uint8_t *buf, size_t size,
                                       cairn__page_header *ret_header)
{
    uint32_t     header_size;
    cairn_status status = cairn__page_header_size_peek(buf, size, &header_size);
    if (status)
        return status;
    if (size < header_size || cairn__get_u32(buf + AT_FLAGS) != FLAG_SEALED) /* P4 */
        return CAIRN_ECORRUPT;
    cairn__sealed_part part = secret_part(buf);
    status = cairn__unseal(keyring, &part, buf + AT_SECRET, header_size - AT_SECRET, buf + AT_CHECKSUM);
    return status ? status : get_header(buf, ret_header);
}

cairn_status cairn__page_prove_block(const cairn__keyring *keyring, const cairn__page_header *header, uint32_t block,
                                     void *data)
{
    const cairn__page_block entry = cairn__page_block_at(header, block);
    if (header->sealed) {
        cairn__sealed_part part = {.salt = header->salt, .number = block};
        return cairn__unseal(keyring, &part, data, (size_t)entry.size, entry.checksum.bytes);
    }
    cairn__xxh128 sum = cairn__xxh3_128(data, (size_t)entry.size);
    return memcmp(&sum, &entry.checksum, sizeof(sum)) == 0 ? CAIRN_OK : CAIRN_ECORRUPT;
}

int32_t cairn__page_token(const cairn__page_header *header, uint32_t i)
{
    assert(i < header->n_tokens);
    return (int32_t)cairn__get_u32(header->raw_tokens + 4 * (size_t)i);
}

cairn__page_block cairn__page_block_at(const cairn__page_header *header, uint32_t i)
{
    assert(i < header->n_blocks);
    const uint8_t    *entry = header->raw_table + (size_t)i * CAIRN__PAGE_BLOCK_ENTRY_SIZE;
    cairn__page_block block = {.size = cairn__get_u64(entry)};
    memcpy(block.checksum.bytes, entry + 8, sizeof(block.checksum.bytes));
    return block;
}

void cairn__page_block_offsets(const cairn__page_header *header, uint64_t *ret_offset)
{
    uint64_t offset = cairn__page_payload_offset(header->n_tokens, header->n_blocks);
    for (uint32_t i = 0; i < header->n_blocks; i++) {
        ret_offset[i] = offset;
        offset += cairn__page_block_at(header, i).size;
    }
}

uint32_t cairn__page_match(const cairn__page_header *header, const int32_t *tokens, uint32_t n)
{
    uint32_t limit = n < header->n_tokens ? n : header->n_tokens, i = 0;
    while (i < limit && cairn__page_token(header, i) == tokens[i])
        i++;
    return i;
}
