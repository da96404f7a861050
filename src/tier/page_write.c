/* page_write.c - see page_write.h.
 *
 * Blocks first, one after the other, each with what will prove it; then the
 * header in front of them, which has that of all. In this order a block is
 * checksummed right before it is written, while the cache still has it, and a
 * sealed one is read only once. Nobody sees the file before it is whole. */
#include "tier/page_write.h"

#include "core/page_use.h"

#include <stdlib.h>
#include <string.h>

typedef struct output {
    const cairn__page_write *write;
    cairn__page_block       *table;
    size_t                   n_gathered;
    uint64_t                 offset; /* where the gathered bytes begin */
} output;

static cairn_status flush_gathered(output *out)
{
    cairn_status status =
        out->n_gathered ? cairn__write_at(out->write->fd, out->write->gather, out->n_gathered, out->offset) : CAIRN_OK;
    out->offset += out->n_gathered;
    out->n_gathered = 0;
    return status;
}

static cairn_status write_plain(output *out, uint32_t index)
{
    const cairn_block *block = &out->write->page->blocks[index];
    const size_t       size = (size_t)block->size;
    cairn_status       status = CAIRN_OK;
    out->table[index] = (cairn__page_block){block->size, cairn__xxh3_128(block->data, size)};
    if (size > CAIRN__GATHER_SIZE - out->n_gathered)
        status = flush_gathered(out);
    if (!status && size > CAIRN__GATHER_SIZE / 2) {
        status = flush_gathered(out);
        if (!status)
            status = cairn__write_at(out->write->fd, block->data, size, out->offset);
        out->offset += size;
        return status;
    }
    if (!status && size) {
        memcpy(out->write->gather + out->n_gathered, block->data, size);
        out->n_gathered += size;
    }
    return status;
}

static cairn_status seal_pieces(output *out, cairn__gcm *gcm, const cairn_block *block)
{
    const uint8_t *from = block->data;
    size_t         left = (size_t)block->size;
    while (left > 0) {
        size_t       room = CAIRN__GATHER_SIZE - out->n_gathered;
        size_t       n = left < room ? left : room;
        cairn_status status = cairn__gcm_part(gcm, from, n, out->write->gather + out->n_gathered);
        out->n_gathered += n;
        if (!status && out->n_gathered == CAIRN__GATHER_SIZE)
            status = flush_gathered(out);
        if (status)
            return status;
        from += n;
        left -= n;
    }
    return CAIRN_OK;
}

static cairn_status write_sealed(output *out, uint32_t index)
{
    const cairn_block *block = &out->write->page->blocks[index];
    cairn__sealed_part part = {.salt = out->write->salt, .number = index};
    cairn__gcm        *gcm = NULL;
    cairn_status       status = cairn__seal_begin(out->write->root->keyring, &part, &gcm);
    out->table[index].size = block->size;
    if (!status)
        status = seal_pieces(out, gcm, block);
    if (!status)
        status = cairn__gcm_seal_tag(gcm, out->table[index].checksum.bytes);
    cairn__gcm_end(gcm);
    return status;
}

static cairn_status write_header(const output *out, uint8_t *buf, uint32_t size)
{
    const cairn__page_write *w = out->write;
    cairn__page_header       header = {.identity = *w->identity,
                                       .key = w->page->key,
                                       .parent = w->page->parent,
                                       .start = w->page->start,
                                       .n_tokens = w->page->n_tokens,
                                       .n_blocks = w->page->n_blocks,
                                       .kind = w->page->kind == CAIRN_CHECKPOINT ? CAIRN__PAGE_CHECKPOINT : CAIRN__PAGE_ATTENTION,
                                       .codec = CAIRN__CODEC_RAW,
                                       .layout = w->page->layout,
                                       .created_s = w->now_s,
                                       .prefill_ns = w->page->prefill_ns,
                                       .tokens = w->page->tokens,
                                       .blocks = out->table};
    memcpy(header.salt, w->salt, sizeof(header.salt));
    cairn_status status = w->root->keyring ? cairn__page_encode_sealed(w->root->keyring, &header, buf, size)
                                           : cairn__page_encode(&header, buf, size);
    return status ? status : cairn__write_at(w->fd, buf, size, 0);
}

/* Stored now and never used: page_use.h. A page without that is no worse a page. */
static void stamp(const cairn__page_write *w)
{
    (void)!cairn__set_mtime(w->fd, cairn__page_use_mtime_ns((cairn__page_use){.used_s = w->now_s}));
}

cairn_status cairn__page_write_to(const cairn__page_write *w)
{
    const uint32_t size = cairn__page_payload_offset(w->page->n_tokens, w->page->n_blocks);
    uint8_t       *buf = malloc(size);
    output         out = {.write = w, .table = calloc(w->page->n_blocks, sizeof(*out.table)), .offset = size};
    cairn_status   status = buf && out.table ? CAIRN_OK : CAIRN_ENOMEM;
    for (uint32_t i = 0; i < w->page->n_blocks && !status; i++)
        status = w->root->keyring ? write_sealed(&out, i) : write_plain(&out, i);
    if (!status)
        status = flush_gathered(&out);
    if (!status)
        status = write_header(&out, buf, size);
    if (!status) {
        stamp(w);
        cairn__start_write(w->fd);
    }
    free(out.table);
    free(buf);
    return status;
}
