/* runtime.c - opens model and context, and knows facts about them.
 *
 * Everything that a person can get wrong (no such file, not a model, a model
 * that can't generate, settings that exclude each other) ends here as one
 * sentence. Invariants: runtime_internal.h. */
#include "llama/runtime_internal.h"
#include "os/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CTX_DEFAULT_MAX 32768u /* a larger default surprises by its memory: 131k tokens of a 8B model are 18 GB */
#define SEQ_DEFAULT 4u
#define SEQ_MAX 255u /* llama.cpp allows 256 ids, one is the scratch sequence */

typedef struct progress_bridge {
    bool (*fn)(void *ctx, float fraction);
    void *ctx;
} progress_bridge;

static bool forward_progress(float fraction, void *user_data)
{
    const progress_bridge *bridge = user_data;
    return bridge->fn(bridge->ctx, fraction);
}

static enum ggml_type ggml_type_of(cairn__kv_type type)
{
    switch (type) {
    case CAIRN__KV_Q8_0:
        return GGML_TYPE_Q8_0;
    case CAIRN__KV_Q4_0:
        return GGML_TYPE_Q4_0;
    case CAIRN__KV_F32:
        return GGML_TYPE_F32;
    case CAIRN__KV_BF16:
        return GGML_TYPE_BF16;
    case CAIRN__KV_F16:
        break;
    }
    return GGML_TYPE_F16;
}

static bool abort_requested(void *data)
{
    const cairn__runtime *rt = data;
    return atomic_load_explicit(&rt->abort, memory_order_relaxed);
}

static cairn_status check_options(const cairn__runtime_options *options, cairn_error *error)
{
    bool quantized_v = options->type_v == CAIRN__KV_Q8_0 || options->type_v == CAIRN__KV_Q4_0;
    if (!options->model_path || !options->model_path[0])
        return cairn__runtime_fail(error, CAIRN_EINVAL, "no model given");
    if (quantized_v && options->flash_attn < 0)
        return cairn__runtime_fail(error, CAIRN_EINVAL,
                                   "a quantized V cache needs flash attention: turn it on, or use f16 for V");
    if (options->n_seq > SEQ_MAX)
        return cairn__runtime_fail(error, CAIRN_EINVAL, "at most %u resident sequences", SEQ_MAX);
    return CAIRN_OK;
}

static cairn_status load_model(cairn__runtime *rt, const cairn__runtime_options *options, cairn_error *error)
{
    progress_bridge bridge = {options->load_progress, options->load_progress_ctx};
    rt->model_params = llama_model_default_params();
    rt->model_params.n_gpu_layers = options->n_gpu_layers;
    struct llama_model_params params = rt->model_params; /* the bridge lives on this stack only */
    if (bridge.fn) {
        params.progress_callback = forward_progress;
        params.progress_callback_user_data = &bridge;
    }
    rt->model = rt->files.n == 1 ? llama_model_load_from_file(rt->files.names[0], params)
                                 : llama_model_load_from_splits((const char **)rt->files.names, rt->files.n, params);
    if (rt->model)
        return CAIRN_OK;
    char line[384];
    cairn__runtime_last_error(line, sizeof line);
    if (!line[0])
        return cairn__runtime_fail(error, CAIRN_ECANCELED, "loading the model %s was cancelled", options->model_path);
    return cairn__runtime_fail(error, CAIRN_EINVAL, "cannot load the model %.100s: %s", options->model_path, line);
}

/* A window's cache has its size once for each sequence. */
static uint32_t default_sequences(const cairn__runtime *rt)
{
    return llama_model_n_swa(rt->model) > 0 ? 2 : SEQ_DEFAULT;
}

static cairn_status check_model(const cairn__runtime *rt, const char *path, cairn_error *error)
{
    if (!llama_model_has_decoder(rt->model) || llama_model_has_encoder(rt->model))
        return cairn__runtime_fail(error, CAIRN_EINVAL,
                                   "the model %s has an encoder; only decoder models can be served", path);
    if (llama_model_is_diffusion(rt->model))
        return cairn__runtime_fail(error, CAIRN_EINVAL,
                                   "the model %s is a diffusion model; it does not generate token by token", path);
    return CAIRN_OK;
}

static void fill_context_params(cairn__runtime *rt, const cairn__runtime_options *options)
{
    uint32_t trained = (uint32_t)llama_model_n_ctx_train(rt->model);
    uint32_t n_ctx = options->n_ctx;
    if (!n_ctx)
        n_ctx = trained && trained < CTX_DEFAULT_MAX ? trained : CTX_DEFAULT_MAX;
    else if (trained && n_ctx > trained)
        snprintf(rt->warning, sizeof rt->warning,
                 "the context of %u tokens is longer than the %u the model was trained with; answers to long prompts "
                 "may be poor",
                 n_ctx, trained);
    uint32_t n_batch = options->n_batch ? options->n_batch : CAIRN__BATCH_DEFAULT;
    /* One resident sequence is all that the reproducible mode allows to hold cells. */
    rt->n_seq = options->reproducible ? 1 : options->n_seq ? options->n_seq : default_sequences(rt);

    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = n_ctx;
    p.n_batch = p.n_ubatch = n_batch < n_ctx ? n_batch : n_ctx;
    p.n_seq_max = rt->n_seq + 1;
    p.n_threads = p.n_threads_batch = options->n_threads > 0 ? options->n_threads : (int32_t)cairn__cpu_count();
    p.flash_attn_type = options->flash_attn < 0   ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                        : options->flash_attn > 0 ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                                                  : LLAMA_FLASH_ATTN_TYPE_AUTO;
    p.type_k = ggml_type_of(options->type_k);
    p.type_v = ggml_type_of(options->type_v);
    p.kv_unified = true;
    p.swa_full = false;
    p.no_perf = true;
    p.abort_callback = abort_requested;
    p.abort_callback_data = rt;
    rt->context_params = p;
}

static cairn_status open_context(cairn__runtime *rt, cairn_error *error)
{
    rt->ctx = cairn__guard_context(rt->model, &rt->context_params);
    if (!rt->ctx) {
        char line[384];
        cairn__runtime_last_error(line, sizeof line);
        return cairn__runtime_fail(error, CAIRN_EINVAL, "cannot open a context of %u tokens: %s",
                                   rt->context_params.n_ctx, line[0] ? line : "not enough memory");
    }
    rt->memory = llama_get_memory(rt->ctx);
    if (!rt->memory)
        return cairn__runtime_fail(error, CAIRN_EINVAL,
                                   "the model has no attention cache (an embedding or diffusion model?) and cannot "
                                   "generate text");
    rt->n_ctx = llama_n_ctx(rt->ctx);
    rt->n_batch = llama_n_batch(rt->ctx);
    rt->batch = llama_batch_init((int32_t)rt->n_batch, 0, 1);
    return rt->batch.token ? CAIRN_OK : CAIRN_ENOMEM;
}

/* What the memory can do is read off the blobs of an unused sequence: a partial
 * blob that is smaller than the full one leaves a section out, so there is more
 * than one kind of memory (LLAMA_CPP.md, "Every architecture"). */
static void find_memory_kind(cairn__runtime *rt)
{
    char   arch[64] = "";
    size_t full = llama_state_seq_get_size_ext(rt->ctx, 0, LLAMA_STATE_SEQ_FLAGS_NONE);
    size_t partial = llama_state_seq_get_size_ext(rt->ctx, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    llama_model_meta_val_str(rt->model, "general.architecture", arch, sizeof arch);
    if (strcmp(arch, "deepseek4") == 0 || /* seq_cp of a range ends the process there */
        llama_model_is_recurrent(rt->model) || llama_model_is_hybrid(rt->model))
        rt->memory_kind = CAIRN__MEMORY_OTHER;
    else
        rt->memory_kind = partial != full ? CAIRN__MEMORY_WINDOW : CAIRN__MEMORY_ATTENTION;
}

static void describe(cairn__runtime *rt)
{
    char name[96] = "", kind[96] = "";
    llama_model_meta_val_str(rt->model, "general.name", name, sizeof name);
    llama_model_desc(rt->model, kind, sizeof kind);
    if (name[0])
        snprintf(rt->description, sizeof rt->description, "%s (%s)", name, kind);
    else
        snprintf(rt->description, sizeof rt->description, "%s", kind);
    for (char *c = rt->description; *c; c++) /* a model file is hostile input; this goes into logs */
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
}

cairn_status cairn__runtime_open(const cairn__runtime_options *options, cairn__runtime **ret_runtime,
                                 cairn_error *error)
{
    if (error)
        error->text[0] = 0;
    cairn__runtime_log_install();
    cairn__runtime_log_reset();
    cairn_status status = check_options(options, error);
    if (status)
        return status;
    cairn__runtime *rt = calloc(1, sizeof *rt);
    if (!rt)
        return CAIRN_ENOMEM;
    atomic_init(&rt->abort, false);
    rt->reproducible = options->reproducible;
    rt->patience_ms = options->patience_ms;
    status = cairn__model_files_find(options->model_path, &rt->files, error);
    if (!status)
        status = load_model(rt, options, error);
    if (!status)
        status = check_model(rt, options->model_path, error);
    if (!status) {
        fill_context_params(rt, options);
        status = open_context(rt, error);
    }
    if (status) {
        if (error && !error->text[0])
            cairn__runtime_fail(error, status, "cannot open the model: %s", cairn_status_text(status));
        cairn__runtime_close(rt);
        return status;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(rt->model);
    rt->n_vocab = (uint32_t)llama_vocab_n_tokens(vocab);
    rt->vocab = llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE ? NULL : vocab;
    find_memory_kind(rt);
    describe(rt);
    *ret_runtime = rt;
    return CAIRN_OK;
}

void cairn__runtime_close(cairn__runtime *rt)
{
    if (!rt)
        return;
    cairn__runtime_cache_close(rt);
    if (rt->batch.token)
        llama_batch_free(rt->batch);
    if (rt->ctx)
        llama_free(rt->ctx);
    if (rt->model)
        llama_model_free(rt->model);
    cairn__model_files_done(&rt->files);
    free(rt);
}

const char *const *cairn__runtime_model_paths(const cairn__runtime *rt, uint32_t *ret_n)
{
    *ret_n = rt->files.n;
    return (const char *const *)rt->files.paths;
}

uint64_t cairn__runtime_model_bytes(const cairn__runtime *rt)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < rt->files.n; i++)
        bytes += rt->files.infos[i].size_bytes;
    return bytes;
}

bool cairn__runtime_model_unchanged(const cairn__runtime *rt)
{
    return cairn__model_files_unchanged(&rt->files);
}

uint32_t cairn__runtime_n_ctx(const cairn__runtime *rt)
{
    return rt->n_ctx;
}

uint32_t cairn__runtime_n_batch(const cairn__runtime *rt)
{
    return rt->n_batch;
}

uint32_t cairn__runtime_n_seq(const cairn__runtime *rt)
{
    return rt->n_seq;
}

uint32_t cairn__runtime_n_vocab(const cairn__runtime *rt)
{
    return rt->n_vocab;
}

const char *cairn__runtime_description(const cairn__runtime *rt)
{
    return rt->description;
}

const char *cairn__runtime_warning(const cairn__runtime *rt)
{
    return rt->warning[0] ? rt->warning : NULL;
}

bool cairn__runtime_needs_checkpoints(const cairn__runtime *rt)
{
    return rt->memory_kind != CAIRN__MEMORY_ATTENTION;
}

bool cairn__runtime_reproducible(const cairn__runtime *rt)
{
    return rt->reproducible;
}

const struct llama_model *cairn__runtime_model(const cairn__runtime *rt)
{
    return rt->model;
}
