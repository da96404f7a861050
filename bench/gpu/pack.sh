#!/bin/sh
# bench/gpu/pack.sh - gathers what bench/gpu/run.sh needs on a machine without a
# network: llama.cpp's sources for the library alone (3 MB) and Debian packages
# with the headers of OpenSSL and xxHash and OpenSSL's static library (3 MB).
#
#     bench/gpu/pack.sh LLAMA_ROOT FOLDER
#
# LLAMA_ROOT is the folder that scripts/get-llama.sh prints.
set -eu

[ $# -eq 2 ] || { sed -n '2,9p' "$0"; exit 2; }
sources=$1/src
mkdir -p "$2/debs"
folder=$(cd "$2" && pwd)
if [ -e "$1/tree" ]; then cp "$1/tree" "$folder/tree"; else git -C "$sources" rev-parse 'HEAD^{tree}' >"$folder/tree"; fi
rm -f "$folder/llama.tar" "$folder/llama.tar.xz" "$folder"/debs/*.deb
tar -cf "$folder/llama.tar" -C "$folder" tree
tar -rf "$folder/llama.tar" -C "$sources" --transform 's,^,src/,' \
    CMakeLists.txt LICENSE licenses cmake include src ggml vendor
xz "$folder/llama.tar"
rm "$folder/tree"
cd "$folder/debs"
apt-get download libssl-dev libxxhash-dev
du -sh "$folder"/*
