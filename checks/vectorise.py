#!/usr/bin/env -S python3 -I
"""vectorise.py [ROUNDS]: packed SSE loops of a process that runs, by AVX2 (issue 31, row 10). Twelve loops as
gcc -O3 makes them for any x86-64, each vectorised by `engraft replace --vectorise` and taken back: the time of
a call over arrays of 8 kB before, while and after (CPU time, medians of ROUNDS, 5), the gain, and whether all
results at many lengths are the same bit for bit; then eight that must be refused, each with its reason. The
machine should have nothing else to do."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
ENGRAFT = os.environ.get("ENGRAFT", str(TOP / "target/release/engraft"))
SOURCE = TOP / "engraft/tests/it/fixtures/vectorised.c"
TESTS = TOP / "engraft/tests/it/vectorised.rs"
LENGTHS = [0, 1, 3, 16, 17, 31, 32, 64, 100, 147, 777, 4096]


class Program:
    """One that answers a line for a line."""

    def __init__(self, path):
        self.process = subprocess.Popen([path, "alone"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def time_ns(self, name, rounds):
        return statistics.median(float(self.ask(f"time {name}")) for _ in range(rounds))

    def checksums(self):
        return [self.ask(f"all {n}") for n in LENGTHS]

    def replace(self, *words):
        return subprocess.run([ENGRAFT, "replace", *words, "-p", str(self.process.pid)], capture_output=True, text=True)


def names():
    text = TESTS.read_text()
    done = re.search(r"const DONE.*?= \[(.*?)\];", text, re.S).group(1)
    refused = re.search(r"const REFUSED.*?= \[(.*?)\];", text, re.S).group(1)
    return re.findall(r'"(\w+)"', done), re.findall(r'\("(\w+)"', refused)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    done, refused = names()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/loops"
        subprocess.run(["gcc", "-O2", "-g", "-w", "-pthread", str(SOURCE), "-o", path], check=True)
        program = Program(path)
        plain = program.checksums()
        n_done, gains = 0, []
        for name in done:
            before = program.time_ns(name, rounds)
            said = program.replace(name, "--vectorise", "--json")
            if said.returncode != 0:
                print(f"{name}: not done: {said.stderr.strip()}", flush=True)
                continue
            loops = json.loads(said.stdout)["loops"]
            meanwhile = program.time_ns(name, rounds)
            is_same = program.checksums() == plain
            undone = program.replace(name, "--undo")
            is_same = is_same and program.checksums() == plain and undone.returncode == 0
            after = program.time_ns(name, rounds)
            n_done += 1
            gains.append(before / meanwhile)
            wrong += not is_same
            print(f"{name}: {before:.0f} ns, vectorised {meanwhile:.0f} ns, taken back {after:.0f} ns: gain {gains[-1]:.2f} ×; "
                  f"results {'equal' if is_same else 'DIFFER'}; {sum(one['done'] for one in loops)} of {len(loops)} loops",
                  flush=True)
        if gains:
            print(f"{n_done} of {len(done)} done, median gain {statistics.median(gains):.2f} ×", flush=True)
        for name in refused:
            said = program.replace(name, "--vectorise")
            wrong += said.returncode != 2
            print(f"{name}: {said.stderr.strip() or 'DONE'}", flush=True)
        wrong += program.checksums() != plain
        program.process.kill()
        program.process.wait()
    return 1 if wrong or n_done < 6 else 0


if __name__ == "__main__":
    sys.exit(main())
