# Finds llama.cpp. Defines
#   cairn_llama_cpp      the library and its headers
#   cairn_llama_common   chat templates and the like (the server only)
#   CAIRN_LLAMA_TREE     git tree id of its sources, empty when unknown: then
#                        the identity takes digests of the loaded libraries
#   CAIRN_LLAMA_BIN      folder of its libraries and programs, empty for a system's
set(CAIRN_LLAMA_ROOT "" CACHE PATH "Folder in the build cache, as scripts/get-llama.sh prints it")
set(CAIRN_LLAMA_TREE "")
set(CAIRN_LLAMA_BIN "")
set(cairn_llama_pinned fd570ef54b10)
add_library(cairn_llama_cpp INTERFACE)

function(cairn_default_llama_root ret)
  if(DEFINED ENV{CAIRN_BUILD_CACHE})
    set(cache $ENV{CAIRN_BUILD_CACHE})
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(cache $ENV{XDG_CACHE_HOME}/cairn-build)
  else()
    set(cache $ENV{HOME}/.cache/cairn-build)
  endif()
  set(root ${cache}/llama.cpp/${cairn_llama_pinned})
  if(NOT EXISTS ${root} AND EXISTS ${cache}/llama.cpp/current)
    file(STRINGS ${cache}/llama.cpp/current key LIMIT_COUNT 1)
    set(root ${cache}/llama.cpp/${key})
  endif()
  set(${ret} ${root} PARENT_SCOPE)
endfunction()

# The id that get-llama.sh noted, or git's own of sources that came otherwise.
function(cairn_llama_tree root ret)
  set(tree "")
  if(EXISTS ${root}/tree)
    file(STRINGS ${root}/tree tree LIMIT_COUNT 1)
  elseif(EXISTS ${root}/src/.git)
    execute_process(COMMAND git -C ${root}/src rev-parse "HEAD^{tree}" OUTPUT_VARIABLE tree
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${ret} "${tree}" PARENT_SCOPE)
endfunction()

function(cairn_require_llama root flavour library)
  if(NOT EXISTS ${root}/${flavour}/bin/${library} OR NOT EXISTS ${root}/src/include/llama.h)
    message(FATAL_ERROR
      "llama.cpp is not built in ${root}/${flavour}.\n"
      "Run ./dev build, which gets and builds it once, or do it by hand:\n"
      "  scripts/build-llama.sh \"$(scripts/get-llama.sh)\" ${flavour} llama llama-common")
  endif()
endfunction()

# An installed llama.cpp has llama.h alone: enough for the library.
function(cairn_use_system_llama)
  if(CAIRN_SERVER)
    message(FATAL_ERROR "An installed llama.cpp has no chat templates: add -DCAIRN_SERVER=OFF to -DCAIRN_SYSTEM_LLAMA=ON")
  endif()
  find_package(llama CONFIG QUIET)
  if(TARGET llama)
    target_link_libraries(cairn_llama_cpp INTERFACE llama)
    return()
  endif()
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(SYSTEM_LLAMA REQUIRED IMPORTED_TARGET llama)
  target_link_libraries(cairn_llama_cpp INTERFACE PkgConfig::SYSTEM_LLAMA)
endfunction()

if(CAIRN_SYSTEM_LLAMA)
  cairn_use_system_llama()
  return()
endif()

if(NOT CAIRN_LLAMA_ROOT)
  cairn_default_llama_root(CAIRN_LLAMA_ROOT)
endif()
if(CAIRN_CUDA)
  set(cairn_llama_flavour cuda)
else()
  set(cairn_llama_flavour cpu)
endif()
cairn_require_llama(${CAIRN_LLAMA_ROOT} ${cairn_llama_flavour} libllama.so)
cairn_llama_tree(${CAIRN_LLAMA_ROOT} CAIRN_LLAMA_TREE)
set(CAIRN_LLAMA_BIN ${CAIRN_LLAMA_ROOT}/${cairn_llama_flavour}/bin)
set(cairn_llama_src ${CAIRN_LLAMA_ROOT}/src)
target_include_directories(cairn_llama_cpp SYSTEM INTERFACE ${cairn_llama_src}/include ${cairn_llama_src}/ggml/include)
target_link_libraries(cairn_llama_cpp INTERFACE
  ${CAIRN_LLAMA_BIN}/libllama.so ${CAIRN_LLAMA_BIN}/libggml.so ${CAIRN_LLAMA_BIN}/libggml-base.so)

if(CAIRN_SERVER)
  cairn_require_llama(${CAIRN_LLAMA_ROOT} ${cairn_llama_flavour} libllama-common.so)
  add_library(cairn_llama_common INTERFACE)
  target_include_directories(cairn_llama_common SYSTEM INTERFACE ${cairn_llama_src}/common ${cairn_llama_src}/vendor)
  target_link_libraries(cairn_llama_common INTERFACE cairn_llama_cpp ${CAIRN_LLAMA_BIN}/libllama-common.so)
endif()
