//! How many instructions a thread has run: a word of its own, to which each block adds as many as it has.
//!
//! What a call has run, with all that it called, is how far the word went from where it was entered to
//! where it came back. Blocks add up to their first call, then from each call to the next, so that a call
//! that does not come back has run nothing behind it. Stubs of the linkage table stay where they are:
//! whoever calls one adds its instructions. What is between blocks is run through where a branch is not
//! taken.
//!
//! Source: PADRONE, section 3.2 (retired instructions of a call).

use probe::arch::shared::event_word;
use probe::{Action, Field, Point, Probe};
use program::arch::ControlFlow;
use program::{BlockEnd, BlockId, CallKind, Callee, EdgeId, EdgeKind, FuncId, Program};

/// The number of the word that counts, among those that loops count in, too.
const WORD: u32 = 0;

/// The word, as a field of a record.
pub fn field() -> Field {
    Field::Word(event_word(WORD))
}

/// What adds up the instructions of `func`.
pub(super) fn probes(program: &Program, func: FuncId) -> Vec<Probe> {
    let mut all = Vec::new();
    let mut add = |point: Point, n: u64| {
        if let Some(n) = u32::try_from(n).ok().filter(|n| *n > 0) {
            all.push(Probe { point, action: Action::AddInStream(WORD, n) });
        }
    };
    for block in program.function(func).block_ids() {
        for (point, n) in parts(program, block) {
            add(point, n);
        }
        if program.block(block).end == BlockEnd::FallThrough {
            continue;
        }
        let between = program.n_insns_in(&program.padding_behind(block));
        let first = program.block(block).first_edge.0;
        let edges = (first..).zip(program.successors(block));
        for (edge, _) in edges.filter(|(_, edge)| edge.kind == EdgeKind::FallThrough) {
            add(Point::Edge(EdgeId(edge)), between);
        }
    }
    all
}

/// The parts of a block, each with how many instructions it has: up to its first call, behind each.
fn parts(program: &Program, block: BlockId) -> Vec<(Point, u64)> {
    let calls = program.calls_in(block);
    let mut parts = vec![(Point::Block(block), 0)];
    for insn in program.insns(block) {
        if let Some(part) = parts.last_mut() {
            part.1 += 1;
        }
        let Some(call) = calls.iter().find(|call| call.at == insn.at()) else { continue };
        if let (Callee::Function(callee), Some(part)) = (call.callee, parts.last_mut()) {
            part.1 += of_stub(program, callee);
        }
        if call.kind == CallKind::Call {
            parts.push((Point::After(insn.at()), 0));
        }
    }
    if program.block(block).end == BlockEnd::FallThrough
        && let Some(part) = parts.last_mut()
    {
        part.1 += program.n_insns_in(&program.padding_behind(block));
    }
    parts
}

/// How many instructions `callee` runs until it jumps to what it stands for, if it is a stub.
fn of_stub(program: &Program, callee: FuncId) -> u64 {
    let entry = program.function(callee).entry;
    let Some(stub) = program.image.plt.iter().find(|stub| stub.range.contains(&entry)) else { return 0 };
    let before =
        program.insns_in(&(entry..stub.range.end)).take_while(|insn| insn.flow() == ControlFlow::Next);
    before.count() as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::compiled;

    const SOURCE: &str = "
        .globl main
    main:
        push %rbx
        mov %edi, %ebx
        call f
        inc %eax
        call f
        test %eax, %eax
        je 1f
        nop
        .balign 16
    2:  dec %ebx
        jne 2b
    1:  pop %rbx
        ret
    f:  endbr64
        mov $1, %eax
        ret
    ";

    #[test]
    fn a_block_adds_what_it_runs_up_to_its_calls_and_behind_them() {
        let program = compiled(SOURCE, "s", "-nostartfiles -nostdlib -static -Wl,-e,main");
        let main = program.func_ids().find(|f| program.function(*f).name() == "main").expect("it is there");
        let mut added: Vec<(bool, u32)> = Vec::new();
        for probe in probes(&program, main) {
            let Action::AddInStream(WORD, n) = probe.action else { panic!("{probe:?}") };
            added.push((matches!(probe.point, Point::After(_)), n));
        }
        // push, mov, call; inc, call; test, je; the loop; pop, ret.
        for want in [(false, 3), (true, 2), (true, 2), (false, 2)] {
            let at =
                added.iter().position(|one| *one == want).unwrap_or_else(|| panic!("{want:?}: {added:?}"));
            added.remove(at);
        }
    }
}
