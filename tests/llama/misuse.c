/* Models, options, contexts and pages that look right and are not what they
 * seem: two that differ never share pages, and what belongs to the caller stays.
 *
 * Tiny models of CAIRN_TEST_ARCHS_DIR, unset ~/.cache/cairn-build/archs-1. */
#include "support.h"

#include "base/bytes.h"
#include "base/digest.h"

#include <gguf.h>

enum { PAGE = 64, N = 192, SCRATCH = 3 };

static const kv_setup f16 = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true};
static char           dir[256];

static int set_up(void **state)
{
    (void)state;
    init_llama();
    make_temp(dir, sizeof dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_tree(dir);
    return 0;
}

static cairn_digest identity_in(runtime *rt, struct llama_context_params params)
{
    open_context(rt, params);
    cairn_store        *store = open_store(dir, PAGE, 0);
    cairn_llama_options options = cache_options(rt, store);
    cairn_llama        *cache = open_cache(rt, &options);
    assert_null(cairn_llama_unsupported(cache));
    cairn_digest digest = cairn_identity_digest(cairn_llama_identity(cache));
    cairn_llama_close(cache);
    cairn_store_close(store);
    return digest;
}

static bool same(const cairn_digest *a, const cairn_digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* ---- identity ---- */

static cairn_digest identity_with_bases(double first, double second)
{
    struct llama_model_kv_override overrides[3] = {
        {.tag = LLAMA_KV_OVERRIDE_TYPE_FLOAT, .key = "llama.rope.freq_base", .val_f64 = first},
        {.tag = LLAMA_KV_OVERRIDE_TYPE_FLOAT, .key = "llama.rope.freq_base", .val_f64 = second}};
    runtime rt = {.path = tiny_model("llama-dense"), .model_params = llama_model_default_params()};
    rt.model_params.kv_overrides = overrides;
    rt.model = llama_model_load_from_file(rt.path, rt.model_params);
    REQUIRE(rt.model != NULL);
    cairn_digest digest = identity_in(&rt, context_params(&f16, 256, PAGE));
    unload(&rt);
    return digest;
}

/* llama.cpp takes the first of two overrides of one key. */
static void the_first_of_two_overrides_counts(void **state)
{
    cairn_digest a = identity_with_bases(100, 10000), b = identity_with_bases(10000, 100),
                 c = identity_with_bases(100, 5000);
    (void)state;
    assert_false(same(&a, &b));
    assert_true(same(&a, &c));
}

/* The tiny phi3 without its original context length: then the training context
 * counts, of which a context with a YaRN scale of its own changes what
 * llama_model_n_ctx_train() says. */
static void rope_factors_are_chosen_by_the_metadata(void **state)
{
    static const char name[] = "phi3.rope.scaling.original_context_length";
    char              path[sizeof dir + 16];
    size_t            size;
    char             *data = read_file(tiny_model("phi3-dense"), &size), *at = data;
    (void)state;
    while (at + sizeof name <= data + size && memcmp(at, name, sizeof name - 1) != 0)
        at++;
    REQUIRE(at + sizeof name <= data + size);
    at[sizeof name - 2] = 'X';
    snprintf(path, sizeof path, "%s/phi3.gguf", dir);
    write_file(path, data, size);
    free(data);

    runtime                     rt = load(path);
    struct llama_context_params small = context_params(&f16, 256, PAGE), large = context_params(&f16, 1024, PAGE);
    cairn_digest                plain[2] = {identity_in(&rt, small), identity_in(&rt, large)};
    assert_false(same(&plain[0], &plain[1]));
    small.rope_scaling_type = large.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN;
    small.rope_freq_scale = large.rope_freq_scale = 0.0625F;
    cairn_digest yarn[2] = {identity_in(&rt, small), identity_in(&rt, large)};
    assert_false(same(&yarn[0], &yarn[1]));
    cairn_digest again = identity_in(&rt, context_params(&f16, 1024, PAGE));
    assert_true(same(&again, &plain[1]));
    unload(&rt);
}

/* ---- shards ---- */

/* Shard `no` of two of a model: every other tensor. */
static void write_shard(const char *model, const char *path, uint16_t no)
{
    struct ggml_context *tensors = NULL;
    struct gguf_context *from = gguf_init_from_file(model, (struct gguf_init_params){.ctx = &tensors});
    struct gguf_context *to = gguf_init_empty();
    REQUIRE(from && to && tensors);
    if (no == 0)
        gguf_set_kv(to, from);
    gguf_set_val_u16(to, "split.no", no);
    gguf_set_val_u16(to, "split.count", 2);
    gguf_set_val_i32(to, "split.tensors.count", (int32_t)gguf_get_n_tensors(from));
    for (int64_t i = no; i < gguf_get_n_tensors(from); i += 2)
        gguf_add_tensor(to, ggml_get_tensor(tensors, gguf_get_tensor_name(from, i)));
    REQUIRE(gguf_write_to_file(to, path, false));
    gguf_free(to);
    gguf_free(from);
    ggml_free(tensors);
}

static void a_model_of_two_shards_needs_both_paths(void **state)
{
    char        path[2][sizeof dir + 32];
    const char *paths[2] = {path[0], path[1]};
    (void)state;
    for (uint16_t i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/tiny-%05d-of-00002.gguf", dir, i + 1);
        write_shard(tiny_model("llama-dense"), path[i], i);
    }
    runtime rt = load(path[0]);
    open_context(&rt, context_params(&f16, 256, PAGE));
    cairn_store        *store = open_store(dir, PAGE, 0);
    cairn_llama_options options = cache_options(&rt, store);
    cairn_llama        *cache = NULL;
    cairn_error         error;
    assert_int_equal(cairn_llama_open(rt.model, rt.ctx, &options, &cache, &error), CAIRN_EINVAL);
    assert_non_null(strstr(error.text, "2 shards"));
    options.model_paths = paths;
    options.n_model_paths = 2;
    cache = open_cache(&rt, &options);
    assert_null(cairn_llama_unsupported(cache));
    cairn_llama_close(cache);
    cairn_store_close(store);
    unload(&rt);
}

/* ---- the scratch sequence ---- */

/* It is emptied by every run in or out: not when somebody else's tokens are in it. */
static void a_scratch_sequence_in_use_is_left_alone(void **state)
{
    (void)state;
    runtime      rt = load(tiny_model("llama-dense"));
    llama_token *tokens = make_tokens(N, rt.n_vocab, 5), *others = make_tokens(N, rt.n_vocab, 6);
    open_context(&rt, context_params(&f16, 1024, N));
    cairn_store        *store = open_store(dir, PAGE, 0);
    cairn_llama_options options = cache_options(&rt, store);
    options.run_tokens = PAGE;
    cairn_llama *cache = open_cache(&rt, &options);
    REQUIRE(decode(&rt, 0, tokens, 0, N) == 0);
    cairn_llama_record_end(cache, 0, tokens, N);
    assert_int_equal(cairn_store_flush(store, 10000), CAIRN_OK);

    REQUIRE(decode(&rt, SCRATCH, others, 0, 40) == 0);
    cairn_llama_restored r = restore(cache, 1, tokens, N, 0);
    assert_int_equal(r.n_tokens, PAGE); /* the first run needs no scratch */
    assert_int_equal(r.miss, CAIRN_MISS_IO);
    REQUIRE(decode(&rt, 2, others, 0, N) == 0);
    cairn_llama_record_end(cache, 2, others, N);
    assert_int_equal(llama_memory_seq_pos_max(rt.memory, SCRATCH), 39);

    llama_memory_seq_rm(rt.memory, SCRATCH, -1, -1);
    assert_int_equal(restore(cache, 1, tokens, N, PAGE).n_tokens, N - 1);
    cairn_llama_record_end(cache, 2, others, N);
    assert_int_equal(cairn_store_flush(store, 10000), CAIRN_OK);
    llama_memory_seq_rm(rt.memory, 2, -1, -1);
    assert_int_equal(restore(cache, 2, others, N, 0).n_tokens, N - 1);
    cairn_llama_close(cache);
    cairn_store_close(store);
    free(tokens);
    free(others);
    unload(&rt);
}

/* ---- a page of another kind ---- */

static bool find_page(const char *folder, uint32_t start, char *path, size_t size)
{
    DIR           *d = opendir(folder);
    struct dirent *entry;
    bool           found = false;
    while (d && !found && (entry = readdir(d))) {
        char        child[4096];
        struct stat st;
        if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "quarantine"))
            continue;
        snprintf(child, sizeof child, "%s/%s", folder, entry->d_name);
        if (lstat(child, &st) == 0 && S_ISDIR(st.st_mode)) {
            found = find_page(child, start, path, size);
        } else if (strstr(child, ".page")) {
            size_t   length;
            uint8_t *data = read_file(child, &length);
            found = cairn__get_u32(data + 192) == start;
            free(data);
            if (found)
                snprintf(path, size, "%s", child);
        }
    }
    if (d)
        closedir(d);
    return found;
}

/* A tiny model, a context for three sequences of N tokens, and a root of its own. */
typedef struct desk {
    char         root[sizeof dir + 16];
    runtime      rt;
    llama_token *tokens;
    cairn_store *store;
    cairn_llama *cache;
} desk;

static desk set_desk(const char *name, uint32_t seed)
{
    desk d = {.rt = load(tiny_model("llama-dense"))};
    d.tokens = make_tokens(N, d.rt.n_vocab, seed);
    open_context(&d.rt, context_params(&f16, 1024, N));
    snprintf(d.root, sizeof d.root, "%s/%s", dir, name);
    REQUIRE(mkdir(d.root, 0700) == 0);
    d.store = open_store(d.root, PAGE, 0);
    cairn_llama_options options = cache_options(&d.rt, d.store);
    d.cache = open_cache(&d.rt, &options);
    return d;
}

static void clear_desk(desk *d)
{
    cairn_llama_close(d->cache);
    cairn_store_close(d->store);
    free(d->tokens);
    unload(&d->rt);
}

/* Right name, tokens and checksum, and its blocks mean something else: a miss,
 * and out of the way, so that the page can be stored again. */
static void a_page_of_another_layout_makes_room(void **state)
{
    char   path[4096];
    size_t size;
    (void)state;
    desk         d = set_desk("other", 10);
    REQUIRE(decode(&d.rt, 0, d.tokens, 0, N) == 0);
    cairn_llama_record_end(d.cache, 0, d.tokens, N);
    assert_int_equal(cairn_store_flush(d.store, 10000), CAIRN_OK);

    REQUIRE(find_page(d.root, PAGE, path, sizeof path));
    uint8_t *page = read_file(path, &size);
    page[200] ^= 1; /* its layout */
    cairn__xxh128 sum = cairn__xxh3_128_zeroed(page, cairn__get_u32(page + 16), 80, sizeof sum);
    memcpy(page + 80, &sum, sizeof sum);
    write_file(path, page, size);
    free(page);

    cairn_llama_restored r = restore(d.cache, 1, d.tokens, N, 0);
    assert_int_equal(r.n_tokens, PAGE);
    assert_int_equal(r.miss, CAIRN_MISS_CORRUPT);
    assert_false(is_file(path));
    cairn_store_stats stats;
    cairn_store_get_stats(d.store, &stats);
    assert_int_equal(stats.pages_quarantined, 1);
    REQUIRE(decode(&d.rt, 1, d.tokens, PAGE, N) == 0);
    cairn_llama_record_end(d.cache, 1, d.tokens, N);
    assert_int_equal(cairn_store_flush(d.store, 10000), CAIRN_OK);
    assert_int_equal(restore(d.cache, 2, d.tokens, N, 0).n_tokens, N - 1);
    clear_desk(&d);
}

/* ---- what the caller or the disk lost ---- */

/* A resident part with a hole has the right ends: nothing may be built on it. */
static void a_hole_in_the_resident_part_is_refused(void **state)
{
    (void)state;
    desk                 d = set_desk("hole", 11);
    cairn_llama_restored r;
    REQUIRE(decode(&d.rt, 0, d.tokens, 0, PAGE) == 0);
    REQUIRE(llama_memory_seq_rm(d.rt.memory, 0, 20, 30));
    assert_int_equal(cairn_llama_restore(d.cache, 0, d.tokens, N, PAGE, &r), CAIRN_EINVAL);
    clear_desk(&d);
}

/* A page that goes while its sequence is resident is stored again with the next
 * end of a prompt. */
static void a_lost_page_is_stored_again(void **state)
{
    char path[4096];
    (void)state;
    desk         d = set_desk("lost", 12);
    REQUIRE(decode(&d.rt, 0, d.tokens, 0, N) == 0);
    cairn_llama_record_end(d.cache, 0, d.tokens, N);
    assert_int_equal(cairn_store_flush(d.store, 10000), CAIRN_OK);
    REQUIRE(find_page(d.root, N - PAGE, path, sizeof path) && unlink(path) == 0);
    cairn_llama_record_end(d.cache, 0, d.tokens, N);
    assert_int_equal(cairn_store_flush(d.store, 10000), CAIRN_OK);
    assert_true(is_file(path));
    assert_int_equal(restore(d.cache, 1, d.tokens, N, 0).n_tokens, N - 1);
    clear_desk(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_two_overrides_counts),
        cmocka_unit_test(rope_factors_are_chosen_by_the_metadata),
        cmocka_unit_test(a_model_of_two_shards_needs_both_paths),
        cmocka_unit_test(a_scratch_sequence_in_use_is_left_alone),
        cmocka_unit_test(a_page_of_another_layout_makes_room),
        cmocka_unit_test(a_hole_in_the_resident_part_is_refused),
        cmocka_unit_test(a_lost_page_is_stored_again),
    };
    return test_exit_code(cmocka_run_group_tests(tests, set_up, tear_down));
}
