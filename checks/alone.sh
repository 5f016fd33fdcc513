#!/bin/sh
# Recordings whose binaries are gone: what is shown of each must be what was shown before.
#
#     checks/alone.sh FOLDER COMMAND...
#
# Copies the program of each COMMAND (one word of the shell) into FOLDER, counts it there, asks all that can
# be asked of the recording, removes the copy, and asks again.
set -eu
engraft=${ENGRAFT:-target/release/engraft}
engraft=$(realpath "$engraft")
mkdir -p "$1"; cd "$1"; shift
failed=0
for command; do
    set -- $command
    name=$(basename "$1")
    cp "$(command -v "$1")" "copy-$name"; shift
    "$engraft" count -q -o "$name.engraft" "./copy-$name" "$@" > /dev/null 2>&1 < /dev/null || true
    hottest=$("$engraft" show "$name.engraft" --format csv | sed -n 2p | cut -d, -f4)
    ask() {
        for what in "" edges never calls paths loops "function $hottest"; do
            "$engraft" show "$name.engraft" $what --json || echo "failed: $what"
        done
        "$engraft" diff "$name.engraft" "$name.engraft" --json || echo "failed: diff"
    }
    ask > "$name.before" 2>&1; rm "copy-$name"; ask > "$name.after" 2>&1
    if cmp -s "$name.before" "$name.after" && ! grep -q '^failed: ' "$name.after"; then
        echo "$name: the same, $(wc -c < "$name.after") bytes; recording $(wc -c < "$name.engraft") bytes"
    else
        echo "$name: DIFFERS"; failed=1
    fi
done
exit $failed
