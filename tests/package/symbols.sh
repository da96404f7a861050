#!/bin/sh
# A shared library exports its public names and nothing else: cairn_*, but not
# cairn__*, which are internal across files.
# usage: symbols.sh LIBRARY...
set -eu
failed=0
for library; do
    names=$(nm -D --defined-only "$library" | sed 's/^[^ ]* [A-Za-z] //')
    count=$(printf '%s\n' "$names" | grep -c '^cairn_[a-z]') || true
    if [ "$count" -lt 5 ]; then
        echo "$library: only $count public names; the export macro is not at work"
        failed=1
    fi
    foreign=$(printf '%s\n' "$names" | grep -v '^cairn_[a-z]') || true
    if [ -n "$foreign" ]; then
        echo "$library exports names that are not public:" $foreign
        failed=1
    fi
    echo "$library: $count public names"
done
exit $failed
