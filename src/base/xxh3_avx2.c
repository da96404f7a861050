/* xxh3_avx2.c - see xxh3.h. */
#define CAIRN__XXH3_NAME cairn__xxh3_128_avx2
#include "base/xxh3_impl.h"
