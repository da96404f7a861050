/* The validator of checkpoints: what the runtime wrote for a window and for
 * recurrent state is accepted, and every change of it outside the data refused,
 * among them those that abort the process (two cells of recurrent state) or that
 * the runtime accepts silently (positions).
 *
 * Tiny models of CAIRN_TEST_ARCHS_DIR, unset ~/.cache/cairn-build/archs-1. */
#include "support.h"

#include "base/bytes.h"
#include "llama/blob.h"

enum { SEQ = 2, N_SAMPLES = 2, N = 12, MAX_CELLS = 64 };
static const uint32_t sample_tokens[N_SAMPLES] = {3, 7};

typedef struct fixture {
    runtime        rt;
    cairn__layout *layout;
    uint8_t       *blob; /* at N tokens */
    uint64_t       size;
} fixture;

static uint8_t *take(const runtime *rt, uint64_t *ret_size)
{
    *ret_size = llama_state_seq_get_size_ext(rt->ctx, SEQ, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    uint8_t *blob = malloc(*ret_size + 64);
    REQUIRE(blob && llama_state_seq_get_data_ext(rt->ctx, blob, *ret_size, SEQ, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) ==
                        *ret_size);
    return blob;
}

static fixture open_fixture(const char *name)
{
    const kv_setup kv = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true};
    cairn__sample  samples[N_SAMPLES];
    fixture        f = {.rt = load(tiny_model(name))};
    llama_token   *tokens = make_tokens(N, f.rt.n_vocab, 1);
    open_context(&f.rt, context_params(&kv, 256, 64));
    for (uint32_t i = 0; i < N_SAMPLES; i++) {
        uint64_t size;
        REQUIRE(decode(&f.rt, SEQ, tokens, i ? sample_tokens[i - 1] : 0, sample_tokens[i]) == 0);
        uint8_t *blob = take(&f.rt, &size);
        samples[i] = (cairn__sample){blob, size, sample_tokens[i]};
    }
    REQUIRE(cairn__layout_derive_partial(samples, N_SAMPLES, SEQ, &f.layout) == CAIRN_OK);
    for (uint32_t i = 0; i < N_SAMPLES; i++)
        free((void *)samples[i].blob);
    REQUIRE(decode(&f.rt, SEQ, tokens, sample_tokens[N_SAMPLES - 1], N) == 0);
    f.blob = take(&f.rt, &f.size);
    free(tokens);
    return f;
}

static void close_fixture(fixture *f)
{
    cairn__layout_destroy(f->layout);
    free(f->blob);
    unload(&f->rt);
}

static bool accepts(const fixture *f, uint64_t size, uint32_t n_tokens)
{
    uint32_t order[MAX_CELLS];
    return cairn__partial_check(f->layout, f->blob, size, n_tokens, SEQ, order, MAX_CELLS);
}

static bool refuses_u32(const fixture *f, uint64_t offset, uint32_t value)
{
    uint32_t was = cairn__get_u32(f->blob + offset);
    assert_int_not_equal(was, value);
    cairn__put_u32(f->blob + offset, value);
    bool accepted = accepts(f, f->size, N);
    cairn__put_u32(f->blob + offset, was);
    return !accepted;
}

/* Every byte that is not data of a segment or state. */
static void refuses_every_changed_frame_byte(const fixture *f, uint64_t n_data)
{
    uint64_t n_accepted = 0;
    for (uint64_t i = 0; i < f->size; i++) {
        f->blob[i] ^= 0x40;
        n_accepted += accepts(f, f->size, N);
        f->blob[i] ^= 0x40;
    }
    assert_int_equal(n_accepted, n_data); /* the values themselves: checksums look after those */
}

static void common(const fixture *f)
{
    assert_true(accepts(f, f->size, N));
    assert_false(accepts(f, f->size, N - 1)); /* another position */
    assert_false(accepts(f, f->size, N + 1));
    assert_false(accepts(f, f->size, 0));
    for (uint64_t size = 0; size < f->size; size += size < 200 ? 1 : 97)
        assert_false(accepts(f, size, N));
    assert_true(refuses_u32(f, 0, 0xaf143cd9));
    assert_true(refuses_u32(f, 4, SEQ + 1));
    cairn__partial_retarget(f->layout, f->blob, 0);
    uint32_t order[MAX_CELLS];
    assert_true(cairn__partial_check(f->layout, f->blob, f->size, N, 0, order, MAX_CELLS));
    cairn__partial_retarget(f->layout, f->blob, SEQ);
    assert_true(accepts(f, f->size, N));
}

static void a_window(void **state)
{
    (void)state;
    fixture f = open_fixture("gemma3-dense");
    assert_int_equal(f.layout->n_sections, 1);
    assert_int_equal(f.layout->n_states, 0);
    common(&f);
    const uint64_t cells = 16;
    assert_int_equal(cairn__get_u32(f.blob + 12), N);
    assert_true(refuses_u32(&f, 12, 0));
    assert_true(refuses_u32(&f, 12, N + 1));
    assert_true(refuses_u32(&f, 12, 100000000)); /* would eat memory for seconds */
    assert_true(refuses_u32(&f, cells, 1));      /* a position twice */
    assert_true(refuses_u32(&f, cells, N));
    assert_true(refuses_u32(&f, cells, UINT32_MAX));
    assert_true(refuses_u32(&f, cells + 4, 2)); /* two sequences */
    assert_true(refuses_u32(&f, cells + 8, 0));
    for (int i = 0; i < 12; i++) { /* another order is the runtime's business */
        uint8_t t = f.blob[cells + i];
        f.blob[cells + i] = f.blob[cells + 12 + i];
        f.blob[cells + 12 + i] = t;
    }
    assert_true(accepts(&f, f.size, N));
    refuses_every_changed_frame_byte(&f, f.layout->row_size * N);
    close_fixture(&f);
}

static uint64_t state_bytes(const cairn__layout *layout)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < layout->n_states; i++)
        n += layout->states[i].size;
    return n;
}

static void recurrent(const char *name)
{
    fixture f = open_fixture(name);
    assert_int_equal(f.layout->n_sections, 0);
    assert_true(f.layout->n_states > 0);
    common(&f);
    assert_true(refuses_u32(&f, 8, 2)); /* aborts the process */
    assert_true(refuses_u32(&f, 8, 0));
    assert_true(refuses_u32(&f, 12, N));
    assert_true(refuses_u32(&f, 12, UINT32_MAX));
    assert_true(refuses_u32(&f, 16, 1)); /* n_seq_id */
    assert_true(refuses_u32(&f, 20, 1)); /* s_trans */
    assert_true(refuses_u32(&f, 24, f.layout->n_state_layers + 1));
    assert_true(refuses_u32(&f, 28, 77)); /* type of the first state */
    refuses_every_changed_frame_byte(&f, state_bytes(f.layout));
    close_fixture(&f);
}

static void recurrent_state(void **state)
{
    (void)state;
    recurrent("mamba-dense");
}

static void recurrent_state_of_a_hybrid(void **state)
{
    (void)state;
    recurrent("granitehybrid-dense");
}

static void a_layout_of_one_model_refuses_the_others(void **state)
{
    (void)state;
    fixture  window = open_fixture("gemma3-dense"), mamba = open_fixture("mamba-dense");
    uint32_t order[MAX_CELLS];
    assert_false(cairn__partial_check(window.layout, mamba.blob, mamba.size, N, SEQ, order, MAX_CELLS));
    assert_false(cairn__partial_check(mamba.layout, window.blob, window.size, N, SEQ, order, MAX_CELLS));
    close_fixture(&window);
    close_fixture(&mamba);
}

int main(void)
{
    init_llama();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window),
        cmocka_unit_test(recurrent_state),
        cmocka_unit_test(recurrent_state_of_a_hybrid),
        cmocka_unit_test(a_layout_of_one_model_refuses_the_others),
    };
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
