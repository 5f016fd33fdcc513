#!/usr/bin/env bash
# cfg.sh NAME…: how well functions, blocks and jump tables of stripped files are found, and how fast, against
# objdump. Each NAME is a build of the corpora's build-truth.sh: $CORPORA/stripped/NAME with
# $CORPORA/truth/NAME.json; without any, all of them. CORPORA_SCRIPTS (default ../shared/corpora) holds
# score-cfg.py. What must be shown stands in `bar`: exit 1 if one is missed.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${CORPORA_SCRIPTS:=../shared/corpora}" "${CORPORA:=target/corpora}"
[ -f "$CORPORA_SCRIPTS/score-cfg.py" ] || { echo "cfg.sh: no score-cfg.py in $CORPORA_SCRIPTS: set CORPORA_SCRIPTS" >&2; exit 2; }
cargo build --release --quiet -p engraft
engraft=${CARGO_TARGET_DIR:-target}/release/engraft
[ $# -gt 0 ] || set -- $(cd "$CORPORA/truth" && for t in *.json; do n=${t%.json}; [ -f "../stripped/$n" ] && echo "$n"; done)
[ $# -gt 0 ] || { echo "cfg.sh: no truths in $CORPORA/truth" >&2; exit 2; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
user() { { TIMEFORMAT=%U; time "$@" >/dev/null 2>&1; } 2>&1; }
# bar NAME WHAT: the least precision and recall
bar() {
  case $2:$1 in
  functions:*-static*) echo 0.99 0.995 ;;
  functions:*-noeh*|blocks:*-noeh*|blocks-in-map:*-noeh*) echo 0.97 0.97 ;;
  functions:*) echo 0.995 0.995 ;;
  blocks:*|blocks-in-map:*) echo 0.998 0.998 ;;
  table-targets:rg-*) echo 0.99 0.99 ;;
  table-targets:*) echo 0.999 0.995 ;;
  esac
}
n=0 missed=0
for name; do
  binary=$CORPORA/stripped/$name truth=$CORPORA/truth/$name
  echo "== $name"
  "$engraft" show "$binary" cfg --json >"$work/ours.json"
  python3 "$CORPORA_SCRIPTS/score-cfg.py" "$truth.json" "$work/ours.json" >"$work/score"
  [ ! -f "$truth.bbmap.json" ] || python3 "$CORPORA_SCRIPTS/score-cfg.py" "$truth.json" "$work/ours.json" --bbmap "$truth.bbmap.json" | sed -n 's/^blocks /blocks-in-map /p' >>"$work/score"
  cat "$work/score"
  for what in functions blocks blocks-in-map table-targets; do
    least=$(bar "$name" $what)
    line=$(grep "^$what " "$work/score" || true)
    case $what:$line in blocks-in-map:) continue ;; *:) echo "MISSED: no line for $what"; missed=$((missed + 1)); continue ;; esac
    n=$((n + 1))
    # Without a table there is nothing to find.
    awk -v least="$least" '{ split(least, bar, " ")
        for (i = 1; i <= NF; i++) { split($i, f, "="); v[f[1]] = f[2] }
        exit !(v["truth"] == 0 && v["ours"] == 0 || v["P"] >= bar[1] && v["R"] >= bar[2]) }' <<<"$line" ||
      { echo "MISSED: $what must have precision and recall of $least"; missed=$((missed + 1)); }
  done
  echo "CPU seconds: engraft show $(RAYON_NUM_THREADS=1 user "$engraft" show "$binary"), objdump -d $(user objdump -d "$binary")"
done
echo "cfg: $# files, $n figures, $missed missed"
[ "$missed" = 0 ]
