#!/usr/bin/env python3
"""values-killed.py [N [SEED]]: `engraft values` when a program, or `values` itself, is killed at N random
moments (50 by default), when the disk is full, and when there is no memory. What was logged is read up to
the end, what is missing is said, and the program's output is its own.

The program counts its calls in a file that is mapped, so it is known how many it had made. ENGRAFT is the
command (the debug build by default). Needs gcc, and root for the full disk. Exit 1 if anything differs.
"""
import json, mmap, os, random, signal, struct, subprocess, sys, tempfile, time

N = int(sys.argv[1]) if len(sys.argv) > 1 else 50
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ENGRAFT = os.environ.get("ENGRAFT", f"{TOP}/target/debug/engraft")
SOURCE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
volatile long *n_calls;
__attribute__((noinline)) long work(long n) { long k = 0; do { k++; __asm__ volatile("" : "+r"(k)); } while (k < n % 7 + 1); return k; }
int main(int argc, char **argv) {
    long most = atol(argv[2]), sum = 0;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096)) return 1;
    n_calls = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (long i = 0; i < most; i++) { sum += work(i); n_calls[0]++; }
    printf("%ld\n", sum);
    return 5;
}
"""
random.seed(SEED)
failed = 0


def fail(what):
    global failed
    failed += 1
    print(f"FAILED {what}")


def calls_made(folder):
    with open(f"{folder}/n", "rb") as file:
        return struct.unpack("<q", file.read(8))[0]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def shown(folder, rec):
    ran = subprocess.run([ENGRAFT, "show", rec, "--json"], cwd=folder, capture_output=True, text=True)
    if not ran.stdout:
        return None, ran.stderr
    return json.loads(ran.stdout), ran.stderr


def command(folder, rec, most, full):
    words = [ENGRAFT, "values", "-q", "-o", rec, "--calls", "long work(long n);", "--loop", "work"]
    return words + (["--full"] if full else []) + ["./p", "n", str(most)]


def start(words, folder, limit=None):
    try:
        os.remove(f"{folder}/n")
    except FileNotFoundError:
        pass
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limit)


def killed_program(folder, k):
    full = k % 2 == 1
    running = start(command(folder, "killed.engraft", 1 << 40, full), folder)
    while not os.path.exists(f"{folder}/n") or os.path.getsize(f"{folder}/n") == 0:
        time.sleep(0.002)
    time.sleep(random.random() * 0.3)
    for child in children(running.pid):
        os.kill(child, signal.SIGKILL)
    _, err = running.communicate(timeout=120)
    made = calls_made(folder)
    said, why = shown(folder, "killed.engraft")
    if said is None:
        return fail(f"{k}: not read: {why}{err}")
    row, loop = said["calls"][0], said["loops"][0]
    if not made <= row["calls"] <= made + 1:
        fail(f"{k}: {made} calls were made, {row['calls']} recorded")
    if row["calls"] != row["results"] + row["left"] + row["open"] or row["open"] > 1:
        fail(f"{k}: {row['calls']} calls, {row['results']} results, {row['left']} left, {row['open']} open")
    if not made <= loop["instances"] + loop["open"] <= made + 1:
        fail(f"{k}: {made} calls were made, {loop['instances']} instances recorded, {loop['open']} open")
    if running.returncode != 137:
        fail(f"{k}: exit status {running.returncode}")


def killed_values(folder, k, want):
    most = 3_000_000
    full = k % 2 == 1
    running = start(command(folder, "orphan.engraft", most, full), folder)
    while not os.path.exists(f"{folder}/n") or os.path.getsize(f"{folder}/n") == 0:
        time.sleep(0.002)
    pids = children(running.pid)
    time.sleep(random.random() * 0.1)
    running.kill()
    out, _ = running.communicate(timeout=120)
    for pid in pids:
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.01)
    if out != want or calls_made(folder) != most:
        fail(f"values killed, {k}: the program printed {out!r} after {calls_made(folder)} calls")
    if full:
        said, why = shown(folder, "orphan.engraft")
        if said is None and "cut" not in why and "no recording" not in why:
            fail(f"values killed, {k}: {why}")


def no_room(folder, want, most):
    disk = f"{folder}/disk"
    os.mkdir(disk)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True)
    try:
        running = start(command(folder, f"{disk}/full.engraft", most, True), folder)
        out, err = running.communicate(timeout=300)
        if out != want:
            fail(f"full disk: the program printed {out!r}")
        if "o space" not in err:
            fail(f"full disk: not said: {err}")
        print(f"full disk: {err.strip().splitlines()[-1] if err.strip() else 'nothing said'}")
    finally:
        subprocess.run(["umount", disk], check=True)


def no_memory(folder, want, most):
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (3 << 27, 3 << 27))

    running = start(command(folder, "small.engraft", most, False), folder, limit)
    out, err = running.communicate(timeout=300)
    if out not in ("", want) or out == "" and not err:
        fail(f"no memory: printed {out!r}, said {err!r}")
    print(f"no memory: status {running.returncode}, {err.strip().splitlines()[-1] if err.strip() else 'nothing said'}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/p.c", "w") as file:
            file.write(SOURCE)
        subprocess.run(["gcc", "-O1", "-o", f"{folder}/p", f"{folder}/p.c"], check=True)
        most = 3_000_000
        want = subprocess.run(["./p", "n", str(most)], cwd=folder, capture_output=True, text=True).stdout
        for k in range(N):
            killed_program(folder, k)
        for k in range(max(N // 5, 2)):
            killed_values(folder, k, want)
        if os.geteuid() == 0:
            no_room(folder, want, most)
        no_memory(folder, want, most)
    print(f"seed {SEED}: {N} kills of the program, {max(N // 5, 2)} of values; {failed} failed")
    sys.exit(1 if failed else 0)


main()
