//! Notes of compiled modules, against the program and what was put into its moved code.

use super::*;
use crate::Placement;
use crate::edges::notes::Flow;
use crate::testing::compiled;
use probe::{Plan, Room};
use program::{Program, Va};

const TEXT: &str = "
    #include <stdio.h>
    #include <stdlib.h>
    int twice(int n) { for (int i = 0; i < n; i++) { if (i & 1) puts(\"odd\"); else putchar(i); } return 2 * n; }
    int once(int n) { if (n > 9) exit(n); puts(\"once\"); return n; }
    int main(int n, char **v) { switch (n & 7) { case 0: return once(3); case 1: n++; case 2: puts(v[0]); break;
        case 5: n--; case 6: n *= 3; break; default: if (n < 0) return -1; } return twice(n) + once(n); }";

/// Has `check` look at the module of the program that `flags` make of the text, and its notes.
fn check(flags: &str, plan: impl Fn(&Program) -> Plan, check: impl Fn(&Module<'_>, &Notes)) {
    let program = compiled(TEXT, "c", flags);
    let module = Module::build(&program, &plan(&program), Room::Apart).expect("it can be moved");
    check(&module, &notes(&module));
}

/// The start of each block that has a counter, and the ends of each edge, in the order of the notes.
fn counted(notes: &Notes) -> Vec<(Va, Option<Va>)> {
    let of = |flow: FunctionFlow| {
        let blocks = flow.blocks.iter().filter(|b| b.is_counted).map(|b| (b.start, None));
        let ways = |b: &Node| {
            let counted = b.ways.iter().filter(|w| w.is_counted);
            counted.map(|w| (b.start, Some(flow.blocks[w.to as usize].start))).collect::<Vec<_>>()
        };
        blocks.chain(flow.blocks.iter().flat_map(ways)).collect::<Vec<_>>()
    };
    notes.functions.iter().map(Flow::decode).flat_map(of).collect()
}

#[test]
fn counters_mean_the_blocks_and_edges_that_they_were_put_into() {
    for (flags, placement) in
        [("-O0", Placement::Edges), ("-O2", Placement::Edges), ("-O1", Placement::Blocks)]
    {
        let plan = |program: &Program| placement.plan(program);
        check(flags, plan, |module, notes| {
            let program = module.program;
            let start = |b: BlockId| program.block(b).start;
            let want = module.words.counted.iter().map(|one| match *one {
                Counted::Block(b) => (start(b), None),
                Counted::Edge(e) => {
                    let from = program
                        .func_ids()
                        .flat_map(|f| program.function(f).block_ids())
                        .find(|b| program.edge_ids(*b).any(|other| other == e));
                    (start(from.expect("an edge leaves a block")), Some(start(program.edge(e).to)))
                }
            });
            assert_eq!(counted(notes), want.collect::<Vec<_>>(), "{flags}");
            assert_eq!(notes.n_counters(), module.words.counted.len() + module.words.calls.len(), "{flags}");
        });
    }
}

/// Where each piece of moved code is reached, it belongs to the block that it was moved from: to its head
/// where nothing of it ran, to its end behind that.
#[test]
fn moved_code_belongs_to_its_blocks() {
    for flags in ["-O0", "-O2"] {
        check(
            flags,
            |program| Placement::Edges.plan(program),
            |module, notes| {
                let program = module.program;
                let mut n_found = 0;
                for (n, &(at, place)) in module.code_map.reached.iter().enumerate() {
                    let is_last = module.code_map.reached.get(n + 1).is_none_or(|next| next.0 != at);
                    let (block, is_end) = match place {
                        Reached::Block(b) => (b, false),
                        Reached::Behind(b) | Reached::Called(b) => (b, true),
                        Reached::Counted(_) | Reached::Nothing => continue,
                    };
                    let func = program.function(program.block(block).func);
                    let Some(position) =
                        notes.functions.iter().position(|f| f.is_whole() && f.entry() == func.entry)
                    else {
                        continue;
                    };
                    let found = positions::find(&notes.positions, &[u64::from(at)]).expect("written");
                    let Some(Some(found)) = found.first().copied().filter(|_| is_last) else { continue };
                    let flow = notes.functions.iter().nth(position).expect("it is there").decode();
                    let node = &flow.blocks[(found.node / 2) as usize];
                    assert_eq!(found.function as usize, position, "{flags} {at:#x} {place:?}");
                    assert_eq!(node.start, program.block(block).start, "{flags} {at:#x} {place:?}");
                    assert_eq!(found.node % 2 == 1, is_end, "{flags} {at:#x} {place:?}");
                    n_found += 1;
                }
                assert!(n_found > 40, "{flags}: {n_found}");
            },
        );
    }
}

#[test]
fn stubs_ran_as_often_as_the_blocks_that_call_them() {
    check(
        "-O0",
        |program| Placement::Edges.plan(program),
        |module, notes| {
            let program = module.program;
            let nodes: Vec<Node> = notes.functions.iter().flat_map(|f| f.decode().blocks).collect();
            let puts = program.func_ids().find(|f| program.function(*f).import.as_deref() == Some("puts"));
            let puts = puts.expect("a stub");
            let sum = notes.sums.iter().find(|sum| sum.at == program.function(puts).entry).expect("it stays");
            let callers = sum.blocks.iter().map(|(n, _)| *n).chain(sum.left.iter().copied());
            let mut got: Vec<Va> = callers.map(|n| nodes[n as usize].start).collect();
            let calls = program.calls.iter().filter(|call| call.callee == Callee::Function(puts));
            let mut want: Vec<Va> = calls.map(|call| program.block(call.block).start).collect();
            got.sort_unstable();
            want.sort_unstable();
            assert_eq!(got.len() + sum.counters.len(), want.len());
            assert!(got.len() > 1 && got.iter().all(|at| want.contains(at)), "{got:?} {want:?}");
        },
    );
}
