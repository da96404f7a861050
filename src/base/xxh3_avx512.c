/* xxh3_avx512.c - see xxh3.h. */
#define CAIRN__XXH3_NAME cairn__xxh3_128_avx512
#include "base/xxh3_impl.h"
