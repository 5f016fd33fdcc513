/* The programs of VPROF's section 2, as far as the paper says what they did: a loop that always goes round
   three times, a loop with a branch that is never taken, `exp` with 403 arguments in 22,722 calls, `log` from
   two places with an argument each, and a loop that a counter in memory slows down. Says how often each. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>
#define OWN __attribute__((noinline, noclone))

enum { INSTANCES = 31592862, ITEMS = 1 << 22, CALLS_OF_EXP = 22722, GRID = 402, CALLS_OF_LOG = 14691 };
static uint32_t *next;
static uint64_t state = 7;
static uint32_t any(void) { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; }

/* Always three iterations, of some twenty cycles. How long they take depends on whether what they read is in
   a cache. */
OWN uint32_t three(uint32_t at, int n) {
    for (int i = 0; i < n; i++) {
        uint32_t to = next[at], hash = to;
        hash = ((hash ^ 0x9e37) * 0x85ebca6bu ^ 0x79b9) * 0xc2b2ae35u;
        hash = ((hash ^ 0x7f4a) * 0x27d4eb2fu ^ 0x7c15) * 0x165667b1u;
        at = to ^ (hash & -(n > 3));
    }
    return at;
}

/* Of four kinds, one does not come. */
OWN long kinds(const unsigned char *text, long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) {
        switch (text[i] & 3) {
        case 0: sum += text[i]; break;
        case 1: sum ^= i; break;
        case 2: sum = sum * 31 + text[i]; break;
        default: sum -= text[i] * i;
        }
        if (sum & 1) sum += 3;
    }
    return sum;
}

/* Each round depends on nothing before but one addition: it takes a cycle or so. */
OWN uint64_t quick(const uint64_t *from, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) sum += from[i];
    return sum;
}

OWN double energy(const double *x, long n) {
    double sum = 0;
    for (long i = 0; i < n; i++) sum += exp(x[i]);
    return sum;
}

OWN double first_site(const double *x) { return log(*x) + 1; }
OWN double second_site(const double *x) { return log(*x) - 1; }

static void loops(void) {
    next = malloc(ITEMS * sizeof *next);
    for (uint32_t i = 0; i < ITEMS; i++) next[i] = i < 4096 ? (i * 5 + 1) & 4095 : 4096 + any() % (ITEMS - 4096);
    uint32_t at = 0;
    for (long i = 0; i < INSTANCES; i++) at ^= three(any() % 16 ? i & 4095 : 4096 + any() % (ITEMS - 4096), 3) & 1;
    printf("three: %d instances, %ld iterations (%u)\n", INSTANCES, 3L * INSTANCES, at);
    unsigned char text[4096];
    for (unsigned i = 0; i < sizeof text; i++) text[i] = any() % 3 + 4 * (any() % 60);
    long sum = 0;
    for (int i = 0; i < 2000; i++) sum += kinds(text, sizeof text);
    printf("kinds: %d instances (%ld)\n", 2000, sum);
}

static void counters(void) {
    static uint64_t from[2048];
    for (int i = 0; i < 2048; i++) from[i] = any();
    uint64_t sum = 0, least = -1;
    for (int i = 0; i < 2000; i++) {
        from[i] = clock();
        uint64_t before = __rdtsc();
        sum += quick(from, 2048);
        uint64_t ticks = __rdtsc() - before;
        if (ticks < least) least = ticks;
    }
    printf("quick: %.2f ticks an iteration (%lu)\n", least / 2048.0, sum);
}

static void calls(void) {
    static double x[CALLS_OF_EXP];
    int at = 0;
    for (int i = 0; i < CALLS_OF_EXP; i++) {
        /* A constant in between, else up and down a grid, as figure 3 has it. */
        if (any() % 1000 < 182) x[i] = -0.120782;
        else x[i] = -42 + (at = (at + any() % 7) % GRID) * 0.125;
    }
    printf("exp: %d calls (%g)\n", CALLS_OF_EXP, energy(x, CALLS_OF_EXP));
    volatile double first = 0.75, second = 12.5;
    double a = first, b = second, sum = 0;
    for (int i = 0; i < CALLS_OF_LOG; i++) sum += i % 3 ? first_site(&a) : second_site(&b);
    printf("log: %d calls (%g)\n", CALLS_OF_LOG, sum);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "loops")) loops();
    else if (!strcmp(what, "calls")) calls();
    else if (!strcmp(what, "counters")) counters();
    else return 2;
}
