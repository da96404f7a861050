/* json_text.h - JSON text from outside, made safe for the parser; and text of
 * unknown quality made safe for JSON. Pure functions, any thread. */
#ifndef CAIRN_SERVER_JSON_TEXT_H
#define CAIRN_SERVER_JSON_TEXT_H

#include "cairn/base.h"

#include <jansson.h>

#define CAIRN__JSON_MAX_DEPTH 128

/* Parses text[0..size), which is changed in place. First, without recursion:
 * nesting deeper than CAIRN__JSON_MAX_DEPTH is refused; the escapes of NUL and of
 * lone surrogates, which truncating clients send, become U+FFFD; integers outside
 * 64 bits are carried as marked strings and come out of cairn__json_print()
 * unchanged. NULL: reason[0..reason_size) says why; *ret_no_memory if it was that. */
json_t *cairn__json_parse(char *text, size_t size, char *reason, size_t reason_size, bool *ret_no_memory);

/* True when text is one JSON value within the depth, of any kind. Not changed. */
bool cairn__json_depth_ok(const char *text, size_t size);

/* Compact text, key order kept, malloc()ed; NULL: out of memory. */
char *cairn__json_print(const json_t *value);

/* True for the marked strings that stand for integers outside 64 bits. */
bool cairn__json_is_big_integer(const json_t *value);

/* A JSON string of text; bytes that are not UTF-8 become U+FFFD. NULL: out of memory. */
json_t *cairn__json_string(const char *text, size_t size);

/* Bytes of the longest prefix that is valid UTF-8 in whole characters. */
size_t cairn__utf8_valid_prefix(const char *text, size_t size);

#endif
