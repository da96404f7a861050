/* fuzz_page_header.c - the page header's decoder on arbitrary bytes, as they
 * come and again with the right checksum put on them: without that, nothing
 * behind the comparison would ever be reached.
 *
 * Beyond not crashing: what decodes obeys page.h's invariants and is byte for
 * byte what encoding its fields gives, so that there is one header for one set
 * of fields. */
#include "core/page.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define AT_CHECKSUM 80
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
    uint8_t *sealed = malloc(header_size); /* exact, so that a read past it is seen */
    MUST(sealed != NULL);
    memcpy(sealed, data, header_size);
    cairn__xxh128 sum = cairn__xxh3_128_zeroed(sealed, header_size, AT_CHECKSUM, sizeof(sum));
    memcpy(sealed + AT_CHECKSUM, sum.bytes, sizeof(sum.bytes));
    if (cairn__page_decode(sealed, header_size, &h) == CAIRN_OK)
        check_decoded(sealed, h);
    free(sealed);
    return 0;
}
