//! `engraft carry`: a profile of one build becomes a profile of a later one.

use crate::input;
use crate::input::names::readable;
use crate::output::{self, Answer, Hinted, Output};
use matching::{
    CarryOptions, CarryReport, Doubt, LossReason, Matching, MergeOptions, Options, Parts, Prediction, carry,
    merge,
};
use profile::Written;
use program::Program;
use std::path::PathBuf;
use tracing::info_span;
use views::carry::{
    CarryView, GateView, InputView, LISTED, LeftOutView, LossView, PartsView, PredictedView, RangeView,
    StepView, WrittenView,
};
use views::{many, share};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft carry old new --profile old.callgrind -o new.fdata
  $ engraft carry old new --profile old.callgrind -o new.fdata --require bp=80,cc=80";

/// Carry a profile of OLD to NEW, and on to every later build named
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
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
    /// Answer no (exit code 1) unless it is predicted to be at least so good, in per cent:
    /// bp=98,cc=97
    #[arg(long, value_name = "GATE", value_parser = gate)]
    require: Option<Gate>,
    /// Where to write the carried profile; its extension says the format
    #[arg(short, value_name = "FILE")]
    o: PathBuf,
    /// Write it in this format, whatever the extension
    #[arg(long, value_name = "FORMAT", value_parser = output::format_named)]
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
    /// Holds against it what the result is worth at least: what is expected is missed every other time. What
    /// cannot be predicted does not pass: a gate lets nothing through unseen.
    fn verdict(self, predicted: &PredictedView) -> GateView {
        let asked = [
            (self.bp, predicted.bp_at_least, predicted.bp_at_most),
            (self.cc, predicted.cc_at_least, predicted.cc_at_most),
        ];
        let falls_short = |&(asked, at_least, at_most): &(f64, Option<f64>, f64)| {
            at_least.unwrap_or(at_most).min(at_most) < asked
        };
        let verdict = if asked.iter().any(falls_short) {
            "no"
        } else if asked.iter().any(|(asked, at_least, _)| *asked > 0.0 && at_least.is_none()) {
            "unknown"
        } else {
            "yes"
        };
        let why = (verdict == "unknown").then(|| predicted.doubts.join("; "));
        GateView {
            bp_share: self.bp,
            cc_share: self.cc,
            holds: verdict == "yes",
            verdict: verdict.into(),
            why,
        }
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
    output::output_format(&args.o, args.to)?;
    let read = args.new.iter().chain([&args.old, &args.profile]).chain(&args.map).chain(&args.merge);
    output::refuse_replacing(&args.o, &read.map(PathBuf::as_path).collect::<Vec<_>>())?;
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
    let mut predicted = predicted_before(&fit);
    let input = input_view(read.format, &fit);
    let mut counts = read.profile;
    let mut steps = Vec::new();
    let mut ranges = Vec::new();
    for path in &args.new {
        let new = input::program(path)?;
        let matching = matching(args, &old, &new)?;
        let carried =
            info_span!("carry").in_scope(|| carry(&old, &new, &matching, &counts, &CarryOptions::default()));
        predicted_after(&mut predicted, &carried.report.predicted);
        ranges = carried.ranges.iter().map(|(at, r)| range_view(*at, r)).collect();
        steps.push(step(&old, &new, &carried.report));
        (old, counts) = (new, carried.profile);
    }
    if let Some(path) = &args.merge {
        let fresh = input::profile(path, Some(&old))?.profile;
        let age_releases = f64::from(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        let options = MergeOptions { age_releases, ..MergeOptions::default() };
        counts = info_span!("merge").in_scope(|| merge(&old, &counts, &fresh, &options));
    }
    let written = output::write_profile(&args.o, args.to, &counts, Some(&old))?;
    let gate = args.require.map(|gate| gate.verdict(&predicted));
    let answer = match &gate {
        Some(gate) if !gate.holds => Answer::No,
        _ if written.n_functions == 0 => Answer::No,
        _ => Answer::Yes,
    };
    let answer = if say_if_foreign(&steps) { Answer::No } else { answer };
    let view = CarryView {
        schema: CarryView::SCHEMA,
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

/// Of what ran, so much is carried at least between builds that have something in common.
const HARDLY: f64 = 0.01;

/// Says so of builds that have hardly anything in common; whether there are any.
fn say_if_foreign(steps: &[StepView]) -> bool {
    let foreign = steps.iter().filter(|step| step.old_count > 0 && step.carried_share < HARDLY);
    let said = foreign.map(|step| {
        let what = format!(
            "{} and {} have hardly anything in common: {} of what ran was carried",
            step.old,
            step.new,
            share(step.carried_share)
        );
        output::warn(&what, Some("name two builds of the same program, the old one first"));
    });
    said.count() > 0
}

/// The matching to go along: a map's, or one made here.
fn matching(args: &Args, old: &Program, new: &Program) -> anyhow::Result<Matching> {
    let map = args.map.as_ref().map(|path| input::map(path, old, new)).transpose()?;
    Ok(info_span!("match").in_scope(|| match map {
        Some(map) => Matching::of_map(old, new, &map, &Options::all()),
        None => Matching::compute(old, new, &Options::all()),
    }))
}

/// What of the profile has a place in OLD.
fn input_view(format: profile::Format, fit: &input::Fit) -> InputView {
    InputView {
        format: format.name().into(),
        kept_count: fit.kept_count,
        lost_count: fit.lost_count,
        lost_share: fit.lost_share(),
        lost: fit.lost.iter().map(left_out).collect(),
    }
}

fn left_out(lost: &profile::Lost) -> LeftOutView {
    let is_stub = lost.why == profile::fdata::NO_STUBS;
    LeftOutView { is_stub, what: lost.what.clone(), why: lost.why.clone(), count: lost.count }
}

/// Nothing is lost before the first step, unless much of the profile is of other code than OLD.
fn predicted_before(fit: &input::Fit) -> PredictedView {
    let (known, doubts) = match fit.is_poor() {
        true => (None, vec![format!("{} of the profile does not fit OLD", share(fit.lost_share()))]),
        false => (Some(1.0), Vec::new()),
    };
    PredictedView {
        bp_share: known,
        cc_share: known,
        bp_at_least: known,
        cc_at_least: known,
        bp_at_most: 1.0,
        cc_at_most: 1.0,
        doubts,
    }
}

/// Each step can only lose: what is right after it was right before it and stayed so.
fn predicted_after(before: &mut PredictedView, step: &Prediction) {
    let both = |a: Option<f64>, b: Option<f64>| Some(a? * b?);
    before.bp_share = both(before.bp_share, step.bp.share);
    before.cc_share = both(before.cc_share, step.cc.share);
    before.bp_at_least = both(before.bp_at_least, step.bp.at_least);
    before.cc_at_least = both(before.cc_at_least, step.cc.at_least);
    before.bp_at_most *= step.bp.at_most;
    before.cc_at_most *= step.cc.at_most;
    before.doubts.extend(step.doubts.iter().map(doubt));
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

fn range_view(at: program::Va, range: &matching::CountRange) -> RangeView {
    let high = Some(range.high).filter(|&high| high < u64::MAX);
    RangeView { at: at.0, low: range.low, high }
}

fn parts_view(parts: &Parts) -> PartsView {
    PartsView {
        lost_share: parts.lost_share,
        unsure_share: parts.unsure_share,
        distrusted_branch_share: parts.distrusted_branch_share,
        distrusted_block_share: parts.distrusted_block_share,
    }
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
        same: report.predicted.is_same,
        parts: parts_view(&report.predicted.parts),
        lost: report
            .losses
            .iter()
            .enumerate()
            .map(|(n, l)| LossView {
                readable: l.old.filter(|_| n < LISTED).map(|f| readable(&old.function(f).name())),
                function: l.old.map(|f| old.function(f).name()),
                why: match l.reason {
                    LossReason::NotInOld => "OLD has no place for these records",
                    LossReason::FunctionUnmatched => "the function has no counterpart",
                    LossReason::BlockUnmatched => "blocks without a counterpart",
                    LossReason::CallUnmatched => "indirect calls without a counterpart",
                    LossReason::BranchUnmatched => "mispredictions of branches without a counterpart",
                }
                .into(),
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
        left_out: written.lost.iter().map(left_out).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_says_yes_no_or_unknown() {
        let check = |asked: &str, bp: (Option<f64>, f64), cc: (Option<f64>, f64), expect: &str| {
            let predicted = PredictedView {
                // What is expected is not what is asked for.
                bp_share: bp.0.map(|_| 1.0),
                cc_share: cc.0.map(|_| 1.0),
                bp_at_least: bp.0,
                cc_at_least: cc.0,
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
