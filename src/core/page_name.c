/* page_name.c - see page_name.h. */
#include "core/page_name.h"

#include "base/bytes.h"
#include "core/page.h"
#include "core/tokens.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define KEY_HEX (2 * CAIRN__PAGE_NAME_KEY_SIZE)
#define PREFIX_HEX (2 * 4 * CAIRN__PAGE_PREFIXES)
_Static_assert(CAIRN__PAGE_NAME_SIZE == KEY_HEX + 1 + KEY_HEX + 1 + PREFIX_HEX + 1 + 4 + sizeof(".page"),
               "room for every name");
_Static_assert(CAIRN__PAGE_TOKENS_MAX <= 9999, "n has at most four digits");

const uint32_t cairn__page_prefix_tokens[CAIRN__PAGE_PREFIXES] = {16, 32, 64, 128, 192};

static const char PREFIX_DOMAIN[] = "cairn prefix 1"; /* its NUL is hashed too */

/* All h_i in one pass: the state is copied where each prefix ends. The identity
 * makes them useless to who does not know the namespace: else a guessed prompt
 * could be confirmed from the names in an encrypted root. */
static void hash_prefixes(const cairn_digest *identity, const int32_t *tokens, uint32_t n_tokens,
                          uint8_t ret[CAIRN__PAGE_PREFIXES][4])
{
    cairn__sha256 sha;
    uint32_t      done = 0;
    cairn__sha256_init(&sha);
    cairn__sha256_update(&sha, PREFIX_DOMAIN, sizeof(PREFIX_DOMAIN));
    cairn__sha256_update(&sha, identity->bytes, sizeof(identity->bytes));
    memset(ret, 0, CAIRN__PAGE_PREFIXES * sizeof(ret[0]));
    for (uint32_t i = 0; i < CAIRN__PAGE_PREFIXES && cairn__page_prefix_tokens[i] <= n_tokens; i++) {
        cairn__sha256_tokens(&sha, tokens + done, cairn__page_prefix_tokens[i] - done);
        done = cairn__page_prefix_tokens[i];
        cairn__sha256 so_far = sha;
        cairn_digest  digest = cairn__sha256_done(&so_far);
        memcpy(ret[i], digest.bytes, sizeof(ret[i]));
    }
}

cairn__page_name cairn__page_name_of(const cairn_digest *identity, const cairn_key *key, const cairn_key *parent,
                                     const int32_t *tokens, uint32_t n_tokens)
{
    cairn__page_name name = {.n_tokens = n_tokens};
    assert(n_tokens >= 1 && n_tokens <= CAIRN__PAGE_TOKENS_MAX);
    memcpy(name.key, key->bytes, sizeof(name.key));
    if (parent)
        memcpy(name.parent, parent->bytes, sizeof(name.parent));
    hash_prefixes(identity, tokens, n_tokens, name.prefix);
    return name;
}

void cairn__page_name_format(const cairn__page_name *name, char buf[CAIRN__PAGE_NAME_SIZE])
{
    char *p = buf;
    cairn__hex(name->key, sizeof(name->key), p);
    p += KEY_HEX;
    *p++ = '-';
    cairn__hex(name->parent, sizeof(name->parent), p);
    p += KEY_HEX;
    *p++ = '-';
    cairn__hex(name->prefix[0], sizeof(name->prefix), p);
    p += PREFIX_HEX;
    snprintf(p, CAIRN__PAGE_NAME_SIZE - (size_t)(p - buf), "-%u.%s", name->n_tokens, name->is_checkpoint ? "ckpt" : "page");
}

/* Decimal without leading zeros, 1..4096; returns the character after it, NULL if bad. */
static const char *parse_count(const char *p, uint32_t *ret)
{
    uint32_t n = 0;
    if (*p == '0')
        return NULL;
    for (int digits = 0; *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (uint32_t)(*p - '0');
        if (++digits > 4)
            return NULL;
    }
    if (n < 1 || n > CAIRN__PAGE_TOKENS_MAX)
        return NULL;
    *ret = n;
    return p;
}

/* h_i is zeros exactly where the page is too short for it to exist; a page long
 * enough whose hash begins with 32 zero bits is one in four thousand million,
 * and format() can write it, so only the other direction is checked. */
static bool prefixes_fit(const cairn__page_name *name)
{
    static const uint8_t none[4];
    for (uint32_t i = 0; i < CAIRN__PAGE_PREFIXES; i++)
        if (cairn__page_prefix_tokens[i] > name->n_tokens && memcmp(name->prefix[i], none, sizeof(none)) != 0)
            return false;
    return true;
}

bool cairn__page_name_parse(const char *text, cairn__page_name *ret_name)
{
    cairn__page_name name;
    const char      *p = text;
    /* unhex stops at a NUL, so nothing behind the end of text is read. */
    if (!cairn__unhex(p, name.key, sizeof(name.key)) || p[KEY_HEX] != '-')
        return false;
    p += KEY_HEX + 1;
    if (!cairn__unhex(p, name.parent, sizeof(name.parent)) || p[KEY_HEX] != '-')
        return false;
    p += KEY_HEX + 1;
    if (!cairn__unhex(p, name.prefix[0], sizeof(name.prefix)) || p[PREFIX_HEX] != '-')
        return false;
    p = parse_count(p + PREFIX_HEX + 1, &name.n_tokens);
    if (!p || (strcmp(p, ".page") != 0 && strcmp(p, ".ckpt") != 0) || !prefixes_fit(&name))
        return false;
    name.is_checkpoint = p[1] == 'c';
    *ret_name = name;
    return true;
}

uint32_t cairn__page_name_shared(const cairn__page_name *name, const cairn__page_name *want)
{
    uint32_t shared = 0;
    for (uint32_t i = 0; i < CAIRN__PAGE_PREFIXES; i++) {
        uint32_t n = cairn__page_prefix_tokens[i];
        if (n > name->n_tokens || n > want->n_tokens ||
            memcmp(name->prefix[i], want->prefix[i], sizeof(name->prefix[i])) != 0)
            break;
        shared = n;
    }
    return shared;
}

void cairn__identity_name(const cairn_digest *identity, char buf[CAIRN__IDENTITY_NAME_SIZE])
{
    cairn__hex(identity->bytes, (CAIRN__IDENTITY_NAME_SIZE - 1) / 2, buf);
}

void cairn__fanout_name(const cairn_key *parent, char buf[CAIRN__FANOUT_NAME_SIZE])
{
    static const cairn_key first;
    char                   hex[5];
    cairn__hex((parent ? parent : &first)->bytes, 2, hex);
    memcpy(buf, hex, CAIRN__FANOUT_NAME_SIZE - 1);
    buf[CAIRN__FANOUT_NAME_SIZE - 1] = 0;
}
