//! Which calls were made, and how often: those that a profile counts, and those that follow from its blocks.
//!
//! A call runs as often as its block, unless an earlier one in it did not come back (`bounds`); a branch out
//! of a function as often as its block does not go on. Where indirect calls lead is known only if the
//! profile counts them.

mod bounds;
mod cuts;
mod references;

pub use cuts::Cuts;
pub use references::referred;

use crate::counts::{Count, Edge, Exactness, Profile};
use program::{Call, CallKind, Callee, Program, Va};

/// A call that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallMade {
    /// The calling instruction.
    pub at: Va,
    /// Where it leads, if that is known and in the image.
    pub to: Option<Va>,
    /// How often; where that is not sure, as often as its block ran, as near as the bounds allow.
    pub n: Count,
}

/// All calls of which `profile` tells that they ran, by instruction.
pub fn made(profile: &Profile, program: &Program) -> Vec<CallMade> {
    let mut all = all(profile, program);
    all.retain(|call| call.n.most > 0);
    all
}

/// The same, and those of which it tells that they never did.
pub(crate) fn all(profile: &Profile, program: &Program) -> Vec<CallMade> {
    let counted = |(&(at, to), &n): (&(Va, Va), &u64)| CallMade {
        at,
        to: Some(to),
        n: Count::of(n, profile.intervals.calls.get(&(at, to))),
    };
    let mut found: Vec<CallMade> = profile.calls.iter().map(counted).collect();
    found.extend(profile.calls_out.iter().map(|(&at, &n)| CallMade { at, to: None, n: Count::exact(n) }));
    found.sort_unstable_by_key(|call| (call.at, call.to));
    let is_counted = |at: Va| found.binary_search_by_key(&at, |call| call.at).is_ok();
    // What other tools and inference say of blocks need not fit together.
    let is_ours = profile.exactness == Exactness::Exact && !profile.entries.is_empty();
    let needed = program.calls.iter().any(|call| !is_counted(call.at));
    let bounds = (is_ours && needed).then(|| bounds::of(profile, program));
    let mut others = Vec::new();
    for (i, call) in program.calls.iter().enumerate().filter(|(_, call)| !is_counted(call.at)) {
        let n = match &bounds {
            Some(bounds) => bounds.get(i).copied().flatten(),
            None => follows(profile, program, call).map(Count::exact),
        };
        if let Some(n) = n {
            let to = match call.callee {
                Callee::Function(callee) => Some(program.function(callee).entry),
                Callee::Import(_) | Callee::Unknown(_) | Callee::Indirect => None,
            };
            others.push(CallMade { at: call.at, to, n });
        }
    }
    found.extend(others);
    found.sort_unstable_by_key(|call| (call.at, call.to));
    found
}

/// How often `call` ran, from the counts of its block and of the edges out of it.
fn follows(profile: &Profile, program: &Program, call: &Call) -> Option<u64> {
    let block = program.block(call.block);
    let n = *profile.blocks.get(&block.start)?;
    match call.kind {
        CallKind::Call | CallKind::TailCall => Some(n),
        CallKind::BranchTailCall => {
            let ways = program.successors(call.block).iter();
            let count = |to| profile.edges.get(&Edge { from: block.start, to }).copied();
            let on: u64 = ways.map(|e| count(program.block(e.to).start)).sum::<Option<u64>>()?;
            Some(n.saturating_sub(on))
        }
        // Behind a branch, nobody knows.
        CallKind::FallThrough => {
            let is_alone =
                program.calls_in(call.block).iter().all(|c| c.at != call.at || c.kind == call.kind);
            Some(n).filter(|_| is_alone && program.successors(call.block).is_empty())
        }
    }
}
