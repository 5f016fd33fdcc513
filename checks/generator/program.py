"""Random programs: which functions, which statements, how they end; and the text of all that is around the statements."""
import os, random
from generator.text import LATE, STUBS, Text

# What is left out, of all that programs and units may have besides what the first of them had: `new` for all
# of it.
WITHOUT = set(filter(None, os.environ.get("WITHOUT", "").split(",")))


def some(r, shares):
    """Some of what may be left out. The dice roll the same whatever is."""
    drawn = [what for what, share in shares if r.random() < share]
    return set() if "new" in WITHOUT else {what for what in drawn if what not in WITHOUT}


class S:
    """A statement: its kind, numbers that shape it, and bodies, which are lists of statements."""
    def __init__(self, kind, *numbers, bodies=()):
        self.kind, self.n, self.bodies = kind, numbers, [list(b) for b in bodies]


class Function:
    def __init__(self, name, shape, body, attributes, part):
        self.name, self.shape, self.body, self.attributes, self.part = name, shape, body, attributes, part
        self.symbol = None # what the linker knows it by, if not by its name


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
        # All counts of these are exact, but where `stopped` says otherwise:
        # library-faults: a signal handler leaves functions of libc that are sure to come back (strlen of a
        # bad pointer). wander: a timer's handler leaves loops anywhere, and functions of libc. A block that
        # has begun and not come to its marker counts for us alone: no more of these than the handler left.
        # late-ends: `exit` and `_exit` as handlers, and what ends while a timer's handler interrupts. One
        # thread is in the middle of a block then. odd-forks: processes by other calls than `fork` and
        # `vfork`. by-pointer: what ends and forks, called indirectly. stubs: faults before calls
        # through the PLT, whose stubs are counted. edges: branches that count themselves. What a
        # timer's handler leaves before it has jumped counts for them alone.
        more = self.more = random.Random(f"{seed} more")
        self.has |= some(more, [("library-faults", .4), ("wander", .1), ("late-ends", .3), ("odd-forks", .3), ("by-pointer", .3), ("stubs", .3), ("edges", .5)])
        if "library-faults" in self.has: self.has |= {"faults", "jumps"}
        if "stubs" in self.has: self.has |= {"faults", "jumps"}
        if "wander" in self.has: self.has |= {"timer", "jumps"}
        if "odd-forks" in self.has: self.has.add("fork")
        late = more.choice(list(LATE))
        if "late-ends" in self.has:
            self.has.add("ends")
            self.end = late
        self.stub, self.rounds = None, 1
        self.other_stack = r.random() < .3
        self.n_parts = parts

    def write(self):
        """Makes its functions, now that it is known what it has."""
        r, number, parts = self.r, self.number, self.n_parts
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

    def never_ends(self):
        """Leaves out what makes it end early, or has other threads and processes: the rest may go round and round."""
        self.has -= {"threads", "timer", "wander", "fork", "odd-forks", "ends", "late-ends", "atexit"}

    def late(self):
        """How many threads a signal ends in the middle of a block."""
        return int("ends" in self.has and self.end in LATE)

    def unmarked(self):
        """How many threads may be stopped in a block before its marker."""
        return self.stopped() - (self.late() and LATE[self.end].is_at_marker)

    def stopped(self):
        """How many threads are stopped in the middle of a block."""
        spins = self.crew == "spins" or self.crew == "cancelled" and self.end_in & 1
        return self.late() + (1 + self.end_in % 3 if "threads" in self.has and spins else 0)

    def parked(self):
        """How many threads wait at a call when the process ends."""
        return 1 + self.end_in % 3 if "threads" in self.has and self.crew == "parked" else 0

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
        if "library-faults" in has: flat += [("library-fault", 8)]
        if "wander" in has: flat += [("wander", 6)]
        if "stubs" in has: flat += [("stub", 6)]
        if "edges" in has: flat += [("edge", 6)]
        if "odd-forks" in has: flat += [("odd-fork", 3), ("clone", 2)]
        if "memory" in has: flat += [("memory", 6)]
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
            symbol = f' __asm__("{f.symbol}")' if f.symbol else ""
            out.append(f"SHARED {f.attributes}{self.head(f.name, False)}{symbol};")
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
            # Of `raise` itself, C++ knows that it throws nothing, and ends the process where pthread_exit
            # unwinds.
            out.append("  { static int (*volatile raises)(int) = raise; raises(SIGRTMIN); }\n  Q;")
        elif how == "cancelled":
            if self.end_in & 1:
                call = "pthread_setcanceltype"
                if "by-pointer" in self.has:
                    out.append(f"  static int (*volatile set)(int, int *) = {call};")
                    call = "set"
                out.append(f"  {{ int old; {call}(PTHREAD_CANCEL_ASYNCHRONOUS, &old); }}\n  Q; __sync_fetch_and_add(&arrived, 1);\n  while (!never) ;")
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
        if "signals" in has: out.append("  install_on_return(SIGUSR1); install_on_jump(SIGUSR2);\n  Q;")
        if "threads" in has: out.append("  install_on_leave(SIGRTMIN);\n  Q;")
        if "timer" in has: out.append("  install_on_alarm(SIGALRM); alarm_each(150);\n  Q;")
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
