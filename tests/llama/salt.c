/* Salts of sequences: what one recorded no other finds, whatever the sequence
 * held before; and what is known of a sequence does not outlive its salt.
 *
 * A tiny model of CAIRN_TEST_ARCHS_DIR, unset ~/.cache/cairn-build/archs-1. */
#include "support.h"

enum { PAGE = 64, N = 192, SCRATCH = 3 };

typedef struct fixture {
    char         dir[256];
    runtime      rt;
    cairn_store *store;
    cairn_llama *cache;
    llama_token *tokens;
} fixture;

static int set_up(void **state)
{
    static const kv_setup f16 = {"f16", GGML_TYPE_F16, GGML_TYPE_F16, true};
    static char           path[4096];
    const char           *given = getenv("CAIRN_TEST_ARCHS_DIR");
    fixture              *f = calloc(1, sizeof *f);
    if (given && given[0])
        snprintf(path, sizeof path, "%s/llama-dense.gguf", given);
    else
        snprintf(path, sizeof path, "%s/.cache/cairn-build/archs-1/llama-dense.gguf", getenv("HOME"));
    REQUIRE(f != NULL);
    *state = f;
    if (!is_file(path)) {
        print_message("no model at %s\n", path);
        return 0;
    }
    init_llama();
    make_temp(f->dir, sizeof f->dir);
    f->rt = load(path);
    open_context(&f->rt, context_params(&f16, 1024, 64));
    f->store = open_store(f->dir, PAGE, 0);
    cairn_llama_options options = cache_options(&f->rt, f->store);
    f->cache = open_cache(&f->rt, &options);
    f->tokens = make_tokens(N + 1, f->rt.n_vocab, 5);
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    if (f->cache) {
        cairn_llama_close(f->cache);
        cairn_store_close(f->store);
        unload(&f->rt);
        remove_tree(f->dir);
    }
    free(f->tokens);
    free(f);
    return 0;
}

static fixture *fixture_of(void **state)
{
    fixture *f = *state;
    if (!f->cache)
        test_skip();
    return f;
}

static void empty(fixture *f, llama_seq_id seq, const char *salt)
{
    llama_memory_seq_rm(f->rt.memory, seq, -1, -1);
    assert_int_equal(cairn_llama_set_salt(f->cache, seq, salt), CAIRN_OK);
}

/* Tokens that an empty sequence finds under the salt. */
static uint32_t found(fixture *f, llama_seq_id seq, const char *salt)
{
    empty(f, seq, salt);
    cairn_llama_restored r = restore(f->cache, seq, f->tokens, N + 1, 0);
    if (r.n_tokens == 0)
        assert_int_equal(r.miss, CAIRN_MISS_NEVER_SEEN);
    return r.n_tokens;
}

static void compute_and_record(fixture *f, const char *salt)
{
    empty(f, 0, salt);
    prefill(&f->rt, 0, f->tokens, 0, N, 64);
    record_to_end(f->cache, f->store, f->tokens, N);
}

/* Pages published so far; each was handed over once. */
static uint64_t published(const fixture *f)
{
    cairn_store_stats stats;
    cairn_store_get_stats(f->store, &stats);
    assert_int_equal(stats.pages_put, stats.pages_published);
    return stats.pages_published;
}

static void one_salt_does_not_find_what_another_recorded(void **state)
{
    fixture *f = fixture_of(state);
    compute_and_record(f, "anna");
    assert_int_equal(found(f, 1, "bert"), 0);
    assert_int_equal(found(f, 1, NULL), 0);
    assert_int_equal(found(f, 1, ""), 0);
    assert_int_equal(found(f, 1, "ann"), 0);
    assert_int_equal(found(f, 1, "anna"), N);
    assert_int_equal(found(f, 2, "anna"), N);
    assert_int_equal(found(f, 0, "bert"), 0); /* the sequence that recorded it */
}

/* Same sequence, same tokens, another salt: its keys and what it says is stored
 * are of no use any more. */
static void a_track_does_not_outlive_its_salt(void **state)
{
    fixture                 *f = fixture_of(state);
    static const char *const salts[] = {"anna", "bert", NULL};
    for (uint64_t i = 0; i < 3; i++) {
        compute_and_record(f, salts[i]);
        assert_int_equal(published(f), 3 * (i + 1));
        assert_int_equal(found(f, 1, salts[i]), N);
    }
    compute_and_record(f, "anna"); /* there already */
    assert_int_equal(published(f), 9);
}

/* A resident part goes on under its own salt. */
static void a_sequence_is_recorded_while_it_grows(void **state)
{
    fixture *f = fixture_of(state);
    empty(f, 0, "anna");
    for (uint32_t n = 0; n < N; n += 64) {
        prefill(&f->rt, 0, f->tokens, n, n + 64, 64);
        assert_int_equal(cairn_llama_set_salt(f->cache, 0, "anna"), CAIRN_OK); /* again: changes nothing */
        cairn_llama_record(f->cache, 0, f->tokens, n + 64);
    }
    record_to_end(f->cache, f->store, f->tokens, N);
    assert_int_equal(published(f), 3);
    assert_int_equal(found(f, 1, "anna"), N);
}

static char *identity_text(const char *root, const char *folder)
{
    char   path[4500];
    size_t size;
    snprintf(path, sizeof path, "%s/%s/identity.txt", root, folder);
    char *text = read_file(path, &size);
    text[size] = 0;
    return text;
}

/* The line of the salt is taken out; false: there is none. */
static bool cut_salt(char *text)
{
    char *line = strstr(text, "\nsalt=");
    if (!line)
        return false;
    char *end = strchr(line + 1, '\n');
    memmove(line, end, strlen(end) + 1);
    return true;
}

static void identities_differ_in_the_salt_alone(void **state)
{
    fixture *f = fixture_of(state);
    char     root[512], *texts[3];
    int      n = 0;
    compute_and_record(f, NULL);
    compute_and_record(f, "anna");
    compute_and_record(f, "bert");
    snprintf(root, sizeof root, "%s/root/v1", f->dir);
    DIR *dir = opendir(root);
    REQUIRE(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && n < 3)
            texts[n++] = identity_text(root, entry->d_name);
    closedir(dir);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) {
        assert_null(strstr(texts[i], "anna"));
        assert_string_not_equal(texts[i], texts[(i + 1) % 3]);
    }
    for (int i = 0; i < 3; i++)
        assert_true(cut_salt(texts[i]));
    assert_string_equal(texts[0], texts[1]);
    assert_string_equal(texts[0], texts[2]);
    for (int i = 0; i < 3; i++)
        free(texts[i]);
}

static void wrong_sequences_are_refused(void **state)
{
    fixture *f = fixture_of(state);
    assert_int_equal(cairn_llama_set_salt(NULL, 0, "x"), CAIRN_EINVAL);
    assert_int_equal(cairn_llama_set_salt(f->cache, -1, "x"), CAIRN_EINVAL);
    assert_int_equal(cairn_llama_set_salt(f->cache, SCRATCH, "x"), CAIRN_EINVAL);
    assert_int_equal(cairn_llama_set_salt(f->cache, SCRATCH + 1, NULL), CAIRN_EINVAL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
    (void)argc;
    sleep_at_barriers(argv);
    const struct CMUnitTest tests[] = {
        TEST(one_salt_does_not_find_what_another_recorded),
        TEST(a_track_does_not_outlive_its_salt),
        TEST(a_sequence_is_recorded_while_it_grows),
        TEST(identities_differ_in_the_salt_alone),
        TEST(wrong_sequences_are_refused),
    };
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
