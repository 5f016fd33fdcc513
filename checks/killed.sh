#!/usr/bin/env bash
# killed.sh [N]: starts counted programs N times (1,000), with up to four threads, built in six ways, and
# kills each with SIGKILL at a random moment; a fifth as many end by exit, _exit, exit_group, return, abort or
# a fault while other threads run. Holds what is said of each block against the block's own counter, in memory
# that outlives the program (`killed.py` says how): it must be within the interval that is said, or equal; and
# no more threads may be said to have been stopped in the middle of a block than there were.
#
# VERB=trace: recorded by `trace`, whose blocks are counted.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$tmp/cache}
ulimit -c 0
python3 "$top/checks/killed.py" "$engraft" "$tmp" "${1:-1000}"
