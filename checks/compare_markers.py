#!/usr/bin/env -S python3 -I
"""compare_markers.py [PROGRAM…]: are the points that `engraft compare` pairs the same moments, by a clock
that neither it nor the compilers' code knows of (issue 32, row 7)?
Behind the brace of each function and each loop of a copy of the sources stands a marker: an empty `asm
volatile`, on a line that is there already. In what the compiler makes of it, a marker notes its address and
its number in a section of its own. Markers are left out until the code is the unmarked build's, instruction
by instruction, addresses aside: so it is known where these places of the source are in the unmarked build,
which alone is traced and compared. Each execution of such a place is a tick; in both builds, the same ones
tick as often and in the same order (asserted; those that do not are left out, and their number printed).
Two points that are paired are wrong if the clock has not ticked as often before them. A pair is spoken of
only if the clock has ticked since the last point of its kind, and ticks before the next one: else a shift by
one would not be seen. Of loops, points are those that are paired; of calls, all. Clones, inlined copies and
unrolled rounds have the marker each. In target/compare/markers.
ENGRAFT: the command [target/release/engraft]. ROWS: which of compare.py's [1 2 3 4]. WRONG=N: the N kinds of
points with most wrong pairs, and with most that nothing is said of. ROUNDS: how often markers are tried
anew that change code with others. LENGTH: bytes of input. SHIFT=N takes each point of the new build for the
one N behind it, to see the check fail. Exit 1 if a bound does not hold of the mean over the programs."""

import array
import bisect
import collections
import csv
import importlib.util
import json
import mmap
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
SPEC = importlib.util.spec_from_file_location("markers", HERE + "/markers.py")
markers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(markers)
compare = markers.compare
PLACE = markers.PLACE
SHIFT = int(os.environ.get("SHIFT", "0"))
WRONG = int(os.environ.get("WRONG", "0"))
LENGTH = int(os.environ.get("LENGTH", "60000"))
SURE = 0.9
ENTERS, LEAVES = 0x40000000, 0x80000000
POINT = rb'\{"thread":(\d+),"index":(\d+),"at":(\d+)\}'
ANCHOR = re.compile(rb'"old":' + POINT + rb',"new":' + POINT + rb',"confidence":([0-9.e+-]+)')


# Runs: when markers tick.


class Run:
    """An unmarked build's run: its symbols, and where its functions' blocks are."""

    def __init__(self, program, build):
        self.binary = compare.built(program, build)
        self.trace = f"{PLACE}/{program}-{build}.trace"
        self.plain = markers.functions(self.binary)
        self.starts = [of.at for of in self.plain]
        args, text = workload(program)
        self.said = engraft("trace", "-q", "-o", self.trace, self.binary, *args, text=text)
        said = json.loads(engraft("query", self.trace, "--stats", "--json"))
        if said["n_threads"] != 1 or said["n_astray"] or said["n_lost"]:
            sys.exit(f"{self.trace}: more than one thread, or not all of the run: {said}")
        engraft("convert", self.trace, "-q", "-o", self.trace + ".trc")
        self.symbols = array.array("I")
        with open(self.trace + ".trc", "rb") as file:
            self.symbols.frombytes(file.read())
        os.remove(self.trace + ".trc")
        self.find()
        # By address of a block: its function, and its number there.
        self.places = {at: (of, n) for of, blocks in self.blocks.items() for n, (at, *_) in enumerate(blocks)}
        self.order = sorted(self.places)

    def find(self):
        """By function of the trace: its name, where it starts, and its blocks: start, end, executions."""
        first = {}
        for found in re.finditer(b"\x40", memoryview(self.symbols).cast("B")[3::4].tobytes()):
            first.setdefault(self.symbols[found.start()], found.start())
        packed = self.trace + ".packed"
        engraft("trace", "pack", "-q", self.trace, "-o", packed)
        self.names, self.entries = {}, {}
        for of, at in first.items():
            said = json.loads(engraft("query", packed, "--at", f"{at}..{at + 2}", "--json"))["symbols"]
            self.names[of] = said[0]["function"]
            if said[1]["step"] == "B" and said[1]["block"] == 0:
                self.entries[said[1]["at"]] = of
        os.remove(packed)
        table = self.trace + ".csv"
        engraft("convert", self.trace, "-q", "-o", table)
        rows = collections.defaultdict(list)
        with open(table, newline="", encoding="utf-8", errors="replace") as file:
            for image, name, start, end, number in list(csv.reader(file))[1:]:
                if os.path.basename(image) == os.path.basename(self.binary):
                    rows[name].append((int(start, 16), int(end, 16), int(number)))
        times, self.blocks = collections.Counter(self.names.values()), {}
        for at, of in self.entries.items():
            name, own = self.names[of], self.within(at)
            # Another function of the same name has rows of its own; what is split off belongs to it.
            self.blocks[of] = [
                row
                for row in rows[name]
                if self.within(row[0]) is own or times[name] == 1 and self.within(row[0]).name != own.name
            ]

    def within(self, at):
        """The function of the symbol table that an address is in."""
        n = bisect.bisect_right(self.starts, at) - 1
        return self.plain[n] if n >= 0 else None

    def calls(self, start, end):
        """The calls of a block: where each is, which function of the trace it enters; none of pointers."""
        for at, to in sorted(self.within(start).calls.items()):
            if start <= at < end and (to is None or to in self.entries):
                yield at, None if to is None else self.entries[to]

    def tables(self, marks):
        """By function, by block: what is done when it is executed. And the markers that have no place."""
        found, lost = collections.defaultdict(dict), set()
        in_block, on_edge = collections.defaultdict(list), collections.defaultdict(list)
        for at, number, how in sorted(marks, key=lambda mark: mark[0]):
            (on_edge if how == markers.EDGE and at in self.places else in_block)[at].append(number)
        for at, numbers in on_edge.items():
            of, n = self.places[at]
            before = [m for m, block in enumerate(self.blocks[of]) if block[1] == at]
            if self.entries.get(at) == of:
                before = [-1]
            if not before:
                lost.update(numbers)
                continue
            step = found[of].setdefault(n, Step())
            step.edges = {before[0]: numbers}
        by_block = collections.defaultdict(list)
        for at, numbers in in_block.items():
            n = bisect.bisect_right(self.order, at) - 1
            place = self.places[self.order[n]] if n >= 0 else None
            if place and at < self.blocks[place[0]][place[1]][1]:
                by_block[place] += [(at, number) for number in numbers]
        for (of, n), numbers in by_block.items():
            step = found[of].setdefault(n, Step())
            start, end, _ = self.blocks[of][n]
            # At one address, a marker comes before a call.
            items = sorted(
                [
                    *((at, 0, number) for at, number in numbers),
                    *((at, 1, to) for at, to in self.calls(start, end)),
                ],
                key=lambda item: item[:2],
            )
            behind = next((m for m, item in enumerate(items) if item[1]), len(items))
            step.marks = [item[2] for item in items[:behind]]
            if any(not item[1] for item in items[behind:]):
                step.rest = [item[1:] for item in items[behind:]]
        return found, lost

    def shares(self, code):
        """The share of the run's instructions in functions of the marked build's code; with markers."""
        total = same = marked = 0
        twins = {twin.at: bool(code.marks.get(at)) for at, twin in code.twins.items()}
        addresses = [at for of in self.plain for at in of.addresses]
        for blocks in self.blocks.values():
            for start, end, number in blocks:
                size = number * (bisect.bisect_left(addresses, end) - bisect.bisect_left(addresses, start))
                of = self.within(start).at
                total += size
                same += size if of in twins else 0
                marked += size if twins.get(of) else 0
        shares = compare.percent(same, total), compare.percent(marked, total)
        return (
            f"of {total / 1e6:.1f} M instructions in functions whose code is the same {shares[0]:.1f} %, "
            f"with markers {shares[1]:.1f} %"
        )

    def ticks(self, marks):
        """Which markers tick, in which symbol: from before the next on. And when functions were entered."""
        tables, lost = self.tables(marks)
        clock = Clock()
        entered = {of: array.array("I") for of in self.names}
        row, before, rest, stack = {}, -1, None, []
        for k, symbol in enumerate(self.symbols):
            if symbol < ENTERS:
                if rest:
                    clock.finish(rest, k)
                    rest = None
                step = row.get(symbol)
                if step:
                    if step.edges and before in step.edges:
                        clock.tick(step.edges[before], k - 1)
                    clock.tick(step.marks, k)
                    rest = list(step.rest)
                before = symbol
            elif symbol < LEAVES:
                if rest:
                    clock.enter(rest, symbol, k)
                stack.append((row, before, rest))
                row, before, rest = tables.get(symbol, {}), -1, None
                entered[symbol].append(k)
            else:
                if rest:
                    clock.finish(rest, k)
                row, before, rest = stack.pop()
        return clock, entered, lost


class Step:
    """What is done when a block is executed: markers at its start, and what follows, call by call."""

    def __init__(self):
        self.marks, self.rest, self.edges = [], [], None


class Clock:
    """When which marker ticked."""

    def __init__(self):
        self.at, self.numbers = array.array("i"), array.array("I")

    def tick(self, numbers, at):
        for number in numbers:
            self.at.append(at)
            self.numbers.append(number)

    def finish(self, rest, k):
        """A block ended before symbol k: all that was left of it."""
        self.tick([what for is_call, what in rest if not is_call], k - 1)

    def enter(self, rest, function, k):
        """A function is entered by symbol k: it is the next call, or one by pointer before that."""
        found = None
        for n, (is_call, what) in enumerate(rest):
            if is_call and what is None:
                found = n if found is None else found
            elif is_call:
                found = n if what == function else found
                break
        if found is not None:
            self.finish(rest[:found], k)
            del rest[: found + 1]


def engraft(*words, text=None):
    """What it prints. The program's output goes there, too."""
    with open(text or os.devnull, "rb") as file:
        return compare.must(["setarch", "-R", compare.ENGRAFT, *words], stdin=file)


def workload(program):
    """As compare.py has it, but shorter."""
    args, text = compare.workload(program)
    if text:
        with open(text, "rb") as file, open(PLACE + "/text", "wb") as short:
            short.write(file.read(LENGTH))
        text = PLACE + "/text"
    return (["8"] if program == "sqlite" else args), text


# Truth: whether what is said to be the same moment is.


class Tally:
    """What is known of pairs of points."""

    def __init__(self):
        self.matched = self.spoken = self.differ = self.wrong = 0

    def add(self, speaks, differs):
        self.matched += 1
        self.spoken += speaks
        self.differ += differs
        self.wrong += speaks and differs

    def shares(self):
        return compare.percent(self.spoken, self.matched), 100 * self.wrong / max(self.spoken, 1)

    def __str__(self):
        spoken, wrong = self.shares()
        return (
            f"{self.matched} matched, spoken of {spoken:.1f} %, wrong {wrong:.3f} % of these "
            f"(others that differ: {self.differ - self.wrong})"
        )


def anchors(old, new):
    """All pairs: index and address of both points, and how sure the tool is."""
    said = PLACE + "/anchors.json"
    with open(said, "wb") as file:
        ran = subprocess.run(
            ["setarch", "-R", compare.ENGRAFT, "compare", "--anchors", "--json", old.trace, new.trace],
            stdout=file,
            stderr=subprocess.PIPE,
            check=False,
        )
    if ran.returncode:
        sys.exit(f"compare {old.trace} {new.trace}: {ran.returncode}: {ran.stderr.decode()[-600:]}")
    with open(said, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for of in ANCHOR.finditer(text):
            yield (int(of[2]), int(of[3])), (int(of[5]), int(of[6])), float(of[7])


class Side:
    """A build in a row: how often the clock had ticked whenever a function was entered, or a loop ran."""

    def __init__(self, run, marks, points):
        self.run = run
        self.clock, self.entered, self.lost = run.ticks(marks)
        # By loop: where those of its rounds are that are paired.
        times = collections.defaultdict(list)
        for index, at in sorted(points):
            if run.symbols[index] < ENTERS:
                times[at].append(index)
        self.times = {at: array.array("I", found) for at, found in times.items()}
        self.counts = collections.Counter(self.clock.numbers)
        self.known = {number for _, number, _ in marks} - self.lost
        self.moments = {}

    def restrict(self, common):
        """Leaves in the clock what both builds have."""
        self.at = array.array(
            "i", (at for at, number in zip(self.clock.at, self.clock.numbers) if number in common)
        )
        self.numbers = array.array("I", (number for number in self.clock.numbers if number in common))

    def key(self, index, at):
        symbol = self.run.symbols[index]
        return at if symbol < ENTERS else symbol

    def moment(self, index, key):
        """Which time of its kind a point is; by time, ticks, and whether there are some around it."""
        if key not in self.moments:
            times = self.times[key] if key in self.times else self.entered[key]
            ticks = [bisect.bisect_left(self.at, k) for k in times]
            last = len(ticks) - 1
            alone = [
                last > 0 and (n == 0 or ticks[n - 1] != tick) and (n == last or ticks[n + 1] != tick)
                for n, tick in enumerate(ticks)
            ]
            self.moments[key] = times, ticks, alone
        times, ticks, alone = self.moments[key]
        n = bisect.bisect_left(times, index)
        if n == len(times) or times[n] != index:
            sys.exit(f"{self.run.trace}: nothing of {key} is at {index}")
        return n, ticks, alone

    def where(self, key):
        if key in self.times:
            of, n = self.run.places.get(key, (None, None))
            return f"{self.run.names.get(of)} block {n} {key:#x}"
        return self.run.names[key]


def agreed(old, new):
    """Markers that tick equally often in both builds, in the same order; and of how many each rule is."""
    common = old.known & new.known & (set(old.counts) | set(new.counts))
    differ = {number for number in common if old.counts[number] != new.counts[number]}
    common -= differ
    swapped = set()
    while True:
        for side in (old, new):
            side.restrict(common)
        at = next((pair for pair in zip(old.numbers, new.numbers) if pair[0] != pair[1]), None)
        if at is None:
            return common, differ, swapped
        swapped.update(at)
        common -= set(at)


def judged(old, new, pairs):
    """Pairs, all and those of which the tool is sure; and by places, which are wrong, or not spoken of."""
    every, sure = Tally(), Tally()
    wrong, silent = collections.defaultdict(list), collections.Counter()
    for *points, confidence in pairs:
        keys = tuple(side.key(*point) for side, point in zip((old, new), points))
        (n, ticks, alone), (m, others, others_alone) = (
            side.moment(point[0], key) for side, point, key in zip((old, new), points, keys)
        )
        m += SHIFT
        if m >= len(others):
            continue
        speaks, differs = alone[n] or others_alone[m], ticks[n] != others[m]
        for tally in (every, sure) if confidence >= SURE else (every,):
            tally.add(speaks, differs)
        if not speaks:
            silent[keys] += 1
        elif differs:
            wrong[keys].append((confidence, points[0][0], points[1][0], others[m] - ticks[n]))
    return every, sure, wrong, silent


def owned(source, program, base):
    """By function, of the build without optimisation, in which nothing is inlined: its markers that tick."""
    code = markers.Code(
        base.plain, {}, *markers.built(source, program, "O0", set(range(len(source.markers))))
    )
    ran = set(base.ticks(list(code.standing()))[0].numbers)
    names = {of.at: markers.bare(of.name) for of in code.marked}
    found = collections.defaultdict(set)
    for at, marks in code.marks.items():
        found[names[at]] |= ran.intersection(number for _, number, _ in marks)
    return found


def main():
    programs = sys.argv[1:] or ["bzip2", "lua", "sqlite", "tcc", "lzip"]
    which = os.environ.get("ROWS", "1 2 3 4").split()
    os.makedirs(PLACE, exist_ok=True)
    got = collections.defaultdict(list)
    for program in programs:
        source = markers.Source(program)
        base = Run(program, "O0")
        own = owned(source, program, base)
        n_ran = sum(map(len, own.values()))
        runs = {}
        for row in which:
            names = compare.ROWS[row][:2]
            for build in names:
                if build not in runs:
                    run = base if build == "O0" else Run(program, build)
                    code, kept = markers.search(source, program, build, run.plain, own)
                    runs[build] = run, code
                    print(
                        f"{program}-{build}: {len(kept)} markers of {n_ran} that run; {run.shares(code)}",
                        flush=True,
                    )
            (old, old_code), (new, new_code) = (runs[build] for build in names)
            name = f"{row} {'~'.join(names)} {program:7}"
            if old.said != new.said:
                print(f"{name}: the builds say different things")
            pairs = list(anchors(old, new))
            old, new = (
                Side(run, list(code.standing()), {pair[n] for pair in pairs})
                for n, (run, code) in enumerate(runs[build] for build in names)
            )
            common, differ, swapped = agreed(old, new)
            every, sure, wrong, silent = judged(old, new, pairs)
            got[row].append((every, sure))
            print(
                f"{name} {len(common)} markers, {len(old.at)} ticks; not as often in both: {len(differ)}, "
                f"in another order: {len(swapped)}"
            )
            print(f"{name} all:    {every}\n{name} >= {SURE}: {sure}", flush=True)
            for keys, number in silent.most_common(WRONG):
                print(f"    says nothing: {number} of {old.where(keys[0])} and {new.where(keys[1])}")
            for keys, found in sorted(wrong.items(), key=lambda item: -len(item[1]))[:WRONG]:
                steps = collections.Counter(of[3] for of in found).most_common(3)
                print(
                    f"    wrong: {len(found)} of {old.where(keys[0])} and {new.where(keys[1])}; "
                    f"{sum(of[0] >= SURE for of in found)} >= {SURE}; "
                    f"ticks apart {steps}; such as {found[len(found) // 2]}"
                )
    ok = True
    for row, tallies in got.items():
        mean = [
            sum(of) / len(of) for of in zip(*((*every.shares(), *sure.shares()) for every, sure in tallies))
        ]
        holds = mean[1] <= 1 and mean[3] <= 0.2
        ok = ok and holds
        print(
            f"{row} {'~'.join(compare.ROWS[row][:2])} mean: spoken of {mean[0]:.1f} %; "
            f"wrong {mean[1]:.3f} %, at most 1; "
            f">= {SURE}: wrong {mean[3]:.3f} %, at most 0.2: {'holds' if holds else 'DOES NOT HOLD'}",
            flush=True,
        )
    return ok


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
