#!/usr/bin/env -S python3 -I
"""Markers in programs: where places of the source are in what a compiler makes of it, without a byte of code.

Behind the brace of each function and each loop of a copy of the sources stands an empty `asm volatile`, on a
line that is there already. In the assembler file, it notes its address and its number in a section of its
own. Markers are left out until the code is the unmarked build's, instruction by instruction, addresses
aside. Imported by compare_markers.py."""

import array
import bisect
import collections
import importlib.util
import json
import os
import random
import re
import shutil
import struct

HERE = os.path.dirname(os.path.realpath(__file__))
SPEC = importlib.util.spec_from_file_location("compare", HERE + "/compare.py")
compare = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(compare)
PLACE = compare.WHERE + "/markers"
ROUNDS = int(os.environ.get("ROUNDS", "60"))


def read(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)


# Source: where markers go.

TOKEN = re.compile(
    r"""(?P<line>^[ \t]*\#(?:\\\r?\n|/\*(?s:.*?)\*/|[^\n])*)|"""
    r"""(?P<skip>//(?:\\\n|[^\n])*|/\*(?s:.*?)\*/|\s+)|"""
    r"""(?P<text>"(?:\\(?s:.)|[^"\\])*"|'(?:\\(?s:.)|[^'\\])*')|(?P<word>\w+)|(?P<sign>[^\w\s])""",
    re.M | re.X,
)
BEHIND_HEAD = {")", "const", "noexcept", "override"}


class Scopes:
    """The braces and parentheses that are open at a token, and what stands before it."""

    def __init__(self):
        self.braces, self.parentheses, self.words = [], [], ["", ""]
        # The word before the parenthesis that was closed last.
        self.head = ""

    def copy(self):
        other = Scopes()
        other.braces, other.parentheses = list(self.braces), list(self.parentheses)
        other.words, other.head = list(self.words), self.head
        return other

    def opened(self):
        """What a brace opens here: a function's body, a loop's, another block, or what holds functions."""
        within = self.braces[-1] if self.braces else "top"
        last = self.words[-1]
        if within == "top":
            if last in BEHIND_HEAD and not self.parentheses:
                return "entry"
            return "other" if last in ("=", ",", "{", "(", "]") else "top"
        if within == "other":
            return "other"
        if last == "do" or last == ")" and self.head in ("for", "while"):
            return "loop"
        return "block"

    def take(self, token):
        """Goes on behind it; says what it opens."""
        found = None
        if token == "(":
            self.parentheses.append(self.words[-1])
        elif token == ")":
            self.head = self.parentheses.pop() if self.parentheses else ""
        elif token == "{":
            found = self.opened()
            self.braces.append(found)
        elif token == "}" and self.braces:
            self.braces.pop()
        self.words = [self.words[-1], token]
        return found


def places(text):
    """Where markers go: positions behind braces, what each opens, and how many loops it is in."""
    scopes, kept = Scopes(), []
    for found in TOKEN.finditer(text):
        if found["skip"]:
            continue
        if found["line"]:
            # All branches of an #if begin alike; what follows goes on from the last one.
            word = found["line"].strip()[1:].split()[:1]
            if word and word[0] in ("if", "ifdef", "ifndef"):
                kept.append(scopes.copy())
            elif word and word[0] in ("else", "elif") and kept:
                scopes = kept[-1].copy()
            elif word and word[0] == "endif" and kept:
                kept.pop()
            continue
        opens = scopes.take(found[0])
        if opens in ("entry", "loop"):
            yield found.end(), opens


class Source:
    """A program's sources with markers: by number, file, line, the number at the function's start."""

    def __init__(self, program):
        self.folder = f"{PLACE}/{program}"
        self.markers = []
        from_ = compare.source(program)
        names, self.flags = compare.files(program, from_)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(from_, self.folder, symlinks=True)
        for at, _, found in sorted(os.walk(self.folder)):
            for name in sorted(found):
                if name.endswith((".c", ".h", ".cc")):
                    self.mark(os.path.join(at, name))
        self.flags = self.flags.replace(from_, self.folder)
        self.files = []
        for name in names:
            to = name.replace(from_, self.folder)
            if to == name:
                to = f"{self.folder}/{os.path.basename(name)}"
                shutil.copy(name, to)
                self.mark(to)
            self.files.append(to)

    def mark(self, path):
        text = read(path)
        parts, done, line, owner = [], 0, 1, len(self.markers)
        for at, opens in places(text):
            number = len(self.markers)
            owner = number if opens == "entry" else owner
            parts.append(f"{text[done:at]} ENGRAFT_{number} ")
            line, done = line + text.count("\n", done, at), at
            self.markers.append((os.path.basename(path), line, owner))
        write(path, "".join(parts) + text[done:])

    def header(self, path, kept):
        """What the markers are that a file may have: those kept, or nothing."""
        name, lines = os.path.basename(path), []
        for n, (file, *_) in enumerate(self.markers):
            if len(self.files) < 3 or file == name or file.endswith(".h"):
                lines.append(
                    f"#define ENGRAFT_{n} "
                    + (f'__asm__ volatile inline ("# mark {n}");' if n in kept else "")
                )
        return "\n".join(lines) + "\n"


# Builds: what of the marked one is the unmarked one's.

MARK = re.compile(r"^\s*# mark (\d+)")
LABEL = re.compile(r"^([\w.$@]+):")
IN, EDGE, NOWHERE = 0, 1, 2


def standing(lines, at):
    """Whether a marker is of the block behind it, or on the edge to it, since a label stands between."""
    behind, before = [], []
    for found, step in ((behind, 1), (before, -1)):
        n = at + step
        while 0 <= n < len(lines):
            line = lines[n].strip()
            if LABEL.match(line):
                found.append(LABEL.match(line)[1])
            elif line and line[0] != "#" and not re.match(r"\.(p2align|cfi|loc)", line):
                break
            n += step
        last = lines[n].strip() if 0 <= n < len(lines) else ""
    jumps = [name for name in behind if not name.startswith((".LEH", ".LVL", ".Ltmp"))]
    if not jumps:
        return IN
    is_empty = any(
        name.startswith(".L") and not name.startswith((".LEH", ".LFB", ".LFSB", ".LVL", ".Ltmp", ".Lfunc"))
        for name in before
    )
    is_skipped = last.startswith("j") and last.split()[-1] in behind
    return NOWHERE if is_empty or is_skipped else EDGE


def noted(text):
    """An assembler file in which each marker notes its address, its number and how it stands."""
    lines, group = text.split("\n"), ""
    out = list(lines)
    for n, line in enumerate(lines):
        if line.lstrip().startswith((".section", ".text")):
            words = line.split(",")
            group = f'G",@progbits,{words[3]},comdat' if len(words) > 4 else '",@progbits'
        elif found := MARK.match(line):
            note = int(found[1]) << 2 | standing(lines, n)
            out[n] = f'.Lengraft{n}:\n.pushsection .marks,"{group}\n.quad .Lengraft{n}, {note}\n.popsection'
    return "\n".join(out)


def built(source, program, build, kept):
    """The program with the markers kept; and where they are: address, number, how it stands."""
    folder, out = f"{PLACE}/{program}-{build}", f"{PLACE}/{program}-{build}/marked"
    os.makedirs(folder, exist_ok=True)
    compiler, flags = compare.BUILDS[build]
    if source.files[0].endswith(".cc"):
        compiler = compiler.replace("gcc", "g++").replace("clang", "clang++")
    objects = []
    for path in source.files:
        to = f"{folder}/{os.path.basename(path)}"
        header = source.header(path, kept)
        if not os.path.exists(to + ".done") or read(to + ".done") != header:
            write(to + ".h", header)
            # The debug information of gcc changes no code, but that of clang does.
            words = [
                compiler,
                *flags.split(),
                *(["-g"] if "clang" in compiler else []),
                "-w",
                "-fno-strict-aliasing",
                *source.flags.split(),
                "-include",
                to + ".h",
            ]
            compare.must([*words, "-S", path, "-o", to + ".s"])
            write(to + ".s", noted(read(to + ".s")))
            compare.must([compiler, "-c", to + ".s", "-o", to + ".o"])
            os.rename(to + ".h", to + ".done")
        objects.append(to + ".o")
    compare.must([compiler, *flags.split(), *objects, "-o", out, "-lm", "-ldl"])
    # Without any marker, there is no such section, and none is written.
    if os.path.exists(folder + "/marks"):
        os.remove(folder + "/marks")
    compare.must(["objcopy", "--dump-section", f".marks={folder}/marks", out, "/dev/null"])
    if not os.path.exists(folder + "/marks"):
        return out, []
    with open(folder + "/marks", "rb") as file:
        marks = [(at, note >> 2, note & 3) for at, note in struct.iter_unpack("<QQ", file.read())]
    return out, marks


HEAD = re.compile(r"^([0-9a-f]{16}) <(.+)>:$")
# An assembler may fill a gap with other ones; where the next instruction is tells how long they are.
PADDING = re.compile(r"^(data16 |cs )*(nop[wl]?\b|xchg +%ax,%ax)")
TARGET = re.compile(r" [0-9a-f]+ <(.+?)(\+0x[0-9a-f]+)?>$")


class Function:
    """A function's code: where each instruction is, and what it does, addresses aside."""

    def __init__(self, name, at):
        self.name, self.at, self.offsets, self.code = name, at, array.array("I"), []
        self.addresses = array.array("Q")
        # By address of a call: which address it calls; none of one by pointer.
        self.calls = {}

    def add(self, at, text):
        self.addresses.append(at)
        text = text.split(" #")[0].rstrip()
        if PADDING.search(text):
            return
        if target := TARGET.search(text):
            if text.startswith("call"):
                self.calls[at] = int(target[0].split()[0], 16)
            text = (
                text[: target.start()]
                + " "
                + (target[2] or "" if target[1] == self.name else "to " + target[1])
            )
        elif text.startswith("call"):
            self.calls[at] = None
        self.offsets.append(at - self.at)
        self.code.append(re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", text))


def functions(binary):
    """The functions of a binary, in order."""
    code = compare.must(["objdump", "-d", "--no-show-raw-insn", "-w", binary]).decode(errors="replace")
    found = []
    for line in code.split("\n"):
        if head := HEAD.match(line):
            found.append(Function(head[2], int(head[1], 16)))
        elif found and line.startswith(" ") and "\t" in line:
            at, _, text = line.partition(":\t")
            found[-1].add(int(at, 16), text)
    return found


def by_name(found):
    names = collections.defaultdict(list)
    for of in found:
        names[of.name].append(of)
    return names


def containing(found, starts, at):
    n = bisect.bisect_right(starts, at) - 1
    return found[n] if n >= 0 else None


def bare(name):
    """Without what a compiler adds to the names of copies."""
    return re.sub(r"\.(isra|constprop|part|cold|llvm)[.0-9a-z]*", "", name)


class Code:
    """What of a marked build's code is the unmarked one's."""

    def __init__(self, plain, own, binary, marks):
        # By name of a source's function, its markers.
        self.own = own
        self.marked = functions(binary)
        starts = [of.at for of in self.marked]
        # By place of a function in the marked build: its twin in the unmarked one; and those without.
        self.twins, self.others = {}, []
        names = by_name(self.marked)
        for name, found in by_name(plain).items():
            pairs = list(zip(names[name], found)) if len(found) == len(names[name]) else []
            same = {of.at: twin for of, twin in pairs if of.code == twin.code and of.offsets == twin.offsets}
            self.twins.update(same)
            if not name.endswith("@plt"):
                self.others += [of for of in found if of not in same.values()]
        # By place of a function: the marks in it.
        self.marks = collections.defaultdict(list)
        for at, number, how in marks:
            self.marks[self.marked[bisect.bisect_right(starts, at) - 1].at].append((at, number, how))

    def blamed(self):
        """Markers in functions whose code is another, or in what these call; and those that stand nowhere."""
        found = {number for of in self.marks.values() for _, number, how in of if how == NOWHERE}
        for of in self.marked:
            if of.at not in self.twins:
                found |= self.within([of.at]) or self.within(of.calls.values())
        return found.union(*(self.own.get(bare(of.name), ()) for of in self.others))

    def within(self, places):
        return {number for at in places for _, number, _ in self.marks.get(at, ())}

    def near(self, name):
        """Markers in the functions of a name, in what they call, and in what calls them."""
        names = {of.at: bare(of.name) for of in self.marked}
        name = bare(name)
        found = set(self.own.get(name, ()))
        for of in self.marked:
            if names[of.at] == name:
                found |= self.within([of.at, *of.calls.values()])
            elif name in (names.get(at) for at in of.calls.values()):
                found |= self.within([of.at])
        return found

    def standing(self):
        """Where markers stand in the unmarked build, of those that stand in functions with twins alone."""
        left = self.blamed()
        for at, marks in self.marks.items():
            if at in self.twins:
                move = self.twins[at].at - at
                yield from ((place + move, number, how) for place, number, how in marks if number not in left)


def search(source, program, build, plain, own):
    """The markers that leave the code alone. All are tried at once; then, of each function, one by one."""
    candidates = set().union(*own.values())
    cache = f"{PLACE}/{program}-{build}/kept.json"
    if os.path.exists(cache):
        kept = set(json.loads(read(cache)))
        return Code(plain, own, *built(source, program, build, kept)), kept
    # What differs without any marker, since the assembler was given text.
    always = {of.name for of in Code(plain, own, *built(source, program, build, set())).others}
    code = Code(plain, own, *built(source, program, build, candidates))
    together = [{number for _, number, _ in of} for of in code.marks.values()]
    kept, left, part = set(), set(candidates), len(candidates)
    for n in range(ROUNDS):
        trial, taken = set(), set()
        for number in chance_of(n, left, part) if n else sorted(left):
            if n == 0 or number not in taken:
                trial.add(number)
                taken.update(*(of for of in together if number in of))
        if not trial:
            break
        code = Code(plain, own, *built(source, program, build, kept | trial))
        blamed = code.blamed() & trial
        # What differs and is not explained by those blamed may come from any other.
        is_sure = all(of.name in always or blamed & code.near(of.name) for of in code.others)
        if is_sure:
            kept |= trial - blamed
            left -= trial if n else trial - blamed
            part = len(left)
        elif n:
            left -= trial if len(trial) == 1 else blamed
            always |= {of.name for of in code.others} if len(trial) == 1 else set()
            part = max(1, len(trial - blamed) // 2)
        print(
            f"    {program}-{build}: try {n}: {len(trial)} tried, {len(kept)} kept, "
            f"{len(left)} left, {len(code.others)} differ",
            flush=True,
        )
    write(cache, json.dumps(sorted(kept)))
    return Code(plain, own, *built(source, program, build, kept)), kept


def chance_of(n, left, part):
    """Some of what is left, in any order, but always the same."""
    return random.Random(n).sample(sorted(left), min(part, len(left)))
