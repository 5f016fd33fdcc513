#!/usr/bin/env -S python3 -I
"""compare.py [PROGRAM…]: real programs built in several ways, and `engraft compare` of the builds (issue 32,
rows 1 to 6). Builds bzip2, lua, sqlite, tcc (C) and lzip (C++) with gcc 12 and clang 19, runs each pair
alike, and prints what share of the events of the smaller log is paired (light, heavy), what share of the
instructions of both is in intervals of at most 64 and 1,000; with lines, with names alone, and stripped
(HOWS: lines names none, of which all). Intervals must add up to all that the traces have. In target/compare;
sources by crates and Debian's archive. ENGRAFT: the command [target/release/engraft]. ROWS: which [1 2 3 4].
Exit 1 if a bound does not hold: of the mean, and ten points less of each program."""

import json
import os
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
WHERE = os.path.join(TOP, "target", "compare")
SCRIPTS = os.environ.get("CORPORA_SCRIPTS", os.path.join(TOP, "..", "shared", "corpora"))
ENGRAFT = os.environ.get("ENGRAFT", os.path.join(TOP, "target", "release", "engraft"))
CLANG = "/usr/lib/llvm-19/bin/clang"

# By row: the two builds; the least share that is paired, light and heavy.
BUILDS = {
    "O0": ("gcc-12", "-O0"),
    "O2": ("gcc-12", "-O2"),
    "O2ni": ("gcc-12", "-O2 -fno-inline"),
    "O3": ("gcc-12", "-O3"),
    "clang": (CLANG, "-O2"),
}
ROWS = {
    "1": ("O0", "O2ni", 95, 95),
    "2": ("O2", "O3", 93, 93),
    "3": ("O2", "clang", 80, 75),
    "4": ("O0", "O2", 85, 85),
}
CRATES = {"bzip2": ("bzip2-sys", "0.1.11+1.0.8"), "lua": ("lua-src", "547.0.0"), "sqlite": ("libsqlite3-sys", "0.30.1")}


def must(words, **more):
    ran = subprocess.run(words, capture_output=True, check=False, **more)
    if ran.returncode:
        sys.exit(f"{' '.join(words)}: {ran.returncode}: {ran.stderr.decode(errors='replace')[-1500:]}")
    return ran.stdout


def source(program):
    """The folder of a program's sources, fetched at need."""
    if program in CRATES:
        crate, version = CRATES[program]
        must([SCRIPTS + "/fetch.sh", crate, version], env=os.environ | {"CORPORA": WHERE})
        folder = f"{WHERE}/crates/{crate}-{version}"
        inner = {"bzip2": "bzip2-1.0.8", "sqlite": "sqlite3"}.get(program)
        return f"{folder}/{inner or next(n for n in os.listdir(folder) if n.startswith('lua-5.4'))}"
    folder = f"{WHERE}/debian/{program}"
    if not os.path.isdir(folder):
        os.makedirs(WHERE + "/debian/lists/partial", exist_ok=True)
        with open(WHERE + "/debian/list", "w", encoding="ascii") as file:
            file.write("deb-src http://deb.debian.org/debian bookworm main\n")
        apt = ["apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={WHERE}/debian/list", "-o", "Dir::Etc::sourceparts=-",
               "-o", f"Dir::State::lists={WHERE}/debian/lists"]
        must([*apt, "update"])
        with tempfile.TemporaryDirectory(dir=WHERE) as place:
            must([*apt, "source", "--download-only", program], cwd=place)
            archive = next(name for name in os.listdir(place) if ".orig.tar" in name and not name.endswith(".asc"))
            os.mkdir(place + "/in")
            must(["tar", "xf", "../" + archive], cwd=place + "/in")
            found = os.listdir(place + "/in")
            os.rename(f"{place}/in/{found[0]}" if len(found) == 1 else place + "/in", folder)
    return folder


def files(program, folder):
    """What is compiled, with which flags."""
    names = sorted(os.listdir(folder))
    if program == "bzip2":
        of = "blocksort huffman crctable randtable compress decompress bzlib bzip2"
        return [f"{folder}/{name}.c" for name in of.split()], f"-D_FILE_OFFSET_BITS=64 -I{folder}"
    if program == "lua":
        left = ("lua.c", "luac.c", "onelua.c", "ltests.c")
        found = [f"{folder}/{name}" for name in names if name.endswith(".c") and name not in left]
        flags = f"-DLUA_USE_LINUX -DLUA_USE_JUMPTABLE=0 -Dluai_makeseed(L)=42u -I{folder}"
        return [SCRIPTS + "/drv/lua_drv.c", *found], flags
    if program == "sqlite":
        flags = f"-DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -I{folder}"
        return [SCRIPTS + "/drv/sqlite_drv.c", folder + "/sqlite3.c"], flags
    if program == "tcc":
        if not os.path.exists(folder + "/config.h"):
            must(["./configure"], cwd=folder)
        return [folder + "/tcc.c"], f"-I{folder} -DONE_SOURCE=1 -DTCC_TARGET_X86_64=1"
    found = [f"{folder}/{name}" for name in names if name.endswith(".cc")]
    return found, f'-I{folder} -DPROGVERSION="1"'


def built(program, build):
    out = f"{WHERE}/bin/{program}-{build}"
    if not os.path.exists(out):
        os.makedirs(WHERE + "/bin", exist_ok=True)
        compiler, flags = BUILDS[build]
        found, more = files(program, source(program))
        if found[0].endswith(".cc"):
            compiler = compiler.replace("gcc", "g++").replace("clang", "clang++")
        words = [compiler, *flags.split(), "-g", "-w", "-fno-strict-aliasing", *more.split(), *found]
        must([*words, "-o", out + ".part", "-lm", "-ldl"])
        os.rename(out + ".part", out)
    return out


def workload(program):
    """Arguments, and standard input."""
    text = WHERE + "/text"
    if not os.path.exists(text):
        with open(text, "wb") as file, open(source("lua") + "/lvm.c", "rb") as code:
            file.write((code.read() * 10)[:300000])
    if program == "tcc":
        if not os.path.exists(WHERE + "/in.c"):
            found, flags = files("lua", source("lua"))
            with open(WHERE + "/in.c", "wb") as file:
                # What is left in it, and tcc does not know.
                file.write(b"typedef float _Float32; typedef double _Float64, _Float32x;\n"
                           b"typedef long double _Float128, _Float64x;\n")
                file.write(must(["gcc-12", "-E", "-P", "-O0", *flags.split(), next(n for n in found if "lvm.c" in n)]))
        return ["-nostdlib", "-c", WHERE + "/in.c", "-o", WHERE + "/in.o"], None
    if program == "lua":
        if not os.path.exists(WHERE + "/small.lua"):
            with open(WHERE + "/small.lua", "w", encoding="ascii") as file:
                file.write(LUA)
        return [WHERE + "/small.lua"], None
    return {"bzip2": (["-9"], text), "lzip": (["-6"], text), "sqlite": (["60"], None)}[program]


LUA = """
local t = {}
for i = 1, 3000 do t[i] = (i * 7919) % 1009 end
table.sort(t)
local words = {}
for i = 1, 2000 do words[#words + 1] = string.format("%d:%s", i, string.rep("ab", i % 7)) end
local s = table.concat(words, ",")
local n = 0
for w in s:gmatch("[^,]+") do n = n + #w:gsub("a", "xy") end
local function fib(k) if k < 2 then return k end return fib(k - 1) + fib(k - 2) end
local object = setmetatable({}, {__index = function(_, k) return k * 2 end})
for i = 1, 4000 do n = n + object[i] end
print(n, fib(20), #s)
"""


def compared(program, old, new):
    args, text = workload(program)
    with open(text or os.devnull, "rb") as file:
        ran = subprocess.run(["/usr/bin/time", "-f", "%U %M", ENGRAFT, "compare", "--json", old, new, "--", *args],
                             stdin=file, capture_output=True, check=False)
    cost = ran.stderr.decode().strip().splitlines()[-1].split()
    if ran.returncode:
        print(f"{program}: exit status {ran.returncode}: {ran.stderr.decode()[-600:]}")
    return json.loads(ran.stdout), float(cost[0]), int(cost[1]) >> 10


def percent(part, whole):
    return 100 * part / whole if whole else 100.0


def stripped(path, how):
    to = f"{path}-{how}"
    if not os.path.exists(to):
        must(["strip", *({"names": ["-g"], "none": []}[how]), "-o", to, path])
    return to


def main():
    programs = sys.argv[1:] or ["bzip2", "lua", "sqlite", "tcc", "lzip"]
    hows = os.environ.get("HOWS", "lines names none").split()
    ok = True
    for row in os.environ.get("ROWS", "1 2 3 4").split():
        old, new, light, heavy = ROWS[row]
        for how in hows if row != "4" else hows[:1]:
            sums, worst = [0.0, 0.0], [100.0, 100.0]
            for program in programs:
                both = [built(program, build) for build in (old, new)]
                if how != "lines":
                    both = [stripped(path, how) for path in both]
                said, seconds, memory = compared(program, *both)
                matched = said["matched"]
                got = [percent(matched[log]["matched"], matched[log]["smaller"]) for log in ("light", "heavy")]
                sums = [sum_ + n for sum_, n in zip(sums, got)]
                worst = [min(least, n) for least, n in zip(worst, got)]
                short, medium = ([100 * matched[name][side] for side in ("old", "new")] for name in ("at_most_64", "at_most_1000"))
                totals = [said["totals"][side]["dyn.agg.total"] for side in ("old", "new")]
                missing = [total - matched["instructions"][side] for total, side in zip(totals, ("old", "new"))]
                print(f"{row} {old}~{new} {how:5} {program:7} light {got[0]:5.1f} heavy {got[1]:5.1f} as a whole "
                      f"{percent(matched['heavy_as_a_whole'], matched['heavy']['smaller']):4.1f}; of {totals[0] / 1e6:.0f}, {totals[1] / 1e6:.0f} M "
                      f"<=64 {short[0]:.0f} {short[1]:.0f} <=1000 {medium[0]:.0f} {medium[1]:.0f}; in no interval {missing}; "
                      f"{seconds:.1f} s, {memory} MB", flush=True)
                ok = ok and max(abs(n) for n in missing) <= 2
            means = [n / len(programs) for n in sums]
            least = (light, heavy) if how == "lines" else ({"1": 90, "2": 60, "3": 45}[row] if how == "names" else 0, 0)
            holds = all(mean >= n and low >= n - 10 for mean, low, n in zip(means, worst, least))
            ok = ok and holds
            print(f"{row} {old}~{new} {how:5} mean    light {means[0]:5.1f} heavy {means[1]:5.1f}, must {least}: "
                  f"{'holds' if holds else 'SHORT'}", flush=True)
    return ok


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
