//! Parts of a comparison that are asked for one by one.

use super::fill::{Sums, count, line, loops, modules, name, number, place};
use crate::input::names::near;
use crate::output::Hinted;
use matching::compare::{
    Anchor, At, Comparison, Counted, Explained, Function, How, Key, Outlier, Point, Side,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use views::compare::kept::KeptComparison;
use views::compare::parts::{
    AnchorRow, ExplainedRow, ExplainedView, IntervalRow, IntervalsView, OutlierView, PointRow, RanBlock,
};
use views::compare::{Amount, Both, CompareView};

/// All intervals.
pub fn intervals(sides: &[Side<'_>; 2], found: &Comparison) -> IntervalsView {
    let row = |(key, of): &(Key, matching::compare::Interval)| {
        let length = |n: usize| if of.times > 0.0 { of.insns[n] / of.times } else { 0.0 };
        let [from, to] = [key.from, key.to].map(|at| both(sides, at));
        IntervalRow {
            function: name(&sides[0], key.functions[0]),
            to: if key.is_inside {
                Both { old: "its next round".into(), new: "its next round".into() }
            } else {
                to
            },
            from,
            times: count(of.times),
            instructions: Both { old: Amount(of.insns[0].round()), new: Amount(of.insns[1].round()) },
            length: Both { old: length(0), new: length(1) },
            confidence: of.sureness().clamp(0.0, 1.0),
        }
    };
    IntervalsView { schema: IntervalsView::SCHEMA, intervals: found.intervals.iter().map(row).collect() }
}

fn both(sides: &[Side<'_>; 2], at: [At; 2]) -> Both<String> {
    Both { old: place(&sides[0], at[0]), new: place(&sides[1], at[1]) }
}

/// Outlier `n`, from 1 on, with its code.
///
/// # Errors
/// If there are not so many.
pub fn one(
    sides: &[Side<'_>; 2],
    found: &Comparison,
    view: &CompareView,
    n: usize,
) -> anyhow::Result<OutlierView> {
    let at = n.checked_sub(1);
    let Some((of, row)) = at.and_then(|at| found.outliers.get(at).zip(view.outliers.get(at))) else {
        return Err(no_outlier(n, found.outliers.len()));
    };
    let blocks = |side: usize| blocks(&sides[side], of, side);
    Ok(OutlierView {
        schema: OutlierView::SCHEMA,
        n,
        interval: row.clone(),
        blocks: Both { old: blocks(0), new: blocks(1) },
    })
}

/// Says that there is no outlier `n` among so many.
pub fn no_outlier(n: usize, n_all: usize) -> anyhow::Error {
    let hint = match n_all {
        0 => "the builds do not differ between any two points".to_owned(),
        len => format!("they are numbered from 1 to {len}, the largest difference first"),
    };
    Hinted::new(format!("there is no outlier {n}"), hint).into()
}

fn blocks(side: &Side<'_>, of: &Outlier, n: usize) -> Vec<RanBlock> {
    let all = of.ran[n].iter().filter_map(|(&at, &runs)| {
        let function = side.code.functions.iter().find(|of| of.blocks.contains(&at))?;
        block(side, function, at, runs)
    });
    let mut all: Vec<RanBlock> = all.collect();
    all.sort_by_key(|block| block.at);
    all
}

/// Block `at` of a function, which ran so often.
fn block(side: &Side<'_>, function: &Function, at: u32, runs: f64) -> Option<RanBlock> {
    let block = side.code.blocks.get(at as usize)?;
    let module = side.modules.get(block.id.0 as usize)?;
    Some(RanBlock {
        function: crate::input::names::whole(&function.bare),
        at: block.at.0,
        line: line(module, block.at),
        runs: Amount(runs.round()),
        instructions: module.program.insns(block.id.1).map(|insn| insn.to_string()).collect(),
    })
}

/// All of a comparison, as a file keeps it.
pub fn kept(sides: &[Side<'_>; 2], found: &Comparison, events: &Sums, view: CompareView) -> KeptComparison {
    let [(old, of_old), (new, of_new)] = [0, 1].map(|n: usize| code(&sides[n]));
    let places = [of_old, of_new];
    let ran = |of: &Outlier, n: usize| {
        let block = |(block, runs): (&u32, &f64)| Some((*places[n].get(block)?, Amount(runs.round())));
        of.ran[n].iter().filter_map(block).collect()
    };
    KeptComparison {
        metric: view.metric.clone(),
        intervals: intervals(sides, found).intervals,
        loops: loops(sides, found),
        modules: modules(sides, found, events),
        ran: found.outliers.iter().map(|of| Both { old: ran(of, 0), new: ran(of, 1) }).collect(),
        code: Both { old, new },
        comparison: view,
        trees: None,
        times: None,
    }
}

/// The blocks of a side that ran; and where each is among these.
fn code(side: &Side<'_>) -> (Vec<RanBlock>, HashMap<u32, usize>) {
    let mut runs: BTreeMap<u32, u64> = BTreeMap::new();
    for (at, what, n) in side.log.gaps.iter().flat_map(|(_, gap)| gap.counts()) {
        if what == Counted::Run {
            *runs.entry(at).or_default() += n;
        }
    }
    let (mut blocks, mut places) = (Vec::new(), HashMap::new());
    for function in &side.code.functions {
        for (&at, &n) in runs.range(function.blocks.clone()) {
            if let Some(block) = block(side, function, at, number(n)) {
                places.insert(at, blocks.len());
                blocks.push(block);
            }
        }
    }
    (blocks, places)
}

/// Points that are the same.
pub fn anchors(all: &[Anchor]) -> Vec<AnchorRow> {
    let point = |point: Point| PointRow { thread: point.thread.0, index: point.index, at: point.at.0 };
    let row = |anchor: &Anchor| AnchorRow {
        old: point(anchor.points[0]),
        new: point(anchor.points[1]),
        confidence: anchor.confidence,
    };
    all.iter().map(row).collect()
}

/// What the functions that ran are called.
fn ran(side: &Side<'_>) -> BTreeSet<String> {
    let numbers: BTreeSet<u32> = side.log.activities.iter().map(|of| of.function).collect();
    numbers
        .into_iter()
        .filter(|of| (*of as usize) < side.code.functions.len())
        .map(|of| name(side, of))
        .collect()
}

/// The bare name of the function that people call like this, or that itself.
pub fn bare_name<'a>(sides: &[Side<'a>; 2], asked: &'a str) -> &'a str {
    let all = sides.iter().flat_map(|side| &side.code.functions);
    let mut bare = all.map(|of| &*of.bare);
    bare.find(|bare| *bare == asked || crate::input::names::whole(bare) == asked).unwrap_or(asked)
}

/// How it was found out what is what in a function.
///
/// # Errors
/// If it did not run.
pub fn explained(sides: &[Side<'_>; 2], asked: &str, all: &[Explained]) -> anyhow::Result<ExplainedView> {
    if all.is_empty() {
        let ran = [0, 1].map(|n: usize| ran(&sides[n]));
        let what = match [0, 1].map(|n: usize| ran[n].contains(asked)) {
            [true, true] => format!(
                "{asked} was not paired in the two runs, or calls nothing that is traced and has no loops"
            ),
            [false, false] => format!("no function {asked} ran"),
            [is_old, _] => {
                let (which, other) = if is_old { ("old", "new") } else { ("new", "old") };
                format!(
                    "{asked} ran in the {which} build alone; in the {other} one, it may have been inlined"
                )
            }
        };
        let names: BTreeSet<&String> = ran.iter().flatten().collect();
        let alike = near(names.into_iter().map(String::as_str).filter(|name| *name != asked), asked);
        let hint = match alike.is_empty() {
            true => "`engraft compare --functions` lists those that ran".to_owned(),
            false => format!("perhaps {}", alike.join(", ")),
        };
        return Err(Hinted::new(what, hint).into());
    }
    let row = |of: &Explained| ExplainedRow {
        at: Both {
            old: of.at[0].map(|at| place(&sides[0], at)),
            new: of.at[1].map(|at| place(&sides[1], at)),
        },
        how: match of.how {
            _ if of.at.contains(&None) => "alone",
            How::Line => "line",
            How::NearLine => "near-line",
            How::Names => "names",
            How::Block => "block",
            How::Calls => "calls",
            How::Pinned => "pinned",
            How::Alone => "alone",
        },
        times: Both { old: count(of.times[0]), new: count(of.times[1]) },
        paired: count(of.paired),
    };
    Ok(ExplainedView {
        schema: ExplainedView::SCHEMA,
        name: asked.to_owned(),
        events: all.iter().map(row).collect(),
    })
}
