//! Code that calls other code and keeps registers through that which the other may change.
//!
//! Source: Intel SDM vol. 2, PUSH, POP, LEA, MOVUPS, VMOVUPS; DWARF 5, 6.4.2, for the row.

use crate::bytes::put_uleb;
use program::arch::{Reg, RegSet};

/// Such code: one call, at whose end it returns.
pub struct Keeping {
    /// Its bytes.
    pub code: Vec<u8>,
    /// Where the distance stands of what it calls.
    pub call: usize,
    /// How unwinders find its caller: instructions of DWARF, from the stack pointer of the entry on.
    pub row: Vec<u8>,
}

/// So many vector registers can be kept.
const MOST: u8 = 16;

/// Registers that can be kept so: the general ones, and the first sixteen vector registers.
pub fn can_be_kept() -> RegSet {
    let mut all = RegSet::EMPTY;
    (0..16).map(Reg::general).for_each(|reg| all.insert(reg));
    (0..MOST).flat_map(|n| [Reg::vector(n), Reg::upper(n)]).for_each(|reg| all.insert(reg));
    all
}

/// Code that calls something, and has `registers` as they were then.
pub fn keeping(registers: RegSet) -> Keeping {
    let mut out = Keeping { code: Vec::new(), call: 0, row: Vec::new() };
    let general: Vec<u8> = (0..16).filter(|n| registers.contains(Reg::general(*n))).collect();
    let vectors = (0..MOST).filter_map(|n| {
        let is_wide = registers.contains(Reg::upper(n));
        (is_wide || registers.contains(Reg::vector(n))).then_some((n, is_wide))
    });
    let vectors: Vec<(u8, bool)> = vectors.collect();
    let mut at = 0;
    let places: Vec<(u8, bool, u32)> = vectors
        .into_iter()
        .map(|(n, is_wide)| {
            let place = at;
            at += if is_wide { 32 } else { 16 };
            (n, is_wide, place)
        })
        .collect();
    // At a call, the stack pointer is a multiple of sixteen; at the entry, eight more.
    let pushed = 8 * u32::try_from(general.len()).unwrap_or(0);
    let room = at + (8 + pushed + at) % 16;
    let mut height = 8;
    for n in &general {
        push(&mut out.code, 0x50, *n);
        height += 8;
        out.moved(if *n < 8 { 1 } else { 2 }, height);
    }
    if room > 0 {
        lea(&mut out.code, -i64::from(room));
        height += room;
        out.moved(8, height);
    }
    for (n, is_wide, place) in &places {
        vector(&mut out.code, 0x11, *n, *is_wide, *place);
    }
    out.code.push(0xe8);
    out.call = out.code.len();
    out.code.extend([0; 4]);
    for (n, is_wide, place) in &places {
        vector(&mut out.code, 0x10, *n, *is_wide, *place);
    }
    let since = out.code.len();
    if room > 0 {
        lea(&mut out.code, i64::from(room));
        height -= room;
    }
    let from = if room > 0 { 8 } else { 0 };
    let before: usize = general.iter().map(|n| if *n < 8 { 1 } else { 2 }).sum::<usize>() + from;
    if room > 0 {
        out.moved(since - before + 8, height);
    }
    for (k, n) in general.iter().rev().enumerate() {
        push(&mut out.code, 0x58, *n);
        height -= 8;
        let own = if *n < 8 { 1 } else { 2 };
        let first = if k == 0 && room == 0 { since - before } else { 0 };
        out.moved(first + own, height);
    }
    out.code.push(0xc3);
    out
}

impl Keeping {
    /// So many bytes of code further, the frame is so high.
    fn moved(&mut self, n_bytes: usize, height: u32) {
        let [low, high, ..] = n_bytes.to_le_bytes();
        self.row.extend([0x03, low, high]); // DW_CFA_advance_loc2
        self.row.push(0x0e); // DW_CFA_def_cfa_offset
        put_uleb(&mut self.row, height.into());
    }
}

/// `push` or `pop` of a general register.
fn push(code: &mut Vec<u8>, opcode: u8, n: u8) {
    if n >= 8 {
        code.push(0x41);
    }
    code.push(opcode + n % 8);
}

/// `lea N(%rsp),%rsp`: no flag changes.
fn lea(code: &mut Vec<u8>, n: i64) {
    code.extend([0x48, 0x8d, 0xa4, 0x24]);
    let [a, b, c, d, ..] = n.to_le_bytes();
    code.extend([a, b, c, d]);
}

/// A vector register to or from its place on the stack.
fn vector(code: &mut Vec<u8>, opcode: u8, n: u8, is_wide: bool, place: u32) {
    match (is_wide, n >= 8) {
        (true, false) => code.extend([0xc5, 0xfc]),
        (true, true) => code.extend([0xc5, 0x7c]),
        (false, false) => code.push(0x0f),
        (false, true) => code.extend([0x44, 0x0f]),
    }
    code.extend([opcode, 0x84 | ((n % 8) << 3), 0x24]);
    code.extend(place.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::listing;
    use expect_test::{Expect, expect};
    use program::Va;

    fn check(registers: &[Reg], want: &Expect) {
        let mut set = RegSet::EMPTY;
        registers.iter().for_each(|reg| set.insert(*reg));
        let made = keeping(set);
        assert_eq!(made.code.get(made.call - 1), Some(&0xe8));
        want.assert_eq(&listing(&made.code, Va(0x1000), |_, _| String::new()));
        // What the row says of the stack, against what the instructions do to it.
        let (mut at, mut height, mut said) = (0, 8i64, vec![(0, 8i64)]);
        let mut row = &made.row[..];
        while let [0x03, low, high, 0x0e, rest @ ..] = row {
            at += usize::from(u16::from_le_bytes([*low, *high]));
            let (value, n) = match rest {
                [low, high, ..] if low & 0x80 != 0 => (i64::from(low & 0x7f) | i64::from(*high) << 7, 2),
                [low, ..] => (i64::from(*low), 1),
                [] => panic!("cut off"),
            };
            said.push((at, value));
            row = &rest[n..];
        }
        assert!(row.is_empty());
        let text = listing(&made.code, Va(0x1000), |_, _| String::new());
        let mut done = vec![(0, 8i64)];
        let mut offsets: Vec<usize> = text
            .lines()
            .map(|line| {
                usize::from_str_radix(line.split(':').next().expect("an offset"), 16).expect("a number")
            })
            .collect();
        offsets.push(made.code.len());
        for (line, next) in text.lines().zip(offsets.into_iter().skip(1)) {
            let insn = line.split_once(": ").expect("an instruction").1;
            let before = height;
            match insn.split([' ', ',']).next() {
                Some("push") => height += 8,
                Some("pop") => height -= 8,
                Some("lea") => {
                    let n = insn
                        .split_once(' ')
                        .and_then(|(_, rest)| rest.split_once('('))
                        .expect("a distance")
                        .0;
                    let (sign, digits) = n.strip_prefix('-').map_or((1, n), |digits| (-1, digits));
                    let n = i64::from_str_radix(digits.trim_start_matches("0x"), 16).expect("a number");
                    height -= sign * n;
                }
                Some("call") => assert_eq!(height % 16, 0, "{text}"),
                _ => {}
            }
            if height != before {
                done.push((next, height));
            }
        }
        assert_eq!(said, done, "{text}");
    }

    #[test]
    fn registers_are_as_they_were_when_it_returns() {
        let [g, v, u] = [Reg::general, Reg::vector, Reg::upper];
        check(
            &[g(1)],
            &expect![[r#"
            00: push %rcx
            01: call 0x1006
            06: pop %rcx
            07: ret
        "#]],
        );
        check(
            &[g(1), g(9)],
            &expect![[r#"
            00: push %rcx
            01: push %r9
            03: lea -0x8(%rsp),%rsp
            0b: call 0x1010
            10: lea 0x8(%rsp),%rsp
            18: pop %r9
            1a: pop %rcx
            1b: ret
        "#]],
        );
        check(
            &[g(2), g(11), v(3), v(12), u(12)],
            &expect![[r#"
            00: push %rdx
            01: push %r11
            03: lea -0x38(%rsp),%rsp
            0b: movups %xmm3,(%rsp)
            13: vmovups %ymm12,0x10(%rsp)
            1c: call 0x1021
            21: movups (%rsp),%xmm3
            29: vmovups 0x10(%rsp),%ymm12
            32: lea 0x38(%rsp),%rsp
            3a: pop %r11
            3c: pop %rdx
            3d: ret
        "#]],
        );
        check(
            &[v(2)],
            &expect![[r#"
            00: lea -0x18(%rsp),%rsp
            08: movups %xmm2,(%rsp)
            10: call 0x1015
            15: movups (%rsp),%xmm2
            1d: lea 0x18(%rsp),%rsp
            25: ret
        "#]],
        );
        assert_eq!(can_be_kept().len(), 48);
    }
}
