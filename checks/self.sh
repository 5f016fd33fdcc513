#!/usr/bin/env bash
# self.sh [--objects OBJECT…] FILE…: what must match because it is the same. Each FILE against itself (100 %
# of functions and blocks at the same address), and against its stripped self (99.9 % of blocks). With
# --objects (up to a `--`): the objects, linked by $CC (gcc) with $LIBS (-lm -ldl) in their order and in
# reverse, against each other, as they are and stripped: 99.9 % of blocks that lie at the same place below a
# symbol of `nm -S` that occurs once in each.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ $# -gt 0 ] || { echo "usage: self.sh [--objects OBJECT… --] FILE…" >&2; exit 2; }
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
failed=0
objects=()
if [ "$1" = --objects ]; then
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do objects+=("$1"); shift; done
    [ $# = 0 ] || shift
fi
# judge WHAT OLD NEW SYMBOLS_OLD SYMBOLS_NEW PERCENT: symbols may be "-": then an address must stay as it is.
judge() {
    "$engraft" match "$2" "$3" --json >"$tmp/ours.json" || true
    "$engraft" show "$3" cfg --json >"$tmp/new.json"
    python3 - "$1" "$tmp" "$4" "$5" "$6" <<'P' || failed=1
import bisect, collections, json, subprocess, sys
what, tmp, a, b, least = *sys.argv[1:5], float(sys.argv[5])
ours, new = json.load(open(f"{tmp}/ours.json")), json.load(open(f"{tmp}/new.json"))
def symbols(path):
    lines = [l.split() for l in subprocess.run(["nm", "-S", "--defined-only", path], capture_output=True, text=True, check=True).stdout.splitlines()]
    lines = [l for l in lines if len(l) == 4 and l[2] in "tTwWi"]
    times = collections.Counter(l[3] for l in lines)
    return {l[3]: (int(l[0], 16), int(l[1], 16)) for l in lines if times[l[3]] == 1}
if a == "-":
    came_from = lambda at: at
else:
    old_of, new_of = symbols(a), symbols(b)
    starts = sorted((at, size, name) for name, (at, size) in new_of.items() if name in old_of and old_of[name][1] == size)
    def came_from(at):
        i = bisect.bisect_right(starts, (at, float("inf"), "")) - 1
        if i < 0 or at >= starts[i][0] + starts[i][1]: return None
        return old_of[starts[i][2]][0] + at - starts[i][0]
ok, line = True, what + ":"
for kind in ("functions", "blocks"):
    got = collections.defaultdict(list)
    for m in ours[kind]: got[m["new"]].append(m["old"])
    truth = {n: came_from(n) for n in new[kind]}
    truth = {n: o for n, o in truth.items() if o is not None}
    right = sum(got[n] == [o] for n, o in truth.items())
    share = 100 * right / max(len(truth), 1)
    # One function more or less is over 0.1 % of a small program: only blocks are held to less than all.
    ok = ok and len(truth) > 0 and (share >= least or kind == "functions" and least < 100)
    if share < 100: line += " (" + ", ".join(f"{n:#x}" for n in sorted(truth) if got[n] != [truth[n]])[:60] + ")"
    line += f" {kind} {share:.3f} % of {len(truth)}"
print(line + ("" if ok else "  FAILED"), flush=True)
sys.exit(not ok)
P
}
for file; do
    judge "$file, itself" "$file" "$file" - - 100
    strip -s -o "$tmp/stripped" "$file"
    judge "$file, stripped self" "$file" "$tmp/stripped" - - 99.9
done
if [ ${#objects[@]} -gt 0 ]; then
    reversed=()
    for o in "${objects[@]}"; do reversed=("$o" "${reversed[@]}"); done
    # shellcheck disable=SC2086 # several libraries
    { ${CC:-gcc} -o "$tmp/forth" "${objects[@]}" ${LIBS:--lm -ldl}; ${CC:-gcc} -o "$tmp/back" "${reversed[@]}" ${LIBS:--lm -ldl}; }
    judge "${#objects[@]} objects in reverse" "$tmp/forth" "$tmp/back" "$tmp/forth" "$tmp/back" 99.9
    for f in forth back; do strip -s -o "$tmp/$f.stripped" "$tmp/$f"; done
    judge "the same, stripped" "$tmp/forth.stripped" "$tmp/back.stripped" "$tmp/forth" "$tmp/back" 99.9
fi
exit $failed
