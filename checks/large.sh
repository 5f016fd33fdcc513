#!/usr/bin/env bash
# large.sh OLD NEW: time and memory of `engraft match` on a pair of large programs, and, where they have
# symbols, the share of functions of unchanged name and size (names that `nm -S` shows once in each) that are
# matched to each other: as the files are, and with both stripped. A `f.cold` is a part of f, not a function:
# said apart, but it counts. Fails if a run takes over 60 s of CPU or 3 GB, or below 99 % (stripped: 97 %) are
# matched.
set -euo pipefail
[ $# = 2 ] || { echo "usage: large.sh OLD NEW" >&2; exit 2; }
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
failed=0
# symbols FILE OUT: functions with a size, "name size address" a line.
symbols() { nm -S --defined-only "$1" 2>/dev/null | awk 'NF == 4 && $3 ~ /[tTwWiuV]/ {print $4, $2, $1}' >"$2" || true; }
# run WHAT PERCENT OLD NEW: one line; the truth is in $tmp/old and $tmp/new.
run() {
    /usr/bin/time -f "%U %S %M" -o "$tmp/cost" "$engraft" match "$3" "$4" --json >"$tmp/ours.json"
    python3 - "$1" "$2" "$tmp" <<'P' || failed=1
import collections, json, sys
what, least, tmp = sys.argv[1], float(sys.argv[2]), sys.argv[3]
user, system, kb = (float(x) for x in open(f"{tmp}/cost").read().split()[-3:])
def functions(path):
    lines = [line.split() for line in open(path)]
    times = collections.Counter(line[0] for line in lines)
    return {name: (size, int(at, 16)) for name, size, at in lines if times[name] == 1}
old, new = functions(f"{tmp}/old"), functions(f"{tmp}/new")
same = [n for n in old if n in new and old[n][0] == new[n][0]]
got = {m["old"]: m["new"] for m in json.load(open(f"{tmp}/ours.json"))["functions"]}
wrong = [n for n in same if got.get(old[n][1]) != new[n][1]]
ok = user + system <= 60 and kb <= 3e6
line = f"{what}: {user + system:.1f} s CPU, {kb / 1e6:.2f} GB"
if same:
    share = 100 * (1 - len(wrong) / len(same))
    cold = sum(n.endswith(".cold") for n in wrong)
    lost = sum(old[n][1] not in got for n in wrong)
    line += f"; {share:.2f} % of {len(same)} unchanged functions ({lost} unmatched, {len(wrong) - lost} matched otherwise, {sum(n.endswith('.cold') for n in wrong)} of both are .cold parts)"
    ok = ok and share >= least
    with open(f"{tmp}/wrong", "w") as out:
        for n in wrong:
            other = got.get(old[n][1])
            print(n, old[n][0], f"{old[n][1]:#x}", f"{new[n][1]:#x}", f"{other:#x}" if other else "-", file=out)
print(line + ("" if ok else "  FAILED"), flush=True)
sys.exit(not ok)
P
    [ -z "${WRONG:-}" ] || cp "$tmp/wrong" "$WRONG.${1// /-}" 2>/dev/null || true
}
symbols "$1" "$tmp/old"; symbols "$2" "$tmp/new"
run "as released" 99 "$1" "$2"
if [ -s "$tmp/old" ] && [ -s "$tmp/new" ]; then
    strip -s -o "$tmp/old.stripped" "$1"; strip -s -o "$tmp/new.stripped" "$2"
    run "stripped" 97 "$tmp/old.stripped" "$tmp/new.stripped"
fi
exit $failed
