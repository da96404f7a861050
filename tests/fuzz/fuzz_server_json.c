/* fuzz_server_json.c - bodies of requests: JSON, and messages and tools as the
 * chat template may see them. What parses prints, and what was printed parses. */
#include "server/request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *parse(const char *text, size_t size)
{
    char    reason[256];
    bool    no_memory = false;
    char   *copy = malloc(size + 1);
    json_t *value = NULL;
    if (copy) {
        if (size > 0)
            memcpy(copy, text, size);
        copy[size] = 0;
        value = cairn__json_parse(copy, size, reason, sizeof reason, &no_memory);
    }
    free(copy);
    return value;
}

/* A client can't guess the mark of this process; the fuzzer, which watches
 * comparisons, reads it there. */
static bool holds_the_mark(const uint8_t *data, size_t size)
{
    const char *mark = cairn__json_mark();
    return memmem(data, size, mark, strlen(mark)) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || holds_the_mark(data, size))
        return 0;
    json_t *value = parse((const char *)data, size);
    if (!value)
        return 0;
    char *text = cairn__json_print(value);
    if (!text)
        abort();
    json_t *again = parse(text, strlen(text));
    if (!again || !json_equal(value, again))
        abort();
    json_decref(again);
    free(text);

    cairn__refusal of_messages = {0}, of_tools = {0};
    json_t        *messages = cairn__chat_messages(value, &of_messages);
    json_t        *tools = cairn__chat_tools(value, &of_tools);
    if (!messages != (of_messages.http_status != 0) || !tools != (of_tools.http_status != 0))
        abort(); /* a refusal without a reason, or a reason for none */
    json_decref(messages);
    json_decref(tools);
    json_decref(value);
    return 0;
}
