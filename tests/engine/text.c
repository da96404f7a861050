/* Pieces of tokens to text that may be shown: characters, stop strings, infos. */
#include "testing.h"

#include "engine/text.h"

typedef struct shown {
    char     text[4096];
    size_t   size;
    int32_t  tokens[64];
    uint32_t n_tokens;
} shown;

static void drain(cairn__text *text, shown *out)
{
    cairn__text_view view = cairn__text_ready(text);
    assert_true(out->size + view.size < sizeof out->text);
    if (view.size > 0)
        memcpy(out->text + out->size, view.text, view.size);
    out->size += view.size;
    out->text[out->size] = 0;
    for (uint32_t i = 0; i < view.n_infos; i++)
        out->tokens[out->n_tokens++] = view.infos[i].token;
    cairn__text_consume(text);
}

/* Feeds one piece as token `id` and shows what is ready. */
static void feed(cairn__text *text, shown *out, const char *piece, int32_t id)
{
    cairn__token_info info = {.token = id};
    assert_int_equal(cairn__text_feed(text, piece, strlen(piece), &info), CAIRN_OK);
    drain(text, out);
}

static void finish(cairn__text *text, shown *out)
{
    assert_int_equal(cairn__text_end(text), CAIRN_OK);
    drain(text, out);
    cairn__text_done(text);
}

static void an_emoji_in_four_tokens_comes_out_whole(void **state)
{
    (void)state;
    cairn__text text;
    shown       out = {0};
    cairn__text_init(&text, NULL, 0);
    feed(&text, &out, "a\xf0", 1);
    assert_string_equal(out.text, "a");
    assert_int_equal(out.n_tokens, 1); /* its first byte is out */
    feed(&text, &out, "\x9f", 2);
    feed(&text, &out, "\x98", 3);
    assert_string_equal(out.text, "a");
    assert_int_equal(out.n_tokens, 1);
    feed(&text, &out, "\x80!", 4);
    assert_string_equal(out.text, "a\xf0\x9f\x98\x80!");
    assert_int_equal(out.n_tokens, 4);
    finish(&text, &out);
    assert_string_equal(out.text, "a\xf0\x9f\x98\x80!");
}

/* The example of Unicode 3.9, table 3-8: 61 F1 80 80 E1 80 C2 62 80 63 80 BF 64. */
static void wrong_bytes_become_one_replacement_each_run(void **state)
{
    (void)state;
    static const char input[] = "\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64";
    static const char expected[] = "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                                   "b\xef\xbf\xbd"
                                   "c\xef\xbf\xbd\xef\xbf\xbd"
                                   "d";
    for (size_t step = 1; step <= 13; step++) {
        cairn__text text;
        shown       out = {0};
        cairn__text_init(&text, NULL, 0);
        for (size_t at = 0; at < 13; at += step) {
            size_t n = 13 - at < step ? 13 - at : step;
            assert_int_equal(cairn__text_feed(&text, input + at, n, NULL), CAIRN_OK);
            drain(&text, &out);
        }
        finish(&text, &out);
        assert_string_equal(out.text, expected);
    }
}

static void surrogates_overlong_and_too_large_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        int         n_replacements;
    } cases[] = {{"\xed\xa0\x80", 3}, {"\xc0\xaf", 2}, {"\xe0\x80\xaf", 3}, {"\xf4\x90\x80\x80", 4}, {"\xff", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cairn__text text;
        shown       out = {0};
        cairn__text_init(&text, NULL, 0);
        feed(&text, &out, cases[i].in, 1);
        finish(&text, &out);
        assert_int_equal(out.size, 3 * cases[i].n_replacements);
        for (size_t at = 0; at < out.size; at += 3)
            assert_memory_equal(out.text + at, "\xef\xbf\xbd", 3);
    }
}

static void half_a_character_at_the_end_is_replaced_once(void **state)
{
    (void)state;
    cairn__text text;
    shown       out = {0};
    cairn__text_init(&text, NULL, 0);
    feed(&text, &out, "ok\xf0\x9f\x98", 1);
    assert_string_equal(out.text, "ok");
    finish(&text, &out);
    assert_string_equal(out.text, "ok\xef\xbf\xbd");
}

static void a_stop_string_over_three_tokens_never_leaks(void **state)
{
    (void)state;
    static const char *const stops[] = {"</end>", "STOP"};
    cairn__text              text;
    shown                    out = {0};
    cairn__text_init(&text, stops, 2);
    feed(&text, &out, "hello <", 1);
    assert_string_equal(out.text, "hello ");
    feed(&text, &out, "/e", 2);
    assert_string_equal(out.text, "hello ");
    assert_false(text.stopped);
    feed(&text, &out, "nd> tail", 3);
    assert_true(text.stopped);
    finish(&text, &out);
    assert_string_equal(out.text, "hello ");
    assert_int_equal(out.n_tokens, 1); /* the stop string's tokens go with it */
    assert_int_equal(out.tokens[0], 1);
}

static void what_only_looked_like_a_stop_string_comes_out(void **state)
{
    (void)state;
    static const char *const stops[] = {"abcabd"};
    cairn__text              text;
    shown                    out = {0};
    cairn__text_init(&text, stops, 1);
    feed(&text, &out, "xabcab", 1);
    assert_string_equal(out.text, "x");
    feed(&text, &out, "c", 2); /* not abd: but the last "abc" may begin one */
    assert_string_equal(out.text, "xabc");
    feed(&text, &out, "ab", 3);
    feed(&text, &out, "d", 4);
    assert_true(text.stopped);
    finish(&text, &out);
    assert_string_equal(out.text, "xabc");
}

static void the_first_of_two_stop_strings_counts(void **state)
{
    (void)state;
    static const char *const stops[] = {"two", "one"};
    cairn__text              text;
    shown                    out = {0};
    cairn__text_init(&text, stops, 2);
    feed(&text, &out, "zero one two", 1);
    assert_true(text.stopped);
    finish(&text, &out);
    assert_string_equal(out.text, "zero ");
}

static void held_text_comes_at_the_end_without_a_stop(void **state)
{
    (void)state;
    static const char *const stops[] = {"\n\nUser:"};
    cairn__text              text;
    shown                    out = {0};
    cairn__text_init(&text, stops, 1);
    feed(&text, &out, "bye\n\nUs", 7);
    assert_string_equal(out.text, "bye");
    finish(&text, &out);
    assert_string_equal(out.text, "bye\n\nUs");
    assert_false(text.stopped);
}

static void a_stop_string_of_emoji_cut_inside_characters(void **state)
{
    (void)state;
    static const char *const stops[] = {"\xf0\x9f\x91\x8b\xf0\x9f\x91\x8b"};
    cairn__text              text;
    shown                    out = {0};
    cairn__text_init(&text, stops, 1);
    feed(&text, &out, "hi\xf0\x9f\x91", 1);
    feed(&text, &out, "\x8b\xf0", 2);
    assert_string_equal(out.text, "hi");
    feed(&text, &out, "\x9f\x91\x8b", 3);
    assert_true(text.stopped);
    finish(&text, &out);
    assert_string_equal(out.text, "hi");
}

static void tokens_without_text_are_reported_with_the_next_or_at_the_end(void **state)
{
    (void)state;
    cairn__text text;
    shown       out = {0};
    cairn__text_init(&text, NULL, 0);
    feed(&text, &out, "", 1);
    assert_int_equal(out.n_tokens, 0);
    feed(&text, &out, "a", 2);
    assert_int_equal(out.n_tokens, 2);
    feed(&text, &out, "", 3);
    assert_int_equal(out.n_tokens, 2);
    finish(&text, &out);
    assert_int_equal(out.n_tokens, 3);
    assert_int_equal(out.tokens[2], 3);
    assert_string_equal(out.text, "a");
}

/* Random pieces, random stop strings, any cut: the same as on the whole text. */
static void any_cut_gives_the_same_text(void **state)
{
    (void)state;
    static const char *const stops[] = {"bab", "\xc3\xa9z", "cc"};
    static const char        alphabet[][4] = {"a", "b", "c", "z", "\xc3\xa9", "\xe2", "\x82"};
    uint64_t                 seed = 12345;
    for (int round = 0; round < 2000; round++) {
        char     whole[256] = "";
        uint32_t n = 1 + round % 24;
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            strcat(whole, alphabet[(seed >> 33) % 7]);
        }
        shown       once = {0}, cut = {0};
        cairn__text text;
        cairn__text_init(&text, stops, 3);
        feed(&text, &once, whole, 1);
        finish(&text, &once);
        size_t size = strlen(whole);
        cairn__text_init(&text, stops, 3);
        for (size_t at = 0; at < size && !text.stopped;) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t step = 1 + (seed >> 33) % 3;
            if (step > size - at)
                step = size - at;
            assert_int_equal(cairn__text_feed(&text, whole + at, step, NULL), CAIRN_OK);
            drain(&text, &cut);
            at += step;
        }
        finish(&text, &cut);
        assert_string_equal(cut.text, once.text);
        for (int i = 0; i < 3; i++)
            assert_null(strstr(cut.text, stops[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_emoji_in_four_tokens_comes_out_whole),
        cmocka_unit_test(wrong_bytes_become_one_replacement_each_run),
        cmocka_unit_test(surrogates_overlong_and_too_large_are_wrong),
        cmocka_unit_test(half_a_character_at_the_end_is_replaced_once),
        cmocka_unit_test(a_stop_string_over_three_tokens_never_leaks),
        cmocka_unit_test(what_only_looked_like_a_stop_string_comes_out),
        cmocka_unit_test(the_first_of_two_stop_strings_counts),
        cmocka_unit_test(held_text_comes_at_the_end_without_a_stop),
        cmocka_unit_test(a_stop_string_of_emoji_cut_inside_characters),
        cmocka_unit_test(tokens_without_text_are_reported_with_the_next_or_at_the_end),
        cmocka_unit_test(any_cut_gives_the_same_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
