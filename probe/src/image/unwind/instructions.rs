//! The instructions of a row, with the distances of moved code.
//!
//! Source: DWARF 5, 6.4.2 and 7.24.

use super::entries::{Common, Row};
use crate::arch::emit::Stack;
use crate::bytes::{Reader, put_uleb};
use crate::layout::place::Placed;
use program::Va;
use std::iter::Peekable;
use std::ops::Range;
use std::slice::Iter;

/// The rule for the canonical frame address, as far as it is a register and a distance.
#[derive(Clone, Copy)]
struct Frame {
    register: u64,
    distance: u64,
}

/// Follows what instructions say of the canonical frame address.
struct Frames {
    now: Option<Frame>,
    kept: Vec<Option<Frame>>,
}

const STACK_POINTER: u64 = program::arch::DWARF_STACK_POINTER as u64;
/// `DW_CFA_nop`, which fills rows up.
const NOP: u8 = 0;
/// r12 in DWARF's numbers.
const HOLDER: u64 = 12;

impl Frames {
    /// After `instruction`, one whole instruction.
    fn follow(&mut self, instruction: &[u8]) -> Option<()> {
        let mut r = Reader::new(instruction, Va(0), 1);
        match *instruction.first()? {
            0x0c => self.now = Some(Frame { register: r.uleb()?, distance: r.uleb()? }),
            0x0d => {
                let register = r.uleb()?;
                self.now = self.now.map(|now| Frame { register, ..now });
            }
            0x0e => {
                let distance = r.uleb()?;
                self.now = self.now.map(|now| Frame { distance, ..now });
            }
            0x0f | 0x12 | 0x13 => self.now = None,
            0x0a => self.kept.push(self.now),
            0x0b => self.now = self.kept.pop().flatten(),
            _ => {}
        }
        Some(())
    }
}

/// Appends a step of so many bytes.
fn advance(out: &mut Vec<u8>, by: u32) {
    match by {
        0 => {}
        1..=0x3f => out.push(0x40 | u8::try_from(by).expect("it is in the range")),
        0x40..=0xff => out.extend([0x02, u8::try_from(by).expect("it is in the range")]),
        0x100..=0xffff => {
            out.push(0x03);
            out.extend(u16::try_from(by).expect("it is in the range").to_le_bytes());
        }
        _ => {
            out.push(0x04);
            out.extend(by.to_le_bytes());
        }
    }
}

/// The moves of the stack pointer by code of ours, up to `to`: where the frame is found by it, the distance
/// changes.
fn move_frame(
    out: &mut Vec<u8>,
    frames: &Frames,
    moves: &mut Peekable<Iter<'_, (u32, Stack)>>,
    at: Va,
    new: &mut Va,
    to: Va,
) -> Option<()> {
    while let Some(&(offset, stack)) = moves.next_if(|m| at.plus(u64::from(m.0)) < to) {
        let here = at.plus(u64::from(offset));
        let Some(frame) = frames.now.filter(|f| f.register == STACK_POINTER) else { continue };
        if here.0 < new.0 {
            continue;
        }
        advance(out, u32::try_from(here.since(*new)).ok()?);
        *new = here;
        let (register, depth) = match stack {
            Stack::Lower(depth) | Stack::Call(depth) => (STACK_POINTER, depth),
            Stack::HeldInR12(depth) => (HOLDER, depth),
        };
        out.push(0x0c); // def_cfa
        put_uleb(out, register);
        put_uleb(out, frame.distance + u64::from(depth));
    }
    Some(())
}

/// The row's instructions with the distances of the moved code; `None` if they hold one we do not know.
pub fn translate(row: &Row, common: &Common, covered: &Range<Va>, placed: &Placed<'_>) -> Option<Vec<u8>> {
    let mut frames = Frames { now: None, kept: Vec::new() };
    let mut r = Reader::new(&common.instructions, Va(0), 0);
    while r.position() < common.instructions.len() {
        let from = r.position();
        if instruction(&mut r)?.is_some() {
            return None;
        }
        frames.follow(common.instructions.get(from..r.position())?)?;
    }
    let mut moves = placed.piece.stack.iter().peekable();
    let mut out = Vec::with_capacity(row.instructions.len() + 8);
    let mut r = Reader::new(&row.instructions, Va(0), 0);
    let mut old = row.range.start;
    let mut new = placed.map(covered.start);
    let mut owed = false;
    while r.position() < row.instructions.len() {
        let from = r.position();
        if row.instructions.get(from) == Some(&NOP) {
            r.byte()?;
            continue;
        }
        match instruction(&mut r)? {
            Some(n) => {
                old = old.plus(n.checked_mul(common.code_align)?);
                owed = true;
            }
            None => {
                if owed && old > covered.start {
                    let to = placed.map(old.min(covered.end));
                    move_frame(&mut out, &frames, &mut moves, placed.at, &mut new, to)?;
                    advance(&mut out, u32::try_from(to.since(new)).ok()?);
                    new = to;
                }
                owed = false;
                if old >= covered.end && covered.end < row.range.end {
                    break;
                }
                let whole = row.instructions.get(from..r.position())?;
                frames.follow(whole)?;
                out.extend(whole);
            }
        }
    }
    let end = placed.map(covered.end);
    move_frame(&mut out, &frames, &mut moves, placed.at, &mut new, end)?;
    Some(out)
}

/// Reads one instruction; how far it advances, if that is what it does; `None` if it is one we do not know.
fn instruction(r: &mut Reader<'_>) -> Option<Option<u64>> {
    let op = r.byte()?;
    let advance = match op {
        NOP => None,
        0x40..=0x7f => Some(u64::from(op & 0x3f)),
        0x02 => Some(u64::from(r.byte()?)),
        0x03 => Some(u64::from(u16::from_le_bytes(*r.take(2)?.first_chunk()?))),
        0x04 => Some(u64::from(u32::from_le_bytes(*r.take(4)?.first_chunk()?))),
        // offset, restore; restore_extended, undefined, same_value, def_cfa_register, def_cfa_offset,
        // args_size
        0x80..=0xbf | 0x06 | 0x07 | 0x08 | 0x0d | 0x0e | 0x2e => {
            r.uleb()?;
            None
        }
        0xc0..=0xff | 0x0a | 0x0b => None,
        // offset_extended, register, def_cfa, val_offset, and the signed forms
        0x05 | 0x09 | 0x0c | 0x11 | 0x12 | 0x14 | 0x15 | 0x2f => {
            r.uleb()?;
            r.uleb()?;
            None
        }
        0x13 => {
            r.uleb()?;
            None
        }
        0x0f => {
            let len = usize::try_from(r.uleb()?).ok()?;
            r.take(len)?;
            None
        }
        0x10 | 0x16 => {
            r.uleb()?;
            let len = usize::try_from(r.uleb()?).ok()?;
            r.take(len)?;
            None
        }
        _ => return None,
    };
    Some(advance)
}
