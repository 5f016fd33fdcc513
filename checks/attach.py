#!/usr/bin/env -S python3 -I
"""attach.py [CYCLES] [TARGET…]: `engraft count -p` attached to servers under load and detached, CYCLES (200) times
each; one in ten times engraft is killed at a random moment, and `engraft rescue` gives the process back. After each
the process must run, answer everything as it should, have the code and the constants that it had (a hash of
them), and nothing of ours mapped. Targets: redis nginx postgres throws signals python signal-stacks povray (those
that are not installed are said to be left out). Prints the pauses. ENGRAFT: the command [target/release/engraft].
Exit 1 if anything was wrong."""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ENGRAFT = os.path.realpath(os.environ.get("ENGRAFT", TOP + "/target/release/engraft"))

THROWS = """
#include <pthread.h>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <atomic>
static std::atomic<long> rounds; static long wrong;
__attribute__((noinline)) static long leaf(long a) { if ((a & 1023) == 7) throw a; return a * 3; }
__attribute__((noinline)) static long middle(long a) {
    struct Sum { long *of; ~Sum() { ++*of; } }; long sum = 0; { Sum s{&sum}; sum += leaf(a); } return sum; }
static void *work(void *) { for (long i = 0;; i++) {
    try { if (middle(i) != i * 3 + 1) wrong++; if ((i & 1023) == 7) wrong++; }
    catch (long got) { if (got != i || (i & 1023) != 7) wrong++; } rounds++; } }
int main() { pthread_t t; for (int i = 0; i < 8; i++) pthread_create(&t, 0, work, 0);
    char line[16]; while (fgets(line, sizeof line, stdin)) { printf("%ld %ld\\n", rounds.load(), wrong); fflush(stdout); } }
"""

SIGNALS = """
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
enum { THREADS = 4 };
static volatile long rounds, wrong, handled[3]; static pthread_t all[THREADS]; static int has_stacks;
static __thread sigjmp_buf home; static __thread volatile int may_leave;
__attribute__((noinline)) static long whole(long n) { long s = 0; for (long i = 1; i <= n; i++) s += i * i; return s; }
__attribute__((noinline)) static double part(long n) { double s = 0; for (long i = 1; i <= n; i++) s += i / 8.0; return s; }
static void check(void) { long n = 40 + (rounds & 15);
    if (whole(n) != n * (n + 1) * (2 * n + 1) / 6 || part(n) != n * (n + 1) / 16.0) wrong++; }
static void on_stack_of_its_own(int s) { int before = errno; check(); handled[0]++; errno = before; }
static void on_the_same(int s) { int before = errno; check(); handled[1]++; errno = before; }
static void leaves(int s) { check(); handled[2]++; if (may_leave) { may_leave = 0; siglongjmp(home, 1); } }
static void *work(void *own) {
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}; if (has_stacks) sigaltstack(&stack, 0);
    for (volatile long n = 0;; n++) { long want = (long)n * 3, got = 0;
        if (!sigsetjmp(home, 1)) { may_leave = own != 0; for (int i = 0; i < 200; i++) check(); got = want; may_leave = 0; }
        else got = (long)n * 3;
        if (got != (long)n * 3) wrong++;
        rounds++; } }
static void *send(void *own) { struct timespec time = {0, 250000};
    for (long n = 0;; n++) { pthread_kill(all[n % THREADS], SIGUSR1); if (n % THREADS) pthread_kill(all[n % THREADS], SIGUSR2);
        /* It is interrupted by none: they are blocked. */ if (nanosleep(&time, 0)) wrong++; } }
int main(int n_words, char **words) {
    has_stacks = n_words > 1;
    struct sigaction a = {.sa_handler = on_stack_of_its_own, .sa_flags = SA_ONSTACK | SA_RESTART}; sigaction(SIGUSR1, &a, 0);
    a.sa_handler = leaves; a.sa_flags = SA_RESTART; sigaction(SIGUSR2, &a, 0); a.sa_handler = on_the_same; sigaction(SIGALRM, &a, 0);
    for (long i = 0; i < THREADS; i++) pthread_create(&all[i], 0, work, (void *)i);
    sigset_t set; sigfillset(&set); pthread_sigmask(SIG_BLOCK, &set, 0);
    pthread_t sender; pthread_create(&sender, 0, send, 0);
    struct itimerval timer = {{0, 1000}, {0, 1000}}; setitimer(ITIMER_REAL, &timer, 0);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        printf("%ld %ld\\n", rounds, wrong); fflush(stdout); } }
"""

PYTHON = """
import sys, threading, json, re
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def round(n):
    try: [][n]
    except IndexError: pass
    return json.loads(json.dumps({"n": fib(12), "m": re.sub("a+", "b", "caat" * (n % 5))}))
done = 0; wrong = 0
def work():
    global done, wrong
    while True:
        got = round(done)
        if got != {"n": 144, "m": "cbt" * (done % 5)}: wrong += 1
        done += 1
threading.Thread(target=work, daemon=True).start()
for line in sys.stdin: print(done, wrong, flush=True)
"""


class Target:
    """A program that runs, what loads it, and how many answers were wrong."""

    def __init__(self, folder):
        self.folder, self.wrong, self.answers, self.stop = folder, [], 0, False
        self.longest = 0.0
        self.process = self.start()
        self.pids = self.observed()
        self.loads = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(self.threads)]
        for load in self.loads:
            load.start()

    threads = 4
    # How long a cycle takes, about.
    cycle_s = 0.5

    def observed(self):
        return [self.process.pid]

    def work(self, n):
        while not self.stop:
            began = time.monotonic()
            try:
                problem = self.ask(n)
            except OSError as err:
                problem = None if self.stop else str(err)
            self.longest = max(self.longest, time.monotonic() - began)
            if problem:
                self.wrong.append(problem)
                time.sleep(0.05)
            self.answers += 1

    def log(self):
        return open(self.folder + "/log", "a", encoding="utf-8")

    def logged(self):
        try:
            with open(self.folder + "/log", encoding="utf-8", errors="replace") as log:
                return log.read()[-1000:]
        except OSError:
            return ""

    def end(self):
        self.stop = True
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


# One in so many is killed.
KILLS = int(os.environ.get("KILLS", "10"))


def wait_for(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


class Redis(Target):
    needs, port = "redis-server", 7391

    def start(self):
        words = ["redis-server", "--port", str(self.port), "--save", "", "--daemonize", "no"]
        process = subprocess.Popen(words, stdout=self.log(), cwd=self.folder)
        wait_for(self.port)
        self.connections = [socket.create_connection(("127.0.0.1", self.port), 10) for _ in range(self.threads)]
        return process

    def ask(self, n):
        number = random.randrange(10**9)
        key, value = f"k{n}", f"{number}" * 5
        parts = []
        for command in (["SET", key, value], ["GET", key], ["LPUSH", f"l{n}", value], ["LPOP", f"l{n}"]):
            parts.append(f"*{len(command)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in command))
        connection = self.connections[n]
        connection.sendall("".join(parts).encode())
        want = f"+OK\r\n${len(value)}\r\n{value}\r\n:1\r\n${len(value)}\r\n{value}\r\n".encode()
        got = b""
        while len(got) < len(want):
            piece = connection.recv(65536)
            if not piece:
                return "the connection is closed"
            got += piece
        return None if got == want else f"{got!r} in place of {want!r}"


class Nginx(Target):
    needs, port = "nginx", 7392

    def start(self):
        os.chmod(self.folder, 0o755)
        with open(self.folder + "/page", "w", encoding="ascii") as page:
            page.write("x" * 5000)
        with open(self.folder + "/conf", "w", encoding="ascii") as conf:
            conf.write(
                f"daemon off; worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/errors;\n"
                "events {} http { access_log off; gzip on; gzip_types *;\n"
                f"server {{ listen 127.0.0.1:{self.port}; root {self.folder}; }} }}\n"
            )
        process = subprocess.Popen(["nginx", "-c", self.folder + "/conf"], stderr=subprocess.DEVNULL)
        wait_for(self.port)
        return process

    def observed(self):
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children, encoding="ascii") as file:
            return [int(word) for word in file.read().split()][:1]

    def ask(self, n):
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(b"GET /page HTTP/1.0\r\n\r\n")
            got = b""
            while piece := connection.recv(65536):
                got += piece
        return None if got.endswith(b"\r\n\r\n" + b"x" * 5000) else f"{len(got)} bytes: {got[:60]!r}"


class Lines(Target):
    """A program that works by itself and says how much it did, and how much of it wrongly, for each line."""

    threads = 1

    def ask(self, n):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        time.sleep(0.02)
        if len(words) != 2:
            return "it says nothing any more"
        return None if words[1] == b"0" else f"it did {words[1].decode()} rounds wrongly"


class Throws(Lines):
    needs = "g++"

    def start(self):
        program = self.folder + "/throws"
        subprocess.run(["g++", "-O2", "-pthread", "-xc++", "-o", program, "-"], input=THROWS.encode(), check=True)
        return subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class Povray(Target):
    """Renders one picture again and again, in two threads: each must be what it is of a process that is alone."""

    needs, threads = "povray", 1
    scene = """camera { location <0,2,-5> look_at 0 } light_source { <9,9,-9> 1 }
        sphere { 0, 1 pigment { marble turbulence 1 } finish { reflection 0.3 } }
        plane { y, -1 pigment { checker rgb 1, rgb 0 } }"""

    def render(self, name, *more):
        words = ["povray", "+I" + self.folder + "/scene.pov", f"+O{self.folder}/{name}.bmp", "+FB", "+W240", "+H180",
                 "+WT2", "-A", "-D", "-V", "-GA", *more]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.log(), stderr=self.log(), cwd=self.folder)

    def start(self):
        with open(self.folder + "/scene.pov", "w", encoding="ascii") as file:
            file.write(self.scene)
        self.render("plain").wait()
        self.plain, self.next = self.picture("plain"), 1
        return self.render("p", "+KFI1", "+KFF99999")

    def picture(self, name):
        with open(f"{self.folder}/{name}.bmp", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def ask(self, n):
        name, behind = f"p{self.next:05}", f"{self.folder}/p{self.next + 1:05}.bmp"
        while not os.path.exists(behind):
            if self.stop or self.process.poll() is not None:
                return None
            time.sleep(0.01)
        picture = self.picture(name)
        os.remove(f"{self.folder}/{name}.bmp")
        self.next += 1
        return None if picture == self.plain else f"picture {self.next - 1} is another one"


class Signals(Lines):
    """Threads that handle thousands of signals a second, and leave some handlers by siglongjmp."""

    needs, words = "gcc", []

    def start(self):
        program = self.folder + "/signals"
        subprocess.run(["gcc", "-O1", "-w", "-pthread", "-xc", "-o", program, "-"], input=SIGNALS.encode(), check=True)
        return subprocess.Popen([program, *self.words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class SignalStacks(Signals):
    """The same, some on stacks of their own (sigaltstack), where frames of handlers stay."""

    words = ["stacks"]


class Python(Lines):
    needs = "python3"

    def start(self):
        return subprocess.Popen(["/usr/bin/python3", "-c", PYTHON], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class Postgres(Target):
    needs, port, threads = "postgres", 7394, 1

    def start(self):
        program = os.path.realpath(shutil.which("postgres"))
        where = os.path.dirname(program)
        data = self.folder + "/data"
        user = "nobody"
        subprocess.run(["chown", user, self.folder], check=True)
        run = ["setpriv", "--reuid", user, "--regid", "nogroup", "--clear-groups"]
        made = subprocess.run([*run, f"{where}/initdb", "-D", data, "-A", "trust", "-N", "-U", "one"],
                              capture_output=True, check=False)
        if made.returncode:
            sys.exit(f"initdb: {made.stderr.decode()}")
        words = [*run, program, "-D", data, "-p", str(self.port), "-k", self.folder, "-F"]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=self.log())
        wait_for(self.port)
        self.session = subprocess.Popen([f"{where}/psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "one", "-qAt", "postgres"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.session.stdin.write(b"select pg_backend_pid();\n")
        self.session.stdin.flush()
        self.backend = int(self.session.stdout.readline())
        return process

    def observed(self):
        return [self.backend]

    def ask(self, n):
        number = random.randrange(1, 200)
        # An error is thrown and caught inside, by setjmp and longjmp.
        self.session.stdin.write(
            f"select sum(i * {number}) from generate_series(1, 1000) i;\n"
            f"do $$ begin perform 1 / 0; exception when division_by_zero then null; end $$;\n"
            f"select 'a' || {number} || 'z';\n".encode())
        self.session.stdin.flush()
        got = [self.session.stdout.readline().strip().decode() for _ in range(2)]
        return None if got == [str(500500 * number), f"a{number}z"] else f"{got} for {number}"


TARGETS = {"redis": Redis, "nginx": Nginx, "postgres": Postgres, "throws": Throws, "signals": Signals, "python": Python,
           "signal-stacks": SignalStacks, "povray": Povray}


def code_of(pid):
    """Hashes of all code and constants of the process, by where they are; and what is mapped that is ours."""
    code, ours = {}, []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            words = line.split(None, 5)
            start, end = (int(text, 16) for text in words[0].split("-"))
            if re.match("1e[0-9a-f]{10}|1f[0-9a-f]{10}", words[0]) or "engraft" in line:
                ours.append(line.strip())
            # What nobody may write: code, constants, what is relocated.
            if "w" not in words[1] and "r" in words[1] and "[v" not in line:
                memory.seek(start)
                try:
                    held = hashlib.sha256(memory.read(end - start)).hexdigest()[:8]
                except OSError as err:
                    held = str(err)
                code[f"{words[0]} {words[1:3]} {words[5:]}"] = held
    return code, ours


def cycle(n, pid, target):
    """Attaches once; what was wrong, and the pauses in microseconds."""
    duration = random.choice([0.01, 0.03, 0.1])
    words = [ENGRAFT, "count", "-p", str(pid), "--for", f"{int(duration * 1000)}ms", "--json", "-o", target.folder + "/rec"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if n % KILLS == KILLS - 1:
        # At any moment of all that it does.
        time.sleep(random.random() * target.cycle_s)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        rescued = subprocess.run([ENGRAFT, "rescue", str(pid)], capture_output=True, text=True, check=False)
        is_nothing = "nobody is attached" in rescued.stderr
        if rescued.returncode and not is_nothing:
            return f"rescue: {rescued.stdout} {rescued.stderr}", []
        return None, []
    began = time.monotonic()
    _, said = process.communicate()
    target.cycle_s = max(target.cycle_s * 0.9, time.monotonic() - began)
    text = said.decode().strip().splitlines()
    if process.returncode:
        return f"exit status {process.returncode}: {' '.join(text)[-2000:]}", []
    return None, json.loads(text[-1])["attach"]["pause_us"]


def check(name, n_cycles):
    kind = TARGETS[name]
    if not shutil.which(kind.needs):
        print(f"{name}: left out, {kind.needs} is not installed")
        return True
    with tempfile.TemporaryDirectory() as folder:
        target = kind(folder)
        time.sleep(1)
        pid = target.pids[0]
        before, _ = code_of(pid)
        pauses, problems = [], []
        for n in range(n_cycles):
            problem, pause = cycle(n, pid, target)
            if pause:
                pauses.append(pause)
            if target.process.poll() is not None:
                problems.append(f"cycle {n}: it has ended, {target.process.returncode}; {problem}; {target.logged()}")
                break
            if problem:
                problems.append(f"cycle {n}: {problem}")
            try:
                after, ours = code_of(pid)
            except OSError as err:
                problems.append(f"cycle {n}: {err}")
                break
            if after != before or ours:
                others = sorted(set(before.items()) ^ set(after.items()))
                problems.append(f"cycle {n}: its code is not what it was, or something is left: {others} {ours}")
                before = after
                if os.environ.get("STOP"):
                    input(f"process {pid}: ")
            if len(problems) > 5:
                break
        problems += target.wrong[:5]
        first, last = [p[0] for p in pauses], [p[1] for p in pauses]
        spread = lambda all: f"{statistics.median(all):.0f} [{min(all)}–{max(all)}]" if all else "none"
        print(f"{name:9} {n_cycles} cycles, {target.answers} answers, longest {target.longest * 1000:.0f} ms, pause in "
              f"{spread(first)} out {spread(last)} µs: {'as it should be' if not problems else 'WRONG'}", flush=True)
        for problem in problems:
            print(f"  {problem}"[:1500], flush=True)
        target.end()
        return not problems


def main(checked, targets):
    """Has each target that was asked for, or all of these, `checked` for as many cycles as were."""
    words = sys.argv[1:]
    n_cycles = int(words.pop(0)) if words and words[0].isdigit() else 200
    random.seed(1)
    results = [checked(name, n_cycles) for name in words or targets]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main(check, TARGETS)
