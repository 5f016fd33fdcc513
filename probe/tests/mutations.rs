//! Damaged programs are rewritten, in part, or refused; nothing breaks.
//!
//! Deterministic: mutation `n` of a base program is always the same. `checks/fuzz.sh` runs many.
//!
//! - `ENGRAFT_MUTATIONS`: how many (else 400).
//! - `ENGRAFT_MUTATIONS_FROM`: number of the first one, to repeat one that failed.

use probe::{Module, Old, Plan, Room};
use program::{Image, Program};
use rayon::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

/// Has what is moved in ways of its own: a switch, exceptions, tail calls, a table of functions, recursion.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static void clean(int *p) { printf("%d\n", *p); }
static int one(int n) { return n + 1; } static int two(int n) { return n * 3; } int (*const all[])(int) = { one, two, abs };
int sums[8];
__attribute__((constructor)) static void first(void) { sums[0] = 1; }
__attribute__((noinline)) int pick(int n, int x) {
    switch (n) {
    case 0: return x + 1; case 1: return x * 3; case 2: return puts("two"); case 3: return all[x & 1](x);
    case 4: return x ^ 77; case 5: return sums[x & 7]; case 6: return x / 7; default: abort();
    }
}
__attribute__((noinline)) int guarded(int n) { int held __attribute__((cleanup(clean))) = n; return pick(n, 2) + held; }
__attribute__((noinline)) int deep(int n) { return n < 2 ? n : deep(n - 1) + deep(n - 2); }
int main(int c, char **v) { for (int i = 0; i < c; i++) sums[i & 7] += guarded(i); return deep(c) + sums[1] + pick(c, 1); }
"#;

const BASES: [&str; 4] = [
    "-O2 -fexceptions",
    "-O1 -fexceptions -no-pie -s",
    "-O0 -fcf-protection=full -Wl,-z,pack-relative-relocs",
    "-O2 -shared -fPIC",
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

fn compile(flags: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a folder for the test's files");
    let (c, out) = (dir.path().join("a.c"), dir.path().join("a"));
    std::fs::write(&c, SOURCE).expect("the folder can be written");
    let run = Command::new("gcc").args(flags.split(' ')).arg(&c).arg("-o").arg(&out).output();
    let run = run.expect("gcc is installed");
    assert!(run.status.success(), "{flags}: {}", String::from_utf8_lossy(&run.stderr));
    std::fs::read(out).expect("gcc wrote it")
}

/// Mutation `n` of `base`: bytes anywhere in the file, one to two hundred.
fn mutate(base: &[u8], n: u64) -> Vec<u8> {
    let mut random = Random((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = base.to_vec();
    for _ in 0..=random.below(200) {
        let (at, value) = (random.below(bytes.len()), random.next().to_le_bytes()[0]);
        bytes[at] = value;
    }
    bytes
}

/// What went wrong with these bytes, if anything did; `true` if they could be rewritten.
fn check(bytes: Vec<u8>) -> Result<bool, String> {
    let rewrite = || {
        let Ok(image) = Image::parse(bytes, "x") else { return false };
        let program = Program::analyze(image);
        let file = Module::build(&program, &Plan::NULL, Room::Behind)
            .is_ok_and(|m| m.to_file(Old::Poisoned).is_ok());
        let segments =
            Module::build(&program, &Plan::BLOCKS, Room::Apart).is_ok_and(|m| m.to_segments().is_ok());
        file || segments
    };
    catch_unwind(AssertUnwindSafe(rewrite)).map_err(|what| {
        let text = what.downcast_ref::<String>().cloned();
        text.or_else(|| what.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn damaged_programs_are_rewritten_or_refused() {
    let mut bases: Vec<Vec<u8>> = BASES.iter().map(|flags| compile(flags)).collect();
    for base in &bases {
        assert_eq!(check(base.clone()), Ok(true), "the undamaged program");
    }
    bases.extend(std::fs::read("/usr/bin/gzip"));
    let from = number("ENGRAFT_MUTATIONS_FROM", 0);
    let to = from + number("ENGRAFT_MUTATIONS", 400);
    let one = |n: u64| {
        let which = usize::try_from(n % bases.len() as u64).expect("it is below their number");
        (n, check(mutate(&bases[which], n)))
    };
    let outcomes: Vec<(u64, Result<bool, String>)> = (from..to).into_par_iter().map(one).collect();
    let rewritten = outcomes.iter().filter(|o| o.1 == Ok(true)).count();
    let failed: Vec<_> = outcomes.iter().filter(|o| o.1.is_err()).collect();
    assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), &failed[..failed.len().min(20)]);
    assert!(rewritten as u64 * 5 > to - from, "too few are rewritten to say anything: {rewritten}");
}
