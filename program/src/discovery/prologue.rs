//! What a function's first instructions look like.
//!
//! Source: System V ABI, AMD64 supplement, 3.2: registers, the stack frame, and parameter passing.

use crate::arch::{ControlFlow, Decoder, Insn, Operand, RegSet, StackMove, Step};
use crate::discovery::code::RawCode;
use crate::discovery::sweep::raw::Rel;

/// Whether the code at `at` saves registers or makes room on the stack at once.
pub fn has_prologue(code: &RawCode<'_>, at: Rel) -> bool {
    let va = code.cx.space.va(at);
    let bytes = code.cx.image.bytes_from(va).unwrap_or_default();
    let grows = |insn: &Insn| match insn.stack_move() {
        Some(StackMove::By(n)) => n < 0,
        _ => insn.is_landing_mark(),
    };
    Decoder::new(&bytes[..bytes.len().min(60)], va).take(4).any(|insn| grows(&insn))
}

/// Whether the code at `at` reads only what a caller provides, and leaves the caller's stack alone.
pub fn looks_like_entry(code: &RawCode<'_>, at: Rel) -> bool {
    let va = code.cx.space.va(at);
    let Some(bytes) = code.cx.image.bytes_from(va) else { return false };
    let bytes = &bytes[..bytes.len().min(24 * 15)];
    let mut defined = RegSet::defined_at_entry();
    let mut depth = 0;
    for (n, insn) in Decoder::new(bytes, va).take(24).enumerate() {
        match insn.flow() {
            ControlFlow::Invalid => return false,
            ControlFlow::Stop => return n > 0 || !insn.is_padding(),
            _ => {}
        }
        if n == 0 && insn.is_landing_mark() {
            return true;
        }
        if !reads_defined(&insn, defined) {
            return false;
        }
        match insn.stack_move() {
            Some(StackMove::By(n)) if insn.flow() != ControlFlow::Return => {
                depth += n;
                if depth > 0 {
                    return false;
                }
            }
            Some(StackMove::FromFrame(_)) if depth == 0 => return false,
            _ => {}
        }
        defined = defined.union(insn.effects().writes);
        match insn.flow() {
            ControlFlow::Next | ControlFlow::Branch(_) => {}
            // After a call everything it may return is defined; by then an entry has shown itself.
            _ => return true,
        }
    }
    true
}

/// Whether the instruction reads only registers in `defined`, or saves those it must keep.
fn reads_defined(insn: &Insn, defined: RegSet) -> bool {
    if insn.pushed().is_some() || insn.is_zeroing() || insn.is_nop() {
        return true;
    }
    if let Step::Store { to: Operand::Mem { base: Some(base), .. }, from } = insn.step()
        && base.is_frame()
        && RegSet::kept_at_calls().contains(from)
    {
        return true;
    }
    if matches!(insn.stack_move(), Some(StackMove::ToFrame)) {
        return true;
    }
    insn.effects().reads.minus(defined).is_empty()
}
