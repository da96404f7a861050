/* bench_gen - writes a GGUF model with random weights, the same for the same
 * seed on every machine.
 *
 *     bench_gen KIND OUT.gguf [--vocab MODEL.gguf] [--type f16|q8_0|q4_0] [--seed N]
 *
 *     kv24          22.5 KiB of f16 KV per token (30 layers, 3 KV heads of 64), next to no compute
 *     kv147         144 KiB of f16 KV per token (36 layers, 8 KV heads of 128), next to no compute
 *     qwen3-8b      the shape of Qwen3-8B: 36 layers, 4096 wide, 32 heads, 8 KV heads of 128
 *     dense, window, hybrid   6 layers, 256 wide, for tests: attention everywhere; windows
 *                   of 256 in two layers of three; Mamba 2 in two layers of three
 *     rwkv6, rwkv7  3 layers, 128 wide, for tests
 *
 * With --vocab the tokenizer and the chat template come from that file, so that
 * text goes in and out; without it the model has token ids alone. Default type:
 * f16 for the small ones (rwkv: f32), q4_0 for qwen3-8b (4.6 GB instead of 16.4: what is
 * measured is KV, and a smaller file is written, hashed and loaded faster).
 *
 * Every 4 MiB of a tensor are filled from a generator seeded by (seed, tensor,
 * piece) and written at their place by any thread, so the file does not depend
 * on the number of threads and is never held in memory. Quantized blocks are drawn
 * directly, with the sign of the scale at random because the integers of a q4_0
 * block are not centred on 0. gen_models.c says which tensors a kind has. */
#include "gen.h"
#include "util.h"

#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)4 << 20)
#define MAX_TENSORS 1024
#define MAX_THREADS 64

typedef struct tensor {
    char           name[GGML_MAX_NAME];
    enum ggml_type type;
    gen_numbers    numbers;
    size_t         size, offset; /* bytes; offset in the file */
} tensor;

struct gen_model {
    const char          *architecture;
    struct gguf_context *gguf;
    struct ggml_context *ggml;
    tensor               tensors[MAX_TENSORS];
    uint32_t             n_tensors;
    uint64_t             seed;
    int                  fd;
    atomic_uint          next_tensor;
    atomic_bool          failed;
};

/* ---- random numbers ---- */

static uint64_t mix(uint64_t x) /* splitmix64's finalizer */
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint64_t next(uint64_t *state) /* xorshift64; state is never 0 */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static uint64_t seed_of(uint64_t seed, const char *name, uint64_t piece)
{
    uint64_t h = mix(seed + 0x9E3779B97F4A7C15u);
    for (; *name; name++)
        h = mix(h ^ (uint64_t)(unsigned char)*name);
    h = mix(h ^ (piece * 0x9E3779B97F4A7C15u + 1));
    return h ? h : 1;
}

static float normal(uint64_t *state) /* sum of four uniform numbers, variance 1 */
{
    uint64_t r = next(state);
    float    sum = (float)(r & 0xffff) + (float)(r >> 16 & 0xffff) + (float)(r >> 32 & 0xffff) + (float)(r >> 48);
    return (sum - 131070.0f) / 37837.0f;
}

/* ---- filling ---- */

static void fill_plain(const tensor *t, uint64_t *state, void *out, size_t size)
{
    size_t n = size / ggml_type_size(t->type);
    for (size_t i = 0; i < n; i++) {
        float v = t->numbers.mean;
        if (t->numbers.scale != 0)
            v += normal(state) * t->numbers.scale;
        if (t->type == GGML_TYPE_F32)
            ((float *)out)[i] = v;
        else
            ((ggml_fp16_t *)out)[i] = ggml_fp32_to_fp16(v);
    }
}

/* A block is an f16 scale and 32 uniform integers: signed bytes in q8_0,
 * nibbles minus 8 in q4_0, with standard deviations 73.9 and 4.61. */
static void fill_blocks(const tensor *t, uint64_t *state, uint8_t *out, size_t size)
{
    size_t block = ggml_type_size(t->type);
    float  scale = t->numbers.scale / (t->type == GGML_TYPE_Q8_0 ? 73.9f : 4.61f);
    for (size_t at = 0; at < size; at += block) {
        uint64_t    r = next(state);
        ggml_fp16_t d = ggml_fp32_to_fp16(r & 1 ? scale : -scale);
        memcpy(out + at, &d, sizeof d);
        for (size_t i = sizeof d; i < block; i += 8) {
            r = next(state);
            memcpy(out + at + i, &r, block - i < 8 ? block - i : 8);
        }
    }
}

static bool write_at(int fd, const uint8_t *data, size_t size, size_t offset)
{
    while (size > 0) {
        ssize_t n = pwrite(fd, data, size, (off_t)offset);
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
        offset += (size_t)n;
    }
    return true;
}

static void *fill_thread(void *ctx)
{
    gen_model *m = ctx;
    uint8_t   *buffer = malloc(PIECE);
    for (uint32_t i; buffer && !m->failed && (i = atomic_fetch_add(&m->next_tensor, 1)) < m->n_tensors;) {
        const tensor *t = &m->tensors[i];
        size_t        step = PIECE / ggml_type_size(t->type) * ggml_type_size(t->type);
        for (size_t at = 0, piece = 0; at < t->size; at += step, piece++) {
            size_t   size = t->size - at < step ? t->size - at : step;
            uint64_t state = seed_of(m->seed, t->name, piece);
            if (ggml_is_quantized(t->type))
                fill_blocks(t, &state, buffer, size);
            else
                fill_plain(t, &state, buffer, size);
            if (!write_at(m->fd, buffer, size, t->offset + at))
                m->failed = true;
        }
    }
    if (!buffer)
        m->failed = true;
    free(buffer);
    return NULL;
}

/* ---- describing ---- */

void gen_tensor(gen_model *m, const char *name, enum ggml_type type, const int64_t ne[4], gen_numbers numbers)
{
    int n_dims = 1;
    while (n_dims < 4 && ne[n_dims] > 0)
        n_dims++;
    struct ggml_tensor *g = ggml_new_tensor(m->ggml, type, n_dims, ne);
    if (m->n_tensors == MAX_TENSORS || !g)
        bench_die("too many tensors");
    ggml_set_name(g, name);
    gguf_add_tensor(m->gguf, g);
    tensor *t = &m->tensors[m->n_tensors++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->type = type;
    t->size = ggml_nbytes(g);
    t->numbers = numbers;
}

static const char *full_key(const gen_model *m, const char *key)
{
    static char full[200];
    snprintf(full, sizeof full, "%s.%s", m->architecture, key);
    return full;
}

void gen_key_u32(gen_model *m, const char *key, uint32_t value)
{
    gguf_set_val_u32(m->gguf, full_key(m, key), value);
}

void gen_key_f32(gen_model *m, const char *key, float value)
{
    gguf_set_val_f32(m->gguf, full_key(m, key), value);
}

void gen_key_i32s(gen_model *m, const char *key, const int32_t *values, int64_t n)
{
    gguf_set_arr_data(m->gguf, full_key(m, key), GGUF_TYPE_INT32, values, (size_t)n);
}

/* Copies the tokenizer's keys, before there are others; returns the number of tokens. */
static int64_t copy_vocab(gen_model *m, const char *path)
{
    struct gguf_context *from = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true, .ctx = NULL});
    if (!from)
        bench_die("can't read %s", path);
    gguf_set_kv(m->gguf, from);
    for (int64_t i = 0; i < gguf_get_n_kv(from); i++)
        if (strncmp(gguf_get_key(from, i), "tokenizer.", 10) != 0)
            gguf_remove_key(m->gguf, gguf_get_key(from, i));
    gguf_free(from);
    int64_t key = gguf_find_key(m->gguf, "tokenizer.ggml.tokens");
    if (key < 0)
        bench_die("%s has no tokenizer", path);
    return (int64_t)gguf_get_arr_n(m->gguf, key);
}

static void write_model(gen_model *m, const char *path)
{
    size_t    meta = gguf_get_meta_size(m->gguf), end = meta;
    uint8_t  *header = malloc(meta);
    pthread_t threads[MAX_THREADS];
    long      n_threads = sysconf(_SC_NPROCESSORS_ONLN);
    if (!header)
        bench_die("out of memory");
    gguf_get_meta_data(m->gguf, header);
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        m->tensors[i].offset = meta + gguf_get_tensor_offset(m->gguf, i);
        end = m->tensors[i].offset + GGML_PAD(m->tensors[i].size, gguf_get_alignment(m->gguf));
    }
    m->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (m->fd < 0 || ftruncate(m->fd, (off_t)end) != 0 || !write_at(m->fd, header, meta, 0))
        bench_die("can't write %s", path);
    if (n_threads > MAX_THREADS)
        n_threads = MAX_THREADS;
    for (long i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, fill_thread, m) != 0)
            bench_die("can't start a thread");
    for (long i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    if (m->failed || close(m->fd) != 0)
        bench_die("can't write %s", path);
    free(header);
}

static enum ggml_type parse_type(const char *name)
{
    return strcmp(name, "f16") == 0    ? GGML_TYPE_F16
           : strcmp(name, "q8_0") == 0 ? GGML_TYPE_Q8_0
           : strcmp(name, "q4_0") == 0 ? GGML_TYPE_Q4_0
                                       : (bench_die("no such type: %s (f16, q8_0, q4_0)", name), GGML_TYPE_F16);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"vocab", required_argument, NULL, 'v'},
                                            {"type", required_argument, NULL, 't'},
                                            {"seed", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    static gen_model           m;
    const char                *vocab = NULL, *type = NULL;
    double                     start = bench_now_ms();
    m.seed = 1;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'v':
            vocab = optarg;
            break;
        case 't':
            type = optarg;
            break;
        case 's':
            m.seed = strtoull(optarg, NULL, 10);
            break;
        default:
            return 2;
        }
    if (argc - optind != 2) {
        fprintf(stderr,
                "usage: bench_gen KIND OUT.gguf [--vocab MODEL.gguf] [--type f16|q8_0|q4_0] [--seed N]\n"
                "kinds: %s\n",
                gen_kind_names());
        return 2;
    }
    gen_kind k = *gen_find_kind(argv[optind]);
    if (type)
        k.type = parse_type(type);
    m.architecture = k.architecture;
    m.gguf = gguf_init_empty();
    m.ggml = ggml_init((struct ggml_init_params){.mem_size = MAX_TENSORS * ggml_tensor_overhead(), .no_alloc = true});
    if (vocab) {
        k.n_vocab = copy_vocab(&m, vocab);
    } else {
        gguf_set_val_str(m.gguf, "tokenizer.ggml.model", "none");
        gen_key_u32(&m, "vocab_size", (uint32_t)k.n_vocab);
    }
    gguf_set_val_str(m.gguf, "general.architecture", k.architecture);
    gguf_set_val_str(m.gguf, "general.name", k.name);
    k.describe(&m, &k);
    write_model(&m, argv[optind + 1]);
    bench_note("%s: %s, %s, %lld tokens, %u tensors, %.1f s", argv[optind + 1], k.name, ggml_type_name(k.type),
               (long long)k.n_vocab, m.n_tensors, (bench_now_ms() - start) / 1e3);
    gguf_free(m.gguf);
    ggml_free(m.ggml);
    return 0;
}
