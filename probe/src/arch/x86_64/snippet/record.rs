//! Code that appends a record to the thread's stream of events: a word, and behind it values of any kind.
//!
//! ```text
//!    lea -128(%rsp),%rsp; push …            only if something must be kept
//!    rdtscp                                 a stamp that ends a time
//!    addq $LEN,%gs:NEXT(%rip); …            takes room, as of events: %t is where it ends
//!    mov %rdi,4-LEN(%t); movups %xmm0,…     the values
//!    rdtsc; mov %eax,…; mov %edx,…          a stamp that begins a time; fenced: lfence; rdtsc; lfence
//!    movl $WORD,-LEN(%t)                    in front of them, written last
//!    pop …; lea 128(%rsp),%rsp
//! ```
//! The word is written last: a thread that is killed here leaves a record that starts with zero, behind which
//! nothing is read.
//!
//! Invariant: as of all snippets, but that vector registers are read; nothing is read from memory but what is
//! asked for, which must be there.
//!
//! Source: `rdtsc … rdtscp`: G. Paoloni, "How to Benchmark Code Execution Times on Intel IA-32 and IA-64",
//! Intel 2010, section 3.2.1.

use super::event::Reach;
use super::{NoValue, RAX, RDX, RSP, Snippet, SnippetTarget, Writer, narrow, wide};
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use program::arch::{Reg, RegSet, abi};

/// What is appended behind a record's word. All take whole words of 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Field {
    /// So many low bytes of a general register, 4 or 8: of the stack pointer, what it is around the code.
    General {
        /// The register.
        reg: Reg,
        /// 4 or 8.
        len: u8,
    },
    /// So many low bytes of a vector register.
    Vector {
        /// Its number, below 16.
        number: u8,
        /// 4, 8, 16 or 32.
        len: u8,
        /// Whether the processor has AVX: else, for 32 bytes, there is no such value; and where there is, one
        /// must not mix what it has from before with it.
        is_vex: bool,
    },
    /// A register of the x87 stack, from its top: 10 bytes and two that say nothing. One of its registers
    /// must be free.
    X87(u8),
    /// What is in memory, 4 or 8 bytes, so far from where a register leads. It must be there.
    Memory {
        /// The register.
        base: Reg,
        /// How far from there.
        at: i32,
        /// 4 or 8.
        len: u8,
    },
    /// The same where a register, and another one times a factor, lead.
    Indexed {
        /// The register.
        base: Option<Reg>,
        /// The other one.
        index: Reg,
        /// 1, 2, 4 or 8.
        factor: u8,
        /// How far from there.
        at: i32,
        /// 4 or 8.
        len: u8,
    },
    /// A word of the thread's own memory, by its number among all: 8 bytes.
    Word(u32),
    /// 8 bytes of ones.
    Ones,
    /// The time stamp counter, read behind all else: 8 bytes.
    Begin,
    /// The same, when what comes before has run, and before what comes behind: fenced.
    BeginFenced,
    /// The time stamp counter, read before all else, when what comes before has run: 8 bytes.
    End,
}

impl Field {
    /// Its length in bytes, padding included.
    pub fn len_bytes(self) -> u32 {
        match self {
            Field::General { len, .. }
            | Field::Memory { len, .. }
            | Field::Indexed { len, .. }
            | Field::Vector { len, .. } => u32::from(len),
            Field::X87(_) => 12,
            Field::Word(_) | Field::Ones | Field::Begin | Field::BeginFenced | Field::End => 8,
        }
    }

    /// The general registers that it is read by.
    fn reads(self) -> impl Iterator<Item = Reg> {
        let both = match self {
            Field::General { reg, .. } | Field::Memory { base: reg, .. } => [Some(reg), None],
            Field::Indexed { base, index, .. } => [base, Some(index)],
            _ => [None, None],
        };
        both.into_iter().flatten()
    }
}

/// The longest record in bytes: it must go where events go that are lost, too.
pub const LONGEST_RECORD: u32 = 1024;

/// The length of a record with these fields in bytes, its word included.
pub fn record_len(fields: &[Field]) -> u32 {
    4 + fields.iter().map(|field| field.len_bytes()).sum::<u32>()
}

const RCX: Reg = Reg::general(1);

/// Appends `word`, which is not 0, and behind it `fields`, where `live` must not change. The thread's memory
/// starts with an [`crate::arch::shared::EventsPage`].
///
/// # Errors
/// If a value cannot be had, the record is too long, or reads so many registers that none is left to work
/// with.
pub fn record(word: u32, fields: &[Field], live: RegSet) -> Result<Snippet, NoValue> {
    let mut w = Writer::new();
    w.record(word, fields, live)?;
    Ok(Snippet { bytes: w.out, places: w.places, stack: w.stack })
}

impl Writer {
    /// Writes that code.
    pub(super) fn record(&mut self, word: u32, fields: &[Field], live: RegSet) -> Result<(), NoValue> {
        let len = record_len(fields);
        if len > LONGEST_RECORD {
            return Err(NoValue::TooLong);
        }
        let taken = Taken::choose(fields, live)?;
        let depth = self.depth;
        if taken.steps() {
            self.lea(RSP, RSP, -128)?;
            self.at_depth(depth + 128);
        }
        let mut kept = Vec::new();
        for &reg in &taken.kept {
            self.push(reg)?;
            kept.push((reg, self.depth));
        }
        if taken.saves_flags {
            self.put(Instruction::with(Code::Lahf), None)?;
            self.put(Instruction::with1(Code::Seto_rm8, Register::AL)?, None)?;
            self.push(RAX)?;
        }
        if fields.contains(&Field::End) {
            self.put(Instruction::with(Code::Rdtscp), None)?;
        }
        let done = self.take_room(taken.t, len, taken.steps(), Reach::of(len))?;
        let mut put = Put { w: self, taken: &taken, kept: &kept, depth, at: 4 - i64::from(len) };
        let mut begins = Vec::new();
        for &field in fields {
            match field {
                Field::Begin | Field::BeginFenced => begins.push((put.at, field == Field::BeginFenced)),
                _ => put.field(field)?,
            }
            put.at += i64::from(field.len_bytes());
        }
        for (at, is_fenced) in begins {
            put.at = at;
            for code in [Code::Lfence, Code::Rdtsc, Code::Lfence] {
                if is_fenced || code == Code::Rdtsc {
                    put.w.put(Instruction::with(code), None)?;
                }
            }
            put.stamp()?;
        }
        let place = MemoryOperand::with_base_displ(wide(taken.t), -i64::from(len));
        self.put(Instruction::with2(Code::Mov_rm32_imm32, place, word)?, None)?;
        self.land_at(done)?;
        if taken.saves_flags {
            self.pop(RAX)?;
            self.put(Instruction::with2(Code::Add_AL_imm8, Register::AL, 127u32)?, None)?;
            self.put(Instruction::with(Code::Sahf), None)?;
        }
        for &reg in taken.kept.iter().rev() {
            self.pop(reg)?;
        }
        if taken.steps() {
            self.lea(RSP, RSP, 128)?;
            self.at_depth(depth);
        }
        Ok(())
    }
}

/// Registers that a record is written with.
struct Taken {
    /// Where the record ends.
    t: Reg,
    /// For what goes through a register.
    u: Option<Reg>,
    /// What is kept on the stack, in this order.
    kept: Vec<Reg>,
    /// Whether flags are.
    saves_flags: bool,
}

impl Taken {
    /// The dead ones first; never what a field is read by, but for those that stamps need.
    fn choose(fields: &[Field], live: RegSet) -> Result<Taken, NoValue> {
        let reads = fields.iter().flat_map(|f| f.reads()).fold(RegSet::EMPTY, |mut all, reg| {
            all.insert(reg);
            all
        });
        let saves_flags = !live.both(abi::FLAGS).is_empty();
        let has = |field: Field| fields.contains(&field);
        let mut taken = RegSet::EMPTY;
        let stamps = has(Field::Begin) || has(Field::BeginFenced) || has(Field::End);
        let needed = [(RAX, saves_flags || stamps), (RDX, stamps), (RCX, has(Field::End))];
        needed.iter().filter(|(_, is_needed)| *is_needed).for_each(|(reg, _)| taken.insert(*reg));
        let spoiled = taken;
        let mut take = || {
            let free = |reg: &Reg| !taken.contains(*reg) && !reads.contains(*reg) && *reg != RSP;
            let dead = (0..16).map(Reg::general).filter(free).find(|r| !live.contains(*r));
            let reg = dead.or_else(|| (0..16).map(Reg::general).find(free)).ok_or(NoValue::TooMany)?;
            taken.insert(reg);
            Ok::<Reg, NoValue>(reg)
        };
        let t = take()?;
        let through = |field: &Field| match field {
            Field::Memory { .. } | Field::Indexed { .. } | Field::Word(_) => true,
            Field::General { reg, .. } => *reg == RSP || spoiled.contains(*reg),
            _ => false,
        };
        let u = if fields.iter().any(through) { Some(take()?) } else { None };
        let kept = taken.iter().filter(|r| live.contains(*r) || reads.contains(*r)).collect();
        Ok(Taken { t, u, kept, saves_flags })
    }

    fn steps(&self) -> bool {
        !self.kept.is_empty() || self.saves_flags
    }
}

/// Stores fields.
struct Put<'a> {
    w: &'a mut Writer,
    taken: &'a Taken,
    /// What is on the stack, and how deep.
    kept: &'a [(Reg, u32)],
    /// How deep the stack was before the code.
    depth: u32,
    /// Where the next field goes, from `t`.
    at: i64,
}

impl Put<'_> {
    fn field(&mut self, field: Field) -> Result<(), NoValue> {
        match field {
            Field::General { reg, len } => {
                let from = if reg == RSP || self.slot(reg).is_some() { self.through(reg)? } else { reg };
                self.store(from, len)
            }
            Field::Memory { base, at, len } => {
                let from = if base == RSP {
                    MemoryOperand::with_base_displ(Register::RSP, i64::from(at) + self.lower())
                } else if self.slot(base).is_some() {
                    MemoryOperand::with_base_displ(wide(self.through(base)?), i64::from(at))
                } else {
                    MemoryOperand::with_base_displ(wide(base), i64::from(at))
                };
                self.copy(from, len)
            }
            Field::Indexed { base, index, factor, at, len } => {
                let u = self.u()?;
                self.through(index)?;
                let scaled = MemoryOperand::with_index_scale_displ_size(wide(u), factor.into(), at.into(), 4);
                self.w.put(Instruction::with2(Code::Lea_r64_m, wide(u), scaled)?, None)?;
                let plus =
                    |base, disp| MemoryOperand::with_base_index_scale_displ_size(base, wide(u), 1, disp, 1);
                let (code, from) = match base.map(|base| (base, self.slot(base))) {
                    None => (None, plus(Register::None, 0)),
                    Some((RSP, _)) => (Some(Code::Lea_r64_m), plus(Register::RSP, self.lower())),
                    Some((_, Some(slot))) => {
                        (Some(Code::Add_r64_rm64), MemoryOperand::with_base_displ(Register::RSP, slot))
                    }
                    Some((base, None)) => (Some(Code::Lea_r64_m), plus(wide(base), 0)),
                };
                if let Some(code) = code {
                    self.w.put(Instruction::with2(code, wide(u), from)?, None)?;
                }
                self.copy(MemoryOperand::with_base(wide(u)), len)
            }
            Field::Word(n) => {
                let u = self.u()?;
                let word = super::word(Register::RIP, Register::None);
                let load = Instruction::with2(Code::Mov_r64_rm64, wide(u), word)?;
                self.w.put(load, Some(SnippetTarget::Word(n)))?;
                self.store(u, 8)
            }
            Field::Vector { number, len, is_vex } => self.vector(number, len, is_vex),
            Field::X87(n) => {
                let st = Register::ST0 + u32::from(n);
                self.w.put(Instruction::with1(Code::Fld_sti, st)?, None)?;
                self.w.put(Instruction::with1(Code::Fstp_m80fp, self.place())?, None)
            }
            Field::Ones => self.w.put(Instruction::with2(Code::Mov_rm64_imm32, self.place(), -1i32)?, None),
            Field::End => self.stamp(),
            Field::Begin | Field::BeginFenced => Ok(()),
        }
    }

    /// Stores so many bytes that are in memory.
    fn copy(&mut self, from: MemoryOperand, len: u8) -> Result<(), NoValue> {
        let u = self.u()?;
        let (code, to) = match len {
            4 => (Code::Mov_r32_rm32, narrow(u)),
            8 => (Code::Mov_r64_rm64, wide(u)),
            _ => return Err(NoValue::Unwritable),
        };
        self.w.put(Instruction::with2(code, to, from)?, None)?;
        self.store(u, len)
    }

    fn vector(&mut self, number: u8, len: u8, is_vex: bool) -> Result<(), NoValue> {
        let reg = match (number, len) {
            (0..16, 32) => Register::YMM0 + u32::from(number),
            (0..16, _) => Register::XMM0 + u32::from(number),
            _ => return Err(NoValue::NoSuchVector),
        };
        let code = match (len, is_vex) {
            (4, true) => Code::VEX_Vmovd_rm32_xmm,
            (8, true) => Code::VEX_Vmovq_xmmm64_xmm,
            (16, true) => Code::VEX_Vmovups_xmmm128_xmm,
            (32, true) => Code::VEX_Vmovups_ymmm256_ymm,
            (4, false) => Code::Movd_rm32_xmm,
            (8, false) => Code::Movq_xmmm64_xmm,
            (16, false) => Code::Movups_xmmm128_xmm,
            _ => return Err(NoValue::NoSuchVector),
        };
        self.w.put(Instruction::with2(code, self.place(), reg)?, None)
    }

    /// Stores a stamp, which is in edx and eax.
    fn stamp(&mut self) -> Result<(), NoValue> {
        self.store(RAX, 4)?;
        self.at += 4;
        self.store(RDX, 4)?;
        self.at -= 4;
        Ok(())
    }

    fn store(&mut self, from: Reg, len: u8) -> Result<(), NoValue> {
        let (code, from) = match len {
            4 => (Code::Mov_rm32_r32, narrow(from)),
            8 => (Code::Mov_rm64_r64, wide(from)),
            _ => return Err(NoValue::Unwritable),
        };
        self.w.put(Instruction::with2(code, self.place(), from)?, None)
    }

    fn place(&self) -> MemoryOperand {
        MemoryOperand::with_base_displ(wide(self.taken.t), self.at)
    }

    fn u(&self) -> Result<Reg, NoValue> {
        self.taken.u.ok_or(NoValue::Unwritable)
    }

    /// How much lower the stack pointer is than around the code.
    fn lower(&self) -> i64 {
        i64::from(self.w.depth - self.depth)
    }

    /// How far above the stack pointer it is kept what the register held.
    fn slot(&self, reg: Reg) -> Option<i64> {
        let (_, depth) = self.kept.iter().find(|(kept, _)| *kept == reg)?;
        Some(i64::from(self.w.depth - depth))
    }

    /// Has what the register held in `u`.
    fn through(&mut self, reg: Reg) -> Result<Reg, NoValue> {
        let u = self.u()?;
        match self.slot(reg) {
            _ if reg == RSP => self.w.lea(u, RSP, self.lower())?,
            Some(slot) => {
                let from = MemoryOperand::with_base_displ(Register::RSP, slot);
                self.w.put(Instruction::with2(Code::Mov_r64_rm64, wide(u), from)?, None)?;
            }
            None => self.w.mov(u, reg)?,
        }
        Ok(u)
    }
}
