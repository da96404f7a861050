/* probe.c - which memory a context has, and whether the page recipe holds for it.
 *
 * In the empty scratch sequence: decode a few tokens, read the layout off their
 * blobs, decode one more and keep its logits; then take the tokens out as pages,
 * bring them back through cairn__import() and decode the same token again. The
 * logits must be equal bit for bit, else the runtime keeps state that the pages
 * do not hold, and nothing is cached.
 *
 * Only what pages of attention alone can describe passes. Everything else is
 * told apart before a call that could abort: deepseek4 by its name (seq_cp of a
 * range aborts the process), encoders, diffusion, recurrent and hybrid models
 * by what llama.h says, windows by a PARTIAL_ONLY blob smaller than the full
 * one. Memories unknown here have blobs that no layout explains. */
#include "llama/adapter.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 8, N_SAMPLES = 3, SPLIT = 5 }; /* two pages of 5 and 3 tokens */

typedef struct probe {
    cairn_llama *cache;
    int32_t      tokens[N_TOKENS + 1];
    uint32_t     n_batch;
    size_t       n_vocab;
    float       *logits; /* after the import-free run */
    uint8_t     *blobs[N_SAMPLES];
    uint64_t     sizes[N_SAMPLES];
    cairn_status status; /* CAIRN_OK or CAIRN_ENOMEM */
} probe;

static const uint32_t sample_tokens[N_SAMPLES] = {N_TOKENS, 5, 2};

__attribute__((format(printf, 2, 3))) static bool refuse(cairn_llama *cache, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(cache->unsupported, sizeof cache->unsupported, format, args);
    va_end(args);
    return false;
}

static bool kind_ok(cairn_llama *cache)
{
    char architecture[64] = "";
    llama_model_meta_val_str(cache->model, "general.architecture", architecture, sizeof architecture);
    if (!strcmp(architecture, "deepseek4"))
        return refuse(cache, "the compressed attention cache of deepseek4 can't be cut into pages");
    if (llama_model_has_encoder(cache->model) || !llama_model_has_decoder(cache->model))
        return refuse(cache, "a model with an encoder keeps state that pages do not hold");
    if (!cache->memory || llama_model_is_diffusion(cache->model))
        return refuse(cache, "the model keeps no cache between calls");
    if (llama_model_is_recurrent(cache->model))
        return refuse(cache, "recurrent state can't be cut into pages (checkpoints are not implemented)");
    if (llama_model_is_hybrid(cache->model))
        return refuse(cache, "hybrid models need checkpoints of their recurrent state, which are not implemented");
    return true;
}

/* Decodes tokens [from, to) into scratch, in calls of at most n_batch. */
static bool decode(probe *p, uint32_t from, uint32_t to)
{
    struct llama_batch batch = llama_batch_init(N_TOKENS + 1, 0, 1);
    int32_t            rc = 0;
    for (uint32_t at = from; at < to && rc == 0;) {
        batch.n_tokens = 0;
        while (at < to && (uint32_t)batch.n_tokens < p->n_batch) {
            int32_t i = batch.n_tokens++;
            batch.token[i] = p->tokens[at];
            batch.pos[i] = (llama_pos)at++;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = p->cache->scratch;
            batch.logits[i] = at == to;
        }
        rc = llama_decode(p->cache->ctx, batch);
    }
    llama_batch_free(batch);
    return rc == 0 || refuse(p->cache, "the self-test could not run: llama_decode returned %d", (int)rc);
}

static void empty(probe *p, llama_seq_id seq, uint32_t from)
{
    llama_memory_seq_rm(p->cache->memory, seq, (llama_pos)from, -1);
}

static bool take_sample(probe *p, uint32_t i)
{
    cairn_llama *cache = p->cache;
    p->sizes[i] = llama_state_seq_get_size(cache->ctx, cache->scratch);
    free(p->blobs[i]);
    p->blobs[i] = malloc(p->sizes[i] + 1);
    if (!p->blobs[i]) {
        p->status = CAIRN_ENOMEM;
        return false;
    }
    return llama_state_seq_get_data(cache->ctx, p->blobs[i], p->sizes[i], cache->scratch) == p->sizes[i] ||
           refuse(cache, "the runtime did not export the sequence it has the size of");
}

static bool is_attention_alone(probe *p)
{
    cairn_llama *cache = p->cache;
    size_t full = llama_state_seq_get_size(cache->ctx, cache->scratch);
    size_t partial = llama_state_seq_get_size_ext(cache->ctx, cache->scratch, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    if (full <= 8)
        return refuse(cache, "the model keeps no cache between calls");
    if (partial < full)
        return refuse(cache, "sliding-window models need checkpoints of their window, which are not implemented");
    return true;
}

/* Samples of N_TOKENS and fewer tokens, cut off the end one after another. */
static bool derive(probe *p)
{
    cairn__sample samples[N_SAMPLES];
    for (uint32_t i = 0; i < N_SAMPLES; i++) {
        empty(p, p->cache->scratch, sample_tokens[i]);
        if (!take_sample(p, i))
            return false;
        samples[i] = (cairn__sample){p->blobs[i], p->sizes[i], sample_tokens[i]};
    }
    cairn_status status = cairn__layout_derive(samples, N_SAMPLES, p->cache->scratch, &p->cache->layout);
    if (status == CAIRN_ENOMEM)
        p->status = status;
    return status == CAIRN_OK || refuse(p->cache, "the runtime's state blob has a layout that is not known");
}

/* The run of N_TOKENS from its pages' blocks, as restore.c puts it together. */
static bool rejoin(probe *p, uint8_t *joined)
{
    const cairn__layout *layout = p->cache->layout;
    static const uint32_t cuts[] = {0, SPLIT, N_TOKENS};
    cairn__blob_frame(layout, joined, 0, N_TOKENS, p->cache->scratch);
    for (uint32_t page = 0; page < 2; page++) {
        const uint32_t     n = cuts[page + 1] - cuts[page];
        cairn__block_span span = {N_TOKENS, cuts[page], n, n, NULL};
        for (uint32_t block = 0; block < layout->n_blocks; block++) {
            uint8_t *data = malloc(cairn__block_size(layout, block, n));
            if (!data) {
                p->status = CAIRN_ENOMEM;
                return false;
            }
            cairn__block_gather(layout, block, p->blobs[0], &span, data);
            bool ok = layout->blocks[block].segment >= 0 ||
                      cairn__block_ext_check(data, n, cuts[page], p->tokens + cuts[page]);
            cairn__block_scatter(layout, block, joined, &span, data);
            free(data);
            if (!ok)
                return refuse(p->cache, "the runtime's cells carry extensions that are not known");
        }
    }
    return true;
}

static bool same_logits(probe *p, const char *what)
{
    const float *logits = llama_get_logits_ith(p->cache->ctx, -1);
    return (logits && !memcmp(logits, p->logits, p->n_vocab * sizeof *logits)) ||
           refuse(p->cache, "self-test failed: logits after an import %s differ", what);
}

/* Any other sequence that is empty: stands for the one a request is restored to. */
static llama_seq_id spare_sequence(const cairn_llama *cache)
{
    for (llama_seq_id seq = 0; seq < (llama_seq_id)cache->n_seq; seq++)
        if (seq != cache->scratch && llama_memory_seq_pos_max(cache->memory, seq) < 0)
            return seq;
    return cache->scratch;
}

/* Brings the run back, through scratch where a sequence is spare, and decodes
 * the last token again behind it. */
static bool round_trip(probe *p, const uint8_t *joined)
{
    cairn_llama   *cache = p->cache;
    const uint64_t size = cairn__blob_size(cache->layout, N_TOKENS);
    llama_seq_id   spare = spare_sequence(cache);
    if (cairn__import(cache, cache->scratch, true, joined, size, 0, N_TOKENS) != CAIRN_OK)
        return refuse(cache, "self-test failed: the runtime refused a blob it exported");
    if (!decode(p, N_TOKENS, N_TOKENS + 1) || !same_logits(p, "into an empty sequence"))
        return false;
    empty(p, cache->scratch, 0);
    if (spare == cache->scratch)
        return true;
    if (cairn__import(cache, spare, false, joined, size, 0, N_TOKENS) != CAIRN_OK)
        return refuse(cache, "self-test failed: the runtime refused a blob it exported");
    llama_memory_seq_cp(cache->memory, spare, cache->scratch, -1, -1);
    empty(p, spare, 0);
    return decode(p, N_TOKENS, N_TOKENS + 1) && same_logits(p, "through the scratch sequence");
}

static bool reference(probe *p)
{
    if (!decode(p, 0, N_TOKENS) || !is_attention_alone(p) || !decode(p, N_TOKENS, N_TOKENS + 1))
        return false;
    const float *logits = llama_get_logits_ith(p->cache->ctx, -1);
    if (!logits)
        return refuse(p->cache, "the context computes no logits");
    memcpy(p->logits, logits, p->n_vocab * sizeof *logits);
    return true;
}

static bool self_test(probe *p)
{
    cairn_llama *cache = p->cache;
    if (!reference(p) || !derive(p))
        return false;
    empty(p, cache->scratch, 0);
    uint8_t *joined = malloc(cairn__blob_size(cache->layout, N_TOKENS));
    if (!joined) {
        p->status = CAIRN_ENOMEM;
        return false;
    }
    bool ok = rejoin(p, joined) && round_trip(p, joined);
    free(joined);
    return ok;
}

/* Once more after a failure: when the free cells wrapped around the end of the
 * cache, the first import lies in another order of cells than the first run. */
static bool run_twice(probe *p)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        bool ok = self_test(p);
        empty(p, p->cache->scratch, 0);
        if (ok) {
            p->cache->unsupported[0] = 0;
            return true;
        }
        cairn__layout_destroy(p->cache->layout);
        p->cache->layout = NULL;
        if (p->status)
            return false;
    }
    return false;
}

static bool has_room(cairn_llama *cache)
{
    return llama_n_ctx(cache->ctx) > N_TOKENS || refuse(cache, "the context is too small to hold a page");
}

cairn_status cairn__probe(cairn_llama *cache, cairn_error *error)
{
    if (!kind_ok(cache) || !has_room(cache))
        return CAIRN_OK;
    if (llama_memory_seq_pos_max(cache->memory, cache->scratch) >= 0) {
        if (error)
            snprintf(error->text, sizeof error->text, "the scratch sequence %d must be empty; set scratch_seq to one "
                     "that nobody uses", (int)cache->scratch);
        return CAIRN_EINVAL;
    }
    probe p = {.cache = cache, .n_batch = llama_n_batch(cache->ctx)};
    p.n_vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(cache->model));
    p.logits = malloc(p.n_vocab * sizeof *p.logits + 1);
    if (!p.logits)
        return CAIRN_ENOMEM;
    for (uint32_t i = 0; i <= N_TOKENS; i++)
        p.tokens[i] = (int32_t)((7 * i + 3) % (p.n_vocab ? p.n_vocab : 1));
    run_twice(&p);
    free(p.logits);
    for (uint32_t i = 0; i < N_SAMPLES; i++)
        free(p.blobs[i]);
    return p.status;
}
