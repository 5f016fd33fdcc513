//! Tests of inference: exact counts stay, any counts become a flow, nothing that ran is erased.

use super::*;
use proptest::prelude::*;

const LIMIT: u64 = 10_000_000;

/// A graph of `n` blocks: block 0 is entered; each block has the given targets (modulo n) and leaves if it
/// has none.
fn graph(targets: &[Vec<usize>]) -> Problem {
    let n = targets.len();
    let mut p = Problem {
        blocks: vec![Estimate::unknown(0); n],
        enter: vec![None; n],
        leave: vec![None; n],
        ..Problem::default()
    };
    p.enter[0] = Some(Estimate::unknown(1));
    for (b, to) in targets.iter().enumerate() {
        let mut to: Vec<usize> = to.iter().map(|t| t % n).collect();
        to.sort_unstable();
        to.dedup();
        if to.is_empty() {
            p.leave[b] = Some(Estimate::unknown(0));
        }
        for t in to {
            p.edges.push((index(b), index(t)));
            p.edge.push(Estimate::unknown(1));
        }
    }
    p
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("small")
}

/// Runs the graph: `walks` choose a target at each step; counts what really happens. Walks that do not end
/// leak.
fn walk(p: &Problem, walks: &[Vec<usize>]) -> Inferred {
    let n = p.blocks.len();
    let mut f = Inferred {
        blocks: vec![0; n],
        edges: vec![0; p.edges.len()],
        enter: vec![0; n],
        leave: vec![0; n],
        optimal: true,
    };
    for choices in walks {
        let mut at = 0;
        f.enter[0] += 1;
        f.blocks[0] += 1;
        for &choice in choices {
            let out: Vec<usize> = (0..p.edges.len()).filter(|&e| p.edges[e].0 as usize == at).collect();
            let Some(&e) = out.get(choice % out.len().max(1)) else { break };
            f.edges[e] += 1;
            at = p.edges[e].1 as usize;
            f.blocks[at] += 1;
        }
        f.leave[at] += 1;
    }
    f
}

fn known(count: u64, cost: u32) -> Estimate {
    Estimate { count, raise: cost, lower: 2 * cost, keep: count > 0 }
}

fn conserved(p: &Problem, f: &Inferred) -> Result<(), TestCaseError> {
    for b in 0..p.blocks.len() {
        let into: u64 =
            p.edges.iter().zip(&f.edges).filter(|(e, _)| e.1 as usize == b).map(|(_, &c)| c).sum();
        let out: u64 = p.edges.iter().zip(&f.edges).filter(|(e, _)| e.0 as usize == b).map(|(_, &c)| c).sum();
        prop_assert_eq!(into + f.enter[b], f.blocks[b], "into {}", b);
        prop_assert_eq!(out + f.leave[b], f.blocks[b], "out of {}", b);
    }
    Ok(())
}

/// Which blocks control can come to from block 0, and leave from.
fn possible(p: &Problem) -> Vec<bool> {
    let n = p.blocks.len();
    let reach = |start: Vec<usize>, back: bool| {
        let mut seen = vec![false; n];
        let mut stack = start;
        while let Some(v) = stack.pop() {
            if !std::mem::replace(&mut seen[v], true) {
                for &(a, b) in &p.edges {
                    let (a, b) = if back { (b, a) } else { (a, b) };
                    if a as usize == v {
                        stack.push(b as usize);
                    }
                }
            }
        }
        seen
    };
    let entered = reach((0..n).filter(|&b| p.enter[b].is_some()).collect(), false);
    let leaves = reach((0..n).filter(|&b| p.leave[b].is_some()).collect(), true);
    entered.iter().zip(leaves).map(|(&a, b)| a && b).collect()
}

fn graphs() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::collection::vec(0_usize..64, 0..4), 1..12)
}

proptest! {
    #[test]
    fn exact_counts_come_out_as_they_are(
        targets in graphs(),
        walks in prop::collection::vec(prop::collection::vec(0_usize..4, 0..40), 0..6),
    ) {
        let mut p = graph(&targets);
        let mut want = walk(&p, &walks);
        for (e, &count) in p.blocks.iter_mut().zip(&want.blocks) {
            *e = known(count, 50);
        }
        for (e, &count) in p.edge.iter_mut().zip(&want.edges) {
            *e = known(count, 30);
        }
        p.enter[0] = Some(known(want.enter[0], 50));
        for (e, &count) in p.leave.iter_mut().zip(&want.leave) {
            *e = Some(known(count, 20));
        }
        want.optimal = true;
        prop_assert_eq!(p.solve(LIMIT), want);
    }

    #[test]
    fn any_counts_become_a_flow_that_erases_nothing(
        targets in graphs(),
        counts in prop::collection::vec(prop::option::of(0_u64..1000), 12),
        edges in prop::collection::vec(prop::option::of(0_u64..1000), 48),
        limit in prop::sample::select(vec![0_u64, LIMIT]),
    ) {
        let mut p = graph(&targets);
        for (e, count) in p.blocks.iter_mut().zip(&counts) {
            if let Some(count) = count {
                *e = known(*count, 50);
            }
        }
        for (e, count) in p.edge.iter_mut().zip(&edges) {
            if let Some(count) = count {
                *e = Estimate { keep: false, ..known(*count, 30) };
            }
        }
        let f = p.solve(limit);
        conserved(&p, &f)?;
        let possible = possible(&p);
        for (b, possible) in possible.into_iter().enumerate() {
            let ran = p.blocks[b].count > 0;
            prop_assert!(!(ran && possible && f.blocks[b] == 0), "block {} was erased", b);
        }
        // What runs is reached by what runs.
        let n = p.blocks.len();
        let mut seen: Vec<bool> = (0..n).map(|b| f.enter[b] > 0).collect();
        for _ in 0..n {
            for (&(a, b), &c) in p.edges.iter().zip(&f.edges) {
                if c > 0 && seen[a as usize] {
                    seen[b as usize] = true;
                }
            }
        }
        for (b, seen) in seen.into_iter().enumerate() {
            prop_assert!(f.blocks[b] == 0 || seen, "block {} is not reached", b);
        }
    }
}

#[test]
fn counts_of_any_size_keep_their_proportions() {
    // A branch that goes one way three times of four, and back together.
    let mut p = graph(&[vec![1, 2], vec![3], vec![3], vec![]]);
    let known = |count| Estimate { count, raise: 100, lower: 100, keep: true };
    for (b, count) in [4_u64, 3, 1, 4].into_iter().enumerate() {
        p.blocks[b] = known(count << 58);
    }
    let f = p.solve(LIMIT);
    assert_eq!(f.blocks, [4 << 58, 3 << 58, 1 << 58, 4 << 58]);
    assert_eq!((f.enter[0], f.leave[3]), (4 << 58, 4 << 58));
    // What ran once beside it still runs.
    p.blocks[1] = known((4 << 58) - 1);
    p.blocks[2] = known(1);
    let f = p.solve(LIMIT);
    assert!(f.blocks[2] > 0 && f.blocks[2] < 1 << 20, "{:?}", f.blocks);
    assert_eq!(f.blocks[1] + f.blocks[2], f.blocks[0]);
}
