//! Paths through calls, held against trees of activations that are searched from the top.

use crate::chunks::Codec;
use crate::ids::{BlockId, FuncId, ThreadId};
use crate::search::path::PathStep;
use crate::tests::{Rng, chunked, opened, packed, random_stream};
use crate::{Path, Position, Scheme, Step, Symbol, Want};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An activation: its blocks, with what it called before each.
#[derive(Default)]
struct Activation {
    func: FuncId,
    caller: Option<FuncId>,
    blocks: Vec<(u64, BlockId, Vec<Activation>)>,
    calls: Vec<Activation>,
}

/// The activations of a stream as trees.
fn trees(stream: &[u32]) -> Vec<Activation> {
    let mut open = vec![Activation { func: FuncId(u32::MAX), ..Activation::default() }];
    for (index, &code) in (0..).zip(stream) {
        let top = open.last_mut().expect("the root stays");
        match Symbol(code).step() {
            Step::Enter(func) => {
                let caller = Some(top.func).filter(|&f| f != FuncId(u32::MAX));
                open.push(Activation { func, caller, ..Activation::default() });
            }
            Step::Block(block) => {
                let calls = std::mem::take(&mut top.calls);
                top.blocks.push((index, block, calls));
            }
            Step::Exit => {
                let left = open.pop().expect("balanced");
                open.last_mut().expect("the root stays").calls.push(left);
            }
        }
    }
    open.pop().expect("the root stays").calls
}

/// Whether the calls made have those that are wanted among them, in order.
fn has_calls(made: &[Activation], wanted: &[Path]) -> bool {
    let Some((first, rest)) = wanted.split_first() else { return true };
    (0..made.len()).any(|i| occurs(&made[i], first) && has_calls(&made[i + 1..], rest))
}

fn occurs(of: &Activation, path: &Path) -> bool {
    (0..of.blocks.len()).any(|last| ends_at(of, path, last))
}

/// Whether an occurrence of the path ends with the block at `last` of the activation: plain paths with calls.
fn ends_at(of: &Activation, path: &Path, last: usize) -> bool {
    let Some(start) = (last + 1).checked_sub(path.steps.len()) else { return false };
    let fits = |(step, (_, block, calls)): (&PathStep, &(u64, BlockId, Vec<Activation>))| {
        step.blocks.contains(block) && has_calls(calls, &step.calls)
    };
    of.func == path.func && path.steps.iter().zip(&of.blocks[start..]).all(fits)
}

fn oracle(of: &Activation, path: &Path, found: &mut Vec<(u64, Option<FuncId>)>) {
    for (i, (index, ..)) in of.blocks.iter().enumerate() {
        if ends_at(of, path, i) {
            found.push((*index, of.caller));
        }
    }
    let calls = of.blocks.iter().flat_map(|(_, _, calls)| calls).chain(&of.calls);
    calls.for_each(|call| oracle(call, path, found));
}

/// Some path with calls of few blocks; often one that occurs.
fn random_path(rng: &mut Rng, depth: u32) -> Path {
    let n = 1 + rng.below(2);
    let mut path = Path { func: FuncId(rng.below(3)), steps: Vec::new() };
    for _ in 0..n {
        let n_calls = if depth > 0 { rng.below(3) } else { 0 };
        path.steps.push(PathStep {
            blocks: (0..1 + rng.below(2)).map(|_| BlockId(rng.below(3))).collect(),
            calls: (0..n_calls).map(|_| random_path(rng, depth - 1)).collect(),
            ..PathStep::default()
        });
    }
    path
}

/// A rule that is free at the end, and its node the last of the free ones.
#[test]
fn free_rules_at_the_end_are_left_out() {
    let seed = 15988732391522718648;
    let streams: Vec<_> = (0..1 + seed % 3).map(|i| random_stream(seed ^ (i << 20), 231)).collect();
    let trace = opened(&packed(&streams)).expect("it is whole");
    let stats = trace.count_by_caller(&random_path(&mut Rng(seed), 1));
    assert!(stats.is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn paths_go_through_calls_as_activations_do(seed: u64, n in 1..900_usize) {
        let streams: Vec<_> = (0..1 + seed % 3).map(|i| random_stream(seed ^ (i << 20), n)).collect();
        let chunks = opened(&chunked(&streams, Codec::Zstd, 1 + n / 29)).expect("it is whole");
        let packed = opened(&packed(&streams)).expect("it is whole");
        let mut rng = Rng(seed ^ 0x3333);
        for _ in 0..10 {
            let path = random_path(&mut rng, 2);
            let (mut want, mut callers) = (Vec::new(), BTreeMap::new());
            for (thread, stream) in (0..).map(ThreadId).zip(&streams) {
                let mut found = Vec::new();
                trees(stream).iter().for_each(|root| oracle(root, &path, &mut found));
                found.sort_unstable();
                want.extend(found.iter().map(|&(index, _)| Position { thread, index }));
                found.iter().for_each(|(_, caller)| *callers.entry(*caller).or_insert(0) += 1);
            }
            for trace in [&chunks, &packed] {
                let what = format!("{path:?} in {streams:x?}");
                for scheme in [Scheme::Unpacked, Scheme::Chunks] {
                    let search = |want| trace.search_path(&path, want, Some(scheme)).expect("it is whole").0;
                    prop_assert_eq!(&search(Want::All).all, &want, "{}", &what);
                    prop_assert_eq!(search(Want::Nth(2)).first, want.get(1).copied(), "{}", &what);
                    let at = Position { thread: ThreadId(0), index: n as u64 / 2 };
                    let next = want.iter().find(|p| p.thread == ThreadId(0) && p.index > at.index).copied();
                    prop_assert_eq!(search(Want::Next(at)).first, next, "{}", &what);
                }
                prop_assert_eq!(&trace.count_by_caller(&path).expect("it is whole"), &callers, "{}", &what);
            }
        }
    }
}

/// Indices of last blocks.
#[track_caller]
fn check(path: &str, stream: &[u32], expect: &[u64]) {
    let path = Path::parse(path, &crate::Names::default()).expect("it is a path");
    let trace = opened(&packed(&[stream.to_vec()])).expect("it is whole");
    let found = trace.search_path(&path, Want::All, None).expect("it is whole").0;
    assert_eq!(found.all.iter().map(|p| p.index).collect::<Vec<_>>(), expect, "{path:?}");
}

#[test]
fn calls_go_with_gaps_and_repetitions() {
    let (f, g, e) = (0x4000_0000, 0x4000_0001, 0x8000_0000);
    check("#0: 1 .. {#1: 0} 4", &[f, 1, 2, g, 0, e, 4, 3, 4, e], &[6]);
    check("#0: {#1: 0} 4+ 3", &[f, 4, g, 0, e, 4, 4, 3, 4, 3, e], &[7]);
    check("#0: 4 {#1: 0} {#1: 0} 4", &[f, 4, g, 0, e, 4, g, 0, e, g, 1, e, g, 0, e, 4, e], &[15]);
    check("#0: 4 {#1: 0 .. 2|3} 4", &[f, 4, g, 0, 1, f, 4, e, 3, e, 4, g, 3, 0, e, 4, e], &[10]);
    // A call of a call is none of the function.
    check("#0: 4 {#1: 0} 4", &[f, 4, f, g, 0, e, e, 4, e], &[]);
}
