/* Templates: what the model is shown, to the byte, and what is read back.
 * Needs SmolLM2 (its template knows no tools); CAIRN_TEST_MODEL names another place. */
#include "testing.h"

#include "llama/chat.h"

static cairn__runtime *rt;

static int open_model(void **state)
{
    const char            *given = getenv("CAIRN_TEST_MODEL"), *home = getenv("HOME");
    char                   path[1024];
    cairn__runtime_options options = {.n_ctx = 256, .n_threads = 1};
    cairn_error            error   = {{0}};
    (void)state;
    snprintf(path, sizeof path, "%s/.cache/cairn-build/models/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");
    options.model_path = given ? given : path;
    FILE *file         = fopen(options.model_path, "rb");
    if (!file) {
        printf("skipped: no model at %s\n", options.model_path);
        return 0;
    }
    fclose(file);
    if (cairn__runtime_open(&options, &rt, &error) != CAIRN_OK) {
        printf("%s\n", error.text);
        return -1;
    }
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    cairn__runtime_close(rt);
    return 0;
}

/* Renders; `fails`: with a text for the client instead. */
static cairn__chat_prompt render(const char *template_text, const char *request, const char *fails)
{
    cairn__chat       *chat;
    cairn_error        error  = {{0}};
    cairn__chat_prompt prompt = {0};
    if (!rt)
        test_skip();
    assert_int_equal(cairn__chat_create(rt, template_text, &chat, &error), CAIRN_OK);
    cairn_status status = cairn__chat_render(chat, request, &prompt, &error);
    if (!fails && status != CAIRN_OK)
        fail_msg("%s", error.text);
    if (fails) {
        assert_int_equal(status, CAIRN_EINVAL);
        assert_string_equal(error.text, fails);
    }
    cairn__chat_destroy(chat);
    return prompt;
}

static void prompt_is(const char *template_text, const char *request, const char *expected)
{
    cairn__chat_prompt prompt = render(template_text, request, NULL);
    assert_string_equal(prompt.prompt, expected);
    cairn__chat_prompt_done(&prompt);
}

#define USER "{\"role\":\"user\",\"content\":\"hi\"}"
#define ADD_SCHEMA                                                                                                      \
    "{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\",\"maximum\":\"#18446744073709551615\"},"          \
    "\"a\":{\"default\":\"#1.0\",\"pattern\":\"(?=x)\"}}}"
#define ADD "{\"type\":\"function\",\"function\":{\"name\":\"add\",\"description\":\"adds\",\"parameters\":" ADD_SCHEMA "}}"

static const char described[] =
    "<|im_start|>system\nYou can call tools. Each line between <tools> and </tools> describes one as JSON, with a JSON "
    "schema of its arguments.\n<tools>\n"
    "{\"name\":\"add\",\"description\":\"adds\",\"parameters\":{\"type\":\"object\",\"properties\":{\"b\":{\"type\":"
    "\"integer\",\"maximum\":18446744073709551615},\"a\":{\"default\":1.0,\"pattern\":\"(?=x)\"}}}}\n</tools>\n"
    "To call a tool, write\n<tool_call>\n{\"name\": NAME, \"arguments\": {...}}\n</tool_call>\nand nothing after it. The "
    "result comes in the next message between <tool_response> and </tool_response>.\n\nBe brief.<|im_end|>\n"
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";

static void test_plain(void **state)
{
    (void)state;
    prompt_is(NULL, "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"}," USER "]}",
              "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    cairn__chat_prompt prompt = render(NULL, "{\"messages\":[" USER "]}", NULL);
    assert_null(prompt.parser);
    assert_null(prompt.grammar);
    cairn__chat_prompt_done(&prompt);
}

static void test_tools_in_a_template_without(void **state)
{
    (void)state;
    prompt_is(NULL, "{\"number_mark\":\"#\",\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"}," USER
                    "],\"tools\":[" ADD "]}", described);
    /* The choice changes the grammar, never the prompt. */
    prompt_is(NULL, "{\"number_mark\":\"#\",\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"}," USER
                    "],\"tools\":[" ADD "],\"tool_choice\":\"none\"}", described);
    prompt_is(NULL, "{\"number_mark\":\"#\",\"messages\":[{\"role\":\"developer\",\"content\":\"Be brief.\"}," USER
                    "],\"tools\":[" ADD "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"add\"}}}",
              described);
}

static void test_calls_and_results_as_text(void **state)
{
    (void)state;
    prompt_is(NULL,
              "{\"number_mark\":\"#\",\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
              "{\"type\":\"function\",\"id\":\"1\",\"function\":{\"name\":\"add\",\"arguments\":\"{\\\"a\\\": "
              "\\\"#2.50\\\"}\"}},{\"type\":\"function\",\"id\":\"2\",\"function\":{\"name\":\"add\",\"arguments\":\"{}\"}}"
              "]},{\"role\":\"tool\",\"content\":\"3\"},{\"role\":\"tool\",\"content\":\"4\"}]}",
              "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
              "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"add\", \"arguments\": "
              "{\"a\": 2.50}}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call><|im_end|>\n"
              "<|im_start|>user\n<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response><|im_end|>\n"
              "<|im_start|>assistant\n");
}

static const char strict[] =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system first') }}{% endif %}"
    "{% if not loop.first and m.role == messages[loop.index0 - 1].role %}{{ raise_exception('take turns') }}{% endif %}"
    "{% if m.role == 'critic' %}{{ raise_exception('nobody else') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]";

static void test_strict_templates_get_their_order(void **state)
{
    (void)state;
    prompt_is(strict, "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"yes\"}," USER "]}",
              "[user]hi[assistant]yes[user]hi[assistant]");
    prompt_is(strict, "{\"messages\":[" USER ",{\"role\":\"system\",\"content\":\"mid\"}," USER
                      ",{\"role\":\"assistant\",\"content\":\"\"}," USER "]}",
              "[user]hi\n\nmid\n\nhi\n\nhi[assistant]");
    cairn__chat_prompt prompt = render(strict, "{\"messages\":[{\"role\":\"critic\",\"content\":\"hm\"}]}", "nobody else");
    assert_null(prompt.prompt);
}

static void parsed_is(const cairn__chat_prompt *prompt, const char *text, bool partial, const char *expected)
{
    char       *json  = NULL;
    cairn_error error = {{0}};
    if (cairn__chat_parse(prompt, text, strlen(text), partial, &json, &error) != CAIRN_OK)
        fail_msg("%s", error.text);
    assert_string_equal(json, expected);
    free(json);
}

static void test_reading_calls_back(void **state)
{
    cairn__chat_prompt prompt = render(NULL, "{\"messages\":[" USER "],\"tools\":[" ADD "]}", NULL);
    (void)state;
    assert_non_null(prompt.parser);
    assert_non_null(prompt.grammar);
    assert_true(prompt.grammar_lazy);
    assert_int_equal(prompt.n_trigger_patterns, 1);
    parsed_is(&prompt, "Hello", true, "{\"role\":\"assistant\",\"content\":\"Hello\"}");
    parsed_is(&prompt, "Sure.\n<tool", true, "{\"role\":\"assistant\",\"content\":\"Sure.\\n\"}");
    parsed_is(&prompt, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": "
                       "\"add\", \"arguments\": {}}\n</tool_call>", false,
              "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":"
              "\"add\",\"arguments\":\"{\\\"b\\\": 1}\"}},{\"type\":\"function\",\"function\":{\"name\":\"add\","
              "\"arguments\":\"{}\"}}]}");
    cairn__chat_prompt_done(&prompt);
}

static void test_formats(void **state)
{
    (void)state;
    cairn__chat_prompt prompt = render(NULL, "{\"messages\":[" USER "],\"response_format\":{\"type\":\"json_object\"}}", NULL);
    assert_non_null(prompt.grammar);
    assert_false(prompt.grammar_lazy);
    /* The grammar describes the answer behind what ends the prompt. */
    if (prompt.grammar_prefix) {
        size_t n = strlen(prompt.prompt), k = strlen(prompt.grammar_prefix);
        assert_true(k <= n);
        assert_string_equal(prompt.prompt + n - k, prompt.grammar_prefix);
    }
    cairn__chat_prompt_done(&prompt);
    render(NULL, "{\"messages\":[" USER "],\"tools\":[" ADD "],\"tool_choice\":{\"type\":\"function\",\"function\":"
                 "{\"name\":\"sub\"}}}", "tool_choice: no tool has the name that it asks for");
}

/* The text of the prompt up to a part; a part that is not known is 0. */
static void part_is(const char *prompt, size_t part, const char *end)
{
    size_t n = strlen(end);
    assert_true(part >= n && part <= strlen(prompt));
    if (strncmp(prompt + part - n, end, n) != 0)
        fail_msg("part ends with '%.*s', not with '%s'", (int)n, prompt + part - n, end);
}

static void test_parts(void **state)
{
    static const char request[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"}," USER
                                  ",{\"role\":\"assistant\",\"content\":\"yes\"},{\"role\":\"user\",\"content\":\"go\"},"
                                  "{\"role\":\"assistant\",\"content\":\"done\"}]}";
    cairn__chat       *chat;
    cairn_error        error = {{0}};
    cairn__chat_parts  parts;
    cairn__chat_prompt prompt = render(NULL, request, NULL);
    (void)state;
    assert_int_equal(cairn__chat_create(rt, NULL, &chat, &error), CAIRN_OK);
    assert_int_equal(cairn__chat_find_parts(chat, request, prompt.prompt, &parts, &error), CAIRN_OK);
    assert_int_equal(parts.n_fork, 2);
    part_is(prompt.prompt, parts.fork[0], "assistant\ndone<|im_end|>\n");
    part_is(prompt.prompt, parts.fork[1], "user\ngo<|im_end|>\n");
    assert_int_equal(parts.n_end, 3);
    part_is(prompt.prompt, parts.end[0], "Be brief.<|im_end|>\n<|im_start|>user\n");
    part_is(prompt.prompt, parts.end[1], "yes<|im_end|>\n<|im_start|>user\n");
    part_is(prompt.prompt, parts.end[2], "user\nhi<|im_end|>\n");
    assert_int_equal(cairn__chat_find_parts(chat, "{", prompt.prompt, &parts, &error), CAIRN_EINVAL);
    cairn__chat_destroy(chat);
    cairn__chat_prompt_done(&prompt);
}

static void test_bad_templates(void **state)
{
    cairn__chat *chat;
    cairn_error  error = {{0}};
    (void)state;
    if (!rt)
        test_skip();
    assert_int_equal(cairn__chat_create(rt, "{% for x in %}", &chat, &error), CAIRN_EINVAL);
    assert_true(strlen(error.text) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_tools_in_a_template_without),
        cmocka_unit_test(test_calls_and_results_as_text),
        cmocka_unit_test(test_strict_templates_get_their_order),
        cmocka_unit_test(test_reading_calls_back),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_bad_templates),
    };
    return test_exit_code(cmocka_run_group_tests(tests, open_model, close_model));
}
