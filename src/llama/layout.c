/* layout.c - reads the layout of state blobs off samples from the live context.
 *
 * A blob does not say how many sections it has, whether its cells carry
 * extensions, or whether V was written. So each of the few variants is tried,
 * and the one is taken that explains every byte of the first sample and passes
 * cairn__blob_check() on the others, which hold other numbers of cells. Two that
 * fit, or none: the blob is unknown and the model stays uncached. */
#include "llama/blob.h"

#include "base/bytes.h"
#include "base/digest.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_ROW_SIZE (1u << 30)    /* bytes of one layer's K or V of one token; 2^30 is far beyond any model */
#define MAX_TYPE 1024              /* ggml_type numbers */
#define RECURRENT_HEAD 20u /* cell_count, pos, n_seq_id, s_trans, n_layer */
#define MAX_STATES 8192u        /* two of each of 4,096 layers */
#define MAX_CELL_SIZE (1ull << 35) /* all of one token; times CAIRN__BLOB_MAX_CELLS fits in 64 bits */

typedef struct variant {
    uint32_t n_sections;
    bool     has_states;
    uint32_t ext_size[CAIRN__BLOB_MAX_SECTIONS];
    bool     has_v[CAIRN__BLOB_MAX_SECTIONS];
} variant;

typedef struct reader {
    const uint8_t *blob;
    uint64_t       size, offset;
    uint32_t       n_cells;
    bool           bad;
    cairn__extent  extent; /* of offset */
} reader;

static const uint8_t *take(reader *r, uint64_t fixed, uint64_t per_cell)
{
    static const uint8_t zeros[RECURRENT_HEAD]; /* the longest that is looked into */
    uint64_t             n = fixed + per_cell * r->n_cells;
    if (r->bad || n > r->size - r->offset) {
        r->bad = true;
        return zeros;
    }
    const uint8_t *p = r->blob + r->offset;
    r->offset += n;
    r->extent.fixed += fixed;
    r->extent.per_cell += per_cell;
    return p;
}

static void read_segment(reader *r, bool transposed, cairn__segment *segment)
{
    const uint8_t *head = take(r, 12, 0);
    segment->transposed = transposed;
    segment->type = (int32_t)cairn__get_u32(head);
    if (transposed) {
        segment->el_size = cairn__get_u32(head + 4);
        segment->n_embd = cairn__get_u32(head + 8);
        segment->row_size = (uint64_t)segment->el_size * segment->n_embd;
    } else {
        segment->row_size = cairn__get_u64(head + 4);
    }
    if (segment->type < 0 || segment->type >= MAX_TYPE || segment->row_size > MAX_ROW_SIZE)
        r->bad = true;
    else
        segment->data = r->extent, take(r, 0, segment->row_size);
}

static bool add_segments(cairn__layout *layout, uint32_t n)
{
    cairn__segment *grown = realloc(layout->segments, sizeof *grown * ((size_t)layout->n_segments + n + 1));
    if (!grown)
        return false;
    memset(grown + layout->n_segments, 0, sizeof *grown * (n + 1));
    layout->segments = grown;
    return true;
}

static cairn_status read_section(reader *r, cairn__layout *layout, uint32_t index, const variant *v)
{
    cairn__section *section = &layout->sections[index];
    section->start = r->extent;
    section->ext_size = v->ext_size[index];
    section->has_v = v->has_v[index];
    const uint8_t *head = take(r, 8, 0);
    if (cairn__get_u32(head) != 1 || cairn__get_u32(head + 4) != r->n_cells)
        r->bad = true;
    take(r, 0, 12 + section->ext_size);
    const uint8_t *shape = take(r, 8, 0);
    section->v_trans = cairn__get_u32(shape);
    section->n_layer = cairn__get_u32(shape + 4);
    if (section->v_trans > 1 || section->n_layer == 0 || section->n_layer > CAIRN__BLOB_MAX_LAYERS)
        r->bad = true;
    if (r->bad)
        return CAIRN_OK;
    uint32_t n = section->n_layer * (section->has_v ? 2 : 1);
    if (!add_segments(layout, n))
        return CAIRN_ENOMEM;
    section->first_segment = layout->n_segments;
    section->n_segments = n;
    for (uint32_t i = 0; i < n && !r->bad; i++)
        read_segment(r, i >= section->n_layer && section->v_trans, &layout->segments[layout->n_segments + i]);
    layout->n_segments += n;
    return CAIRN_OK;
}

static bool add_state(cairn__layout *layout, cairn__state state)
{
    cairn__state *grown = realloc(layout->states, sizeof *grown * ((size_t)layout->n_states + 1));
    if (!grown)
        return false;
    layout->states = grown;
    layout->states[layout->n_states++] = state;
    return true;
}

/* The recurrent part, to the end of the blob: how many states there are shows
 * only there. */
static cairn_status read_states(reader *r, cairn__layout *layout)
{
    layout->recurrent = r->extent;
    const uint8_t *head = take(r, RECURRENT_HEAD, 0);
    layout->n_state_layers = cairn__get_u32(head + 16);
    if (layout->n_state_layers == 0 || layout->n_state_layers > CAIRN__BLOB_MAX_LAYERS)
        r->bad = true;
    while (!r->bad && r->offset < r->size) {
        const uint8_t *p = take(r, 12, 0);
        cairn__state   state = {(int32_t)cairn__get_u32(p), cairn__get_u64(p + 4), r->extent};
        if (state.type < 0 || state.type >= MAX_TYPE || state.size > MAX_ROW_SIZE || layout->n_states == MAX_STATES)
            r->bad = true;
        else if (take(r, state.size, 0), !r->bad && !add_state(layout, state))
            return CAIRN_ENOMEM;
    }
    return CAIRN_OK;
}

static void add_block(cairn__layout *layout, uint32_t section, int32_t segment, uint64_t row_size)
{
    if (row_size == 0)
        return; /* a layer without K or V: nothing to store */
    layout->blocks[layout->n_blocks++] = (cairn__block_info){section, segment, row_size};
    layout->row_size += row_size;
}

static cairn_status list_blocks(cairn__layout *layout)
{
    layout->blocks = calloc((size_t)layout->n_segments + layout->n_sections + 1, sizeof *layout->blocks);
    if (!layout->blocks)
        return CAIRN_ENOMEM;
    for (uint32_t s = 0; s < layout->n_sections; s++) {
        const cairn__section *section = &layout->sections[s];
        add_block(layout, s, -1, section->ext_size);
        for (uint32_t i = 0; i < section->n_segments; i++) {
            uint32_t segment = section->first_segment + i;
            add_block(layout, s, (int32_t)segment, layout->segments[segment].row_size);
        }
    }
    return CAIRN_OK;
}

void cairn__layout_destroy(cairn__layout *layout)
{
    if (!layout)
        return;
    free(layout->segments);
    free(layout->blocks);
    free(layout->states);
    free(layout->suffix);
    free(layout);
}

/* Position of a sample's first cell: a PARTIAL_ONLY blob of states alone has
 * those of the last of n_cells tokens, anything else all of them. */
static bool fits_sample(const cairn__layout *layout, const cairn__sample *sample, int32_t seq)
{
    bool alone = layout->n_sections == 0;
    return cairn__blob_check(layout, sample->blob, sample->size, alone ? sample->n_cells - 1 : 0,
                             alone ? 1 : sample->n_cells, seq);
}

/* The layout that variant v gives to the first sample, if it fits all samples.
 * CAIRN_OK with NULL: it does not. */
static cairn_status try_variant(const variant *v, const cairn__sample *samples, uint32_t n_samples, int32_t seq,
                                cairn__layout **ret_layout)
{
    *ret_layout = NULL;
    cairn__layout *layout = calloc(1, sizeof *layout);
    if (!layout)
        return CAIRN_ENOMEM;
    reader       r = {samples[0].blob, samples[0].size, 0, samples[0].n_cells, false, {0, 0}};
    cairn_status status = CAIRN_OK;
    layout->n_sections = v->n_sections;
    take(&r, 8, 0);
    for (uint32_t i = 0; i < v->n_sections && !r.bad && !status; i++)
        status = read_section(&r, layout, i, v);
    if (v->has_states && !r.bad && !status)
        status = read_states(&r, layout);
    layout->size = r.extent;
    bool fits = !status && !r.bad && r.offset == r.size && r.extent.per_cell <= MAX_CELL_SIZE;
    for (uint32_t i = 0; i < n_samples && fits; i++)
        fits = fits_sample(layout, &samples[i], seq);
    if (fits)
        status = list_blocks(layout);
    if (!fits || status || layout->n_blocks + layout->n_states == 0) {
        cairn__layout_destroy(layout);
        return status;
    }
    *ret_layout = layout;
    return CAIRN_OK;
}

static variant variant_of(uint32_t n_sections, uint32_t bits, bool partial)
{
    variant v = {.n_sections = n_sections, .has_states = partial && (bits & 1)};
    bits >>= partial;
    for (uint32_t i = 0; i < n_sections; i++, bits >>= 2) {
        v.ext_size[i] = bits & 1 ? CAIRN__BLOB_EXT_SIZE : 0;
        v.has_v[i] = !(bits & 2);
    }
    return v;
}

static cairn_status name_layout(cairn__layout *layout)
{
    char *text = cairn__layout_text(layout);
    if (!text)
        return CAIRN_ENOMEM;
    layout->digest = cairn__sha256_once(text, strlen(text));
    layout->id = cairn__get_u64(layout->digest.bytes);
    free(text);
    return CAIRN_OK;
}

static bool samples_ok(const cairn__sample *samples, uint32_t n_samples)
{
    if (n_samples < 2)
        return false;
    for (uint32_t i = 0; i < n_samples; i++)
        if (samples[i].n_cells < 2 || samples[i].n_cells > CAIRN__BLOB_MAX_CELLS ||
            (i > 0 && samples[i].n_cells == samples[0].n_cells))
            return false;
    return true;
}

/* Tries sections from `min` to `max` in number, all variants of each. */
static cairn_status derive(uint32_t min, uint32_t max, bool partial, const cairn__sample *samples, uint32_t n_samples,
                           int32_t seq, cairn__layout **ret_layout)
{
    cairn__layout *found = NULL;
    uint32_t       n_found = 0;
    cairn_status   status = samples_ok(samples, n_samples) ? CAIRN_OK : CAIRN_EINVAL;
    for (uint32_t n = min; n <= max; n++) {
        const uint32_t n_variants = 1u << (2 * n + partial);
        for (uint32_t bits = 0; bits < n_variants && !status; bits++) {
            variant        v = variant_of(n, bits, partial);
            cairn__layout *layout;
            status = try_variant(&v, samples, n_samples, seq, &layout);
            if (status || !layout)
                continue;
            cairn__layout_destroy(found);
            found = layout;
            n_found++;
        }
    }
    if (!status && n_found != 1)
        status = CAIRN_ENOTSUP;
    if (!status)
        status = name_layout(found);
    if (status)
        cairn__layout_destroy(found);
    else
        *ret_layout = found;
    return status;
}

cairn_status cairn__layout_derive(const cairn__sample *samples, uint32_t n_samples, int32_t seq,
                                  cairn__layout **ret_layout)
{
    return derive(1, CAIRN__BLOB_MAX_SECTIONS, false, samples, n_samples, seq, ret_layout);
}

cairn_status cairn__layout_derive_partial(const cairn__sample *samples, uint32_t n_samples, int32_t seq,
                                          cairn__layout **ret_layout)
{
    return derive(0, 1, true, samples, n_samples, seq, ret_layout);
}

cairn_status cairn__layout_set_suffix(cairn__layout *layout, const uint8_t *suffix, uint32_t size)
{
    layout->suffix = malloc((size_t)size + 1);
    if (!layout->suffix)
        return CAIRN_ENOMEM;
    memcpy(layout->suffix, suffix, size);
    layout->suffix_size = size;
    layout->size.fixed += size;
    return name_layout(layout);
}

cairn__layout *cairn__layout_opaque(void)
{
    cairn__layout *layout = calloc(1, sizeof *layout);
    if (!layout)
        return NULL;
    layout->opaque = true;
    if (!name_layout(layout))
        return layout;
    cairn__layout_destroy(layout);
    return NULL;
}

/* ---- text ---- */

static bool same_shape(const cairn__segment *a, const cairn__segment *b)
{
    return a->transposed == b->transposed && a->type == b->type && a->row_size == b->row_size &&
           a->el_size == b->el_size && a->n_embd == b->n_embd;
}

static void print_segments(FILE *out, const cairn__segment *segments, uint32_t n, char name)
{
    for (uint32_t i = 0, k; i < n; i += k) {
        const cairn__segment *s = &segments[i];
        for (k = 1; i + k < n && same_shape(s, s + k); k++)
            continue;
        if (s->transposed)
            fprintf(out, "%c %u x type %d [%u][cells] of %u\n", name, k, s->type, s->n_embd, s->el_size);
        else
            fprintf(out, "%c %u x type %d [cells] of %llu\n", name, k, s->type, (unsigned long long)s->row_size);
    }
}

char *cairn__layout_text(const cairn__layout *layout)
{
    char  *text = NULL;
    size_t size = 0;
    FILE  *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fprintf(out, "cairn layout 1\n%s", layout->opaque ? "opaque\n" : "");
    for (uint32_t i = 0; i < layout->n_sections; i++) {
        const cairn__section *section = &layout->sections[i];
        const cairn__segment *segments = &layout->segments[section->first_segment];
        fprintf(out, "section %u ext %u v_trans %u\n", i, section->ext_size, section->v_trans);
        print_segments(out, segments, section->n_layer, 'k');
        print_segments(out, segments + section->n_layer, section->n_segments - section->n_layer, 'v');
    }
    for (uint32_t i = 0; i < layout->n_states; i++)
        fprintf(out, "state type %d of %llu\n", layout->states[i].type, (unsigned long long)layout->states[i].size);
    if (layout->suffix_size > 0) {
        fprintf(out, "suffix ");
        for (uint32_t i = 0; i < layout->suffix_size; i++)
            fprintf(out, "%02x", layout->suffix[i]);
        fprintf(out, "\n");
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
