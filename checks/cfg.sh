#!/usr/bin/env bash
# cfg.sh NAME…: how well functions, blocks and jump tables of stripped files are found, and how fast, against objdump.
# Each NAME is a build of the corpora's build-truth.sh: $CORPORA/stripped/NAME with $CORPORA/truth/NAME.json; without any, all of them.
# CORPORA_SCRIPTS (default ../shared/corpora) holds score-cfg.py.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${CORPORA_SCRIPTS:=../shared/corpora}" "${CORPORA:=target/corpora}"
[ -f "$CORPORA_SCRIPTS/score-cfg.py" ] || { echo "cfg.sh: no score-cfg.py in $CORPORA_SCRIPTS: set CORPORA_SCRIPTS" >&2; exit 2; }
cargo build --release --quiet -p engraft
engraft=${CARGO_TARGET_DIR:-target}/release/engraft
[ $# -gt 0 ] || set -- $(cd "$CORPORA/truth" && for t in *.json; do n=${t%.json}; [ -f "../stripped/$n" ] && echo "$n"; done)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
user() { { TIMEFORMAT=%U; time "$@" >/dev/null 2>&1; } 2>&1; }
for name; do
  binary=$CORPORA/stripped/$name truth=$CORPORA/truth/$name
  echo "== $name"
  "$engraft" show "$binary" cfg --json >"$work/ours.json"
  python3 "$CORPORA_SCRIPTS/score-cfg.py" "$truth.json" "$work/ours.json"
  [ ! -f "$truth.bbmap.json" ] || python3 "$CORPORA_SCRIPTS/score-cfg.py" "$truth.json" "$work/ours.json" --bbmap "$truth.bbmap.json" | sed -n 's/^blocks /blocks-in-map /p'
  echo "CPU seconds: engraft show $(RAYON_NUM_THREADS=1 user "$engraft" show "$binary"), objdump -d $(user objdump -d "$binary")"
done
