//! Intervals in which one build did more than the other.

use super::functions::add_counts;
use super::intervals::{GapPart, Interval, Intervals, Key};
use super::log::{Counted, Kind, Side};
use program::{Metric, Mix};
use std::collections::{BTreeMap, HashMap};

/// Intervals of one place that differ.
#[derive(Clone, Debug)]
pub struct Outlier {
    /// Where.
    pub key: Key,
    /// How often.
    pub times: f64,
    /// How sure it is that both did the same there, from 0 to 1: the share of events that were paired in the
    /// activations that these are of.
    pub confidence: f64,
    /// Instructions.
    pub insns: [f64; 2],
    /// Rounds of loops that were compared as a whole.
    pub rounds: [f64; 2],
    /// Blocks that ran in it, by number, and how often; not those of calls that one build alone made.
    pub ran: [BTreeMap<u32, f64>; 2],
    /// What ran, metric by metric.
    pub mixes: [Vec<f64>; 2],
    /// The metrics that differ most.
    pub because: Vec<Metric>,
}

/// So many are looked at closely.
const MOST: usize = 200;
/// So many metrics say why.
const MOST_BECAUSE: usize = 4;
/// What cancels to less than this share of itself is one interval.
const CANCELS: f64 = 0.5;

/// Whether the builds differ there.
pub fn differs(of: &Interval) -> bool {
    difference(of).abs() >= 0.5
}

/// Those of all `intervals` that differ, the largest difference of instructions first, but for those that are
/// unsteady; how many these are.
pub fn of(
    sides: &[Side<'_>; 2],
    intervals: &Intervals<'_>,
    is_unsteady: impl Fn(&Key) -> bool,
) -> (Vec<Outlier>, usize) {
    let mut all: Vec<(Key, Interval)> = intervals.found.iter().map(|(key, of)| (*key, of.clone())).collect();
    all.sort_by_key(|(key, _)| *key);
    let mut all = joined(all);
    all.retain(|(_, of)| differs(of));
    let before = all.len();
    all.retain(|(key, _)| !is_unsteady(key));
    let n_unsteady = before - all.len();
    all.sort_by(|a, b| difference(&b.1).abs().total_cmp(&difference(&a.1).abs()).then(a.0.cmp(&b.0)));
    all.truncate(MOST);
    let mut known = [HashMap::new(), HashMap::new()];
    let outlier = |(key, of): (Key, Interval)| {
        let mixes = [0, 1].map(|n: usize| mix(&sides[n], n, intervals, &of, &mut known[n]));
        let because = because(&mixes);
        Outlier {
            key,
            times: of.times,
            confidence: of.sureness(),
            insns: of.insns,
            rounds: of.rounds,
            ran: [0, 1].map(|n: usize| ran(intervals, n, &of)),
            mixes,
            because,
        }
    };
    (all.into_iter().map(outlier).collect(), n_unsteady)
}

fn difference(of: &Interval) -> f64 {
    of.insns[1] - of.insns[0]
}

/// Neighbours whose differences cancel are one: an event that was paired one too early or too late makes two
/// of them.
fn joined(all: Vec<(Key, Interval)>) -> Vec<(Key, Interval)> {
    let mut by_start: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (n, (key, _)) in all.iter().enumerate().filter(|(_, (key, _))| !key.is_inside) {
        by_start.entry((key.functions, key.from)).or_default().push(n);
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&a, &b| {
        difference(&all[b].1).abs().total_cmp(&difference(&all[a].1).abs()).then(a.cmp(&b))
    });
    let mut all: Vec<Option<(Key, Interval)>> = all.into_iter().map(Some).collect();
    for n in order {
        let Some((key, of)) = all[n].clone().filter(|(key, _)| !key.is_inside) else { continue };
        let behind = by_start.get(&(key.functions, key.to)).map_or(&[][..], Vec::as_slice);
        let cancels = |other: &&usize| {
            all[**other].as_ref().is_some_and(|(_, next)| {
                let (a, b) = (difference(&of), difference(next));
                **other != n && a * b < 0.0 && (a + b).abs() < CANCELS * a.abs()
            })
        };
        let found = behind.iter().filter(cancels).min_by(|a, b| {
            let rest = |n: usize| {
                all[n].as_ref().map_or(f64::MAX, |next| (difference(&of) + difference(&next.1)).abs())
            };
            rest(**a).total_cmp(&rest(**b))
        });
        let Some((other, next)) = found.copied().and_then(|other| all[other].take()) else { continue };
        let mut sum = of;
        if next.times > sum.times {
            (sum.times, sum.weight, sum.confidence) = (next.times, next.weight, next.confidence);
        }
        for side in [0, 1] {
            sum.insns[side] += next.insns[side];
            sum.rounds[side] += next.rounds[side];
            for (gap, times) in &next.gaps[side] {
                *sum.gaps[side].entry(*gap).or_default() += times;
            }
            for (activity, times) in &next.alone[side] {
                *sum.alone[side].entry(*activity).or_default() += times;
            }
        }
        all[n] = Some((Key { to: other.to, ..key }, sum));
    }
    all.into_iter().flatten().collect()
}

/// The blocks that ran in an interval, and how often.
#[expect(clippy::cast_precision_loss, reason = "counts up to 2⁵³ are exact")]
fn ran(intervals: &Intervals<'_>, n: usize, of: &Interval) -> BTreeMap<u32, f64> {
    let mut ran = BTreeMap::new();
    for (&part, &times) in &of.gaps[n] {
        let Some(gap) = intervals.gap(n, part.gap) else { continue };
        for (block, _, count) in intervals.counts(n, part, gap).filter(|(_, what, _)| *what == Counted::Run) {
            *ran.entry(block).or_default() += count as f64 * times / gap.times.max(1) as f64;
        }
    }
    ran
}

/// What ran in all of an interval.
fn mix(
    side: &Side<'_>,
    n: usize,
    intervals: &Intervals<'_>,
    of: &Interval,
    known: &mut HashMap<u32, Vec<f64>>,
) -> Vec<f64> {
    let mut sum = vec![0.0; Metric::ALL.len()];
    for (&gap, &times) in &of.gaps[n] {
        add(&mut sum, &one_of(side, n, intervals, gap), times);
    }
    for (&activity, &times) in &of.alone[n] {
        let one = of_activity(side, n, intervals, activity, known);
        add(&mut sum, &one, times);
    }
    sum
}

fn add(sum: &mut [f64], one: &[f64], times: f64) {
    sum.iter_mut().zip(one).for_each(|(sum, n)| *sum += n * times);
}

/// What runs in a gap, once.
fn one_of(side: &Side<'_>, n: usize, intervals: &Intervals<'_>, part: GapPart) -> Vec<f64> {
    let Some(gap) = intervals.gap(n, part.gap) else { return Vec::new() };
    let mut mix = Mix::default();
    add_counts(side, intervals.counts(n, part, gap), &mut mix);
    #[expect(clippy::cast_precision_loss, reason = "counts up to 2⁵³ are exact")]
    let one = |metric: &Metric| mix.get(*metric) as f64 / gap.times.max(1) as f64;
    Metric::ALL.iter().map(one).collect()
}

/// What runs in an activation with all that it calls.
fn of_activity(
    side: &Side<'_>,
    n: usize,
    intervals: &Intervals<'_>,
    activity: u32,
    known: &mut HashMap<u32, Vec<f64>>,
) -> Vec<f64> {
    let mut open = vec![activity];
    while let Some(&at) = open.last() {
        let Some(of) = side.log.activities.get(at as usize).filter(|_| !known.contains_key(&at)) else {
            open.pop();
            continue;
        };
        let called = of.tokens.iter().filter_map(|token| match token.kind() {
            Kind::Call(call) => side.log.calls.get(call as usize).map(|called| called.activity),
            Kind::Rounds(_) => None,
        });
        let called: Vec<u32> = called.collect();
        let first = called.iter().copied().find(|of| !known.contains_key(of));
        if let Some(first) = first {
            open.push(first);
            continue;
        }
        let mut sum = vec![0.0; Metric::ALL.len()];
        for gap in intervals.gaps_of(n, at) {
            add(&mut sum, &one_of(side, n, intervals, gap), 1.0);
        }
        for of in called {
            let one = known.get(&of).cloned().unwrap_or_default();
            add(&mut sum, &one, 1.0);
        }
        known.insert(at, sum);
        open.pop();
    }
    known.get(&activity).cloned().unwrap_or_default()
}

/// The metrics that differ most, but for sums of others.
fn because(mixes: &[Vec<f64>; 2]) -> Vec<Metric> {
    let mut all: Vec<(f64, Metric)> = Vec::new();
    for (n, metric) in Metric::ALL.iter().enumerate() {
        let says_why = metric.name().starts_with("cat.") || *metric == Metric::StackReads;
        if let [Some(a), Some(b)] = mixes.each_ref().map(|mix| mix.get(n))
            && says_why
        {
            all.push(((b - a).abs(), *metric));
        }
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let largest = all.first().map_or(0.0, |first| first.0);
    let counts = all.into_iter().take_while(|(n, _)| *n > 0.0 && *n >= largest / 10.0);
    counts.take(MOST_BECAUSE).map(|(_, metric)| metric).collect()
}
