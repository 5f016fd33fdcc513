#!/usr/bin/env bash
# match.sh PROGRAM OLD NEW: functions, blocks and data matched, with symbols and with both builds stripped,
# against the truth that match-truth.sh made in $CORPORA/truth; data against the object symbols of the
# unstripped twins. Each line with CPU time and memory.
set -euo pipefail
[ $# = 3 ] || { echo "usage: match.sh PROGRAM OLD NEW" >&2; exit 2; }
top=$(dirname "$(dirname "$(realpath "$0")")")
scripts=${CORPORA_SCRIPTS:-$top/../shared/corpora} corpora=${CORPORA:-$top/target/corpora}
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
for v in "$2" "$3"; do strip -o "$tmp/$1-$v" "$corpora/bin/$1-$v"; done
for folder in "$corpora/bin" "$tmp"; do
  [ "$folder" = "$tmp" ] && echo "stripped:" || echo "with symbols:"
  /usr/bin/time -f "%U s CPU, %M KB" "$engraft" match "$folder/$1-$2" "$folder/$1-$3" --json >"$tmp/ours.json"
  "$scripts/score-match.py" "$corpora/truth/$1-$2-to-$3.match.json" "$tmp/ours.json"
  python3 - "$corpora/bin/$1-$2" "$corpora/bin/$1-$3" "$tmp/ours.json" <<'P'
import json, re, subprocess, sys
def objects(path):
    at = {}
    for line in subprocess.run(["readelf", "-sW", path], capture_output=True, text=True).stdout.splitlines():
        p = line.split()
        if len(p) >= 8 and p[3] == "OBJECT" and p[6] != "UND" and int(p[2], 0) > 0:
            at.setdefault(re.sub(r"\.\d+$", "", p[7].split("@")[0]), set()).add(int(p[1], 16))
    return {k: min(v) for k, v in at.items() if len(v) == 1}
old, new = objects(sys.argv[1]), objects(sys.argv[2])
got = {d["new"]: d["old"] for d in json.load(open(sys.argv[3]))["data"]}
truth = {new[k]: old[k] for k in new if k in old}
right = sum(got.get(n) == o for n, o in truth.items())
wrong = sum(n in got and got[n] != o for n, o in truth.items())
print(f"data                        truth={len(truth)} R={right / max(len(truth), 1):.5f} P={right / max(right + wrong, 1):.5f}")
P
done
