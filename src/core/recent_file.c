/* recent_file.c - see recent_file.h. */
#include "core/recent_file.h"

#include "base/bytes.h"
#include "base/digest.h"
#include "core/tokens.h"

#include <stdlib.h>

enum {
    AT_MAGIC = 0,     /* 8 */
    AT_VERSION = 8,   /* u32 */
    AT_PROMPTS = 12,  /* u32 */
    AT_SALT = 16,     /* 32; zeros: not sealed */
    AT_CHECK = 48,    /* 16: XXH3-128 of all but itself, or the tag of what follows, with all before as plain */
    AT_PAYLOAD = 64,
    PROMPT_HEAD = 8,  /* u32 tokens shared with the prompt before, u32 tokens that follow */
};
_Static_assert(AT_PAYLOAD == CAIRN__RECENT_HEADER_SIZE, "no gaps");
_Static_assert(AT_SALT + CAIRN__SALT_SIZE == AT_CHECK, "no gaps");
_Static_assert(AT_CHECK + sizeof(cairn__xxh128) == AT_PAYLOAD, "no gaps");
_Static_assert(sizeof(cairn__xxh128) == CAIRN__GCM_TAG_SIZE, "either lies in the same place");

#define VERSION 1u
static const uint8_t MAGIC[8] = {'C', 'A', 'I', 'R', 'N', 'R', 'C', '1'};
static const uint8_t NO_SALT[CAIRN__SALT_SIZE];

/* ---- making one ---- */

/* Prompts of one conversation, or of one agent, begin alike. */
static uint32_t shared_with(const cairn_prompt *a, const cairn_prompt *b)
{
    uint32_t n = a->n_tokens < b->n_tokens ? a->n_tokens : b->n_tokens, i = 0;
    while (i < n && a->tokens[i] == b->tokens[i])
        i++;
    return i;
}

static uint32_t shared_with_last(const cairn_prompt *prompts, uint32_t i)
{
    return i > 0 ? shared_with(&prompts[i - 1], &prompts[i]) : 0;
}

/* How many of the prompts fit, and the size of the file with them. */
static uint32_t measure(const cairn_prompt *prompts, uint32_t n_prompts, uint64_t *ret_size)
{
    uint64_t size = AT_PAYLOAD, n_tokens = 0;
    uint32_t n = 0;
    for (; n < n_prompts && n < CAIRN__RECENT_PROMPTS_MAX; n++) {
        n_tokens += prompts[n].n_tokens;
        if (n_tokens > CAIRN__RECENT_TOKENS_MAX)
            break;
        size += PROMPT_HEAD + sizeof(int32_t) * (uint64_t)(prompts[n].n_tokens - shared_with_last(prompts, n));
    }
    *ret_size = size;
    return n;
}

cairn_status cairn__recent_file_make(const cairn_prompt *prompts, uint32_t n_prompts, uint8_t **ret_file,
                                     size_t *ret_size)
{
    uint64_t       size;
    const uint32_t n = measure(prompts, n_prompts, &size);
    uint8_t       *file = calloc(1, (size_t)size), *p = file;
    if (!file)
        return CAIRN_ENOMEM;
    memcpy(file + AT_MAGIC, MAGIC, sizeof(MAGIC));
    cairn__put_u32(file + AT_VERSION, VERSION);
    cairn__put_u32(file + AT_PROMPTS, n);
    p += AT_PAYLOAD;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t shared = shared_with_last(prompts, i);
        cairn__put_u32(p, shared);
        cairn__put_u32(p + 4, prompts[i].n_tokens - shared);
        cairn__put_tokens(p + PROMPT_HEAD, prompts[i].tokens + shared, prompts[i].n_tokens - shared);
        p += PROMPT_HEAD + sizeof(int32_t) * (size_t)(prompts[i].n_tokens - shared);
    }
    *ret_file = file;
    *ret_size = (size_t)size;
    return CAIRN_OK;
}

static cairn__sealed_part payload_part(const uint8_t *file)
{
    return (cairn__sealed_part){
        .salt = file + AT_SALT, .number = CAIRN__SEAL_RECENT, .plain = file, .plain_size = AT_CHECK};
}

static cairn__xxh128 checksum(const uint8_t *file, size_t size)
{
    return cairn__xxh3_128_zeroed(file, size, AT_CHECK, sizeof(cairn__xxh128));
}

cairn_status cairn__recent_file_seal(const cairn__keyring *keyring, const uint8_t salt[CAIRN__SALT_SIZE], uint8_t *file,
                                     size_t size)
{
    if (keyring) {
        memcpy(file + AT_SALT, salt, CAIRN__SALT_SIZE);
        cairn__sealed_part part = payload_part(file);
        return cairn__seal(keyring, &part, file + AT_PAYLOAD, size - AT_PAYLOAD, file + AT_CHECK);
    }
    cairn__xxh128 sum = checksum(file, size);
    memcpy(file + AT_CHECK, &sum, sizeof(sum));
    return CAIRN_OK;
}

/* ---- reading one ---- */

static bool has_header(const uint8_t *file, size_t size)
{
    return size >= AT_PAYLOAD && size <= CAIRN__RECENT_SIZE_MAX && memcmp(file + AT_MAGIC, MAGIC, sizeof(MAGIC)) == 0 &&
           cairn__get_u32(file + AT_VERSION) == VERSION;
}

bool cairn__recent_file_is_sealed(const uint8_t *file, size_t size)
{
    return has_header(file, size) && memcmp(file + AT_SALT, NO_SALT, sizeof(NO_SALT)) != 0;
}

cairn_status cairn__recent_file_open(const cairn__keyring *keyring, uint8_t *file, size_t size)
{
    if (!has_header(file, size) || cairn__recent_file_is_sealed(file, size) != (keyring != NULL))
        return CAIRN_ECORRUPT;
    if (keyring) {
        cairn__sealed_part part = payload_part(file);
        return cairn__unseal(keyring, &part, file + AT_PAYLOAD, size - AT_PAYLOAD, file + AT_CHECK);
    }
    cairn__xxh128 sum = checksum(file, size);
    return memcmp(&sum, file + AT_CHECK, sizeof(sum)) == 0 ? CAIRN_OK : CAIRN_ECORRUPT;
}

/* Walks the prompts. *ret_tokens: how many all of them have, shared ones as often as
 * they are shared. False: something points outside. */
static bool count_tokens(const uint8_t *file, size_t size, uint32_t n, uint64_t *ret_tokens)
{
    size_t   at = AT_PAYLOAD;
    uint64_t last = 0, all = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (size - at < PROMPT_HEAD)
            return false;
        const uint64_t shared = cairn__get_u32(file + at), more = cairn__get_u32(file + at + 4);
        at += PROMPT_HEAD;
        if (shared > last || more > (size - at) / sizeof(int32_t))
            return false;
        at += (size_t)more * sizeof(int32_t);
        last = shared + more;
        all += last;
    }
    *ret_tokens = all;
    return at == size && all <= CAIRN__RECENT_TOKENS_MAX;
}

static void fill(const uint8_t *file, uint32_t n, cairn_prompt *prompts, int32_t *tokens)
{
    const uint8_t *p = file + AT_PAYLOAD;
    const int32_t *last = tokens;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t shared = cairn__get_u32(p), more = cairn__get_u32(p + 4);
        prompts[i] = (cairn_prompt){tokens, shared + more};
        memcpy(tokens, last, shared * sizeof(*tokens));
        p += PROMPT_HEAD;
        for (uint32_t t = 0; t < more; t++, p += 4)
            tokens[shared + t] = (int32_t)cairn__get_u32(p);
        last = tokens;
        tokens += shared + more;
    }
}

cairn_status cairn__recent_file_prompts(const uint8_t *file, size_t size, cairn_prompt **ret_prompts, uint32_t *ret_n)
{
    const uint32_t n = cairn__get_u32(file + AT_PROMPTS);
    uint64_t       n_tokens = 0;
    if (n > CAIRN__RECENT_PROMPTS_MAX || !count_tokens(file, size, n, &n_tokens))
        return CAIRN_ECORRUPT;
    cairn_prompt *prompts = malloc(n * sizeof(*prompts) + (size_t)n_tokens * sizeof(int32_t) + 1);
    if (!prompts)
        return CAIRN_ENOMEM;
    fill(file, n, prompts, (int32_t *)(void *)(prompts + n));
    *ret_prompts = prompts;
    *ret_n = n;
    return CAIRN_OK;
}
