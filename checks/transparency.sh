#!/usr/bin/env bash
# transparency.sh [NAME…]: runs real programs (all of `programs.sh`, or those named) as they are, counted, and
# with their code and that of every library but libc and ld.so moved and the old code poisoned. What they
# print, write and end with must be the same three times. `NAME-stripped` is NAME without its symbols, for
# those that are compiled here.
#
# Prints for each the share of its instructions, of those known to have run in its modules, that were counted,
# and what was not and why. Exit 1 if a run differs, or less than 99.9 % was counted. A program whose plain
# runs differ is no proof: that is a failure, too. MODULES: which are counted (all; '*' for libc and ld.so,
# too). VERB=values: with values of all calls and loops in place of counts, and nothing poisoned. Needs Debian
# 12, and root or user namespaces: rewritten files are put over the plain ones in a private mount namespace.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
# shellcheck source=checks/programs.sh
. "$top/checks/programs.sh"
stripped=(throws panics openmp fortran static staticpie cgoto relr)
[ $# -gt 0 ] || set -- "${all_programs[@]}" "${stripped[@]/%/-stripped}"
# shellcheck disable=SC2086
"$top/scripts/install.sh" $(for name; do echo "${needs[${name%-stripped}]:-}"; done)
private='unshare -m'; [ "$(id -u)" = 0 ] || private='unshare -rm'
work=$(mktemp -d); [ -n "${KEEP:-}" ] && echo "kept: $work" >&2 || trap 'rm -rf "$work"' EXIT
mkdir "$work/poisoned"
unset RUST_BACKTRACE
export real_home=$HOME LC_ALL=C TZ=UTC HOME=$work XDG_CACHE_HOME=${XDG_CACHE_HOME:-$work/cache}
export engraft recs=$work/recs list=$work/list private

export VERB=${VERB:-count}
counted() {
  local rec; rec=$(mktemp -u "$recs/XXXXXXXX.engraft")
  case $VERB in
    values) "$engraft" values --calls '*' --loop '*' -q --modules "${MODULES:-all}" -o "$rec" -- "$@" ;;
    *) "$engraft" count -q --modules "${MODULES:-all}" -o "$rec" -- "$@" ;;
  esac
}
# Rewritten files over the plain ones, in a namespace of this command's own.
# shellcheck disable=SC2086
poisoned() { $private bash -c 'while read -r new old; do mount --bind "$new" "$old" || exit 99; done <"$list"; exec "$@"' _ "$@"; }
export -f counted poisoned

# go NAME HOW OUT: runs NAME with the prefix HOW in a fresh copy of its folder, always at the same place.
go() {
  local name=$1 how=$2 out=$3
  rm -rf "$work/run"; cp -a "$work/new" "$work/run"
  (cd "$work/run" && set +e && ulimit -c 0 && "run_$name" $how) >"$out.out" 2>"$out.err" </dev/null
  # What bash says of its children's signals, with their numbers.
  sed -i -E '/checks\/[a-z]+.sh: line [0-9]+: +[0-9]+ /d' "$out.err"
  ! declare -F "filter_$name" >/dev/null || for f in out err; do "filter_$name" <"$out.$f" >"$out.f" && mv "$out.f" "$out.$f"; done
  (cd "$work/run" && find . -type f ! -path './r/.git/*' ! -path './build/*' ! -path './appendonlydir/*' -print0 | sort -z | xargs -0r cksum) >"$out.files"
}
same() { cmp -s "$1.out" "$2.out" && cmp -s "$1.err" "$2.err" && cmp -s "$1.files" "$2.files"; }
differs() { { diff -a "$1.out" "$2.out" | head -5; diff -a "$1.err" "$2.err" | head -5; diff "$1.files" "$2.files" | head -5; } || true; }

failed=0
fail() { echo "FAILED  $1"; failed=1; }
for name; do
  base=${name%-stripped}
  rm -rf "$work/new" "$recs"; mkdir "$work/new" "$recs"; : >"$list"
  if declare -F "setup_$base" >/dev/null; then (cd "$work/new" && "setup_$base") || { fail "$name: could not be made"; continue; }; fi
  [ "$base" = "$name" ] || (cd "$work/new" && for f in p *.so; do [ ! -e "$f" ] || strip "$f"; done)
  go "$base" '' "$work/plain" || true; go "$base" '' "$work/again" || true
  same "$work/plain" "$work/again" || { fail "$name: two plain runs differ"; differs "$work/plain" "$work/again"; continue; }
  go "$base" counted "$work/counted" || true
  same "$work/plain" "$work/counted" || { fail "$name: counted"; differs "$work/plain" "$work/counted"; }
  [ "$VERB" = count ] || { echo "$name: equal with values of all calls and loops"; continue; }
  # What it loaded, poisoned.
  python3 - "$engraft" "$recs" >"$work/share" 3>"$work/modules" <<'P' || { fail "$name: no recording"; continue; }
import collections, json, os, pathlib, subprocess, sys
engraft, recs = sys.argv[1:]
run, missed, modules, why = 0, 0, set(), collections.Counter()
files = sorted(pathlib.Path(recs).glob("*.engraft"))
for rec in files:
    view = json.loads(subprocess.run([engraft, "show", "--json", "--counts", rec], capture_output=True, check=True).stdout)
    run += view["instructions"]
    modules |= {m["path"] for m in view["modules"]}
    for u in view["uncounted"]:
        why[u["why"]] += u["instructions"]
share = 100 * run / max(1, run + why.total())
os.write(3, "".join(m + "\n" for m in sorted(modules)).encode())
left = "; ".join(f"{n} {w}" for w, n in why.most_common(4))
print(f"{share:.4f} {share:8.4f} % of {run + why.total():>11} instructions in {len(modules)} modules, {len(files)} runs; not counted: {left or 'none'}")
sys.exit(0 if files and share <= 100 else 1)
P
  while read -r module; do
    new=$work/poisoned/${module//\//+}
    # Those of the program's own folder have one name and many forms.
    case $module in "$work"/*) rm -f "$new" ;; esac
    if [ ! -e "$new" ]; then "$engraft" instrument -q --null --poison "$module" -o "$new" 2>"$work/said" || { fail "$name: $module: $(cat "$work/said")"; continue; }; fi
    echo "$new $module" >>"$list"
  done <"$work/modules"
  go "$base" poisoned "$work/moved" || true
  same "$work/plain" "$work/moved" || { fail "$name: poisoned"; differs "$work/plain" "$work/moved"; }
  read -r share line <"$work/share"
  if awk -v s="$share" 'BEGIN { exit s >= 99.9 }'; then fail "$name: below 99.9 %"; fi
  printf '%-20s %s\n' "$name" "$line"
done
exit $failed
