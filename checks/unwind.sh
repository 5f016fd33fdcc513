#!/usr/bin/env bash
# unwind.sh [N]: unwinding through moved, counted code, launched and as a file. N C++ throws (1,000,000)
# through 1 and through 20 frames of a library that is loaded by dlopen: what is counted, and user time over
# the plain run, median of PAIRS (5) pairs, at most 1.5; Rust panics that are caught, are not caught, and
# abort; threads that are cancelled; the names that backtrace_symbols gives. Ends with 1 if a bar is missed.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
n=${1:-1000000} pairs=${PAIRS:-5}
export RUST_BACKTRACE=0 # names of moved code, but not its lines, are in files: engraft/tests/it/names.rs
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT; cd "$tmp"
cat >throws.cc <<'C'
#include <dlfcn.h>
#include <sys/resource.h>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#ifdef LIBRARY
struct Guard { long *left; ~Guard() { ++*left; } };
extern "C" __attribute__((noinline)) long sink(long n, int depth, long *left) {
  Guard guard{left};
  if (depth == 1) throw std::runtime_error("thrown");
  return sink(n, depth - 1, left) + 1;
}
#else
using Sink = long (*)(long, int, long *);
__attribute__((noinline)) long catches(Sink sink, long n, int depth, long *left) {
  try { return sink(n, depth, left); }
  catch (const std::exception &e) { return e.what()[0]; }
}
int main(int argc, char **argv) {
  void *library = dlopen("./sink.so", RTLD_NOW);
  Sink sink = (Sink)dlsym(library, "sink");
  long n = atol(argv[1]), left = 0, sum = 0;
  int depth = atoi(argv[2]);
  struct rusage from, to;
  getrusage(RUSAGE_SELF, &from);
  for (long i = 0; i < n; i++) sum += catches(sink, i, depth, &left);
  getrusage(RUSAGE_SELF, &to);
  printf("%ld %ld\n", sum, left);
  fprintf(stderr, "%f\n", to.ru_utime.tv_sec - from.ru_utime.tv_sec + (to.ru_utime.tv_usec - from.ru_utime.tv_usec) / 1e6);
}
#endif
C
cat >panics.rs <<'C'
struct Guard;
impl Drop for Guard { fn drop(&mut self) { println!("dropped"); } }
#[inline(never)]
fn fails(n: usize) -> usize { let _guard = Guard; vec![1, 2, 3][n] }
fn main() {
    let how = std::env::args().nth(1).unwrap_or_default();
    if how == "caught" {
        let n = (0..1000).filter(|n| std::panic::catch_unwind(|| { let _g = Guard; if *n % 2 == 0 { std::panic::resume_unwind(Box::new(1)) } }).is_err()).count();
        println!("{n} {}", std::panic::catch_unwind(|| fails(9)).is_err());
        println!("{:?}", std::thread::spawn(|| fails(7)).join().is_err());
    } else {
        fails(how.len() + 3);
    }
}
C
cat >cancel.c <<'C'
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static long n_cleaned;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void clean(void *arg) { pthread_mutex_lock(&lock); n_cleaned += (long)arg; pthread_mutex_unlock(&lock); }
__attribute__((noinline)) static int waits(int depth, int *to) {
  int got;
  pthread_cleanup_push(clean, (void *)1);
  if (depth == 0) { write(*to, "x", 1); for (;;) pause(); }
  got = waits(depth - 1, to) + 1;
  pthread_cleanup_pop(0);
  return got;
}
__attribute__((noinline)) static int spins(int *to) {
  pthread_cleanup_push(clean, (void *)1000000);
  write(*to, "x", 1);
  for (volatile long i = 0;; i++);
  pthread_cleanup_pop(0);
}
static void *deferred(void *arg) { return (void *)(long)waits(10, arg); }
static void *at_once(void *arg) { int old; pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old); return (void *)(long)spins(arg); }
int main(void) {
  int ends[2]; char c;
  if (pipe(ends)) return 1;
  int cancelled = 0;
  for (int i = 0; i < 400; i++) {
    pthread_t thread; void *result;
    pthread_create(&thread, 0, AT_ONCE && i % 4 ? at_once : deferred, &ends[1]);
    read(ends[0], &c, 1);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    cancelled += result == PTHREAD_CANCELED;
  }
  printf("%d %ld\n", cancelled, n_cleaned);
}
C
cp "$top/engraft/tests/it/fixtures/names.c" .
g++ -O2 -o throws throws.cc
g++ -O2 -DLIBRARY -shared -fPIC -o sink.so throws.cc
rustc -O -o panics panics.rs
rustc -O -C panic=abort -o aborts panics.rs
# With tables, what cleans up is called while frames are unwound, but only from calls; without, by longjmp,
# from anywhere.
gcc -O2 -DAT_ONCE=0 -fexceptions -pthread -o cancel cancel.c
gcc -O2 -DAT_ONCE=1 -fno-exceptions -pthread -o cancel-at-once cancel.c
gcc -O2 -DAT_ONCE=0 -fexceptions -pthread -static -o cancel-static cancel.c
gcc -O2 -rdynamic -o names names.c
bad=0
# What a panic says holds the number of its thread; a shell would add what a signal ended.
said() { sed -E "s/^(thread '.*') \([0-9]+\)/\1/" "$1"; }
same() { # same NAME ARGS…: plain, launched, and as a file
  local name=$1 want=0 got how; shift
  { "./$name" "$@" >want.out 2>want.err; } 2>/dev/null || want=$?
  "$engraft" instrument -q -o "$name.new" "$name"
  for how in launched file; do
    got=0; rm -f rec "$name.engraft"
    if [ $how = file ]; then { ENGRAFT_OUT=rec "./$name.new" "$@" >got.out 2>got.err; } 2>/dev/null || got=$?
    else "$engraft" count -q -o rec -- "./$name" "$@" >got.out 2>got.err || got=$?; fi
    sed -i "s/$name\.new/$name/" got.out
    if [ "$want" = "$got" ] && cmp -s want.out got.out && [ "$(said want.err)" = "$(said got.err)" ] && [ -s rec ]; then
      echo "$name $* ($how): same, status $want"
    else
      echo "$name $* ($how): NOT the same: status $want, $got"; diff want.out got.out || true; diff want.err got.err || true; bad=1
    fi
  done
}
same panics caught; same panics uncaught; same aborts uncaught; same cancel; same cancel-at-once; same cancel-static; same names
for depth in 1 20; do
  : >ratios
  for ((i = 0; i < pairs; i++)); do
    rm -f rec
    plain() { ./throws "$n" $depth >want.out 2>want.err; }
    ours() { "$engraft" count -q -o rec -- ./throws "$n" $depth >got.out 2>got.err; }
    if ((i % 2)); then ours; plain; else plain; ours; fi
    cmp want.out got.out
    python3 -c "print($(cat got.err) / $(cat want.err), $(cat want.err))" >>ratios
  done
  "$engraft" convert rec -q -o rec.csv --binary sink.so
  counted=$(awk -F, '$2 ~ /^sink/ && $5 > most { most = $5 } END { print most + 0 }' rec.csv)
  python3 - $depth "$n" "$counted" <<'P' || bad=1
import statistics, sys
depth, n, counted = map(int, sys.argv[1:])
rows = [list(map(float, line.split())) for line in open("ratios")]
ratio = [r[0] for r in rows]
holds = statistics.median(ratio) <= 1.5 and counted == n * depth
print(f"{n} throws through {depth} frames: {counted} executions counted of {n * depth}; user time {statistics.median(ratio):.2f} [{min(ratio):.2f} - {max(ratio):.2f}] of {statistics.median(r[1] for r in rows):.2f} s:",
      "holds" if holds else "DOES NOT HOLD")
sys.exit(not holds)
P
done
exit $bad
