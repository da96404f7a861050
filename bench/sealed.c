/* bench_sealed - what encryption at rest costs: the same KV recorded into and
 * restored from a plain and an encrypted cache, in one process, taking turns.
 *
 *     bench_sealed --model M --root DIR [--tokens N] [--run N] [--rounds N] [--readers N]
 *
 * Both ways go through cairn/llama.h and end in the runtime. Restores are from the
 * page cache, every block checked: by its checksum, or by decrypting it. "to disk"
 * is from the first record call until all is synced. Logits after a restore from
 * either are compared, bit for bit. */
#include "cells.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 64

typedef struct options {
    const char *model, *root;
    uint32_t    n_tokens, run_tokens, n_readers;
    int         rounds;
} options;

typedef struct side { /* plain, or sealed */
    bench_cache cache;
    double      to_disk[MAX_ROUNDS], restore[MAX_ROUNDS];
    float      *logits;
} side;

static void open_side(const bench_model *m, const options *o, const char *name, const uint8_t *key, side *s)
{
    char root[4096];
    if (snprintf(root, sizeof root, "%s/%s", o->root, name) >= (int)sizeof root)
        bench_die("--root is too long");
    bench_cache_open(
        m, &(bench_cache_options){.root = root, .run_tokens = o->run_tokens, .n_readers = o->n_readers, .key = key},
        &s->cache);
}

/* Round 0 fills the adapters' buffers and is not counted. */
static void record(const bench_model *m, const options *o, side sides[2])
{
    for (int i = 0; i <= o->rounds; i++) {
        llama_token *tokens = bench_tokens(o->n_tokens + 1, m->n_vocab, (uint64_t)i + 1);
        for (int s = 0; s < 2; s++) {
            double start = bench_now_ms();
            (void)bench_record_all(&sides[s].cache, tokens, o->n_tokens);
            if (i > 0)
                sides[s].to_disk[i - 1] = bench_now_ms() - start;
        }
        free(tokens);
    }
}

static void restore(const bench_model *m, const options *o, const llama_token *tokens, side sides[2])
{
    for (int i = 0; i <= o->rounds; i++)
        for (int s = 0; s < 2; s++) {
            double start = bench_now_ms();
            bench_restore(m, &sides[s].cache, tokens, o->n_tokens + 1, o->n_tokens);
            if (i > 0) {
                sides[s].restore[i - 1] = bench_now_ms() - start;
                continue;
            }
            bench_decode(m, tokens, o->n_tokens, o->n_tokens + 1, 1);
            sides[s].logits = bench_logits(m);
        }
    if (memcmp(sides[0].logits, sides[1].logits, (size_t)m->n_vocab * sizeof(float)) != 0)
        bench_die("logits after the two restores differ");
}

static void run(const options *o)
{
    static const uint8_t key[32] = "a key for measuring, no secret.";
    static side          sides[2];
    bench_model          m;
    cairn_store_stats    stats;
    bench_model_open(&(bench_model_options){.path = o->model, .n_ctx = o->n_tokens + 1024}, &m);
    llama_token *tokens = bench_tokens(o->n_tokens + 1, m.n_vocab, 1);
    bench_fill(&m, tokens, o->n_tokens);
    open_side(&m, o, "plain", NULL, &sides[0]);
    open_side(&m, o, "sealed", key, &sides[1]);
    record(&m, o, sides);
    restore(&m, o, tokens, sides);
    cairn_store_get_stats(sides[0].cache.store, &stats);
    double bytes = (double)stats.bytes_read / (o->rounds + 1);
    double to_disk[2], back[2];
    for (int s = 0; s < 2; s++) {
        to_disk[s] = bench_median(sides[s].to_disk, o->rounds);
        back[s] = bench_median(sides[s].restore, o->rounds);
    }
    json_begin();
    json_number("tokens", o->n_tokens);
    json_number("run", o->run_tokens);
    json_number("readers", o->n_readers);
    json_number("bytes", bytes);
    json_number("plain_restore_ms", back[0]);
    json_number("sealed_restore_ms", back[1]);
    json_number("restore_speed_ratio", back[0] / back[1]);
    json_number("plain_to_disk_ms", to_disk[0]);
    json_number("sealed_to_disk_ms", to_disk[1]);
    json_number("to_disk_speed_ratio", to_disk[0] / to_disk[1]);
    json_end();
    for (int s = 0; s < 2; s++) {
        free(sides[s].logits);
        bench_cache_close(&sides[s].cache);
    }
    bench_model_close(&m);
    free(tokens);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"model", required_argument, NULL, 'm'},
                                          {"root", required_argument, NULL, 'd'},
                                          {"tokens", required_argument, NULL, 'n'},
                                          {"run", required_argument, NULL, 'r'},
                                          {"readers", required_argument, NULL, 'j'},
                                          {"rounds", required_argument, NULL, 'c'},
                                          {NULL, 0, NULL, 0}};
    options                    o = {.n_tokens = 8192, .rounds = 5};
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        switch (c) {
        case 'm':
            o.model = optarg;
            break;
        case 'd':
            o.root = optarg;
            break;
        case 'n':
            o.n_tokens = bench_count(optarg, 1u << 20) / BENCH_PAGE * BENCH_PAGE;
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
    if (optind != argc || !o.model || !o.root || o.n_tokens < 2 * BENCH_PAGE || o.rounds < 1) {
        fputs("usage: bench_sealed --model M --root DIR [--tokens N] [--run N] [--rounds N] [--readers N]\n", stderr);
        return 2;
    }
    run(&o);
    return 0;
}
