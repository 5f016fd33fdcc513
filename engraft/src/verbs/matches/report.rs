//! `engraft match OLD NEW`: rates after each stage, every pair with its method, what is left over and why.
//!
//! Source of the tables' form: BMAT, tables 3 to 5.

use matching::{LeftOver, LeftOverReason, Matching, Rates, Report};
use program::Program;
use views::matches::{
    BlockRow, BuildView, DataRow, FunctionRow, LeftRow, MatchView, RateView, RatesView, StageView,
};

/// Everything that `matching` says of `old` and `new`.
pub fn view(old: &Program, new: &Program, matching: &Matching, full: bool) -> MatchView {
    let report = Report::of(matching, old, new);
    let mut blocks: Vec<_> = matching.blocks.iter().collect();
    // The first old block that a new one names is the one it has most of.
    blocks.sort_by(|a, b| {
        let by_weight = (b.share * b.confidence).total_cmp(&(a.share * a.confidence));
        a.new.cmp(&b.new).then(by_weight).then(a.old.cmp(&b.old))
    });
    MatchView {
        schema: MatchView::SCHEMA,
        old: build(old),
        new: build(new),
        rates: RatesView {
            functions: rate(&report.functions),
            blocks: rate(&report.blocks),
            data: rate(&report.data),
        },
        functions: matching
            .functions
            .iter()
            .map(|m| FunctionRow {
                old: old.function(m.old).entry.0,
                new: new.function(m.new).entry.0,
                old_name: old.function(m.old).name(),
                new_name: new.function(m.new).name(),
                method: m.method.to_string(),
                confidence: m.confidence,
            })
            .collect(),
        blocks: blocks
            .iter()
            .map(|m| BlockRow {
                old: old.block(m.old).start.0,
                new: new.block(m.new).start.0,
                method: m.method.to_string(),
                confidence: m.confidence,
                share: m.share,
                partial: m.partial,
            })
            .collect(),
        data: matching
            .data
            .iter()
            .map(|m| DataRow {
                old: old.data[m.old].range.start.0,
                new: new.data[m.new].range.start.0,
                method: m.method.to_string(),
            })
            .collect(),
        unmatched_old: report.left_old.iter().map(|l| left(old, new, l, "NEW")).collect(),
        unmatched_new: report.left_new.iter().map(|l| left(new, old, l, "OLD")).collect(),
        listed: if full { usize::MAX } else { 10 },
    }
}

fn build(program: &Program) -> BuildView {
    BuildView {
        binary: program.image.name.clone(),
        image_id: program.image.id.to_string(),
        build_id: program.image.build_id.as_ref().map(|id| id.iter().map(|b| format!("{b:02x}")).collect()),
    }
}

fn rate(rates: &Rates) -> RateView {
    RateView {
        n_old: rates.n_old,
        n_new: rates.n_new,
        matched_old: rates.matched_old,
        matched_new: rates.matched_new,
        stages: rates
            .stages
            .iter()
            .map(|&(stage, matched_new)| StageView { stage: stage.into(), matched_new })
            .collect(),
    }
}

fn left(ours: &Program, theirs: &Program, left: &LeftOver, other: &str) -> LeftRow {
    let f = ours.function(left.func);
    LeftRow {
        at: f.entry.0,
        name: f.name(),
        n_blocks: f.n_blocks(),
        why: match left.why {
            LeftOverReason::NameTaken(instead) => {
                format!("{other}'s function of this name is matched to {}", ours.function(instead).name())
            }
            LeftOverReason::NameFree(free) => {
                format!("not matched to {other}'s function of this name at {}", theirs.function(free).entry)
            }
            LeftOverReason::NotImported => format!("{other} does not import it"),
            LeftOverReason::NoSuchName => {
                format!("{other} has no function of this name, and none like it is free")
            }
            LeftOverReason::Ambiguous(1) => format!("a free function of {other} has the same instructions"),
            LeftOverReason::Ambiguous(n) => {
                format!("{n} free functions of {other} have the same instructions")
            }
            LeftOverReason::Unlike => format!("no free function of {other} is like it"),
        },
    }
}
