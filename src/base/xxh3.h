/* xxh3.h - the builds of XXH3-128 among which digest.c chooses.
 *
 * xxh3_impl.h is compiled once per instruction set, in a file of its own so
 * that cmake/Simd.cmake can give that file alone the compiler flag: no
 * instruction of a wider set can leak into code that runs everywhere. All give
 * the same bytes. Only x86-64 has more than the baseline (which is SSE2 there
 * and NEON on AArch64). Calling a build the CPU can't run is undefined. */
#ifndef CAIRN_BASE_XXH3_H
#define CAIRN_BASE_XXH3_H

#include "base/digest.h"

cairn__xxh128 cairn__xxh3_128_baseline(const void *data, size_t size);
cairn__xxh128 cairn__xxh3_128_avx2(const void *data, size_t size);
cairn__xxh128 cairn__xxh3_128_avx512(const void *data, size_t size);

#endif
