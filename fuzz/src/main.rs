//! `mutations TARGET N [FROM]`: N damaged files through a target, in one process, on any toolchain.
//!
//! Deterministic: mutation `n` of a target is always the same. A file that makes a target panic, or take more
//! than two seconds, is written to `TARGET-N.input` in the current folder; then the exit code is 1.

use rayon::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

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
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Numbers at which sums and differences go wrong.
const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    0x7f,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    u64::MAX - 7,
    u64::MAX,
];

/// A run of digits at or behind `at`: most of what texts say is numbers.
fn number(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let start = at + bytes.get(at..)?.iter().position(u8::is_ascii_digit)?;
    let len = bytes[start..].iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(bytes.len() - start);
    Some(start..start + len)
}

/// Mutation `n`: one to six damages to one of the files.
fn mutate(seeds: &[Vec<u8>], n: u64) -> Vec<u8> {
    let mut random = Random((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(9) {
            0 => {
                let value = random.next().to_le_bytes()[0];
                bytes.get_mut(at).into_iter().for_each(|b| *b = value);
            }
            1 => bytes.get_mut(at).into_iter().for_each(|b| *b ^= 1 << (n % 8)),
            2 => {
                let word = random.of(&NUMBERS).to_le_bytes();
                let width = 1 << random.below(4);
                bytes.iter_mut().skip(at).zip(word).take(width).for_each(|(b, w)| *b = w);
            }
            // A number that is written out, in decimal or hexadecimal.
            3 | 4 => {
                if let Some(range) = number(&bytes, at) {
                    let value = random.of(&NUMBERS);
                    let text = if random.below(2) == 0 { format!("{value}") } else { format!("{value:x}") };
                    bytes.splice(range, text.into_bytes());
                }
            }
            // A varint of ten bytes.
            5 => {
                let end = (at + random.below(2)).min(bytes.len());
                bytes.splice(at..end, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
            }
            6 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                let len = random.below(80).min(other.len() - from);
                bytes.splice(at..at, other[from..from + len].iter().copied());
            }
            7 => {
                let end = (at + random.below(40)).min(bytes.len());
                bytes.splice(at..end, []);
            }
            _ if random.below(8) == 0 => bytes.truncate(at),
            _ => {
                let end = (at + random.below(60)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
    bytes
}

/// The most that one file may take.
const SLOW: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let all = fuzz::targets();
    let named = |name: &String| all.iter().find(|t| t.0 == name);
    let (Some(&(name, target, seeds)), Some(Ok(n))) = (args.first().and_then(named), args.get(1).map(|n| n.parse::<u64>()))
    else {
        let names: Vec<&str> = all.iter().map(|t| t.0).collect();
        eprintln!("usage: mutations TARGET N [FROM], TARGET one of {}", names.join(", "));
        return ExitCode::from(2);
    };
    let from: u64 = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    let seeds = seeds();
    for (i, seed) in seeds.iter().enumerate() {
        assert!(catch_unwind(|| target(seed)).is_ok(), "the undamaged file {i} fails");
    }
    let done: Vec<(u64, Duration, bool)> = (from..from + n)
        .into_par_iter()
        .map(|n| {
            let bytes = mutate(&seeds, n);
            let start = Instant::now();
            let held = catch_unwind(AssertUnwindSafe(|| target(&bytes))).is_ok();
            let took = start.elapsed();
            if !held || took > SLOW {
                let _unsaved = std::fs::write(format!("{name}-{n}.input"), &bytes);
            }
            (n, took, held)
        })
        .collect();
    let slowest = done.iter().map(|d| d.1).max().unwrap_or_default();
    let bad: Vec<u64> = done.iter().filter(|d| !d.2 || d.1 > SLOW).map(|d| d.0).collect();
    println!("{name}: mutations {from}..{}: {} bad {:?}, slowest {slowest:?}", from + n, bad.len(), &bad[..bad.len().min(20)]);
    ExitCode::from(u8::from(!bad.is_empty()))
}
