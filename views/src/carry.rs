//! What `engraft carry` says: what became of a profile, what it is expected to be worth, what was written.

use crate::{Table, View, address, many, share};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{self, Write};

pub mod score;

/// What became of a profile.
#[derive(Debug, Serialize, Deserialize)]
pub struct CarryView {
    /// What this object is, and which version of it.
    #[serde(skip_deserializing, default = "schema")]
    pub schema: &'static str,
    /// The profile of the first build.
    pub profile: String,
    /// What of it has a place there.
    pub input: InputView,
    /// The fresh profile that it was merged with.
    pub merged_with: Option<String>,
    /// From each build to the next.
    pub steps: Vec<StepView>,
    /// Without `--merge`: what it is expected to be worth against a fresh profile.
    pub predicted: PredictedView,
    /// What `--require` asked for, and whether it holds.
    pub required: Option<GateView>,
    /// Between what the counts of blocks must lie that have only a part of an old block's flow, or no match.
    pub ranges: Vec<RangeView>,
    /// What was written.
    pub written: WrittenView,
}

fn schema() -> &'static str {
    CarryView::SCHEMA
}

impl CarryView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.carry/1";
}

/// What of the profile has a place in OLD.
#[derive(Debug, Serialize, Deserialize)]
pub struct InputView {
    /// The format of the profile.
    pub format: Cow<'static, str>,
    /// Counts that have a place.
    pub kept_count: u64,
    /// Counts that have none.
    pub lost_count: u64,
    /// The share of those, `0.0..=1.0`.
    pub lost_share: f64,
    /// What and why, the largest first.
    pub lost: Vec<LeftOutView>,
}

/// What a carried profile is expected to be worth against a fresh one.
#[derive(Debug, Serialize, Deserialize)]
pub struct PredictedView {
    /// Of branch prediction (BMAT, 4.3), `0.0..=1.0`; `null`: it cannot be said, and `doubts` says why.
    pub bp_share: Option<f64>,
    /// The same of code coverage (BMAT, 4.3).
    pub cc_share: Option<f64>,
    /// At least so much of branch prediction, in 19 of 20 cases; `null` where nothing is expected.
    pub bp_at_least: Option<f64>,
    /// The same of code coverage.
    pub cc_at_least: Option<f64>,
    /// At most so much of branch prediction, whatever is not known.
    pub bp_at_most: f64,
    /// The same of code coverage.
    pub cc_at_most: f64,
    /// What makes it less sure, in words.
    pub doubts: Vec<String>,
}

/// What `--require` asked for, and whether it holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct GateView {
    /// Of branch prediction, `0.0..=1.0`.
    pub bp_share: f64,
    /// Of code coverage, `0.0..=1.0`.
    pub cc_share: f64,
    /// Whether it holds.
    pub holds: bool,
    /// `yes`, `no`, or `unknown` for the reason that `why` gives.
    pub verdict: Cow<'static, str>,
    /// Why the verdict is `unknown`.
    pub why: Option<String>,
}

/// Between what the count of a block must lie.
#[derive(Debug, Serialize, Deserialize)]
pub struct RangeView {
    /// Its address.
    pub at: u64,
    /// The least.
    pub low: u64,
    /// `null`: nothing bounds it.
    pub high: Option<u64>,
}

/// From one build to the next.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepView {
    /// The earlier build.
    pub old: String,
    /// The later build.
    pub new: String,
    /// Executions of blocks of the earlier one.
    pub old_count: u64,
    /// Those that have a place in the later one.
    pub carried_count: u64,
    /// The share of them, `0.0..=1.0`.
    pub carried_share: f64,
    /// Executions of blocks of the later one.
    pub new_count: u64,
    /// Those by which counts were changed to be consistent.
    pub changed_count: u64,
    /// How many functions of the earlier one ran.
    pub n_functions_ran: usize,
    /// Those that have a counterpart.
    pub n_functions_carried: usize,
    /// Functions of the later one alone, with counts from their callers.
    pub n_new_functions: usize,
    /// Whether both have the same code, so that every count stays where it was.
    pub same: bool,
    /// What the prediction is made of.
    pub parts: PartsView,
    /// What was lost, and why.
    pub lost: Vec<LossView>,
}

/// What of a matching may go wrong, `0.0..=1.0`: the more, the lower the prediction.
#[derive(Debug, Serialize, Deserialize)]
pub struct PartsView {
    /// Of the executions of the earlier build, those in blocks without a match that is likelier than not.
    pub lost_share: f64,
    /// Of the blocks of functions that ran, those that are not matched surely.
    pub unsure_share: f64,
    /// How little matches inside functions are trusted, squared, on average over executions of branches.
    pub distrusted_branch_share: f64,
    /// The same on average over blocks.
    pub distrusted_block_share: f64,
}

/// Counts that were lost.
#[derive(Debug, Serialize, Deserialize)]
pub struct LossView {
    /// Of one that the text lists: its name for people, as long as there is room.
    #[serde(skip)]
    pub readable: Option<String>,
    /// The symbol of the function they are of.
    pub function: Option<String>,
    /// Why.
    pub why: Cow<'static, str>,
    /// How many.
    pub count: u64,
    /// Of so many blocks.
    pub n_blocks: usize,
}

/// What a profile's file holds, and what it could not hold.
#[derive(Debug, Serialize, Deserialize)]
pub struct WrittenView {
    /// The file that was written.
    pub file: String,
    /// Functions with counts in it.
    pub n_functions: usize,
    /// All counts in it.
    pub count: u64,
    /// What it could not hold.
    pub left_out: Vec<LeftOutView>,
}

/// Counts without a place.
#[derive(Debug, Serialize, Deserialize)]
pub struct LeftOutView {
    /// Whether it is a stub of an imported function: those are in every program, and nothing is amiss.
    #[serde(skip)]
    pub is_stub: bool,
    /// What it is.
    pub what: String,
    /// Why.
    pub why: String,
    /// How many.
    pub count: u64,
}

impl WrittenView {
    /// For people: the file, and the largest of what is not in it.
    ///
    /// # Errors
    /// If `w` cannot be written.
    pub fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        match (self.n_functions, self.count) {
            (0, 1..) => writeln!(w, "wrote {}: {} executions counted", self.file, self.count)?,
            (n, _) => writeln!(w, "wrote {}: {}", self.file, many(n, "function"))?,
        }
        // Stubs are only counted.
        let (stubs, others): (Vec<_>, Vec<_>) = self.left_out.iter().partition(|l| l.is_stub);
        if let Some(first) = stubs.first() {
            let n = many(stubs.len(), "stub");
            writeln!(w, "  and {n} of imported functions that ran: {}", first.why)?;
        }
        if others.is_empty() {
            return Ok(());
        }
        writeln!(w, "\nnot in the file:")?;
        let mut t = Table::new(&["count>", "what", "why"]);
        for l in others.iter().take(LISTED) {
            t.row([l.count.to_string(), l.what.clone(), l.why.clone()]);
        }
        t.text(w)?;
        more(w, others.len())
    }
}

/// How many losses people get to read; JSON has all of them.
pub const LISTED: usize = 10;

fn more(w: &mut dyn Write, n: usize) -> io::Result<()> {
    if n > LISTED { writeln!(w, "and {} more: --json lists them", n - LISTED) } else { Ok(()) }
}

impl View for CarryView {
    /// A row a loss.
    fn table(&self) -> Table {
        let mut t = Table::new(&["old", "new", "function", "count>", "blocks>", "why"]);
        for s in &self.steps {
            for l in &s.lost {
                t.row([
                    s.old.clone(),
                    s.new.clone(),
                    l.function.clone().unwrap_or_default(),
                    l.count.to_string(),
                    l.n_blocks.to_string(),
                    l.why.to_string(),
                ]);
            }
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        if self.input.lost_count > 0 {
            let (of, lost) = (share(self.input.lost_share), self.input.lost_count);
            writeln!(w, "{}: {of} ({lost}) does not fit the build it is of", self.profile)?;
        }
        self.steps.iter().try_for_each(|step| step.text(w))?;
        self.predicted.text(w)?;
        if let Some(gate) = &self.required {
            gate.text(w)?;
        }
        self.written.text(w)
    }
}

impl StepView {
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let s = self;
        writeln!(w, "{} → {}{}", s.old, s.new, if s.same { ": the same code" } else { "" })?;
        writeln!(
            w,
            "  {} of {} that ran are there; {} of the executions of blocks",
            s.n_functions_carried,
            many(s.n_functions_ran, "function"),
            share(s.carried_share)
        )?;
        if s.n_new_functions > 0 {
            let many = many(s.n_new_functions, "new function");
            writeln!(w, "  counts from their callers: {many}")?;
        }
        if !s.lost.is_empty() {
            writeln!(w, "  lost:")?;
            let mut t = Table::new(&["", "count>", "blocks>", "function", "why"]);
            for l in s.lost.iter().take(LISTED) {
                let function = l.readable.clone().unwrap_or_default();
                t.row([
                    String::new(),
                    l.count.to_string(),
                    l.n_blocks.to_string(),
                    function,
                    l.why.to_string(),
                ]);
            }
            t.text(w)?;
            more(w, s.lost.len())?;
        }
        writeln!(w)
    }
}

impl PredictedView {
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let said = |of: Option<f64>, at_least: Option<f64>, at_most: f64| match (of, at_least) {
            (Some(of), Some(least)) if least < of => format!("{} (at least {})", share(of), share(least)),
            (Some(of), _) => share(of),
            (None, _) if at_most < 1.0 => format!("unknown, at most {}", share(at_most)),
            (None, _) => "unknown".to_owned(),
        };
        let bp = said(self.bp_share, self.bp_at_least, self.bp_at_most);
        let cc = said(self.cc_share, self.cc_at_least, self.cc_at_most);
        writeln!(w, "predicted against a fresh profile: B.P. {bp}, C.C. {cc}")?;
        self.doubts.iter().try_for_each(|doubt| writeln!(w, "  {doubt}"))
    }
}

impl GateView {
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let verdict = match &*self.verdict {
            "yes" => "holds",
            "no" => "does not hold",
            _ => "unknown, so it does not pass",
        };
        writeln!(
            w,
            "required at least: B.P. {}, C.C. {}: {verdict}",
            share(self.bp_share),
            share(self.cc_share)
        )
    }
}

/// Between what the counts of blocks must lie.
#[derive(Debug, Serialize)]
pub struct Ranges<'a> {
    /// What this object is, and which version of it.
    schema: &'static str,
    /// Of blocks, by address.
    ranges: &'a [RangeView],
}

impl<'a> Ranges<'a> {
    /// Those of a carried profile, whose JSON has them, too.
    pub fn of(view: &'a CarryView) -> Ranges<'a> {
        Ranges { schema: view.schema, ranges: &view.ranges }
    }
}

impl View for Ranges<'_> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["at>", "low>", "high>"]);
        for row in self.ranges {
            let high = row.high.map_or_else(|| "-".to_owned(), |n| n.to_string());
            t.row([address(row.at), row.low.to_string(), high]);
        }
        t
    }
}

/// Counts that have no place in the first build, or in the file that was written.
#[derive(Debug, Serialize)]
pub struct Elsewhere<'a> {
    /// What this object is, and which version of it.
    schema: &'static str,
    /// What of the profile has a place in the first build.
    input: &'a InputView,
    /// What was written.
    written: &'a WrittenView,
}

impl<'a> Elsewhere<'a> {
    /// Those of a carried profile, whose JSON has them, too.
    pub fn of(view: &'a CarryView) -> Elsewhere<'a> {
        Elsewhere { schema: view.schema, input: &view.input, written: &view.written }
    }
}

impl View for Elsewhere<'_> {
    fn table(&self) -> Table {
        let mut t = Table::new(&["not in", "count>", "what", "why"]);
        let all = [("build", &self.input.lost), ("file", &self.written.left_out)];
        for (place, row) in all.iter().flat_map(|(place, rows)| rows.iter().map(move |row| (place, row))) {
            t.row([(*place).to_owned(), row.count.to_string(), row.what.clone(), row.why.clone()]);
        }
        t
    }
}
