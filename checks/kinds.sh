#!/usr/bin/env bash
# kinds.sh [CASE…]: programs of every kind (kinds.c; all cases, or those named), as they are and counted: what
# they print, write and end with must be the same, and counts what they counted themselves. A line a case: ok;
# refused, with the one error that is expected; FAILED, with what differs. Ends with 1 if one failed. Cases
# that need root, gdb or strace say so and are left out where these are not.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=$(realpath "${ENGRAFT:-$top/target/release/engraft}")
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
tmp=$(mktemp -d); [ -n "${KEEP:-}" ] && echo "kept: $tmp" >&2 || trap 'rm -rf "$tmp"' EXIT; cd "$tmp"; chmod 755 .
gcc -O2 -pthread -o kinds "$top/checks/kinds.c" -ldl
gcc -O2 -pthread -static -o static "$top/checks/kinds.c" 2>/dev/null
cat >plugin.c <<'C'
__attribute__((noinline)) void plugin_work(unsigned long *n_runs, int n) {
  for (int i = 0; i < n; i++) __asm__ volatile("" ::: "memory");
  __atomic_fetch_add(n_runs, n, __ATOMIC_RELAXED);
}
C
gcc -O1 -shared -fPIC -o plugin.so plugin.c
cp kinds setuid; chmod u+s setuid
cp "$engraft" engraft # where other users may reach it
KINDS_FOLDER=$tmp python3 - "$tmp/engraft" "$@" <<'P'
import json, os, shutil, subprocess, sys
engraft, wanted = sys.argv[1], sys.argv[2:]
top = os.environ["KINDS_FOLDER"]
root = os.geteuid() == 0
bad = []

# name, command (`@` is where counting comes in), what is expected, options of count
OK = ""
# Whether a recording has what `threads` counts.
HELD = "s=$?; h() { $E convert $1 -q -o h.csv --binary $K && grep -c ',work,.*,36000$' h.csv; return $s; }; h"
cases = [
    ("vfork", "@ $K vfork", OK, ""),
    ("posix_spawn, system", "@ $K spawn", OK, ""),
    ("posix_spawn, system, followed", "@ $K spawn", OK, "--follow"),
    ("daemon that ends first", "@ $K daemon", OK, ""),
    ("dlopen, dlclose, again, in threads and children", "@ $K dlopen", OK, ""),
    ("dlmopen in five namespaces", "@ $K dlmopen", OK, ""),
    ("LD_PRELOAD", "LD_PRELOAD=$T/plugin.so @ $K preloaded", OK, ""),
    ("LD_PRELOAD set by env", "@ env LD_PRELOAD=$T/plugin.so $K preloaded", OK, "--follow"),
    ("setuid program", "@ $T/setuid threads", "refused: changes its user", ""),
    ("setuid program, started", "@ sh -c '$T/setuid vfork'", "said: it gets other rights", "--follow"),
    ("chroot", "@ $K chroot", OK, "", "root"),
    ("chroot, static", "@ $T/static chroot", OK, "", "root"),
    ("container: namespaces of all kinds", "@ unshare -Urpmnif --mount-proc $K threads", "said: namespace", "--follow"),
    ("counted in a container", "unshare -Urpmnif --mount-proc @ $K threads", OK, ""),
    ("counted in a container, followed", "unshare -Urpmnif --mount-proc @ sh -c '$K threads; exit 5'", OK, "--follow"),
    ("seccomp, strict", "@ $K strict", OK, ""),
    ("seccomp, a filter", "@ $K filtered", OK, ""),
    ("no address randomization", "@ setarch -R $K personal", OK, "--follow"),
    ("no address randomization, from outside", "setarch -R @ $K personal", OK, ""),
    ("no address randomization, static", "setarch -R @ $T/static personal", OK, ""),
    ("READ_IMPLIES_EXEC", "setarch -X @ $K personal", OK, ""),
    ("READ_IMPLIES_EXEC, static", "setarch -X @ $T/static personal", OK, ""),
    ("old layout of addresses", "setarch -L @ $K personal", OK, ""),
    ("affinity", "taskset -c 0 @ $K pinned", OK, ""),
    ("RLIMIT_FSIZE 0", "ulimit -f 0; @ $K threads", "refused: are needed, and no file may have more than", ""),
    ("RLIMIT_FSIZE 100 kB", "ulimit -f 100; @ $K writing", "refused: are needed, and no file may have more than", ""),
    ("RLIMIT_FSIZE 1 MB", "ulimit -f 1000; @ $K limited", OK, ""),
    ("RLIMIT_FSIZE of the program alone", "@ prlimit --fsize=100000 $K writing", OK, "--follow"),
    ("RLIMIT_AS 1 GB", "ulimit -v 1000000; @ $K limited", OK, ""),
    ("RLIMIT_AS 150 MB", "ulimit -v 150000; @ $K limited", OK, ""),
    ("RLIMIT_AS 150 MB, static", "ulimit -v 150000; @ $T/static limited", OK, ""),
    ("RLIMIT_AS 60 MB", "ulimit -v 60000; @ $K limited", "refused: limit of addresses", ""),
    ("RLIMIT_AS of the program alone", "@ prlimit --as=200000000 $K limited", OK, "--follow"),
    ("RLIMIT_AS of the program alone, static", "@ prlimit --as=200000000 $T/static limited", OK, "--follow"),
    ("RLIMIT_AS that the program sets", "@ $K limiting", OK, ""),
    ("RLIMIT_AS that the program sets, static", "@ $T/static limiting", OK, ""),
    ("RLIMIT_NOFILE 10", "ulimit -n 10; @ $K limited", OK, ""),
    ("RLIMIT_NOFILE 16", "ulimit -n 16; @ $K limited", OK, ""),
    ("RLIMIT_NOFILE 5", "ulimit -n 5; @ $K limited", "refused: Too many open files", ""),
    ("RLIMIT_NOFILE 10, dlopen", "ulimit -n 10; @ $K dlopen", OK, ""),
    ("RLIMIT_NPROC", "setpriv --reuid 4242 --clear-groups prlimit --nproc=12 @ $K vfork", OK, "-o rec", "root"),
    ("RLIMIT_NPROC of one", "setpriv --reuid 4243 --clear-groups prlimit --nproc=1 @ $K swap", "refused: cannot start", "-o rec", "root"),
    ("RLIMIT_STACK 64 kB", "ulimit -s 64; @ $K limited", OK, ""),
    ("RLIMIT_CPU", "@ $K cpu", OK, ""),
    ("2,000 threads at once", "@ $K many", OK, ""),
    ("2,000 threads at once, static", "@ $T/static many", OK, ""),
    ("storm of signals", "@ $K storm", OK, ""),
    ("sigaltstack", "@ $K altstack", OK, ""),
    ("handlers that longjmp", "@ $K longjmp", OK, ""),
    ("handlers that change the context", "@ $K context", OK, ""),
    ("handlers of faults that longjmp", "@ $K fault", OK, ""),
    ("SA_RESTART", "@ $K restart", OK, ""),
    ("makecontext, swapcontext", "@ $K swap", OK, ""),
    ("without rseq", "GLIBC_TUNABLES=glibc.pthread.rseq=0 @ $K threads", OK, ""),
    ("read-only working directory", "cd /proc; @ $K threads", OK, ""),
    ("recording in a read-only directory", "cd /proc; @ $K threads", "refused: cannot write", "-o rec"),
    ("read-only file system", "mkdir r; mount -t tmpfs -o ro none r && cd r && @ $K threads", OK, "", "mount"),
    ("recording on a read-only file system", "mount -t tmpfs -o ro none . && cd $PWD && @ $K threads", "refused: Read-only file system", "-o rec", "mount"),
    ("full disk", "mount -t tmpfs -o size=8k none . && cd $PWD && ! cat /dev/zero >fill 2>/dev/null && @ $K threads", "late: write", "-o full", "mount"),
    ("full cache", "mkdir c; mount -t tmpfs -o size=8k none c && export XDG_CACHE_HOME=$PWD/c && @ $K dlopen", OK, "", "mount"),
    ("full cache and folder for temporary files", "mkdir c; mount -t tmpfs -o size=8k none c && export XDG_CACHE_HOME=$PWD/c TMPDIR=$PWD/c && @ $K dlopen", "said: No space left", "", "mount"),
    ("gdb attached", "@ $K slow & p=$!; sleep 0.7; gdb -p $(pgrep -n kinds) -batch -ex 'info threads' -ex detach >/dev/null 2>&1; wait $p", OK, "", "gdb"),
    ("in gdb", "gdb -q -batch -ex run --args @ $K threads 2>/dev/null | grep ^runs", OK, "", "gdb"),
    ("in strace", "strace -o /dev/null @ $K threads", OK, "", "strace"),
    ("in strace that follows", "strace -f -o /dev/null @ $K threads", "refused: Operation not permitted", "", "strace"),
    ("strace of it", "@ strace -f -o /dev/null $K threads", "said: tracing it failed", "--follow", "strace"),
    ("counted twice at once", "$E count -q --no-cache -o other -- $K threads >one & @ $K threads; s=$?; wait; grep -c ^runs one; exit $s", OK, ""),
    ("counted in a counted program", f"@ $E count -q --no-cache -o inner -- $K threads; {HELD} inner", "same", "--modules libc.so* libm.so* --"),
    ("counted in a counted program, both followed", f"@ $E count --follow -q --no-cache -o inner -- sh -c '$K threads; exit 5'; {HELD} inner", "said: tracing it failed", "--follow --modules libc.so* libm.so* --"),
    ("an instrumented file", "$E instrument -q $K -o k && ENGRAFT_OUT=k.rec @ ./k threads", "refused: counts by itself", ""),
    ("an instrumented file, started", f"$E instrument -q $K -o k && ENGRAFT_OUT=k.rec @ sh -c './k threads; exit 5'; {HELD} k.rec", "same", ""),
    ("an instrumented file, started, followed", f"$E instrument -q $K -o k && ENGRAFT_OUT=k.rec @ sh -c './k threads; exit 5'; {HELD} k.rec", "said: counts by itself", "--follow"),
    ("an instrumented file instrumented again", "$E instrument -q $K -o k && $E instrument -q k -o kk 2>&1 | grep -o 'counts by itself'; @ $K swap", OK, ""),
]

def run(template, count, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    env = os.environ | {"K": f"{top}/kinds", "T": top, "E": engraft, "KINDS": top, "LC_ALL": "C"}
    command = template.replace("@", count)
    if template.find("mount ") >= 0:
        command = f"exec unshare -m bash -c {repr(command)}" if root else f"exec unshare -rm bash -c {repr(command)}"
    # Pipes: a limit of files' lengths is not theirs.
    try:
        ran = subprocess.run(["bash", "-c", command], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        status, out, err = ran.returncode, ran.stdout, ran.stderr
    except subprocess.TimeoutExpired as late:
        status, out, err = "it hangs", late.stdout or b"", late.stderr or b""
    lines = out.decode(errors="replace").splitlines()
    runs = [int(l.split()[1]) for l in lines if l.startswith("runs ")]
    errs = err.decode(errors="replace").splitlines()
    ours = [json.loads(l) for l in errs if l.startswith('{"') and '"engraft.' in l]
    texts = [l for l in errs if not l.startswith('{"')]
    return {"out": [l for l in lines if not l.startswith("runs ")], "err": texts, "status": status}, runs, ours

def counts(rec):
    csv = rec + ".csv"
    done = subprocess.run([engraft, "convert", rec, "-q", "-o", csv], capture_output=True, text=True)
    if done.returncode:
        return done.stderr
    most = {}
    for line in open(csv):
        image, function, *_, n = line.rstrip().split(",")
        if function in ("work", "plugin_work"):
            most[image, function] = max(most.get((image, function), 0), int(n))
    return sum(most.values())

def check(name, template, expected, options, needs=""):
    tool = {"root": root, "": True, "mount": True}.get(needs, shutil.which(needs))
    if not tool:
        return print(f"left out  {name}: needs {needs}")
    plain, plain_runs, _ = run(template, "", f"{top}/plain")
    rec = f"{top}/rec"
    for old in (rec, rec + ".csv"):
        if os.path.exists(old):
            os.remove(old)
    where = f"-o {rec}"
    if "-o" in options:
        where, rec = "", f"{top}/counted/rec"
    got, runs, ours = run(template, f"{engraft} count --json --no-cache {where} {options.removesuffix('--')} --", f"{top}/counted")
    said = [s.get("warning") or s.get("error") for s in ours if s["schema"] != "engraft.count/1"]
    kind, _, text = expected.partition(": ")
    problems = []
    if kind == "late": # what was counted cannot be written
        if got["out"] != plain["out"] or got["status"] != 2 or len(said) != 1 or text not in said[0]:
            problems.append(f"expected one error about '{text}': {got} {said}")
    elif kind == "refused":
        if got["status"] != 2 or runs or len(said) != 1 or text not in said[0]:
            problems.append(f"expected one error about '{text}': {got} {said}")
    else:
        if got != plain:
            problems.append(f"{plain} became {got}")
        n = counts(rec) if os.path.exists(rec) else "no recording"
        if kind == "same":
            pass
        elif kind == "said":
            if not any(text in s for s in said):
                problems.append(f"nobody said '{text}'")
        elif said or n != sum(runs):
            problems.append(f"{n} runs counted of {sum(runs)}")
    if kind not in ("refused", "said", "late") and said or problems and said:
        problems.append(f"said: {said}")
    bad.extend([name] if problems else [])
    verdict = "FAILED" if problems else {"refused": "refused", "said": "left", "late": "refused"}.get(kind, "ok")
    print(f"{verdict:9} {name}" + ("" if verdict == "ok" else f": {'; '.join(problems or said)}"), flush=True)

for case in cases:
    if not wanted or case[0] in wanted:
        check(*case)
sys.exit(bool(bad))
P
