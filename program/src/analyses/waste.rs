//! Instructions that need not be there: what Chainsaw's authors found compilers to do all the same.
//!
//! Source: T. Moseley, D. Grunwald, R. Peri, "Chainsaw: using binary matching for relative instruction mix
//! comparison" (2009), "Conclusions".

use crate::addr::Va;
use crate::arch::{ControlFlow, EffectsOf, Insn, Operand, Reg, RegSet, Step};
use crate::ids::BlockId;
use crate::model::Program;

/// So many registers at least are put on the stack at once.
const FEW: usize = 4;
/// So many other instructions may stand between these and those that fetch them.
const NEAR: usize = 8;

/// Instructions that need not be there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Waste {
    /// A jump, or a branch, to the next instruction.
    JumpToNext,
    /// A jump to a return, which might stand in its place.
    JumpToReturn,
    /// So many registers are put on the stack, and fetched from there at once, which none of them has lost.
    SpilledAndRefilled(usize),
}

impl Waste {
    /// How many instructions need not be there: of registers that are refilled, those that fetch them.
    pub fn n_insns(self) -> usize {
        match self {
            Waste::JumpToNext | Waste::JumpToReturn => 1,
            Waste::SpilledAndRefilled(n) => n,
        }
    }
}

impl Program {
    /// What need not be there of `block`, and where it begins.
    pub fn waste(&self, block: BlockId) -> Vec<(Va, Waste)> {
        let insns: Vec<Insn> = self.insns(block).collect();
        let mut found = refilled(&insns);
        let Some(last) = insns.last() else { return found };
        let next = Va(last.at().0 + last.len_bytes() as u64);
        let jump = match last.flow() {
            ControlFlow::Jump(to) | ControlFlow::Branch(to) if to == next => Some(Waste::JumpToNext),
            ControlFlow::Jump(to) if self.returns_at(to) => Some(Waste::JumpToReturn),
            _ => None,
        };
        found.extend(jump.map(|jump| (last.at(), jump)));
        found
    }

    /// Whether the instruction there is a return.
    fn returns_at(&self, at: Va) -> bool {
        let first = self.block_from(at).and_then(|block| self.insns(block).next());
        first.is_some_and(|insn| insn.flow() == ControlFlow::Return)
    }
}

/// A register that is put somewhere, or fetched from there.
type Moved = (Reg, Operand);

/// Registers of a block that are put on the stack one behind the other, and fetched from there soon.
fn refilled(insns: &[Insn]) -> Vec<(Va, Waste)> {
    let mut effects = EffectsOf::new();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < insns.len() {
        let stored: Vec<Moved> = insns.get(at..).unwrap_or_default().iter().map_while(stored).collect();
        let (first, behind) = (insns.get(at), at + stored.len().max(1));
        at = behind;
        if stored.len() < FEW {
            continue;
        }
        // Of several that are put at one place, the last one is there.
        let mut kept: Vec<Moved> = Vec::new();
        for moved in stored {
            kept.retain(|(_, place)| *place != moved.1);
            kept.push(moved);
        }
        let (mut n, mut n_others) = (0, 0);
        for insn in insns.get(behind..).unwrap_or_default() {
            let is_refill = fetched(insn).is_some_and(|moved| kept.contains(&moved));
            if is_refill {
                n += 1;
                continue;
            }
            n_others += 1;
            let (writes, flow) = (effects.effects(insn), insn.flow());
            let is_stored = insn.memory_uses().iter().any(|of| of.is_written);
            // Then places are others.
            let moves_stack = insn.stack_move().is_some();
            if n_others > NEAR || flow != ControlFlow::Next || is_stored || moves_stack {
                break;
            }
            kept.retain(|(reg, place)| !writes.writes.contains(*reg) && !is_relative(place, &writes.writes));
        }
        if n >= FEW {
            found.extend(first.map(|first| (first.at(), Waste::SpilledAndRefilled(n))));
        }
    }
    found
}

/// The register that an instruction puts on the stack, and where.
fn stored(insn: &Insn) -> Option<Moved> {
    match insn.step() {
        Step::Store { to, from } if is_on_stack(&to) => Some((from, to)),
        _ => None,
    }
}

/// The register that an instruction fetches from the stack, and from where.
fn fetched(insn: &Insn) -> Option<Moved> {
    match insn.step() {
        Step::Copy { to, from, .. } if is_on_stack(&from) => Some((to, from)),
        _ => None,
    }
}

/// Whether a place is relative to one of `regs`.
fn is_relative(place: &Operand, regs: &RegSet) -> bool {
    matches!(place, Operand::Mem { base: Some(base), .. } if regs.contains(*base))
}

fn is_on_stack(operand: &Operand) -> bool {
    let Operand::Mem { base: Some(base), index: None, segment: None, .. } = operand else { return false };
    base.is_stack_pointer() || base.is_frame()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use std::process::Command;

    /// What stands at labels is what is found there; the assembler says where these are.
    const SOURCE: &str = "
        .globl main, spills, keeps, jumps
        main: call spills; call keeps; call jumps; xor %eax, %eax; ret
        spills: sub $64, %rsp
        spilled4:
            mov %rax, (%rsp); mov %rcx, 8(%rsp); mov %rdx, 16(%rsp); mov %rsi, 24(%rsp)
            add $1, %rdi
            mov (%rsp), %rax; mov 8(%rsp), %rcx; mov 16(%rsp), %rdx; mov 24(%rsp), %rsi
            add $64, %rsp
            ret
        keeps: sub $64, %rsp
            mov %rax, (%rsp); mov %rcx, 8(%rsp); mov %rdx, 16(%rsp); mov %rsi, 24(%rsp)
            xor %eax, %eax; xor %ecx, %ecx; xor %edx, %edx; xor %esi, %esi
            mov (%rsp), %rax; mov 8(%rsp), %rcx; mov 16(%rsp), %rdx; mov 24(%rsp), %rsi
            mov %rax, (%rsp); mov %rcx, 8(%rsp); mov %rdx, 16(%rsp); mov %rsi, 24(%rsp)
            call jumps
            mov (%rsp), %rax; mov 8(%rsp), %rcx; mov 16(%rsp), %rdx; mov 24(%rsp), %rsi
            mov %rax, (%rsp); mov %rcx, 8(%rsp); mov %rdx, 16(%rsp)
            mov (%rsp), %rax; mov 8(%rsp), %rcx; mov 16(%rsp), %rdx
            mov %rax, (%rsp); mov %rcx, 8(%rsp); mov %rdx, 16(%rsp); mov %rsi, 24(%rsp)
            add $8, %rsp
            mov (%rsp), %rax; mov 8(%rsp), %rcx; mov 16(%rsp), %rdx; mov 24(%rsp), %rsi
            mov %rax, (%rsp); mov %rcx, 8(%rsp); mov %rdx, 16(%rsp); mov %rsi, (%rsp)
            mov (%rsp), %rax; mov 8(%rsp), %rcx; mov 16(%rsp), %rdx
            add $56, %rsp
            ret
        jumps: test %edi, %edi
            je other
            inc %eax
        next1: jmp next
        next: dec %edi
            jne jumps
            inc %ecx
        return1: jmp return
        other: inc %edx
        next2: jne nextb
        nextb: inc %eax
            je return
            inc %edx
        return: ret
        .section .note.GNU-stack,\"\"
    ";

    #[test]
    fn what_need_not_be_there_is_found_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder for the test's files");
        let (source, binary) = (dir.path().join("a.s"), dir.path().join("a"));
        std::fs::write(&source, SOURCE).expect("the folder can be written");
        let out = Command::new("gcc").arg(&source).arg("-o").arg(&binary).output();
        let out = out.expect("gcc is there");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let program = Program::analyze(Image::load(&binary).expect("gcc makes good files"));
        let symbols = Command::new("nm").arg(&binary).output().expect("nm is there").stdout;
        let symbols = String::from_utf8(symbols).expect("text");
        let address = |name: &str| {
            let line = symbols.lines().find(|line| line.split(' ').nth(2) == Some(name));
            let digits = line.and_then(|line| line.split(' ').next()).unwrap_or_else(|| panic!("{name}"));
            Va(u64::from_str_radix(digits, 16).expect("an address"))
        };
        let mut found = Vec::new();
        for name in ["main", "spills", "keeps", "jumps"] {
            let [one] = program.bearers(name)[..] else { panic!("one {name}") };
            found.extend(program.function(one.func).block_ids().flat_map(|block| program.waste(block)));
        }
        let mut want = vec![
            (address("spilled4"), Waste::SpilledAndRefilled(4)),
            (address("next1"), Waste::JumpToNext),
            (address("return1"), Waste::JumpToReturn),
            (address("next2"), Waste::JumpToNext),
        ];
        found.sort_unstable();
        want.sort_unstable();
        assert_eq!(found, want);
    }
}
