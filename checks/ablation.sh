#!/usr/bin/env bash
# ablation.sh [-p PASS]… OLD:NEW…: what each pass of the matching is worth: B.P., C.C. and overlap with every
# pass on, and what each pass adds. OLD and NEW are names below $CORPORA/bin; their profiles
# $PROFILES/NAME.fdata or .callgrind (default: $CORPORA/prof), each for its own build. Every pair is carried
# three times: as it is, with both files stripped, and with a third of NEW's functions renamed. Judge:
# `engraft score`. Positive: the pass gains. ENGRAFT: the command to judge (default: this tree's, built here).
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
corpora=${CORPORA:-$top/target/corpora}
passes=()
while [ "${1:-}" = -p ]; do passes+=("$2"); shift 2; done
[ $# -gt 0 ] || { echo "usage: ablation.sh [-p PASS]… OLD:NEW…" >&2; exit 2; }
[ -n "${ENGRAFT:-}" ] || (cd "$top" && cargo build -q --release -p engraft)
export engraft=${ENGRAFT:-$top/target/release/engraft}
[ ${#passes[@]} -gt 0 ] || mapfile -t passes < <("$engraft" help passes | awk '$1 == "--" { exit } /^ *[a-z-]+  /{ print $1 }')
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
profile() { # NAME: its profile as ours, by address, so that it is one of the stripped twin too
  local from
  for from in "${PROFILES:-$corpora/prof}/$1".{fdata,callgrind} "$corpora/prof/$1".{fdata,callgrind}; do
    [ -s "$from" ] || continue
    [ -s "$scratch/$1.engraft" ] || "$engraft" convert "$from" -o "$scratch/$1.engraft" --binary "$corpora/bin/$1" >"$scratch/said"
    return
  done
  echo "no profile of $1" >&2; return 1
}
one() { # OLD NEW OLD.engraft NEW.engraft OUT [--without PASS]
  local old=$1 new=$2 profile=$3 fresh=$4 out=$5; shift 5
  "$engraft" match "$old" "$new" "$@" -o "$out.map" --threads 1 >"$out.said"
  "$engraft" carry "$old" "$new" --map "$out.map" --profile "$profile" -o "$out.engraft" --threads 1 >"$out.said"
  "$engraft" score "$out.engraft" "$fresh" --binary "$new" --json >"$out.json"
  rm -f "$out.map" "$out.engraft" "$out.said"
}
export -f one
for pair in "$@"; do
  old=${pair%%:*} new=${pair##*:}
  profile "$old"; profile "$new"
  for how in symbols stripped renamed; do
    at=$scratch/$pair-$how; mkdir -p "$at"
    case $how in
    symbols) cp "$corpora/bin/$old" "$at/old"; cp "$corpora/bin/$new" "$at/new" ;;
    stripped) strip -o "$at/old" "$corpora/bin/$old"; strip -o "$at/new" "$corpora/bin/$new" ;;
    renamed)
      cp "$corpora/bin/$old" "$at/old"
      # By a number made of the name alone: the same functions each time.
      nm "$corpora/bin/$new" | awk '$2 ~ /^[tT]$/ { n = 0; for (i = 1; i <= length($3); i++) n = (n * 31 + index("abcdefghijklmnopqrstuvwxyz", tolower(substr($3, i, 1)))) % 9973
        if (n % 3 == 0 && !seen[$3]++) print $3, substr($3, 1, length($3) - 1) "_v2" substr($3, length($3)) }' >"$at/names"
      objcopy --redefine-syms="$at/names" "$corpora/bin/$new" "$at/new" ;;
    esac
    for pass in all "${passes[@]}"; do
      without=$([ "$pass" = all ] || echo "--without $pass")
      echo "one $at/old $at/new $scratch/$old.engraft $scratch/$new.engraft $at/$pass $without"
    done
  done
done >"$scratch/work"
xargs -P "${JOBS:-2}" -I{} bash -c '{}' <"$scratch/work"
python3 - "$scratch" "${passes[*]}" "$@" <<'P'
import json, sys
scratch, passes, pairs = sys.argv[1], sys.argv[2].split(), sys.argv[3:]
def read(pair, how, name):
    s = json.load(open(f"{scratch}/{pair}-{how}/{name}.json"))["scores"][0]
    return [100 * s[k] for k in ("bp_share", "cc_share", "overlap_share")]
worth = {p: [] for p in passes}
for pair in pairs:
    for how in ("symbols", "stripped", "renamed"):
        base = read(pair, how, "all")
        print(f"{pair} {how}: B.P. {base[0]:.2f} C.C. {base[1]:.2f} overlap {base[2]:.2f}")
        for p in passes:
            gain = [x - y for x, y in zip(base, read(pair, how, p))]
            worth[p].append((gain, f"{pair} {how}"))
            if any(abs(g) >= 0.005 for g in gain):
                print(f"  {p:<20} " + " / ".join(f"{g:+.2f}" for g in gain))
print("\npass                  B.P.: least, most     C.C.: least, most     overlap: least, most")
for p in passes:
    g = [x[0] for x in worth[p]]
    cells = [f"{min(x[k] for x in g):+.2f} {max(x[k] for x in g):+.2f}" for k in range(3)]
    verdict = "costs" if any(x[k] < -0.005 for x in g for k in (0, 1)) else ""
    verdict += " gains nothing" if all(x[k] < 0.005 for x in g for k in range(3)) else ""
    print(f"{p:<20}  " + "         ".join(cells) + f"   {verdict}")
P
