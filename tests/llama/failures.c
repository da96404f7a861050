/* What may go wrong around a restore or a recording, on a real model: each ends
 * in a shorter prefix or a miss, exact and clean, or in an error that names what
 * to change. One prefill of 320 tokens in pages of 64 serves all cases. */
#include "support.h"

#include "base/bytes.h"
#include "page_cache.h"

#include <ftw.h>

enum { PAGE = 64, N = 320, BAD = 2, TIMEOUT_S = 120 };

/* A number of threads that is not the recording's. ggml's own threads are not
 * instrumented and would drown the thread sanitizer's report. */
#if defined(__SANITIZE_THREAD__)
enum { OTHER_THREADS = 1 };
#else
enum { OTHER_THREADS = 2 };
#endif

static const kv_setup f16 = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true};
static const tail     behind_bad = {BAD * PAGE, 9, 1}; /* what is left when page BAD is corrupt */

static runtime      rt;
static char         dir[4096];
static llama_token *tokens;
static float       *expected; /* logits behind [0, BAD * PAGE) */
static cairn_digest identity; /* as recorded */

static int set_up(void **state)
{
    (void)state;
    init_llama();
    if (!is_file(model_path()))
        return 0;
    make_temp(dir, sizeof dir);
    rt = load(model_path());
    tokens = make_tokens(N + 64, rt.n_vocab, 3);
    open_context(&rt, context_params(&f16, 512, PAGE));
    cairn_store        *store = open_store(dir, PAGE, 0);
    cairn_llama_options options = cache_options(&rt, store);
    cairn_llama        *cache = open_cache(&rt, &options);
    for (uint32_t at = 0; at < N; at += PAGE) {
        REQUIRE(decode(&rt, 0, tokens, at, at + PAGE) == 0);
        cairn_llama_record(cache, 0, tokens, at + PAGE);
    }
    record_to_end(cache, store, tokens, N);
    identity = cairn_identity_digest(cairn_llama_identity(cache));
    REQUIRE(llama_memory_seq_rm(rt.memory, 0, BAD * PAGE, -1));
    expected = decode_tail(&rt, 0, tokens, behind_bad);
    cairn_llama_close(cache);
    cairn_store_close(store);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (!rt.model)
        return 0;
    free(tokens);
    free(expected);
    unload(&rt);
    remove_tree(dir);
    return 0;
}

/* A fresh context and a cache over the recorded store. */
typedef struct fixture {
    cairn_store *store;
    cairn_llama *cache;
} fixture;

static fixture open_fixture(uint32_t n_ctx, uint32_t run_tokens)
{
    fixture f;
    if (!rt.model) {
        print_message("no model at %s: set CAIRN_TEST_MODEL\n", model_path());
        test_skip();
    }
    open_context(&rt, context_params(&f16, n_ctx, PAGE));
    f.store = open_store(dir, PAGE, 0);
    cairn_llama_options options = cache_options(&rt, f.store);
    options.run_tokens = run_tokens;
    f.cache = open_cache(&rt, &options);
    return f;
}

static void close_fixture(fixture *f)
{
    cairn_llama_close(f->cache);
    cairn_store_close(f->store);
}

static void assert_holds(llama_seq_id seq, uint32_t n)
{
    assert_int_equal(llama_memory_seq_pos_min(rt.memory, seq), n ? 0 : -1);
    assert_int_equal(llama_memory_seq_pos_max(rt.memory, seq), (int)n - 1);
    assert_int_equal(llama_memory_seq_pos_max(rt.memory, 3), -1); /* scratch */
}

static void assert_exact_behind_bad(void)
{
    float *logits = decode_tail(&rt, 0, tokens, behind_bad);
    assert_memory_equal(logits, expected, tail_size(&rt, behind_bad));
    free(logits);
}

/* ---- corrupt pages ---- */

static bool find_file(const char *folder, const char *prefix, char *path, size_t size)
{
    DIR           *d = opendir(folder);
    struct dirent *entry;
    bool           found = false;
    while (d && !found && (entry = readdir(d))) {
        char child[4096];
        if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "quarantine"))
            continue;
        snprintf(child, sizeof child, "%s/%s", folder, entry->d_name);
        if (!strncmp(entry->d_name, prefix, strlen(prefix)) && is_file(child)) {
            snprintf(path, size, "%s", child);
            found = true;
        } else {
            found = find_file(child, prefix, path, size);
        }
    }
    if (d)
        closedir(d);
    return found;
}

/* Path of the file of page `index`. */
static void page_path(uint32_t index, char *path, size_t size)
{
    cairn_key key;
    char      root[4200], hex[65];
    for (uint32_t i = 0; i <= index; i++) {
        cairn_key parent = key;
        key = cairn_chain_key(&identity, i ? &parent : NULL, tokens + i * PAGE, PAGE);
    }
    cairn__hex(key.bytes, 32, hex);
    hex[32] = 0;
    snprintf(root, sizeof root, "%s/root", dir);
    REQUIRE(find_file(root, hex, path, size));
}

static void flip_last_payload_byte(const char *path)
{
    int     fd = open(path, O_RDWR);
    uint8_t byte;
    off_t   at = lseek(fd, -1, SEEK_END);
    REQUIRE(fd >= 0 && at > 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    REQUIRE(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

/* From the device, then from memory for the next one; in runs of one page and of all. */
static void cold_pages_are_exact_and_then_in_memory(void **state)
{
    static const uint32_t runs[] = {8 * PAGE, PAGE};
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char    path[BAD][4096];
        fixture f = open_fixture(512, runs[i]);
        for (uint32_t page = 0; page < BAD; page++) {
            page_path(page, path[page], sizeof path[page]);
            if (!page_cache_drop(path[page]))
                print_message("%s stays in memory: nothing is cold here\n", path[page]);
        }
        cairn_llama_restored r = restore(f.cache, 0, tokens, BAD * PAGE + 1, 0);
        assert_int_equal(r.n_tokens, BAD * PAGE);
        assert_int_equal(r.from_store, BAD * PAGE);
        assert_holds(0, BAD * PAGE);
        assert_exact_behind_bad();
        for (uint32_t page = 0; page < BAD; page++)
            assert_true(page_cache_becomes(path[page], 95));
        close_fixture(&f);
    }
}

static uint64_t tree_bytes;

static int add_bytes(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path, (void)type, (void)ftw;
    tree_bytes += (uint64_t)st->st_blocks * 512;
    return 0;
}

/* The digest of the weights, which open keeps in the root, is in the budget, too. */
static void what_open_writes_is_counted(void **state)
{
    (void)state;
    char      path[4200];
    fixture   f = open_fixture(512, 0);
    cairn_store_stats stats;
    snprintf(path, sizeof path, "%s/root/digests", dir);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/root", dir);
    tree_bytes = 0;
    assert_int_equal(nftw(path, add_bytes, 16, FTW_PHYS), 0);
    cairn_store_get_stats(f.store, &stats);
    assert_true(stats.used_bytes >= tree_bytes);
    close_fixture(&f);
}

/* Runs grow from an eighth: with 512 the second run is [1, 3) and page 2 ends
 * it, with 320 the third is [2, 4) and it begins one, with 64 it is one. The file
 * is put back, as a corrupt one goes to quarantine. */
static void corrupt_page_leaves_the_prefix_before_it(void **state)
{
    static const uint32_t runs[] = {8 * PAGE, 5 * PAGE, PAGE};
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char    path[4096];
        size_t  size;
        fixture f = open_fixture(512, runs[i]);
        page_path(BAD, path, sizeof path);
        void *good = read_file(path, &size);
        flip_last_payload_byte(path);
        cairn_llama_restored r = restore(f.cache, 0, tokens, N + 1, 0);
        assert_int_equal(r.n_tokens, BAD * PAGE);
        assert_int_equal(r.from_store, BAD * PAGE);
        assert_int_equal(r.miss, CAIRN_MISS_CORRUPT);
        assert_holds(0, BAD * PAGE);
        assert_exact_behind_bad();
        /* it is gone now: the same prompt stops there without another try */
        llama_memory_seq_rm(rt.memory, 0, -1, -1);
        assert_int_equal(restore(f.cache, 0, tokens, N + 1, 0).n_tokens, BAD * PAGE);
        assert_exact_behind_bad();
        close_fixture(&f);
        write_file(path, good, size);
        REQUIRE(chmod(path, 0600) == 0);
        free(good);
    }
}

static void corrupt_first_page_restores_nothing(void **state)
{
    char    path[4096];
    size_t  size;
    fixture f = open_fixture(512, 0);
    (void)state;
    page_path(0, path, sizeof path);
    void *good = read_file(path, &size);
    flip_last_payload_byte(path);
    /* resident tokens inside the page stay: nothing was imported in their place */
    REQUIRE(decode(&rt, 0, tokens, 0, 10) == 0);
    cairn_llama_restored r = restore(f.cache, 0, tokens, N + 1, 10);
    assert_int_equal(r.n_tokens, 10);
    assert_int_equal(r.from_store, 0);
    assert_int_equal(r.bytes, 0);
    assert_int_equal(r.miss, CAIRN_MISS_CORRUPT);
    assert_holds(0, 10);
    close_fixture(&f);
    write_file(path, good, size);
    REQUIRE(chmod(path, 0600) == 0);
    free(good);
}

/* ---- the runtime refuses ---- */

static void no_room_in_the_context_stops_cleanly(void **state)
{
    fixture f = open_fixture(256, 2 * PAGE); /* beside 60 others three pages fit, the last run is two */
    (void)state;
    llama_token *others = make_tokens(60, rt.n_vocab, 4);
    REQUIRE(decode(&rt, 1, others, 0, 60) == 0);
    cairn_llama_restored r = restore(f.cache, 0, tokens, N + 1, 0);
    assert_int_equal(r.n_tokens, 3 * PAGE);
    assert_int_equal(r.from_store, 3 * PAGE);
    assert_int_equal(r.miss, CAIRN_MISS_NO_ROOM);
    assert_holds(0, 3 * PAGE);
    assert_holds(1, 60);
    assert_int_equal(decode(&rt, 0, tokens, 3 * PAGE, 3 * PAGE + 4), 0);
    assert_int_equal(decode(&rt, 1, others, 60 - 1, 60), -1); /* the position is taken: nothing was lost */
    free(others);
    close_fixture(&f);
}

static void no_room_for_the_first_run_restores_nothing(void **state)
{
    fixture f = open_fixture(256, 0);
    (void)state;
    llama_token *others = make_tokens(200, rt.n_vocab, 4);
    prefill(&rt, 1, others, 0, 200, PAGE); /* 56 cells are free, less than a page */
    cairn_llama_restored r = restore(f.cache, 0, tokens, N + 1, 0);
    assert_int_equal(r.n_tokens, 0);
    assert_int_equal(r.from_store, 0);
    assert_int_equal(r.miss, CAIRN_MISS_NO_ROOM);
    assert_holds(0, 0);
    assert_holds(1, 200);
    llama_memory_seq_rm(rt.memory, 1, -1, -1);
    r = restore(f.cache, 0, tokens, 3 * PAGE + 1, 0);
    assert_int_equal(r.from_store, 3 * PAGE);
    free(others);
    close_fixture(&f);
}

/* ---- ahead of a request ---- */

static bool some_more(void *ctx)
{
    uint32_t *left = ctx;
    return *left > 0 && (*left)--;
}

/* Wherever it is stopped: a prefix that is right, and the rest comes when it is wanted. */
static void stopped_on_the_way(void **state)
{
    (void)state;
    uint32_t n_before = 0;
    for (uint32_t asked = 0; asked <= 2 * N / PAGE + 1; asked++) { /* before a run is read, and before it is imported */
        fixture              f = open_fixture(512, PAGE);
        uint32_t             left = asked;
        cairn_llama_restored r;
        assert_int_equal(cairn_llama_restore_ahead(f.cache, 0, tokens, N + 1, 0, some_more, &left, &r), CAIRN_OK);
        assert_int_equal(r.miss, r.n_tokens < N ? CAIRN_MISS_STOPPED : CAIRN_MISS_NONE);
        assert_true(r.n_tokens % PAGE == 0 && r.n_tokens <= asked * PAGE && r.n_tokens >= n_before);
        assert_int_equal(r.from_store, r.n_tokens);
        assert_holds(0, r.n_tokens);
        n_before = r.n_tokens;
        assert_int_equal(restore(f.cache, 0, tokens, BAD * PAGE + 1 > r.n_tokens ? BAD * PAGE + 1 : r.n_tokens + 1, r.n_tokens).miss,
                         CAIRN_MISS_NONE);
        assert_true(llama_memory_seq_rm(rt.memory, 0, BAD * PAGE, -1));
        assert_exact_behind_bad();
        close_fixture(&f);
    }
    assert_int_equal(n_before, N);
}

static void prompts_for_the_next_process(void **state)
{
    (void)state;
    const cairn_prompt noted[2] = {{tokens, N}, {tokens, 70}};
    cairn_prompt      *prompts = NULL;
    uint32_t           n = 0;
    fixture            f = open_fixture(512, 0);
    assert_int_equal(cairn_llama_note_recent(f.cache, noted, 2), CAIRN_OK);
    assert_int_equal(cairn_llama_note_recent(f.cache, NULL, 2), CAIRN_EINVAL);
    assert_int_equal(cairn_llama_note_recent(NULL, noted, 2), CAIRN_EINVAL);
    close_fixture(&f);
    f = open_fixture(512, 0);
    assert_int_equal(cairn_llama_recent(f.cache, &prompts, &n), CAIRN_OK);
    assert_int_equal(n, 2);
    assert_int_equal(prompts[0].n_tokens, N);
    assert_memory_equal(prompts[0].tokens, tokens, N * sizeof *tokens);
    assert_int_equal(prompts[1].n_tokens, 70);
    free(prompts);
    assert_int_equal(cairn_llama_recent(f.cache, NULL, &n), CAIRN_EINVAL);
    assert_int_equal(cairn_llama_recent(NULL, &prompts, &n), CAIRN_EINVAL);
    close_fixture(&f);
}

/* ---- recording ---- */

/* A queue that takes less than a page: nothing is stored, nothing waits for
 * long, nothing breaks, and the pages are counted. */
static void recording_into_a_full_writer_gives_up(void **state)
{
    char other[4096];
    (void)state;
    fixture f = open_fixture(512, 0);
    close_fixture(&f);
    make_temp(other, sizeof other);
    f.store = open_store(other, PAGE, 1000);
    cairn_llama_options options = cache_options(&rt, f.store);
    f.cache = open_cache(&rt, &options);
    prefill(&rt, 0, tokens, 0, 2 * PAGE + 5, PAGE);
    cairn_llama_record(f.cache, 0, tokens, 2 * PAGE + 5);
    assert_int_equal(cairn_llama_pages_given_up(f.cache), 0);
    cairn_llama_record_end(f.cache, 0, tokens, 2 * PAGE + 5);
    assert_int_equal(cairn_llama_pages_given_up(f.cache), 3);
    assert_holds(0, 2 * PAGE + 5);
    cairn_store_stats stats;
    cairn_store_get_stats(f.store, &stats);
    assert_int_equal(stats.pages_put, 0);
    close_fixture(&f);
    remove_tree(other);
}

/* A queue with room for one page at a time: record_end waits and all arrive. */
static void recording_into_a_slow_writer_waits(void **state)
{
    char other[4096];
    (void)state;
    fixture f = open_fixture(512, 0);
    close_fixture(&f);
    make_temp(other, sizeof other);
    f.store = open_store(other, PAGE, 60 * 192 * 2 * PAGE + 20000);
    cairn_llama_options options = cache_options(&rt, f.store);
    f.cache = open_cache(&rt, &options);
    prefill(&rt, 0, tokens, 0, 3 * PAGE + 5, PAGE);
    record_to_end(f.cache, f.store, tokens, 3 * PAGE + 5);
    llama_memory_seq_rm(rt.memory, 0, -1, -1);
    assert_int_equal(restore(f.cache, 0, tokens, N, 0).from_store, 3 * PAGE + 5);
    close_fixture(&f);
    remove_tree(other);
}

/* Cells out of order (the sequence was computed around another one) are
 * recorded in order of position. */
static void scattered_cells_are_recorded_in_order(void **state)
{
    char other[4096];
    (void)state;
    fixture f = open_fixture(256, 0);
    close_fixture(&f);
    make_temp(other, sizeof other);
    f.store = open_store(other, PAGE, 0);
    cairn_llama_options options = cache_options(&rt, f.store);
    f.cache = open_cache(&rt, &options);
    llama_token *others = make_tokens(200, rt.n_vocab, 5);
    prefill(&rt, 1, others, 0, 200, PAGE);
    prefill(&rt, 0, tokens, 0, 40, PAGE); /* cells 200..239 */
    llama_memory_seq_rm(rt.memory, 1, -1, -1);
    prefill(&rt, 0, tokens, 40, 2 * PAGE, PAGE); /* the rest before them */
    record_to_end(f.cache, f.store, tokens, 2 * PAGE);
    /* the same KV, in the order that an import gives it, as if copied over */
    uint64_t size = llama_state_seq_get_size(rt.ctx, 0);
    uint8_t *scattered = malloc(size);
    REQUIRE(scattered && llama_state_seq_get_data(rt.ctx, scattered, size, 0) == size);
    llama_memory_clear(rt.memory, true);
    assert_int_equal(restore(f.cache, 0, tokens, 2 * PAGE + 1, 0).from_store, 2 * PAGE);
    uint8_t *ordered = malloc(size);
    REQUIRE(ordered && llama_state_seq_get_data(rt.ctx, ordered, size, 0) == size);
    assert_true(memcmp(scattered, ordered, size) != 0);
    const uint64_t row = 192 * 2, first_k = 16 + 12 * 2 * PAGE + 8 + 12;
    for (uint32_t cell = 0; cell < 2 * PAGE; cell++) {
        uint32_t       pos = cairn__get_u32(scattered + 16 + 12 * cell);
        const uint8_t *was = scattered + first_k + row * cell;
        assert_int_equal(cairn__get_u32(ordered + 16 + 12 * cell), cell);
        assert_memory_equal(ordered + first_k + row * pos, was, row);
    }
    free(scattered);
    free(ordered);
    free(others);
    close_fixture(&f);
    remove_tree(other);
}

/* ---- opening ---- */

static void refuses(cairn_llama_options *options, cairn_status status, const char *word, const char *other_word)
{
    cairn_llama *cache = NULL;
    cairn_error  error = {""};
    assert_int_equal(cairn_llama_open(rt.model, rt.ctx, options, &cache, &error), status);
    assert_null(cache);
    if (!strstr(error.text, word) || !strstr(error.text, other_word))
        fail_msg("\"%s\" names neither %s nor %s", error.text, word, other_word);
}

static void contexts_that_can_not_do_it_are_refused_by_name(void **state)
{
    fixture f = open_fixture(512, 0);
    (void)state;
    cairn_llama_close(f.cache);
    struct llama_context_params p = context_params(&f16, 512, PAGE);
    cairn_llama_options         options = cache_options(&rt, f.store);
    p.kv_unified = false;
    open_context(&rt, p);
    refuses(&options, CAIRN_EINVAL, "kv_unified", "n_seq_max");
    p.kv_unified = true;
    p.n_seq_max = 1;
    open_context(&rt, p);
    refuses(&options, CAIRN_EINVAL, "n_seq_max", "kv_unified");
    open_context(&rt, context_params(&f16, 512, PAGE));
    options.scratch_seq = 4;
    refuses(&options, CAIRN_EINVAL, "scratch_seq", "n_seq_max");
    options.scratch_seq = 2;
    REQUIRE(decode(&rt, 2, tokens, 0, 4) == 0);
    refuses(&options, CAIRN_EINVAL, "scratch", "empty");
    options.scratch_seq = 0;
    options.grid_tokens = 48; /* pages are 64 */
    refuses(&options, CAIRN_EINVAL, "grid_tokens", "divide");
    cairn_store_close(f.store);
}

static void a_model_without_a_digest_is_refused(void **state)
{
    fixture     f = open_fixture(512, 0);
    const char *missing = "/nonexistent/model.gguf", *none = NULL;
    (void)state;
    cairn_llama_close(f.cache);
    cairn_llama_options options = cache_options(&rt, f.store);
    options.model_paths = &missing;
    refuses(&options, CAIRN_EIO, "model.gguf", "");
    options.model_paths = &none;
    refuses(&options, CAIRN_EINVAL, "model_paths", "");
    options.n_model_paths = 0;
    refuses(&options, CAIRN_EINVAL, "model_paths", "");
    cairn_store_close(f.store);
}

static void wrong_calls_are_refused(void **state)
{
    fixture              f = open_fixture(512, 0);
    cairn_llama_restored r;
    (void)state;
    assert_int_equal(cairn_llama_restore(f.cache, -1, tokens, N, 0, &r), CAIRN_EINVAL);
    assert_int_equal(cairn_llama_restore(f.cache, 4, tokens, N, 0, &r), CAIRN_EINVAL);
    assert_int_equal(cairn_llama_restore(f.cache, 3, tokens, N, 0, &r), CAIRN_EINVAL); /* scratch */
    assert_int_equal(cairn_llama_restore(f.cache, 0, NULL, N, 0, &r), CAIRN_EINVAL);
    assert_int_equal(cairn_llama_restore(f.cache, 0, tokens, N, N + 1, &r), CAIRN_EINVAL);
    assert_int_equal(cairn_llama_restore(f.cache, 0, tokens, N, 5, &r), CAIRN_EINVAL); /* nothing is resident */
    assert_int_equal(cairn_llama_restore(f.cache, 0, tokens, N, 0, NULL), CAIRN_EINVAL);
    assert_holds(0, 0);
    cairn_llama_record(f.cache, 0, tokens, 2 * PAGE); /* tokens that were never decoded: nothing to export */
    assert_int_equal(cairn_llama_restore(f.cache, 0, tokens, 0, 0, &r), CAIRN_OK);
    assert_int_equal(r.n_tokens, 0);
    assert_int_equal(restore(f.cache, 0, tokens, N + 1, 0).n_tokens, N);
    assert_int_equal(restore(f.cache, 0, tokens, N, N).n_tokens, N - 1); /* one is left to compute */
    assert_holds(0, N - 1);
    close_fixture(&f);
}

/* ---- identity ---- */

static cairn_digest identity_of(const cairn_llama_options *options)
{
    cairn_llama *cache = open_cache(&rt, options);
    cairn_digest digest = cairn_identity_digest(cairn_llama_identity(cache));
    cairn_llama_close(cache);
    return digest;
}

static void assert_other_identity(const cairn_llama_options *options)
{
    cairn_digest digest = identity_of(options);
    assert_memory_not_equal(digest.bytes, identity.bytes, sizeof digest.bytes);
}

/* Everything that changes KV is another identity, all else the same one. */
static void identity_follows_what_changes_the_bytes(void **state)
{
    fixture f = open_fixture(512, 0);
    (void)state;
    cairn_llama_close(f.cache);
    struct llama_context_params p = context_params(&f16, 768, 2 * PAGE); /* other sizes and threads: the same */
    p.n_threads = p.n_threads_batch = OTHER_THREADS;
    p.n_seq_max = 7;
    open_context(&rt, p);
    cairn_llama_options options = cache_options(&rt, f.store);
    cairn_digest        same = identity_of(&options);
    assert_memory_equal(same.bytes, identity.bytes, sizeof same.bytes);
    options.salt = "tenant";
    assert_other_identity(&options);
    options.salt = NULL;
    options.grid_tokens = PAGE;
    assert_other_identity(&options);
    options.grid_tokens = 0;
    const cairn_digest weights = {{1}};
    options.weights = &weights;
    assert_other_identity(&options);
    options.weights = NULL;
    const struct llama_model_kv_override overrides[2] = {{.tag = LLAMA_KV_OVERRIDE_TYPE_INT, .key = "a.b", .val_i64 = 1}};
    rt.model_params.kv_overrides = overrides;
    assert_other_identity(&options);
    rt.model_params.kv_overrides = NULL;
    const kv_setup others[] = {{"", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, true}, {"", GGML_TYPE_F16, GGML_TYPE_F16, false}};
    for (int i = 0; i < 2; i++) {
        open_context(&rt, context_params(&others[i], 512, PAGE));
        assert_other_identity(&options);
    }
    p = context_params(&f16, 512, PAGE);
    p.rope_freq_base = 20000;
    open_context(&rt, p);
    assert_other_identity(&options);
    cairn_store_close(f.store);
}

int main(int argc, char **argv)
{
    (void)argc;
    sleep_at_barriers(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_open_writes_is_counted),
        cmocka_unit_test(cold_pages_are_exact_and_then_in_memory),
        cmocka_unit_test(corrupt_page_leaves_the_prefix_before_it),
        cmocka_unit_test(corrupt_first_page_restores_nothing),
        cmocka_unit_test(no_room_in_the_context_stops_cleanly),
        cmocka_unit_test(no_room_for_the_first_run_restores_nothing),
        cmocka_unit_test(stopped_on_the_way),
        cmocka_unit_test(prompts_for_the_next_process),
        cmocka_unit_test(recording_into_a_full_writer_gives_up),
        cmocka_unit_test(recording_into_a_slow_writer_waits),
        cmocka_unit_test(scattered_cells_are_recorded_in_order),
        cmocka_unit_test(contexts_that_can_not_do_it_are_refused_by_name),
        cmocka_unit_test(a_model_without_a_digest_is_refused),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(identity_follows_what_changes_the_bytes),
    };
    return test_exit_code(cmocka_run_group_tests(tests, set_up, tear_down));
}
