//! Functions of much the same code and the same bare name, told apart by who calls them and whom they call.
//!
//! Instances of one generic are often equal to the last instruction. When they were paired, their neighbours
//! in the call graph were not all known; now they are. So they are all let go, and paired again from what is
//! certain outwards.
//!
//! Invariant: a set of twins is only paired among itself, and none is left over: where neighbours say
//! nothing, the pairs stay. What a person pinned, and sets of which a pair is forbidden, are not touched.
//!
//! Source: ours; BMAT (2.1) takes ties in the program's order.

use crate::hash::{FunctionHash, Hashes};
use crate::names;
use crate::relation::{FunctionMatch, FunctionMethod, Level, OneToOne};
use program::{Callee, FuncId, Program};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Larger sets stay as they are: all pairs are looked at.
const LARGEST: usize = 128;
/// Callers of a function that are asked.
const CALLERS: usize = 64;
/// Rounds; a round settles whoever the last one gave a neighbour.
const ROUNDS: usize = 16;

/// Twins: the old ones and the new ones, each by address.
struct TwinSet {
    old: Vec<usize>,
    new: Vec<usize>,
}

/// Who calls whom, both ways, sorted.
struct Calls {
    callees: Vec<(u32, u32)>,
    callers: Vec<(u32, u32)>,
}

impl Calls {
    fn of(program: &Program) -> Calls {
        let mut calls: Vec<_> = program
            .calls
            .iter()
            .filter_map(|c| match c.callee {
                Callee::Function(to) => Some((program.block(c.block).func.0, c.at, to.0)),
                _ => None,
            })
            .collect();
        calls.sort_unstable();
        let callees: Vec<(u32, u32)> = calls.iter().map(|&(from, _, to)| (from, to)).collect();
        let mut callers: Vec<(u32, u32)> = callees.iter().map(|&(from, to)| (to, from)).collect();
        callers.sort_unstable();
        callers.dedup();
        Calls { callees, callers }
    }
    /// Whom `func` calls, in the order of its code.
    fn callees(&self, func: usize) -> impl Iterator<Item = usize> + '_ {
        run(&self.callees, func)
    }
    /// Who calls `func`, each once.
    fn callers(&self, func: usize) -> impl Iterator<Item = usize> + '_ {
        run(&self.callers, func)
    }
}

fn run(pairs: &[(u32, u32)], func: usize) -> impl Iterator<Item = usize> + '_ {
    let from = pairs.partition_point(|p| (p.0 as usize) < func);
    pairs[from..].iter().take_while(move |p| p.0 as usize == func).map(|p| p.1 as usize)
}

/// Pairs again those of `functions` (and of `pairs`, the same as a table) that have twins.
pub fn settle(
    (old, old_hashes): (&Program, &Hashes),
    (new, new_hashes): (&Program, &Hashes),
    allows: impl Fn(FuncId, FuncId) -> bool,
    functions: &mut [FunctionMatch],
    pairs: &mut OneToOne,
) {
    let mut sets = sets((old, old_hashes), (new, new_hashes), functions);
    let free =
        |s: &TwinSet| s.old.iter().all(|&o| s.new.iter().all(|&n| allows(FuncId::at(o), FuncId::at(n))));
    sets.retain(free);
    if sets.is_empty() {
        return;
    }
    let (old_calls, new_calls) = (Calls::of(old), Calls::of(new));
    let mut left: BTreeMap<usize, usize> = BTreeMap::new();
    for &n in sets.iter().flat_map(|s| &s.new) {
        left.extend(pairs.old_of(n).map(|o| (n, o)));
        pairs.remove(n);
    }
    let twins: BTreeSet<usize> = left.keys().copied().collect();
    for _ in 0..ROUNDS {
        let votes = |s: &TwinSet| {
            surest(s, &scores(s, (old, &old_calls, old_hashes), (new, &new_calls, new_hashes), pairs))
        };
        let found: Vec<Vec<(usize, usize)>> = sets.par_iter().map(votes).collect();
        let mut any = false;
        for (set, found) in sets.iter_mut().zip(found) {
            for (o, n) in found {
                any |= pairs.insert(o, n);
            }
            set.old.retain(|&o| pairs.new_of(o).is_none());
            set.new.retain(|&n| pairs.old_of(n).is_none());
        }
        if !any {
            break;
        }
    }
    // What nothing tells apart stays as it was where both are free, the others by their order.
    for set in &mut sets {
        for &n in &set.new {
            if let Some(&o) = left.get(&n) {
                pairs.insert(o, n);
            }
        }
        set.old.retain(|&o| pairs.new_of(o).is_none());
        set.new.retain(|&n| pairs.old_of(n).is_none());
        for (&o, &n) in set.old.iter().zip(&set.new) {
            pairs.insert(o, n);
        }
    }
    for m in functions.iter_mut().filter(|m| twins.contains(&m.new.index())) {
        if let Some(o) = pairs.old_of(m.new.index()) {
            m.old = FuncId::at(o);
        }
    }
}

/// All that have a twin, among those that were paired with the same code under the same name.
fn sets(
    (old, old_hashes): (&Program, &Hashes),
    (new, new_hashes): (&Program, &Hashes),
    functions: &[FunctionMatch],
) -> Vec<TwinSet> {
    // Names of callees may differ, as those of instances do: not even level 3 leaves them out.
    let code = |h: &FunctionHash| h.at(Level::L5);
    let mut by_code: BTreeMap<u64, Vec<&FunctionMatch>> = BTreeMap::new();
    for m in functions.iter().filter(|m| m.method != FunctionMethod::Pinned) {
        let hash = code(&old_hashes.functions[m.old.index()]);
        if hash == code(&new_hashes.functions[m.new.index()]) {
            by_code.entry(hash).or_default().push(m);
        }
    }
    let mut out = Vec::new();
    for group in by_code.into_values().filter(|g| g.len() > 1) {
        let mut by_name: BTreeMap<String, Vec<&FunctionMatch>> = BTreeMap::new();
        for m in group {
            let first = |p: &Program, f: FuncId| p.function(f).names.first().map(|n| n.to_string());
            let (Some(a), Some(b)) = (first(old, m.old), first(new, m.new)) else { continue };
            let key = if a == b { Some(a) } else { Some(bare(&a)).filter(|k| *k == bare(&b)) };
            if let Some(key) = key {
                by_name.entry(key).or_default().push(m);
            }
        }
        for twins in by_name.into_values().filter(|t| (2..=LARGEST).contains(&t.len())) {
            let mut old: Vec<usize> = twins.iter().map(|m| m.old.index()).collect();
            old.sort_unstable();
            out.push(TwinSet { old, new: twins.iter().map(|m| m.new.index()).collect() });
        }
    }
    out
}

/// A name without what tells instances apart.
fn bare(name: &str) -> String {
    names::without_crates(name).unwrap_or_else(|| {
        let bare = names::bare(name);
        format!("{} {:?}", bare.name, bare.part)
    })
}

/// What speaks for each pair of a set, as (score, old, new).
fn scores(
    set: &TwinSet,
    (old, old_calls, old_hashes): (&Program, &Calls, &Hashes),
    (new, new_calls, new_hashes): (&Program, &Calls, &Hashes),
    pairs: &OneToOne,
) -> Vec<(i32, usize, usize)> {
    let mut votes: BTreeMap<(usize, usize), i32> = BTreeMap::new();
    let went: Vec<(usize, Vec<Option<usize>>)> =
        set.old.iter().map(|&o| (o, old_calls.callees(o).map(|f| pairs.new_of(f)).collect())).collect();
    for &n in &set.new {
        let are: Vec<usize> = new_calls.callees(n).collect();
        for (o, went) in &went {
            let ones = |p: &Program, f: usize| {
                let b = &p.functions[f].blocks;
                b.start as usize..b.end as usize
            };
            let blocks = old_hashes.one[ones(old, *o)].iter().zip(&new_hashes.one[ones(new, n)]);
            let mut score = i32::try_from(blocks.filter(|(a, b)| a == b).count()).unwrap_or(i32::MAX / 2);
            // The same code calls in the same order.
            for (to, &is) in went.iter().zip(&are) {
                score += match to {
                    Some(to) if *to == is => 1,
                    None if pairs.old_of(is).is_none() => 0,
                    _ => -1,
                };
            }
            votes.insert((*o, n), score);
        }
    }
    // A caller that calls as many of the set as its counterpart does calls them in the same order.
    let callers: BTreeSet<usize> = set.old.iter().flat_map(|&o| old_calls.callers(o).take(CALLERS)).collect();
    for caller in callers {
        let Some(counterpart) = pairs.new_of(caller) else { continue };
        let of_set = |calls: &Calls, func: usize, set: &[usize]| -> Vec<usize> {
            calls.callees(func).filter(|f| set.binary_search(f).is_ok()).collect()
        };
        let (from, to) = (of_set(old_calls, caller, &set.old), of_set(new_calls, counterpart, &set.new));
        if from.len() == to.len() {
            for (o, n) in from.into_iter().zip(to) {
                if let Some(v) = votes.get_mut(&(o, n)) {
                    *v += 1;
                }
            }
        }
    }
    votes.into_iter().map(|((o, n), score)| (score, o, n)).collect()
}

/// The pairs that are better than any other of both their sides.
fn surest(set: &TwinSet, scores: &[(i32, usize, usize)]) -> Vec<(usize, usize)> {
    let best = |key: fn(&(i32, usize, usize)) -> usize| {
        // (the best score, how many have it), by function.
        let mut best: BTreeMap<usize, (i32, u32)> = BTreeMap::new();
        for s in scores {
            let b = best.entry(key(s)).or_insert((s.0, 0));
            match s.0.cmp(&b.0) {
                std::cmp::Ordering::Greater => *b = (s.0, 1),
                std::cmp::Ordering::Equal => b.1 += 1,
                std::cmp::Ordering::Less => {}
            }
        }
        best
    };
    let (by_old, by_new) = (best(|s| s.1), best(|s| s.2));
    let alone = set.old.len() == 1 && set.new.len() == 1;
    let sure = |s: &&(i32, usize, usize)| {
        alone || by_old.get(&s.1) == Some(&(s.0, 1)) && by_new.get(&s.2) == Some(&(s.0, 1))
    };
    scores.iter().filter(sure).map(|s| (s.1, s.2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Keys;
    use crate::testing::{assemble, function};

    /// Functions `f.n` that call others; `leaf.n` do not.
    fn program(calls: &[(&str, &str)]) -> Program {
        let mut text = String::from(".text\n");
        let body = |name: &str, code: &str| {
            format!(
                ".type {name}, @function\n{name}: .cfi_startproc\n{code}\nret\n.cfi_endproc\n.size {name}, . - {name}\n"
            )
        };
        text += &body("one", "mov $1, %eax\nimul %edi, %eax");
        text += &body("two", "lea 2(%rdi), %eax");
        for (name, callee) in calls {
            let code = if callee.is_empty() {
                "lea 3(%rdi,%rdi), %eax".into()
            } else {
                format!("push %rbx\ncall {callee}\npop %rbx")
            };
            text += &body(name, &code);
        }
        assemble(&text)
    }

    fn check(old: &[(&str, &str)], new: &[(&str, &str)], given: &[(&str, &str)], expect: &[(&str, &str)]) {
        let (old, new) = (program(old), program(new));
        let (a, b) =
            (Hashes::compute(&old, &Keys::compute(&old)), Hashes::compute(&new, &Keys::compute(&new)));
        let mut functions: Vec<FunctionMatch> = given
            .iter()
            .map(|(o, n)| FunctionMatch {
                old: function(&old, o),
                new: function(&new, n),
                method: FunctionMethod::BareName,
                confidence: 0.8,
            })
            .collect();
        functions.sort_by_key(|m| m.new);
        let mut pairs = OneToOne::new(old.functions.len(), new.functions.len());
        for m in &functions {
            assert!(pairs.insert(m.old.index(), m.new.index()));
        }
        settle((&old, &a), (&new, &b), |_, _| true, &mut functions, &mut pairs);
        for (o, n) in expect {
            let (o, n) = (function(&old, o), function(&new, n));
            assert_eq!(pairs.new_of(o.index()), Some(n.index()), "{}", old.function(o).name());
            assert!(functions.iter().any(|m| (m.old, m.new) == (o, n)));
        }
        assert_eq!(pairs.pairs().count(), given.len(), "one to one, and none left over");
    }

    #[test]
    fn twins_are_told_apart_by_what_they_call_and_then_by_who_calls_them() {
        check(
            &[
                ("leaf.1", ""),
                ("leaf.2", ""),
                ("f.1", "one"),
                ("f.2", "two"),
                ("one.1", "leaf.1"),
                ("two.1", "leaf.2"),
            ],
            &[
                ("leaf.6", ""),
                ("leaf.7", ""),
                ("f.8", "two"),
                ("f.9", "one"),
                ("one.1", "leaf.7"),
                ("two.1", "leaf.6"),
            ],
            &[
                ("one", "one"),
                ("two", "two"),
                ("one.1", "one.1"),
                ("two.1", "two.1"),
                ("f.1", "f.8"),
                ("f.2", "f.9"),
                ("leaf.1", "leaf.6"),
                ("leaf.2", "leaf.7"),
            ],
            &[("f.1", "f.9"), ("f.2", "f.8"), ("leaf.1", "leaf.7"), ("leaf.2", "leaf.6")],
        );
    }

    #[test]
    fn twins_that_nothing_tells_apart_stay_as_they_are() {
        check(
            &[("leaf.1", ""), ("leaf.2", ""), ("leaf.3", "")],
            &[("leaf.6", ""), ("leaf.7", ""), ("leaf.8", "")],
            &[("leaf.1", "leaf.7"), ("leaf.2", "leaf.6"), ("leaf.3", "leaf.8")],
            &[("leaf.1", "leaf.7"), ("leaf.2", "leaf.6"), ("leaf.3", "leaf.8")],
        );
    }
}
