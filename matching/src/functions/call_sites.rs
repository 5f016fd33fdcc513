//! Functions that nothing else claims, called at the same place by blocks that are each other: what was
//! renamed and changed at once.
//!
//! Two functions without a counterpart are each other if more than half of the matched blocks that call
//! either call the other in its place, and a good part of their code matches. Found pairs bring blocks, whose
//! calls are looked at in turn.
//!
//! Invariant: takes only what is free on both sides; never a stub of an import.
//!
//! Source: BMAT, 3.3, which leaves such functions unmatched; the reasoning is that of its control-flow-based
//! matching, one floor up.

use crate::blocks::{self, Context};
use crate::relation::{BlockMatch, BlockMethod, FunctionMatch, FunctionMethod};
use program::{BlockId, Callee, FuncId, Program};
use std::collections::BTreeMap;

/// Blocks that are less surely each other tell nothing of what they call.
const SURE: f32 = 0.9;
/// What part of the instructions of the smaller function must be in blocks that match otherwise than by their
/// place in the flow.
const LEAST_PART: f32 = 0.4;
/// How sure such a pair is.
const CONFIDENCE: f32 = 0.8;

/// Adds the pairs to `functions`, which stay sorted by new, and their blocks to `blocks`, likewise.
pub fn pass(
    old: &Program,
    new: &Program,
    functions: &mut Vec<FunctionMatch>,
    ctx: &Context<'_>,
    blocks: &mut Vec<BlockMatch>,
) {
    let mut to_new: BTreeMap<FuncId, FuncId> = functions.iter().map(|m| (m.old, m.new)).collect();
    let mut to_old: BTreeMap<FuncId, FuncId> = functions.iter().map(|m| (m.new, m.old)).collect();
    let mut votes = Votes::default();
    let mut fresh = blocks.clone();
    while !fresh.is_empty() {
        for m in &fresh {
            votes.look(old, new, m, &to_new, &to_old);
        }
        fresh.clear();
        for (a, b) in votes.elected() {
            if to_new.contains_key(&a) || to_old.contains_key(&b) || !ctx.options.allows(a, b) {
                continue;
            }
            let found = blocks::compute(old, a, new, b, ctx);
            if part(old, a, new, b, &found) >= LEAST_PART {
                to_new.insert(a, b);
                to_old.insert(b, a);
                let method = FunctionMethod::Neighbours;
                functions.push(FunctionMatch { old: a, new: b, method, confidence: CONFIDENCE });
                fresh.extend(found);
            }
        }
        blocks.extend(&fresh);
    }
    functions.sort_by_key(|m| m.new);
    blocks.sort_by_key(|m| m.new);
}

/// How often free functions were seen called, and how often in each other's place.
#[derive(Default)]
struct Votes {
    both: BTreeMap<(FuncId, FuncId), u32>,
    old: BTreeMap<FuncId, u32>,
    new: BTreeMap<FuncId, u32>,
}

impl Votes {
    fn look(
        &mut self,
        old: &Program,
        new: &Program,
        m: &BlockMatch,
        to_new: &BTreeMap<FuncId, FuncId>,
        to_old: &BTreeMap<FuncId, FuncId>,
    ) {
        if m.partial || m.confidence < SURE || m.method == BlockMethod::Inlined {
            return;
        }
        let (from, to) = (callees(old, m.old), callees(new, m.new));
        let is_free_old = |f: &FuncId| !to_new.contains_key(f) && old.function(*f).import.is_none();
        let is_free_new = |f: &FuncId| !to_old.contains_key(f) && new.function(*f).import.is_none();
        for f in from.iter().flatten().filter(|f| is_free_old(f)) {
            *self.old.entry(*f).or_default() += 1;
        }
        for f in to.iter().flatten().filter(|f| is_free_new(f)) {
            *self.new.entry(*f).or_default() += 1;
        }
        if from.len() == to.len() {
            for (a, b) in from.into_iter().zip(to).filter_map(|(a, b)| Some((a?, b?))) {
                if is_free_old(&a) && is_free_new(&b) {
                    *self.both.entry((a, b)).or_default() += 1;
                }
            }
        }
    }

    /// Pairs that most callers of either agree on; those with most of them first.
    fn elected(&self) -> Vec<(FuncId, FuncId)> {
        let most = |n: u32, of: Option<&u32>| 2 * n > of.copied().unwrap_or(0);
        let agreed = |((a, b), n): &(&(FuncId, FuncId), &u32)| {
            most(**n, self.old.get(a)) && most(**n, self.new.get(b))
        };
        let mut pairs: Vec<(u32, (FuncId, FuncId))> =
            self.both.iter().filter(agreed).map(|(pair, n)| (*n, *pair)).collect();
        pairs.sort_by_key(|(n, pair)| (std::cmp::Reverse(*n), *pair));
        pairs.into_iter().map(|(_, pair)| pair).collect()
    }
}

/// Whom the calls in `block` call, in order; `None` for what is no function of the image.
fn callees(program: &Program, block: BlockId) -> Vec<Option<FuncId>> {
    let callee = |callee| match callee {
        Callee::Function(f) => Some(f),
        _ => None,
    };
    program.calls_in(block).iter().map(|c| callee(c.callee)).collect()
}

/// What part of the smaller function's instructions is in blocks that match by what they hold.
fn part(old: &Program, a: FuncId, new: &Program, b: FuncId, found: &[BlockMatch]) -> f32 {
    let len = |p: &Program, f: FuncId| p.function(f).block_ids().map(|b| p.block(b).n_insns).sum::<u32>();
    let firm = found.iter().filter(|m| m.method != BlockMethod::ControlFlow && !m.partial);
    let (mut of_old, mut of_new) = (0, 0);
    for m in firm {
        of_old += old.block(m.old).n_insns;
        of_new += new.block(m.new).n_insns;
    }
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = of_old.min(of_new) as f32 / len(old, a).min(len(new, b)).max(1) as f32;
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Options, Pass};
    use crate::relation::Matching;
    use crate::testing::{compile, function};

    const LOOP: &str =
        "for (int i = 0; i < n; i++) { if (a[i] > 77) s += one(a[i]); else if (a[i] == 5005) s ^= n; }";

    /// A program in which `user` calls a function of this name, with this in it.
    fn program(name: &str, body: &str) -> Program {
        let text = format!(
            "extern int one(long), two(long, long), three(int);
             __attribute__((noinline)) static int NAME(long *a, int n) {{
                 int s = 0;
                 {body}
                 return s * 17 + three(s);
             }}
             int user(long *a, int n) {{
                 if (n == 31337) return three(7);
                 int s = NAME(a, n + 1);
                 return three(s) - 3;
             }}"
        );
        compile(&text.replace("NAME", name), "c", &["-O2", "-shared", "-fPIC", "-nostartfiles"])
    }

    #[track_caller]
    fn check(body: &str) {
        let (old, new) = (program("gather", &format!("{LOOP} s += 3;")), program("weigh_by_kind", body));
        let pair = (function(&old, "gather"), function(&new, "weigh_by_kind"));
        let mut options = Options::all();
        for other in [Pass::Neighbours, Pass::Features, Pass::SimilarNames, Pass::Hashes] {
            options = options.without(other);
        }
        let found = |options: &Options| {
            let found = Matching::compute(&old, &new, options);
            let named = found.functions.iter().any(|m| (m.old, m.new) == pair);
            let inside = found
                .blocks
                .iter()
                .any(|m| old.block(m.old).func == pair.0 && new.block(m.new).func == pair.1);
            assert!(!named || inside);
            named
        };
        assert!(found(&options), "{body}");
        assert!(!found(&options.without(Pass::CallSites)));
    }

    #[test]
    fn what_was_renamed_is_found_by_the_call_to_it() {
        check(&format!("{LOOP} while (a[s & 3] != 4242) {{ s += two(a[0], s); if (s > 99) return s; }}"));
    }
}
