/* Heads and chunked bodies, in pieces of every size. */
#include "testing.h"

#include "server/http.h"

static int parse(const char *text, cairn__http_head *head)
{
    const char *reason = NULL;
    int         status = cairn__http_head_parse(text, strlen(text), head, &reason);
    assert_int_equal(status != 0, reason != NULL);
    return status;
}

static void test_a_head(void **state)
{
    cairn__http_head head;
    (void)state;
    assert_int_equal(parse("POST /v1/x?y=z HTTP/1.1\r\nhost: a\r\nCONTENT-LENGTH: \t12 \r\nExpect: 100-Continue\r\n"
                           "Connection: foo, Close\r\nContent-Encoding: br\r\n\r\n", &head), 0);
    assert_string_equal(head.method, "POST");
    assert_string_equal(head.path, "/v1/x");
    assert_true(head.has_length && head.content_length == 12);
    assert_true(head.expect_continue && head.encoded);
    assert_false(head.keep_alive || head.chunked || head.http10 || head.path_cut);
    assert_int_equal(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &head), 0);
    assert_true(head.http10 && head.keep_alive);
    assert_int_equal(parse("GET http://host HTTP/1.1\r\nHost: host\r\n\r\n", &head), 0);
    assert_string_equal(head.path, "/");
    assert_int_equal(parse("OPTIONS * HTTP/1.1\r\nHost: host\r\nTransfer-Encoding: CHUNKED\r\n\r\n", &head), 0);
    assert_true(head.chunked && head.keep_alive);
}

static void test_every_cut_of_a_head_is_refused(void **state)
{
    static const char text[] = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    cairn__http_head  head;
    const char       *reason;
    (void)state;
    for (size_t size = 0; size + 1 < sizeof text - 1; size++)
        assert_int_not_equal(cairn__http_head_parse(text, size, &head, &reason), 0);
    assert_int_equal(cairn__http_head_parse(text, sizeof text - 1, &head, &reason), 0);
}

typedef struct body {
    char   data[256];
    size_t size;
} body;

static void add(void *ctx, const char *data, size_t size)
{
    body *b = ctx;
    assert_true(b->size + size <= sizeof b->data);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

/* Feeds text in pieces of `step`; *ret_used counts what was taken. */
static cairn__chunked_result feed(const char *text, size_t step, body *b, size_t *ret_used)
{
    cairn__chunked        state  = {0};
    cairn__chunked_result result = CAIRN__CHUNKED_MORE;
    size_t                size   = strlen(text), at = 0;
    while (at < size && result == CAIRN__CHUNKED_MORE) {
        size_t used = 0, n = size - at < step ? size - at : step;
        result = cairn__chunked_read(&state, text + at, n, &used, add, b);
        at += used;
        if (result == CAIRN__CHUNKED_MORE)
            assert_int_equal(used, n);
    }
    *ret_used = at;
    return result;
}

static void test_chunks_in_pieces(void **state)
{
    static const char text[] = "5;x=\"a b\"\r\nhello\r\n1\r\n \r\n00A \r\n0123456789\r\n0\r\nT: 1\r\nU:\t2\r\n\r\nGET /next";
    (void)state;
    for (size_t step = 1; step < sizeof text; step++) {
        body   b = {{0}, 0};
        size_t used;
        assert_int_equal(feed(text, step, &b, &used), CAIRN__CHUNKED_DONE);
        assert_int_equal(b.size, 16);
        assert_memory_equal(b.data, "hello 0123456789", 16);
        assert_string_equal(text + used, "GET /next");
    }
}

static void test_bad_chunks(void **state)
{
    static const char *const bad[] = {"x\r\n", "\r\n", " 5\r\n", "5\nhello", "5\rhello", "5\r\nhelloworld", "5\r\nhello\r0",
                                      "-5\r\n", "0x5\r\n", "10000000000000000\r\n", "5;\x01\r\n", "0\r\nA\n\r\n",
                                      "0\r\n\x02: b\r\n\r\n", "0\r\n\rX"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t step = 1; step < 20; step += 6) {
            body   b = {{0}, 0};
            size_t used;
            assert_int_equal(feed(bad[i], step, &b, &used), CAIRN__CHUNKED_BAD);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head),
        cmocka_unit_test(test_every_cut_of_a_head_is_refused),
        cmocka_unit_test(test_chunks_in_pieces),
        cmocka_unit_test(test_bad_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
