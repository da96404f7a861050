/* The runtime: what is refused and how it is said, sequences, tokens. */
#include "testing.h"

#include "llama/runtime.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/cairn-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static char *in_folder(const char *name)
{
    static char paths[4][128];
    static int  next;
    char       *path = paths[next++ % 4];
    snprintf(path, 128, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void refused(cairn__runtime_options options, cairn_status status, const char *part_of_text)
{
    cairn__runtime *rt = NULL;
    cairn_error     error;
    assert_int_equal(cairn__runtime_open(&options, &rt, &error), status);
    assert_null(rt);
    if (!strstr(error.text, part_of_text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, part_of_text);
}

static cairn__runtime *opened(cairn__runtime_options options)
{
    cairn__runtime *rt = NULL;
    cairn_error     error;
    if (!options.model_path)
        options.model_path = test_model();
    if (!options.model_path)
        test_skip();
    if (cairn__runtime_open(&options, &rt, &error))
        fail_msg("%s", error.text);
    return rt;
}

static void a_bad_model_is_said_clearly(void **state)
{
    (void)state;
    refused((cairn__runtime_options){0}, CAIRN_EINVAL, "no model");
    refused((cairn__runtime_options){.model_path = in_folder("none.gguf")}, CAIRN_ENOENT, "No such file");
    refused((cairn__runtime_options){.model_path = folder}, CAIRN_EINVAL, "not a file");
    write_file(in_folder("text.gguf"), "hello, world", 12);
    refused((cairn__runtime_options){.model_path = in_folder("text.gguf")}, CAIRN_EINVAL, "not a GGUF file");
    write_file(in_folder("empty.gguf"), "", 0);
    refused((cairn__runtime_options){.model_path = in_folder("empty.gguf")}, CAIRN_EINVAL, "not a GGUF file");
    write_file(in_folder("cut.gguf"), "GGUF\3\0\0\0\377\377", 10);
    refused((cairn__runtime_options){.model_path = in_folder("cut.gguf")}, CAIRN_EINVAL, "cannot load the model");
    assert_int_equal(mkfifo(in_folder("fifo.gguf"), 0600), 0);
    refused((cairn__runtime_options){.model_path = in_folder("fifo.gguf")}, CAIRN_EINVAL, "not a file");
}

static void a_missing_shard_is_named(void **state)
{
    (void)state;
    write_file(in_folder("big-00001-of-00003.gguf"), "GGUF", 4);
    write_file(in_folder("big-00003-of-00003.gguf"), "GGUF", 4);
    refused((cairn__runtime_options){.model_path = in_folder("big-00003-of-00003.gguf")}, CAIRN_ENOENT,
            "big-00002-of-00003.gguf");
}

static void settings_that_exclude_each_other(void **state)
{
    (void)state;
    refused((cairn__runtime_options){.model_path = "x", .type_v = CAIRN__KV_Q8_0, .flash_attn = -1}, CAIRN_EINVAL,
            "flash attention");
}

static bool stop_at_once(void *ctx, float fraction)
{
    (void)fraction;
    *(int *)ctx += 1;
    return false;
}

static void loading_can_be_cancelled(void **state)
{
    (void)state;
    int n_calls = 0;
    if (!test_model())
        test_skip();
    refused((cairn__runtime_options){.model_path = test_model(),
                                     .load_progress = stop_at_once,
                                     .load_progress_ctx = &n_calls},
            CAIRN_ECANCELED, "cancelled");
    assert_int_equal(n_calls, 1);
}

static void facts_and_defaults(void **state)
{
    (void)state;
    cairn__runtime *rt = opened((cairn__runtime_options){0});
    uint32_t        n = 0;
    assert_int_equal(cairn__runtime_n_ctx(rt), 8192); /* as trained */
    assert_int_equal(cairn__runtime_n_batch(rt), 512);
    assert_int_equal(cairn__runtime_n_seq(rt), 4);
    assert_int_equal(cairn__runtime_n_vocab(rt), 49152);
    assert_null(cairn__runtime_warning(rt));
    assert_null(cairn__runtime_unsupported(rt));
    assert_non_null(strstr(cairn__runtime_description(rt), "135M"));
    assert_int_equal(cairn__runtime_model_bytes(rt), 98362432);
    const char *const *paths = cairn__runtime_model_paths(rt, &n);
    assert_int_equal(n, 1);
    assert_int_equal(paths[0][0], '/');
    cairn__runtime_close(rt);
    rt = opened((cairn__runtime_options){.n_ctx = 8448, .reproducible = true});
    assert_int_equal(cairn__runtime_n_seq(rt), 1);
    assert_non_null(strstr(cairn__runtime_warning(rt), "8192"));
    cairn__runtime_close(rt);
}

/* Opened through a link, which then leads elsewhere: the file counts, not the link. */
static void a_model_that_changes_is_noticed(void **state)
{
    (void)state;
    if (!test_model())
        test_skip();
    char  command[512];
    char *copy = in_folder("copy.gguf"), *link = in_folder("link.gguf");
    snprintf(command, sizeof command, "cp '%s' '%s'", test_model(), copy);
    assert_int_equal(system(command), 0);
    assert_int_equal(symlink(copy, link), 0);
    cairn__runtime *rt = opened((cairn__runtime_options){.model_path = link, .n_ctx = 256});
    assert_true(cairn__runtime_model_unchanged(rt));
    assert_int_equal(unlink(link), 0);
    assert_true(cairn__runtime_model_unchanged(rt));
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, copy, times, 0), 0);
    assert_false(cairn__runtime_model_unchanged(rt));
    assert_int_equal(unlink(copy), 0);
    assert_false(cairn__runtime_model_unchanged(rt));
    cairn__runtime_close(rt);
}

static void text_to_tokens_and_back(void **state)
{
    (void)state;
    cairn__runtime *rt = opened((cairn__runtime_options){.n_ctx = 256});
    const char     *text = "Grüße, 世界! 👋 <|im_end|>";
    int32_t        *tokens = NULL;
    uint32_t        n = 0;
    char            back[256];
    size_t          size = 0;
    assert_int_equal(cairn__tokenize(rt, text, strlen(text), false, true, &tokens, &n), CAIRN_OK);
    for (uint32_t i = 0; i < n; i++)
        size += cairn__token_piece(rt, tokens[i], true, back + size, sizeof back - size);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(back, text, size);
    assert_true(cairn__token_is_eog(rt, tokens[n - 1]));
    assert_int_equal(cairn__token_piece(rt, tokens[n - 1], false, back, sizeof back), 0);
    assert_false(cairn__token_is_eog(rt, tokens[0]));
    free(tokens);
    assert_int_equal(cairn__tokenize(rt, text, strlen(text), false, false, &tokens, &n), CAIRN_OK);
    assert_false(cairn__token_is_eog(rt, tokens[n - 1])); /* as text, not as the control token */
    free(tokens);
    assert_int_equal(cairn__tokenize(rt, "", 0, false, true, &tokens, &n), CAIRN_OK);
    assert_int_equal(n, 0);
    free(tokens);
    assert_int_equal(cairn__token_piece(rt, -1, true, back, sizeof back), 0);
    assert_int_equal(cairn__token_piece(rt, 49152, true, back, sizeof back), 0);
    assert_false(cairn__token_is_eog(rt, -1));
    cairn__runtime_close(rt);
}

static int32_t tokens[512];

static void fill_tokens(void)
{
    for (int i = 0; i < 512; i++)
        tokens[i] = 1000 + i * 37 % 20000;
}

static void sequences_are_cut_and_forked(void **state)
{
    (void)state;
    cairn__runtime *rt = opened((cairn__runtime_options){.n_ctx = 256, .n_batch = 64, .n_seq = 2});
    float          *want = malloc(49152 * sizeof *want);
    fill_tokens();
    assert_non_null(want);
    assert_int_equal(cairn__decode(rt, 0, tokens, 64, 0, false), CAIRN_OK);
    assert_int_equal(cairn__decode(rt, 0, tokens + 64, 8, 64, true), CAIRN_OK);
    memcpy(want, cairn__logits(rt), 49152 * sizeof *want);

    assert_true(cairn__seq_cut(rt, 0, 72));
    assert_false(cairn__seq_cut(rt, 0, 73)); /* it does not hold so many */
    assert_true(cairn__seq_fork(rt, 0, 1, 64));
    assert_false(cairn__seq_fork(rt, 0, 1, 64)); /* not empty */
    assert_true(cairn__seq_cut(rt, 0, 0));
    assert_false(cairn__seq_fork(rt, 0, 1, 1)); /* nothing there */

    /* The fork holds what was computed: the same call gives the same logits. */
    assert_int_equal(cairn__decode(rt, 1, tokens + 64, 8, 64, true), CAIRN_OK);
    assert_memory_equal(want, cairn__logits(rt), 49152 * sizeof *want);
    assert_true(cairn__seq_cut(rt, 1, 64));
    assert_int_equal(cairn__decode(rt, 1, tokens + 64, 8, 64, true), CAIRN_OK);
    assert_memory_equal(want, cairn__logits(rt), 49152 * sizeof *want);
    assert_int_equal(cairn__decode(rt, 1, tokens, 8, 72, true), CAIRN_OK);
    assert_memory_not_equal(want, cairn__logits(rt), 49152 * sizeof *want);
    free(want);
    cairn__runtime_close(rt);
}

static void a_decode_that_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    cairn__runtime *rt = opened((cairn__runtime_options){.n_ctx = 256, .n_batch = 64, .n_seq = 2});
    fill_tokens();
    assert_int_equal(cairn__decode(rt, 0, tokens, 0, 0, true), CAIRN_EINVAL);
    assert_int_equal(cairn__decode(rt, 0, tokens, 65, 0, true), CAIRN_EINVAL);
    assert_int_equal(cairn__decode(rt, 2, tokens, 1, 0, true), CAIRN_EINVAL); /* the scratch sequence */
    assert_int_equal(cairn__decode(rt, 0, tokens, 2, 255, true), CAIRN_EINVAL);
    for (uint32_t pos = 0; pos < 192; pos += 64)
        assert_int_equal(cairn__decode(rt, 0, tokens + pos, 64, pos, false), CAIRN_OK);
    assert_int_equal(cairn__decode(rt, 1, tokens, 64, 0, false), CAIRN_OK);
    assert_int_equal(cairn__decode(rt, 0, tokens + 192, 64, 192, true), CAIRN_EBUSY);
    assert_true(cairn__seq_cut(rt, 0, 192));
    assert_false(cairn__seq_cut(rt, 0, 193));
    assert_true(cairn__seq_cut(rt, 1, 0));
    assert_int_equal(cairn__decode(rt, 0, tokens + 192, 64, 192, true), CAIRN_OK);
    int32_t alien = 49152;
    assert_true(cairn__seq_cut(rt, 0, 10));
    assert_int_equal(cairn__decode(rt, 0, &alien, 1, 10, true), CAIRN_ERUNTIME);
    char line[384];
    cairn__runtime_last_error(line, sizeof line);
    assert_true(line[0] != 0);
    cairn__runtime_clear(rt);
    assert_int_equal(cairn__decode(rt, 0, tokens, 64, 0, true), CAIRN_OK);
    cairn__runtime_close(rt);
}

static void *abort_soon(void *ctx)
{
    usleep(30000);
    cairn__runtime_abort(ctx, true);
    return NULL;
}

static void an_aborted_decode_leaves_what_was_before(void **state)
{
    (void)state;
    cairn__runtime *rt = opened((cairn__runtime_options){.n_ctx = 1024, .n_batch = 512, .n_seq = 1});
    pthread_t       thread;
    fill_tokens();
    assert_int_equal(cairn__decode(rt, 0, tokens, 32, 0, false), CAIRN_OK);
    assert_int_equal(pthread_create(&thread, NULL, abort_soon, rt), 0);
    assert_int_equal(cairn__decode(rt, 0, tokens, 512, 32, true), CAIRN_ECANCELED); /* about 2 s of work */
    assert_int_equal(pthread_join(thread, NULL), 0);
    cairn__runtime_abort(rt, false);
    assert_true(cairn__seq_cut(rt, 0, 32));
    assert_false(cairn__seq_cut(rt, 0, 33));
    assert_int_equal(cairn__decode(rt, 0, tokens + 32, 32, 32, true), CAIRN_OK);
    cairn__runtime_close(rt);
}

static void a_window_is_not_cut_once_it_moved(void **state)
{
    (void)state;
    const char *path = getenv("CAIRN_TEST_MODEL_SWA");
    if (!path || !*path)
        test_skip();
    cairn__runtime *rt =
        opened((cairn__runtime_options){.model_path = path, .n_ctx = 2048, .n_batch = 256, .n_seq = 2});
    fill_tokens();
    assert_true(cairn__runtime_needs_checkpoints(rt));
    assert_int_equal(cairn__decode(rt, 0, tokens, 256, 0, false), CAIRN_OK);
    assert_true(cairn__seq_cut(rt, 0, 200)); /* all of it still in the window */
    assert_false(cairn__seq_fork(rt, 0, 1, 200));
    assert_int_equal(cairn__decode(rt, 0, tokens + 200, 56, 200, false), CAIRN_OK);
    for (uint32_t pos = 256; pos < 2048; pos += 256)
        assert_int_equal(cairn__decode(rt, 0, tokens, 256, pos, false), CAIRN_OK);
    assert_false(cairn__seq_cut(rt, 0, 1000)); /* positions before 1000 are gone from it */
    assert_true(cairn__seq_cut(rt, 0, 0));
    cairn__runtime_close(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_model_is_said_clearly),
        cmocka_unit_test(a_missing_shard_is_named),
        cmocka_unit_test(settings_that_exclude_each_other),
        cmocka_unit_test(loading_can_be_cancelled),
        cmocka_unit_test(facts_and_defaults),
        cmocka_unit_test(a_model_that_changes_is_noticed),
        cmocka_unit_test(text_to_tokens_and_back),
        cmocka_unit_test(sequences_are_cut_and_forked),
        cmocka_unit_test(a_decode_that_does_not_fit_changes_nothing),
        cmocka_unit_test(an_aborted_decode_leaves_what_was_before),
        cmocka_unit_test(a_window_is_not_cut_once_it_moved),
    };
    return test_exit_code(cmocka_run_group_tests(tests, make_folder, remove_folder));
}
