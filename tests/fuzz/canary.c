/* canary.c - a parser with a planted bug, which the fuzzer must find.
 *
 * A length byte behind a four-byte magic is believed. A fuzz run in which this
 * program survives shows that fuzzing itself is broken (no coverage feedback,
 * no sanitizer), and that the silence of the other fuzzers means nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t magic[4] = {'C', 'r', 'n', 0x7f};

    for (size_t i = 0; i < sizeof magic; i++) /* byte by byte: each is a step that coverage sees */
        if (i >= size || data[i] != magic[i])
            return 0;
    if (size < 6)
        return 0;
    uint8_t *copy = malloc(size - 5);
    if (!copy)
        return 0;
    memset(copy, 0, data[4]); /* the bug: data[4] is never compared with size - 5 */
    volatile uint8_t first = copy[0];
    free(copy);
    return first;
}
