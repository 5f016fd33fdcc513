//! Instructions in our own words: what the rest of Engraft may know of the processor.
//!
//! Invariant: nothing outside `arch/` names a register or the decoder library.

mod x86_64;

pub use x86_64::{
    Branch, ControlFlow, DWARF_FRAME_POINTER, DWARF_STACK_POINTER, Decoder, Effects, EffectsOf, Insn, LOCK,
    MemoryUse, Operand, PositionDependence, Quick, Reg, RegClass, RegSet, StackMove, Step, Sum, Test, abi,
    decode,
};
