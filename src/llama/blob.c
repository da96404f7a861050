/* blob.c - check, frame and blocks of a state blob; blob.h has the format.
 *
 * Arithmetic: derive refuses layers, rows and cell counts beyond fixed limits,
 * so that fixed + per_cell * n fits in 64 bits for any n up to
 * CAIRN__BLOB_MAX_CELLS; cairn__blob_check() refuses larger counts before it
 * multiplies. */
#include "llama/blob.h"

#include "base/bytes.h"

enum { HEAD = 8, CELL_HEAD = 8, CELL_SEQ = 4, SEGMENT_HEAD = 12 };

static uint64_t at(cairn__extent e, uint32_t n_cells)
{
    return e.fixed + e.per_cell * n_cells;
}

static uint64_t cell_size(const cairn__section *section)
{
    return CELL_HEAD + section->ext_size + CELL_SEQ;
}

static uint64_t cells_offset(const cairn__section *section, uint32_t n_cells)
{
    return at(section->start, n_cells) + 8;
}

uint64_t cairn__blob_size(const cairn__layout *layout, uint32_t n_cells)
{
    return at(layout->size, n_cells);
}

/* ---- check ---- */

static bool segment_head_ok(const cairn__segment *segment, const uint8_t *head)
{
    if ((int32_t)cairn__get_u32(head) != segment->type)
        return false;
    if (segment->transposed)
        return cairn__get_u32(head + 4) == segment->el_size && cairn__get_u32(head + 8) == segment->n_embd;
    return cairn__get_u64(head + 4) == segment->row_size;
}

/* Position of cell i relative to first_pos, or n_cells when the cell is not as
 * it must be. */
static uint32_t cell_index(const cairn__section *section, const uint8_t *cell, uint32_t first_pos, uint32_t n_cells,
                           int32_t seq)
{
    int32_t pos = (int32_t)cairn__get_u32(cell);
    if (pos < 0 || (uint32_t)pos < first_pos || (uint32_t)pos - first_pos >= n_cells)
        return n_cells;
    if (cairn__get_u32(cell + 4) != 1 || (int32_t)cairn__get_u32(cell + CELL_HEAD + section->ext_size) != seq)
        return n_cells;
    return (uint32_t)pos - first_pos;
}

typedef struct expected {
    uint32_t  first_pos, n_cells;
    int32_t   seq;
    uint32_t *order; /* NULL: ascending */
    bool      filled; /* order was written by an earlier section and must repeat */
} expected;

static bool cells_ok(const cairn__section *section, const uint8_t *cells, expected *want)
{
    const uint64_t step = cell_size(section);
    if (want->order && !want->filled)
        memset(want->order, 0xff, sizeof *want->order * want->n_cells);
    for (uint32_t i = 0; i < want->n_cells; i++) {
        uint32_t index = cell_index(section, cells + step * i, want->first_pos, want->n_cells, want->seq);
        if (index == want->n_cells)
            return false;
        if (!want->order) {
            if (index != i)
                return false;
        } else if (want->filled) {
            if (want->order[index] != i)
                return false;
        } else {
            if (want->order[index] != UINT32_MAX)
                return false; /* a position twice: another one is missing */
            want->order[index] = i;
        }
    }
    want->filled = true;
    return true;
}

static bool section_ok(const cairn__layout *layout, const cairn__section *section, const uint8_t *blob, expected *want)
{
    const uint8_t *head = blob + at(section->start, want->n_cells);
    if (cairn__get_u32(head) != 1 || cairn__get_u32(head + 4) != want->n_cells)
        return false;
    if (!cells_ok(section, head + 8, want))
        return false;
    const uint8_t *data = head + 8 + cell_size(section) * want->n_cells;
    if (cairn__get_u32(data) != section->v_trans || cairn__get_u32(data + 4) != section->n_layer)
        return false;
    for (uint32_t i = 0; i < section->n_segments; i++) {
        const cairn__segment *segment = &layout->segments[section->first_segment + i];
        if (!segment_head_ok(segment, blob + at(segment->data, want->n_cells) - SEGMENT_HEAD))
            return false;
    }
    return true;
}

static bool states_ok(const cairn__layout *layout, const uint8_t *blob, const expected *want)
{
    if (layout->n_states == 0)
        return true;
    const uint8_t *head = blob + at(layout->recurrent, want->n_cells);
    if (cairn__get_u32(head) != 1 || cairn__get_u32(head + 4) != want->first_pos + want->n_cells - 1 ||
        cairn__get_u32(head + 8) != 0 || cairn__get_u32(head + 12) != 0 ||
        cairn__get_u32(head + 16) != layout->n_state_layers)
        return false;
    for (uint32_t i = 0; i < layout->n_states; i++) {
        const cairn__state *state = &layout->states[i];
        const uint8_t      *p = blob + at(state->data, want->n_cells) - SEGMENT_HEAD;
        if ((int32_t)cairn__get_u32(p) != state->type || cairn__get_u64(p + 4) != state->size)
            return false;
    }
    return true;
}

static bool suffix_ok(const cairn__layout *layout, const uint8_t *blob, uint64_t size)
{
    return layout->suffix_size == 0 || memcmp(blob + size - layout->suffix_size, layout->suffix, layout->suffix_size) == 0;
}

static bool check(const cairn__layout *layout, const uint8_t *blob, uint64_t size, expected *want)
{
    if (want->n_cells == 0 || want->n_cells > CAIRN__BLOB_MAX_CELLS ||
        want->first_pos > (uint32_t)INT32_MAX - want->n_cells)
        return false;
    if (size != cairn__blob_size(layout, want->n_cells))
        return false;
    if (cairn__get_u32(blob) != CAIRN__BLOB_MAGIC || (int32_t)cairn__get_u32(blob + 4) != want->seq)
        return false;
    for (uint32_t i = 0; i < layout->n_sections; i++)
        if (!section_ok(layout, &layout->sections[i], blob, want))
            return false;
    return states_ok(layout, blob, want) && suffix_ok(layout, blob, size);
}

bool cairn__partial_check(const cairn__layout *layout, const uint8_t *blob, uint64_t size, uint32_t n_tokens,
                          int32_t seq, uint32_t *order, uint32_t max_cells)
{
    uint32_t n_cells = 1; /* states alone: those of the last position */
    if (layout->opaque)
        return n_tokens > 0 && size > HEAD && cairn__get_u32(blob) == CAIRN__BLOB_MAGIC &&
               (int32_t)cairn__get_u32(blob + 4) == seq;
    if (layout->n_sections > 0) {
        if (size < HEAD + 8)
            return false;
        n_cells = cairn__get_u32(blob + HEAD + 4);
        if (n_cells > max_cells || n_cells > n_tokens)
            return false;
    }
    return n_tokens > 0 &&
           cairn__blob_check_order(layout, blob, size, n_tokens - n_cells, n_cells, seq, order);
}

void cairn__partial_retarget(const cairn__layout *layout, uint8_t *blob, int32_t seq)
{
    cairn__put_u32(blob + 4, (uint32_t)seq);
    for (uint32_t s = 0; s < layout->n_sections; s++) {
        const cairn__section *section = &layout->sections[s];
        const uint32_t        n_cells = cairn__get_u32(blob + HEAD + 4);
        uint8_t              *cells = blob + cells_offset(section, n_cells);
        for (uint32_t i = 0; i < n_cells; i++)
            cairn__put_u32(cells + cell_size(section) * i + CELL_HEAD + section->ext_size, (uint32_t)seq);
    }
}

bool cairn__blob_check(const cairn__layout *layout, const uint8_t *blob, uint64_t size, uint32_t first_pos,
                       uint32_t n_cells, int32_t seq)
{
    expected want = {first_pos, n_cells, seq, NULL, false};
    return check(layout, blob, size, &want);
}

bool cairn__blob_check_order(const cairn__layout *layout, const uint8_t *blob, uint64_t size, uint32_t first_pos,
                             uint32_t n_cells, int32_t seq, uint32_t *order)
{
    expected want = {first_pos, n_cells, seq, order, false};
    return check(layout, blob, size, &want);
}

/* ---- frame ---- */

static void frame_segment(const cairn__segment *segment, uint8_t *head)
{
    cairn__put_u32(head, (uint32_t)segment->type);
    if (segment->transposed) {
        cairn__put_u32(head + 4, segment->el_size);
        cairn__put_u32(head + 8, segment->n_embd);
    } else {
        cairn__put_u64(head + 4, segment->row_size);
    }
}

static void frame_section(const cairn__layout *layout, const cairn__section *section, uint8_t *buf, uint32_t first_pos,
                          uint32_t n_cells, int32_t seq)
{
    uint8_t *p = buf + at(section->start, n_cells);
    cairn__put_u32(p, 1);
    cairn__put_u32(p + 4, n_cells);
    p += 8;
    for (uint32_t i = 0; i < n_cells; i++) {
        cairn__put_u32(p, first_pos + i);
        cairn__put_u32(p + 4, 1);
        cairn__put_u32(p + CELL_HEAD + section->ext_size, (uint32_t)seq);
        p += cell_size(section);
    }
    cairn__put_u32(p, section->v_trans);
    cairn__put_u32(p + 4, section->n_layer);
    for (uint32_t i = 0; i < section->n_segments; i++) {
        const cairn__segment *segment = &layout->segments[section->first_segment + i];
        frame_segment(segment, buf + at(segment->data, n_cells) - SEGMENT_HEAD);
    }
}

void cairn__blob_frame(const cairn__layout *layout, uint8_t *buf, uint32_t first_pos, uint32_t n_cells, int32_t seq)
{
    cairn__put_u32(buf, CAIRN__BLOB_MAGIC);
    cairn__put_u32(buf + 4, (uint32_t)seq);
    for (uint32_t i = 0; i < layout->n_sections; i++)
        frame_section(layout, &layout->sections[i], buf, first_pos, n_cells, seq);
    if (layout->suffix_size > 0)
        memcpy(buf + cairn__blob_size(layout, n_cells) - layout->suffix_size, layout->suffix, layout->suffix_size);
}

/* ---- blocks ---- */

static const cairn__segment *segment_of(const cairn__layout *layout, uint32_t block)
{
    int32_t segment = layout->blocks[block].segment;
    return segment < 0 ? NULL : &layout->segments[segment];
}

uint64_t cairn__block_size(const cairn__layout *layout, uint32_t block, uint32_t n_tokens)
{
    return layout->blocks[block].row_size * n_tokens;
}

bool cairn__block_is_contiguous(const cairn__layout *layout, uint32_t block)
{
    const cairn__segment *segment = segment_of(layout, block);
    return segment && !segment->transposed;
}

uint64_t cairn__block_offset(const cairn__layout *layout, uint32_t block, uint32_t n_cells, uint32_t cell)
{
    const cairn__segment *segment = segment_of(layout, block);
    return at(segment->data, n_cells) + segment->row_size * cell;
}

/* Where in the blob the element of cell `cell` begins: rows and extensions have
 * one element a cell, a transposed segment n_embd of them. */
typedef struct cursor {
    uint64_t base;    /* of element 0 of cell 0 */
    uint64_t step;    /* from cell to cell */
    uint64_t stride;  /* from element to element */
    uint64_t size;    /* bytes of an element */
    uint32_t n;       /* elements a cell */
} cursor;

static cursor cursor_of(const cairn__layout *layout, uint32_t block, uint32_t n_cells)
{
    const cairn__section *section = &layout->sections[layout->blocks[block].section];
    const cairn__segment *segment = segment_of(layout, block);
    if (!segment)
        return (cursor){cells_offset(section, n_cells) + CELL_HEAD, cell_size(section), 0, section->ext_size, 1};
    uint64_t base = at(segment->data, n_cells);
    if (segment->transposed)
        return (cursor){base, segment->el_size, (uint64_t)segment->el_size * n_cells, segment->el_size, segment->n_embd};
    return (cursor){base, segment->row_size, 0, segment->row_size, 1};
}

/* Copies between blob and block; neighbouring cells that are neighbours in both
 * go in one piece. */
static void move(const cairn__layout *layout, uint32_t block, uint8_t *blob, const cairn__block_span *span,
                 uint8_t *data, bool to_blob)
{
    const cursor c = cursor_of(layout, block, span->n_cells);
    const bool   pieces = span->order || c.step != c.size;
    const uint32_t n_pieces = pieces ? span->n : 1;
    const uint64_t size = pieces ? c.size : c.size * span->n;
    for (uint32_t e = 0; e < c.n; e++) {
        uint8_t *in_block = data + c.size * span->block_tokens * e;
        for (uint32_t i = 0; i < n_pieces; i++) {
            uint32_t cell = span->order ? span->order[span->cell + i] : span->cell + i;
            uint8_t *in_blob = blob + c.base + c.stride * e + c.step * cell;
            if (to_blob)
                memcpy(in_blob, in_block + c.size * i, size);
            else
                memcpy(in_block + c.size * i, in_blob, size);
        }
    }
}

void cairn__block_scatter(const cairn__layout *layout, uint32_t block, uint8_t *blob, const cairn__block_span *span,
                          const uint8_t *data)
{
    move(layout, block, blob, span, (uint8_t *)data, true);
}

void cairn__block_gather(const cairn__layout *layout, uint32_t block, const uint8_t *blob,
                         const cairn__block_span *span, uint8_t *data)
{
    move(layout, block, (uint8_t *)blob, span, data, false);
}

bool cairn__block_ext_check(const uint8_t *data, uint32_t n, uint32_t first_pos, const int32_t *tokens)
{
    for (uint32_t i = 0; i < n; i++, data += CAIRN__BLOB_EXT_SIZE) {
        uint32_t x = cairn__get_u32(data), y = cairn__get_u32(data + 4);
        if (x != y || (x != 0 && x != first_pos + i) || (int32_t)cairn__get_u32(data + 8) != tokens[i])
            return false;
    }
    return true;
}
