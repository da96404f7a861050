/* fuzz_page_header.c - the page header's decoder on arbitrary bytes, as they
 * come and again with the right checksum put on them, and sealed as they are, so
 * that the right tag stands on them: without that, nothing behind the comparison
 * would ever be reached.
 *
 * Beyond not crashing: what decodes obeys page.h's invariants and is byte for
 * byte what encoding its fields gives, so that there is one header for one set
 * of fields. */
#include "core/page.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define AT_FLAGS 28
#define AT_SALT 48
#define AT_CHECKSUM 80
#define AT_SECRET 96
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static void check_blocks(const cairn__page_header *h, cairn__page_block *blocks, uint64_t *offsets)
{
    uint64_t sum = 0, at = cairn__page_payload_offset(h->n_tokens, h->n_blocks);
    MUST(at % CAIRN__PAGE_ALIGNMENT == 0);
    cairn__page_block_offsets(h, offsets);
    for (uint32_t i = 0; i < h->n_blocks; i++) {
        blocks[i] = cairn__page_block_at(h, i);
        MUST(blocks[i].size <= CAIRN__PAGE_BLOCK_SIZE_MAX && offsets[i] == at + sum);
        sum += blocks[i].size;
    }
    MUST(sum == h->payload_size && sum >= 1 && sum <= CAIRN__PAGE_PAYLOAD_MAX);
    MUST(cairn__page_file_size(h) == at + sum);
}

static void check_decoded(const uint8_t *data, cairn__page_header h)
{
    MUST(h.n_tokens >= 1 && h.n_tokens <= CAIRN__PAGE_TOKENS_MAX && h.start <= UINT32_MAX - h.n_tokens);
    MUST(h.n_blocks >= 1 && h.n_blocks <= CAIRN__PAGE_BLOCKS_MAX);
    uint32_t           size = cairn__page_payload_offset(h.n_tokens, h.n_blocks);
    uint8_t           *again = malloc(size);
    int32_t           *tokens = malloc(h.n_tokens * sizeof(*tokens));
    cairn__page_block *blocks = malloc(h.n_blocks * sizeof(*blocks));
    uint64_t          *offsets = malloc(h.n_blocks * sizeof(*offsets));
    MUST(again && tokens && blocks && offsets);
    check_blocks(&h, blocks, offsets);
    for (uint32_t i = 0; i < h.n_tokens; i++)
        tokens[i] = cairn__page_token(&h, i);
    MUST(cairn__page_match(&h, tokens, h.n_tokens) == h.n_tokens);
    h.tokens = tokens;
    h.blocks = blocks;
    MUST(cairn__page_encode(&h, again, size) == CAIRN_OK);
    MUST(memcmp(again, data, cairn__page_header_size(h.n_tokens, h.n_blocks)) == 0);
    free(again);
    free(tokens);
    free(blocks);
    free(offsets);
}

static const cairn__keyring *fuzz_keyring(void)
{
    static cairn__keyring *keyring;
    static const uint8_t   key[32] = "a key to fuzz with, no secret..";
    if (!keyring)
        MUST(cairn__keyring_create(key, &keyring) == CAIRN_OK);
    return keyring;
}

/* Seals what the input has for a header, and opens it: both together change nothing,
 * and what decodes obeys the invariants. */
static void check_sealed(const uint8_t *data, uint32_t header_size)
{
    cairn__page_header h;
    uint8_t           *file = malloc(header_size); /* exact, so that a read past it is seen */
    MUST(file != NULL);
    memcpy(file, data, header_size);
    file[AT_FLAGS] = 1;
    memset(file + AT_FLAGS + 1, 0, 3);
    cairn__sealed_part part = {
        .salt = file + AT_SALT, .number = CAIRN__SEAL_HEADER, .plain = file, .plain_size = AT_CHECKSUM};
    MUST(cairn__seal(fuzz_keyring(), &part, file + AT_SECRET, header_size - AT_SECRET, file + AT_CHECKSUM) == CAIRN_OK);
    MUST(cairn__page_decode(file, header_size, &h) == CAIRN_ECORRUPT);
    if (cairn__page_decode_sealed(fuzz_keyring(), file, header_size, &h) == CAIRN_OK) {
        MUST(h.sealed && memcmp(file + AT_SECRET, data + AT_SECRET, header_size - AT_SECRET) == 0);
        uint64_t sum = 0;
        for (uint32_t i = 0; i < h.n_blocks; i++)
            sum += cairn__page_block_at(&h, i).size;
        MUST(sum == h.payload_size && h.start <= UINT32_MAX - h.n_tokens);
    }
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cairn__page_header h;
    uint32_t           header_size;
    if (cairn__page_decode(data, size, &h) == CAIRN_OK)
        check_decoded(data, h);
    if (cairn__page_header_size_peek(data, size, &header_size) != CAIRN_OK)
        return 0;
    MUST(header_size <= CAIRN__PAGE_HEADER_SIZE_MAX);
    if (size < header_size)
        return 0;
    check_sealed(data, header_size);
    uint8_t *summed = malloc(header_size); /* exact, so that a read past it is seen */
    MUST(summed != NULL);
    memcpy(summed, data, header_size);
    cairn__xxh128 sum = cairn__xxh3_128_zeroed(summed, header_size, AT_CHECKSUM, sizeof(sum));
    memcpy(summed + AT_CHECKSUM, sum.bytes, sizeof(sum.bytes));
    if (cairn__page_decode(summed, header_size, &h) == CAIRN_OK)
        check_decoded(summed, h);
    free(summed);
    return 0;
}
