//! Random requests: none is answered with what it should not be, the server stays, and takes little memory.
//!
//! Deterministic: request `n` is always the same. `checks/view.py` sends a million.
//!
//! - `ENGRAFT_MUTATIONS`: how many (else 3,000).
//! - `ENGRAFT_MUTATIONS_FROM`: number of the first one, to repeat one that failed.

#[path = "hostile/client.rs"]
mod client;

use client::{LONGEST, check_alive, request, seeds};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

struct Random(u64);

impl Random {
    /// Marsaglia, "Xorshift RNGs", 2003: the 64-bit generator with shifts 13, 7, 17.
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n.max(1) as u64).expect("it is below a usize")
    }
}

/// Request `n`: one to six damages to one that is whole.
fn mutation(seeds: &[Vec<u8>], n: u64) -> Vec<u8> {
    const PIECES: [&[u8]; 14] = [
        b"../",
        b"%2e%2e%2f",
        b"%00",
        b"%",
        b"?",
        b"&rows=1000&from=",
        b"&q=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E",
        b"&sort=function&order=1",
        b"\r\n",
        b"Host: evil.example\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"99999999999999999999",
        b"\xff\xfe",
        b"\xe2\x80\xae",
    ];
    let mut random = Random((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = seeds.get(random.below(seeds.len())).cloned().unwrap_or_default();
    for _ in 0..=random.below(6) {
        // Rather in the address than behind it.
        let at = random.below(bytes.len().min(if n.is_multiple_of(2) { 100 } else { usize::MAX }) + 1);
        let to = (at + random.below(20)).min(bytes.len());
        match random.below(5) {
            0 => bytes.get_mut(at).into_iter().for_each(|byte| *byte = random.below(256).to_le_bytes()[0]),
            1 => drop(bytes.splice(at..to, [])),
            2 => {
                let again = bytes.get(at..to).unwrap_or_default().to_vec();
                bytes.splice(at..at, again);
            }
            3 => bytes.truncate(if random.below(10) == 0 { at } else { bytes.len() }),
            _ => {
                let piece = PIECES.get(random.below(PIECES.len())).copied().unwrap_or_default();
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
    bytes
}

/// The most memory that this process has had, in megabytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

#[test]
fn random_requests_come_to_nothing() {
    let number = |name: &str, or: u64| std::env::var(name).map_or(or, |n| n.parse().expect("it is a number"));
    let (n, from) = (number("ENGRAFT_MUTATIONS", 3000), number("ENGRAFT_MUTATIONS_FROM", 0));
    LONGEST.set(100_000).expect("nobody has asked yet");
    let seeds = seeds();
    seeds.iter().for_each(|seed| request(seed));
    let next = AtomicU64::new(from);
    let bad = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let n_request = next.fetch_add(1, Ordering::Relaxed);
                    if n_request >= from + n {
                        break;
                    }
                    let bytes = mutation(&seeds, n_request);
                    if catch_unwind(|| request(&bytes)).is_err() {
                        eprintln!("request {n_request}: {}", String::from_utf8_lossy(&bytes));
                        bad.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    check_alive();
    let (bad, memory) = (bad.into_inner(), most_memory());
    eprintln!("{n} requests, {bad} bad, {:.1} s, {memory} MB", start.elapsed().as_secs_f64());
    assert!(bad == 0 && memory <= 100, "{bad} bad, {memory} MB");
}
