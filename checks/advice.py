#!/usr/bin/env -S python3 -I
"""advice.py [PAIRS] [PROGRAM…]: what `engraft values` advises, row 8 of the issue of values. The programs of
advice.c have something planted: it must be among the first three of what is advised, and the same programs
without must have no such advice. The gain that is predicted of calls that could be remembered, or are constant,
is held against that of the changed program: the median of PAIRS (5) pairs of user CPU time, within 30 %.
ENGRAFT: the command [target/release/engraft]. Needs gcc. Exit 1 if something does not hold."""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ENGRAFT = os.path.realpath(os.environ.get("ENGRAFT", TOP + "/target/release/engraft"))
WITHIN = 0.3
# Of each program: the kind of advice, its function, what is asked for, whether a gain is predicted.
PROGRAMS = [
    ("memoise", "to_linear", ["--full", "--calls", "double to_linear(double x);"], True),
    ("memoise", "integral", ["--full", "--calls", "double integral(double p);"], True),
    ("memoise", "checksum", ["--full", "--calls", "unsigned long checksum(unsigned long x);"], True),
    ("memoise", "cube_root", ["--full", "--calls", "double cube_root(double x);"], True),
    ("specialise", "discount", ["--full", "--calls", "double discount(double rate, double years);"], True),
    ("specialise", "gauss", ["--full", "--calls", "double gauss(double x, double width);"], True),
    (
        "specialise",
        "power",
        ["--full", "--calls", "unsigned long power(unsigned long base, unsigned long n, unsigned long modulus);"],
        True,
    ),
    ("specialise", "scaled", ["--full", "--calls", "long scaled(long x, long by);"], False),
    ("unroll", "dot", ["--loop", "*"], False),
    ("unroll", "brightness", ["--loop", "*"], False),
    ("divisor", "bucket", ["--auto"], False),
    ("divisor", "next", ["--auto"], False),
]


def build(number, *defines):
    name = f"advised{number}{''.join(defines)}"
    flags = ["-O2", "-g", "-w", f"-DPROGRAM={number}", *(f"-D{one}" for one in defines)]
    source = os.path.join(TOP, "checks", "advice.c")
    subprocess.run(["gcc", *flags, source, "-o", name, "-lm"], check=True)
    return "./" + name


def ran(args):
    """What it printed, and its user CPU time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    return done.stdout, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def advice(program, options):
    """What is advised, the best first; the program's output is its own."""
    said, _ = ran([ENGRAFT, "values", "-q", "-o", "advised.engraft", *options, "--", program])
    if said != ran([program])[0]:
        sys.exit(f"{program} prints something else under engraft")
    shown, _ = ran([ENGRAFT, "show", "advised.engraft", "--json"])
    return json.loads(shown)["advice"]


def is_it(one, kind, function):
    return one["kind"] == kind and one["function"].split("+")[0] == function


def gained(number, n):
    """How many seconds shorter the changed program runs; both print the same."""
    plain, changed = build(number, "PLANTED"), build(number, "PLANTED", "CHANGED")
    both = [(ran([plain]), ran([changed])) for _ in range(n)]
    if any(one[0] != two[0] for one, two in both):
        sys.exit(f"program {number}: the changed one prints something else")
    return statistics.median(one[1] - two[1] for one, two in both), statistics.median(one[1] for one, _ in both)


def check(number, pairs):
    """Prints what is found of a program; whether it holds."""
    kind, function, options, has_gain = PROGRAMS[number - 1]
    found = advice(build(number, "PLANTED"), options)
    place = next((k for k, one in enumerate(found) if is_it(one, kind, function)), None)
    without = [one for one in advice(build(number), options) if is_it(one, kind, function)]
    holds = place is not None and place < 3 and not without
    said = "not found" if place is None else f"number {place + 1}"
    told = f"{number:2} {kind:10} {function:10} {said}, without it {len(without)}"
    if has_gain and place is not None:
        gain = found[place]["gain_s"] or 0
        truth, plain = gained(number, pairs)
        is_near = abs(gain - truth) <= WITHIN * truth
        holds &= is_near
        told += f"; predicted {gain:.3f} s, gained {truth:.3f} of {plain:.3f} s, ratio {gain / truth:.2f}"
    print(told + (": holds" if holds else ": SHORT"), flush=True)
    return holds


def main():
    numbers = [int(text) for text in sys.argv[1:]]
    pairs = numbers[0] if numbers else 5
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        results = [check(number, pairs) for number in numbers[1:] or range(1, len(PROGRAMS) + 1)]
    print(f"{sum(results)} of {len(results)} hold")
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
