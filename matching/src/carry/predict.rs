//! How good a carried profile will turn out, said without a fresh one: from how sure each count is.
//!
//! A branch is predicted wrong, or a block's "was executed" differs, the more often the less sure the match is that its
//! count came along. How often is measured: the mean over pairs of releases of several programs (BENCHMARKS.md).
//!
//! Source: ours; BMAT has no such prediction. The measures themselves: `score`.

use crate::score::branch_sides;
use profile::{Edge as EdgeAt, Profile};
use program::{BlockId, Program, Va};
use std::collections::BTreeMap;

/// What is expected of a carried profile. Shares are 0.0..=1.0.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Prediction {
    /// B.P.
    pub bp_share: f64,
    /// C.C. over our blocks.
    pub cc_share: f64,
}

/// Upper end of a class of confidence; of a branch's executions there, the share that goes wrong beyond what a fresh
/// profile gets wrong; of blocks, the share whose "was executed" differs.
const CLASSES: [(f32, f64, f64); 11] = [
    (0.0, 0.80, 0.45),
    (0.25, 0.25, 0.24),
    (0.35, 0.20, 0.26),
    (0.45, 0.03, 0.22),
    (0.5, 0.08, 0.17),
    (0.6, 0.006, 0.08),
    (0.7, 0.004, 0.045),
    (0.8, 0.006, 0.028),
    (0.9, 0.001, 0.015),
    (0.95, 0.000_4, 0.004),
    (1.0, 0.000_1, 0.002),
];

fn class(confidence: f32) -> (f64, f64) {
    let of = CLASSES.iter().find(|c| confidence <= c.0).or(CLASSES.last());
    of.map_or((0.0, 0.0), |c| (c.1, c.2))
}

/// Expects B.P. and C.C. of `profile`, whose counts are as sure as `confidence` says.
pub(crate) fn predict(new: &Program, profile: &Profile, confidence: &BTreeMap<Va, f32>) -> Prediction {
    let sure = |b: BlockId| confidence.get(&new.block(b).start).copied().unwrap_or(0.0);
    let (mut mass, mut wrong) = (0.0_f64, 0.0_f64);
    let (mut n, mut differ) = (0.0_f64, 0.0_f64);
    for b in (0..new.blocks.len()).map(BlockId::at) {
        let at = new.block(b).start;
        let origin = new.function(new.block(b).func).origin;
        if origin == program::Origin::Plt {
            continue;
        }
        n += 1.0;
        if confidence.contains_key(&at) {
            differ += class(sure(b)).1;
        }
        let Some(sides) = branch_sides(new, b) else { continue };
        let mut most = 0_u64;
        let mut least_sure = sure(b);
        for e in sides {
            let to = new.edges[e].to;
            let count =
                profile.edges.get(&EdgeAt { from: at, to: new.block(to).start }).copied().unwrap_or(0);
            most = most.max(count);
            least_sure = least_sure.min(sure(to));
        }
        mass += most as f64;
        wrong += most as f64 * class(least_sure).0;
    }
    Prediction {
        bp_share: if mass > 0.0 { 1.0 - wrong / mass } else { 1.0 },
        cc_share: if n > 0.0 { 1.0 - differ / n } else { 1.0 },
    }
}
