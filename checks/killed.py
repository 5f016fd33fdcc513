"""killed.py ENGRAFT FOLDER N: what killed.sh runs. See there.

Each block begins with a marker of `random.py`: a counter of its own in memory that outlives the program. It stands behind the block's start, so of each thread
that is stopped at that moment, one block at most has been entered and not marked yet. All else must be within what is said.
"""
import bisect, collections, csv, importlib.util, json, os, random, signal, struct, subprocess, sys, time

spec = importlib.util.spec_from_file_location("programs", os.path.join(os.path.dirname(os.path.abspath(__file__)), "random.py"))
programs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(programs)

# What is run, as in `random.py`. In a trace, what a thread ran behind its last event is not known: of each,
# as many blocks that follow one another may be missing, or not be marked yet.
VERB = programs.VERB
AHEAD = 1 if VERB == "count" else 16

FLAGS = ["-O0", "-O1", "-O2", "-O2 -fno-inline", "-O3 -funroll-loops", "-Os -fno-jump-tables"]


def build(folder):
    """The program, built in several ways."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(f"{folder}/p.c", "w") as out:
        out.write(programs.PRELUDE + programs.FIRST + open(f"{here}/killed.c").read())
    with open(f"{folder}/pages.s", "w") as out:
        out.write(programs.PAGES)
    for n, flags in enumerate(FLAGS):
        command = ["gcc", "-w", "-DPART=0", *flags.split(), "-pthread", "p.c", "pages.s", "-o", f"p{n}"]
        subprocess.run(command, cwd=folder, check=True)
    return [(f"{folder}/p{n}", programs.marks(f"{folder}/p{n}")) for n in range(len(FLAGS))]


def counts(engraft, folder, path):
    """Per block: start, end, count, the least and the most that it may be, function."""
    subprocess.run([engraft, "convert", "-q", "r.engraft", "-o", "r.csv", "--binary", path], cwd=folder, check=True)
    subprocess.run([engraft, "convert", "-q", "r.engraft", "-o", "r.json", "--binary", path], cwd=folder, check=True)
    profile = json.load(open(f"{folder}/r.json"))
    between = {int(b["at"], 16): (b["at_least"], b["at_most"]) for b in profile["blocks"] if "at_least" in b}
    rows = []
    for row in list(csv.reader(open(f"{folder}/r.csv")))[1:]:
        function, start, end, n = row[-4], int(row[-3], 16), int(row[-2], 16), int(row[-1])
        rows.append((start, end, n, *between.get(start, (n, n)), function))
    return sorted(rows), profile.get("n_stopped", 0)


def run(engraft, folder, path, args, kill_in):
    for name in ("own0", "r.engraft"):
        if os.path.exists(f"{folder}/{name}"):
            os.remove(f"{folder}/{name}")
    env = {**os.environ, "OWN": f"{folder}/own"}
    command = [engraft, VERB, "-q", "--no-cache", "--modules", "exe", "-o", "r.engraft", "--", path, *args]
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    child.stdout.read(1)  # it runs
    if kill_in is not None:
        children = open(f"/proc/{child.pid}/task/{child.pid}/children").read().split()
        time.sleep(kill_in)
        os.kill(int(children[0]), signal.SIGKILL)
    return child.wait(60)


class Seen:
    def __init__(self):
        self.n = collections.Counter()
        self.widths = collections.Counter()
        self.failed = []


def hold(seen, what, marks, own, blocks, n_stopped, n_alive):
    """Each block's count against the marker it starts with."""
    starts = [b[0] for b in blocks]
    first = {}
    for at, counter, line, kind in sorted(marks):
        i = bisect.bisect_right(starts, at) - 1
        if i >= 0 and at < blocks[i][1]:
            first.setdefault(i, (struct.unpack_from("<Q", own, counter)[0], line))
    entered = missing = 0
    for i, (m, line) in first.items():
        start, end, n, least, most, function = blocks[i]
        seen.n["blocks"] += 1
        seen.n["ran"] += most > 0
        seen.n["intervals"] += least != most
        seen.widths[most - least] += 1
        seen.n["off"] += m != n
        if most - least > n_stopped:
            seen.failed.append(f"{what}: {function} {start:#x} (line {line}): {least}..{most}, wider than the {n_stopped} threads that may have been stopped")
        if not least <= m <= most:
            # Entered, and not marked yet.
            entered += least - m if m < least else 0
            missing += m - most if m > most and VERB == "trace" else 0
            if m > most and VERB == "count" or entered > AHEAD * n_alive or missing > AHEAD * n_alive:
                seen.failed.append(f"{what}: {function} {start:#x} (line {line}): {least}..{most} ({n}), its own {m}")
    seen.n["not marked yet"] += entered
    seen.n["missing"] += missing
    seen.n["stopped"] += n_stopped
    seen.n["runs"] += 1
    return len(first)


def n_raising(folder, marks, own):
    """How many threads were between their call of `raise` and what follows it, so perhaps in the handler: then that and the caller were stopped."""
    line = next(n for n, text in enumerate(open(f"{folder}/p.c"), 1) if "raise(SIGUSR1)" in text)
    n = lambda line, kind: sum(struct.unpack_from("<Q", own, counter)[0] for _, counter, at, k in marks if (at, k) == (line, kind))
    return n(line, 0) - n(line + 1, 1)


def main():
    engraft, folder, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    r = random.Random(7)
    built = build(folder)
    killed, ended, alone = Seen(), Seen(), Seen()

    def one(seen, path, marks, args, kill_in, status, n_threads):
        what = f"{FLAGS[int(path[-1])]} {' '.join(args)}"
        got = run(engraft, folder, path, args, kill_in)
        if got != status:
            seen.failed.append(f"{what}: ended with {got} in place of {status}")
            return
        blocks, n_stopped = counts(engraft, folder, path)
        own = open(f"{folder}/own0", "rb").read()
        # Who ends it is at a call, unless it is killed, or does what it may not; it cannot be known in
        # `abort`.
        n_alive = n_threads + (kill_in is not None or status == 128 + 11)
        if hold(seen, what, marks, own, blocks, n_stopped, n_alive) < 20:
            seen.failed.append(f"{what}: hardly any block was held")
        n_alive += n_raising(folder, marks, own)
        if n_stopped > n_alive + (status == 128 + 6):
            seen.failed.append(f"{what}: {n_stopped} threads are said to have been stopped, {n_alive} were")

    ways = [("e", 3), ("_", 4), ("g", 5), ("r", 6), ("a", 128 + 6), ("s", 128 + 11)]
    for i in range(n):
        path, marks = built[i % len(built)]
        n_threads = r.choice([0, 1, 2, 3])
        one(killed, path, marks, [str(n_threads), "0", "-"], r.random() * 0.02, 128 + 9, n_threads)
    for i in range(max(12, n // 5)):
        path, marks = built[i % len(built)]
        how, status = r.choice(ways)
        n_threads = r.choice([0, 1, 2, 3])
        one(alone if n_threads == 0 else ended, path, marks, [str(n_threads), str(r.randrange(1, 3000)), how], None, status, n_threads)
    for name, seen in [("killed", killed), ("ended with threads alive", ended), ("ended alone", alone)]:
        print(f"{name}: {seen.n['runs']} runs; {seen.n['blocks']} blocks, of {seen.n['ran']} that ran (or may have) {seen.n['intervals']} intervals; "
              f"{seen.n['stopped']} threads said to be stopped; {seen.n['off']} numbers not the block's own, {seen.n['not marked yet']} of them since it was not marked yet"
              + (f", {seen.n['missing']} behind the last event" if VERB == "trace" else ""))
        print("  widths, and how often:", dict(sorted(seen.widths.items())))
        for line in seen.failed[:10]:
            print("  FAILED " + line)
    sys.exit(bool(killed.failed or ended.failed or alone.failed) or killed.n["runs"] != n)


if __name__ == "__main__":
    main()
