#!/usr/bin/env bash
# random.sh [N [SEED [PLACE]]]: makes N random programs (1,000) in C and C++ (calls, direct, indirect and
# through tables, tail calls, recursion, loops, irreducible ones, switches, computed gotos, exceptions, setjmp
# and longjmp, signals, faults, threads, forks, contexts, exits, functions of its own with names of libc's),
# built in many ways, and holds what `count` says of each block, and of some edges and PLT stubs, against what
# the program counted itself (`random.py` says how). Prints the seed and the number of each that differs, and
# makes it smaller. PLACE, such as 17.3: that program of the seed alone.
#
# PER_UNIT: programs a translation unit (8). FIRST: the first unit. SHRINK=0: leave them as they are.
# STOP_AFTER: so many that differ (10). WITHOUT: what programs and units are not to have, with commas between
# (`generator/program.py` and `decide_more` have the list); other programs are made then. `new`: nothing of
# that list. Where threads are stopped in the middle of a block, by another one's exit or since they are
# cancelled there, counts must lie within what is said. VERB=trace: runs of `trace` in place of `count`. KEEP:
# a folder for all of it. Exit 1 if one differs, if more than one in a hundred takes too long, less than 98 %
# of markers were counted, or more than one in twenty has intervals without need.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=${KEEP:-$(mktemp -d)}; [ -n "${KEEP:-}" ] || trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$tmp/cache}
ulimit -c 0
python3 "$top/checks/random.py" "$engraft" "$tmp" "${1:-1000}" "${2:-1}" ${3:+"$3"}
