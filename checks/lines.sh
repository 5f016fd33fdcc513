#!/usr/bin/env bash
# lines.sh [NAME…]: are these the counts that gcov gives? bzip2, lua, sqlite and quickjs, or those that are
# named, are compiled with `gcc -g -O0`, run under `engraft count`, and what `convert` writes as .info is held
# against what gcov counted of a twin that was compiled with `--coverage` beside. -O0: what gcov counts is
# what the source says, and with more optimisation much of that has no code any more.
#
# Prints per program how many of the lines that gcov lists have the same count, how many are missing or more
# than gcov lists, and the first of those that differ (SHOW of them). Exit 1 if fewer than 99 % are equal,
# genhtml refuses the file, or callgrind_annotate what is written for it. OPT (-O0): another level, without
# bars. Sources come from crates, by cargo.
#
# What is known to differ: code behind a call that did not come back, in a block that ends with a return,
# counts as often as the block; lines whose code gcc has joined with others' (`break`, `goto`, the opening of
# a function whose body starts with `do`); labels, which have no code, come from the text of the source.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft} opt=${OPT:--O0} here=$top/checks
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
"$top/scripts/install.sh" gcc libc6-dev lcov valgrind python3 >&2
[ $# -gt 0 ] || set -- bzip2 lua sqlite quickjs
work=$(mktemp -d); [ -n "${KEEP:-}" ] && echo "kept: $work" >&2 || trap 'rm -rf "$work"' EXIT
export LC_ALL=C

crate() { # crate NAME VERSION: where cargo unpacks it
  if [ ! -d "$work/$1" ]; then
    mkdir -p "$work/$1/src"; echo 'fn main() {}' >"$work/$1/src/main.rs"
    printf '[package]\nname="probe"\nversion="0.1.0"\nedition="2021"\n[workspace]\n[dependencies.%s]\nversion="=%s"\ndefault-features=false\n' \
      "$1" "$2" >"$work/$1/Cargo.toml"
    (cd "$work/$1" && cargo fetch -q)
  fi
  compgen -G "${CARGO_HOME:-$HOME/.cargo}/registry/src/*/$1-$2*" | head -1
}
build() { # build NAME FLAGS SOURCES: twins of names that are equally long
  local name=$1; shift
  for twin in one two; do
    mkdir -p "$work/$name.$twin"
    local more=(); [ $twin = one ] || more=(--coverage)
    (cd "$work/$name.$twin" && gcc -w -g "$opt" "${more[@]}" "$@" -o "$name" -lm -ldl -pthread)
  done
}
make_bzip2() {
  local d; d=$(crate bzip2-sys 0.1.13)/bzip2-1.0.8
  build bzip2 -D_FILE_OFFSET_BITS=64 "$d"/{blocksort,huffman,crctable,randtable,compress,decompress,bzlib,bzip2}.c
  (. "$here/programs.sh"; text 60000) >"$work/in.txt"
}
run_bzip2() { "$@" -9 -k -c "$work/in.txt" | cksum; }
make_lua() {
  local d; d=$(crate lua-src 548.1.2)/lua-5.4.8
  cat >"$work/lua_main.c" <<'C'
#include "lauxlib.h"
#include "lualib.h"
#include <stdio.h>
int main(int n, char **a) {
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    if (luaL_dofile(L, a[n - 1]))
        puts(lua_tostring(L, -1));
    lua_close(L);
    return 0;
}
C
  # shellcheck disable=SC2046
  build lua -DLUA_USE_LINUX "-Dluai_makeseed(L)=42u" -I"$d" "$work/lua_main.c" $(ls "$d"/*.c | grep -vE '/(lua|luac|onelua|ltests)\.c$')
  (. "$here/programs.sh"; cd "$work"; setup_lua)
}
run_lua() { "$@" "$work/p.lua"; }
make_sqlite() {
  local d; d=$(crate libsqlite3-sys 0.33.0)/sqlite3
  cat >"$work/sqlite_main.c" <<'C'
#include "sqlite3.h"
#include <stdio.h>
static int row(void *p, int n, char **v, char **names) {
    for (int i = 0; i < n; i++)
        printf("%s%s", v[i] ? v[i] : "null", i + 1 < n ? "|" : "\n");
    return 0;
}
int main(void) {
    static const char *const all[] = {
        "create table t(a integer primary key, b int, c text unique); create index i on t(b, c);",
        "create trigger r after insert on t when new.a % 7 = 0 begin update t set b = b + 1 where a = new.a; end;",
        "with recursive n(x) as (select 1 union all select x + 1 from n where x < 900) insert into t select x, x * 7919 % 101, 'k' || x from n;",
        "select b, count(*), sum(a), group_concat(c) from t group by b having b > 90 order by 2 desc, 1;",
        "select x.a, y.c from t x join t y on x.b = y.a where x.c like 'k1%' order by y.c desc limit 9;",
        "select a, rank() over (partition by b order by c), lag(c) over (order by a) from t where a < 30;",
        "select json_extract('{\"a\":[1,2,{\"b\":3}]}', '$.a[2].b'), printf('%08.3f|%x|%s', 3.14159, 255, upper('abc')), date('2020-01-31', '+1 month');",
        "update t set c = replace(c, 'k', 'q') where b between 10 and 20; delete from t where a % 5 = 0; analyze; reindex; vacuum;",
        "select distinct b % 3 from t union select length(c) from t except select 1 order by 1; select nothing from nowhere;",
        "savepoint s; update t set b = 0; rollback to s; release s; pragma integrity_check; select count(*), sum(b) from t;",
    };
    sqlite3 *db;
    char *error;
    sqlite3_open(":memory:", &db);
    for (int i = 0; i < sizeof all / sizeof *all; i++)
        if (sqlite3_exec(db, all[i], row, 0, &error))
            puts(error), sqlite3_free(error);
    return sqlite3_close(db);
}
C
  build sqlite -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -I"$d" "$work/sqlite_main.c" "$d/sqlite3.c"
}
run_sqlite() { "$@"; }
make_quickjs() {
  local d; d=$(crate rquickjs-sys 0.11.0)/quickjs
  build quickjs -D_GNU_SOURCE -DQUICKJS_NG_BUILD -I"$d" "$d"/{qjs,quickjs,quickjs-libc,cutils,dtoa,libregexp,libunicode}.c "$d"/gen/{repl,standalone}.c
  cat >"$work/p.js" <<'J'
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
print(fib(14));
let a = []; for (let i = 0; i < 500; i++) a.push((i * 7919) % 1009);
a.sort((x, y) => x - y); print(a.length, a[250], JSON.stringify(a.slice(0, 5)));
class A { #p = 1; get p() { return this.#p; } *[Symbol.iterator]() { yield 1; yield 2; } }
print([...new A()], new A().p, /a(b+)c/.exec("xxabbbc")[1], "abc".replace(/b/g, m => m + m));
let m = new Map(); for (let i = 0; i < 100; i++) m.set("k" + i, i); print(m.size, [...m.keys()].length);
try { null.x } catch (e) { print(e.message) }
print(1n << 70n, 0.1 + 0.2, parseFloat("3.25e3"), [3, 1, 2].toString(), Object.keys({ a: 1, b: 2 }));
async function f() { await null; return 5 } f().then(v => print(v));
J
}
run_quickjs() { "$@" "$work/p.js"; }

judge() { # judge NAME: their counts against ours
  name=$1 python3 - <<'P'
import collections, glob, json, os, subprocess, sys
work, name, opt = os.environ["work"], os.environ["name"], os.environ["opt"]
ours, theirs = collections.Counter(), collections.Counter()
for line in open(f"{work}/{name}.info"):
    key, _, rest = line.strip().partition(":")
    if key == "SF":
        file = os.path.realpath(rest)
    elif key == "DA":
        number, n = rest.split(",")
        ours[file, int(number)] += int(n)
folder = f"{work}/{name}.two"
for counts in sorted(glob.glob(folder + "/*.gcda")):
    said = subprocess.run(["gcov", "--json-format", "--stdout", counts], cwd=folder, capture_output=True, check=True).stdout
    for file in json.loads(said)["files"]:
        path = os.path.realpath(os.path.join(folder, file["file"]))
        for line in file["lines"]:
            theirs[path, line["line_number"]] += line["count"]
both = [at for at in theirs if at in ours]
equal = sum(ours[at] == theirs[at] for at in both)
ran = [at for at in theirs if theirs[at]]
missing, more = len(theirs) - len(both), sum(at not in theirs for at in ours)
share, of_ran = (100 * a / b for a, b in ((equal, len(theirs)), (sum(ours.get(at) == theirs[at] for at in ran), len(ran))))
text = lambda at: open(at[0], errors="replace").read().split("\n")[at[1] - 1].strip()[:60]
for at in sorted(at for at in set(ours) | set(theirs) if ours.get(at) != theirs.get(at))[:int(os.environ.get("SHOW", 8))]:
    print(f"    {os.path.basename(at[0])}:{at[1]}: {ours.get(at, 'none')}, gcov {theirs.get(at, 'none')}: {text(at)}")
ok = opt != "-O0" or share >= 99 and len(theirs) > 2000
print(f"{name:8} {'ok' if ok else 'FAILED':6} {share:.2f} % of {len(theirs)} lines equal, {of_ran:.2f} % of the {len(ran)} that ran; "
      f"{len(both) - equal} differ, {missing} missing, {more} that gcov does not list")
sys.exit(not ok)
P
}
export work opt

failed=0
for name; do
  "make_$name"
  find "$work/$name.two" -name '*.gcda' -delete
  "run_$name" setarch -R "$work/$name.two/$name" >"$work/two.out"
  "run_$name" setarch -R "$engraft" count -q --modules exe -o "$work/$name.engraft" -- "$work/$name.one/$name" >"$work/one.out"
  cmp "$work/one.out" "$work/two.out" || { echo "FAILED  $name: the twins print other things"; failed=1; }
  for e in info callgrind; do "$engraft" convert -q "$work/$name.engraft" -o "$work/$name.$e" --binary "$work/$name.one/$name"; done
  judge "$name" || failed=1
  (cd "$work" && genhtml --branch-coverage --ignore-errors source -q -o html "$name.info" >genhtml.out 2>&1) ||
    { echo "FAILED  $name: genhtml refuses it"; tail -3 "$work/genhtml.out"; failed=1; }
  total=$(sed -n 's/^totals: //p' "$work/$name.callgrind")
  said=$(callgrind_annotate --inclusive=yes "$work/$name.callgrind" | sed -n '/PROGRAM TOTALS/s/ .*//p' | tr -d ,)
  [ "$total" = "$said" ] || { echo "FAILED  $name: callgrind_annotate finds $said instructions, not $total"; failed=1; }
done
exit $failed
