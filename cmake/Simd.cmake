# Files that are compiled for one instruction set and chosen at run time
# (src/base/digest.c asks the CPU). Elsewhere than on x86-64 they drop out.
# Expects cairn_base_sources; include it after that list is made.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(src/base/xxh3_avx2.c PROPERTIES COMPILE_OPTIONS "-mavx2")
  set_source_files_properties(src/base/xxh3_avx512.c PROPERTIES COMPILE_OPTIONS "-mavx512f")
else()
  list(FILTER cairn_base_sources EXCLUDE REGEX "/xxh3_avx[0-9]+\\.c$")
endif()
