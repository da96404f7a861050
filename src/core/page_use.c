/* page_use.c - see page_use.h. */
#include "core/page_use.h"

#define NS_PER_S INT64_C(1000000000)
#define USES_MAX 999

cairn__page_use cairn__page_use_of(int64_t mtime_ns)
{
    int64_t ns = mtime_ns % NS_PER_S;
    if (ns < 0)
        ns += NS_PER_S;
    return (cairn__page_use){(mtime_ns - ns) / NS_PER_S, ns <= USES_MAX ? (uint32_t)ns : 1};
}

int64_t cairn__page_use_mtime_ns(cairn__page_use use)
{
    return use.used_s * NS_PER_S + use.n_uses;
}

cairn__page_use cairn__page_use_again(cairn__page_use use, int64_t now_s)
{
    return (cairn__page_use){now_s, use.n_uses < USES_MAX ? use.n_uses + 1 : USES_MAX};
}
