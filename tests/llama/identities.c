/* What separates caches, and what does not: one prefix is recorded under a base
 * setting, and every other setting must find it or must not, and name the lines of
 * the identity in which it differs. Real settings of a real context each time, on a
 * tiny model; adapters and models with rope factors are made here. */
#include "support.h"

#include "base/bytes.h"

#include <gguf.h>

enum { PAGE = 16, N = 3 * PAGE, N_CTX = 256 };

static const kv_setup f16 = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true};

static char           dir[3000];
static llama_token   *tokens;
static char          *base_text;  /* identity of the base setting */
static uint8_t       *base_state; /* KV as computed under it */
static uint64_t       base_state_size;

/* A setting: the base unless a case changes it. */
typedef struct setting {
    const char                 *path;
    struct llama_model_params   model;
    struct llama_context_params context;
    cairn_llama_adapter         adapter; /* path NULL: none */
    const char                 *salt;
} setting;

static const char *in_dir(const char *name)
{
    static char paths[4][4096];
    static int  i;
    char       *path = paths[i++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static setting base(void)
{
    return (setting){.path = tiny_path("llama-dense"),
                     .model = llama_model_default_params(),
                     .context = context_params(&f16, N_CTX, PAGE)};
}

/* What a setting gives: how much of the prefix it finds, and its identity. */
typedef struct outcome {
    uint32_t found;
    char    *text;
    uint8_t *state; /* KV of [0, N) as it computes it */
    uint64_t state_size;
} outcome;

static void free_outcome(outcome *o)
{
    free(o->text);
    free(o->state);
}

static outcome run_with(const setting *s, bool record)
{
    outcome o = {0};
    runtime rt = {.path = s->path, .model_params = s->model};
    rt.model = llama_model_load_from_file(s->path, s->model);
    REQUIRE(rt.model != NULL);
    rt.n_vocab = (uint32_t)llama_vocab_n_tokens(llama_model_get_vocab(rt.model));
    open_context(&rt, s->context);
    struct llama_adapter_lora *lora = s->adapter.path ? llama_adapter_lora_init(rt.model, s->adapter.path) : NULL;
    float                      scale = s->adapter.scale;
    if (s->adapter.path)
        REQUIRE(lora && llama_set_adapters_lora(rt.ctx, &lora, 1, &scale) == 0);
    cairn_store        *store = open_store(dir, PAGE, 0);
    cairn_llama_options options = cache_options(&rt, store);
    options.salt = s->salt;
    options.adapters = lora ? &s->adapter : NULL;
    options.n_adapters = lora ? 1 : 0;
    cairn_llama *cache = open_cache(&rt, &options);
    REQUIRE(cairn_llama_identity(cache) != NULL);
    o.text = strdup(cairn_identity_text(cairn_llama_identity(cache), NULL));
    o.found = restore(cache, 0, tokens, N + 1, 0).from_store;
    llama_memory_clear(rt.memory, true);
    prefill(&rt, 0, tokens, 0, N, PAGE);
    o.state_size = llama_state_seq_get_size(rt.ctx, 0);
    o.state = malloc(o.state_size);
    REQUIRE(o.state && llama_state_seq_get_data(rt.ctx, o.state, o.state_size, 0) == o.state_size);
    if (record)
        record_to_end(cache, store, tokens, N);
    cairn_llama_close(cache);
    cairn_store_close(store);
    unload(&rt);
    return o;
}

static int set_up(void **state)
{
    (void)state;
    init_llama();
    if (!is_file(tiny_path("llama-dense")))
        return 0;
    make_temp(dir, sizeof dir);
    tokens = make_tokens(N + 1, 128, 21);
    setting s = base();
    outcome o = run_with(&s, true);
    REQUIRE(o.found == 0);
    base_text = o.text;
    base_state = o.state;
    base_state_size = o.state_size;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(tokens);
    free(base_text);
    free(base_state);
    if (dir[0])
        remove_tree(dir);
    return 0;
}

static void need_model(void)
{
    if (!dir[0]) {
        print_message("no model at %s: set CAIRN_TEST_ARCHS_DIR\n", tiny_path("llama-dense"));
        skip();
    }
}

/* ---- what differs ---- */

static bool has_line(const char *text, const char *line, size_t size)
{
    for (const char *at = text; *at; at = strchr(at, '\n') + 1)
        if (strcspn(at, "\n") == size && !memcmp(at, line, size))
            return true;
    return false;
}

/* Keys of the lines of `text` that `other` has not, each followed by a space. */
static void other_keys(const char *text, const char *other, char *keys, size_t size)
{
    size_t n = 0;
    keys[0] = 0;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1)
        if (!has_line(other, at, strcspn(at, "\n")))
            n += (size_t)snprintf(keys + n, size - n, "%.*s ", (int)strcspn(at, "="), at);
}

/* `keys`: lines that are new or different, "" for none, which is a hit. */
static void expect(const setting *s, const char *keys)
{
    char    got[1024];
    outcome o = run_with(s, false);
    other_keys(o.text, base_text, got, sizeof got);
    assert_string_equal(got, keys);
    assert_int_equal(o.found, keys[0] ? 0 : N);
    free_outcome(&o);
}

/* The same, and it is right to miss: the KV really is another. */
static void expect_other_kv(const setting *s, const char *keys)
{
    outcome o = run_with(s, false);
    assert_true(o.state_size != base_state_size || memcmp(o.state, base_state, o.state_size) != 0);
    free_outcome(&o);
    expect(s, keys);
}

/* ---- files ---- */

static void copy_file(const char *from, const char *to)
{
    size_t size;
    void  *data = read_file(from, &size);
    write_file(to, data, size);
    free(data);
}

static void weights_and_paths(void **state)
{
    (void)state;
    need_model();
    setting s = base();
    s.path = in_dir("moved.gguf");
    copy_file(tiny_path("llama-dense"), s.path);
    expect(&s, ""); /* same weights, other path */
    int     fd = open(s.path, O_RDWR);
    uint8_t byte;
    off_t   at = lseek(fd, 0, SEEK_END) / 2; /* in a weight of the middle */
    REQUIRE(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    REQUIRE(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
    expect(&s, "weights "); /* same path, one bit of the weights */
}

static float pattern(uint32_t i)
{
    return (float)((i * 2654435761u >> 16) % 1000) / 1000.0f - 0.5f;
}

static struct ggml_tensor *new_tensor(struct ggml_context *ctx, const char *name, int64_t ne0, int64_t ne1)
{
    struct ggml_tensor *t = ne1 ? ggml_new_tensor_2d(ctx, GGML_TYPE_F32, ne0, ne1) : ggml_new_tensor_1d(ctx, GGML_TYPE_F32, ne0);
    ggml_set_name(t, name);
    for (int64_t i = 0; i < ggml_nelements(t); i++)
        ((float *)t->data)[i] = pattern((uint32_t)i);
    return t;
}

/* Rank 4 on K of the first layer. */
static void write_adapter(const char *path)
{
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
    struct gguf_context *gguf = gguf_init_empty();
    gguf_set_val_str(gguf, "general.type", "adapter");
    gguf_set_val_str(gguf, "general.architecture", "llama");
    gguf_set_val_str(gguf, "adapter.type", "lora");
    gguf_set_val_f32(gguf, "adapter.lora.alpha", 4);
    gguf_add_tensor(gguf, new_tensor(ctx, "blk.0.attn_k.weight.lora_a", 256, 4));
    gguf_add_tensor(gguf, new_tensor(ctx, "blk.0.attn_k.weight.lora_b", 4, 256));
    REQUIRE(gguf_write_to_file(gguf, path, false));
    gguf_free(gguf);
    ggml_free(ctx);
}

static void adapters_at_two_scales(void **state)
{
    (void)state;
    need_model();
    setting s = base();
    s.adapter.path = in_dir("adapter.gguf");
    write_adapter(s.adapter.path);
    s.adapter.scale = 1;
    expect_other_kv(&s, "adapter.0 ");
    outcome one = run_with(&s, false);
    s.adapter.scale = 0.5f;
    expect_other_kv(&s, "adapter.0 ");
    outcome half = run_with(&s, false);
    assert_string_not_equal(one.text, half.text);
    assert_memory_not_equal(one.state, half.state, one.state_size);
    free_outcome(&one);
    free_outcome(&half);
    s.adapter.scale = 0; /* adds nothing */
    expect(&s, "");
}

/* ---- how KV is kept ---- */

static void types_attention_and_rotation(void **state)
{
    static const kv_setup q8 = {"q8_0", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, true};
    static const kv_setup no_flash = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, false};
    static const kv_setup k32 = {"f32", GGML_TYPE_F32, GGML_TYPE_F16, true};
    (void)state;
    need_model();
    setting s = base();
    s.context = context_params(&k32, N_CTX, PAGE);
    expect(&s, "kv.type_k layout ");
    s.context = context_params(&no_flash, N_CTX, PAGE);
    expect(&s, "flash_attn kv.v_transposed layout ");
    s.context = context_params(&f16, N_CTX, PAGE);
    s.context.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_AUTO; /* on, where it works */
    expect(&s, "");
    REQUIRE(setenv("LLAMA_ATTN_ROT_DISABLE", "1", 1) == 0);
    expect(&s, ""); /* nothing is rotated in f16 */
    s.context = context_params(&q8, N_CTX, PAGE);
    outcome plain = run_with(&s, false);
    expect(&s, "kv.rotation kv.type_k kv.type_v layout ");
    REQUIRE(unsetenv("LLAMA_ATTN_ROT_DISABLE") == 0);
    outcome rotated = run_with(&s, false);
    char    keys[256];
    other_keys(plain.text, rotated.text, keys, sizeof keys);
    assert_string_equal(keys, "kv.rotation ");
    assert_int_equal(plain.state_size, rotated.state_size);
    assert_memory_not_equal(plain.state, rotated.state, plain.state_size);
    free_outcome(&plain);
    free_outcome(&rotated);
}

/* ---- positions ---- */

static void rope_and_yarn(void **state)
{
    (void)state;
    need_model();
    setting s = base();
    s.context.rope_freq_base = 20000;
    expect_other_kv(&s, "rope.freq_base ");
    s = base();
    s.context.rope_freq_scale = 0.5f;
    expect_other_kv(&s, "rope.freq_scale ");
    s = base();
    s.context.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN;
    expect(&s, "rope.scaling ");
    s.context.rope_freq_scale = 0.5f;
    expect_other_kv(&s, "rope.freq_scale rope.scaling ");
    s = base();
    s.context.yarn_ext_factor = 0.5f;
    expect(&s, "yarn.ext_factor ");
    s = base();
    s.context.yarn_attn_factor = 0.5f;
    expect(&s, "yarn.attn_factor ");
    s = base();
    s.context.yarn_beta_fast = 16;
    expect(&s, "yarn.beta_fast ");
    s = base();
    s.context.yarn_beta_slow = 2;
    expect(&s, "yarn.beta_slow ");
    s = base();
    s.context.yarn_orig_ctx = 128;
    expect(&s, "yarn.orig_ctx ");
}

/* The tiny model with a long and a short set of rope factors; its original context is 256. */
static void write_factor_model(const char *path)
{
    struct ggml_context *tensors = NULL, *more = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
    struct gguf_context *from = gguf_init_from_file(tiny_path("llama-dense"), (struct gguf_init_params){.ctx = &tensors});
    struct gguf_context *to = gguf_init_empty();
    REQUIRE(from && more && to);
    gguf_set_kv(to, from);
    gguf_set_val_str(to, "llama.rope.scaling.type", "longrope");
    for (int64_t i = 0; i < gguf_get_n_tensors(from); i++)
        if (strcmp(gguf_get_tensor_name(from, i), "rope_freqs.weight") != 0) /* these would go before both sets */
            gguf_add_tensor(to, ggml_get_tensor(tensors, gguf_get_tensor_name(from, i)));
    for (int set = 0; set < 2; set++) {
        struct ggml_tensor *t = new_tensor(more, set ? "rope_factors_long.weight" : "rope_factors_short.weight", 64, 0);
        for (int i = 0; i < 64; i++)
            ((float *)t->data)[i] = set ? 4 : 1;
        gguf_add_tensor(to, t);
    }
    REQUIRE(gguf_write_to_file(to, path, false));
    gguf_free(to);
    gguf_free(from);
    ggml_free(tensors);
    ggml_free(more);
}

static outcome with_context(setting *s, uint32_t n_ctx, bool record)
{
    s->context.n_ctx = n_ctx;
    return run_with(s, record);
}

/* Not the size of the context but the set of factors that it selects. */
static void rope_factors_of_two_context_sizes(void **state)
{
    char keys[256];
    (void)state;
    need_model();
    setting s = base();
    s.path = in_dir("factors.gguf");
    write_factor_model(s.path);
    outcome small = with_context(&s, 256, true), large = with_context(&s, 512, true);
    assert_int_equal(small.found, 0);
    assert_int_equal(large.found, 0);
    other_keys(large.text, small.text, keys, sizeof keys);
    assert_string_equal(keys, "rope.factors ");
    assert_memory_not_equal(small.state, large.state, small.state_size); /* K is rotated otherwise */
    outcome smaller = with_context(&s, 128, false), larger = with_context(&s, 768, false);
    assert_int_equal(smaller.found, N);
    assert_int_equal(larger.found, N);
    assert_string_equal(smaller.text, small.text);
    assert_string_equal(larger.text, large.text);
    free_outcome(&small);
    free_outcome(&smaller);
    free_outcome(&large);
    free_outcome(&larger);
}

/* ---- the rest ---- */

static void overrides_of_metadata(void **state)
{
    struct llama_model_kv_override o[3] = {
        {.tag = LLAMA_KV_OVERRIDE_TYPE_FLOAT, .key = "llama.rope.freq_base", .val_f64 = 5000},
        {.tag = LLAMA_KV_OVERRIDE_TYPE_INT, .key = "llama.expert_used_count", .val_i64 = 0}};
    (void)state;
    need_model();
    setting s = base();
    s.model.kv_overrides = o;
    expect_other_kv(&s, "override.0 override.1 ");
    outcome first = run_with(&s, false);
    struct llama_model_kv_override swap = o[0];
    o[0] = o[1];
    o[1] = swap; /* their order says nothing */
    outcome second = run_with(&s, false);
    assert_string_equal(first.text, second.text);
    o[1].val_f64 = 6000;
    outcome third = run_with(&s, false);
    assert_string_not_equal(first.text, third.text);
    free_outcome(&first);
    free_outcome(&second);
    free_outcome(&third);
}

static void what_changes_no_bytes_is_no_part_of_it(void **state)
{
    (void)state;
    need_model();
    setting s = base();
    s.context.n_ctx = 1024;
    expect(&s, "");
    s = base();
    s.context.n_batch = s.context.n_ubatch = 64;
    expect(&s, "");
    s = base();
    s.context.n_seq_max = 9; /* slots */
    expect(&s, "");
#if !defined(__SANITIZE_THREAD__) /* ggml's threads are not instrumented */
    s = base();
    s.context.n_threads = s.context.n_threads_batch = 2;
    expect(&s, "");
#endif
    s = base();
    s.model.check_tensors = true;
    expect(&s, "");
}

static void salts(void **state)
{
    (void)state;
    need_model();
    setting s = base();
    s.salt = "tenant";
    expect(&s, "salt ");
    s.salt = "";
    expect(&s, "salt "); /* an empty salt is one, too */
}

/* The field that another machine or build would have; the store finds nothing under it. */
static void other_machines(void **state)
{
    static const char *const fields[][2] = {{"cpu", "aarch64"},    {"byte_order", "big"}, {"pointer_bits", "32"},
                                            {"device", "CUDA:H200"}, {"kv.windows", "cut"}, {"layers", "0-15"}};
    (void)state;
    need_model();
    setting              s = base();
    runtime              rt = load(s.path);
    cairn_identity      *other = NULL;
    cairn_hit            hit;
    cairn_pin           *pin = NULL;
    open_context(&rt, s.context);
    cairn_store        *store = open_store(dir, PAGE, 0);
    cairn_llama_options options = cache_options(&rt, store);
    cairn_llama        *cache = open_cache(&rt, &options);
    const cairn_query   query = {.identity = cairn_llama_identity(cache), .tokens = tokens, .n_tokens = N};
    REQUIRE(cairn_store_lookup(store, &query, &hit, &pin) == CAIRN_OK);
    assert_int_equal(hit.cached_tokens, N);
    cairn_pin_release(pin);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        cairn_query q = query;
        REQUIRE(cairn_identity_copy(query.identity, &other) == CAIRN_OK);
        assert_non_null(strstr(cairn_identity_text(other, NULL), fields[i][0])); /* it has such a field */
        REQUIRE(cairn_identity_set(other, fields[i][0], fields[i][1]) == CAIRN_OK);
        q.identity = other;
        REQUIRE(cairn_store_lookup(store, &q, &hit, &pin) == CAIRN_OK);
        assert_int_equal(hit.cached_tokens, 0);
        cairn_identity_destroy(other);
    }
    cairn_llama_close(cache);
    cairn_store_close(store);
    unload(&rt);
}

/* The text lies beside the pages, so that two can be told apart with diff. */
static void the_text_lies_beside_the_pages(void **state)
{
    char   hex[65], path[4096];
    size_t size;
    (void)state;
    need_model();
    cairn_identity *id = NULL;
    REQUIRE(cairn_identity_create(&id) == CAIRN_OK);
    for (char *at = base_text; *at; at = strchr(at, '\n') + 1) {
        char line[5000], *value;
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        value = strchr(line, '=');
        *value++ = 0;
        REQUIRE(cairn_identity_set(id, line, value) == CAIRN_OK);
    }
    assert_string_equal(cairn_identity_text(id, NULL), base_text);
    cairn_digest digest = cairn_identity_digest(id);
    cairn__hex(digest.bytes, sizeof digest.bytes, hex);
    bool found = false;
    for (int n = 64; n >= 16 && !found; n -= 8) { /* the folder is named by the digest or its beginning */
        snprintf(path, sizeof path, "%s/root/v1/%.*s/identity.txt", dir, n, hex);
        found = is_file(path);
    }
    assert_true(found);
    char *text = read_file(path, &size);
    assert_int_equal(size, strlen(base_text));
    assert_memory_equal(text, base_text, size);
    free(text);
    cairn_identity_destroy(id);
}

/* ---- another build of the runtime ---- */

/* Prints the identity; a process of its own, which may have loaded other libraries. */
static int identity_child(void)
{
    setting s = base();
    init_llama();
    snprintf(dir, sizeof dir, "%s", getenv("CAIRN_TEST_DIR"));
    tokens = make_tokens(N + 1, 128, 21);
    outcome o = run_with(&s, false);
    printf("found=%u\n%s", o.found, o.text);
    free_outcome(&o);
    free(tokens);
    return 0;
}

/* The longest no-op that pads functions: cs nopw 0x0(%rax,%rax,1). */
static bool change_padding(uint8_t *library, size_t size)
{
    static const uint8_t padding[] = {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0};
    uint8_t             *at = memmem(library, size, padding, sizeof padding);
    if (!at)
        return false;
    at[5] = 1; /* the address of an instruction that does nothing */
    return true;
}

static bool library_path(char *path, size_t size)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char  line[4096];
    bool  found = false;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        char *name = strchr(line, '/');
        found = name && strstr(name, "/libllama.so");
        if (found)
            snprintf(path, size, "%.*s", (int)strcspn(name, "\n"), name);
    }
    if (maps)
        fclose(maps);
    return found;
}

static void another_build_of_the_runtime(void **state)
{
    char   path[4096], keys[256];
    size_t size;
    (void)state;
    need_model();
    if (!library_path(path, sizeof path)) {
        print_message("llama.cpp is no library of its own here\n");
        skip();
    }
    uint8_t *library = read_file(path, &size);
    if (!change_padding(library, size)) {
        print_message("no padding that can be changed: not x86-64\n");
        free(library);
        skip();
    }
    REQUIRE(mkdir(in_dir("lib"), 0700) == 0);
    write_file(in_dir("lib/libllama.so.0"), library, size);
    free(library);
    REQUIRE(setenv("CAIRN_TEST_DIR", dir, 1) == 0);
    assert_int_equal(run_again(in_dir("same"), 120, "identity", NULL), 0);
    REQUIRE(setenv("LD_LIBRARY_PATH", in_dir("lib"), 1) == 0);
    assert_int_equal(run_again(in_dir("other"), 120, "identity", NULL), 0);
    REQUIRE(unsetenv("LD_LIBRARY_PATH") == 0);
    char *same = read_file(in_dir("same"), &size);
    same[size] = 0;
    char *other = read_file(in_dir("other"), &size);
    other[size] = 0;
    other_keys(other, same, keys, sizeof keys);
    assert_string_equal(keys, "found runtime.libllama ");
    assert_non_null(strstr(same, "found=48\n"));
    assert_non_null(strstr(other, "found=0\n"));
    free(same);
    free(other);
}

int main(int argc, char **argv)
{
    sleep_at_barriers(argv);
    if (argc > 1 && !strcmp(argv[1], "identity"))
        return identity_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_and_paths),
        cmocka_unit_test(adapters_at_two_scales),
        cmocka_unit_test(types_attention_and_rotation),
        cmocka_unit_test(rope_and_yarn),
        cmocka_unit_test(rope_factors_of_two_context_sizes),
        cmocka_unit_test(overrides_of_metadata),
        cmocka_unit_test(what_changes_no_bytes_is_no_part_of_it),
        cmocka_unit_test(salts),
        cmocka_unit_test(other_machines),
        cmocka_unit_test(the_text_lies_beside_the_pages),
        cmocka_unit_test(another_build_of_the_runtime),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
