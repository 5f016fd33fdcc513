// Runs a program and puts random values into registers and flags called dead: liveness PLACES ENTRY SEED K
// SECONDS COMMAND ARGS…
//
// PLACES holds lines as `dead` prints them, ENTRY is the file's e_entry in decimal. At each place an int3 is
// planted; at its 1st to K-th hit (which one is random by place) everything dead there is randomised, once,
// and the int3 is gone. The program's output is untouched: compare it with a plain run. Prints to the file
// named by $HITS the places that were randomised, one decimal address a line. Exits as the program does, 128
// + signal if one killed it, 124 after SECONDS.
#define _GNU_SOURCE
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct place {
  uint64_t at, general, flags, low, upper, mask;
  unsigned wait;
  unsigned char byte;
  int armed;
};

static uint64_t seed;
static uint64_t any(void) {
  uint64_t z = seed += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static void die(const char *what) { perror(what); exit(125); }

static pid_t child;
static void late(int s) { (void)s; kill(child, SIGKILL); _exit(124); }

static int by_at(const void *a, const void *b) {
  uint64_t x = ((const struct place *)a)->at, y = ((const struct place *)b)->at;
  return x < y ? -1 : x > y;
}

static uint64_t entry_of(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/auxv", pid);
  int fd = open(path, O_RDONLY);
  Elf64_auxv_t a;
  while (read(fd, &a, sizeof a) == sizeof a)
    if (a.a_type == AT_ENTRY) { close(fd); return a.a_un.a_val; }
  die("auxv");
  return 0;
}

// Offset of a state component in the XSAVE area, 0 if the processor has none (CPUID leaf 0xd).
static unsigned component(int n) {
  unsigned a, b, c, d;
  __cpuid_count(0xd, 0, a, b, c, d);
  if (!(a >> n & 1)) return 0;
  __cpuid_count(0xd, n, a, b, c, d);
  return b;
}

static void fill(unsigned char *at, unsigned n) { while (n--) *at++ = any(); }

static void randomise_vectors(const struct place *p) {
  static unsigned char state[16384];
  struct iovec iov = {state, sizeof state};
  if (ptrace(PTRACE_GETREGSET, child, (void *)NT_X86_XSTATE, &iov)) die("GETREGSET");
  unsigned ymm = component(2), k = component(5), zmm = component(6), hi16 = component(7);
  uint64_t *present = (uint64_t *)(state + 512);
  for (int n = 0; n < 16; n++) {
    if (p->low >> n & 1) fill(state + 160 + 16 * n, 16), *present |= 2;
    if (p->upper >> n & 1) {
      if (ymm && iov.iov_len >= ymm + 256) {
        if (!(*present & 4)) memset(state + ymm, 0, 256);
        fill(state + ymm + 16 * n, 16), *present |= 6;
      }
      if (zmm && iov.iov_len >= zmm + 512) {
        if (!(*present & 64)) memset(state + zmm, 0, 512);
        fill(state + zmm + 32 * n, 32), *present |= 64;
      }
    }
    if (hi16 && iov.iov_len >= hi16 + 1024 && p->low >> (16 + n) & 1 && p->upper >> (16 + n) & 1) {
      if (!(*present & 128)) memset(state + hi16, 0, 1024);
      fill(state + hi16 + 64 * n, 64), *present |= 128;
    }
  }
  for (int n = 0; n < 8; n++)
    if (k && iov.iov_len >= k + 64 && p->mask >> n & 1) {
      if (!(*present & 32)) memset(state + k, 0, 64);
      fill(state + k + 8 * n, 8), *present |= 32;
    }
  if (ptrace(PTRACE_SETREGSET, child, (void *)NT_X86_XSTATE, &iov)) die("SETREGSET");
}

static void randomise(struct user_regs_struct *r, const struct place *p) {
  unsigned long long *general[16] = {&r->rax, &r->rcx, &r->rdx, &r->rbx, 0, &r->rbp, &r->rsi, &r->rdi,
                                     &r->r8, &r->r9, &r->r10, &r->r11, &r->r12, &r->r13, &r->r14, &r->r15};
  static const int bit[7] = {0, 2, 4, 6, 7, 11, 10};
  for (int n = 0; n < 16; n++)
    if (general[n] && p->general >> n & 1) *general[n] = any();
  for (int n = 0; n < 7; n++)
    if (p->flags >> n & 1) r->eflags ^= (any() & 1) << bit[n];
  if (p->low | p->upper | p->mask) randomise_vectors(p);
}

int main(int argc, char **argv) {
  if (argc < 7) return fprintf(stderr, "usage: liveness PLACES ENTRY SEED K SECONDS COMMAND ARGS...\n"), 125;
  uint64_t entry = strtoull(argv[2], 0, 10);
  seed = strtoull(argv[3], 0, 10);
  unsigned k = atoi(argv[4]);
  struct place *places = 0;
  size_t n = 0, room = 0;
  FILE *f = fopen(argv[1], "r");
  if (!f) die(argv[1]);
  struct place p = {0};
  while (fscanf(f, " {\"at\":%lu,\"general\":%lu,\"flags\":%lu,\"low\":%lu,\"upper\":%lu,\"mask\":%lu}", &p.at, &p.general,
                &p.flags, &p.low, &p.upper, &p.mask) == 6) {
    if (n == room) places = realloc(places, (room = room * 2 + 64) * sizeof *places);
    places[n++] = p;
  }
  if (!feof(f)) return fprintf(stderr, "%s: line %zu is none of ours\n", argv[1], n + 1), 125;
  fclose(f);
  qsort(places, n, sizeof *places, by_at);
  child = fork();
  if (!child) {
    personality(ADDR_NO_RANDOMIZE);
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    execv(argv[6], argv + 6);
    _exit(127);
  }
  signal(SIGALRM, late);
  alarm(atoi(argv[5]));
  int status;
  if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status)) die("exec");
  ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL);
  uint64_t bias = entry_of(child) - entry;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/mem", child);
  int mem = open(path, O_RDWR);
  for (size_t i = 0; i < n; i++) {
    places[i].wait = any() % k;
    if (pread(mem, &places[i].byte, 1, places[i].at + bias) != 1 || pwrite(mem, "\xcc", 1, places[i].at + bias) != 1) die("plant");
    places[i].armed = 1;
  }
  FILE *hits = fopen(getenv("HITS") ? getenv("HITS") : "/dev/null", "w");
  int pass = 0;
  struct place *step = 0;
  for (;;) {
    ptrace(step ? PTRACE_SINGLESTEP : PTRACE_CONT, child, 0, pass);
    pass = 0;
    if (waitpid(child, &status, 0) < 0) die("wait");
    if (WIFEXITED(status)) { fclose(hits); return WEXITSTATUS(status); }
    if (WIFSIGNALED(status)) { fclose(hits); return 128 + WTERMSIG(status); }
    int sig = WSTOPSIG(status);
    if (step) {
      if (pwrite(mem, "\xcc", 1, step->at + bias) != 1) die("plant again");
      step = 0;
      if (sig == SIGTRAP) {
        // The step may have ended on another place, whose int3 has not run yet.
        continue;
      }
    }
    if (sig == SIGTRAP) {
      struct user_regs_struct r;
      ptrace(PTRACE_GETREGS, child, 0, &r);
      struct place key = {.at = r.rip - 1 - bias}, *hit = bsearch(&key, places, n, sizeof key, by_at);
      if (hit && hit->armed) {
        if (pwrite(mem, &hit->byte, 1, hit->at + bias) != 1) die("take back");
        r.rip--;
        if (hit->wait-- == 0) {
          hit->armed = 0;
          randomise(&r, hit);
          fprintf(hits, "%lu\n", hit->at);
          fflush(hits);
        } else {
          step = hit;
        }
        if (ptrace(PTRACE_SETREGS, child, 0, &r)) die("SETREGS");
        continue;
      }
    }
    pass = sig;
  }
}
