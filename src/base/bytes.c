/* bytes.c - the one function of bytes.h that is not worth inlining. */
#include "base/bytes.h"

/* Value of a digit plus one, 0 for anything else. A table, since the branches of a
 * comparison are taken at random: names of ten thousand pages have a million digits. */
static const uint8_t digit[256] = {['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,
                                   ['6'] = 7,  ['7'] = 8,  ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
                                   ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16};

bool cairn__unhex(const char *hex, uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        uint8_t high = digit[(uint8_t)hex[2 * i]];
        /* Not looked at after a bad first digit: that may have been the NUL. */
        uint8_t low = high ? digit[(uint8_t)hex[2 * i + 1]] : 0;
        if (!low)
            return false;
        bytes[i] = (uint8_t)((high - 1) << 4 | (low - 1));
    }
    return true;
}
