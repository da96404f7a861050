# What an installation holds, relative to its prefix:
#   bin/cairn                              the program
#   lib/libcairn.*, lib/libcairn-llama.*   shared and static
#   lib/cairn/                             llama.cpp's libraries, and its headers in include/
#   include/cairn/, lib/pkgconfig/, lib/cmake/cairn/
# Everything finds its libraries relative to itself, so that the prefix can be
# moved and the build cache removed.
set(cairn_private lib/cairn) # ours alone: no other llama.cpp gets in its way, nor it in another's

install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/cairn DESTINATION include FILES_MATCHING PATTERN "*.h")
set_target_properties(libcairn_llama_shared PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/cairn")
install(TARGETS libcairn_shared libcairn_static libcairn_llama_shared libcairn_llama_static
        LIBRARY DESTINATION lib ARCHIVE DESTINATION lib)
if(CAIRN_SERVER)
  set_target_properties(cairn PROPERTIES INSTALL_RPATH "$ORIGIN/../${cairn_private}")
  install(TARGETS cairn RUNTIME DESTINATION bin)
endif()

# llama.cpp's libraries look beside themselves for each other: build-llama.sh saw
# to that, so that these copies are the very bytes that build/cairn loads and
# the identity of a cache is the same for both.
if(CAIRN_LLAMA_BIN)
  set(cairn_llama_names llama ggml)
  if(CAIRN_SERVER)
    list(APPEND cairn_llama_names llama-common)
  endif()
  install(CODE "
    foreach(name IN ITEMS ${cairn_llama_names})
      file(GLOB found \"${CAIRN_LLAMA_BIN}/lib\${name}.so*\")
      list(APPEND libraries \${found})
    endforeach()
    file(GLOB backends \"${CAIRN_LLAMA_BIN}/libggml-*.so*\")
    file(INSTALL \${libraries} \${backends} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${cairn_private}\"
         USE_SOURCE_PERMISSIONS)")
  install(DIRECTORY ${CAIRN_LLAMA_ROOT}/src/include/ ${CAIRN_LLAMA_ROOT}/src/ggml/include/
          DESTINATION ${cairn_private}/include FILES_MATCHING PATTERN "*.h")
  set(cairn_pc_llama_cflags "-I\${prefix}/${cairn_private}/include")
  set(cairn_pc_llama_libs "-L\${prefix}/${cairn_private} -Wl,-rpath,\${prefix}/${cairn_private} -lllama -lggml -lggml-base")
else()
  set(cairn_pc_llama_requires llama)
endif()

include(CMakePackageConfigHelpers)
foreach(name cairn cairn-llama)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION lib/pkgconfig)
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/cairnConfig.cmake.in ${CMAKE_BINARY_DIR}/cairnConfig.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cairnConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cairnConfig.cmake ${CMAKE_BINARY_DIR}/cairnConfigVersion.cmake
        DESTINATION lib/cmake/cairn)
