#!/bin/sh
# The rules of the tree that no compiler knows:
#   - includes point one way, from later to earlier layers (docs/architecture.md)
#   - llama.cpp is known to src/llama alone, HTTP and JSON to the server's side
#   - public headers need nothing but themselves; nothing includes tests
#   - no file names a place of the machine it was written on
# usage: check-tree.sh [SOURCE_DIR]
set -eu
cd "${1:-$(dirname "$0")/..}"

check_includes() {
    find src include -name '*.[ch]' -o -name '*.cpp' | sort | xargs awk '
    BEGIN {
        n = split("base os core codec policy tier store llama engine stage server cli", names, " ")
        for (i = 1; i <= n; i++) rank[names[i]] = i
    }
    function complain(why) { printf "%s:%d: %s: %s\n", FILENAME, FNR, $0, why; bad = 1 }
    # Layer of the file that is read: a folder of src, or a public header.
    function layer_of_file(  part) {
        split(FILENAME, part, "/")
        return part[1] == "src" ? part[2] : layer_of_public(part[3])
    }
    # Public types are for every layer, except those that speak of llama.cpp.
    function layer_of_public(header) { return header == "llama.h" ? "llama" : "base" }
    /^[ \t]*#[ \t]*include/ {
        target = $0
        sub(/^[^<"]*[<"]/, "", target)
        sub(/[>"].*$/, "", target)
        here = layer_of_file()
        public = FILENAME ~ /^include\//
        if (!(here in rank)) { complain("no layer of that name"); next }
        if (target ~ /\.\./ || target ~ /(^|\/)(tests|bench|demo|examples)\//) complain("reaches out of the source folders")
        if (target ~ /^(llama|ggml|gguf)[a-z-]*\.h$/ && here != "llama") complain("only src/llama may know llama.cpp")
        if (target ~ /^(event2\/|jansson)/ && rank[here] < rank["server"]) complain("HTTP and JSON belong to the server")
        split(target, part, "/")
        there = part[1] == "cairn" ? layer_of_public(part[2]) : part[1]
        if (public && target ~ /\// && part[1] != "cairn") complain("a public header needs only public headers")
        if (index(target, "/") && there in rank && rank[there] > rank[here]) complain("points from " here " to " there)
    }
    END { exit bad }'
}

check_places() {
    ! git grep -nIE '(^|[^A-Za-z0-9_.-])/(root|home|work|Users)/[A-Za-z0-9_.]' -- . ':!scripts/check-tree.sh' ':!demo' # the demo's prompt is fiction
}

failed=0
check_includes || failed=1
check_places || failed=1
[ $failed = 0 ] || exit 1
echo "includes and paths are as they should be"
