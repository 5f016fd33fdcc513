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
    /// How much of the metric that they are told by.
    pub amount: [f64; 2],
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
const MOST_BECAUSE: usize = 6;
/// What differs by less does not.
const DIFFERS: f64 = 0.5;
/// What cancels to less than this share of itself is one interval.
const CANCELS: f64 = 0.5;

/// Whether the builds differ there.
pub fn differs(of: &Interval) -> bool {
    (of.insns[1] - of.insns[0]).abs() >= DIFFERS
}

/// What was found of intervals.
pub struct Differing {
    /// Those that differ, the largest difference first.
    pub outliers: Vec<Outlier>,
    /// How many more would be, but are unsteady.
    pub n_unsteady: usize,
    /// What ran in each that is not unsteady, metric by metric; nothing, unless it is asked for.
    pub mixes: Vec<(Key, [Vec<f64>; 2])>,
}

/// Those of all `intervals` that differ, the largest difference of the metric `by` first, but for those that
/// are unsteady.
pub fn of(
    sides: &[Side<'_>; 2],
    intervals: &Intervals<'_>,
    (by, wants_mixes): (&By, bool),
    is_unsteady: impl Fn(&Key) -> bool,
) -> Differing {
    let mut known = [HashMap::new(), HashMap::new()];
    let mut amount = |of: &Interval| match by {
        By::Metric(Metric::Total) => of.insns,
        By::Metric(by) => [0, 1].map(|n: usize| {
            let mix = mix(&sides[n], n, intervals, of, &mut known[n]);
            mix.get(*by as usize).copied().unwrap_or_default()
        }),
        By::Weights(weights) => [0, 1].map(|n: usize| {
            let ran = ran(intervals, n, of);
            ran.iter().map(|(block, runs)| runs * weights[n].get(block).copied().unwrap_or_default()).sum()
        }),
    };
    let mut all: Vec<Found> = intervals
        .found
        .iter()
        .map(|(key, of)| Found { key: *key, amount: amount(of), of: of.clone() })
        .collect();
    all.sort_by_key(|found| found.key);
    let mut all = joined(all);
    let mut mixes = Vec::new();
    if wants_mixes {
        for Found { key, of, .. } in all.iter().filter(|found| !is_unsteady(&found.key)) {
            mixes.push((*key, [0, 1].map(|n: usize| mix(&sides[n], n, intervals, of, &mut known[n]))));
        }
    }
    all.retain(|found| difference(found).abs() >= DIFFERS);
    let before = all.len();
    all.retain(|found| !is_unsteady(&found.key));
    let n_unsteady = before - all.len();
    all.sort_by(|a, b| difference(b).abs().total_cmp(&difference(a).abs()).then(a.key.cmp(&b.key)));
    all.truncate(MOST);
    let outlier = |Found { key, of, amount }: Found| {
        let mixes = [0, 1].map(|n: usize| mix(&sides[n], n, intervals, &of, &mut known[n]));
        let because = because(&mixes);
        Outlier {
            key,
            times: of.times,
            confidence: of.sureness(),
            amount,
            rounds: of.rounds,
            ran: [0, 1].map(|n: usize| ran(intervals, n, &of)),
            mixes,
            because,
        }
    };
    Differing { outliers: all.into_iter().map(outlier).collect(), n_unsteady, mixes }
}

/// By block: how much of something an execution of it is.
pub type Weights = BTreeMap<u32, f64>;

/// What outliers are told by.
#[derive(Clone, Debug)]
pub enum By {
    /// A metric of instructions.
    Metric(Metric),
    /// Something that is known of blocks of both builds.
    Weights([Weights; 2]),
}

/// By function: how much its blocks come to.
#[expect(clippy::cast_precision_loss, reason = "counts up to 2⁵³ are exact")]
pub fn weighed(side: &Side<'_>, weights: &Weights) -> BTreeMap<u32, f64> {
    let mut sums = BTreeMap::new();
    for (key, gap) in &side.log.gaps {
        for (block, _, n) in gap.counts().filter(|(_, what, _)| *what == Counted::Run) {
            if let Some(weight) = weights.get(&block) {
                *sums.entry(key.function).or_default() += weight * n as f64;
            }
        }
    }
    sums
}

/// An interval, and how much of a metric it has.
#[derive(Clone)]
struct Found {
    key: Key,
    of: Interval,
    amount: [f64; 2],
}

fn difference(found: &Found) -> f64 {
    found.amount[1] - found.amount[0]
}

/// Neighbours whose differences cancel are one: an event that was paired one too early or too late makes two
/// of them.
fn joined(all: Vec<Found>) -> Vec<Found> {
    let mut by_start: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (n, Found { key, .. }) in all.iter().enumerate().filter(|(_, found)| !found.key.is_inside) {
        by_start.entry((key.functions, key.from)).or_default().push(n);
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&a, &b| difference(&all[b]).abs().total_cmp(&difference(&all[a]).abs()).then(a.cmp(&b)));
    let mut all: Vec<Option<Found>> = all.into_iter().map(Some).collect();
    for n in order {
        let Some(mut sum) = all[n].clone().filter(|found| !found.key.is_inside) else { continue };
        let behind = by_start.get(&(sum.key.functions, sum.key.to)).map_or(&[][..], Vec::as_slice);
        let rest = |other: usize| match &all[other] {
            Some(next) if other != n && difference(&sum) * difference(next) < 0.0 => {
                (difference(&sum) + difference(next)).abs()
            }
            _ => f64::MAX,
        };
        let nearest = behind.iter().copied().min_by(|a, b| rest(*a).total_cmp(&rest(*b)));
        let cancels = |other: &usize| rest(*other) < CANCELS * difference(&sum).abs();
        let Some(next) = nearest.filter(cancels).and_then(|other| all[other].take()) else { continue };
        sum.add(next);
        all[n] = Some(sum);
    }
    all.into_iter().flatten().collect()
}

impl Found {
    /// Takes in what is behind it.
    fn add(&mut self, next: Found) {
        self.key.to = next.key.to;
        let (sum, next_of) = (&mut self.of, next.of);
        if next_of.times > sum.times {
            (sum.times, sum.weight, sum.confidence) = (next_of.times, next_of.weight, next_of.confidence);
        }
        for side in [0, 1] {
            self.amount[side] += next.amount[side];
            sum.insns[side] += next_of.insns[side];
            sum.rounds[side] += next_of.rounds[side];
            for (gap, times) in &next_of.gaps[side] {
                *sum.gaps[side].entry(*gap).or_default() += times;
            }
            for (activity, times) in &next_of.alone[side] {
                *sum.alone[side].entry(*activity).or_default() += times;
            }
        }
    }
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
        for (gap, times) in intervals.gaps_of(n, at) {
            add(&mut sum, &one_of(side, n, intervals, gap), times);
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
    // Of as large ones, calls say most.
    let is_call = |metric: Metric| metric.name() == "cat.CALL";
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(is_call(b.1).cmp(&is_call(a.1))).then(a.1.cmp(&b.1)));
    let largest = all.first().map_or(0.0, |first| first.0);
    let counts = all.into_iter().take_while(|(n, _)| *n > 0.0 && *n >= largest / 10.0);
    counts.take(MOST_BECAUSE).map(|(_, metric)| metric).collect()
}
