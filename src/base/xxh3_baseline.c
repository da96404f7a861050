/* xxh3_baseline.c - see xxh3.h. */
#define CAIRN__XXH3_NAME cairn__xxh3_128_baseline
#include "base/xxh3_impl.h"
