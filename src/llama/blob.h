/* blob.h - the runtime's state blob of one sequence: layout, check, frame.
 *
 * llama_state_seq_get_data() writes, little-endian:
 *
 *   u32 magic 0xaf143cd8, i32 sequence
 *   one or two KV sections (attention; then the indexer of sparse attention):
 *     u32 n_stream (1), u32 cell_count
 *     per cell: i32 pos, u32 n_seq_id (1), [12 bytes of extension], i32 seq_id
 *     u32 v_trans, u32 n_layer
 *     n_layer K segments: i32 type, u64 row_size, then [cell_count][row_size]
 *     n_layer V segments, either alike, or with v_trans
 *       i32 type, u32 el_size, u32 n_embd, then [n_embd][cell_count][el_size],
 *     or none at all (MLA).
 *   a window or a recurrent part, or both, where the model has them:
 *     the window: one more KV section, of the window's cells alone
 *     the recurrent part: u32 cell_count (1; 0: empty), i32 pos, u32 n_seq_id (0),
 *       u32 s_trans (0), u32 n_layer (of the model), then states: i32 type,
 *       u64 size, data
 *
 * What follows the attention sections is what a PARTIAL_ONLY blob holds behind
 * the same eight bytes of head. It can't be cut by token range, so pages hold
 * none of it: in their blobs it is the constant bytes of an empty part, the
 * layout's suffix. A checkpoint is a PARTIAL_ONLY blob; its layout is one of
 * these, too: a window section or none, then states or none.
 *
 * Everything but the segments' data is decided by the layout, the first
 * position and the number of cells. A page of the store holds the data alone,
 * as blocks; this module knows which block is which part of a blob:
 *
 *   block order of a page: for each section its extensions (if it has them),
 *   then its segments in blob order, those with empty rows left out.
 *   A block of n tokens: [n][12] extensions, [n][row_size] rows, or, with V
 *   transposed, [n_embd][n][el_size].
 *
 * B1 A layout comes only from blobs that the live context wrote, never from
 *    stored bytes.
 * B2 No blob reaches the runtime unless cairn__blob_check() accepted it.
 * B3 Sizes are linear in the number of cells: fixed + per_cell * n.
 *
 * Pure functions of memory; knows no runtime. Layouts are read-only once made. */
#ifndef CAIRN_LLAMA_BLOB_H
#define CAIRN_LLAMA_BLOB_H

#include "cairn/identity.h"

#define CAIRN__BLOB_MAGIC 0xaf143cd8u
#define CAIRN__BLOB_EXT_SIZE 12u
#define CAIRN__BLOB_MAX_SECTIONS 2u
#define CAIRN__BLOB_MAX_LAYERS 4096u
#define CAIRN__BLOB_MAX_CELLS (1u << 27)

/* Byte offset or size that grows with the number of cells. */
typedef struct cairn__extent {
    uint64_t fixed, per_cell;
} cairn__extent;

typedef struct cairn__segment {
    bool          transposed;
    int32_t       type;            /* ggml_type, as the blob says */
    uint32_t      el_size, n_embd; /* transposed only */
    uint64_t      row_size;        /* bytes per cell */
    cairn__extent data;            /* offset of the data in a blob; its 12-byte header lies before */
} cairn__segment;

typedef struct cairn__section {
    uint32_t      ext_size; /* 0 or 12 */
    uint32_t      v_trans;
    uint32_t      n_layer;
    bool          has_v;
    uint32_t      first_segment, n_segments;
    cairn__extent start; /* offset of n_stream */
} cairn__section;

typedef struct cairn__block_info {
    uint32_t section;
    int32_t  segment; /* index into segments; -1: the section's extensions */
    uint64_t row_size;
} cairn__block_info;

/* One recurrent state: bytes that belong to a position, not to a cell. */
typedef struct cairn__state {
    int32_t       type;
    uint64_t      size;
    cairn__extent data; /* offset of the data; its 12-byte header lies before */
} cairn__state;

typedef struct cairn__layout {
    uint32_t           n_sections, n_segments, n_blocks;
    cairn__section     sections[CAIRN__BLOB_MAX_SECTIONS];
    cairn__segment    *segments; /* [n_segments] */
    cairn__block_info *blocks;   /* [n_blocks] */
    cairn__state      *states;   /* [n_states]; the recurrent part lies at `recurrent` when there are any */
    uint32_t           n_states, n_state_layers;
    cairn__extent      recurrent;
    uint8_t           *suffix;   /* [suffix_size] constant bytes at the end */
    uint32_t           suffix_size;
    bool               opaque;
    cairn__extent      size;     /* of the whole blob, suffix included */
    uint64_t           row_size; /* payload bytes of one token: sum over the blocks */
    cairn_digest       digest;   /* SHA-256 of the canonical text */
    uint64_t           id;       /* its first 8 bytes, little-endian: `layout` of a page */
} cairn__layout;

/* ---- layout ---- */

typedef struct cairn__sample { /* a blob of positions [0, n_cells) in `seq` */
    const uint8_t *blob;
    uint64_t       size;
    uint32_t       n_cells; /* at least 2, and different in every sample */
} cairn__sample;

/* Finds the one layout of attention sections that explains every byte of every
 * sample. Needs two or more samples. Errors: CAIRN_ENOTSUP (none fits, or more
 * than one), CAIRN_EINVAL, CAIRN_ENOMEM. Free with cairn__layout_destroy(). */
CAIRN_MUST_USE cairn_status cairn__layout_derive(const cairn__sample *samples, uint32_t n_samples, int32_t seq,
                                                 cairn__layout **ret_layout);
/* The same for PARTIAL_ONLY blobs. */
CAIRN_MUST_USE cairn_status cairn__layout_derive_partial(const cairn__sample *samples, uint32_t n_samples,
                                                         int32_t seq, cairn__layout **ret_layout);
/* Gives a layout of pages the bytes behind its sections: those of an empty
 * PARTIAL_ONLY blob without its head. Part of the layout's text. Errors: CAIRN_ENOMEM. */
CAIRN_MUST_USE cairn_status cairn__layout_set_suffix(cairn__layout *layout, const uint8_t *suffix, uint32_t size);
void cairn__layout_destroy(cairn__layout *layout); /* accepts NULL */

/* Canonical text, malloc()ed; NULL: out of memory. */
char *cairn__layout_text(const cairn__layout *layout);

/* ---- blobs ---- */

uint64_t cairn__blob_size(const cairn__layout *layout, uint32_t n_cells);

/* True when blob[0..size) is, apart from the data of segments and extensions,
 * exactly the blob of positions [first_pos, first_pos + n_cells) in `seq`, in
 * this order. Reads nothing outside the buffer, allocates nothing. */
bool cairn__blob_check(const cairn__layout *layout, const uint8_t *blob, uint64_t size, uint32_t first_pos,
                       uint32_t n_cells, int32_t seq);
/* The same, but the cells may come in any order, the same one in all sections
 * (a sequence whose cells are scattered is exported in order of cell index).
 * order[i] := index in the blob of position first_pos + i. */
bool cairn__blob_check_order(const cairn__layout *layout, const uint8_t *blob, uint64_t size, uint32_t first_pos,
                             uint32_t n_cells, int32_t seq, uint32_t *order);

/* The layout of a blob that nothing is known of, for whole sequences that are kept as
 * they are. NULL: out of memory. */
cairn__layout *cairn__layout_opaque(void);

/* True when blob[0..size) is, apart from data, what the runtime writes for `seq`
 * at n_tokens; of an opaque layout only the head can be looked at. Else: states of position n_tokens - 1, a window of the last positions,
 * each once, in any order. `order` has room for max_cells, the window's limit. */
bool cairn__partial_check(const cairn__layout *layout, const uint8_t *blob, uint64_t size, uint32_t n_tokens,
                          int32_t seq, uint32_t *order, uint32_t max_cells);
/* Names another sequence as the source: the runtime takes no notice, but equal
 * states then have equal bytes. Of a blob that was checked. */
void cairn__partial_retarget(const cairn__layout *layout, uint8_t *blob, int32_t seq);

/* Writes all of a blob but the data of segments and extensions into
 * buf[0..cairn__blob_size()). */
void cairn__blob_frame(const cairn__layout *layout, uint8_t *buf, uint32_t first_pos, uint32_t n_cells, int32_t seq);

/* ---- blocks ---- */

uint64_t cairn__block_size(const cairn__layout *layout, uint32_t block, uint32_t n_tokens);
/* True when the rows of neighbouring cells are neighbours in the blob, so that a
 * block can be read straight to its place. */
bool cairn__block_is_contiguous(const cairn__layout *layout, uint32_t block);
/* Where the rows of cell `cell` begin in a blob of n_cells; contiguous blocks only. */
uint64_t cairn__block_offset(const cairn__layout *layout, uint32_t block, uint32_t n_cells, uint32_t cell);

/* Cells [cell, cell + n) of a blob of n_cells, and the first n tokens of a block
 * of block_tokens tokens. order: as above, NULL when the blob is in order. */
typedef struct cairn__block_span {
    uint32_t        n_cells, cell, n, block_tokens;
    const uint32_t *order;
} cairn__block_span;
void cairn__block_scatter(const cairn__layout *layout, uint32_t block, uint8_t *blob, const cairn__block_span *span,
                          const uint8_t *data);
void cairn__block_gather(const cairn__layout *layout, uint32_t block, const uint8_t *blob,
                         const cairn__block_span *span, uint8_t *data);

/* Extensions of n tokens ({i32 x, i32 y, i32 token} each) as text input makes
 * them: the token itself, x and y both 0 or both the position. Anything else
 * would smuggle a position or token into the runtime. */
bool cairn__block_ext_check(const uint8_t *data, uint32_t n, uint32_t first_pos, const int32_t *tokens);

#endif
