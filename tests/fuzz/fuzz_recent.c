/* fuzz_recent.c - the note of recent prompts: its bytes as they are, and with the
 * checksum put right. What passes has the shape that a note can have, and making a
 * note of its prompts again gives prompts that are the same. */
#include "base/bytes.h"
#include "core/recent_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_again(const cairn_prompt *prompts, uint32_t n)
{
    cairn_prompt *again = NULL;
    uint8_t      *file = NULL;
    size_t        size = 0;
    uint32_t      n_again = 0;
    require(cairn__recent_file_make(prompts, n, &file, &size) == CAIRN_OK);
    require(cairn__recent_file_seal(NULL, NULL, file, size) == CAIRN_OK);
    require(cairn__recent_file_open(NULL, file, size) == CAIRN_OK);
    require(cairn__recent_file_prompts(file, size, &again, &n_again) == CAIRN_OK);
    require(n_again == n);
    for (uint32_t i = 0; i < n; i++)
        require(again[i].n_tokens == prompts[i].n_tokens &&
                memcmp(again[i].tokens, prompts[i].tokens, prompts[i].n_tokens * sizeof(int32_t)) == 0);
    free(again);
    free(file);
}

static bool check(uint8_t *file, size_t size)
{
    cairn_prompt *prompts = NULL;
    uint32_t      n = 0;
    if (cairn__recent_file_open(NULL, file, size) != CAIRN_OK ||
        cairn__recent_file_prompts(file, size, &prompts, &n) != CAIRN_OK)
        return false;
    require(n <= CAIRN__RECENT_PROMPTS_MAX);
    check_again(prompts, n);
    free(prompts);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *file = malloc(size + 1); /* no byte more, for the sanitizer */
    require(file != NULL);
    if (size > 0)
        memcpy(file, data, size);
    (void)check(file, size);
    if (size >= CAIRN__RECENT_HEADER_SIZE && cairn__recent_file_seal(NULL, NULL, file, size) == CAIRN_OK)
        (void)check(file, size);
    free(file);
    return 0;
}
