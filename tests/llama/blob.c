/* The validator against everything that the runtime aborts on, wastes memory
 * for, accepts silently or refuses: each case is one change to a blob that the
 * runtime itself exported, and each must be refused. */
#include "support.h"

#include "base/bytes.h"
#include "llama/blob.h"

enum { N = 12, FIRST = 3, SEQ = 2 };

typedef struct blob {
    uint8_t *data;
    uint64_t size;
} blob;

typedef struct fixture {
    cairn__layout *layout;
    blob           page; /* positions [FIRST, N) in SEQ */
    uint32_t       n;
} fixture;

static runtime rt;
static fixture fixtures[2]; /* flash attention on, off */

static blob export_seq(llama_seq_id seq)
{
    blob b = {.size = llama_state_seq_get_size(rt.ctx, seq)};
    b.data = malloc(b.size + 64);
    REQUIRE(b.data && llama_state_seq_get_data(rt.ctx, b.data, b.size, seq) == b.size);
    return b;
}

static fixture make_fixture(bool flash)
{
    const kv_setup kv = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, flash};
    fixture        f = {.n = N - FIRST};
    llama_token   *tokens = make_tokens(N, rt.n_vocab, 1);
    open_context(&rt, context_params(&kv, 256, 64));
    REQUIRE(decode(&rt, 0, tokens, 0, N) == 0);
    llama_memory_seq_cp(rt.memory, 0, SEQ, FIRST, N);
    f.page = export_seq(SEQ);
    llama_memory_seq_rm(rt.memory, SEQ, -1, -1);
    cairn__sample samples[2];
    for (uint32_t i = 0; i < 2; i++) {
        llama_memory_seq_cp(rt.memory, 0, SEQ, 0, (llama_pos)(i ? 2 : 5));
        blob b = export_seq(SEQ);
        samples[i] = (cairn__sample){b.data, b.size, i ? 2 : 5};
        llama_memory_seq_rm(rt.memory, SEQ, -1, -1);
    }
    REQUIRE(cairn__layout_derive(samples, 2, SEQ, &f.layout) == CAIRN_OK);
    free((void *)samples[0].blob);
    free((void *)samples[1].blob);
    free(tokens);
    return f;
}

static int set_up(void **state)
{
    (void)state;
    init_llama();
    if (!is_file(model_path()))
        return 0;
    rt = load(model_path());
    fixtures[0] = make_fixture(true);
    fixtures[1] = make_fixture(false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        cairn__layout_destroy(fixtures[i].layout);
        free(fixtures[i].page.data);
    }
    if (rt.model)
        unload(&rt);
    return 0;
}

static void need_model(void)
{
    if (!rt.model) {
        print_message("no model at %s\n", model_path());
        test_skip();
    }
}

static bool accepts(const fixture *f, const uint8_t *data, uint64_t size)
{
    uint32_t order[N];
    bool     strict = cairn__blob_check(f->layout, data, size, FIRST, f->n, SEQ);
    bool     any = cairn__blob_check_order(f->layout, data, size, FIRST, f->n, SEQ, order);
    assert_true(any || !strict);
    return any;
}

/* True when the blob with the u32 at `offset` replaced is refused. */
static bool refuses_u32(const fixture *f, uint64_t offset, uint32_t value)
{
    uint32_t was = cairn__get_u32(f->page.data + offset);
    assert_int_not_equal(was, value);
    cairn__put_u32(f->page.data + offset, value);
    bool accepted = accepts(f, f->page.data, f->page.size);
    cairn__put_u32(f->page.data + offset, was);
    return !accepted;
}

/* Where the cells of the one section end: v_trans, n_layer, first K. */
static uint64_t shape_offset(const fixture *f)
{
    return 16 + 12 * (uint64_t)f->n;
}

static void accepts_what_the_runtime_wrote(void **state)
{
    (void)state;
    need_model();
    for (int i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        assert_true(cairn__blob_check(f->layout, f->page.data, f->page.size, FIRST, f->n, SEQ));
        assert_int_equal(f->page.size, cairn__blob_size(f->layout, f->n));
        assert_int_equal(f->layout->n_sections, 1);
        assert_int_equal(f->layout->sections[0].v_trans, i);
        assert_int_equal(f->layout->n_segments, 60);
        assert_int_equal(f->layout->row_size, 60 * 192 * 2);
        assert_false(cairn__blob_check(f->layout, f->page.data, f->page.size, FIRST + 1, f->n, SEQ));
        assert_false(cairn__blob_check(f->layout, f->page.data, f->page.size, FIRST, f->n, SEQ + 1));
        assert_false(cairn__blob_check(f->layout, f->page.data, f->page.size, FIRST, f->n - 1, SEQ));
        assert_false(cairn__blob_check(f->layout, f->page.data, f->page.size, FIRST, 0, SEQ));
        assert_false(cairn__blob_check(f->layout, f->page.data, f->page.size, FIRST, UINT32_MAX, SEQ));
        assert_false(cairn__blob_check(f->layout, f->page.data, f->page.size, INT32_MAX, f->n, SEQ));
    }
    assert_memory_not_equal(fixtures[0].layout->digest.bytes, fixtures[1].layout->digest.bytes, 32);
}

static void refuses_every_truncation(void **state)
{
    (void)state;
    need_model();
    for (int i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        for (uint64_t size = 0; size < shape_offset(f) + 64; size++)
            assert_false(accepts(f, f->page.data, size));
        assert_false(accepts(f, f->page.data, f->page.size / 4));
        assert_false(accepts(f, f->page.data, f->page.size * 3 / 4));
        assert_false(accepts(f, f->page.data, f->page.size - 1));
        assert_false(accepts(f, f->page.data, f->page.size + 1)); /* trailing bytes are accepted silently */
        assert_false(accepts(f, f->page.data, f->page.size + 64));
        assert_true(accepts(f, f->page.data, f->page.size));
    }
}

static void refuses_wrong_heads(void **state)
{
    (void)state;
    need_model();
    for (int i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        const uint32_t n = f->n;
        assert_true(refuses_u32(f, 0, CAIRN__BLOB_MAGIC ^ 1));
        assert_true(refuses_u32(f, 4, UINT32_MAX)); /* sequence */
        assert_true(refuses_u32(f, 4, 9999));
        assert_true(refuses_u32(f, 8, 0)); /* n_stream */
        assert_true(refuses_u32(f, 8, 2));
        const uint32_t counts[] = {0, n - 1, n + 1, 5000, 100000000, 0x80000000u, UINT32_MAX};
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
            assert_true(refuses_u32(f, 12, counts[k]));
    }
}

static void refuses_wrong_cells(void **state)
{
    (void)state;
    need_model();
    for (int i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        for (uint32_t cell = 0; cell < f->n; cell++) {
            const uint64_t at = 16 + 12 * (uint64_t)cell;
            const uint32_t positions[] = {UINT32_MAX, (uint32_t)-5, INT32_MAX, 0x80000000u, FIRST - 1, N};
            for (size_t k = 0; k < sizeof positions / sizeof positions[0]; k++)
                assert_true(refuses_u32(f, at, positions[k]));
            assert_true(refuses_u32(f, at, cell ? FIRST : FIRST + 1)); /* twice */
            assert_true(refuses_u32(f, at + 4, 0));
            assert_true(refuses_u32(f, at + 4, 2));
            assert_true(refuses_u32(f, at + 4, UINT32_MAX));
            assert_true(refuses_u32(f, at + 8, 0));
            assert_true(refuses_u32(f, at + 8, 9999));
        }
    }
}

static void refuses_wrong_shapes(void **state)
{
    (void)state;
    need_model();
    for (int i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        const uint64_t at = shape_offset(f);
        assert_true(refuses_u32(f, at, !i));
        assert_true(refuses_u32(f, at, 2));
        assert_true(refuses_u32(f, at + 4, 0));
        assert_true(refuses_u32(f, at + 4, 29));
        assert_true(refuses_u32(f, at + 4, 31));
        assert_true(refuses_u32(f, at + 4, UINT32_MAX));
        for (uint32_t s = 0; s < f->layout->n_segments; s++) {
            const cairn__segment *segment = &f->layout->segments[s];
            const uint64_t head = segment->data.fixed + segment->data.per_cell * f->n - 12;
            assert_true(refuses_u32(f, head, 99));
            assert_true(refuses_u32(f, head, GGML_TYPE_Q8_0));
            assert_true(refuses_u32(f, head, UINT32_MAX));
            assert_true(refuses_u32(f, head + 4, segment->transposed ? 4 : 2 * (uint32_t)segment->row_size));
            assert_true(refuses_u32(f, head + 8, segment->transposed ? 191 : 1));
        }
    }
}

/* Any bit of any byte that is not payload. */
static void refuses_every_flipped_bit(void **state)
{
    (void)state;
    need_model();
    for (int i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        uint8_t       *fixed = calloc(1, f->page.size);
        assert_non_null(fixed);
        memset(fixed, 1, f->page.size);
        for (uint32_t s = 0; s < f->layout->n_segments; s++) {
            const cairn__segment *segment = &f->layout->segments[s];
            memset(fixed + segment->data.fixed + segment->data.per_cell * f->n, 0, segment->row_size * f->n);
        }
        uint64_t n_fixed = 0;
        for (uint64_t at = 0; at < f->page.size; at++) {
            for (int bit = 0; fixed[at] && bit < 8; bit++) {
                f->page.data[at] ^= (uint8_t)(1 << bit);
                assert_false(accepts(f, f->page.data, f->page.size));
                f->page.data[at] ^= (uint8_t)(1 << bit);
            }
            n_fixed += fixed[at];
        }
        assert_int_equal(n_fixed, 8 + 8 + 12 * f->n + 8 + 60 * 12);
        free(fixed);
    }
}

static void check_order_finds_the_permutation(void **state)
{
    (void)state;
    need_model();
    const fixture *f = &fixtures[0];
    uint32_t       order[N];
    uint8_t       *cells = f->page.data + 16;
    assert_true(cairn__blob_check_order(f->layout, f->page.data, f->page.size, FIRST, f->n, SEQ, order));
    for (uint32_t i = 0; i < f->n; i++)
        assert_int_equal(order[i], i);
    cairn__put_u32(cells, FIRST + 4);
    cairn__put_u32(cells + 12 * 4, FIRST);
    assert_false(cairn__blob_check(f->layout, f->page.data, f->page.size, FIRST, f->n, SEQ));
    assert_true(cairn__blob_check_order(f->layout, f->page.data, f->page.size, FIRST, f->n, SEQ, order));
    assert_int_equal(order[0], 4);
    assert_int_equal(order[4], 0);
    assert_int_equal(order[5], 5);
    cairn__put_u32(cells, FIRST);
    cairn__put_u32(cells + 12 * 4, FIRST + 4);
}

/* A blob taken apart into two pages and framed again is the same blob. */
static void frame_and_blocks_rebuild_the_blob(void **state)
{
    (void)state;
    need_model();
    for (int i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        uint8_t       *copy = malloc(f->page.size), *data = malloc(f->page.size);
        assert_non_null(copy);
        assert_non_null(data);
        memset(copy, 0xaa, f->page.size);
        cairn__blob_frame(f->layout, copy, FIRST, f->n, SEQ);
        for (uint32_t block = 0; block < f->layout->n_blocks; block++) {
            for (uint32_t cell = 0; cell < f->n; cell += 5) {
                /* a page of 5 tokens of which the last use what is left */
                uint32_t           n = f->n - cell < 5 ? f->n - cell : 5;
                cairn__block_span span = {f->n, cell, n, 5, NULL};
                memset(data, 0x55, cairn__block_size(f->layout, block, 5));
                cairn__block_gather(f->layout, block, f->page.data, &span, data);
                cairn__block_scatter(f->layout, block, copy, &span, data);
            }
            assert_int_equal(cairn__block_is_contiguous(f->layout, block), i == 0 || block < 30);
        }
        assert_memory_equal(copy, f->page.data, f->page.size);
        free(copy);
        free(data);
    }
}

/* ---- layouts that this model does not have ---- */

typedef struct writer {
    uint8_t  data[1 << 14];
    uint64_t size;
} writer;

static void put32(writer *w, uint32_t v)
{
    cairn__put_u32(w->data + w->size, v);
    w->size += 4;
}

static void put_rows(writer *w, uint32_t type, uint64_t row, uint32_t n)
{
    put32(w, type);
    cairn__put_u64(w->data + w->size, row);
    w->size += 8;
    for (uint64_t i = 0; i < row * n; i++)
        w->data[w->size++] = (uint8_t)(i * 7 + row);
}

/* Two sections; the first with extensions and V, the second K alone (an indexer). */
static writer two_sections(uint32_t n)
{
    writer w = {.size = 0};
    put32(&w, CAIRN__BLOB_MAGIC);
    put32(&w, SEQ);
    for (uint32_t s = 0; s < 2; s++) {
        put32(&w, 1);
        put32(&w, n);
        for (uint32_t i = 0; i < n; i++) {
            put32(&w, i);
            put32(&w, 1);
            for (uint32_t k = 0; k < 3 && s == 0; k++)
                put32(&w, k < 2 ? i : 100 + i);
            put32(&w, SEQ);
        }
        put32(&w, 0);
        put32(&w, 2);
        for (uint32_t l = 0; l < (s ? 2u : 4u); l++)
            put_rows(&w, 1, s ? 16 : l == 1 ? 0 : 32, n); /* layer 1 has no K */
    }
    return w;
}

static void derives_two_sections_with_extensions(void **state)
{
    (void)state;
    writer         a = two_sections(7), b = two_sections(3);
    cairn__sample  samples[] = {{a.data, a.size, 7}, {b.data, b.size, 3}};
    cairn__layout *layout = NULL;
    assert_int_equal(cairn__layout_derive(samples, 2, SEQ, &layout), CAIRN_OK);
    assert_int_equal(layout->n_sections, 2);
    assert_int_equal(layout->sections[0].ext_size, 12);
    assert_true(layout->sections[0].has_v);
    assert_int_equal(layout->sections[1].ext_size, 0);
    assert_false(layout->sections[1].has_v);
    assert_int_equal(layout->n_segments, 6);
    assert_int_equal(layout->n_blocks, 6); /* extensions, 3 rows that are not empty, 2 of the indexer */
    assert_int_equal(layout->blocks[0].segment, -1);
    assert_int_equal(layout->row_size, 12 + 3 * 32 + 2 * 16);
    char *text = cairn__layout_text(layout);
    assert_string_equal(text, "cairn layout 1\n"
                              "section 0 ext 12 v_trans 0\n"
                              "k 1 x type 1 [cells] of 32\n"
                              "k 1 x type 1 [cells] of 0\n"
                              "v 2 x type 1 [cells] of 32\n"
                              "section 1 ext 0 v_trans 0\n"
                              "k 2 x type 1 [cells] of 16\n");
    free(text);
    for (uint64_t size = 0; size < a.size; size++)
        assert_false(cairn__blob_check(layout, a.data, size, 0, 7, SEQ));
    const int32_t tokens[] = {100, 101, 102, 103, 104, 105, 106};
    uint8_t       ext[7 * 12];
    const cairn__block_span span = {7, 0, 7, 7, NULL};
    cairn__block_gather(layout, 0, a.data, &span, ext);
    assert_true(cairn__block_ext_check(ext, 7, 0, tokens));
    assert_false(cairn__block_ext_check(ext, 7, 1, tokens)); /* positions of another page */
    ext[8] ^= 1;
    assert_false(cairn__block_ext_check(ext, 7, 0, tokens)); /* another token */
    cairn__layout_destroy(layout);
}

static void refuses_samples_that_do_not_agree(void **state)
{
    (void)state;
    writer         a = two_sections(7), b = two_sections(3);
    cairn__layout *layout = NULL;
    cairn__sample  one[] = {{a.data, a.size, 7}};
    cairn__sample  same[] = {{a.data, a.size, 7}, {a.data, a.size, 7}};
    assert_int_equal(cairn__layout_derive(one, 1, SEQ, &layout), CAIRN_EINVAL);
    assert_int_equal(cairn__layout_derive(same, 2, SEQ, &layout), CAIRN_EINVAL);
    cairn__sample cut[] = {{a.data, a.size, 7}, {b.data, b.size - 4, 3}};
    assert_int_equal(cairn__layout_derive(cut, 2, SEQ, &layout), CAIRN_ENOTSUP);
    cairn__sample longer[] = {{a.data, a.size + 4, 7}, {b.data, b.size, 3}};
    assert_int_equal(cairn__layout_derive(longer, 2, SEQ, &layout), CAIRN_ENOTSUP);
    for (uint64_t size = 0; size < a.size; size++) {
        cairn__sample shorter[] = {{a.data, size, 7}, {b.data, b.size, 3}};
        assert_int_equal(cairn__layout_derive(shorter, 2, SEQ, &layout), CAIRN_ENOTSUP);
    }
    assert_null(layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_what_the_runtime_wrote),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(refuses_wrong_heads),
        cmocka_unit_test(refuses_wrong_cells),
        cmocka_unit_test(refuses_wrong_shapes),
        cmocka_unit_test(refuses_every_flipped_bit),
        cmocka_unit_test(check_order_finds_the_permutation),
        cmocka_unit_test(frame_and_blocks_rebuild_the_blob),
        cmocka_unit_test(derives_two_sections_with_extensions),
        cmocka_unit_test(refuses_samples_that_do_not_agree),
    };
    return test_exit_code(cmocka_run_group_tests(tests, set_up, tear_down));
}
