#!/bin/sh
# Installs the packages of the groups given that are missing, all in one go.
# usage: packages.sh GROUP...        the list: packages.txt
# Where everything is there, no apt command runs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"

# Is there something of that name, although dpkg does not know the package?
present() {
    case $1 in
    -) return 1 ;;
    *.h)
        for dir in /usr/include /usr/local/include /usr/include/*-linux-gnu; do
            [ -e "$dir/$1" ] && return 0
        done
        return 1
        ;;
    *) have "$1" ;;
    esac
}

# "name present-when" of every package in the groups.
listed() {
    while read -r name group probe _; do
        case $name in '' | '#'*) continue ;; esac
        case " $* " in *" $group "*) echo "$name $probe" ;; esac
    done <"$here/packages.txt"
}

missing() {
    installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null | sed -n 's/ installed$//p') || installed=
    listed "$@" | while read -r name probe; do
        printf '%s\n' "$installed" | grep -qxF "$name" || present "$probe" || printf '%s ' "$name"
    done
}

# Names that no configured package source offers.
unknown() {
    for name; do
        apt-cache show --no-all-versions "$name" >/dev/null 2>&1 || printf '%s ' "$name"
    done
}

# Its hundreds of lines matter only when it fails.
apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 && return 0
    tail -n 15 "$log" >&2
    return 1
}

refuse_without_apt() {
    have apt-get || die "missing: $names- this is not Debian or Ubuntu; install what these packages hold and run this again"
    can_be_root || die "missing packages and no root rights; run as root: apt-get update && apt-get install --no-install-recommends $names"
}

names=$(missing "$@")
[ -n "$names" ] || exit 0
refuse_without_apt
say "installing with apt-get: $names"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP
updated=
# shellcheck disable=SC2086 # one word per package
if [ -n "$(unknown $names)" ]; then
    apt_get update || die "apt-get update failed (see above); check the package sources and the network, then run this again"
    updated=1
    absent=$(unknown $names)
    [ -z "$absent" ] || die "no package source that can be reached offers: $absent- mend the network, enable a source that does (on Ubuntu: universe) or install them by hand, then run this again"
fi
# shellcheck disable=SC2086
if ! apt_get install -y --no-install-recommends $names; then
    [ -z "$updated" ] || die "could not install: $names- see apt-get's message above; mend that and run this again"
    say "trying once more with fresh package lists"
    apt_get update || true
    apt_get install -y --no-install-recommends $names || die "could not install: $names- see apt-get's message above; mend that and run this again"
fi
