#!/usr/bin/env -S python3 -I
"""remembered.py [ROUNDS]: results remembered in a process that runs, against the same change in its source
(issue 31, row 8). Three programs, each as it is, with `engraft replace` in it, and with the change in its
source: `--memo` on a function of doubles whose arguments come again 15 times of 16, on one of integers whose
arguments always do, and `--constant` on a call of `log`. Prints the time a call (CPU time, medians of ROUNDS,
7, rounds, one of each after the other), both gains and their quotient. The machine should have nothing else
to do."""
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
ENGRAFT = os.environ.get("ENGRAFT", str(TOP / "target/release/engraft"))

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#define HERE __attribute__((noipa))
HERE double plain_root(double x) { double y = x; for (int i = 0; i < 40; i++) y = (y + x / y) / 2; return y; }
HERE long plain_mix(long a) { long n = a; for (int i = 0; i < 100; i++) n = n * 31 + (n >> 7); return n; }
#ifdef CHANGED
static struct { uint64_t key; double value; int set; } roots[1024];
HERE double root(double x) {
    uint64_t key; memcpy(&key, &x, 8);
    unsigned n = key * 0x9e3779b97f4a7c15ull >> 54;
    if (!roots[n].set || roots[n].key != key) roots[n].value = plain_root(x), roots[n].key = key, roots[n].set = 1;
    return roots[n].value;
}
static struct { long key, value; int set; } mixed[1024];
HERE long mix(long a) {
    unsigned n = a * 0x9e3779b97f4a7c15ull >> 54;
    if (!mixed[n].set || mixed[n].key != a) mixed[n].value = plain_mix(a), mixed[n].key = a, mixed[n].set = 1;
    return mixed[n].value;
}
HERE double site(double x) { return (x == 2.0 ? 0x1.62e42fefa39efp-1 : log(x)) + x; }
#else
HERE double root(double x) { double y = x; for (int i = 0; i < 40; i++) y = (y + x / y) / 2; return y; }
HERE long mix(long a) { long n = a; for (int i = 0; i < 100; i++) n = n * 31 + (n >> 7); return n; }
HERE double site(double x) { return log(x) + x; }
#endif
volatile double two = 2.0;
int main(int argc, char **argv) {
    unsigned long dice = 1;
    for (;;) {
        struct timespec from, to;
        double sum = 0;
        long n = 200000, integers = 0;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        for (long i = 0; i < n; i++) {
            dice = dice * 6364136223846793005u + 1;
            switch (argv[1][0]) {
            case 'r': sum += root((dice >> 60) * 10 < 144 ? 2 + (dice >> 50 & 15) : 1 + (dice >> 20) * 0x1p-44); break;
            case 'm': integers += mix(dice >> 55); break;
            default: sum += site(two);
            }
        }
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
        printf("%f %a %lx\n", ((to.tv_sec - from.tv_sec) * 1e9 + to.tv_nsec - from.tv_nsec) / n, sum, integers);
        fflush(stdout);
    }
}
"""


class Running:
    """A program that says how long its calls take, stopped but while it is looked at."""

    def __init__(self, path, what):
        self.process = subprocess.Popen([path, what], stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.process.stdout.readline()
        os.kill(self.pid, signal.SIGSTOP)

    def call_ns(self):
        """Of one round that it has begun meanwhile."""
        os.kill(self.pid, signal.SIGCONT)
        # What it had said before, and the round in which it was stopped.
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            self.process.stdout.readline()
        took = statistics.median(float(self.process.stdout.readline().split()[0]) for _ in range(3))
        os.kill(self.pid, signal.SIGSTOP)
        return took

    def replaced(self, *words):
        os.kill(self.pid, signal.SIGCONT)
        subprocess.run([ENGRAFT, "replace", *words, "-p", str(self.pid)], check=True, stdout=subprocess.DEVNULL)
        os.kill(self.pid, signal.SIGSTOP)

    def end(self):
        self.process.kill()
        self.process.wait()


def call_of_log(path):
    words = ["objdump", "-d", "--no-show-raw-insn", "--disassemble=site", path]
    text = subprocess.run(words, capture_output=True, text=True, check=True)
    line = next(line for line in text.stdout.splitlines() if "call" in line and "<log" in line)
    return "0x" + line.split(":")[0].strip()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, flags in [("plain", []), ("changed", ["-DCHANGED"])]:
            paths[name] = f"{folder}/{name}"
            gcc = ["gcc", "-O2", "-g", *flags, "-x", "c", "-", "-o", paths[name], "-lm"]
            subprocess.run(gcc, input=SOURCE, text=True, check=True)
        cases = [
            ("root", "--memo, doubles, 15 of 16 come again", ["root", "--memo"]),
            ("mix", "--memo, integers, all come again", ["mix", "--memo"]),
            ("log", "--constant, log", [call_of_log(paths["plain"]), "--constant", "2.0"]),
        ]
        for what, title, words in cases:
            plain, live, changed = (Running(paths[name], what) for name in ("plain", "plain", "changed"))
            live.replaced(*words)
            took = [[one.call_ns() for one in (plain, live, changed)] for _ in range(rounds)]
            for one in (plain, live, changed):
                one.end()
            plain_ns, live_ns, changed_ns = [statistics.median(column) for column in zip(*took)]
            gains = plain_ns / live_ns, plain_ns / changed_ns
            print(f"{title}: {plain_ns:.1f} ns a call; replaced {live_ns:.1f} ns, {gains[0]:.2f} ×; in the source "
                  f"{changed_ns:.1f} ns, {gains[1]:.2f} ×; quotient {gains[0] / gains[1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
