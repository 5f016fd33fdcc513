//! `engraft score`: how good a carried profile is, held against one taken on the new build itself.

use crate::input;
use crate::input::names::readable;
use crate::output::{Answer, Output};
use matching::{FunctionLoss, Score, Uncertainty, score, uncertainty};
use program::Program;
use std::path::PathBuf;
use tracing::info_span;
use views::carry::score::{BetweenView, LISTED, LossRow, ScoreRow, ScoreView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft score carried.fdata new.callgrind --binary new
  $ engraft score carried.fdata new.callgrind new.callgrind --binary new --json";

/// Hold a carried profile against fresh ones of the same build
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The carried profile
    carried: PathBuf,
    /// Profiles taken on the new build; with several, the table also says how much they differ among
    /// themselves
    #[arg(required = true)]
    fresh: Vec<PathBuf>,
    /// The new build
    #[arg(long, value_name = "NEW")]
    binary: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let new = input::program(&args.binary)?;
    let read = |path| {
        let mut profile = input::profile(path, Some(&new))?.profile;
        profile::flow::complete(&new, &mut profile);
        anyhow::Ok(profile)
    };
    let carried = read(&args.carried)?;
    let fresh = args.fresh.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let view = info_span!("score").in_scope(|| ScoreView {
        schema: ScoreView::SCHEMA,
        binary: new.image.name.clone(),
        carried: args.carried.display().to_string(),
        scores: fresh
            .iter()
            .zip(&args.fresh)
            .map(|(f, path)| row(&new, path.display().to_string(), &score(&new, &carried, f)))
            .collect(),
        fresh_against_fresh: uncertainty(&new, &fresh).map(|u| between(&u)),
    });
    args.output.print(&view)?;
    Ok(Answer::Yes)
}

fn row(new: &Program, fresh: String, s: &Score) -> ScoreRow {
    let [n_blocks_fresh, n_blocks_carried, n_blocks_both] = s.n_executed;
    // A share of nothing is none: not all, and not zero.
    let of = |n: usize, share: f64| (n > 0).then_some(share);
    let mut losses: Vec<_> = s.losses.iter().map(|l| loss(new, l)).collect();
    for listed in losses.iter_mut().filter(|l| l.is_worth_a_line()).take(LISTED) {
        listed.readable = readable(&listed.function);
    }
    ScoreRow {
        fresh,
        bp_share: of(s.n_branches, s.bp_share),
        cc_share: of(s.n_blocks, s.cc_share),
        cc_bolt_share: of(s.n_blocks_bolt, s.cc_bolt_share),
        overlap_share: of(n_blocks_fresh, s.overlap_share),
        fresh_success_share: of(s.n_branches, s.fresh_success_share),
        carried_success_share: of(s.n_branches, s.carried_success_share),
        n_branches: s.n_branches,
        n_branches_covered: s.n_covered,
        covered_share: of(s.n_branches, s.covered_share),
        n_blocks: s.n_blocks,
        n_blocks_fresh,
        n_blocks_carried,
        n_blocks_both,
        losses,
    }
}

fn loss(new: &Program, l: &FunctionLoss) -> LossRow {
    LossRow {
        readable: String::new(),
        function: new.function(l.func).name(),
        at: new.function(l.func).entry.0,
        mispredicted: l.mispredicted,
        n_blocks_differ: l.n_blocks_differ,
        overlap_share: l.overlap_share,
    }
}

fn between(u: &Uncertainty) -> BetweenView {
    BetweenView {
        n_pairs: u.n_pairs,
        bp_share: u.bp_share,
        cc_share: u.cc_share,
        cc_bolt_share: u.cc_bolt_share,
        overlap_share: u.overlap_share,
    }
}
