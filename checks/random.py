"""random.py ENGRAFT FOLDER N SEED [PLACE]: what random.sh runs. See there.

A unit is a translation unit with several programs, each of which runs as a process of its own: argv[1] says which. PLACE (UNIT or
UNIT.PROGRAM) makes and runs that one only.

A program's own counts: at many places it has a marker, `lock incq` of a counter that belongs to that very instruction. Copies that the
compiler makes (inlining, unrolling) so have counters of their own. Records in section `eplaces` say where each marker and its counter are.
The counters are mapped to a file, so they outlive whatever happens. Nothing of this knows what Engraft does.

What is held: the first marker of a block counts as often as the block. The next ones, too, unless a marker says that it stands behind something that may
not come back. Each source-level block begins with a marker, and so does what stands before a call; thus no call stands between a
block's start and its first marker.
"""
import bisect, collections, csv, json, os, random, shutil, signal, struct, subprocess, sys

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


class S:
    """A statement: its kind, numbers that shape it, and bodies, which are lists of statements."""
    def __init__(self, kind, *numbers, bodies=()):
        self.kind, self.n, self.bodies = kind, numbers, [list(b) for b in bodies]


class Function:
    def __init__(self, name, shape, body, attributes, part):
        self.name, self.shape, self.body, self.attributes, self.part = name, shape, body, attributes, part


class Program:
    """One program: its functions, what kind of things happen in it, and how it ends."""
    def __init__(self, seed, number, cxx, parts):
        r = self.r = random.Random(seed)
        self.number, self.cxx, self.n = number, cxx, 0
        self.has = {what for what, share in [
            ("jumps", .5), ("throws", .6 if cxx else 0), ("signals", .4), ("faults", .35), ("threads", .3), ("fork", .2), ("contexts", .1),
            ("timer", .06), ("ends", .5), ("atexit", .2)] if r.random() < share}
        if self.has & {"signals", "faults"} and r.random() < .7:
            self.has.add("jumps")
        self.end = r.choice(["exit", "_exit", "quick_exit", "abort", "kill", "term", "group", "crash", "handler", "terminate" if cxx else "exit", "thread"])
        self.crew = r.choice(["ends", "leaves", "cancelled", "spins", "leaves-by-signal", "parked"])
        if self.end == "thread" and self.crew in ("spins", "parked"):
            self.crew = "leaves" # else nobody ends the process
        self.end_in = r.randrange(1, 12)
        self.other_stack = r.random() < .3
        # Everything that another thread, or a signal at any moment, may do otherwise the next time.
        self.repeats = "timer" not in self.has and not ("threads" in self.has and "ends" in self.has)
        self.names = [f"f{number}_{i}" for i in range(r.randrange(2, 9))]
        self.plain = []
        shapes = ["plain" if i == 0 or r.random() < .65 else r.choice(["many", "varargs", "struct", "float"]) for i in range(len(self.names))]
        self.shapes = dict(zip(self.names, shapes))
        self.plain = [n for n in self.names if self.shapes[n] == "plain"]
        self.functions = [Function(n, self.shapes[n], self.block(r.choice([1, 2, 2, 3])), self.attributes(), r.randrange(parts)) for n in self.names]
        self.worker = self.block(2)
        self.coroutine = self.block(1)
        self.child = self.block(1)
        self.main = [S("call", r.randrange(1 << 30), r.randrange(99)) for _ in range(r.randrange(1, 4))] + self.block(2)

    def stopped(self):
        """How many threads are stopped in the middle of a block."""
        spins = self.crew == "spins" or self.crew == "cancelled" and self.end_in & 1
        return 1 + self.end_in % 3 if "threads" in self.has and spins else 0

    def is_over(self, status):
        """Whether all of its threads are known to have ended at a call."""
        return status < 128 and not ("threads" in self.has and self.crew in ("spins", "parked"))

    def attributes(self):
        r = self.r
        return r.choice(["", "", "__attribute__((noinline)) ", "__attribute__((noinline)) ", "__attribute__((cold)) ", "__attribute__((hot)) ",
                         "__attribute__((noinline, noclone)) ", "__attribute__((flatten)) ", "__attribute__((aligned(1))) "])

    def block(self, depth):
        return [self.statement(depth) for _ in range(self.r.choice([1, 1, 2, 2, 3]))]

    def statement(self, depth):
        r, has = self.r, self.has
        flat = [("mix", 6), ("call", 8), ("pointer", 4), ("return", 2), ("tail", 2), ("indirect-tail", 1), ("break", 2), ("continue", 1), ("stack", 2),
                ("copy", 1), ("flags", 2), ("jrcxz", 1), ("string", 1), ("cycle", 1), ("quiet", 1)]
        if "jumps" in has: flat += [("longjmp", 4), ("die", 2)]
        if "throws" in has: flat += [("throw", 5), ("guard-call", 2), ("noexcept", 1)]
        if "signals" in has: flat += [("raise", 4), ("raise-jump", 3 if "jumps" in has else 0)]
        if "faults" in has: flat += [("fault", 6), ("skip", 3), ("redirect", 2 if "jumps" in has else 0)]
        if "fork" in has: flat += [("fork", 2), ("vfork", 1)]
        if "contexts" in has: flat += [("coroutine", 4), ("getcontext", 2)]
        if "timer" in has and "jumps" in has: flat += [("spin", 3)]
        if "ends" in has: flat += [("end", 5)]
        deep = [("if", 8), ("else", 8), ("for", 5), ("while", 3), ("do", 3), ("switch", 5), ("sparse", 2), ("interpreter", 3), ("goto", 3), ("irreducible", 3),
                ("duff", 1), ("and", 2), ("likely", 2)]
        if "jumps" in has: deep += [("setjmp", 12)]
        if "throws" in has: deep += [("try", 14), ("guard", 4)]
        kinds = flat + deep if depth > 0 else flat
        kind = r.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        n = {"else": 2, "switch": r.randrange(3, 10), "sparse": r.randrange(3, 6), "interpreter": 3, "goto": 2, "irreducible": 2, "duff": 3, "setjmp": 2,
             "try": r.choice([2, 2, 3])}.get(kind, 1 if kind in dict(deep) else 0)
        return S(kind, r.randrange(1 << 30), r.randrange(99), bodies=[self.block(depth - 1) for _ in range(n)])

    def text(self):
        """The program's source."""
        k, out = self.number, []
        for f in self.functions:
            out.append(f"SHARED {f.attributes}{self.head(f.name, False)};")
        out.append(f"SHARED ul die{k}(ul a) __attribute__((noreturn));")
        table = ", ".join(self.r2(i) for i in range(4))
        out.append(f"static ul (*const volatile table{k}[4])(ul) = {{{table}}};")
        for f in self.functions:
            out.append(f"#if PART == {f.part}")
            out.append(f"SHARED {f.attributes}{self.head(f.name, True)} {{ ul x = {self.first(f.shape)}, t UNUSED = 0;\n  P;")
            out.append("  if (fuel-- < 0) { P; return " + self.back(f.shape) + "; }")
            Text(self, out, f.shape, False).body(f.body)
            out.append(f"  P; return {self.back(f.shape)}; }}\n#endif")
        out.append("#if PART == 0")
        out.append(f"SHARED ul die{k}(ul a) {{ P;\n  if (top && a & 1) {{ P; siglongjmp(top->b, 2); }}\n  P;")
        if self.cxx:
            out.append("  if (tries) { P; throw (int)a; }\n  P;")
        out.append("  if (top) { P; longjmp(top->b, 3); }\n  P; _exit(80); }")
        out.append(f"static ucontext_t here{k}, there{k};")
        out.append(f"static void UNUSED coroutine{k}(void) {{ ul x = 5, t UNUSED = 0; struct frame *saved = top; int level = tries; top = 0; tries = 0;\n  P;")
        Text(self, out, "void", True).body(self.coroutine)
        out.append(f"  top = saved; tries = level; P; swapcontext(&there{k}, &here{k});\n  Q; (void)x; }}")
        self.write_worker(out)
        self.write_main(out)
        out.append("#endif")
        return "\n".join(out) + "\n"

    def r2(self, i):
        return self.plain[i % len(self.plain)]

    def head(self, name, named):
        return {"plain": f"ul {name}(ul a)", "many": f"ul {name}(ul a, int b, ul c, ul d, char e, ul f, ul g, ul h, double i)",
                "varargs": f"ul {name}(ul a, ...)", "struct": f"struct big {name}(ul a, struct big b)", "float": f"double {name}(double d, ul a)"}[self.shapes[name]]

    def first(self, shape):
        return {"plain": "a", "many": "a + b + c + d + e + f + g + h + (ul)i", "varargs": "a", "struct": "a + b.v[3]", "float": "a + (ul)(long)d"}.get(shape, "a")

    def back(self, shape):
        return {"plain": "x", "many": "x", "varargs": "x", "struct": "big_of(x)", "float": "(double)(x & 0xffff)"}.get(shape, "x")

    def call(self, name):
        return {"plain": f"{name}(t)", "many": f"{name}(t, 2, t + 1, 4, 'c', t, 7, t ^ 8, 2.5)", "varargs": f"{name}(t, 1, 2.5, t)",
                "struct": f"{name}(t, big_of(t)).v[1]", "float": f"(ul){name}(1.5, t)"}[self.shapes[name]]

    def write_worker(self, out):
        k, how = self.number, self.crew
        out.append(f"static void *UNUSED worker{k}(void *p) {{ ul x = (ul)p, t UNUSED = 0;\n  P; fuel = 40;")
        Text(self, out, "thread", True).body(self.worker)
        out.append("  P;")
        if how == "leaves":
            out.append("  pthread_exit((void *)x);")
        elif how == "leaves-by-signal":
            out.append("  raise(SIGRTMIN);\n  Q;")
        elif how == "cancelled":
            if self.end_in & 1:
                out.append("  { int old; pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old); }\n  Q; __sync_fetch_and_add(&arrived, 1);\n  while (!never) ;")
            else:
                out.append("  __sync_fetch_and_add(&arrived, 1);\n  for (;;) { P; pause();\n  Q; }")
        elif how == "spins":
            out.append("  __sync_fetch_and_add(&arrived, 1);\n  while (!never) ;")
        elif how == "parked":
            out.append("  __sync_fetch_and_add(&arrived, 1);\n  while (!never) pause();")
        out.append("  P; return (void *)x; }")

    def write_main(self, out):
        k, has = self.number, self.has
        out.append(f"static ul run{k}(void) {{ ul x = {self.r3()}ul, t UNUSED = 0; is_first = 1;\n  P;")
        if self.other_stack and has & {"faults", "signals"}: out.append("  other_stack();\n  Q;")
        flag = "SA_ONSTACK" if self.other_stack else "0"
        if "faults" in has: out.append(f"  handle_faults({flag});\n  Q;")
        if "signals" in has: out.append("  handle(SIGUSR1, on_return); handle(SIGUSR2, on_jump);\n  Q;")
        if "threads" in has: out.append("  handle(SIGRTMIN, on_leave);\n  Q;")
        if "timer" in has: out.append("  handle(SIGALRM, on_alarm); alarm_each(150);\n  Q;")
        if "atexit" in has: out.append(f"  atexit(last{k});\n  Q;")
        if "ends" in has and "threads" not in has: out.append(f"  end_in = {self.end_in};")
        n = 1 + self.end_in % 3
        if "threads" in has:
            out.append(f"  {{ pthread_t all[{n}]; int i;\n  P;\n  for (i = 0; i < {n}; i++) {{ P; pthread_create(&all[i], 0, worker{k}, (void *)(x + i));\n    Q; }}\n  P;")
            if self.crew == "cancelled":
                out.append(f"  wait_for({n});\n  Q;\n  for (i = 0; i < {n}; i++) {{ P; pthread_cancel(all[i]);\n    Q; }}")
            if self.crew in ("spins", "parked"):
                out.append(f"  wait_for({n});\n  Q;")
            else:
                out.append(f"  for (i = 0; i < {n}; i++) {{ void *v; P; pthread_join(all[i], &v);\n    Q; x ^= (ul)v; }}")
            out.append("  P; }")
            if "ends" in has: out.append(f"  end_in = {self.end_in};")
        t = Text(self, out, "main", True)
        if "timer" in has:
            out.append("  for (int go = 0; go < 200; go++) { P; fuel = 80;")
            t.body(self.main)
            out.append("  P; }\n  P; alarm_each(0);\n  Q;")
        else:
            t.body(self.main)
        out.append("  P; return x; }")

    def r3(self):
        return self.end_in * 7919 + self.number * 104729 + 12345


class Text:
    """Writes statements as source. What does not fit where it stands is left out, so that any part of a program is one."""
    def __init__(self, program, out, shape, is_apart):
        self.p, self.out, self.shape, self.is_apart = program, out, shape, is_apart
        self.loops, self.kept = [], 0

    def say(self, line):
        self.out.append("  " + line)

    def body(self, statements):
        for s in statements:
            self.statement(s)

    def inner(self, statements, pad="  P;"):
        self.out.append(pad)
        self.body(statements)

    def cond(self, n):
        c = [f"x >> {n % 13} & 1", f"x % {n % 7 + 2} == {n % 2}", f"(x & {n % 61 + 1}) != 0", f"(long)(x << {n % 50}) < 0", f"(unsigned)x > {n}u",
             f"(double)(x & 1023) * .5 > {n % 300}.0", f"(x >> {n % 17} & 3) == {n % 3}"]
        return c[n // 99 % len(c)]

    def loop(self, name, statements):
        self.loops.append((name, self.kept))
        self.inner(statements)
        self.loops.pop()

    def statement(self, s):
        p, say, k, n, m = self.p, self.say, self.p.number, s.n[0], s.n[1]
        p.n += 1
        u = f"{k}_{p.n}"
        b = s.bodies
        one = lambda: say(f"x = MIX(x) ^ x >> {n % 29 + 3};")
        if s.kind == "mix":
            one()
        elif s.kind in ("call", "guard-call"):
            name = p.names[n % len(p.names)]
            say(f"t = x + {m}; PV(t); t = {p.call(name)};")
            say("Q; x = MIX(x ^ t);")
        elif s.kind == "noexcept":
            say(f"t = x + {m}; PV(t); t = [](ul t) noexcept {{ return tries < 0 ? t : MIX(t); }}(t);")
            say("Q; x ^= t;")
        elif s.kind == "pointer":
            say(f"t = x ^ {m}; {{ ul (*go)(ul) = table{k}[x >> {n % 5} & 3]; PV(t); t = go(t); }}")
            say("Q; x = MIX(x ^ t);")
        elif s.kind == "return":
            if not self.kept and not self.is_apart:
                say(f"if ({self.cond(n)} && x & 2) {{ P; return {p.back(self.shape)}; }}")
                say("P;")
        elif s.kind in ("tail", "indirect-tail"):
            if not self.kept and self.shape == "plain":
                say(f"if ({self.cond(n)} && x & 4) {{ t = x + {m}; PV(t);")
                if s.kind == "tail":
                    say(f"  return {p.plain[n % len(p.plain)]}(t); }}")
                else:
                    say(f"  return table{k}[t & 3](t); }}")
                say("P;")
        elif s.kind in ("break", "continue"):
            if self.loops and self.loops[-1][1] == self.kept and (s.kind == "break" or self.loops[-1][0]):
                say(f"if ({self.cond(n)}) {{ P; {s.kind}; }}")
                say("P;")
        elif s.kind == "stack":
            size = [40, 300, 5000, 70000][n % 4]
            if n & 4:
                say(f"{{ char *big = (char *)__builtin_alloca(16 + (x & {min(size, 4000)})); big[x & 15] = x; asm volatile(\"\" :: \"r\"(big) : \"memory\"); x += big[1] & 1; P; }}"
                    if False else f"{{ char *big = (char *)__builtin_alloca(16 + (x & {min(size, 4000)})); big[x & 15] = 1; asm volatile(\"\" :: \"r\"(big) : \"memory\"); P; }}")
            else:
                say(f"{{ volatile char big[{size}]; big[x % {size}] = 1; x += big[x % {size}]; P; }}")
        elif s.kind == "copy":
            say(f"{{ ul from[8] = {{x, t}}, to[8]; asm volatile(\"\" :: \"r\"(from) : \"memory\"); P; __builtin_memcpy(to, from, (x & 7) * 8 + 8); asm volatile(\"\" :: \"r\"(to) : \"memory\"); x ^= to[0]; }}")
        elif s.kind == "flags":
            say("{ ul v = x; asm volatile(\"cmpb $%c1,%b0\\njc 1f\\nnop\\n1: jz 2f\\nja 3f\\n2: nop\\n3: adcq $3,%0\" : \"+r\"(v) : \"i\"(" + str(m) + ") : \"cc\"); x = v;")
            say("P; }")
        elif s.kind == "jrcxz":
            say("asm volatile(\"jrcxz 7f\\n\" COUNT(\"%c1\", \"0\") \"6: \" COUNT(\"%c1\", \"0\") \"loop 6b\\n7: \" COUNT(\"%c1\", \"0\") : : \"c\"(x & 3), \"i\"(__LINE__) : \"memory\", \"cc\");"
                .replace('"c"(x & 3)', '"c"(x & 3)') if False else
                "{ ul c = x & 3; asm volatile(\"jrcxz 7f\\n\" COUNT(\"%c1\", \"0\") \"6: \" COUNT(\"%c1\", \"0\") \"loop 6b\\n7: \" COUNT(\"%c1\", \"0\") : \"+c\"(c) : \"i\"(__LINE__) : \"memory\", \"cc\"); }")
        elif s.kind == "string":
            say("{ char area[64]; void *d = area; ul c = x & 31; asm volatile(\"rep stosb\" : \"+D\"(d), \"+c\"(c) : \"a\"(1) : \"memory\"); P; x += area[0] == 1 && (x & 31); }")
        elif s.kind == "cycle":
            say("{ ul c = (x & 7) + 1, v = x; asm volatile(\"6: \" COUNT(\"%c2\", \"0\") \"addq $5,%0\\ndecq %1\\njnz 6b\\n\" : \"+r\"(v), \"+r\"(c) : \"i\"(__LINE__) : \"memory\", \"cc\"); x = v;")
            say("P; }")
        elif s.kind == "quiet":
            # Flags live across a block whose marker keeps them.
            if not p.has & {"threads", "timer", "fork"}:
                say("{ ul v = x; asm volatile(\"addq $3,%0\\njo 7f\\n\" QUIET(\"%c1\", \"0\") \"jc 7f\\n\" QUIET(\"%c1\", \"0\") \"7: adcq $0,%0\" : \"+r\"(v) : \"i\"(__LINE__) : \"memory\", \"cc\", \"r11\"); x = v;")
                say("P; }")
        elif s.kind == "if":
            say(f"if ({self.cond(n)}) {{"); self.inner(b[0]); say("}"); say("P;")
        elif s.kind == "likely":
            say(f"if (__builtin_expect({self.cond(n)}, {n & 1})) {{"); self.inner(b[0]); say("}"); say("P;")
        elif s.kind == "else":
            say(f"if ({self.cond(n)}) {{"); self.inner(b[0]); say("} else {"); self.inner(b[1]); say("}"); say("P;")
        elif s.kind == "and":
            say(f"if ({self.cond(n)} && {self.cond(n // 7)} || {self.cond(n // 11)}) {{"); self.inner(b[0]); say("}"); say("P;")
        elif s.kind == "for":
            say(f"for (ul i{u} = 0; i{u} < (x & 3) + {n % 3} && i{u} < 6 && fuel-- > -300; i{u}++) {{"); self.loop("for", b[0]); say("}"); say("P;")
        elif s.kind == "while":
            say(f"{{ ul i{u} = x & 7; while (i{u} && fuel-- > -300) {{ i{u}--;"); self.loop("while", b[0]); say("} }"); say("P;")
        elif s.kind == "do":
            say(f"{{ ul i{u} = x & 3; do {{"); self.loop("do", b[0]); say(f"}} while (i{u}-- && fuel-- > -300); }}"); say("P;")
        elif s.kind in ("switch", "sparse"):
            # A `continue` in here is one of the loop around it.
            say(f"switch (x >> {n % 9} {'&' if s.kind == 'switch' else '%'} {15 if s.kind == 'switch' else 7919}) {{")
            for i, body in enumerate(b):
                at = i if s.kind == "switch" else [0, 3, 77, 1500, 7000, 7001][i]
                say(f"case {at}:" if i or n & 8 else f"case {at}: case {at + 11}:")
                self.loops.append(("", self.kept))
                self.inner(body)
                self.loops.pop()
                if (n >> i) & 1: say("break;")
            say("default:"); say("P; x++; }"); say("P;")
        elif s.kind == "interpreter":
            say(f"{{ static const void *const to{u}[] = {{&&a{u}, &&b{u}, &&c{u}, &&d{u}}}; int i{u} = 0; P; goto *to{u}[x & 3];")
            for label, body in zip("abc", b):
                say(f"{label}{u}:"); self.inner(body)
                say(f"if (i{u}++ < {n % 9}) {{ x = MIX(x) >> 3; P; goto *to{u}[x & 3]; }}"); say("P;")
            say(f"d{u}:"); say("P; }")
        elif s.kind == "goto":
            say(f"if ({self.cond(n)}) {{ P; goto a{u}; }}"); self.inner(b[0])
            say(f"if ({self.cond(n // 3)}) {{ P; goto b{u}; }}"); say(f"a{u}:"); self.inner(b[1]); say(f"b{u}:"); say("P;")
        elif s.kind == "irreducible":
            say(f"{{ int i{u} = x & 3; if ({self.cond(n)}) {{ P; goto b{u}; }}"); say(f"P; a{u}:"); self.inner(b[0]); say(f"b{u}:"); self.inner(b[1])
            say(f"if (i{u}-- > 0 && fuel-- > -300) {{ P; goto {'ab'[n & 1]}{u}; }}"); say(f"P; if (i{u}-- > -2) {{ P; goto a{u}; }}"); say("P; }")
        elif s.kind == "duff":
            say(f"{{ int i{u} = 1 + (x & 7) / 3; switch (x & 3) {{ case 0: do {{")
            self.loops.append(("", self.kept))
            self.inner(b[0]); say("case 1:"); self.inner(b[1]); say("case 2:"); self.inner(b[2]); say("default:")
            self.loops.pop()
            say(f"P; }} while (--i{u} > 0); }} }}"); say("P;")
        elif s.kind == "setjmp":
            how = ["sigsetjmp(fr.b, 1)", "sigsetjmp(fr.b, 0)", "_setjmp(fr.b)"][n % 3]
            say(f"{{ struct frame fr; volatile ul kept = x; int level = tries; fr.up = top;"); say(f"P; if (!{how}) {{ top = &fr; tries = 0;")
            self.kept += 1; self.inner(b[0]); self.kept -= 1
            say("P; top = fr.up; tries = level; } else { top = fr.up; tries = level; x = kept + 1;"); self.inner(b[1]); say("} }"); say("P;")
        elif s.kind == "longjmp":
            say(f"if (top && {self.cond(n)}) {{ P; {'siglongjmp' if n & 1 else 'longjmp'}(top->b, {n % 5}); }}"); say("P;")
        elif s.kind == "die":
            say(f"if ((top || tries) && {self.cond(n)}) {{ t = x; PV(t); die{k}(t); }}"); say("P;")
        elif s.kind == "try":
            say("{ struct frame *saved = top; int level = tries; P; try { top = 0; tries = level + 1;")
            self.kept += 1; self.inner(b[0]); self.kept -= 1
            say("P; top = saved; tries = level; } catch (int e) { top = saved; tries = level;"); say("P; x += e;"); self.inner(b[1]) if False else None
            self.kept += 1; self.body(b[1]); self.kept -= 1
            if len(b) == 3:
                say("P; } catch (Thrown &e) { top = saved; tries = level;"); say("P; x ^= e.v;")
                self.kept += 1; self.body(b[2]); self.kept -= 1
                if n & 1: say("if (level > 0 && x & 1) { P; throw; }")
            elif n & 2:
                say("P; } catch (...) { top = saved; tries = level;"); say("P; if (level > 0) { P; throw; }"); say("P; x++;")
            else:
                say("P; } catch (Thrown &e) { top = saved; tries = level; P; x ^= e.v;")
            say("P; } }"); say("P;")
        elif s.kind == "guard":
            say(f"{{ Guard g{u}{{x}}; (void)g{u};")
            self.kept += 1; self.inner(b[0]); self.kept -= 1
            say("P; }"); say("P;")
        elif s.kind == "throw":
            say(f"if (tries > 0 && {self.cond(n)}) {{ P; {'throw (int)x' if n & 1 else 'throw Thrown{x}'}; }}"); say("P;")
        elif s.kind == "raise":
            say("P; raise(SIGUSR1);"); say("Q;")
        elif s.kind == "raise-jump":
            say(f"if ({self.cond(n)}) {{ P; raise(SIGUSR2);"); say("Q; }"); say("P;")
        elif s.kind in ("fault", "skip", "redirect"):
            # Behind the marker, in a plain block. One that is skipped has a length of its own.
            what, length = [("ud2", 2), ("idivl %%ecx", 2), ("movq %%rax,(%%rcx)", 3), ("int3", 0)][n % 4]
            if s.kind == "fault":
                say(f"if (top && {self.cond(n)}) {{")
            elif s.kind == "skip":
                say(f"if ({self.cond(n)}) {{ skip = {length};" if length else "{")
                if not length: say("}"); return
            else:
                say(f"if (top && {self.cond(n)}) {{ skip = -1;")
            say(f"ASM(COUNT(\"%c0\", \"0\") \"{what}\\n\" :: \"i\"(__LINE__), \"c\"(0), \"a\"(1), \"d\"(0) : \"memory\", \"cc\");")
            say("Q; x++; }"); say("P;")
        elif s.kind == "fork":
            say("if (forks++ < 3) { int status = 0; pid_t child; P; child = fork();"); say("Q; if (!child) { fuel = 15; forks = 100; is_first = 0; end_in = 0; top = 0; tries = 0;")
            if not getattr(self, "in_child", False):
                self.in_child = True; self.inner(p.child); self.in_child = False
            say(f"P; {['_exit(x & 31)', 'exit(x & 31)', 'kill(getpid(), SIGKILL)', 'abort()'][n % 4]}; }}")
            say("P; waitpid(child, &status, 0);"); say("Q; x ^= status; }"); say("P;")
        elif s.kind == "vfork":
            say("if (forks++ < 5) { int status = 0; pid_t child; P; child = vfork();"); say("Q; if (!child) { P; _exit(3); }"); say("P; waitpid(child, &status, 0);"); say("Q; x ^= status; }"); say("P;")
        elif s.kind == "coroutine":
            if self.shape in ("main",):
                say(f"{{ void *stack = malloc(65536); int i; volatile ul kept = x; P; getcontext(&there{k});")
                say(f"Q; there{k}.uc_stack.ss_sp = stack; there{k}.uc_stack.ss_size = 65536; there{k}.uc_link = &here{k}; makecontext(&there{k}, coroutine{k}, 0);")
                say(f"Q; for (i = 0; i < {1 + n % 2}; i++) {{ P; swapcontext(&here{k}, &there{k});"); say("Q; }"); say("P; free(stack); x = kept; }"); say("P;")
        elif s.kind == "getcontext":
            if self.shape == "main" or self.shape == "plain":
                say("{ ucontext_t c; volatile int times = 0; volatile ul kept = x; P; getcontext(&c);"); say(f"Q; x = kept; if (times++ < {n % 3}) {{ P; setcontext(&c); }}"); say("P; }")
        elif s.kind == "spin":
            if self.shape in ("main", "plain"):
                say("if (top && is_first) { P; jump_ok = 1; while (!never) ; }" if n & 1 else "if (top && is_first) { P; jump_ok = 1; asm volatile(\"1: pause; jmp 1b\"); }"); say("P;")
        elif s.kind == "end":
            self.end(u)
        else:
            raise AssertionError(s.kind)

    def end(self, u):
        p, say, k = self.p, self.say, self.p.number
        how = {"exit": "exit(21);", "_exit": "_exit(22);", "quick_exit": "quick_exit(23);", "abort": "abort();", "kill": "kill(getpid(), SIGKILL);",
               "term": "raise(SIGTERM);", "group": "syscall(SYS_exit_group, 24);", "crash": "signal(SIGILL, SIG_DFL); P; asm volatile(\"ud2\");",
               "handler": f"handle(SIGHUP, on_last); handle(SIGQUIT, on_last); P; raise({'SIGHUP' if p.end_in & 1 else 'SIGQUIT'});",
               "terminate": "throw 1L;", "thread": "pthread_exit(0);"}[p.end]
        # Once, by whoever comes first: but not in a thread, since others run.
        if self.shape == "thread" or getattr(self, "in_child", False):
            return
        say(f"if (end_in > 0 && !--end_in) {{ P; {how}")
        say("Q; }")
        say("P;")


class Unit:
    """A translation unit, and how it is built."""
    def __init__(self, seed, number, n_programs):
        r = random.Random(f"{seed} {number}")
        self.seed, self.number = seed, number
        self.cxx = r.random() < .4
        self.parts = 2 if r.random() < .15 else 1
        self.programs = [Program(f"{seed} {number} {k}", k, self.cxx, self.parts) for k in range(n_programs)]
        f = [r.choice(["-O0", "-O1", "-O1", "-O2", "-O2", "-O3", "-Os"])]
        f += [r.choice(["-fPIE -pie", "-fPIE -pie", "-fno-pie -no-pie"])]
        for flag, share in [("-funroll-loops", .1), ("-fomit-frame-pointer", .1), ("-fno-omit-frame-pointer", .1), ("-fno-jump-tables", .1), ("-fcf-protection=none", .2),
                            ("-fcf-protection=full", .1), ("-mno-red-zone", .05), ("-fstack-protector-all", .1), ("-fstack-clash-protection", .1), ("-fno-plt", .1),
                            ("-Wl,-z,now", .2), ("-ffunction-sections", .1), ("-DLONG_MARKS", .5), ("-fno-inline", .1), ("-fno-reorder-blocks-and-partition", .1),
                            ("-fnon-call-exceptions", .1), ("-finline-functions", .1), ("-fno-optimize-sibling-calls", .1), ("-g", .1), ("-s", .15), ("-fpatchable-function-entry=2", .02),
                            ("-falign-functions=1", .1), ("-fno-asynchronous-unwind-tables", .1 if not self.cxx else 0), ("-march=haswell", .1), ("-fsanitize-undefined-trap-on-error -fsanitize=undefined", .02)]:
            if r.random() < share:
                f += flag.split()
        if self.parts == 1 and r.random() < .04:
            f = [x for x in f if "pie" not in x.lower()] + ["-static" if r.random() < .6 or self.cxx else "-static-pie -fPIE"]
        self.flags = " ".join(f).split()
        self.tool = ("g++" if self.cxx else "gcc")
        if shutil.which("clang") and r.random() < .3:
            self.tool = "clang++" if self.cxx else "clang"
        self.modules = "all" if self.parts == 2 or r.random() < .1 else "exe"
        self.all_blocks = r.random() < .1

    def text(self, programs):
        out = [PRELUDE, FIRST, HANDLERS, "struct big { ul v[6]; };\nstatic struct big UNUSED big_of(ul x) { struct big b = {{x, x + 1, x, x, x, 5}}; return b; }\n"]
        for p in programs:
            p.n = 0
            out.append(f"static void UNUSED last{p.number}(void) {{ P; sink++; }}\n")
            out.append(p.text())
        out.append("#if PART == 0\nint main(int argc, char **argv) { ul x = 0; char said[20]; int n = 0;\n  P; (void)argc;\n  switch (atoi(argv[1])) {\n")
        for p in programs:
            out.append(f"  case {p.number}:\n  P; x = run{p.number}();\n  Q; break;\n")
        out.append("  }\n  P; for (; n < 16; n++) said[n] = 'a' + (x >> 4 * n & 15);\n  said[n] = '\\n'; if (write(1, said, 17) != 17) return 1;\n  return x & 15; }\n#endif\n")
        return "".join(out)


class Failed(Exception):
    pass


# What is run: `trace`, whose blocks are counted, in place of `count`.
VERB = os.environ.get("VERB", "count")


class Bench:
    def __init__(self, engraft, folder):
        self.engraft, self.folder = engraft, folder
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/pages.s", "w") as out:
            out.write(PAGES)
        subprocess.run(["gcc", "-c", "pages.s", "-o", "pages.o"], cwd=folder, check=True)
        self.n_held = self.n_lost = self.n_marks = self.n_wide = self.n_between = 0
        self.kinds = collections.Counter()

    def build(self, unit, programs, folder):
        os.makedirs(folder, exist_ok=True)
        source = "p.cc" if unit.cxx else "p.c"
        with open(f"{folder}/{source}", "w") as out:
            out.write(unit.text(programs))
        common = [unit.tool, "-w", *["-fpermissive"] * unit.cxx, source, *unit.flags, f"{self.folder}/pages.o", "-pthread"]
        commands = [[*common, "-DPART=0", "-o", "p"]]
        if unit.parts == 2:
            library = [f for f in common if "pie" not in f.lower()]
            commands = [[*library, "-DPART=1", "-fPIC", "-shared", "-o", "libp.so", "-ftls-model=initial-exec"],
                        [*common, "-DPART=0", "-o", "p", "./libp.so", "-rdynamic"]]
        for command in commands:
            ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if ran.returncode:
                raise AssertionError(" ".join(command) + "\n" + ran.stderr[-3000:])
        self.command = " && ".join(map(" ".join, commands))
        names = ["p", "libp.so"][:unit.parts]
        return {os.path.realpath(f"{folder}/{name}"): (part, marks(f"{folder}/{name}")) for part, name in enumerate(names)}

    def run(self, folder, command, own):
        for part in "01":
            if os.path.exists(f"{folder}/{own}{part}"):
                os.remove(f"{folder}/{own}{part}")
        env = {**os.environ, "OWN": f"{folder}/{own}"}
        out = open(f"{folder}/{own}.out", "w+b")
        run = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, env=env, start_new_session=True)
        try:
            status = run.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            status = "too long"
        out.seek(0)
        return (status if status == "too long" or status >= 0 else 128 - status), out.read()

    def hold(self, unit, program, places, folder):
        """Runs one program and says what differs: a list of lines."""
        k, said = program.number, []
        plain = self.run(folder, ["./p", str(k)], "plain")
        if plain[0] == "too long":
            return None
        for options in [[]] + [["--all-blocks"]] * (unit.all_blocks and VERB == "count"):
            if os.path.exists(f"{folder}/r.engraft"):
                os.remove(f"{folder}/r.engraft")
            counted = self.run(folder, [self.engraft, VERB, "-q", *options, "--modules", unit.modules, "-o", "r.engraft", "--", "./p", str(k)], "own")
            if plain[0] != counted[0] or program.repeats and plain[1] != counted[1]:
                said.append(f"ended otherwise: plain {plain}, counted {counted}")
                continue
            if any(os.path.exists(f"{folder}/plain{part}") != os.path.exists(f"{folder}/own{part}") for part in "01"):
                said.append("counters were not mapped")
                continue
            made = subprocess.run([self.engraft, "convert", "-q", "r.engraft", "-o", "r.csv"], cwd=folder, capture_output=True, text=True)
            if made.returncode:
                said.append(f"not read: {made.stderr}")
                continue
            blocks = collections.defaultdict(list)
            for image, function, start, end, n in list(csv.reader(open(f"{folder}/r.csv")))[1:]:
                blocks[os.path.realpath(os.path.join(folder, image))].append((int(start, 16), int(end, 16), int(n), function))
            stopped, said_stopped = program.stopped(), 0
            for path, (part, all_marks) in places.items():
                own = open(f"{folder}/own{part}", "rb").read()
                n_stopped, between = self.intervals(folder, path)
                said_stopped = max(said_stopped, n_stopped)
                said += self.judge(f"{' '.join(options)}", all_marks, own, sorted(blocks[path]), between, stopped)
            # Threads that are there at the end may be in the middle of a block; of others it is known that they are not.
            self.n_wide += said_stopped > 0 and not stopped and program.is_over(counted[0])
        return said

    def intervals(self, folder, path):
        """How many threads may have been stopped in the middle of a block, and per block the least and the most of its count."""
        if VERB == "trace":
            return 0, {}
        made = [self.engraft, "convert", "-q", "r.engraft", "-o", "r.json", "--binary", path]
        if subprocess.run(made, cwd=folder, capture_output=True).returncode:
            return 0, {} # nothing of it ran
        profile = json.load(open(f"{folder}/r.json"))
        return profile.get("n_stopped", 0), {int(b["at"], 16): (b["at_least"], b["at_most"]) for b in profile["blocks"] if "at_least" in b}

    def judge(self, how, all_marks, own, blocks, between, stopped):
        """`stopped` threads were stopped in the middle of a block: each may have entered one block and not come to its marker."""
        unmarked = 0
        said, starts, i = [], [b[0] for b in blocks], 0
        rows = collections.defaultdict(list)
        for at, counter, line, kind in all_marks:
            n = struct.unpack_from("<Q", own, counter)[0]
            at_row = bisect.bisect_right(starts, at) - 1
            self.n_marks += n
            if at_row < 0 or at >= blocks[at_row][1]:
                self.n_lost += n
            else:
                rows[at_row].append((at, n, line, kind))
        for at_row, inside in sorted(rows.items()):
            start, end, ours, function = blocks[at_row]
            inside.sort()
            first = inside[0][1]
            least, most = between.get(start, (ours, ours)) if stopped else (ours, ours)
            if VERB == "trace" and stopped:
                least -= stopped # a block that has begun is in a trace
            unmarked += max(0, least - first) if stopped else 0
            if inside[0][3]:
                least = min(least, first) # behind a call, which need not have come back
            if not least <= first <= most and (not stopped or first > most or unmarked > stopped):
                said.append(f"{how} {function} {start:#x}: {ours}, its own {first} (line {inside[0][2]} at {inside[0][0]:#x})")
            self.n_held += 1
            self.n_between += least != most
            behind = inside[0][3]
            for at, n, line, kind in inside[1:]:
                behind |= kind
                if n != first and not behind:
                    said.append(f"{how} {function} {start:#x}: a block, but its markers are not: {first} at {inside[0][0]:#x} (line {inside[0][2]}), {n} at {at:#x} (line {line})")
        return said


def marks(path):
    """The markers of a file: address, offset of the counter, line, kind."""
    file = open(path, "rb").read()
    at, n, names_at = struct.unpack_from("<Q", file, 0x28)[0], *struct.unpack_from("<HH", file, 0x3c)
    sections = [struct.unpack_from("<IIQQQQIIQQ", file, at + 64 * i) for i in range(n)]
    names = sections[names_at][4]
    named = {file[names + s[0]:file.index(b"\0", names + s[0])].decode(): s for s in sections}
    place, counters = named["eplaces"], named["ecnt"]
    found = []
    for i in range(0, place[5], 16):
        mark, counter, line, kind = struct.unpack_from("<iiII", file, place[4] + i)
        found.append((place[3] + i + mark, place[3] + i + 4 + counter - counters[3], line, kind))
    return found


def bodies_of(program):
    """All lists of statements in it."""
    def under(statements):
        yield statements
        for s in statements:
            for b in s.bodies:
                yield from under(b)
    for f in program.functions:
        yield from under(f.body)
    for b in (program.worker, program.coroutine, program.child, program.main):
        yield from under(b)


def shrink(bench, unit, program, folder):
    """Leaves out statement after statement for as long as something differs; returns what does in the end."""
    def fails():
        try:
            return any(bench.hold(unit, program, bench.build(unit, [program], folder), folder) for _ in range(1 if program.repeats else 3))
        except AssertionError:
            return False
    if not fails():
        return None
    tried, progress = 0, True
    while progress and tried < 400:
        progress = False
        for body in list(bodies_of(program)):
            i = 0
            while i < len(body) and tried < 400:
                gone = body[i]
                for instead in [[]] + gone.bodies:
                    body[i:i + 1] = instead
                    tried += 1
                    if fails():
                        progress = True
                        break
                    body[i:i + len(instead)] = [gone]
                else:
                    i += 1
    return bench.hold(unit, program, bench.build(unit, [program], folder), folder)


def main():
    engraft, folder, n, seed = sys.argv[1:5]
    only = sys.argv[5] if len(sys.argv) > 5 else None
    per_unit = int(os.environ.get("PER_UNIT", 8))
    bench = Bench(engraft, folder)
    n, done, failed, slow, broken = int(n), 0, 0, 0, 0
    lost = []
    number = int(only.split(".")[0]) if only else int(os.environ.get("FIRST", 0))
    while done < n:
        unit = Unit(seed, number, per_unit)
        programs = [p for p in unit.programs if not only or "." not in only or p.number == int(only.split(".")[1])]
        here = f"{folder}/unit"
        shutil.rmtree(here, ignore_errors=True)
        try:
            places = bench.build(unit, programs, here)
        except AssertionError as err:
            # As g++ 12 does at times with labels whose addresses are taken.
            broken += 1
            print(f"the compiler makes no program of unit {number}: {str(err).splitlines()[-1]}")
            if broken > 3 + number // 50 or only:
                raise
            number += 1
            continue
        for program in programs:
            before = bench.n_lost
            said = bench.hold(unit, program, places, here)
            done += 1
            for what in program.has:
                bench.kinds[what] += 1
            if said is None:
                slow += 1
                print(f"takes too long: {number}.{program.number}")
                continue
            if bench.n_lost > before and len(lost) < 5:
                lost.append(f"{number}.{program.number} ({' '.join(unit.flags)}): {bench.n_lost - before} executions of markers")
            if said:
                failed += 1
                name = f"{number}.{program.number}"
                print(f"FAILED: seed {seed}, program {name}: {' '.join(unit.flags)}, {program.has}, ends by {program.end}, workers {program.crew}")
                print("\n".join("    " + line for line in said[:8]), flush=True)
                if os.environ.get("SHRINK", "1") == "1":
                    kept = f"{folder}/{name}"
                    less = shrink(bench, unit, program, kept)
                    print(f"  made smaller: {kept}: {bench.command}" if less else f"  alone, it does not fail: {kept}")
                    print("\n".join("    " + line for line in (less or [])[:8]), flush=True)
            if done >= n or failed >= int(os.environ.get("STOP_AFTER", 10)):
                break
        if failed >= int(os.environ.get("STOP_AFTER", 10)):
            break
        number += 1
        if only:
            break
    share = 1 - bench.n_lost / max(1, bench.n_marks)
    print(f"{done} programs of seed {seed}, {failed} differ, {slow} left out since they take too long; {bench.n_held} blocks held against their own counts, {bench.n_between} of them in intervals; {bench.n_wide} programs have intervals without need; "
          f"{100 * share:.4f} % of {bench.n_marks} executions of markers counted")
    for line in lost:
        print("  not counted: " + line)
    print("  " + ", ".join(f"{n} with {what}" for what, n in bench.kinds.most_common()))
    ok = not failed and slow * 100 <= done and share > .98 and bench.n_held > 10 * done and bench.n_wide * 10 <= done
    sys.exit(not ok)


if __name__ == "__main__":
    main()
