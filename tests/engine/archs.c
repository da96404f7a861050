/* Every architecture that llama.cpp's generator writes ($CAIRN_TEST_ARCHS_DIR):
 * opened or refused with a text, and classified as LLAMA_CPP.md measured it. */
#include "testing.h"

#include "llama/runtime.h"

#include <dirent.h>

typedef struct counts {
    uint32_t refused, attention, other;
} counts;

static void open_one(const char *path, counts *n)
{
    cairn__runtime_options options = {.model_path = path, .n_ctx = 256, .n_batch = 64, .n_seq = 1, .n_threads = 1};
    cairn__runtime        *rt = NULL;
    cairn_error            error;
    if (cairn__runtime_open(&options, &rt, &error)) {
        assert_non_null(strstr(error.text, "model"));
        n->refused++;
        return;
    }
    n->attention += !cairn__runtime_needs_checkpoints(rt);
    n->other += cairn__runtime_needs_checkpoints(rt);
    int32_t     *tokens = NULL;
    uint32_t     n_tokens = 0;
    cairn_status status = cairn__tokenize(rt, "a", 1, true, true, &tokens, &n_tokens);
    assert_true(status == CAIRN_OK || status == CAIRN_ENOTSUP); /* a vocabulary of none would abort */
    free(tokens);
    cairn__runtime_close(rt);
}

static void every_architecture_opens_or_is_refused(void **state)
{
    (void)state;
    const char *folder = getenv("CAIRN_TEST_ARCHS_DIR");
    counts      n = {0};
    if (!folder || !*folder)
        test_skip();
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[4096];
        if (!strstr(entry->d_name, ".gguf"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        open_one(path, &n);
    }
    closedir(dir);
    assert_int_equal(n.attention, 85);
    assert_int_equal(n.other, 38); /* 19 with windows, 16 hybrid, 2 recurrent, deepseek4 */
    assert_int_equal(n.refused, 4); /* diffusion */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_architecture_opens_or_is_refused)};
    return test_exit_code(cmocka_run_group_tests(tests, NULL, NULL));
}
