//! When symbols were executed. A recording says when chunks of events were taken; between two such times,
//! symbols are spread evenly.
//!
//! ```text
//! TIME  = (thread, n times: varint, for each: index − last index, ns − last ns: varint)*
//! ```
//! The index is that of the first symbol that was executed after the time, in nanoseconds since the recording
//! began.
#![warn(clippy::indexing_slicing)]

use crate::file::varint::{self, Cursor};
use crate::ids::ThreadId;
use std::collections::BTreeMap;

/// What the section is called.
pub(crate) const TIMES: [u8; 4] = *b"TIME";

/// The times of the streams of a trace.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Times {
    /// Per stream: indices, and when they were reached, in ns; both rise.
    of: BTreeMap<ThreadId, Vec<(u64, u64)>>,
}

impl Times {
    /// Notes that the stream of `thread` came to the symbol `index` at `ns`. What goes back in time is taken
    /// for the time before.
    pub fn note(&mut self, thread: ThreadId, index: u64, ns: u64) {
        let points = self.of.entry(thread).or_default();
        match points.last().copied() {
            Some((last, at)) if last >= index => {
                // Nothing was executed in between: what follows comes after the later one.
                points.pop();
                points.push((last, at.max(ns)));
            }
            Some((_, at)) => points.push((index, at.max(ns))),
            None => points.push((index, ns)),
        }
    }

    /// Notes that what is before the symbol `index` was taken at `ns`. Of a stream of which no earlier time
    /// is known, it began with the recording.
    pub(crate) fn taken(&mut self, thread: ThreadId, index: u64, ns: u64) {
        if index > 0 && !self.of.contains_key(&thread) {
            self.note(thread, 0, 0);
        }
        self.note(thread, index, ns);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The clock of a stream.
    pub fn of(&self, thread: ThreadId) -> Option<Clock<'_>> {
        self.of.get(&thread).map(|points| Clock { points, at: 0 })
    }

    /// The first symbol of a stream that was executed at `ns` or later; beyond its end, if none was.
    pub fn index_at(&self, thread: ThreadId, ns: u64) -> Option<u64> {
        let points = self.of.get(&thread)?;
        let after = points.partition_point(|point| point.1 < ns);
        let Some(&(index, at)) = points.get(after) else { return Some(u64::MAX) };
        let Some(&(before, start)) = after.checked_sub(1).and_then(|i| points.get(i)) else {
            // All before it are taken to be of its time.
            return Some(0);
        };
        let share = u128::from(index - before) * u128::from(ns - start);
        let passed = share.div_ceil(u128::from((at - start).max(1)));
        Some(before.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)).min(index))
    }

    /// When the last symbol was executed, in ns.
    pub fn end_ns(&self) -> u64 {
        self.of.values().filter_map(|points| Some(points.last()?.1)).max().unwrap_or(0)
    }

    /// The section's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (&thread, points) in &self.of {
            varint::put(&mut out, u64::from(thread.0));
            varint::put(&mut out, points.len() as u64);
            let (mut last, mut ns) = (0, 0);
            for &(index, at) in points {
                varint::put(&mut out, index - last);
                varint::put(&mut out, at - ns);
                (last, ns) = (index, at);
            }
        }
        out
    }

    /// Reads a section's bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let mut times = Self::default();
        while !cursor.rest().is_empty() {
            let thread = ThreadId(cursor.get_u32()?);
            let (mut points, mut last, mut ns) = (Vec::new(), 0_u64, 0_u64);
            for _ in 0..cursor.get_len()? {
                last = last.checked_add(cursor.get()?)?;
                ns = ns.checked_add(cursor.get()?)?;
                points.push((last, ns));
            }
            times.of.insert(thread, points);
        }
        Some(times)
    }
}

/// Tells the times of symbols that come in order.
pub struct Clock<'a> {
    points: &'a [(u64, u64)],
    at: usize,
}

impl Clock<'_> {
    /// When the symbol `index` was executed, in ns; not less than that of one before.
    pub fn at(&mut self, index: u64) -> u64 {
        while self.points.get(self.at).is_some_and(|point| point.0 <= index) {
            self.at += 1;
        }
        let next = self.points.get(self.at);
        match (self.at.checked_sub(1).and_then(|i| self.points.get(i)), next) {
            (Some(&(first, start)), Some(&(end, ns))) => {
                let share = u128::from(ns - start) * u128::from(index - first) / u128::from(end - first);
                start.saturating_add(u64::try_from(share).unwrap_or(u64::MAX))
            }
            (Some(&(_, ns)), None) | (None, Some(&(_, ns))) => ns,
            (None, None) => 0,
        }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests may panic")]
mod tests {
    use super::*;

    fn times() -> Times {
        let mut times = Times::default();
        for (index, ns) in [(0, 1000), (10, 2000), (10, 2500), (20, 2500), (40, 6500)] {
            times.note(ThreadId(3), index, ns);
        }
        times.note(ThreadId(7), 5, 100);
        times
    }

    #[test]
    fn symbols_are_spread_evenly_between_times() {
        let times = times();
        let mut clock = times.of(ThreadId(3)).expect("it has times");
        let got: Vec<u64> = [0, 5, 9, 10, 19, 20, 30, 39, 40, 99].map(|i| clock.at(i)).to_vec();
        // From 0 to 10 within 1500 ns, 10 to 20 in no time, 20 to 40 within 4000.
        assert_eq!(got, [1000, 1750, 2350, 2500, 2500, 2500, 4500, 6300, 6500, 6500]);
        assert_eq!(times.of(ThreadId(7)).expect("it has a time").at(0), 100);
        assert!(times.of(ThreadId(4)).is_none());
    }

    #[test]
    fn the_first_symbol_from_a_time_on_is_the_inverse_of_its_time() {
        let times = times();
        for ns in (0..7000).step_by(7) {
            let index = times.index_at(ThreadId(3), ns).expect("it has times");
            let mut clock = times.of(ThreadId(3)).expect("it has times");
            let all: Vec<u64> = (0..40).map(|i| clock.at(i)).collect();
            let want = all.iter().position(|at| *at >= ns).map_or(40, |i| i as u64);
            assert_eq!(index.min(40), want, "{ns}");
        }
    }

    #[test]
    fn times_survive_their_section() {
        let bytes = times().encode();
        assert_eq!(Times::decode(&bytes), Some(times()));
        let whole = (0..bytes.len()).filter(|&n| Times::decode(&bytes[..n]).is_some());
        // Behind nothing, and behind the first stream.
        assert_eq!(whole.count(), 2);
    }
}
