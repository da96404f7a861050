/* cells.h - many cells of KV without computing them, and what moves them.
 *
 * The cells are filled by computing one page and importing it again at every
 * following position: 8,192 tokens of prefill would take minutes on two cores,
 * and what is moved does not depend on what it means. Only positions in the
 * runtime's blob are changed; its layout is the one that Cairn's adapter reads
 * (docs/format.md): magic, sequence, n_stream, cell_count, then 12 bytes a cell
 * that begin with the position. */
#ifndef CAIRN_BENCH_CELLS_H
#define CAIRN_BENCH_CELLS_H

#include "util.h"

#define BENCH_PAGE 256u

typedef struct bench_blob {
    uint8_t *data;
    size_t   size;
} bench_blob;

/* Fills cells [0, n) of seq 0; n is a multiple of BENCH_PAGE. */
void bench_fill(const bench_model *m, const llama_token *tokens, uint32_t n);
/* The runtime's own blob of positions [from, to) of seq 0, and back behind what it holds. */
void bench_export_range(const bench_model *m, uint32_t from, uint32_t to, bench_blob *blob);
void bench_import_blob(const bench_model *m, const bench_blob *blob);

/* Records tokens[0..n) and waits until all pages are on disk. Returns the time
 * inside record calls, which is what a prefill pays: a call exports while the
 * writer has room, so it is called again and again, as a prefill does. */
double bench_record_all(const bench_cache *c, const llama_token *tokens, uint32_t n);

#endif
