//! What `engraft match` says: rates after each stage, every pair with its method, what is left over and why.
//!
//! Source of the tables' form: BMAT, tables 3 to 5.

use crate::{Table, View, address, percent};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{self, Write};

pub mod explain;

/// A whole matching.
#[derive(Debug, Serialize, Deserialize)]
pub struct MatchView {
    /// What this object is, and which version of it.
    #[serde(skip_deserializing, default = "schema")]
    pub schema: &'static str,
    /// The earlier build.
    pub old: BuildView,
    /// The later build.
    pub new: BuildView,
    /// How much was matched.
    pub rates: RatesView,
    /// Pairs of functions.
    pub functions: Vec<FunctionRow>,
    /// Pairs of blocks; of a new block, the old one that it has most of comes first.
    pub blocks: Vec<BlockRow>,
    /// Pairs of data objects.
    pub data: Vec<DataRow>,
    /// Functions of the old build without a counterpart.
    pub unmatched_old: Vec<LeftRow>,
    /// Functions of the new build without one.
    pub unmatched_new: Vec<LeftRow>,
    /// How many unmatched functions the text lists a side.
    #[serde(skip)]
    pub listed: usize,
}

fn schema() -> &'static str {
    MatchView::SCHEMA
}

impl MatchView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.match/1";
}

/// One of the two builds.
#[derive(Debug, Serialize, Deserialize)]
pub struct BuildView {
    /// The file, as it was named.
    pub binary: String,
    /// What identifies its code and data.
    pub image_id: String,
    /// Its build-id in hexadecimal, if it has one.
    pub build_id: Option<String>,
}

/// How much was matched.
#[derive(Debug, Serialize, Deserialize)]
pub struct RatesView {
    /// Of functions.
    pub functions: RateView,
    /// Of blocks.
    pub blocks: RateView,
    /// Of data objects.
    pub data: RateView,
}

/// How much of one sort was matched.
#[derive(Debug, Serialize, Deserialize)]
pub struct RateView {
    /// How many the old build has.
    pub n_old: usize,
    /// How many the new build has.
    pub n_new: usize,
    /// Those of the old build with a counterpart.
    pub matched_old: usize,
    /// Those of the new build with one.
    pub matched_new: usize,
    /// The same after each stage.
    pub stages: Vec<StageView>,
}

/// What was matched after a stage.
#[derive(Debug, Serialize, Deserialize)]
pub struct StageView {
    /// Its name.
    pub stage: Cow<'static, str>,
    /// How many of the new build have a counterpart by then.
    pub matched_new: usize,
}

/// A pair of functions.
#[derive(Debug, Serialize, Deserialize)]
pub struct FunctionRow {
    /// Where the old one starts.
    pub old: u64,
    /// Where the new one starts.
    pub new: u64,
    /// The name of the old one.
    pub old_name: String,
    /// The name of the new one.
    pub new_name: String,
    /// The pass that found it.
    pub method: String,
    /// How sure that pass is, `0.0..=1.0`.
    pub confidence: f32,
}

/// A pair of blocks.
#[derive(Debug, Serialize, Deserialize)]
pub struct BlockRow {
    /// Where the old one starts.
    pub old: u64,
    /// Where the new one starts.
    pub new: u64,
    /// The pass that found it.
    pub method: String,
    /// How sure that pass is, `0.0..=1.0`.
    pub confidence: f32,
    /// How much of the old one's flow the new one has, `0.0..=1.0`.
    pub share: f32,
    /// Whether the new block has only a part of the old one's flow.
    pub partial: bool,
}

/// A pair of data objects.
#[derive(Debug, Serialize, Deserialize)]
pub struct DataRow {
    /// Where the old one starts.
    pub old: u64,
    /// Where the new one starts.
    pub new: u64,
    /// The pass that found it.
    pub method: String,
}

/// A function without a counterpart.
#[derive(Debug, Serialize, Deserialize)]
pub struct LeftRow {
    /// Its address.
    pub at: u64,
    /// Its name: the symbol, where there is one.
    pub name: String,
    /// How many blocks it has.
    pub n_blocks: usize,
    /// Why it has none.
    pub why: String,
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
                address(f.old),
                address(f.new),
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
                address(b.old),
                address(b.new),
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
                address(d.old),
                address(d.new),
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
        self.rates.text(w)?;
        for (which, rows) in [("old", &self.unmatched_old), ("new", &self.unmatched_new)] {
            self.unmatched(w, which, rows)?;
        }
        Ok(())
    }
}

impl RatesView {
    /// A table of the rates, and one of what each stage found.
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let all = [("functions", &self.functions), ("blocks", &self.blocks), ("data", &self.data)];
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
                    stage.stage.to_string(),
                    stage.matched_new.to_string(),
                    percent(stage.matched_new, rate.n_new),
                ]);
            }
        }
        t.text(w)
    }
}

impl MatchView {
    /// The functions of one build without a counterpart.
    fn unmatched(&self, w: &mut dyn Write, which: &str, rows: &[LeftRow]) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(w, "\nunmatched in {which}: {}", rows.len())?;
        let mut t = Table::new(&["at>", "blocks>", "function", "why"]);
        for l in rows.iter().take(self.listed) {
            t.row([address(l.at), l.n_blocks.to_string(), l.name.clone(), l.why.clone()]);
        }
        t.text(w)?;
        match rows.len().checked_sub(self.listed).filter(|n| *n > 0) {
            Some(n) => writeln!(w, "and {n} more: --all lists them"),
            None => Ok(()),
        }
    }
}

/// Functions of either build without a counterpart.
#[derive(Debug, Serialize)]
pub struct Unmatched<'a> {
    /// What this object is, and which version of it.
    schema: &'static str,
    /// Of the old build.
    unmatched_old: &'a [LeftRow],
    /// Of the new build.
    unmatched_new: &'a [LeftRow],
}

impl<'a> Unmatched<'a> {
    /// Those of a matching, whose JSON has them, too.
    pub fn of(view: &'a MatchView) -> Unmatched<'a> {
        let MatchView { schema, unmatched_old, unmatched_new, .. } = view;
        Unmatched { schema, unmatched_old, unmatched_new }
    }
}

impl View for Unmatched<'_> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["build", "at>", "blocks>", "function", "why"]);
        let all = [("old", self.unmatched_old), ("new", self.unmatched_new)];
        for (build, row) in all.iter().flat_map(|(build, rows)| rows.iter().map(move |row| (build, row))) {
            let (at, n) = (address(row.at), row.n_blocks.to_string());
            t.row([(*build).to_owned(), at, n, row.name.clone(), row.why.clone()]);
        }
        t
    }
}
