#!/bin/sh
# Installs into an empty prefix, moves it, and uses it as a stranger would: each
# example is compiled through pkg-config and through CMake's find_package, and
# what was built runs without anything of the build folder or its cache.
# usage: install.sh SOURCE_DIR BUILD_DIR
set -eu
source_dir=$1 build_dir=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
fail() {
    echo "FAILED: $*"
    exit 1
}

# Every library it loads that we ship must come from the prefix, and all be found.
check_libraries() {
    ldd "$1" >"$tmp/ldd"
    ! grep 'not found' "$tmp/ldd" || fail "$1 misses libraries"
    ! grep -E 'lib(llama|ggml|cairn)' "$tmp/ldd" | grep -vF "=> $prefix/" || fail "$1 loads libraries from outside the prefix"
}

use_pkg_config() {
    name=$(basename "$1" .c)
    export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
    # shellcheck disable=SC2046 # one word per flag
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror "$1" $(pkg-config --cflags --libs cairn-llama) \
        -Wl,-rpath,"$prefix/lib" -o "$tmp/pc-$name"
    check_libraries "$tmp/pc-$name"
    echo "pkg-config: $name"
}

use_cmake() {
    name=$(basename "$1" .c)
    mkdir -p "$tmp/cm-$name"
    cat >"$tmp/cm-$name/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(cairn 0.1 REQUIRED)
add_executable(user "$1")
target_link_libraries(user PRIVATE Cairn::llama)
CMAKE
    cmake -G Ninja -S "$tmp/cm-$name" -B "$tmp/cm-$name/b" -DCMAKE_PREFIX_PATH="$prefix" >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "cmake for $name"; }
    cmake --build "$tmp/cm-$name/b" >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "building $name"; }
    check_libraries "$tmp/cm-$name/b/user"
    echo "find_package: $name"
}

cmake --install "$build_dir" --prefix "$tmp/first" >"$tmp/log" 2>&1 || { cat "$tmp/log"; fail "cmake --install"; }
prefix=$tmp/moved
mv "$tmp/first" "$prefix"
for library in "$prefix"/lib/lib*.so "$prefix"/lib/cairn/lib*.so; do check_libraries "$library"; done
if [ -e "$build_dir/cairn" ]; then
    check_libraries "$prefix/bin/cairn"
    env -i "$prefix/bin/cairn" --version || fail "the installed program does not run"
fi
examples=0
for example in "$source_dir"/examples/*.c; do
    use_pkg_config "$example"
    use_cmake "$example"
    examples=$((examples + 1))
done
[ "$examples" -gt 0 ] || fail "no examples found"
! grep -rIl "$build_dir\|llama.cpp/" "$prefix/lib/pkgconfig" "$prefix/lib/cmake" || fail "an installed file names the build folder or its cache"
echo "installed, moved and used with $examples example(s)"
