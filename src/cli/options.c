/* options.c - the command line of `cairn serve`. Every wrong value is named with
 * what is allowed; nothing is guessed. */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPT_HOST = 256, OPT_PORT_FILE, OPT_ALIAS, OPT_CACHE_DIR, OPT_CACHE_DISK, OPT_CACHE_RESERVE, OPT_CACHE_KEY,
    OPT_CACHE_PER_DAY, OPT_REPRODUCIBLE,
    OPT_BATCH, OPT_SEQUENCES, OPT_GPU_LAYERS, OPT_FLASH_ATTN, OPT_TYPE_K, OPT_TYPE_V, OPT_TEMPLATE, OPT_MAX_BODY,
    OPT_READ_TIMEOUT, OPT_GRACE, OPT_VERBOSE, OPT_API_KEY_FILE, OPT_CACHE_TIMEOUT,
    OPT_WARM_START
};

static const struct option long_options[] = {
    {"model", required_argument, NULL, 'm'},
    {"host", required_argument, NULL, OPT_HOST},
    {"port", required_argument, NULL, 'p'},
    {"port-file", required_argument, NULL, OPT_PORT_FILE},
    {"alias", required_argument, NULL, OPT_ALIAS},
    {"api-key-file", required_argument, NULL, OPT_API_KEY_FILE},
    {"cache-dir", required_argument, NULL, OPT_CACHE_DIR},
    {"cache-disk", required_argument, NULL, OPT_CACHE_DISK},
    {"cache-reserve", required_argument, NULL, OPT_CACHE_RESERVE},
    {"cache-key-file", required_argument, NULL, OPT_CACHE_KEY},
    {"cache-timeout", required_argument, NULL, OPT_CACHE_TIMEOUT},
    {"cache-write-per-day", required_argument, NULL, OPT_CACHE_PER_DAY},
    {"warm-start", required_argument, NULL, OPT_WARM_START},
    {"reproducible", no_argument, NULL, OPT_REPRODUCIBLE},
    {"ctx", required_argument, NULL, 'c'},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"sequences", required_argument, NULL, OPT_SEQUENCES},
    {"threads", required_argument, NULL, 't'},
    {"gpu-layers", required_argument, NULL, OPT_GPU_LAYERS},
    {"flash-attn", required_argument, NULL, OPT_FLASH_ATTN},
    {"cache-type-k", required_argument, NULL, OPT_TYPE_K},
    {"cache-type-v", required_argument, NULL, OPT_TYPE_V},
    {"chat-template-file", required_argument, NULL, OPT_TEMPLATE},
    {"max-body", required_argument, NULL, OPT_MAX_BODY},
    {"read-timeout", required_argument, NULL, OPT_READ_TIMEOUT},
    {"grace", required_argument, NULL, OPT_GRACE},
    {"verbose", no_argument, NULL, OPT_VERBOSE},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

void cairn__cli_error(const char *format, ...)
{
    char    line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "cairn: %s\n", line);
}

typedef struct range {
    long long min, max;
} range;

static bool number(const char *name, const char *text, range allowed, long long *ret_value)
{
    char *end;
    errno           = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < allowed.min || value > allowed.max) {
        cairn__cli_error("--%s must be a whole number from %lld to %lld, not '%.60s'", name, allowed.min, allowed.max,
                         text);
        return false;
    }
    *ret_value = value;
    return true;
}

static bool number_u32(const char *name, const char *text, range allowed, uint32_t *ret_value)
{
    long long value;
    if (!number(name, text, allowed, &value))
        return false;
    *ret_value = (uint32_t)value;
    return true;
}

static bool number_i32(const char *name, const char *text, range allowed, int32_t *ret_value)
{
    long long value;
    if (!number(name, text, allowed, &value))
        return false;
    *ret_value = (int32_t)value;
    return true;
}

/* Index of text in names; -1 with a message. */
static int choice(const char *name, const char *text, const char *const *names, const char *list)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    cairn__cli_error("--%s must be %s, not '%.60s'", name, list, text);
    return -1;
}

static bool flash_attention(const char *text, int *ret_value)
{
    static const char *const names[] = {"off", "auto", "on", NULL};
    int                      i       = choice("flash-attn", text, names, "on, off or auto");
    *ret_value                       = i - 1;
    return i >= 0;
}

static bool on_or_off(const char *name, const char *text, bool *ret_value)
{
    static const char *const names[] = {"off", "on", NULL};
    int                      i       = choice(name, text, names, "on or off");
    *ret_value                       = i == 1;
    return i >= 0;
}

static bool kv_type(const char *name, const char *text, cairn__kv_type *ret_type)
{
    static const char *const    names[] = {"f16", "q8_0", "q4_0", "f32", "bf16", NULL};
    static const cairn__kv_type types[] = {CAIRN__KV_F16, CAIRN__KV_Q8_0, CAIRN__KV_Q4_0, CAIRN__KV_F32, CAIRN__KV_BF16};
    int                         i       = choice(name, text, names, "f16, q8_0, q4_0, f32 or bf16");
    if (i >= 0)
        *ret_type = types[i];
    return i >= 0;
}

static bool size(const char *name, const char *text, uint64_t *ret_bytes)
{
    if (cairn__cli_size(text, ret_bytes) && *ret_bytes > 0)
        return true;
    cairn__cli_error("--%s must be a size such as 512M or 20G, not '%.60s'", name, text);
    return false;
}

/* Bytes a day; off is 0, no bound. */
static bool per_day(const char *text, uint64_t *ret_bytes)
{
    if (strcmp(text, "off") == 0) {
        *ret_bytes = 0;
        return true;
    }
    if (cairn__cli_size(text, ret_bytes) && *ret_bytes > 0)
        return true;
    cairn__cli_error("--cache-write-per-day must be off or a size such as 100G, not '%.60s'", text);
    return false;
}

static bool seconds(const char *name, const char *text, uint32_t *ret_ms)
{
    if (!number_u32(name, text, (range){1, 3600}, ret_ms))
        return false;
    *ret_ms *= 1000;
    return true;
}

static bool port(const char *text, uint16_t *ret_port)
{
    long long value;
    if (!number("port", text, (range){0, 65535}, &value))
        return false;
    *ret_port = (uint16_t)value;
    return true;
}

static bool model_option(int option, const char *arg, cairn__runtime_options *rt)
{
    switch (option) {
    case 'c': return number_u32("ctx", arg, (range){16, 1 << 30}, &rt->n_ctx);
    case OPT_BATCH: return number_u32("batch", arg, (range){1, 1 << 20}, &rt->n_batch);
    case OPT_SEQUENCES: return number_u32("sequences", arg, (range){1, 200}, &rt->n_seq);
    case 't': return number_i32("threads", arg, (range){1, 4096}, &rt->n_threads);
    case OPT_GPU_LAYERS: return number_i32("gpu-layers", arg, (range){-1, 1 << 20}, &rt->n_gpu_layers);
    case OPT_FLASH_ATTN: return flash_attention(arg, &rt->flash_attn);
    case OPT_TYPE_K: return kv_type("cache-type-k", arg, &rt->type_k);
    case OPT_TYPE_V: return kv_type("cache-type-v", arg, &rt->type_v);
    case OPT_REPRODUCIBLE: rt->reproducible = true; return true;
    }
    return false;
}

static bool text_option(int option, const char *arg, cairn__serve_options *o)
{
    switch (option) {
    case 'm': o->runtime.model_path = arg; return true;
    case OPT_HOST: o->host = arg; return true;
    case OPT_PORT_FILE: o->port_file = arg; return true;
    case OPT_ALIAS: o->alias = arg; return true;
    case OPT_API_KEY_FILE: o->api_key_file = arg; return true;
    case OPT_CACHE_KEY: o->cache_key_file = arg; return true;
    case OPT_CACHE_DIR: o->cache_dir = arg; return true;
    case OPT_TEMPLATE: o->template_file = arg; return true;
    case OPT_VERBOSE: o->verbose = true; return true;
    case 'h': o->help = true; return true;
    }
    return false;
}

static bool one_option(int option, const char *arg, cairn__serve_options *o)
{
    switch (option) {
    case 'p': return port(arg, &o->port);
    case OPT_CACHE_DISK: return cairn__cli_cache_disk(arg, o);
    case OPT_CACHE_PER_DAY: return per_day(arg, &o->cache_per_day);
    case OPT_CACHE_RESERVE: return size("cache-reserve", arg, &o->cache_reserve);
    case OPT_WARM_START: return on_or_off("warm-start", arg, &o->warm_start);
    case OPT_CACHE_TIMEOUT: return seconds("cache-timeout", arg, &o->runtime.patience_ms);
    case OPT_MAX_BODY: return size("max-body", arg, &o->max_body_size);
    case OPT_READ_TIMEOUT: return number_u32("read-timeout", arg, (range){1, 86400}, &o->read_timeout_s);
    case OPT_GRACE: return number_u32("grace", arg, (range){0, 86400}, &o->grace_s);
    }
    return text_option(option, arg, o) || model_option(option, arg, &o->runtime);
}

/* getopt's own messages name the program, not the command; these say where to look. */
static bool unknown_option(int option, char **argv)
{
    const char *what = argv[optind - 1];
    if (option == ':')
        cairn__cli_error("%.80s needs a value; see: cairn help serve", what);
    else
        cairn__cli_error("unknown option %.80s; see: cairn help serve", what);
    return false;
}

bool cairn__cli_serve_options(int argc, char **argv, cairn__serve_options *ret_options)
{
    cairn__serve_options o = {.port = 8080, .grace_s = 20, .warm_start = true};
    int                  option;
    o.runtime.n_gpu_layers = -1;
    opterr                 = 0;
    optind                 = 1;
    while ((option = getopt_long(argc, argv, "+:m:p:c:t:h", long_options, NULL)) != -1) {
        if (option == '?' || option == ':')
            return unknown_option(option, argv);
        if (!one_option(option, optarg, &o))
            return false;
    }
    if (!o.help && optind < argc) {
        cairn__cli_error("'%.80s' is not an option; the model is given with -m", argv[optind]);
        return false;
    }
    if (!o.help && !o.runtime.model_path) {
        cairn__cli_error("no model given; use: cairn serve -m MODEL.gguf");
        return false;
    }
    *ret_options = o;
    return true;
}
