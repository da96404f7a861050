#!/bin/sh
# bench/gpu/run.sh - builds what the GPU bench needs on a machine without a
# network, and runs it.
#
#     bench/gpu/run.sh LLAMA.tar.xz [DEBS]      from the root of the sources
#
# LLAMA.tar.xz: llama.cpp's sources, as bench/gpu/pack.sh writes them. DEBS: a
# folder with the Debian packages libssl-dev and libxxhash-dev, for a machine
# that lacks their headers; unpacked, not installed.
#
# WORK (default: a folder in the temporary one) keeps builds, so that a second
# call only runs. OUT (default: WORK/out) receives gpu.json and log.txt.
# STEPS="build bench" does one or both. CUDA=OFF builds for the CPU: a try-out of
# the script. BENCH_ARGS goes to bench.py.
set -eu

[ $# -ge 1 ] || { sed -n '2,16p' "$0"; exit 2; }
tarball=$1 debs=${2:-}
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
work=${WORK:-${TMPDIR:-/tmp}/cairn-gpu}
out=${OUT:-$work/out}
steps=${STEPS:-build bench}
cuda=${CUDA:-ON}
flavour=cuda
[ "$cuda" = ON ] || flavour=cpu
jobs=$(getconf _NPROCESSORS_ONLN)
mkdir -p "$work" "$out"
if [ -d /usr/local/cuda/bin ]; then
    PATH=/usr/local/cuda/bin:$PATH
    export PATH
fi
if [ -d /usr/local/nvidia/lib64 ]; then
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi

say() {
    printf '[%s] %s\n' "$(date +%T)" "$*"
}

give_up() {
    tail -n 40 "$1"
    exit 1
}

unpack_debs() {
    [ -n "$debs" ] && [ ! -d "$work/deps" ] || return 0
    for deb in "$debs"/*.deb; do
        dpkg-deb -x "$deb" "$work/deps"
    done
}

build_llama() {
    [ ! -f "$work/llama/done" ] || return 0
    mkdir -p "$work/llama"
    tar -xf "$tarball" -C "$work/llama"
    say "llama.cpp, CUDA $cuda"
    # 90 is the H200; FA kernels only for KV types that are equal, which is what the bench uses.
    cmake -S "$work/llama/src" -B "$work/llama/$flavour" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON -DGGML_CUDA="$cuda" -DGGML_CUDA_NCCL=OFF \
        -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCH:-90}" -DGGML_CCACHE=OFF -DLLAMA_BUILD_COMMON=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF \
        -DLLAMA_BUILD_APP=OFF >"$out/llama-configure.txt" 2>&1 || give_up "$out/llama-configure.txt"
    ninja -C "$work/llama/$flavour" -j "$jobs" llama >"$out/llama-build.txt" 2>&1 || give_up "$out/llama-build.txt"
    touch "$work/llama/done"
}

# Prints cmake's options for the unpacked packages, one a line.
deps_options() {
    [ -d "$work/deps" ] || return 0
    multiarch=$(basename "$(ls -d "$work"/deps/usr/include/*-linux-gnu | head -n 1)")
    printf '%s\n' "-DOPENSSL_ROOT_DIR=$work/deps/usr" "-DOPENSSL_USE_STATIC_LIBS=ON" \
        "-DOPENSSL_INCLUDE_DIR=$work/deps/usr/include" \
        "-DOPENSSL_CRYPTO_LIBRARY=$work/deps/usr/lib/$multiarch/libcrypto.a" \
        "-DCMAKE_C_FLAGS=-isystem $work/deps/usr/include/$multiarch -isystem $work/deps/usr/include" \
        "-DCMAKE_PREFIX_PATH=$work/deps/usr"
}

# The driver's library may be known to the loader alone: what libggml-cuda needs
# of it is not looked for when programs are linked.
build_cairn() {
    say "cairn"
    set -- -S "$source_dir" -B "$work/cairn" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCAIRN_SERVER=OFF \
        -DCAIRN_TESTS=OFF -DCAIRN_BENCH=ON -DCAIRN_CUDA="$cuda" -DCAIRN_LLAMA_ROOT="$work/llama" \
        -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined
    while IFS= read -r option; do
        [ -z "$option" ] || set -- "$@" "$option"
    done <<END
$(deps_options)
END
    cmake "$@" >"$out/cairn-configure.txt" 2>&1 || give_up "$out/cairn-configure.txt"
    ninja -C "$work/cairn" -j "$jobs" bench_gen bench_gpu bench_disk bench_store bench_sealed bench_siblings >"$out/cairn-build.txt" 2>&1 || give_up "$out/cairn-build.txt"
}

run_bench() {
    say "bench"
    ! command -v nvidia-smi >/dev/null 2>&1 || nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    # shellcheck disable=SC2086  # several arguments
    PYTHONUNBUFFERED=1 python3 "$source_dir/bench/gpu/bench.py" "$work/cairn" --work "$work" --json "$out/gpu.json" \
        ${BENCH_ARGS:-}
}

main() {
    for step in $steps; do
        case $step in
        build)
            unpack_debs
            build_llama
            build_cairn
            ;;
        bench) run_bench ;;
        *)
            echo "no such step: $step" >&2
            return 2
            ;;
        esac
        say "$step done"
    done
}

# A pipe's first command keeps `set -e`; its exit code goes through a file.
echo 1 >"$work/code"
(main; echo 0 >"$work/code") 2>&1 | tee "$out/log.txt"
exit "$(cat "$work/code")"
