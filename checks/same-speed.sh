#!/usr/bin/env bash
# same-speed.sh OLD NEW [PART…]: does NEW, a build of engraft, cost what OLD did? Exit 1 if a bar is missed.
#
#   analysis  `show` and `match`, one thread: instructions by callgrind (within 1 %), and peak memory, the
#             median of three runs (within 1 %). Of two copies made in turn just before: how many pages of a
#             file are mapped at a fault depends on how the page cache holds it, which is worth 1.5 MB.
#   count, instrument, trace  the six programs of the corpora's overhead/run.sh under `count`, rewritten by
#             `instrument --null` with all their libraries but libc, under `trace`: user time of everything
#             that was started, the median of PAIRS (11) pairs, OLD and NEW in turn. The geometric mean of
#             the six medians is held to 3 %. Wants a machine that does nothing else.
#
# Default: all of them. CORPORA_SCRIPTS, CORPORA: as in carry.sh. Needs Debian 12, valgrind, and for the last
# three what the corpora's overhead/setup.sh installs.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: same-speed.sh OLD NEW [analysis] [count] [instrument] [trace]" >&2; exit 2; }
top=$(dirname "$(dirname "$(realpath "$0")")")
scripts=${CORPORA_SCRIPTS:-$top/../shared/corpora}; scripts=$(realpath "$scripts")
export CORPORA=${CORPORA:-$top/target/corpora} LC_ALL=C
old=$(realpath "$1") new=$(realpath "$2"); shift 2
[ $# -gt 0 ] || set -- analysis count instrument trace
"$top/scripts/install.sh" valgrind time python3
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
for side in old new; do mkdir "$work/$side"; cp "${!side}" "$work/$side/engraft"; declare "$side=$work/$side/engraft"; done
failed=0
# held WHAT OLD NEW PER-CENT: one line, and whether NEW is at most that much more.
held() {
  awk -v what="$1" -v old="$2" -v new="$3" -v bar="$4" 'BEGIN {
    off = 100 * (new / old - 1); missed = off > bar
    printf "%-44s %15s → %15s  %+6.2f %%%s\n", what, old, new, off, missed ? "  MISSED" : ""; exit missed }' || failed=1
}
instructions() {
  valgrind --tool=callgrind --callgrind-out-file="$work/callgrind" "$@" >/dev/null 2>"$work/said" || true
  sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$work/said"
}
peak() {
  for _ in 1 2 3; do /usr/bin/time -f %M -o "$work/time" "$@" >/dev/null 2>&1 || true; tail -n 1 "$work/time"; done | sort -n | sed -n 2p
}

for part; do
  case $part in
  analysis)
    for build in "lua 543.1.0" "lua 548.1.2" "sqlite 0.24.2" "sqlite 0.30.1"; do
      # shellcheck disable=SC2086
      [ -x "$CORPORA/bin/${build/ /-}" ] || "$scripts/build.sh" $build
    done
    bin=$CORPORA/bin
    while read -r what arguments; do
      # shellcheck disable=SC2086
      { held "$what: instructions" "$(instructions "$old" --threads 1 $arguments)" "$(instructions "$new" --threads 1 $arguments)" 1
        held "$what: peak memory, KB" "$(peak "$old" --threads 1 $arguments)" "$(peak "$new" --threads 1 $arguments)" 1; }
    done <<RUNS
show-lua show $bin/lua-548.1.2
show-sqlite show $bin/sqlite-0.30.1
show-libstdc++ show /usr/lib/x86_64-linux-gnu/libstdc++.so.6
match-lua match $bin/lua-543.1.0 $bin/lua-548.1.2
match-sqlite match $bin/sqlite-0.24.2 $bin/sqlite-0.30.1
RUNS
    ;;
  count | instrument | trace)
    [ -e "$CORPORA/overhead/in/text.dat" ] || { "$scripts/overhead/setup.sh"; "$scripts/overhead/make-inputs.sh" >/dev/null; }
    python3 "$top/checks/same-speed.py" "$part" "$old" "$new" "$scripts/overhead/run.sh" "${PAIRS:-11}" || failed=1 ;;
  *) echo "same-speed.sh: no part $part" >&2; exit 2 ;;
  esac
done
exit $failed
