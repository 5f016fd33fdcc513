//! What `engraft compare` says: what two builds did on one input, function by function and interval by
//! interval.
//!
//! Fields called `old` and `new` are those of the two builds.

pub mod kept;
pub mod matrix;
pub mod parts;
pub mod tables;
pub mod times;
pub mod trees;

use crate::{Table, View, address, ratio};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A number of each build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Both<T> {
    /// Of the old build.
    pub old: T,
    /// Of the new build.
    pub new: T,
}

/// How much of a metric: a count, or a share or mean. Whole numbers are written as such.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(transparent)]
pub struct Amount(pub f64);

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Beyond, not every whole number is one.
        const MOST: f64 = 9_007_199_254_740_992.0;
        match self.0.fract() == 0.0 && self.0.abs() < MOST {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole, and in range")]
            true => to.serialize_i64(self.0 as i64),
            false => to.serialize_f64(self.0),
        }
    }
}

/// What metrics of events begin with that no instruction says of itself.
pub const EVENTS: &str = "dyn.pmu.";

/// The metric of memory that was touched and not aligned.
pub const MISALIGNED: &str = "dyn.pmu.MISALIGN_MEM_REF";

/// What two builds did.
#[derive(Debug, Serialize, Deserialize)]
pub struct CompareView {
    /// What this object is, and which version of it.
    #[serde(skip_deserializing, default = "schema")]
    pub schema: &'static str,
    /// The recordings, or the programs that were recorded.
    pub traces: Both<String>,
    /// How the programs ran; nothing, of recordings.
    pub runs: Option<RunsView>,
    /// What ran, metric by metric; those that are 0 are left out.
    pub totals: Both<BTreeMap<String, Amount>>,
    /// How much of the two runs was found in the other.
    pub matched: Matched,
    /// Functions that ran in both, the largest difference first.
    pub functions: Vec<FunctionRow>,
    /// Functions that ran in one of them alone.
    pub unmatched: Both<Vec<UnmatchedRow>>,
    /// Intervals in which one did more than the other, the largest difference first.
    pub outliers: Vec<OutlierRow>,
    /// How many more would be, but differ between runs of one build, too.
    pub unsteady: u64,
    /// Instructions in hot code that need not be there, those that ran most first.
    #[serde(default)]
    pub wasted: Both<Vec<WastedRow>>,
    /// Points that are the same, if they are asked for.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub anchors: Option<Vec<parts::AnchorRow>>,
    /// The metric that is shown.
    #[serde(skip)]
    pub metric: String,
}

impl CompareView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.compare/1";

    /// The metrics of the function with this name, side by side; nothing if none of that name ran.
    pub fn function(&self, name: &str) -> Option<FunctionView> {
        let none = BTreeMap::new();
        let both = self.functions.iter().find(|row| row.name == name).map(|row| (&row.old, &row.new));
        let alone = |rows: &'_ [UnmatchedRow]| rows.iter().position(|row| row.name == name);
        let old = || alone(&self.unmatched.old).map(|n| (&self.unmatched.old[n].metrics, &none));
        let new = || alone(&self.unmatched.new).map(|n| (&none, &self.unmatched.new[n].metrics));
        let (old, new) = both.or_else(old).or_else(new)?;
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let of = |all: &BTreeMap<String, Amount>, metric| all.get(metric).copied().unwrap_or_default().0;
        let metrics = names.into_iter().map(|name| MetricRow::new(name, of(old, name), of(new, name)));
        Some(FunctionView { schema: FunctionView::SCHEMA, name: name.to_owned(), metrics: metrics.collect() })
    }
}

fn schema() -> &'static str {
    CompareView::SCHEMA
}

/// How both programs ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunsView {
    /// How often each was run.
    pub times: u64,
    /// What the shell says of how they ended.
    pub status: Both<u8>,
    /// Of their standard output.
    pub stdout: Printed,
    /// And error.
    pub stderr: Printed,
    /// Whether a second run of each build was as its first; nothing, if there was none.
    #[serde(default)]
    pub again: Option<Both<AgainView>>,
    /// Files with code of theirs that was not recorded.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// A second run of a build, held against its first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgainView {
    /// What ran, metric by metric, in the second run.
    pub totals: BTreeMap<String, Amount>,
    /// Whether it ended as the first.
    pub ended_alike: bool,
    /// Whether it printed the same to standard output.
    pub same_stdout: bool,
    /// And error.
    pub same_stderr: bool,
}

/// What both programs printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// How many bytes.
    pub bytes: Both<u64>,
    /// The first byte that differs, from 0 on; nothing, if none does.
    pub differs_at: Option<u64>,
}

/// What the shell's status says of a signal.
fn by_signal(status: u8) -> String {
    match status.checked_sub(128) {
        Some(n @ 1..=64) => format!(": signal {n}"),
        _ => String::new(),
    }
}

impl RunsView {
    /// Whether both ended alike, and printed the same, but for what a build does not do twice.
    pub fn are_alike(&self) -> bool {
        let repeats = self.repeats();
        let [ended, stdout, stderr] = [
            self.status.old == self.status.new,
            self.stdout.differs_at.is_none(),
            self.stderr.differs_at.is_none(),
        ];
        (ended || !repeats[0]) && (stdout || !repeats[1]) && (stderr || !repeats[2])
    }

    /// Whether second runs of both builds ended as the first, and printed the same to standard output, and
    /// error; as far as is known.
    fn repeats(&self) -> [bool; 3] {
        let all = |of: fn(&AgainView) -> bool| {
            self.again.as_ref().is_none_or(|again| of(&again.old) && of(&again.new))
        };
        [all(|of| of.ended_alike), all(|of| of.same_stdout), all(|of| of.same_stderr)]
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let Both { old, new } = &self.status;
        if old != new {
            writeln!(
                w,
                "they ended differently: exit status {old}{}, then {new}{}",
                by_signal(*old),
                by_signal(*new)
            )?;
        } else if *old != 0 {
            writeln!(w, "both ended with exit status {old}{}\n", by_signal(*old))?;
        }
        let [ended, stdout, stderr] = self.repeats();
        if !ended {
            writeln!(w, "how they end is not the same in two runs of one build")?;
        }
        for (what, printed, repeats) in [("output", &self.stdout, stdout), ("error", &self.stderr, stderr)] {
            if !repeats {
                writeln!(
                    w,
                    "what they write to standard {what} is not the same in two runs of one build: not compared"
                )?;
            } else if let Some(at) = printed.differs_at {
                let Both { old, new } = &printed.bytes;
                writeln!(
                    w,
                    "what they wrote to standard {what} differs from byte {at} on: {old} bytes, then {new}"
                )?;
            }
        }
        if self.are_alike() && self.repeats().iter().all(|repeats| *repeats) { Ok(()) } else { writeln!(w) }
    }
}

/// Events of the smaller of two logs, and how many are paired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MatchedEvents {
    /// Events of the log that has fewer.
    pub smaller: u64,
    /// Those of it that are paired.
    pub matched: u64,
}

/// How much of the two runs was found in the other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Matched {
    /// Calls, returns, rounds of loops that have loops in them.
    pub light: MatchedEvents,
    /// Calls, returns, rounds of all loops.
    pub heavy: MatchedEvents,
    /// Rounds among them of loops that did not go round as often in both, of the smaller log.
    pub heavy_as_a_whole: u64,
    /// Instructions in intervals between paired events.
    pub instructions: Both<u64>,
    /// The share of those, from 0 to 1, in intervals of at most 64 instructions.
    pub at_most_64: Both<f64>,
    /// The same of at most 1,000.
    pub at_most_1000: Both<f64>,
}

/// A function of both builds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionRow {
    /// What people call it.
    pub name: String,
    /// What it did in the old build: by metric; `calls` is how often it was called.
    pub old: BTreeMap<String, Amount>,
    /// The same in the new build.
    pub new: BTreeMap<String, Amount>,
    /// How sure it is that both are the same, from 0 to 1.
    pub confidence: f64,
    /// How that was found out: names, match, calls, pinned.
    #[serde(default)]
    pub how: String,
    /// The files that it is in.
    #[serde(default)]
    pub module: Both<String>,
    /// Whether two runs of each build did the same in it; nothing, if there was one of each.
    #[serde(default)]
    pub repeats: Option<bool>,
}

/// A function of one build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnmatchedRow {
    /// What people call it.
    pub name: String,
    /// Instructions.
    pub instructions: u64,
    /// The share of all of that run, from 0 to 1.
    pub share: f64,
    /// The file that it is in.
    #[serde(default)]
    pub module: String,
    /// What it did, by metric.
    #[serde(default)]
    pub metrics: BTreeMap<String, Amount>,
}

/// Intervals of one place, of which one build has more than the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutlierRow {
    /// The function.
    pub function: String,
    /// Where they begin: a place in its code as people say it.
    pub from: Both<String>,
    /// Where they end.
    pub to: Both<String>,
    /// What differs.
    pub metric: String,
    /// How much of it in the old build, in all of them.
    pub old: Amount,
    /// How much in the new build.
    pub new: Amount,
    /// How many intervals.
    pub times: u64,
    /// How sure it is that both did the same there, from 0 to 1.
    pub confidence: f64,
    /// What makes the difference: metrics, with how much of each both have.
    pub because: Vec<Reason>,
    /// What compilers said of its lines, where that is known.
    pub remarks: Vec<String>,
}

/// Instructions that need not be there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WastedRow {
    /// The function.
    pub function: String,
    /// Where they begin.
    pub at: u64,
    /// Where that was written, if it is known.
    pub line: Option<String>,
    /// What they are: `jump-to-next`, `jump-to-return`, `spilled-and-refilled`.
    pub what: String,
    /// How often they ran.
    pub runs: u64,
    /// How many instructions that is.
    pub instructions: u64,
}

/// A metric of an interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// Which.
    pub metric: String,
    /// How much of it.
    pub old: Amount,
    /// How much of it in the new build.
    pub new: Amount,
}

/// How many rows people want to see; and how many of what is not sure.
const TOP: usize = 12;
const TOP_UNSURE: usize = 3;
/// Surer than that is sure.
const SURE: f64 = 0.25;

fn whole(n: f64) -> String {
    format!("{n:.0}")
}

fn difference(old: f64, new: f64) -> String {
    format!("{:+.0}", new - old)
}

/// New over old, as people read it.
fn times(old: f64, new: f64) -> String {
    if old > 0.0 { format!("{:.2}", new / old) } else { "-".to_owned() }
}

fn percent_of(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * ratio(part, whole)) }
}

impl View for CompareView {
    /// A row a function.
    fn table(&self) -> Table {
        tables::functions(&self.functions, &self.unmatched, &self.metric)
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let of = |all: &BTreeMap<String, Amount>| all.get(&self.metric).copied().unwrap_or_default().0;
        let (old, new) = (of(&self.totals.old), of(&self.totals.new));
        if let Some(runs) = &self.runs {
            runs.text(w)?;
        }
        writeln!(w, "{}: {old:.0}, then {new:.0}: {} times", self.metric, times(old, new))?;
        if let Some(Both { old, new }) = self.runs.as_ref().and_then(|runs| runs.again.as_ref()) {
            let (old, new) = (of(&old.totals), of(&new.totals));
            writeln!(w, "and once more: {old:.0}, then {new:.0}: {} times", times(old, new))?;
        }
        writeln!(w)?;
        let Matched { light, heavy, .. } = &self.matched;
        writeln!(
            w,
            "paired: {} of {} calls, returns and rounds of outer loops ({}); with rounds of inner loops {} ({})\n",
            light.matched,
            light.smaller,
            percent_of(light.matched, light.smaller),
            heavy.matched,
            percent_of(heavy.matched, heavy.smaller),
        )?;
        if !self.functions.is_empty() {
            writeln!(w, "functions, by the difference of {}:", self.metric)?;
            self.functions().top(TOP, w)?;
        }
        for (which, rows) in [("old", &self.unmatched.old), ("new", &self.unmatched.new)] {
            if rows.is_empty() {
                continue;
            }
            writeln!(w, "\nin the {which} build alone:")?;
            let mut t = Table::new(&["share>", "instructions>", "function"]);
            for row in rows {
                let share = format!("{:.2} %", 100.0 * row.share);
                t.row([share, row.instructions.to_string(), row.name.clone()]);
            }
            t.top(TOP, w)?;
        }
        if !self.outliers.is_empty() {
            let by = self.outliers.first().map_or("", |row| &row.metric);
            writeln!(w, "\nbetween the same two points, by the difference of {by}:")?;
            let is_sure = |(_, row): &(usize, &OutlierRow)| row.confidence >= SURE;
            let (sure, unsure): (Vec<_>, Vec<_>) = (1..).zip(&self.outliers).partition(is_sure);
            outliers_table(&sure).top(TOP, w)?;
            if !unsure.is_empty() {
                writeln!(w, "\nwhere it is not sure that both did the same:")?;
                outliers_table(&unsure).top(TOP_UNSURE, w)?;
            }
        }
        let said = self.outliers.iter().zip(1..).take(TOP).filter(|(row, _)| !row.remarks.is_empty());
        for (n, (row, at)) in said.enumerate() {
            if n == 0 {
                writeln!(w, "\nwhat compilers said of these lines:")?;
            }
            for remark in &row.remarks {
                writeln!(w, "  {at} {}: {remark}", row.function)?;
            }
        }
        if !self.wasted.old.is_empty() || !self.wasted.new.is_empty() {
            writeln!(w, "\nin hot code, and need not be there:")?;
            self.wasted_table().top(TOP, w)?;
        }
        let chance = self.functions.iter().filter(|row| row.repeats == Some(false)).count();
        if chance > 0 {
            writeln!(w, "\n{chance} functions do not do the same in two runs of one build")?;
        }
        if let Some(left_out) = self.runs.as_ref().map(|runs| &runs.left_out).filter(|all| !all.is_empty()) {
            writeln!(w, "\nnot recorded, and not compared: {}", left_out.join(", "))?;
        }
        if self.unsteady > 0 {
            writeln!(w, "\n{} more that differ between runs of one build are left out", self.unsteady)?;
        }
        Ok(())
    }
}

impl CompareView {
    fn functions(&self) -> Table {
        tables::functions(&self.functions, &Both::default(), &self.metric)
    }

    fn wasted_table(&self) -> Table {
        let mut t = Table::new(&["instructions>", "build", "function", "at>", "line", "what"]);
        for (build, rows) in [("old", &self.wasted.old), ("new", &self.wasted.new)] {
            for row in rows {
                let line = row.line.clone().unwrap_or_default();
                let (insns, at) = (row.instructions.to_string(), address(row.at));
                t.row([insns, build.to_owned(), row.function.clone(), at, line, row.what.replace('-', " ")]);
            }
        }
        t
    }
}

/// Outliers with their numbers.
fn outliers_table(rows: &[(usize, &OutlierRow)]) -> Table {
    let mut t = Table::new(&[
        "n>",
        "difference>",
        "times>",
        "old>",
        "new>",
        "often>",
        "sure>",
        "function",
        "from",
        "to",
        "because",
    ])
    .with_spare(&["often", "sure"]);
    for (n, row) in rows {
        let because = row.because.iter().map(|reason| {
            let metric = reason.metric.trim_start_matches("dyn.cat.");
            format!("{metric} {}", difference(reason.old.0, reason.new.0))
        });
        let place = |both: &Both<String>| match both.old == both.new {
            true => both.old.clone(),
            false => format!("{} | {}", both.old, both.new),
        };
        t.row([
            n.to_string(),
            difference(row.old.0, row.new.0),
            times(row.old.0, row.new.0),
            whole(row.old.0),
            whole(row.new.0),
            row.times.to_string(),
            format!("{:.2}", row.confidence),
            row.function.clone(),
            place(&row.from),
            place(&row.to),
            because.collect::<Vec<_>>().join(", "),
        ]);
    }
    t
}

/// All metrics of a function.
#[derive(Debug, Serialize)]
pub struct FunctionView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// What people call it.
    pub name: String,
    /// Its metrics, by name.
    pub metrics: Vec<MetricRow>,
}

impl FunctionView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.compare-function/1";
}

/// A metric of both builds.
#[derive(Debug, Serialize)]
pub struct MetricRow {
    /// Its name.
    pub metric: String,
    /// How much of it.
    pub old: Amount,
    /// How much of it in the new build.
    pub new: Amount,
    /// Both in percent of the larger one.
    pub normalised: Both<f64>,
}

impl MetricRow {
    /// Of a metric.
    pub fn new(metric: &str, old: f64, new: f64) -> MetricRow {
        let larger = old.max(new);
        let percent = |n: f64| if larger > 0.0 { 100.0 * n / larger } else { 0.0 };
        MetricRow {
            metric: metric.to_owned(),
            old: Amount(old),
            new: Amount(new),
            normalised: Both { old: percent(old), new: percent(new) },
        }
    }
}

impl View for FunctionView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["old>", "new>", "old %>", "new %>", "metric"]);
        for row in &self.metrics {
            let number = |n: f64| if n.fract() == 0.0 { whole(n) } else { format!("{n:.3}") };
            let percent = |n: f64| format!("{n:.2}");
            let (old, new) = (percent(row.normalised.old), percent(row.normalised.new));
            t.row([number(row.old.0), number(row.new.0), old, new, row.metric.clone()]);
        }
        t
    }
}
