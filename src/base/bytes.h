/* bytes.h - little-endian fields, hex, and arithmetic that can't overflow.
 * Everything that goes to disk or wire is written through these, never as a
 * struct. Inline, no state. */
#ifndef CAIRN_BASE_BYTES_H
#define CAIRN_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void cairn__put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static inline void cairn__put_u64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint32_t cairn__get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t cairn__get_u64(const uint8_t *p)
{
    return (uint64_t)cairn__get_u32(p) | (uint64_t)cairn__get_u32(p + 4) << 32;
}

/* False on overflow; *ret is then unspecified. */
static inline bool cairn__mul_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    return !__builtin_mul_overflow(a, b, ret);
}

static inline bool cairn__add_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    return !__builtin_add_overflow(a, b, ret);
}

/* hex: room for 2 * size + 1 characters; lower case, NUL-terminated. */
static inline void cairn__hex(const uint8_t *bytes, size_t size, char *hex)
{
    for (size_t i = 0; i < size; i++) {
        hex[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    hex[2 * size] = 0;
}

/* Reads exactly 2 * size lower-case hex digits; false on anything else. */
bool cairn__unhex(const char *hex, uint8_t *bytes, size_t size);

#endif
