#!/usr/bin/env -S python3 -I
"""pause.py [TIMES] [THREADS…]: how long a busy process stands still for `engraft count -p`, as it is attached to and
as it is given back: TIMES (100) times each, with 1 site and with 10,000 sites in 2.5 MB, while 1, 8 and 16 threads do
nothing but call what is counted. Prints the median and the worst of both stops in microseconds beside the bars, how
busy the machine was otherwise (the share of the processors' time that neither the program nor nobody had), and
whether each call gave what it should. ENGRAFT: the command [target/release/engraft]. Exit 1 if anything is over its
bar, or wrong."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ENGRAFT = os.path.realpath(os.environ.get("ENGRAFT", TOP + "/target/release/engraft"))

# Of so many threads: the median, and the worst of all.
BARS = {1: (250, 5000), 8: (1500, 20000), 16: (5000, 20000)}

# Functions of some 250 bytes each; none calls another, so each is one site.
MANY = """
#define STEP(n) a = (a ^ a >> n) * 0x9e3779b97f4a7c15ul;
#define BODY STEP(3) STEP(5) STEP(7) STEP(9) STEP(11) STEP(13) STEP(17) STEP(19) STEP(23) STEP(27) STEP(29) STEP(31)
"""

PROGRAM = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
extern unsigned long (*const functions[])(unsigned long);
extern const unsigned long n_functions;
static volatile unsigned long wrong, rounds[64];
static void *work(void *number) {
    for (unsigned long i = (unsigned long)number, n = 0;; i++) {
        unsigned long k = i % n_functions;
        // Each is what it was the first time.
        if (functions[k](i) != functions[k](i)) wrong++;
        rounds[(unsigned long)number] = ++n;
    }
    return 0;
}
int main(int n, char **words) {
    unsigned long n_threads = strtoul(words[1], 0, 10);
    pthread_t thread;
    for (unsigned long k = 0; k < n_threads; k++) pthread_create(&thread, 0, work, (void *)k);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long sum = 0;
        for (unsigned long k = 0; k < n_threads; k++) sum += rounds[k];
        printf("%lu %lu\\n", sum, wrong);
        fflush(stdout);
    }
}
"""


def build(folder, n):
    """A program that calls the `n` functions of a library, which has nothing else."""
    library, program = f"{folder}/libof{n}.so", f"{folder}/calls{n}"
    text = MANY + "".join(f"static unsigned long f{k}(unsigned long a) {{ BODY return a + {k}; }}\n" for k in range(n))
    table = ", ".join(f"f{k}" for k in range(n))
    text += f"unsigned long (*const functions[])(unsigned long) = {{ {table} }};\nconst unsigned long n_functions = {n};\n"
    compiler = ["gcc", "-O1", "-xc", "-"]
    subprocess.run([*compiler, "-shared", "-fPIC", "-nostdlib", "-o", library], input=text.encode(), check=True)
    # What comes behind -xc is C, too, but not a library.
    words = ["gcc", "-O1", "-pthread", "-o", program, "-xc", "-", "-xnone", library, f"-Wl,-rpath,{folder}"]
    subprocess.run(words, input=PROGRAM.encode(), check=True)
    return program, os.path.basename(library)


def used(pid):
    """Seconds of processors that all have used, and that process `pid` has."""
    with open("/proc/stat", encoding="ascii") as file:
        all_of = [int(word) for word in file.readline().split()[1:9]]
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        own = [int(word) for word in file.read().rsplit(") ", 1)[1].split()[11:13]]
    idle = all_of[3] + all_of[4]
    return (sum(all_of) - idle) / 100, sum(own) / 100


def once(pid, library, folder):
    words = [ENGRAFT, "count", "-p", str(pid), "--for", "50ms", "--modules", library, "--json", "-o", folder + "/rec"]
    ran = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if ran.returncode:
        sys.exit(f"exit status {ran.returncode}: {ran.stderr.decode()}")
    return json.loads(ran.stderr.decode().strip().splitlines()[-1])["attach"]


def ask(process):
    process.stdin.write(b"\n")
    process.stdin.flush()
    return [int(word) for word in process.stdout.readline().split()]


def check(program, library, folder, n_threads, times):
    words = [program, str(n_threads)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        time.sleep(0.3)
        once(process.pid, library, folder)
        before = used(process.pid)
        first, _ = ask(process)
        all_of = [once(process.pid, library, folder) for _ in range(times)]
        last, wrong = ask(process)
        after = used(process.pid)
        process.kill()
    others = (after[0] - before[0]) - (after[1] - before[1])
    share = others / max(after[0] - before[0], 0.01)
    median, worst = BARS.get(n_threads, (5000, 20000))
    is_well = not wrong and last > first
    said = []
    for name, k in (("in", 0), ("out", 1)):
        pauses = [one["pause_us"][k] for one in all_of]
        is_well &= statistics.median(pauses) <= median and max(pauses) <= worst
        said.append(f"{name} {statistics.median(pauses):6.0f} worst {max(pauses):6}")
    print(f"{all_of[0]['sites']:6} sites, {n_threads:2} threads: {', '.join(said)} µs; bars {median} and {worst}; others had "
          f"{share:.0%} of the time; {'as it should be' if is_well else 'NOT' + (f', {wrong} wrong' if wrong else '')}", flush=True)
    return is_well


def main():
    words = [int(word) for word in sys.argv[1:]]
    times = words.pop(0) if words else 100
    with tempfile.TemporaryDirectory() as folder:
        programs = [build(folder, n) for n in (1, 10000)]
        results = [check(*program, folder, n, times) for program in programs for n in words or BARS]
    sys.exit(0 if all(results) else 1)


main()
