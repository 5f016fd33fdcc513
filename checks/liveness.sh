#!/usr/bin/env bash
# liveness.sh N SEED COMMAND ARGS…: puts random values into every register and flag called dead, at N random
# instructions of COMMAND's binary (each once, at one of its first hits, all in one run), and compares output
# and exit status with a plain run. COMMAND must be a path; it must not fork or start threads, and must print
# the same each time. Input comes from $INPUT (default /dev/null). Prints how many places were hit. If the run
# changes, halves the places until one is left, names it, and exits with 1.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: liveness.sh N SEED COMMAND ARGS…" >&2; exit 2; }
n=$1 seed=$2; shift 2
binary=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
top=$(dirname "$here")
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
dead=${DEAD:-$top/target/release/examples/dead}
[ -x "$dead" ] || (cd "$top" && cargo build -q --release -p program --example dead)
gcc -O2 -Wall -o "$tmp/driver" "$here/liveness.c"
entry=$(($(readelf -h "$binary" | sed -n 's/.*Entry point address: *//p')))
input=${INPUT:-/dev/null}
seconds=${SECONDS_EACH:-120}
"$dead" "$binary" "$n" "$seed" >"$tmp/places"
want=0; setarch -R "$@" <"$input" >"$tmp/want" 2>"$tmp/want.err" || want=$?
# run PLACES COMMAND…: whether the run with these places is the plain run
run() {
  local places=$1 got=0; shift
  HITS=$tmp/hits "$tmp/driver" "$places" "$entry" "$seed" "${K:-4}" "$seconds" "$@" <"$input" >"$tmp/got" 2>"$tmp/got.err" || got=$?
  [ "$got" != 125 ] || { cat "$tmp/got.err" >&2; exit 2; }
  [ "$got" = "$want" ] && cmp -s "$tmp/want" "$tmp/got"
}
if run "$tmp/places" "$@"; then
  n_hits=$(wc -l <"$tmp/hits")
  # The check itself: with all general registers called dead, the run must change.
  sed 's/"general":[0-9]*/"general":65519/' "$tmp/places" >"$tmp/all"
  if run "$tmp/all" "$@"; then echo "this check cannot fail: random values in all registers change nothing" >&2; exit 2; fi
  echo "$(basename "$binary") seed $seed: $n_hits places hit of $(wc -l <"$tmp/places"), nothing changed"
  exit 0
fi
echo "$(basename "$binary") seed $seed: the run changed after $(wc -l <"$tmp/hits") places; halving" >&2
# Only places that were hit matter; each half is tried alone.
awk -F'[:,]' 'NR==FNR { hit[$1]; next } $2 in hit' "$tmp/hits" "$tmp/places" >"$tmp/left"
while [ "$(wc -l <"$tmp/left")" -gt 1 ]; do
  half=$(($(wc -l <"$tmp/left") / 2))
  head -n "$half" "$tmp/left" >"$tmp/first"
  tail -n +$((half + 1)) "$tmp/left" >"$tmp/second"
  if ! run "$tmp/first" "$@"; then mv "$tmp/first" "$tmp/left"
  elif ! run "$tmp/second" "$@"; then mv "$tmp/second" "$tmp/left"
  else echo "neither half alone changes the run: only together, in $(wc -l <"$tmp/left") places" >&2; break; fi
done
head -n 3 "$tmp/left"
exit 1
