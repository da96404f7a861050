#!/bin/sh
# Builds targets of llama.cpp once, outside the tree, and keeps the result.
# usage: build-llama.sh FOLDER FLAVOUR TARGET...
#   FOLDER   as printed by get-llama.sh     FLAVOUR  cpu or cuda
#   TARGET   llama | llama-common | test-llama-archs | llama-server
# FOLDER/FLAVOUR/cairn-stamp names the flags, compilers and CPU features the
# build is for; another stamp means a new build. FOLDER/FLAVOUR/cairn-built
# names the targets that are complete.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
folder=$1 flavour=$2
shift 2
build=$folder/$flavour
stamp=$build/cairn-stamp
built=$build/cairn-built

flags="-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_TESTS=ON -DLLAMA_BUILD_TOOLS=ON
-DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF
-DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF"
case $flavour in
cpu) ;;
cuda) flags="$flags -DGGML_CUDA=ON" ;;
*) die "unknown flavour of llama.cpp: $flavour (cpu or cuda)" ;;
esac

# The build uses every instruction set of this CPU, so it belongs to them.
cpu_features() {
    uname -m
    grep -m1 -E '^(flags|Features)' /proc/cpuinfo | cut -d: -f2 | tr ' ' '\n' |
        grep -E '^(sse|ssse|avx|amx|fma|f16c|bmi|gfni|vaes|asimd|sve|sme[0-9_]*$|i8mm|bf16|fphp)' | sort
}
stamp_text() {
    printf '%s\n' "$flags"
    "${CC:-cc}" --version | head -n 1
    "${CXX:-c++}" --version | head -n 1
    cpu_features | tr '\n' ' '
}

file_of() {
    case $1 in
    llama | llama-common) echo "$build/bin/lib$1.so" ;;
    test-llama-archs | llama-server) echo "$build/bin/$1" ;;
    *) die "unknown target of llama.cpp: $1" ;;
    esac
}
is_built() { [ -e "$(file_of "$1")" ] && grep -qxF "$1" "$built" 2>/dev/null; }
all_built() {
    [ "$(cat "$stamp" 2>/dev/null)" = "$(stamp_text)" ] || return 1
    for target; do is_built "$target" || return 1; done
}

# Libraries that name their build folder would have to be changed on
# installation, and changed bytes are another runtime to the identity: a cache
# filled from the build folder would be cold after `./dev install`. Replaced by
# renaming, since programs that run may have them open.
make_relocatable() {
    for library in "$build"/bin/lib*.so.*; do
        [ ! -L "$library" ] && readelf -d "$library" | grep -q 'RUNPATH.*\[/' || continue
        cp -p "$library" "$library.new"
        cmake "-DLIBRARY=$library.new" -P "$here/set-rpath.cmake" >/dev/null
        touch -r "$library" "$library.new" # else the next build links everything again
        mv "$library.new" "$library"
    done
}

# A build made by hand with the same flags is as good as one of ours.
adopt() {
    [ ! -e "$stamp" ] && [ -e "$build/build.ninja" ] || return 1
    grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$folder/src" "$build/CMakeCache.txt" || return 1
    for flag in $flags; do
        pair=${flag#-D}
        grep -qE "^${pair%%=*}:[A-Z]+=${pair#*=}\$" "$build/CMakeCache.txt" || return 1
    done
    for target in llama llama-common test-llama-archs llama-server; do
        [ ! -e "$(file_of "$target")" ] || echo "$target"
    done >"$built"
    make_relocatable
    stamp_text >"$stamp"
    say "using the llama.cpp that was built in $build"
}

configure() {
    [ "$(cat "$stamp" 2>/dev/null)" != "$(stamp_text)" ] || return 0
    [ ! -e "$stamp" ] || say "llama.cpp was built with other flags, compilers or for another CPU; building it again"
    rm -rf "$build"
    mkdir -p "$build"
    say "configuring llama.cpp ($flavour) in $build"
    # -w: warnings about code that is not ours would bury the progress
    # shellcheck disable=SC2086 # one word per flag
    CFLAGS="${CFLAGS:-} -w" CXXFLAGS="${CXXFLAGS:-} -w" cmake -G Ninja -S "$folder/src" -B "$build" $flags >"$build/configure.log" 2>&1 9>&- ||
        die "llama.cpp can't be configured: $(grep -m3 -A3 'CMake Error' "$build/configure.log"); all of it in $build/configure.log"
    stamp_text >"$stamp"
}

compile() {
    say "building llama.cpp: $* (once; minutes on a small machine)"
    NINJA_STATUS='[llama.cpp %f/%t] ' cmake --build "$build" --target "$@" >&2 9>&- ||
        die "llama.cpp did not build (see above); the folder is $build"
    make_relocatable
    for target; do is_built "$target" || echo "$target" >>"$built"; done
}

all_built "$@" && exit 0
lock "$folder/.lock-$flavour"
all_built "$@" && exit 0
adopt || configure
all_built "$@" || compile "$@"
