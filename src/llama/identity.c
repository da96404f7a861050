/* identity.c - everything that changes the bytes of KV, except the tokens.
 *
 * DESIGN.md section 4 lists what has to be in it. "model" as a value means: as
 * the weights file says, whose digest is a field of its own. Nothing per
 * process: no ids, paths, pointers, times; of the context size only what it
 * selects. A field too many costs a needless miss, one too few a wrong answer,
 * so what can't be found out exactly is recorded as it was given.
 *
 * A control vector can't be asked for and has no option: a program that sets
 * one puts its digest into the salt. */
#include "llama/adapter.h"

#include "base/bytes.h"
#include "base/digest.h"

#include <gguf.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_SIZE = 1024 };

typedef struct builder { /* the first error stays */
    cairn_identity            *identity;
    const cairn_llama         *cache;
    const cairn_llama_options *options;
    cairn_error               *error;
    cairn_status               status;
} builder;

static void set(builder *b, const char *key, const char *value)
{
    if (!b->status)
        b->status = cairn_identity_set(b->identity, key, value);
}

static void set_i64(builder *b, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    set(b, key, text);
}

static void set_digest(builder *b, const char *key, const cairn_digest *value)
{
    if (!b->status)
        b->status = cairn_identity_set_digest(b->identity, key, value);
}

/* Shortest text that gives back the same number in any locale: hexadecimal. */
static void format_float(char *text, size_t size, double value)
{
    snprintf(text, size, "%a", value);
    for (char *c = text; *c; c++)
        if (*c == ',')
            *c = '.';
}

static void set_float(builder *b, const char *key, bool given, float value)
{
    char text[64];
    format_float(text, sizeof text, (double)value);
    set(b, key, given ? text : "model");
}

/* Printable ASCII stays, all else and '%' becomes %XX. */
static void escape(const char *text, size_t max, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < max && text[i] && n + 4 < size; i++) {
        unsigned char c = (unsigned char)text[i];
        n += (size_t)snprintf(out + n, size - n, c > ' ' && c < 127 && c != '%' ? "%c" : "%%%02X", c);
    }
    out[n] = 0;
}

/* ---- weights, adapters, tenant ---- */

static cairn_status digest_files(builder *b, const char *const *paths, uint32_t n_paths, bool progress,
                                 cairn_digest *ret_digest)
{
    char        cache_dir[4096] = "";
    const char *root = cairn_store_root(b->cache->store);
    if (root && root[0])
        snprintf(cache_dir, sizeof cache_dir, "%s/digests", root);
    cairn_weights_request request = {
        .paths = paths,
        .n_paths = n_paths,
        .cache_dir = cache_dir[0] ? cache_dir : NULL,
        .progress = progress ? b->options->progress : NULL,
        .progress_ctx = b->options->progress_ctx,
    };
    return cairn_store_weights_digest(b->cache->store, &request, ret_digest, b->error);
}

static void set_weights(builder *b)
{
    cairn_digest digest;
    if (b->options->weights)
        digest = *b->options->weights;
    else if (!b->status)
        b->status = digest_files(b, b->options->model_paths, b->options->n_model_paths, true, &digest);
    set_digest(b, "weights", &digest);
    set(b, "layers", "whole");
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* KEY.0, KEY.1, ...: lines in sorted order, as the order they were given in does not matter. */
static void set_sorted(builder *b, const char *key, char **lines, uint32_t n)
{
    qsort(lines, n, sizeof *lines, compare_text);
    for (uint32_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%u", key, i);
        set(b, name, lines[i]);
    }
}

static void free_lines(char **lines, uint32_t n)
{
    for (uint32_t i = 0; lines && i < n; i++)
        free(lines[i]);
    free(lines);
}

static void add_line(builder *b, char **lines, uint32_t *n, const char *line)
{
    char *copy = b->status ? NULL : strdup(line);
    if (copy)
        lines[(*n)++] = copy;
    else if (!b->status)
        b->status = CAIRN_ENOMEM;
}

static void set_adapters(builder *b)
{
    uint32_t n = 0;
    char   **lines = calloc((size_t)b->options->n_adapters + 1, sizeof *lines);
    if (!lines)
        b->status = CAIRN_ENOMEM;
    for (uint32_t i = 0; i < b->options->n_adapters && !b->status; i++) {
        const cairn_llama_adapter *adapter = &b->options->adapters[i];
        cairn_digest               digest;
        if (adapter->scale == 0)
            continue; /* adds nothing */
        b->status = digest_files(b, &adapter->path, 1, false, &digest);
        if (b->status)
            break;
        char hex[65], scale[64], line[160];
        cairn__hex(digest.bytes, sizeof digest.bytes, hex);
        format_float(scale, sizeof scale, (double)adapter->scale);
        snprintf(line, sizeof line, "%s*%s", hex, scale);
        add_line(b, lines, &n, line);
    }
    if (lines)
        set_sorted(b, "adapter", lines, n);
    free_lines(lines, n);
}

static void set_salt(builder *b)
{
    if (!b->options->salt) {
        set(b, "salt", "none");
        return;
    }
    cairn_digest digest = cairn__sha256_once(b->options->salt, strlen(b->options->salt));
    set_digest(b, "salt", &digest);
}

static void override_line(const struct llama_model_kv_override *o, char *line, size_t size)
{
    char key[3 * sizeof o->key + 1], value[3 * sizeof o->val_str + 1];
    escape(o->key, sizeof o->key, key, sizeof key);
    switch (o->tag) {
    case LLAMA_KV_OVERRIDE_TYPE_INT:
        snprintf(line, size, "%s=int:%lld", key, (long long)o->val_i64);
        return;
    case LLAMA_KV_OVERRIDE_TYPE_FLOAT:
        format_float(value, sizeof value, o->val_f64);
        snprintf(line, size, "%s=float:%s", key, value);
        return;
    case LLAMA_KV_OVERRIDE_TYPE_BOOL:
        snprintf(line, size, "%s=bool:%d", key, o->val_bool);
        return;
    case LLAMA_KV_OVERRIDE_TYPE_STR:
        escape(o->val_str, sizeof o->val_str, value, sizeof value);
        snprintf(line, size, "%s=str:%s", key, value);
        return;
    }
    snprintf(line, size, "%s=unknown", key);
}

/* Of two overrides of one key llama.cpp takes the first, so the other is not a
 * part of the identity, and their order is no longer told after sorting. */
static bool is_repeated(const struct llama_model_kv_override *overrides, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (!strncmp(overrides[i].key, overrides[index].key, sizeof overrides[i].key))
            return true;
    return false;
}

static void set_overrides(builder *b)
{
    const struct llama_model_kv_override *overrides = b->options->model_params->kv_overrides;
    uint32_t                              n = 0, n_lines = 0;
    while (overrides && overrides[n].key[0])
        n++;
    char **lines = calloc((size_t)n + 1, sizeof *lines);
    if (!lines)
        b->status = CAIRN_ENOMEM;
    for (uint32_t i = 0; i < n && !b->status; i++) {
        char line[VALUE_SIZE];
        if (is_repeated(overrides, i))
            continue;
        override_line(&overrides[i], line, sizeof line);
        add_line(b, lines, &n_lines, line);
    }
    if (lines)
        set_sorted(b, "override", lines, n_lines);
    free_lines(lines, n_lines);
}

/* ---- the cache's shape, positions ---- */

static const char *type_name(const cairn__layout *layout, uint32_t segment)
{
    int32_t type = layout->segments[segment].type;
    return type < GGML_TYPE_COUNT ? ggml_type_name((enum ggml_type)type) : "unknown";
}

static bool is_quantized(const cairn__layout *layout)
{
    for (uint32_t i = 0; i < layout->n_segments; i++)
        if (layout->segments[i].type >= GGML_TYPE_COUNT || ggml_is_quantized((enum ggml_type)layout->segments[i].type))
            return true;
    return false;
}

static void set_windows(builder *b)
{
    set(b, "kv.windows",
        llama_model_n_swa(b->cache->model) == 0        ? "none"
        : b->options->context_params->swa_full ? "full"
                                               : "cut");
}

static void set_shape(builder *b)
{
    if (b->cache->partial)
        set_digest(b, "layout.checkpoint", &b->cache->partial->digest);
    set_windows(b);
    const cairn__layout *layout = b->cache->layout;
    if (!layout) {
        set(b, "layout", "none"); /* recurrent state alone */
        return;
    }
    const cairn__section *section = &layout->sections[0];
    const char           *rotation = getenv("LLAMA_ATTN_ROT_DISABLE"); /* as llama.cpp reads it */
    set_digest(b, "layout", &layout->digest);
    set(b, "kv.type_k", type_name(layout, section->first_segment));
    set(b, "kv.type_v", section->has_v ? type_name(layout, section->first_segment + section->n_layer) : "none");
    set(b, "kv.v_transposed", section->v_trans ? "yes" : "no");
    set(b, "flash_attn", section->v_trans ? "off" : "on"); /* V is transposed exactly when it is off */
    set(b, "kv.rotation", !is_quantized(layout) ? "none" : rotation && atoi(rotation) ? "disabled" : "enabled");
}

/* 1: one of the shards holds long or short rope factors; 0: none does; -1: can't
 * be read. rope_freqs go before both (llama_model::get_rope_factors). */
static int has_rope_factors(const cairn_llama_options *options)
{
    int result = 0;
    for (uint32_t i = 0; i < options->n_model_paths; i++) {
        struct gguf_context *gguf = gguf_init_from_file(options->model_paths[i], (struct gguf_init_params){.no_alloc = true});
        if (!gguf)
            return -1;
        for (int64_t t = 0; t < gguf_get_n_tensors(gguf); t++)
            if (strstr(gguf_get_tensor_name(gguf, t), "rope_factors_"))
                result = 1;
        gguf_free(gguf);
    }
    return result;
}

static bool read_size(const struct llama_model *model, const char *architecture, const char *name, uint32_t *ret_size)
{
    char key[128], value[64], *end;
    snprintf(key, sizeof key, "%s.%s", architecture, name);
    if (llama_model_meta_val_str(model, key, value, sizeof value) <= 0)
        return false;
    unsigned long n = strtoul(value, &end, 10);
    if (end == value || *end != 0)
        return false;
    *ret_size = (uint32_t)n;
    return true;
}

/* The original context of the model, against which llama.cpp compares the
 * context size: as the metadata says, else the training context. Not
 * llama_model_n_ctx_train(): creating a context with a YaRN scale of its own
 * changes what it returns, and not what is compared. */
static bool original_context(const struct llama_model *model, uint32_t *ret_size)
{
    char architecture[64] = "";
    llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture);
    return read_size(model, architecture, "rope.scaling.original_context_length", ret_size) ||
           read_size(model, architecture, "context_length", ret_size);
}

/* llama_model_meta_val_str() does not see overrides. */
static bool overrides_context(const cairn_llama_options *options)
{
    const struct llama_model_kv_override *o = options->model_params->kv_overrides;
    for (; o && o->key[0]; o++)
        if (strstr(o->key, "context_length"))
            return true;
    return false;
}

/* rope_long or rope_short is chosen by the context size: it changes K. */
static void set_rope_factors(builder *b)
{
    int has = has_rope_factors(b->options);
    if (has == 0) {
        set(b, "rope.factors", "none");
        return;
    }
    const uint32_t n_ctx = llama_n_ctx_seq(b->cache->ctx);
    uint32_t       original = 0;
    bool           known = original_context(b->cache->model, &original);
    set(b, "rope.factors", n_ctx > original ? "long" : "short");
    if (has < 0 || !known || overrides_context(b->options))
        set_i64(b, "rope.n_ctx", n_ctx); /* which set it selects is not certain: assume that any size matters */
}

static void set_positions(builder *b)
{
    const struct llama_context_params *p = b->options->context_params;
    if (p->rope_scaling_type == LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED)
        set(b, "rope.scaling", "model");
    else
        set_i64(b, "rope.scaling", p->rope_scaling_type);
    set_float(b, "rope.freq_base", p->rope_freq_base != 0, p->rope_freq_base);
    set_float(b, "rope.freq_scale", p->rope_freq_scale != 0, p->rope_freq_scale);
    set_float(b, "yarn.ext_factor", p->yarn_ext_factor >= 0, p->yarn_ext_factor);
    set_float(b, "yarn.attn_factor", p->yarn_attn_factor >= 0, p->yarn_attn_factor);
    set_float(b, "yarn.beta_fast", p->yarn_beta_fast >= 0, p->yarn_beta_fast);
    set_float(b, "yarn.beta_slow", p->yarn_beta_slow >= 0, p->yarn_beta_slow);
    if (p->yarn_orig_ctx)
        set_i64(b, "yarn.orig_ctx", p->yarn_orig_ctx);
    else
        set(b, "yarn.orig_ctx", "model");
    set_rope_factors(b);
    if (p->attention_type == LLAMA_ATTENTION_TYPE_UNSPECIFIED)
        set(b, "attention", "model");
    else
        set(b, "attention", p->attention_type == LLAMA_ATTENTION_TYPE_CAUSAL ? "causal" : "non-causal");
    set_i64(b, "context_type", p->ctx_type);
}

/* ---- the machine ---- */

static bool uses_gpu(const cairn_llama_options *options)
{
    return options->model_params->n_gpu_layers != 0 || options->context_params->offload_kqv;
}

bool cairn__device_in_use(const cairn_llama_options *options, ggml_backend_dev_t device)
{
    enum ggml_backend_dev_type type = ggml_backend_dev_type(device);
    if (type == GGML_BACKEND_DEVICE_TYPE_ACCEL)
        return true;
    if (type == GGML_BACKEND_DEVICE_TYPE_CPU || !uses_gpu(options))
        return false;
    const ggml_backend_dev_t *chosen = options->model_params->devices;
    for (; chosen && *chosen; chosen++)
        if (*chosen == device)
            return true;
    return options->model_params->devices == NULL;
}

static bool has_line(char **lines, uint32_t n, const char *line)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(lines[i], line))
            return true;
    return false;
}

/* Class and model of every device that computes KV; two of a kind are one line. */
static void set_devices(builder *b)
{
    size_t   n_devices = ggml_backend_dev_count();
    uint32_t n = 0;
    char   **lines = calloc(n_devices + 1, sizeof *lines);
    if (!lines)
        b->status = CAIRN_ENOMEM;
    for (size_t i = 0; i < n_devices && !b->status; i++) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        char               name[3 * 128], line[512];
        if (!cairn__device_in_use(b->options, device))
            continue;
        escape(ggml_backend_dev_description(device), 128, name, sizeof name);
        snprintf(line, sizeof line, "%s:%s", ggml_backend_reg_name(ggml_backend_dev_backend_reg(device)), name);
        if (!has_line(lines, n, line))
            add_line(b, lines, &n, line);
    }
    if (n == 0)
        set(b, "device", "cpu");
    else
        set_sorted(b, "device", lines, n);
    free_lines(lines, n);
}

static void set_machine(builder *b)
{
#if defined(__x86_64__)
    set(b, "cpu", "x86_64");
#elif defined(__aarch64__)
    set(b, "cpu", "aarch64");
#elif defined(__riscv)
    set(b, "cpu", "riscv");
#elif defined(__powerpc64__)
    set(b, "cpu", "ppc64");
#elif defined(__s390x__)
    set(b, "cpu", "s390x");
#else
    set(b, "cpu", "other");
#endif
    const uint16_t one = 1;
    set(b, "byte_order", *(const uint8_t *)&one ? "little" : "big");
    set_i64(b, "pointer_bits", 8 * (int64_t)sizeof(void *));
    set_devices(b);
    if (!b->status)
        b->status = cairn__identity_add_libraries(b->identity);
}

/* Placement of tensors: patterns and buffer types, parts of each device. */
static void set_placement(builder *b, const struct llama_model_params *p)
{
    char  *text = NULL;
    size_t size = 0;
    FILE  *out = open_memstream(&text, &size);
    if (!out) {
        b->status = CAIRN_ENOMEM;
        return;
    }
    for (const struct llama_model_tensor_buft_override *o = p->tensor_buft_overrides; o && o->pattern; o++)
        fprintf(out, "%s=%s\n", o->pattern, ggml_backend_buft_name(o->buft));
    for (size_t i = 0; p->tensor_split && i < llama_max_devices(); i++)
        fprintf(out, "%a\n", (double)p->tensor_split[i]);
    if (fclose(out) == 0) {
        cairn_digest digest = cairn__sha256_once(text, size);
        set_digest(b, "reproducible.placement", &digest);
    } else {
        b->status = CAIRN_ENOMEM;
    }
    free(text);
}

/* Reproducible: also what decides the shape and the kernels of a decode call. */
static void set_reproducible(builder *b)
{
    const struct llama_model_params   *m = b->options->model_params;
    const struct llama_context_params *c = b->options->context_params;
    const char                        *info = llama_print_system_info();
    cairn_digest                       system = cairn__sha256_once(info, strlen(info));
    set_i64(b, "reproducible.grid", b->cache->grid_tokens);
    set_i64(b, "reproducible.n_threads", llama_n_threads(b->cache->ctx));
    set_i64(b, "reproducible.n_threads_batch", llama_n_threads_batch(b->cache->ctx));
    set_i64(b, "reproducible.n_ubatch", llama_n_ubatch(b->cache->ctx));
    set_i64(b, "reproducible.n_gpu_layers", m->n_gpu_layers);
    set_i64(b, "reproducible.split_mode", m->split_mode);
    set_i64(b, "reproducible.main_gpu", m->main_gpu);
    set_i64(b, "reproducible.offload_kqv", c->offload_kqv);
    set_i64(b, "reproducible.op_offload", c->op_offload);
    set_i64(b, "reproducible.repack", m->use_extra_bufts);
    set_i64(b, "reproducible.no_host", m->no_host);
    set_placement(b, m);
    set_digest(b, "reproducible.system", &system);
}

cairn_status cairn__identity_build(cairn_llama *cache, const cairn_llama_options *options, cairn_error *error)
{
    cairn_identity *identity;
    cairn_status    status = cairn_identity_create(&identity);
    if (status)
        return status;
    builder b = {identity, cache, options, error, CAIRN_OK};
    set(&b, "format", "cairn kv 1");
    set_weights(&b);
    set_adapters(&b);
    set_salt(&b);
    set_overrides(&b);
    set_shape(&b);
    set_positions(&b);
    set_machine(&b);
    if (cache->grid_tokens)
        set_reproducible(&b);
    if (b.status) {
        cairn_identity_destroy(identity);
        return b.status;
    }
    cairn__namespace_init(cache, &cache->space, identity);
    return CAIRN_OK;
}
