//! Parts of a comparison that are asked for one by one.

use super::fill::{count, name, place};
use crate::input::names::near;
use crate::output::Hinted;
use matching::compare::{Anchor, At, Comparison, Explained, How, Key, Outlier, Point, Side};
use std::collections::BTreeSet;
use views::compare::parts::{
    AnchorRow, AnchorsView, ExplainedRow, ExplainedView, IntervalRow, IntervalsView, OutlierView, PointRow,
    RanBlock,
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
        let what = format!("there is no outlier {n}");
        let hint = match found.outliers.len() {
            0 => "the builds do not differ between any two points".to_owned(),
            len => format!("they are numbered from 1 to {len}, the largest difference first"),
        };
        return Err(Hinted::new(what, hint).into());
    };
    let blocks = |side: usize| blocks(&sides[side], of, side);
    Ok(OutlierView {
        schema: OutlierView::SCHEMA,
        n,
        interval: row.clone(),
        blocks: Both { old: blocks(0), new: blocks(1) },
    })
}

fn blocks(side: &Side<'_>, of: &Outlier, n: usize) -> Vec<RanBlock> {
    let all = of.ran[n].iter().filter_map(|(&block, &runs)| {
        let function = side.code.functions.iter().find(|of| of.blocks.contains(&block))?;
        let block = side.code.blocks.get(block as usize)?;
        let module = side.modules.get(block.id.0 as usize)?;
        let found = module.lines.as_ref().and_then(|lines| lines.at(block.at)).filter(|(_, line)| *line > 0);
        Some(RanBlock {
            function: crate::input::names::whole(&function.bare),
            at: block.at.0,
            line: found.map(|(file, line)| format!("{}:{line}", file.rsplit('/').next().unwrap_or(file))),
            runs: Amount(runs.round()),
            instructions: module.program.insns(block.id.1).map(|insn| insn.to_string()).collect(),
        })
    });
    let mut all: Vec<RanBlock> = all.collect();
    all.sort_by_key(|block| block.at);
    all
}

/// Points that are the same.
pub fn anchors(all: &[Anchor]) -> AnchorsView {
    let point = |point: Point| PointRow { thread: point.thread.0, index: point.index, at: point.at.0 };
    let row = |anchor: &Anchor| AnchorRow {
        old: point(anchor.points[0]),
        new: point(anchor.points[1]),
        confidence: anchor.confidence,
    };
    AnchorsView { schema: AnchorsView::SCHEMA, anchors: all.iter().map(row).collect() }
}

/// How it was found out what is what in a function.
///
/// # Errors
/// If it did not run.
pub fn explained(sides: &[Side<'_>; 2], asked: &str, all: &[Explained]) -> anyhow::Result<ExplainedView> {
    if all.is_empty() {
        let names: BTreeSet<&str> =
            sides.iter().flat_map(|side| &side.code.functions).map(|of| &*of.bare).collect();
        let what = match names.contains(asked) {
            true => format!("{asked} calls nothing in either run, and has no loops"),
            false => format!("no function {asked} ran"),
        };
        let alike = near(names.into_iter().filter(|name| *name != asked), asked);
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
