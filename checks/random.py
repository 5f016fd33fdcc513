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
import bisect, collections, csv, json, os, random, resource, shutil, signal, struct, subprocess, sys

sys.dont_write_bytecode = True
from generator.prelude import FIRST, HELPERS, MEMORY, OBJECTS, PAGES, PRELUDE, handlers
from generator.program import Program, some
from generator.text import STUBS


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
        self.decide_more(random.Random(f"{seed} {number} more"))

    def decide_more(self, r):
        """Of what units of before did not have. All counts are exact.

        two-parts: a library, more often. addresses: those of handlers are in a table or in what `sigaction` takes alone. shared-handlers: they are in one of two parts, for both. exe-alone: the library
        is not counted. names: functions with names of libc's. memory: a `malloc` that may leave. long: one program that runs long, so that how it ran decides what has
        counters the next time; it is counted twice."""
        has = self.has = some(r, [("addresses", .6), ("two-parts", .3), ("shared-handlers", .6), ("exe-alone", .3), ("names", .4), ("memory", .2), ("long", .3)])
        # The linker has stubs in static programs, too, which this calls past.
        self.calls_stubs = "-fno-plt" not in self.flags
        is_static = any("-static" in flag for flag in self.flags)
        if "two-parts" in has and not is_static:
            self.parts, self.modules = 2, "all"
        if self.parts == 1:
            has -= {"two-parts", "shared-handlers", "exe-alone"}
        if is_static:
            has.discard("memory")
        self.addresses = r.choice(["table", "data"]) if "addresses" in has else "code"
        self.handlers_in, self.installed_in = (r.randrange(2), r.randrange(2)) if "shared-handlers" in has else (None, None)
        if "exe-alone" in has:
            self.modules = "exe"
            if self.handlers_in is not None:
                self.handlers_in = 0 # what handlers leave that are not counted is not seen
        self.is_long = "long" in has
        if self.is_long:
            self.programs = self.programs[:1]
        stubs = list(STUBS)
        r.shuffle(stubs)
        for p, stub in zip(self.programs, stubs):
            p.stub = stub
        self.memory_in = r.randrange(self.parts) if "memory" in has else None
        for p in self.programs:
            if self.memory_in is not None:
                p.has |= {"memory", "jumps"}
            if self.is_long:
                p.never_ends()
                p.rounds = r.choice([300, 1500])
            p.n_parts = self.parts
            p.write()
        names = r.sample(LIBC_NAMES, 10)
        for name in names if "names" in has else []:
            plain = [f for p in self.programs for f in p.functions if f.shape == "plain"]
            r.choice(plain).symbol = name

    def may_end_by_handler(self):
        """Whether the address of what ends a process is in it."""
        return any(p.has & {"late-ends", "by-pointer"} for p in self.programs)

    def text(self, programs):
        out = [PRELUDE, FIRST, OBJECTS, handlers(self.handlers_in, self.installed_in, self.addresses), HELPERS]
        if self.memory_in is not None:
            out.append(f"#if PART == {self.memory_in}{MEMORY}#endif\n")
        out += ["struct big { ul v[6]; };\nstatic struct big UNUSED big_of(ul x) { struct big b = {{x, x + 1, x, x, x, 5}}; return b; }\n"]
        for p in programs:
            p.n = 0
            out.append(f"static void UNUSED last{p.number}(void) {{ P; sink++; }}\n")
            out.append(p.text())
        out.append("#if PART == 0\nint main(int argc, char **argv) { ul x = 0; char said[20]; int n = 0;\n  P; (void)argc;\n  switch (atoi(argv[1])) {\n")
        for p in programs:
            run = f"P; x = run{p.number}();\n  Q;"
            if p.rounds > 1:
                run = f"for (int go = 0; go < {p.rounds}; go++) {{ ul before = x; fuel = 80; {run} x ^= MIX(before); }}"
            out.append(f"  case {p.number}:\n  P; {run} break;\n")
        out.append("  }\n  P; for (; n < 16; n++) said[n] = 'a' + (x >> 4 * n & 15);\n  said[n] = '\\n'; if (write(1, said, 17) != 17) return 1;\n  return x & 15; }\n#endif\n")
        return "".join(out)


# What linkers may take for functions of libc and libm that come back, or never do.
LIBC_NAMES = ["log", "round", "exp2", "hypot", "lround", "trunc", "cbrt", "tan", "err", "errx", "verr", "verrx"]


def large_stack():
    """Some functions have frames of a megabyte, and do not come to their marker where the stack ends."""
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 28, resource.RLIM_INFINITY))


# What is run: `trace`, whose blocks are counted, in place of `count`.
VERB = os.environ.get("VERB", "count")


class Bench:
    def __init__(self, engraft, folder):
        self.engraft, self.folder = engraft, folder
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/pages.s", "w") as out:
            out.write(PAGES)
        subprocess.run(["gcc", "-c", "pages.s", "-o", "pages.o"], cwd=folder, check=True)
        self.n_edges = self.n_stubs = self.n_forgiven = 0
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
                        [*common, "-DPART=0", "-o", "p", "-Wl,--no-as-needed", "./libp.so", "-rdynamic"]]
        for command in commands:
            ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if ran.returncode:
                raise AssertionError(" ".join(command) + "\n" + ran.stderr[-3000:])
        self.command = " && ".join(map(" ".join, commands))
        names = ["p", "libp.so"][:unit.parts]
        return {os.path.realpath(f"{folder}/{name}"): places(f"{folder}/{name}", part) for part, name in enumerate(names)}

    def run(self, folder, command, own):
        for part in "01":
            if os.path.exists(f"{folder}/{own}{part}"):
                os.remove(f"{folder}/{own}{part}")
        env = {**os.environ, "OWN": f"{folder}/{own}"}
        out = open(f"{folder}/{own}.out", "w+b")
        run = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, env=env, start_new_session=True, preexec_fn=large_stack)
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
        edges_of = {}
        for options in [[]] * (1 + unit.is_long) + [["--all-blocks"]] * (unit.all_blocks and VERB == "count"):
            if os.path.exists(f"{folder}/r.engraft"):
                os.remove(f"{folder}/r.engraft")
            counted = self.run(folder, [self.engraft, VERB, "-q", *options, "--modules", unit.modules, "-o", "r.engraft", "--", "./p", str(k)], "own")
            is_other = lambda run: run[0] != counted[0] or program.repeats and run[1] != counted[1]
            # Some end otherwise from run to run by themselves: as this one did, or at least with its status
            # and other output each time.
            if is_other(plain):
                again = []
                while len(again) < 9 and counted not in again:
                    again.append(self.run(folder, ["./p", str(k)], "plain"))
                varies = any(run[0] == counted[0] for run in again) and any(run != plain for run in again)
                if counted not in again and not varies:
                    said.append(f"ended otherwise: plain {plain}, counted {counted}")
                    continue
                self.n_forgiven += 1
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
            owns = {path: Own(places[path], f"{folder}/own{places[path].part}") for path in places}
            unmarked = program.unmarked() + sum(own.n_left() for own in owns.values())
            # Where the stack ends, a function is entered and does not come to its marker.
            unmarked += counted[0] == 128 + signal.SIGSEGV
            for path, own in owns.items():
                if unit.modules == "exe" and places[path].part:
                    continue
                n_stopped, between, edges = self.intervals(folder, path)
                said_stopped = max(said_stopped, n_stopped)
                how, rows = " ".join(options), sorted(blocks[path])
                # Where a signal comes in a library, it may not be known which call led there; and who waits
                # at a call may not have come to it.
                may_doubt = stopped or program.parked() or program.has & {"signals", "faults", "library-faults", "timer"}
                if not may_doubt:
                    between, n_stopped = {}, 0
                said += self.judge(how, own, rows, between, stopped, program.late(), program.parked(), unmarked, unit.calls_stubs)
                said += self.judge_edges(how, own, rows, edges, max(stopped, n_stopped) + unmarked)
                # Counted again, with counters elsewhere. What has no markers, as libc in a static program,
                # may run otherwise.
                if edges and program.repeats and not stopped and not n_stopped:
                    marked = {rows[bisect.bisect_right(rows, (m[0], 1 << 64)) - 1][3] for m in own.marks if rows}
                    edges = {at: n for at, n in edges.items() if rows[bisect.bisect_right(rows, (at[0], 1 << 64)) - 1][3] in marked}
                    first = edges_of.setdefault(path, edges)
                    said += [f"{how} edge {at[0]:#x} to {at[1]:#x}: {first.get(at)}, and {edges.get(at)} the next time" for at in sorted(first.keys() | edges.keys()) if first.get(at) != edges.get(at)]
            # Threads that are there at the end may be in the middle of a block; of others it is known that
            # they are not. Of some, a signal handler may have been `exit`.
            is_doubtful = unit.may_end_by_handler() and 1 <= counted[0] <= 64
            self.n_wide += said_stopped > 0 and not stopped and not is_doubtful and program.is_over(counted[0])
        return said

    def intervals(self, folder, path):
        """How many threads may have been stopped in the middle of a block; per block the least and the most of its count; the edges' counts."""
        if VERB == "trace":
            return 0, {}, {}
        made = [self.engraft, "convert", "-q", "r.engraft", "-o", "r.json", "--binary", path]
        made = subprocess.run(made, cwd=folder, capture_output=True, text=True)
        if made.returncode:
            if "holds nothing of" not in made.stderr:
                sys.exit(f"{folder}: {made.stderr}")
            return 0, {}, {} # nothing of it ran
        profile = json.load(open(f"{folder}/r.json"))
        between = {int(b["at"], 16): (b["at_least"], b["at_most"]) for b in profile["blocks"] if "at_least" in b}
        return profile.get("n_stopped", 0), between, {(int(e["from"], 16), int(e["to"], 16)): e["count"] for e in profile["edges"]}

    def judge(self, how, own, blocks, between, stopped, late, parked, may_be_unmarked, calls_stubs):
        """`stopped` threads were stopped in the middle of a block, `late` of them in what ends the process, and `parked` at a call; so many blocks may have been entered by threads that did not come to the marker."""
        unmarked = 0
        said, starts, i = [], [b[0] for b in blocks], 0
        rows = collections.defaultdict(list)
        stubs = collections.Counter()
        for at, n, line, kind in own.marks:
            stubs[kind >> 8] += n
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
            least, most = between.get(start, (ours, ours))
            if VERB == "trace":
                # A block that has begun is in a trace; what ran behind the last event of a thread that was
                # there at the end is not. Of those that run a worker's function, and what it calls, this is
                # what lacks; without symbols, it may be any.
                is_worker = "worker" in function or function.startswith(("f", "_Z"))
                least, most = least - stopped, most + late + (stopped - late + parked) * is_worker
            if inside[0][3] & 1:
                least = min(least, first) # behind a call, which need not have come back
            unmarked += max(0, least - first)
            if not least <= first <= most and (first > most or unmarked > may_be_unmarked):
                said.append(f"{how} {function} {start:#x}: {ours}, its own {first} (line {inside[0][2]} at {inside[0][0]:#x})")
            self.n_held += 1
            self.n_between += least != most
            behind = inside[0][3] & 1
            for at, n, line, kind in inside[1:]:
                behind |= kind & 1
                if n != first and not behind and not may_be_unmarked:
                    said.append(f"{how} {function} {start:#x}: a block, but its markers are not: {first} at {inside[0][0]:#x} (line {inside[0][2]}), {n} at {at:#x} (line {line})")
        for n, name in enumerate(STUBS, 1):
            ran = [between.get(start, (ours, ours)) for start, _, ours, function in blocks if function == f"{name}@plt"]
            if stubs[n] and calls_stubs and len(ran) == 1 and VERB == "count" and not may_be_unmarked:
                self.n_stubs += 1
                if not ran[0][0] <= stubs[n] <= ran[0][1]:
                    said.append(f"{how} {name}@plt: {ran[0]}, its own {stubs[n]}")
        return said

    def judge_edges(self, how, own, blocks, edges, n_between):
        """Those that count themselves; and that no more come to a block than it ran (more may leave it: fork comes back twice). But for so many that are in between."""
        said, starts, into = [], [b[0] for b in blocks], collections.Counter()
        def row(at):
            found = bisect.bisect_right(starts, at) - 1
            return blocks[found] if found >= 0 and at < blocks[found][1] else None
        for (start, to), n in edges.items():
            into[to] += n
        for at, n, line, to in own.edges if edges else []:
            if row(at):
                self.n_edges += 1
                start, _, _, function = row(at)
                ours = edges.get((start, to), 0)
                if abs(ours - n) > n_between:
                    said.append(f"{how} {function} edge {start:#x} to {to:#x}: {ours}, its own {n} (line {line} at {at:#x})")
        seen = set()
        for at, n, line, kind in sorted(own.marks):
            start, _, ours, function = row(at) or (None, 0, 0, "")
            if start not in seen and n == ours and not kind & 1 and into[start] > n + n_between:
                said.append(f"{how} {function} {start:#x}: {into[start]} come to it, its own {n} (line {line} at {at:#x})")
            seen.add(start)
        return said


class Own:
    """What a program counted itself: markers (address, count, line, kind), and edges (address of the branch, count, line, where it goes)."""
    def __init__(self, places, path):
        counted = open(path, "rb").read()
        count = lambda counter: struct.unpack_from("<Q", counted, counter)[0]
        self.marks = [(at, count(counter), line, kind) for at, counter, line, kind in places.marks]
        self.edges = [(at, count(counter), line, to) for at, counter, line, to in places.edges]

    def n_left(self):
        """How many blocks may have been left before their marker by handlers of timers: in small ones all, where the library ran nearly none."""
        n = {kind: sum(m[1] for m in self.marks if m[3] == kind) for kind in (2, 4)}
        return n[2] + (n[4] + 15) // 8 * (n[4] > 0)


Places = collections.namedtuple("Places", "part marks edges")


def marks(path):
    """The markers of a file: address, offset of the counter, line, kind."""
    return places(path, 0).marks


def places(path, part):
    """The markers of a file, and its edges that count themselves: address, offset of the counter, line, where it goes."""
    file = open(path, "rb").read()
    at, n, names_at = struct.unpack_from("<Q", file, 0x28)[0], *struct.unpack_from("<HH", file, 0x3c)
    sections = [struct.unpack_from("<IIQQQQIIQQ", file, at + 64 * i) for i in range(n)]
    names = sections[names_at][4]
    named = {file[names + s[0]:file.index(b"\0", names + s[0])].decode(): s for s in sections}
    found = {"eplaces": [], "eedges": []}
    for name in found.keys() & named.keys():
        place = named[name]
        for i in range(0, place[5], 16):
            mark, counter, line, last = struct.unpack_from("<iiIi", file, place[4] + i)
            last += place[3] + i + 12 if name == "eedges" else 0
            found[name].append((place[3] + i + mark, place[3] + i + 4 + counter - named["ecnt"][3], line, last))
    return Places(part, found["eplaces"], found["eedges"])


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
            for what in [*program.has, *unit.has]:
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
                print(f"FAILED: seed {seed}, program {name}: {' '.join(unit.flags)}, {sorted(program.has | unit.has)}, ends by {program.end}, workers {program.crew}")
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
    print(f"{done} programs of seed {seed}, {failed} differ, {slow} left out since they take too long; {bench.n_held} blocks held against their own counts, {bench.n_between} of them in intervals, {bench.n_edges} edges, {bench.n_stubs} stubs; {bench.n_wide} programs have intervals without need, {bench.n_forgiven} end otherwise from run to run; "
          f"{100 * share:.4f} % of {bench.n_marks} executions of markers counted")
    for line in lost:
        print("  not counted: " + line)
    print("  " + ", ".join(f"{n} with {what}" for what, n in bench.kinds.most_common()))
    ok = not failed and slow * 100 <= done and share > .98 and bench.n_held > 10 * done and bench.n_wide * 20 <= max(done, 20)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
