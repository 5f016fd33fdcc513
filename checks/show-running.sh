#!/usr/bin/env bash
# show-running.sh [PROGRAM]: functions, blocks, edges and loops of all that a process runs, from its memory,
# while it runs (issue 30, row 9). PROGRAM (default: gcc's cc1, 20.7 MB of code) is copied, stripped, and
# started so that it waits for its input. Prints the median of N (default 5) runs of `show -p PID --memory`:
# seconds that passed, and of processors; the first of them apart. Then compares what memory says of it with
# what its file says: functions, blocks, jump tables, loops, numbers of edges, and SAMPLE (default 10)
# functions instruction by instruction, edge by edge. Fails if they differ, if the process was stopped or
# traced, or if the median is over MOST (default 2) seconds. The machine should have nothing else to do.
set -euo pipefail
n=${N:-5} most=${MOST:-2} sample=${SAMPLE:-10}
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
program=${1:-$(gcc -print-prog-name=cc1)}
tmp=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$tmp"' EXIT
strip -o "$tmp/program" "$program"
mkfifo "$tmp/input"
exec 9<>"$tmp/input"
arguments=()
case $(basename "$program") in
    cc1*) arguments=(-quiet - -o /dev/null) ;;
    gdb) arguments=(-q -nx) ;;
    *) ;;
esac
"$tmp/program" "${arguments[@]}" <"$tmp/input" >/dev/null 2>&1 &
pid=$!
# Until it waits for its input.
for _ in $(seq 600); do
    read -r state _ < <(sed 's/.*) //' "/proc/$pid/stat")
    [ "$state" = S ] && [ "$(grep -c . "/proc/$pid/maps")" -gt 10 ] && break
    sleep 0.05
done
# The signals that it was sent, how it stands, and who traces it; and how often it had the processor.
stands() { grep -E 'State|TracerPid|SigPnd|ShdPnd|ctxt_switches' "/proc/$pid/status"; }
before=$(stands)
TIMEFORMAT='%R %U %S'
seconds() { { time "$engraft" show -p "$pid" --memory --json >"$tmp/memory.json"; } 2>&1; }
echo "first: $(seconds) s (passed, user, system)"
for _ in $(seq "$n"); do seconds; done >"$tmp/times"
median() { awk -v c="$1" '{ print $c }' "$tmp/times" | sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
passed=$(median 1)
echo "median of $n: $passed s passed, $(median 2) s user, $(median 3) s system"
failed=0
awk -v p="$passed" -v m="$most" 'BEGIN { exit p > m }' || { echo "over $most s: FAILED"; failed=1; }
[ "$before" = "$(stands)" ] || { echo "it was disturbed: FAILED"; diff <(echo "$before") <(stands) || true; failed=1; }
python3 - "$engraft" "$pid" "$tmp" "$sample" <<'PYTHON' || failed=1
import json, random, subprocess, sys
engraft, pid, tmp, sample = sys.argv[1:]
def run(*words):
    out = subprocess.run([engraft, "show", *words, "--json"], capture_output=True, text=True)
    if out.returncode: sys.exit(out.stderr)
    value = json.loads(out.stdout)
    value.pop("binary", None); value.pop("live", None)
    return value
file = f"{tmp}/program"
memory = json.load(open(f"{tmp}/memory.json"))["modules"]
for m in memory: print("%-40s %9d bytes of code %6d functions %8d blocks %8d edges %6d loops, from %s" % (
    m["module"].split("/")[-1], m["code_bytes"], m["n_functions"], m["n_blocks"], m["n_edges"], m["n_loops"], m["from"]))
differs = []
files = json.loads(subprocess.run([engraft, "show", "-p", pid, "--json"], capture_output=True, text=True).stdout)["modules"]
own, of_file = memory[0], files[0]
for key in "n_functions", "n_blocks", "n_edges", "n_loops", "image_id":
    if own[key] != of_file[key]: differs.append(f"{key}: {own[key]}, the file's {of_file[key]}")
assert (own["from"], of_file["from"]) == ("memory", "file")
for what in "cfg", "loops", "tables":
    if run("-p", pid, what, "--memory") != run(file, what): differs.append(what)
functions = run(file, "functions")["functions"]
random.seed(1)
for f in random.sample(functions, min(int(sample), len(functions))):
    at = f["at"] + own["bias"]
    a, b = run("-p", pid, "function", hex(at), "--memory"), run(file, "function", hex(f["at"]))
    for value in a, b:
        value.pop("id")
        for block in value["blocks"]:
            for edge in block["edges"]: edge.pop("id")
    if a != b: differs.append(f"function at {f['at']:#x}")
print("memory and file: " + ("equal" if not differs else "FAILED: " + ", ".join(differs)))
libraries = [(m["module"], m["n_functions"], g["n_functions"], m["n_blocks"], g["n_blocks"]) for m, g in zip(memory[1:], files[1:])
             if any(m[k] != g[k] for k in ("n_functions", "n_blocks", "n_edges", "n_loops"))]
for name, mf, ff, mb, fb in libraries: print(f"{name}: {mf} functions and {mb} blocks, its file (with sections) {ff} and {fb}")
sys.exit(bool(differs))
PYTHON
exit $failed
