/* fuzz_identity_text.c - a text that lies beside pages: what passes is exactly what
 * setting its fields one by one, in another order, gives. */
#include "core/identity_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sets the lines of text[0..size), last one first. */
static void set_lines(cairn_identity *identity, char *text, size_t size)
{
    for (char *end = text + size; end > text;) {
        char *line = end - 1;
        end[-1] = 0; /* the line's end */
        while (line > text && line[-1] != '\n')
            line--;
        char *equals = strchr(line, '=');
        if (!equals)
            abort();
        *equals = 0;
        if (cairn_identity_set(identity, line, equals + 1) != CAIRN_OK)
            abort();
        end = line;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cairn_identity *identity;
    size_t          again_size;
    if (!cairn__identity_text_is_valid((const char *)data, size))
        return 0;
    char *text = malloc(size + 1);
    if (!text || cairn_identity_create(&identity) != CAIRN_OK)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = 0;
    set_lines(identity, text, size);
    const char *again = cairn_identity_text(identity, &again_size);
    if (again_size != size || (size > 0 && memcmp(again, data, size) != 0))
        abort();
    cairn_identity_destroy(identity);
    free(text);
    return 0;
}
