/* The key file, line by line; whose key a request has; and salts that can't be
 * made to meet. */
#include "testing.h"

#include "server/keys.h"

static cairn__keys *parse(const char *text)
{
    cairn__keys *keys = NULL;
    cairn_error  error = {{0}};
    if (cairn__keys_parse("FILE", text, strlen(text), &keys, &error) != CAIRN_OK)
        fail_msg("%s", error.text);
    return keys;
}

static const char *tenant_of(const cairn__keys *keys, const char *authorization, const char *api_key)
{
    cairn__http_head head = {0};
    snprintf(head.authorization.text, sizeof head.authorization.text, "%s", authorization);
    snprintf(head.api_key.text, sizeof head.api_key.text, "%s", api_key);
    return cairn__keys_tenant(keys, &head);
}

static void assert_tenant(const cairn__keys *keys, const char *authorization, const char *api_key, const char *expected)
{
    const char *tenant = tenant_of(keys, authorization, api_key);
    if (!expected)
        assert_null(tenant);
    else if (!tenant)
        fail_msg("nobody has '%s' '%s'", authorization, api_key);
    else
        assert_string_equal(tenant, expected);
}

static void test_a_file(void **state)
{
    cairn__keys *keys = parse("# keys of the team\n\n  \t\nsk-1 anna\r\n\tsk-2 \t bert  \n  # sk-9 eve\nsk-3 anna");
    (void)state;
    assert_int_equal(cairn__keys_count(keys), 3);
    assert_tenant(keys, "Bearer sk-1", "", "anna");
    assert_tenant(keys, "bearer   sk-2", "", "bert");
    assert_tenant(keys, "BEARER sk-3", "", "anna");
    assert_tenant(keys, "", "sk-2", "bert");
    assert_tenant(keys, "Basic c2stMQ==", "sk-2", "bert"); /* another scheme says nothing */
    assert_tenant(keys, "Bearer sk-9", "", NULL);
    assert_tenant(keys, "Bearer sk-9", "sk-1", NULL); /* what is presented first counts */
    assert_tenant(keys, "Bearer ", "", NULL);
    assert_tenant(keys, "Bearer", "", NULL);
    assert_tenant(keys, "", "", NULL);
    assert_tenant(keys, "sk-1", "", NULL);
    assert_tenant(keys, "Bearer sk-", "", NULL);
    assert_tenant(keys, "Bearer sk-11", "", NULL);
    assert_tenant(keys, "Bearer sk-1 ", "", NULL);
    assert_tenant(keys, "Bearer #", "", NULL);
    cairn__keys_destroy(keys);
    cairn__keys_destroy(NULL);
}

static void refused(const char *text, size_t size, const char *line, const char *part)
{
    cairn__keys *keys = NULL;
    cairn_error  error = {{0}};
    assert_int_equal(cairn__keys_parse("FILE", text, size, &keys, &error), CAIRN_EINVAL);
    assert_null(keys);
    if (!strstr(error.text, line) || !strstr(error.text, part) || !strstr(error.text, "--api-key-file FILE"))
        fail_msg("'%s' lacks '%s' or '%s'", error.text, line, part);
    if (strstr(error.text, "sk-") || strstr(error.text, "anna"))
        fail_msg("'%s' tells what is in the file", error.text);
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *text, *line, *part;
    } bad[] = {
        {"", "line 0", "no key"},
        {"# none\n\n", "line 2", "no key"},
        {"sk-1\n", "line 1", "one word"},
        {"\n\nsk-1  \t\n", "line 3", "one word"},
        {"sk-1 anna # a comment\n", "line 1", "more words"},
        {"sk-1 anna\nsk-2 bert\nsk-1 anna\n", "line 3", "earlier line"},
        {"sk-1 anna\nsk-1 bert\n", "line 2", "earlier line"},
        {"sk-\xc3\xa9 anna\n", "line 1", "the key may"},
        {"sk-1 ann\xc3\xa4\n", "line 1", "name may"},
        {"sk-1 anna\rsk-2 anna\n", "line 1", "more words"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i].text, strlen(bad[i].text), bad[i].line, bad[i].part);
    refused("sk-\0 anna\n", 10, "line 1", "the key may");
    char text[300];
    memset(text, 'x', sizeof text);
    memcpy(text + 257, " anna", 5);
    refused(text, 262, "line 1", "256 characters");
}

static void test_the_number_of_keys_is_bounded(void **state)
{
    char *text = malloc(4097 * 16), *at = text;
    (void)state;
    assert_non_null(text);
    for (int i = 0; i < 4096; i++)
        at += sprintf(at, "sk-%d t\n", i);
    cairn__keys *keys = parse(text);
    assert_int_equal(cairn__keys_count(keys), 4096);
    assert_tenant(keys, "Bearer sk-4095", "", "t");
    assert_tenant(keys, "Bearer sk-0", "", "t");
    cairn__keys_destroy(keys);
    sprintf(at, "sk-4096 t\n");
    refused(text, strlen(text), "line 4097", "more than 4096");
    free(text);
}

static bool same(const char *tenant_a, const char *salt_a, const char *tenant_b, const char *salt_b)
{
    cairn_digest a = cairn__tenant_salt(tenant_a, salt_a), b = cairn__tenant_salt(tenant_b, salt_b);
    return memcmp(&a, &b, sizeof a) == 0;
}

static void test_salts(void **state)
{
    static const char *const  pairs[][2] = {{NULL, NULL}, {"a", NULL},  {NULL, "a"}, {"a", "a"}, {"aa", NULL},
                                            {NULL, "aa"}, {"ab", NULL}, {"a", "b"},  {"b", "a"}, {"b", NULL}};
    static const cairn_digest none;
    const size_t              n = sizeof pairs / sizeof *pairs;
    cairn_digest              open = cairn__tenant_salt(NULL, NULL);
    (void)state;
    assert_memory_equal(&open, &none, sizeof none);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            if (same(pairs[i][0], pairs[i][1], pairs[j][0], pairs[j][1]) != (i == j))
                fail_msg("%zu and %zu", i, j);
}

static int head_of(const char *fields, cairn__http_head *head)
{
    char        text[2000];
    const char *reason = NULL;
    int         size = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    return cairn__http_head_parse(text, (size_t)size, head, &reason);
}

static void test_headers(void **state)
{
    cairn__http_head head;
    char             fields[700];
    (void)state;
    assert_int_equal(head_of("authorization:  Bearer sk-1 \r\nX-API-KEY: sk-2\r\n", &head), 0);
    assert_string_equal(head.authorization.text, "Bearer sk-1");
    assert_string_equal(head.api_key.text, "sk-2");
    assert_int_equal(head_of("Authorization: Bearer sk-1\r\nAuthorization: Bearer sk-1\r\n", &head), 0);
    assert_string_equal(head.authorization.text, ""); /* twice: which one would a proxy have checked? */
    snprintf(fields, sizeof fields, "x-api-key: %0511d\r\n", 7);
    assert_int_equal(head_of(fields, &head), 0);
    assert_int_equal(strlen(head.api_key.text), 511);
    snprintf(fields, sizeof fields, "x-api-key: %0512d\r\n", 7);
    assert_int_equal(head_of(fields, &head), 0);
    assert_string_equal(head.api_key.text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_the_number_of_keys_is_bounded),
        cmocka_unit_test(test_salts),
        cmocka_unit_test(test_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
