//! Who may rely on which register where code of different origin meets.
//!
//! Source: System V ABI, AMD64 supplement, 3.2.1 (registers), 3.2.3 (parameters), figure 3.4. We take more
//! for live than it says wherever compilers are known to go further; each set says so.

pub mod arguments;

use super::RegSet;

const fn general(numbers: &[u8]) -> u128 {
    let (mut set, mut i) = (0, 0);
    while i < numbers.len() {
        set |= 1 << numbers[i];
        i += 1;
    }
    set
}

/// Both halves of the vector registers below `n`.
const fn vectors(n: u32) -> u128 {
    ((1 << n) - 1) << 16 | ((1 << n) - 1) << 88
}

const RSP: u128 = 1 << 4;
const DF: u128 = 1 << 70;
const X87: u128 = 0xff << 56;
const MASKS: u128 = 0xff << 48;
const ARITHMETIC_FLAGS: u128 = 0x3f << 64;

/// Everything there is.
pub const ALL: RegSet = RegSet(((1 << 120) - 1) & !(0x1ff << 71));
/// CF PF AF ZF SF OF.
pub const FLAGS: RegSet = RegSet(ARITHMETIC_FLAGS);
/// CF, which `inc` does not change.
pub const CARRY: RegSet = RegSet(1 << 64);
/// Never called dead: the stack pointer, segment and control registers, and the x87 stack, whose registers
/// cannot be told apart by their numbers.
pub const ALWAYS_LIVE: RegSet = RegSet(RSP | X87 | 0xff << 80);
/// What a callee may read: rdi rsi rdx rcx r8 r9, rax (number of vector arguments), r10 (static chain), the
/// vector registers 0–7 at any width, and the direction flag.
pub const ARGUMENTS: RegSet = RegSet(general(&[7, 6, 2, 1, 8, 9, 0, 10]) | vectors(8) | RSP | DF | X87);
/// What a caller may read after a return: rax rdx, rcx and r8 (LLVM's own conventions return up to four
/// words), the vector registers 0–3, the x87 stack, the direction flag.
pub const RETURNED: RegSet = RegSet(general(&[0, 2, 1, 8]) | vectors(4) | X87 | RSP | DF);
/// Kept by callees: rbx rbp r12–r15, rsp.
pub const CALLEE_SAVED: RegSet = RegSet(general(&[3, 5, 12, 13, 14, 15]) | RSP);
/// Lost in a call that keeps to the ABI: rax rcx rdx rsi rdi r8–r11, all vector and mask registers, the
/// arithmetic flags.
pub const CALLER_SAVED: RegSet =
    RegSet(general(&[0, 1, 2, 6, 7, 8, 9, 10, 11]) | vectors(32) | MASKS | ARITHMETIC_FLAGS);
/// The general registers that compilers allocate: all but rsp.
pub const GENERAL: RegSet = RegSet(0xffff & !RSP);
/// What calculates with floating-point numbers: the vector registers at any width, the x87 stack.
pub const OF_FLOATS: RegSet = RegSet(vectors(32) | X87);
/// rsp.
pub const STACK_POINTER: RegSet = RegSet(RSP);
/// The frame pointer: an unwinder may compute a frame from it.
pub const FRAME_POINTER: RegSet = RegSet(1 << 5);

/// Imports that keep all registers, whatever the ABI says: the hooks of `-pg`, and split stacks.
pub fn keeps_all(import: &str) -> bool {
    matches!(import, "mcount" | "_mcount" | "__fentry__" | "__morestack")
}
