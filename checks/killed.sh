#!/usr/bin/env bash
# killed.sh [N]: starts a counted program N times (1,000), kills it with SIGKILL at a random moment each time, and holds its count of a
# block against the one that it publishes itself, in memory that outlives it, right after that block's counter: they may differ by one.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT; cd "$tmp"
cat >p.c <<'C'
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile unsigned long *p;
__attribute__((noinline)) void step(void) { ++*p; }
int main(void) {
  int fd = open("p", O_RDWR | O_CREAT, 0666);
  if (ftruncate(fd, 4096)) return 1;
  p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  write(1, "", 1);
  for (;;) step();
}
C
gcc -O2 -o p.bin p.c
python3 - "$engraft" "${1:-1000}" <<'P'
import collections, os, random, signal, subprocess, sys, time
engraft, n = sys.argv[1], int(sys.argv[2])
random.seed(7)
found = collections.Counter()
for _ in range(n):
    for name in ("p", "r.engraft", "r.csv"):
        if os.path.exists(name):
            os.remove(name)
    run = subprocess.Popen([engraft, "count", "-q", "--modules", "exe", "-o", "r.engraft", "--", "./p.bin"], stdout=subprocess.PIPE)
    run.stdout.read(1)  # it runs
    children = open(f"/proc/{run.pid}/task/{run.pid}/children").read().split()
    time.sleep(random.random() * 0.02)
    os.kill(int(children[0]), signal.SIGKILL)
    assert run.wait() == 128 + 9, run.returncode
    published = int.from_bytes(open("p", "rb").read(8), "little")
    subprocess.run([engraft, "convert", "r.engraft", "-o", "r.csv", "-q", "--binary", "p.bin"], check=True)
    ours = max(int(line.rsplit(",", 1)[1]) for line in open("r.csv") if ",step," in line)
    found[ours - published] += 1
print("ours less its own, and how often:", dict(found))
sys.exit(0 if set(found) <= {0, 1} and found.total() == n else 1)
P
