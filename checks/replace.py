#!/usr/bin/env -S python3 -I
"""replace.py [CYCLES] [TARGET…]: functions of servers under load replaced and taken back by `engraft
replace`, CYCLES (200) times in all (issue 31, row 6). Each time one of the functions that run most, by
`engraft count -p`, gets a function in its place that jumps to it: so all must go on as before, whatever its
arguments are. One time in ten engraft is killed at a random moment, and `engraft rescue` gives the process
back. After each, the process must run, answer everything as it should, have the code and the constants that
it had, and nothing of ours mapped. Targets: redis throws signals povray (those that are not installed are said to be
left out). ENGRAFT: the command [target/release/engraft]. Exit 1 if anything was wrong."""

import hashlib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
SPEC = importlib.util.spec_from_file_location("attach", HERE + "/attach.py")
attach = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(attach)
KILLS = int(os.environ.get("KILLS", "10"))

PASSES_ON = """
.text
.globl passes_on
.type passes_on,@function
passes_on: incq count(%rip)
jmp *ENGRAFT_ORIGINAL@GOTPCREL(%rip)
.size passes_on,.-passes_on
.data
.hidden count
count: .quad 0
.section .note.GNU-stack
"""


def code_of(pid):
    """As in attach.py, but parts of one file that lie side by side are one: the kernel lists pages that came back to
    their file apart."""
    held, ours = {}, []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        last = None
        for line in maps:
            words = line.split(None, 5)
            start, end = (int(text, 16) for text in words[0].split("-"))
            if re.match("1e[0-9a-f]{10}|1f[0-9a-f]{10}", words[0]) or "engraft" in line:
                ours.append(line.strip())
            if "w" in words[1] or "r" not in words[1] or "[v" in line:
                continue
            memory.seek(start)
            key = (words[1], words[5:])
            if last is None or last[0] != key or last[1] != start:
                place = f"{words[0].split('-')[0]} {key}"
                held[place] = hashlib.sha256()
            held[place].update(memory.read(end - start))
            last = (key, end)
    return {place: value.hexdigest()[:8] for place, value in held.items()}, ours


def hottest(pid, folder):
    """The functions of the executable that were entered most in half a second: their addresses."""
    words = [attach.ENGRAFT, "count", "-p", str(pid), "--for", "500ms", "--json", "--modules", "exe", "-o", folder + "/hot"]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stderr.strip().splitlines()
    functions = json.loads(said[-1])["functions"]
    entered = sorted((f for f in functions if f["entries"] > 10 and "@plt" not in f["name"]), key=lambda f: -f["entries"])
    return [hex(f["at"]) for f in entered[:12]]


def one(words, is_killed, target, pid):
    """Runs engraft; killed at a random moment, if it is to be. Whether it is over, and what was wrong."""
    process = subprocess.Popen([attach.ENGRAFT, "replace", *words, "-p", str(pid)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if is_killed:
        time.sleep(random.random() * target.cycle_s)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        rescued = subprocess.run([attach.ENGRAFT, "rescue", str(pid)], capture_output=True, text=True, check=False)
        if rescued.returncode and "nobody is attached" not in rescued.stderr:
            return True, f"rescue: {rescued.stdout} {rescued.stderr}"
        return True, None
    began = time.monotonic()
    said, err = process.communicate()
    target.cycle_s = max(target.cycle_s * 0.9, time.monotonic() - began)
    if process.returncode:
        return True, f"{' '.join(words)}: exit status {process.returncode}: {said} {err}"
    return False, None


def check(name, n_cycles):
    kind = attach.TARGETS[name]
    if not shutil.which(kind.needs):
        print(f"{name}: left out, {kind.needs} is not installed")
        return True
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/on.s", "w", encoding="utf-8") as source:
            source.write(PASSES_ON)
        subprocess.run(["gcc", "-shared", "-o", folder + "/on.so", folder + "/on.s"], check=True)
        target = kind(folder)
        time.sleep(1)
        pid = target.pids[0]
        functions = hottest(pid, folder)
        before, _ = code_of(pid)
        problems, n_refused = [], 0
        for n in range(n_cycles):
            function = random.choice(functions)
            kills = n % KILLS == KILLS - 1
            with_it = [function, "--with", folder + "/on.so:passes_on"]
            is_over, problem = one(with_it, kills and random.random() < 0.5, target, pid)
            if problem and "cannot be replaced" in problem:
                n_refused, problem = n_refused + 1, None
            if not is_over:
                time.sleep(random.random() * 0.05)
                is_over, problem = one([function, "--undo"], kills, target, pid)
            # It may be about to end.
            time.sleep(0.02)
            if target.process.poll() is not None:
                problems.append(f"cycle {n}: it has ended, {target.process.returncode}; {problem}; {target.logged()}")
                break
            if problem:
                problems.append(f"cycle {n}: {problem}")
            after, ours = code_of(pid)
            # What a word in memory may lead to stays: it is said, and is none of these.
            added = set(after) - set(before)
            if set(before.items()) - set(after.items()) or ours or len(added) > 3 * (n + 1):
                others = sorted(set(before.items()) ^ set(after.items()))
                problems.append(f"cycle {n}: its code is not what it was, or something is left: {others} {ours}")
            before = after
            if len(problems) > 5:
                break
        problems += target.wrong[:5]
        print(f"{name:9} {n_cycles} cycles of {len(functions)} functions, {n_refused} refused, {target.answers} answers: "
              f"{'as it should be' if not problems else 'WRONG'}", flush=True)
        for problem in problems:
            print(f"  {problem}"[:1500], flush=True)
        target.end()
        return not problems


if __name__ == "__main__":
    attach.main(check, ["redis", "throws", "signals", "povray"])
