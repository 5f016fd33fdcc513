//! Hostile files: thousands of damaged programs are loaded, analysed and verified, and nothing breaks.
//!
//! Deterministic: mutation `n` of a base program is always the same. `checks/fuzz.sh` runs a million.
//!
//! - `ENGRAFT_MUTATIONS`: how many (else 3,000).
//! - `ENGRAFT_MUTATIONS_FROM`: number of the first one, to repeat one that failed.
//! - `ENGRAFT_MUTATIONS_INTO`: a folder; the files are written there and not analysed.

use program::{Image, Program};
use rayon::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Has what parsers look at: imports, a switch, relocated pointers, a landing pad, a constructor, data.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static void clean(int *p) { printf("%d\n", *p); }
const char *const words[] = {"zero", "one", "two", "three"};
int sums[8];
__attribute__((constructor)) static void first(void) { sums[0] = 1; }
__attribute__((noinline)) int pick(int n, int x) {
    switch (n) {
    case 0: return x + 1; case 1: return x * 3; case 2: return puts("two"); case 3: return x - 9;
    case 4: return x ^ 77; case 5: return sums[x & 7]; case 6: return x / 7; default: abort();
    }
}
__attribute__((noinline)) int guarded(int n) { int held __attribute__((cleanup(clean))) = n; return pick(n, 2) + held; }
int main(int c, char **v) { for (int i = 0; i < c; i++) sums[i & 7] += guarded(i); puts(words[c & 3]); return sums[1]; }
"#;

/// Without libraries, a few hundred bytes of code: most of the file is headers and tables.
const SMALL: &str = r#"
static int (*volatile table[3])(int);
static int twice(int x) { return 2 * x; }
static int thrice(int x) { return 3 * x; }
void _start(void) { table[0] = twice; table[1] = thrice; for (int i = 0; i < 9; i++) table[2] = table[i & 1]; __builtin_trap(); }
"#;

const BASES: [(&str, &str); 5] = [
    (SOURCE, "-O2 -fexceptions -fno-stack-protector"),
    (SOURCE, "-O1 -fexceptions -no-pie -s -Wl,-z,noseparate-code"),
    (
        SOURCE,
        "-O2 -fcf-protection=full -Wl,-z,ibtplt -Wl,-z,lazy -Wl,-z,pack-relative-relocs -Wl,-z,noseparate-code",
    ),
    (SMALL, "-O1 -nostdlib -static-pie -Wl,-z,noseparate-code"),
    (SMALL, "-O2 -nostdlib -static -Wl,-N -Wl,--build-id"),
];

struct Random(u64);

impl Random {
    /// Marsaglia, "Xorshift RNGs", 2003: the 64-bit generator with shifts 13, 7, 17.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).expect("it is below a usize")
    }
}

fn compile(source: &str, flags: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a folder for the test's files");
    let (c, out) = (dir.path().join("a.c"), dir.path().join("a"));
    std::fs::write(&c, source).expect("the folder can be written");
    let run = Command::new("gcc").args(flags.split(' ')).arg(&c).arg("-o").arg(&out).output();
    let run = run.expect("gcc is installed");
    assert!(run.status.success(), "{flags}: {}", String::from_utf8_lossy(&run.stderr));
    std::fs::read(out).expect("gcc wrote it")
}

/// Offsets of the file's tables: where damage says something about parsers rather than about code.
fn tables(base: &[u8]) -> Vec<(usize, usize)> {
    let word = |at: usize| base.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let at = |at: usize| usize::try_from(word(at)).expect("gcc's files are small");
    let n_sections = usize::from(base[60]);
    let headers = at(40);
    let mut found = vec![(0, 64), (64, 56 * usize::from(base[56])), (headers, 64 * n_sections)];
    for section in (0..n_sections).map(|i| headers + 64 * i) {
        // All but code: SHF_EXECINSTR is 4; SHT_NOBITS is 8.
        if word(section + 8) & 4 == 0 && base[section + 4] != 8 {
            found.push((at(section + 24), at(section + 32)));
        }
    }
    found.retain(|&(from, len)| len > 0 && from + len <= base.len());
    found
}

/// Mutation `n` of `base`: one to eight damages.
fn mutate(base: &[u8], tables: &[(usize, usize)], n: u64) -> Vec<u8> {
    const EXTREMES: [u64; 12] = [
        0,
        1,
        7,
        0x7f,
        0xff,
        0xffff,
        0x7fff_ffff,
        0xffff_ffff,
        0x7fff_ffff_ffff_ffff,
        u64::MAX,
        u64::MAX - 7,
        1 << 40,
    ];
    let mut random = Random((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = base.to_vec();
    for _ in 0..=random.below(8) {
        let (from, len) = match random.below(4) {
            0 => (0, base.len()),
            _ => tables[random.below(tables.len())],
        };
        let at = from + random.below(len);
        let aligned = from + random.below(len / 8 + 1) * 8;
        let width = 1 << random.below(4);
        let mut put = |at: usize, value: u64, width: usize| {
            for (i, byte) in value.to_le_bytes().iter().take(width).enumerate() {
                if let Some(b) = bytes.get_mut(at + i) {
                    *b = *byte;
                }
            }
        };
        match random.below(9) {
            0 => put(at, random.next(), 1),
            1 => put(at, EXTREMES[random.below(EXTREMES.len())], width),
            2 => put(aligned, EXTREMES[random.below(EXTREMES.len())], width),
            3 => put(aligned, random.next() % (2 * base.len() as u64), 8),
            4 => put(
                aligned,
                base.get(at).map_or(0, |&b| u64::from(b)).wrapping_sub(random.next() % 64),
                width,
            ),
            5 => {
                let from = random.below(base.len());
                let len = random.below(64).min(base.len() - from).min(base.len().saturating_sub(at));
                if at + len <= bytes.len() {
                    bytes[at..at + len].copy_from_slice(&base[from..from + len]);
                }
            }
            6 => {
                let end = (at + random.below(64)).min(bytes.len());
                bytes.get_mut(at..end).unwrap_or_default().fill(0);
            }
            // Section headers away, so that the other way of finding everything is taken.
            7 => {
                put(40, 0, 8);
                put(60, 0, 4);
            }
            _ if random.below(16) == 0 => bytes.truncate(random.below(base.len())),
            _ => {}
        }
    }
    bytes
}

/// What went wrong with these bytes, if anything did; `true` if they could be loaded.
fn check(bytes: Vec<u8>) -> Result<bool, String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| match Image::parse(bytes, "x") {
        Ok(image) => {
            let violations = Program::analyze(image).verify();
            violations.first().map_or(Ok(true), |v| Err(format!("{v:?}")))
        }
        Err(error) if error.to_string().lines().count() == 1 => Ok(false),
        Err(error) => Err(format!("more than one line: {error}")),
    }));
    outcome.unwrap_or_else(|_| Err("panic".to_owned()))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn damaged_programs_are_loaded_or_refused() {
    let bases: Vec<_> = BASES.iter().map(|(source, flags)| compile(source, flags)).collect();
    let tables: Vec<_> = bases.iter().map(|b| tables(b)).collect();
    let from = number("ENGRAFT_MUTATIONS_FROM", 0);
    let to = from + number("ENGRAFT_MUTATIONS", 3000);
    let make = |n: u64| {
        let which = usize::try_from(n % bases.len() as u64).expect("it is below their number");
        mutate(&bases[which], &tables[which], n)
    };
    if let Some(folder) = std::env::var_os("ENGRAFT_MUTATIONS_INTO") {
        for n in from..to {
            std::fs::write(Path::new(&folder).join(n.to_string()), make(n))
                .expect("the folder can be written");
        }
        return;
    }
    for (base, (_, flags)) in bases.iter().zip(BASES) {
        assert_eq!(check(base.clone()), Ok(true), "the undamaged program, {flags}");
    }
    let outcomes: Vec<(u64, Duration, Result<bool, String>)> = (from..to)
        .into_par_iter()
        .map(|n| {
            let start = Instant::now();
            let outcome = check(make(n));
            (n, start.elapsed(), outcome)
        })
        .filter(|(_, took, outcome)| outcome.is_err() || took.as_millis() >= 100 || *outcome == Ok(true))
        .collect();
    let loaded = outcomes.iter().filter(|o| o.2 == Ok(true)).count();
    let slowest = outcomes.iter().map(|o| o.1).max().unwrap_or_default();
    eprintln!("mutations {from}..{to}: {loaded} loaded, the others refused; slowest {slowest:?}");
    let failed: Vec<_> = outcomes.iter().filter(|o| o.2.is_err() || o.1 > Duration::from_secs(10)).collect();
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), &failed[..failed.len().min(40)]);
    assert!(loaded as u64 * 5 > to - from, "too few are loaded to say anything about the analysis");
}
