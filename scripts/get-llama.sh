#!/bin/sh
# Gets llama.cpp's sources into the build cache and prints their folder:
#   CACHE/llama.cpp/<first 12 of the tree id>     with src/ in it
# Looked for in this order: LLAMA_CPP_DIR (a copy is taken, uncommitted changes
# included); sources fetched before; upstream's tag; the git bundle inside an
# npm package. The proof is git's tree id, which no packaging can fake: other
# sources are named clearly and used all the same, since the self-test at load
# decides what can be cached with them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"

tree_wanted=fd570ef54b10ec5fecb739e7e04c8ce44a6f415a
tag=v0.5.0
upstream=https://github.com/ggml-org/llama.cpp
package=node-llama-cpp@3.22.1
bundle=package/llama/gitRelease.bundle
root=$(cache_dir)/llama.cpp

cut12() { printf '%.12s\n' "$1"; }
git_in() {
    dir=$1
    shift
    git -c safe.directory='*' -C "$dir" "$@"
}

# git on the files of folder $1 with a repository and an index of our own.
shadow_git() {
    dir=$1
    shift
    GIT_DIR=$tmp/repo.git GIT_WORK_TREE=$dir GIT_INDEX_FILE=$tmp/index git "$@"
}

# Tree id of a folder as it lies there, uncommitted changes included. Of a git
# checkout the files that git knows and new ones that it does not ignore count,
# of any other folder all but builds.
tree_of_files() {
    git -c init.defaultBranch=main init -q --bare "$tmp/repo.git"
    if [ "$(git_in "$1" rev-parse --show-cdup 2>/dev/null && echo top)" = "$(printf '\ntop')" ]; then
        git_in "$1" rev-parse --path-format=absolute --git-path objects >"$tmp/repo.git/objects/info/alternates"
        shadow_git "$1" read-tree "$(git_in "$1" rev-parse 'HEAD^{tree}')"
        shadow_git "$1" add -A >/dev/null
    else
        shadow_git "$1" add -A -f -- . ':(exclude)build*/' ':(exclude).git' >/dev/null
    fi
    shadow_git "$1" write-tree
}

warn_other_tree() {
    [ "$1" = "$tree_wanted" ] && return 0
    say "these sources are not llama.cpp $tag: tree $1, tried with $tree_wanted."
    say "They are built all the same; the self-test at load decides what is cached with them."
}

# Moves $tmp/src into place under its tree id.
keep() {
    tree=$1
    key=$root/$(cut12 "$tree")
    mkdir -p "$key"
    [ -e "$key/src" ] || mv "$tmp/src" "$key/src"
    printf '%s\n' "$tree" >"$key/tree"
    found "$tree"
}
# What was fetched is what later runs use; a LLAMA_CPP_DIR holds for its run.
keep_fetched() {
    tree=$(git_in "$tmp/src" rev-parse 'HEAD^{tree}')
    cut12 "$tree" >"$root/current"
    keep "$tree"
}
found() {
    warn_other_tree "$1"
    printf '%s\n' "$root/$(cut12 "$1")"
    exit 0
}

from_dir() {
    [ -e "$LLAMA_CPP_DIR/include/llama.h" ] || die "LLAMA_CPP_DIR=$LLAMA_CPP_DIR holds no llama.cpp (no include/llama.h)"
    tree=$(tree_of_files "$(cd "$LLAMA_CPP_DIR" && pwd)")
    if [ ! -e "$root/$(cut12 "$tree")/src" ]; then
        mkdir "$tmp/src"
        shadow_git "$tmp/src" checkout-index -a
    fi
    keep "$tree"
}

# An edit in the cache would be built under the name of what it no longer is.
refuse_edited() {
    git_in "$1" diff --quiet HEAD -- 2>/dev/null ||
        die "llama.cpp's sources in $1 were edited: remove that folder, or set LLAMA_CPP_DIR to a copy of it"
}

# Sources of an earlier run: the wanted ones first.
from_cache() {
    wanted=$root/$(cut12 "$tree_wanted")
    if [ -e "$wanted/src/.git" ]; then refuse_edited "$wanted/src"; fi
    if [ -e "$wanted/src/.git" ] && [ "$(git_in "$wanted/src" rev-parse 'HEAD^{tree}' 2>/dev/null)" = "$tree_wanted" ]; then
        printf '%s\n' "$tree_wanted" >"$wanted/tree"
        found "$tree_wanted"
    fi
    [ -e "$wanted/tree" ] && [ -e "$wanted/src/include/llama.h" ] && found "$tree_wanted"
    current=$(cat "$root/current" 2>/dev/null) || return 0
    [ -e "$root/$current/src/include/llama.h" ] && found "$(cat "$root/$current/tree")"
    return 0
}

# A network that swallows packets costs ten seconds here, one that refuses none.
from_upstream() {
    export GIT_TERMINAL_PROMPT=0
    timeout 10 git ls-remote --exit-code --tags "$upstream" "$tag" >/dev/null 2>&1 || return 0
    say "fetching llama.cpp $tag from upstream"
    timeout 600 git -c advice.detachedHead=false clone -q --depth 1 --branch "$tag" "$upstream" "$tmp/src" || {
        rm -rf "$tmp/src"
        return 0
    }
    keep_fetched
}

from_npm() {
    say "upstream can't be reached; fetching llama.cpp $tag from npm's registry ($package)"
    "$here/packages.sh" bundle
    (cd "$tmp" && timeout 900 npm pack --silent "$package" >/dev/null) || return 0
    tar -xzf "$tmp"/node-llama-cpp-*.tgz -C "$tmp" "$bundle" || return 0
    git -c init.defaultBranch=main -c advice.detachedHead=false clone -q "$tmp/$bundle" "$tmp/src" || return 0
    keep_fetched
}

lock "$root/.lock"
tmp=$(mktemp -d "$root/.tmp.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
[ -z "${LLAMA_CPP_DIR:-}" ] || from_dir
from_cache
from_upstream
from_npm
die "llama.cpp's sources are out of reach: set LLAMA_CPP_DIR to a checkout of its tag $tag ($upstream), or make npm's registry reachable, and run this again"
