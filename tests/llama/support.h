/* support.h - what the tests of the adapter share: models, contexts, prompts,
 * a store in a temporary folder, and fresh processes of the test itself. */
#ifndef CAIRN_TESTS_LLAMA_SUPPORT_H
#define CAIRN_TESTS_LLAMA_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../skip.h"

#include "cairn/llama.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAYBE_UNUSED __attribute__((unused))

/* Ends a child with a reason that the parent's log shows. */
#define REQUIRE(condition)                                                        \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

typedef struct runtime {
    struct llama_model         *model;
    struct llama_context       *ctx;
    llama_memory_t              memory;
    struct llama_model_params   model_params;
    struct llama_context_params context_params;
    const char                 *path;
    uint32_t                    n_vocab;
} runtime;

static void quiet(enum ggml_log_level level, const char *text, void *ctx)
{
    (void)ctx;
    if (level == GGML_LOG_LEVEL_ERROR && getenv("CAIRN_TEST_VERBOSE"))
        fputs(text, stderr);
}

MAYBE_UNUSED static void init_llama(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* a sanitizer's exit loses what is buffered */
    llama_log_set(quiet, NULL);
    llama_backend_init();
}

MAYBE_UNUSED static const char *model_path(void)
{
    static char path[4096];
    const char *given = getenv("CAIRN_TEST_MODEL");
    if (given)
        return given;
    snprintf(path, sizeof path, "%s/.cache/cairn-build/models/SmolLM2-135M-Instruct.Q4_1.gguf", getenv("HOME"));
    return path;
}

MAYBE_UNUSED static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Where one of the tiny models that test-llama-archs writes should be. */
MAYBE_UNUSED static const char *tiny_path(const char *name)
{
    static char path[4096];
    const char *given = getenv("CAIRN_TEST_ARCHS_DIR");
    if (given && given[0])
        snprintf(path, sizeof path, "%s/%s.gguf", given, name);
    else
        snprintf(path, sizeof path, "%s/.cache/cairn-build/archs-1/%s.gguf", getenv("HOME"), name);
    return path;
}

/* The same; without the file the test is skipped. */
MAYBE_UNUSED static const char *tiny_model(const char *name)
{
    const char *path = tiny_path(name);
    if (!is_file(path)) {
        print_message("no model at %s: set CAIRN_TEST_ARCHS_DIR\n", path);
        test_skip();
    }
    return path;
}

MAYBE_UNUSED static runtime load(const char *path)
{
    runtime rt = {.path = path, .model_params = llama_model_default_params()};
    rt.model = llama_model_load_from_file(path, rt.model_params);
    REQUIRE(rt.model != NULL);
    rt.n_vocab = (uint32_t)llama_vocab_n_tokens(llama_model_get_vocab(rt.model));
    return rt;
}

typedef struct kv_setup {
    const char    *name;
    enum ggml_type type_k, type_v;
    bool           flash;
} kv_setup;

MAYBE_UNUSED static struct llama_context_params context_params(const kv_setup *kv, uint32_t n_ctx, uint32_t n_batch)
{
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = n_ctx;
    p.n_batch = p.n_ubatch = n_batch;
    p.n_seq_max = 4;
    p.kv_unified = true;
    p.flash_attn_type = kv->flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.type_k = kv->type_k;
    p.type_v = kv->type_v;
    p.n_threads = p.n_threads_batch = 1; /* more only spin where tests run beside each other */
    return p;
}

MAYBE_UNUSED static void open_context(runtime *rt, struct llama_context_params params)
{
    if (rt->ctx)
        llama_free(rt->ctx);
    rt->context_params = params;
    rt->ctx = llama_init_from_model(rt->model, params);
    REQUIRE(rt->ctx != NULL);
    rt->memory = llama_get_memory(rt->ctx);
}

MAYBE_UNUSED static void unload(runtime *rt)
{
    llama_free(rt->ctx);
    llama_model_free(rt->model);
}

/* ---- tokens and decoding ---- */

/* Pseudo-random token ids, the same for the same seed everywhere. */
MAYBE_UNUSED static llama_token *make_tokens(uint32_t n, uint32_t n_vocab, uint64_t seed)
{
    llama_token *tokens = malloc(sizeof *tokens * n);
    uint64_t     x = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    REQUIRE(tokens != NULL);
    for (uint32_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        tokens[i] = (llama_token)((x >> 20) % n_vocab);
    }
    return tokens;
}

/* Tokens [from, to) in one call; logits for the last. */
MAYBE_UNUSED static int decode(runtime *rt, llama_seq_id seq, const llama_token *tokens, uint32_t from, uint32_t to)
{
    struct llama_batch batch = llama_batch_init((int32_t)(to - from), 0, 1);
    for (uint32_t at = from; at < to; at++) {
        int32_t i = batch.n_tokens++;
        batch.token[i] = tokens[at];
        batch.pos[i] = (llama_pos)at;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = seq;
        batch.logits[i] = at + 1 == to;
    }
    int rc = llama_decode(rt->ctx, batch);
    llama_batch_free(batch);
    return rc;
}

/* Tokens [from, to), calls ending at multiples of step. */
MAYBE_UNUSED static void prefill(runtime *rt, llama_seq_id seq, const llama_token *tokens, uint32_t from, uint32_t to,
                                 uint32_t step)
{
    while (from < to) {
        uint32_t end = (from / step + 1) * step;
        end = end < to ? end : to;
        REQUIRE(decode(rt, seq, tokens, from, end) == 0);
        from = end;
    }
}

/* Logits after a tail: one call of n_batch tokens, then n_single calls of one;
 * [1 + n_single][n_vocab], malloc()ed. */
typedef struct tail {
    uint32_t from, n_batch, n_single;
} tail;

MAYBE_UNUSED static float *decode_tail(runtime *rt, llama_seq_id seq, const llama_token *tokens, tail t)
{
    const size_t row = rt->n_vocab;
    float       *all = malloc((1 + t.n_single) * row * sizeof *all);
    uint32_t     at = t.from + t.n_batch;
    REQUIRE(all != NULL);
    REQUIRE(decode(rt, seq, tokens, t.from, at) == 0);
    memcpy(all, llama_get_logits_ith(rt->ctx, -1), row * sizeof *all);
    for (uint32_t i = 1; i <= t.n_single; i++, at++) {
        REQUIRE(decode(rt, seq, tokens, at, at + 1) == 0);
        memcpy(all + i * row, llama_get_logits_ith(rt->ctx, -1), row * sizeof *all);
    }
    return all;
}

MAYBE_UNUSED static size_t tail_size(const runtime *rt, tail t)
{
    return (1 + (size_t)t.n_single) * rt->n_vocab * sizeof(float);
}

/* ---- files ---- */

MAYBE_UNUSED static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    REQUIRE(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

MAYBE_UNUSED static void *read_file(const char *path, size_t *ret_size)
{
    FILE *f = fopen(path, "rb");
    REQUIRE(f && fseek(f, 0, SEEK_END) == 0);
    *ret_size = (size_t)ftell(f);
    rewind(f);
    void *data = malloc(*ret_size + 1);
    REQUIRE(data && fread(data, 1, *ret_size, f) == *ret_size);
    fclose(f);
    return data;
}

MAYBE_UNUSED static void make_temp(char *dir, size_t size)
{
    const char *base = getenv("TMPDIR");
    snprintf(dir, size, "%s/cairn-test-XXXXXX", base ? base : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
}

MAYBE_UNUSED static void remove_tree(const char *path)
{
    DIR           *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char child[4096];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        struct stat st;
        if (lstat(child, &st) == 0 && S_ISDIR(st.st_mode))
            remove_tree(child);
        else
            unlink(child);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

/* ---- the cache ---- */

MAYBE_UNUSED static cairn_store *open_store(const char *dir, uint32_t page_tokens, uint64_t queue_bytes)
{
    char root[4096];
    snprintf(root, sizeof root, "%s/root", dir);
    cairn_store_options options = {.root = root,
                                   .budget_bytes = UINT64_C(1) << 30,
                                   .reserve_bytes = 1 << 20,
                                   .page_tokens = page_tokens,
                                   .write_queue_bytes = queue_bytes};
    cairn_store *store = NULL;
    cairn_error  error = {""};
    cairn_status status = cairn_store_open(&options, &store, &error);
    if (status)
        fprintf(stderr, "store: %s\n", error.text);
    REQUIRE(status == CAIRN_OK);
    return store;
}

MAYBE_UNUSED static cairn_llama_options cache_options(runtime *rt, cairn_store *store)
{
    return (cairn_llama_options){.model_params = &rt->model_params,
                                 .context_params = &rt->context_params,
                                 .model_paths = &rt->path,
                                 .n_model_paths = 1,
                                 .store = store};
}

MAYBE_UNUSED static cairn_llama *open_cache(runtime *rt, const cairn_llama_options *options)
{
    cairn_llama *cache = NULL;
    cairn_error  error = {""};
    cairn_status status = cairn_llama_open(rt->model, rt->ctx, options, &cache, &error);
    if (status)
        fprintf(stderr, "cache: %s\n", error.text);
    REQUIRE(status == CAIRN_OK);
    return cache;
}

MAYBE_UNUSED static cairn_llama_restored restore(cairn_llama *cache, llama_seq_id seq, const llama_token *tokens,
                                                 uint32_t n_tokens, uint32_t n_resident)
{
    cairn_llama_restored r = {0};
    REQUIRE(cairn_llama_restore(cache, seq, tokens, n_tokens, n_resident, &r) == CAIRN_OK);
    return r;
}

/* record_end waits 2 s for the writer; a disk that is busy with other tests may
 * take longer, so it is asked again. All pages are published afterwards. */
MAYBE_UNUSED static void record_to_end(cairn_llama *cache, cairn_store *store, const llama_token *tokens, uint32_t n_tokens)
{
    for (int attempt = 0; attempt < 20; attempt++) {
        uint64_t given_up = cairn_llama_pages_given_up(cache);
        cairn_llama_record_end(cache, 0, tokens, n_tokens);
        REQUIRE(cairn_store_flush(store, 60000) == CAIRN_OK);
        if (cairn_llama_pages_given_up(cache) == given_up)
            return;
    }
    REQUIRE(!"the writer keeps up");
}

/* ---- fresh processes ---- */

/* OpenMP's threads spin at barriers, which costs minutes where other tests run
 * beside this one; told to sleep they must be before the program starts. */
MAYBE_UNUSED static void sleep_at_barriers(char **argv)
{
    if (getenv("OMP_WAIT_POLICY"))
        return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
}

/* Runs this program again with the arguments given (NULL ends them), output to
 * `log` if not NULL, and waits. Exit status; -1: killed by a signal or by the
 * timeout. */
MAYBE_UNUSED static int run_again(const char *log, unsigned timeout_s, ...)
{
    char   *argv[16] = {"/proc/self/exe"};
    int     argc = 1, status = 0;
    va_list args;
    va_start(args, timeout_s);
    while (argc < 15 && (argv[argc] = va_arg(args, char *)))
        argc++;
    va_end(args);
    argv[argc] = NULL;
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = log ? open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
        if (fd >= 0 && (dup2(fd, 1) < 0 || dup2(fd, 2) < 0))
            _exit(126);
        alarm(timeout_s); /* survives exec */
        execv(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
