//! Code that appends words to the thread's stream of events.
//!
//! ```text
//! 1: addq $LEN,%gs:NEXT(%rip)               takes room: where, an address that all modules of the process
//!                                           share
//!    mov %gs:NEXT(%rip),%t                  where it ends
//!    cmp %t,%gs:LIMIT(%rip); ja 2f
//!    lea -128(%rsp),%rsp; call ROUTINE      no room: hands the chunk over, and waits for another
//!    lea 128(%rsp),%rsp
//!    jnz 1b; jmp 3f                                             flags: zero if nothing is recorded
//! 2: movl $WORD,-LEN(%t)
//! 3:
//! ```
//! One instruction takes the room, so that a signal handler takes room behind it. The next one reads
//! where that is: where a signal comes between the two, the routine of signals does that before the handler
//! appends anything (`.Lengraft_room`, which knows its bytes). Not where the handler is none that is
//! recorded, but calls what is: then an event may be lost, or stand in place of another. `xadd` would do both
//! at once, but waits for memory each time: lua and python3 were slower by a tenth (`BENCHMARKS.md`, row 1 of
//! issue 6).
//!
//! The end is held against LIMIT, so what is stored ends below it; the runtime's own events only start below
//! it.
//!
//! Invariant: as of all snippets.

use super::{JUMP, JUMP_IF_NOT, NoValue, RAX, RSP, SOMEWHERE, Snippet, SnippetTarget, Writer, narrow, wide};
use crate::arch::shared::{EventsPage, word_at};
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use program::arch::{Reg, RegSet, abi};
use std::mem::offset_of;

/// `jb` over 8 bits, its offset zero.
const JUMP_IF_BELOW: [u8; 2] = [0x72, 0];
/// `jmp` over 32 bits, its offset zero.
const JUMP_FAR: [u8; 5] = [0xe9, 0, 0, 0, 0];
/// The word of the thread's memory that says where the next event goes.
const NEXT: u32 = word_at(offset_of!(EventsPage, next));
/// The one that says where there is no room any more.
const LIMIT: u32 = word_at(offset_of!(EventsPage, limit));

/// Appends `word`, and behind it the low half of the stack pointer if `has_frame`, where `live` must not
/// change. The thread's memory starts with an [`EventsPage`].
///
/// # Errors
/// If it cannot be written.
pub fn event(word: u32, has_frame: bool, live: RegSet) -> Result<Snippet, NoValue> {
    let mut w = Writer::new();
    let saves_flags = !live.both(abi::FLAGS).is_empty();
    let mut taken = RegSet::EMPTY;
    if saves_flags {
        taken.insert(RAX);
    }
    let free = |reg: &Reg| !taken.contains(*reg) && *reg != RSP;
    let dead = (0..16).map(Reg::general).filter(free).find(|reg| !live.contains(*reg));
    let t = dead.or_else(|| (0..16).map(Reg::general).find(free)).ok_or(NoValue::Unwritable)?;
    taken.insert(t);
    let kept: Vec<Reg> = taken.iter().filter(|reg| live.contains(*reg)).collect();
    let steps = !kept.is_empty() || saves_flags;
    if steps {
        w.lea(RSP, RSP, -128)?;
        w.at_depth(128);
    }
    for &reg in &kept {
        w.push(reg)?;
    }
    if saves_flags {
        w.put(Instruction::with(Code::Lahf), None)?;
        w.put(Instruction::with1(Code::Seto_rm8, Register::AL)?, None)?;
        w.push(RAX)?;
    }
    let moved_by = i64::from(w.depth);
    let len: u32 = if has_frame { 8 } else { 4 };
    let done = w.take_room(t, len, steps, Reach::Short)?;
    let place = |at: i64| MemoryOperand::with_base_displ(wide(t), at);
    w.put(Instruction::with2(Code::Mov_rm32_imm32, place(-i64::from(len)), word)?, None)?;
    if has_frame {
        if moved_by == 0 {
            w.put(Instruction::with2(Code::Mov_rm32_r32, place(-4), narrow(RSP))?, None)?;
        } else {
            let r = (0..16).map(Reg::general).find(|r| *r != t && *r != RSP).ok_or(NoValue::Unwritable)?;
            w.push(r)?;
            w.lea(r, RSP, moved_by + 8)?;
            w.put(Instruction::with2(Code::Mov_rm32_r32, place(-4), narrow(r))?, None)?;
            w.pop(r)?;
        }
    }
    w.land_at(done)?;
    if saves_flags {
        w.pop(RAX)?;
        w.put(Instruction::with2(Code::Add_AL_imm8, Register::AL, 127u32)?, None)?;
        w.put(Instruction::with(Code::Sahf), None)?;
    }
    for &reg in kept.iter().rev() {
        w.pop(reg)?;
    }
    if steps {
        w.lea(RSP, RSP, 128)?;
        w.at_depth(0);
    }
    Ok(Snippet { bytes: w.out, places: w.places, stack: w.stack })
}

/// How far a jump leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Less than 128 bytes.
    Short,
    /// Anywhere.
    Long,
}

impl Reach {
    /// What leads over code that stores so many bytes: an instruction of at most 8 bytes stores 4 of them.
    pub(super) fn of(len: u32) -> Reach {
        if len <= 24 { Reach::Short } else { Reach::Long }
    }
}

/// The end of a jump's offset, and how long that is.
pub(super) struct Jump {
    end: usize,
    reach: Reach,
}

impl Writer {
    /// Takes room for `len` bytes in the stream of events, of which `t` becomes the end; `steps` says whether
    /// the stack pointer is below the red zone already. What comes next stores what is appended; the jump
    /// that is returned is to lead behind that: there is no room, since nothing is recorded. Flags change.
    pub(super) fn take_room(&mut self, t: Reg, len: u32, steps: bool, reach: Reach) -> Result<Jump, NoValue> {
        let again = self.out.len();
        let next = || super::word(Register::RIP, Register::None);
        let (at_next, at_limit) = (SnippetTarget::Word(NEXT), SnippetTarget::Word(LIMIT));
        let add = if len < 128 { Code::Add_rm64_imm8 } else { Code::Add_rm64_imm32 };
        self.put(Instruction::with2(add, next(), len.cast_signed())?, Some(at_next))?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, wide(t), next())?, Some(at_next))?;
        let limit = super::word(Register::RIP, Register::None);
        self.put(Instruction::with2(Code::Cmp_r64_rm64, wide(t), limit)?, Some(at_limit))?;
        let stores = self.jump(JUMP_IF_BELOW);
        let depth = self.depth;
        if !steps {
            self.lea(RSP, RSP, -128)?;
            self.at_depth(depth + 128);
        }
        self.put(Instruction::with_branch(Code::Call_rel32_64, SOMEWHERE)?, Some(SnippetTarget::Routine))?;
        if !steps {
            self.lea(RSP, RSP, 128)?;
            self.at_depth(depth);
        }
        let back = self.jump(JUMP_IF_NOT);
        let distance = i8::try_from(again as i64 - back as i64).map_err(|_| NoValue::Unwritable)?;
        *self.out.get_mut(back - 1).ok_or(NoValue::Unwritable)? = distance.cast_unsigned();
        let end = match reach {
            Reach::Short => self.jump(JUMP),
            Reach::Long => {
                self.out.extend(JUMP_FAR);
                self.out.len()
            }
        };
        self.land(stores)?;
        Ok(Jump { end, reach })
    }

    /// Has `jump` lead here.
    pub(super) fn land_at(&mut self, jump: Jump) -> Result<(), NoValue> {
        if jump.reach == Reach::Short {
            return self.land(jump.end);
        }
        let distance = u32::try_from(self.out.len() - jump.end).map_err(|_| NoValue::Unwritable)?;
        let offset = self.out.get_mut(jump.end - 4..jump.end).ok_or(NoValue::Unwritable)?;
        offset.copy_from_slice(&distance.to_le_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the routine of signals looks for (`.Lengraft_room`), and the register that it finds there.
    fn found(bytes: &[u8]) -> Option<u32> {
        let word = u32::from_le_bytes(*bytes.first_chunk()?);
        (word & 0xc7ff_fbff == 0x058b_4865).then_some(word >> 27 & 7 | word >> 7 & 8)
    }

    #[test]
    fn the_routine_of_signals_knows_each_form() {
        for (t, has_frame) in
            (0..16).flat_map(|t| [(t, false), (t, true)]).filter(|(t, _)| Reg::general(*t) != RSP)
        {
            let mut live = RegSet::EMPTY;
            (0..16).filter(|n| *n != t).for_each(|n| live.insert(Reg::general(n)));
            let Ok(snippet) = event(7, has_frame, live) else { panic!("{t}") };
            let all: Vec<u32> =
                (0..snippet.bytes.len()).filter_map(|n| found(snippet.bytes.get(n..)?)).collect();
            assert_eq!(all, [u32::from(t)], "{t}");
        }
    }
}
