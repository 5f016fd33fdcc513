//! Code that stands in for functions and calls, made by us: tables of results, known results, trials.
//!
//! It is position-independent: code, behind it words that lead elsewhere ([`StandIn::slots`]), and memory of
//! its own that starts as zeros ([`StandIn::data_len`]). What the function itself is, it finds in a slot.
//!
//! Invariant: besides what its function changes, it changes rax, r10, r11 and flags; it reads and writes its
//! own data, its frame, and what is asked for. All threads may run it at once, and signal handlers in the
//! middle of it.
//!
//! Source: Intel SDM vol. 1, 10.2.3 (MXCSR), 11.5 (its flags are sticky); System V ABI, 3.2.

mod constant;
mod memo;
pub mod mxcsr;
#[cfg(test)]
mod tests;
mod trial;

use super::emit::TRAP;
use super::snippet::NoValue;
use crate::bytes::put_uleb;
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};
use program::arch::abi::arguments::{Passing, Piece, Place};
use program::arch::{Reg, RegSet, abi};

pub use constant::{Counts, Known, constant};
pub use memo::{Changes, MOST_ENTRIES, memo};
pub use trial::{Ring, TRIAL, Trial, trial};

/// A value in a register: of a parameter or a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Whether it is in a vector register, whose low bytes it is, or in a general one.
    pub is_vector: bool,
    /// The number of the register.
    pub number: u8,
    /// How many of its bytes are read and kept: 4 or 8.
    pub len: u8,
    /// How many of these say something: those above may be anything.
    pub used: u8,
}

impl Word {
    /// In the general register of this number.
    pub const fn general(number: u8, len: u8) -> Word {
        Word { is_vector: false, number, len, used: len }
    }

    /// In the vector register of this number.
    pub const fn vector(number: u8, len: u8) -> Word {
        Word { is_vector: true, number, len, used: len }
    }

    fn reg(self) -> Reg {
        if self.is_vector { Reg::vector(self.number) } else { Reg::general(self.number) }
    }
}

/// What a function takes and returns, in registers alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    /// What it takes.
    pub arguments: Vec<Word>,
    /// What it returns: two words at most.
    pub results: Vec<Word>,
}

/// Why a function's calls cannot be told apart by their words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoWords {
    /// It takes nothing, or anything.
    #[error("it takes nothing, or as much as its callers like")]
    Nothing,
    /// It takes something in memory.
    #[error("it has arguments in memory")]
    InMemory,
    /// It returns something in memory, or on the stack of the x87.
    #[error("it returns its result in memory or as a long double")]
    Result,
    /// A vector, or a long double.
    #[error("it takes or returns more than 8 bytes in one register")]
    Wide,
}

/// Code that stands in for something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StandIn {
    /// It is entered at the start.
    pub code: Vec<u8>,
    /// How much memory it has, which starts as zeros.
    pub data_len: u64,
    /// What words behind the code lead to, in order: names of what is given a meaning when it is placed.
    pub slots: Vec<&'static str>,
    /// Offset of four bytes that hold a distance, offset of the instruction's end, from where it counts, and
    /// where it leads.
    pub places: Vec<(usize, usize, To)>,
    /// How unwinders find its caller: instructions of DWARF, from the stack pointer of the entry on.
    pub row: Vec<u8>,
    /// What it changes beside what the function changes that it calls.
    pub changes: RegSet,
}

/// Where a distance leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// So far into the data.
    Data(u64),
    /// This slot.
    Slot(usize),
}

/// The slot of the function itself.
pub const ORIGINAL: &str = "ENGRAFT_ORIGINAL";
/// The slot of what is tried in its place.
pub const REPLACEMENT: &str = "ENGRAFT_REPLACEMENT";

impl Words {
    /// Those of a function to which arguments are passed like this.
    ///
    /// # Errors
    /// If they are not all in registers.
    pub fn of(passing: &Passing) -> Result<Words, NoWords> {
        if passing.stack_bytes > 0 {
            return Err(NoWords::InMemory);
        }
        if passing.result_address.is_some() {
            return Err(NoWords::Result);
        }
        let all = |pieces: &mut dyn Iterator<Item = &Piece>| pieces.map(word).collect::<Result<Vec<_>, _>>();
        let arguments = all(&mut passing.parameters.iter().flatten())?;
        let results = all(&mut passing.result.iter())?;
        if results.len() > 2 {
            return Err(NoWords::Result);
        }
        Ok(Words { arguments, results })
    }

    /// The registers of its results.
    fn of_results(&self) -> RegSet {
        let mut set = RegSet::EMPTY;
        self.results.iter().for_each(|word| set.insert(word.reg()));
        set
    }
}

fn word(piece: &Piece) -> Result<Word, NoWords> {
    if piece.len > 8 {
        return Err(NoWords::Wide);
    }
    let len = if piece.len <= 4 { 4 } else { 8 };
    let used = u8::try_from(piece.len).unwrap_or(len);
    match piece.place {
        Place::General(reg) => Ok(Word { used, ..Word::general(reg.number(), len) }),
        Place::Vector(number) => Ok(Word { used, ..Word::vector(number, len) }),
        Place::X87(_) => Err(NoWords::Result),
        Place::Stack(_) | Place::Memory(_) | Place::MemoryFromStack(_) => Err(NoWords::InMemory),
    }
}

/// Control and exception flags of MXCSR.
const FLAGS: i32 = mxcsr::FLAGS.cast_signed();
const CONTROL: i32 = 0xffc0;
/// The bits that say that an exception is not raised.
const MASKS: i32 = 0x1f80;
/// What MXCSR is when a program starts.
const DEFAULT: i32 = mxcsr::DEFAULT.cast_signed();

/// Where distances lead while it is not known how far that is.
const SOMEWHERE: i64 = 0x1000_0000;

/// A place in the code.
#[derive(Clone, Copy)]
struct Label(usize);

/// Code as it is written.
struct Assembler {
    encoder: Encoder,
    out: StandIn,
    /// By label: where it is.
    labels: Vec<Option<usize>>,
    /// Where four bytes are, at whose end distances count from, and where they lead.
    jumps: Vec<(usize, Label)>,
    /// What stands behind the code, 16 bytes each.
    constants: Vec<(Label, [f64; 2])>,
    /// How far the stack pointer is below what it was before the call, and where that was said last.
    height: u32,
    said_at: usize,
}

type Written = Result<(), NoValue>;

impl Assembler {
    fn new(slots: &[&'static str]) -> Assembler {
        let mut changes = abi::FLAGS;
        [0, 10, 11].into_iter().map(Reg::general).for_each(|reg| changes.insert(reg));
        let out = StandIn {
            code: Vec::new(),
            data_len: 0,
            slots: slots.to_vec(),
            places: Vec::new(),
            row: Vec::new(),
            changes,
        };
        let (labels, jumps, constants) = (Vec::new(), Vec::new(), Vec::new());
        Assembler { encoder: Encoder::new(64), out, labels, jumps, constants, height: 8, said_at: 0 }
    }

    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    fn here(&mut self, label: Label) {
        self.labels[label.0] = Some(self.out.code.len());
    }

    fn put(&mut self, insn: Instruction) -> Written {
        self.encoder.encode(&insn, SOMEWHERE.cast_unsigned() + self.out.code.len() as u64)?;
        self.out.code.extend(self.encoder.take_buffer());
        Ok(())
    }

    /// The same, of an instruction whose memory operand is [`nowhere`]: it is there.
    fn put_to(&mut self, insn: Instruction, to: To) -> Written {
        let from = self.out.code.len();
        self.put(insn)?;
        let offsets = self.encoder.get_constant_offsets();
        let at = from + offsets.displacement_offset();
        let place = self.out.code.get_mut(at..at + 4);
        place.filter(|_| offsets.displacement_size() == 4).ok_or(NoValue::Unwritable)?.fill(0);
        self.out.places.push((at, self.out.code.len(), to));
        Ok(())
    }

    /// The same, but it is where the label is. No number stands behind its place.
    fn put_to_label(&mut self, insn: Instruction, to: Label) -> Written {
        self.put(insn)?;
        let is_last = self.encoder.get_constant_offsets().immediate_size() == 0;
        let at = self.out.code.len().checked_sub(4).filter(|_| is_last).ok_or(NoValue::Unwritable)?;
        self.jumps.push((at, to));
        Ok(())
    }

    /// Two numbers that stand behind the code, at a multiple of 16 bytes.
    fn constant(&mut self, numbers: [f64; 2]) -> Label {
        let label = self.label();
        self.constants.push((label, numbers));
        label
    }

    /// A jump, or a conditional one.
    fn jump(&mut self, code: Code, to: Label) -> Written {
        let target = SOMEWHERE.cast_unsigned();
        self.put(Instruction::with_branch(code, target)?)?;
        self.jumps.push((self.out.code.len() - 4, to));
        Ok(())
    }

    /// `to` is what `from` is.
    fn mov(&mut self, to: Register, from: Register) -> Written {
        let code = if to.is_gpr64() { Code::Mov_r64_rm64 } else { Code::Mov_r32_rm32 };
        self.put(Instruction::with2(code, to, from)?)
    }

    /// `to`, of 8 or 4 bytes, is what is in memory.
    fn load(&mut self, to: Register, from: MemoryOperand) -> Written {
        let code = if to.is_gpr64() { Code::Mov_r64_rm64 } else { Code::Mov_r32_rm32 };
        self.put(Instruction::with2(code, to, from)?)
    }

    /// What is in memory is `from`, of 8 or 4 bytes.
    fn store(&mut self, to: MemoryOperand, from: Register) -> Written {
        let code = if from.is_gpr64() { Code::Mov_rm64_r64 } else { Code::Mov_rm32_r32 };
        self.put(Instruction::with2(code, to, from)?)
    }

    /// `to`, a wide one, is the argument, or what is to be of a result; above it zeros.
    fn read(&mut self, to: Register, word: Word) -> Written {
        let n = u32::from(word.number);
        self.put(match (word.is_vector, word.len) {
            (true, 8) => Instruction::with2(Code::Movq_rm64_xmm, to, Register::XMM0 + n)?,
            (true, _) => Instruction::with2(Code::Movd_rm32_xmm, narrow(to), Register::XMM0 + n)?,
            (false, 8) => Instruction::with2(Code::Mov_r64_rm64, to, Register::RAX + n)?,
            (false, _) => Instruction::with2(Code::Mov_r32_rm32, narrow(to), Register::EAX + n)?,
        })
    }

    /// The result is `from`, a wide one.
    fn give(&mut self, word: Word, from: Register) -> Written {
        let n = u32::from(word.number);
        match word.is_vector {
            true => self.put(Instruction::with2(Code::Movq_xmm_rm64, Register::XMM0 + n, from)?),
            false => self.mov(Register::RAX + n, from),
        }
    }

    /// An instruction of a register and a number.
    fn with_number(&mut self, code: Code, reg: Register, number: i32) -> Written {
        self.put(Instruction::with2(code, reg, number)?)
    }

    /// The stack pointer is `n` bytes lower, or, if that is below 0, higher.
    fn lower(&mut self, n: i32) -> Written {
        let memory = MemoryOperand::with_base_displ(Register::RSP, i64::from(-n));
        self.put(Instruction::with2(Code::Lea_r64_m, Register::RSP, memory)?)?;
        self.height = self.height.wrapping_add_signed(n);
        self.say_height();
        Ok(())
    }

    /// Has the row say how far the stack pointer is below what it was.
    fn say_height(&mut self) {
        let [low, high, ..] = (self.out.code.len() - self.said_at).to_le_bytes();
        self.out.row.extend([0x03, low, high]); // DW_CFA_advance_loc2
        self.out.row.push(0x0e); // DW_CFA_def_cfa_offset
        put_uleb(&mut self.out.row, self.height.into());
        self.said_at = self.out.code.len();
    }

    fn finish(mut self) -> Result<StandIn, NoValue> {
        for (label, numbers) in std::mem::take(&mut self.constants) {
            self.out.code.resize(self.out.code.len().next_multiple_of(16), TRAP);
            self.here(label);
            self.out.code.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        for (at, label) in self.jumps {
            let to = self.labels.get(label.0).copied().flatten().ok_or(NoValue::Unwritable)?;
            let distance = i32::try_from(to as i64 - (at as i64 + 4)).map_err(|_| NoValue::Unwritable)?;
            let place = self.out.code.get_mut(at..at + 4).ok_or(NoValue::Unwritable)?;
            place.copy_from_slice(&distance.to_le_bytes());
        }
        Ok(self.out)
    }
}

/// Where `errno` is: so far from where the thread pointer leads.
fn errno_at(distance: i32) -> MemoryOperand {
    let none = Register::None;
    MemoryOperand::new(none, none, 1, distance.into(), 8, false, Register::FS)
}

/// The low half of a general register.
fn narrow(reg: Register) -> Register {
    reg.full_register32()
}

/// Memory whose place is filled in later.
fn nowhere() -> MemoryOperand {
    MemoryOperand::with_base_displ(Register::RIP, SOMEWHERE)
}

/// The word so far from where a register leads.
fn at(base: Register, distance: i32) -> MemoryOperand {
    MemoryOperand::with_base_displ(base, distance.into())
}
