/* What a growing reading of an answer becomes on the wire. */
#include "testing.h"

#include "server/delta.h"

typedef struct wire { /* what a client puts together */
    char content[200], reasoning[200], names[4][40], arguments[4][200], ids[4][40];
    int  n_calls, n_deltas;
} wire;

static void append(char *to, size_t size, const json_t *text)
{
    if (json_is_string(text))
        strncat(to, json_string_value(text), size - strlen(to) - 1);
}

static void receive_call(wire *w, const json_t *call)
{
    int           index    = (int)json_integer_value(json_object_get(call, "index"));
    const json_t *function = json_object_get(call, "function");
    assert_in_range(index, 0, 3);
    if (json_object_get(call, "id")) {
        assert_int_equal(index, w->n_calls); /* opened in order, once */
        w->n_calls++;
        append(w->ids[index], 40, json_object_get(call, "id"));
        append(w->names[index], 40, json_object_get(function, "name"));
    }
    append(w->arguments[index], 200, json_object_get(function, "arguments"));
}

static void show(cairn__delta_state *state, wire *w, const char *message, cairn__delta_options options)
{
    json_t *parsed = json_loads(message, 0, NULL), *out = json_array();
    assert_non_null(parsed);
    cairn__delta_update(state, parsed, options, out);
    w->n_deltas = (int)json_array_size(out);
    for (size_t i = 0; i < json_array_size(out); i++) {
        const json_t *delta = json_array_get(out, i);
        append(w->content, 200, json_object_get(delta, "content"));
        append(w->reasoning, 200, json_object_get(delta, "reasoning_content"));
        for (size_t c = 0; c < json_array_size(json_object_get(delta, "tool_calls")); c++)
            receive_call(w, json_array_get(json_object_get(delta, "tool_calls"), c));
    }
    json_decref(out);
    json_decref(parsed);
}

#define MORE ((cairn__delta_options){.hold_blank = true})
#define LAST ((cairn__delta_options){.final = true, .hold_blank = true})
#define CALL(name, arguments) "{\"function\":{\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}"

static void test_text_grows(void **state)
{
    cairn__delta_state s = {0};
    wire               w = {0};
    (void)state;
    show(&s, &w, "{\"reasoning_content\":\"Hm\"}", MORE);
    show(&s, &w, "{\"reasoning_content\":\"Hmm.\",\"content\":\"\\n\"}", MORE);
    assert_string_equal(w.content, ""); /* might be the run-up to a call */
    show(&s, &w, "{\"reasoning_content\":\"Hmm.\",\"content\":\"\\nHel\"}", MORE);
    show(&s, &w, "{\"reasoning_content\":\"Hmm.\",\"content\":\"\\nHel\"}", MORE);
    assert_int_equal(w.n_deltas, 0);
    show(&s, &w, "{\"reasoning_content\":\"Hmm.\",\"content\":\"\\nHello\"}", LAST);
    assert_string_equal(w.content, "\nHello");
    assert_string_equal(w.reasoning, "Hmm.");
    assert_false(s.contradiction || s.failed);
    cairn__delta_done(&s);
}

static void test_parallel_calls(void **state)
{
    cairn__delta_state s = {0};
    wire               w = {0};
    (void)state;
    show(&s, &w, "{\"content\":\"\\n\",\"tool_calls\":[" CALL("ad", "") "]}", MORE);
    assert_int_equal(w.n_calls, 0); /* the name may go on */
    show(&s, &w, "{\"content\":\"\\n\",\"tool_calls\":[" CALL("add", "{") "]}", MORE);
    assert_int_equal(w.n_calls, 1);
    show(&s, &w, "{\"content\":\"\\n\",\"tool_calls\":[" CALL("add", "{1}") "," CALL("su", "") "]}", MORE);
    assert_int_equal(w.n_calls, 1);
    show(&s, &w, "{\"content\":\"\\n\",\"tool_calls\":[" CALL("add", "{1}") "," CALL("sub", "{2}") "]}", LAST);
    assert_int_equal(w.n_calls, 2);
    assert_string_equal(w.content, "");
    assert_string_equal(w.names[0], "add");
    assert_string_equal(w.names[1], "sub");
    assert_string_equal(w.arguments[0], "{1}");
    assert_string_equal(w.arguments[1], "{2}");
    assert_string_not_equal(w.ids[0], w.ids[1]);
    assert_memory_equal(w.ids[0], "call_", 5);
    assert_false(s.contradiction);
    cairn__delta_done(&s);
}

static void test_a_single_call(void **state)
{
    cairn__delta_state   s    = {0};
    wire                 w    = {0};
    cairn__delta_options last = LAST;
    (void)state;
    last.single_call = true;
    show(&s, &w, "{\"tool_calls\":[" CALL("add", "{1}") "," CALL("sub", "{2}") "]}", last);
    assert_int_equal(w.n_calls, 1);
    assert_false(s.contradiction);
    cairn__delta_done(&s);
}

static void test_readings_that_change_their_mind(void **state)
{
    cairn__delta_state s = {0};
    wire               w = {0};
    (void)state;
    show(&s, &w, "{\"content\":\"Hello <\"}", MORE);
    show(&s, &w, "{\"content\":\"Hello\"}", MORE); /* waited out */
    assert_false(s.contradiction);
    show(&s, &w, "{\"content\":\"Hello <b>\"}", MORE);
    assert_string_equal(w.content, "Hello <b>");
    show(&s, &w, "{\"content\":\"Bye\"}", LAST); /* final: said, not hidden */
    assert_true(s.contradiction);
    cairn__delta_done(&s);
    show(&s, &w, "{\"tool_calls\":[" CALL("add", "{1") "]}", MORE);
    show(&s, &w, "{\"content\":\"no call after all\"}", LAST);
    assert_true(s.contradiction);
    cairn__delta_done(&s);
}

static void test_whole_messages(void **state)
{
    (void)state;
    json_t *in  = json_loads("{\"content\":\" \\n\",\"tool_calls\":[" CALL("add", "{}") "," CALL("sub", "{}") "]}", 0, NULL);
    json_t *out = cairn__delta_message(in, false);
    assert_true(json_is_null(json_object_get(out, "content")));
    assert_int_equal(json_array_size(json_object_get(out, "tool_calls")), 2);
    json_decref(out);
    out = cairn__delta_message(in, true);
    assert_int_equal(json_array_size(json_object_get(out, "tool_calls")), 1);
    json_decref(out);
    json_decref(in);
    in  = json_loads("{\"content\":\"\"}", 0, NULL);
    out = cairn__delta_message(in, false);
    assert_string_equal(json_string_value(json_object_get(out, "content")), ""); /* never missing */
    assert_null(json_object_get(out, "tool_calls"));
    json_decref(out);
    json_decref(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_grows),    cmocka_unit_test(test_parallel_calls),
        cmocka_unit_test(test_a_single_call), cmocka_unit_test(test_readings_that_change_their_mind),
        cmocka_unit_test(test_whole_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
