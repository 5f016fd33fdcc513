//! What a sample takes of the thread that is sampled, measured on a thread of ours.
//!
//! A thread counts as fast as it can, for pairs of slices of a millisecond: without being sampled, and while
//! it is. The time that the second one takes more, divided by the samples that it got, is what one costs: the
//! interrupt, what is written of the thread's stack, and what of its caches has to be had anew.

use live::{Heard, OpenError, Rate, Sampling, Wanted, thread_times};
use std::hint::black_box;
use std::sync::mpsc::{Receiver, channel};

/// Rounds of work in a slice, about a millisecond; and how many pairs of slices.
const ROUNDS: u64 = 1 << 20;
const PAIRS: usize = 40;
/// How often it is sampled meanwhile.
const HERTZ: u64 = 10_000;

/// Nanoseconds that a sample takes of a thread, as `wanted` says what is told with it; nothing, if no sample
/// came.
///
/// # Errors
/// If there is no such event, or we may not.
pub fn cost_of_a_sample(wanted: &Wanted) -> Result<Option<u64>, OpenError> {
    let wanted = Wanted { rate: Rate::Hertz(HERTZ), ..wanted.clone() };
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    std::thread::scope(|scope| {
        let (gives, given) = channel();
        let worker = std::thread::Builder::new().stack_size(1 << 20);
        let worker = worker.spawn_scoped(scope, move || in_slices(&given));
        let Ok(worker) = worker else { return Ok(None) };
        // Of all our threads, which wait.
        let mut sampling = Sampling::start(&[own], wanted)?;
        sampling.stop();
        let _before = sampling.take_rest();
        if gives.send(sampling).is_err() {
            return Ok(None);
        }
        let Ok(Some((mut extra, n))) = worker.join() else { return Ok(None) };
        extra.sort_unstable();
        // Whatever else the machine does comes to some slices of either kind.
        let middle = extra.get(extra.len() / 2).copied().unwrap_or(0);
        let in_all = u64::try_from(middle).unwrap_or(0).saturating_mul(PAIRS as u64);
        Ok(in_all.checked_div(n).map(|cost| cost.max(LEAST)))
    })
}

/// No interrupt takes less, in nanoseconds: what was measured as such was not measured.
const LEAST: u64 = 1000;

/// Works with and without the events of what it is `given`; how many nanoseconds more each slice took while
/// it was sampled, and how many samples there were.
fn in_slices(given: &Receiver<Sampling>) -> Option<(Vec<i64>, u64)> {
    // As much of a stack as there may be to copy.
    let deep = [1u8; 1 << 16];
    black_box(&deep);
    let mut sampling = given.recv().ok()?;
    let mut n = 0;
    let slice = || {
        let before = thread_times().1;
        black_box((0..ROUNDS).fold(0u64, |sum, n| black_box(sum ^ n)));
        i64::try_from(thread_times().1 - before).unwrap_or(0)
    };
    let _warm = slice();
    let mut extra = Vec::new();
    for _ in 0..PAIRS {
        let plain = slice();
        sampling.go_on();
        let sampled = slice();
        sampling.stop();
        extra.push(sampled - plain);
        // Rings may have no room for those of two slices; what was lost was taken, too.
        n += sampling.take_rest().iter().map(taken).sum::<u64>();
    }
    black_box(&deep);
    Some((extra, n))
}

/// How many samples were taken of which something was told.
fn taken(heard: &Heard) -> u64 {
    match heard {
        Heard::Sample(_) => 1,
        Heard::Lost(n) => *n,
        _ => 0,
    }
}
