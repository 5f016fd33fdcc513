#!/usr/bin/env bash
# formats.sh BINARY PROFILE: writes PROFILE in every format, has each read by the tool that consumes it, and
# reads it back. What each tool says the total is must be the total that was written. BINARY must have its
# symbols, relocations and debug information. Needs engraft in PATH, llvm-19, bolt-19, valgrind, lcov, and
# pprof or Go (GO names it if it is not in PATH).
set -euo pipefail
[ $# = 2 ] || { echo "usage: formats.sh BINARY PROFILE" >&2; exit 2; }
binary=$(realpath "$1") profile=$(realpath "$2") llvm=${LLVM:-/usr/lib/llvm-19/bin}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
convert() { engraft convert "$1" -o "$2" --binary "$binary" >>log 2>&1; }
failed=0
check() { local what=$1; shift; if "$@" >>log 2>&1; then echo "ok      $what"; else echo "FAILED  $what"; failed=1; fi; }
for e in fdata preagg prof pb.gz folded svg callgrind info csv json engraft; do check "write $e" convert "$profile" "p.$e"; done
# Read back and written again: the same bytes, where a format holds all that is written in it. Of `.prof` and
# `.info` the counts of lines are compared: calls and names of functions that share a line are not read.
again() { convert "p.$1" "q.$1" && cmp "p.$1" "q.$1"; }
for e in pb.gz csv json engraft fdata preagg; do check "read back $e" again "$e"; done
lines() { convert "p.$1" "q.$1" && cmp <(sed -n "$2" "p.$1" | sort) <(sed -n "$2" "q.$1" | sort); }
check "read back prof" lines prof 's/^\( *[0-9]*: [0-9]*\).*/\1/p'
# A count of a line is a sum, and some lines have no code of their own: read back, there are no others.
numbers() { sed -n 's/^\(DA:[0-9]*\),.*/\1/p' "$1" | sort; }
lines_back() { convert p.info q.info && [ "$(numbers q.info | wc -l)" -gt 0 ] && [ -z "$(comm -13 <(numbers p.info) <(numbers q.info))" ]; }
check "read back info" lines_back
check "read back callgrind" bash -c 'engraft convert p.callgrind -o q.callgrind --binary "$1" && cmp <(grep ^totals p.callgrind) <(grep ^totals q.callgrind)' _ "$binary"
accepts() { # llvm-bolt takes every function of it at 100 %
  "$llvm/llvm-bolt" "$binary" -data=p.fdata -lite=0 -print-profile -o bolted >bolt.out 2>&1
  [ "$(grep -ac 'Profile Acc' bolt.out)" -gt 0 ] && ! grep -a 'Profile Acc' bolt.out | grep -qv '100.0%'
}
check "llvm-bolt takes p.fdata" accepts
check "perf2bolt takes p.preagg" "$llvm/perf2bolt" "$binary" -p p.preagg -pa -o pa.fdata
# Written by us again: calls that llvm-bolt would take for branches are left out, and said to be.
same() { convert pa.fdata ours.fdata; cmp <(sort p.fdata) <(sort ours.fdata); }
check "perf2bolt's fdata is ours" same
profdata() { "$llvm/llvm-profdata" merge --sample --text p.prof -o merged.prof && cmp p.prof merged.prof; }
check "llvm-profdata has the lines of p.prof" profdata
executions=$(awk -F, 'NR > 1 { sum += $NF } END { printf "%d", sum }' p.csv)
instructions=$(sed -n 's/^totals: //p' p.callgrind)
is() { echo "$1: $2, want $3"; [ "$2" = "$3" ]; }
annotated() { is totals "$(callgrind_annotate p.callgrind | sed -n '/PROGRAM TOTALS/s/ .*//p' | tr -d ,)" "$instructions"; }
check "callgrind_annotate has the total of p.callgrind" annotated
pprof() { if type -P pprof >/dev/null; then command pprof "$@"; else HOME=$work "${GO:-go}" tool pprof "$@"; fi; }
sums() { is sums "$(pprof -raw p.pb.gz | awk '/^Locations/ { exit } /^ *[0-9]+ +[0-9]+:/ { e += $1; i += $2 } END { printf "%d %d", e, i }')" "$executions $instructions"; }
check "pprof has the totals of p.pb.gz" sums
merged() { pprof -proto -output=merged.pb.gz p.pb.gz >/dev/null && convert merged.pb.gz merged.csv && cmp p.csv merged.csv; }
check "what pprof wrote is read" merged
check "p.folded has the total" is sum "$(awk '{ sum += $NF } END { printf "%d", sum }' p.folded)" "$instructions"
lines_hit() {
  genhtml --ignore-errors source -o html p.info >html.out 2>&1
  is lines "$(sed -n 's/.*lines\.*: .*(\([0-9]*\) of \([0-9]*\) lines)/\1 \2/p' html.out)" \
    "$(awk -F: '/^LF/ { f += $2 } /^LH/ { h += $2 } END { print h, f }' p.info)"
}
check "genhtml has the lines of p.info" lines_hit
[ $failed = 0 ] || { tail -20 log; exit 1; }
