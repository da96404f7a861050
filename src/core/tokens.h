/* tokens.h - token ids as bytes: i32, little-endian, two's complement. */
#ifndef CAIRN_CORE_TOKENS_H
#define CAIRN_CORE_TOKENS_H

#include "base/digest.h"

/* Feeds tokens[0..n) to a digest. */
void cairn__sha256_tokens(cairn__sha256 *sha, const int32_t *tokens, uint32_t n);
/* bytes: room for 4 * n. */
void cairn__put_tokens(uint8_t *bytes, const int32_t *tokens, uint32_t n);

#endif
