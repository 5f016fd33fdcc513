#!/usr/bin/env python3
"""Whether all views and exports of one recording add up to one number of instructions.

    checks/totals.py ENGRAFT RECORDING...

Prints a row a recording: instructions by `show` (its JSON, the sum of its modules, of its functions, its CSV,
by line, file and module), by `diff` with itself, and by each export that has instructions: callgrind, pprof, folded, SVG.
Fails if they are not all the same."""
import csv, gzip, io, json, os, re, subprocess, sys, tempfile


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return n, at


def fields(data):
    """Fields of a protobuf message: number, value (bytes or a number)."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            assert key & 7 == 2, "only numbers and bytes are in profiles"
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        yield key >> 3, value


def pprof(path):
    """The sum of the second value of all samples (profile.proto: 2 is sample; in it 2 is value)."""
    total = 0
    for number, sample in fields(gzip.open(path).read()):
        if number != 2:
            continue
        for field, values in fields(sample):
            if field == 2:
                first, at = varint(values, 0)
                total += varint(values, at)[0]
    return total


def callgrind(path):
    text = open(path).read()
    own, skip = 0, False
    for line in text.splitlines():
        if line.startswith(("calls=", "jump=", "jcnd=")):
            skip = True  # the next line is the inclusive cost of the call, or where the jump is
        elif line[:2] == "0x":
            own += 0 if skip else int(line.split()[2])
            skip = False
        elif line.startswith("totals:"):
            assert int(line.split()[1]) == own, f"{path}: totals {line}, lines {own}"
    return own


def flame(path):
    """What the frame under all others says."""
    (total,) = re.findall(r"<title>all \(([0-9,]+) ", open(path).read())
    return int(total.replace(",", ""))


def folded(path):
    return sum(int(line.rsplit(" ", 1)[1]) for line in open(path))


def totals(engraft, recording, folder):
    shown = json.loads(run(engraft, "show", recording, "--json"))
    same = json.loads(run(engraft, "diff", recording, recording, "--json"))
    rows = csv.DictReader(io.StringIO(run(engraft, "show", recording, "--format", "csv")))
    found = {
        "show": shown["instructions"],
        "modules": sum(m["instructions"] for m in shown["modules"]),
        "functions": sum(f["instructions"] for f in shown["functions"]),
        "csv": sum(int(row["instructions"].replace(",", "")) for row in rows),
        "diff": same["instructions"][0],
    }
    for key in "line", "file", "module":
        rows = json.loads(run(engraft, "show", recording, "--by", key, "--json"))[key + "s"]
        found["by " + key] = sum(row["instructions"] for row in rows)
    for name, read in ("callgrind", callgrind), ("pb.gz", pprof), ("folded", folded), ("svg", flame):
        path = os.path.join(folder, "x." + name)
        run(engraft, "convert", recording, "-q", "-o", path)
        found[name] = read(path)
    return found


def main():
    engraft, failed = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as folder:
        for recording in sys.argv[2:]:
            found = totals(engraft, recording, folder)
            one = len(set(found.values())) == 1
            failed += not one
            print(recording, "one" if one else "DIFFER", *(f"{name} {n}" for name, n in found.items()))
    sys.exit(failed > 0)


main()
