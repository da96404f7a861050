/* util.h - what the bench programs share: a model and a context in which
 * Cairn's recipe runs, token sequences, clocks, memory figures, JSON lines.
 *
 * A bench program exits with a message at the first thing that goes wrong: a
 * number from a run that partly failed is worth nothing. Results go to standard
 * output as one JSON object; everything else goes to standard error. */
#ifndef CAIRN_BENCH_UTIL_H
#define CAIRN_BENCH_UTIL_H

#include <cairn/llama.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "bench: TEXT", exit 1. */
_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void           bench_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The value of an option: 0..max, or it dies. */
uint32_t bench_count(const char *text, uint32_t max);

double bench_now_ms(void);                  /* monotonic */
double bench_median(double *values, int n); /* sorts values */
long   bench_peak_kib(void);                /* VmHWM of this process */

void *bench_alloc(size_t size); /* zeroed, every page touched: fresh memory costs ten times a copy */
/* Median time of copying `size` bytes between two touched buffers, in pieces
 * of `piece` bytes. */
double bench_memcpy_ms(size_t size, size_t piece);

/* n token ids below n_vocab, the same for the same seed everywhere. */
llama_token *bench_tokens(uint32_t n, int32_t n_vocab, uint64_t seed);

typedef struct bench_model_options { /* zero value = defaults */
    const char    *path;
    uint32_t       n_ctx;          /* required */
    uint32_t       n_batch;        /* 0: 512 */
    int32_t        n_threads;      /* 0: cores, at most 16 */
    int            flash_attn;     /* 0: on, -1: off */
    enum ggml_type type_k, type_v; /* GGML_TYPE_F32 (0) means f16 here */
} bench_model_options;

typedef struct bench_model {
    struct llama_model         *model;
    struct llama_context       *ctx;
    llama_memory_t              memory;
    struct llama_model_params   model_params;
    struct llama_context_params context_params;
    const char                 *path;
    int32_t                     n_vocab;
} bench_model;

void bench_model_open(const bench_model_options *options, bench_model *ret_model);
void bench_model_close(bench_model *model);

/* Decodes tokens [from, to) of `tokens` into seq 0, cut where a position is a
 * multiple of `chunk` (a context's batch at most); waits for the device. */
void bench_decode(const bench_model *model, const llama_token *tokens, uint32_t from, uint32_t to, uint32_t chunk);
/* Logits of the last token decoded, malloc()ed [n_vocab]. */
float *bench_logits(const bench_model *model);

typedef struct bench_cache_options {
    const char    *root;
    uint32_t       run_tokens, n_readers;
    bool           pageable;
    const uint8_t *key; /* of cairn_store_options */
} bench_cache_options;

typedef struct bench_cache {
    cairn_store *store;
    cairn_llama *cache;
    double       open_ms;
} bench_cache;

void bench_cache_open(const bench_model *model, const bench_cache_options *options, bench_cache *ret_cache);
void bench_cache_close(bench_cache *cache);

/* Empties seq 0, restores tokens[0..n) into it. Dies when less than
 * `want` tokens came back. */
cairn_llama_restored bench_restore(const bench_model *model, const bench_cache *cache, const llama_token *tokens,
                                   uint32_t n, uint32_t want);

/* ---- one JSON object on standard output, flat, in order of the calls ---- */
void json_begin(void);
void json_text(const char *key, const char *value);
void json_number(const char *key, double value);
void json_end(void);

#endif
