//! Addresses of moved code, both ways.

use crate::layout::place::Room;
use crate::module::Module;
use crate::plan::{Action, Plan, Point, Probe};
use crate::testing::compiled;
use program::arch::{ControlFlow, Decoder, Insn};
use program::{Program, Va};
use std::collections::BTreeMap;

const TEXT: &str = "
    volatile int sink;
    int classify(int n) { switch (n & 7) { case 0: return 3; case 1: n++; case 2: sink += n; break; case 5: sink--;
        case 6: n *= 3; break; default: if (n < 0) return -1; } return n + sink; }
    int sums(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) { if (a[i] == 77) continue;
        for (int j = i; j > 0; j >>= 1) { if (a[j] & 1) s += a[j]; else if (s > 1000 && a[j] != 5) s ^= j; }
        if (s == 12345) break; } return s; }
    int main(int n, char **v) { int a[64]; for (int i = 0; i < 64; i++) a[i] = i * n; return classify(sums(a, 64)); }";

/// What an instruction is, as far as moving keeps it: a branch may be inverted.
fn kind(insn: &Insn) -> u16 {
    if matches!(insn.flow(), ControlFlow::Branch(_)) { u16::MAX } else { insn.mnemonic() }
}

/// The addresses of the instructions in old code that is moved, each with its kind.
fn old_instructions(program: &Program, module: &Module<'_>) -> BTreeMap<Va, u16> {
    let moved = module.code_map.blocks.iter().filter_map(|b| program.block_from(b.0));
    moved.flat_map(|b| program.insns(b).map(|i| (i.at(), kind(&i))).collect::<Vec<_>>()).collect()
}

/// The same of all new code, ours included.
fn new_instructions(module: &Module<'_>) -> BTreeMap<Va, u16> {
    let segments = module.to_segments().expect("it can be mapped");
    let mut all = BTreeMap::new();
    for (_, new) in module.code_map.ranges() {
        let from = usize::try_from(new.start.0 - segments.text_at).expect("within the text");
        let len = usize::try_from(new.end.since(new.start)).expect("within the text");
        let decoder = Decoder::new(&segments.text[from..from + len], new.start);
        for insn in decoder {
            all.insert(insn.at(), kind(&insn));
        }
    }
    all
}

/// Holds the map of `plan` against what is decoded in new code: every instruction is found, there and back.
fn check(plan: impl Fn(&Program) -> Plan) {
    for flags in ["-O0", "-O2", "-O2 -no-pie"] {
        let program = compiled(TEXT, "c", flags);
        let module = Module::build(&program, &plan(&program), Room::Behind).expect("it can be moved");
        let (old, new) = (old_instructions(&program, &module), new_instructions(&module));
        assert!(old.len() > 100, "{}", old.len());
        let map = &module.code_map;
        for &at in old.keys() {
            let to = map.new_of(at).unwrap_or_else(|| panic!("{at} is moved"));
            assert!(new.contains_key(&to), "{at} leads between instructions, to {to}");
            assert_eq!(map.old_of(&program, to), Some(at), "by way of {to}");
        }
        let mut own = Vec::new();
        for (&at, kind) in &new {
            let Some(from) = map.old_of(&program, at) else { continue };
            // Our code in front of an instruction stands for it, too.
            if map.new_of(from) != Some(at) || old.get(&from) == Some(kind) {
                assert_eq!(old.get(&from), Some(kind), "{from} is said to be at {at}");
                own.push(from);
            }
        }
        // A call comes back behind itself, whatever of ours stands there.
        let is_call = |insn: &Insn| matches!(insn.flow(), ControlFlow::Call(_) | ControlFlow::CallIndirect);
        let calls = |b: &(Va, Va)| {
            let block = program.block_from(b.0)?;
            Some(program.insns(block).filter(is_call).map(|i| i.at()).collect::<Vec<_>>())
        };
        let calls: Vec<Va> = map.blocks.iter().filter_map(calls).flatten().collect();
        let starts: Vec<Va> = new.keys().copied().collect();
        let mut n_calls = 0;
        for pair in starts.windows(2) {
            let from = map.old_of(&program, pair[0]).filter(|from| calls.contains(from));
            if let Some(from) = from.filter(|from| old.get(from) == new.get(&pair[0])) {
                assert_eq!(map.insn_before(&program, pair[1]), Some(from), "{flags}: behind {}", pair[0]);
                n_calls += 1;
            }
        }
        assert!(n_calls >= 3, "{flags}: {n_calls} calls");
        own.sort_unstable();
        own.dedup();
        assert_eq!(own, old.keys().copied().collect::<Vec<_>>(), "{flags}: all of them, and no other");
    }
}

#[test]
fn every_instruction_of_moved_code_is_found_both_ways() {
    check(|_| Plan::NULL);
}

#[test]
fn every_instruction_is_found_behind_what_is_put_in_front_of_it() {
    check(|_| Plan::BLOCKS);
    let count = |point| Probe { point, action: Action::Count };
    let everywhere = |program: &Program| {
        let functions = || program.func_ids().filter(|f| program.function(*f).name() == "sums");
        let blocks = || functions().flat_map(|f| program.function(f).block_ids());
        let before = blocks().flat_map(|b| program.insns(b).map(|i| count(Point::Before(i.at()))));
        let edges = blocks().flat_map(|b| program.edge_ids(b)).map(|e| count(Point::Edge(e)));
        Plan { probes: before.chain(edges).collect(), ..Plan::NULL }
    };
    check(everywhere);
}

#[test]
fn what_is_not_moved_is_on_no_map() {
    let program = compiled(TEXT, "c", "-O2");
    let module = Module::build(&program, &Plan::NULL, Room::Behind).expect("it can be moved");
    let plt = program.image.plt.first().expect("it is linked to the C library").range.start;
    assert_eq!(module.code_map.new_of(plt), None);
    assert_eq!(module.code_map.old_of(&program, plt), None);
}
