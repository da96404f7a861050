/* keys.c - see keys.h.
 *
 * Of a key only its SHA-256 is kept. A key that is presented is hashed and the
 * digest compared with all of them, every byte of each, so the time taken
 * depends on the number of keys alone. */
#include "server/keys.h"

#include "base/bytes.h"
#include "base/digest.h"
#include "os/secret.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OPTION "--api-key-file"

enum {
    MAX_FILE_SIZE = 1 << 20,
    MAX_KEYS = 4096, /* all are compared on the loop thread: 0.1 ms; more need a gateway in front */
    MAX_WORD = 256
};

typedef struct entry {
    cairn_digest key;
    char        *tenant;
} entry;

struct cairn__keys {
    uint32_t n;
    entry    entries[MAX_KEYS];
};

typedef struct word {
    const char *data;
    size_t      size;
} word;

typedef struct reader { /* of one file */
    const char  *path;
    unsigned     line;
    cairn__keys *keys;
    cairn_error *error;
} reader;

__attribute__((format(printf, 3, 4))) static cairn_status fail(const reader *r, cairn_status status, const char *format,
                                                               ...)
{
    va_list args;
    int     at = snprintf(r->error->text, sizeof r->error->text, OPTION " %.200s, line %u: ", r->path, r->line);
    va_start(args, format);
    vsnprintf(r->error->text + at, sizeof r->error->text - (size_t)at, format, args);
    va_end(args);
    return status;
}

/* ---- the file ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static word take_word(word *line)
{
    while (line->size && is_blank(line->data[0])) {
        line->data++;
        line->size--;
    }
    word w = {line->data, 0};
    while (w.size < line->size && !is_blank(line->data[w.size]))
        w.size++;
    line->data += w.size;
    line->size -= w.size;
    return w;
}

static cairn_status check_word(const reader *r, const char *what, word w)
{
    if (w.size > MAX_WORD)
        return fail(r, CAIRN_EINVAL, "the %s has more than %d characters", what, MAX_WORD);
    for (size_t i = 0; i < w.size; i++)
        if (w.data[i] <= ' ' || w.data[i] > '~')
            return fail(r, CAIRN_EINVAL, "the %s may consist of printable ASCII characters only", what);
    return CAIRN_OK;
}

static cairn_status add(reader *r, word key, word tenant)
{
    cairn__keys *keys = r->keys;
    cairn_digest digest = cairn__sha256_once(key.data, key.size);
    for (uint32_t i = 0; i < keys->n; i++)
        if (!memcmp(&keys->entries[i].key, &digest, sizeof digest))
            return fail(r, CAIRN_EINVAL, "this key stands on an earlier line already; a key belongs to one tenant");
    if (keys->n == MAX_KEYS)
        return fail(r, CAIRN_EINVAL, "more than %d keys; put a gateway in front that knows them", MAX_KEYS);
    char *name = strndup(tenant.data, tenant.size);
    if (!name)
        return fail(r, CAIRN_ENOMEM, "out of memory");
    keys->entries[keys->n++] = (entry){digest, name};
    return CAIRN_OK;
}

static cairn_status read_line(reader *r, word line)
{
    if (line.size && line.data[line.size - 1] == '\r')
        line.size--;
    word key = take_word(&line), tenant = take_word(&line), more = take_word(&line);
    if (key.size == 0 || key.data[0] == '#')
        return CAIRN_OK;
    if (tenant.size == 0)
        return fail(r, CAIRN_EINVAL, "there is one word; a key and the name of its tenant are needed");
    if (more.size)
        return fail(r, CAIRN_EINVAL,
                    "there are more words than a key and the name of its tenant; comments have "
                    "lines of their own");
    cairn_status status = check_word(r, "key", key);
    if (!status)
        status = check_word(r, "tenant's name", tenant);
    return status ? status : add(r, key, tenant);
}

cairn_status cairn__keys_parse(const char *path, const char *text, size_t size, cairn__keys **ret_keys,
                               cairn_error *error)
{
    reader       r = {.path = path, .keys = calloc(1, sizeof *r.keys), .error = error};
    cairn_status status = CAIRN_OK;
    if (!r.keys)
        return fail(&r, CAIRN_ENOMEM, "out of memory");
    while (size && !status) {
        const char *end = memchr(text, '\n', size);
        size_t      length = end ? (size_t)(end - text) : size;
        r.line++;
        status = read_line(&r, (word){text, length});
        length += end != NULL;
        text += length;
        size -= length;
    }
    if (!status && r.keys->n == 0)
        status = fail(&r, CAIRN_EINVAL, "the file ends and there was no key; each line is: KEY TENANT");
    if (status)
        cairn__keys_destroy(r.keys);
    else
        *ret_keys = r.keys;
    return status;
}

cairn_status cairn__keys_load(const char *path, cairn__keys **ret_keys, cairn_error *error)
{
    char        *text = NULL;
    size_t       size = 0;
    cairn_status status = cairn__secret_read(OPTION, path, MAX_FILE_SIZE, &text, &size, error);
    if (!status)
        status = cairn__keys_parse(path, text, size, ret_keys, error);
    cairn__secret_free(text, size);
    return status;
}

void cairn__keys_destroy(cairn__keys *keys)
{
    for (uint32_t i = 0; keys && i < keys->n; i++)
        free(keys->entries[i].tenant);
    free(keys);
}

uint32_t cairn__keys_count(const cairn__keys *keys)
{
    return keys->n;
}

/* ---- a request ---- */

/* The key behind "Bearer ", in any case, as RFC 9110 has schemes; NULL: another scheme. */
static const char *bearer(const char *authorization)
{
    if (strncasecmp(authorization, "Bearer ", 7) != 0)
        return NULL;
    authorization += 7;
    while (*authorization == ' ')
        authorization++;
    return authorization;
}

static unsigned difference(const cairn_digest *a, const cairn_digest *b)
{
    unsigned different = 0;
    for (size_t i = 0; i < sizeof a->bytes; i++)
        different |= (unsigned)(a->bytes[i] ^ b->bytes[i]);
    return different;
}

const char *cairn__keys_tenant(const cairn__keys *keys, const cairn__http_head *head)
{
    const char *key = bearer(head->authorization.text);
    uint32_t    found = MAX_KEYS;
    key = key ? key : head->api_key.text;
    cairn_digest digest = cairn__sha256_once(key, strlen(key));
    for (uint32_t i = 0; i < keys->n; i++) {
        uint32_t equal = 0u - (uint32_t)(difference(&keys->entries[i].key, &digest) == 0); /* all bits, or none */
        found = (found & ~equal) | (i & equal);
    }
    return found < keys->n ? keys->entries[found].tenant : NULL;
}

/* ---- salts ---- */

/* Lengths go first, so that no part of one name can be taken for a part of the other. */
static void add_text(cairn__sha256 *sha, const char *text)
{
    uint8_t size[8];
    size_t  n = text ? strlen(text) : 0;
    cairn__put_u64(size, n);
    cairn__sha256_update(sha, size, sizeof size);
    cairn__sha256_update(sha, text ? text : "", n);
}

cairn_digest cairn__tenant_salt(const char *tenant, const char *cache_salt)
{
    static const char label[] = "cairn salt 1";
    cairn__sha256     sha;
    if (!tenant && !cache_salt)
        return (cairn_digest){{0}};
    cairn__sha256_init(&sha);
    cairn__sha256_update(&sha, label, sizeof label);
    add_text(&sha, tenant);
    add_text(&sha, cache_salt);
    return cairn__sha256_done(&sha);
}
