#!/usr/bin/env bash
# vecadd.sh: PADRONE's figure 8 (issue 31, row 5). A program adds vectors of 128 doubles, compiled for SSE;
# while it runs, `engraft replace` puts a version for AVX2 in its place, and takes it back. Prints the time
# a call before, meanwhile and after (medians of N, 10, rounds of a million calls), and fails if the gain is
# less than GAIN (1.6), or the time after more than a tenth from that before. The machine should have
# nothing else to do.
set -euo pipefail
n=${N:-10} gain=${GAIN:-1.6}
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$tmp"' EXIT
cat > "$tmp/add.c" <<'C'
void vecadd(const double *restrict a, const double *restrict b, double *restrict c, long n) {
    for (long i = 0; i < n; i++) c[i] = a[i] + b[i];
}
C
cat > "$tmp/main.c" <<'C'
#include <stdio.h>
#include <time.h>
enum { LEN = 128, CALLS = 1000000 };
void vecadd(const double *restrict, const double *restrict, double *restrict, long);
static _Alignas(64) double a[LEN], b[LEN], c[LEN];
static double redstep(void) {
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int k = 0; k < CALLS; k++) vecadd(a, b, c, LEN);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    return ((to.tv_sec - from.tv_sec) * 1e9 + to.tv_nsec - from.tv_nsec) / CALLS;
}
int main(void) {
    for (int i = 0; i < LEN; i++) { a[i] = i; b[i] = 2 * i; }
    for (long r = 0;; r++) {
        double ns = redstep(), sum = 0;
        for (int i = 0; i < LEN; i++) { sum += c[i] - 3.0 * i; c[i] = 0; }
        printf("redstep: %ld %.2f ns per iter %s\n", r, ns, sum ? "WRONG" : "right"); fflush(stdout);
    }
}
C
gcc -O3 -o "$tmp/vecadd-sse" "$tmp/main.c" -x c "$tmp/add.c"
gcc -O3 -mavx2 -shared -fPIC -o "$tmp/avx2.so" "$tmp/add.c"
"$tmp/vecadd-sse" > "$tmp/out" &
pid=$!
rounds() { wc -l < "$tmp/out"; }
# Median of the next N rounds, the one that runs now apart.
median() {
    local from; from=$(($(rounds) + 2))
    while [ "$(rounds)" -lt $((from + n)) ]; do sleep 0.1; done
    tail -n "+$from" "$tmp/out" | head -n "$n" | awk '{print $3}' | sort -n | sed -n "$(((n + 1) / 2))p"
}
before=$(median)
"$engraft" replace vecadd --with "$tmp/avx2.so:vecadd" -p $pid
meanwhile=$(median)
"$engraft" replace vecadd --undo -p $pid
after=$(median)
grep -q WRONG "$tmp/out" && { echo "vecadd.sh: a sum was wrong" >&2; exit 1; }
awk -v b="$before" -v m="$meanwhile" -v a="$after" -v gain="$gain" 'BEGIN {
    printf "before %.2f ns, replaced %.2f ns: %.2f times as fast; taken back %.2f ns\n", b, m, b / m, a
    exit !(b / m >= gain && a / b < 1.1 && b / a < 1.1)
}'
