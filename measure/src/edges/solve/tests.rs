//! Flows written down by hand, and what follows from their counters.

use super::*;
use crate::edges::notes::Node;
use program::Va;

fn node(start: u64, marks: &str, ways: &[u32]) -> Node {
    let has = |mark| marks.contains(mark);
    let ways = ways.iter().map(|&to| Way { to, is_counted: false }).collect();
    Node { start: Va(start), is_counted: has('c'), enters: has('e'), leaves: has('l'), ways }
}

fn check(blocks: Vec<Node>, counters: &[u64], want: &[u64]) {
    let flow = FunctionFlow { entry: Va(0), is_whole: true, blocks };
    let solved = flow.solve(counters, &[], 0);
    let got: Vec<Option<u64>> = solved.blocks.into_iter().chain(solved.ways).collect();
    assert_eq!(got, want.iter().map(|&n| Some(n)).collect::<Vec<_>>());
}

/// `for (; n > 0; n--) s += n & 1`, called with 3 and then with 0; the counts were written down by hand.
#[test]
fn what_has_no_counter_follows() {
    let blocks = || {
        vec![
            node(0, "e", &[1, 4]),
            node(1, "c", &[2, 3]),
            node(2, "c", &[3]),
            node(3, "", &[1, 4]),
            node(4, "cl", &[]),
        ]
    };
    // Entered twice, the loop ran once: which edge into the last block was taken how often is left open.
    let solved = FunctionFlow { entry: Va(0), is_whole: true, blocks: blocks() }.solve(&[3, 2, 2], &[], 0);
    assert_eq!(solved.blocks, [None, Some(3), Some(2), Some(3), Some(2)]);
    let mut counted = blocks();
    if let Some(way) = counted.get_mut(0).and_then(|b| b.ways.get_mut(1)) {
        way.is_counted = true;
    }
    check(counted, &[3, 2, 2, 1], &[2, 3, 2, 3, 2, 1, 1, 2, 1, 2, 2, 1]);
}

/// A call that throws: the block behind it runs less often, and its own count holds.
#[test]
fn calls_that_do_not_come_back_leave() {
    check(vec![node(0, "cel", &[1]), node(1, "cl", &[])], &[10, 7], &[10, 7, 7]);
    // Twice: setjmp.
    check(vec![node(0, "cel", &[1]), node(1, "cl", &[])], &[1, 2], &[1, 2, 2]);
}

/// What is interrupted for good in a block runs, and does not go on; what is gone on with runs on, and did
/// not come in.
#[test]
fn interrupted_blocks_leave() {
    let blocks = || vec![node(0, "e", &[1, 2]), node(1, "", &[2]), node(2, "cl", &[])];
    let mut counted = blocks();
    if let Some(way) = counted.get_mut(0).and_then(|b| b.ways.get_mut(1)) {
        way.is_counted = true;
    }
    let flow = FunctionFlow { entry: Va(0), is_whole: true, blocks: counted };
    // Ten ended, four of them straight on; in the second block, one more was stopped.
    assert_eq!(flow.solve(&[10, 4], &[(3, 1)], 0).blocks, [Some(11), Some(7), Some(10)]);
    assert_eq!(flow.solve(&[10, 4], &[(3, 1), (3, -1)], 0).blocks, [Some(10), Some(6), Some(10)]);
    assert_eq!(flow.solve(&[10, 4], &[(1, 2), (3, -1)], 0).blocks, [Some(11), Some(5), Some(10)]);
    assert_eq!(flow.solve(&[0, 0], &[(9, 1), (1, 1)], 0).blocks, [Some(1), Some(0), Some(0)]);
}

/// Two threads may have been stopped in it: who came in but did not come to the end is in the first or the
/// second block.
#[test]
fn stopped_threads_make_intervals() {
    let mut blocks = vec![node(0, "e", &[1, 2]), node(1, "", &[2]), node(2, "cl", &[])];
    if let Some(way) = blocks.get_mut(0).and_then(|b| b.ways.get_mut(1)) {
        way.is_counted = true;
    }
    let mut flow = FunctionFlow { entry: Va(0), is_whole: true, blocks };
    let between = flow.solve(&[10, 4], &[], 2).between;
    assert_eq!(between.blocks, [(10, 12), (6, 8), (10, 10)]);
    assert_eq!(between.ways, [(6, 8), (4, 4), (6, 8)]);
    assert_eq!(between.enters.first(), Some(&(10, 12)));
    assert_eq!(flow.solve(&[10, 4], &[], 0).between, Between::default());
    // Nobody has come to it, and the way that leads to its end is counted: in the first block alone somebody
    // may be.
    assert_eq!(flow.solve(&[0, 0], &[], 1).between.blocks, [(0, 1), (0, 1), (0, 0)]);
    if let Some(first) = flow.blocks.first_mut() {
        first.is_counted = true;
    }
    // Counted, and never run: nobody is in there, nor behind.
    assert_eq!(flow.solve(&[0, 0, 0], &[], 1).between.blocks, [(0, 0); 3]);
}

#[test]
fn hostile_flows_do_no_harm() {
    let far = node(0, "ce", &[7, u32::MAX]);
    let solved = FunctionFlow { entry: Va(0), is_whole: true, blocks: vec![far] }.solve(&[], &[], 0);
    assert_eq!(solved.blocks, [Some(0)]);
    let far = node(0, "ce", &[7, u32::MAX]);
    let flow = FunctionFlow { entry: Va(0), is_whole: true, blocks: vec![far] };
    assert_eq!(flow.solve(&[u64::MAX], &[], u64::MAX).between.blocks.len(), 1);
}
