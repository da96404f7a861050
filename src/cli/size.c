/* size.c - sizes as people write them, in IEC units. */
#include "cli/cli.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char letters[] = "KMGT";

bool cairn__cli_size(const char *text, uint64_t *ret_bytes)
{
    char  *end;
    double number = strtod(text, &end);
    if (!isdigit((unsigned char)text[0]) || end == text || !isfinite(number) || text[1] == 'x' || text[1] == 'X')
        return false;
    while (*end == ' ')
        end++;
    const char *letter = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
    const char *rest   = letter ? end + 1 : end;
    if (*rest && strcasecmp(rest, "B") != 0 && (!letter || strcasecmp(rest, "iB") != 0))
        return false;
    double bytes = ldexp(number, letter ? 10 * (int)(letter - letters + 1) : 0);
    if (bytes >= 9.2e18)
        return false;
    *ret_bytes = (uint64_t)bytes;
    return true;
}

const char *cairn__cli_size_text(uint64_t bytes, char *buf, size_t buf_size)
{
    double number = (double)bytes;
    int    unit   = -1;
    while (number >= 1024 && unit < 3) {
        number /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(buf, buf_size, "%llu bytes", (unsigned long long)bytes);
    else
        snprintf(buf, buf_size, "%.4g %ciB", number, letters[unit]);
    return buf;
}
