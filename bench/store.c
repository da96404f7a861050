/* bench_store - how fast KV leaves and comes back through the public path, and
 * where the time goes. bench/store.py runs it over models and run sizes.
 *
 *     bench_store export --model M --root DIR --logits FILE [--tokens N] [--run N] [--rounds N]
 *     bench_store import --model M --root DIR --logits FILE [--tokens N] [--run N] [--rounds N] [--readers N]
 *
 * `export` fills N cells and records them, each round under other tokens.
 * `import` is another process: it restores what the first round wrote, from
 * the page cache, with every checksum verified, and compares the logits of one
 * token more with the exporter's, bit for bit.
 *
 * How the cells are filled says cells.h.
 *
 * memcpy of the same number of bytes, in pieces as large as a block, is measured
 * in the same process: machines differ, the share of memcpy less so. */
#include "cells.h"

#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE BENCH_PAGE
#define MAX_ROUNDS 64

typedef struct options {
    const char *model, *root, *logits;
    uint32_t    n_tokens, run_tokens, n_readers;
    int         rounds;
} options;

/* ---- the runtime alone: what no adapter can be faster than ---- */

typedef struct raw_cost {
    double get_ms, set_ms;
    size_t bytes;
} raw_cost;

/* One blob a run, exported from seq 0 and imported again in order. Leaves seq 0 as it was. */
static raw_cost measure_runtime(const bench_model *m, uint32_t n, uint32_t run, int rounds)
{
    raw_cost r = {0};
    uint32_t n_runs = (n + run - 1) / run;
    bench_blob *blobs = bench_alloc(n_runs * sizeof *blobs);
    double   get[MAX_ROUNDS], set[MAX_ROUNDS];
    for (int round = -1; round < rounds; round++) { /* round -1 touches the buffers */
        double start = bench_now_ms();
        for (uint32_t i = 0; i < n_runs; i++)
            bench_export_range(m, i * run, i * run + run < n ? i * run + run : n, &blobs[i]);
        if (round >= 0)
            get[round] = bench_now_ms() - start;
        llama_memory_seq_rm(m->memory, 0, -1, -1);
        start = bench_now_ms();
        for (uint32_t i = 0; i < n_runs; i++)
            bench_import_blob(m, &blobs[i]);
        llama_synchronize(m->ctx);
        if (round >= 0)
            set[round] = bench_now_ms() - start;
    }
    for (uint32_t i = 0; i < n_runs; i++) {
        r.bytes += blobs[i].size;
        free(blobs[i].data);
    }
    free(blobs);
    r.get_ms = bench_median(get, rounds);
    r.set_ms = bench_median(set, rounds);
    return r;
}

static void save_logits(const options *o, const bench_model *m)
{
    float *logits = bench_logits(m);
    FILE  *f = fopen(o->logits, "wb");
    if (!f || fwrite(logits, sizeof *logits, (size_t)m->n_vocab, f) != (size_t)m->n_vocab || fclose(f) != 0)
        bench_die("can't write %s", o->logits);
    free(logits);
}

static void compare_logits(const options *o, const bench_model *m)
{
    size_t n = (size_t)m->n_vocab, size = n * sizeof(float);
    float *ours = bench_logits(m), *theirs = bench_alloc(size);
    FILE  *f = fopen(o->logits, "rb");
    if (!f || fread(theirs, sizeof *theirs, n, f) != n)
        bench_die("can't read %s", o->logits);
    fclose(f);
    if (memcmp(ours, theirs, size) != 0)
        bench_die("logits after the restore differ from the exporter's");
    free(ours);
    free(theirs);
}

/* ---- export ---- */

static void run_export(const options *o)
{
    bench_model m;
    bench_cache c;
    double      record[MAX_ROUNDS], publish[MAX_ROUNDS], first;
    bench_model_open(&(bench_model_options){.path = o->model, .n_ctx = o->n_tokens + 1024}, &m);
    llama_token *tokens = bench_tokens(o->n_tokens + 1, m.n_vocab, 1);
    bench_fill(&m, tokens, o->n_tokens);
    bench_decode(&m, tokens, o->n_tokens, o->n_tokens + 1, 1);
    save_logits(o, &m);
    llama_memory_seq_rm(m.memory, 0, (llama_pos)o->n_tokens, -1);
    long peak = bench_peak_kib();
    bench_cache_open(&m, &(bench_cache_options){.root = o->root, .run_tokens = o->run_tokens}, &c);
    for (int i = 0; i < o->rounds; i++) { /* the first one also fills the adapter's pools */
        llama_token *other = bench_tokens(o->n_tokens + 1, m.n_vocab, (uint64_t)i + 1);
        double       start = bench_now_ms();
        record[i] = bench_record_all(&c, other, o->n_tokens);
        publish[i] = bench_now_ms() - start;
        free(other);
    }
    first = record[0];
    long              extra = bench_peak_kib() - peak;
    cairn_store_stats stats;
    cairn_store_get_stats(c.store, &stats);
    double   bytes = (double)stats.bytes_written / o->rounds;
    int      skip = o->rounds > 1;
    raw_cost raw = measure_runtime(&m, o->n_tokens, o->run_tokens, 3);
    json_begin();
    json_number("tokens", o->n_tokens);
    json_number("run", o->run_tokens);
    json_number("bytes", (double)raw.bytes);
    json_number("bytes_written", bytes);
    json_number("first_record_ms", first);
    json_number("record_ms", bench_median(record + skip, o->rounds - skip));
    json_number("publish_ms", bench_median(publish + skip, o->rounds - skip));
    json_number("runtime_get_ms", raw.get_ms);
    json_number("memcpy_ms", bench_memcpy_ms(raw.bytes, raw.bytes / o->n_tokens * PAGE / 64));
    json_number("peak_extra_kib", (double)extra);
    json_end();
    bench_cache_close(&c);
    bench_model_close(&m);
    free(tokens);
}

/* ---- import ---- */

static uint8_t *read_buffer;
static size_t   read_buffer_size, read_total;

static int read_page_file(const char *path, const struct stat *st, int type)
{
    size_t length = strlen(path);
    if (type != FTW_F || length < 5 || strcmp(path + length - 5, ".page") != 0)
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t size = (size_t)st->st_size < read_buffer_size ? (size_t)st->st_size : read_buffer_size;
    if (read(fd, read_buffer, size) != (ssize_t)size)
        return -1;
    close(fd);
    read_total += size;
    return 0;
}

typedef struct store_cost {
    double lookup_ms, verify_ms; /* find and pin; read and check all blocks, one thread */
    double bytes, block_bytes;
} store_cost;

static store_cost measure_store(const bench_cache *c, const llama_token *tokens, uint32_t n)
{
    store_cost  r = {0};
    cairn_hit   hit = {0};
    cairn_pin  *pin = NULL;
    cairn_query query = {.identity = cairn_llama_identity(c->cache), .tokens = tokens, .n_tokens = n};
    double      start = bench_now_ms();
    if (cairn_store_lookup(c->store, &query, &hit, &pin) != CAIRN_OK || hit.cached_tokens != n)
        bench_die("lookup found %u of %u tokens", hit.cached_tokens, n);
    r.lookup_ms = bench_now_ms() - start;
    start = bench_now_ms();
    for (uint32_t p = 0; p < hit.n_pages; p++) {
        cairn_page_view page = cairn_pin_page(pin, p);
        size_t          at = 0;
        for (uint32_t b = 0; b < page.n_blocks; at += page.block_size[b++])
            if (at + page.block_size[b] > read_buffer_size ||
                cairn_pin_read_block(pin, p, b, read_buffer + at) != CAIRN_OK)
                bench_die("block %u of page %u does not verify", b, p);
        r.bytes += (double)at;
        r.block_bytes = (double)page.block_size[0];
    }
    r.verify_ms = bench_now_ms() - start;
    cairn_pin_release(pin);
    return r;
}

static store_cost measure_store_rounds(const bench_cache *c, const llama_token *tokens, uint32_t n, int rounds)
{
    double     lookup[MAX_ROUNDS], verify[MAX_ROUNDS];
    store_cost r = {0};
    for (int i = 0; i < rounds; i++) {
        r = measure_store(c, tokens, n);
        lookup[i] = r.lookup_ms;
        verify[i] = r.verify_ms;
    }
    r.lookup_ms = bench_median(lookup, rounds);
    r.verify_ms = bench_median(verify, rounds);
    return r;
}

static double measure_pread(const char *root)
{
    double ms[3];
    for (int i = 0; i < 3; i++) {
        read_total = 0;
        double start = bench_now_ms();
        if (ftw(root, read_page_file, 16) != 0)
            bench_die("can't read the pages in %s", root);
        ms[i] = bench_now_ms() - start;
    }
    return bench_median(ms, 3);
}

static void run_import(const options *o)
{
    bench_model m;
    bench_cache c;
    double      restore[MAX_ROUNDS], first;
    bench_model_open(&(bench_model_options){.path = o->model, .n_ctx = o->n_tokens + 1024}, &m);
    llama_token *tokens = bench_tokens(o->n_tokens + 1, m.n_vocab, 1);
    bench_decode(&m, tokens, 0, 512, 512); /* compute buffers are the model's own memory */
    llama_memory_seq_rm(m.memory, 0, -1, -1);
    long peak = bench_peak_kib();
    bench_cache_open(
        &m, &(bench_cache_options){.root = o->root, .run_tokens = o->run_tokens, .n_readers = o->n_readers}, &c);
    double start = bench_now_ms();
    bench_restore(&m, &c, tokens, o->n_tokens + 1, o->n_tokens);
    first = bench_now_ms() - start;
    bench_decode(&m, tokens, o->n_tokens, o->n_tokens + 1, 1);
    compare_logits(o, &m);
    for (int i = 0; i < o->rounds; i++) {
        start = bench_now_ms();
        bench_restore(&m, &c, tokens, o->n_tokens + 1, o->n_tokens);
        restore[i] = bench_now_ms() - start;
    }
    long     extra = bench_peak_kib() - peak;
    raw_cost raw = measure_runtime(&m, o->n_tokens, o->run_tokens, 3);
    read_buffer_size = raw.bytes / o->n_tokens * PAGE * 2;
    read_buffer = bench_alloc(read_buffer_size);
    store_cost store = measure_store_rounds(&c, tokens, o->n_tokens, 3);
    double     pread_ms = measure_pread(o->root) * store.bytes / (double)(read_total ? read_total : 1);
    json_begin();
    json_number("tokens", o->n_tokens);
    json_number("run", o->run_tokens);
    json_number("readers", o->n_readers);
    json_number("bytes", store.bytes);
    json_number("block_bytes", store.block_bytes);
    json_number("open_ms", c.open_ms);
    json_number("first_restore_ms", first);
    json_number("restore_ms", bench_median(restore, o->rounds));
    json_number("lookup_ms", store.lookup_ms);
    json_number("read_verify_ms", store.verify_ms);
    json_number("read_ms", pread_ms);
    json_number("runtime_set_ms", raw.set_ms);
    json_number("memcpy_ms", bench_memcpy_ms((size_t)store.bytes, (size_t)store.block_bytes));
    json_number("peak_extra_kib", (double)extra);
    json_end();
    free(read_buffer);
    bench_cache_close(&c);
    bench_model_close(&m);
    free(tokens);
}

/* ---- command line ---- */

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"model", required_argument, NULL, 'm'},  {"root", required_argument, NULL, 'd'},
        {"logits", required_argument, NULL, 'l'}, {"tokens", required_argument, NULL, 'n'},
        {"run", required_argument, NULL, 'r'},    {"readers", required_argument, NULL, 'j'},
        {"rounds", required_argument, NULL, 'c'}, {NULL, 0, NULL, 0}};
    options o = {.n_tokens = 8192, .run_tokens = 2048, .rounds = 3};
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        switch (c) {
        case 'm':
            o.model = optarg;
            break;
        case 'd':
            o.root = optarg;
            break;
        case 'l':
            o.logits = optarg;
            break;
        case 'n':
            o.n_tokens = bench_count(optarg, 1u << 20) / PAGE * PAGE;
            break;
        case 'r':
            o.run_tokens = bench_count(optarg, 1u << 20);
            break;
        case 'j':
            o.n_readers = bench_count(optarg, 256);
            break;
        case 'c':
            o.rounds = (int)bench_count(optarg, MAX_ROUNDS);
            break;
        default:
            return 2;
        }
    const char *verb = optind + 1 == argc ? argv[optind] : "";
    bool        is_export = strcmp(verb, "export") == 0;
    if ((!is_export && strcmp(verb, "import") != 0) || !o.model || !o.root || !o.logits || o.n_tokens < 2 * PAGE ||
        o.rounds < 1 || o.run_tokens < PAGE) {
        fputs("usage: bench_store export|import --model M --root DIR --logits FILE [--tokens N] [--run N]\n"
              "                   [--rounds N] [--readers N]\n",
              stderr);
        return 2;
    }
    if (is_export)
        run_export(&o);
    else
        run_import(&o);
    return 0;
}
