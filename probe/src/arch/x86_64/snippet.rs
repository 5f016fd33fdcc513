//! Code that looks at a running program at one place and keeps what it sees: written so that the program
//! cannot tell.
//!
//! Registers that are dead are used first; others are kept on the stack, beyond the red zone. Flags that are
//! live go through `lahf` and `seto`, never through `pushf`. What is kept lies in the thread's own memory, at
//! `gs`.
//!
//! ```text
//! lea -128(%rsp),%rsp; push …      only if something must be kept
//! mov …,%v                         the value
//! lahf; seto %al; push %rax        only if flags are live and would change
//! mov $1,%t; xadd %t,%gs:CURSOR    what is done with it
//! pop %rax; add $127,%al; sahf; pop …; lea 128(%rsp),%rsp
//! ```
//!
//! Invariant: what is live has the same value behind the code as before it; vector registers are never
//! touched.
//!
//! Source: Intel SDM vol. 2A, LAHF and SETcc; vol. 2B, SAHF: OF comes back through the overflow of `add`.

mod event;
mod indirect_call;
mod record;
mod tail_call;

pub use event::event;
pub use indirect_call::{calls_descriptor, indirect_call, takes_descriptor};
pub use record::{Field, LONGEST_RECORD, record, record_len};
pub use tail_call::{Leads, tail_call};

use super::emit::Stack;
use iced_x86::{
    Code, Encoder, IcedError, Instruction, InstructionInfoFactory, MemoryOperand, Mnemonic, OpAccess, OpKind,
    Register,
};
use program::Va;
use program::arch::{Insn, Reg, RegSet, abi};

/// What can be seen at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A general register.
    Register(Reg),
    /// What the instruction's memory operand holds before it runs, zero-extended; its low 8 bytes if it is
    /// longer.
    Memory,
    /// The address of that operand.
    Address,
    /// The flags CF PF AF ZF SF OF, each at its bit of RFLAGS.
    Flags,
    /// The time stamp counter.
    Time,
}

/// What is done with a value. Words are 8 bytes of the thread's own memory, from word 0 of the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sink {
    /// Word 0 is the last one.
    Last,
    /// Word 0 says how many there were, those behind it are the last ones: as many as this, a power of two.
    Ring(u32),
    /// Word n says how many had n bits: 0, 1, 2–3, 4–7, …
    Histogram,
    /// A routine is called: the value in rdi, where word 0 is, to be used with `gs`, in rsi.
    Call,
}

/// Words that [`Sink::Histogram`] needs.
pub const HISTOGRAM_WORDS: u32 = 65;

/// What four bytes of a snippet lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnippetTarget {
    /// This word of the probe.
    Word(u32),
    /// An address of the module.
    At(Va),
    /// The routine.
    Routine,
    /// The word that names the owner of the counters.
    Owner,
    /// Where the moved code starts.
    Text,
    /// Where it ends.
    TextEnd,
    /// What the jump leads to that is made a call.
    Callee,
}

/// Code with places to be filled in.
#[derive(Clone, Default, Debug)]
pub struct Snippet {
    /// The code.
    pub bytes: Vec<u8>,
    /// Offset of four bytes that hold a distance, offset of the instruction's end, from where it counts, and
    /// where it leads.
    pub places: Vec<(usize, usize, SnippetTarget)>,
    /// Where the stack pointer moves: offset of the next instruction, and where the stack is from there on.
    pub stack: Vec<(usize, Stack)>,
}

/// Why a value cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoValue {
    /// There is no such register, or it is no general one.
    #[error("only general registers can be kept")]
    NotGeneral,
    /// The instruction reads or writes no memory that could be read before it.
    #[error("the instruction has no memory operand that can be read")]
    NoMemory,
    /// There is no such vector register that could be kept.
    #[error("there is no such vector register: the first 16, of 4, 8, 16 or, with AVX, 32 bytes")]
    NoSuchVector,
    /// There is too much for one record.
    #[error("it is more than {LONGEST_RECORD} bytes at one place")]
    TooLong,
    /// All registers are read.
    #[error("it reads so many registers that none is left to work with: ask for them in two")]
    TooMany,
    /// What a jump out of the function leads to may read flags.
    #[error("what the jump leads to may read flags: it cannot be made a call")]
    FlagsAreRead,
    /// A jump out of the function cannot be made a call.
    #[error(
        "a jump out of the function cannot be made a call: it may have arguments in memory, or come back twice"
    )]
    StaysJump,
    /// The code could not be written.
    #[error("the code cannot be written")]
    Unwritable,
}

impl From<IcedError> for NoValue {
    fn from(_: IcedError) -> NoValue {
        NoValue::Unwritable
    }
}

/// The general register called `name`, `rax` to `r15`.
pub fn general_register(name: &str) -> Option<Reg> {
    (0..16).map(Reg::general).find(|reg| reg.to_string() == name)
}

const RAX: Reg = Reg::general(0);
const RDX: Reg = Reg::general(2);
const RSP: Reg = Reg::general(4);
const R12: Reg = Reg::general(12);
const RSI: Reg = Reg::general(6);
const RDI: Reg = Reg::general(7);

const WIDE: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
/// `jne` and `jmp` over 8 bits, their offset zero.
const JUMP_IF_NOT: [u8; 2] = [0x75, 0];
const JUMP: [u8; 2] = [0xeb, 0];
/// Where snippets are written, so that distances can be encoded before they are known.
const SOMEWHERE: u64 = 0x1000_0000;

fn wide(reg: Reg) -> Register {
    WIDE[usize::from(reg.number())]
}

fn narrow(reg: Reg) -> Register {
    Register::EAX + u32::from(reg.number())
}

/// The memory operand of an instruction that can be read before it.
struct Operand {
    memory: MemoryOperand,
    at: Option<Va>,
    size: usize,
    regs: RegSet,
}

fn operand(insn: Option<&Insn>, is_read: bool) -> Result<Operand, NoValue> {
    let i = insn.ok_or(NoValue::NoMemory)?.iced();
    let n = (0..i.op_count()).find(|&n| i.op_kind(n) == OpKind::Memory).ok_or(NoValue::NoMemory)?;
    let (base, index) = (i.memory_base(), i.memory_index());
    let is_general = |r: Register| r == Register::None || r.is_gpr64();
    let at = i.is_ip_rel_memory_operand().then(|| Va(i.ip_rel_memory_address()));
    if at.is_none() && !(is_general(base) && is_general(index)) || base == Register::EIP {
        return Err(NoValue::NoMemory);
    }
    let mut factory = InstructionInfoFactory::new();
    let size = i.memory_size().size();
    let access = factory.info(i).op_access(n);
    let touched = matches!(access, OpAccess::Read | OpAccess::Write | OpAccess::ReadWrite);
    // Masked accesses and bit strings reach less or more than the operand says; `pop` computes its address
    // behind the pop.
    let is_plain = !i.has_op_mask()
        && !matches!(
            i.mnemonic(),
            Mnemonic::Bt
                | Mnemonic::Btc
                | Mnemonic::Btr
                | Mnemonic::Bts
                | Mnemonic::Pop
                | Mnemonic::Vmaskmovps
                | Mnemonic::Vmaskmovpd
                | Mnemonic::Vpmaskmovd
                | Mnemonic::Vpmaskmovq
                | Mnemonic::Maskmovq
                | Mnemonic::Maskmovdqu
                | Mnemonic::Vmaskmovdqu
        );
    if is_read && (size == 0 || !touched || !is_plain) {
        return Err(NoValue::NoMemory);
    }
    // The base of a segment cannot be read without a system call or a word of the thread's.
    if !is_read && matches!(i.segment_prefix(), Register::FS | Register::GS) {
        return Err(NoValue::NoMemory);
    }
    let segment = match i.segment_prefix() {
        s @ (Register::FS | Register::GS) => s,
        _ => Register::None,
    };
    let displacement = if at.is_some() { SOMEWHERE } else { i.memory_displacement64() };
    let memory = MemoryOperand::new(
        base,
        index,
        i.memory_index_scale(),
        displacement.cast_signed(),
        8,
        false,
        segment,
    );
    let mut regs = RegSet::EMPTY;
    let general = |r: &Register| (0..16).map(Reg::general).find(|reg| wide(*reg) == *r);
    [base, index].iter().filter_map(general).for_each(|r| regs.insert(r));
    Ok(Operand { memory, at, size, regs })
}

struct Writer {
    encoder: Encoder,
    out: Vec<u8>,
    places: Vec<(usize, usize, SnippetTarget)>,
    stack: Vec<(usize, Stack)>,
    depth: u32,
}

impl Writer {
    fn new() -> Writer {
        Writer { encoder: Encoder::new(64), out: Vec::new(), places: Vec::new(), stack: Vec::new(), depth: 0 }
    }
    fn put(&mut self, insn: Instruction, place: Option<SnippetTarget>) -> Result<(), NoValue> {
        let from = self.out.len();
        let len = self.encoder.encode(&insn, SOMEWHERE + from as u64)?;
        let offsets = self.encoder.get_constant_offsets();
        self.out.extend(self.encoder.take_buffer());
        if let Some(place) = place {
            let (at, size) = match offsets.has_immediate()
                && matches!(place, SnippetTarget::Routine | SnippetTarget::Callee)
            {
                true => (offsets.immediate_offset(), offsets.immediate_size()),
                false => (offsets.displacement_offset(), offsets.displacement_size()),
            };
            if size != 4 {
                return Err(NoValue::Unwritable);
            }
            let at = from + at;
            self.out.get_mut(at..at + 4).ok_or(NoValue::Unwritable)?.fill(0);
            self.places.push((at, from + len, place));
        }
        Ok(())
    }
    /// From here on, the stack pointer is so much lower.
    fn at_depth(&mut self, depth: u32) {
        self.depth = depth;
        self.stack.push((self.out.len(), Stack::Lower(depth)));
    }
    fn push(&mut self, reg: Reg) -> Result<(), NoValue> {
        self.put(Instruction::with1(Code::Push_r64, wide(reg))?, None)?;
        self.at_depth(self.depth + 8);
        Ok(())
    }
    fn pop(&mut self, reg: Reg) -> Result<(), NoValue> {
        self.put(Instruction::with1(Code::Pop_r64, wide(reg))?, None)?;
        self.at_depth(self.depth - 8);
        Ok(())
    }
    fn mov(&mut self, to: Reg, from: Reg) -> Result<(), NoValue> {
        self.put(Instruction::with2(Code::Mov_r64_rm64, wide(to), wide(from))?, None)
    }
    fn lea(&mut self, to: Reg, base: Reg, distance: i64) -> Result<(), NoValue> {
        let memory = MemoryOperand::with_base_displ(wide(base), distance);
        self.put(Instruction::with2(Code::Lea_r64_m, wide(to), memory)?, None)
    }
    fn word_address(&mut self, to: Reg, word: u32) -> Result<(), NoValue> {
        let memory = MemoryOperand::with_base_displ(Register::RIP, SOMEWHERE.cast_signed());
        self.put(Instruction::with2(Code::Lea_r64_m, wide(to), memory)?, Some(SnippetTarget::Word(word)))
    }
    /// `code` with word 0, and `reg` if there is one.
    fn with_word(&mut self, code: Code, reg: Reg) -> Result<(), NoValue> {
        let memory = word(Register::RIP, Register::None);
        self.put(Instruction::with2(code, memory, wide(reg))?, Some(SnippetTarget::Word(0)))
    }
    /// A jump ahead; where its offset ends.
    fn jump(&mut self, bytes: [u8; 2]) -> usize {
        self.out.extend(bytes);
        self.out.len()
    }

    /// Has the jump whose offset ends at `from` lead here.
    fn land(&mut self, from: usize) -> Result<(), NoValue> {
        let distance = i8::try_from(self.out.len() - from).map_err(|_| NoValue::Unwritable)?;
        let offset = self.out.get_mut(from - 1).ok_or(NoValue::Unwritable)?;
        *offset = distance.cast_unsigned();
        Ok(())
    }
}

fn word(base: Register, index: Register) -> MemoryOperand {
    let is_here = base == Register::RIP;
    let displacement = if is_here { SOMEWHERE.cast_signed() } else { 0 };
    MemoryOperand::new(
        base,
        index,
        if is_here { 1 } else { 8 },
        displacement,
        if is_here { 8 } else { 0 },
        false,
        Register::GS,
    )
}

/// The code that does `sink` with `value`, where `live` must not change; before `insn`, if the place is
/// before one.
///
/// # Errors
/// If there is no such value at this place.
pub fn snippet(value: Value, sink: Sink, live: RegSet, insn: Option<&Insn>) -> Result<Snippet, NoValue> {
    let mut w = Writer::new();
    let memory = match value {
        Value::Memory => Some(operand(insn, true)?),
        Value::Address => Some(operand(insn, false)?),
        Value::Register(reg) if reg.number() >= 16 => return Err(NoValue::NotGeneral),
        _ => None,
    };
    if let (Value::Register(reg), Sink::Last) = (value, sink)
        && reg != RSP
    {
        w.with_word(Code::Mov_rm64_r64, reg)?;
        return Ok(Snippet { bytes: w.out, places: w.places, stack: w.stack });
    }
    let Taken { v, t, u, kept, saves_flags } = Taken::choose(value, sink, live, memory.as_ref())?;
    let steps = !kept.is_empty() || saves_flags || sink == Sink::Call;
    if steps {
        w.lea(RSP, RSP, -128)?;
        w.at_depth(128);
    }
    for &reg in &kept {
        w.push(reg)?;
    }
    let moved_by = if steps { 128 + 8 * kept.len() as i64 } else { 0 };
    w.load(value, memory, v, moved_by)?;
    if saves_flags || value == Value::Flags {
        w.put(Instruction::with(Code::Lahf), None)?;
        w.put(Instruction::with1(Code::Seto_rm8, Register::AL)?, None)?;
        if saves_flags {
            w.push(RAX)?;
        }
    }
    w.compute(value, v, t)?;
    w.store(sink, v, t, u)?;
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

/// Registers that a snippet works with.
struct Taken {
    /// For the value.
    v: Reg,
    /// For what is done with it.
    t: Reg,
    u: Reg,
    /// What must be kept on the stack, in this order.
    kept: Vec<Reg>,
    /// Whether flags must be kept.
    saves_flags: bool,
}

impl Taken {
    /// The dead ones first; never what the value is read from.
    fn choose(value: Value, sink: Sink, live: RegSet, memory: Option<&Operand>) -> Result<Taken, NoValue> {
        let mut reads = memory.map_or(RegSet::EMPTY, |m| m.regs);
        if let Value::Register(reg) = value {
            reads.insert(reg);
        }
        let is_computed = matches!(value, Value::Flags | Value::Time);
        let saves_flags = (is_computed || sink != Sink::Last) && !live.both(abi::FLAGS).is_empty();
        let mut taken = RegSet::EMPTY;
        if saves_flags || is_computed {
            taken.insert(RAX);
        }
        if value == Value::Time {
            taken.insert(RDX);
        }
        let mut take = || {
            let free =
                |reg: &Reg| !taken.contains(*reg) && !reads.contains(*reg) && *reg != RSP && *reg != R12;
            let dead = (0..16).map(Reg::general).filter(free).find(|r| !live.contains(*r));
            let reg = dead.or_else(|| (0..16).map(Reg::general).find(free)).ok_or(NoValue::Unwritable)?;
            taken.insert(reg);
            Ok::<Reg, NoValue>(reg)
        };
        let v = if is_computed { RAX } else { take()? };
        let (t, u) = (take()?, take()?);
        let mut kept: Vec<Reg> = taken.iter().filter(|r| live.contains(*r) || reads.contains(*r)).collect();
        if sink == Sink::Call {
            let lost = abi::CALLER_SAVED.both(live).minus(taken);
            kept.extend(lost.iter().filter(|r| r.number() < 16));
        }
        Ok(Taken { v, t, u, kept, saves_flags })
    }
}

impl Writer {
    /// Loads what is in a register or memory into `v`, the stack pointer being so much lower.
    fn load(&mut self, value: Value, memory: Option<Operand>, v: Reg, moved_by: i64) -> Result<(), NoValue> {
        match (value, memory) {
            (Value::Register(RSP), _) => self.lea(v, RSP, moved_by),
            (Value::Register(reg), _) => self.mov(v, reg),
            (_, Some(mut m)) => {
                if m.memory.base == Register::RSP {
                    m.memory.displacement += moved_by;
                }
                let (code, to) = match (value, m.size) {
                    (Value::Address, _) => (Code::Lea_r64_m, wide(v)),
                    (_, 1) => (Code::Movzx_r32_rm8, narrow(v)),
                    (_, 2) => (Code::Movzx_r32_rm16, narrow(v)),
                    (_, 3..8) => (Code::Mov_r32_rm32, narrow(v)),
                    _ => (Code::Mov_r64_rm64, wide(v)),
                };
                self.put(Instruction::with2(code, to, m.memory)?, m.at.map(SnippetTarget::At))
            }
            _ => Ok(()),
        }
    }

    /// Puts what must be computed into `v`, which is rax; flags are in ax.
    fn compute(&mut self, value: Value, v: Reg, t: Reg) -> Result<(), NoValue> {
        match value {
            Value::Flags => {
                // ah is the low byte of the flags, al is OF.
                self.put(Instruction::with2(Code::Movzx_r32_rm16, narrow(t), Register::AX)?, None)?;
                self.put(Instruction::with2(Code::Shr_rm32_imm8, narrow(t), 8u32)?, None)?;
                self.put(Instruction::with2(Code::And_rm32_imm32, narrow(t), 0xd5u32)?, None)?;
                self.put(Instruction::with2(Code::Movzx_r32_rm8, narrow(v), Register::AL)?, None)?;
                self.put(Instruction::with2(Code::Shl_rm32_imm8, narrow(v), 11u32)?, None)?;
                self.put(Instruction::with2(Code::Or_r32_rm32, narrow(v), narrow(t))?, None)
            }
            Value::Time => {
                self.put(Instruction::with(Code::Rdtsc), None)?;
                self.put(Instruction::with2(Code::Shl_rm64_imm8, wide(RDX), 32u32)?, None)?;
                self.put(Instruction::with2(Code::Or_r64_rm64, wide(RAX), wide(RDX))?, None)
            }
            Value::Register(_) | Value::Memory | Value::Address => Ok(()),
        }
    }

    /// Does `sink` with `v`; `t` and `u` may change.
    fn store(&mut self, sink: Sink, v: Reg, t: Reg, u: Reg) -> Result<(), NoValue> {
        match sink {
            Sink::Last => self.with_word(Code::Mov_rm64_r64, v),
            Sink::Ring(len) => {
                // One instruction takes the place, so that a signal handler takes another one.
                self.put(Instruction::with2(Code::Mov_r32_imm32, narrow(t), 1u32)?, None)?;
                self.with_word(Code::Xadd_rm64_r64, t)?;
                let mask = len.wrapping_sub(1);
                self.put(Instruction::with2(Code::And_rm32_imm32, narrow(t), mask)?, None)?;
                self.word_address(u, 1)?;
                self.put(Instruction::with2(Code::Mov_rm64_r64, word(wide(u), wide(t)), wide(v))?, None)
            }
            Sink::Histogram => {
                self.put(Instruction::with2(Code::Mov_rm64_imm32, wide(u), -1i32)?, None)?;
                self.put(Instruction::with2(Code::Bsr_r64_rm64, wide(t), wide(v))?, None)?;
                self.put(Instruction::with2(Code::Cmove_r64_rm64, wide(t), wide(u))?, None)?;
                self.word_address(u, 1)?;
                self.put(Instruction::with1(Code::Inc_rm64, word(wide(u), wide(t)))?, None)
            }
            Sink::Call => {
                self.mov(RDI, v)?;
                self.word_address(RSI, 0)?;
                self.push(R12)?;
                self.mov(R12, RSP)?;
                self.stack.push((self.out.len(), Stack::HeldInR12(self.depth)));
                self.put(Instruction::with2(Code::And_rm64_imm8, Register::RSP, -16i32)?, None)?;
                let call = Instruction::with_branch(Code::Call_rel32_64, SOMEWHERE)?;
                self.put(call, Some(SnippetTarget::Routine))?;
                self.mov(RSP, R12)?;
                self.at_depth(self.depth);
                self.pop(R12)
            }
        }
    }
}

#[cfg(test)]
mod tests;
