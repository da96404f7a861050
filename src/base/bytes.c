/* bytes.c - the one function of bytes.h that is not worth inlining. */
#include "base/bytes.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

bool cairn__unhex(const char *hex, uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        int high = hex_digit(hex[2 * i]);
        /* Not looked at after a bad first digit: that may have been the NUL. */
        int low = high < 0 ? -1 : hex_digit(hex[2 * i + 1]);
        if (low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
