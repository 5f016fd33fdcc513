"""callees.py NAME ENGRAFT WORK SHOW: what `callees.sh` took, held against each other. WORK has folders w1, w2 (callgrind's files), c1 to c4 (recordings)."""
import bisect, collections, glob, json, os, re, subprocess, sys

name, engraft, work, show = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
SYSTEM = re.compile(r"(libc|ld-linux.*|libpthread|libdl|librt|vgpreload.*|valgrind.*)\.so.*")


def base(path):
    return os.path.basename(os.path.realpath(path)) if path.startswith("/") else os.path.basename(path)


def callgrind(path, found, jumps, objects):
    """Adds the calls of a file: (object, calling instruction) to (object, address). Jumps within what callgrind takes for one function, apart."""
    names, ob, cob, at, call, jump = {}, "???", None, 0, None, None

    def named(text):
        number = re.match(r"\((\d+)\)\s*(.*)", text)
        if not number:
            return text
        if number[2]:
            names[number[1]] = number[2]
        return names[number[1]]

    def position(text):
        if text == "*":
            return at
        if text[0] in "+-":
            return at + int(text, 0)
        return int(text, 0)

    for line in open(path):
        line = line.rstrip("\n")
        if line.startswith("ob="):
            ob = named(line[3:])
            objects.add(ob)
        elif line.startswith("cob="):
            cob = named(line[4:])
        elif line.startswith("calls="):
            words = line[6:].split()
            call = (int(words[0]), cob or ob, position(words[1]))
            cob = None
        elif line.startswith("jump="):
            words = line[5:].split()
            jump = (int(words[0]), ob, position(words[1]))
        elif line and (line[0].isdigit() or line[0] in "+-*"):
            at = position(line.split()[0])
            if call:
                found[(ob, at), call[1:]] += call[0]
                call = None
            if jump:
                jumps[(ob, at), jump[1:]] += jump[0]
                jump = None


def pointers(path):
    """Call sites of indirect calls through no slots of the dynamic linker."""
    slots = set()
    for line in subprocess.run(["readelf", "-rW", path], capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        if len(words) > 4 and words[2] in ("R_X86_64_GLOB_DAT", "R_X86_64_JUMP_SLOT", "R_X86_64_JUMP_SLO"):
            slots.add(int(words[0], 16))
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True).stdout
    found = set()
    for at, operand, comment in re.findall(r"^\s*([0-9a-f]+):\s+(?:bnd |notrack )*(?:call|jmp)q?\s+\*(\S+)(.*)$", code, re.M):
        slot = re.search(r"# ([0-9a-f]+)", comment) if "(%rip)" in operand else None
        if not slot or int(slot[1], 16) not in slots:
            found.add(int(at, 16))
    return found


def watched(folder):
    calls, jumps, objects = collections.Counter(), collections.Counter(), set()
    for path in glob.glob(f"{work}/{folder}/*.callgrind"):
        callgrind(path, calls, jumps, objects)
    return (calls, jumps), objects


def counted_in(folder, module):
    found, blocks = collections.Counter(), collections.Counter()
    for rec in glob.glob(f"{work}/{folder}/*.engraft"):
        out = f"{work}/{folder}/module.json"
        if subprocess.run([engraft, "convert", "-q", rec, "--binary", module, "-o", out], capture_output=True).returncode:
            continue
        said = json.load(open(out))
        for block in said["blocks"]:
            blocks[int(block["at"], 16)] += block["count"]
        for call in said["calls"]:
            found[int(call["at"], 16), (base(module), int(call["callee"], 16))] += call["count"]
        for call in said.get("calls_beyond", []):
            found[int(call["at"], 16), (base(call.get("image", call.get("callee", "?"))), None)] += call["count"]
    return found, blocks


(one, objects), (two, _) = watched("w1"), watched("w2")
left_out = collections.Counter()
mine = sorted(o for o in objects if os.path.isfile(o) and not SYSTEM.fullmatch(base(o)))
mismatches, n_equal, n_calls, n_counted, n_unstable, n_otherwise = [], 0, 0, 0, 0, 0
for module in mine:
    sites = pointers(module)
    runs = [counted_in(folder, module) for folder in ("c1", "c2", "c3", "c4")]
    got, blocks = runs[0]
    starts = sorted(blocks)
    counted = {at for at, _ in got}

    def of_module(calls, jumps):
        # Jumps elsewhere are through tables.
        made = [call for call in calls.items() if call[0][0][1] in sites] + [jump for jump in jumps.items() if jump[0][0][1] in counted]
        found = collections.Counter()
        for ((ob, at), (cob, to)), n in made:
            if ob == module:
                found[at, (base(cob), to if cob == module else None)] += n
        return found

    def sum_at(calls, at):
        return sum(n for (site, _), n in calls.items() if site == at)

    first, second = of_module(*one), of_module(*two)
    for key in sorted(set(first) | set(got), key=str):
        want = first[key]
        n_calls += want
        if key[0] not in counted:
            left_out[base(module), key[0]] += want
            continue
        n_counted += want
        if want == got[key]:
            n_equal += 1
        elif want != second[key] or any(run[key] != got[key] for run, _ in runs):
            n_unstable += 1
        elif sum_at(first, key[0]) != sum_at(got, key[0]) == blocks[starts[bisect.bisect_right(starts, key[0]) - 1]]:
            n_otherwise += 1
        else:
            mismatches.append((module, key, want, got[key]))
share = 100 * n_counted / max(n_calls, 1)
print(f"{name}: {n_equal} pairs equal, {len(mismatches)} differ, {n_unstable} not repeatable, {n_otherwise} ran otherwise under valgrind; {n_calls} indirect calls, {share:.2f} % of them at counted places")
for module, (at, (ob, to)), want, n in mismatches[:show]:
    there = f"{to:#x}" if to is not None else ""
    print(f"  {base(module)} {at:#x} -> {ob} {there}: callgrind {want}, count {n}")
for (module, at), n in left_out.most_common(show):
    print(f"  not counted: {module} {at:#x}, {n} calls")
sys.exit(bool(mismatches) or n_equal == 0 or share < 99)
