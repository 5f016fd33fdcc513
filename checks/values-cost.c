/* What `engraft values` is asked to record here, is done so often that its cost an event can be told. Prints
   the user CPU time that it took, in nanoseconds an event: of a call, a round of a loop, or an instance of
   one. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#define OWN __attribute__((noinline, noclone, noipa))

static uint64_t state = 7;
static uint64_t any(void) { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; }

OWN double scaled(double x) { return x * 1.5 + 2; }

/* A chain of multiplications, `n` of them: three cycles each. */
OWN uint64_t chain(uint64_t x, long n) {
    for (long i = 0; i < n; i++) {
        x *= 0x9e3779b97f4a7c15u;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}
/* One addition a round: a cycle, or less. */
OWN uint64_t sum(const uint32_t *from, long n) {
    uint64_t all = 0;
    for (long i = 0; i < n; i++) all += from[i];
    return all;
}
/* A loop around an inner one of `n` rounds. */
OWN uint64_t around(uint64_t x, long rounds, long n) {
    for (long k = 0; k < rounds; k++) {
        for (long i = 0; i < n; i++) {
            x *= 0x9e3779b97f4a7c15u;
            __asm__ volatile("" : "+r"(x));
        }
        x += k;
    }
    return x;
}

static double *values;
static long n_events, n_distinct;

static void *calls(void *out) {
    double all = 0;
    for (long i = 0, at = 0; i < n_events; i++) {
        all += scaled(values[at]);
        if (++at == n_distinct) at = 0;
    }
    *(double *)out = all;
    return NULL;
}

static double user_ns(void) {
    struct rusage of;
    getrusage(RUSAGE_SELF, &of);
    return of.ru_utime.tv_sec * 1e9 + of.ru_utime.tv_usec * 1e3;
}

/* values-cost WHAT EVENTS [N] */
int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *what = argv[1];
    long n = argc > 3 ? atol(argv[3]) : 1, threads = argc > 4 ? atol(argv[4]) : 1;
    n_events = atol(argv[2]), n_distinct = n;
    values = malloc((n + 1) * sizeof *values);
    for (long i = 0; i < n; i++) values[i] = any() / 1e6;
    static uint32_t from[4096];
    for (int i = 0; i < 4096; i++) from[i] = any();
    double all = 0, before = user_ns();
    uint64_t x = 1;
    if (!strcmp(what, "calls")) {
        pthread_t them[64];
        double sums[64];
        for (long t = 0; t < threads; t++) pthread_create(&them[t], NULL, calls, &sums[t]);
        for (long t = 0; t < threads; t++) pthread_join(them[t], NULL), all += sums[t];
        n_events *= threads;
    } else if (!strcmp(what, "exp")) {
        for (long i = 0; i < n_events; i++) all += exp((i & 1023) * 0.01);
    } else if (!strcmp(what, "chain")) {
        for (long i = 0; i < n_events; i++) x = chain(x, n);
    } else if (!strcmp(what, "sum")) {
        for (long i = 0; i < n_events / 4096; i++) x += sum(from, 4096);
    } else if (!strcmp(what, "around")) {
        for (long i = 0; i < n_events / 100; i++) x += around(x, 100, n);
    } else {
        return 2;
    }
    double ns = (user_ns() - before) / n_events;
    fprintf(stderr, "%.4f\n", ns);
    printf("%g %lu\n", all, x);
    return 0;
}
