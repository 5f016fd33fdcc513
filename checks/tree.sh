#!/usr/bin/env bash
# tree.sh [NAME…]: real programs (those of `programs.sh`, but the longest, or those named; `NAME-stripped`
# too) counted by a spanning tree, and with a counter a block (`--all-blocks`), twice each, without address
# randomization: every block must have the same count; where there is doubt, six times more each, with it: the
# two kinds differ in what is mapped where. What two runs of one kind count otherwise is not repeatable, and
# left out, as what libgcc does otherwise when it unwinds. The recordings of all processes of a run are added
# up.
#
# VERB=trace: recorded whole by `trace` in place of the tree; functions that choose functions (IFUNCs), which
# run before that, are left out.
#
# Prints for each how many blocks were held against each other, of how many executions. Exit 1 if one differs,
# or if those that are not repeatable are more than a quarter of the blocks that ran. Needs Debian 12.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
# shellcheck source=checks/programs.sh
. "$top/checks/programs.sh"
stripped=(throws panics openmp fortran static staticpie cgoto relr)
if [ $# = 0 ]; then
  for name in "${all_programs[@]}" "${stripped[@]/%/-stripped}"; do case $name in clangsql | pytests) ;; *) set -- "$@" "$name" ;; esac done
fi
# shellcheck disable=SC2086
"$top/scripts/install.sh" python3 $(for name; do echo "${needs[${name%-stripped}]:-}"; done)
work=$(mktemp -d); [ -n "${KEEP:-}" ] && echo "kept: $work" >&2 || trap 'rm -rf "$work"' EXIT
unset RUST_BACKTRACE
export engraft work real_home=$HOME LC_ALL=C TZ=UTC HOME=$work XDG_CACHE_HOME=${XDG_CACHE_HOME:-$work/cache}
# A program that ran long is rewritten for the next time: here all runs of one kind have the same.
export verb=${VERB:-count}
# What kind of run it is stands in a file: some programs go through their environment, which must be the same.
# shellcheck disable=SC2086
counted() {
  local how; how=$(cat "$work/how")
  case $how in
    '') $layout "$engraft" "$verb" -q -o "$(mktemp -u "$out/XXXXXXXX.engraft")" -- "$@" ;;
    *) $layout "$engraft" count -q $how -o "$(mktemp -u "$out/XXXXXXXX.engraft")" -- "$@" ;;
  esac
}

# Some programs are started by others.
export -f counted

# judge [last]: holds the runs so far against each other. Exit 3 if there is doubt, and these are not the
# last.
judge() {
  python3 - "$work" "$name" "$n" "$verb" "${1:-}" <<'P'
import collections, csv, glob, sys
work, name, n, verb, last = sys.argv[1:]
functions = {}
def counts(n):
    sums = collections.Counter()
    for path in glob.glob(f"{work}/{n}/*.csv"):
        with open(path) as rows:
            next(rows)
            for image, function, start, end, n_runs in csv.reader(rows):
                if verb == "trace" and "_ifunc" in function:
                    continue
                functions[image, int(start, 16), int(end, 16)] = function
                sums[image, int(start, 16), int(end, 16)] += int(n_runs)
    return sums
tree, plain = counts(1), counts(2)
waver = set() # what one kind of run does not count alike
for k in range(3, int(n) + 1):
    one, other = tree if k % 2 else plain, counts(k)
    waver |= {at for at in one.keys() | other.keys() if one[at] != other[at]}
# libgcc runs programs of unwind information, whose steps are coded shorter or longer as the code that they
# pass is: that may differ, in the one function that does so, by less than a tenth of what it does.
unwinder = {at for at in (tree.keys() | plain.keys()) - waver if "libgcc_s" in at[0] and tree[at] != plain[at]}
whole = sum(plain[at] for at in plain if functions[at] in {functions[u] for u in unwinder} and "libgcc_s" in at[0])
if len({functions[at] for at in unwinder}) == 1 and sum(abs(tree[at] - plain[at]) for at in unwinder) * 10 < whole:
    waver |= unwinder
else:
    unwinder = set()
every = (tree.keys() | plain.keys()) - waver
wrong = sorted(at for at in every if tree[at] != plain[at])
ran = [at for at in every if plain[at]]
n_waver = sum(1 for at in waver if tree[at] or plain[at])
ok = not wrong and len(ran) > 20 and n_waver * 4 <= len(ran) + n_waver
if wrong and not last:
    sys.exit(3)
for image, start, end in wrong[:8]:
    print(f"    {image} {start:#x}: {tree[image, start, end]}, a counter a block: {plain[image, start, end]}")
print(f"{name:20} {'ok' if ok else 'FAILED':6} {len(ran)} blocks that ran {sum(plain[at] for at in ran)} times equal, {len(wrong)} not, "
      f"{n_waver} not repeatable" + (f" ({len(unwinder)} of libgcc's unwinder)" if unwinder else ""), flush=True)
sys.exit(not ok)
P
}

failed=0
for name; do
  base=${name%-stripped}
  rm -rf "$work/new" "$work/recordings" "$work"/[0-9]*; mkdir "$work/new"
  if declare -F "setup_$base" >/dev/null; then (cd "$work/new" && "setup_$base") || { echo "FAILED  $name: could not be made"; failed=1; continue; }; fi
  [ "$base" = "$name" ] || (cd "$work/new" && for f in p *.so; do [ ! -e "$f" ] || strip "$f"; done)
  n=0; status=0; export layout='setarch -R'
  # take: a run of each kind.
  take() {
    for how in '' --all-blocks; do
      n=$((n + 1)); export out=$work/recordings; mkdir "$out"; echo "$how" >"$work/how"
      rm -rf "$work/run"; cp -a "$work/new" "$work/run"
      (cd "$work/run" && set +e && ulimit -c 0 && "run_$base" counted) >/dev/null 2>&1 </dev/null || true
      for rec in "$out"/*.engraft; do [ ! -e "$rec" ] || { "$engraft" convert -q "$rec" -o "$rec.csv"; rm "$rec"; }; done
      mv "$out" "$work/$n"
    done
  }
  take; take; judge || status=$?
  if [ "$status" = 3 ]; then layout=; for k in 1 2 3 4 5 6; do take; done; status=0; judge last || status=$?; fi
  [ "$status" = 0 ] || failed=1
done
exit $failed
