#!/usr/bin/env python3
"""gate.py (SET PROGRAM PAIR CARRY.json SCORE.json)…: what `carry` predicted of pairs of builds, and the truth.

Prints a row a pair, with what is expected and the bound, then what must hold: exit 1 if something does not.
With FIT=1 it prints the prices of matching/src/carry/predict.rs as the fitted set has them: of what is expected,
those with the least absolute error; of the bound, the quantile of 95 in 100; and how the bound does for programs that
are left out of the fit, one by one."""
import itertools, json, os, statistics, sys

# The parts of each measure's prices, and their powers: the table of predict.rs.
EXPECTED = {"bp": [("lost_share", 1.5), ("distrusted_branch_share", 1.5)],
            "cc": [("distrusted_branch_share", 2.0), ("distrusted_block_share", 0.667)]}
# Of several bounds the tightest holds.
BOUNDS = {"bp": [[("lost_share", 1.5), ("distrusted_branch_share", 0.5)], [("lost_share", 1.5), ("distrusted_block_share", 0.667)]],
          "cc": [[("unsure_share", 0.667)]]}
# So much more is in the prices of bounds.
MARGIN = 1.05
QUANTILE = 0.95

class Pair:
    def __init__(self, set_, program, name, carry, score):
        self.set, self.program, self.name = set_, program, name
        carry, score = json.load(open(carry)), json.load(open(score))["scores"][0]
        self.parts, self.predicted = carry["steps"][0]["parts"], carry["predicted"]
        self.truth = {m: score[f"{m}_share"] for m in ("bp", "cc")}

def loss(pair, terms, prices):
    return min(1.0, sum(p * pair.parts[of] ** power for (of, power), p in zip(terms, prices)))

def fit(pairs, measure, terms, quantile):
    """The prices, none below zero, with the least pinball loss."""
    rows = [([p.parts[of] ** power for of, power in terms], 1 - p.truth[measure]) for p in pairs]
    def cost(prices):
        off = (y - sum(a * b for a, b in zip(x, prices)) for x, y in rows)
        return sum(quantile * d if d > 0 else (quantile - 1) * d for d in off)
    # An optimum lies where as many pairs are met exactly as there are prices, or some prices are zero.
    corners = []
    n = len(terms)
    for (x, y) in rows:
        for k in range(n):
            if x[k] > 0:
                corners.append([y / x[k] if i == k else 0.0 for i in range(n)])
    if n == 2:
        for (x, y), (u, v) in itertools.combinations(rows, 2):
            det = x[0] * u[1] - x[1] * u[0]
            if abs(det) > 1e-15:
                prices = [(y * u[1] - x[1] * v) / det, (x[0] * v - y * u[0]) / det]
                if min(prices) >= 0:
                    corners.append(prices)
    return min(corners, key=cost)

def left_out(pairs, measure):
    """Of how many pairs the truth is below a bound that was fitted on the other programs alone."""
    below = 0
    for program in {p.program for p in pairs}:
        others = [p for p in pairs if p.program != program]
        bounds = [(terms, [MARGIN * x for x in fit(others, measure, terms, QUANTILE)]) for terms in BOUNDS[measure]]
        these = (p for p in pairs if p.program == program)
        below += sum(1 - p.truth[measure] > min(loss(p, *bound) for bound in bounds) + 1e-9 for p in these)
    return below

def main():
    pairs = [Pair(*row) for row in zip(*[iter(sys.argv[1:])] * 5)]
    if os.environ.get("FIT"):
        for m in ("bp", "cc"):
            fitted = [p for p in pairs if p.set == "fitted" and p.predicted[f"{m}_share"] is not None]
            tables = [("expected", EXPECTED[m], 0.5, 1)] + [("bound", terms, QUANTILE, MARGIN) for terms in BOUNDS[m]]
            for what, terms, quantile, times in tables:
                prices = zip(terms, fit(fitted, m, terms, quantile))
                print(f"{m} {what}: " + ", ".join(f"{of} {times * price:.3f}, power {power}" for (of, power), price in prices))
            print(f"{m} bound fitted without the program at hand: truth below it in {left_out(fitted, m)} of {len(fitted)}")
    percent = lambda share: "     -" if share is None else f"{100 * share:6.2f}"
    print(f"{'':7}{'':36}{'B.P.':>8} {'bound':>6} {'true':>6} {'C.C.':>8} {'bound':>6} {'true':>6}")
    for p in pairs:
        said = [percent(v) for m in ("bp", "cc") for v in (p.predicted[f"{m}_share"], p.predicted[f"{m}_at_least"], p.truth[m])]
        print(f"{p.set:7}{p.name:36}  {said[0]} {said[1]} {said[2]}   {said[3]} {said[4]} {said[5]}")
    missed = 0
    for chosen in ("all", "fitted", "held"):
        for m, name in (("bp", "B.P."), ("cc", "C.C.")):
            some = [p for p in pairs if chosen in ("all", p.set) and p.predicted[f"{m}_share"] is not None]
            if not some:
                continue
            below = [p.name for p in some if p.truth[m] < p.predicted[f"{m}_at_least"] - 1e-9]
            off = 100 * statistics.median(abs(p.predicted[f"{m}_share"] - p.truth[m]) for p in some)
            to_bound = 100 * statistics.median(abs(p.truth[m] - p.predicted[f"{m}_at_least"]) for p in some)
            least = len(some) // 20
            bad = len(below) > least or off > 0.5 or to_bound > 3
            missed += bad
            print(f"{chosen}, {name}: {len(some)} pairs; truth below the bound in {len(below)} (at most {least}) {' '.join(below)}; "
                  f"median distance of what is expected {off:.2f} (0.5), of the bound {to_bound:.2f} (3){': MISSED' if bad else ''}")
    print(f"gate: {missed} missed")
    sys.exit(missed > 0)

main()
