# XXH3's files are compiled for one instruction set each and chosen at run time
# (src/base/digest.c asks the CPU). Elsewhere than on x86-64 all but the baseline drop out.
# Expects cairn_base_sources; include it after that list is made.
#
# -O3 unrolls its loop: gcc's -O2 has 7 instead of 29 GB/s in the baseline, 57 instead of
# 64 with AVX-512 (Zen 4, blocks of 512 KiB in the L2 cache).
set(xxh3_optimized "$<$<CONFIG:Release,RelWithDebInfo>:-O3>")
set_source_files_properties(src/base/xxh3_baseline.c PROPERTIES COMPILE_OPTIONS "${xxh3_optimized}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(src/base/xxh3_avx2.c PROPERTIES COMPILE_OPTIONS "${xxh3_optimized};-mavx2")
  set_source_files_properties(src/base/xxh3_avx512.c PROPERTIES COMPILE_OPTIONS "${xxh3_optimized};-mavx512f")
else()
  list(FILTER cairn_base_sources EXCLUDE REGEX "/xxh3_avx[0-9]+\\.c$")
endif()
