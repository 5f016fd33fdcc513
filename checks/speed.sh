#!/usr/bin/env bash
# Speed and memory of the analysis, to control-flow graphs, loops and liveness of every function, on one
# thread.
#   checks/speed.sh FILE…
# For each file: user time of `objdump -d` (to /dev/null) over that of program/examples/analyze, the median of
# PAIRS pairs (5) run one after the other; and the peak of anonymous memory (RssAnon, polled) beyond the
# length of the file, per byte of code. A file of a few hundred kilobytes says more of starting up than of
# analysis.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || { echo "usage: checks/speed.sh FILE…" >&2; exit 2; }
# As released, whatever cargo is told elsewhere.
export CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 CARGO_PROFILE_RELEASE_LTO=thin CARGO_INCREMENTAL=0 CARGO_PROFILE_RELEASE_INCREMENTAL=false
target=${CARGO_TARGET_DIR:-$top/target/speed}
(cd "$top" && CARGO_TARGET_DIR=$target cargo build -q --release -p program --example analyze)
analyze=$target/release/examples/analyze
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
TIMEFORMAT=%U
user() { { time "$@" >/dev/null 2>&1; } 2>&1; }
median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
for file; do
    : >"$work/ratios"
    for _ in $(seq "${PAIRS:-5}"); do
        peer=$(user objdump -d "$file"); ours=$(user "$analyze" "$file")
        awk -v p="$peer" -v o="$ours" 'BEGIN {printf "%.3f %s %s\n", p / (o > 0 ? o : 0.001), p, o}' >>"$work/ratios"
    done
    "$analyze" "$file" >"$work/out" & pid=$!
    peak=0
    while kill -0 $pid 2>/dev/null; do
        now=$(awk '/^RssAnon/ {print $2}' /proc/$pid/status 2>/dev/null || true)
        [ "${now:-0}" -gt "$peak" ] && peak=$now
    done
    wait $pid
    code=$(grep -o '[0-9]* bytes of code' "$work/out" | cut -d' ' -f1)
    ratio=$(cut -d' ' -f1 "$work/ratios" | median)
    peer=$(cut -d' ' -f2 "$work/ratios" | median); ours=$(cut -d' ' -f3 "$work/ratios" | median)
    awk -v f="$file" -v r="$ratio" -v p="$peer" -v o="$ours" -v k="$peak" -v c="$code" -v l="$(stat -Lc %s "$file")" 'BEGIN {
        printf "%s: %.2f x as fast (objdump %.2f s, ours %.2f s); %.1f MB of code; anonymous %.1f MB, %.2f B a byte of code beyond the file\n",
            f, r, p, o, c / 1e6, k / 1024, (k * 1024 - l) / c}'
done
