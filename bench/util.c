/* util.c - see util.h. */
#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void say(const char *prefix, const char *format, va_list args)
{
    fputs(prefix, stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("bench: ", format, args);
    va_end(args);
    exit(1);
}

void bench_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("  ", format, args);
    va_end(args);
}

uint32_t bench_count(const char *text, uint32_t max)
{
    char         *end;
    unsigned long value = strtoul(text, &end, 10);
    if (!*text || *end || value > max)
        bench_die("not a number up to %u: %s", max, text);
    return (uint32_t)value;
}

double bench_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

long bench_peak_kib(void)
{
    char  line[256];
    long  kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f)
        bench_die("can't read /proc/self/status");
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    fclose(f);
    return kib;
}

void *bench_alloc(size_t size)
{
    void *p = aligned_alloc(4096, (size / 4096 + 1) * 4096); /* as the adapter's buffers are */
    if (!p)
        bench_die("out of memory: %zu bytes", size);
    memset(p, 0, size);
    /* Else the compiler may turn malloc and memset into calloc, whose pages
     * are not touched. */
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}

double bench_memcpy_ms(size_t size, size_t piece)
{
    char  *from = bench_alloc(size), *to = bench_alloc(size);
    double ms[5];
    memset(from, 1, size);
    for (int round = 0; round < 5; round++) {
        double start = bench_now_ms();
        for (size_t at = 0; at < size; at += piece)
            memcpy(to + at, from + at, size - at < piece ? size - at : piece);
        __asm__ volatile("" : : "r"(to) : "memory");
        ms[round] = bench_now_ms() - start;
    }
    free(from);
    free(to);
    return bench_median(ms, 5);
}

llama_token *bench_tokens(uint32_t n, int32_t n_vocab, uint64_t seed)
{
    /* The first thousand ids of a vocabulary hold its control tokens. */
    uint64_t     floor = n_vocab > 2000 ? 1000 : 0, span = (uint64_t)n_vocab - floor;
    uint64_t     state = seed * 0x9E3779B97F4A7C15u + 1;
    llama_token *tokens = malloc(((size_t)n + 1) * sizeof *tokens);
    if (!tokens)
        bench_die("out of memory");
    for (uint32_t i = 0; i < n; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        tokens[i] = (llama_token)(floor + (state >> 20) % span);
    }
    return tokens;
}

/* ---- model ---- */

static void log_errors(enum ggml_log_level level, const char *text, void *ctx)
{
    (void)ctx;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static int32_t cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 16 ? 16 : (int32_t)n;
}

void bench_model_open(const bench_model_options *options, bench_model *ret_model)
{
    bench_model m = {.path = options->path};
    llama_log_set(log_errors, NULL);
    llama_backend_init();
    m.model_params = llama_model_default_params();
    m.model_params.n_gpu_layers = 999;
    m.model = llama_model_load_from_file(options->path, m.model_params);
    if (!m.model)
        bench_die("can't load %s", options->path);
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = options->n_ctx;
    p.n_batch = p.n_ubatch = options->n_batch ? options->n_batch : 512;
    p.n_seq_max = 2;
    p.kv_unified = true;
    p.n_threads = p.n_threads_batch = options->n_threads ? options->n_threads : cores();
    p.flash_attn_type = options->flash_attn < 0 ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    p.type_k = options->type_k == GGML_TYPE_F32 ? GGML_TYPE_F16 : options->type_k;
    p.type_v = options->type_v == GGML_TYPE_F32 ? GGML_TYPE_F16 : options->type_v;
    m.context_params = p;
    m.ctx = llama_init_from_model(m.model, p);
    if (!m.ctx)
        bench_die("can't make a context of %u tokens for %s", options->n_ctx, options->path);
    m.memory = llama_get_memory(m.ctx);
    m.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m.model));
    *ret_model = m;
}

void bench_model_close(bench_model *model)
{
    llama_free(model->ctx);
    llama_model_free(model->model);
}

static void decode_chunk(const bench_model *model, const llama_token *tokens, uint32_t from, uint32_t to)
{
    struct llama_batch batch = llama_batch_init((int32_t)(to - from), 0, 1);
    for (uint32_t i = from; i < to; i++) {
        uint32_t at = i - from;
        batch.token[at] = tokens[i];
        batch.pos[at] = (llama_pos)i;
        batch.n_seq_id[at] = 1;
        batch.seq_id[at][0] = 0;
        batch.logits[at] = i + 1 == to;
    }
    batch.n_tokens = (int32_t)(to - from);
    if (llama_decode(model->ctx, batch) != 0)
        bench_die("llama_decode failed at tokens %u to %u", from, to);
    llama_batch_free(batch);
}

void bench_decode(const bench_model *model, const llama_token *tokens, uint32_t from, uint32_t to, uint32_t chunk)
{
    while (from < to) {
        uint32_t end = (from / chunk + 1) * chunk;
        if (end > to)
            end = to;
        decode_chunk(model, tokens, from, end);
        from = end;
    }
    llama_synchronize(model->ctx);
}

float *bench_logits(const bench_model *model)
{
    size_t       size = (size_t)model->n_vocab * sizeof(float);
    const float *logits = llama_get_logits_ith(model->ctx, -1);
    float       *copy = malloc(size);
    if (!logits || !copy)
        bench_die("no logits");
    memcpy(copy, logits, size);
    return copy;
}

/* ---- cache ---- */

void bench_cache_open(const bench_model *model, const bench_cache_options *options, bench_cache *ret_cache)
{
    bench_cache         c = {0};
    cairn_error         error = {{0}};
    cairn_store_options store = {.root = options->root, .key = options->key};
    double              start = bench_now_ms();
    if (cairn_store_open(&store, &c.store, &error) != CAIRN_OK)
        bench_die("%s", error.text);
    cairn_llama_options cache = {.model_params = &model->model_params,
                                 .context_params = &model->context_params,
                                 .model_paths = &model->path,
                                 .n_model_paths = 1,
                                 .store = c.store,
                                 .run_tokens = options->run_tokens,
                                 .n_readers = options->n_readers,
                                 .pageable = options->pageable};
    if (cairn_llama_open(model->model, model->ctx, &cache, &c.cache, &error) != CAIRN_OK)
        bench_die("%s", error.text);
    if (cairn_llama_unsupported(c.cache))
        bench_die("%s", cairn_llama_unsupported(c.cache));
    c.open_ms = bench_now_ms() - start;
    *ret_cache = c;
}

void bench_cache_close(bench_cache *cache)
{
    cairn_llama_close(cache->cache);
    cairn_store_close(cache->store);
}

cairn_llama_restored bench_restore(const bench_model *model, const bench_cache *cache, const llama_token *tokens,
                                   uint32_t n, uint32_t want)
{
    cairn_llama_restored r = {0};
    llama_memory_seq_rm(model->memory, 0, -1, -1);
    if (cairn_llama_restore(cache->cache, 0, tokens, n, 0, &r) != CAIRN_OK)
        bench_die("restore refused its arguments");
    llama_synchronize(model->ctx);
    if (r.n_tokens < want)
        bench_die("restored %u tokens of %u: %s", r.n_tokens, want, cairn_miss_text(r.miss));
    return r;
}

/* ---- JSON ---- */

static bool json_first;

void json_begin(void)
{
    json_first = true;
    putchar('{');
}

static void json_key(const char *key)
{
    printf("%s\"%s\": ", json_first ? "" : ", ", key);
    json_first = false;
}

void json_text(const char *key, const char *value)
{
    json_key(key);
    putchar('"');
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if (*p < 0x20)
            printf("\\u%04x", *p);
        else if (*p == '"' || *p == '\\')
            printf("\\%c", *p);
        else
            putchar(*p);
    putchar('"');
}

void json_number(const char *key, double value)
{
    json_key(key);
    printf("%.17g", value);
}

void json_end(void)
{
    puts("}");
    fflush(stdout);
}
