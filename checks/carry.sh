#!/usr/bin/env bash
# carry.sh [ROW…]: what carrying is worth on real pairs, held against llvm-bolt: rows 1-5, 8, 9, 11, 12 of the benchmark table.
# CORPORA_SCRIPTS: where bolt-peer.sh and its like are (default: ../shared/corpora); CORPORA: what they built.
# Row 10 (computed goto, callgrind) needs valgrind and the *-cgoto builds.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts=${CORPORA_SCRIPTS:-../shared/corpora}
export CORPORA=${CORPORA:-$PWD/target/corpora}
rows=" ${*:-1 2 3 4 5 8 9 10 11 12} "
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
pairs=("lua 543.1.0 548.1.2" "lua 547.1.0 548.1.2" "sqlite 0.24.2 0.30.1" "sqlite 0.30.1 0.33.0" "rg 15.0.0 15.1.0")
wanted() { [[ $rows == *" $1 "* ]]; }
cargo build -q --release -p engraft
cargo build -q --release -p matching --example ablate
engraft=target/release/engraft ablate=target/release/examples/ablate
bin() { echo "$CORPORA/bin/$1-$2"; }
prof() { echo "$CORPORA/prof/$1-$2.fdata"; }
carried() { echo "$scratch/$1-$2-$3.fdata"; }
carry_pair() { # PROGRAM OLD NEW
  "$engraft" carry "$(bin "$1" "$2")" "$(bin "$1" "$3")" --profile "$(prof "$1" "$2")" -o "$(carried "$@")" >"$scratch/said"
}

if wanted 1 || wanted 2 || wanted 3 || wanted 4 || wanted 9; then
  for pair in "${pairs[@]}"; do
    read -r p o n <<<"$pair"
    [ -s "$(prof "$p" "$o")" ] && [ -s "$(prof "$p" "$n")" ] || "$scripts/bolt-peer.sh" "$p" "$o" "$n" >/dev/null
    carry_pair "$p" "$o" "$n"
    echo "== rows 1-4, 9: $pair"; cat "$scratch/said"
    "$scripts/bolt-peer.sh" "$p" "$o" "$n" "$(carried "$p" "$o" "$n")"
  done
fi
if wanted 5; then
  for pair in "${pairs[@]}"; do
    read -r p o n <<<"$pair"
    echo "== row 5 (each part off): $pair"
    "$ablate" "$(bin "$p" "$o")" "$(bin "$p" "$n")" "$(prof "$p" "$o")" "$(prof "$p" "$n")"
  done
fi
if wanted 8; then
  for pair in "${pairs[@]}"; do
    read -r p o n <<<"$pair"
    strip -o "$scratch/old" "$(bin "$p" "$o")"; strip -o "$scratch/new" "$(bin "$p" "$n")"
    # Names are taken away before, and given back after: the profile goes through our own format, by address.
    "$engraft" convert "$(prof "$p" "$o")" -o "$scratch/old.engraft" --binary "$(bin "$p" "$o")" >"$scratch/said"
    "$engraft" carry "$scratch/old" "$scratch/new" --profile "$scratch/old.engraft" -o "$scratch/new.engraft" >"$scratch/said"
    "$engraft" convert "$scratch/new.engraft" -o "$scratch/stripped.fdata" --binary "$(bin "$p" "$n")" >"$scratch/said"
    echo "== row 8 (stripped): $pair"
    "$scripts/bolt-peer.sh" "$p" "$o" "$n" "$scratch/stripped.fdata" | grep -A2 '^ours'
  done
fi
if wanted 10; then
  for v in 543.1.0 548.1.2; do
    UNDER="valgrind -q --tool=callgrind --dump-instr=yes --collect-jumps=yes --callgrind-out-file=$scratch/lua-$v.callgrind" \
      "$scripts/workload.sh" lua "$CORPORA/bin/lua-$v-cgoto" >"$scratch/said" 2>&1
  done
  "$engraft" carry "$CORPORA/bin/lua-543.1.0-cgoto" "$CORPORA/bin/lua-548.1.2-cgoto" \
    --profile "$scratch/lua-543.1.0.callgrind" -o "$scratch/cgoto.engraft" >"$scratch/said"
  echo "== row 10 (computed goto, callgrind)"
  "$engraft" score "$scratch/cgoto.engraft" "$scratch/lua-548.1.2.callgrind" --binary "$CORPORA/bin/lua-548.1.2-cgoto"
fi
if wanted 11; then
  for pair in "sqlite 0.24.2 0.30.1" "lua 543.1.0 548.1.2"; do
    read -r p o n <<<"$pair"
    carry_pair "$p" "$o" "$n"
    echo "== row 11: $pair"
    "$scripts/icache.sh" "$p" "$o" "$n" "$(carried "$p" "$o" "$n")"
  done
  # Five profiles that differ by a handful of executions.
  for seed in 1 2 3 4 5; do
    awk -v s=$seed 'BEGIN { srand(s) } { if ($NF > 20) $NF += int(rand() * 7) - 3; print }' "$(prof lua 543.1.0)" >"$scratch/perturbed.fdata"
    "$engraft" carry "$(bin lua 543.1.0)" "$(bin lua 548.1.2)" --profile "$scratch/perturbed.fdata" -o "$scratch/ours.fdata" >"$scratch/said"
    "$scripts/icache.sh" lua 543.1.0 548.1.2 "$scratch/ours.fdata" | grep '^ours'
  done
fi
if wanted 12; then
  echo "== row 12: chain sqlite 0.24.2, 0.30.1, 0.33.0 against direct"
  "$engraft" carry "$(bin sqlite 0.24.2)" "$(bin sqlite 0.30.1)" "$(bin sqlite 0.33.0)" --profile "$(prof sqlite 0.24.2)" -o "$scratch/chain.fdata" >"$scratch/said"
  carry_pair sqlite 0.24.2 0.33.0
  for f in "$scratch/chain.fdata" "$(carried sqlite 0.24.2 0.33.0)"; do
    "$engraft" score "$f" "$(prof sqlite 0.33.0)" --binary "$(bin sqlite 0.33.0)" | head -12
  done
fi
