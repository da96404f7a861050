/* fuzz_blob.c - the last check before bytes reach the runtime.
 *
 * Against the layout of a small model with extensions, a transposed V and
 * rows of several sizes: a blob that the check accepts differs in nothing from
 * the frame that we would write ourselves, apart from the data of its rows.
 *
 * An input is {first_pos u32le, n_cells u8} and a blob. The same bytes are also
 * given to the derivation of layouts, as two samples. */
#include "base/bytes.h"
#include "llama/blob.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEQ = 3, HEAD_SIZE = 5, MAX_SAMPLE_SIZE = 4096 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

static uint8_t *put_u32(uint8_t *p, uint32_t value)
{
    cairn__put_u32(p, value);
    return p + 4;
}

/* Two layers: K rows of 20 bytes, V transposed with 3 elements of 2 bytes. */
static uint64_t write_sample(uint8_t *blob, uint32_t n_cells)
{
    uint8_t *p = put_u32(put_u32(blob, CAIRN__BLOB_MAGIC), SEQ);
    p = put_u32(put_u32(p, 1), n_cells);
    for (uint32_t i = 0; i < n_cells; i++)
        p = put_u32(put_u32(put_u32(p, i), 1), SEQ);
    p = put_u32(put_u32(p, 1), 2);
    for (int layer = 0; layer < 2; layer++) {
        p = put_u32(p, 1);
        cairn__put_u64(p, 20);
        memset(p + 8, 0xa5, 20 * n_cells);
        p += 8 + 20 * n_cells;
    }
    for (int layer = 0; layer < 2; layer++) {
        p = put_u32(put_u32(put_u32(p, 1), 2), 3);
        memset(p, 0x5a, 6 * n_cells);
        p += 6 * n_cells;
    }
    return (uint64_t)(p - blob);
}

static cairn__layout *make_layout(void)
{
    static uint8_t blobs[2][MAX_SAMPLE_SIZE];
    cairn__sample  samples[2] = {{.blob = blobs[0], .n_cells = 2}, {.blob = blobs[1], .n_cells = 5}};
    cairn__layout *layout = NULL;
    for (int i = 0; i < 2; i++)
        samples[i].size = write_sample(blobs[i], samples[i].n_cells);
    require(cairn__layout_derive(samples, 2, SEQ, &layout) == CAIRN_OK);
    return layout;
}

static void check(const cairn__layout *layout, const uint8_t *blob, size_t size, uint32_t first_pos, uint32_t n_cells)
{
    uint32_t order[256];
    bool     accepted = cairn__blob_check(layout, blob, size, first_pos, n_cells, SEQ);
    bool     in_some_order = cairn__blob_check_order(layout, blob, size, first_pos, n_cells, SEQ, order);
    require(in_some_order || !accepted);
    if (!accepted)
        return;
    for (uint32_t i = 0; i < n_cells; i++)
        require(order[i] == i);
    uint8_t *framed = malloc(size);
    require(framed != NULL);
    memcpy(framed, blob, size);
    cairn__blob_frame(layout, framed, first_pos, n_cells, SEQ);
    require(memcmp(framed, blob, size) == 0);
    free(framed);
}

static void derive(const uint8_t *data, size_t size)
{
    cairn__sample  samples[2] = {{data, size / 2, 2}, {data + size / 2, size - size / 2, 3}};
    cairn__layout *layout = NULL;
    if (cairn__layout_derive(samples, 2, SEQ, &layout) == CAIRN_OK) {
        require(cairn__blob_size(layout, 2) == samples[0].size);
        require(cairn__blob_check(layout, samples[1].blob, samples[1].size, 0, 3, SEQ));
        cairn__layout_destroy(layout);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static cairn__layout *layout;
    if (!layout)
        layout = make_layout();
    if (size < HEAD_SIZE)
        return 0;
    uint32_t first_pos = cairn__get_u32(data), n_cells = data[4];
    check(layout, data + HEAD_SIZE, size - HEAD_SIZE, first_pos, n_cells);
    derive(data + HEAD_SIZE, size - HEAD_SIZE);
    return 0;
}
