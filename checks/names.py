#!/usr/bin/env python3
"""names.py OLD NEW MATCH.json: whether every function whose bare name only one function of each build has is
matched to its namesake. Names are readelf's, and what compilers put behind them is taken off here; MATCH.json is
`engraft match OLD NEW --json`. Prints what is not, and "NAMES unique names, N lost"; exit 1 if any is."""
import json, re, subprocess, sys

# GCC's and LLVM's decorations, numbered statics; Rust's hash.
TAIL = re.compile(r"(\.(isra|constprop|llvm|lto_priv|localalias|clone|__uniq|specialized|ipra)(\.\d+)*|\.\d+)+$")
HASH = re.compile(r"17h[0-9a-f]{16}E$")

def named(path):
    """By bare name, the addresses that bear it; and addresses with several names, which are aliases."""
    by_name, by_address = {}, {}
    symbols = subprocess.run(["readelf", "-sW", path], capture_output=True, text=True, check=True).stdout
    for _, value, _, kind, _, _, section, name, *_ in (f for f in map(str.split, symbols.splitlines()) if len(f) >= 8):
        if kind != "FUNC" or section == "UND" or ".part." in name or ".cold" in name or name.startswith(".L"):
            continue
        name, at = TAIL.sub("", name), int(value, 16)
        by_name.setdefault(HASH.sub("E", name), set()).add(at)
        by_address.setdefault(at, set()).add(name)
    return by_name, {at for at, names in by_address.items() if len(names) > 1}

(old, old_aliased), (new, new_aliased) = named(sys.argv[1]), named(sys.argv[2])
found = json.load(open(sys.argv[3]))
match = {f["old"]: (f["new"], f["method"]) for f in found["functions"]}
asked, lost = 0, []
for name, at in old.items():
    to = new.get(name, set())
    if len(at) != 1 or len(to) != 1 or at & old_aliased or to & new_aliased:
        continue
    (a,), (b,) = at, to
    asked += 1
    if match.get(a, (None, ""))[0] != b:
        lost.append((name, a, b, match.get(a)))
for name, a, b, got in lost:
    to = f"to {got[0]:#x} by {got[1]}" if got else "to nothing"
    print(f"{name}: {a:#x} is {b:#x}, but matched {to}")
print(f"{asked} unique names, {len(lost)} lost")
sys.exit(bool(lost))
