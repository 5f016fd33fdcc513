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

sys.dont_write_bytecode = True
from generator.prelude import FIRST, HANDLERS, PAGES, PRELUDE
from generator.program import Program


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
