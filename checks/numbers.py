"""numbers.py SAID CSV: holds what `engraft values --full --json` said against Python's own statistics of the same
log's CSV, written with --bits. Every figure is equal, or it fails."""
import csv, json, math, statistics, struct, sys
from fractions import Fraction

said = json.load(open(sys.argv[1]))
rows = list(csv.DictReader(open(sys.argv[2])))
FLOATS = {"double": (8, "<d", 2.0**-1022), "float": (4, "<f", 2.0**-126)}


def number(text, type_name):
    if type_name not in FLOATS:
        return int(text)
    size, form, _ = FLOATS[type_name]
    return struct.unpack(form, int(text, 16).to_bytes(size, "little"))[0]


def check(name, type_name, cells, got):
    all_of_it = [number(cell, type_name) for cell in cells if cell]
    is_float = type_name in FLOATS
    finite = [x for x in all_of_it if not is_float or math.isfinite(x)]
    want = {
        "n": len(finite),
        "nan": sum(x != x for x in all_of_it),
        "infinite": sum(is_float and math.isinf(x) for x in all_of_it),
        "denormal": sum(is_float and 0 < abs(x) < FLOATS[type_name][2] for x in finite),
    }
    keys = ["min", "max", "mean", "deviation", "median", "q1", "q3", "d1", "d9"]
    if finite:
        exact = [Fraction(x) for x in finite]
        more = exact * 2 if len(exact) == 1 else exact
        quarters = statistics.quantiles(more, n=4, method="inclusive")
        tenths = statistics.quantiles(more, n=10, method="inclusive")
        mean = statistics.mean(exact)
        # Rounded once, as `pstdev` rounds what it computes of fractions.
        deviation = statistics.pstdev(finite)
        of = [min(finite), max(finite), mean, deviation, statistics.median(exact), quarters[0], quarters[2], tenths[0], tenths[8]]
        want.update(zip(keys, of[:2] + [float(x) for x in of[2:]]))
    else:
        want.update(dict.fromkeys(keys))
    wrong = {key: (got[key], want[key]) for key in want if got[key] != want[key]}
    assert not wrong, f"{name}: said, and so by Python: {wrong}"
    return len(want)


n = 0
for calls in said["calls"]:
    of_it = [row for row in rows if row["function"] == calls["function"]]
    for column in calls["arguments"] + [calls["result"]]:
        n += check(column["name"], column["type"], [row[column["name"]] for row in of_it], column["statistics"])
    n += check("ticks", "unsigned long", [row["ticks"] for row in of_it], calls["ticks"])
print(f"{len(rows)} rows: {n} figures equal")
