//! What a format could not take of a profile, or a profile of a file: summed up by what and why, since a
//! source has too many records to list each; and the tables that a format has no place for.

use crate::complete::derive::add;
use crate::counts::{Lost, Profile};
use crate::vocabulary::Format;
use std::collections::BTreeMap;

/// What was lost so far.
#[derive(Default)]
pub(crate) struct Losses(BTreeMap<(String, &'static str), u64>);

impl Losses {
    /// Adds `count` executions or samples of `what`, often a function's name.
    pub fn add(&mut self, what: &str, why: &'static str, count: u64) {
        add(&mut self.0, (what.to_owned(), why), count);
    }
    /// Sorted by what, then why.
    pub fn into_list(self) -> Vec<Lost> {
        self.0.into_iter().map(|((what, why), count)| Lost { what, why: why.to_owned(), count }).collect()
    }
}

/// How wide intervals are in all, and how many there are.
type InDoubt = (usize, u64);

fn widths<'a>(intervals: impl Iterator<Item = &'a (u64, u64)>) -> InDoubt {
    intervals.fold((0, 0), |(n, sum), (least, most)| (n + 1, sum.saturating_add(most.saturating_sub(*least))))
}

/// That so many counts of calls, with these intervals, became one number each.
pub(crate) fn calls_in_doubt(intervals: impl Iterator<Item = (u64, u64)>) -> Option<Lost> {
    let all: Vec<(u64, u64)> = intervals.collect();
    let (n, count) = widths(all.iter());
    let why = "one before it may not have come back: it is written as often as its block ran, as near as the bounds allow";
    let s = if n == 1 { "" } else { "s" };
    (n > 0).then(|| Lost { what: format!("{n} interval{s} of calls"), why: why.to_owned(), count })
}

/// That so many counts of blocks, edges and entries became one number each.
pub(crate) fn in_doubt(profile: &Profile, format: Format) -> Option<Lost> {
    if matches!(format, Format::Engraft | Format::Json) {
        return None;
    }
    let intervals = &profile.intervals;
    let places = intervals.blocks.values();
    // Others have nothing of these.
    let (edges, entries) = match format {
        Format::Csv | Format::Pprof | Format::Folded | Format::Svg => (None, None),
        _ => (Some(intervals.edges.values()), Some(intervals.entries.values())),
    };
    let (n, count) = widths(places.chain(edges.into_iter().flatten()).chain(entries.into_iter().flatten()));
    let why = "threads may have been stopped in the middle of a block: what follows if none was is written";
    let s = if n == 1 { "" } else { "s" };
    (n > 0).then(|| Lost { what: format!("{n} interval{s} of counts"), why: why.to_owned(), count })
}

/// The tables of a profile that a format has no place for.
pub(crate) fn not_held(profile: &Profile, format: Format) -> Vec<Lost> {
    let blocks_alone = "the format holds counts of blocks alone";
    let lines_alone = "the format holds counts of lines and calls alone";
    let no_misses = "the format has no place for them";
    let (edges, calls, entries, misses) = match format {
        Format::Csv | Format::Pprof | Format::Folded | Format::Svg => {
            (Some(blocks_alone), Some(blocks_alone), Some(blocks_alone), Some(no_misses))
        }
        Format::Lcov => {
            let why = Some("the format holds counts of lines, functions and the branches of lines alone");
            (why, why, None, Some(no_misses))
        }
        Format::LlvmSample => (Some(lines_alone), None, None, Some(no_misses)),
        Format::Callgrind => (None, None, None, Some(no_misses)),
        // Those that hold all, or say themselves what they leave out; and those that are only read.
        Format::Engraft | Format::Json | Format::Fdata | Format::Preagg => (None, None, None, None),
        Format::BoltYaml | Format::PerfData | Format::PerfScript | Format::Firefox => {
            (None, None, None, None)
        }
    };
    // callgrind's writer says so itself; ours would have them, and CSV has no calls.
    let holds_calls = matches!(format, Format::Fdata | Format::Preagg | Format::LlvmSample);
    let of_calls = calls_in_doubt(profile.intervals.calls.values().copied().filter(|_| holds_calls));
    let row = |n: usize, name: &str, count: u64, why: Option<&str>| {
        let why = why.filter(|_| count > 0)?;
        Some(Lost { what: format!("{n} {name}"), why: why.to_owned(), count })
    };
    let sum = |counts: &mut dyn Iterator<Item = &u64>| counts.fold(0u64, |sum, n| sum.saturating_add(*n));
    let unnamed = (format == Format::LlvmSample).then_some("the format names what is called");
    let out_count = sum(&mut profile.calls_out.values());
    let n_calls = profile.calls.len() + profile.calls_out.len();
    let calls_count = sum(&mut profile.calls.values().chain(profile.calls_out.values()));
    [
        row(profile.edges.len(), "edges", sum(&mut profile.edges.values()), edges),
        row(n_calls, "calls", calls_count, calls),
        row(profile.entries.len(), "entries of functions", sum(&mut profile.entries.values()), entries),
        row(profile.calls_out.len(), "calls out of the program", out_count, unnamed),
        row(profile.mispredicts.len(), "mispredicted edges", sum(&mut profile.mispredicts.values()), misses),
    ]
    .into_iter()
    .chain([in_doubt(profile, format), of_calls])
    .flatten()
    .collect()
}
