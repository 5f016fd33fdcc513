#!/usr/bin/env -S python3 -I
"""attach-cost.py [PAIRS] [ROW…]: what it costs a process to be observed by `-p PID`: rows 6, 8, 10 and 14 of the
issue of attaching. Rows: `exp`, nanoseconds a call of exp whose argument and result are recorded; `first`, from the
command to the first count, of redis and its libraries, with nothing kept and all; `load`, answers of redis a second
before, while it is counted and after, and the longest that one took; `memory`, what it took of memory. Each figure is
the median of PAIRS (5) rounds, with the least and the most. ENGRAFT: the command [target/release/engraft]. Needs gcc,
redis-server and redis-benchmark. Exit 1 if a bound does not hold."""

import csv
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ENGRAFT = os.path.realpath(os.environ.get("ENGRAFT", TOP + "/target/release/engraft"))
PORT = "7395"
# It calls exp, and says for each line how often so far, and in how many nanoseconds of user CPU time.
EXP = """
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
static atomic_long calls, spent;
static double work(void) { double sum = 0; struct rusage used;
    for (long n = 0;; n++) { sum += exp((n & 1023) * 0.001);
        if ((n & 65535) == 65535) { getrusage(RUSAGE_THREAD, &used); calls = n + 1;
            spent = used.ru_utime.tv_sec * 1000000000 + used.ru_utime.tv_usec * 1000; } } return sum; }
static double kept;
static void *run(void *arg) { kept = work(); return arg; }
int main(void) { pthread_t thread; pthread_create(&thread, 0, run, 0); char line[16];
    while (fgets(line, sizeof line, stdin)) { printf("%ld %ld\\n", calls, spent); fflush(stdout); } return 0; }
"""

short = 0


def spread(figures, digits=2):
    return f"{statistics.median(figures):.{digits}f} [{min(figures):.{digits}f}–{max(figures):.{digits}f}]"


def verdict(name, figures, holds, bound, unit, digits=2):
    """Prints figures, and whether their median is as it must be."""
    global short
    short += not holds(statistics.median(figures))
    said = "holds" if holds(statistics.median(figures)) else "SHORT"
    print(f"{name:44} {spread(figures, digits)} {unit}, bound {bound}: {said}", flush=True)


def attached(words, folder, cache="cache"):
    """Starts engraft so that it stays attached until it is asked to end; and how long that took, in seconds."""
    environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/{cache}"}
    began = time.monotonic()
    ours = subprocess.Popen([ENGRAFT, *words, "-o", folder + "/rec"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                            env=environment)
    said = []
    for line in ours.stderr:
        if b"Ctrl-C ends that" in line:
            return ours, time.monotonic() - began
        said.append(line.decode())
    sys.exit(f"{' '.join(words)} did not attach:\n{''.join(said)}")


def ended(ours):
    ours.send_signal(signal.SIGINT)
    said = ours.communicate()[1].decode()
    if ours.returncode:
        sys.exit(f"engraft ended with {ours.returncode}:\n{said}")
    return said


def exp(rounds, folder):
    program = folder + "/exp"
    flags = ["-O2", "-D_GNU_SOURCE", "-fno-builtin", "-pthread", "-xc", "-o", program, "-", "-lm"]
    subprocess.run(["gcc", *flags], input=EXP.encode(), check=True)
    target = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def numbers():
        target.stdin.write(b"\n")
        target.stdin.flush()
        return [int(word) for word in target.stdout.readline().split()]

    def cost():
        calls, spent = numbers()
        time.sleep(1)
        more, longer = numbers()
        return (longer - spent) / (more - calls)

    plain, observed, again = [], [], []
    for _ in range(rounds):
        time.sleep(0.1)
        plain.append(cost())
        ours, _ = attached(["values", "-p", str(target.pid), "--calls", "double exp(double x);"], folder)
        time.sleep(0.1)
        observed.append(cost())
        ended(ours)
        time.sleep(0.1)
        again.append(cost())
    target.kill()
    print(f"{'exp: a call before':44} {spread(plain)} ns; while observed {spread(observed)}; after {spread(again)}")
    more = [b - (a + c) / 2 for a, b, c in zip(plain, observed, again)]
    verdict("exp: argument and result of a call", more, lambda x: x <= 2, "2", "ns")


class Redis:
    """A server that a benchmark asks."""

    def __init__(self, folder):
        words = ["redis-server", "--port", PORT, "--save", "", "--daemonize", "no"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=folder)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", int(PORT)), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        self.pid = str(self.process.pid)

    def start(self, requests):
        words = ["redis-benchmark", "-p", PORT, "-t", "set,get,lpush,lpop", "-n", str(requests), "-c", "20", "--csv"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def asked(self, requests=60000):
        """Answers a second, and the longest that one took, in milliseconds."""
        return self.answers(self.start(requests))

    def answers(self, asking):
        rows = list(csv.DictReader(asking.communicate()[0].splitlines()))
        if not rows:
            sys.exit("redis-benchmark says nothing")
        rates = [float(row["rps"]) for row in rows]
        return statistics.harmonic_mean(rates), max(float(row["max_latency_ms"]) for row in rows)

    def end(self):
        self.process.terminate()
        self.process.wait()


def first(rounds, folder):
    redis = Redis(folder)
    for kept in (False, True):
        took = []
        for n in range(rounds):
            ours, seconds = attached(["count", "-p", redis.pid], folder, "cache" if kept else f"cold{n}")
            ended(ours)
            took.append(seconds)
            if not kept:
                shutil.rmtree(f"{folder}/cold{n}")
        bound = 0.1 if kept else 1
        name = "first: command to first count, " + ("kept" if kept else "cold")
        verdict(name, took, lambda x, bound=bound: x <= bound, f"{bound}", "s", 3)
        # The next finds it all.
        ended(attached(["count", "-p", redis.pid], folder)[0])
    redis.end()


def load(rounds, folder):
    redis = Redis(folder)
    redis.asked(10000)
    ended(attached(["count", "-p", redis.pid], folder)[0])
    plain, counted, after, longest, usual = [], [], [], [], []
    for _ in range(rounds):
        rate, slowest = redis.asked()
        plain.append(rate)
        usual.append(slowest)
        ours, _ = attached(["count", "-p", redis.pid], folder)
        counted.append(redis.asked()[0])
        ended(ours)
        after.append(redis.asked()[0])
        # One that is asked through both moments.
        asking = redis.start(60000)
        time.sleep(0.3)
        ours, _ = attached(["count", "-p", redis.pid], folder)
        time.sleep(1)
        ended(ours)
        longest.append(redis.answers(asking)[1])
    redis.end()
    print(f"{'load: answers a second before':44} {spread(plain, 0)}; counted {spread(counted, 0)}; after {spread(after, 0)}")
    verdict("load: while it is counted", [b / (a + c) * 2 for a, b, c in zip(plain, counted, after)], lambda x: x >= 0.8, "0.8", "×")
    verdict("load: after", [c / a for a, c in zip(plain, after)], lambda x: x >= 0.97, "1.00", "×")
    print(f"{'load: longest answer, nobody attached':44} {spread(usual, 1)} ms")
    verdict("load: longest answer, through both moments", longest, lambda x: x <= 20, "20", "ms", 1)


def memory(rounds, folder):
    redis = Redis(folder)
    redis.asked(10000)
    grown = []
    for _ in range(rounds):
        words = [ENGRAFT, "count", "-p", redis.pid, "--for", "1s", "--json", "-o", folder + "/rec"]
        said = subprocess.run(words, stderr=subprocess.PIPE, check=True, text=True).stderr.splitlines()[-1]
        of = json.loads(said)["attach"]["memory_kb"]
        grown.append(of["after"]["dirty"] - of["before"]["dirty"])
        print("memory, kB: " + ", ".join(f"{when} {of[when]['resident']} ({of[when]['dirty']} written)" for when in of))
    verdict("memory: written pages more after than before", grown, lambda x: x <= 0, "0", "kB", 0)
    redis.end()


ROWS = {"exp": exp, "first": first, "load": load, "memory": memory}


def main():
    words = sys.argv[1:]
    rounds = int(words.pop(0)) if words and words[0].isdigit() else 5
    for name in words or ROWS:
        with tempfile.TemporaryDirectory() as folder:
            ROWS[name](rounds, folder)
    sys.exit(1 if short else 0)


main()
