//! `engraft carry`: a profile of one build becomes a profile of a later one.

use crate::input;
use crate::input::names::readable;
use crate::output::{self, Answer, Hinted, Output};
use matching::{
    CarryOptions, CarryReport, Doubt, LossReason, Matching, MergeOptions, Options, Prediction, carry, merge,
};
use profile::Written;
use program::Program;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use tracing::info_span;
use views::{Table, View, many, share};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft carry old new --profile old.callgrind -o new.fdata
  $ engraft carry old new --profile old.callgrind -o new.fdata --require bp=90,cc=90";

/// Carry a profile of OLD to NEW, and on to every later build named
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The build that the profile is of
    old: PathBuf,
    /// The builds after it, in order; the result is a profile of the last
    #[arg(required = true)]
    new: Vec<PathBuf>,
    /// Profile of OLD, in any format that can be read
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// Go along this map of OLD and NEW, which `match -o` wrote and a person may have edited
    #[arg(long, value_name = "MAP")]
    map: Option<PathBuf>,
    /// Merge with a fresh profile of the last build, by age and by how much each saw
    #[arg(long, value_name = "FRESH")]
    merge: Option<PathBuf>,
    /// Answer no (exit code 1) if the result is predicted to be worse, in per cent: bp=98,cc=97
    #[arg(long, value_name = "GATE", value_parser = gate)]
    require: Option<Gate>,
    /// Where to write the carried profile; its extension says the format
    #[arg(short, value_name = "FILE")]
    o: PathBuf,
    /// Write it in this format, whatever the extension
    #[arg(long, value_name = "FORMAT", value_parser = input::format_named)]
    to: Option<profile::Format>,
    #[command(flatten)]
    output: Output,
}

/// What `--require` asks for, as shares.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Gate {
    bp: f64,
    cc: f64,
}

impl Gate {
    /// Holds what is predicted against it. What cannot be predicted does not pass: a gate lets nothing
    /// through unseen.
    fn verdict(self, predicted: &PredictedView) -> GateView {
        let asked = [
            (self.bp, predicted.bp_share, predicted.bp_at_most),
            (self.cc, predicted.cc_share, predicted.cc_at_most),
        ];
        let falls_short = |&(asked, share, at_most): &(f64, Option<f64>, f64)| {
            share.unwrap_or(at_most).min(at_most) < asked
        };
        let verdict = if asked.iter().any(falls_short) {
            "no"
        } else if asked.iter().any(|(asked, share, _)| *asked > 0.0 && share.is_none()) {
            "unknown"
        } else {
            "yes"
        };
        let why = (verdict == "unknown").then(|| predicted.why());
        GateView { bp_share: self.bp, cc_share: self.cc, holds: verdict == "yes", verdict, why }
    }
}

/// Reads `bp=98,cc=97`; what is not named is not asked for.
fn gate(text: &str) -> Result<Gate, String> {
    let mut gate = Gate::default();
    for part in text.split(',') {
        let (name, number) = part.split_once('=').ok_or("say for example bp=98,cc=97")?;
        let percent: f64 = number.parse().map_err(|_| format!("{number} is no number"))?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(format!("{number} is not between 0 and 100"));
        }
        match name {
            "bp" => gate.bp = percent / 100.0,
            "cc" => gate.cc = percent / 100.0,
            _ => return Err(format!("{name} cannot be asked for, only bp and cc")),
        }
    }
    Ok(gate)
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    input::output_format(&args.o, args.to)?;
    let read = args.new.iter().chain([&args.old, &args.profile]).chain(&args.map).chain(&args.merge);
    output::spares(&args.o, &read.map(PathBuf::as_path).collect::<Vec<_>>())?;
    if args.map.is_some() && args.new.len() > 1 {
        let hint = "carry step by step, each with its own map";
        return Err(Hinted::new("a map is of two builds, and more are named", hint).into());
    }
    if args.merge.is_some() && args.require.is_some() {
        let hint = "carry with --require first, then again with --merge";
        let why = "--require judges what is carried, and what --merge makes of it cannot be told before it is scored";
        return Err(Hinted::new(why, hint).into());
    }
    let mut old = input::program(&args.old)?;
    let read = input::profile(&args.profile, Some(&old))?;
    let fit = input::Fit::of(&read, &old);
    let mut predicted = PredictedView::before(&fit);
    let input = InputView::of(read.format, fit);
    let mut counts = read.profile;
    let mut steps = Vec::new();
    let mut ranges = Vec::new();
    for path in &args.new {
        let new = input::program(path)?;
        let matching = matching(args, &old, &new)?;
        let carried =
            info_span!("carry").in_scope(|| carry(&old, &new, &matching, &counts, &CarryOptions::default()));
        predicted.after(&carried.report.predicted);
        ranges = carried.ranges.iter().map(|(at, r)| RangeView::of(*at, r)).collect();
        steps.push(step(&old, &new, &carried.report));
        (old, counts) = (new, carried.profile);
    }
    if let Some(path) = &args.merge {
        let fresh = input::profile(path, Some(&old))?.profile;
        let age_releases = f64::from(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        let options = MergeOptions { age_releases, ..MergeOptions::default() };
        counts = info_span!("merge").in_scope(|| merge(&old, &counts, &fresh, &options));
    }
    let written = input::write_profile(&args.o, args.to, &counts, Some(&old))?;
    let gate = args.require.map(|gate| gate.verdict(&predicted));
    let answer = match &gate {
        Some(gate) if !gate.holds => Answer::No,
        _ if written.n_functions == 0 => Answer::No,
        _ => Answer::Yes,
    };
    let view = CarryView {
        schema: "engraft.carry/1",
        profile: args.profile.display().to_string(),
        input,
        merged_with: args.merge.as_ref().map(|path| path.display().to_string()),
        steps,
        predicted,
        required: gate,
        ranges,
        written: written_view(&args.o, &written),
    };
    args.output.print_beside_file(&args.o, &view)?;
    Ok(answer)
}

/// The matching to go along: a map's, or one made here.
fn matching(args: &Args, old: &Program, new: &Program) -> anyhow::Result<Matching> {
    let map = args.map.as_ref().map(|path| input::map(path, old, new)).transpose()?;
    Ok(info_span!("match").in_scope(|| match map {
        Some(map) => Matching::of_map(old, new, &map, &Options::all()),
        None => Matching::compute(old, new, &Options::all()),
    }))
}

/// What became of a profile.
#[derive(Serialize)]
pub struct CarryView {
    schema: &'static str,
    profile: String,
    input: InputView,
    merged_with: Option<String>,
    steps: Vec<StepView>,
    /// Without `--merge`: what it is expected to be worth against a fresh profile.
    predicted: PredictedView,
    required: Option<GateView>,
    /// Between what the counts of blocks must lie that have only a part of an old block's flow, or no match.
    ranges: Vec<RangeView>,
    written: WrittenView,
}

/// What of the profile has a place in OLD.
#[derive(Serialize)]
struct InputView {
    format: &'static str,
    kept_count: u64,
    lost_count: u64,
    lost_share: f64,
    lost: Vec<LeftOutView>,
}

impl InputView {
    fn of(format: profile::Format, fit: input::Fit) -> InputView {
        let lost_share = fit.lost_share();
        let lost = fit.lost.into_iter().map(|l| LeftOutView { what: l.what, why: l.why, count: l.count });
        InputView {
            format: format.name(),
            kept_count: fit.kept_count,
            lost_count: fit.lost_count,
            lost_share,
            lost: lost.collect(),
        }
    }
}

#[derive(Serialize)]
struct PredictedView {
    /// `null`: it cannot be said, and `doubts` says why.
    bp_share: Option<f64>,
    cc_share: Option<f64>,
    bp_at_most: f64,
    cc_at_most: f64,
    doubts: Vec<String>,
}

impl PredictedView {
    /// Nothing is lost before the first step, unless much of the profile is of other code than OLD.
    fn before(fit: &input::Fit) -> PredictedView {
        let (known, doubts) = match fit.is_poor() {
            true => (None, vec![format!("{} of the profile does not fit OLD", share(fit.lost_share()))]),
            false => (Some(1.0), Vec::new()),
        };
        PredictedView { bp_share: known, cc_share: known, bp_at_most: 1.0, cc_at_most: 1.0, doubts }
    }

    /// Each step can only lose: what is right after it was right before it and stayed so.
    fn after(&mut self, step: &Prediction) {
        let both = |a: Option<f64>, b: Option<f64>| Some(a? * b?);
        self.bp_share = both(self.bp_share, step.bp.share);
        self.cc_share = both(self.cc_share, step.cc.share);
        self.bp_at_most *= step.bp.at_most;
        self.cc_at_most *= step.cc.at_most;
        self.doubts.extend(step.doubts.iter().map(doubt));
    }

    fn why(&self) -> String {
        self.doubts.join("; ")
    }
}

/// In words.
fn doubt(doubt: &Doubt) -> String {
    match *doubt {
        Doubt::NoBranches => "no branch has a count".into(),
        Doubt::Inconsistent { n_checked, n_torn } => format!(
            "at {n_torn} of {} that ran often, what enters does not leave: records are missing, or they are of another build",
            many(n_checked, "block")
        ),
        Doubt::Unlike { carried_share, ran_share, matched_share } => format!(
            "the builds are too unlike: {} of the old executions have a place in NEW that is likelier than not; {} of the blocks of functions that ran are matched surely, {} of all blocks",
            share(carried_share),
            share(ran_share),
            share(matched_share)
        ),
        Doubt::Sampled { unseen_share, bp_share } => format!(
            "the counts are samples: half as many would have missed another {} of the blocks, and few samples of a branch cost about {} of B.P.",
            share(unseen_share),
            share(bp_share)
        ),
        Doubt::NotInside { n_functions, branch_share, block_share } => format!(
            "{} called, but not known inside: about {} of the branches' executions, {} of the blocks",
            if n_functions == 1 { "1 function is".into() } else { format!("{n_functions} functions are") },
            share(branch_share),
            share(block_share)
        ),
    }
}

#[derive(Serialize)]
struct GateView {
    bp_share: f64,
    cc_share: f64,
    holds: bool,
    /// `yes`, `no`, or `unknown` for the reason that `why` gives.
    verdict: &'static str,
    why: Option<String>,
}

#[derive(Serialize)]
struct RangeView {
    at: u64,
    low: u64,
    /// `null`: nothing bounds it.
    high: Option<u64>,
}

impl RangeView {
    fn of(at: program::Va, range: &matching::Range) -> RangeView {
        let high = Some(range.high).filter(|&high| high < u64::MAX);
        RangeView { at: at.0, low: range.low, high }
    }
}

#[derive(Serialize)]
struct StepView {
    old: String,
    new: String,
    old_count: u64,
    carried_count: u64,
    carried_share: f64,
    new_count: u64,
    changed_count: u64,
    n_functions_ran: usize,
    n_functions_carried: usize,
    n_new_functions: usize,
    lost: Vec<LossView>,
}

#[derive(Serialize)]
struct LossView {
    function: Option<String>,
    why: &'static str,
    count: u64,
    n_blocks: usize,
}

/// What a profile's file holds, and what it could not hold.
#[derive(Serialize)]
pub struct WrittenView {
    file: String,
    n_functions: usize,
    count: u64,
    left_out: Vec<LeftOutView>,
}

#[derive(Serialize)]
struct LeftOutView {
    what: String,
    why: String,
    count: u64,
}

fn step(old: &Program, new: &Program, report: &CarryReport) -> StepView {
    #[expect(clippy::cast_precision_loss, reason = "a share is for comparing")]
    let carried_share = report.carried_count as f64 / report.old_count.max(1) as f64;
    StepView {
        old: old.image.name.clone(),
        new: new.image.name.clone(),
        old_count: report.old_count,
        carried_count: report.carried_count,
        carried_share,
        new_count: report.new_count,
        changed_count: report.changed_count,
        n_functions_ran: report.n_functions_ran,
        n_functions_carried: report.n_functions_carried,
        n_new_functions: report.n_new_functions,
        lost: report
            .losses
            .iter()
            .map(|l| LossView {
                function: l.old.map(|f| old.function(f).name()),
                why: match l.reason {
                    LossReason::NotInOld => "OLD has no place for these records",
                    LossReason::FunctionUnmatched => "the function has no counterpart",
                    LossReason::BlockUnmatched => "blocks without a counterpart",
                    LossReason::CallUnmatched => "indirect calls without a counterpart",
                    LossReason::BranchUnmatched => "mispredictions of branches without a counterpart",
                },
                count: l.count,
                n_blocks: l.n_blocks,
            })
            .collect(),
    }
}

/// What was written to `file`.
pub fn written_view(file: &std::path::Path, written: &Written) -> WrittenView {
    WrittenView {
        file: file.display().to_string(),
        n_functions: written.n_functions,
        count: written.count,
        left_out: written
            .lost
            .iter()
            .map(|l| LeftOutView { what: l.what.clone(), why: l.why.clone(), count: l.count })
            .collect(),
    }
}

impl WrittenView {
    /// For people: the file, and the largest of what is not in it.
    pub fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        match (self.n_functions, self.count) {
            (0, 1..) => writeln!(w, "wrote {}: {} executions counted", self.file, self.count)?,
            (n, _) => writeln!(w, "wrote {}: {}", self.file, many(n, "function"))?,
        }
        // Stubs are in every program, and nothing is amiss: they are only counted.
        let (stubs, others): (Vec<_>, Vec<_>) =
            self.left_out.iter().partition(|l| l.why == profile::fdata::NO_STUBS);
        if !stubs.is_empty() {
            let n = many(stubs.len(), "stub");
            writeln!(w, "  and {n} of imported functions that ran: {}", profile::fdata::NO_STUBS)?;
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
const LISTED: usize = 10;

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
                    l.why.into(),
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
        for s in &self.steps {
            writeln!(w, "{} → {}", s.old, s.new)?;
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
                    let function = l.function.as_deref().map(readable).unwrap_or_default();
                    t.row([
                        String::new(),
                        l.count.to_string(),
                        l.n_blocks.to_string(),
                        function,
                        l.why.into(),
                    ]);
                }
                t.text(w)?;
                more(w, s.lost.len())?;
            }
            writeln!(w)?;
        }
        let p = &self.predicted;
        let said = |of: Option<f64>, at_most: f64| {
            let unknown = || match at_most < 1.0 {
                true => format!("unknown, at most {}", share(at_most)),
                false => "unknown".to_owned(),
            };
            of.map_or_else(unknown, share)
        };
        let (bp, cc) = (said(p.bp_share, p.bp_at_most), said(p.cc_share, p.cc_at_most));
        writeln!(w, "predicted against a fresh profile: B.P. {bp}, C.C. {cc}")?;
        for doubt in &p.doubts {
            writeln!(w, "  {doubt}")?;
        }
        if let Some(gate) = &self.required {
            let verdict = match gate.verdict {
                "yes" => "holds",
                "no" => "does not hold",
                _ => "unknown, so it does not pass",
            };
            writeln!(w, "required: B.P. {}, C.C. {}: {verdict}", share(gate.bp_share), share(gate.cc_share))?;
        }
        self.written.text(w)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_says_yes_no_or_unknown() {
        let check = |asked: &str, bp: (Option<f64>, f64), cc: (Option<f64>, f64), expect: &str| {
            let predicted = PredictedView {
                bp_share: bp.0,
                cc_share: cc.0,
                bp_at_most: bp.1,
                cc_at_most: cc.1,
                doubts: vec!["a doubt".into()],
            };
            let view = gate(asked).expect("it can be read").verdict(&predicted);
            assert_eq!(view.verdict, expect, "{asked} {bp:?} {cc:?}");
            assert_eq!(view.holds, expect == "yes");
            assert_eq!(view.why.as_deref(), (expect == "unknown").then_some("a doubt"));
        };
        let (good, bad) = ((Some(0.99), 1.0), (Some(0.97), 1.0));
        check("bp=98,cc=98", good, good, "yes");
        check("bp=98,cc=98", good, bad, "no");
        check("bp=98,cc=98", (None, 1.0), good, "unknown");
        check("bp=98", good, (None, 1.0), "yes");
        // What is no more than too little is no, however little is known.
        check("bp=98", (None, 0.97), good, "no");
        check("bp=98,cc=98", (None, 1.0), bad, "no");
    }
}
