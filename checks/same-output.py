#!/usr/bin/env python3
"""same-output.py OLD FILE NEW FILE: are two files that two builds of `engraft instrument` wrote the
same, but for the runtime?

OLD and NEW are the builds. The runtime is the piece of code that each of them copies behind the
moved code, between the symbols `engraft_module` and `engraft_module_end` of its own executable
($ENGRAFT_RUNTIME: two other names). It is found in a file by its bytes; the words at its start,
which are filled in, are not looked at. From there on:

- code is compared as disassembly, the runtime left out; an address in the runtime is told by the
  name of the symbol that is there, as far as both builds have one of that name, and by the distance
  from it if that is a byte before (unwind rows start there); any other is "runtime". One behind it is
  told by its distance from the runtime's end, one in the segments behind the code by its distance
  from their start;
- unwind rows as readelf shows them, those of the runtime left out, with addresses told the same
  way; the table that finds them is left out, since it follows;
- all other bytes of segments as words of 8 bytes, those that are such addresses told the same way;
  program headers too.

Exit 0: the same; 1: the first lines that differ; 2: no runtime was found.
"""
import difflib
import os
import re
import struct
import subprocess
import sys

HEAD = 0x98  # the words that are filled in
PAGE = 0x1000


def run(*command):
    # readelf ends with 1 where it only warns.
    return subprocess.run(command, capture_output=True, text=True, check=False, errors="replace").stdout


def template(engraft):
    """The runtime as `engraft` holds it, and the names of what is where in it."""
    start, end = os.environ.get("ENGRAFT_RUNTIME", "engraft_module engraft_module_end").split()
    at = {}
    for line in run("nm", engraft).splitlines():
        words = line.split()
        if len(words) == 3:
            at[words[2]] = int(words[0], 16)
    if start not in at or end not in at:
        sys.exit(f"same-output.py: {engraft} has no symbols {start} and {end}")
    data = open(engraft, "rb").read()
    for offset, va, length, *_ in segments(data):
        if va <= at[start] < va + length:
            from_ = at[start] - va + offset
            inside = {name: va - at[start] for name, va in at.items() if at[start] <= va <= at[end]}
            return data[from_ : from_ + at[end] - at[start]], inside
    sys.exit(f"same-output.py: {start} is in no segment of {engraft}")


def segments(data):
    """PT_LOAD: offset, address, length in the file and in memory, flags."""
    (phoff,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind, flags, offset, va, _, filesz, memsz, _ = struct.unpack_from("<IIQQQQQQ", data, phoff + i * size)
        if kind == 1:
            yield offset, va, filesz, memsz, flags


# Words of a file that look like addresses near the runtime and are none: of libstdc++, one.
BY_CHANCE = 2


class File:
    def __init__(self, path, runtime, names):
        self.path, self.data = path, open(path, "rb").read()
        self.loads = list(segments(self.data))
        at = self.data.find(runtime[HEAD:])
        if at < 0:
            print(f"{path}: no runtime was found")
            sys.exit(2)
        at -= HEAD
        offset, va, filesz, memsz, _ = next(s for s in self.loads if s[0] <= at < s[0] + s[2])
        self.text, self.text_end = va, va + filesz
        self.start = at - offset + va
        self.end = self.start + len(runtime)
        # Of several names of one place, all.
        self.names = {}
        for name, into in sorted(names.items()):
            self.names.setdefault(self.start + into, []).append(name)
        behind = [s[1] for s in self.loads if s[1] >= self.text_end and s[0] > offset]
        self.tables = min(behind, default=None)

    def tell(self, va):
        """An address, such that it is the same in both files."""
        if self.start <= va < self.end:
            for distance in (0, 1):
                if va + distance in self.names:
                    return " ".join(self.names[va + distance]) + (f"-{distance}" if distance else "")
            return "runtime"
        if self.end <= va < self.text_end:
            return f"behind+{va - self.end:#x}"
        if self.tables is not None and self.tables <= va < self.tables + 0x10000000:
            return f"tables+{va - self.tables:#x}"
        return f"{va:#x}"

    def code(self):
        target = re.compile(r"^(.*?)\b([0-9a-f]+)(?: <[^>]*>)?$")
        for line in run("objdump", "-d", "-z", "--no-show-raw-insn", self.path).splitlines():
            parts = line.split(":\t", 1)
            if len(parts) < 2:
                continue
            va, insn = int(parts[0], 16), parts[1].rstrip()
            if self.start <= va < self.end:
                continue
            if "(%rip)" in insn and "#" in insn:
                body, note = insn.split("#", 1)
                insn = re.sub(r"-?0x[0-9a-f]+\(%rip\)", self.tell(int(note.split()[0], 16)) + "(%rip)", body).rstrip()
            elif re.match(r"(j|call|loop|xbegin|bnd|notrack|data16|addr32|cs|rex)", insn):
                found = target.match(insn)
                if found and "*" not in insn:
                    insn = found[1] + self.tell(int(found[2], 16))
            yield f"{self.tell(va)}: {insn}"

    def unwind(self):
        keep = True
        for line in run("readelf", "--wide", "--debug-dump=frames", self.path).splitlines():
            if line.startswith("Contents of the "):  # names the file where there is one of debug information
                continue
            found = re.search(r"pc=([0-9a-f]+)\.\.([0-9a-f]+)", line)
            if found:
                start, end = int(found[1], 16), int(found[2], 16)
                keep = not self.start <= start < self.end
                line = f"FDE {self.tell(start)}..{self.tell(end)}"
            else:
                line = re.sub(r"^[0-9a-f]{8} [0-9a-f]{16} [0-9a-f]{8} CIE", "CIE", line)
                line = re.sub(r": ([0-9a-f]{16})$", lambda m: ": " + self.tell(int(m[1], 16)), line)
            if keep:
                yield line

    def rest(self):
        found = re.compile(r"\]\s+(\.eh_frame\S*)\s+\S+\s+([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+)")
        of_unwind = [(int(m[2], 16), int(m[2], 16) + int(m[4], 16)) for m in found.finditer(run("readelf", "-SW", self.path))]
        for offset, va, filesz, memsz, flags in self.loads:
            is_new = va == self.text or va == self.tables
            yield f"segment {self.tell(va)} flags {flags} " + ("" if is_new else f"{filesz:#x} {memsz:#x}")
            if flags & 1:
                continue
            # Program headers: as above; what is dynamic, by its words.
            for at in range(offset, offset + filesz - 7, 8):
                here = va + at - offset
                if va == self.tables and here < self.tables + PAGE or any(s <= here < e for s, e in of_unwind if va == self.tables):
                    continue
                (word,) = struct.unpack_from("<Q", self.data, at)
                # As an address and as it is: what is no address may look like one.
                if word:
                    yield f"{self.tell(here)}: {self.tell(word)}", f"{self.tell(here)}: {word:#x}"


def main():
    old_engraft, old, new_engraft, new = sys.argv[1:]
    (old_runtime, old_names), (new_runtime, new_names) = template(old_engraft), template(new_engraft)
    both = old_names.keys() & new_names.keys()
    old = File(old, old_runtime, {name: old_names[name] for name in both})
    new = File(new, new_runtime, {name: new_names[name] for name in both})
    for what in ("code", "unwind", "rest"):
        a, b = list(getattr(old, what)()), list(getattr(new, what)())
        if a == b:
            continue
        if what == "rest":
            # A few words that are no address look like one.
            chance = [n for n, (x, y) in enumerate(zip(a, b)) if x[0] != y[0] and x[1] == y[1]]
            a, b = [x[0] for x in a], [y[0] for y in b]
            for n in chance if len(chance) <= BY_CHANCE else []:
                a[n] = b[n]
            if a == b:
                continue
        for n, (x, y) in enumerate(zip(a, b)):
            if x != y:
                break
        else:
            n = min(len(a), len(b))
        print(f"{what} differs: {len(a)} and {len(b)} lines, first line {n}")
        lines = difflib.unified_diff(a[max(0, n - 2) : n + 4], b[max(0, n - 2) : n + 4], "old", "new", n=2, lineterm="")
        print("\n".join(list(lines)[2:14]))
        sys.exit(1)


main()
