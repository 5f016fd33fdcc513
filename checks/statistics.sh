#!/usr/bin/env bash
# statistics.sh [CALLS [SEED]]: holds the statistics of `engraft values --full --json` against Python's
# `statistics` and `fractions` on the same log's CSV (issue 29, row 10): of a program that is called CALLS
# times with numbers of all kinds, among them infinities, denormals and what is no number. Needs gcc, and
# Python 3.11.
set -euo pipefail
calls=${1:-20000} seed=${2:-1}
here=$(cd "$(dirname "$0")" && pwd)
engraft=${ENGRAFT:-$here/../target/release/engraft}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cat > "$work/numbers.c" <<'C'
#include <stdlib.h>
#include <string.h>
static unsigned long state;
static unsigned long any(void) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return state ^ state >> 29;
}
static double wide(void) {
    unsigned long bits = any();
    double number;
    memcpy(&number, &bits, 8);
    return any() % 8 ? number : (double)(bits % 100);
}
static float narrow(void) {
    unsigned bits = any();
    float number;
    memcpy(&number, &bits, 4);
    return number;
}
__attribute__((noinline)) double numbers(double d, float f, long l, unsigned long u, int i, short s, unsigned short c,
                                         double few, long near) {
    __asm__ volatile("");
    return few / 3 + near;
}
double sink;
int main(int argc, char **argv) {
    state = atol(argv[2]);
    double special[] = {0.0, -0.0, 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0, 5e-324, 0.1, 1e308, -1e308, 3};
    for (long n = atol(argv[1]); n > 0; n--)
        sink += numbers(wide(), narrow(), any(), any(), any(), any(), any(), special[any() % 10], 1000 + any() % 500);
    return 0;
}
C
gcc -O1 -o "$work/numbers" "$work/numbers.c"
cd "$work"
prototype="double numbers(double d, float f, long l, unsigned long u, int i, short s, unsigned short c, double few, long near);"
for n in 1 2 3 10 "$calls"; do
    "$engraft" values -q --no-cache --full --json=said.json -o numbers.engraft --calls "$prototype" ./numbers "$n" "$seed"
    "$engraft" convert -q numbers.engraft -o numbers.csv --bits
    python3 -P "$here/numbers.py" said.json numbers.csv
done
