//! Which calls were made, and how often: those that a profile counts, and those that follow from its blocks.
//!
//! A call runs as often as its block, unless an earlier one in it did not come back; a branch out of a function as often as its block does
//! not go on. Where calls through pointers lead is known only if the profile counts them.

use crate::counts::{Edge, Profile};
use program::{Call, CallKind, Callee, Program, Va};

/// A call that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// The calling instruction.
    pub at: Va,
    /// Where it leads, if that is known and in the image.
    pub to: Option<Va>,
    /// How often.
    pub n: u64,
}

/// All calls of which `profile` tells that they ran, by instruction.
pub fn made(profile: &Profile, program: &Program) -> Vec<Made> {
    let mut found: Vec<Made> =
        profile.calls.iter().map(|(&(at, to), &n)| Made { at, to: Some(to), n }).collect();
    found.extend(profile.calls_out.iter().map(|(&at, &n)| Made { at, to: None, n }));
    found.sort_unstable_by_key(|call| (call.at, call.to));
    let n_counted = found.len();
    for call in &program.calls {
        let counted = found.get(..n_counted).unwrap_or_default();
        if counted.binary_search_by_key(&call.at, |call| call.at).is_err()
            && let Some(n) = follows(profile, program, call)
        {
            let to = match call.callee {
                Callee::Function(callee) => Some(program.function(callee).entry),
                Callee::Import(_) | Callee::Unknown(_) | Callee::Indirect => None,
            };
            found.push(Made { at: call.at, to, n });
        }
    }
    found.retain(|call| call.n > 0);
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
