//! What a programmer could do about values: each advice with the numbers that it rests on.
//!
//! Only what a log of all calls shows has a gain in seconds: of calls whose result could have been
//! remembered, or been a constant, what they took, less what a table costs. Times of calls are inclusive,
//! less what it takes to read the clock, and an outlier counts as 16 times the median: a call that
//! lost the processor does not get faster.
//!
//! Source: VPROF, sections 2.1 and 2.2 (unrolling, specialisation, memoisation).

use super::log::{Block, Ended, Log, Part, Table};
use super::{Address, Calls, Column, Loop, Place, Stamps, Statistics, Values, Watched, len_bytes};
use crate::vocabulary::ReadError;
use program::signature::{Float, Type, text};
use std::collections::HashMap;

/// What is done seldom is no advice.
const LEAST: u64 = 1000;
/// The most iterations that a loop is unrolled for.
const MOST_TRIPS: u64 = 16;
/// So many of a thousand instances have that many iterations.
const NEARLY_ALL: u64 = 995;
/// Copies below that many bytes are better done in line.
const SMALL: u64 = 16;
/// A `double` that has fewer values says nothing about others.
const LEAST_DISTINCT: u64 = 16;
/// Tables that are tried, by their numbers of entries: a result has one place in them.
const TABLES: [usize; 4] = [16, 256, 1024, 4096];
/// What a look into such a table is taken to cost, in seconds: a product, a comparison, a load. An estimate,
/// of some cycles, as the next one is.
const LOOK_S: f64 = 1.5e-9;
/// What a look in vain takes besides: a wrong prediction, and the result is stored.
const MISS_S: f64 = 6e-9;
/// Of gains, that share of the run is noise; and so many seconds, for short runs.
const NOISE: f64 = 0.02;
const NOISE_S: f64 = 1e-3;
/// A call that took so many times the median was interrupted.
const OUTLIER: f64 = 16.0;
/// Of functions that are called from more places, no place has an advice of its own.
const MOST_SITES: usize = 4096;
/// Functions that copy or fill memory, whose last argument is how much.
pub const COPIES: [&str; 5] = ["memcpy", "memmove", "mempcpy", "memset", "bcopy"];

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AdviceKind {
    /// A loop goes round as often each time.
    Unroll,
    /// An argument is always the same.
    Specialise,
    /// Results could be remembered.
    Memoise,
    /// What is divided by is known, or a power of two.
    Divisor,
    /// Few bytes are copied.
    Copy,
    /// A `double` has no more in it than a `float` has.
    Float,
}

/// An advice.
#[derive(Clone, PartialEq, Debug)]
pub struct Advice {
    /// What to do.
    pub kind: AdviceKind,
    /// With which function, or what in it.
    pub function: String,
    /// Where.
    pub at: Option<Address>,
    /// The line there, where it is known.
    pub line: Option<u32>,
    /// How many seconds shorter the run would have been; not known of most kinds.
    pub gain_s: Option<f64>,
    /// How often it was done.
    pub executions: u64,
    /// The numbers that it rests on.
    pub because: String,
}

impl AdviceKind {
    /// How it is called.
    pub fn name(self) -> &'static str {
        match self {
            AdviceKind::Unroll => "unroll",
            AdviceKind::Specialise => "specialise",
            AdviceKind::Memoise => "memoise",
            AdviceKind::Divisor => "divisor",
            AdviceKind::Copy => "copy",
            AdviceKind::Float => "float",
        }
    }
}

/// What `values`, and the log of the same run, advise; the run took so many seconds. What gains most comes
/// first, then, what gain is not known of, by how often it was done.
///
/// # Errors
/// If the log is damaged.
pub fn advice(values: &Values, log: Option<&Log>, run_s: f64) -> Result<Vec<Advice>, ReadError> {
    let mut all: Vec<Advice> = values.loops.iter().filter_map(unroll).collect();
    let noise_s = (without_us(values, run_s) * NOISE).max(NOISE_S);
    // Of calls that were chosen by their arguments, nothing is said of all.
    let is_whole = |calls: &&Calls| calls.n_calls >= LEAST && calls.n_left_out == 0;
    for calls in values.calls.iter().filter(is_whole) {
        let logged = log.and_then(|log| Some((log, log.table(&calls.function, calls.asked, false)?)));
        // Of some calls, nothing is said of all.
        let logged = logged.filter(|(log, n)| log.n_rows(*n) == calls.n_calls);
        all.extend(copies(calls));
        all.extend(floats(calls, logged)?);
        let seen = match logged {
            Some((log, n)) => Some(Seen::of(log, n, calls, values.stamps.as_ref())?),
            None => None,
        };
        match &seen {
            Some(seen) => seen.advise(calls, noise_s, log, &mut all),
            None => all.extend(constants(calls)),
        }
    }
    all.extend(values.places.iter().filter_map(divisor));
    all.sort_by(|a, b| {
        let gain = |of: &Advice| of.gain_s.unwrap_or(-1.0);
        gain(b).total_cmp(&gain(a)).then(b.executions.cmp(&a.executions)).then(a.function.cmp(&b.function))
    });
    Ok(all)
}

/// How long a run would have taken about, if no call had been recorded.
fn without_us(values: &Values, run_s: f64) -> f64 {
    let n_calls = values.calls.iter().map(|calls| calls.n_calls).sum();
    let stamps = values.stamps.as_ref().filter(|stamps| stamps.per_second > 0.0);
    let each = stamps.map_or(0.0, |stamps| float(stamps.cost) / stamps.per_second);
    (run_s - float(n_calls) * each).max(0.0)
}

fn unroll(of: &Loop) -> Option<Advice> {
    let most = of.trip_counts.counted().into_iter().next().filter(|_| of.n_instances >= LEAST)?;
    let trips = most.bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let is_so = (2..=MOST_TRIPS).contains(&trips)
        && u128::from(most.count) * 1000 >= u128::from(of.n_instances) * u128::from(NEARLY_ALL);
    is_so.then(|| Advice {
        kind: AdviceKind::Unroll,
        function: of.function.clone(),
        at: Some(Address { module: of.module.clone(), at: of.header, name: None }),
        line: of.line.as_ref().map(|line| line.1),
        gain_s: None,
        executions: of.n_instances,
        because: format!("{} of {} instances have {trips} iterations", most.count, of.n_instances),
    })
}

/// The value that all of a column are.
fn always(column: &Column) -> Option<String> {
    let [only] = &column.values.counted()[..] else { return None };
    column.values.is_exact().then(|| text::text(&column.kind, &only.bytes))
}

/// Whether a constant of that type says something: addresses do not.
fn is_number(kind: &Type) -> bool {
    matches!(
        kind,
        Type::Bool
            | Type::Char { .. }
            | Type::Integer { .. }
            | Type::Float(_)
            | Type::Enum(_)
            | Type::Complex(_)
    )
}

fn of_calls(kind: AdviceKind, calls: &Calls, because: String) -> Advice {
    Advice {
        kind,
        function: calls.function.clone(),
        at: calls.addresses.first().cloned(),
        line: None,
        gain_s: None,
        executions: calls.n_calls,
        because,
    }
}

/// Without a log: arguments that are always the same.
fn constants(calls: &Calls) -> Option<Advice> {
    // How much is copied has an advice of its own.
    if COPIES.contains(&calls.function.as_str()) {
        return None;
    }
    let constant = |column: &Column| Some(format!("{} is always {}", column.name, always(column)?));
    let all: Vec<String> =
        calls.arguments.iter().filter(|column| is_number(&column.kind)).filter_map(constant).collect();
    let because = format!("in all {} calls, {}", calls.n_calls, all.join(", "));
    (!all.is_empty()).then(|| of_calls(AdviceKind::Specialise, calls, because))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

fn copies(calls: &Calls) -> Option<Advice> {
    let size = calls.arguments.last().filter(|_| COPIES.contains(&calls.function.as_str()))?;
    let small: u64 =
        size.values.counted().iter().filter(|one| number(&one.bytes) < SMALL).map(|one| one.count).sum();
    let n: u64 = size.values.n();
    let is_so = n > 0 && u128::from(small) * 1000 >= u128::from(n) * u128::from(NEARLY_ALL);
    is_so.then(|| {
        let because = format!("{small} of {n} calls have fewer than {SMALL} bytes");
        of_calls(AdviceKind::Copy, calls, because)
    })
}

fn divisor(place: &Place) -> Option<Advice> {
    let is_one = place.watched == Some(Watched::Divisor) && place.n >= LEAST;
    let column = place.columns.first().filter(|_| is_one)?;
    let values = column.values.counted();
    let is_power = |bytes: &[u8]| number(bytes).is_power_of_two();
    let because = match always(column) {
        Some(value) => format!("in all {} divisions it is {value}", place.n),
        None if column.values.is_exact() && values.iter().all(|one| is_power(&one.bytes)) => {
            format!("in all {} divisions it is a power of two, of {} different ones", place.n, values.len())
        }
        None => return None,
    };
    Some(Advice {
        kind: AdviceKind::Divisor,
        function: place.place.clone(),
        at: place.addresses.first().cloned(),
        line: None,
        gain_s: None,
        executions: place.n,
        because,
    })
}

fn is_float(word: u64) -> bool {
    let value = f64::from_bits(word);
    #[expect(clippy::cast_possible_truncation, reason = "whether it loses something is asked")]
    let narrow = f64::from(value as f32);
    narrow.to_bits() == word
}

/// Arguments and results of type `double` that always fit into a `float`: from all different values, or, if
/// they are too many, from the log.
fn floats(calls: &Calls, logged: Option<(&Log, usize)>) -> Result<Vec<Advice>, ReadError> {
    let mut all = Vec::new();
    let arguments = calls.arguments.iter().enumerate().map(|(n, column)| (Part::Argument(n), column));
    for (part, column) in arguments.chain(calls.result.iter().map(|column| (Part::Result, column))) {
        let is_wide = matches!(column.kind, Type::Float(Float::Double));
        if !is_wide || column.values.n() < LEAST || column.values.n_distinct() < LEAST_DISTINCT {
            continue;
        }
        let known = column.values.counted();
        let mut fits = known.iter().all(|one| is_float(number(&one.bytes)));
        if fits && !column.values.is_exact() {
            let Some((log, n)) = logged else { continue };
            for block in log.blocks(n, &[part]) {
                fits &= block?.words(part).iter().all(|word| is_float(*word));
            }
        }
        if fits {
            let n = column.values.n();
            let because = format!("all {n} values of {} are floats, too", column.name);
            all.push(of_calls(AdviceKind::Float, calls, because));
        }
    }
    Ok(all)
}

/// What the log has of the calls of a function.
struct Seen {
    /// By caller.
    sites: HashMap<u64, Site>,
    tables: Vec<Memo>,
    /// Whether the same arguments always had the same result.
    is_consistent: bool,
    /// Seconds that a call took, by the log; none if it has no times.
    per_tick: Option<f64>,
    n: u64,
}

/// A place where the function is called.
struct Site {
    n: u64,
    /// The first call's arguments, and which of them all others had.
    first: Vec<u64>,
    is_constant: Vec<bool>,
    ticks: f64,
}

/// A table of results.
struct Memo {
    entries: Vec<Option<(Box<[u64]>, u64)>>,
    hits: u64,
    ticks: f64,
}

/// Where a result has its place.
fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0, |all, word| {
        let mixed = (all ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    })
}

#[expect(clippy::cast_precision_loss, reason = "it is an estimate")]
fn float(n: u64) -> f64 {
    n as f64
}

impl Seen {
    fn of(log: &Log, n: usize, calls: &Calls, stamps: Option<&Stamps>) -> Result<Seen, ReadError> {
        let table = log.tables.get(n);
        let n_words: usize = table.map_or(0, |table| table.arguments.iter().map(|f| f.n_words()).sum());
        let has_times = table.is_some_and(|table: &Table| table.has_times);
        // What a call within another one takes is part of what that takes.
        let taken = if calls.is_recursive { Part::OwnTicks } else { Part::Ticks };
        let median = match Statistics::of_log(log, n, taken)?.and_then(|all| all.of_finite) {
            Some(of) if has_times => of.median,
            _ => 0.0,
        };
        let most = median * OUTLIER;
        let offset = stamps.map_or(0.0, |stamps| float(stamps.offset));
        let memo = |len: usize| Memo { entries: vec![None; len], hits: 0, ticks: 0.0 };
        let mut seen = Seen {
            sites: HashMap::new(),
            tables: TABLES.map(memo).into(),
            is_consistent: true,
            per_tick: stamps.filter(|of| has_times && of.per_second > 0.0).map(|of| 1.0 / of.per_second),
            n: 0,
        };
        let mut parts = vec![Part::Caller, Part::Ended, taken, Part::Result];
        parts.extend((0..calls.arguments.len()).map(Part::Argument));
        let arguments: Vec<Part> = (0..calls.arguments.len()).map(Part::Argument).collect();
        let mut words = Vec::with_capacity(n_words);
        for (block, of_arguments) in log.blocks(n, &parts).zip(log.blocks(n, &arguments)) {
            let (block, of_arguments): (Block, Block) = (block?, of_arguments?);
            for row in 0..block.n_rows() {
                of_arguments.row(row, &mut words);
                let is_back = block.ended(row) == Ended::Result;
                let ticks = (float(block.word(taken, row)).min(most) - offset).max(0.0);
                let ticks = if is_back { ticks } else { 0.0 };
                seen.call(block.word(Part::Caller, row), &words, ticks);
                if is_back {
                    seen.remember(&words, block.word(Part::Result, row), ticks);
                }
            }
        }
        Ok(seen)
    }

    fn call(&mut self, caller: u64, words: &[u64], ticks: f64) {
        self.n += 1;
        if self.sites.len() >= MOST_SITES && !self.sites.contains_key(&caller) {
            return;
        }
        let site = self.sites.entry(caller).or_insert_with(|| Site {
            n: 0,
            first: words.to_vec(),
            is_constant: vec![true; words.len()],
            ticks: 0.0,
        });
        site.n += 1;
        site.ticks += ticks;
        for (is, (word, first)) in site.is_constant.iter_mut().zip(words.iter().zip(&site.first)) {
            *is &= word == first;
        }
    }

    fn remember(&mut self, words: &[u64], result: u64, ticks: f64) {
        let at = hash(words);
        for memo in &mut self.tables {
            // The high bits are mixed best.
            let shift = u64::BITS - memo.entries.len().trailing_zeros();
            let Some(entry) = usize::try_from(at >> shift).ok().and_then(|at| memo.entries.get_mut(at))
            else {
                continue;
            };
            match entry {
                Some((known, before)) if **known == *words => {
                    self.is_consistent &= *before == result;
                    memo.hits += 1;
                    memo.ticks += ticks;
                }
                _ => *entry = Some((words.into(), result)),
            }
        }
    }

    fn advise(&self, calls: &Calls, noise_s: f64, log: Option<&Log>, all: &mut Vec<Advice>) {
        if COPIES.contains(&calls.function.as_str()) {
            return;
        }
        let in_place = self.constants(calls, noise_s, log, all);
        let is_told = in_place * 10 >= self.n * 9;
        let can_be =
            calls.is_pure && self.is_consistent && calls.arguments.iter().all(|c| len_bytes(&c.kind) <= 8);
        let (Some(per_tick), true) = (self.per_tick, can_be && !is_told && self.n >= LEAST) else { return };
        let gain = |memo: &Memo| {
            let misses = float(self.n - memo.hits);
            memo.ticks * per_tick - float(self.n) * LOOK_S - misses * MISS_S
        };
        let best = self.tables.iter().map(gain).fold(0.0, f64::max);
        // The smallest that is nearly as good.
        let Some(memo) = self.tables.iter().find(|memo| gain(memo) >= 0.97 * best) else { return };
        let gain_s = gain(memo);
        if gain_s < noise_s || memo.hits * 2 < self.n {
            return;
        }
        let share = 100.0 * float(memo.hits) / float(self.n);
        let each = memo.ticks / float(memo.hits) * per_tick * 1e9;
        let because = format!(
            "a table of {} entries would have had {share:.1} % of {} results, which took {each:.0} ns each",
            memo.entries.len(),
            self.n
        );
        all.push(Advice { gain_s: Some(gain_s), ..of_calls(AdviceKind::Memoise, calls, because) });
    }

    /// Advises what is constant, everywhere or in some places; how many calls could be a constant instead.
    fn constants(&self, calls: &Calls, noise_s: f64, log: Option<&Log>, all: &mut Vec<Advice>) -> u64 {
        let mut in_place = 0;
        let mut sites: Vec<(&u64, &Site)> = self.sites.iter().filter(|(_, site)| site.n >= LEAST).collect();
        sites.sort_by_key(|(caller, _)| **caller);
        for (caller, site) in sites {
            let mut words = site.is_constant.iter().zip(&site.first);
            let (mut said, mut are_all) = (Vec::new(), !calls.arguments.is_empty());
            for column in &calls.arguments {
                let n_words = len_bytes(&column.kind).div_ceil(8);
                let of: Vec<(bool, u64)> =
                    words.by_ref().take(n_words).map(|(is, word)| (*is, *word)).collect();
                let is_constant = of.iter().all(|one| one.0);
                are_all &= is_constant;
                if is_constant && is_number(&column.kind) {
                    let bytes: Vec<u8> = of.iter().flat_map(|one| one.1.to_le_bytes()).collect();
                    let value = bytes.get(..len_bytes(&column.kind)).unwrap_or(&bytes);
                    said.push(format!("{} is always {}", column.name, text::text(&column.kind, value)));
                }
            }
            let is_result = are_all && calls.is_pure && self.is_consistent;
            let gain_s = self.per_tick.filter(|_| is_result).map(|per_tick| site.ticks * per_tick);
            if is_result {
                in_place += site.n;
            }
            if said.is_empty() || gain_s.is_some_and(|gain_s| gain_s < noise_s) {
                continue;
            }
            let so = if is_result { ", so that its result is a constant" } else { "" };
            let because = format!("in all {} calls from here, {}{so}", site.n, said.join(", "));
            let at = log.and_then(|log| log.callers.get(caller).cloned());
            let at = at.or_else(|| calls.addresses.first().cloned());
            let executions = site.n;
            all.push(Advice { at, gain_s, executions, ..of_calls(AdviceKind::Specialise, calls, because) });
        }
        in_place
    }
}

#[cfg(test)]
mod tests;
