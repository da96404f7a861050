/* tokens.c - see tokens.h. */
#include "core/tokens.h"

#include "base/bytes.h"

void cairn__put_tokens(uint8_t *bytes, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        cairn__put_u32(bytes + 4 * (size_t)i, (uint32_t)tokens[i]);
}

void cairn__sha256_tokens(cairn__sha256 *sha, const int32_t *tokens, uint32_t n)
{
    uint8_t buf[1024]; /* a page of 256 tokens in one update */
    for (uint32_t done = 0; done < n;) {
        uint32_t some = n - done < sizeof(buf) / 4 ? n - done : (uint32_t)(sizeof(buf) / 4);
        cairn__put_tokens(buf, tokens + done, some);
        cairn__sha256_update(sha, buf, 4 * (size_t)some);
        done += some;
    }
}
