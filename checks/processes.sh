#!/usr/bin/env bash
# processes.sh: counts of programs that start many processes and threads. 1,000 forked children, 50 at a time,
# half of them with children of their own; the same with vfork and posix_spawn (`--follow`), and a chain of
# 300 programs that become one another; 200 threads started and ended a second, with stacks of all sizes, for
# SECONDS (60). Each counts its own work: counts must be equal, and nothing may be left: neither areas nor
# memory, mappings or open files of the program or of the launcher grow from the first third of the time to
# its end. Ends with 1 if something does not hold.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT; cd "$tmp"
cat >program.c <<'C'
#include <dirent.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
static unsigned long *n_runs; // of all processes
static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }
__attribute__((noinline)) static void work(unsigned long n) {
  for (unsigned long i = 0; i < n; i++) __asm__ volatile("" ::: "memory");
  __atomic_fetch_add(n_runs, n, __ATOMIC_RELAXED);
}
static void *thread(void *arg) { work((unsigned long)arg); return 0; }
// What could leak: mappings, kilobytes, open files.
static void report(void) {
  char line[4096];
  unsigned maps = 0, files = 0; long resident = 0;
  FILE *f = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, f)) maps++;
  fclose(f);
  f = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, f)) sscanf(line, "RssAnon: %ld", &resident);
  fclose(f);
  DIR *d = opendir("/proc/self/fd");
  while (readdir(d)) files++;
  closedir(d);
  printf("left %u %ld %u\n", maps, resident, files);
  fflush(stdout);
}
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void threads(double seconds) {
  unsigned x = 1; int reported = 0;
  double start = now();
  for (long i = 0; now() - start < seconds; i++) {
    pthread_t t[4]; pthread_attr_t a;
    for (int k = 0; k < 4; k++) {
      x = x * 1103515245 + 12345;
      pthread_attr_init(&a);
      pthread_attr_setstacksize(&a, (16 + (x >> 16) % 3000) * 4096ul * (k % 2 ? 1 : 5));
      if (pthread_create(&t[k], &a, thread, (void *)(1000 + (x >> 16) % 1000ul))) _exit(3);
      pthread_attr_destroy(&a);
    }
    for (int k = 0; k < 4; k++) pthread_join(t[k], 0);
    if (!reported && now() - start > seconds / 3) { report(); reported = 1; }
    double until = start + (i + 1) * 0.02;
    if (now() < until) usleep((until - now()) * 1e6);
  }
  report();
}
int main(int argc, char **argv) {
  int fd = open("runs", O_RDWR);
  n_runs = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  const char *how = argv[1];
  int n = argc > 2 ? atoi(argv[2]) : 0;
  work(1000);
  if (is(how, "once")) return 0;
  if (is(how, "chain")) {
    char less[16], *args[] = {argv[0], "chain", less, 0};
    sprintf(less, "%d", n - 1);
    if (n > 0) { execv("/proc/self/exe", args); return 3; }
  }
  char *args[] = {argv[0], "once", 0};
  for (int i = 0, at_once = 0; !is(how, "threads") && !is(how, "chain") && i < n; i++) {
    pid_t pid = 0;
    if (is(how, "spawn")) { if (posix_spawn(&pid, argv[0], 0, 0, args, environ)) return 3; }
    else if (is(how, "vfork")) { if ((pid = vfork()) == 0) { execv(argv[0], args); _exit(3); } }
    else if ((pid = fork()) == 0) {
      work(500 + i);
      if (is(how, "exec")) { execv(argv[0], args); _exit(3); }
      if (i % 2) { if ((pid = fork()) == 0) { work(i); _exit(0); } waitpid(pid, 0, 0); work(i); }
      _exit(0);
    }
    if (++at_once == 50 || i == n - 1) for (int status; at_once; at_once--) if (wait(&status) < 0 || status) return 4;
  }
  if (is(how, "threads")) threads(n);
  printf("runs %lu\n", *n_runs);
}
C
sed -i 's/#include <dirent.h>/&\n#include <fcntl.h>/' program.c
gcc -O2 -pthread -o program program.c
python3 - "$engraft" "${SECONDS_OF_THREADS:-60}" <<'P'
import json, os, subprocess, sys, time
engraft, seconds = sys.argv[1], sys.argv[2]
bad = False

def launcher(pid):
    """Open files and kilobytes of the launcher."""
    status = open(f"/proc/{pid}/status").read()
    return len(os.listdir(f"/proc/{pid}/fd")), int(status.split("RssAnon:")[1].split()[0])

def check(what, args, follow, areas):
    global bad
    for name in ("rec", "rec.csv", "runs"):
        if os.path.exists(name):
            os.remove(name)
    open("runs", "wb").truncate(4096)
    command = [engraft, "count", "--json", "--modules", "exe", "-o", "rec"] + ["--follow"] * follow + ["--", "./program", *args]
    started = time.time()
    ran = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open("err", "w"), text=True)
    lines, seen = [], []
    for line in ran.stdout:
        lines.append(line.split())
        if line.startswith("left"):
            seen.append(launcher(ran.pid))
    status = ran.wait()
    said = [json.loads(line) for line in open("err") if line.startswith("{")]
    warnings = [s["warning"] for s in said if s["schema"] == "engraft.warning/1"]
    used = next((s["threads"] for s in said if s["schema"] == "engraft.count/1"), None)
    subprocess.run([engraft, "convert", "rec", "-q", "-o", "rec.csv", "--binary", "program"], check=True)
    rows = [line.rstrip().split(",") for line in open("rec.csv")]
    most = max(int(r[4]) for r in rows[1:] if r[1] == "work")
    runs = int(next(l[1] for l in lines if l[0] == "runs"))
    left = [list(map(int, l[1:])) for l in lines if l[0] == "left"]
    # Mappings by a few, memory by a megabyte: caches of glibc's stacks come and go.
    grew = len(left) == 2 and (left[1][0] > left[0][0] + 40 or left[1][1] > left[0][1] + 1024 or left[1][2] > left[0][2]
                               or seen[1][0] > seen[0][0] or seen[1][1] > seen[0][1] + 1024)
    holds = status == 0 and most == runs and not warnings and not grew and used is not None and used <= areas
    bad |= not holds
    more = f"; mappings, kB, files {left[0]} then {left[1]}, files, kB of the launcher {seen[0]} then {seen[1]}" if left else ""
    print(f"{what}: {most} of {runs} runs counted, {used} areas of at most {areas}{more}, {time.time() - started:.1f} s:",
          "holds" if holds else f"DOES NOT HOLD {warnings} {status}", flush=True)

check("1,000 forked children", ["fork", "1000"], False, 110)
check("1,000 children that become another program", ["exec", "1000"], True, 110)
check("1,000 by vfork", ["vfork", "1000"], True, 110)
check("1,000 by posix_spawn", ["spawn", "1000"], True, 110)
check("a chain of 300 programs", ["chain", "300"], True, 1)
check(f"200 threads a second for {seconds} s", ["threads", seconds], False, 100)
sys.exit(bad)
P
