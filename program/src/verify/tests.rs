//! Each promise is broken once in a sound program; the verifier must name it.

use super::*;
use crate::image::Image;
use std::process::Command;

/// A small program with a loop, a switch, calls and a branch out of order.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static volatile int sink;
__attribute__((noinline)) int leaf(int x) { sink += x; return x * 3; }
__attribute__((noinline, noreturn)) void stop(int x) { printf("%d\n", x); exit(x); }
__attribute__((noinline)) int pick(int x) {
    switch (x) {
    case 0: return leaf(1); case 1: return 7 + sink; case 2: sink = 3; return 9;
    case 3: return leaf(4) + 1; case 4: return sink * 5; case 5: sink++; return 2; case 6: return leaf(8) - 1;
    }
    return 0;
}
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < argc * 10; i++) {
        if (i % 3 == 0) sum += leaf(i); else sum += pick(i & 7);
        if (sum > 1000000) stop(sum);
    }
    return sum & 1;
}
"#;

fn program() -> Program {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let source = dir.path().join("a.c");
    let binary = dir.path().join("a");
    std::fs::write(&source, SOURCE).expect("the source can be written");
    let done = Command::new("gcc").args(["-O2", "-o"]).arg(&binary).arg(&source).status().expect("gcc runs");
    assert!(done.success());
    Program::analyze(Image::load(&binary).expect("gcc makes what we read"))
}

#[test]
fn a_compiled_program_keeps_every_promise() {
    let violations = program().verify();
    assert!(violations.is_empty(), "{}", lines(&violations));
}

fn lines(violations: &[Violation]) -> String {
    violations.iter().map(|v| format!("{v}\n")).collect()
}

/// Breaks one promise in a sound program; the verifier must name it, and must not panic.
#[track_caller]
fn check(rule: Rule, break_it: impl FnOnce(&mut Program)) {
    let mut program = program();
    let before = program.verify();
    break_it(&mut program);
    let violations: Vec<_> = program.verify().into_iter().filter(|v| !before.contains(v)).collect();
    assert!(violations.iter().any(|v| v.rule == rule), "want {rule:?}, got:\n{}", lines(&violations));
}

fn main_of(p: &Program) -> FuncId {
    FuncId::at(p.functions.iter().position(|f| f.name() == "main").expect("there is a main"))
}

/// The first block of any function whose end is `end`.
fn block_with(p: &Program, end: BlockEnd) -> usize {
    p.blocks.iter().position(|b| b.end == end).unwrap_or_else(|| panic!("no block ends {end:?}"))
}

/// The block at every address, against a look at all of them.
#[test]
fn blocks_are_found_by_address() {
    let p = program();
    let first = p.blocks.iter().map(|b| b.start.0).min().expect("there are blocks");
    let last = p.blocks.iter().map(|b| b.end_va().0).max().expect("there are blocks");
    for at in (first - 3..last + 3).map(Va) {
        let want = p.blocks.iter().position(|b| b.range().contains(&at)).map(BlockId::at);
        assert_eq!(p.block_at(at), want, "{at}");
    }
    assert_eq!((p.block_at(Va(0)), p.block_at(Va(u64::MAX))), (None, None));
}

#[test]
fn functions_out_of_order_are_found() {
    check(Rule::Functions, |p| {
        let last = p.functions.len() - 1;
        p.functions[last].entry = p.functions[0].entry;
    });
    check(Rule::Functions, |p| p.functions[0].cut_from = Some(FuncId(0)));
}

#[test]
fn ranges_that_overlap_or_hold_no_code_are_found() {
    check(Rule::Ranges, |p| {
        let stolen = p.functions[1].ranges[0].clone();
        p.functions[0].ranges = [p.functions[0].ranges[0].clone(), stolen].into();
    });
    check(Rule::Ranges, |p| p.functions[0].ranges = [Va(8)..Va(4)].into());
}

#[test]
fn blocks_outside_their_function_or_in_holes_are_found() {
    check(Rule::Blocks, |p| p.functions[0].blocks.end -= 1);
    check(Rule::Blocks, |p| p.blocks[0].func = FuncId(1));
    check(Rule::Blocks, |p| {
        let f = main_of(p);
        p.functions[f.index()].ranges[0].end = p.functions[f.index()].entry.plus(1);
    });
    check(Rule::Blocks, |p| p.blocks[0].len_bytes += 400);
}

#[test]
fn blocks_that_do_not_decode_to_their_end_are_found() {
    check(Rule::Decode, |p| p.blocks[0].n_insns += 1);
    check(Rule::Decode, |p| p.blocks[0].last += 1);
    check(Rule::Decode, |p| {
        let i = block_with(p, BlockEnd::Branch);
        p.blocks[i].len_bytes -= 1;
    });
}

#[test]
fn wrong_and_missing_notes_of_what_moving_needs_are_found() {
    check(Rule::Moving, |p| p.fixed = vec![p.blocks[0].start]);
    check(Rule::Moving, |p| p.named.clear());
}

#[test]
fn ends_that_contradict_the_last_instruction_are_found() {
    check(Rule::End, |p| {
        let i = block_with(p, BlockEnd::Return);
        p.blocks[i].end = BlockEnd::Jump;
    });
    check(Rule::Complete, |p| {
        let i = block_with(p, BlockEnd::Return);
        p.blocks[i].end = BlockEnd::Broken;
    });
}

#[test]
fn wrong_missing_and_unsorted_edges_are_found() {
    let branch = |p: &Program| {
        let i = (0..p.blocks.len())
            .find(|&i| p.blocks[i].end == BlockEnd::Branch && p.successors(BlockId::at(i)).len() == 2);
        p.blocks[i.expect("some branch has two edges")].first_edge.index()
    };
    check(Rule::Edges, |p| {
        let e = branch(p);
        p.edges.swap(e, e + 1);
    });
    check(Rule::Edges, |p| {
        let e = branch(p);
        p.edges[e].kind = EdgeKind::Table;
    });
    check(Rule::Edges, |p| {
        let e = branch(p);
        p.edges[e].to = BlockId(0);
    });
    check(Rule::Edges, |p| p.edges[0].to = BlockId(u32::MAX));
    check(Rule::Targets, |p| {
        let e = branch(p);
        let kind = p.edges[e].kind;
        // The other kind of the pair: then the taken edge is missing.
        p.edges[e].kind = EdgeKind::FallThrough;
        if kind == EdgeKind::FallThrough {
            p.edges[e + 1].kind = EdgeKind::FallThrough;
        }
    });
}

#[test]
fn wrong_calls_are_found() {
    check(Rule::Calls, |p| {
        p.calls.remove(0);
    });
    check(Rule::Calls, |p| p.calls.swap(0, 1));
    check(Rule::Calls, |p| {
        let other = main_of(p);
        let i = p.calls.iter().position(|c| matches!(c.callee, Callee::Function(f) if f != other));
        p.calls[i.expect("leaf is called")].callee = Callee::Function(other);
    });
    check(Rule::Calls, |p| p.calls[0].kind = CallKind::BranchTailCall);
    check(Rule::Calls, |p| p.calls[0].callee = Callee::Import(u32::MAX));
    check(Rule::Returns, |p| {
        let i = p.calls.iter().position(|c| c.kind == CallKind::Call && c.returns);
        p.calls[i.expect("a call returns")].returns = false;
    });
    check(Rule::Returns, |p| {
        let f = p.calls.iter().find_map(|c| match c.callee {
            Callee::Function(f) if c.returns => Some(f),
            _ => None,
        });
        p.functions[f.expect("a function is called").index()].returns = false;
    });
}

#[test]
fn functions_called_understood_wrongly_are_found() {
    check(Rule::Complete, |p| {
        let f = main_of(p);
        p.functions[f.index()].complete = false;
    });
    check(Rule::Complete, |p| {
        let i = p.blocks.iter().position(|b| b.end == BlockEnd::Return);
        p.blocks[i.expect("a block returns")].end = BlockEnd::Unresolved;
    });
    check(Rule::Gaps, |p| {
        let i = p.blocks.iter().position(|b| b.end == BlockEnd::FallThrough);
        p.blocks[i.expect("a block falls through")].end = BlockEnd::Broken;
    });
    check(Rule::Calls, |p| {
        let i = p.calls.iter().position(|c| c.kind == CallKind::Call);
        p.calls[i.expect("there are calls")].kind = CallKind::FallThrough;
    });
}

#[test]
fn wrong_tables_are_found() {
    check(Rule::Tables, |p| {
        p.tables.push(JumpTable {
            at: Va(u64::MAX),
            entry_len: 4,
            anchor: None,
            func: FuncId(0),
            jumps: [Va(1)].into(),
            targets: [Va(2)].into(),
            sure: crate::model::Sure::Proved,
        });
    });
}

#[test]
fn wrong_gaps_and_data_are_found() {
    let gap = |from: Va, to: Va, reason| crate::model::Gap { range: from..to, reason, unread: None };
    check(Rule::Gaps, |p| {
        let r = p.blocks[0].range();
        p.gaps = vec![gap(r.start, r.end, GapReason::NotCode)];
    });
    check(Rule::Gaps, |p| p.gaps = vec![gap(Va(9), Va(9), GapReason::NoFunction)]);
    check(Rule::Gaps, |p| {
        p.gaps = vec![gap(p.blocks[0].start, p.blocks[0].end_va(), GapReason::UnresolvedJump)]
    });
    check(Rule::Data, |p| {
        let at = p.blocks[0].start;
        let object = crate::model::DataObject {
            range: at..at.plus(4),
            name: None,
            kind: crate::model::DataKind::Bytes,
            sure: crate::model::Sure::Proved,
        };
        p.data = vec![object.clone(), object];
    });
}

#[test]
fn code_in_no_block_and_no_gap_is_found() {
    check(Rule::Covered, |p| {
        assert!(p.gaps.iter().all(|g| g.reason != GapReason::NoFunction), "the PLT's head is no gap");
        let head =
            p.image.plt.iter().position(crate::image::PltStub::is_linkers).expect("the PLT has a head");
        p.image.plt.remove(head);
    });
    check(Rule::Covered, |p| {
        let i = block_with(p, BlockEnd::Return);
        p.blocks[i].len_bytes -= 1;
    });
}

#[test]
fn a_wrong_address_index_is_found() {
    check(Rule::ByAddress, |p| p.by_address.swap(0, 1));
    check(Rule::ByAddress, |p| {
        p.by_address.pop();
    });
    check(Rule::ByAddress, |p| p.by_address[0] = BlockId(u32::MAX));
}

#[test]
fn entries_that_are_no_blocks_are_found() {
    check(Rule::Entries, |p| p.functions[0].entries = [BlockId(u32::MAX)].into());
    check(Rule::Entries, |p| {
        let f = main_of(p);
        p.functions[f.index()].entries = [BlockId(p.functions[f.index()].blocks.start)].into();
        p.functions[f.index()].entry = p.blocks[p.functions[f.index()].blocks.start as usize].start;
    });
    // The target of the function's own loop.
    check(Rule::Entries, |p| {
        let f = main_of(p);
        let own = p.functions[f.index()].block_ids().flat_map(|b| p.successors(b).to_vec());
        let to = own.filter(|e| e.kind == EdgeKind::Taken && e.to < e.from).map(|e| e.to).next();
        p.functions[f.index()].entries = [to.expect("it has a loop")].into();
    });
}

#[test]
fn padding_in_a_block_is_found() {
    // Lengthen a block that is followed by a no-operation over it.
    check(Rule::Padding, |p| {
        let i = (0..p.blocks.len()).find(|&i| {
            let b = p.blocks[i];
            let next =
                p.image.bytes_from(b.end_va()).and_then(|bytes| Decoder::new(bytes, b.end_va()).next());
            let free = p.block_at(b.end_va()).is_none();
            free && matches!(b.end, BlockEnd::Return | BlockEnd::Jump) && next.is_some_and(|n| n.is_nop())
        });
        let i = i.expect("gcc pads between functions");
        let b = p.blocks[i];
        let next = Decoder::new(p.image.bytes_from(b.end_va()).expect("it has bytes"), b.end_va()).next();
        p.blocks[i].last = b.len_bytes;
        p.blocks[i].n_insns += 1;
        p.blocks[i].len_bytes +=
            u32::try_from(next.expect("it decodes").len_bytes()).expect("an instruction is short");
    });
}
