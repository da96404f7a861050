/* probe.c - which parts a context's memory has, and whether the recipe for them
 * holds.
 *
 * In the empty scratch sequence: decode a few tokens in steps, at each step take
 * a blob and read the layouts off them; decode one more and keep its logits. Then
 * bring the tokens back as a restore does - pages joined to a run, then the
 * checkpoint - and decode the same token again. The logits must be equal bit for
 * bit, else the runtime keeps state that we do not hold, and nothing is cached.
 *
 *   part        how it shows                                   in the store
 *   attention   the full blob is larger than the PARTIAL_ONLY  pages
 *               one, or as large and the model not recurrent
 *   window or   the PARTIAL_ONLY blob is smaller than the full checkpoints
 *   recurrent   one, or the model is recurrent
 *   anything    no layout explains the blobs, or a copy of a range would abort the
 *   else        process (deepseek4, told by its name): whole sequences as checkpoints
 *
 * Encoders and diffusion, told by what llama.h says, have nothing to keep. */
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
    bool         has_pages, has_partial;
    uint8_t     *pages[N_SAMPLES], *partials[N_SAMPLES];
    uint64_t     page_sizes[N_SAMPLES], partial_sizes[N_SAMPLES];
    cairn_status status; /* CAIRN_OK or CAIRN_ENOMEM */
} probe;

enum { LAST = N_SAMPLES - 1 };
static const uint32_t sample_tokens[N_SAMPLES] = {2, SPLIT, N_TOKENS};

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
    if (llama_model_has_encoder(cache->model) || !llama_model_has_decoder(cache->model))
        return refuse(cache, "a model with an encoder keeps state that pages do not hold");
    if (!cache->memory || llama_model_is_diffusion(cache->model))
        return refuse(cache, "the model keeps no cache between calls");
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

/* A copy of a range aborts the process there. */
static bool can_copy_ranges(const cairn_llama *cache)
{
    char architecture[64] = "";
    llama_model_meta_val_str(cache->model, "general.architecture", architecture, sizeof architecture);
    return strcmp(architecture, "deepseek4") != 0;
}

static uint8_t *get_blob(probe *p, uint64_t size, llama_state_seq_flags flags)
{
    cairn_llama *cache = p->cache;
    uint8_t     *blob = malloc(size + 1);
    if (!blob) {
        p->status = CAIRN_ENOMEM;
    } else if (llama_state_seq_get_data_ext(cache->ctx, blob, size, cache->scratch, flags) != size) {
        refuse(cache, "the runtime did not export the sequence it has the size of");
        free(blob);
        blob = NULL;
    }
    return blob;
}

/* Both blobs of what scratch holds; of the full one only the attention sections count. */
static bool take_sample(probe *p, uint32_t i)
{
    cairn_llama   *cache = p->cache;
    const uint64_t full = llama_state_seq_get_size(cache->ctx, cache->scratch);
    const uint64_t partial = cairn__partial_size(cache, cache->scratch);
    if (full <= 8)
        return refuse(cache, "the model keeps no cache between calls");
    const bool whole = cache->checkpoint_flags == LLAMA_STATE_SEQ_FLAGS_NONE;
    p->has_pages = !llama_model_is_recurrent(cache->model) && !whole;
    p->has_partial = !p->has_pages || partial < full;
    p->page_sizes[i] = p->has_pages && p->has_partial ? full - (partial - 8) : full;
    p->partial_sizes[i] = partial;
    free(p->pages[i]);
    free(p->partials[i]);
    p->pages[i] = get_blob(p, full, 0);
    p->partials[i] = p->pages[i] ? get_blob(p, partial, cache->checkpoint_flags) : NULL;
    return p->partials[i] != NULL;
}

static bool take_empty(probe *p)
{
    cairn_llama *cache = p->cache;
    free(cache->empty_partial);
    cache->empty_partial_size = cairn__partial_size(cache, cache->scratch);
    cache->empty_partial = get_blob(p, cache->empty_partial_size, cache->checkpoint_flags);
    return cache->empty_partial != NULL;
}

typedef cairn_status derive_fn(const cairn__sample *samples, uint32_t n_samples, int32_t seq,
                               cairn__layout **ret_layout);

static cairn_status derive_from(probe *p, derive_fn *derive, uint8_t *const blobs[], const uint64_t sizes[],
                                cairn__layout **ret_layout)
{
    cairn__sample samples[N_SAMPLES];
    for (uint32_t i = 0; i < N_SAMPLES; i++)
        samples[i] = (cairn__sample){blobs[i], sizes[i], sample_tokens[i]};
    return derive(samples, N_SAMPLES, p->cache->scratch, ret_layout);
}

static bool derive(probe *p)
{
    cairn_llama *cache = p->cache;
    cairn_status status = CAIRN_OK;
    if (p->has_pages)
        status = derive_from(p, cairn__layout_derive, p->pages, p->page_sizes, &cache->layout);
    if (!status && cache->checkpoint_flags == LLAMA_STATE_SEQ_FLAGS_NONE)
        status = (cache->partial = cairn__layout_opaque()) ? CAIRN_OK : CAIRN_ENOMEM;
    else if (!status && p->has_partial)
        status = derive_from(p, cairn__layout_derive_partial, p->partials, p->partial_sizes, &cache->partial);
    if (!status && p->has_pages && p->has_partial)
        status = cairn__layout_set_suffix(cache->layout, cache->empty_partial + 8,
                                          (uint32_t)(cache->empty_partial_size - 8));
    if (status == CAIRN_ENOMEM)
        p->status = status;
    return status == CAIRN_OK || refuse(cache, "the runtime's state blob has a layout that is not known");
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
            cairn__block_gather(layout, block, p->pages[LAST], &span, data);
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

/* The pages' run, then the checkpoint, into `seq`. */
static bool bring_back(probe *p, llama_seq_id seq, bool seq_is_empty, const uint8_t *joined)
{
    cairn_llama *cache = p->cache;
    cairn_status status = CAIRN_OK;
    if (p->has_pages)
        status = cairn__import(cache, seq, seq_is_empty, joined, cairn__blob_size(cache->layout, N_TOKENS), 0, N_TOKENS);
    if (!status && p->has_partial)
        status = cairn__set_partial(cache, seq, N_TOKENS, p->partials[LAST], p->partial_sizes[LAST]);
    return !status || refuse(cache, "self-test failed: the runtime refused a blob it exported");
}

/* A copy shares cells with its source; a window among them would stay pinned. */
static bool copy_to_scratch(probe *p, llama_seq_id seq)
{
    cairn_llama *cache = p->cache;
    llama_memory_seq_cp(cache->memory, seq, cache->scratch, -1, -1);
    empty(p, seq, 0);
    return !p->has_partial || cairn__set_partial(cache, cache->scratch, N_TOKENS, p->partials[LAST],
                                                 p->partial_sizes[LAST]) == CAIRN_OK ||
           refuse(cache, "self-test failed: the runtime refused a checkpoint it exported");
}

/* Straight into an empty sequence, then through scratch, where a sequence is
 * spare; each time the last token is decoded again behind it. */
static bool round_trip(probe *p, const uint8_t *joined)
{
    cairn_llama *cache = p->cache;
    llama_seq_id spare = spare_sequence(cache);
    if (!bring_back(p, cache->scratch, true, joined) || !decode(p, N_TOKENS, N_TOKENS + 1) ||
        !same_logits(p, "into an empty sequence"))
        return false;
    empty(p, cache->scratch, 0);
    if (spare == cache->scratch)
        return true;
    if (!p->has_pages)
        return true; /* nothing is copied from sequence to sequence */
    return bring_back(p, spare, false, joined) && copy_to_scratch(p, spare) && decode(p, N_TOKENS, N_TOKENS + 1) &&
           same_logits(p, "through the scratch sequence");
}

/* As a prefill that is recorded: a checkpoint that was taken is set again. */
static bool reference(probe *p)
{
    cairn_llama *cache = p->cache;
    if (!take_empty(p))
        return false;
    for (uint32_t i = 0; i < N_SAMPLES; i++)
        if (!decode(p, i ? sample_tokens[i - 1] : 0, sample_tokens[i]) || !take_sample(p, i))
            return false;
    if (!derive(p))
        return false;
    cache->checkpoint_bytes = p->partial_sizes[LAST];
    if (p->has_partial) {
        if (!cairn__partial_check(cache->partial, p->partials[LAST], p->partial_sizes[LAST], N_TOKENS, cache->scratch,
                                  cache->order, cache->n_ctx))
            return refuse(cache, "the runtime's state blob has a layout that is not known");
        cairn__partial_retarget(cache->partial, p->partials[LAST], 0);
        if (cairn__set_partial(cache, cache->scratch, N_TOKENS, p->partials[LAST], p->partial_sizes[LAST]))
            return refuse(cache, "self-test failed: the runtime refused a checkpoint it exported");
    }
    if (!decode(p, N_TOKENS, N_TOKENS + 1))
        return false;
    const float *logits = llama_get_logits_ith(cache->ctx, -1);
    if (!logits)
        return refuse(cache, "the context computes no logits");
    memcpy(p->logits, logits, p->n_vocab * sizeof *logits);
    return true;
}

static bool self_test(probe *p)
{
    cairn_llama *cache = p->cache;
    if (!reference(p))
        return false;
    empty(p, cache->scratch, 0);
    uint8_t *joined = malloc(p->has_pages ? cairn__blob_size(cache->layout, N_TOKENS) : 1);
    if (!joined) {
        p->status = CAIRN_ENOMEM;
        return false;
    }
    bool ok = (!p->has_pages || rejoin(p, joined)) && round_trip(p, joined);
    free(joined);
    return ok;
}

static void forget(cairn_llama *cache)
{
    cairn__layout_destroy(cache->layout);
    cairn__layout_destroy(cache->partial);
    cache->layout = cache->partial = NULL;
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
        forget(p->cache);
        if (p->status)
            return false;
    }
    return false;
}

/* Parts if they can be told, else whole sequences. On a grid these are refused:
 * setting all of a sequence again at every step would cost as much as it saves. */
static void find_recipe(probe *p)
{
    cairn_llama *cache = p->cache;
    cache->checkpoint_flags = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    if (can_copy_ranges(cache) && run_twice(p))
        return;
    if (p->status)
        return;
    cache->checkpoint_flags = LLAMA_STATE_SEQ_FLAGS_NONE;
    if (cache->grid_tokens)
        refuse(cache, "the memory of this model can be kept as a whole only, which reproducible mode can't use");
    else
        run_twice(p);
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
    find_recipe(&p);
    free(p.logits);
    for (uint32_t i = 0; i < N_SAMPLES; i++) {
        free(p.pages[i]);
        free(p.partials[i]);
    }
    return p.status;
}
