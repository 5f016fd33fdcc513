//! The most common forms of instructions, eight of ten, decoded without tables: length, flow and effects
//! alone.
//!
//! Invariant: what is told here is what iced-x86 tells of the same bytes, which a test compares over all
//! opcodes; any other form is left to it.
//!
//! Source: Intel SDM vol. 2, 2.1 (instruction format), 2.2.1 (REX), appendix A (opcode maps).

use super::{ControlFlow, Effects, Reg, RegSet};
use crate::addr::Va;

/// An instruction of a common form. None of them is padding, an indirect jump or call, or a load of the stack
/// pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quick {
    /// Length in bytes.
    pub len: u8,
    /// Where control goes.
    pub flow: ControlFlow,
    reads: u64,
    writes: u64,
    kills: u64,
    /// Whether it names a place relative to itself, which [`Self::place`] tells.
    pub is_relative: bool,
    /// From its end to that place.
    displacement: i32,
    /// Where in it that distance is written.
    displacement_at: u8,
    /// Width of the access there in bytes; 0 if only the address is taken (`lea`).
    pub size: u8,
    /// Whether a displacement or an immediate is wide enough for an address.
    pub is_wide: bool,
}

// Sets in 64 bits: general registers and vector registers 0 to 15 as in [`RegSet`], flags from bit 32 on.
const SP: u64 = 1 << 4;
const CF: u64 = 1 << 32;
const PF: u64 = 1 << 33;
const AF: u64 = 1 << 34;
const ZF: u64 = 1 << 35;
const SF: u64 = 1 << 36;
const OF: u64 = 1 << 37;
const FLAGS: u64 = CF | PF | AF | ZF | SF | OF;
/// Flags that each pair of conditions reads.
const CONDITIONS: [u64; 8] = [OF, CF, ZF, CF | ZF, SF, PF, SF | OF, ZF | SF | OF];

/// The operands of a ModRM byte.
struct Operands {
    reg: u8,
    /// The other register, if it is one.
    rm: u8,
    is_register: bool,
    /// Registers of the address.
    address: u64,
    is_relative: bool,
    displacement: i32,
    displacement_at: u8,
    is_wide: bool,
    /// Position after it.
    next: usize,
}

impl Operands {
    #[inline(always)]
    fn at(b: &[u8; 16], i: usize, rex: u8) -> Operands {
        let m = b[i & 15];
        let (mode, low) = (m >> 6, m & 7);
        let mut o = Operands {
            reg: m >> 3 & 7 | (rex & 4) << 1,
            rm: low | (rex & 1) << 3,
            is_register: mode == 3,
            address: 0,
            is_relative: false,
            displacement: 0,
            displacement_at: 0,
            is_wide: mode == 2,
            next: i + 1,
        };
        if mode == 3 {
            return o;
        }
        if low == 4 {
            let sib = b[o.next & 15];
            o.next += 1;
            let index = sib >> 3 & 7 | (rex & 2) << 2;
            if index != 4 {
                o.address = 1 << index;
            }
            if sib & 7 == 5 && mode == 0 {
                o.next += 4;
                o.is_wide = true;
            } else {
                o.address |= 1 << (sib & 7 | (rex & 1) << 3);
            }
        } else if low == 5 && mode == 0 {
            o.displacement = i32_at(b, o.next);
            o.displacement_at = u8::try_from(o.next).unwrap_or(0);
            o.next += 4;
            (o.is_relative, o.is_wide) = (true, true);
        } else {
            o.address = 1 << o.rm;
        }
        o.next += [0, 1, 4, 0][usize::from(mode)];
        o
    }
}

/// Whether the instruction at the start of `bytes` is of a common form.
#[inline(never)]
pub(super) fn is_common(bytes: &[u8], at: Va) -> bool {
    quick(bytes, at).is_some()
}

/// The length of the no-operation at the start of `bytes`, if it is one that assemblers fill space with.
#[inline]
pub(super) fn nop(bytes: &[u8]) -> Option<u8> {
    let prefixes = bytes.iter().take_while(|&&b| b == 0x66).count().min(8);
    let rest = bytes.get(prefixes..)?;
    let len = match rest {
        [0x90, ..] => 1,
        [0x2e, 0x0f, 0x1f, rest @ ..] => 3 + nop_operand(rest)?,
        [0x0f, 0x1f, rest @ ..] => 2 + nop_operand(rest)?,
        _ => return None,
    };
    (len <= rest.len()).then(|| u8::try_from(prefixes + len).ok()).flatten().filter(|&len| len <= 15)
}

/// The length of the operand that a no-operation of several bytes names: `(%rax)` with or without index and
/// displacement.
fn nop_operand(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        0x00 => Some(1),
        0x40 => Some(2),
        0x44 => Some(3),
        0x80 => Some(5),
        0x84 => Some(6),
        _ => None,
    }
}

/// What several instructions of common forms do, one after the other.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    reads: u64,
    writes: u64,
    kills: u64,
}

impl Sum {
    /// Appends `quick`.
    #[inline(always)]
    pub fn then(&mut self, quick: &Quick) {
        self.reads |= quick.reads & !self.kills;
        self.writes |= quick.writes;
        self.kills |= quick.kills;
    }

    /// The effects of all of them: what is read is what is read before it is killed.
    #[inline]
    pub fn effects(&self) -> Effects {
        Effects { reads: widened(self.reads), writes: widened(self.writes), kills: widened(self.kills) }
    }
}

fn widened(set: u64) -> RegSet {
    RegSet(u128::from(set & 0xffff_ffff) | u128::from(set >> 32) << Reg::FLAG_BASE)
}

/// The instruction at the start of `bytes`, which lie at `at`, if it is of a common form.
#[inline(always)]
pub(super) fn quick(bytes: &[u8], at: Va) -> Option<Quick> {
    // The longest instruction has 15 bytes: what is shorter than this is near the end of the code.
    let b: &[u8; 16] = bytes.first_chunk()?;
    let prefix = if matches!(b[0], 0x66 | 0xf3) { b[0] } else { 0 };
    let mut i = usize::from(prefix != 0);
    let mut rex = 0;
    if b[i] & 0xf0 == 0x40 {
        rex = b[i];
        i += 1;
    }
    let opcode = b[i];
    i += 1;
    if prefix != 0 {
        return prefixed(b, i, prefix, rex, opcode);
    }
    let width: u8 = if rex & 8 != 0 { 8 } else { 4 };
    // Of a register as eight bits: without REX, ah to bh.
    let byte = |n: u8| if rex == 0 && n >= 4 { n - 4 } else { n };
    let register = |n: u8, width: u8| 1u64 << if width == 1 { byte(n) } else { n };
    match opcode {
        // add, or, and, sub, xor, cmp
        0x00..=0x3d if opcode & 7 < 6 && !matches!(opcode >> 3, 2 | 3) => {
            let width = if opcode & 1 == 0 { 1 } else { width };
            let operation = opcode >> 3;
            if opcode & 7 >= 4 {
                let imm = if width == 1 { 1 } else { 4 };
                return Some(arithmetic(operation, 1, 0, 0, i + imm).wide(width != 1));
            }
            let o = Operands::at(b, i, rex);
            let reg = register(o.reg, width);
            let rm = if o.is_register { register(o.rm, width) } else { 0 };
            if o.is_register && o.rm == o.reg && operation != 0 && operation != 7 {
                return (operation == 6 && width >= 4)
                    .then(|| Quick::of(o.next, 0, reg | FLAGS, reg | FLAGS));
            }
            let (to, from) = if opcode & 2 == 0 { (rm, reg) } else { (reg, rm) };
            Some(arithmetic(operation, to, from, o.address, o.next).with(&o, width))
        }
        // push, pop
        0x50..=0x57 => Some(Quick::of(i, SP | 1 << (opcode & 7 | (rex & 1) << 3), SP, 0)),
        0x58..=0x5f => {
            let n = opcode & 7 | (rex & 1) << 3;
            (n != 4).then(|| Quick::of(i, SP, SP | 1 << n, 1 << n))
        }
        // movslq
        0x63 if width == 8 => Some(moved(&Operands::at(b, i, rex), false, 8, 4, rex)),
        0x70..=0x7f => {
            let to = at.plus(i as u64 + 1).0.wrapping_add_signed(i64::from(b[i].cast_signed()));
            Some(branch(opcode, i + 1, Va(to)))
        }
        // The same operations with a number.
        0x80 | 0x81 | 0x83 => {
            let o = Operands::at(b, i, rex);
            let operation = o.reg & 7;
            if matches!(operation, 2 | 3) {
                return None;
            }
            let width = if opcode == 0x80 { 1 } else { width };
            let to = if o.is_register { register(o.rm, width) } else { 0 };
            let imm = if opcode == 0x81 { 4 } else { 1 };
            Some(arithmetic(operation, to, 0, o.address, o.next + imm).with(&o, width).wide(opcode == 0x81))
        }
        // test
        0x84 | 0x85 => {
            let width = if opcode == 0x84 { 1 } else { width };
            let o = Operands::at(b, i, rex);
            let rm = if o.is_register { register(o.rm, width) } else { 0 };
            Some(arithmetic(7, rm, register(o.reg, width), o.address, o.next).with(&o, width))
        }
        0xa8 => Some(arithmetic(7, 1, 0, 0, i + 1)),
        0xa9 => Some(arithmetic(7, 1, 0, 0, i + 4).wide(true)),
        0xf6 | 0xf7 => {
            let o = Operands::at(b, i, rex);
            if o.reg & 7 != 0 {
                return None;
            }
            let width = if opcode == 0xf6 { 1 } else { width };
            let rm = if o.is_register { register(o.rm, width) } else { 0 };
            let imm = if width == 1 { 1 } else { 4 };
            Some(arithmetic(7, rm, 0, o.address, o.next + imm).with(&o, width).wide(width != 1))
        }
        // mov
        0x88..=0x8b => {
            let o = Operands::at(b, i, rex);
            let width = if opcode & 1 == 0 { 1 } else { width };
            let is_load = opcode & 2 != 0;
            let is_copy = o.is_register && o.reg == o.rm;
            let loads_stack_pointer = is_load && !o.is_register && o.reg == 4;
            (!is_copy && !loads_stack_pointer).then(|| moved(&o, !is_load, width, width, rex))
        }
        // lea
        0x8d => {
            let o = Operands::at(b, i, rex);
            (!o.is_register).then(|| Quick { size: 0, ..moved(&o, false, width, width, rex) })
        }
        0xb0..=0xb7 => Some(Quick::of(i + 1, 0, 1 << byte(opcode & 7 | (rex & 1) << 3), 0)),
        0xb8..=0xbf => {
            let to = 1 << (opcode & 7 | (rex & 1) << 3);
            Some(Quick::of(i + usize::from(width), 0, to, to).wide(true))
        }
        0xc6 | 0xc7 => {
            let o = Operands::at(b, i, rex);
            if o.reg & 7 != 0 {
                return None;
            }
            let width = if opcode == 0xc6 { 1 } else { width };
            let to = if o.is_register { register(o.rm, width) } else { 0 };
            let kills = if width == 1 { 0 } else { to };
            let imm = if width == 1 { 1 } else { 4 };
            Some(Quick::of(o.next + imm, o.address, to, kills).with(&o, width).wide(width != 1))
        }
        // shl, shr, sar by a number; a count of zero changes nothing.
        0xc1 | 0xd1 => {
            let o = Operands::at(b, i, rex);
            let imm = usize::from(opcode == 0xc1);
            let by = if imm == 1 { b[o.next & 15] & (width * 8 - 1) } else { 1 };
            if !matches!(o.reg & 7, 4 | 5 | 7) || by == 0 {
                return None;
            }
            let to = if o.is_register { 1 << o.rm } else { 0 };
            let kills = FLAGS & !AF & !if by == 1 { 0 } else { OF };
            Some(Quick::of(o.next + imm, to | o.address, to | FLAGS, kills).with(&o, width))
        }
        // ret
        0xc3 => Some(Quick { flow: ControlFlow::Return, ..Quick::of(i, SP, SP, 0) }),
        // call, jmp
        0xe8 | 0xe9 => {
            let to = at.plus(i as u64 + 4).0.wrapping_add_signed(i64::from(i32_at(b, i)));
            Some(match opcode {
                0xe8 => Quick { flow: ControlFlow::Call(Va(to)), ..Quick::of(i + 4, SP, SP, 0) },
                _ => Quick { flow: ControlFlow::Jump(Va(to)), ..Quick::of(i + 4, 0, 0, 0) },
            })
        }
        0xeb => {
            let to = at.plus(i as u64 + 1).0.wrapping_add_signed(i64::from(b[i].cast_signed()));
            Some(Quick { flow: ControlFlow::Jump(Va(to)), ..Quick::of(i + 1, 0, 0, 0) })
        }
        0x0f => two_bytes(b, i, rex, width, at),
        _ => None,
    }
}

/// Opcodes after 0f.
#[inline(always)]
fn two_bytes(b: &[u8; 16], mut i: usize, rex: u8, width: u8, at: Va) -> Option<Quick> {
    let opcode = b[i];
    i += 1;
    match opcode {
        // movups, movaps
        0x10 | 0x11 | 0x28 | 0x29 => Some(vectors(&Operands::at(b, i, rex), opcode & 1 == 1)),
        // cmov: the upper half of a 32-bit register is cleared, whatever the condition.
        0x40..=0x4f => {
            let o = Operands::at(b, i, rex);
            let to = 1 << o.reg;
            let from = if o.is_register { 1 << o.rm } else { o.address };
            let cleared_half = if width == 4 { to } else { 0 };
            let flags = CONDITIONS[usize::from(opcode >> 1 & 7)];
            Some(Quick::of(o.next, from | cleared_half | flags, to, 0).with(&o, width))
        }
        0x80..=0x8f => {
            let to = at.plus(i as u64 + 4).0.wrapping_add_signed(i64::from(i32_at(b, i)));
            Some(branch(opcode, i + 4, Va(to)))
        }
        // set
        0x90..=0x9f => {
            let o = Operands::at(b, i, rex);
            let n = if rex == 0 && o.rm >= 4 { o.rm - 4 } else { o.rm };
            let to = if o.is_register { 1 << n } else { 0 };
            let flags = CONDITIONS[usize::from(opcode >> 1 & 7)];
            Some(Quick::of(o.next, o.address | flags, to, 0).with(&o, 1))
        }
        // movzx, movsx
        0xb6 | 0xb7 | 0xbe | 0xbf => {
            let from = if opcode & 1 == 0 { 1 } else { 2 };
            Some(moved(&Operands::at(b, i, rex), false, width, from, rex))
        }
        _ => None,
    }
}

/// movdqa, movdqu, endbr64.
#[inline]
fn prefixed(b: &[u8; 16], i: usize, prefix: u8, rex: u8, opcode: u8) -> Option<Quick> {
    match (opcode, b[i]) {
        (0x0f, 0x6f | 0x7f) => Some(vectors(&Operands::at(b, i + 1, rex), b[i] == 0x7f)),
        (0x0f, 0x1e) if prefix == 0xf3 && rex == 0 && b[i + 1] == 0xfa => Some(Quick::of(i + 2, 0, 0, 0)),
        _ => None,
    }
}

impl Quick {
    /// The arithmetic flags that it reads, and those that it kills; as bits, the carry lowest.
    #[inline(always)]
    pub(crate) fn flags(&self) -> (u8, u8) {
        (self.reads.to_le_bytes()[4], self.kills.to_le_bytes()[4])
    }

    /// What it does to registers and flags.
    #[inline]
    pub fn effects(&self) -> Effects {
        Effects { reads: widened(self.reads), writes: widened(self.writes), kills: widened(self.kills) }
    }

    #[inline(always)]
    fn of(len: usize, reads: u64, writes: u64, kills: u64) -> Quick {
        Quick {
            len: u8::try_from(len).unwrap_or(0),
            flow: ControlFlow::Next,
            reads,
            writes,
            kills: kills & !reads,
            is_relative: false,
            displacement: 0,
            displacement_at: 0,
            size: 0,
            is_wide: false,
        }
    }

    /// `size` is the width of its access to memory.
    #[inline(always)]
    fn with(mut self, o: &Operands, size: u8) -> Quick {
        self.is_relative |= o.is_relative;
        self.displacement = o.displacement;
        self.displacement_at = o.displacement_at;
        self.size = size;
        self.is_wide |= o.is_wide;
        self
    }

    /// The place it names, if it names one relative to itself and lies at `at`, and where in its bytes the
    /// distance is written.
    #[inline(always)]
    pub(super) fn written_place(&self, at: Va) -> Option<(u8, Va)> {
        self.place(at).map(|to| (self.displacement_at, to))
    }

    /// The place it names, if it names one relative to itself and lies at `at`.
    #[inline(always)]
    pub fn place(&self, at: Va) -> Option<Va> {
        let end = at.0.wrapping_add(u64::from(self.len));
        self.is_relative.then(|| Va(end.wrapping_add_signed(i64::from(self.displacement))))
    }

    #[inline(always)]
    fn wide(mut self, is_wide: bool) -> Quick {
        self.is_wide |= is_wide;
        self
    }
}

#[inline(always)]
fn i32_at(b: &[u8; 16], i: usize) -> i32 {
    i32::from_le_bytes([b[i & 15], b[(i + 1) & 15], b[(i + 2) & 15], b[(i + 3) & 15]])
}

#[inline(always)]
fn branch(opcode: u8, len: usize, to: Va) -> Quick {
    Quick { flow: ControlFlow::Branch(to), ..Quick::of(len, CONDITIONS[usize::from(opcode >> 1 & 7)], 0, 0) }
}

/// Operation 7 is a comparison. `to` is empty for memory.
#[inline(always)]
fn arithmetic(operation: u8, to: u64, from: u64, address: u64, len: usize) -> Quick {
    let written = if operation == 7 { 0 } else { to };
    Quick::of(len, to | from | address, written | FLAGS, FLAGS)
}

/// From one operand to the other, of `to` and `from` bytes; to `rm` if it `is_store`.
#[inline(always)]
fn moved(o: &Operands, is_store: bool, to: u8, from: u8, rex: u8) -> Quick {
    let register = |n: u8, width: u8| 1u64 << if width == 1 && rex == 0 && n >= 4 { n - 4 } else { n };
    let (written, read) = match (is_store, o.is_register) {
        (true, true) => (register(o.rm, to), register(o.reg, from)),
        (true, false) => (0, register(o.reg, from)),
        (false, true) => (register(o.reg, to), register(o.rm, from)),
        (false, false) => (register(o.reg, to), 0),
    };
    let kills = if to >= 4 { written } else { 0 };
    Quick::of(o.next, read | o.address, written, kills).with(o, if is_store { to } else { from })
}

/// The same for 128-bit registers.
#[inline(always)]
fn vectors(o: &Operands, is_store: bool) -> Quick {
    let reg = 1u64 << (16 + o.reg);
    let rm = if o.is_register { 1u64 << (16 + o.rm) } else { 0 };
    let (written, read) = if is_store { (rm, reg) } else { (reg, rm) };
    Quick::of(o.next, read | o.address, written, written).with(o, 16)
}

#[cfg(test)]
mod tests {
    use super::super::{Decoder, EffectsOf, Insn};
    use super::*;

    fn check(bytes: &[u8; 16], of: &mut EffectsOf) -> bool {
        let at = Va(0x40_0000);
        let Some(quick) = quick(bytes, at) else { return false };
        let insn: Insn = Decoder::new(bytes, at).next().expect("there are bytes");
        assert_eq!(
            (usize::from(quick.len), quick.flow),
            (insn.len_bytes(), insn.flow()),
            "{bytes:02x?}: {insn}"
        );
        assert_eq!(quick.effects(), of.effects(&insn), "{bytes:02x?}: {insn}");
        assert!(!insn.is_padding() && !insn.loads_stack_pointer(), "{insn}");
        assert_eq!(quick.is_relative, insn.relative_place().is_some(), "{bytes:02x?}: {insn}");
        if !quick.is_wide {
            let none = (None, None, [None, None]);
            assert_eq!((insn.place(), insn.wide_immediate(), insn.refers_to(true)), none, "{insn}");
        }
        assert_eq!(quick.place(at), insn.relative_place(), "{bytes:02x?}: {insn}");
        assert_eq!(quick.flags(), insn.flags(), "{bytes:02x?}: {insn}");
        let mut decoder = Decoder::new(bytes, at);
        let insn = decoder.next().expect("there are bytes");
        let own = &bytes[..insn.len_bytes()];
        assert_eq!(quick.position(at, own), decoder.position_of(&insn, own), "{bytes:02x?}: {insn}");
        assert_eq!(insn.refers_to(false), [quick.place(at).map(|to| (to, quick.size)), None], "{insn}");
        if quick.is_relative {
            assert_eq!(quick.size == 0, insn.makes_address(), "{bytes:02x?}: {insn}");
        }
        true
    }

    #[test]
    fn what_fills_space_is_told_from_other_code() {
        let mut n_found = 0;
        let at = Va(0x40_0000);
        for prefixes in 0..=10 {
            for segment in [None, Some(0x2e), Some(0x48), Some(0xf3)] {
                for (opcode, modrm) in [0x90u16, 0x1f0f, 0x1e0f, 0x91, 0x8b]
                    .into_iter()
                    .flat_map(|o| (0..=0xffu8).map(move |m| (o, m)))
                {
                    let mut bytes = vec![0x66; prefixes];
                    bytes.extend(segment);
                    bytes.extend(opcode.to_le_bytes().into_iter().take(if opcode > 0xff { 2 } else { 1 }));
                    bytes.extend([modrm, 0, 0, 0, 0, 0, 0, 0]);
                    let insn = Decoder::new(&bytes, at).next().expect("there are bytes");
                    let Some(len) = nop(&bytes) else { continue };
                    n_found += 1;
                    let want = (true, insn.len_bytes());
                    assert_eq!(want, (insn.is_nop(), usize::from(len)), "{bytes:02x?}: {insn}");
                    assert_eq!(nop(&bytes[..usize::from(len) - 1]), None, "cut off: {bytes:02x?}");
                }
            }
        }
        assert!(n_found > 2000, "{n_found}");
    }

    /// All opcodes with all operands, some prefixes, address forms and numbers.
    #[test]
    fn the_quick_way_tells_what_the_tables_tell() {
        let mut of = EffectsOf::new();
        let mut n_checked = 0;
        let mut turn = 0usize;
        for prefix in [0, 0x66, 0xf3] {
            for rex in [0, 0x40, 0x41, 0x42, 0x44, 0x45, 0x48, 0x4b, 0x4d, 0x4f] {
                for (escape, opcode) in (0..=1).flat_map(|e| (0..=0xffu8).map(move |o| (e == 1, o))) {
                    for modrm in 0..=0xffu8 {
                        turn += 1;
                        let sib = [0x24, 0x05, 0x25, 0x65, 0xe5, 0x00, 0x98, 0xd2][turn % 8];
                        let mut bytes = Vec::new();
                        bytes.extend([prefix, rex].iter().filter(|&&b| b != 0));
                        bytes.extend(escape.then_some(0x0f));
                        bytes.extend([opcode, modrm, sib]);
                        let number = [[0, 0, 0, 0], [1, 2, 3, 4], [0x21, 0xff, 0x7f, 0xfe], [0x1f, 1, 0, 0]];
                        bytes.extend(number[turn / 8 % 4].iter().cycle().take(16));
                        let bytes: &[u8; 16] = bytes.first_chunk().expect("there are more");
                        n_checked += usize::from(check(bytes, &mut of));
                    }
                }
            }
        }
        assert!(n_checked > 300_000, "{n_checked}");
    }
}
