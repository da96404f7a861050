/* gen.h - the models of bench_gen: gen_models.c says which tensors there are,
 * gen.c fills and writes them. */
#ifndef CAIRN_BENCH_GEN_H
#define CAIRN_BENCH_GEN_H

#include <gguf.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct gen_model gen_model;
typedef struct gen_kind  gen_kind;

struct gen_kind {
    const char *name, *architecture;
    void (*describe)(gen_model *m, const gen_kind *k);
    int64_t        n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab;
    enum ggml_type type;
    bool           output; /* own output matrix; else the embedding's */
};

/* The kind of that name; does not return if there is none. */
const gen_kind *gen_find_kind(const char *name);

/* Names of all kinds, for messages. */
const char *gen_kind_names(void);

/* A key of the model; `key` goes behind "<architecture>.". */
void gen_key_u32(gen_model *m, const char *key, uint32_t value);
void gen_key_f32(gen_model *m, const char *key, float value);
void gen_key_i32s(gen_model *m, const char *key, const int32_t *values, int64_t n);

/* What a tensor's numbers are drawn from: mean + scale * (variance 1, within 3.5). */
typedef struct gen_numbers {
    float mean, scale;
} gen_numbers;

/* A tensor of shape `ne`, ends with 0 if it has less than 4 dimensions. */
void gen_tensor(gen_model *m, const char *name, enum ggml_type type, const int64_t ne[4], gen_numbers numbers);

#endif
