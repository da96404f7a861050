/* gen_models.c - the tensors of each kind of bench_gen.
 *
 * Names and shapes are those that llama.cpp's loader asks for. Weights are scaled
 * by 1/sqrt(inputs), which keeps activations near 1 through all layers; norms are
 * ones. What decides how long a recurrent state remembers (decay, step size) is
 * drawn so that it takes some ten tokens to forget half: with a state that forgets
 * at once every test of it would pass. */
#include "gen.h"
#include "util.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef int64_t shape[4]; /* ends with 0 if it has less than 4 dimensions */

static const gen_numbers ONES = {1, 0};
static const gen_numbers SMALL = {0, 0.1f}; /* biases */
static const gen_numbers HALVES = {0.5f, 0.1f};

static gen_numbers weight(int64_t inputs)
{
    return (gen_numbers){0, 1.0f / sqrtf((float)inputs)};
}

static void part(gen_model *m, int layer, const char *name, enum ggml_type type, const shape ne, gen_numbers numbers)
{
    char full[GGML_MAX_NAME];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    gen_tensor(m, full, type, ne, numbers);
}

static void matrix(gen_model *m, int layer, const char *name, enum ggml_type type, int64_t in, int64_t out)
{
    part(m, layer, name, type, (shape){in, out}, weight(in));
}

static void norm(gen_model *m, int layer, const char *name, int64_t n)
{
    part(m, layer, name, GGML_TYPE_F32, (shape){n}, ONES);
}

static void vector(gen_model *m, int layer, const char *name, int64_t n, gen_numbers numbers)
{
    part(m, layer, name, GGML_TYPE_F32, (shape){n}, numbers);
}

/* ---- parts of several kinds ---- */

static void sizes(gen_model *m, const gen_kind *k, uint32_t n_ctx)
{
    gen_key_u32(m, "context_length", n_ctx);
    gen_key_u32(m, "embedding_length", (uint32_t)k->n_embd);
    gen_key_u32(m, "block_count", (uint32_t)k->n_layers);
    gen_key_u32(m, "feed_forward_length", (uint32_t)k->n_ff);
}

static void attention_sizes(gen_model *m, const gen_kind *k, float rope_base)
{
    gen_key_u32(m, "attention.key_length", (uint32_t)k->head_dim);
    gen_key_u32(m, "attention.value_length", (uint32_t)k->head_dim);
    gen_key_f32(m, "attention.layer_norm_rms_epsilon", 1e-6f);
    gen_key_f32(m, "rope.freq_base", rope_base);
}

static void heads(gen_model *m, const gen_kind *k)
{
    gen_key_u32(m, "attention.head_count", (uint32_t)k->n_heads);
    gen_key_u32(m, "attention.head_count_kv", (uint32_t)k->n_kv_heads);
}

static void embeddings(gen_model *m, const gen_kind *k, float scale)
{
    gen_tensor(m, "token_embd.weight", k->type, (shape){k->n_embd, k->n_vocab}, (gen_numbers){0, scale});
    gen_tensor(m, "output_norm.weight", GGML_TYPE_F32, (shape){k->n_embd}, ONES);
    if (k->output)
        gen_tensor(m, "output.weight", k->type, (shape){k->n_embd, k->n_vocab}, weight(k->n_embd));
}

static void attention(gen_model *m, const gen_kind *k, int layer, bool qk_norm)
{
    const int64_t q = k->n_heads * k->head_dim, kv = k->n_kv_heads * k->head_dim;
    norm(m, layer, "attn_norm.weight", k->n_embd);
    matrix(m, layer, "attn_q.weight", k->type, k->n_embd, q);
    matrix(m, layer, "attn_k.weight", k->type, k->n_embd, kv);
    matrix(m, layer, "attn_v.weight", k->type, k->n_embd, kv);
    matrix(m, layer, "attn_output.weight", k->type, q, k->n_embd);
    if (qk_norm) {
        norm(m, layer, "attn_q_norm.weight", k->head_dim);
        norm(m, layer, "attn_k_norm.weight", k->head_dim);
    }
}

static void feed_forward(gen_model *m, const gen_kind *k, int layer)
{
    norm(m, layer, "ffn_norm.weight", k->n_embd);
    matrix(m, layer, "ffn_gate.weight", k->type, k->n_embd, k->n_ff);
    matrix(m, layer, "ffn_up.weight", k->type, k->n_embd, k->n_ff);
    matrix(m, layer, "ffn_down.weight", k->type, k->n_ff, k->n_embd);
}

/* ---- dense (qwen3) ---- */

static void dense(gen_model *m, const gen_kind *k)
{
    sizes(m, k, 40960);
    heads(m, k);
    attention_sizes(m, k, 1000000.0f);
    embeddings(m, k, 1);
    for (int layer = 0; layer < k->n_layers; layer++) {
        attention(m, k, layer, true);
        feed_forward(m, k, layer);
    }
}

/* ---- sliding windows (gemma3): one layer of three sees everything ---- */

static void window(gen_model *m, const gen_kind *k)
{
    sizes(m, k, 40960);
    heads(m, k);
    attention_sizes(m, k, 1000000.0f);
    gen_key_u32(m, "attention.sliding_window", 256);
    gen_key_u32(m, "attention.sliding_window_pattern", 3);
    embeddings(m, k, 1.0f / sqrtf((float)k->n_embd)); /* the runtime multiplies them by the root */
    for (int layer = 0; layer < k->n_layers; layer++) {
        attention(m, k, layer, true);
        norm(m, layer, "post_attention_norm.weight", k->n_embd);
        feed_forward(m, k, layer);
        norm(m, layer, "post_ffw_norm.weight", k->n_embd);
    }
}

/* ---- hybrid (granitehybrid): attention in one layer of three, Mamba 2 in the others ---- */

enum { SSM_STATE = 16, SSM_HEAD = 64, SSM_CONV = 4, MAX_LAYERS = 64 };

static bool is_recurrent(int64_t layer)
{
    return layer % 3 != 2;
}

static void mamba2(gen_model *m, const gen_kind *k, int layer)
{
    const int64_t inner = 2 * k->n_embd, n_heads = inner / SSM_HEAD, conv = inner + 2 * SSM_STATE;
    norm(m, layer, "attn_norm.weight", k->n_embd);
    matrix(m, layer, "ssm_in.weight", k->type, k->n_embd, inner + conv + n_heads);
    part(m, layer, "ssm_conv1d.weight", GGML_TYPE_F32, (shape){SSM_CONV, conv}, weight(SSM_CONV));
    vector(m, layer, "ssm_conv1d.bias", conv, SMALL);
    vector(m, layer, "ssm_dt.bias", n_heads, (gen_numbers){-2, 0.3f});
    part(m, layer, "ssm_a", GGML_TYPE_F32, (shape){1, n_heads}, (gen_numbers){-0.5f, 0.1f});
    part(m, layer, "ssm_d", GGML_TYPE_F32, (shape){1, n_heads}, ONES);
    part(m, layer, "ssm_norm.weight", GGML_TYPE_F32, (shape){inner, 1}, ONES);
    matrix(m, layer, "ssm_out.weight", k->type, inner, k->n_embd);
}

static void hybrid(gen_model *m, const gen_kind *k)
{
    int32_t n_kv_heads[MAX_LAYERS];
    sizes(m, k, 40960);
    for (int64_t i = 0; i < k->n_layers; i++)
        n_kv_heads[i] = is_recurrent(i) ? 0 : (int32_t)k->n_kv_heads;
    gen_key_u32(m, "attention.head_count", (uint32_t)k->n_heads);
    gen_key_i32s(m, "attention.head_count_kv", n_kv_heads, k->n_layers);
    attention_sizes(m, k, 1000000.0f);
    gen_key_u32(m, "rope.dimension_count", (uint32_t)k->head_dim);
    gen_key_u32(m, "ssm.conv_kernel", SSM_CONV);
    gen_key_u32(m, "ssm.inner_size", (uint32_t)(2 * k->n_embd));
    gen_key_u32(m, "ssm.state_size", SSM_STATE);
    gen_key_u32(m, "ssm.time_step_rank", (uint32_t)(2 * k->n_embd / SSM_HEAD));
    gen_key_u32(m, "ssm.group_count", 1);
    gen_key_f32(m, "logit_scale", 1.0f);
    embeddings(m, k, 1.0f / sqrtf((float)k->n_embd)); /* else a token's own embedding decides all */
    for (int layer = 0; layer < k->n_layers; layer++) {
        if (is_recurrent(layer))
            mamba2(m, k, layer);
        else
            attention(m, k, layer, false);
        feed_forward(m, k, layer);
    }
}

/* ---- rwkv6 and rwkv7: recurrent layers alone ---- */

enum { LORA = 16 };

static void rwkv_start(gen_model *m, const gen_kind *k)
{
    sizes(m, k, 8192);
    gen_key_u32(m, "attention.head_count", 0);
    gen_key_u32(m, "wkv.head_size", (uint32_t)k->head_dim);
    gen_key_u32(m, "token_shift_count", 2);
    gen_key_f32(m, "attention.layer_norm_epsilon", 1e-5f);
    embeddings(m, k, 1);
    gen_tensor(m, "token_embd_norm.weight", GGML_TYPE_F32, (shape){k->n_embd}, ONES);
    gen_tensor(m, "token_embd_norm.bias", GGML_TYPE_F32, (shape){k->n_embd}, SMALL);
    gen_tensor(m, "output_norm.bias", GGML_TYPE_F32, (shape){k->n_embd}, SMALL);
}

static void rwkv_layer(gen_model *m, const gen_kind *k, int layer)
{
    static const char *const norms[] = {"attn_norm", "attn_norm_2", "time_mix_ln"};
    static const char *const squares[] = {"time_mix_key", "time_mix_value", "time_mix_receptance", "time_mix_output"};
    char                     name[32];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.weight", norms[i]);
        norm(m, layer, name, k->n_embd);
        snprintf(name, sizeof name, "%s.bias", norms[i]);
        vector(m, layer, name, k->n_embd, SMALL);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s.weight", squares[i]);
        matrix(m, layer, name, k->type, k->n_embd, k->n_embd);
    }
    part(m, layer, "channel_mix_lerp_k.weight", GGML_TYPE_F32, (shape){k->n_embd, 1, 1}, HALVES);
    matrix(m, layer, "channel_mix_key.weight", k->type, k->n_embd, k->n_ff);
    matrix(m, layer, "channel_mix_value.weight", k->type, k->n_ff, k->n_embd);
}

static void rwkv6(gen_model *m, const gen_kind *k)
{
    const int64_t n = k->n_embd;
    rwkv_start(m, k);
    gen_key_u32(m, "time_mix_extra_dim", LORA);
    gen_key_u32(m, "time_decay_extra_dim", LORA);
    gen_key_u32(m, "rescale_every_n_layers", 6);
    for (int layer = 0; layer < k->n_layers; layer++) {
        rwkv_layer(m, k, layer);
        matrix(m, layer, "time_mix_w1.weight", k->type, n, LORA * 5);
        part(m, layer, "time_mix_w2.weight", k->type, (shape){LORA, n, 5}, weight(LORA));
        part(m, layer, "time_mix_lerp_x.weight", GGML_TYPE_F32, (shape){n, 1, 1}, HALVES);
        part(m, layer, "time_mix_lerp_fused.weight", GGML_TYPE_F32, (shape){n, 1, 1, 5}, HALVES);
        part(m, layer, "time_mix_first.weight", GGML_TYPE_F32, (shape){k->head_dim, n / k->head_dim}, HALVES);
        vector(m, layer, "time_mix_decay.weight", n, (gen_numbers){-2.5f, 0.5f});
        matrix(m, layer, "time_mix_decay_w1.weight", k->type, n, LORA);
        part(m, layer, "time_mix_decay_w2.weight", k->type, (shape){LORA, n}, SMALL);
        matrix(m, layer, "time_mix_gate.weight", k->type, n, n);
        part(m, layer, "channel_mix_lerp_r.weight", GGML_TYPE_F32, (shape){n, 1, 1}, HALVES);
        matrix(m, layer, "channel_mix_receptance.weight", k->type, n, n);
    }
}

static void rwkv7(gen_model *m, const gen_kind *k)
{
    static const char *const ranks[] = {"attention.decay_lora_rank", "attention.iclr_lora_rank",
                                        "attention.value_residual_mix_lora_rank", "attention.gate_lora_rank"};
    static const char        low_rank[] = "wavg"; /* decay, learning rate, value residual, gate */
    static const float       bias[] = {-2.5f, 0, 0};
    const int64_t            n = k->n_embd;
    char                     name[32];
    rwkv_start(m, k);
    for (int i = 0; i < 4; i++)
        gen_key_u32(m, ranks[i], LORA);
    for (int layer = 0; layer < k->n_layers; layer++) {
        rwkv_layer(m, k, layer);
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "time_mix_%c1.weight", low_rank[i]);
            matrix(m, layer, name, k->type, n, LORA);
            snprintf(name, sizeof name, "time_mix_%c2.weight", low_rank[i]);
            matrix(m, layer, name, k->type, LORA, n);
            if (i == 3)
                break; /* the gate has no bias */
            snprintf(name, sizeof name, "time_mix_%c0.weight", low_rank[i]);
            vector(m, layer, name, n, (gen_numbers){bias[i], 0.5f});
        }
        part(m, layer, "time_mix_lerp_fused.weight", GGML_TYPE_F32, (shape){n, 1, 1, 6}, HALVES);
        vector(m, layer, "time_mix_k_k.weight", n, HALVES);
        vector(m, layer, "time_mix_k_a.weight", n, HALVES);
        vector(m, layer, "time_mix_r_k.weight", n, SMALL);
    }
}

/* ---- kinds ---- */

static const gen_kind KINDS[] = {
    {"kv24", "qwen3", dense, 30, 256, 9, 3, 64, 256, 4096, GGML_TYPE_F16, false},
    {"kv147", "qwen3", dense, 36, 256, 8, 8, 128, 256, 4096, GGML_TYPE_F16, false},
    {"qwen3-8b", "qwen3", dense, 36, 4096, 32, 8, 128, 12288, 151936, GGML_TYPE_Q4_0, true},
    {"dense", "qwen3", dense, 6, 256, 4, 2, 64, 512, 4096, GGML_TYPE_F16, false},
    {"window", "gemma3", window, 6, 256, 4, 2, 64, 512, 4096, GGML_TYPE_F16, false},
    {"hybrid", "granitehybrid", hybrid, 6, 256, 4, 2, 64, 512, 4096, GGML_TYPE_F16, false},
    {"rwkv6", "rwkv6", rwkv6, 3, 128, 0, 0, 64, 256, 512, GGML_TYPE_F32, true},
    {"rwkv7", "rwkv7", rwkv7, 3, 128, 0, 0, 64, 256, 512, GGML_TYPE_F32, true},
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

const char *gen_kind_names(void)
{
    static char names[200];
    for (size_t i = 0, at = 0; i < N_KINDS; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", KINDS[i].name);
    return names;
}

const gen_kind *gen_find_kind(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(KINDS[i].name, name) == 0)
            return &KINDS[i];
    bench_die("no such kind: %s (%s)", name, gen_kind_names());
}
