//! How good a carried profile is, held against a fresh one of the same build: B.P., C.C. and overlap.
//!
//! B.P.: every conditional branch that the fresh profile saw is predicted to go where the carried one says it
//! goes more often; branches that the carried one knows nothing of are predicted taken. The share of right
//! predictions is divided by the share that the fresh profile itself gets right.
//! C.C.: the share of blocks whose "was executed" agrees; what is not covered was not executed.
//! Overlap: the sum of the smaller of the two normalised counts, over blocks.
//!
//! Functions that ran, but whose inside the fresh profile does not know, are left out: nothing can be said of
//! them.
//!
//! Source: BMAT, section 4.3 and tables 6 and 7; footnote 4 for uncovered branches.
//! Not here: how a profile is carried (`carry`).

use crate::counts::Measured;
use crate::counts::bolt;
use crate::counts::branches::branch_sides;
use crate::counts::evidence::inside;
use profile::Profile;
use program::{FuncId, Origin, Program};

/// How well a carried profile agrees with a fresh one. Shares are `0.0..=1.0`.
#[derive(Clone, PartialEq, Debug)]
pub struct Score {
    /// B.P.: right predictions by the carried profile, of those that the fresh one gets right.
    pub bp_share: f64,
    /// Branch executions predicted right by the fresh profile itself.
    pub fresh_success_share: f64,
    /// Branch executions predicted right by the carried profile.
    pub carried_success_share: f64,
    /// C.C. over our blocks.
    pub cc_share: f64,
    /// C.C. over the blocks and functions that llvm-bolt makes a control-flow graph of.
    pub cc_bolt_share: f64,
    /// Overlap over our blocks.
    pub overlap_share: f64,
    /// Conditional branches that ran.
    pub n_branches: usize,
    /// Of those, how many the carried profile knows.
    pub n_covered: usize,
    /// The share of all branch executions that are at those.
    pub covered_share: f64,
    /// Blocks compared.
    pub n_blocks: usize,
    /// Of those, in what llvm-bolt makes a control-flow graph of.
    pub n_blocks_bolt: usize,
    /// Blocks that ran according to the fresh profile, to the carried one, to both.
    pub n_executed: [usize; 3],
    /// Functions by what they cost, the worst first; those that cost nothing are left out.
    pub losses: Vec<FunctionLoss>,
}

/// What one function contributes to a worse score.
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionLoss {
    /// The function.
    pub func: FuncId,
    /// Executions of branches predicted wrong beyond what the fresh profile gets wrong.
    pub mispredicted: u64,
    /// Blocks whose "was executed" differs.
    pub n_blocks_differ: usize,
    /// Its share of the missing overlap: half the sum of the differences of normalised counts.
    pub overlap_share: f64,
}

/// How much profiles of one build differ from run to run: the mean over all ordered pairs of them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Uncertainty {
    /// Pairs scored.
    pub n_pairs: usize,
    /// Mean B.P.
    pub bp_share: f64,
    /// Mean C.C. over our blocks.
    pub cc_share: f64,
    /// Mean C.C. over llvm-bolt's blocks.
    pub cc_bolt_share: f64,
    /// Mean overlap.
    pub overlap_share: f64,
}

/// Scores `carried` against `fresh`, both profiles of `new`.
pub fn score(new: &Program, carried: &Profile, fresh: &Profile) -> Score {
    score_measured(new, &Measured::of(new, carried), &Measured::of(new, fresh))
}

/// Execution uncertainty: scores every profile of `new` against every other.
///
/// Shape: `None` if there are not two of them.
pub fn uncertainty(new: &Program, fresh: &[Profile]) -> Option<Uncertainty> {
    let all: Vec<Measured> = fresh.iter().map(|p| Measured::of(new, p)).collect();
    let mut sum = Uncertainty::default();
    for (i, a) in all.iter().enumerate() {
        for (k, b) in all.iter().enumerate() {
            if i == k {
                continue;
            }
            let s = score_measured(new, a, b);
            sum.n_pairs += 1;
            sum.bp_share += s.bp_share;
            sum.cc_share += s.cc_share;
            sum.cc_bolt_share += s.cc_bolt_share;
            sum.overlap_share += s.overlap_share;
        }
    }
    let n = sum.n_pairs as f64;
    (sum.n_pairs > 0).then(|| Uncertainty {
        n_pairs: sum.n_pairs,
        bp_share: sum.bp_share / n,
        cc_share: sum.cc_share / n,
        cc_bolt_share: sum.cc_bolt_share / n,
        overlap_share: sum.overlap_share / n,
    })
}

/// How branch executions were predicted.
#[derive(Default)]
struct Branches {
    /// Conditional branches.
    n: usize,
    /// Of those, how many the carried profile knows.
    n_covered: usize,
    seen: u64,
    /// Executions of the branches that the carried profile knows.
    covered: u64,
    /// Executions that the fresh profile itself predicts right.
    right_fresh: u64,
    /// Executions that the carried profile predicts right.
    right_carried: u64,
}

impl Branches {
    /// Adds a branch by the counts of its sides, taken and not. How often the carried profile predicts it
    /// wrong beyond what the fresh one does.
    fn add(&mut self, fresh: [u64; 2], carried: [u64; 2]) -> u64 {
        let [t, n] = fresh;
        if t == 0 && n == 0 {
            return 0;
        }
        let [ct, cn] = carried;
        let right = if ct >= cn { t } else { n };
        self.n += 1;
        self.seen = self.seen.saturating_add(t).saturating_add(n);
        self.right_fresh = self.right_fresh.saturating_add(t.max(n));
        self.right_carried = self.right_carried.saturating_add(right);
        if ct > 0 || cn > 0 {
            self.n_covered += 1;
            self.covered = self.covered.saturating_add(t).saturating_add(n);
        }
        t.max(n) - right
    }
}

fn score_measured(new: &Program, carried: &Measured, fresh: &Measured) -> Score {
    let (want, got) = (fresh.times(new), carried.times(new));
    let share = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    let compared: Vec<bool> = new.func_ids().map(|f| is_compared(new, f, fresh)).collect();
    let of_code = |f: FuncId| compared[f.index()];
    let total = |counts: &[u64]| -> f64 {
        let code = new.blocks.iter().zip(counts).filter(|(b, _)| of_code(b.func));
        code.map(|(_, &c)| c as f64).sum()
    };
    let (want_total, got_total) = (total(&want), total(&got));
    let both = || new.blocks.iter().zip(want.iter().zip(&got)).filter(|(b, _)| of_code(b.func));
    let overlap_share = profile::overlap(both().map(|(_, (&w, &g))| (w, g)));
    let mut s = Score {
        bp_share: 1.0,
        fresh_success_share: 1.0,
        carried_success_share: 1.0,
        cc_share: 1.0,
        cc_bolt_share: 1.0,
        overlap_share,
        n_branches: 0,
        n_covered: 0,
        covered_share: 0.0,
        n_blocks: 0,
        n_blocks_bolt: 0,
        n_executed: [0; 3],
        losses: Vec::new(),
    };
    let (mut n_agree, mut n_agree_bolt) = (0, 0);
    let mut branches = Branches::default();
    for f in new.func_ids().filter(|&f| of_code(f)) {
        let mut loss = FunctionLoss { func: f, mispredicted: 0, n_blocks_differ: 0, overlap_share: 0.0 };
        let in_bolt = bolt::understands(new, f);
        for b in new.function(f).block_ids() {
            let (w, g) = (want[b.index()], got[b.index()]);
            let (ran, carried_ran) = (w > 0, g > 0);
            s.n_blocks += 1;
            n_agree += usize::from(ran == carried_ran);
            loss.n_blocks_differ += usize::from(ran != carried_ran);
            s.n_executed[0] += usize::from(ran);
            s.n_executed[1] += usize::from(carried_ran);
            s.n_executed[2] += usize::from(ran && carried_ran);
            let (x, y) = (w as f64 / want_total.max(1.0), g as f64 / got_total.max(1.0));
            loss.overlap_share += (x - y).abs() / 2.0;
            if in_bolt && !bolt::joins_branch_before(new, b) {
                s.n_blocks_bolt += 1;
                n_agree_bolt += usize::from(ran == carried_ran);
            }
            if let Some(sides) = branch_sides(new, b) {
                let of = |m: &Measured| sides.map(|e| m.edges[e].unwrap_or(0));
                loss.mispredicted = loss.mispredicted.saturating_add(branches.add(of(fresh), of(carried)));
            }
        }
        if loss.mispredicted > 0 || loss.n_blocks_differ > 0 || loss.overlap_share > 1e-9 {
            s.losses.push(loss);
        }
    }
    (s.n_branches, s.n_covered) = (branches.n, branches.n_covered);
    if branches.seen > 0 {
        s.fresh_success_share = share(branches.right_fresh, branches.seen);
        s.carried_success_share = share(branches.right_carried, branches.seen);
        s.bp_share = share(branches.right_carried, branches.right_fresh);
        s.covered_share = share(branches.covered, branches.seen);
    }
    if s.n_blocks > 0 {
        s.cc_share = share(n_agree as u64, s.n_blocks as u64);
    }
    if s.n_blocks_bolt > 0 {
        s.cc_bolt_share = share(n_agree_bolt as u64, s.n_blocks_bolt as u64);
    }
    let weight = |l: &FunctionLoss| {
        l.mispredicted as f64 / branches.right_fresh.max(1) as f64
            + l.n_blocks_differ as f64 / s.n_blocks.max(1) as f64
            + l.overlap_share
    };
    s.losses.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.func.cmp(&b.func)));
    s
}

/// Whether the fresh profile can be held against anything: stubs have no counts, nor has what was only
/// entered.
fn is_compared(p: &Program, f: FuncId, fresh: &Measured) -> bool {
    let function = p.function(f);
    if function.origin == Origin::Plt {
        return false;
    }
    let branches = function.block_ids().any(|b| !p.successors(b).is_empty());
    let inside = inside(p, fresh, f);
    let entered = function.block_ids().any(|b| fresh.entries[b.index()].is_some_and(|c| c > 0));
    let ran = function.block_ids().any(|b| fresh.blocks[b.index()].is_some_and(|c| c > 0));
    inside || !branches || !(entered || ran)
}
