/* Every architecture that llama.cpp knows, as the tiny random models that its
 * own test-llama-archs writes (127 of them), and four of bench_gen: what is
 * restored in a fresh process must be exact - pages to the token, pages and
 * checkpoints or checkpoints alone at the checkpoints - and what is not cached must
 * open, say why not, and touch nothing. The first process is killed when all is on disk. A pair of processes
 * for each model, so that an abort of the runtime is one line of the table and not
 * the end of the test; as many pairs at once as there are cores.
 *
 * CAIRN_TEST_ARCHS_DIR: folder with the models. Unset: ~/.cache/cairn-build/
 * archs-1, written once with CAIRN_TEST_ARCHS_BIN if it does not exist.
 * CAIRN_MODELS_TABLE: file for the table, docs/models.md. */
#include "support.h"

#include <sys/mman.h>

enum { PAGE = 64, N = 192, INSIDE = 150, SINGLE = 1, BATCH = 17, TIMEOUT_S = 60, MAX_MODELS = 256, N_TAILS = 4 };

/* Another tail, the same prompt, the first once more, and one that parts earlier. */
static const tail tails[N_TAILS] = {
    {N, BATCH, SINGLE}, {N, BATCH, SINGLE}, {N, BATCH, SINGLE}, {INSIDE, BATCH, SINGLE}};
enum { SAME = 1, EARLIER = 3 };

static const kv_setup setups[] = {
    {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true},
    {"f16, no flash attention", GGML_TYPE_F16, GGML_TYPE_F16, false},
    {"q8_0", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, true},
    {"q8_0 keys, no flash attention", GGML_TYPE_Q8_0, GGML_TYPE_F16, false},
};
enum { N_SETUPS = sizeof setups / sizeof setups[0] };

/* ---- one model (child) ---- */

typedef struct child {
    runtime      rt;
    cairn_store *store;
    cairn_llama *cache;
    llama_token *prompts[N_TAILS]; /* the recorded prefix up to tails[i].from, then other tokens but for SAME */
    llama_token *recorded;
    const char  *dir;
} child;

static struct llama_model_kv_override overrides[2]; /* ends with an empty key */

/* args: path dir setup [override key, value] */
static child open_child(char **args)
{
    child           c = {.dir = args[1]};
    const kv_setup *kv = &setups[atoi(args[2])];
    init_llama();
    c.rt.path = args[0];
    c.rt.model_params = llama_model_default_params();
    if (args[3]) {
        overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_INT;
        snprintf(overrides[0].key, sizeof overrides[0].key, "%s", args[3]);
        overrides[0].val_i64 = atoi(args[4]);
        c.rt.model_params.kv_overrides = overrides;
    }
    c.rt.model = llama_model_load_from_file(args[0], c.rt.model_params);
    REQUIRE(c.rt.model != NULL);
    c.rt.n_vocab = (uint32_t)llama_vocab_n_tokens(llama_model_get_vocab(c.rt.model));
    const struct llama_context_params params = context_params(kv, 8 * N, PAGE); /* the first run is 1/8: all three pages */
    c.rt.ctx = llama_init_from_model(c.rt.model, params);
    if (!c.rt.ctx) {
        printf("refused by the runtime\n");
        exit(0);
    }
    c.rt.context_params = params;
    c.rt.memory = llama_get_memory(c.rt.ctx);
    c.store = open_store(c.dir, PAGE, 0);
    cairn_llama_options options = cache_options(&c.rt, c.store);
    c.cache = open_cache(&c.rt, &options);
    c.recorded = make_tokens(N + PAGE, c.rt.n_vocab, 7);
    for (uint64_t i = 0; i < N_TAILS; i++) {
        c.prompts[i] = make_tokens(N + PAGE, c.rt.n_vocab, i == SAME ? 7 : i == EARLIER ? 9 : 8);
        memcpy(c.prompts[i], c.recorded, tails[i].from * sizeof *c.recorded);
        if (i != SAME && c.prompts[i][tails[i].from] == c.recorded[tails[i].from])
            c.prompts[i][tails[i].from] = (llama_token)((uint32_t)(c.recorded[tails[i].from] + 1) % c.rt.n_vocab);
    }
    return c;
}

static void close_child(child *c)
{
    cairn_llama_close(c->cache);
    cairn_store_close(c->store);
    for (int i = 0; i < N_TAILS; i++)
        free(c->prompts[i]);
    free(c->recorded);
    unload(&c->rt);
}

static const char *reference_path(const child *c, int i)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/reference-%d", c->dir, i);
    return path;
}

/* Where a request that parts at tails[i].from can go on: there, or at the last
 * checkpoint before it. */
static uint32_t position(const child *c, int i)
{
    return cairn_llama_checkpoint_bytes(c->cache) ? tails[i].from / PAGE * PAGE : tails[i].from;
}

static void prefill_in_steps(child *c, uint32_t n)
{
    for (uint32_t at = 0; at < n; at += PAGE) {
        REQUIRE(decode(&c->rt, 0, c->recorded, at, at + PAGE) == 0);
        cairn_llama_record(c->cache, 0, c->recorded, at + PAGE);
        REQUIRE(cairn_llama_checkpoint(c->cache, 0, c->recorded, at + PAGE));
    }
}

/* Bytes of KV of a token, from what a page of the last step brings back. */
static uint64_t restored_row(child *c)
{
    llama_memory_clear(c->rt.memory, true);
    cairn_llama_restored r = restore(c->cache, 0, c->recorded, N + 1, 0);
    REQUIRE(r.n_tokens == N);
    return (r.bytes - cairn_llama_checkpoint_bytes(c->cache)) / N;
}

static const char *recipe(const child *c, const cairn_store_stats *stats)
{
    if (cairn_llama_checkpoint_bytes(c->cache) == 0)
        return "pages";
    if (stats->pages_published > N / PAGE)
        return "pages and checkpoints";
    return llama_model_is_recurrent(c->rt.model) ? "checkpoints" : "whole sequences";
}

static int record_child(char **args)
{
    child c = open_child(args);
    if (cairn_llama_unsupported(c.cache)) {
        cairn_llama_restored r = restore(c.cache, 0, c.recorded, N, 0);
        REQUIRE(r.n_tokens == 0 && r.from_store == 0 && r.miss == CAIRN_MISS_UNSUPPORTED_MODEL);
        cairn_llama_record(c.cache, 0, c.recorded, N);
        cairn_llama_record_end(c.cache, 0, c.recorded, N);
        REQUIRE(!c.rt.memory || llama_memory_seq_pos_max(c.rt.memory, 3) < 0);
        printf("unsupported: %s\n", cairn_llama_unsupported(c.cache));
        close_child(&c);
        return 0;
    }
    const bool in_steps = cairn_llama_checkpoint_bytes(c.cache) > 0;
    prefill_in_steps(&c, N);
    record_to_end(c.cache, c.store, c.recorded, N);
    cairn_store_stats stats;
    cairn_store_get_stats(c.store, &stats);
    REQUIRE(stats.pages_published >= N / PAGE && cairn_llama_checkpoints_given_up(c.cache) == 0);
    for (int i = 0; i < N_TAILS; i++) {
        const uint32_t from = position(&c, i);
        if (in_steps) { /* what can't be cut is computed again with the same cuts */
            llama_memory_clear(c.rt.memory, true);
            prefill_in_steps(&c, from);
        } else {
            REQUIRE(llama_memory_seq_rm(c.rt.memory, 0, (llama_pos)from, -1));
        }
        float *logits = decode_tail(&c.rt, 0, c.prompts[i], (tail){from, BATCH, SINGLE});
        write_file(reference_path(&c, i), logits, tail_size(&c.rt, tails[i]));
        free(logits);
    }
    printf("recorded|%s|%llu|%llu\n", recipe(&c, &stats), (unsigned long long)restored_row(&c),
           (unsigned long long)cairn_llama_checkpoint_bytes(c.cache));
    fflush(NULL);
    kill(getpid(), SIGKILL);
    return 1;
}

static bool has_variety(const float *logits, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] != logits[0])
            return true;
    return false;
}

static int restore_child(char **args)
{
    child c = open_child(args);
    bool  exact = true;
    REQUIRE(!cairn_llama_unsupported(c.cache));
    for (int i = 0; i < N_TAILS; i++) {
        size_t               size;
        const uint32_t       from = position(&c, i);
        float               *expected = read_file(reference_path(&c, i), &size);
        cairn_llama_restored r = restore(c.cache, 0, c.prompts[i], tails[i].from + BATCH + SINGLE, 0);
        if (r.n_tokens != from)
            printf("restored %u of %u: %s; ", r.n_tokens, from, cairn_miss_text(r.miss));
        REQUIRE(r.n_tokens == from && r.from_store == from && r.bytes > 0);
        float *logits = decode_tail(&c.rt, 0, c.prompts[i], (tail){from, BATCH, SINGLE});
        REQUIRE(size == tail_size(&c.rt, tails[i]));
        REQUIRE(has_variety(expected, c.rt.n_vocab));
        exact = exact && !memcmp(logits, expected, size);
        free(logits);
        free(expected);
        llama_memory_clear(c.rt.memory, true);
    }
    printf(exact ? "exact\n" : "differs\n");
    close_child(&c);
    return exact ? 0 : 2;
}

/* ---- all models (parent) ---- */

typedef struct models {
    char    *paths[MAX_MODELS];
    uint32_t n;
} models;

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static models list_models(const char *dir)
{
    models         m = {.n = 0};
    struct dirent *entry;
    DIR           *d = opendir(dir);
    while (d && (entry = readdir(d)) && m.n < MAX_MODELS) {
        char path[4096];
        if (!strstr(entry->d_name, ".gguf"))
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        m.paths[m.n++] = strdup(path);
    }
    if (d)
        closedir(d);
    qsort(m.paths, m.n, sizeof m.paths[0], compare);
    return m;
}

static void free_models(models *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        free(m->paths[i]);
}

static bool run_quietly(const char *const *args)
{
    int   status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        execv(args[0], (char *const *)args);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool generate(const char *bin, const char *dir)
{
    char temporary[4200];
    snprintf(temporary, sizeof temporary, "%s.%d", dir, (int)getpid());
    if (mkdir(temporary, 0700) != 0)
        return false;
    const char *const args[] = {bin, "-s", "1", "-o", temporary, NULL}; /* without -s the seed is random */
    if (run_quietly(args) && rename(temporary, dir) == 0)
        return true;
    remove_tree(temporary);
    return is_file(dir);
}

static const char *models_dir(void)
{
    static char dir[4096];
    char        bin[4096];
    const char *given = getenv("CAIRN_TEST_ARCHS_DIR"), *given_bin = getenv("CAIRN_TEST_ARCHS_BIN");
    struct stat st;
    if (given)
        return given;
    snprintf(dir, sizeof dir, "%s/.cache/cairn-build/archs-1", getenv("HOME"));
    if (stat(dir, &st) == 0)
        return dir;
    snprintf(bin, sizeof bin, "%s/.cache/cairn-build/llama.cpp/fd570ef54b10/cpu/bin/test-llama-archs", getenv("HOME"));
    if (!is_file(given_bin ? given_bin : bin))
        return NULL;
    return generate(given_bin ? given_bin : bin, dir) ? dir : NULL;
}

/* What llama.cpp's set lacks, from bench_gen: two recurrent architectures, and a
 * hybrid and a window model of more layers. */
static void add_our_own(models *m, const char *dir)
{
    static const struct {
        const char *kind, *file;
    } own[] = {{"window", "gemma3-6-layers"},
               {"hybrid", "granitehybrid-6-layers"},
               {"rwkv6", "rwkv6"},
               {"rwkv7", "rwkv7"}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%s.gguf", dir, own[i].file);
        const char *const args[] = {CAIRN_BENCH_GEN, own[i].kind, path, NULL};
        assert_true(run_quietly(args) && m->n < MAX_MODELS);
        m->paths[m->n++] = strdup(path);
    }
}

/* First line that a child wrote to `log`. */
static void first_line(const char *log, char *line, size_t size)
{
    FILE *f = fopen(log, "r");
    line[0] = 0;
    if (f && fgets(line, (int)size, f))
        line[strcspn(line, "\n")] = 0;
    if (f)
        fclose(f);
}

typedef struct result {
    char text[400];   /* "exact", "unsupported: ...", "refused by the runtime", or what went wrong */
    char recipe[100]; /* recipe|bytes a token|bytes a checkpoint; "": none */
} result;

static result try_model(const char *path, const char *setup, const char *key, const char *value)
{
    char   dir[4096], log[4200];
    result r = {"", ""};
    make_temp(dir, sizeof dir);
    snprintf(log, sizeof log, "%s/log", dir);
    int rc = run_again(log, TIMEOUT_S, "--record", path, dir, setup, key, value, NULL);
    first_line(log, r.text, sizeof r.text);
    if (rc == -1 && !strncmp(r.text, "recorded|", 9)) {
        snprintf(r.recipe, sizeof r.recipe, "%.99s", r.text + 9);
        rc = run_again(log, TIMEOUT_S, "--restore", path, dir, setup, key, value, NULL);
        first_line(log, r.text, sizeof r.text);
    }
    if (rc != 0 && strcmp(r.text, "differs") != 0) {
        char reason[300];
        snprintf(reason, sizeof reason, "%.299s", r.text);
        snprintf(r.text, sizeof r.text, "FAILED (%d) %s", rc, reason);
    }
    remove_tree(dir);
    return r;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* All models in one setup; results[m->n] is shared with the workers. */
static void try_all(const models *m, int setup, result *results)
{
    char      name[8];
    const int n_workers = (int)sysconf(_SC_NPROCESSORS_ONLN);
    pid_t     workers[64];
    snprintf(name, sizeof name, "%d", setup);
    for (int w = 0; w < n_workers && w < 64; w++) {
        workers[w] = fork();
        assert_true(workers[w] >= 0);
        if (workers[w] > 0)
            continue;
        for (uint32_t i = (uint32_t)w; i < m->n; i += (uint32_t)n_workers)
            results[i] = try_model(m->paths[i], name, NULL, NULL);
        _exit(0);
    }
    for (int w = 0, status; w < n_workers && w < 64; w++)
        assert_true(waitpid(workers[w], &status, 0) == workers[w] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static const struct expectation {
    const char *text;
    uint32_t    count[N_SETUPS];
} expectations[] = {
    /* 85 pages, 35 pages and checkpoints, 4 checkpoints, 3 whole sequences */
    {"exact", {127, 127, 125, 117}},
    {"unsupported: the model keeps no cache", {4, 4, 4, 4}},
    {"refused by the runtime", {0, 0, 2, 10}}, /* grok and laguna: head size; latent attention: its V is K */
};
enum { N_KINDS = sizeof expectations / sizeof expectations[0] };

static void check_results(const models *m, int setup, const result *results)
{
    uint32_t counts[N_KINDS + 1] = {0};
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t kind = 0;
        while (kind < N_KINDS && strncmp(results[i].text, expectations[kind].text, strlen(expectations[kind].text)) != 0)
            kind++;
        counts[kind]++;
        print_message("%-28s %-30s %s\n", base_name(m->paths[i]), setups[setup].name, results[i].text);
    }
    assert_int_equal(counts[N_KINDS], 0); /* differs, failed, refused for a reason not known here */
    for (uint32_t k = 0; k < N_KINDS; k++)
        assert_int_equal(counts[k], expectations[k].count[setup]);
}

static void write_row(FILE *out, const char *path, result *const results[])
{
    const result *first = results[0];
    char          recipe[100], row[32] = "", checkpoint[32] = "";
    snprintf(recipe, sizeof recipe, "%s", first->recipe[0] ? first->recipe : "none");
    char *at = strchr(recipe, '|');
    if (at) {
        *at++ = 0;
        sscanf(at, "%31[0-9]|%31[0-9]", row, checkpoint);
    }
    fprintf(out, "| %.*s | %s |", (int)(strlen(base_name(path)) - 5), base_name(path), recipe);
    for (int s = 0; s < N_SETUPS; s++)
        fprintf(out, " %s |", results[s]->text);
    fprintf(out, " %s | %s |\n", strcmp(row, "0") != 0 ? row : "", strcmp(checkpoint, "0") != 0 ? checkpoint : "");
}

static void write_table(const char *file, const models *m, result *all[N_SETUPS])
{
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fprintf(out, "# Models\n\n"
                 "Written by `CAIRN_MODELS_TABLE=docs/models.md build/llama_archs`, part of `./dev test`: each of the tiny "
                 "random models that llama.cpp's own `test-llama-archs -s 1` writes, and four of `bench_gen` at the end, "
                 "through the library's public calls. "
                 "One process records and is killed; a fresh one restores the same prompt, another tail, a prompt that "
                 "parts earlier, and the first once more. **exact**: all logits that follow equal, bit for bit, those of a "
                 "process that was cut at the same positions. Recipes are explained in "
                 "[architecture.md](architecture.md#windows-and-recurrent-state); whole sequences are refused with `--reproducible`; bytes are those of the tiny model with "
                 "f16, a checkpoint's after %d tokens.\n\n| model | recipe |", N);
    for (int s = 0; s < N_SETUPS; s++)
        fprintf(out, " %s |", setups[s].name);
    fprintf(out, " bytes a token | bytes a checkpoint |\n|---|---|%s---:|---:|\n", "---|---|---|---|");
    for (uint32_t i = 0; i < m->n; i++) {
        result *row[N_SETUPS];
        for (int s = 0; s < N_SETUPS; s++)
            row[s] = &all[s][i];
        write_row(out, m->paths[i], row);
    }
    assert_int_equal(fclose(out), 0);
}

static void every_model(void **state)
{
    const char *dir = models_dir(), *table = getenv("CAIRN_MODELS_TABLE");
    result     *all[N_SETUPS];
    char        own[4096];
    (void)state;
    if (!dir) {
        print_message("no models: set CAIRN_TEST_ARCHS_DIR or CAIRN_TEST_ARCHS_BIN\n");
        test_skip();
    }
    models m = list_models(dir);
    make_temp(own, sizeof own);
    add_our_own(&m, own);
    for (int s = 0; s < N_SETUPS; s++) {
        all[s] = mmap(NULL, MAX_MODELS * sizeof *all[s], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(all[s] != MAP_FAILED);
        try_all(&m, s, all[s]);
    }
    if (table)
        write_table(table, &m, all);
    for (int s = 0; s < N_SETUPS; s++) {
        check_results(&m, s, all[s]);
        munmap(all[s], MAX_MODELS * sizeof *all[s]);
    }
    free_models(&m);
    remove_tree(own);
}

/* The generator's top_k selects every key; here it selects 32 of 150 and more. */
static void sparse_attention_that_drops_keys(void **state)
{
    static const struct {
        const char *file, *key;
    } sparse[] = {
        {"deepseek32-moe.gguf", "deepseek32.attention.indexer.top_k"},
        {"glm-dsa-moe.gguf", "glm-dsa.attention.indexer.top_k"},
        {"hy_v4-moe.gguf", "hy_v4.attention.indexer.top_k"},
    };
    const char *dir = models_dir();
    (void)state;
    if (!dir)
        test_skip();
    for (size_t i = 0; i < sizeof sparse / sizeof sparse[0]; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%s", dir, sparse[i].file);
        result r = try_model(path, "0", sparse[i].key, "32");
        print_message("%-28s top_k 32 %s\n", sparse[i].file, r.text);
        assert_string_equal(r.text, "exact");
    }
}

/* phi3 has long and short rope factors, and the context size chooses: K differs,
 * so the identity must; two sizes that choose alike share their pages. */
static void context_size_is_in_the_identity_where_it_selects_rope_factors(void **state)
{
    static const uint32_t sizes[] = {256, 512, 1024}; /* the original context is 256 */
    const kv_setup        kv = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true};
    char                  path[4200], dir[4096];
    cairn_digest          digests[3];
    const char           *models = models_dir();
    (void)state;
    if (!models)
        test_skip();
    snprintf(path, sizeof path, "%s/phi3-dense.gguf", models);
    make_temp(dir, sizeof dir);
    init_llama();
    runtime      rt = load(path);
    cairn_store *store = open_store(dir, PAGE, 0);
    for (int i = 0; i < 3; i++) {
        open_context(&rt, context_params(&kv, sizes[i], PAGE));
        cairn_llama_options options = cache_options(&rt, store);
        cairn_llama        *cache = open_cache(&rt, &options);
        const char         *text = cairn_identity_text(cairn_llama_identity(cache), NULL);
        assert_non_null(strstr(text, i ? "rope.factors=long\n" : "rope.factors=short\n"));
        digests[i] = cairn_identity_digest(cairn_llama_identity(cache));
        cairn_llama_close(cache);
    }
    assert_memory_not_equal(digests[0].bytes, digests[1].bytes, sizeof digests[0].bytes);
    assert_memory_equal(digests[1].bytes, digests[2].bytes, sizeof digests[0].bytes);
    cairn_store_close(store);
    unload(&rt);
    remove_tree(dir);
}

int main(int argc, char **argv)
{
    if (argc >= 5 && !strcmp(argv[1], "--record"))
        return record_child(argv + 2);
    if (argc >= 5 && !strcmp(argv[1], "--restore"))
        return restore_child(argv + 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model),
        cmocka_unit_test(sparse_attention_that_drops_keys),
        cmocka_unit_test(context_size_is_in_the_identity_where_it_selects_rope_factors),
    };
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
