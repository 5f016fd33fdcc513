//! x86-64: decoding, operands. Registers read and written: `effects`. Iced-x86 is known in folders `arch`
//! alone.
//!
//! Source: Intel SDM vol. 2 for encodings; System V ABI, AMD64 supplement, 3.2.1 for register classes.

pub mod abi;
mod effects;
mod memory;
mod mix;
mod position;
mod quick;
mod step;

pub use effects::{Effects, EffectsOf};
pub use memory::MemoryUse;
pub use position::{Branch, PositionDependence};
pub use quick::{Quick, Sum};
pub use step::{DWARF_FRAME_POINTER, DWARF_STACK_POINTER, StackMove, Step, Test};

use crate::addr::Va;
use iced_x86::{
    Code, ConditionCode, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, Mnemonic, OpKind,
    Register, RflagsBits,
};
use std::fmt;

/// The byte in front of an instruction that makes it atomic. Code that knows of no second thread may jump
/// over it.
pub const LOCK: u8 = 0xf0;

/// Where control goes after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlFlow {
    /// The next instruction.
    Next,
    /// The target, always.
    Jump(Va),
    /// The target or the next instruction. `xbegin` and `loop` are branches too.
    Branch(Va),
    /// Where a register or a memory operand says.
    JumpIndirect,
    /// The target, and back if it returns.
    Call(Va),
    /// Where a register or a memory operand says, and back if it returns.
    CallIndirect,
    /// Where the stack says.
    Return,
    /// Nowhere: `ud2`, `hlt`, `int3`.
    Stop,
    /// These bytes are no instruction.
    Invalid,
}

impl ControlFlow {
    /// Whether a basic block ends here. A call does not end one, by the rule that numbers blocks.
    pub fn ends_block(self) -> bool {
        !matches!(self, ControlFlow::Next | ControlFlow::Call(_) | ControlFlow::CallIndirect)
    }
    /// Whether the next instruction can run after this one, calls taken to return.
    pub fn falls_through(self) -> bool {
        matches!(
            self,
            ControlFlow::Next | ControlFlow::Branch(_) | ControlFlow::Call(_) | ControlFlow::CallIndirect
        )
    }
    /// The address written in the instruction, if it transfers control to one.
    pub fn target(self) -> Option<Va> {
        match self {
            ControlFlow::Jump(to) | ControlFlow::Branch(to) | ControlFlow::Call(to) => Some(to),
            _ => None,
        }
    }
}

/// A register by its full-width name; prints as `rax`, `xmm3`, `k1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(u8);

/// What the ABI lets a compiler do with a register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RegClass {
    /// General, lost at calls: rax rcx rdx rsi rdi r8–r11.
    CallerSaved,
    /// General, kept at calls: rbx rbp r12–r15.
    CalleeSaved,
    /// rsp, rip, segment and control registers: never allocated.
    Special,
    /// xmm, ymm, zmm: one class whatever the width.
    Vector,
    /// k0–k7.
    Mask,
    /// x87 and MMX.
    X87,
}

impl Reg {
    const VECTOR_BASE: u8 = 16;
    const FLAG_BASE: u8 = 64;
    /// What lies above the low 128 bits of a vector register counts as a register of its own.
    const UPPER_BASE: u8 = 88;

    fn of(register: Register) -> Option<Reg> {
        let full = register.full_register();
        let number = u8::try_from(full.number()).expect("register numbers are below 32");
        Some(Reg(if full.is_gpr() {
            number
        } else if full.is_vector_register() {
            16 + number
        } else if full.is_k() {
            48 + number
        } else if full.is_st() || full.is_mm() {
            56 + number
        } else if full.is_segment_register() {
            80 + number
        } else if full.is_ip() {
            86
        } else if full == Register::None {
            return None;
        } else {
            87
        }))
    }

    /// The general register of this number, 0 to 15, as instructions have it.
    ///
    /// # Panics
    /// If there is no such register.
    pub const fn general(number: u8) -> Reg {
        assert!(number < 16);
        Reg(number)
    }

    /// Vector register `number`, 0 to 31: its low 16 bytes.
    pub const fn vector(number: u8) -> Reg {
        assert!(number < 32);
        Reg(Reg::VECTOR_BASE + number)
    }

    /// What vector register `number` has above its low 16 bytes.
    pub const fn upper(number: u8) -> Reg {
        assert!(number < 32);
        Reg(Reg::UPPER_BASE + number)
    }

    /// The register's class.
    pub fn class(self) -> RegClass {
        match self.0 {
            0 | 1 | 2 | 6..=11 => RegClass::CallerSaved,
            3 | 5 | 12..=15 => RegClass::CalleeSaved,
            16..=47 | 88..=119 => RegClass::Vector,
            48..=55 => RegClass::Mask,
            56..=63 => RegClass::X87,
            _ => RegClass::Special,
        }
    }

    /// A small number that no other register has.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GENERAL: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
            "r14", "r15",
        ];
        const FLAGS: [&str; 7] = ["cf", "pf", "af", "zf", "sf", "of", "df"];
        const SEGMENTS: [&str; 6] = ["es", "cs", "ss", "ds", "fs", "gs"];
        match self.0 {
            n @ 0..=15 => f.write_str(GENERAL[usize::from(n)]),
            n @ 16..=47 => write!(f, "xmm{}", n - 16),
            n @ 48..=55 => write!(f, "k{}", n - 48),
            n @ 56..=63 => write!(f, "st{}", n - 56),
            n @ 64..=70 => f.write_str(FLAGS[usize::from(n - 64)]),
            n @ 80..=85 => f.write_str(SEGMENTS[usize::from(n - 80)]),
            86 => f.write_str("rip"),
            n @ 88..=119 => write!(f, "ymm{}_upper", n - 88),
            _ => f.write_str("control"),
        }
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of registers and single flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegSet(u128);

impl RegSet {
    /// No register.
    pub const EMPTY: RegSet = RegSet(0);

    /// Adds `reg`.
    pub fn insert(&mut self, reg: Reg) {
        self.0 |= 1 << reg.0;
    }
    /// Whether `reg` is in it.
    pub fn contains(self, reg: Reg) -> bool {
        self.0 >> reg.0 & 1 == 1
    }
    /// Adds all of `other`.
    pub fn add(&mut self, other: RegSet) {
        self.0 |= other.0;
    }
    /// The registers in both.
    pub fn both(self, other: RegSet) -> RegSet {
        RegSet(self.0 & other.0)
    }
    /// Whether all of `other` is in it.
    pub fn holds(self, other: RegSet) -> bool {
        other.0 & !self.0 == 0
    }
    /// How many registers it holds.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }
    /// The registers in either.
    pub const fn union(self, other: RegSet) -> RegSet {
        RegSet(self.0 | other.0)
    }
    /// The registers that are not in `other`.
    pub const fn minus(self, other: RegSet) -> RegSet {
        RegSet(self.0 & !other.0)
    }
    /// Whether it holds no register.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The members, lowest number first.
    pub fn iter(self) -> impl Iterator<Item = Reg> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let n = u8::try_from(rest.trailing_zeros()).expect("there are 128 bits");
            (rest != 0).then(|| {
                rest &= rest - 1;
                Reg(n)
            })
        })
    }
    /// General registers and flags, as 23 bits: all that most code uses.
    pub(crate) fn narrow(self) -> u32 {
        let flags = u32::from((self.0 >> Reg::FLAG_BASE).to_le_bytes()[0] & 0x7f);
        let [low, high, ..] = self.0.to_le_bytes();
        u32::from(u16::from_le_bytes([low, high])) | flags << 16
    }
    /// What [`Self::narrow`] leaves out.
    pub(crate) const fn wide(self) -> RegSet {
        RegSet(self.0 & !(0xffff | 0x7f << Reg::FLAG_BASE))
    }
    /// The set that [`Self::narrow`] was made of.
    pub(crate) fn from_narrow(bits: u32) -> RegSet {
        RegSet(u128::from(bits & 0xffff) | u128::from(bits >> 16) << Reg::FLAG_BASE)
    }
    /// The flags, as seven bits: carry, parity, adjust, zero, sign, overflow, direction.
    pub(crate) fn flag_bits(self) -> u8 {
        (self.0 >> Reg::FLAG_BASE).to_le_bytes()[0] & 0x7f
    }
    /// The set that [`Self::flag_bits`] was made of.
    pub(crate) fn from_flag_bits(bits: u8) -> RegSet {
        RegSet(u128::from(bits) << Reg::FLAG_BASE)
    }
    /// The flags named by iced's bits.
    fn flags(bits: u32) -> RegSet {
        let known = [
            RflagsBits::CF,
            RflagsBits::PF,
            RflagsBits::AF,
            RflagsBits::ZF,
            RflagsBits::SF,
            RflagsBits::OF,
            RflagsBits::DF,
        ];
        let mut set = 0;
        for (i, flag) in known.into_iter().enumerate() {
            if bits & flag != 0 {
                set |= 1 << (usize::from(Reg::FLAG_BASE) + i);
            }
        }
        RegSet(set)
    }
}

impl fmt::Debug for RegSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// One operand of an instruction, as written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// A register, with the width in bytes at which it is used.
    Reg(Reg, u8),
    /// A number, sign-extended.
    Imm(i64),
    /// A code address: the target of a direct jump or call.
    Target(Va),
    /// Memory at an address known from the instruction alone (`[rip+x]`, or absolute), `size` bytes.
    Place {
        /// The address referred to.
        at: Va,
        /// Access width in bytes; 0 if it has none (`lea`).
        size: u8,
        /// Index register that is added, and its factor (absolute forms only).
        index: Option<(Reg, u8)>,
        /// Base register that is added (absolute forms of non-PIE code only).
        base: Option<Reg>,
    },
    /// Memory relative to registers.
    Mem {
        /// Base register.
        base: Option<Reg>,
        /// Index register and its factor.
        index: Option<(Reg, u8)>,
        /// What is added, in bytes.
        disp: i64,
        /// Access width in bytes; 0 if it has none.
        size: u8,
        /// `fs` or `gs`, if named.
        segment: Option<Reg>,
    },
}

/// One decoded instruction.
#[derive(Clone, Copy)]
pub struct Insn(Instruction);

impl Insn {
    /// As the decoder has it: for folders `arch` alone, which write instructions.
    pub fn iced(&self) -> &Instruction {
        &self.0
    }
    /// The address of its first byte.
    pub fn at(&self) -> Va {
        Va(self.0.ip())
    }
    /// The address after it.
    pub fn end(&self) -> Va {
        Va(self.0.next_ip())
    }
    /// Length in bytes, 1 to 15.
    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }
    /// Where control goes after it.
    pub fn flow(&self) -> ControlFlow {
        let i = &self.0;
        match i.flow_control() {
            // Outside of the kernel it faults, as `ud2` does: what C libraries put where nothing may be
            // reached.
            FlowControl::Next if i.mnemonic() == Mnemonic::Hlt => ControlFlow::Stop,
            FlowControl::Next => ControlFlow::Next,
            FlowControl::UnconditionalBranch => ControlFlow::Jump(Va(i.near_branch_target())),
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => match i.op0_kind() {
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                    ControlFlow::Branch(Va(i.near_branch_target()))
                }
                _ => ControlFlow::Next,
            },
            FlowControl::IndirectBranch => ControlFlow::JumpIndirect,
            FlowControl::Call => match i.op0_kind() {
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                    ControlFlow::Call(Va(i.near_branch_target()))
                }
                _ => ControlFlow::Next, // syscall, vmcall and the like
            },
            FlowControl::IndirectCall => ControlFlow::CallIndirect,
            FlowControl::Return => ControlFlow::Return,
            FlowControl::Interrupt => match i.mnemonic() {
                Mnemonic::Int3 => ControlFlow::Stop,
                _ => ControlFlow::Next,
            },
            FlowControl::Exception => {
                if i.is_invalid() {
                    ControlFlow::Invalid
                } else {
                    ControlFlow::Stop
                }
            }
        }
    }
    /// Whether it only fills space: the `nop`s of all lengths, `xchg %ax,%ax`, `int3`.
    pub fn is_padding(&self) -> bool {
        self.is_nop() || self.0.mnemonic() == Mnemonic::Int3
    }
    /// Whether it does nothing: the `nop`s of all lengths. `endbr64` and `pause` are none.
    pub fn is_nop(&self) -> bool {
        match self.0.code() {
            Code::Nopw | Code::Nopd | Code::Nopq | Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64 => true,
            Code::Xchg_rm16_r16 | Code::Xchg_rm64_r64 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => {
                self.0.op0_kind() == OpKind::Register
                    && self.0.op1_kind() == OpKind::Register
                    && self.0.op0_register() == self.0.op1_register()
            }
            _ => false,
        }
    }
    /// Whether a prefix repeats it: one execution can count many times.
    pub fn is_repeated(&self) -> bool {
        self.0.is_string_instruction() && (self.0.has_rep_prefix() || self.0.has_repne_prefix())
    }
    /// Whether it uses memory by way of `gs`, or reads or sets the base of that.
    pub fn uses_gs(&self) -> bool {
        let i = &self.0;
        let by_gs =
            i.segment_prefix() == Register::GS && !matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Lea);
        let is_memory =
            |n: u32| !matches!(i.op_kind(n), OpKind::Register) && i.op_kind(n) >= OpKind::MemorySegSI;
        by_gs && (0..i.op_count()).any(is_memory)
            || matches!(i.mnemonic(), Mnemonic::Rdgsbase | Mnemonic::Wrgsbase)
    }
    /// Whether it marks a target of indirect jumps and calls (`endbr64`).
    pub fn is_landing_mark(&self) -> bool {
        self.0.code() == Code::Endbr64
    }
    /// A number for the operation with its operand forms: equal for equal encodings' meanings.
    pub fn opcode(&self) -> u16 {
        self.0.code() as u16
    }
    /// A number for the operation alone (`mov`, `add`), whatever its operands.
    pub fn mnemonic(&self) -> u16 {
        self.0.mnemonic() as u16
    }
    /// A number for the operation's family: all conditional branches are one, all conditional moves, all
    /// sets, else the mnemonic.
    pub fn group(&self) -> u16 {
        const BRANCH: u16 = 60_000;
        const SET: u16 = 60_001;
        const CMOV: u16 = 60_002;
        if self.0.condition_code() == ConditionCode::None {
            return self.mnemonic();
        }
        match self.flow() {
            ControlFlow::Branch(_) => BRANCH,
            _ if self.0.op_count() == 1 => SET,
            _ => CMOV,
        }
    }
    /// The condition it depends on (as a branch, a move or a set), 1..=16: odd ones and the following even
    /// ones are each other's negation; 0 if none.
    pub fn condition(&self) -> u8 {
        self.0.condition_code() as u8
    }
    /// The operands, destination first.
    pub fn operands(&self) -> impl Iterator<Item = Operand> + '_ {
        (0..self.0.op_count()).filter_map(|n| self.operand(n))
    }
    /// The same in a file that is at fixed addresses or not: where it is not, only what counts from `rip` is
    /// a place, and a large displacement is the offset of a field.
    pub fn operands_in(&self, fixed: bool) -> impl Iterator<Item = Operand> + '_ {
        let relative = fixed || self.0.is_ip_rel_memory_operand();
        self.operands().map(move |operand| match operand {
            Operand::Place { at, size, index, base } if !relative => {
                Operand::Mem { base, index, disp: at.0.cast_signed(), size, segment: None }
            }
            operand => operand,
        })
    }
    fn operand(&self, n: u32) -> Option<Operand> {
        let i = &self.0;
        Some(match i.op_kind(n) {
            OpKind::Register => {
                let r = i.op_register(n);
                Operand::Reg(Reg::of(r)?, u8::try_from(r.size()).unwrap_or(0))
            }
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                Operand::Target(Va(i.near_branch_target()))
            }
            OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => Operand::Imm(i.immediate(n).cast_signed()),
            OpKind::Memory => self.memory(),
            OpKind::FarBranch16 | OpKind::FarBranch32 => return None,
            _ => Operand::Mem {
                base: None,
                index: None,
                disp: 0,
                size: u8::try_from(i.memory_size().size()).unwrap_or(0),
                segment: None,
            },
        })
    }
    fn memory(&self) -> Operand {
        let i = &self.0;
        let size = match i.mnemonic() {
            Mnemonic::Lea => 0,
            _ => u8::try_from(i.memory_size().size()).unwrap_or(0),
        };
        let index = Reg::of(i.memory_index())
            .map(|r| (r, u8::try_from(i.memory_index_scale()).expect("a scale is at most 8")));
        let segment = match i.segment_prefix() {
            Register::FS | Register::GS => Reg::of(i.segment_prefix()),
            _ => None,
        };
        if i.is_ip_rel_memory_operand() {
            return Operand::Place { at: Va(i.ip_rel_memory_address()), size, index: None, base: None };
        }
        let base = Reg::of(i.memory_base());
        let disp = i.memory_displacement64();
        // Absolute addresses of non-PIE code: a displacement that cannot be a structure offset.
        if segment.is_none() && i.memory_displ_size() >= 4 && (0x1_0000..0x8000_0000).contains(&disp) {
            return Operand::Place { at: Va(disp), size, index, base };
        }
        Operand::Mem { base, index, disp: disp.cast_signed(), size, segment }
    }
    /// Places it refers to as data, each with the width of the access, 0 if only the address is taken: by
    /// `rip`, and if the file is at fixed addresses (`absolute`) by displacements and immediates that could
    /// be addresses.
    pub fn refers_to(&self, absolute: bool) -> [Option<(Va, u8)>; 2] {
        let i = &self.0;
        if i.is_ip_rel_memory_operand() {
            let size = if i.mnemonic() == Mnemonic::Lea { 0 } else { i.memory_size().size() };
            let at = Va(i.ip_rel_memory_address());
            let known = !self.is_nop();
            let immediate = if absolute { self.immediate_address() } else { None };
            return [known.then_some((at, u8::try_from(size).unwrap_or(0))), immediate];
        }
        if !absolute || self.is_nop() {
            return [None, None];
        }
        let place = self.operands().find_map(|o| match o {
            Operand::Place { at, size, index: None, base: None } => Some((at, size)),
            // With a register added, the width is that of an element.
            Operand::Place { at, .. } => Some((at, 0)),
            _ => None,
        });
        [place, self.immediate_address()]
    }
    fn immediate_address(&self) -> Option<(Va, u8)> {
        let i = &self.0;
        let wide = |k| matches!(k, OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64);
        let n = (0..i.op_count()).find(|&n| wide(i.op_kind(n)))?;
        Some((Va(i.immediate(n)), 0))
    }
    /// Registers and flags it reads, and those it writes entirely or in part. For many instructions, reuse an
    /// [`EffectsOf`].
    pub fn effects(&self) -> Effects {
        effects::once(self)
    }
    /// The arithmetic flags that it reads, and those that it kills; as bits, the carry lowest.
    pub(crate) fn flags(&self) -> (u8, u8) {
        effects::flags(self)
    }
    /// Whether it sets the stack pointer to a word of memory: to another stack, as far as we can tell.
    pub fn loads_stack_pointer(&self) -> bool {
        let i = &self.0;
        i.op0_kind() == OpKind::Register
            && i.op0_register() == Register::RSP
            && (i.mnemonic() == Mnemonic::Pop
                || (i.mnemonic() == Mnemonic::Mov && i.op1_kind() == OpKind::Memory)
                || i.mnemonic() == Mnemonic::Xchg)
    }
    /// Whether it does nothing but take down the frame of a function that returns, or return.
    pub fn takes_frame_down(&self) -> bool {
        let i = &self.0;
        let sets_stack_pointer = i.op0_kind() == OpKind::Register && i.op0_register() == Register::RSP;
        match i.mnemonic() {
            Mnemonic::Ret | Mnemonic::Leave => true,
            Mnemonic::Pop => i.op0_kind() == OpKind::Register,
            Mnemonic::Add | Mnemonic::Lea => sets_stack_pointer,
            _ => false,
        }
    }
    /// Whether it helps to set up a function's frame.
    pub fn sets_frame_up(&self) -> bool {
        let i = &self.0;
        let sets_stack_pointer = i.op0_kind() == OpKind::Register && i.op0_register() == Register::RSP;
        match i.mnemonic() {
            Mnemonic::Push | Mnemonic::Endbr64 => true,
            Mnemonic::Sub | Mnemonic::Lea => sets_stack_pointer,
            _ => false,
        }
    }
    /// Whether it stores the result of a call, unchanged, in a register or the frame.
    pub fn moves_result(&self) -> bool {
        let i = &self.0;
        let is_result = matches!(
            i.op1_register(),
            Register::RAX | Register::EAX | Register::AX | Register::AL | Register::XMM0
        );
        let is_kept = match i.op0_kind() {
            OpKind::Register => true,
            OpKind::Memory => {
                matches!(i.memory_base(), Register::RBP | Register::RSP) && i.memory_index() == Register::None
            }
            _ => false,
        };
        let is_move = matches!(
            i.mnemonic(),
            Mnemonic::Mov | Mnemonic::Movss | Mnemonic::Movsd | Mnemonic::Movaps | Mnemonic::Movq
        );
        is_move && i.op1_kind() == OpKind::Register && is_result && is_kept
    }
    /// Whether a return right after it goes where it says: `push`, or a store to the top of the stack.
    pub fn makes_return_address(&self) -> bool {
        let i = &self.0;
        let on_top = i.op0_kind() == OpKind::Memory
            && i.memory_base() == Register::RSP
            && i.memory_index() == Register::None
            && i.memory_displacement64() == 0;
        i.mnemonic() == Mnemonic::Push || (i.mnemonic() == Mnemonic::Mov && on_top)
    }
    /// Whether it is `call *(%rax)` after `lea x(%rip),%rax`: a TLS descriptor, whose resolver keeps all
    /// registers but one.
    pub fn is_descriptor_call(&self, before: Option<&Insn>) -> bool {
        let i = &self.0;
        i.code() == Code::Call_rm64
            && i.op0_kind() == OpKind::Memory
            && i.memory_base() == Register::RAX
            && i.memory_index() == Register::None
            && i.memory_displacement64() == 0
            && before.is_some_and(|b| {
                b.0.mnemonic() == Mnemonic::Lea
                    && b.0.op0_register() == Register::RAX
                    && b.0.is_ip_rel_memory_operand()
            })
    }
    /// The bytes of the instruction that hold `Operand::Imm`, as an address might stand there.
    pub fn has_immediate(&self) -> bool {
        (0..self.0.op_count()).any(|n| {
            matches!(self.0.op_kind(n), OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64)
        })
    }
}

impl fmt::Display for Insn {
    /// AT&T syntax, as `objdump -d` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut formatter = GasFormatter::new();
        let options = formatter.options_mut();
        options.set_branch_leading_zeros(false);
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(false);
        formatter.format(&self.0, &mut text);
        f.write_str(&text)
    }
}

impl fmt::Debug for Insn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.at())
    }
}

/// Decodes the instruction at the start of `bytes`, which lie at `at`.
///
/// `None` if they are no instruction, or end within one.
pub fn decode(bytes: &[u8], at: Va) -> Option<Insn> {
    Decoder::new(bytes, at).next().filter(|insn| insn.flow() != ControlFlow::Invalid)
}

/// Decodes one instruction after another, to the end of the bytes. Bytes that are none yield
/// [`ControlFlow::Invalid`] and one byte of length.
pub struct Decoder<'a> {
    /// Made when it is needed; may be behind.
    inner: Option<iced_x86::Decoder<'a>>,
    bytes: &'a [u8],
    start: Va,
    position: usize,
}

impl<'a> Decoder<'a> {
    /// A decoder of `bytes`, which lie at `at`.
    pub fn new(bytes: &'a [u8], at: Va) -> Decoder<'a> {
        Decoder { inner: None, bytes, start: at, position: 0 }
    }

    /// Goes on at `at`. `None` if that is not in the bytes.
    pub fn seek(&mut self, at: Va) -> Option<()> {
        let offset = usize::try_from(at.0.checked_sub(self.start.0)?).ok()?;
        (offset <= self.bytes.len()).then(|| self.position = offset)
    }

    /// The address of the next instruction.
    pub fn at(&self) -> Va {
        self.start.plus(self.position as u64)
    }

    /// The next instruction, if it is of a common form; does not go on.
    #[inline(always)]
    pub fn quick(&self) -> Option<Quick> {
        quick::quick(self.bytes.get(self.position..)?, self.at())
    }

    /// Goes on after the next instruction if it is a no-operation of the usual kinds; returns its length.
    #[inline]
    pub fn pass_nop(&mut self) -> Option<u8> {
        let len = quick::nop(self.bytes.get(self.position..)?)?;
        self.position += usize::from(len);
        Some(len)
    }

    /// Whether all that is left satisfies `holds`; no-operations do.
    pub fn are_nops_or(mut self, holds: impl Fn(&Insn) -> bool) -> bool {
        loop {
            while self.pass_nop().is_some() {}
            if self.position >= self.bytes.len() {
                return true;
            }
            // Most of what is asked about is no padding.
            if quick::is_common(self.bytes.get(self.position..).unwrap_or_default(), self.at()) {
                return false;
            }
            match self.next() {
                Some(insn) if holds(&insn) => {}
                _ => return false,
            }
        }
    }

    /// Goes on after what [`Self::quick`] told.
    pub fn pass(&mut self, quick: &Quick) {
        self.position += usize::from(quick.len);
    }
}

impl Iterator for Decoder<'_> {
    type Item = Insn;
    fn next(&mut self) -> Option<Insn> {
        let at = self.position;
        if at >= self.bytes.len() {
            return None;
        }
        let ip = self.start.0.wrapping_add(at as u64);
        let inner = self.inner.get_or_insert_with(|| {
            iced_x86::Decoder::with_ip(64, self.bytes, self.start.0, DecoderOptions::NONE)
        });
        if inner.position() != at {
            inner.set_position(at).expect("it is within the bytes");
            inner.set_ip(ip);
        }
        let mut insn = inner.decode();
        if insn.is_invalid() {
            insn.set_len(1);
            insn.set_next_ip(ip.wrapping_add(1));
            inner.set_position(at + 1).expect("there was at least one byte");
            inner.set_ip(ip.wrapping_add(1));
        }
        self.position = inner.position();
        Some(Insn(insn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], text: &str, flow: ControlFlow) {
        let insn = Decoder::new(bytes, Va(0x1000)).next().expect("bytes are given");
        assert_eq!((insn.to_string().as_str(), insn.flow()), (text, flow));
    }

    #[test]
    fn flow_is_read_from_the_encoding() {
        check(&[0xe8, 0xfb, 0x0f, 0, 0], "call 0x2000", ControlFlow::Call(Va(0x2000)));
        check(&[0x74, 0xfe], "je 0x1000", ControlFlow::Branch(Va(0x1000)));
        check(&[0x3e, 0xff, 0xe0], "notrack jmp *%rax", ControlFlow::JumpIndirect);
        check(&[0x0f, 0x05], "syscall", ControlFlow::Next);
        check(&[0x0f, 0x0b], "ud2", ControlFlow::Stop);
        check(&[0xf4], "hlt", ControlFlow::Stop);
    }

    #[test]
    fn a_large_displacement_is_a_place_only_at_fixed_addresses() {
        let check = |bytes: &[u8], fixed: bool, want: bool| {
            let insn = Decoder::new(bytes, Va(0x1000)).next().expect("bytes are given");
            let got = insn.operands_in(fixed).any(|o| matches!(o, Operand::Place { .. }));
            assert_eq!(got, want, "{insn} {fixed}");
        };
        // mov 0x12345(%rdi),%eax; mov 0x12345(%rip),%eax; mov 0x345(%rdi),%eax
        for (fixed, far) in [(true, true), (false, false)] {
            check(&[0x8b, 0x87, 0x45, 0x23, 0x01, 0x00], fixed, far);
            check(&[0x8b, 0x05, 0x45, 0x23, 0x01, 0x00], fixed, true);
            check(&[0x8b, 0x87, 0x45, 0x03, 0x00, 0x00], fixed, false);
        }
    }

    #[test]
    fn bytes_that_are_no_instruction_take_one_byte() {
        let insns: Vec<_> = Decoder::new(&[0x06, 0x90], Va(0)).collect();
        assert_eq!(
            insns.iter().map(|i| (i.at().0, i.flow())).collect::<Vec<_>>(),
            [(0, ControlFlow::Invalid), (1, ControlFlow::Next)]
        );
    }
}
