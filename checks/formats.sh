#!/usr/bin/env bash
# formats.sh BINARY PROFILE: writes PROFILE in every format, has each read by the tool that consumes it, and reads it back.
# BINARY must have its symbols, relocations and debug information. Needs engraft in PATH, llvm-19, bolt-19, valgrind, lcov.
set -euo pipefail
[ $# = 2 ] || { echo "usage: formats.sh BINARY PROFILE" >&2; exit 2; }
binary=$(realpath "$1") profile=$(realpath "$2") llvm=${LLVM:-/usr/lib/llvm-19/bin}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
convert() { engraft convert "$1" -o "$2" --binary "$binary" >>log 2>&1; }
failed=0
check() { local what=$1; shift; if "$@" >>log 2>&1; then echo "ok      $what"; else echo "FAILED  $what"; failed=1; fi; }
for e in fdata preagg prof pb.gz folded callgrind info csv json engraft; do check "write $e" convert "$profile" "p.$e"; done
# Read back and written again: the same bytes, where a format holds all that is written in it. Of `.prof` and `.info` the
# counts of lines are compared: calls and names of functions that share a line are not read.
again() { convert "p.$1" "q.$1" && cmp "p.$1" "q.$1"; }
for e in pb.gz csv json engraft fdata preagg; do check "read back $e" again "$e"; done
lines() { convert "p.$1" "q.$1" && cmp <(sed -n "$2" "p.$1" | sort) <(sed -n "$2" "q.$1" | sort); }
check "read back prof" lines prof 's/^\( *[0-9]*: [0-9]*\).*/\1/p'
check "read back info" lines info '/^DA:/p'
check "read back callgrind" bash -c 'engraft convert p.callgrind -o q.callgrind --binary "$1" && cmp <(grep ^totals p.callgrind) <(grep ^totals q.callgrind)' _ "$binary"
accepts() { # llvm-bolt takes every function of it at 100 %
  "$llvm/llvm-bolt" "$binary" -data=p.fdata -lite=0 -print-profile -o bolted >bolt.out 2>&1
  [ "$(grep -ac 'Profile Acc' bolt.out)" -gt 0 ] && ! grep -a 'Profile Acc' bolt.out | grep -qv '100.0%'
}
check "llvm-bolt takes p.fdata" accepts
check "perf2bolt takes p.preagg" "$llvm/perf2bolt" "$binary" -p p.preagg -pa -o pa.fdata
same() { convert pa.fdata pa.engraft; convert p.fdata f.engraft; cmp pa.engraft f.engraft; }
check "perf2bolt's fdata is ours" same
check "llvm-profdata takes p.prof" "$llvm/llvm-profdata" merge --sample p.prof -o p.profdata
check "callgrind_annotate takes p.callgrind" callgrind_annotate p.callgrind
check "genhtml takes p.info" genhtml --ignore-errors source -q -o html p.info
[ $failed = 0 ] || { tail -20 log; exit 1; }
