/* json_text.c - see json_text.h.
 *
 * The scan knows just enough of JSON to tell strings from the rest: syntax is
 * jansson's business, which sees the text afterwards. What the scan must get
 * right is when a string ends; a text in which it is wrong about that is not
 * JSON, and jansson refuses it. */
#include "server/json_text.h"
#include "os/file.h"
#include "server/buf.h"

#include <pthread.h>
#include <stdio.h>

static pthread_once_t mark_once = PTHREAD_ONCE_INIT;
static char           mark[40];
static size_t         mark_size;

static void make_mark(void)
{
    unsigned char random[8];
    cairn__random_bytes(random, sizeof random);
    int at = snprintf(mark, sizeof mark, "cairn-number-");
    for (size_t i = 0; i < sizeof random; i++)
        at += snprintf(mark + at, sizeof mark - (size_t)at, "%02x", random[i]);
    mark_size = (size_t)snprintf(mark + at, sizeof mark - (size_t)at, ":") + (size_t)at;
}

const char *cairn__json_mark(void)
{
    pthread_once(&mark_once, make_mark);
    return mark;
}

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

static bool is_number_char(char c)
{
    return is_digit(c) || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

static size_t skip_digits(const char *text, size_t size, size_t at)
{
    while (at < size && is_digit(text[at]))
        at++;
    return at;
}

/* End of the JSON number at text[at], at itself when it is malformed. */
static size_t number_end(const char *text, size_t size, size_t at)
{
    size_t i = at + (text[at] == '-'), first = i;
    i        = skip_digits(text, size, i);
    if (i == first || (text[first] == '0' && i > first + 1))
        return at;
    if (i < size && text[i] == '.') {
        first = ++i;
        i     = skip_digits(text, size, i);
        if (i == first)
            return at;
    }
    if (i < size && (text[i] | 0x20) == 'e') {
        i += 1 + (i + 1 < size && (text[i + 1] == '+' || text[i + 1] == '-'));
        first = i;
        i     = skip_digits(text, size, i);
        if (i == first)
            return at;
    }
    return i;
}

static bool fits_int64(const char *text, size_t size)
{
    static const char max[] = "9223372036854775807";
    size_t            first = text[0] == '-', digits = size - first;
    for (size_t i = first; i < size; i++)
        if (!is_digit(text[i]))
            return false;
    return digits < 19 || (digits == 19 && memcmp(text + first, max, 19) <= 0);
}

/* Length of what looks like a number at text[at]; *ret_marked when it is to be
 * marked. What is not JSON stays as it is, for jansson to refuse: malformed
 * numbers, and numbers in the place of a key. */
static size_t number_length(const char *text, size_t size, size_t at, bool *ret_marked)
{
    size_t end = number_end(text, size, at), run = at, next;
    while (run < size && is_number_char(text[run]))
        run++;
    next = run;
    while (next < size && (text[next] == ' ' || text[next] == '\t' || text[next] == '\n' || text[next] == '\r'))
        next++;
    bool key    = next < size && text[next] == ':';
    *ret_marked = end == run && end > at && !key && !fits_int64(text + at, end - at);
    return run - at;
}

/* One pass: depth, repairs in place, and - where numbers need marks - a copy with
 * them. False: too deep. */
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
            bool   marked;
            size_t length = number_length(text, size, at, &marked);
            if (marked) {
                cairn__buf_add(copy, text + copied, at - copied);
                cairn__buf_text(copy, "\"");
                cairn__buf_text(copy, cairn__json_mark());
                cairn__buf_add(copy, text + at, length);
                cairn__buf_text(copy, "\"");
                copied        = at + length;
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

char *cairn__json_marked_object(const char *text, size_t size)
{
    char       reason[200];
    bool       no_memory, has_copy = false;
    cairn__buf repaired = {0}, copy = {0};
    cairn__buf_add(&repaired, text, size);
    bool    ok     = !repaired.failed && scan(repaired.data, size, &copy, &has_copy) && !copy.failed;
    json_t *parsed = ok ? cairn__json_parse(repaired.data, size, reason, sizeof reason, &no_memory) : NULL;
    ok             = json_is_object(parsed);
    json_decref(parsed);
    char *result = !ok ? NULL : has_copy ? copy.data : repaired.data;
    if (result != copy.data)
        cairn__buf_done(&copy);
    if (result != repaired.data)
        cairn__buf_done(&repaired);
    return result;
}

/* ---- marked numbers ---- */

static bool is_marked(const json_t *value)
{
    const char *own = cairn__json_mark(); /* first: it sets mark_size */
    return json_is_string(value) && strncmp(json_string_value(value), own, mark_size) == 0;
}

bool cairn__json_is_number(const json_t *value)
{
    return json_is_number(value) || is_marked(value);
}

double cairn__json_number(const json_t *value)
{
    return is_marked(value) ? strtod(json_string_value(value) + mark_size, NULL) : json_number_value(value);
}

bool cairn__json_is_text(const json_t *value)
{
    return json_is_string(value) && !is_marked(value);
}

/* ---- printing ---- */

/* Takes every mark off, with the quotes around it, in place. */
static void unmark(char *text)
{
    char *from = text, *to = text, *at;
    while ((at = strstr(from, mark))) {
        char *digits = at + mark_size, *end = digits;
        while (is_number_char(*end))
            end++;
        bool   quoted = at > from && at[-1] == '"' && *end == '"';
        size_t before = (size_t)(at - from) - quoted;
        memmove(to, from, before);
        memmove(to + before, digits, (size_t)(end - digits));
        to += before + (size_t)(end - digits);
        from = end + quoted;
    }
    memmove(to, from, strlen(from) + 1);
}

char *cairn__json_print_marked(const json_t *value)
{
    return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

char *cairn__json_print(const json_t *value)
{
    char *text = cairn__json_print_marked(value);
    if (text && strstr(text, cairn__json_mark()))
        unmark(text);
    return text;
}

char *cairn__json_print_answer(const json_t *value)
{
    return json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9));
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
