#!/usr/bin/env bash
# start-up.sh: what counting adds to the start of programs that end at once, once their modules are in the
# cache: median of N (default 11) of the time that passes, plain, counted (`engraft count -q`), and the
# difference. Fails if that is more than each may cost. The machine should have nothing else to do.
set -euo pipefail
n=${N:-11}
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
failed=0
# seconds COMMAND...: how long it took.
seconds() {
    local from=$EPOCHREALTIME to
    "$@" >/dev/null 2>&1 </dev/null
    to=$EPOCHREALTIME
    awk -v a="$from" -v b="$to" 'BEGIN { printf "%.4f\n", b - a }'
}
# median COMMAND...: of N runs, after two that fill caches.
median() {
    seconds "$@" >/dev/null; seconds "$@" >/dev/null
    for _ in $(seq "$n"); do seconds "$@"; done | sort -n |
        awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'
}
# row MOST COMMAND...
row() {
    local most=$1; shift
    command -v "$1" >/dev/null || { echo "$1 is not here" >&2; return; }
    local plain counted
    plain=$(median "$@")
    counted=$(median "$engraft" count -q -o "$tmp/run.engraft" "$@")
    awk -v p="$plain" -v c="$counted" -v m="$most" -v what="$*" 'BEGIN {
        d = c - p
        end = d > m ? "  FAILED" : ""
        printf "%-24s plain %.3f s  counted %.3f s  more %.3f s (at most %.1f)%s\n", what, p, c, d, m, end
        exit d > m }' || failed=1
}
row 0.3 node -e 1
row 0.2 /usr/bin/python3 -c 0
row 0.1 sqlite3 :memory: .quit
row 0.1 git --version
exit $failed
