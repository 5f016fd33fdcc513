//! One pass over a block's instructions: its hash at every level, and a token per instruction for comparing
//! blocks in part.
//!
//! Source: BMAT, 3.2 and table 1. The first class (merged from level 1 on, dependencies kept) is all
//! caller-saved registers. Argument registers among them: kept apart, 2 to 4 % more of BMAT's blocks are
//! wrong (sqlite 989 → 1,002 and 314 → 326, Lua 30 → 31, against line tables).

use super::{Keys, combine, low};
use program::arch::{ControlFlow, Operand, Reg, RegClass};
use program::{BlockId, FuncId, Insn, Instructions, Program, Va};

/// No jump within the function at the end of a block.
pub(crate) const NO_TARGET: u32 = u32::MAX;

/// Hashes of one block. The target of a jump within the function is in none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockHash {
    /// Level 0.
    pub zero: u64,
    /// Level 1 with structure offsets (not those from the stack pointer): finer than any level of the paper
    /// but 0.
    pub fine: u64,
    /// Level 1 (and 2).
    pub one: u64,
    /// Level 3.
    pub three: u64,
    /// Level 4.
    pub four: u64,
    /// Level 5.
    pub five: u64,
    /// Level 1a.
    pub last_one: u64,
    /// Level 3a.
    pub last_three: u64,
    /// Instructions, padding left out.
    pub n_insns: u32,
    /// Position in the function of this block, and of the one its jump or branch leads to, or [`NO_TARGET`].
    pub at: u32,
    /// See `at`.
    pub target: u32,
    /// The condition of the branch that ends it, see [`Insn::condition`]; 0 if none does.
    pub condition: u8,
}

impl BlockHash {
    fn direction(&self) -> u64 {
        match self.target {
            NO_TARGET => 0,
            to if to > self.at => 1,
            _ => 2,
        }
    }
    /// Level 3, with the direction of its jump.
    pub fn three_with_direction(&self) -> u64 {
        combine(self.three, self.direction())
    }
    /// Level 3a, with the direction of its jump.
    pub fn last_three_with_direction(&self) -> u64 {
        combine(self.last_three, self.direction())
    }
}

/// An instruction, for comparing blocks in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    /// Operation and operands, but for which register of a class, stack offsets, and targets within the
    /// function.
    pub strong: u32,
    /// Family of the operation and kinds of operands.
    pub weak: u32,
    /// A reference that few instructions share: a callee, a string, matched data, an unusual number; or 0.
    pub reference: u32,
}

/// Hashes blocks of one function.
pub(crate) struct Reader<'a> {
    program: &'a Program,
    insns: Instructions<'a>,
    keys: &'a Keys,
    func: FuncId,
    first: u32,
    fixed: bool,
}

/// Hashes of one instruction, by level.
#[derive(Default)]
struct Words {
    zero: u64,
    fine: u64,
    one: u64,
    three: u64,
    four: u64,
    five: u64,
    strong: u64,
    reference: u64,
}

impl Words {
    fn all(&mut self, word: u64) {
        for w in [&mut self.zero, &mut self.fine, &mut self.one, &mut self.three, &mut self.strong] {
            *w = combine(*w, word);
        }
    }
}

/// Numbers registers of one class by where they first occur in a block.
struct Numbering {
    number: [u8; 128],
    next: u8,
}

impl Numbering {
    fn new() -> Numbering {
        Numbering { number: [0; 128], next: 0 }
    }
    fn of(&mut self, reg: Reg) -> u64 {
        let slot = &mut self.number[usize::from(reg.number() & 127)];
        if *slot == 0 {
            self.next += 1;
            *slot = self.next;
        }
        u64::from(*slot)
    }
}

impl<'a> Reader<'a> {
    pub fn new(program: &'a Program, keys: &'a Keys, func: FuncId) -> Reader<'a> {
        let first = program.function(func).blocks.start;
        let fixed = !program.image.kind.is_relocated();
        Reader { program, insns: program.instructions(), keys, func, first, fixed }
    }

    /// Hashes a block; `each` gets its instructions, padding left out.
    pub fn read(&mut self, block: BlockId, mut each: impl FnMut(Token)) -> BlockHash {
        let mut out = BlockHash { at: block.0 - self.first, target: NO_TARGET, ..BlockHash::default() };
        let mut names = Numbering::new();
        let mut last = None;
        self.insns.seek(block);
        while let Some(insn) = self.insns.next() {
            if insn.is_nop() {
                continue;
            }
            let flow = insn.flow();
            let w = self.words(&insn, flow, &mut names, &mut out.target);
            last = Some((insn, w.one, w.three));
            out.zero = combine(out.zero, w.zero);
            out.fine = combine(out.fine, w.fine);
            out.one = combine(out.one, w.one);
            out.three = combine(out.three, w.three);
            out.four = combine(out.four, w.four);
            out.five = combine(out.five, w.five);
            out.n_insns += 1;
            each(Token {
                strong: low(w.strong),
                weak: low(if let ControlFlow::Branch(_) = flow { w.five } else { combine(w.five, w.four) }),
                reference: low(w.reference),
            });
        }
        if let Some((insn, one, three)) = last {
            // Dependencies on what stands before it are no part of the last instruction.
            out.last_one = match insn.flow() {
                ControlFlow::Branch(_) | ControlFlow::Jump(_) | ControlFlow::Return => one,
                flow => self.words(&insn, flow, &mut Numbering::new(), &mut out.target).one,
            };
            out.last_three = three;
            if let ControlFlow::Branch(_) = insn.flow() {
                out.condition = insn.condition();
            }
        }
        out
    }

    fn words(&self, insn: &Insn, flow: ControlFlow, names: &mut Numbering, target: &mut u32) -> Words {
        let mut w = Words::default();
        let opcode = u64::from(insn.mnemonic());
        w.all(opcode);
        w.four = combine(0, opcode);
        w.five = combine(0, u64::from(insn.group()));
        if let ControlFlow::Branch(_) = flow {
            // Which way round a condition is tested is the compiler's choice.
            w.strong = combine(0, 0x500 + u64::from(insn.condition().div_ceil(2)));
        }
        for operand in insn.operands_in(self.fixed) {
            self.operand(insn, flow, operand, &mut w, names, target);
        }
        w
    }

    /// A constant: an address, or a number.
    #[inline]
    fn immediate(&self, insn: &Insn, value: i64, w: &mut Words) {
        w.four = combine(w.four, 0x1000);
        let word = value.cast_unsigned();
        let at = Va(word);
        if self.fixed && insn.has_immediate() && self.program.image.segment_at(at).is_some() {
            self.place(at, 0, w);
            return;
        }
        w.zero = combine(w.zero, word);
        w.fine = combine(w.fine, word);
        w.one = combine(w.one, word);
        w.strong = combine(w.strong, word);
        w.three = combine(w.three, 0x1001);
        if value.unsigned_abs() > 255 && word.count_ones() > 2 {
            w.reference = combine(0x69, word);
        }
    }

    fn operand(
        &self,
        insn: &Insn,
        flow: ControlFlow,
        operand: Operand,
        w: &mut Words,
        names: &mut Numbering,
        target: &mut u32,
    ) {
        match operand {
            Operand::Reg(reg, width) => {
                w.four = combine(w.four, 0x100 + kind_of(reg) * 0x100 + u64::from(width));
                w.all(u64::from(width));
                register(reg, w, names);
            }
            Operand::Imm(value) => self.immediate(insn, value, w),
            Operand::Target(to) => {
                w.four = combine(w.four, 0x2000);
                let local = match flow {
                    ControlFlow::Call(_) => None,
                    _ => self.local(to),
                };
                match local {
                    Some(at) => *target = at,
                    None => {
                        let key = self.keys.code(self.program, to);
                        w.all(key);
                        if key != 0 {
                            w.reference = key;
                        }
                    }
                }
            }
            Operand::Place { at, size, index, base } => {
                w.four = combine(w.four, 0x3000 + u64::from(size));
                w.all(u64::from(size));
                self.place(at, size, w);
                for (reg, scale) in index.into_iter().chain(base.map(|b| (b, 0))) {
                    w.all(u64::from(scale));
                    register(reg, w, names);
                }
            }
            Operand::Mem { base, index, disp, size, segment } => {
                w.four = combine(w.four, 0x3000 + u64::from(size));
                w.all(u64::from(size));
                if let Some(reg) = segment {
                    register(reg, w, names);
                }
                let stack = base.is_some_and(|b| b.class() == RegClass::Special);
                let shape = u64::from(base.is_some()) * 2 + u64::from(index.is_some());
                w.all(shape);
                for (reg, scale) in base.map(|b| (b, 0)).into_iter().chain(index) {
                    w.all(u64::from(scale));
                    register(reg, w, names);
                }
                let word = disp.cast_unsigned();
                w.zero = combine(w.zero, word);
                if !stack {
                    w.fine = combine(w.fine, word);
                    w.strong = combine(w.strong, word);
                }
            }
        }
    }

    /// The position of the block at `to`, if it is one of this function.
    fn local(&self, to: Va) -> Option<u32> {
        if !self.program.function(self.func).ranges.iter().any(|r| r.contains(&to)) {
            return None;
        }
        let block = self.program.block_from(to)?;
        (self.program.block(block).func == self.func).then(|| block.0 - self.first)
    }

    fn place(&self, at: Va, size: u8, w: &mut Words) {
        let key = match self.local(at) {
            Some(_) => 0,
            None => self.keys.place(self.program, at, size),
        };
        w.all(key);
        if key != 0 {
            w.reference = key;
        }
    }
}

/// What level 4 knows of a register.
fn kind_of(reg: Reg) -> u64 {
    match reg.class() {
        RegClass::CallerSaved | RegClass::CalleeSaved => 0,
        RegClass::Vector => 1,
        RegClass::Mask => 2,
        RegClass::X87 => 3,
        RegClass::Special => 4,
    }
}

fn register(reg: Reg, w: &mut Words, names: &mut Numbering) {
    let own = u64::from(reg.number());
    w.zero = combine(w.zero, own);
    let (one, three) = match reg.class() {
        RegClass::CallerSaved => (0x200 + names.of(reg), 0x201),
        RegClass::Vector => (0x300 + names.of(reg), 0x301),
        RegClass::CalleeSaved => (own, 0x202),
        RegClass::Mask => (0x400 + names.of(reg), 0x401),
        RegClass::Special | RegClass::X87 => (own, own),
    };
    w.fine = combine(w.fine, one);
    w.one = combine(w.one, one);
    w.three = combine(w.three, three);
    w.strong = combine(w.strong, if (0x200..0x300).contains(&three) { 0x200 } else { three });
}
