#!/usr/bin/env bash
# count.sh [NAME…]: counts of real programs (those of `programs.sh` that are named; by default the six workloads, cc1plus and xz) against
# callgrind's, instruction by instruction, for the executable and all libraries but libc and ld.so.
#
# An instruction counts as repeatable if two runs under callgrind agree on it, and three under `count`. Apart from others are: repeated
# instructions (callgrind counts their rounds), what stands in a block behind a call that did not always return, padding between
# blocks that control runs through, and stubs outside of .text, which callgrind gives to no file. What ran and was not counted is listed by function, with the reason.
#
# Prints for each program how many instructions were held against each other, and the share of executed and of distinct executed
# instructions that were counted. Exit 1 if one differs, or a share is below 99.9 %. Needs Debian 12.
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
# shellcheck source=checks/programs.sh
. "$top/checks/programs.sh"
[ $# -gt 0 ] || set -- gzip bzip2 lua sqlite3 clangfmt python3 cc1plus xz
# shellcheck disable=SC2086
"$top/scripts/install.sh" valgrind python3 binutils $(for name; do echo "${needs[$name]:-}"; done)
work=$(mktemp -d); [ -n "${KEEP:-}" ] && echo "kept: $work" >&2 || trap 'rm -rf "$work"' EXIT
unset RUST_BACKTRACE
export LC_ALL=C TZ=UTC HOME=$work XDG_CACHE_HOME=${XDG_CACHE_HOME:-$work/cache} THREADS=1 # of threads, each wait is another
counted() { "$engraft" count -q -o "$(mktemp -u "$out/XXXXXXXX.engraft")" -- "$@"; }
watched() { valgrind -q --tool=callgrind --dump-instr=yes --skip-plt=no --callgrind-out-file="$out/%p.callgrind" "$@"; }

failed=0
for name; do
  rm -rf "$work/new" "$work"/[cw][0-9]; mkdir "$work/new"
  ! declare -F "setup_$name" >/dev/null || (cd "$work/new" && "setup_$name") || { echo "FAILED  $name: could not be made"; failed=1; continue; }
  for how in w1 w2 c1 c2 c3; do
    mkdir "$work/$how"; rm -rf "$work/run"; cp -a "$work/new" "$work/run"; export out=$work/$how
    case $how in w*) prefix=watched ;; *) prefix=counted ;; esac
    (cd "$work/run" && set +e && ulimit -c 0 && "run_$name" $prefix) >/dev/null 2>&1 </dev/null || true
    for rec in "$out"/*.engraft; do [ ! -e "$rec" ] || "$engraft" convert -q "$rec" -o "$rec.csv"; done
  done
  python3 - "$engraft" "$work" "$name" <<'P' || failed=1
import collections, csv, glob, json, os, re, subprocess, sys
engraft, work, name = sys.argv[1:]

def watched(folder):
    """Executions by file and address, of all files that callgrind wrote."""
    sums = collections.defaultdict(collections.Counter)
    for path in glob.glob(folder + "/*.callgrind*"):
        names, at, skip, here = {}, 0, False, None
        for line in open(path):
            if m := re.match(r"(c?ob)=\((\d+)\)(?: (.*))?$", line):
                if m[3]:
                    names[m[2]] = m[3]
                if m[1] == "ob":
                    here = sums[os.path.realpath(names[m[2]])]
            elif line.startswith("calls="):
                skip = True
            elif re.match(r"0x|[-+*0-9]", line):
                where, _, n = line.split()[:3]
                if where != "*":
                    at = int(where, 16) if where.startswith("0x") else at + int(where, 0)
                if not skip:
                    here[at] += int(n)
                skip = False
    return sums

def counted(folder):
    """Executions by file and block, of all recordings; a block is its first address and the one behind it."""
    sums = collections.defaultdict(collections.Counter)
    for path in glob.glob(folder + "/*.csv"):
        for row in csv.DictReader(open(path)):
            sums[os.path.realpath(row["image"])][int(row["start"], 16), int(row["end"], 16)] += int(row["executions"])
    return sums

w1, w2 = watched(work + "/w1"), watched(work + "/w2")
runs = [counted(f"{work}/c{n}") for n in (1, 2, 3)]
held = stubs = differ = repeat = rep = cut = padding = n_run = n_missed = d_run = d_missed = 0
why = collections.Counter()
shown = []
for path in sorted(runs[0]):
    cg = w1.get(path, {})
    text = {}
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-w", path], capture_output=True, text=True).stdout
    for m in re.finditer(r"^ *([0-9a-f]+):\t(\S+ ?\S*)", code, re.M):
        if (at := int(m[1], 16)) in cg:
            text[at] = m[2]
    # What stands in .init, .plt and .fini, callgrind gives to no file.
    m = re.search(r" \.text +PROGBITS +([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+)", subprocess.run(["readelf", "-SW", path], capture_output=True, text=True).stdout)
    text_at, text_end = int(m[1], 16), int(m[1], 16) + int(m[2], 16)
    stays = json.loads(subprocess.run([engraft, "instrument", "--json", "-q", path, "-o", work + "/junk"], capture_output=True, check=True).stdout)["stays"]
    reason = {at: s["why"] for s in stays for at in s["at"]}
    at_stays = sorted(reason)
    left = dict(cg)
    for (start, end), n in runs[0][path].items():
        inside = [a for a in range(start, end) if a in cg]
        varies = any(r[path][start, end] != n for r in runs[1:])
        if not inside and n and not varies and not (text_at <= start < text_end):
            stubs += 1
        elif not inside and n and not varies:
            differ += 1
            shown.append(f"{path} {start:#x}: {n}, callgrind 0")
        is_cut = False
        for a in inside:
            del left[a]
            d_run += 1
            n_run += cg[a]
            if varies or w2[path].get(a, 0) != cg[a]:
                repeat += 1
            elif text.get(a, "").startswith("rep") and not text[a].startswith("repz ret"):
                rep += 1
            elif is_cut and cg[a] < n:
                cut += 1
            elif cg[a] != n:
                differ += 1
                shown.append(f"{path} {a:#x} ({text.get(a)}): {n}, callgrind {cg[a]}")
            else:
                held += 1
            is_cut |= text.get(a, "").startswith("call")
    for a, n in left.items():
        if text.get(a, "").split(" ")[0] in ("nop", "nopw", "nopl", "xchg", "cs", "data16"):
            padding += n
            continue
        before = [s for s in at_stays if s <= a]
        what = reason[before[-1]] if before else "in no function"
        why[what] += n
        n_missed, d_missed = n_missed + n, d_missed + 1
        if len(shown) < 60 and what != "stub of the linkage table":
            shown.append(f"{path} {a:#x} ({text.get(a)}): not counted, {n} times: {what}")
shares = [100 * a / max(1, a + b) for a, b in ((n_run, n_missed), (d_run, d_missed))]
ok = differ == 0 and held > 500 and min(shares) >= 99.9
for line in shown[:12]:
    print("   ", line)
print(f"{name:10} {'ok' if ok else 'FAILED':6} {held} instructions equal, {differ} not; apart: {repeat} not repeatable, {rep} repeated, {cut} behind calls, {stubs} blocks of .init and .plt, "
      f"{padding} executions of padding; counted {shares[0]:.4f} % of {n_run + n_missed} executions, {shares[1]:.3f} % of {d_run + d_missed} instructions; "
      + "; ".join(f"{n} {w}" for w, n in why.most_common()))
sys.exit(not ok)
P
done
exit $failed
