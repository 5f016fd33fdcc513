#!/usr/bin/env -S python3 -I
"""sample-cost.py [SECONDS [PAIRS]]: what `engraft sample -p` costs programs that run SECONDS (60) by
themselves: POV-Ray, bzip2 and python3. PADRONE's figure 4: sampled for a sixtieth, a sixth and half of that
time, 1,000 and 10,000 times a second, without callers and with them, and by `auto`; each PAIRS (3) times,
beside as many plain runs, in turn. Prints the processor time of the program over its plain one: the median,
the least and the most. Beside it what engraft itself says that it cost. ENGRAFT: the command
[target/release/engraft]. The machine should have nothing else to do."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ENGRAFT = os.path.realpath(os.environ.get("ENGRAFT", TOP + "/target/release/engraft"))
SCENE = """
#version 3.7; global_settings { assumed_gamma 1 }
camera { location <0,2,-6> look_at 0 } light_source { <5,9,-7> rgb 1 }
plane { y,-1 pigment { checker rgb .2 rgb .9 } finish { reflection .3 } }
#declare I = 0; #while (I < 40)
sphere { <3*sin(I),.5*cos(3*I),3*cos(I)>,.5 pigment { rgb <abs(sin(I)),.5,.7> } finish { phong .8 reflection .4 } }
#declare I = I + 1; #end
"""
PYTHON = """
import sys
def work(n):
    seen = {}
    for i in range(n):
        seen[i % 977] = seen.get(i % 877, 0) + len(str(i * i))
    return sum(seen.values())
for _ in range(int(sys.argv[1])): work(100000)
"""


def programs(folder):
    """By name: what runs for a while, given how much of it."""
    with open(folder + "/scene.pov", "w") as scene:
        scene.write(SCENE)
    with open(folder + "/work.py", "w") as work:
        work.write(PYTHON)
    with open(folder + "/text", "wb") as text:
        for n in range(250000):
            text.write(b"%d: the %d of %x is %d\n" % (n, n * n % 7919, n * 31, n % 97))
    size = lambda n: [f"+W{n * 8}", f"+H{n * 6}"]
    scene = ["povray", f"+I{folder}/scene.pov", "+O-", "+FB", "+A0.1", "-J", "+WT1", "-D", "-V", "-GA"]
    return {
        "povray": lambda n: scene + size(max(1, round(20 * n ** 0.5))),
        "bzip2": lambda n: ["bash", "-c", f"exec bzip2 -9 -c < <(for i in $(seq {n}); do cat {folder}/text; done)"],
        "python3": lambda n: ["python3", "-I", folder + "/work.py", str(n)],
    }


def run(command, sampled):
    """Processor seconds of a run; and what engraft said, if it was `sampled` with such options."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    said = None
    if sampled:
        time.sleep(0.5)
        with tempfile.TemporaryDirectory() as folder:
            words = [ENGRAFT, "sample", "-p", str(process.pid), "-o", folder + "/rec", "--json=" + folder + "/said", *sampled]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with open(folder + "/said") as text:
                said = json.load(text)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        sys.exit(f"{command} ended with {status}")
    return usage.ru_utime + usage.ru_stime, said


def size_for(make, seconds):
    """How much of it takes so long."""
    n, took = 1, 0
    while took < seconds / 8:
        n *= 2
        took = run(make(n), None)[0]
    return max(1, round(n * seconds / took))


def main():
    words = sys.argv[1:]
    seconds = float(words[0]) if words else 60
    pairs = int(words[1]) if len(words) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        for name, make in programs(folder).items():
            if not shutil.which(name):
                print(f"{name}: left out, it is not installed")
                continue
            command = make(size_for(make, seconds))
            cases = [("auto", seconds / 2, ["-F", "auto"])]
            for duration in (seconds / 60, seconds / 6, seconds / 2):
                for hertz in (1000, 10000):
                    cases.append((f"{hertz} Hz", duration, ["-F", str(hertz), "--no-chains"]))
                    cases.append((f"{hertz} Hz, callers", duration, ["-F", str(hertz)]))
            if len(words) > 2:
                cases = [case for case in cases if case[1] == seconds / 2]
            plain, sampled = [], {n: [] for n in range(len(cases))}
            for _ in range(pairs):
                plain.append(run(command, None)[0])
                for n, (_, duration, options) in enumerate(cases):
                    sampled[n].append(run(command, ["--for", f"{int(duration * 1000)}ms", *options]))
            base = statistics.median(plain)
            print(f"{name}: {base:.1f} s [{min(plain):.1f}–{max(plain):.1f}]", flush=True)
            for n, (what, duration, _) in enumerate(cases):
                over = [100 * (took / base - 1) for took, _ in sampled[n]]
                said = sampled[n][-1][1]
                cost = said["cost_us"] * said["samples"] / base / 1e4
                print(f"  {what:18} for {duration:4.1f} s: {statistics.median(over):+5.2f} % [{min(over):+.2f}–{max(over):+.2f}]; "
                      f"{said['samples']} samples, {said['lost']} lost, {said['cost_us']:.1f} µs each: {cost:.2f} %; "
                      f"callers cut {said['chains']['cut'] if said['chains'] else '-'}", flush=True)


if __name__ == "__main__":
    main()
