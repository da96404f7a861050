/* fuzz_digest_entry.c - a kept digest of a model file, and its name. */
#include "core/weights_cache.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    text[size] = 0;
    if (cairn__weights_cache_is_name(text) && strlen(text) != 16 + 1 + 16 + 7)
        abort();
    if (cairn__weights_cache_is_entry(data, size)) { /* then no byte of it can be another */
        text[size / 2] ^= 1;
        if (cairn__weights_cache_is_entry(text, size))
            abort();
    }
    free(text);
    return 0;
}
