//! What is compared, as views have it.

use super::Args;
use crate::input::names::whole;
use matching::compare::{
    At, Comparison, Events, FunctionMix, FunctionPair, How, LoopPair, NONE, Outlier, Place, Side,
    TracedModule, Unsteady, Wasted,
};
use program::{Metric, Mix, Va, Waste};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use views::compare::tables::{LoopRow, ModuleRow};
use views::compare::{
    Amount, Both, CompareView, EVENTS, FunctionRow, Matched, MatchedEvents, OutlierRow, Reason, RunsView,
    UnmatchedRow, WastedRow,
};

/// Of events, by metric and build: how many each function has.
pub type Sums = BTreeMap<String, [BTreeMap<u32, f64>; 2]>;

/// The comparison, as it is asked for; with what is by chance, by build.
pub fn view(
    args: &Args,
    runs: Option<&RunsView>,
    (sides, unsteady): (&[Side<'_>; 2], &[Unsteady; 2]),
    found: &Comparison,
    events: &Sums,
) -> CompareView {
    let mut functions = Vec::new();
    let mut unmatched: Both<Vec<UnmatchedRow>> = Both::default();
    for pair in &found.functions {
        match &pair.sides {
            [Some(old), Some(new)] => functions.push(FunctionRow {
                name: whole(&pair.name),
                old: metrics(old, 0, events),
                new: metrics(new, 1, events),
                confidence: pair.confidence(),
                how: how_function(pair.how).to_owned(),
                module: Both { old: module_of(&sides[0], old), new: module_of(&sides[1], new) },
                repeats: repeats(pair, unsteady),
            }),
            [Some(old), None] => unmatched.old.push(alone(&pair.name, old, 0, (sides, found, events))),
            [None, Some(new)] => unmatched.new.push(alone(&pair.name, new, 1, (sides, found, events))),
            [None, None] => {}
        }
    }
    let told_by = match args.metric.starts_with(EVENTS) {
        true => args.metric.clone(),
        false => format!("dyn.{}", super::told_by(args).name()),
    };
    let mut view = CompareView {
        schema: CompareView::SCHEMA,
        traces: Both { old: shown(&args.old), new: shown(&args.new) },
        runs: runs.cloned(),
        totals: Both { old: totals(found, 0, events), new: totals(found, 1, events) },
        matched: matched(found),
        functions,
        unmatched,
        outliers: found.outliers.iter().map(|of| outlier(sides, of, &told_by)).collect(),
        unsteady: found.n_unsteady as u64,
        wasted: Both { old: wasted(&sides[0], &found.wasted[0]), new: wasted(&sides[1], &found.wasted[1]) },
        anchors: None,
        metric: args.metric.clone(),
    };
    sort(&mut view);
    view
}

/// Sorts functions by the difference of the metric that is shown.
fn sort(view: &mut CompareView) {
    let metric = view.metric.clone();
    let difference = |row: &FunctionRow| (amount(&row.new, &metric) - amount(&row.old, &metric)).abs();
    let by = |a: &FunctionRow, b: &FunctionRow| {
        difference(b).total_cmp(&difference(a)).then_with(|| a.name.cmp(&b.name))
    };
    view.functions.sort_by(by);
}

fn shown(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| path.display().to_string())
}

/// How much there is of a metric; 0, if there is nothing.
pub fn amount(all: &BTreeMap<String, Amount>, metric: &str) -> f64 {
    all.get(metric).copied().unwrap_or_default().0
}

/// A count, as numbers of metrics are.
#[expect(clippy::cast_precision_loss, reason = "counts up to 2⁵³ are exact")]
pub fn number(n: u64) -> f64 {
    n as f64
}

/// All that is known of a mix; those of which there is nothing are left out.
fn of_mix(prefix: &str, mix: &Mix, into: &mut BTreeMap<String, Amount>) {
    for (metric, n) in mix.iter() {
        into.insert(format!("{prefix}.{}", metric.name()), Amount(number(n)));
    }
    for name in ["vec.width", "vec.packed_share"] {
        mix.derived(name).into_iter().for_each(|n| {
            into.insert(format!("{prefix}.{name}"), Amount(n));
        });
    }
}

/// All that is known of what ran, of a mix alone.
pub fn of_run(mix: &Mix) -> BTreeMap<String, Amount> {
    let mut all = BTreeMap::new();
    of_mix("dyn", mix, &mut all);
    all
}

/// All that is known of a run.
fn totals(found: &Comparison, n: usize, events: &Sums) -> BTreeMap<String, Amount> {
    let mut all = BTreeMap::new();
    of_mix("dyn", &found.totals[n], &mut all);
    let (mut fixed, mut calls) = (Mix::default(), 0);
    for of in found.functions.iter().filter_map(|pair| pair.sides[n].as_ref()) {
        fixed.add_times(&of.fixed, 1);
        calls += of.calls;
    }
    of_mix("stat", &fixed, &mut all);
    all.insert("calls".to_owned(), Amount(number(calls)));
    for (metric, by_function) in events {
        let sum: f64 = by_function[n].values().sum();
        all.insert(metric.clone(), Amount(sum.round()));
    }
    all
}

/// All that is known of a function of side `n`.
pub fn metrics(of: &FunctionMix, n: usize, events: &Sums) -> BTreeMap<String, Amount> {
    let mut all = BTreeMap::new();
    of_mix("dyn", &of.dynamic, &mut all);
    of_mix("stat", &of.fixed, &mut all);
    all.insert("calls".to_owned(), Amount(number(of.calls)));
    for (metric, by_function) in events {
        let sum: f64 = of.functions.iter().filter_map(|function| by_function[n].get(function)).sum();
        all.insert(metric.clone(), Amount(sum.round()));
    }
    all
}

/// A function that side `n` alone has.
fn alone(
    name: &str,
    of: &FunctionMix,
    n: usize,
    (sides, found, events): (&[Side<'_>; 2], &Comparison, &Sums),
) -> UnmatchedRow {
    let instructions = of.dynamic.get(Metric::Total);
    let share = views::ratio(instructions, found.totals[n].get(Metric::Total));
    let (module, metrics) = (module_of(&sides[n], of), metrics(of, n, events));
    UnmatchedRow { name: whole(name), instructions, share, module, metrics }
}

/// The file that a function is in.
fn module_of(side: &Side<'_>, of: &FunctionMix) -> String {
    let function = of.functions.first().and_then(|of| side.code.functions.get(*of as usize));
    let module = function.and_then(|of| side.modules.get(of.module as usize));
    module.map_or_else(String::new, |of| of.name.clone())
}

/// Whether two runs of each build did the same in a function; nothing, if there was one of each.
pub fn repeats(pair: &FunctionPair, unsteady: &[Unsteady; 2]) -> Option<bool> {
    let of = |n: usize| pair.sides[n].as_ref().map(|of| unsteady[n].has_function(of));
    let known: Vec<bool> = [of(0), of(1)].into_iter().flatten().collect::<Option<_>>()?;
    Some(!known.contains(&true))
}

/// How it was found out that a function of both builds is one.
fn how_function(how: How) -> &'static str {
    match how {
        How::Line | How::NearLine | How::Names => "names",
        How::Block => "match",
        How::Calls => "calls",
        How::Pinned => "pinned",
        How::Alone => "alone",
    }
}

/// All loops that ran.
pub fn loops(sides: &[Side<'_>; 2], found: &Comparison) -> Vec<LoopRow> {
    let row = |of: &LoopPair| {
        let at = |n: usize| of.at[n].map(|at| place(&sides[n], at));
        let function = [0, 1].into_iter().find_map(|n: usize| of.at[n].map(|at| name(&sides[n], at.0)));
        LoopRow {
            function: function.unwrap_or_default(),
            at: Both { old: at(0), new: at(1) },
            rounds: Both { old: of.rounds[0], new: of.rounds[1] },
            old: of_run(&of.mixes[0]),
            new: of_run(&of.mixes[1]),
        }
    };
    found.loops.iter().map(row).collect()
}

/// What the functions of each module add up to. The programs themselves are one, whatever they are called;
/// libraries are if they are called alike.
pub fn modules(sides: &[Side<'_>; 2], found: &Comparison, events: &Sums) -> Vec<ModuleRow> {
    let sums = [0, 1].map(|n: usize| {
        let mut sums: BTreeMap<u32, FunctionMix> = BTreeMap::new();
        for of in found.functions.iter().filter_map(|pair| pair.sides[n].as_ref()) {
            let function = of.functions.first().and_then(|of| sides[n].code.functions.get(*of as usize));
            let Some(function) = function else { continue };
            let sum = sums.entry(function.module).or_default();
            sum.dynamic.add_times(&of.dynamic, 1);
            sum.fixed.add_times(&of.fixed, 1);
            sum.calls += of.calls;
            sum.functions.extend(&of.functions);
        }
        sums
    });
    let name = |n: usize, module: u32| sides[n].modules.get(module as usize).map(|of| of.name.clone());
    let mut taken = BTreeSet::new();
    let mut rows = Vec::new();
    for (&old, sum) in &sums[0] {
        let is_it = |new: &&u32| (old == 0) == (**new == 0) && (old == 0 || name(0, old) == name(1, **new));
        let new = sums[1].keys().find(is_it).copied();
        taken.extend(new);
        rows.push(ModuleRow {
            module: Both { old: name(0, old), new: new.and_then(|new| name(1, new)) },
            old: metrics(sum, 0, events),
            new: new.and_then(|new| sums[1].get(&new)).map(|of| metrics(of, 1, events)).unwrap_or_default(),
        });
    }
    for (&new, sum) in sums[1].iter().filter(|(new, _)| !taken.contains(new)) {
        let module = Both { old: None, new: name(1, new) };
        rows.push(ModuleRow { module, old: BTreeMap::new(), new: metrics(sum, 1, events) });
    }
    rows
}

/// A count, rounded.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, rounded")]
pub fn count(n: f64) -> u64 {
    n.round() as u64
}

fn matched(found: &Comparison) -> Matched {
    let events = |of: fn(&Events) -> f64| {
        let smaller = if of(&found.events[0]) <= of(&found.events[1]) { 0 } else { 1 };
        let matched = count(of(&found.paired[smaller]));
        MatchedEvents { smaller: count(of(&found.events[smaller])), matched }
    };
    let share = |of: fn(&matching::compare::Lengths) -> f64| {
        let share = |n: usize| {
            let lengths = &found.lengths[n];
            if lengths.all > 0.0 { of(lengths) / lengths.all } else { 0.0 }
        };
        Both { old: share(0), new: share(1) }
    };
    let smaller = if found.events[0].heavy <= found.events[1].heavy { 0 } else { 1 };
    Matched {
        light: events(|of| of.light),
        heavy: events(|of| of.heavy),
        heavy_as_a_whole: count(found.whole_rounds[smaller]),
        instructions: Both { old: count(found.lengths[0].all), new: count(found.lengths[1].all) },
        at_most_64: share(|of| of.short),
        at_most_1000: share(|of| of.medium),
    }
}

/// An interval in which the builds differ.
fn outlier(sides: &[Side<'_>; 2], of: &Outlier, by: &str) -> OutlierRow {
    let function = |n: usize| name(&sides[n], of.key.functions[n]);
    let place = |at: [At; 2]| Both { old: place(&sides[0], at[0]), new: place(&sides[1], at[1]) };
    let reason = |metric: &Metric| {
        let n = *metric as usize;
        let of = |side: usize| Amount(of.mixes[side].get(n).copied().unwrap_or_default().round());
        Reason { metric: format!("dyn.{}", metric.name()), old: of(0), new: of(1) }
    };
    // What no instruction says of itself is no metric of these.
    let by_event = by.starts_with(EVENTS).then(|| Reason {
        metric: by.to_owned(),
        old: Amount(of.amount[0].round()),
        new: Amount(of.amount[1].round()),
    });
    let to = match of.key.is_inside {
        true => {
            let rounds = of.rounds.map(count);
            Both { old: format!("{} rounds", rounds[0]), new: format!("{} rounds", rounds[1]) }
        }
        false => place(of.key.to),
    };
    OutlierRow {
        function: function(0),
        from: place(of.key.from),
        to,
        metric: by.to_owned(),
        old: Amount(of.amount[0].round()),
        new: Amount(of.amount[1].round()),
        times: count(of.times),
        confidence: of.confidence.clamp(0.0, 1.0),
        because: by_event.into_iter().chain(of.because.iter().map(reason)).collect(),
        remarks: Vec::new(),
    }
}

fn wasted(side: &Side<'_>, all: &[Wasted]) -> Vec<WastedRow> {
    let row = |of: &Wasted| {
        let function = side.code.functions.get(of.function as usize);
        let module = side.modules.get(function.map_or(NONE, |of| of.module) as usize);
        WastedRow {
            function: name(side, of.function),
            at: of.at.0,
            line: module.and_then(|module| line(module, of.at)),
            what: match of.what {
                Waste::JumpToNext => "jump-to-next",
                Waste::JumpToReturn => "jump-to-return",
                Waste::SpilledAndRefilled(_) => "spilled-and-refilled",
            }
            .to_owned(),
            runs: of.runs,
            instructions: of.insns,
        }
    };
    all.iter().map(row).collect()
}

/// The file and line that the instruction there was written in, if they are known.
pub fn line(module: &TracedModule<'_>, at: Va) -> Option<String> {
    let (file, line) = module.lines.as_ref()?.at(at).filter(|(_, line)| *line > 0)?;
    Some(format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)))
}

/// The name of a function, as people say it.
pub fn name(side: &Side<'_>, function: u32) -> String {
    let of = side.code.functions.get(function as usize);
    of.map_or_else(|| "a thread".to_owned(), |of| whole(&of.bare))
}

/// A place as people say it.
pub fn place(side: &Side<'_>, (function, place): At) -> String {
    let line = |at: Va| {
        let of = side.code.functions.get(function as usize).map_or(NONE, |of| of.module);
        side.modules.get(of as usize).and_then(|module| line(module, at)).unwrap_or_else(|| at.to_string())
    };
    match place {
        Place::Start => "entry".to_owned(),
        Place::End => "exit".to_owned(),
        Place::Called(function) => format!("a call of {}", name(side, function)),
        Place::Site(site) => match side.code.sites.get(site as usize) {
            Some(site) => format!("the call at {}", line(site.at)),
            None => "a call".to_owned(),
        },
        Place::Rounds(of) => match side.code.loops.get(of as usize) {
            Some(of) => format!("the loop at {}", line(of.header)),
            None => "a loop".to_owned(),
        },
    }
}
