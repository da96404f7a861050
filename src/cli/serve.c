/* serve.c - `cairn serve`: everything is opened in the order in which it can fail
 * cheaply - address, store, model - and closed in the reverse one. */
#include "cli/cli.h"
#include "engine/engine.h"
#include "llama/chat.h"
#include "server/http.h"
#include "server/leave.h"
#include "server/log.h"
#include "server/server.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#define TEMPLATE_MAX_SIZE (4u << 20)
#define CLOSE_MS 10000u /* what is written has been flushed: only a disk that hangs takes longer */
#define AWAIT_STORE_MS 2000u /* hashes a model of 1 GB (1.3 GB/s a core); after that the address is worth more */

typedef struct parts {
    cairn__serve_options options;
    cairn_store         *store;
    cairn__engine       *engine;
    cairn__chat         *chat;
    cairn__server       *server;
    cairn__keys         *keys;
    char                *template_text;
    char                *model_name;
    char                *digest_dir;
    cairn_error          error, chat_error;
} parts;

/* Until the server runs, what fails is what the operator gave: a path, a file, an address. */
static int failed(const parts *p, cairn_status status)
{
    cairn__cli_error("%s", p->error.text[0] ? p->error.text : cairn_status_text(status));
    return status == CAIRN_ENOMEM || status == CAIRN_ERUNTIME ? 1 : 2;
}

/* ---- before the model ---- */

/* A server has a descriptor for each client and page; the soft limit is for programs with select(). */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static cairn_status read_template(parts *p)
{
    const char *path = p->options.template_file;
    if (!path)
        return CAIRN_OK;
    FILE *file       = fopen(path, "rb");
    p->template_text = file ? malloc(TEMPLATE_MAX_SIZE + 1) : NULL;
    size_t size      = p->template_text ? fread(p->template_text, 1, TEMPLATE_MAX_SIZE + 1, file) : 0;
    bool   ok        = p->template_text && !ferror(file) && size > 0 && size <= TEMPLATE_MAX_SIZE;
    if (file)
        fclose(file);
    if (ok) {
        p->template_text[size] = 0;
        return CAIRN_OK;
    }
    snprintf(p->error.text, sizeof p->error.text,
             "--chat-template-file %.300s can't be read, is empty, or is larger than 4 MiB", path);
    return CAIRN_EINVAL;
}

/* Name of the model for clients: the alias, else the file's name without .gguf. */
static cairn_status name_model(parts *p)
{
    const char *path  = p->options.runtime.model_path;
    const char *slash = strrchr(path, '/');
    p->model_name     = strdup(p->options.alias ? p->options.alias : slash ? slash + 1 : path);
    if (!p->model_name)
        return CAIRN_ENOMEM;
    size_t n = strlen(p->model_name);
    if (!p->options.alias && n > 5 && strcasecmp(p->model_name + n - 5, ".gguf") == 0)
        p->model_name[n - 5] = 0;
    return CAIRN_OK;
}

static cairn_status load_keys(parts *p)
{
    return p->options.api_key_file ? cairn__keys_load(p->options.api_key_file, &p->keys, &p->error) : CAIRN_OK;
}

static cairn_status bind_address(parts *p, cairn__http **ret_http)
{
    cairn__http_options options = {.host           = p->options.host,
                                   .port           = p->options.port,
                                   .max_body_size  = p->options.max_body_size,
                                   .read_timeout_s = p->options.read_timeout_s};
    return cairn__http_bind(&options, ret_http, &p->error);
}

/* Reproducible: whole pages only, so that a page larger than a grid step would
 * lose more than a step of the shared prefix; and one must divide the other. */
static cairn_status choose_page_size(parts *p, uint32_t *ret_page_tokens)
{
    const uint32_t n_ctx = p->options.runtime.n_ctx;
    uint32_t       grid  = p->options.runtime.n_batch ? p->options.runtime.n_batch : CAIRN__BATCH_DEFAULT;
    grid                 = n_ctx && n_ctx < grid ? n_ctx : grid;
    *ret_page_tokens    = CAIRN_PAGE_TOKENS_DEFAULT;
    if (!p->options.runtime.reproducible || grid % CAIRN_PAGE_TOKENS_DEFAULT == 0)
        return CAIRN_OK;
    *ret_page_tokens = grid;
    if (grid % 16 == 0 && grid <= 4096)
        return CAIRN_OK;
    snprintf(p->error.text, sizeof p->error.text,
             "--reproducible with a cache on disk needs a --batch that is a multiple of 256, or of 16 and at most "
             "4096, not %u; choose another, or turn the cache off with --cache-disk off", grid);
    return CAIRN_EINVAL;
}

static void log_engine(void *ctx, const char *line)
{
    (void)ctx;
    cairn__log_line("%s", line);
}

static cairn_status open_with_key(parts *p, cairn_store_options *options)
{
    uint8_t      key[CAIRN__SECRET_SIZE];
    cairn_status status = CAIRN_OK;
    if (p->options.cache_key_file) {
        status       = cairn__cli_read_key(p->options.cache_key_file, key, &p->error);
        options->key = key;
    }
    if (status == CAIRN_OK && p->options.cache_budget != CAIRN_BUDGET_OFF)
        status = cairn_store_open(options, &p->store, &p->error);
    cairn__wipe(key, sizeof key);
    options->key = NULL;
    return status;
}

static cairn_status open_store(parts *p)
{
    cairn_store_options options = {.root          = p->options.cache_dir,
                                   .budget_bytes  = p->options.cache_budget,
                                   .reserve_bytes = p->options.cache_reserve,
                                   .day_bytes     = p->options.cache_per_day,
                                   .notice        = log_engine};
    cairn_status        status  = CAIRN_OK;
    if (p->options.cache_budget != CAIRN_BUDGET_OFF)
        status = choose_page_size(p, &options.page_tokens);
    if (status == CAIRN_OK)
        status = open_with_key(p, &options);
    if (status == CAIRN_OK && !p->store)
        return CAIRN_OK;
    if (status != CAIRN_OK)
        return status;
    const char *root = cairn_store_root(p->store);
    p->digest_dir    = malloc(strlen(root) + sizeof "/digests");
    if (!p->digest_dir)
        return CAIRN_ENOMEM;
    sprintf(p->digest_dir, "%s/digests", root);
    return CAIRN_OK;
}

/* ---- the model ---- */

static cairn_status open_engine(parts *p)
{
    cairn__runtime       *rt      = NULL;
    cairn__engine_options options = {
        .reproducible = p->options.runtime.reproducible,
        .warm_start   = p->options.warm_start && !p->keys, /* prompts without a salt are nobody's then */
        .log          = log_engine};
    cairn__log_line("loading %s", p->options.runtime.model_path);
    cairn_status status = cairn__runtime_open(&p->options.runtime, &rt, &p->error);
    if (status != CAIRN_OK)
        return status;
    status = cairn__chat_create(rt, p->template_text, &p->chat, &p->chat_error);
    if (status != CAIRN_OK && (p->template_text || status != CAIRN_ENOTSUP)) {
        snprintf(p->error.text, sizeof p->error.text, "the chat template can't be used: %.400s", p->chat_error.text);
        cairn__runtime_close(rt);
        return p->template_text ? CAIRN_EINVAL : status;
    }
    status = cairn__engine_create(rt, &options, &p->engine);
    if (status != CAIRN_OK)
        cairn__runtime_close(rt);
    return status;
}

/* ---- SIGHUP ---- */

/* A budget that can't be read is no reason to end, nor to guess one. */
static void read_budget_again(void *ctx)
{
    parts            *p = ctx;
    uint64_t          budget;
    char              most[32], used[32];
    cairn_store_stats stats;
    if (!cairn__cli_read_budget(p->options.budget_file, &budget, &p->error)) {
        cairn__log_line("SIGHUP: %s; the cache's size stays as it is", p->error.text);
        return;
    }
    if (!p->store || budget == CAIRN_BUDGET_OFF) {
        cairn__log_line("SIGHUP: the cache on disk is turned on and off by a restart only");
        return;
    }
    if (cairn_store_set_budget(p->store, budget) != CAIRN_OK) {
        cairn__log_line("SIGHUP: the size of the disk can't be learnt; the cache's size stays as it is");
        return;
    }
    cairn_store_get_stats(p->store, &stats);
    cairn__log_line("SIGHUP: cache on disk: at most %s from now on (%s used)",
                    cairn__cli_size_text(stats.budget_bytes, most, sizeof most),
                    cairn__cli_size_text(stats.used_bytes, used, sizeof used));
}

/* ---- what the operator is told ---- */

static void say_cache(const parts *p)
{
    cairn_store_stats stats;
    char              most[32], used[32], free_size[32];
    if (!p->store) {
        cairn__log_line("cache on disk: off (--cache-disk off)");
        return;
    }
    cairn_store_get_stats(p->store, &stats);
    cairn__log_line("cache on disk: %s%s, at most %s (%s used), %s of the disk stay free; turn it off with "
                    "--cache-disk off",
                    cairn_store_root(p->store), p->options.cache_key_file ? " (encrypted)" : "",
                    cairn__cli_size_text(stats.budget_bytes, most, sizeof most),
                    cairn__cli_size_text(stats.used_bytes, used, sizeof used),
                    cairn__cli_size_text(stats.reserve_bytes, free_size, sizeof free_size));
}

static void say_model(const parts *p)
{
    const cairn__runtime *rt = cairn__engine_runtime(p->engine);
    cairn__log_line("model: %s (%s), context %u tokens%s", p->model_name, cairn__runtime_description(rt),
                    cairn__runtime_n_ctx(rt), p->options.runtime.reproducible ? ", reproducible" : "");
    if (!p->chat)
        cairn__log_line("chat is off: %s", p->chat_error.text);
}

static bool is_loopback(const char *host)
{
    struct in_addr  v4;
    struct in6_addr v6;
    if (!host || strcmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static void say_address(const parts *p, uint16_t port)
{
    const char *host = p->options.host ? p->options.host : "127.0.0.1";
    bool        v6   = strchr(host, ':') != NULL;
    if (p->keys)
        cairn__log_line("asks for one of %u API keys", cairn__keys_count(p->keys));
    if (!is_loopback(p->options.host))
        cairn__log_line("warning: %s can be reached from other machines %s", host,
                        p->keys ? "and speaks plain HTTP: keys and prompts can be read on the way; put a proxy with "
                                  "TLS in front"
                                : "and asks for no key; anyone who reaches it can use the model: --api-key-file");
    cairn__log_line("listening on http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

/* Written beside and renamed, so that who waits for it never reads half a number. */
static cairn_status write_port_file(parts *p, uint16_t port)
{
    char temporary[1024];
    if (!p->options.port_file)
        return CAIRN_OK;
    int   n    = snprintf(temporary, sizeof temporary, "%s.tmp", p->options.port_file);
    FILE *file = n > 0 && (size_t)n < sizeof temporary ? fopen(temporary, "w") : NULL;
    bool  ok   = file && fprintf(file, "%u\n", port) > 0;
    if (file)
        ok = fclose(file) == 0 && ok;
    if (ok && rename(temporary, p->options.port_file) == 0)
        return CAIRN_OK;
    snprintf(p->error.text, sizeof p->error.text, "--port-file %.300s can't be written", p->options.port_file);
    return CAIRN_EINVAL;
}

/* ---- the whole ---- */

static cairn_status prepare(parts *p, cairn__http **ret_http)
{
    cairn_status status = name_model(p);
    if (status == CAIRN_OK)
        status = cairn__runtime_check_model(p->options.runtime.model_path, &p->error);
    if (status == CAIRN_OK)
        status = read_template(p);
    if (status == CAIRN_OK)
        status = load_keys(p);
    if (status == CAIRN_OK)
        status = bind_address(p, ret_http);
    if (status == CAIRN_OK)
        status = open_store(p);
    if (status == CAIRN_OK)
        status = open_engine(p);
    return status;
}

static cairn_status serve(parts *p, cairn__http *http_take)
{
    uint16_t              port    = cairn__http_port(http_take);
    cairn__server_options options = {.http         = http_take,
                                     .engine       = p->engine,
                                     .chat         = p->chat,
                                     .chat_error   = p->chat_error.text,
                                     .model_name   = p->model_name,
                                     .keys         = p->keys,
                                     .reproducible = p->options.runtime.reproducible,
                                     .grace_ms     = p->options.grace_s * 1000,
                                     .reload       = p->options.budget_file ? read_budget_again : NULL,
                                     .reload_ctx   = p};
    say_model(p);
    say_cache(p);
    cairn_status status = CAIRN_OK;
    if (p->store)
        status = cairn__engine_attach_store(p->engine, p->store, p->digest_dir);
    if (status != CAIRN_OK) {
        cairn__http_destroy(http_take);
        return status;
    }
    if (p->store)
        (void)cairn__engine_await_store(p->engine, AWAIT_STORE_MS); /* larger models are hashed while we serve */
    status = cairn__server_create(&options, &p->server, &p->error);
    if (status == CAIRN_OK)
        status = write_port_file(p, port);
    if (status != CAIRN_OK)
        return status;
    say_address(p, port);
    cairn__server_run(p->server);
    return CAIRN_OK;
}

static void close_parts(parts *p, int exit_code)
{
    if (p->store)
        cairn__leave_within(CLOSE_MS, exit_code);
    if (p->engine)
        cairn__engine_stop(p->engine, 0); /* a second time does nothing */
    cairn__server_destroy(p->server);
    cairn__chat_destroy(p->chat);
    if (p->engine)
        cairn__engine_destroy(p->engine);
    cairn_store_close(p->store);
    cairn__keys_destroy(p->keys);
    free(p->template_text);
    free(p->model_name);
    free(p->digest_dir);
}

int cairn__cli_serve(int argc, char **argv)
{
    parts        p    = {0};
    cairn__http *http = NULL;
    if (!cairn__cli_serve_options(argc, argv, &p.options))
        return 2;
    if (p.options.help) {
        (void)cairn__cli_help("serve", stdout);
        return 0;
    }
    cairn__log_set_verbose(p.options.verbose);
    raise_file_limit();
    cairn_status status = prepare(&p, &http);
    if (status == CAIRN_OK)
        status = serve(&p, http);
    else
        cairn__http_destroy(http);
    int code = status == CAIRN_OK ? 0 : failed(&p, status);
    close_parts(&p, code);
    return code;
}
