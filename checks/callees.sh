#!/usr/bin/env bash
# callees.sh [NAME…]: where indirect calls led, counted by `count --callees`, against callgrind's call
# graph: of every calling instruction in the executable and all libraries but libc and ld.so, how often it led
# to each address of its own module, and to each other module. NAME is a program of `programs.sh`, `virtual`
# (C++, classes of 1 to 40 kinds) or `callbacks` (qsort and bsearch, called from libc and called back; calls
# out of tables).
#
# Prints per program how many pairs of a call and a target are equal, how many differ (the first of them,
# SHOW), how many indirect calls were made, and the share that was counted. Exit 1 if one differs, or
# less than 99 % was counted. What valgrind shows a program is not all that a processor shows it: functions of
# libc that are chosen by it are one here. A pair counts as repeatable if two runs under callgrind agree on
# it, and four under `count` (what hashes addresses goes another way each time). Where a calling instruction
# did not run as often under valgrind (as `count`'s blocks say, which `count.sh` proves), its pairs are apart.
# Left out: calls through slots that the dynamic linker fills.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=$(realpath "${ENGRAFT:-$top/target/release/engraft}")
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
# shellcheck source=checks/programs.sh
. "$top/checks/programs.sh"
[ $# -gt 0 ] || set -- gzip lua sqlite3 python3 virtual callbacks
# shellcheck disable=SC2086
"$top/scripts/install.sh" valgrind python3 binutils g++ $(for name; do echo "${needs[$name]:-}"; done) >&2
work=$(mktemp -d); [ -n "${KEEP:-}" ] && echo "kept: $work" >&2 || trap 'rm -rf "$work"' EXIT
export LC_ALL=C TZ=UTC HOME=$work XDG_CACHE_HOME=${XDG_CACHE_HOME:-$work/cache} THREADS=1 PYTHONHASHSEED=0 LD_BIND_NOW=1
mapfile -t as_watched < <(comm -13 <(env | sort) <(valgrind -q --tool=none env | sort) | grep -v '^_=')
counted() { env "${as_watched[@]}" "$engraft" count -q --callees -o "$(mktemp -u "$out/XXXXXXXX.engraft")" -- "$@"; }
watched() { valgrind -q --tool=callgrind --dump-instr=yes --collect-jumps=yes --skip-plt=no --callgrind-out-file="$out/%p.callgrind" "$@"; }
alone_python3() { sed -i '/subprocess\.run/d; /os\.fork/d; /^if pid/d; /waitstatus/d; s/^\[t\.start.*/[(t.start(), t.join()) for t in ts]/' p.py; }

setup_virtual() {
  cat >p.cc <<'C'
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>
struct Shape { virtual ~Shape() {} virtual long area() const = 0; virtual long more(long n) const { return n + 1; } };
template <int K> struct Kind : Shape { long area() const override { return K; } long more(long n) const override { return n * K; } };
struct Wide : virtual Shape { long area() const override { return 99; } };
template <int K> void add(std::vector<std::unique_ptr<Shape>> &all) { all.emplace_back(new Kind<K>); if constexpr (K > 0) add<K - 1>(all); }
int main() {
  std::vector<std::unique_ptr<Shape>> all;
  add<39>(all);
  all.emplace_back(new Wide);
  long sum = 0;
  for (int i = 0; i < 20000; i++) { auto &s = *all[(i * 7919) % all.size()]; sum += s.area(); if (i % 3 == 0) sum += s.more(i) % 1000; }
  for (int i = 0; i < 5000; i++) sum += all[i % 3]->area() + all[3]->more(1);
  long (Shape::*member)() const = &Shape::area;
  for (int i = 0; i < 500; i++) sum += ((*all[i % 5]).*member)();
  std::function<long(long)> fs[] = {[](long n) { return n + 1; }, [&](long n) { return n + sum % 2; }};
  for (int i = 0; i < 500; i++) sum += fs[i % 2](i);
  printf("%ld\n", sum);
}
C
  g++ -O2 -o virtual p.cc
}
run_virtual() { "$@" ./virtual; }
setup_callbacks() {
  cat >p.c <<'C'
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int up(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static int down(const void *a, const void *b) { return up(b, a); }
static int (*orders[])(const void *, const void *) = {up, down};
static void (*volatile sort)(void *, size_t, size_t, int (*)(const void *, const void *)) = qsort;
static int (*kinds[])(int) = {isalpha, isdigit, toupper, abs};
static void bye(void) { puts("bye"); }
int main(void) {
  int n[500]; long sum = 0;
  for (int i = 0; i < 500; i++) n[i] = i * 7919 % 503;
  for (int i = 0; i < 6; i++) { sort(n, 500, sizeof *n, orders[i % 2]); sum += orders[i % 2](&n[0], &n[1]); }
  for (int i = 0; i < 500; i++) sum += bsearch(&i, n, 500, sizeof i, orders[1]) != NULL;
  for (int i = 0; i < 4000; i++) sum += kinds[i * i % 4](i % 128);
  atexit(bye);
  printf("%ld\n", sum);
}
C
  gcc -O2 -o callbacks p.c
}
run_callbacks() { "$@" ./callbacks; }

take() { # take HOW: runs the program under callgrind (w…) or `count` (c…)
  mkdir "$work/$1"; rm -rf "$work/run"; cp -a "$work/new" "$work/run"; export out=$work/$1
  local prefix=counted
  case $1 in w*) prefix=watched ;; esac
  (cd "$work/run" && set +e && ulimit -c 0 && "run_$name" $prefix) >"$out/said" 2>/dev/null </dev/null || true
}

bad=0
for name; do
  rm -rf "$work"/{new,run,w1,w2,c1,c2,c3,c4}; mkdir "$work/new"
  (cd "$work/new" && "setup_$name" && if declare -F "alone_$name" >/dev/null; then "alone_$name"; fi) >/dev/null
  for how in w1 w2 c1 c2 c3 c4; do take $how; done
  python3 "$top/checks/callees.py" "$name" "$engraft" "$work" "${SHOW:-5}" || bad=1
done
exit $bad
