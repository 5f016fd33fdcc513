#!/usr/bin/env -S python3 -I
"""compare_runs.py [ROW…]: `engraft compare` of runs as people have them (issue 32, rows 8 to 12, 15, 16).

8   lua and sqlite as they are, run twice (that TIMES times [3]): no outlier but what is said not to repeat; a
    trace against itself: all is paired, and nothing differs
9   eight programs, two builds: intervals, and functions with what is unmatched, add up to what `count`
    counts; the metrics are those that objdump gives for what `count` counts
10  from two recordings to the report, raw and packed: processor time over both plain runs, and memory
11  recording: user time of the program, and time of everything, over plain runs (PAIRS pairs [5])
12  packed files of these runs
15  eight threads, OpenMP and pthreads, started in another order by each build
16  PGO, LTO, llvm-bolt, C++ with exceptions, Rust

SECONDS [5]: how long runs of rows 10 to 12 take, more or less. PROGRAMS: those of row 9. In target/compare,
with what compare.py has there. ENGRAFT: the command [target/release/engraft]. Exit 1 if a row does not hold."""

import bisect
import csv
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

HERE = os.path.dirname(os.path.realpath(__file__))
SPEC = importlib.util.spec_from_file_location("compare", HERE + "/compare.py")
compare = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(compare)
SPEC = importlib.util.spec_from_file_location("compare_programs", HERE + "/compare_programs.py")
programs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(programs)
ENGRAFT, WHERE, must, percent = compare.ENGRAFT, compare.WHERE, compare.must, compare.percent
SECONDS = float(os.environ.get("SECONDS", "5"))
PAIRS = int(os.environ.get("PAIRS", "5"))
TIMES = int(os.environ.get("TIMES", "3"))
LLVM = os.path.dirname(compare.CLANG)
ALIKE = "-g -w -fno-strict-aliasing"

# Without gcc's cold parts, which llvm-bolt refuses, and with what it needs.
compare.BUILDS |= {
    "LTO": ("gcc-12", "-O2 -flto"),
    "laid": ("gcc-12", "-O2 -fno-reorder-blocks-and-partition -Wl,--emit-relocs -Wl,-z,now"),
}
# Light and heavy events that must be paired, per cent: rows 4 and 2, and what was laid out anew.
LIKE_ROW_4, LIKE_ROW_2, BOLTED = 85, 93, 99


def source(package):
    """As compare.source, of packages with a signature beside the archive, which it would unpack."""
    folder = f"{WHERE}/debian/{package}"
    if not os.path.isdir(folder):
        compare.source("lzip")
        apt = ["apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={WHERE}/debian/list", "-o", "Dir::Etc::sourceparts=-",
               "-o", f"Dir::State::lists={WHERE}/debian/lists"]
        must([*apt, "update"])
        with tempfile.TemporaryDirectory(dir=WHERE) as place:
            must([*apt, "source", "--download-only", package], cwd=place)
            archive = next(name for name in os.listdir(place) if re.search(r"\.orig\.tar\.\w+$", name))
            must(["tar", "xf", archive], cwd=place)
            found = next(name for name in os.listdir(place) if os.path.isdir(f"{place}/{name}"))
            os.rename(f"{place}/{found}", folder)
    return folder


def text_of(name, code):
    """A file with this text."""
    path = f"{WHERE}/{name}"
    if not os.path.exists(path) or open(path, encoding="utf-8").read() != code:
        with open(path, "w", encoding="utf-8") as file:
            file.write(code)
    return path


def made(name, words, **more):
    """The program that a compiler makes, which is kept while its sources are what they were."""
    out = f"{WHERE}/bin/{name}"
    newest = max(os.path.getmtime(word) for word in words if os.path.isfile(word) and word.startswith(WHERE))
    if not os.path.exists(out) or os.path.getmtime(out) < newest:
        os.makedirs(WHERE + "/bin", exist_ok=True)
        must([*words, "-o", out + ".part"], **more)
        os.rename(out + ".part", out)
    return out


def by_make(program, build):
    """A program of Debian's that is configured."""
    out, place = f"{WHERE}/bin/{program}-{build}", f"{WHERE}/make/{program}"
    if not os.path.exists(out):
        compiler, flags = compare.BUILDS[build]
        if not os.path.exists(place + "/Makefile"):
            os.makedirs(place, exist_ok=True)
            must([source(program) + "/configure", f"CC={compiler}"], cwd=place)
        must(["make", "clean"], cwd=place)
        must(["make", "MAKEINFO=true", f"CFLAGS={flags} {ALIKE}"], cwd=place)
        shutil.copy(f"{place}/{program}", out)
    return out


def built(program, build):
    flags = compare.BUILDS.get(build, ("", ""))[1]
    if program in ("gzip", "mawk"):
        return by_make(program, build)
    if program == "json":
        include = source("nlohmann-json3") + "/single_include"
        words = ["g++-12", *f"{flags} {ALIKE} -I{include}".split(), text_of("json.cc", programs.JSON)]
    elif program == "rust":
        words = ["rustc", "--edition", "2021", "-g", "-C", f"opt-level={build[1]}", text_of("rust.rs", programs.RUST)]
    elif program == "regex":
        words = regex(build)
    else:
        return compare.built(program, build)
    return made(f"{program}-{build}", words)


def regex(build):
    """Two crates without dependencies, and a program that uses both."""
    place = f"{WHERE}/make/regex-{build}"
    os.makedirs(place, exist_ok=True)
    alike = ["rustc", "--edition", "2021", "-g", "-C", f"opt-level={build[1]}", "--cap-lints", "allow"]
    unicode = [f"unicode-{name}" for name in "age bool case gencat perl script segment".split()]
    for crate, version, features in (("regex-lite", "0.1.6", ["std", "string"]),
                                     ("regex-syntax", "0.8.5", ["std", "unicode", *unicode])):
        must([compare.SCRIPTS + "/fetch.sh", crate, version], env=os.environ | {"CORPORA": WHERE})
        asked = [word for feature in features for word in ("--cfg", f'feature="{feature}"')]
        name = crate.replace("-", "_")
        must([*alike, "--crate-type", "rlib", "--crate-name", name, *asked, "--out-dir", place,
              f"{WHERE}/crates/{crate}-{version}/src/lib.rs"])
    known = [f"--extern={name}={place}/lib{name}.rlib" for name in ("regex_lite", "regex_syntax")]
    return [*alike, *known, text_of("regex.rs", programs.REGEX)]


def as_it_is(program):
    """Without the options by which compare.py has runs repeat."""
    found, flags = compare.files(program, compare.source(program))
    kept = [flag for flag in flags.split() if flag.startswith("-I") or flag == "-DLUA_USE_LINUX"]
    return made(f"{program}-as-it-is", ["gcc-12", "-O2", *ALIKE.split(), *kept, *found, "-lm", "-ldl"])


def with_profile(program):
    """Built with a profile of the run that is compared."""
    out, place = f"{WHERE}/bin/{program}-PGO", f"{WHERE}/make/{program}-PGO"
    if not os.path.exists(out):
        os.makedirs(place, exist_ok=True)
        found, flags = compare.files(program, compare.source(program))
        for option in ("-fprofile-generate", "-fprofile-use"):
            objects = []
            for file in found:
                objects.append(os.path.basename(file) + ".o")
                must(["gcc-12", "-O2", *ALIKE.split(), option, *flags.split(), "-c", file, "-o", objects[-1]], cwd=place)
            must(["gcc-12", option, *objects, "-o", "program", "-lm", "-ldl"], cwd=place)
            if option == "-fprofile-generate":
                run(place + "/program", program)
                if not any(name.endswith(".gcda") for name in os.listdir(place)):
                    sys.exit(f"{program}: no profile was written")
        os.rename(place + "/program", out)
    return out


def bolted(program, more):
    """What llvm-bolt laid out anew, with a profile of its own instrumentation, and what that was made of."""
    before, out = built(program, "laid"), f"{WHERE}/bin/{program}-bolted{more}"
    if not os.path.exists(out):
        with tempfile.TemporaryDirectory(dir=WHERE) as place:
            must([LLVM + "/llvm-bolt", before, "-instrument", f"--instrumentation-file={place}/fdata", "-o", place + "/counts"])
            run(place + "/counts", program)
            how = f"-reorder-blocks=ext-tsp -reorder-functions=hfsort -split-functions -split-all-cold {more}"
            must([LLVM + "/llvm-bolt", before, f"-data={place}/fdata", *how.split(), "-o", out + ".part"])
        os.rename(out + ".part", out)
    return before, out


def workload(program):
    """Arguments, and standard input."""
    text = compare.workload("bzip2")[1]
    ours = {
        "gzip": (["-9", "-n", "-c"], text),
        "mawk": (["-f", text_of("words.awk", programs.AWK)], text),
        "json": ([], None), "rust": ([], None), "regex": ([], text),
        "one": ([], None), "apart": ([], None), "alike": ([], None), "openmp": ([], None),
    }
    if program == "lua":
        return [text_of("names.lua", programs.LUA)], None
    return ours[program] if program in ours else compare.workload(program)


def run(path, program):
    args, text = workload(program)
    with open(text or os.devnull, "rb") as file:
        must([path, *args], stdin=file)


def engraft(words, text=None):
    """What it prints, as JSON."""
    with open(text or os.devnull, "rb") as file:
        ran = subprocess.run([ENGRAFT, *words], stdin=file, capture_output=True, check=False)
    if ran.returncode not in (0, 1):
        sys.exit(f"engraft {' '.join(words)}: {ran.returncode}: {ran.stderr.decode(errors='replace')[-1500:]}")
    said = json.loads(ran.stdout)
    if ran.returncode:
        print(f"  engraft {' '.join(words[:4])}: exit status 1; {said['runs']}", flush=True)
    return said


def recorded(verb, path, args, text, to, modules="all"):
    """A run at the addresses that `compare` has programs at, recorded into a file; the report."""
    report = to + ".json"
    words = [ENGRAFT, verb, f"--json={report}", "--modules", modules, "-o", to, "--", path, *args]
    with open(text or os.devnull, "rb") as file:
        must(["setarch", "-R", *words], stdin=file)
    with open(report, encoding="utf-8") as file:
        return json.load(file)


def shares(said):
    return [percent(said["matched"][log]["matched"], said["matched"][log]["smaller"]) for log in ("light", "heavy")]


# Row 8

def is_itself(name, trace):
    """Whether a trace compared with itself has no difference."""
    said = engraft(["compare", trace, trace, "--json"])
    lost = [said["matched"][log]["smaller"] - said["matched"][log]["matched"] for log in ("light", "heavy")]
    differ = [row["name"] for row in said["functions"] if row["old"] != row["new"]]
    n_alone = len(said["unmatched"]["old"]) + len(said["unmatched"]["new"])
    holds = lost == [0, 0] and not differ and not n_alone and not said["outliers"] and said["totals"]["old"] == said["totals"]["new"]
    print(f"8 {name:10} against itself: {said['matched']['light']['smaller']} and {said['matched']['heavy']['smaller']} events, "
          f"not paired {lost}; {len(said['functions'])} functions, {len(differ)} differ {differ[:3]}, {n_alone} alone; "
          f"{len(said['outliers'])} outliers: {'holds' if holds else 'SHORT'}", flush=True)
    return holds


def row_8():
    ok = True
    for name, program, args in (("lua", "lua", compare.workload("lua")[0]), ("lua names", "lua", workload("lua")[0]),
                                ("sqlite", "sqlite", workload("sqlite")[0])):
        path = as_it_is(program)
        for _ in range(TIMES):
            # What lua's seed is made of is the time in seconds.
            said = engraft(["compare", "--runs", "2", "--setup", "sleep 1.1", path, path, "--json", "--", *args])
            light, heavy = shares(said)
            totals = [said["totals"][side]["dyn.agg.total"] for side in ("old", "new")]
            holds = not said["outliers"]
            print(f"8 {name:10} two runs: {totals} instructions, light {light:.2f} heavy {heavy:.2f}; {len(said['outliers'])} outliers, "
                  f"{said['unsteady']} are unsteady: {'holds' if holds else 'SHORT'}", flush=True)
            for row in said["outliers"][:5]:
                print(f"    {row['function']}: {row['from']['old']} to {row['to']['old']}: {row['old']}, then {row['new']} instructions, "
                      f"{row['times']} times")
            ok = ok and holds
    for program in ("lua", "sqlite", "bzip2", "tcc", "lzip", "json"):
        path = as_it_is(program) if program in ("lua", "sqlite") else built(program, "O2")
        args, text = workload(program)
        with tempfile.TemporaryDirectory(dir=WHERE) as place:
            recorded("trace", path, args, text, place + "/t")
            ok = is_itself(program, place + "/t") and ok
    return ok


# Row 9: what objdump says of an instruction

WORDS = {
    "DATAXFER": "mov movabs movzx movsx movsxd xchg bswap movbe lahf sahf", "PUSH": "push pushf pushfq enter",
    "POP": "pop popf popfq", "DIV": "div idiv", "LOGICAL": "and or xor not test andn", "ROTATE": "rol ror rcl rcr rorx",
    "BINARY": "add sub adc sbb inc dec neg cmp mul imul mulx adcx adox xadd cmpxchg cmpxchg8b cmpxchg16b",
    "SHIFT": "shl sal shr sar shld shrd shlx shrx sarx", "CONVERT": "cbw cwde cdqe cwd cdq cqo",
    "BITBYTE": "bt bts btr btc bsf bsr tzcnt lzcnt popcnt bextr bzhi pdep pext blsi blsr blsmsk crc32",
    "NOP": "nop endbr64 endbr32 pause fnop", "CALL": "call", "RET": "ret", "UNCOND_BR": "jmp",
    "SYSTEM": "syscall cpuid hlt ud2 rdtsc rdtscp xgetbv int3 int",
}
CATEGORY = {word: name for name, words in WORDS.items() for word in words.split()}
PREFIXES = set("bnd notrack rep repz repnz lock data16 addr32 cs ds es ss fs gs".split())
SIZES = {"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8, "XMMWORD": 16, "YMMWORD": 32, "ZMMWORD": 64}
SHUFFLES = tuple("shuf pshuf unpck punpck perm blend pblend palignr insert pinsr extract pextr broadcast pbroadcast packss "
                 "packus movddup movsldup movshdup movlhps movhlps".split())
# Of what stands first and in memory: read alone, or read and written; by how the names begin, or all of them.
READ_STARTS = tuple("test call jmp push comis ucomis ptest pcmpestr pcmpistr ldmxcsr mul imul div idiv fld fild fadd fsub fmul fdiv "
                    "fcom fiadd fisub fimul fidiv ficom fxrstor frstor xrstor".split())
CHANGED = set("add sub adc sbb inc dec neg and or xor not shl sal shr sar shld shrd rol ror rcl rcr xadd xchg cmpxchg cmpxchg8b "
              "cmpxchg16b bts btr btc".split())
STACK = {"push": "writes", "pushf": "writes", "call": "writes", "pop": "reads", "popf": "reads", "ret": "reads"}


def disassembled(path, known={}):
    """Addresses, and instructions as bytes and text."""
    if path not in known:
        ats, insns = [], []
        for line in must(["objdump", "-dw", "-M", "intel", path]).decode(errors="replace").splitlines():
            cells = line.split("\t")
            if len(cells) == 3 and cells[0].endswith(":"):
                ats.append(int(cells[0][:-1], 16))
                insns.append((cells[1], cells[2]))
        known[path] = ats, insns
    return known[path]


def metrics(code, text):
    """The metrics that an instruction counts for, once each; where it is said, not what is on the stack."""
    code = code.split()
    words = text.split("#")[0].split("<")[0].split()
    prefixes = []
    while len(words) > 1 and (words[0] in PREFIXES or words[0].startswith("rex")):
        prefixes.append(words.pop(0))
    op, operands = words[0], " ".join(words[1:])
    plain = op[1:] if op.startswith("v") else op
    parts = re.split(r",(?![^\[]*\])", operands)
    memory = [n for n, part in enumerate(parts) if "[" in part or re.match(r"(\w+ PTR )?[c-gs]s:0x", part)]
    if op == "xchg" and code[-1] == "90":
        op = "nop"
    is_string = re.match("(movs|stos|cmps|scas|lods)", op) and re.search("es:.?.di|ds:.?.si|es:\\[|ds:\\[", operands)
    if "lock" in prefixes or op == "xchg" and memory:
        category = "ATOMIC"
    elif op.startswith("j") and op != "jmp":
        category = "COND_BR"
    elif CATEGORY.get(op) in ("CALL", "RET", "UNCOND_BR", "NOP"):
        category = CATEGORY[op]
    elif is_string:
        category = "STRING"
    elif op.startswith("f") and not op.startswith(("fxsave", "fxrstor")):
        category = "X87_ALU"
    elif re.search(r"\b[xyz]mm\d", operands) or op.startswith("vzero"):
        vector = "AVX512" if code[0] == "62" else "AVX" if op.startswith("v") else "SSE"
        category = "SHUFFLE" if plain.startswith(SHUFFLES) else vector
    else:
        category = {"set": "SETCC", "cmo": "CMOV"}.get(op[:3]) or CATEGORY.get(op, "MISC")
    got = ["agg.total", *["agg.bytes"] * len(code), "cat." + category]
    got += {"COND_BR": ["agg.cond_br"], "UNCOND_BR": ["agg.jmps"], "CALL": ["agg.calls"]}.get(category, [])
    if op == "jmp" and not re.match("[0-9a-f]+$", operands):
        got.append("agg.indir_jmps")
    if category == "NOP" or op == "lea" or op.startswith("prefetch"):
        return got
    used = [(8, STACK[op])] if op in STACK else [(8, "reads")] if op == "leave" else []
    for n in memory:
        size = SIZES.get(parts[n].split()[0], 0)
        if is_string:
            kinds = ["reads"] if n or op[:4] in ("cmps", "scas", "lods") else ["writes"]
        elif n or op in ("cmp", "bt") or plain.startswith(READ_STARTS):
            kinds = ["reads"]
        else:
            kinds = ["reads", "writes"] if op in CHANGED else ["writes"]
        used += [(size, kind) for kind in kinds]
    for size, kind in used:
        got += [f"agg.mem_{kind}"] + ([f"agg.mem_{kind}{size}"] if size in SIZES.values() else [])
    return got


def resolvers(path):
    """Where functions begin that the dynamic linker chooses others by."""
    said = must(["readelf", "-W", "-r", "--dyn-syms", "-s", path]).decode(errors="replace")
    found = {int(at, 16) for at in re.findall(r"R_X86_64_IRELATIVE\s+([0-9a-f]+)", said)}
    return found | {int(at, 16) for at in re.findall(r"\d+: ([0-9a-f]+)\s+\d+ IFUNC", said)}


def oracle(recording, report):
    """What ran, by the blocks that `count` counted and objdump decoded; what of it nobody records, since it
    runs before the library has started; what only the counts of edges say: padding behind branches; and by
    function how much of its blocks `count` takes away, since calls in them did not come back."""
    must([ENGRAFT, "convert", recording, "-q", "-o", recording + ".csv"])
    edges = engraft(["show", recording, "edges", "--json", "-n", "100000000"])["edges"]
    sums, early, padding, kinds = Counter(), Counter(), Counter(), {}
    images, ends, early_ones, lost = {}, {}, set(), Counter()

    def add(to, image, start, end, times):
        ats, insns = disassembled(image)
        found = insns[bisect.bisect_left(ats, start):bisect.bisect_left(ats, end)]
        for insn in found:
            if insn not in kinds:
                kinds[insn] = metrics(*insn)
            for metric in kinds[insn]:
                to[metric] += times
        return len(found) * times

    with open(recording + ".csv", encoding="utf-8") as file:
        rows = [(row["image"], row["function"], int(row["start"], 16), int(row["end"], 16), int(row["executions"]))
                for row in csv.DictReader(file)]
    functions = {(row["module"], row["at"]): row["instructions"] for row in report["functions"]}
    for image, function, start, end, _ in rows:
        if image not in images:
            images[os.path.basename(image)] = image
            images[image] = resolvers(image)
        ends[image, start] = end
        if start in images[image]:
            early_ones.add((image, function))
        lost[function] -= functions.get((os.path.basename(image), start), 0)
    for image, function, start, end, times in rows:
        # Padding behind a branch is of no function.
        is_early = function and (image, function) in early_ones
        n = add(early if is_early else sums, image, start, end, times)
        lost[function] += n if function else 0
    for edge in edges:
        image = images[edge["module"]]
        end = ends[image, edge["from"]]
        if edge["kind"] == "fall-through" and edge["to"] > end and (image, end) not in ends:
            add(padding, image, end, edge["to"], edge["count"])
    return sums, early, padding, +lost


def row_9():
    ok = True
    for program in os.environ.get("PROGRAMS", "bzip2 lua sqlite tcc lzip gzip mawk json").split():
        traces, reports = {}, {}
        # What unwinds the stack interprets tables of moved code, which is another one in each of both verbs.
        modules = "exe,libstdc++*,libm.*" if program == "json" else "all"
        with tempfile.TemporaryDirectory(dir=WHERE) as place:
            for side, build in (("old", "O2"), ("new", "O3")):
                path = built(program, build)
                args, text = workload(program)
                traces[side] = f"{place}/{build}.trace"
                recorded("trace", path, args, text, traces[side], modules)
                reports[side] = recorded("count", path, args, text, f"{place}/{build}.engraft", modules)
            said = engraft(["compare", traces["old"], traces["new"], "--json"])
            for side, build in (("old", "O2"), ("new", "O3")):
                sums, early, padding, lost = oracle(f"{place}/{build}.engraft", reports[side])
                totals = {name.removeprefix("dyn."): n for name, n in said["totals"][side].items() if name.startswith("dyn.")}
                counted, total = reports[side]["instructions"], totals["agg.total"]
                wrong = []
                for name in sorted(set(sums) | {name for name in totals if name.startswith("cat.") or name in sums}):
                    want = sums[name] + padding[name]
                    if totals.get(name, 0) != want:
                        wrong.append(f"{name} {totals.get(name, 0)} for {want}")
                alone = sum(row["instructions"] for row in said["unmatched"][side])
                in_functions = alone + sum(row[side].get("dyn.agg.total", 0) for row in said["functions"])
                if not said["matched"]["instructions"][side] == in_functions == total:
                    wrong.append(f"intervals {said['matched']['instructions'][side]}, functions {in_functions}")
                more = total - (counted - early["agg.total"] + padding["agg.total"])
                if more:
                    wrong.append(f"{more} instructions more than count has, which leaves out what stands behind calls that did "
                                 f"not come back, {sum(lost.values())}: in {lost.most_common(4)}")
                # Of functions of one build alone, the metrics are not said: a trace against itself has none.
                itself = engraft(["compare", traces[side], traces[side], "--json"])
                for name in totals:
                    by_function = sum(row["old"].get("dyn." + name, 0) for row in itself["functions"])
                    if by_function != totals[name] and name not in ("vec.width", "vec.packed_share"):
                        wrong.append(f"{name} of functions {by_function} for {totals[name]}")
                ok = ok and not wrong
                print(f"9 {program:6} {build} {total} instructions in intervals, {alone} of them of unmatched functions; count has "
                      f"{counted}, {early['agg.total']} of them before libraries had started, and leaves out {padding['agg.total']} "
                      f"of padding behind branches; {len(sums)} metrics: {'equal' if not wrong else 'DIFFERENT: ' + '; '.join(wrong)}",
                      flush=True)
    return ok


# Rows 10 to 12

def lua_rounds(seconds):
    return max(1, round(seconds * 2.6))


def long_workload(name):
    """The program, arguments and input of a run of some SECONDS."""
    if name == "bench":
        # Whatever SECONDS: half a second.
        return "lua", [text_of("bench.lua", programs.FIB)], None
    if name == "lua":
        with open(compare.SCRIPTS + "/overhead/src/bench.lua", encoding="utf-8") as file:
            code = f"arg = {{{lua_rounds(SECONDS)}}}\n{file.read()}"
        return "lua", [text_of(f"bench-{SECONDS:g}.lua", code)], None
    if name == "sqlite":
        return "sqlite", [str(round(24500 * SECONDS**ROWS_BY_TIME))], None
    n_bytes = round(SECONDS * {"bzip2": 15.5e6, "gzip": 10e6}[name])
    text = f"{WHERE}/text-{n_bytes}"
    if not os.path.exists(text):
        with open(text, "wb") as file:
            file.write(must(["python3", compare.SCRIPTS + "/overhead/src/gen.py", "text", str(n_bytes)]))
    return name, workload(name)[0], text


# As many rows of sqlite take more than as much time.
ROWS_BY_TIME = 0.6
LONG = ("bench", "lua", "bzip2", "sqlite", "gzip")


def measured(words, text=None, program=None, may_fail=False):
    """User and system time of everything, the largest process in MB, the user time of processes of `program`,
    and the exit status."""
    with open(text or os.devnull, "rb") as file, open(os.devnull, "wb") as out:
        child = subprocess.Popen(words, stdin=file, stdout=out, stderr=out)
    seen, done = {}, threading.Event()

    def look():
        while not done.wait(0.01):
            todo = [child.pid]
            while todo:
                pid = todo.pop()
                try:
                    if os.path.realpath(f"/proc/{pid}/exe") == program:
                        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                            seen[pid] = int(stat.read().rsplit(")", 1)[1].split()[11]) / os.sysconf("SC_CLK_TCK")
                    for task in os.listdir(f"/proc/{pid}/task"):
                        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as children:
                            todo += map(int, children.read().split())
                except OSError:
                    continue

    if program:
        threading.Thread(target=look, daemon=True).start()
    _, status, usage = os.wait4(child.pid, 0)
    done.set()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode and not may_fail:
        sys.exit(f"{' '.join(words)}: {child.returncode}")
    return usage.ru_utime, usage.ru_stime, usage.ru_maxrss / 1024, sum(seen.values()), child.returncode


def long_runs(name, known={}):
    """Of both builds: the seconds that a plain run takes, a raw and a packed trace."""
    if name not in known:
        program, args, text = long_workload(name)
        os.makedirs(WHERE + "/runs", exist_ok=True)
        known[name] = []
        for build in ("O2", "O3"):
            path = built(program, build)
            plain = min(measured(["setarch", "-R", path, *args], text)[0] for _ in range(3))
            raw, packed = (f"{WHERE}/runs/{name}-{build}.{end}" for end in ("trace", "packed"))
            recorded("trace", path, args, text, raw)
            began = time.monotonic()
            user, system, memory, *_ = measured([ENGRAFT, "trace", "pack", "-q", raw, "-o", packed])
            print(f"  {name} {build}: {plain:.2f} s plain, {os.path.getsize(raw) / 1e6:.1f} MB raw, {os.path.getsize(packed) / 1e6:.1f} packed "
                  f"in {user + system:.1f} s, {memory:.0f} MB ({time.monotonic() - began:.0f} s)", flush=True)
            known[name].append((plain, raw, packed))
    return known[name]


def row_10():
    ok = True
    # Four times what it may have, so that the machine stays as it is.
    limits = ["prlimit", f"--data={4 << 30}", "timeout", "600"]
    for name in LONG:
        runs = long_runs(name)
        plain = sum(run[0] for run in runs)
        for which, most in ((1, 15), (2, 5)):
            words = [ENGRAFT, "compare", runs[0][which], runs[1][which], "--json"]
            user, system, memory, _, status = measured([*limits, *words], may_fail=True)
            ended = {0: "", 124: ", ended after 600 s"}.get(status, f", ended at 4 GB ({status})")
            times = (user + system) / plain
            holds = not ended and times <= most and memory <= 1024
            ok = ok and holds
            print(f"10 {name:6} {'raw' if which == 1 else 'packed':6} {user:.1f} + {system:.1f} s for runs of {plain:.2f} s: {times:.1f} times, "
                  f"must {most}; {memory:.0f} MB, must 1024{ended}: {'holds' if holds else 'SHORT'}", flush=True)
    return ok


def row_11():
    medians = []
    for name in LONG:
        program, args, text = long_workload(name)
        path = built(program, "O2")
        ratios = []
        with tempfile.TemporaryDirectory(dir=WHERE) as place:
            for pair in range(PAIRS):
                def plain():
                    return measured(["setarch", "-R", path, *args], text)
                before = plain() if pair % 2 == 0 else None
                traced = measured(["setarch", "-R", ENGRAFT, "trace", "-q", "-o", place + "/t", "--", path, *args], text, path)
                before = before or plain()
                ratios.append((traced[3] / before[0], sum(traced[:2]) / sum(before[:2]), before[0], traced[2]))
        own, everything, seconds, memory = (statistics.median(column) for column in zip(*ratios))
        medians.append((own, everything))
        low, high = min(ratio[0] for ratio in ratios), max(ratio[0] for ratio in ratios)
        print(f"11 {name:6} {seconds:.2f} s: user time of the program {own:.3f} [{low:.3f}-{high:.3f}], of everything {everything:.2f}, "
              f"{memory:.0f} MB, medians of {PAIRS}", flush=True)
    means = [statistics.geometric_mean(column) for column in zip(*medians)]
    print(f"11 geometric means {means[0]:.3f}, must 1.5; {means[1]:.2f}, must 3")
    return means[0] <= 1.5 and means[1] <= 3


def row_12():
    ok = True
    for name in LONG:
        sizes = [os.path.getsize(packed) / 1e6 for _, _, packed in long_runs(name)]
        # Of runs that are shorter than those of the issue.
        more = {"bench": 1, "lua": lua_rounds(5) / lua_rounds(SECONDS), "sqlite": (5 / SECONDS) ** ROWS_BY_TIME}
        more = more.get(name, 5 / SECONDS)
        as_asked = [size * more for size in sizes]
        holds = name not in ("lua", "sqlite") or max(as_asked) <= 25
        ok = ok and holds
        print(f"12 {name:6} {sizes[0]:.1f}, {sizes[1]:.1f} MB; of 5 s, in proportion, {as_asked[0]:.1f}, {as_asked[1]:.1f}: "
              f"{'holds' if holds else 'SHORT'}", flush=True)
    return ok


# Rows 15 and 16

def paired(row, program, what, old, new):
    """What share of the light and the heavy events is paired."""
    args, text = workload(program)
    said = engraft(["compare", "--json", old, new, "--", *args], text)
    light, heavy = shares(said)
    totals = [said["totals"][side]["dyn.agg.total"] for side in ("old", "new")]
    missing = [total - said["matched"]["instructions"][side] for total, side in zip(totals, ("old", "new"))]
    as_a_whole = percent(said["matched"]["heavy_as_a_whole"], said["matched"]["heavy"]["smaller"])
    print(f"{row} {what:11} {program:7} light {light:5.1f} heavy {heavy:5.1f} as a whole {as_a_whole:4.1f}; of {totals[0] / 1e6:.1f}, "
          f"{totals[1] / 1e6:.1f} M; in no interval {missing}", flush=True)
    return [light, heavy], max(map(abs, missing)) <= 2


def judged(row, what, found, least, most_below):
    """Whether the mean is at least so much, and none lies so far below."""
    means = [statistics.mean(column) for column in zip(*(shares for shares, _ in found))]
    lowest = min(min(shares) for shares, _ in found)
    holds = min(means) >= least and lowest >= least - most_below and all(all_is_there for _, all_is_there in found)
    print(f"{row} {what:11} mean    light {means[0]:5.1f} heavy {means[1]:5.1f}, must {least}: {'holds' if holds else 'SHORT'}", flush=True)
    return holds


def row_15():
    found = []
    # In one thread alone, it is what can be reached: this is not judged.
    for program, flags in (("one", "-DONE"), ("apart", ""), ("alike", "-DALIKE"), ("openmp", "-fopenmp")):
        code = text_of("openmp.c" if program == "openmp" else "threads.c", programs.WORK + (programs.OPENMP if program == "openmp" else programs.PTHREADS))
        both = [made(f"{program}{build.replace(' ', '')}", ["gcc-12", *f"{build} {ALIKE} {flags}".split(), code, "-pthread", "-lm"])
                for build in ("-O2", "-O3 -DREVERSED")]
        found.append(paired("15", program, "-O2~-O3", *both))
    return judged("15", "threads", found[1:], LIKE_ROW_2, 10)


def row_16():
    c_programs = ("bzip2", "lua", "tcc")
    pgo = [paired("16", name, "PGO", built(name, "O2"), with_profile(name)) for name in c_programs]
    ok = judged("16", "PGO", pgo, LIKE_ROW_4, 10)
    lto = [paired("16", name, "LTO", built(name, "O2"), built(name, "LTO")) for name in c_programs]
    ok = judged("16", "LTO", lto, LIKE_ROW_4, 10) and ok
    # Unless it is told to, it leaves lines where code was.
    for what, more in (("bolted", "-update-debug-sections"), ("bolted, old", "")):
        laid = [paired("16", name, what, *bolted(name, more)) for name in c_programs]
        ok = judged("16", what, laid, BOLTED, 0) and ok
    cpp = [paired("16", name, "C++ -O2~-O3", built(name, "O2"), built(name, "O3")) for name in ("json", "lzip")]
    ok = judged("16", "C++", cpp, LIKE_ROW_2, 10) and ok
    # To rustc, -O is -C opt-level=3 by now.
    rust = [paired("16", name, "Rust 2~3", built(name, "O2"), built(name, "O3")) for name in ("rust", "regex")]
    return judged("16", "Rust", rust, LIKE_ROW_2, 10) and ok


def main():
    rows = {"8": row_8, "9": row_9, "10": row_10, "11": row_11, "12": row_12, "15": row_15, "16": row_16}
    asked = sys.argv[1:] or list(rows)
    if unknown := [row for row in asked if row not in rows]:
        sys.exit(f"no row {' '.join(unknown)}; there are {' '.join(rows)}")
    os.makedirs(WHERE, exist_ok=True)
    ok = True
    for row in asked:
        holds = rows[row]()
        ok = ok and holds
        print(f"row {row}: {'holds' if holds else 'SHORT'}", flush=True)
    return ok


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
