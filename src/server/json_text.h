/* json_text.h - JSON text from outside, made safe for the parser; and text of
 * unknown quality made safe for JSON. Pure functions, any thread. */
#ifndef CAIRN_SERVER_JSON_TEXT_H
#define CAIRN_SERVER_JSON_TEXT_H

#include "cairn/base.h"

#include <jansson.h>

#define CAIRN__JSON_MAX_DEPTH 128

/* Parses text[0..size), which is changed in place. First, without recursion:
 * nesting deeper than CAIRN__JSON_MAX_DEPTH is refused; the escapes of NUL and of
 * lone surrogates, which truncating clients send, become U+FFFD; and numbers that
 * are not plain 64-bit integers (1.0, 1e5, 18446744073709551615) become marked
 * strings, because no JSON library on the way to the prompt keeps their digits.
 * NULL: reason[0..reason_size) says why; *ret_no_memory if it was that. */
json_t *cairn__json_parse(char *text, size_t size, char *reason, size_t reason_size, bool *ret_no_memory);

/* True when text is one JSON value within the depth, of any kind. Not changed. */
bool cairn__json_depth_ok(const char *text, size_t size);

/* Compact text, key order kept, malloc()ed; NULL: out of memory. Marked numbers
 * come out as they came in. */
char *cairn__json_print(const json_t *value);
/* The same with the marks still on, for who takes them off later; a fresh process
 * has a fresh mark, which no client can know. */
char       *cairn__json_print_marked(const json_t *value);
const char *cairn__json_mark(void);
/* JSON text of its own inside a string, such as the arguments of a call: repaired
 * and marked, else unchanged; malloc()ed. NULL: not a JSON object, too deep, or
 * out of memory. */
char *cairn__json_marked_object(const char *text, size_t size);

/* The same with numbers as short as a float allows (9 digits), for our own answers. */
char *cairn__json_print_answer(const json_t *value);

/* Numbers, marked or not. */
bool   cairn__json_is_number(const json_t *value);
double cairn__json_number(const json_t *value); /* 0 when it is none; may be infinite */
/* Strings that are no marked numbers. */
bool cairn__json_is_text(const json_t *value);

/* A JSON string of text; bytes that are not UTF-8 become U+FFFD. NULL: out of memory. */
json_t *cairn__json_string(const char *text, size_t size);

/* Bytes of the longest prefix that is valid UTF-8 in whole characters. */
size_t cairn__utf8_valid_prefix(const char *text, size_t size);

#endif
