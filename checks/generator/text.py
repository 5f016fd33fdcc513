"""The source text of statements."""
import collections

# Functions of libc that nothing else in a unit calls, so that their stubs' counts are known: what calls them.
STUBS = {"getuid": "getuid()", "getpgrp": "(getpgrp() & 0)", "rand": "rand()", "strspn": "strspn(number, number + 2)", "strcspn": "strcspn(number, number + 2)",
         "strpbrk": "(strpbrk(number, number + 3) != 0)"}

# Ways to end by a signal, at any moment or in the middle of a block: the text; whether the thread came to the
# block's marker.
Late = collections.namedtuple("Late", "text is_at_marker")
ROUND = "for (;;) { P; x += strlen(far_text); x = MIX(x);\n  if (x >> 9 & 1) { P; sink++; }\n  P; }"
FAULT = 'ASM(COUNT("%c1", "0") "movq (%0),%0\\n" : "+r"(t) : "i"(__LINE__) : "memory", "cc");'
LATE = {
    "fault-exit": Late(f"signal(SIGSEGV, (void (*)(int))exit);\n  Q; t = 0; {FAULT}", True),
    "fault-_exit": Late(f"signal(SIGSEGV, (void (*)(int))_exit);\n  Q; t = 0; {FAULT}", True),
    "strlen-_exit": Late("signal(SIGSEGV, (void (*)(int))_exit);\n  Q; sink += strlen(nowhere);", True),
    "raise-exit": Late("signal(SIGUSR1, (void (*)(int))exit);\n  Q; raise(SIGUSR1);", True),
    "alarm-_exit": Late(f"signal(SIGALRM, (void (*)(int))_exit); alarm_in(300);\n  Q; {ROUND}", False),
    "alarm-handler": Late(f"install_on_late(SIGALRM); alarm_in(300);\n  Q; {ROUND}", False),
}


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
        elif s.kind == "library-fault":
            call = ["t += strlen(nowhere);", "memcpy(nowhere, &t, (x & 63) + 1);", "memcpy(&t, nowhere, (x & 7) + 1);", "memset(nowhere, 1, (x & 63) + 1);",
                    "t += strcmp(nowhere, number);", "t += strtol(nowhere, 0, 10);", "t += (ul)memchr(nowhere, 3, x | 1);"][n % 7]
            say(f"if (top && {self.cond(n // 7)}) {{ P; {call}")
            say("Q; x++; }"); say("P;")
        elif s.kind == "wander":
            if self.shape in ("main", "plain"):
                # Left in the library nearly always, or in small blocks.
                say(f"if (top && is_first) {{ P; jump_ok = {3 if n & 1 else 2};\n  for (;;) {{ P; x = MIX(x) >> 1;")
                if n & 1:
                    say("x += strlen(far_text);"); say("Q; }")
                else:
                    say(f"if ({self.cond(n)}) {{ P; x ^= x >> 7; if ({self.cond(n // 5)}) {{ P; continue; }}"); say(f"P; }} else {{ P; x += {m}; }}")
                    say(f"P; for (ul i{u} = x & 3; i{u}; i{u}--) {{ P; x ^= x << 9; }}"); say("P; }")
                say("}"); say("P;")
        elif s.kind == "stub":
            if p.stub:
                say(f"{{ ul v = x, *at = top && {self.cond(n)} ? (ul *)0 : &v;")
                say('ASM(COUNT("%c1", "0") "movq (%0),%0\\n" : "+r"(at) : "i"(__LINE__) : "memory", "cc");')
                say(f"BEHIND({1 + ((1 + list(STUBS).index(p.stub)) << 8)}); t = {STUBS[p.stub]}; asm volatile(\"\" : \"+r\"(t));"); say("Q; x ^= t; }"); say("P;")
        elif s.kind == "edge":
            # Whether it will branch is counted before it does: forward, or back.
            count = "movzbl %b1,%k1\\nlock addq %1,6f(%%rip)\\n"
            if n & 1:
                text = f'"testb ${m | 1},%b0\\nsetnz %b1\\n{count}testb ${m | 1},%b0\\n5: jnz 7f\\n" COUNT("%c2", "0") "7: " COUNT("%c2", "0") EDGE("%c2")'
                say(f'{{ ul c; asm volatile({text} : "+q"(x), "=&q"(c) : "i"(__LINE__) : "memory", "cc");')
            else:
                text = f'"7: " COUNT("%c3", "0") "decq %2\\nsetnz %b1\\n{count}testq %2,%2\\n5: jnz 7b\\n" EDGE("%c3")'
                say(f'{{ ul c, d = (x >> 3 & 3) + 1; asm volatile({text} : "+q"(x), "=&q"(c), "+r"(d) : "i"(__LINE__) : "memory", "cc");')
            say("P; }")
        elif s.kind == "memory":
            say(f"if (top && {self.cond(n)}) {{ void *at; P; leave_malloc = 1; at = malloc(x & 63); asm volatile(\"\" :: \"r\"(at) : \"memory\");")
            say("Q; leave_malloc = 0; x++; }"); say("P;")
        elif s.kind == "clone":
            say("if (forks++ < 5) { int status = 0; pid_t child; char *stack = (char *)malloc(65536);")
            say(f"P; child = clone(cloned, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, {'stack' if n & 1 else '0'});"); say("Q; waitpid(child, &status, 0);")
            say("Q; free(stack); x ^= status; }"); say("P;")
        elif s.kind in ("fork", "odd-fork"):
            make = "fork()"
            if s.kind == "odd-fork":
                make = "syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)" if n & 4 else "by_pointer()"
            by_pointer = "static pid_t (*volatile by_pointer)(void) = fork; " if make == "by_pointer()" else ""
            say(f"if (forks++ < 3) {{ int status = 0; pid_t child; {by_pointer}P; child = {make};"); say("Q; if (!child) { fuel = 15; forks = 100; is_first = 0; end_in = 0; top = 0; tries = 0;")
            if not getattr(self, "in_child", False):
                self.in_child = True; self.inner(p.child); self.in_child = False
            # A thread of the parent may hold a lock that `exit` takes; the C library sees to that where it
            # makes the child itself.
            ends = ["_exit(x & 31)", "_exit(x & 31)" if "SYS_clone" in make else "exit(x & 31)", "kill(getpid(), SIGKILL)", "abort()"]
            say(f"P; {ends[n % 4]}; }}")
            say("P; waitpid(child, &status, 0);"); say("Q; x ^= status; }"); say("P;")
        elif s.kind == "vfork":
            say("if (forks++ < 5) { int status = 0; pid_t child; P; child = vfork();"); say("Q; if (!child) { P; _exit(3); }"); say("P; waitpid(child, &status, 0);"); say("Q; x ^= status; }"); say("P;")
        elif s.kind == "coroutine":
            if self.shape in ("main",):
                say(f"{{ void *stack = malloc(1 << 20); int i; volatile ul kept = x; P; getcontext(&there{k});")
                say(f"Q; there{k}.uc_stack.ss_sp = stack; there{k}.uc_stack.ss_size = 1 << 20; there{k}.uc_link = &here{k}; makecontext(&there{k}, coroutine{k}, 0);")
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
               "handler": f"install_on_last(SIGHUP); install_on_last(SIGQUIT); P; raise({'SIGHUP' if p.end_in & 1 else 'SIGQUIT'});",
               "terminate": "throw 1L;", "thread": "pthread_exit(0);", **{name: late.text for name, late in LATE.items()}}[p.end]
        if "by-pointer" in p.has and p.end in ("exit", "_exit", "quick_exit"):
            how = f"static void (*volatile end_by)(int) = {p.end}; end_by(25);"
        # Once, by whoever comes first: but not in a thread, since others run.
        if self.shape == "thread" or getattr(self, "in_child", False):
            return
        say(f"if (end_in > 0 && !--end_in) {{ P; {how}")
        say("Q; }")
        say("P;")
