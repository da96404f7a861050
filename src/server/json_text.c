/* json_text.c - see json_text.h.
 *
 * The scan knows just enough of JSON to tell strings from the rest: syntax is
 * jansson's business, which sees the text afterwards. What the scan must get
 * right is when a string ends; a text in which it is wrong about that is not
 * JSON, and jansson refuses it. */
#include "server/json_text.h"
#include "server/buf.h"

#include <stdio.h>

/* U+E0FF, private use, then a word. A client that sends this string itself gets a
 * number in its prompt, nothing worse. */
#define BIG_MARK "\xEE\x83\xBF" "cairn-integer:"
#define BIG_MARK_SIZE (sizeof BIG_MARK - 1)
/* Longer runs of digits are left to jansson, which refuses them. */
#define BIG_MAX_DIGITS 400

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Code unit of the escape \uXXXX at text[at..]; -1: none there. */
static int escape_unit(const char *text, size_t size, size_t at)
{
    if (at + 6 > size || text[at] != '\\' || text[at + 1] != 'u')
        return -1;
    int unit = 0;
    for (size_t i = at + 2; i < at + 6; i++) {
        int digit = hex_value(text[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Repairs the escape at text[at], returns its length. */
static size_t repair_escape(char *text, size_t size, size_t at)
{
    int unit = escape_unit(text, size, at);
    if (unit < 0)
        return at + 2 <= size ? 2 : 1;
    bool high = unit >= 0xD800 && unit <= 0xDBFF;
    int  next = high ? escape_unit(text, size, at + 6) : -1;
    if (high && next >= 0xDC00 && next <= 0xDFFF)
        return 12;
    if (unit == 0 || (unit >= 0xD800 && unit <= 0xDFFF))
        memcpy(text + at + 2, "fffd", 4);
    return 6;
}

static size_t skip_string(char *text, size_t size, size_t at)
{
    for (at++; at < size && text[at] != '"';)
        at += text[at] == '\\' ? repair_escape(text, size, at) : 1;
    return at + 1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of the integer at text[at] when it does not fit int64; else 0.
 * *ret_length: of the number either way. */
static size_t big_integer(const char *text, size_t size, size_t at, size_t *ret_length)
{
    static const char max[] = "9223372036854775807";
    size_t            i     = at + (text[at] == '-');
    size_t            first = i;
    while (i < size && is_digit(text[i]))
        i++;
    size_t digits = i - first;
    bool   plain  = i == size || !strchr(".eE+-", text[i]) || text[i] == 0;
    while (i < size && (is_digit(text[i]) || (text[i] && strchr(".eE+-", text[i]))))
        i++;
    *ret_length = i > at ? i - at : 1;
    if (!plain || digits < 19 || digits > BIG_MAX_DIGITS || text[first] == '0')
        return 0;
    if (digits == 19 && memcmp(text + first, max, 19) <= 0)
        return 0;
    return *ret_length;
}

/* One pass: depth, repairs in place, and - where there are big integers - a copy
 * with marks. False: too deep. */
static bool scan(char *text, size_t size, cairn__buf *copy, bool *ret_has_copy)
{
    size_t depth = 0, copied = 0;
    for (size_t at = 0; at < size;) {
        char c = text[at];
        if (c == '"') {
            at = skip_string(text, size, at);
            continue;
        }
        if (c == '[' || c == '{') {
            if (++depth > CAIRN__JSON_MAX_DEPTH)
                return false;
        } else if ((c == ']' || c == '}') && depth) {
            depth--;
        } else if (c == '-' || is_digit(c)) {
            size_t length, big = big_integer(text, size, at, &length);
            if (big) {
                cairn__buf_add(copy, text + copied, at - copied);
                cairn__buf_text(copy, "\"" BIG_MARK);
                cairn__buf_add(copy, text + at, big);
                cairn__buf_text(copy, "\"");
                copied        = at + big;
                *ret_has_copy = true;
            }
            at += length;
            continue;
        }
        at++;
    }
    if (*ret_has_copy)
        cairn__buf_add(copy, text + copied, size - copied);
    return true;
}

json_t *cairn__json_parse(char *text, size_t size, char *reason, size_t reason_size, bool *ret_no_memory)
{
    cairn__buf   copy     = {0};
    bool         has_copy = false;
    json_error_t error    = {0};
    json_t      *value    = NULL;
    *ret_no_memory        = false;
    if (!scan(text, size, &copy, &has_copy)) {
        snprintf(reason, reason_size, "nested deeper than %d levels", CAIRN__JSON_MAX_DEPTH);
    } else if (copy.failed) {
        *ret_no_memory = true;
        snprintf(reason, reason_size, "out of memory");
    } else {
        value = has_copy ? json_loadb(copy.data, copy.size, JSON_DECODE_ANY, &error)
                         : json_loadb(text, size, JSON_DECODE_ANY, &error);
        if (!value) {
            *ret_no_memory = json_error_code(&error) == json_error_out_of_memory;
            /* jansson quotes the text around the error: that part stays here. */
            char *quote = strstr(error.text, " near ");
            if (quote)
                *quote = 0;
            snprintf(reason, reason_size, "%.120s (line %d, column %d)", error.text, error.line, error.column);
        }
    }
    cairn__buf_done(&copy);
    return value;
}

bool cairn__json_depth_ok(const char *text, size_t size)
{
    size_t depth = 0;
    bool   in_string = false;
    for (size_t at = 0; at < size; at++) {
        char c = text[at];
        if (in_string) {
            if (c == '\\')
                at++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > CAIRN__JSON_MAX_DEPTH)
                return false;
        } else if ((c == ']' || c == '}') && depth) {
            depth--;
        }
    }
    return true;
}

bool cairn__json_is_big_integer(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > BIG_MARK_SIZE &&
           memcmp(json_string_value(value), BIG_MARK, BIG_MARK_SIZE) == 0;
}

/* Turns every marked string back into its digits, in place. */
static void unmark(char *text)
{
    static const char quoted[] = "\"" BIG_MARK;
    char             *from = text, *to = text, *mark;
    while ((mark = strstr(from, quoted))) {
        char *digits = mark + sizeof quoted - 1, *end = digits + (*digits == '-');
        while (is_digit(*end))
            end++;
        bool   whole = *end == '"' && end - digits > 18;
        size_t plain = (size_t)((whole ? mark : digits) - from);
        memmove(to, from, plain);
        to += plain;
        if (whole) {
            memmove(to, digits, (size_t)(end - digits));
            to += end - digits;
        }
        from = whole ? end + 1 : digits;
    }
    memmove(to, from, strlen(from) + 1);
}

char *cairn__json_print(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text && strstr(text, BIG_MARK))
        unmark(text);
    return text;
}

/* Length of the UTF-8 character at p, 0 when it is malformed or cut. */
static size_t utf8_char(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
        (p[0] == 0xF4 && p[1] > 0x8F))
        return 0;
    return n;
}

size_t cairn__utf8_valid_prefix(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        size_t n = utf8_char((const unsigned char *)text + at, size - at);
        if (n == 0)
            break;
        at += n;
    }
    return at;
}

json_t *cairn__json_string(const char *text, size_t size)
{
    size_t good = cairn__utf8_valid_prefix(text, size);
    if (good == size)
        return json_stringn_nocheck(text ? text : "", size);
    cairn__buf fixed = {0};
    while (size) {
        cairn__buf_add(&fixed, text, good);
        text += good;
        size -= good;
        if (size) {
            cairn__buf_text(&fixed, "\xEF\xBF\xBD");
            text++;
            size--;
        }
        good = cairn__utf8_valid_prefix(text, size);
    }
    json_t *value = fixed.failed ? NULL : json_stringn_nocheck(fixed.data ? fixed.data : "", fixed.size);
    cairn__buf_done(&fixed);
    return value;
}
