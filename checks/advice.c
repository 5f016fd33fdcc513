/* Programs to advise on, one by -DPROGRAM=N: with -DPLANTED there is something to be done about it, and with
   -DCHANGED it is done. Without -DPLANTED there is nothing. Each runs for some tenths of a second. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HERE __attribute__((noipa))
#ifdef PLANTED
#define KNOWN(is, is_not) (is)
#else
#define KNOWN(is, is_not) (is_not)
#endif

static uint64_t state = 88172645463325252u;
static uint64_t any(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}
/* A number that is new each time, in 1 to 2. */
static double fresh(void) { return 1 + (double)(any() >> 11) * 0x1p-53; }

/* Results that come again: a program may remember them. */
#define REMEMBER(name, plain, size, key) \
    HERE double name(double x) \
    { \
        static double arguments[size], results[size]; \
        static char is_known[size]; \
        int at = (key) & (size - 1); \
        if (!is_known[at] || arguments[at] != x) \
            is_known[at] = 1, arguments[at] = x, results[at] = plain(x); \
        return results[at]; \
    }

#if PROGRAM == 1 /* 256 grey values, each to a power */
HERE double to_linear(double x) { return pow((x + 0.055) / 1.055, 2.4) + pow(x, 1.1); }
#ifdef CHANGED
REMEMBER(remembered, to_linear, 1024, (int)(x * 255 + 0.5))
#define to_linear remembered
#endif
static double run(void)
{
    double sum = 0;
    for (int i = 0; i < 6000000; i++)
        sum += to_linear(KNOWN((double)(any() & 255) / 255, fresh()));
    return sum;
}
#elif PROGRAM == 2 /* an integral of few functions */
HERE double integral(double p)
{
    double sum = 0;
    for (int i = 1; i <= 100; i++)
        sum += 1 / (p + i * 0.01 * (p + i * 0.02));
    return sum / 100;
}
#ifdef CHANGED
REMEMBER(remembered, integral, 64, (int)(x * 4))
#define integral remembered
#endif
static double run(void)
{
    double sum = 0;
    for (int i = 0; i < 1500000; i++)
        sum += integral(KNOWN((double)(any() % 40 + 4) / 4, fresh()));
    return sum;
}
#elif PROGRAM == 3 /* a checksum of small numbers */
HERE uint64_t checksum(uint64_t x)
{
    for (int i = 0; i < 64; i++)
        x = x & 1 ? x >> 1 ^ 0xc96c5795d7870f42u : x >> 1;
    return x;
}
#ifdef CHANGED
HERE uint64_t remembered(uint64_t x)
{
    static uint64_t arguments[1024], results[1024];
    if (arguments[x & 1023] != x + 1)
        arguments[x & 1023] = x + 1, results[x & 1023] = checksum(x);
    return results[x & 1023];
}
#define checksum remembered
#endif
static double run(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < 4000000; i++)
        sum += checksum(KNOWN(any() % 500, any()));
    return (double)sum;
}
#elif PROGRAM == 4 /* a root by Newton's method, each from the one before */
HERE double cube_root(double x)
{
    double y = x;
    for (int i = 0; i < 30; i++)
        y = (2 * y + x / (y * y)) / 3;
    return y;
}
#ifdef CHANGED
REMEMBER(remembered, cube_root, 256, (int)x)
#define cube_root remembered
#endif
static double run(void)
{
    double last = 1, sum = 0;
    for (int i = 0; i < 2000000; i++) {
        last = cube_root(KNOWN((double)((int)(last * 7 + i) % 90 + 2), fresh() + last));
        sum += last;
    }
    return sum;
}
#elif PROGRAM == 5 /* one discount for all */
HERE double discount(double rate, double years)
{
    double factor = 1;
    for (int i = 0; i < 40; i++)
        factor *= exp(-rate * years / 40);
    return factor;
}
static double run(void)
{
    double sum = 0;
#ifdef CHANGED
    double all = discount(0.05, 30);
#endif
    for (int i = 0; i < 1000000; i++) {
#ifdef CHANGED
        sum += fresh() * all;
#else
        sum += fresh() * discount(KNOWN(0.05, fresh()), KNOWN(30, fresh()));
#endif
    }
    return sum;
}
#elif PROGRAM == 6 /* of two places, one has one argument */
HERE double gauss(double x, double width)
{
    double sum = 0;
    for (int i = 0; i < 20; i++)
        sum += exp(-(x - i * 0.1) * (x - i * 0.1) / width);
    return sum;
}
static double run(void)
{
    double sum = 0;
#ifdef CHANGED
    double middle = gauss(0.5, 2);
#endif
    for (int i = 0; i < 700000; i++) {
        sum += gauss(fresh(), fresh());
#ifdef CHANGED
        sum -= middle;
#else
        sum -= gauss(KNOWN(0.5, fresh()), KNOWN(2, fresh()));
#endif
    }
    return sum;
}
#elif PROGRAM == 7 /* a power of ten that is always the same */
HERE uint64_t power(uint64_t base, uint64_t n, uint64_t modulus)
{
    uint64_t result = 1;
    for (; n > 0; n >>= 1, base = base * base % modulus)
        if (n & 1)
            result = result * base % modulus;
    return result;
}
static double run(void)
{
    uint64_t sum = 0;
#ifdef CHANGED
    uint64_t all = power(10, 1000000007, 4294967291);
#endif
    for (int i = 0; i < 1000000; i++) {
#ifdef CHANGED
        sum += (any() & 0xff) * all;
#else
        uint64_t base = KNOWN(10, any() & 0xffff), n = KNOWN(1000000007, (any() & 0xfffffff) + 1000000000);
        sum += (any() & 0xff) * power(base, n, KNOWN(4294967291, 4294967291 - 2 * (any() & 0xfff)));
#endif
    }
    return (double)sum;
}
#elif PROGRAM == 8 /* one factor of two is always the same */
HERE int64_t scaled(int64_t x, int64_t by) { return (x * by) >> 8; }
static double run(void)
{
    int64_t sum = 0;
    for (int i = 0; i < 4000000; i++)
        sum += scaled((int64_t)(any() & 0xffff), KNOWN(77, (int64_t)(any() & 0xff)));
    return (double)sum;
}
#elif PROGRAM == 9 /* vectors of three */
HERE double dot(const double *a, const double *b, long n)
{
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}
static double run(void)
{
    static double a[64], b[64];
    double sum = 0;
    for (int i = 0; i < 64; i++)
        a[i] = fresh(), b[i] = fresh();
    for (int i = 0; i < 4000000; i++)
        sum += dot(a + (any() & 31), b, (long)KNOWN(3, any() % 20 + 1));
    return sum;
}
#elif PROGRAM == 10 /* colours */
HERE long brightness(const unsigned char *pixel, int n)
{
    long sum = 0;
    for (int i = 0; i < n; i++) {
        sum = sum * 3 + pixel[i];
        __asm__ volatile("" : "+r"(sum));
    }
    return sum;
}
static double run(void)
{
    static unsigned char pixels[4096];
    long sum = 0;
    for (int i = 0; i < 4000000; i++)
        sum += brightness(pixels + (any() & 2047), (int)KNOWN(3, any() % 9 + 1));
    return (double)sum;
}
#elif PROGRAM == 11 /* a table of hashes */
HERE uint64_t bucket(uint64_t hash, uint64_t n) { return hash % n; }
static double run(void)
{
    static long table[1024];
    uint64_t sum = 0;
    for (int i = 0; i < 4000000; i++)
        sum += ++table[bucket(any(), KNOWN(1024, any() % 1000 + 20))];
    return (double)sum;
}
#elif PROGRAM == 12 /* a ring */
HERE int next(int at, int by, int len) { return (at + by) / len + (at & 7); }
static double run(void)
{
    long sum = 0;
    int at = 0;
    for (int i = 0; i < 4000000; i++)
        sum += at = next(at, (int)(any() & 63), KNOWN(1 << (any() & 3), (int)(any() % 60 + 1))) & 0xffff;
    return (double)sum;
}
#endif

int main(void)
{
    printf("%.17g\n", run());
    return 0;
}
