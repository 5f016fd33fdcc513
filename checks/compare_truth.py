#!/usr/bin/env -S python3 -I
"""compare_truth.py [PROGRAM…]: are the calls that `engraft compare` pairs the same ones (issue 32, row 7)?
Both builds of each row of compare.py are recorded twice with the same input: by `engraft trace`, for what
is paired (--anchors), and by `engraft values --full`, for the arguments of each call. The n-th entry of a
function in the trace is its n-th call among the values, where their numbers agree. A pair is wrong if
integers differ, or pointers into the heap, less its start; other pointers are all alike. A pair is spoken
of only where the calls of that function just before and just behind it have other arguments, in one of the
builds at least: else a shift by one would not be seen. Builds whose output differs are left out. In
target/compare. ENGRAFT: the command [target/release/engraft]. ROWS: which [1 2 3 4]. WRONG=N: the N
functions with most wrong pairs, and with most that nothing is said of. RESULTS=1 takes what calls return
for an argument. SHIFT=N takes each entry in the new build for the one N behind it, to see the check fail.
KEEP=1 leaves the recordings. Exit 1 if a bound does not hold of the mean over the programs."""

import array
import bisect
import collections
import csv
import importlib.util
import json
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
SPEC = importlib.util.spec_from_file_location("compare", HERE + "/compare.py")
compare = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(compare)
PLACE = compare.WHERE + "/truth"
SHIFT = int(os.environ.get("SHIFT", "0"))
RESULTS = os.environ.get("RESULTS") == "1"
WRONG = int(os.environ.get("WRONG", "0"))
SURE = 0.9
ENTERS, LEAVES = 0x40000000, 0x80000000
# Where programs are without address randomisation, and where libraries and stacks begin.
BASE, LIBRARIES = 0x555555554000, 0x7F0000000000
POINT = rb'\{"thread":(\d+),"index":(\d+),"at":\d+\}'
ANCHOR = re.compile(rb'"old":' + POINT + rb',"new":' + POINT + rb',"confidence":([0-9.e+-]+)')
# What these are called with depends on where constants lie (the cache of luaS_new), or on the time.
BY_CHANCE = {"lua": {"strcmp@plt", "rotl", "lua_pushinteger"}}
# Heaps are alike if so many per cent of the pointers into them are, of functions that both builds call as
# often, with the same numbers. Else pointers are left out: what is allocated in another order is elsewhere.
ALIKE = 99.9

def engraft(*words, text=None):
    """What it prints. The program's output goes there, too."""
    with open(text or os.devnull, "rb") as file:
        return compare.must(["setarch", "-R", compare.ENGRAFT, *words], stdin=file)


def heap(binary):
    """Where the heap starts: on the page behind the program's data."""
    with open(binary, "rb") as file:
        head = file.read(64)
        start, size, number = *struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54)
        file.seek(start)
        headers = [struct.unpack("<IIQQQQQQ", file.read(size)[:56]) for _ in range(number)]
    return BASE + (max(of[3] + of[6] for of in headers if of[0] == 1) + 4095 & ~4095)


class Side:
    """A build's run: which call each function entry in the trace stands for, and with which arguments."""

    def __init__(self, program, build):
        self.program, self.binary = program, compare.built(program, build)
        self.trace = f"{PLACE}/{program}-{build}.trace"
        args, text = compare.workload(program)
        self.run = {"words": [self.binary, *args], "text": text}
        self.said = engraft("trace", "-q", "-o", self.trace, *self.run["words"], text=text)
        self.entries()
        # By function: its arguments' names and types, and what they were, call by call.
        self.arguments, self.calls, self.left_out = {}, {}, []
        record = f"{PLACE}/{program}-{build}.values"
        self.values(record, ["--modules", "exe", "--calls", "*"])
        self.take(record)
        stubs = [name for name in self.times if re.fullmatch(r"\w+@plt", name)]
        if stubs:
            self.values(record, [word for name in stubs for word in ("--calls", name[:-4])])
            self.take(record, stubs_called(self.binary))

    def values(self, record, which):
        words = ["values", "-q", "--full", "--no-times", *which, "-o", record, *self.run["words"]]
        if engraft(*words, text=self.run["text"]) != self.said:
            sys.exit(f"{self.binary}: does not say what it says without values")

    def entries(self):
        plain = self.trace + ".trc"
        said = json.loads(engraft("query", self.trace, "--stats", "--json"))
        if said["n_threads"] != 1:
            sys.exit(f"{self.trace}: {said['n_threads']} threads, where this check knows one")
        engraft("convert", self.trace, "-q", "-o", plain)
        with open(plain, "rb") as file:
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        os.remove(plain)
        self.symbols = memoryview(held).cast("I")
        # By entry: its index, and how many of the same function were before it.
        self.positions, self.numbers = array.array("I"), array.array("I")
        times, first = collections.Counter(), {}
        # The byte that tells an entry from other symbols is the last of the four.
        for found in re.finditer(b"\x40", held[3::4]):
            of = self.symbols[found.start()]
            first.setdefault(of, found.start())
            self.positions.append(found.start())
            self.numbers.append(times[of])
            times[of] += 1
        # Packed, it is looked into without being read from its start.
        packed = self.trace + ".packed"
        engraft("trace", "pack", "-q", self.trace, "-o", packed)
        self.names = {}
        for of, at in first.items():
            said = json.loads(engraft("query", packed, "--at", f"{at}..{at + 1}", "--json"))
            self.names[of] = said["symbols"][0]["function"]
        os.remove(packed)
        self.times = collections.defaultdict(list)
        for of, name in self.names.items():
            self.times[name].append(times[of])

    def take(self, record, sites=None):
        """The calls of a recording; with sites, those that stubs make of other modules' functions."""
        start = heap(self.binary)
        symbols = collections.defaultdict(list)
        for at, symbol in re.findall(r"^(\w+) [TtWw] (\S+)$", compare.must(["nm", self.binary]).decode(), re.M):
            symbols[int(at, 16)].append(symbol)
        # By name in the trace: what there is of it.
        found = collections.defaultdict(list)
        for of in json.loads(engraft("show", record, "--json"))["calls"]:
            name = of["function"]
            results = [of["result"]] if RESULTS and of["result"] else []
            kinds = [(value["name"], value["type"]) for value in of["arguments"] + results]
            # What is split off begins where its function has run for a while: its arguments may be
            # others by then.
            if not of["calls"] or ".part." in name or not any(is_told(kind) for _, kind in kinds):
                continue
            # In C++, the table has the names of symbols, of which a constructor may have two.
            names = symbols[of["addresses"][0]["address"]] if "(" in name else [name]
            calls = rows(record, names, kinds, start)
            if sites is None:
                name = next((name for name in names if name in self.times), name)
                found[name].append((kinds, [told for _, told in calls]))
                continue
            # Two functions of the C library may be one, memcpy and memmove: which is called, the call says.
            by_stub = collections.defaultdict(list)
            for caller, told in calls:
                module, _, at = caller.partition("!")
                if module == os.path.basename(self.binary):
                    by_stub[sites.get(int(at, 16), name) + "@plt"].append(told)
            for stub, calls in by_stub.items():
                found[stub].append((kinds, calls))
        for name, parts in found.items():
            kinds, calls = parts[0]
            if name in BY_CHANCE.get(self.program, ()):
                continue
            if len(parts) > 1 or self.times.get(name) != [len(calls)]:
                self.left_out.append(f"{name} ({[len(calls) for _, calls in parts]}, in the trace {self.times.get(name)})")
            else:
                self.arguments[name], self.calls[name] = kinds, calls

    def entry(self, index):
        """The function that is entered there, and the number of that entry from 0; none of a loop."""
        of = self.symbols[index]
        if not ENTERS <= of < LEAVES:
            return None
        return self.names[of], self.numbers[bisect.bisect_left(self.positions, index)]


def is_pointer(kind):
    return kind.endswith("*")


def is_number(kind):
    return not is_pointer(kind) and not kind.startswith(("struct ", "union ", "float", "double", "long double"))


def is_told(kind):
    return is_pointer(kind) or is_number(kind)


def stubs_called(binary):
    """By address of a call, the function of another module that it calls through a stub."""
    code = compare.must(["objdump", "-d", "--no-show-raw-insn", binary]).decode()
    return {int(at, 16): name for at, name in re.findall(r"^ *([0-9a-f]+):\t(?:call|jmp) .*<(\w+)@plt>$", code, re.M)}


def rows(record, names, kinds, start):
    """By whom and with what a function was called, in order; pointers into the heap from its start."""
    table = record + ".csv"
    words = [[compare.ENGRAFT, "convert", record, "-q", "-o", table, "--function", name] for name in names]
    if all(subprocess.run(of, stderr=subprocess.DEVNULL, check=False).returncode for of in words):
        sys.exit(f"{record}: no rows of {names}")
    found = []
    with open(table, newline="", encoding="utf-8", errors="replace") as file:
        lines = csv.reader(file)
        head = next(lines)
        columns = [head.index(of if of in head[4:] else "argument." + of) if is_told(kind) else None for of, kind in kinds]
        for line in lines:
            told = []
            for column in columns:
                text = line[column] if column else ""
                if text[:1] in ("", "{", "["):
                    text = None
                elif text.startswith("0x"):
                    at = int(text, 16)
                    text = at - start if start <= at < LIBRARIES else "null" if at == 0 else "elsewhere"
                told.append(text)
            found.append((int(line[2]), line[3], tuple(told)))
    return [row[1:] for row in sorted(found, key=lambda row: row[0])]


class Tally:
    """What is known of pairs of calls."""

    def __init__(self):
        self.matched = self.with_arguments = self.differ = self.spoken = self.wrong = 0

    def add(self, has_arguments, is_spoken, differs):
        self.matched += 1
        self.with_arguments += has_arguments
        self.differ += differs
        self.spoken += is_spoken
        self.wrong += is_spoken and differs

    def shares(self):
        return compare.percent(self.spoken, self.matched), 100 * self.wrong / max(self.spoken, 1)

    def __str__(self):
        spoken, wrong = self.shares()
        return (f"{self.matched} matched, {compare.percent(self.with_arguments, self.matched):.1f} % with arguments, "
                f"spoken of {spoken:.1f} %, wrong {wrong:.3f} % of these (others that differ: {self.differ - self.wrong})")


def bare(name):
    """Without what a compiler adds to the names of copies."""
    return re.sub(r"( \[)?\.(isra|constprop|part|cold)[.0-9a-z]*\]?", "", name)


def told(old, new, names, is_meant):
    """A function's calls in both builds: arguments that both have, and whether the calls beside it differ."""
    kinds = [side.arguments.get(name) for side, name in zip((old, new), names)]
    if None in kinds or bare(names[0]) != bare(names[1]):
        return None
    both = [of for of in kinds[0] if of in kinds[1] and is_meant(of[1])]
    found = []
    for side, name, of in zip((old, new), names, kinds):
        which = [of.index(argument) for argument in both]
        calls = [tuple(call[n] for n in which) for call in side.calls[name]]
        last = len(calls) - 1
        alone = [last > 0 and (n == 0 or calls[n - 1] != call) and (n == last or calls[n + 1] != call)
                 for n, call in enumerate(calls)]
        found.append((calls, alone))
    return found if both else None


def heaps(old, new):
    """Which share of pointers into the heap is alike, of functions called as often with the same numbers."""
    alike = number = 0
    for name in old.arguments.keys() & new.arguments.keys():
        numbers, pointers = (told(old, new, (name, name), is_meant) for is_meant in (is_number, is_pointer))
        if pointers is None or len(pointers[0][0]) != len(pointers[1][0]) or numbers and numbers[0][0] != numbers[1][0]:
            continue
        for call, other in zip(pointers[0][0], pointers[1][0]):
            of = [(a, b) for a, b in zip(call, other) if isinstance(a, int) or isinstance(b, int)]
            number, alike = number + len(of), alike + sum(a == b for a, b in of)
    return compare.percent(alike, number)


def anchors(old, new):
    """All pairs: the indices of both points, and how sure the tool is."""
    said = PLACE + "/anchors.json"
    with open(said, "wb") as file:
        ran = subprocess.run(["setarch", "-R", compare.ENGRAFT, "compare", "--anchors", "--json", old.trace, new.trace],
                             stdout=file, stderr=subprocess.PIPE, check=False)
    if ran.returncode:
        sys.exit(f"compare {old.trace} {new.trace}: {ran.returncode}: {ran.stderr.decode()[-600:]}")
    with open(said, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for found in ANCHOR.finditer(text):
            yield int(found[2]), int(found[4]), float(found[5])


def judged(old, new):
    """Pairs of calls, all and those of which the tool is sure; by function, which are wrong, which say nothing."""
    every, sure = Tally(), Tally()
    wrong, silent = collections.defaultdict(list), collections.Counter()
    known = {}
    alike = heaps(old, new)
    is_meant = is_told if alike >= ALIKE else is_number
    for *points, confidence in anchors(old, new):
        entries = [side.entry(index) for side, index in zip((old, new), points)]
        if None in entries:
            continue
        tallies = (every, sure) if confidence >= SURE else (every,)
        names = tuple(name for name, _ in entries)
        if names not in known:
            known[names] = told(old, new, names, is_meant)
        if known[names] is None:
            silent[(names, "no arguments")] += 1
            for tally in tallies:
                tally.add(False, False, False)
            continue
        numbers = entries[0][1], entries[1][1] + SHIFT
        (calls, alone), (others, others_alone) = known[names]
        if numbers[1] >= len(others):
            continue
        call, other = calls[numbers[0]], others[numbers[1]]
        speaks = alone[numbers[0]] or others_alone[numbers[1]]
        differs = call != other and any(a != b for a, b in zip(call, other) if a is not None and b is not None)
        for tally in tallies:
            tally.add(True, speaks, differs)
        if not speaks:
            silent[(names, "neighbours alike")] += 1
        elif differs:
            wrong[names[0]].append((confidence, points, numbers, call, other))
    return every, sure, wrong, silent, alike


def main():
    programs = sys.argv[1:] or ["bzip2", "lua", "sqlite", "tcc", "lzip"]
    which = os.environ.get("ROWS", "1 2 3 4").split()
    os.makedirs(PLACE, exist_ok=True)
    got = collections.defaultdict(list)
    for program in programs:
        sides = {}
        for row in which:
            for build in compare.ROWS[row][:2]:
                if build not in sides:
                    sides[build] = Side(program, build)
                    if sides[build].left_out:
                        print(f"{program}-{build}: not spoken of, since the numbers of calls do not agree: "
                              f"{', '.join(sides[build].left_out)}", flush=True)
            old, new = (sides[build] for build in compare.ROWS[row][:2])
            name = f"{row} {'~'.join(compare.ROWS[row][:2])} {program:7}"
            if old.said != new.said:
                print(f"{name} left out: the builds say different things, so what they are called with differs", flush=True)
                continue
            every, sure, wrong, silent, alike = judged(old, new)
            got[row].append((every, sure))
            how = "compared" if alike >= ALIKE else "left out"
            print(f"{name} all:    {every}; {alike:.2f} % of pointers into the heap alike: {how}\n{name} >= {SURE}: {sure}", flush=True)
            for (names, why), number in silent.most_common(WRONG):
                print(f"    says nothing: {number} of {names[0]} and {names[1]}: {why}")
            for of, pairs in sorted(wrong.items(), key=lambda item: -len(item[1]))[:WRONG]:
                confidence, points, numbers, call, other = pairs[len(pairs) // 2]
                steps = collections.Counter(pair[2][1] - pair[2][0] for pair in pairs).most_common(3)
                print(f"    wrong: {len(pairs)} of {of} {[a for a, _ in old.arguments[of]]}, {sum(pair[0] >= SURE for pair in pairs)} of "
                      f"them >= {SURE}, at most {max(pair[0] for pair in pairs):.3f}; shifts {steps}; such as {confidence:.3f} at "
                      f"{points}, calls {numbers}: {call} {other}")
    ok = True
    for row, tallies in got.items():
        mean = [sum(of) / len(of) for of in zip(*((*every.shares(), *sure.shares()) for every, sure in tallies))]
        holds = mean[0] >= 50 and mean[1] <= 1 and mean[3] <= 0.2
        ok = ok and holds
        print(f"{row} {'~'.join(compare.ROWS[row][:2])} mean: spoken of {mean[0]:.1f} %, must 50; wrong {mean[1]:.3f} %, at most 1; "
              f">= {SURE}: wrong {mean[3]:.3f} %, at most 0.2: {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
    if "KEEP" not in os.environ:
        shutil.rmtree(PLACE)
    return ok


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
