#!/usr/bin/env bash
# query.sh TRACES [FOLDER]: packs the plain traces of a folder (NAME.trc.zst with NAME.paths, whose lines are
# `type F b0 b1 b2 cnt N first POS …`), asks for every path by every scheme, holds counts and first positions
# against the file's, and says what it took: CPU time, in process. Then 10,000 random paths of random traces
# against a search that is slow and plainly right.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "query.sh: say where the traces are: checks/query.sh TRACES [FOLDER]" >&2; exit 2; }
traces=$1 folder=${2:-$(mktemp -d)}
mkdir -p "$folder"
cargo build --release -q -p trace --example rows
for paths in "$traces"/*.paths; do
  name=$(basename "$paths" .paths)
  [ -e "$folder/$name.trc" ] || zstd -q -dc --long=27 "$traces/$name.trc.zst" > "$folder/$name.trc"
  target/release/examples/rows "$folder/$name.trc" "$paths" "$folder"
done
PROPTEST_CASES=1000 cargo test --release -q -p trace -- all_schemes_find_what_a_naive_search_finds
