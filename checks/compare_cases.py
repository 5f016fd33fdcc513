#!/usr/bin/env -S python3 -I
"""compare_cases.py: row 13 of issue 32: eight case studies. One function of a program of 120 others is compiled
in two ways, and must be among the first five that `engraft compare` tells, with the kinds of instructions that
it differs in. In target/compare/cases; programs that are built already are not built again. ENGRAFT: the
command [target/release/engraft]. Exit 1 if the row does not hold."""

import importlib.util
import json
import os
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
SPEC = importlib.util.spec_from_file_location("compare", HERE + "/compare.py")
compare = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(compare)
must = compare.must
WHERE = compare.WHERE + "/cases"
GCC = "gcc-12"
SEED = int(os.environ.get("SEED", "32"))
TOTAL = "dyn.agg.total"


def ran(old, new, args, options=()):
    """What the comparison says, its exit status, and how many seconds it took. Both must do the same."""
    began = time.monotonic()
    words = [compare.ENGRAFT, "compare", "--json", *options, old, new, "--", *args]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(words)}: {done.returncode}: {done.stderr.decode(errors='replace')[-1500:]}")
    said = json.loads(done.stdout)
    status, differs = said["runs"]["status"], said["runs"]["stdout"]["differs_at"]
    if status != {"old": 0, "new": 0} or differs is not None:
        sys.exit(f"{old} and {new} do not do the same: status {status}, output differs at {differs}")
    return said, done.returncode, time.monotonic() - began


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def read(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def is_newer(path, than):
    return os.path.exists(path) and os.path.getmtime(path) >= os.path.getmtime(than)


def ranked(said):
    """The functions of the outliers, each once, in their order."""
    return list(dict.fromkeys(row["function"] for row in said["outliers"]))


def verdict(row, holds, what):
    print(f"row {row}: {what}: {'holds' if holds else 'SHORT'}", flush=True)
    return holds


# ---- Row 13: case studies

# What the host does: each of these six times, with other numbers. They share a signature; `b` has `n` bytes.
TEMPLATES = {
    "words": """
        unsigned hash = @A@, count = 0, in_word = 0;
        for (unsigned i = 0; i < n; i++) {
            int is_letter = isalpha(b[i]) || b[i] == '_';
            if (is_letter) { hash = (hash ^ b[i]) * 16777619u; in_word = 1; }
            else if (in_word) { count += hash % @B@ == 0; hash = @A@; in_word = 0; }
        }
        return count + hash;""",
    "crc": """
        unsigned table[16], crc = ~seed;
        for (unsigned i = 0; i < 16; i++) {
            unsigned c = i;
            for (int k = 0; k < 4; k++) c = c & 1 ? (c >> 1) ^ (0xedb88320u ^ @A@u) : c >> 1;
            table[i] = c;
        }
        for (unsigned i = 0; i < n; i += @C@) {
            crc = table[(crc ^ b[i]) & 15] ^ (crc >> 4);
            crc = table[(crc ^ (b[i] >> 4)) & 15] ^ (crc >> 4);
        }
        return ~crc;""",
    "shellsort": """
        int items[64];
        for (int i = 0; i < 64; i++) items[i] = (int)(b[(i * @B@u) % n] * 31 + i % @C@);
        for (int gap = 23; gap > 0; gap /= 3)
            for (int i = gap; i < 64; i++) {
                int item = items[i], j = i;
                for (; j >= gap && items[j - gap] > item; j -= gap) items[j] = items[j - gap];
                items[j] = item;
            }
        return (unsigned)items[seed % 64] + (unsigned)items[31];""",
    "table": """
        unsigned keys[128] = {0}, values[128] = {0}, found = 0;
        for (unsigned i = 0; i + 3 < n; i += 4) {
            unsigned key = (b[i] | b[i + 1] << 8) % @B@ + 1, at = (key * 2654435761u) >> 25;
            for (unsigned tries = 0; tries < 8; tries++, at = (at + 1) % 128) {
                if (keys[at] == key) { values[at] += b[i + 2]; found++; break; }
                if (!keys[at]) { keys[at] = key; values[at] = @A@; break; }
            }
        }
        for (unsigned i = 0; i < 128; i++) found = found * 3 + values[i];
        return found;""",
    "base64": """
        static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        char out[512];
        unsigned len = 0, sum = @A@;
        for (unsigned i = 0; i + 2 < n && len < 508; i += @C@ + 2) {
            unsigned three = b[i] << 16 | b[i + 1] << 8 | b[i + 2];
            for (int shift = 18; shift >= 0; shift -= 6) out[len++] = digits[three >> shift & 63];
        }
        for (unsigned i = 0; i < len; i++) sum = sum * 33 + (unsigned char)out[i];
        return sum;""",
    "matrix": """
        int a[6][6], c[6][6], product[6][6];
        for (int i = 0; i < 36; i++) { a[i / 6][i % 6] = b[i % n] % @B@; c[i % 6][i / 6] = b[(i * 7) % n] - @C@; }
        for (int times = 0; times < 3; times++) {
            for (int i = 0; i < 6; i++)
                for (int j = 0; j < 6; j++) {
                    int sum = 0;
                    for (int k = 0; k < 6; k++) sum += a[i][k] * c[k][j];
                    product[i][j] = sum & 0xffff;
                }
            memcpy(a, product, sizeof a);
        }
        return (unsigned)(a[seed % 6][1] + a[2][seed % 5]);""",
    "numbers": """
        unsigned long sum = 0;
        char text[24];
        for (unsigned i = 0; i < 24; i++) {
            unsigned value = b[(i * 5) % n] * @A@u + seed, len = 0;
            do text[len++] = (char)('0' + value % 10); while ((value /= 10) && len < 23);
            unsigned back = 0;
            while (len) back = back * 10 + (unsigned)(text[--len] - '0');
            sum += back % @B@;
        }
        return (unsigned)sum;""",
    "distance": """
        unsigned char row[33];
        unsigned from = seed % 64, to = @B@ % 64;
        for (unsigned j = 0; j <= 32; j++) row[j] = (unsigned char)j;
        for (unsigned i = 1; i <= 24; i++) {
            unsigned before = row[0];
            row[0] = (unsigned char)i;
            for (unsigned j = 1; j <= 32; j++) {
                unsigned cost = before + (b[(from + i) % n] != b[(to + j) % n]) * @C@, above = row[j];
                if (above + 1 < cost) cost = above + 1;
                if (row[j - 1] + 1u < cost) cost = row[j - 1] + 1u;
                before = above;
                row[j] = (unsigned char)cost;
            }
        }
        return row[32];""",
    "runs": """
        unsigned char out[512];
        unsigned len = 0;
        for (unsigned i = 0; i < n && len < 510;) {
            unsigned run = 1;
            while (i + run < n && run < 255 && b[i + run] / @C@ == b[i] / @C@) run++;
            out[len++] = (unsigned char)run;
            out[len++] = b[i];
            i += run;
        }
        unsigned sum = @A@;
        for (unsigned i = 0; i < len; i += 2) sum += out[i] * out[i + 1];
        return sum + len;""",
    "search": """
        int sorted[64], hits = 0;
        for (int i = 0; i < 64; i++) sorted[i] = i * @C@ + @B@ % 7;
        for (unsigned i = 0; i < n; i += 3) {
            int key = b[i], low = 0, high = 63;
            while (low <= high) {
                int middle = (low + high) / 2;
                if (sorted[middle] == key) { hits++; break; }
                if (sorted[middle] < key) low = middle + 1; else high = middle - 1;
            }
        }
        return (unsigned)hits * @A@u + seed;""",
    "heap": """
        unsigned heap[65], len = 0, sum = 0;
        for (unsigned i = 0; i < 64; i++) {
            unsigned at = ++len, key = (b[(i * @C@) % n] * @A@u) >> 3;
            for (; at > 1 && heap[at / 2] > key; at /= 2) heap[at] = heap[at / 2];
            heap[at] = key;
        }
        while (len) {
            unsigned top = heap[1], last = heap[len--], at = 1, child;
            sum = sum * 5 + top;
            while ((child = at * 2) <= len) {
                child += child < len && heap[child + 1] < heap[child];
                if (heap[child] >= last) break;
                heap[at] = heap[child];
                at = child;
            }
            heap[at] = last;
        }
        return sum ^ seed;""",
    "utf8": """
        unsigned sum = 0, wrong = 0;
        for (unsigned i = 0; i < n; i++) {
            unsigned c = b[i] ^ @B@ % 4, more = c < 0x80 ? 0 : c < 0xc0 ? 9 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
            if (more > 3) { wrong++; continue; }
            unsigned point = more ? c & (0x3f >> more) : c;
            while (more-- && i + 1 < n && (b[i + 1] & 0xc0) == 0x80) point = point << 6 | (b[++i] & 0x3f);
            sum += point * @C@;
        }
        return sum + wrong * @A@u;""",
    "bits": """
        unsigned long state = seed * @A@ul + 1, sum = 0;
        for (unsigned i = 0; i < 96; i++) {
            state ^= state << 13; state ^= state >> 7; state ^= state << 17;
            unsigned long gray = state ^ state >> 1, bits = 0;
            for (unsigned long left = gray & 0xffff; left; left &= left - 1) bits++;
            sum += bits * b[i % n] + (gray % @B@ == 0);
        }
        return (unsigned)sum;""",
    "calendar": """
        unsigned sum = 0;
        for (int year = 1900 + (int)(seed % 50); year < 1960 + @C@; year++) {
            static const int starts[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
            for (int month = 1; month <= 12; month += 2) {
                int y = month < 3 ? year - 1 : year;
                int day = (y + y / 4 - y / 100 + y / 400 + starts[month - 1] + 13) % 7;
                sum += day == 5 ? @A@ % 11 : 1;
            }
        }
        return sum + b[0];""",
    "union_find": """
        unsigned char parent[128];
        unsigned sets = 128;
        for (unsigned i = 0; i < 128; i++) parent[i] = (unsigned char)i;
        for (unsigned i = 0; i + @C@ < n; i += 2) {
            unsigned x = b[i] % 128, y = (b[i + @C@] + @B@) % 128;
            while (parent[x] != x) x = parent[x] = parent[parent[x]];
            while (parent[y] != y) y = parent[y] = parent[parent[y]];
            if (x != y) { parent[x] = (unsigned char)y; sets--; }
        }
        return sets + seed % 3;""",
    "sieve": """
        unsigned char is_composite[512] = {0};
        unsigned count = 0, last = 0;
        for (unsigned i = 2; i < 256 + @C@ * 16; i++) {
            if (is_composite[i]) continue;
            count++;
            last = i;
            for (unsigned j = i * i; j < 512; j += i) is_composite[j] = 1;
        }
        return count * @A@u + last + b[seed % n];""",
    "roots": """
        double sum = 0;
        for (unsigned i = 1; i <= 24; i++) {
            double x = b[(i * @C@) % n] + @B@ * 0.25, guess = x / 2;
            for (int k = 0; k < 6; k++) guess = (guess + x / guess) / 2;
            sum += guess * i - ((0.5 * guess + 1.25) * guess - @C@);
        }
        return (unsigned)(long)(sum < 0 ? -sum : sum) + seed;""",
    "strings": """
        char line[96];
        unsigned total = 0;
        for (unsigned i = 0; i < 8; i++) {
            unsigned len = b[(i * @C@) % n] % 60 + 20;
            for (unsigned k = 0; k < len; k++) line[k] = (char)('a' + (k * @B@ + i) % 26);
            line[len] = 0;
            char *at = strchr(line, 'a' + (int)(seed % 26));
            total += (unsigned)strlen(line) + (at ? (unsigned)(at - line) : @A@);
            if (memchr(line, 'q', len)) memmove(line + 1, line, len - 1);
        }
        return total + (unsigned char)line[3];""",
    "lexer": """
        unsigned counts[6] = {0}, state = 0;
        for (unsigned i = 0; i < n; i++) {
            switch (b[i] % (6 + @C@)) {
            case 0: state = state == 3 ? 0 : 3; counts[0]++; break;
            case 1: case 2: if (state != 3) state = 1; counts[1] += state; break;
            case 3: if (state == 1) { counts[2]++; state = 2; } break;
            case 4: counts[3] += @A@; state ^= 2; break;
            case 5: counts[4]++; break;
            default: if (state != 3) state = 0; counts[5]++;
            }
        }
        return counts[0] + counts[1] * 3 + counts[2] * 7 + counts[3] + counts[4] * 11 + counts[5] + seed;""",
    "histogram": """
        unsigned short counts[64] = {0};
        unsigned entropy = 0;
        for (unsigned i = 0; i < n; i++) counts[(b[i] + @B@) % 64]++;
        for (unsigned i = 0; i < 64; i++) {
            unsigned c = counts[i], log = 0;
            while (c >> log > 1) log++;
            entropy += counts[i] * log * @C@;
        }
        return entropy + @A@ + seed;""",
}
N_VARIANTS = 6
SHARED = """
struct data { unsigned char bytes[512]; long longs[512]; int ints[512]; float floats[512]; double doubles[512]; };
long planted(const struct data *d, unsigned round);
extern const unsigned planted_times;
"""


def host():
    """The program around the case: its C code."""
    numbers = random.Random(SEED)
    functions, stages = [], []
    for variant in range(N_VARIANTS):
        for name, body in TEMPLATES.items():
            for letter, least, most in (("A", 3, 997), ("B", 5, 61), ("C", 2, 5)):
                body = body.replace(f"@{letter}@", str(numbers.randint(least, most)))
            functions.append((f"{name}_{variant}", body))
    code = ["#include <ctype.h>\n#include <stdio.h>\n#include <string.h>", SHARED]
    for name, body in functions:
        code.append(f"unsigned {name}(unsigned seed, const unsigned char *b, unsigned n) {{{body}\n}}")
    numbers.shuffle(functions)
    for start in range(0, len(functions), 12):
        calls = [f"    sum = sum * 31 + {name}(round + {k}, d->bytes + {k}, 256 + 16 * {k});"
                 for k, (name, _) in enumerate(functions[start:start + 12])]
        stages.append(f"stage_{start // 12}")
        code.append(f"unsigned {stages[-1]}(const struct data *d, unsigned round, unsigned sum) {{\n"
                    + "\n".join(calls) + "\n    return sum;\n}")
    half = len(stages) // 2
    before, after = (["        sum = " + name + "(&d, round, sum);" for name in of] for of in (stages[:half], stages[half:]))
    code.append("""
static struct data d;
int main(void) {
    unsigned state = 1, sum = 0;
    for (unsigned i = 0; i < 512; i++) {
        state = state * 1103515245 + 12345;
        d.bytes[i] = i % 5 ? "etaoin shrdlu_,.(){}=0123456789"[state >> 16 & 31] : (unsigned char)(state >> 20);
        d.longs[i] = (long)(state >> 8) % 1000 - 500;
        d.ints[i] = (int)(state >> 12) % 300 - 100;
        d.floats[i] = (float)(state >> 16 & 255);
        d.doubles[i] = (double)(state >> 18 & 127);
    }
    for (unsigned round = 0; round < 30; round++) {""" + "\n".join(["", *before]) + """
        for (unsigned i = 0; i < planted_times; i++) sum = sum * 7 + (unsigned)planted(&d, round + i);
""" + "\n".join(after) + """
    }
    printf("%u\\n", sum);
    return 0;
}""")
    return "\n".join(code) + "\n"


# The function, how often it is called in a round, the flags of its file in both builds, what must be said to
# make the difference (all of these; one of those with | between them), its code.
CASES = {
    "tail recursion in O(1)": ("tailcall", 40, "-O2", "-O2 -fno-optimize-sibling-calls", ["dyn.cat.CALL|dyn.cat.RET"], """
static int gx;
__attribute__((noinline)) void tailcall(int c) {
    if (c > 0) {
        gx += 100;
        tailcall(c - 1);
    }
}
long planted(const struct data *d, unsigned round) { tailcall(d->bytes[round] % 128); return gx; }"""),
    # With the assertion there are two ways, without it a jump table.
    "assert(x == 1 || x == 2)": ("tally", 12, "-O2", "-O2 -DNDEBUG", ["dyn.cat.COND_BR", "dyn.cat.UNCOND_BR"], """
#include <assert.h>
__attribute__((noinline)) long tally(const unsigned char *kinds, const long *amounts, int n) {
    long sum = 0;
    for (int i = 0; i < n; i++) {
        int x = kinds[i] % 2 + 1;
        __asm__("" : "+r"(x));
        assert(x == 1 || x == 2);
        switch (x) {
        case 0: sum ^= amounts[i]; break;
        case 1: sum += amounts[i] ^ sum >> 9; break;
        case 2: sum -= amounts[i]; break;
        case 3: sum += amounts[i] * sum; break;
        case 4: sum = (sum << 3) + amounts[i]; break;
        case 5: sum |= amounts[i]; break;
        default: sum = ~sum;
        }
    }
    return sum;
}
long planted(const struct data *d, unsigned round) { return tally(d->bytes + round % 64, d->longs, 128); }"""),
    "cmov ~ branches": ("clamp", 12, "-O2", "-O2 -fno-if-conversion -fno-if-conversion2 -fno-tree-phiprop -fno-ssa-phiopt",
                        ["dyn.cat.CMOV", "dyn.cat.COND_BR"], """
__attribute__((noinline)) long clamp(const int *from, int low, int high, int n) {
    long sum = 0;
    for (int i = 0; i < n; i++) {
        int j = from[i];
        if (j < low) j = low;
        if (j > high) j = high;
        sum = sum * 3 + j;
    }
    return sum;
}
long planted(const struct data *d, unsigned round) { return clamp(d->ints, -40 + (int)round % 16, 90, 128); }"""),
    "inlined ~ unrolled with calls": ("content_length", 12, "-O2", "-O2 -fno-inline -funroll-loops",
                                      ["dyn.cat.CALL|dyn.cat.RET"], """
static long total, lines;
static void accumulate(unsigned c) {
    if (c < 0x80) total += 1;
    else if (c < 0xc0) total += 2;
    else total += 3;
    lines += c == '.';
}
__attribute__((noinline)) void content_length(const unsigned char *text, int n) {
    for (int i = 0; i < n; i++) accumulate(text[i]);
}
long planted(const struct data *d, unsigned round) {
    content_length(d->bytes + round % 64, 128);
    return total + lines;
}"""),
    "vectorised ~ not": ("blend", 12, "-O3", "-O3 -fno-tree-vectorize", ["dyn.cat.SSE"], """
static int mixed[512];
__attribute__((noinline)) void blend(int *to, const int *a, const int *b, int n) {
    for (int i = 0; i < n; i++) to[i] = (a[i] + b[i]) ^ (a[i] >> 2);
}
long planted(const struct data *d, unsigned round) {
    blend(mixed, d->ints, d->ints + round % 128, 256);
    return mixed[round % 256];
}"""),
    "x86-64-v1 ~ v3": ("filter", 20, "-O3 -march=x86-64", "-O3 -march=x86-64-v3 -ffp-contract=off",
                       ["dyn.cat.SSE", "dyn.cat.AVX"], """
static float out[512];
__attribute__((noinline)) void filter(float *to, const float *from, float a, float b, int n) {
    for (int i = 0; i < n; i++) to[i] = from[i] * a + from[i + 1] * b;
}
long planted(const struct data *d, unsigned round) {
    filter(out, d->floats + round % 64, 0.5f, 0.25f, 384);
    return (long)out[round % 256];
}"""),
    "x87 ~ SSE": ("rotate", 12, "-O2 -mfpmath=387", "-O2", ["dyn.cat.X87_ALU", "dyn.cat.SSE"], """
__attribute__((noinline)) double rotate(const double *x, const double *y, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double re = x[i] * 0.75 - y[i] * 0.5, im = x[i] * 0.5 + y[i] * 0.75;
        sum += re > im ? re * re - im : im * im - re;
    }
    return sum;
}
long planted(const struct data *d, unsigned round) {
    return (long)rotate(d->doubles + round % 64, d->doubles + 128, 128);
}"""),
}
# As case 7, but that both builds have as many instructions, of other kinds. Reported, beside the eight.
AS_MANY = ("horner", 12, "-O2 -mfpmath=387", "-O2", ["dyn.cat.X87_ALU", "dyn.cat.SSE"], """
__attribute__((noinline)) double horner(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (x[i] * 0.5 + 2) * x[i] + 4;
    return sum;
}
long planted(const struct data *d, unsigned round) { return (long)horner(d->doubles + round % 64, 128); }""")
# The array on the stack begins at a multiple of 64, and 4 bytes behind one.
MISALIGNED = ("smooth", 9, "-O2 -DOFFSET=0", "-O2 -DOFFSET=4", ["dyn.pmu.MISALIGN_MEM_REF"], """
__attribute__((noinline)) double smooth(const double *from, int n) {
    char raw[64 + 8 * 256] __attribute__((aligned(64)));
    double *a = (double *)(raw + OFFSET), sum = 0;
    for (int i = 0; i < n; i++) a[i] = from[i] * 0.5;
    for (int i = 1; i + 1 < n; i++) sum += a[i - 1] + a[i] * 2 + a[i + 1];
    return sum;
}
long planted(const struct data *d, unsigned round) { return (long)smooth(d->doubles + round, 128); }""")


def case_builds(n, case):
    """Both builds of a case: the file of the planted function has other flags, all others have the same."""
    function, times, old, new, _, code = case
    folder = f"{WHERE}/13"
    source, made = write(folder + "/host.c.new", host()), folder + "/host.c"
    if not os.path.exists(made) or read(made) != read(source):
        os.rename(source, made)
    if not is_newer(folder + "/host.o", made):
        must([GCC, "-O2", "-g", "-w", "-c", made, "-o", folder + "/host.o"])
    source = write(f"{folder}/{function}.c", f"{SHARED}const unsigned planted_times = {times};{code}\n")
    builds = []
    for which, flags in (("old", old), ("new", new)):
        builds.append(f"{folder}/{n}-{function}-{which}")
        must([GCC, *flags.split(), "-g", "-w", source, folder + "/host.o", "-o", builds[-1], "-lm"])
    return builds


def case_study(n, name, case):
    """Whether the planted function is among the first five, for the right reasons."""
    function, _, _, _, expected, _ = case
    old, new = case_builds(n, case)
    said, _, seconds = ran(old, new, [])
    order = ranked(said)
    rank = order.index(function) + 1 if function in order else 0
    by_function = [row["name"] for row in said["functions"][:5] if row["new"][TOTAL] != row["old"][TOTAL]]
    reasons = {}
    for row in said["outliers"]:
        for of in row["because"] if row["function"] == function else ():
            reasons.setdefault(of["metric"], (of["old"], of["new"]))
    named = [metric for metric in expected if any(one in reasons for one in metric.split("|"))]
    row = next((row for row in said["functions"] if row["name"] == function), None)
    both = [row[side][TOTAL] if row else 0 for side in ("old", "new")]
    shares = [100 * n / said["totals"][side][TOTAL] for n, side in zip(both, ("old", "new"))]
    n_functions = len(said["functions"])
    is_found = 1 <= rank <= 5 or function in by_function
    holds = is_found and named == expected and n_functions >= 100
    others = [(row["function"], row["new"] - row["old"]) for row in said["outliers"] if row["function"] != function][:2]
    print(f"13 {n} {name}: {function} {both[0]:.0f} ~ {both[1]:.0f} ({shares[0]:.1f}, {shares[1]:.1f} % of the run, "
          f"{n_functions} functions), outlier {rank or 'none'} of {len(order)}, because "
          f"{', '.join(f'{metric} {was:.0f} ~ {now:.0f}' for metric, (was, now) in reasons.items()) or 'of nothing'}; "
          f"must name {', '.join(expected)}; others {others}; {seconds:.1f} s: {'holds' if holds else 'SHORT'}", flush=True)
    return holds


def misaligned(n):
    """The misaligned array: both programs are recorded by `values --auto`, too. Of the recordings, `functions`
    must have as many accesses of this function as `show` says, and the first five of `outliers` a row of it
    with that metric in `because`."""
    function, _, _, _, expected, _ = MISALIGNED
    counts = []
    builds = case_builds(n, MISALIGNED)
    for program in builds:
        must([compare.ENGRAFT, "values", "-q", f"--auto={function}", "-o", program + ".engraft", program])
        shown = json.loads(must([compare.ENGRAFT, "show", program + ".engraft", "--json"]))
        of = [one for one in shown["instructions"] if one["place"].split("+")[0] == function]
        counts.append((sum(one.get("misaligned") or 0 for one in of), sum(one["executions"] for one in of)))
    if counts[0][0] or not counts[1][0]:
        sys.exit(f"{builds}: the array is not misaligned in the new build alone: {counts}")
    options = ["--old-values", builds[0] + ".engraft", "--new-values", builds[1] + ".engraft", "--metric", expected[0]]
    said, _, _ = ran(*builds, [], options)
    rows = [row for row in said["functions"] if row["name"] == function]
    found = [[row[side].get(expected[0]) for side in ("old", "new")] for row in rows]
    because = {of["metric"] for row in said["outliers"][:5] if row["function"] == function for of in row["because"]}
    holds = found == [[counts[0][0], counts[1][0]]] and set(expected) <= because
    print(f"13 {n} misaligned stack array: {function}, by `values --auto` {counts[0][0]} of {counts[0][1]} accesses "
          f"misaligned ~ {counts[1][0]} of {counts[1][1]}; compared {found}, because {', '.join(sorted(because))}: "
          f"{'holds' if holds else 'SHORT'}", flush=True)
    return holds


def row_13():
    held = [case_study(n, name, case) for n, (name, case) in enumerate(CASES.items(), 1)]
    held.append(misaligned(len(held) + 1))
    case_study(len(held) + 1, "(not counted) x87 ~ SSE, as many instructions", AS_MANY)
    return verdict(13, all(held), f"{sum(held)} of {len(held)} cases")


def main():
    os.makedirs(WHERE, exist_ok=True)
    return row_13()


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
