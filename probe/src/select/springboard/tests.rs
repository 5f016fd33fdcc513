//! Which tactic finds room for a jump, and where there is none.

use super::*;
use crate::plan::Plan;
use crate::select::Selection;
use crate::testing::{assembled, compiled, function};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A function of blocks of so many bytes, each a target of a table in data if so; its alignment as a power of
/// two.
fn text(functions: &[(Vec<(u8, bool)>, u8)]) -> String {
    let mut code = ".text\n.globl _start\n_start: ".to_owned();
    let mut data = ".data\n".to_owned();
    for (n, _) in functions.iter().enumerate() {
        code += &format!("call f{n}\n");
    }
    code += "hlt\n";
    for (n, (blocks, align)) in functions.iter().enumerate() {
        code += &format!(".p2align {align}\n.type f{n},@function\nf{n}:\n");
        for (b, (len, is_exposed)) in blocks.iter().enumerate() {
            // Each block ends in a branch of two bytes.
            code += &format!(".Lf{n}b{b}: .fill {len},1,0x90\njrcxz .Lf{n}b{b}\n");
            if *is_exposed {
                data += &format!(".quad .Lf{n}b{b}\n");
            }
        }
        code += &format!("ret\n.size f{n},.-f{n}\n");
    }
    code + &data
}

fn program(functions: &[(Vec<(u8, bool)>, u8)]) -> Program {
    let flags = "-nostdlib -static -no-pie -Wl,-Ttext=0x401000 -Wl,--build-id=none";
    compiled(&text(functions), "s", flags)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn springboards_are_written_over_nothing_that_is_reached(
        functions in proptest::collection::vec(
            (proptest::collection::vec((0..6u8, any::<bool>()), 1..5), 0..5u8), 1..6)
    ) {
        let program = program(&functions);
        let selection = Selection::compute(&program, &Plan::NULL, false, &BTreeSet::new());
        let is_moved = |id: FuncId| selection.not_moved[id.index()].is_none();
        let mut all: Vec<Range<Va>> = selection.springboards.iter().flat_map(Springboard::written).collect();
        all.sort_by_key(|r| r.start);
        for pair in all.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start, "{:?}", pair);
        }
        // Over no code that is not moved.
        for range in &all {
            for at in (0..range.end.since(range.start)).map(|n| range.start.plus(n)) {
                let is_free = program.block_at(at).is_none_or(|b| is_moved(program.block(b).func));
                prop_assert!(is_free, "{at} of {range:?} is not moved");
            }
        }
        // What is reached from outside starts with one, and is not in the middle of another.
        let starts: BTreeSet<Va> = selection.springboards.iter().map(|b| b.at).collect();
        for at in &selection.address_taken {
            let func = program.block(program.block_from(*at).expect("a block")).func;
            if is_moved(func) {
                prop_assert!(starts.contains(at), "{at} has none");
                let is_inside = |r: &&Range<Va>| r.start < *at && *at < r.end;
                prop_assert_eq!(all.iter().find(is_inside), None);
            }
        }
        // They can be written, and lead to the moved code.
        for board in &selection.springboards {
            let mut patches = Vec::new();
            board.write(&program, Va(0x500000), &mut patches);
            let lengths: Vec<u64> = patches.iter().map(|p| p.new.len() as u64).collect();
            let want: Vec<u64> = board.written().iter().map(|r| r.end.since(r.start)).collect();
            prop_assert_eq!(lengths, want);
            let mut at = board.at;
            for p in &patches {
                let mut decoder = Decoder::new(&p.new, p.at);
                prop_assert_eq!(p.at, at);
                at = decoder.next().and_then(|insn| insn.flow().target()).expect("a jump");
            }
            prop_assert_eq!(at, Va(0x500000));
        }
    }
}

/// The tactics of the function `f`, which is `code`, with `data` behind it.
fn tactics(code: &str, data: &str) -> Option<Vec<(u64, Tactic)>> {
    let code = format!("{code}\n.data\n{data}\n.text");
    let program = assembled(&[("_start", "call f\n.fill 8,1,0x90\nhlt"), ("f", &code)]);
    let selection = Selection::compute(&program, &Plan::NULL, false, &BTreeSet::new());
    let f = function(&program, "f");
    let entry = program.function(f).entry;
    let mine = selection.springboards.iter().filter(|b| program.function_at(b.at) == Some(f));
    selection.not_moved[f.index()].is_none().then(|| mine.map(|b| (b.at.since(entry), b.tactic)).collect())
}

#[test]
fn a_long_block_gets_a_long_jump() {
    assert_eq!(tactics("mov $1,%eax\nret", ".quad f"), Some(vec![(0, Tactic::Long)]));
}

#[test]
fn padding_holds_the_long_jump_of_a_short_block() {
    let code = "xor %eax,%eax\n1: jrcxz 1b\nret\n.p2align 5";
    let found = tactics(code, ".quad f, 1b").expect("it is moved");
    assert!(found.iter().any(|(_, tactic)| matches!(tactic, Tactic::Hop(_))), "{found:?}");
}

#[test]
fn what_only_the_function_reaches_is_written_over() {
    let code = "xor %eax,%eax\n1: dec %edi\njne 1b\nnop\nret";
    assert_eq!(tactics(code, ".quad f"), Some(vec![(0, Tactic::Over)]));
}

/// Pieces of a function that is called while it runs: fill of so many bytes, a call of five bytes, one of
/// two, a system call, and a jump that goes back to the start.
const PIECES: [&str; 5] = [".fill 3,1,0x90", "call f0", "call *%rax", "syscall", "jrcxz 1b"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn control_that_comes_back_meets_a_springboard_whole(
        functions in proptest::collection::vec(
            (proptest::collection::vec(0..PIECES.len(), 1..8), 0..5u8), 1..6)
    ) {
        let mut code = ".text\n.globl _start\n_start: call f0\nhlt\n".to_owned();
        for (n, (pieces, align)) in functions.iter().enumerate() {
            code += &format!(".p2align {align}\n.type f{n},@function\nf{n}: 1:\n");
            pieces.iter().for_each(|&piece| code += &format!("{}\n", PIECES[piece]));
            code += &format!("ret\n.size f{n},.-f{n}\n.data\n.quad f{n}\n.text\n");
        }
        let flags = "-nostdlib -static -no-pie -Wl,-Ttext=0x401000 -Wl,--build-id=none";
        let program = compiled(&code, "s", flags);
        let selection = Selection::compute(&program, &Plan::BLOCKS, true, &BTreeSet::new());
        let mut all: Vec<Range<Va>> = selection.springboards.iter().flat_map(Springboard::written).collect();
        all.sort_by_key(|r| r.start);
        for pair in all.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start, "{:x?}", pair);
        }
        let is_moved =
            |at: &Va| program.function_at(*at).is_some_and(|id| selection.not_moved[id.index()].is_none());
        let running = InProgress::find(&program);
        for call in running.system_calls.iter().filter(|at| is_moved(at)) {
            let own = *call..call.plus(2);
            // At one where a function starts, its moved code makes it again.
            let is_over = |r: &&Range<Va>| r.start < own.end && own.start < r.end && r.start != own.start;
            prop_assert_eq!(all.iter().find(is_over), None);
        }
        let starts: BTreeSet<Va> = selection.springboards.iter().map(|b| b.at).collect();
        for at in running.backs.iter().filter(|at| is_moved(at)) {
            prop_assert!(starts.contains(at), "{at} has none");
            prop_assert_eq!(all.iter().find(|r| r.start < *at && *at < r.end), None);
        }
    }
}

#[test]
fn where_exceptions_land_that_old_code_has_called_for_is_a_springboard() {
    let text = "struct Adds { long *to; ~Adds() { *to += 1000; } }; long leaf(long n) { if (n > 5) throw n; return n; }
        long middle(long n) { static long sum; Adds adds{&sum}; return leaf(n) + 1; }
        int main(int n, char **v) { try { return middle(n); } catch (long got) { return got * 7; } }";
    let flags = "-O1 -fno-inline -fno-reorder-blocks-and-partition -Wl,--no-as-needed -lstdc++";
    let program = compiled(text, "cc", flags);
    let selection = Selection::compute(&program, &Plan::BLOCKS, true, &BTreeSet::new());
    let written: Vec<Range<Va>> = selection.springboards.iter().flat_map(Springboard::written).collect();
    let pads: Vec<Va> = program.blocks.iter().filter(|b| b.landing_pad).map(|b| b.start).collect();
    assert!(pads.len() >= 2, "{pads:?}");
    for pad in pads {
        assert!(selection.springboards.iter().any(|b| b.at == pad && b.comes == Comes::In), "{pad}");
        assert!(!written.iter().any(|r| r.start < pad && pad < r.end), "{pad}");
    }
}

#[test]
fn a_short_return_point_hops_to_dead_code_of_its_function() {
    let program = assembled(&[
        ("_start", "call f\nhlt"),
        ("f", "call *%rax\ncall *%rax\nmov $1,%eax\nmov $2,%eax\nmov $3,%eax\nret"),
    ]);
    let selection = Selection::compute(&program, &Plan::BLOCKS, true, &BTreeSet::new());
    let f = function(&program, "f");
    let entry = program.function(f).entry;
    let mine = selection.springboards.iter().filter(|b| program.function_at(b.at) == Some(f));
    let found: Vec<_> = mine.map(|b| (b.at.since(entry), b.tactic, b.comes)).collect();
    assert_eq!(
        found,
        [
            // In the padding in front of it.
            (0, Tactic::Hop(Va(0x40100a)), Comes::In),
            (2, Tactic::Hop(entry.plus(9)), Comes::Back),
            (4, Tactic::Long, Comes::Back),
        ]
    );
}
