/* fuzz_page_name.c - names found in a folder of the cache. A name that parses
 * is exactly what format() writes for it: no two names for one page. */
#include "core/page_name.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cairn__page_name name;
    char            *text = malloc(size + 1);
    if (!text)
        abort();
    if (size > 0) /* memcpy from NULL is undefined even for 0 bytes */
        memcpy(text, data, size);
    text[size] = 0;
    if (cairn__page_name_parse(text, &name)) {
        char again[CAIRN__PAGE_NAME_SIZE];
        cairn__page_name_format(&name, again);
        if (strcmp(again, text) != 0 || cairn__page_name_shared(&name, &name) > name.n_tokens)
            abort();
    }
    free(text);
    return 0;
}
