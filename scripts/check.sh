#!/bin/sh
# Everything beyond the ordinary tests. usage: check.sh [STEP...]
#   tree       rules of the tree             shell    the scripts parse
#   asan       AddressSanitizer + UBSan      tsan     ThreadSanitizer
#   clang      the second compiler           tidy     clang-tidy
#   cppcheck   cppcheck                      analyzer gcc -fanalyzer
#   fuzz       each fuzzer for some seconds, and the canary
#   hammer     four servers on one root under kill -9, for CAIRN_HAMMER_SECONDS (20)
#   faults     every call of the store fails; CAIRN_CRASH_POINTS (20,000) power cuts
# All steps run, also after a failure; the last line counts them. Called by
# ./dev check, which installs what is needed and names llama.cpp and models.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
cd "$here/.."
jobs=$(nproc)

configure_and_build() {
    cmake --preset "$1" "-DCAIRN_LLAMA_ROOT=$CAIRN_LLAMA_ROOT" >/dev/null && cmake --build --preset "$1"
}
tests_in() {
    dir=$1
    shift
    ctest --test-dir "$dir" --output-on-failure --no-tests=error -j "$jobs" "$@"
}

step_tree() { scripts/check-tree.sh; }

step_shell() {
    for script in dev scripts/*.sh tests/package/*.sh; do
        sh -n "$script" || return 1
        ! have shellcheck || shellcheck -s sh -S warning "$script" || return 1
    done
    bash -n .ci/run
}

# llama.cpp itself is not instrumented, so its allocations are invisible to
# container checks, and what it keeps until exit is not our leak.
step_asan() {
    configure_and_build asan || return 1
    ASAN_OPTIONS=detect_container_overflow=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
        LSAN_OPTIONS=suppressions=$here/lsan.supp:print_suppressions=0 tests_in build-asan -LE sweep
}

# The engine's other tests ask what is computed, not who runs beside whom.
step_tsan() {
    configure_and_build tsan || return 1
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$here/tsan.supp tests_in build-tsan -L 'unit|engine' \
        -E 'engine/(archs|faults|reproducible)'
}

step_clang() { configure_and_build clang && tests_in build-clang -L unit; }

step_tidy() {
    configure_and_build clang || return 1
    find src -name '*.c' -o -name '*.cpp' | xargs -n 4 -P "$jobs" clang-tidy --quiet -p build-clang
}

step_cppcheck() {
    cppcheck --quiet --error-exitcode=1 --enable=warning,performance,portability --inline-suppr -j "$jobs" \
        --suppressions-list=scripts/cppcheck.supp --std=c11 -Iinclude -Isrc -D_GNU_SOURCE \
        $(find src -name '*.c')
}

# gcc's analyzer follows paths through one file; it knows no C++. Two of its
# warnings are wrong about every array that a caller owns or fills (gcc 12).
step_analyzer() {
    find src -name '*.c' ! -path 'src/llama/*' | xargs -n 1 -P "$jobs" gcc -std=c11 -D_GNU_SOURCE -Iinclude -Isrc \
        -O1 -fanalyzer -Wno-analyzer-malloc-leak -Wno-analyzer-use-of-uninitialized-value -Werror -c -o /dev/null
}

step_faults() {
    configure_and_build clang || return 1
    CAIRN_CRASH_POINTS=${CAIRN_CRASH_POINTS:-20000}
    export CAIRN_CRASH_POINTS
    tests_in build-clang -L fault || return 1
    grep -E 'crash points in|calls failed' build-clang/Testing/Temporary/LastTest.log
    unset CAIRN_CRASH_POINTS
}

step_hammer() {
    configure_and_build release || return 1
    python3 bench/hammer.py --cairn build/cairn --seconds "${CAIRN_HAMMER_SECONDS:-20}" --groups 4 --members 3
}

step_fuzz() { configure_and_build fuzz && scripts/fuzz-smoke.sh build-fuzz "${CAIRN_FUZZ_SECONDS:-20}"; }

all="tree shell tidy cppcheck analyzer clang faults hammer asan tsan fuzz"
passed=0 failed=
for step in ${*:-$all}; do
    case " $all " in *" $step "*) ;; *) die "no step $step; there are: $all" ;; esac
    say "check: $step"
    if "step_$step"; then
        passed=$((passed + 1))
    else
        say "check: $step FAILED"
        failed="$failed $step"
    fi
done
[ -z "$failed" ] || die "$passed checks passed, failed:$failed"
say "$passed checks passed"
