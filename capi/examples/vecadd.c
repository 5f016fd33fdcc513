// PADRONE's figure 8: a program that adds vectors, as a compiler of a machine without AVX makes it, and says
// how long that takes: `cc -O3 -o vecadd vecadd.c && ./vecadd [REDSTEPS]`. Replaced by `replace_hot.c`.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LENGTH = 128, CALLS = 1000000 };

// How many elements are added is a multiple of 4.
__attribute__((noipa))
static void vecadd(const double *restrict a, const double *restrict b, double *restrict c, long n) {
    for (long i = 0; i < n; i++)
        c[i] = a[i] + b[i];
}

static _Alignas(64) double a[LENGTH], b[LENGTH], c[LENGTH];

static double thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void redstep(int n) {
    double before = thread_ns();
    for (int i = 0; i < CALLS; i++)
        vecadd(a, b, c, LENGTH);
    double took = thread_ns() - before, wrong = 0;
    for (int i = 0; i < LENGTH; i++)
        wrong += c[i] != 3.0 * i, c[i] = 0;
    printf("redstep: %d %.2f ms %.2f ns per iter%s\n", n, took / 1e6, took / CALLS, wrong ? " WRONG" : "");
    fflush(stdout);
}

int main(int argc, char **argv) {
    for (int i = 0; i < LENGTH; i++)
        a[i] = i, b[i] = 2 * i;
    for (int n = 0; argc < 2 || n < atoi(argv[1]); n++)
        redstep(n);
}
