#!/usr/bin/env bash
# threads.sh: counts of programs with threads. First threads that start threads, 64 at a time, more than
# 10,000 in all: their hot loop must be counted exactly, as it counts itself. Then two threads in one hot loop
# against one: user time over the plain run with two, divided by that with one, medians of PAIRS (7) rounds,
# at most 1.05; counts exact. The loop's body takes some cycles: in a loop of one cycle, how fast the
# processor forwards one increment to the next differs twofold from run to run, also with one thread. Ends
# with 1 if a bar is missed.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT; cd "$tmp"
cat >nested.c <<'C'
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
enum { AT_ONCE = 64, OUTER = 10240, ROUNDS = 1000 };
static _Atomic unsigned long n_runs, n_threads;
static sem_t room;
__attribute__((noinline)) static void hot(unsigned long n) {
  for (unsigned long i = 0; i < n; i++) __asm__ volatile("" ::: "memory");
  n_runs += n;
}
static void *inner(void *arg) { n_threads++; hot(ROUNDS); return arg; }
static void *outer(void *arg) {
  pthread_t thread;
  n_threads++;
  hot(ROUNDS / 2);
  if (pthread_create(&thread, 0, inner, 0) == 0) pthread_join(thread, 0);
  hot(ROUNDS / 2);
  sem_post(&room);
  return arg;
}
int main(void) {
  sem_init(&room, 0, AT_ONCE / 2);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  for (int i = 0; i < OUTER; i++) {
    pthread_t thread;
    sem_wait(&room);
    if (pthread_create(&thread, &attr, outer, 0)) return 1;
  }
  for (int i = 0; i < AT_ONCE / 2; i++) sem_wait(&room);
  printf("%lu %lu\n", n_runs, n_threads);
}
C
cat >hot.c <<'C'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
static unsigned long n;
__attribute__((noinline)) static unsigned long hot(unsigned long n) {
  unsigned long x = n | 1;
  for (unsigned long i = 0; i < n; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; }
  return x;
}
static void *run(void *arg) { return (void *)hot(n); }
int main(int argc, char **argv) {
  int threads = atoi(argv[1]);
  pthread_t all[8];
  struct rusage used;
  n = strtoul(argv[2], 0, 10);
  unsigned long sum = 0;
  for (int i = 0; i < threads; i++) if (pthread_create(&all[i], 0, run, 0)) return 1;
  for (int i = 0; i < threads; i++) { void *x; pthread_join(all[i], &x); sum += (unsigned long)x; }
  getrusage(RUSAGE_SELF, &used);
  printf("%lu\n", sum);
  fprintf(stderr, "%ld.%06ld\n", (long)used.ru_utime.tv_sec, (long)used.ru_utime.tv_usec);
}
C
gcc -O2 -pthread -o nested nested.c
gcc -O2 -pthread -o hot hot.c
python3 - "$engraft" "${PAIRS:-7}" <<'P'
import os, statistics, subprocess, sys
engraft, rounds = sys.argv[1], int(sys.argv[2])
bad = False

def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr

def counted(*command):
    for name in ("rec", "rec.csv"):
        if os.path.exists(name):
            os.remove(name)
    out = run(engraft, "count", "-q", "--no-cache", "--modules", "exe", "-o", "rec", "--", *command)
    run(engraft, "convert", "rec", "-q", "-o", "rec.csv", "--binary", command[0])
    rows = [line.rstrip().split(",") for line in open("rec.csv")]
    return out, max(int(r[4]) for r in rows[1:] if r[1].startswith("hot"))

(out, _), most = counted("./nested")
runs, threads = map(int, out.split())
bad |= most != runs
print(f"{threads} threads: {most} executions of the hot block counted of {runs}:", "holds" if most == runs else "DOES NOT HOLD")
n = 300_000_000
exact, seen = True, {1: [], 2: []}
for i in range(rounds):
    for k in (1, 2) if i % 2 else (2, 1):
        plain = run("./hot", str(k), str(n))
        ours, most = counted("./hot", str(k), str(n))
        exact &= ours[0] == plain[0] and most == k * n
        seen[k].append(float(ours[1]) / float(plain[1]))
one, two = (statistics.median(seen[k]) for k in (1, 2))
middle = two / one
holds = exact and middle <= 1.05
bad |= not holds
spread = {k: f"[{min(seen[k]):.3f} - {max(seen[k]):.3f}]" for k in seen}
print(f"one thread {one:.3f} {spread[1]}, two {two:.3f} {spread[2]}; two over one {middle:.3f},",
      "counts exact:" if exact else "counts NOT exact:", "holds" if holds else "DOES NOT HOLD")
sys.exit(bad)
P
