#!/usr/bin/env python3
"""same-speed.py VERB OLD NEW RUN PAIRS: user time of the six overhead workloads under two builds of
engraft.

VERB: count, trace, or instrument (`--null`, the executable and its libraries but libc). RUN is the
corpora's overhead/run.sh. OLD and NEW run in turn, which of them first changes from pair to pair;
rewritten files are copied anew for each pair, since which pages of memory a file lies in is alone
worth up to 3 %. Each side has a cache of its own, warm before it counts. A run counts only if its
output and exit status are those of the plain program. Exit 1 if one does not, or if the geometric
mean of the medians of NEW / OLD is off by over 3 %.
"""
import hashlib
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WORKLOADS = "gzip bzip2 lua sqlite3 clangfmt python3".split()
BAR = 0.03


def run(command, env, folder):
    """User seconds of all that was started, and what it came to."""
    with tempfile.TemporaryFile(dir=folder) as out:
        child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return usage.ru_utime, (status, hashlib.file_digest(out, "md5").hexdigest())


def ask(run_sh, *what):
    return subprocess.run([run_sh, *what], check=True, capture_output=True, text=True).stdout


class Side:
    """One build with one workload: how it is run."""

    def __init__(self, verb, engraft, run_sh, name, folder):
        self.env = dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"), HOME=str(folder))
        self.copies = []
        folder.mkdir()
        if verb != "instrument":
            self.command = [run_sh, name, engraft, verb, "-q", "-o", str(folder / "recording"), "--"]
            return
        files = [(ask(run_sh, "--bin", name).strip(), None)]
        files += [line.split()[::-1] for line in ask(run_sh, "--libs", name).splitlines()]
        (folder / "new").mkdir()
        for path, soname in files:
            made = folder / "new" / (soname or Path(path).name)
            subprocess.run([engraft, "instrument", "-q", "--null", os.path.realpath(path), "-o", made], check=True)
            made.chmod(0o755)
            self.copies.append(made)
        self.env["BIN"] = str(self.copies[0])
        self.command = [run_sh, name, "env", f"LD_LIBRARY_PATH={folder / 'new'}"]

    def run(self, folder):
        for made in self.copies:
            shutil.copy(made, f"{made}~")
            os.replace(f"{made}~", made)
        return run(self.command, self.env, folder)


def main():
    verb, old, new, run_sh, pairs = sys.argv[1:]
    medians, failed = [], False
    for name in WORKLOADS:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            _, truth = run([run_sh, name], dict(os.environ), folder)
            sides = [Side(verb, engraft, run_sh, name, folder / which) for engraft, which in ((old, "old"), (new, "new"))]
            for side in sides * 2:
                side.run(folder)
            ratios, seconds = [], ([], [])
            for pair in range(int(pairs)):
                took = {}
                for which in (0, 1) if pair % 2 == 0 else (1, 0):
                    took[which], result = sides[which].run(folder)
                    seconds[which].append(took[which])
                    if result != truth:
                        print(f"{verb} {name}: the {('old', 'new')[which]} build's run ends otherwise than the plain one")
                        failed = True
                ratios.append(took[1] / took[0])
            median = statistics.median(ratios)
            medians.append(median)
            print(f"{verb} {name:10} {median:.3f} [{min(ratios):.3f} – {max(ratios):.3f}]  "
                  f"{statistics.median(seconds[0]):.2f} → {statistics.median(seconds[1]):.2f} s", flush=True)
    mean = math.exp(sum(map(math.log, medians)) / len(medians))
    failed = failed or mean > 1 + BAR
    print(f"{verb} geo. mean  {mean:.3f}, worst {max(medians):.3f}, {pairs} pairs{'  MISSED' if failed else ''}")
    sys.exit(failed)


main()
