/* bench_gpu - prefill, recording and restoring on an accelerator, through the
 * public path, and the speed of the link to it. bench/gpu/bench.py runs it.
 *
 *     bench_gpu write --model M --root DIR --state DIR [--tokens N]   prefill, record, reference logits
 *     bench_gpu read  --model M --root DIR --state DIR [--tokens N]   another process: restore and compare
 *     bench_gpu link  [--bytes N]                                     host memory to device and back
 *     ... [--run N] [--readers N] [--pageable] [--rounds N] [--type-k T] [--type-v T] [--fa-off] [--batch N] [--threads
 * N]
 *
 * Like with like: the bits of logits depend on how a prefill was cut. `write`
 * prefills [0, N-1) in chunks of the batch, computes the last token alone and
 * keeps its logits; then it cuts its own cells at each of the CUTS, computes
 * another tail there and keeps those logits, too. `read` restores as far as each
 * of these positions and must get the same bits: at the end of the short last
 * page, at a page boundary, and inside a page. */
#include "util.h"

#include <getopt.h>
#include <ggml-backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE 256u
#define TAIL 161u
#define N_CUTS 3
#define N_DECODE 128u
#define MAX_ROUNDS 32

typedef struct options {
    bench_model_options model;
    bench_cache_options cache;
    const char         *state;
    uint32_t            n_tokens;
    int                 rounds;
    size_t              link_bytes;
} options;

/* Positions at which a prompt is cut and goes on with another tail. */
static void cuts(uint32_t n, uint32_t at[N_CUTS])
{
    uint32_t boundary = (n - 1) / PAGE * PAGE;
    at[0] = n - 1;          /* the short last page, cut by one */
    at[1] = boundary;       /* a page boundary */
    at[2] = boundary - 100; /* inside a page */
}

/* tokens[0, cut) and then others. */
static llama_token *with_tail(const llama_token *tokens, uint32_t cut, int32_t n_vocab)
{
    llama_token *tail = bench_tokens(TAIL, n_vocab, 77), *all = malloc((cut + TAIL) * sizeof *all);
    if (!all)
        bench_die("out of memory");
    memcpy(all, tokens, cut * sizeof *all);
    memcpy(all + cut, tail, TAIL * sizeof *all);
    if (all[cut] == tokens[cut])
        all[cut] = (all[cut] + 1) % n_vocab; /* else one token more is shared */
    free(tail);
    return all;
}

static void logits_path(const options *o, int index, char path[4096])
{
    snprintf(path, 4096, "%s/logits-%d", o->state, index);
}

static void save_logits(const options *o, const bench_model *m, int index)
{
    char   path[4096];
    float *logits = bench_logits(m);
    logits_path(o, index, path);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(logits, sizeof *logits, (size_t)m->n_vocab, f) != (size_t)m->n_vocab || fclose(f) != 0)
        bench_die("can't write %s", path);
    free(logits);
}

static bool same_logits(const options *o, const bench_model *m, int index)
{
    char   path[4096];
    size_t n = (size_t)m->n_vocab;
    float *ours = bench_logits(m), *theirs = bench_alloc(n * sizeof *theirs);
    logits_path(o, index, path);
    FILE *f = fopen(path, "rb");
    if (!f || fread(theirs, sizeof *theirs, n, f) != n)
        bench_die("can't read %s", path);
    fclose(f);
    bool same = memcmp(ours, theirs, n * sizeof *ours) == 0;
    free(ours);
    free(theirs);
    return same;
}

static void warm_up(const bench_model *m)
{
    uint32_t     n = m->context_params.n_batch;
    llama_token *tokens = bench_tokens(n + 1, m->n_vocab, 99);
    bench_decode(m, tokens, 0, n, n);
    bench_decode(m, tokens, n, n + 1, 1);
    llama_memory_clear(m->memory, true);
    free(tokens);
}

/* ---- write ---- */

/* Time to the logits of the last token; the last token is computed alone, as
 * after a restore, so that cold and restored do the same at the end. */
static double prefill(const bench_model *m, cairn_llama *cache, const llama_token *tokens, uint32_t n)
{
    uint32_t chunk = m->context_params.n_batch;
    double   start = bench_now_ms();
    for (uint32_t at = 0; at < n - 1;) {
        uint32_t end = at + chunk < n - 1 ? at + chunk : n - 1;
        bench_decode(m, tokens, at, end, chunk);
        at = end;
        if (cache)
            cairn_llama_record(cache, 0, tokens, at);
    }
    bench_decode(m, tokens, n - 1, n, chunk);
    return bench_now_ms() - start;
}

static double decode_rate(const bench_model *m, cairn_llama *cache, const llama_token *tokens, uint32_t n)
{
    double start = bench_now_ms();
    for (uint32_t i = n; i < n + N_DECODE; i++) {
        bench_decode(m, tokens, i, i + 1, 1);
        if (cache)
            cairn_llama_record(cache, 0, tokens, i + 1);
    }
    return N_DECODE * 1e3 / (bench_now_ms() - start);
}

/* Until every page of [0,n), the short one included, is on disk. */
static double publish(const bench_cache *c, const llama_token *tokens, uint32_t n, uint64_t published_before)
{
    cairn_store_stats s;
    double            start = bench_now_ms();
    for (bool ended = false;;) {
        cairn_store_get_stats(c->store, &s);
        if (s.write_errors || s.read_only)
            bench_die("the store can't write");
        if (s.pages_published - published_before >= n / PAGE && !ended) {
            cairn_llama_record_end(c->cache, 0, tokens, n);
            ended = true;
        }
        if (ended && cairn_store_flush(c->store, 10000) == CAIRN_OK)
            return bench_now_ms() - start;
        if (bench_now_ms() - start > 120e3)
            bench_die("the pages were not published within 120 s");
        cairn_llama_record(c->cache, 0, tokens, n);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static uint64_t pages_published(const bench_cache *c)
{
    cairn_store_stats s;
    cairn_store_get_stats(c->store, &s);
    return s.pages_published;
}

/* The prompt that `read` restores, and what must come out after each cut. */
static void write_reference(const options *o, const bench_model *m, const bench_cache *c)
{
    uint32_t     at[N_CUTS], n = o->n_tokens;
    uint64_t     before = pages_published(c);
    llama_token *tokens = bench_tokens(n, m->n_vocab, 1);
    cuts(n, at);
    prefill(m, c->cache, tokens, n);
    save_logits(o, m, 0);
    publish(c, tokens, n, before);
    for (int i = 0; i < N_CUTS; i++) {
        llama_token *other = with_tail(tokens, at[i], m->n_vocab);
        llama_memory_seq_rm(m->memory, 0, (llama_pos)at[i], -1);
        bench_decode(m, other, at[i], at[i] + TAIL, TAIL + at[i]);
        save_logits(o, m, i + 1);
        free(other);
    }
    llama_memory_seq_rm(m->memory, 0, -1, -1);
    free(tokens);
}

static void run_write(const options *o)
{
    bench_model m;
    bench_cache c;
    uint32_t    n = o->n_tokens;
    double      off[MAX_ROUNDS], on[MAX_ROUNDS], flush[MAX_ROUNDS], rate_off[MAX_ROUNDS], rate_on[MAX_ROUNDS];
    bench_model_open(&o->model, &m);
    warm_up(&m);
    bench_cache_open(&m, &o->cache, &c);
    for (int i = 0; i < o->rounds; i++) {
        llama_token *tokens = bench_tokens(n + N_DECODE, m.n_vocab, 100 + (uint64_t)i);
        off[i] = prefill(&m, NULL, tokens, n);
        rate_off[i] = decode_rate(&m, NULL, tokens, n);
        llama_memory_seq_rm(m.memory, 0, -1, -1);
        uint64_t before = pages_published(&c);
        on[i] = prefill(&m, c.cache, tokens, n);
        rate_on[i] = decode_rate(&m, c.cache, tokens, n);
        flush[i] = publish(&c, tokens, n, before);
        llama_memory_seq_rm(m.memory, 0, -1, -1);
        free(tokens);
    }
    write_reference(o, &m, &c);
    cairn_store_stats s;
    cairn_store_get_stats(c.store, &s);
    json_begin();
    json_number("tokens", n);
    json_number("open_ms", c.open_ms);
    if (o->rounds > 0) {
        json_number("cold_ms", bench_median(off, o->rounds));
        json_number("cold_recording_ms", bench_median(on, o->rounds));
        json_number("publish_after_ms", bench_median(flush, o->rounds));
        json_number("decode_per_s", bench_median(rate_off, o->rounds));
        json_number("decode_recording_per_s", bench_median(rate_on, o->rounds));
    }
    json_number("pages_published", (double)s.pages_published);
    json_number("pages_given_up", (double)s.pages_given_up);
    json_number("bytes_written", (double)s.bytes_written);
    json_end();
    bench_cache_close(&c);
    bench_model_close(&m);
}

/* ---- read ---- */

typedef struct restart {
    double   ttft_ms, restore_ms;
    uint64_t bytes;
    bool     exact;
} restart;

/* cut N_CUTS and above: the same prompt again. */
static restart restore_once(const options *o, const bench_model *m, const bench_cache *c, const llama_token *tokens,
                            int index)
{
    uint32_t at[N_CUTS];
    restart  r = {0};
    cuts(o->n_tokens, at);
    uint32_t             keep = index == 0 ? o->n_tokens - 1 : at[index - 1];
    uint32_t             n = index == 0 ? o->n_tokens : keep + TAIL;
    llama_token         *prompt = index == 0 ? NULL : with_tail(tokens, keep, m->n_vocab);
    double               start = bench_now_ms();
    cairn_llama_restored got = bench_restore(m, c, prompt ? prompt : tokens, n, keep);
    r.restore_ms = bench_now_ms() - start;
    bench_decode(m, prompt ? prompt : tokens, keep, n, n);
    r.ttft_ms = bench_now_ms() - start;
    r.bytes = got.bytes;
    if (got.n_tokens != keep)
        bench_die("restored %u tokens, expected %u", got.n_tokens, keep);
    r.exact = same_logits(o, m, index);
    free(prompt);
    return r;
}

static restart restore_rounds(const options *o, const bench_model *m, const bench_cache *c, const llama_token *tokens,
                              int index)
{
    double  ttft[MAX_ROUNDS], restore[MAX_ROUNDS];
    restart r = {.exact = true};
    bool    exact = true;
    for (int i = 0; i < o->rounds; i++) {
        r = restore_once(o, m, c, tokens, index);
        ttft[i] = r.ttft_ms;
        restore[i] = r.restore_ms;
        exact = exact && r.exact;
    }
    r.ttft_ms = bench_median(ttft, o->rounds);
    r.restore_ms = bench_median(restore, o->rounds);
    r.exact = exact;
    return r;
}

static void run_read(const options *o)
{
    bench_model m;
    bench_cache c;
    bench_model_open(&o->model, &m);
    warm_up(&m);
    bench_cache_open(&m, &o->cache, &c);
    llama_token *tokens = bench_tokens(o->n_tokens, m.n_vocab, 1);
    /* Pinned memory is made in the background when a cache is opened. */
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    restart first = restore_once(o, &m, &c, tokens, 2), same = restore_rounds(o, &m, &c, tokens, 0);
    restart cut[N_CUTS];
    for (int i = 0; i < N_CUTS; i++)
        cut[i] = restore_rounds(o, &m, &c, tokens, i + 1);
    json_begin();
    json_number("tokens", o->n_tokens);
    json_number("run", o->cache.run_tokens);
    json_text("memory", o->cache.pageable ? "pageable" : "pinned if the device has it");
    json_number("open_ms", c.open_ms);
    json_number("bytes", (double)same.bytes);
    json_number("first_other_tail_ms", first.ttft_ms);
    json_number("same_prompt_ms", same.ttft_ms);
    json_number("other_tail_ms", cut[1].ttft_ms);
    json_number("inside_page_ms", cut[2].ttft_ms);
    json_number("restore_ms", same.restore_ms);
    json_number("exact_same_prompt", same.exact);
    json_number("exact_short_last_page", cut[0].exact);
    json_number("exact_page_boundary", cut[1].exact && first.exact);
    json_number("exact_inside_page", cut[2].exact);
    json_end();
    bench_cache_close(&c);
    bench_model_close(&m);
    free(tokens);
}

/* ---- link ---- */

static double copy_ms(struct ggml_tensor *device, char *host, size_t size, bool to_device)
{
    double ms[5];
    for (int i = 0; i < 5; i++) {
        double start = bench_now_ms();
        if (to_device)
            ggml_backend_tensor_set(device, host, 0, size);
        else
            ggml_backend_tensor_get(device, host, 0, size);
        ms[i] = bench_now_ms() - start;
    }
    return bench_median(ms, 5);
}

static void run_link(const options *o)
{
    size_t size = o->link_bytes;
    llama_backend_init();
    ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    if (!dev)
        dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_t       backend = dev ? ggml_backend_dev_init(dev, NULL) : NULL;
    struct ggml_context *g =
        ggml_init((struct ggml_init_params){.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true});
    struct ggml_tensor *tensor = ggml_new_tensor_1d(g, GGML_TYPE_I8, (int64_t)size);
    if (!backend || !ggml_backend_alloc_ctx_tensors(g, backend))
        bench_die("no device memory");
    ggml_backend_buffer_type_t host_type = ggml_backend_dev_host_buffer_type(dev);
    double                     start = bench_now_ms();
    ggml_backend_buffer_t      pinned = host_type ? ggml_backend_buft_alloc_buffer(host_type, size) : NULL;
    double                     pin_ms = bench_now_ms() - start;
    char                      *pageable = bench_alloc(size);
    json_begin();
    json_text("device", ggml_backend_dev_description(dev));
    json_number("bytes", (double)size);
    json_number("pageable_to_device_ms", copy_ms(tensor, pageable, size, true));
    json_number("pageable_from_device_ms", copy_ms(tensor, pageable, size, false));
    if (pinned) {
        char *host = ggml_backend_buffer_get_base(pinned);
        memset(host, 1, size);
        json_number("pinned_alloc_ms", pin_ms);
        json_number("pinned_to_device_ms", copy_ms(tensor, host, size, true));
        json_number("pinned_from_device_ms", copy_ms(tensor, host, size, false));
    }
    json_number("memcpy_ms", bench_memcpy_ms(size, 1 << 20));
    json_end();
    free(pageable);
    ggml_backend_buffer_free(pinned);
    ggml_free(g);
    ggml_backend_free(backend);
}

/* ---- command line ---- */

static enum ggml_type parse_type(const char *name)
{
    static const enum ggml_type types[] = {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(name, ggml_type_name(types[i])) == 0)
            return types[i];
    bench_die("no such type: %s (f16, q8_0, q4_0)", name);
}

static const struct option LONGS[] = {{"model", required_argument, NULL, 'm'},
                                      {"root", required_argument, NULL, 'd'},
                                      {"state", required_argument, NULL, 's'},
                                      {"tokens", required_argument, NULL, 'n'},
                                      {"run", required_argument, NULL, 'r'},
                                      {"readers", required_argument, NULL, 'j'},
                                      {"pageable", no_argument, NULL, 'p'},
                                      {"rounds", required_argument, NULL, 'c'},
                                      {"type-k", required_argument, NULL, 'k'},
                                      {"type-v", required_argument, NULL, 'v'},
                                      {"fa-off", no_argument, NULL, 'f'},
                                      {"batch", required_argument, NULL, 'b'},
                                      {"bytes", required_argument, NULL, 'B'},
                                      {"threads", required_argument, NULL, 't'},
                                      {NULL, 0, NULL, 0}};

static bool parse_options(int argc, char **argv, options *o)
{
    for (int c; (c = getopt_long(argc, argv, "", LONGS, NULL)) != -1;)
        switch (c) {
        case 'm':
            o->model.path = optarg;
            break;
        case 'd':
            o->cache.root = optarg;
            break;
        case 's':
            o->state = optarg;
            break;
        case 'n':
            o->n_tokens = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'r':
            o->cache.run_tokens = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'j':
            o->cache.n_readers = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'p':
            o->cache.pageable = true;
            break;
        case 'c':
            o->rounds = (int)strtoul(optarg, NULL, 10);
            break;
        case 'k':
            o->model.type_k = parse_type(optarg);
            break;
        case 'v':
            o->model.type_v = parse_type(optarg);
            break;
        case 'f':
            o->model.flash_attn = -1;
            break;
        case 'b':
            o->model.n_batch = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 't':
            o->model.n_threads = (int32_t)strtol(optarg, NULL, 10);
            break;
        case 'B':
            o->link_bytes = strtoull(optarg, NULL, 10);
            break;
        default:
            return false;
        }
    o->model.n_ctx = (o->n_tokens + TAIL + N_DECODE + 511) / 256 * 256;
    return optind + 1 == argc && o->rounds >= 0 && o->rounds <= MAX_ROUNDS && o->n_tokens > 2 * PAGE;
}

int main(int argc, char **argv)
{
    options     o = {.n_tokens = 8609, .rounds = 3, .link_bytes = (size_t)1246 << 20, .cache.run_tokens = 2048};
    bool        ok = parse_options(argc, argv, &o);
    const char *verb = ok ? argv[optind] : "";
    bool        has_files = o.model.path && o.cache.root && o.state;
    if (strcmp(verb, "link") == 0) {
        run_link(&o);
    } else if (strcmp(verb, "write") == 0 && has_files) {
        run_write(&o);
    } else if (strcmp(verb, "read") == 0 && has_files && o.rounds > 0) {
        run_read(&o);
    } else {
        fputs("usage: bench_gpu write|read --model M --root DIR --state DIR [--tokens N] [--run N] [--readers N]\n"
              "                 [--pageable] [--rounds N] [--type-k T] [--type-v T] [--fa-off] [--batch N]\n"
              "                 [--threads N]\n"
              "       bench_gpu link [--bytes N]\n",
              stderr);
        return 2;
    }
    return 0;
}
