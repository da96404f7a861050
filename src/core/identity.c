/* identity.c - the canonical text of an identity.
 *
 * The text itself is the data structure: sorted lines in one buffer, edited in
 * place. A text of a few dozen lines is set once at start, so that a search
 * through it costs nothing that matters, and there is no second form that could
 * disagree with what is hashed.
 *
 *     I1  text = zero or more lines "key=value\n", NUL-terminated
 *     I2  keys are unique and ascend in byte order (strcmp of the keys, not of
 *         the lines: "a.b" and "a" differ in how '=' and '.' sort)
 *     I3  every key and value passed valid_key() and valid_value() */
#include "cairn/identity.h"

#include "base/bytes.h"
#include "base/digest.h"
#include "core/identity_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SIZE_MAX 63u
#define VALUE_SIZE_MAX 4095u
/* Far above what any model needs (some 50 metadata overrides); bounds what a
 * caller that loops can take. */
#define TEXT_SIZE_MAX ((size_t)1 << 20)

struct cairn_identity {
    char  *text; /* [capacity], never NULL */
    size_t size; /* without the NUL */
    size_t capacity;
};

cairn_status cairn_identity_create(cairn_identity **ret_identity)
{
    if (!ret_identity)
        return CAIRN_EINVAL;
    cairn_identity *identity = calloc(1, sizeof(*identity));
    char           *text = calloc(1, 1024);
    if (!identity || !text) {
        free(identity);
        free(text);
        return CAIRN_ENOMEM;
    }
    identity->text = text;
    identity->capacity = 1024;
    *ret_identity = identity;
    return CAIRN_OK;
}

void cairn_identity_destroy(cairn_identity *identity)
{
    if (!identity)
        return;
    free(identity->text);
    free(identity);
}

cairn_status cairn_identity_copy(const cairn_identity *from, cairn_identity **ret_copy)
{
    if (!from || !ret_copy)
        return CAIRN_EINVAL;
    cairn_identity *identity = malloc(sizeof(*identity));
    char           *text = malloc(from->capacity);
    if (!identity || !text) {
        free(identity);
        free(text);
        return CAIRN_ENOMEM;
    }
    memcpy(text, from->text, from->size + 1);
    identity->text = text;
    identity->size = from->size;
    identity->capacity = from->capacity;
    *ret_copy = identity;
    return CAIRN_OK;
}

static bool valid_key(const char *key, size_t size)
{
    if (size == 0 || size > KEY_SIZE_MAX)
        return false;
    for (size_t i = 0; i < size; i++) {
        char c = key[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.'))
            return false;
    }
    return true;
}

/* Size of the well-formed UTF-8 character at p (Unicode 15, table 3-7: no
 * overlong forms, no surrogates, nothing above U+10FFFF), 0 if there is none.
 * *ret_code is its code point. */
static size_t utf8_character(const uint8_t *p, const uint8_t *end, uint32_t *ret_code)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000}; /* by size: below it is overlong */
    size_t                size = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    uint32_t              code = size == 1 ? p[0] : p[0] & (0x7fu >> size);
    if (p[0] > 0xf4 || (p[0] >= 0x80 && p[0] < 0xc2) || size > (size_t)(end - p))
        return 0;
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (code < least[size] || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff)
        return 0;
    *ret_code = code;
    return size;
}

/* Control characters and everything that a viewer breaks lines at (C0, DEL, C1
 * with NEL, and U+2028/2029): two identities must compare line by line. */
static bool breaks_lines(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029;
}

static bool valid_value(const char *value, size_t size)
{
    const uint8_t *p = (const uint8_t *)value, *end = p + size;
    if (size > VALUE_SIZE_MAX)
        return false;
    while (p < end) {
        uint32_t code;
        size_t   n = utf8_character(p, end, &code);
        if (n == 0 || breaks_lines(code))
            return false;
        p += n;
    }
    return true;
}

/* Where `key` is or belongs: [*ret_begin, *ret_end) is its line, empty at the
 * place to insert when there is none. */
static void find_line(const cairn_identity *identity, const char *key, size_t *ret_begin, size_t *ret_end)
{
    size_t key_size = strlen(key), begin = 0;
    while (begin < identity->size) {
        const char *line = identity->text + begin;
        size_t      line_size = (size_t)(strchr(line, '\n') + 1 - line);
        size_t      line_key = (size_t)(strchr(line, '=') - line);
        int         order = memcmp(line, key, line_key < key_size ? line_key : key_size);
        if (order == 0 && line_key == key_size) {
            *ret_begin = begin;
            *ret_end = begin + line_size;
            return;
        }
        if (order > 0 || (order == 0 && line_key > key_size))
            break;
        begin += line_size;
    }
    *ret_begin = *ret_end = begin;
}

static cairn_status make_room(cairn_identity *identity, size_t size)
{
    if (size > TEXT_SIZE_MAX)
        return CAIRN_EINVAL;
    size_t capacity = identity->capacity;
    while (capacity < size + 1)
        capacity *= 2;
    if (capacity == identity->capacity)
        return CAIRN_OK;
    char *text = realloc(identity->text, capacity);
    if (!text)
        return CAIRN_ENOMEM;
    identity->text = text;
    identity->capacity = capacity;
    return CAIRN_OK;
}

cairn_status cairn_identity_set(cairn_identity *identity, const char *key, const char *value)
{
    if (!identity || !key || !value)
        return CAIRN_EINVAL;
    /* Bounded before anything walks them: they may come from outside. */
    size_t key_size = strnlen(key, KEY_SIZE_MAX + 1), value_size = strnlen(value, VALUE_SIZE_MAX + 1);
    if (!valid_key(key, key_size) || !valid_value(value, value_size))
        return CAIRN_EINVAL;
    size_t begin, end, line_size = key_size + 1 + value_size + 1;
    find_line(identity, key, &begin, &end);
    size_t       size = identity->size - (end - begin) + line_size;
    cairn_status status = make_room(identity, size);
    if (status)
        return status;
    char *line = identity->text + begin;
    memmove(line + line_size, identity->text + end, identity->size - end + 1);
    memcpy(line, key, key_size);
    line[key_size] = '=';
    memcpy(line + key_size + 1, value, value_size);
    line[line_size - 1] = '\n';
    identity->size = size;
    return CAIRN_OK;
}

cairn_status cairn_identity_set_u64(cairn_identity *identity, const char *key, uint64_t value)
{
    char text[21]; /* 20 digits of 2^64 - 1 */
    snprintf(text, sizeof(text), "%" PRIu64, value);
    return cairn_identity_set(identity, key, text);
}

cairn_status cairn_identity_set_digest(cairn_identity *identity, const char *key, const cairn_digest *value)
{
    char text[2 * sizeof(value->bytes) + 1];
    if (!value)
        return CAIRN_EINVAL;
    cairn__hex(value->bytes, sizeof(value->bytes), text);
    return cairn_identity_set(identity, key, text);
}

const char *cairn_identity_text(const cairn_identity *identity, size_t *ret_size)
{
    if (ret_size)
        *ret_size = identity->size;
    return identity->text;
}

cairn_digest cairn_identity_digest(const cairn_identity *identity)
{
    return cairn__sha256_once(identity->text, identity->size);
}

/* One line of a text: checked, and its key above the one before. */
static bool valid_line(const char *line, size_t size, const char **key, size_t *key_size)
{
    const char *equals = memchr(line, '=', size);
    size_t      n = equals ? (size_t)(equals - line) : 0;
    if (!valid_key(line, n) || !valid_value(equals + 1, size - n - 1))
        return false;
    size_t both = n < *key_size ? n : *key_size;
    int    order = *key ? memcmp(*key, line, both) : -1;
    if (order > 0 || (order == 0 && *key_size >= n))
        return false;
    *key = line;
    *key_size = n;
    return true;
}

bool cairn__identity_text_is_valid(const char *text, size_t size)
{
    const char *key = NULL;
    size_t      key_size = 0;
    if (size > TEXT_SIZE_MAX)
        return false;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        if (!end || !valid_line(text + at, (size_t)(end - text) - at, &key, &key_size))
            return false;
        at = (size_t)(end - text) + 1;
    }
    return true;
}
