"""What stands at the top of each random program: markers, counters that are mapped to a file, handlers of signals."""
PRELUDE = r'''
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <signal.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <fcntl.h>
#include <unistd.h>
#include <ucontext.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
typedef unsigned long ul;
#ifdef LONG_MARKS
#define ASM asm volatile
#else
#define ASM asm volatile inline
#endif
#define RECORD(line, kind) ".pushsection ecnt,\"aw\",@nobits\n8: .skip 8\n.popsection\n.pushsection eplaces,\"a\",@progbits\n.long 9b-.,8b-.," line "," kind "\n.popsection\n"
#define COUNT(line, kind) "9: lock incq 8f(%%rip)\n" RECORD(line, kind)
#define QUIET(line, kind) "9: movq 8f(%%rip),%%r11\nleaq 1(%%r11),%%r11\nmovq %%r11,8f(%%rip)\n" RECORD(line, kind)
/* A marker; one that stands behind what may not come back; one behind which v is unknown; one that touches no flag. */
#define P ASM(COUNT("%c0", "0") :: "i"(__LINE__) : "memory", "cc")
#define Q ASM(COUNT("%c0", "1") :: "i"(__LINE__) : "memory", "cc")
#define PV(v) ASM(COUNT("%c1", "0") : "+r"(v) : "i"(__LINE__) : "memory", "cc")
#define MIX(v) ((v) * 6364136223846793005ul + 1442695040888963407ul)
#define UNUSED __attribute__((unused))
struct frame { sigjmp_buf b; struct frame *up; };
#ifdef __cplusplus
#define LINKAGE extern "C"
#else
#define LINKAGE extern
#endif
#define SHARED LINKAGE __attribute__((visibility("default")))
SHARED __thread struct frame *top;
SHARED __thread int tries, skip, hits, forks, jump_ok, is_first;
SHARED __thread long fuel;
SHARED __thread ul sink;
SHARED volatile int end_in, arrived, never;
#if PART == 0
__thread struct frame *top;
__thread int tries, skip, hits, forks, jump_ok, is_first;
__thread long fuel = 80;
__thread ul sink;
volatile int end_in, arrived, never;
#endif
LINKAGE char __start_ecnt[] __attribute__((visibility("hidden"))), __stop_ecnt[] __attribute__((visibility("hidden")));
/* The counters become a file. No markers in here, nor calls of what has some. */
__attribute__((constructor(101))) static void map_counters(void) {
  char path[600], *own = getenv("OWN");
  int n = 0;
  if (!own) return;
  for (; own[n]; n++) path[n] = own[n];
  path[n] = '0' + PART; path[n + 1] = 0;
  ul len = __stop_ecnt - __start_ecnt;
  int fd = open(path, O_RDWR | O_CREAT, 0666);
  if (fd < 0 || write(fd, __start_ecnt, len) != (long)len) abort();
  if (mmap(__start_ecnt, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != __start_ecnt) abort();
  close(fd);
}
'''
# The first thing in the section of counters is as far from other things as the last: whole pages (`PAGES` ends them).
FIRST = 'asm(".pushsection ecnt,\\"aw\\",@nobits\\n.balign 4096\\n.popsection");\n'
PAGES = '.section ecnt,"aw",@nobits\n.skip 1\n.balign 4096\n.section .note.GNU-stack,"",@progbits\n'

HANDLERS = r'''
#ifdef __cplusplus
struct Thrown { ul v; };
struct Guard {
  ul v;
  ~Guard() { P; sink += v;
    if (v & 1) { P; sink++; }
    P; } };
#endif
static void UNUSED on_return(int s) { P; hits += s;
  if (hits & 1) { P; sink++; }
  P; }
static void UNUSED on_jump(int s) { P; hits += s;
  if (top) { P; siglongjmp(top->b, s); }
  P; }
static void UNUSED redirected(void) { P;
  if (top) { P; siglongjmp(top->b, 9); }
  P; _exit(79); }
static void UNUSED on_fault(int s, siginfo_t *i, void *c) { ucontext_t *u = (ucontext_t *)c;
  P; sink += s + (i->si_signo != s);
  if (skip > 0) { P; u->uc_mcontext.gregs[REG_RIP] += skip; skip = 0; return; }
  P;
  if (skip < 0 && top) { P; skip = 0; u->uc_mcontext.gregs[REG_RIP] = (long)redirected;
    u->uc_mcontext.gregs[REG_RSP] = ((u->uc_mcontext.gregs[REG_RSP] - 256) & -16) - 8; return; }
  P;
  if (top) { P; siglongjmp(top->b, s); }
  P; _exit(78); }
static void UNUSED on_alarm(int s) { P;
  if (jump_ok && top) { P; jump_ok = 0; siglongjmp(top->b, s); }
  P; hits++; }
static void UNUSED on_last(int s) { P; hits += s;
  if (s & 1) { P; _exit(41); }
  P; exit(42); }
static void UNUSED on_leave(int s) { P; hits += s; pthread_exit(0); }
static void UNUSED handle(int s, void (*h)(int)) { struct sigaction a;
  __builtin_memset(&a, 0, sizeof a); a.sa_handler = h; a.sa_flags = SA_NODEFER | SA_RESTART; sigaction(s, &a, 0); }
static void UNUSED handle_faults(int f) { struct sigaction a;
  __builtin_memset(&a, 0, sizeof a); a.sa_sigaction = on_fault; a.sa_flags = SA_NODEFER | SA_SIGINFO | f;
  sigaction(SIGSEGV, &a, 0); sigaction(SIGFPE, &a, 0); sigaction(SIGILL, &a, 0); sigaction(SIGTRAP, &a, 0); sigaction(SIGBUS, &a, 0); }
static void UNUSED other_stack(void) { stack_t t; __builtin_memset(&t, 0, sizeof t);
  t.ss_sp = malloc(65536); t.ss_size = 65536; sigaltstack(&t, 0); }
static void UNUSED alarm_in(long us) { struct itimerval v = {{0, 0}, {0, us}}; setitimer(ITIMER_REAL, &v, 0); }
static void UNUSED alarm_each(long us) { struct itimerval v = {{0, us}, {0, us}}; setitimer(ITIMER_REAL, &v, 0); }
static void UNUSED wait_for(int n) { while (arrived < n) sched_yield(); }
'''
