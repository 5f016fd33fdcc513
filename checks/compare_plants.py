#!/usr/bin/env -S python3 -I
"""compare_plants.py [14] [17]: rows 14 and 17 of issue 32 (both, unless named): whether `engraft compare` shows
a difference that was planted, and nothing else. 14: thirty functions of lua, sqlite and ripgrep, drawn from
SEED [32], are made worse by 5, 20 and 100 %; the planted one must come first. 17: twenty builds of lua from
other folders, linked in other orders, must pass --fail-if, and plants of 1 % must not. In target/compare/cases;
programs that are built already are not built again. ENGRAFT: the command [target/release/engraft]. Exit 1 if a
row does not hold."""

import importlib.util
import json
import os
import random
import re
import shutil
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
SPEC = importlib.util.spec_from_file_location("compare_cases", HERE + "/compare_cases.py")
cases = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cases)
from_cases = "compare must WHERE GCC TOTAL ran write read is_newer ranked verdict".split()
compare, must, WHERE, GCC, TOTAL, ran, write, read, is_newer, ranked, verdict = (getattr(cases, name) for name in from_cases)
SEED = int(os.environ.get("SEED", "32"))

SINK = "unsigned long engraft_sink, engraft_sinks[16];"
RUST_SINK = "{ use core::sync::atomic::{AtomicU64, Ordering::Relaxed}; static SINK: AtomicU64 = AtomicU64::new(1);"
# Instructions of one round of the loop in a plant, as gcc and LLVM write it, and what is around it.
PER_ROUND, AROUND = 7, 3


def extra(n, is_rust=False):
    """A block of about `n` instructions that no compiler can leave out, on one line: a chain from a word in
    memory back to it, and if there are many, a loop of such."""
    if n < 4 and not is_rust:
        return "{ " + "".join(f"engraft_sinks[{3 * k}] += 1; " for k in range(n)) + "}"
    rounds = (n - AROUND) // PER_ROUND if n > 40 else 0
    n_steps = max(n - 2 - rounds * PER_ROUND - (AROUND - 2 if rounds else 0), 1)
    if is_rust:
        steps = "".join("h = h.wrapping_add(3); " if k % 2 == 0 else "h ^= 5; " for k in range(n_steps))
        loop = f"let mut i = 0u64; while i < {rounds} {{ h = h.wrapping_add(i); h ^= h >> 7; i += 1; }} " if rounds else ""
        return f"{RUST_SINK} let mut h = SINK.load(Relaxed); {loop}{steps}SINK.store(h, Relaxed); }}"
    steps = "".join("h += 3; " if k % 2 == 0 else "h ^= 5; " for k in range(n_steps))
    loop = f"for (unsigned long i = 0; i < {rounds}; i++) {{ h += i; h ^= h >> 7; }} " if rounds else ""
    return f"{{ unsigned long h = engraft_sink; {loop}{steps}engraft_sink = h; }}"


APART = re.escape("__attribute__((noinline)) ")


def c_definition(text, function):
    """Where a function's definition begins, and where its body does, behind the brace; nothing unless it is
    defined once. `text` is without comments."""
    found = []
    for match in re.finditer(rf"(?m)^(?:{APART})?[A-Za-z_][^\n;={{}}()]*\b{function}\s*\(", text):
        at, depth = match.end(), 1
        while depth and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        if body := re.compile(r"\s*{").match(text, at):
            found.append((match.start(), body.end()))
    return found[0] if len(found) == 1 else None


def without_comments(text):
    """C code with blanks in place of comments."""
    return re.sub(r"/\*.*?\*/", lambda comment: re.sub(r"[^\n]", " ", comment[0]), text, flags=re.DOTALL)


def rust_definition(text, line):
    """The same of the function at a line."""
    lines = text.split("\n")
    start = sum(len(one) + 1 for one in lines[:line - 1])
    match = re.compile(r"[^\n;{}]*\bfn\s+\w+[^;{]*{").match(text, start)
    return match and (start, match.end())


class Plain:
    """A program in C, from sources of its own; what is planted changes one file, and no line of it."""
    options = ()

    def __init__(self, name):
        self.name, self.folder = name, f"{WHERE}/14/{name}"
        found, flags = compare.files(name, compare.source(name))
        if not os.path.isdir(self.folder + "/src"):
            shutil.copytree(compare.source(name), self.folder + "/src.part", dirs_exist_ok=True)
            shutil.copy(found[0], self.folder + "/src.part")
            os.rename(self.folder + "/src.part", self.folder + "/src")
        self.files = [f"{self.folder}/src/{os.path.basename(path)}" for path in found]
        self.flags = ["-g", "-w", "-fno-strict-aliasing", *flags.replace(compare.source(name), self.folder + "/src").split()]
        self.args = compare.workload(name)[0]
        self.texts = {path: read(path) for path in self.files}
        self.marked = set()

    def place(self, function):
        """The file that defines a function, where, and where its body begins."""
        texts = ((path, without_comments(text)) for path, text in self.texts.items() if function in text)
        found = [(path, at) for path, text in texts if (at := c_definition(text, function))]
        return found[0] if len(found) == 1 else None

    def mark(self, functions):
        """Has these functions inlined nowhere from now on: what is planted in them stays there."""
        for function in functions:
            path, (start, _) = self.place(function)
            text = self.texts[path]
            self.texts[path] = text[:start] + "__attribute__((noinline)) " + text[start:]
            self.marked.add(path)

    def build(self, level, name, plant=None):
        """The program at -O`level`; `plant`: a function, and how much longer each call of it is."""
        out = f"{self.folder}/{name}-O{level}"
        if os.path.exists(out):
            return out
        texts = dict(self.texts)
        if plant:
            path, (_, body) = self.place(plant[0])
            texts[path] = texts[path][:body] + extra(plant[1]) + texts[path][body:]
        objects = []
        for path, text in texts.items():
            is_planted = plant and text != self.texts[path]
            kind = name if is_planted else "marked" if path in self.marked else "plain"
            objects.append(f"{self.folder}/{kind}-O{level}-{os.path.basename(path)}.o")
            if os.path.exists(objects[-1]):
                continue
            # The same lines of the same file, wherever the text is.
            text = f'{SINK if is_planted else ""}\n#line 1 "{path}"\n{text}'
            source = f"{self.folder}/{kind}.c"
            with open(source, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            must([GCC, f"-O{level}", *self.flags, "-c", source, "-o", objects[-1] + ".part"])
            os.rename(objects[-1] + ".part", objects[-1])
        must([GCC, *objects, "-o", out + ".part", "-lm", "-ldl"])
        os.rename(out + ".part", out)
        return out


class Ripgrep:
    """ripgrep with its crates. Its hash maps have new seeds in each run: so each build runs twice."""
    options = ("--runs", "2")
    PATCHED = ("aho-corasick bstr globset grep-cli grep-matcher grep-printer grep-regex grep-searcher ignore memchr "
               "regex-automata regex-syntax termcolor").split()

    def __init__(self, _):
        self.name, self.folder = "ripgrep", f"{WHERE}/14/ripgrep"
        if not os.path.isdir(self.folder + "/src"):
            must([compare.SCRIPTS + "/fetch.sh", "ripgrep", "14.1.1"], env=os.environ | {"CORPORA": compare.WHERE})
            place = self.folder + "/src.part"
            shutil.copytree(f"{compare.WHERE}/crates/ripgrep-14.1.1", place, dirs_exist_ok=True)
            with open(place + "/Cargo.toml", "a", encoding="utf-8") as file:
                file.write('\n[workspace]\nexclude = ["vendor"]\n')
            must(["cargo", "vendor", "--locked", "-q", "vendor"], cwd=place)
            # Changes are seen in what has a path.
            patched = "".join(f'{name} = {{ path = "vendor/{name}" }}\n' for name in self.PATCHED)
            write(place + "/.cargo/config.toml", '[source.crates-io]\nreplace-with = "here"\n[source.here]\n'
                  f'directory = "vendor"\n[patch.crates-io]\n{patched}')
            os.rename(place, self.folder + "/src")
        # What an earlier run changed is what it was.
        for folder, _, names in os.walk(self.folder + "/src"):
            for name in names:
                if name.endswith(".rs.orig"):
                    self.restore(os.path.join(folder, name[:-5]))
        text = compare.WHERE + "/text"
        self.args = ["-j1", "--no-config", "-n", "--color=always", r"lua[A-Z]_[a-z]+\(L", *[text] * 4]
        compare.workload("lua")
        self.texts, self.lines = {}, {}

    @staticmethod
    def restore(path):
        """The text of a source file as it was, which the file has again."""
        if not os.path.exists(path + ".orig"):
            shutil.copy2(path, path + ".orig")
        if read(path) != read(path + ".orig"):
            shutil.copy(path + ".orig", path)
        return read(path)

    def place(self, function):
        if not self.lines:
            for line in must(["nm", "-C", "-l", self.build(2, "plain")]).decode().splitlines():
                match = re.match(r"[0-9a-f]+ [tT] (.*?)(?:::h[0-9a-f]{16})?\t(.*):(\d+)$", line)
                if match and match[2].startswith(self.folder) and "{{" not in match[1]:
                    self.lines.setdefault(match[1], set()).add((match[2], int(match[3])))
        # Long names are shortened in the middle.
        pattern = re.compile(".*".join(map(re.escape, function.split("…"))))
        found = set().union(*(at for name, at in self.lines.items() if pattern.fullmatch(name)))
        # A macro makes several functions of one line.
        if len(found) != 1 or "{{" in function or sum(found <= at for at in self.lines.values()) > 1:
            return None
        path, line = found.pop()
        if path not in self.texts:
            self.texts[path] = self.restore(path)
        at = rust_definition(self.texts[path], line)
        return at and (path, at)

    def mark(self, functions):
        for function in functions:
            path, (start, _) = self.place(function)
            lines = self.texts[path].split("\n")
            at = self.texts[path].count("\n", 0, start)
            if "#[inline(never)]" in lines[at]:
                continue
            above = at - 1
            while re.match(r"\s*(#\[|//)", lines[above]):
                if re.match(r"\s*#\[.*\binline\b.*\]$", lines[above]):
                    lines[above] = ""
                above -= 1
            lines[at] = "#[inline(never)] " + lines[at]
            self.texts[path] = "\n".join(lines)

    def build(self, level, name, plant=None):
        out = f"{self.folder}/{name}-O{level}"
        if os.path.exists(out):
            return out
        texts = dict(self.texts)
        if plant:
            path, (_, body) = self.place(plant[0])
            texts[path] = texts[path][:body] + " " + extra(plant[1], True) + texts[path][body:]
        for path, text in texts.items():
            if read(path) != text:
                write(path, text)
        profile = {"OPT_LEVEL": str(level), "DEBUG": "1", "CODEGEN_UNITS": "1", "INCREMENTAL": "false"}
        flags = {f"CARGO_PROFILE_RELEASE_{name}": value for name, value in profile.items()}
        flags |= {"RUSTFLAGS": "--cap-lints=allow", "CARGO_TARGET_DIR": f"{self.folder}/target-O{level}"}
        must(["cargo", "build", "--release", "--offline", "-q"], cwd=self.folder + "/src", env=os.environ | flags)
        shutil.copy(f"{self.folder}/target-O{level}/release/rg", out)
        return out


def hottest(program, base):
    """How many instructions a function runs itself, and how often it is called: of those that have at least
    1 % of the run and can be changed."""
    said, _, _ = ran(base, base, program.args, program.options)
    total = said["totals"]["old"][TOTAL]
    rows = [(row["name"], row["old"][TOTAL], row["old"]["calls"]) for row in said["functions"]]
    names = [name for name, _, _ in rows]
    found = {name: (own, calls) for name, own, calls in rows
             if own >= total / 100 and calls and names.count(name) == 1 and program.place(name)}
    return found


def prepared(program):
    """The candidates, with what they have of the run; the program is built with all of them kept apart."""
    path = program.folder + "/candidates.json"
    if not os.path.exists(path):
        marked = list(hottest(program, program.build(2, "plain")))
        program.mark(marked)
        found = hottest(program, program.build(2, "marked"))
        found = {name: found[name] for name in marked if name in found}
        write(path, json.dumps({"marked": marked, "found": found}))
        return found
    known = json.loads(read(path))
    program.mark(known["marked"])
    return known["found"]


# ---- Row 14: plants

PROGRAMS = {"lua": (Plain, (5, 5, 5, 20, 20, 20, 100, 100, 100, 100)),
            "sqlite": (Plain, (5, 5, 5, 20, 20, 20, 20, 100, 100, 100)),
            "ripgrep": (Ripgrep, (5, 5, 5, 5, 20, 20, 20, 100, 100, 100))}


def difference(said, function):
    """How many instructions more a function has itself, and of how many."""
    row = next(row for row in said["functions"] if row["name"] == function)
    return row["new"][TOTAL] - row["old"][TOTAL], row["old"][TOTAL]


def planted(program, function, share, calls, own):
    """Builds a program with about `share` per cent more instructions in a function, and compares. How much is
    added is corrected once, by what the first build did."""
    base = program.build(2, "marked")
    n, is_corrected = max(round(own * share / 100 / calls), 1), False
    while True:
        name = f"{re.sub('[^A-Za-z0-9_]+', '_', function)}-{n}"
        said, _, seconds = ran(base, program.build(2, name, (function, n)), program.args, program.options)
        more, was = difference(said, function)
        got = 100 * more / was
        better = max(round(n * share / got), 1) if got > 0 else 2 * n
        if is_corrected or abs(got / share - 1) < 0.25 or better == n:
            return name, n, said, got, seconds
        n, is_corrected = better, True


def judged(said, function):
    """The rank of a function among those of outliers, and what others have of the run, above 1 %."""
    order = ranked(said)
    total = said["totals"]["old"][TOTAL]
    others = [f"{row['function']} {100 * (row['new'] - row['old']) / total:+.1f} %" for row in said["outliers"]
              if row["function"] != function and abs(row["new"] - row["old"]) > total / 100]
    return order.index(function) + 1 if function in order else 999, others


def row_14():
    ranks, again, n_false = [], [], 0
    for name, (kind, shares) in PROGRAMS.items():
        program = kind(name)
        found = prepared(program)
        draw = random.Random(f"{SEED} {name}")
        left = sorted(found)
        draw.shuffle(left)
        for share in shares:
            # A call cannot have half an instruction more.
            function = next((one for one in left if found[one][0] / found[one][1] * share >= 100), None)
            if not function:
                sys.exit(f"{name}: no function is left that can have {share} % more")
            left.remove(function)
            own, calls = found[function]
            build, n, said, got, seconds = planted(program, function, share, calls, own)
            rank, others = judged(said, function)
            ranks.append(rank)
            n_false += bool(others)
            total = said["totals"]["old"][TOTAL]
            top = said["outliers"][0] if said["outliers"] else None
            first = f", first is {top['function']} {top['new'] - top['old']:+.0f}" if top and rank != 1 else ""
            print(f"14 {name} {function} ({100 * own / total:.1f} % of the run, {calls} calls) {share} %: {n} more in a "
                  f"call, {got:+.1f} % ({100 * difference(said, function)[0] / total:+.2f} % of the run), rank {rank} of "
                  f"{len(ranked(said))}{first}; false {others or 'none'}; {seconds:.1f} s", flush=True)
            if share == 100:
                new = program.build(3, build, (function, n))
                said, _, seconds = ran(program.build(2, "marked"), new, program.args, program.options)
                rank, others = judged(said, function)
                again.append(rank)
                print(f"14 {name} {function} {share} % O2~O3: rank {rank} of {len(ranked(said))}, the first "
                      f"{', '.join(ranked(said)[:3])}; others above 1 %: {others or 'none'}; {seconds:.1f} s", flush=True)
    n_first, n_five = sum(rank == 1 for rank in ranks), sum(rank <= 5 for rank in ranks)
    n_again = sum(rank <= 5 for rank in again)
    holds = n_first >= 27 and n_five == len(ranks) == 30 and n_again >= 8 and len(again) == 10 and not n_false
    return verdict(14, holds, f"first in {n_first} of {len(ranks)} (27), first five in {n_five} (30), O2~O3 first five in "
                   f"{n_again} of {len(again)} (8), false outliers in {n_false} (0)")


# ---- Row 17: the gate

# Of functions with about 1 % of the run: lua caches strings by the addresses of C's (luaS_new), and so runs
# some thousand instructions more or less if its data lie elsewhere.
GATE = f"{TOTAL} > 1.005 or any(function, {TOTAL} > 1.05 and new.{TOTAL} > 300000)"
FINE = f"any(function, {TOTAL} > 1.005 and new.{TOTAL} > 300000)"
N_BUILDS = 20


def elsewhere(n):
    """lua, built in a folder of some other name, linked in some other order."""
    numbers = random.Random(f"{SEED} {n}")
    out = f"{WHERE}/17/lua-{n}"
    if os.path.exists(out):
        return out
    name = "/".join("".join(numbers.choices("abcdefghijklmnop-_.x", k=numbers.randint(1, 24))).strip(".") + "d"
                    for _ in range(numbers.randint(1, 4)))
    folder = f"{WHERE}/17/src-{n}/{name}"
    original = compare.source("lua")
    found, flags = compare.files("lua", original)
    if not os.path.isdir(folder):
        shutil.copytree(original, folder)
        shutil.copy(found[0], folder)
    objects = [f"{folder}/{os.path.basename(path)[:-2]}.o" for path in found]
    words = [GCC, "-O2", "-g", "-w", "-fno-strict-aliasing", *flags.replace(original, folder).split(), "-c"]
    must([*words, *(of[:-2] + ".c" for of in objects)], cwd=folder)
    numbers.shuffle(objects)
    must([GCC, *objects, "-o", out + ".part", "-lm", "-ldl"])
    os.rename(out + ".part", out)
    return out


def fires(old, new, expression):
    _, status, seconds = ran(old, new, compare.workload("lua")[0], ("--fail-if", expression))
    return status == 1, seconds


def row_17():
    base, n_wrong = elsewhere(0), 0
    for n in range(1, N_BUILDS + 1):
        new = elsewhere(n)
        fired, seconds = zip(*(fires(base, new, expression) for expression in (GATE, FINE)))
        if any(fired):
            n_wrong += 1
            said, _, _ = ran(base, new, compare.workload("lua")[0])
            rows = [(row["name"], row["old"][TOTAL], row["new"][TOTAL]) for row in said["functions"]][:3]
            print(f"17 build {n}: FIRES {fired}: {rows}", flush=True)
    print(f"17 {N_BUILDS} builds of one source, {N_BUILDS - n_wrong} pass; {seconds[0]:.1f} s each", flush=True)
    program = Plain("lua")
    found = prepared(program)
    base = program.build(2, "marked")
    total = ran(base, base, program.args)[0]["totals"]["old"][TOTAL]
    n_missed, n_plants = 0, 0
    # 1 % of the function itself where a call is long enough; else 1 % of the run.
    for function, (own, calls) in sorted(found.items()):
        plants = [("of the run", GATE, total / 100 / calls)]
        if own / calls >= 100:
            plants.append(("of the function", FINE, own / 100 / calls))
        for what, expression, n in plants:
            n = max(round(n), 1)
            new = program.build(2, f"{function}-{n}", (function, n))
            said, _, _ = ran(base, new, program.args)
            more, was = difference(said, function)
            fired, _ = fires(base, new, expression)
            n_plants += 1
            n_missed += not fired
            print(f"17 plant of 1 % {what} in {function}: {more:+.0f} of {was:.0f}, {100 * more / total:+.2f} % of the "
                  f"run: {'fires' if fired else 'DOES NOT FIRE'}", flush=True)
    holds = not n_wrong and not n_missed and n_plants > 0
    return verdict(17, holds, f"fires in {n_wrong} of {N_BUILDS} equal builds (0), in {n_plants - n_missed} of {n_plants} "
                   "plants of 1 % (all)")


ROWS = {"14": row_14, "17": row_17}


def main():
    rows = sys.argv[1:] or list(ROWS)
    if unknown := [row for row in rows if row not in ROWS]:
        sys.exit(f"{' '.join(unknown)}: no such row; there are {' '.join(ROWS)}")
    os.makedirs(WHERE, exist_ok=True)
    return all([ROWS[row]() for row in rows])


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
