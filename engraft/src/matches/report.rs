//! `engraft match OLD NEW`: rates after each stage, every pair with its method, what is left over and why.
//!
//! Source of the tables' form: BMAT, tables 3 to 5.

use matching::{LeftOver, Matching, Rates, Report, Why};
use program::{Program, Va};
use serde::Serialize;
use std::io::{self, Write};
use views::{Table, View, percent};

/// A whole matching.
#[derive(Serialize)]
pub struct MatchView {
    schema: &'static str,
    old: BuildView,
    new: BuildView,
    rates: RatesView,
    functions: Vec<FunctionRow>,
    blocks: Vec<BlockRow>,
    data: Vec<DataRow>,
    unmatched_old: Vec<LeftRow>,
    unmatched_new: Vec<LeftRow>,
    /// How many unmatched functions the text lists a side.
    #[serde(skip)]
    listed: usize,
}

#[derive(Serialize)]
struct BuildView {
    binary: String,
    image_id: String,
    build_id: Option<String>,
}

#[derive(Serialize)]
struct RatesView {
    functions: RateView,
    blocks: RateView,
    data: RateView,
}

#[derive(Serialize)]
struct RateView {
    n_old: usize,
    n_new: usize,
    matched_old: usize,
    matched_new: usize,
    stages: Vec<StageView>,
}

#[derive(Serialize)]
struct StageView {
    stage: &'static str,
    matched_new: usize,
}

#[derive(Serialize)]
struct FunctionRow {
    old: u64,
    new: u64,
    old_name: String,
    new_name: String,
    method: String,
    confidence: f32,
}

#[derive(Serialize)]
struct BlockRow {
    old: u64,
    new: u64,
    method: String,
    confidence: f32,
    share: f32,
    partial: bool,
}

#[derive(Serialize)]
struct DataRow {
    old: u64,
    new: u64,
    method: String,
}

#[derive(Serialize)]
struct LeftRow {
    at: u64,
    name: String,
    n_blocks: usize,
    why: String,
}

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
        schema: "engraft.match/1",
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
        stages: rates.stages.iter().map(|&(stage, matched_new)| StageView { stage, matched_new }).collect(),
    }
}

fn left(ours: &Program, theirs: &Program, left: &LeftOver, other: &str) -> LeftRow {
    let f = ours.function(left.func);
    LeftRow {
        at: f.entry.0,
        name: f.name(),
        n_blocks: f.n_blocks(),
        why: match left.why {
            Why::NameTaken(instead) => {
                format!("{other}'s function of this name is matched to {}", ours.function(instead).name())
            }
            Why::NameFree(free) => {
                format!("not matched to {other}'s function of this name at {}", theirs.function(free).entry)
            }
            Why::NotImported => format!("{other} does not import it"),
            Why::NoSuchName => format!("{other} has no function of this name, and none like it is free"),
            Why::Ambiguous(1) => format!("a free function of {other} has the same instructions"),
            Why::Ambiguous(n) => format!("{n} free functions of {other} have the same instructions"),
            Why::Unlike => format!("no free function of {other} is like it"),
        },
    }
}

impl View for MatchView {
    /// A row a pair: functions, then blocks, then data.
    fn table(&self) -> Table {
        let mut t = Table::new(&[
            "kind",
            "old>",
            "new>",
            "method",
            "confidence>",
            "share>",
            "partial",
            "old name",
            "new name",
        ]);
        for f in &self.functions {
            t.row([
                "function".into(),
                Va(f.old).to_string(),
                Va(f.new).to_string(),
                f.method.clone(),
                format!("{:.3}", f.confidence),
                String::new(),
                String::new(),
                f.old_name.clone(),
                f.new_name.clone(),
            ]);
        }
        for b in &self.blocks {
            t.row([
                "block".into(),
                Va(b.old).to_string(),
                Va(b.new).to_string(),
                b.method.clone(),
                format!("{:.3}", b.confidence),
                format!("{:.3}", b.share),
                if b.partial { "yes" } else { "no" }.into(),
                String::new(),
                String::new(),
            ]);
        }
        for d in &self.data {
            let empty = String::new;
            t.row([
                "data".into(),
                Va(d.old).to_string(),
                Va(d.new).to_string(),
                d.method.clone(),
                empty(),
                empty(),
                empty(),
                empty(),
                empty(),
            ]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        writeln!(w, "old  {}  image {}", self.old.binary, self.old.image_id)?;
        writeln!(w, "new  {}  image {}\n", self.new.binary, self.new.image_id)?;
        let r = &self.rates;
        let all = [("functions", &r.functions), ("blocks", &r.blocks), ("data", &r.data)];
        let mut t = Table::new(&["", "in old>", "in new>", "one to one, at most>", "matched>", "rate>"]);
        for (what, rate) in all {
            t.row([
                what.into(),
                rate.n_old.to_string(),
                rate.n_new.to_string(),
                percent(rate.n_old.min(rate.n_new), rate.n_new),
                rate.matched_new.to_string(),
                percent(rate.matched_new, rate.n_new),
            ]);
        }
        t.text(w)?;
        writeln!(w)?;
        let mut t = Table::new(&["after matching", "by", "matched>", "rate>"]);
        for (what, rate) in all {
            let mut before = 0;
            // A stage that found nothing is not worth a line.
            for stage in
                rate.stages.iter().filter(|s| std::mem::replace(&mut before, s.matched_new) < s.matched_new)
            {
                t.row([
                    what.into(),
                    stage.stage.into(),
                    stage.matched_new.to_string(),
                    percent(stage.matched_new, rate.n_new),
                ]);
            }
        }
        t.text(w)?;
        for (which, rows) in [("old", &self.unmatched_old), ("new", &self.unmatched_new)] {
            if rows.is_empty() {
                continue;
            }
            writeln!(w, "\nunmatched in {which}: {}", rows.len())?;
            let mut t = Table::new(&["at>", "blocks>", "function", "why"]);
            for l in rows.iter().take(self.listed) {
                t.row([Va(l.at).to_string(), l.n_blocks.to_string(), l.name.clone(), l.why.clone()]);
            }
            t.text(w)?;
            if rows.len() > self.listed {
                writeln!(w, "and {} more: --all lists them", rows.len() - self.listed)?;
            }
        }
        Ok(())
    }
}
