// Steps through calls of functions that are known to come back, and prints how far from where each of them
// starts it goes, and how deep its stack is.
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>
#include <ucontext.h>

typedef unsigned long ul;
static ul start, far, deep, stack;
static volatile double ds[8] = {.3, 1.5, 1e300, -2.25, 0, 1e-310, 700, 1e18}, d;
static volatile long k = 3;
static void *volatile p;
static char number[] = "  1234567", to[9000], t[5000], u[5000];
static long n;
extern char __executable_start, end;
extern void *__rawmemchr(), *__memcpy_chk(), *__memmove_chk(), *__memset_chk(), *__strcat_chk(), *__strncat_chk();

static void step(int s, siginfo_t *i, void *v) {
  ucontext_t *c = v;
  ul ip = c->uc_mcontext.gregs[16], depth = stack - c->uc_mcontext.gregs[15];
  if (ip >= (ul)&__executable_start && ip < (ul)&end) return;
  ul away = ip > start ? ip - start : start - ip;
  if (away > far) far = away;
  if (depth > deep) deep = depth;
}

// The first time, what is bound when it is called first is bound.
#define TRY(name, ...) \
  { \
    start = (ul)(name), far = deep = 0; \
    for (int pass = 0; pass < 2; pass++) \
      for (n = 1; n < 4000; n = n * 3 + 1) { \
        memset(t, 'a', n), memset(u, 'a', n), t[n] = u[n] = *to = 0; \
        if (n > 3) u[n - 1] = 'b'; \
        __asm__ volatile("mov %%rsp,%0" : "=r"(stack)); \
        if (pass) __asm__ volatile("pushfq; orl $0x100,(%%rsp); popfq" ::: "memory", "cc"); \
        __VA_ARGS__; \
        __asm__ volatile("pushfq; andl $~0x100,(%%rsp); popfq" ::: "memory", "cc"); \
      } \
    printf("%s %lu %lu\n", #name, far, deep); \
  }
#define ONE(name) TRY(name, for (int i = 0; i < 8; i++) d = name(ds[i]))
#define TWO(name) TRY(name, for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) d = name(ds[i], ds[j]))

int main(void) {
  static char other[65536];
  stack_t signals = {.ss_sp = other, .ss_size = sizeof other};
  struct sigaction a = {.sa_sigaction = step, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigaltstack(&signals, 0);
  sigaction(SIGTRAP, &a, 0);
  ONE(atan)
  ONE(atanf)
  ONE(cbrt)
  ONE(ceil)
  ONE(ceilf)
  ONE(cos)
  ONE(cosf)
  ONE(expf)
  ONE(fabs)
  ONE(floor)
  ONE(floorf)
  ONE(log2)
  ONE(log2f)
  ONE(logf)
  ONE(nearbyint)
  ONE(rint)
  ONE(round)
  ONE(roundf)
  ONE(sin)
  ONE(sinf)
  ONE(tan)
  ONE(trunc)
  TWO(copysign)
  TWO(fmax)
  TWO(fmin)
  TWO(powf)
  TRY(__ctype_b_loc, p = (void *)__ctype_b_loc())
  TRY(__ctype_tolower_loc, p = (void *)__ctype_tolower_loc())
  TRY(__ctype_toupper_loc, p = (void *)__ctype_toupper_loc())
  TRY(__errno_location, p = (void *)__errno_location())
  TRY(__memcpy_chk, __memcpy_chk(to, t, n, sizeof to))
  TRY(__memmove_chk, __memmove_chk(to, t, n, sizeof to))
  TRY(__memset_chk, __memset_chk(to, 1, n, sizeof to))
  TRY(__strcat_chk, __strcat_chk(to, t, sizeof to))
  TRY(__strncat_chk, __strncat_chk(to, t, n, sizeof to))
  TRY(abs, k = (abs)(k))
  TRY(atoi, k = (atoi)(number))
  TRY(atol, k = (atol)(number))
  TRY(bcmp, k = (bcmp)(t, u, n))
  TRY(fegetround, k = fegetround())
  TRY(fma, d = fma(ds[0], ds[1], ds[2]))
  TRY(frexp, int e; d = frexp(ds[1], &e))
  TRY(gettimeofday, struct timeval s; gettimeofday(&s, 0))
  TRY(isalnum, k = (isalnum)(65))
  TRY(isalpha, k = (isalpha)(65))
  TRY(isdigit, k = (isdigit)(65))
  TRY(isspace, k = (isspace)(65))
  TRY(labs, k = (labs)(k))
  TRY(ldexp, d = ldexp(ds[1], 5); d = ldexp(ds[1], 5000); d = ldexp(ds[1], -5000))
  TRY(lrint, k = lrint(ds[1]))
  TRY(lround, k = lround(ds[1]))
  TRY(memchr, p = memchr(t, 1, n))
  TRY(memcmp, k = memcmp(t, u, n))
  TRY(memcpy, memcpy(to, t, n))
  TRY(memmove, memmove(to, t, n))
  TRY(mempcpy, mempcpy(to, t, n))
  TRY(memrchr, p = memrchr(t, 1, n))
  TRY(memset, memset(to, 1, n))
  TRY(modf, double e; d = modf(ds[1], &e))
  TRY(__rawmemchr, p = __rawmemchr(t, 0))
  TRY(rawmemchr, p = rawmemchr(t, 0))
  TRY(sincos, double a, b; for (int i = 0; i < 8; i++) sincos(ds[i], &a, &b))
  TRY(stpcpy, stpcpy(to, t))
  TRY(stpncpy, stpncpy(to, t, n))
  TRY(strcasecmp, k = strcasecmp(t, u))
  TRY(strcat, strcat(to, t))
  TRY(strchr, p = strchr(t, 1))
  TRY(strchrnul, p = strchrnul(t, 1))
  TRY(strcmp, k = strcmp(t, u))
  TRY(strcpy, strcpy(to, t))
  TRY(strcspn, k = strcspn(t, "123456"))
  TRY(strlen, k = strlen(t))
  TRY(strncasecmp, k = strncasecmp(t, u, n))
  TRY(strncat, strncat(to, t, n))
  TRY(strncmp, k = strncmp(t, u, n))
  TRY(strncpy, strncpy(to, t, n))
  TRY(strnlen, k = strnlen(t, n))
  TRY(strpbrk, p = strpbrk(t, "123456"))
  TRY(strrchr, p = strrchr(t, 1))
  TRY(strspn, k = strspn(t, "abcdefghijklmno"))
  TRY(strtol, k = strtol(number, 0, 10))
  TRY(strtoul, k = strtoul(number, 0, 16))
}
