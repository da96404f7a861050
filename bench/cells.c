/* cells.c - see cells.h. */
#include "cells.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCRATCH 1

void bench_export_range(const bench_model *m, uint32_t from, uint32_t to, bench_blob *blob)
{
    llama_memory_seq_cp(m->memory, 0, SCRATCH, (llama_pos)from, (llama_pos)to);
    size_t size = llama_state_seq_get_size(m->ctx, SCRATCH);
    if (!blob->data) {
        blob->data = bench_alloc(size);
        blob->size = size;
    }
    if (size != blob->size || llama_state_seq_get_data(m->ctx, blob->data, size, SCRATCH) != size)
        bench_die("the runtime's blob changed its size");
    llama_memory_seq_rm(m->memory, SCRATCH, -1, -1);
}

void bench_import_blob(const bench_model *m, const bench_blob *blob)
{
    if (llama_state_seq_set_data(m->ctx, blob->data, blob->size, SCRATCH) != blob->size)
        bench_die("the runtime refused its own blob");
    llama_memory_seq_cp(m->memory, SCRATCH, 0, -1, -1);
    llama_memory_seq_rm(m->memory, SCRATCH, -1, -1);
}

void bench_fill(const bench_model *m, const llama_token *tokens, uint32_t n)
{
    bench_blob page = {0};
    bench_decode(m, tokens, 0, BENCH_PAGE, BENCH_PAGE);
    bench_export_range(m, 0, BENCH_PAGE, &page);
    for (uint32_t start = BENCH_PAGE; start < n; start += BENCH_PAGE) {
        for (uint32_t cell = 0; cell < BENCH_PAGE; cell++) {
            int32_t pos = (int32_t)(start + cell);
            memcpy(page.data + 16 + 12 * (size_t)cell, &pos, sizeof pos);
        }
        bench_import_blob(m, &page);
    }
    free(page.data);
}

double bench_record_all(const bench_cache *c, const llama_token *tokens, uint32_t n)
{
    cairn_store_stats before, now;
    double            in_calls = 0, deadline = bench_now_ms() + 300e3;
    cairn_store_get_stats(c->store, &before);
    for (;;) {
        double start = bench_now_ms();
        cairn_llama_record(c->cache, 0, tokens, n);
        in_calls += bench_now_ms() - start;
        cairn_store_get_stats(c->store, &now);
        if (now.pages_given_up > before.pages_given_up || now.write_errors > before.write_errors)
            bench_die("the store gave up pages (queue, budget or disk)");
        if (now.pages_published - before.pages_published >= n / BENCH_PAGE)
            return in_calls;
        if (bench_now_ms() > deadline)
            bench_die("not all pages were published within 300 s");
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}
