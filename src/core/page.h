/* page.h - the page file format, as pure functions over byte buffers: no I/O,
 * no state. docs/format.md is normative; this is its code.
 *
 *     [fixed part 224 bytes][block table 24 x n_blocks][tokens 4 x n_tokens]
 *     [zeros up to a multiple of 4096][payload: blocks back to back]
 *
 * The first line is "the header": all of it lies under one XXH3-128. In a sealed
 * page its first 80 bytes are plain (what it is, counts, sizes, salt), the rest
 * is encrypted, and the tag that authenticates both takes the checksum's place;
 * likewise each block's tag in the table. Integers are little-endian, except the byte order mark, which lies in the
 * order of the machine that wrote the payload. The payload starts at a multiple of 4096 so that O_DIRECT (whose
 * strictest alignment in use is 4096) can read it without a new format; blocks in it are not aligned.
 *
 * Reading: read the first PAGE_FIXED_SIZE bytes or more (8 KiB gets most headers
 * whole), learn the header's size by cairn__page_header_size_peek(), read the
 * rest if any is missing, cairn__page_decode() or, with a key,
 * cairn__page_decode_sealed(), and compare the file's size,
 * identity, key, parent and tokens with what was asked for.
 *
 * Invariants of a header that decodes:
 *   P1  1 <= n_tokens, n_blocks <= their limits; start + n_tokens fits 32 bits
 *   P2  each block <= CAIRN__PAGE_BLOCK_SIZE_MAX, 0 included; they add up to payload_size,
 *       which is in [1, CAIRN__PAGE_PAYLOAD_MAX]
 *   P3  every byte of the header took part in the checksum or tag that was compared
 *   P4  a page is taken as what the caller says it must be: a plain one is no good
 *       where sealed ones belong, nor the other way round
 * It does not follow that key = chain key of identity, parent and tokens: the
 * caller compares all four with its own. */
#ifndef CAIRN_CORE_PAGE_H
#define CAIRN_CORE_PAGE_H

#include "base/digest.h"
#include "cairn/identity.h"
#include "core/seal.h"

#define CAIRN__PAGE_VERSION 1u
#define CAIRN__PAGE_FIXED_SIZE 224u
#define CAIRN__PAGE_BLOCK_ENTRY_SIZE 24u
#define CAIRN__PAGE_ALIGNMENT 4096u

/* Limits bound what a hostile header can make a reader allocate or read.
 * Tokens: the largest page_tokens that cairn_store_open() takes. */
#define CAIRN__PAGE_TOKENS_MAX 4096u
/* Blocks: 2,048 layers of K and V; the deepest model of llama.cpp's list has 126. */
#define CAIRN__PAGE_BLOCKS_MAX 4096u
/* A block: 4,096 tokens x 65,536 values x 4 bytes (f32); the widest row in
 * llama.cpp's list is 16,384 values. */
#define CAIRN__PAGE_BLOCK_SIZE_MAX (UINT64_C(1) << 30)
/* A page: 4,096 tokens at 16 MiB a token; Llama 65B without GQA in f32 has 5 MiB. */
#define CAIRN__PAGE_PAYLOAD_MAX (UINT64_C(1) << 36)
/* Follows from the limits: 114,912 bytes. */
#define CAIRN__PAGE_HEADER_SIZE_MAX                                                                                    \
    (CAIRN__PAGE_FIXED_SIZE + CAIRN__PAGE_BLOCKS_MAX * CAIRN__PAGE_BLOCK_ENTRY_SIZE + CAIRN__PAGE_TOKENS_MAX * 4u)

typedef enum cairn__page_kind {
    CAIRN__PAGE_ATTENTION = 1,
    CAIRN__PAGE_CHECKPOINT = 2, /* its first block is all tokens before and in it */
} cairn__page_kind;

typedef enum cairn__page_codec {
    CAIRN__CODEC_RAW = 0,
} cairn__page_codec;

/* One entry of the block table: what is stored, and what proves it. */
typedef struct cairn__page_block {
    uint64_t      size;
    cairn__xxh128 checksum; /* of the stored bytes; in a sealed page their tag */
} cairn__page_block;

/* A header in memory. Encoding reads it; decoding fills it. The three pointers
 * are borrowed: on encode set tokens and blocks (raw ones NULL); on decode use
 * the accessors below. */
typedef struct cairn__page_header {
    cairn_digest      identity; /* of the namespace: cairn__namespace_digest() */
    cairn_key         key, parent;
    uint32_t          start, n_tokens, n_blocks;
    cairn__page_kind  kind;
    cairn__page_codec codec;
    uint64_t          layout;
    uint64_t          payload_size; /* encode: computed from the blocks, ignored in the input */
    int64_t           created_s;    /* unix seconds */
    uint64_t          prefill_ns;   /* 0 = unknown */
    bool              sealed;
    uint8_t           salt[CAIRN__SALT_SIZE]; /* zeros unless sealed */

    const int32_t           *tokens; /* encode only: [n_tokens] */
    const cairn__page_block *blocks; /* encode only: [n_blocks] */

    const uint8_t *raw_table;  /* decode only: block table in the caller's buffer */
    const uint8_t *raw_tokens; /* decode only: i32le tokens in the caller's buffer */
} cairn__page_header;

/* Sizes, for counts within the limits. */
uint32_t cairn__page_header_size(uint32_t n_tokens, uint32_t n_blocks);    /* end of the tokens */
uint32_t cairn__page_payload_offset(uint32_t n_tokens, uint32_t n_blocks); /* header_size rounded up to 4096 */
uint64_t cairn__page_file_size(const cairn__page_header *header);          /* payload offset + payload_size */

/* Writes header and zero padding into buf[0..cairn__page_payload_offset()), plain
 * or sealed with header->salt, which made the tags of its blocks, too; header->sealed
 * is not looked at. Errors: CAIRN_ENOMEM (sealing alone), CAIRN_EINVAL (a count or size outside the limits, an unknown
 * kind or codec, buf_size too small); buf is then unspecified. */
CAIRN_MUST_USE cairn_status cairn__page_encode(const cairn__page_header *header, uint8_t *buf, size_t buf_size);
CAIRN_MUST_USE cairn_status cairn__page_encode_sealed(const cairn__keyring *keyring, const cairn__page_header *header,
                                                      uint8_t *buf, size_t buf_size);

/* The header's size, from the first CAIRN__PAGE_FIXED_SIZE bytes of a file: how
 * much to read before decoding. Checks magic, version, byte order, counts and
 * that header_size is what they give; at most CAIRN__PAGE_HEADER_SIZE_MAX.
 * Errors: CAIRN_ECORRUPT. */
CAIRN_MUST_USE cairn_status cairn__page_header_size_peek(const uint8_t *buf, size_t size, uint32_t *ret_header_size);
/* The plain fields of a page, sealed or not, unproven: kind, codec, counts,
 * payload_size, sealed and salt, of a plain one the identity; the rest is zeros and
 * the pointers NULL. Errors:
 * CAIRN_ECORRUPT, also for a kind, codec or flag that is unknown. */
CAIRN_MUST_USE cairn_status cairn__page_peek(const uint8_t *buf, size_t size, cairn__page_header *ret_header);

/* Verifies and decodes the plain header that buf[0..size) begins with; bytes after
 * it are not looked at. *ret_header borrows from buf. Errors: CAIRN_ECORRUPT for
 * every kind of bad input; *ret_header is then untouched. Cost: one XXH3-128
 * of the header. */
CAIRN_MUST_USE cairn_status cairn__page_decode(const uint8_t *buf, size_t size, cairn__page_header *ret_header);
/* The same of a sealed one, which is decrypted in buf: a second time it is corrupt.
 * CAIRN_ECORRUPT also with another key. CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__page_decode_sealed(const cairn__keyring *keyring, uint8_t *buf, size_t size,
                                                      cairn__page_header *ret_header);

/* Proves block `block` of a decoded header, read into data[0..its size): its
 * checksum, or with the keyring of a sealed page by decrypting it in data.
 * CAIRN_ECORRUPT, CAIRN_ENOMEM: data must not be used. From any thread. */
CAIRN_MUST_USE cairn_status cairn__page_prove_block(const cairn__keyring *keyring, const cairn__page_header *header,
                                                    uint32_t block, void *data);

/* ---- of a decoded header; indices are asserted, not checked ---- */
int32_t           cairn__page_token(const cairn__page_header *header, uint32_t i);
cairn__page_block cairn__page_block_at(const cairn__page_header *header, uint32_t i);
/* ret_offset[i] = position of block i in the file, for i in [0, n_blocks). */
void cairn__page_block_offsets(const cairn__page_header *header, uint64_t *ret_offset);
/* Length of the longest run in which the page's tokens equal tokens[0..n). */
uint32_t cairn__page_match(const cairn__page_header *header, const int32_t *tokens, uint32_t n);

#endif
