//! Code that was inlined in one build and called in the other: a relation across functions.
//!
//! Where the old function calls another and the new one no longer does, the new one's blocks that nothing
//! firm was found for are compared with the callee's; and the other way round. A region is taken only if it
//! holds a good part of the callee. Shares: a callee's counts are split evenly over its call sites; counts of
//! an inlined copy all go to the callee.
//!
//! Not here: blocks of two functions that are each other (`blocks`). The paper leaves this out (BMAT, 2).

use crate::blocks::{Body, Context, count, fit};
use crate::hash::{Keys, read_function};
use crate::relation::{BlockMatch, BlockMethod, FunctionMatch};
use program::{BlockId, Callee, FuncId, Program};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// What part of the callee's instructions a region must hold.
const LEAST_PART: f32 = 0.45;
/// Pairs that alignment is less sure of are left.
const LEAST_CONFIDENCE: f32 = 0.93;
/// What part of the callee's instructions must be found somewhere in the region at all, for it to be worth a
/// closer look.
const LEAST_COMMON: f32 = 0.3;
/// A callee of fewer instructions, or of one block, looks like too much else.
const LEAST_INSNS: u32 = 8;
/// Copies of one callee looked for in one function.
const MOST_COPIES: usize = 4;

/// Adds matches across functions; new blocks that get one lose what they had by control flow only. `wanted`
/// says in which functions is looked.
pub fn pass(
    old: &Program,
    new: &Program,
    functions: &[FunctionMatch],
    wanted: impl Fn(&FunctionMatch) -> bool + Sync,
    ctx: &Context<'_>,
    blocks: &mut Vec<BlockMatch>,
) {
    let firm = |m: &&BlockMatch| m.method != BlockMethod::ControlFlow;
    let mut firm_old = vec![false; old.blocks.len()];
    let mut firm_new = vec![false; new.blocks.len()];
    for m in blocks.iter().filter(firm) {
        firm_old[m.old.index()] = true;
        firm_new[m.new.index()] = true;
    }
    let (old_calls, new_calls) = rayon::join(|| Calls::of(old), || Calls::of(new));
    let mut to_new = vec![None; old.functions.len()];
    let mut to_old = vec![None; new.functions.len()];
    for m in functions {
        to_new[m.old.index()] = Some(m.new);
        to_old[m.new.index()] = Some(m.old);
    }
    let (old_tokens, new_tokens) = (Tokens::new(old, ctx.old), Tokens::new(new, ctx.new));
    let found: Vec<Vec<BlockMatch>> = functions
        .par_iter()
        .filter(|m| wanted(m))
        .map(|m| {
            let mut out = Vec::new();
            let loose = |p: &Program, f: FuncId, firm: &[bool]| -> Vec<u32> {
                let f = p.function(f);
                (0..).zip(f.block_ids()).filter(|(_, b)| !firm[b.index()]).map(|(i, _)| i).collect()
            };
            let region = loose(new, m.new, &firm_new);
            let mut gone = old_calls.beyond(m.old, &new_calls, m.new, &to_new);
            gone.retain(|&(callee, _)| old_tokens.tell(callee));
            if region.len() > 1 && !gone.is_empty() {
                let body = Body::read(new, ctx.new, m.new);
                search(&body, region, &gone, &old_tokens, |callee, copy, of| {
                    let sites = old_calls.sites[callee.index()].max(1);
                    out.extend(of.iter().map(|&(inside, outside, confidence)| {
                        #[expect(clippy::cast_precision_loss, reason = "a share")]
                        let share = 1.0 / sites as f32;
                        inlined(copy.id(inside), body.id(outside), confidence, share)
                    }));
                });
            }
            let region = loose(old, m.old, &firm_old);
            let mut come = new_calls.beyond(m.new, &old_calls, m.old, &to_old);
            come.retain(|&(callee, _)| new_tokens.tell(callee));
            if region.len() > 1 && !come.is_empty() {
                let body = Body::read(old, ctx.old, m.old);
                search(&body, region, &come, &new_tokens, |_, copy, of| {
                    out.extend(of.iter().map(|&(inside, outside, confidence)| {
                        inlined(body.id(outside), copy.id(inside), confidence, 1.0)
                    }));
                });
            }
            out
        })
        .collect();
    let found: Vec<BlockMatch> = found.into_iter().flatten().collect();
    let mut explained = vec![false; new.blocks.len()];
    for m in &found {
        explained[m.new.index()] = true;
    }
    blocks.retain(|m| m.method != BlockMethod::ControlFlow || !explained[m.new.index()]);
    blocks.extend(found);
    // Stable, and a block's own function comes before the places it was inlined in.
    blocks.sort_by_key(|m| (m.new, m.method == BlockMethod::Inlined));
}

fn inlined(old: BlockId, new: BlockId, confidence: f32, share: f32) -> BlockMatch {
    BlockMatch { old, new, method: BlockMethod::Inlined, confidence, share, partial: false }
}

/// Direct calls, by caller.
struct Calls {
    /// Per function: its callees and how often each is called in its code.
    callees: Vec<BTreeMap<FuncId, usize>>,
    /// Per function: how many places call it.
    sites: Vec<usize>,
}

impl Calls {
    fn of(program: &Program) -> Calls {
        let n = program.functions.len();
        let mut out = Calls { callees: vec![BTreeMap::new(); n], sites: vec![0; n] };
        for call in &program.calls {
            if let Callee::Function(callee) = call.callee {
                let caller = program.block(call.block).func;
                *out.callees[caller.index()].entry(callee).or_default() += 1;
                out.sites[callee.index()] += 1;
            }
        }
        out
    }

    /// Callees that `func` calls more often than `other` calls what they became, and how much more often.
    fn beyond(
        &self,
        func: FuncId,
        others: &Calls,
        other: FuncId,
        to: &[Option<FuncId>],
    ) -> Vec<(FuncId, usize)> {
        let theirs = &others.callees[other.index()];
        self.callees[func.index()]
            .iter()
            .filter_map(|(&callee, &n)| {
                let there = to[callee.index()].and_then(|c| theirs.get(&c)).copied().unwrap_or(0);
                (callee != func && n > there).then(|| (callee, (n - there).min(MOST_COPIES)))
            })
            .collect()
    }
}

/// The strong tokens of functions, sorted; each made when it is first asked for.
struct Tokens<'a> {
    program: &'a Program,
    keys: &'a Keys,
    of: Vec<OnceLock<Box<[u32]>>>,
}

impl<'a> Tokens<'a> {
    fn new(program: &'a Program, keys: &'a Keys) -> Tokens<'a> {
        Tokens { program, keys, of: vec![OnceLock::new(); program.functions.len()] }
    }

    fn of(&self, func: FuncId) -> &[u32] {
        self.of[func.index()].get_or_init(|| {
            let mut all = Vec::new();
            read_function(self.program, self.keys, func, |_, _, tokens| {
                all.extend(tokens.iter().map(|t| t.strong));
            });
            all.sort_unstable();
            all.into()
        })
    }

    /// Whether there is so much of a function that a copy of it can be told from other code.
    fn tell(&self, func: FuncId) -> bool {
        self.program.function(func).n_blocks() >= 2 && count(self.of(func).len()) >= LEAST_INSNS
    }
}

/// Looks for copies of each callee in a region of `body`; `take` gets (block of the callee, block of the
/// body, confidence).
fn search(
    body: &Body,
    mut region: Vec<u32>,
    callees: &[(FuncId, usize)],
    tokens: &Tokens<'_>,
    mut take: impl FnMut(FuncId, &Body, &[(u32, u32, f32)]),
) {
    let insns = |b: &Body, i: u32| b.hash(i).n_insns;
    let outside = strong(body, region.iter().copied());
    for &(callee, copies) in callees {
        let all = count(tokens.of(callee).len());
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let least = all as f32 * LEAST_COMMON;
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        if (common(tokens.of(callee), &outside) as f32) < least {
            continue;
        }
        let inside = Body::read(tokens.program, tokens.keys, callee);
        for _ in 0..copies {
            let there: u32 = region.iter().map(|&i| insns(body, i)).sum();
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            let least = all as f32 * LEAST_PART;
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            if (there as f32) < least {
                break;
            }
            let part = body.restricted(&region);
            let found: Vec<(u32, u32, f32)> = fit(&inside, &part, LEAST_CONFIDENCE, least)
                .into_iter()
                .filter(|f| f.2 >= LEAST_CONFIDENCE)
                // Measured by what line tables call inlined: four of five are right.
                .map(|(a, b, confidence)| (a, region[b as usize], 0.8 * confidence))
                .collect();
            let held: u32 = found.iter().map(|f| insns(&inside, f.0)).sum();
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            if (held as f32) < least || found.len() < 2 {
                break;
            }
            take(callee, &inside, &found);
            region.retain(|b| !found.iter().any(|f| f.1 == *b));
        }
    }
}

/// The strong tokens of `blocks`, sorted.
fn strong(body: &Body, blocks: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut all: Vec<u32> = blocks.flat_map(|b| body.tokens(b)).map(|t| t.strong).collect();
    all.sort_unstable();
    all
}

/// How many tokens two sorted lists have in common.
fn common(a: &[u32], b: &[u32]) -> usize {
    let (mut i, mut j, mut n) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        n += usize::from(x == y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    n
}

#[cfg(test)]
mod tests;
