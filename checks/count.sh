#!/usr/bin/env bash
# count.sh [NAME…]: counts of real programs (those of `programs.sh` that are named; by default the six
# workloads, cc1plus and xz) against callgrind's, instruction by instruction and taken edge by taken edge, for
# the executable and all libraries but libc and ld.so.
#
# An instruction counts as repeatable if two runs under callgrind agree on it, and five under `count` (twenty,
# where there is doubt: what hashes addresses seldom goes another way). Where it is, and callgrind and `count`
# differ, a third one decides: gdb, which runs the program without valgrind and counts at a breakpoint
# (valgrind shows another processor, other limits and another heap, so some code goes other ways there). Apart
# from others are: repeated instructions (callgrind counts their rounds), what stands in a block behind a call
# that did not always return, and stubs outside of .text, which callgrind gives to no file. What ran and was
# not counted is listed by function, with the reason; padding too, where no row of a block reaches over it.
#
# Prints for each program how many instructions were held against each other, and the share of executed and of
# distinct executed instructions that were counted. Exit 1 if one differs, or a share is below 99.9 %. Needs
# Debian 12. THREADS: of xz (1).
set -euo pipefail
top=$(dirname "$(dirname "$(realpath "$0")")")
engraft=${ENGRAFT:-$top/target/release/engraft}
[ -x "$engraft" ] || (cd "$top" && cargo build -q --release -p engraft)
# shellcheck source=checks/programs.sh
. "$top/checks/programs.sh"
[ $# -gt 0 ] || set -- gzip bzip2 lua sqlite3 clangfmt python3 cc1plus xz
# shellcheck disable=SC2086
"$top/scripts/install.sh" valgrind python3 binutils gdb $(for name; do echo "${needs[$name]:-}"; done)
work=$(mktemp -d); [ -n "${KEEP:-}" ] && echo "kept: $work" >&2 || trap 'rm -rf "$work"' EXIT
unset RUST_BACKTRACE
export work LC_ALL=C TZ=UTC HOME=$work XDG_CACHE_HOME=${XDG_CACHE_HOME:-$work/cache} THREADS=${THREADS:-1}
# THREADS: of threads, each wait is another.
export OPENSSL_ia32cap=0:0 # libcrypto: the same code whatever the processor
# valgrind sets variables for the program, which looks at each: all get them.
mapfile -t as_watched < <(comm -13 <(env | sort) <(valgrind -q --tool=none env | sort) | grep -v '^_=')
counted() { env "${as_watched[@]}" "$engraft" count -q -o "$(mktemp -u "$out/XXXXXXXX.engraft")" -- "$@"; }
watched() { valgrind -q --tool=callgrind --dump-instr=yes --collect-jumps=yes --skip-plt=no --callgrind-out-file="$out/%p.callgrind" "$@"; }
stopped() { env "${as_watched[@]}" gdb -q -nx -batch -x "$work/stop.py" --args "$@"; }
# What a program does otherwise here. No children: callgrind's counts of one begin with its parent's. One
# thread at a time.
alone_python3() { sed -i '/subprocess\.run/d; /os\.fork/d; /^if pid/d; /waitstatus/d; s/^\[t\.start.*/[(t.start(), t.join()) for t in ts]/' p.py; }

# How often the program comes to each address in $work/ask.
cat >"$work/stop.py" <<'P'
import collections, gdb, os
asked, placed = collections.defaultdict(list), []
for line in open(os.environ["work"] + "/ask"):
    path, at, base = line.rstrip("\n").split("\t")
    asked[path].append((int(at, 16), int(base, 16)))

def place():
    maps = {}
    for line in open(f"/proc/{gdb.selected_inferior().pid}/maps"):
        words = line.rstrip("\n").split(None, 5)
        if len(words) > 5 and int(words[2], 16) == 0:
            maps.setdefault(words[5], int(words[0].split("-")[0], 16))
    for path in [p for p in asked if p in maps]:
        for at, base in asked.pop(path):
            there = gdb.Breakpoint(f"*{maps[path] + at - base:#x}", internal=True)
            there.silent, there.ignore_count = True, 1 << 30
            placed.append((path, at, there))

def ended(_):
    with open(f"{os.environ['out']}/{os.getpid()}.hits", "w") as out:
        out.writelines(f"{path}\t{at:#x}\t{there.hit_count}\n" for path, at, there in placed)

# What gdb itself says would stand between what the program prints.
for line in ("set logging file /dev/null", "set logging redirect on", "set logging enabled on", "set disable-randomization off", "set pagination off",
             "set confirm off", "set startup-with-shell off", "set debuginfod enabled off", "set stop-on-solib-events 1", "handle all nostop noprint pass",
             "unset environment LINES", "unset environment COLUMNS"):
    gdb.execute(line, to_string=True)
gdb.events.exited.connect(ended)
gdb.execute("starti", to_string=True)
while gdb.selected_inferior().pid:
    place()
    gdb.execute("continue", to_string=True)
P

# take HOW: runs the program under callgrind (w…), `count` (c…), or gdb (g…).
take() {
  mkdir "$work/$1"; rm -rf "$work/run"; cp -a "$work/new" "$work/run"; export out=$work/$1
  local prefix=counted
  case $1 in w*) prefix=watched ;; g*) prefix=stopped ;; esac
  (cd "$work/run" && set +e && ulimit -c 0 && "run_$name" $prefix) >/dev/null 2>&1 </dev/null || true
  for rec in "$out"/*.engraft; do
    [ ! -e "$rec" ] || { "$engraft" convert -q "$rec" -o "$rec.csv" && "$engraft" convert -q "$rec" -o "$rec.callgrind"; }
  done
}

# judge: holds the runs against each other. Exit 3 if gdb is to be asked.
judge() {
  python3 - "$engraft" "$work" "$name" <<'P'
import bisect, collections, csv, functools, glob, json, os, re, subprocess, sys
engraft, work, name = sys.argv[1:]

def watched(folder):
    """Executions by file and address, and jumps that were taken by file, address and target, of all files of callgrind's format."""
    sums, jumps = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
    for path in glob.glob(folder + "/*.callgrind*"):
        names, at, skip, here, taken = {}, 0, False, None, None
        place = lambda text: at if text == "*" else int(text, 16) if text.startswith("0x") else at + int(text, 0)
        for line in open(path):
            if m := re.match(r"(c?ob)=(?:\((\d+)\))?(?: ?(.*))?$", line):
                key = m[2] or m[3]
                if m[3]:
                    names[key] = m[3]
                if m[1] == "ob":
                    here, there = (a[os.path.realpath(names[key])] for a in (sums, jumps))
            elif line.startswith("calls="):
                skip = True
            elif m := re.match(r"(?:jump|jcnd)=(\d+)(?:/\d+)? (\S+)", line):
                taken = int(m[1]), place(m[2])
            elif re.match(r"0x|[-+*0-9]", line):
                words = line.split()
                at = place(words[0])
                if taken:
                    there[at, taken[1]] += taken[0]
                elif not skip:
                    here[at] += int(words[2])
                skip, taken = False, None
    return sums, jumps

def counted(folder):
    """Executions by file and block, of all recordings; a block is its first address and the one behind it."""
    sums = collections.defaultdict(collections.Counter)
    real = functools.cache(os.path.realpath)
    for path in glob.glob(folder + "/*.csv"):
        for image, _, start, end, n in list(csv.reader(open(path)))[1:]:
            sums[real(image)][int(start, 16), int(end, 16)] += int(n)
    return sums

def said(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout

(w1, j1), (w2, j2) = watched(work + "/w1"), watched(work + "/w2")
first, *others = sorted(glob.glob(work + "/c[0-9]*"))
run, jumps = counted(first), watched(first)[1]
# Blocks, and jumps, that another run counts otherwise; one run after the other, as they are large.
varying, wavering = set(), set()
for folder in others:
    other, others_jumps = counted(folder), watched(folder)[1]
    wavering |= {(path, *at) for path in jumps.keys() | others_jumps.keys() for at, _ in jumps[path].items() ^ others_jumps[path].items()}
    varying |= {(path, *at) for path in run.keys() | other.keys() for at, _ in run[path].items() ^ other[path].items()}
hits = collections.Counter()
for file in glob.glob(work + "/g1/*.hits"):
    for line in open(file):
        path, at, n = line.split("\t")
        hits[path, int(at, 16)] += int(n)
edges = edges_apart = held = stubs = repeat = rep = cut = settled = n_run = n_missed = d_run = d_missed = 0
why = collections.Counter()
shown, differ, wrong = [], [], []
for path in sorted(run):
    cg = w1.get(path, {})
    text, all_at, led_to = {}, [], set()
    for m in re.finditer(r"^ *([0-9a-f]+):\t(\S+(?: +\*?\S*)?)", said("objdump", "-d", "--no-show-raw-insn", "-w", path), re.M):
        all_at.append(int(m[1], 16))
        if to := re.match(r"(?:notrack |bnd )?j[a-z]+ +([0-9a-f]+)$", m[2]):
            led_to.add(int(to[1], 16))
        if all_at[-1] in cg:
            text[all_at[-1]] = m[2]
    behind = dict(zip(all_at, all_at[1:]))
    addresses = sorted(cg)
    # What stands in .init, .plt and .fini, callgrind gives to no file.
    m = re.search(r" \.text +PROGBITS +([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+)", said("readelf", "-SW", path))
    text_at, text_end = int(m[1], 16), int(m[1], 16) + int(m[2], 16)
    stays = json.loads(said(engraft, "instrument", "--json", "-q", path, "-o", work + "/junk"))["stays"]
    reason = {at: s["why"] for s in stays for at in s["at"]}
    at_stays = sorted(reason)
    left = dict(cg)
    for (start, end), n in run[path].items():
        inside = addresses[bisect.bisect_left(addresses, start):bisect.bisect_left(addresses, end)]
        varies = (path, start, end) in varying
        if not inside and n and not varies:
            if text_at <= start < text_end:
                differ.append((path, start, start, n, 0))
            else:
                stubs += 1
        is_cut, head = False, {}
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
                differ.append((path, a, head.setdefault(cg[a], a), n, cg[a]))
            else:
                held += 1
            is_cut |= text.get(a, "").startswith("call")
    # Jumps that are taken, from blocks that agree: each edge but those that fall through, which are what
    # remains of their blocks.
    known = {edge[0] for edge in jumps[path]}
    agree = {at for at in cg if at not in left and cg[at] == w2[path].get(at)} - {a for p, a, *_ in differ if p == path}
    blocks = sorted(run[path])
    elsewhere = {a for p, a, *_ in differ if p == path}
    for edge in sorted(jumps[path].keys() | j1[path].keys()):
        at = bisect.bisect_right(blocks, (edge[0], 1 << 64)) - 1
        if edge[0] not in agree or at < 0 or edge[0] not in known and text.get(edge[0], "").split(" ")[0] in ("jmp", "bnd", "notrack"):
            continue # to other functions: those are calls
        ours, n = jumps[path].get(edge, 0), j1[path].get(edge, 0)
        if re.match(r"jmp +[0-9a-f]", text.get(edge[0], "")):
            n = cg[edge[0]] # it always goes there; callgrind forgets some
        elif n != j2[path].get(edge, 0):
            edges_apart += 1
            continue
        if (path, *edge) in wavering or (path, *blocks[at]) in varying or text.get(edge[0], "").startswith("rep"):
            edges_apart += 1
        elif n == ours:
            edges += 1
        elif edge[1] in elsewhere or (past := behind.get(edge[0])) in elsewhere:
            edges_apart += 1 # the way it goes on is one of those that gdb is asked about
        elif past not in led_to and cg[edge[0]] - cg.get(past, 0) == ours:
            edges += 1 # callgrind forgets some; what does not run past it went there
        else:
            wrong.append(f"{path} {edge[0]:#x} ({text.get(edge[0])}) to {edge[1]:#x}: {ours}, callgrind {n}")
    for a, n in left.items():
        before = bisect.bisect_right(at_stays, a)
        what = reason[at_stays[before - 1]] if before else "in no function"
        is_padding = text.get(a, "").split(" ")[0] in ("nop", "nopw", "nopl", "xchg", "cs", "data16")
        if is_padding:
            what = "padding behind branches" # it belongs to no block
        why[what] += n
        n_missed, d_missed = n_missed + n, d_missed + (not is_padding)
        if len(shown) < 20 and not is_padding and what != "PLT stub":
            shown.append(f"{path} {a:#x} ({text.get(a)}): not counted, {n} times: {what}")
# On what callgrind and `count` differ, gdb is asked, at the first such instruction of a block: those that run
# least, as each time takes it long.
asked = sorted({(max(n, callgrind), path, first) for path, _, first, n, callgrind in differ})
if asked and not os.path.exists(work + "/g1"):
    with open(work + "/ask", "w") as out:
        n_stops = 0
        for n, path, at in asked:
            n_stops += n
            if n_stops > 1_000_000:
                break
            base = re.search(r"LOAD +0x0+ 0x([0-9a-f]+)", said("readelf", "-lW", path))[1]
            out.write(f"{path}\t{at:#x}\t0x{base}\n")
    sys.exit(3)
n_wrong = len(wrong)
for path, at, first, n, callgrind in differ:
    if hits.get((path, first)) == n:
        settled += 1
    else:
        wrong.insert(0, f"{path} {at:#x}: {n}, callgrind {callgrind}, gdb {hits.get((path, first), 'not asked')}")
n_differ = len(differ) - settled
shares = [100 * a / max(1, a + b) for a, b in ((n_run, n_missed), (d_run, d_missed))]
ok = n_differ == n_wrong == 0 and held > 500 and edges > 100 and settled * 100 < held and min(shares) >= 99.9
for line in wrong[:12] + shown[:int(os.environ.get("SHOW", 12))]:
    print("   ", line)
print(f"{name:10} {'ok' if ok else 'FAILED':6} {held} instructions equal, {n_differ} not; apart: {settled} as gdb counts and callgrind does not, "
      f"{repeat} not repeatable, {rep} repeated, {cut} behind calls, {stubs} blocks of .init and .plt; {edges} taken edges equal, {n_wrong} not, {edges_apart} not repeatable; "
      f"counted {shares[0]:.4f} % of {n_run + n_missed} executions, {shares[1]:.3f} % of {d_run + d_missed} instructions of blocks; "
      + "; ".join(f"{n} {w}" for w, n in why.most_common()))
sys.exit(not ok)
P
}

failed=0
for name; do
  rm -rf "$work/new" "$work"/[cwg][0-9]* "$work/ask"; mkdir "$work/new"
  ! declare -F "setup_$name" >/dev/null || (cd "$work/new" && "setup_$name") || { echo "FAILED  $name: could not be made"; failed=1; continue; }
  ! declare -F "alone_$name" >/dev/null || (cd "$work/new" && "alone_$name")
  for how in w1 w2 c1 c2 c3 c4 c5; do take $how; done
  status=0; judge || status=$?
  if [ $status = 3 ]; then
    for how in c{6..20}; do take $how; done
    take g1; status=0; judge || status=$?
  fi
  [ $status = 0 ] || failed=1
done
exit $failed
