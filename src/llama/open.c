/* open.c - puts a cairn_llama together and takes it apart.
 *
 * Order: what is wrong with the call is found before anything costs time; then
 * the probe (some tokens); the identity last, as it may hash the weights. */
#include "llama/adapter.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_DEFAULT_RUN = 2048,
    /* Plain memory: a run that stays in the cache of the processor between being
     * read and being imported; larger ones only cost memory that must be touched
     * before the first restore (bench/store). Pinned: the link wants large copies
     * (H200: 22 GB/s with 38 MB, 25 with 300 MB, bench/gpu), memory is bounded. */
    PLAIN_RUN_BYTES = 8 << 20,
    PINNED_RUN_BYTES = 128 << 20,
    COLD_READERS = 4,          /* of 1 MiB at a time: enough to keep a device busy while others check and copy */
    N_STAGES = 3,
    N_WARM_STAGES = 3,
    PATIENCE_MS = 2000
};
/* What is being read at a time, by all readers, gets 16 MiB/s before a disk counts as
 * one that does nothing. */
#define NS_PER_BYTE_IN_FLIGHT 60u

__attribute__((format(printf, 3, 4))) static cairn_status fail(cairn_error *error, cairn_status status,
                                                               const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
    }
    return status;
}

static cairn_status check_options(const cairn_llama_options *o, cairn_error *error)
{
    if (!o->model_params || !o->context_params)
        return fail(error, CAIRN_EINVAL, "model_params and context_params are required: KV depends on them");
    if (!o->store)
        return fail(error, CAIRN_EINVAL, "a store is required");
    if (!o->model_paths || o->n_model_paths == 0)
        return fail(error, CAIRN_EINVAL, "model_paths is required: pages are named by the digest of the weights");
    for (uint32_t i = 0; i < o->n_model_paths; i++)
        if (!o->model_paths[i])
            return fail(error, CAIRN_EINVAL, "model_paths[%u] is NULL", i);
    for (uint32_t i = 0; i < o->n_adapters; i++)
        if (!o->adapters || !o->adapters[i].path)
            return fail(error, CAIRN_EINVAL, "adapters[%u] has no path", i);
    return CAIRN_OK;
}

/* A digest of some of the shards would say the same of two models. */
static cairn_status check_shards(const struct llama_model *model, const cairn_llama_options *o, cairn_error *error)
{
    char          value[32];
    unsigned long n = 0;
    if (llama_model_meta_val_str(model, "split.count", value, sizeof value) > 0)
        n = strtoul(value, NULL, 10);
    if (n > 1 && n != o->n_model_paths)
        return fail(error, CAIRN_EINVAL, "the model has %lu shards and model_paths names %u: give all of them, in order", n,
                    o->n_model_paths);
    return CAIRN_OK;
}

static cairn_status check_context(const struct llama_model *model, const struct llama_context *ctx,
                                  const cairn_llama_options *o, cairn_error *error)
{
    const uint32_t n_seq = llama_n_seq_max(ctx);
    if (llama_get_model(ctx) != model)
        return fail(error, CAIRN_EINVAL, "the context belongs to another model");
    if (n_seq < 2)
        return fail(error, CAIRN_EINVAL, "the context has no spare sequence: set n_seq_max to at least 2 (it is %u) and "
                    "kv_unified to true", n_seq);
    if (llama_n_ctx_seq(ctx) != llama_n_ctx(ctx) || !o->context_params->kv_unified)
        return fail(error, CAIRN_EINVAL, "the context keeps a separate cache for each sequence: set kv_unified to true "
                    "(n_seq_max may stay %u)", n_seq);
    if (o->scratch_seq < 0 || (uint32_t)o->scratch_seq >= n_seq)
        return fail(error, CAIRN_EINVAL, "scratch_seq %d is not below n_seq_max (%u)", (int)o->scratch_seq, n_seq);
    return CAIRN_OK;
}

static cairn_status check_grid(const cairn_llama *cache, cairn_error *error)
{
    const uint32_t grid = cache->grid_tokens, page = cache->page_tokens;
    if (grid && grid % page != 0 && page % grid != 0)
        return fail(error, CAIRN_EINVAL, "grid_tokens %u: it or the page size (%u) must divide the other", grid, page);
    return CAIRN_OK;
}

/* One core is the importing thread's: where all read, it waits for its turn. */
static uint32_t default_readers(void)
{
    const uint32_t cores = cairn__cpu_count();
    return cores > 1 ? cores - 1 : 1;
}

static void set_sizes(cairn_llama *cache, const cairn_llama_options *o)
{
    const uint32_t page = cairn_store_page_tokens(o->store);
    cache->n_seq = llama_n_seq_max(cache->ctx);
    cache->n_ctx = llama_n_ctx(cache->ctx);
    cache->scratch = o->scratch_seq ? o->scratch_seq : (llama_seq_id)cache->n_seq - 1;
    cache->page_tokens = page;
    cache->grid_tokens = o->grid_tokens;
    cache->n_readers = o->n_readers ? o->n_readers : default_readers();
    if (cache->n_readers > CAIRN__MAX_READERS)
        cache->n_readers = CAIRN__MAX_READERS;
    cache->n_cold_readers = cache->n_readers > COLD_READERS ? cache->n_readers : COLD_READERS;
}

/* Memory that the device of the KV cache copies fastest from; NULL: plain. */
static ggml_backend_buffer_type_t pinned_type(const cairn_llama_options *o)
{
    if (o->pageable)
        return NULL;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_GPU || !cairn__device_in_use(o, device))
            continue;
        ggml_backend_buffer_type_t type = ggml_backend_dev_host_buffer_type(device);
        if (type)
            return type;
    }
    return NULL;
}

/* Whole pages, as many as were asked for or as fill a buffer. */
static uint32_t run_of(const cairn_llama *cache, uint32_t asked, bool pinned)
{
    const uint64_t buffer = pinned ? PINNED_RUN_BYTES : PLAIN_RUN_BYTES;
    uint64_t       run = asked ? asked : buffer / cache->layout->row_size;
    run = asked || run < MAX_DEFAULT_RUN ? run : MAX_DEFAULT_RUN;
    run = run < cache->n_ctx ? run : cache->n_ctx;
    return run < cache->page_tokens ? cache->page_tokens : (uint32_t)(run / cache->page_tokens * cache->page_tokens);
}

/* A buffer holds the joined blob of a run, or the gathered blocks of its pages
 * and behind them the blob of one page (record.c). */
static cairn_status make_buffers(cairn_llama *cache, const cairn_llama_options *o)
{
    if (!cache->layout)
        return CAIRN_OK; /* no pages to move */
    const ggml_backend_buffer_type_t pinned = pinned_type(o);
    cache->run_tokens = run_of(cache, o->run_tokens, pinned != NULL);
    const uint32_t run_pages = cache->run_tokens / cache->page_tokens;
    const uint64_t joined = cairn__export_size(cache, cache->run_tokens);
    const uint64_t gathered =
        cache->layout->row_size * cache->run_tokens + cairn__export_size(cache, cache->page_tokens);
    cache->stage_size = joined > gathered ? joined : gathered;
    cache->pages = calloc(run_pages, sizeof *cache->pages);
    cache->blocks = calloc((size_t)run_pages * cache->layout->n_blocks, sizeof *cache->blocks);
    if (!cache->pages || !cache->blocks)
        return CAIRN_ENOMEM;
    const cairn__staging_options staging = {N_STAGES, N_WARM_STAGES, cache->stage_size, pinned};
    return cairn__staging_create(&staging, cache->pool, &cache->staging);
}

static cairn_status start_threads(cairn_llama *cache)
{
    cache->tracks = calloc(cache->n_seq, sizeof *cache->tracks);
    if (!cache->tracks)
        return CAIRN_ENOMEM;
    cairn_status status = cairn__pool_create(cache->n_readers, &cache->pool);
    if (!status)
        status = cairn__pool_create(cache->n_cold_readers, &cache->cold_pool);
    return status ? status : cairn__pool_create(1, &cache->clerk);
}

static void set_patience(cairn_llama *cache, const cairn_llama_options *o)
{
    uint64_t largest = cache->checkpoint_bytes > CAIRN__WINDOW_BYTES ? cache->checkpoint_bytes : CAIRN__WINDOW_BYTES;
    for (uint32_t i = 0; cache->layout && i < cache->layout->n_blocks; i++) {
        uint64_t size = cairn__block_size(cache->layout, i, cache->page_tokens);
        largest = size > largest ? size : largest;
    }
    cache->patience_ns = (o->patience_ms ? o->patience_ms : PATIENCE_MS) * UINT64_C(1000000) +
                         cache->n_cold_readers * largest * NS_PER_BYTE_IN_FLIGHT;
}

static cairn_status set_up(cairn_llama *cache, const cairn_llama_options *options, cairn_error *error)
{
    set_sizes(cache, options);
    cache->order = calloc(cache->n_ctx, sizeof *cache->order);
    cairn_status status = cache->order ? check_grid(cache, error) : CAIRN_ENOMEM;
    if (!status)
        status = cairn__probe(cache, error);
    if (status || !cairn__is_supported(cache))
        return status;
    set_patience(cache, options);
    status = start_threads(cache);
    if (!status)
        status = make_buffers(cache, options);
    if (!status)
        status = cairn__identity_build(cache, options, error);
    if (!status && cache->staging)
        cairn__staging_warmed(cache->staging, cache->pool);
    return status;
}

cairn_status cairn_llama_open(struct llama_model *model, struct llama_context *ctx, const cairn_llama_options *options,
                              cairn_llama **ret_cache, cairn_error *error)
{
    if (error)
        error->text[0] = 0;
    if (!model || !ctx || !options || !ret_cache)
        return fail(error, CAIRN_EINVAL, "model, context, options and the place for the result are required");
    cairn_status status = check_options(options, error);
    if (!status)
        status = check_shards(model, options, error);
    if (!status)
        status = check_context(model, ctx, options, error);
    if (status)
        return status;
    cairn_llama *cache = calloc(1, sizeof *cache);
    if (!cache)
        return fail(error, CAIRN_ENOMEM, "out of memory");
    cache->model = model;
    cache->ctx = ctx;
    cache->memory = llama_get_memory(ctx);
    cache->store = options->store;
    status = set_up(cache, options, error);
    if (status) {
        cairn_llama_close(cache);
        return error && error->text[0] ? status : fail(error, status, "%s", cairn_status_text(status));
    }
    *ret_cache = cache;
    return CAIRN_OK;
}

void cairn_llama_close(cairn_llama *cache)
{
    if (!cache)
        return;
    cairn__errand_finish(cache);
    cairn__pool_destroy(cache->clerk);
    cairn__pool_destroy(cache->cold_pool);
    cairn__pool_destroy(cache->pool); /* before the buffers that its tasks make */
    cairn__staging_drop(cache->staging);
    for (uint32_t i = 0; cache->tracks && i < cache->n_seq; i++)
        cairn__track_done(&cache->tracks[i]);
    free(cache->tracks);
    free(cache->pages);
    free(cache->blocks);
    free(cache->order);
    cairn__layout_destroy(cache->layout);
    cairn__namespace_done(&cache->space);
    cairn__layout_destroy(cache->partial);
    free(cache->empty_partial);
    free(cache);
}

const char *cairn_llama_unsupported(const cairn_llama *cache)
{
    return cairn__is_supported(cache) ? NULL : cache->unsupported;
}

const cairn_identity *cairn_llama_identity(const cairn_llama *cache)
{
    return cache->space.identity;
}

uint64_t cairn_llama_pages_given_up(const cairn_llama *cache)
{
    return cache->pages_given_up;
}
