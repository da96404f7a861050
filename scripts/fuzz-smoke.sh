#!/bin/sh
# Runs each fuzzer for a few seconds on a copy of its corpus. First the canary,
# whose planted bug must be found: else nobody would notice a fuzzer that is blind.
# usage: fuzz-smoke.sh BUILD_DIR [SECONDS]
set -eu
build=$(cd "$1" && pwd) seconds=${2:-20}
here=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
cd "$tmp" # crash files land here

run() {
    "$build/$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "$tmp/corpus" >"$tmp/log" 2>&1
}

mkdir corpus
! run canary 60 || { echo "FAILED: the canary lives, so this fuzzer finds nothing"; exit 1; }
grep -q 'AddressSanitizer: heap-buffer-overflow' log || { tail -n 20 log; echo "FAILED: the canary did not die of its bug"; exit 1; }
echo "canary: its bug was found"

found=0
for fuzzer in "$build"/fuzz_*; do
    [ -x "$fuzzer" ] || continue
    name=$(basename "$fuzzer")
    rm -rf corpus
    cp -r "$here/tests/fuzz/corpus/${name#fuzz_}" corpus
    run "$name" "$seconds" || { tail -n 60 log; echo "FAILED: $name; input: $(cat crash-* leak-* timeout-* oom-* 2>/dev/null | base64 -w0)"; exit 1; }
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' log) runs, nothing found"
    found=$((found + 1))
done
[ $found -gt 0 ] || { echo "FAILED: no fuzzers in $build"; exit 1; }
