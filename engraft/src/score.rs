//! `engraft score`: how good a carried profile is, held against one taken on the new build itself.

use crate::input;
use crate::input::names::readable;
use crate::output::{Answer, Output};
use matching::{Score, Uncertainty, score, uncertainty};
use program::{Program, Va};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use tracing::info_span;
use views::{Table, View, share, share_if_any};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft score carried.fdata new.callgrind --binary new
  $ engraft score carried.fdata new.callgrind new.callgrind --binary new --json";

/// Hold a carried profile against fresh ones of the same build
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
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
        schema: "engraft.score/1",
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

/// The paper's tables 6 and 7.
#[derive(Serialize)]
pub struct ScoreView {
    schema: &'static str,
    binary: String,
    carried: String,
    scores: Vec<ScoreRow>,
    fresh_against_fresh: Option<BetweenView>,
}

#[derive(Serialize)]
struct ScoreRow {
    fresh: String,
    bp_share: Option<f64>,
    cc_share: Option<f64>,
    cc_bolt_share: Option<f64>,
    overlap_share: Option<f64>,
    fresh_success_share: Option<f64>,
    carried_success_share: Option<f64>,
    n_branches: usize,
    n_branches_covered: usize,
    covered_share: Option<f64>,
    n_blocks: usize,
    n_blocks_fresh: usize,
    n_blocks_carried: usize,
    n_blocks_both: usize,
    losses: Vec<LossRow>,
}

#[derive(Serialize)]
struct LossRow {
    function: String,
    at: u64,
    mispredicted: u64,
    n_blocks_differ: usize,
    overlap_share: f64,
}

#[derive(Serialize)]
struct BetweenView {
    n_pairs: usize,
    bp_share: f64,
    cc_share: f64,
    cc_bolt_share: f64,
    overlap_share: f64,
}

fn row(new: &Program, fresh: String, s: &Score) -> ScoreRow {
    let [n_blocks_fresh, n_blocks_carried, n_blocks_both] = s.n_executed;
    // A share of nothing is none: not all, and not zero.
    let of = |n: usize, share: f64| (n > 0).then_some(share);
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
        losses: s
            .losses
            .iter()
            .map(|l| LossRow {
                function: new.function(l.func).name(),
                at: new.function(l.func).entry.0,
                mispredicted: l.mispredicted,
                n_blocks_differ: l.n_blocks_differ,
                overlap_share: l.overlap_share,
            })
            .collect(),
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

impl View for ScoreView {
    /// A row a comparison.
    fn table(&self) -> Table {
        let mut t = Table::new(&["", "against", "B.P.>", "C.C.>", "C.C. (llvm-bolt's blocks)>", "overlap>"]);
        for s in &self.scores {
            t.row([
                "carried".into(),
                s.fresh.clone(),
                share_if_any(s.bp_share),
                share_if_any(s.cc_share),
                share_if_any(s.cc_bolt_share),
                share_if_any(s.overlap_share),
            ]);
        }
        if let Some(u) = &self.fresh_against_fresh {
            t.row([
                "fresh".into(),
                format!("fresh, mean of {} pairs", u.n_pairs),
                share(u.bp_share),
                share(u.cc_share),
                share(u.cc_bolt_share),
                share(u.overlap_share),
            ]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.table().text(w)?;
        for s in &self.scores {
            writeln!(
                w,
                "\nagainst {}:\n  branches predicted right: {} by the fresh profile, {} by the carried one",
                s.fresh,
                share_if_any(s.fresh_success_share),
                share_if_any(s.carried_success_share)
            )?;
            writeln!(
                w,
                "  of {} branches that ran, the carried profile knows {} ({} of their executions)",
                s.n_branches,
                s.n_branches_covered,
                share_if_any(s.covered_share)
            )?;
            writeln!(
                w,
                "  of {} blocks, {} ran by the fresh profile, {} by the carried one, {} by both",
                s.n_blocks, s.n_blocks_fresh, s.n_blocks_carried, s.n_blocks_both
            )?;
            if s.losses.is_empty() {
                continue;
            }
            writeln!(w, "\n  functions that lose most:")?;
            let mut t =
                Table::new(&["", "at>", "mispredicted>", "blocks differ>", "overlap lost>", "function"]);
            let worth_a_line =
                |l: &&LossRow| l.mispredicted > 0 || l.n_blocks_differ > 0 || l.overlap_share >= 0.000_05;
            for l in s.losses.iter().filter(worth_a_line).take(10) {
                t.row([
                    String::new(),
                    Va(l.at).to_string(),
                    l.mispredicted.to_string(),
                    l.n_blocks_differ.to_string(),
                    share(l.overlap_share),
                    readable(&l.function),
                ]);
            }
            t.text(w)?;
        }
        Ok(())
    }
}
