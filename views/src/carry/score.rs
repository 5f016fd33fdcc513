//! What `engraft score` says: how good a carried profile is, held against fresh ones.
//!
//! Shares are `0.0..=1.0`, `null` where there is nothing that they are a share of.

use crate::{Table, View, address, share, share_if_any};
use serde::Serialize;
use std::io::{self, Write};

/// The paper's tables 6 and 7.
#[derive(Debug, Serialize)]
pub struct ScoreView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The file, as it was named.
    pub binary: String,
    /// The carried profile.
    pub carried: String,
    /// Against each fresh one.
    pub scores: Vec<ScoreRow>,
    /// How much the fresh ones differ among themselves, if there are several.
    pub fresh_against_fresh: Option<BetweenView>,
}

impl ScoreView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.score/1";
}

/// The carried profile against a fresh one.
#[derive(Debug, Serialize)]
pub struct ScoreRow {
    /// The fresh one.
    pub fresh: String,
    /// Branch prediction (BMAT, 4.3).
    pub bp_share: Option<f64>,
    /// Code coverage (BMAT, 4.3).
    pub cc_share: Option<f64>,
    /// The same with blocks as llvm-bolt cuts them.
    pub cc_bolt_share: Option<f64>,
    /// The sum of the smaller normalised counts.
    pub overlap_share: Option<f64>,
    /// Executions of branches that the fresh one predicts right.
    pub fresh_success_share: Option<f64>,
    /// Those that the carried one predicts right.
    pub carried_success_share: Option<f64>,
    /// How many branches ran.
    pub n_branches: usize,
    /// Those that the carried one knows.
    pub n_branches_covered: usize,
    /// Their share of executions.
    pub covered_share: Option<f64>,
    /// How many blocks.
    pub n_blocks: usize,
    /// Those that ran by the fresh one.
    pub n_blocks_fresh: usize,
    /// Those that ran by the carried one.
    pub n_blocks_carried: usize,
    /// Those that ran by both.
    pub n_blocks_both: usize,
    /// Functions that lose most.
    pub losses: Vec<LossRow>,
}

/// A function that loses.
#[derive(Debug, Serialize)]
pub struct LossRow {
    /// Of one that the text lists: its name for people, as long as there is room.
    #[serde(skip)]
    pub readable: String,
    /// Its symbol.
    pub function: String,
    /// Its address.
    pub at: u64,
    /// Executions of branches that are predicted wrong.
    pub mispredicted: u64,
    /// Blocks that ran by one of the two alone.
    pub n_blocks_differ: usize,
    /// What is lost of the overlap.
    pub overlap_share: f64,
}

/// Fresh profiles against each other: means of all pairs.
#[derive(Debug, Serialize)]
pub struct BetweenView {
    /// How many pairs.
    pub n_pairs: usize,
    /// Branch prediction (BMAT, 4.3).
    pub bp_share: f64,
    /// Code coverage (BMAT, 4.3).
    pub cc_share: f64,
    /// The same with blocks as llvm-bolt cuts them.
    pub cc_bolt_share: f64,
    /// The sum of the smaller normalised counts.
    pub overlap_share: f64,
}

/// How many losses people get to read; JSON has all of them.
pub const LISTED: usize = 10;

impl LossRow {
    /// Whether it is more than nothing, as the text shows it.
    pub fn is_worth_a_line(&self) -> bool {
        self.mispredicted > 0 || self.n_blocks_differ > 0 || self.overlap_share >= 0.000_05
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
            for l in s.losses.iter().filter(|l| l.is_worth_a_line()).take(LISTED) {
                t.row([
                    String::new(),
                    address(l.at),
                    l.mispredicted.to_string(),
                    l.n_blocks_differ.to_string(),
                    share(l.overlap_share),
                    l.readable.clone(),
                ]);
            }
            t.text(w)?;
        }
        Ok(())
    }
}
