# lib.sh - what the scripts share: messages, the build cache, root rights, locks.
# Sourced by POSIX sh scripts that run with `set -eu`.

# Messages go to standard error: standard output is a script's result.
say() { printf 'cairn: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Everything that is expensive to get or to build lives here, outside the tree.
cache_dir() {
    printf '%s\n' "${CAIRN_BUILD_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or CAIRN_BUILD_CACHE}/.cache}/cairn-build}"
}

can_be_root() {
    [ "$(id -u)" = 0 ] && return 0
    have sudo || return 1
    sudo -n true 2>/dev/null || [ -t 0 ]
}
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Takes the lock FILE on descriptor 9 until this script ends, so that two runs
# never fetch or build the same thing at once.
lock() {
    mkdir -p "$(dirname "$1")"
    exec 9>"$1"
    flock -n 9 && return 0
    say "another run is working in $(dirname "$1"); waiting for it"
    flock 9
}

sha256_of() { sha256sum "$1" | cut -d' ' -f1; }
