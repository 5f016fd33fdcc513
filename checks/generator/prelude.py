"""What stands at the top of each random program: markers, counters that are mapped to a file, signal handlers."""
PRELUDE = r'''
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <signal.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
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
/* A marker; one that stands behind what may not come back; the same of some kind; one behind which v is unknown. */
#define P ASM(COUNT("%c0", "0") :: "i"(__LINE__) : "memory", "cc")
#define Q ASM(COUNT("%c0", "1") :: "i"(__LINE__) : "memory", "cc")
#define BEHIND(kind) ASM(COUNT("%c0", "%c1") :: "i"(__LINE__), "i"(kind) : "memory", "cc")
/* How often the branch at 5 goes to 7: whether it will is counted before it. */
#define EDGE(line) ".pushsection ecnt,\"aw\",@nobits\n6: .skip 8\n.popsection\n.pushsection eedges,\"a\",@progbits\n.long 5b-.,6b-.," line ",7b-.\n.popsection\n"
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
SHARED __thread int tries, skip, hits, forks, jump_ok, leave_malloc, is_first;
SHARED __thread long fuel;
SHARED __thread ul sink;
SHARED volatile int end_in, arrived, never;
SHARED char *volatile nowhere, *volatile number;
SHARED char *volatile far_text;
#if PART == 0
__thread struct frame *top;
__thread int tries, skip, hits, forks, jump_ok, leave_malloc, is_first;
__thread long fuel = 80;
__thread ul sink;
volatile int end_in, arrived, never;
/* A bad pointer; a number; a text whose end is far. */
static char zeros[1 << 18];
char *volatile nowhere = (char *)16, *volatile number = (char *)"1234567", *volatile far_text = zeros;
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
# The first thing in the section of counters is as far from other things as the last: whole pages (`PAGES`
# ends them).
FIRST = 'asm(".pushsection ecnt,\\"aw\\",@nobits\\n.balign 4096\\n.popsection");\n'
PAGES = '.section ecnt,"aw",@nobits\n.skip 1\n.balign 4096\n.section .note.GNU-stack,"",@progbits\n'

OBJECTS = r'''
#ifdef __cplusplus
struct Thrown { ul v; };
struct Guard {
  ul v;
  ~Guard() { P; sink += v;
    if (v & 1) { P; sink++; }
    P; } };
#endif
'''

# What the program does about signals, and where the addresses of its handlers are: in code, in a table, or in
# what `sigaction` takes.
HANDLERS = r"""
HANDLER void on_return(int s) { P; hits += s;
  if (hits & 1) { P; sink++; }
  P; }
HANDLER void on_jump(int s) { P; hits += s;
  if (top) { P; siglongjmp(top->b, s); }
  P; }
static void UNUSED redirected(void) { P;
  if (top) { P; siglongjmp(top->b, 9); }
  P; _exit(79); }
HANDLER void on_fault(int s, siginfo_t *i, void *c) { ucontext_t *u = (ucontext_t *)c;
  P; sink += s + (i->si_signo != s);
  if (skip > 0) { P; u->uc_mcontext.gregs[REG_RIP] += skip; skip = 0; return; }
  P;
  if (skip < 0 && top) { P; skip = 0; u->uc_mcontext.gregs[REG_RIP] = (long)redirected;
    u->uc_mcontext.gregs[REG_RSP] = ((u->uc_mcontext.gregs[REG_RSP] - 256) & -16) - 8; return; }
  P;
  if (top) { P; siglongjmp(top->b, s); }
  P; _exit(78); }
HANDLER void on_alarm(int s) { P;
  if (jump_ok == 2 && top) { BEHIND(2); jump_ok = 0; siglongjmp(top->b, s); }
  P;
  if (jump_ok == 3 && top) { BEHIND(4); jump_ok = 0; siglongjmp(top->b, s); }
  P;
  if (jump_ok && top) { P; jump_ok = 0; siglongjmp(top->b, s); }
  P; hits++; }
HANDLER void on_late(int s) { P; hits += s;
  if (hits & 1) { P; sink++; }
  P; _exit(43); }
HANDLER void on_last(int s) { P; hits += s;
  if (s & 1) { P; _exit(41); }
  P; exit(42); }
HANDLER void on_leave(int s) { P; hits += s; pthread_exit(0); }
"""
NAMES = ["on_return", "on_jump", "on_alarm", "on_late", "on_last", "on_leave"]


def handlers(defined_in, installed_in, way):
    """Handlers and what installs them: in the part that is named, for the other part too, or in each part by itself (`None`).

    With `way` "table" or "data", no code has the address of one."""
    def shared(part, text, declared):
        linkage = "SHARED" if part is not None else "static UNUSED"
        return f"#if {1 if part is None else f'PART == {part}'}\n{text(linkage)}\n#else\n{declared}\n#endif\n"
    faults = "void on_fault(int s, siginfo_t *i, void *c)"
    declared = "".join(f"SHARED void {name}(int s);\n" for name in NAMES) + f"SHARED {faults};"
    of_handlers = shared(defined_in, lambda linkage: f"#define HANDLER {linkage}\n{HANDLERS}", declared)
    declared = "".join(f"SHARED void install_{name}(int s);\n" for name in NAMES) + "SHARED void handle_faults(int f);"
    return of_handlers + shared(installed_in, lambda linkage: installers(linkage, way), declared)


def installers(linkage, way):
    flags, plain, out = "SA_NODEFER | SA_RESTART", "static const struct sigaction", []
    if way == "table":
        rows = ", ".join(f"{{{n}, {name}}}" for n, name in enumerate(NAMES))
        out.append(f"static const struct {{ int n; void (*h)(int); }} handler_table[] = {{{rows}}};")
        out.append("static const struct { int n; void (*h)(int, siginfo_t *, void *); } fault_table[] = {{0, on_fault}};")
        out.append('static int UNUSED hidden(int n) { asm volatile("" : "+r"(n)); return n; }')
    for n, name in enumerate(NAMES):
        if way == "data":
            out.append(f"{plain} of_{name} = {{{{{name}}}, {{}}, {flags}, 0}};")
            out.append(f"{linkage} void install_{name}(int s) {{ sigaction(s, &of_{name}, 0); }}")
        else:
            at = f"handler_table[hidden({n})].h" if way == "table" else name
            out.append(f"{linkage} void install_{name}(int s) {{ struct sigaction a;\n  __builtin_memset(&a, 0, sizeof a); a.sa_handler = {at}; a.sa_flags = {flags}; sigaction(s, &a, 0); }}")
    if way == "data":
        rows = ", ".join(f"{{{{(void (*)(int))on_fault}}, {{}}, SA_NODEFER | SA_SIGINFO | {f}, 0}}" for f in ("0", "SA_ONSTACK"))
        out.append(f"{plain} of_faults[] = {{{rows}}};")
        out.append(f"{linkage} void handle_faults(int f) {{ const struct sigaction *a = &of_faults[!!f];")
    else:
        at = "fault_table[hidden(0)].h" if way == "table" else "on_fault"
        out.append(f"{linkage} void handle_faults(int f) {{ struct sigaction b, *a = &b;\n  __builtin_memset(a, 0, sizeof b); b.sa_sigaction = {at}; b.sa_flags = SA_NODEFER | SA_SIGINFO | f;")
    out.append("  sigaction(SIGSEGV, a, 0); sigaction(SIGFPE, a, 0); sigaction(SIGILL, a, 0); sigaction(SIGTRAP, a, 0); sigaction(SIGBUS, a, 0); }")
    return "\n".join(out)


# The program's own functions for memory: one that may leave, and does not come back then.
MEMORY = r"""
static char arena[1 << 26] __attribute__((aligned(16)));
static ul arena_used;
SHARED void *malloc(size_t n) { P;
  if (leave_malloc && top) { P; leave_malloc = 0; siglongjmp(top->b, 6); }
  ul at = __sync_fetch_and_add(&arena_used, (n + 47) & -16);
  P;
  if (at + n + 64 > sizeof arena) { P; return 0; }
  P; *(ul *)(arena + at) = n; return arena + at + 16; }
SHARED void free(void *p) { P;
  if (p) { P; sink++; }
  P; }
SHARED void *calloc(size_t n, size_t m) { P; return malloc(n * m); }
SHARED void *realloc(void *p, size_t n) { P; char *q = (char *)malloc(n);
  Q;
  if (p && q) { P; ul had = ((ul *)p)[-2]; memcpy(q, p, had < n ? had : n); }
  P; return q; }
"""

HELPERS = r'''
static void UNUSED other_stack(void) { stack_t t; __builtin_memset(&t, 0, sizeof t);
  t.ss_sp = malloc(65536); t.ss_size = 65536; sigaltstack(&t, 0); }
static int UNUSED cloned(void *p) { P;
  if (p) { P; sink++; }
  P; return 3; }
static void UNUSED alarm_in(long us) { struct itimerval v = {{0, 0}, {0, us}}; setitimer(ITIMER_REAL, &v, 0); }
static void UNUSED alarm_each(long us) { struct itimerval v = {{0, us}, {0, us}}; setitimer(ITIMER_REAL, &v, 0); }
static void UNUSED wait_for(int n) { while (arrived < n) sched_yield(); }
'''
