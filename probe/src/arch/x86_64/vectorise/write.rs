//! The code at a loop's entry.

use super::count::{Bound, Order};
use super::forms::Shape;
use super::{NotVectorised, Operand, PackedLoop, Wide};
use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};
use program::arch::{Reg, RegSet, abi};

/// With fewer pairs of iterations, the loop runs alone.
const LEAST_PAIRS: i32 = 4;
/// Where code is written, so that distances can be encoded; they are all within it.
const SOMEWHERE: u64 = 0x1000_0000;
/// General registers in the order in which they are taken: those first that no unwinder asks for.
const GENERAL: [u8; 14] = [0, 1, 2, 6, 7, 8, 9, 10, 11, 3, 12, 13, 14, 15];
/// How many of these a callee may change.
const CALLER_SAVED: usize = 9;

type Written = Result<(), NotVectorised>;

impl From<IcedError> for NotVectorised {
    fn from(_: IcedError) -> NotVectorised {
        NotVectorised::Unwritable
    }
}

/// Registers to work with.
struct Free {
    /// How many pairs there are, and what else is computed.
    general: [u8; 3],
    /// General registers that are not free, and the vector registers that keep them meanwhile.
    kept: Vec<(u8, u8)>,
    /// A vector register, if there are sums.
    vector: Option<u8>,
}

impl PackedLoop {
    /// The code that stands at its entry, where all of `live` may be read; control runs through it into the
    /// loop. And where in it the pairs start: a loop within few lines of the cache is run faster.
    ///
    /// # Errors
    /// If no registers are free, or it cannot be written.
    pub fn entry(&self, live: RegSet) -> Result<(Vec<u8>, usize), NotVectorised> {
        if !live.both(abi::FLAGS).is_empty() {
            return Err(NotVectorised::Flags);
        }
        let free = self.free(live)?;
        let mut w = Writer { encoder: Encoder::new(64), bytes: Vec::new(), skips: Vec::new() };
        for (general, vector) in &free.kept {
            w.put(Instruction::with2(Code::Movq_xmm_rm64, xmm(*vector), wide(*general))?)?;
        }
        self.count_pairs(&mut w, &free)?;
        self.compare_places(&mut w, &free)?;
        for n in &self.carried.same {
            w.put(Instruction::with4(
                Code::VEX_Vinsertf128_ymm_ymm_xmmm128_imm8,
                ymm(*n),
                ymm(*n),
                xmm(*n),
                1u32,
            )?)?;
        }
        for n in &self.carried.zeros {
            w.put(Instruction::with2(Code::VEX_Vmovdqa_xmm_xmmm128, xmm(*n), xmm(*n))?)?;
        }
        let again = w.bytes.len();
        self.body.iter().try_for_each(|one| w.body(one))?;
        for (number, by, is_wide) in self.steps.all().filter(|step| step.1 != 0) {
            let number = u8::try_from(number).map_err(|_| NotVectorised::Unwritable)?;
            let both = i32::try_from(2 * by).map_err(|_| NotVectorised::TooFar)?;
            let to = if is_wide { wide(number) } else { narrow(number) };
            let code = match (is_wide, i8::try_from(both).is_ok()) {
                (true, true) => Code::Add_rm64_imm8,
                (true, false) => Code::Add_rm64_imm32,
                (false, true) => Code::Add_rm32_imm8,
                (false, false) => Code::Add_rm32_imm32,
            };
            w.put(Instruction::with2(code, to, both)?)?;
        }
        let [pairs, ..] = free.general;
        w.put(Instruction::with2(Code::Sub_rm64_imm8, wide(pairs), 1i32)?)?;
        w.back(again)?;
        if let Some(scratch) = free.vector {
            for (n, by) in &self.carried.sums {
                let upper = Code::VEX_Vextracti128_xmmm128_ymm_imm8;
                w.put(Instruction::with3(upper, xmm(scratch), ymm(*n), 1u32)?)?;
                w.put(Instruction::with3(*by, ymm(*n), ymm(*n), ymm(scratch))?)?;
            }
        }
        w.put(Instruction::with(Code::VEX_Vzeroupper))?;
        w.land()?;
        for (general, vector) in &free.kept {
            w.put(Instruction::with2(Code::Movq_rm64_xmm, wide(*general), xmm(*vector))?)?;
        }
        Ok((w.bytes, again))
    }

    /// Registers that the loop does not use, and nobody reads behind its entry; if there are not enough, some
    /// that a callee may change, kept in vector registers: no unwinder asks for these.
    fn free(&self, live: RegSet) -> Result<Free, NotVectorised> {
        let used = self.general();
        let n_wanted = if self.overlaps.is_empty() { 2 } else { 3 };
        let is_dead = |n: &u8| !live.contains(Reg::general(*n)) && used >> n & 1 == 0;
        let mut general: Vec<u8> = GENERAL.into_iter().filter(is_dead).take(n_wanted).collect();
        let vectors =
            self.body.iter().fold(0u16, |all, wide| all | wide.reads() | wide.writes().map_or(0, |n| 1 << n));
        let is_unread = |n: &u8| !live.contains(Reg::vector(*n));
        let mut free = (0..16).filter(|n| vectors >> n & 1 == 0 && is_unread(n));
        let mut kept = Vec::new();
        for n in GENERAL.into_iter().take(CALLER_SAVED) {
            if general.len() < n_wanted && used >> n & 1 == 0 && !general.contains(&n) {
                general.push(n);
                kept.push((n, free.next().ok_or(NotVectorised::NoRegister)?));
            }
        }
        let vector = match self.carried.sums.is_empty() {
            true => None,
            // What the loop computes anew each time will do, too: it has done so.
            false => {
                let is_taken = |n: &u8| kept.iter().any(|one: &(u8, u8)| one.1 == *n);
                let any = free.next().or_else(|| (0..16).find(|n| is_unread(n) && !is_taken(n)));
                Some(any.ok_or(NotVectorised::NoRegister)?)
            }
        };
        match general[..] {
            [a, b, c] => Ok(Free { general: [a, b, c], kept, vector }),
            [a, b] => Ok(Free { general: [a, b, b], kept, vector }),
            _ => Err(NotVectorised::NoRegister),
        }
    }

    /// The general registers that it uses, a bit each.
    fn general(&self) -> u16 {
        // The stack pointer is nobody's to take.
        let mut used = 1u16 << 4;
        let mut add = |number: usize| used |= 1 << (number & 15);
        add(self.count.counter.number());
        if let Bound::Register(register) = self.count.bound {
            add(register.number());
        }
        self.steps.all().for_each(|step| add(step.0));
        let places = self.body.iter().flat_map(|wide| [wide.to, wide.from]);
        for operand in places {
            if let Operand::Memory(place) = operand {
                let factors = place.factors().into_iter().enumerate();
                factors.filter(|one| one.1 != 0).for_each(|one| add(one.0));
            }
        }
        used
    }

    /// Computes how many pairs of iterations there are, or skips if these are too few.
    fn count_pairs(&self, w: &mut Writer, free: &Free) -> Written {
        let count = &self.count;
        let [pairs, other, _] = free.general;
        let of = |n: u8| if count.is_wide { wide(n) } else { narrow(n) };
        let (is_wide, bound_in, start_in) = match count.step > 0 {
            true => (count.is_wide, pairs, other),
            false => (count.is_wide, other, pairs),
        };
        let either = |yes: Code, no: Code| if is_wide { yes } else { no };
        w.put(match count.bound {
            Bound::Register(register) => {
                let register = if is_wide { register } else { register.full_register32() };
                Instruction::with2(either(Code::Mov_r64_rm64, Code::Mov_r32_rm32), of(bound_in), register)?
            }
            Bound::Number(number) => {
                Instruction::with2(either(Code::Mov_rm64_imm32, Code::Mov_rm32_imm32), of(bound_in), number)?
            }
        })?;
        let start = MemoryOperand::with_base_displ(count.counter, count.offset.into());
        w.put(Instruction::with2(either(Code::Lea_r64_m, Code::Lea_r32_m), of(start_in), start)?)?;
        if let Some(order) = count.order {
            let compare = either(Code::Cmp_r64_rm64, Code::Cmp_r32_rm32);
            w.put(Instruction::with2(compare, of(pairs), of(other))?)?;
            w.skip(match order {
                Order::Unsigned => Code::Jbe_rel32_64,
                Order::Signed => Code::Jle_rel32_64,
            })?;
        }
        w.put(Instruction::with2(either(Code::Sub_r64_rm64, Code::Sub_r32_rm32), of(pairs), of(other))?)?;
        let shift = either(Code::Shr_rm64_imm8, Code::Shr_rm32_imm8);
        w.put(Instruction::with2(shift, of(pairs), count.shift()?)?)?;
        // What was computed in 32 bits has its upper half cleared.
        w.put(Instruction::with2(Code::Cmp_rm64_imm8, wide(pairs), LEAST_PAIRS)?)?;
        w.skip(Code::Jb_rel32_64)
    }

    /// Skips if places overlap that may not: the later one's address is 1 to 31 bytes behind the earlier
    /// one's.
    fn compare_places(&self, w: &mut Writer, free: &Free) -> Written {
        let [_, first, second] = free.general;
        for [earlier, later] in &self.overlaps {
            w.put(Instruction::with2(Code::Lea_r64_m, wide(first), later.operand())?)?;
            w.put(Instruction::with2(Code::Lea_r64_m, wide(second), earlier.operand())?)?;
            w.put(Instruction::with2(Code::Sub_r64_rm64, wide(first), wide(second))?)?;
            w.put(Instruction::with2(Code::Sub_rm64_imm8, wide(first), 1i32)?)?;
            w.put(Instruction::with2(Code::Cmp_rm64_imm8, wide(first), 31i32)?)?;
            w.skip(Code::Jb_rel32_64)?;
        }
        Ok(())
    }
}

/// Code as it is written.
struct Writer {
    encoder: Encoder,
    bytes: Vec<u8>,
    /// Ends of jumps that lead behind all pairs.
    skips: Vec<usize>,
}

impl Writer {
    /// Where the next instruction will be.
    fn at(&self) -> u64 {
        SOMEWHERE + self.bytes.len() as u64
    }

    fn put(&mut self, insn: Instruction) -> Written {
        self.encoder.encode(&insn, self.at())?;
        self.bytes.extend(self.encoder.take_buffer());
        Ok(())
    }

    /// A jump to what starts at `to`, if there are pairs left.
    fn back(&mut self, to: usize) -> Written {
        const SHORT: usize = 2;
        let is_near = self.bytes.len() + SHORT - to <= 128;
        let code = if is_near { Code::Jne_rel8_64 } else { Code::Jne_rel32_64 };
        self.put(Instruction::with_branch(code, SOMEWHERE + to as u64)?)
    }

    /// A jump over all pairs.
    fn skip(&mut self, code: Code) -> Written {
        self.put(Instruction::with_branch(code, SOMEWHERE)?)?;
        self.skips.push(self.bytes.len());
        Ok(())
    }

    /// These lead here.
    fn land(&mut self) -> Written {
        for end in std::mem::take(&mut self.skips) {
            let distance = i32::try_from(self.bytes.len() - end).map_err(|_| NotVectorised::Unwritable)?;
            let place = self.bytes.get_mut(end - 4..end).ok_or(NotVectorised::Unwritable)?;
            place.copy_from_slice(&distance.to_le_bytes());
        }
        Ok(())
    }

    /// A vector instruction in its wide form.
    fn body(&mut self, one: &Wide) -> Written {
        let Wide { shape, code, to, from, number, .. } = *one;
        let to_register = || match to {
            Operand::Vector(n) => Ok(ymm(n)),
            Operand::Memory(_) | Operand::None => Err(NotVectorised::Unwritable),
        };
        let number = number.map(u32::from);
        let insn = match (shape, to, from, number) {
            (Shape::Plain, Operand::Memory(place), Operand::Vector(n), None) => {
                Instruction::with2(code, place.operand(), ymm(n))?
            }
            (Shape::Plain, _, Operand::Memory(place), None) => {
                Instruction::with2(code, to_register()?, place.operand())?
            }
            (Shape::Plain, _, Operand::Vector(n), None) => Instruction::with2(code, to_register()?, ymm(n))?,
            (Shape::Plain, _, Operand::Memory(place), Some(number)) => {
                Instruction::with3(code, to_register()?, place.operand(), number)?
            }
            (Shape::Plain, _, Operand::Vector(n), Some(number)) => {
                Instruction::with3(code, to_register()?, ymm(n), number)?
            }
            (Shape::Binary, _, Operand::Memory(place), None) => {
                Instruction::with3(code, to_register()?, to_register()?, place.operand())?
            }
            (Shape::Binary, _, Operand::Vector(n), None) => {
                Instruction::with3(code, to_register()?, to_register()?, ymm(n))?
            }
            (Shape::Binary, _, Operand::Memory(place), Some(number)) => {
                Instruction::with4(code, to_register()?, to_register()?, place.operand(), number)?
            }
            (Shape::Binary, _, Operand::Vector(n), Some(number)) => {
                Instruction::with4(code, to_register()?, to_register()?, ymm(n), number)?
            }
            (Shape::Blend, _, Operand::Memory(place), None) => {
                Instruction::with4(code, to_register()?, to_register()?, place.operand(), ymm(0))?
            }
            (Shape::Blend, _, Operand::Vector(n), None) => {
                Instruction::with4(code, to_register()?, to_register()?, ymm(n), ymm(0))?
            }
            (Shape::Shift, _, Operand::None, Some(number)) => {
                Instruction::with3(code, to_register()?, to_register()?, number)?
            }
            (Shape::Count, _, Operand::Vector(n), None) => {
                Instruction::with3(code, to_register()?, to_register()?, xmm(n))?
            }
            _ => return Err(NotVectorised::Unwritable),
        };
        self.put(insn)
    }
}

/// A vector instruction in its wide form, alone.
#[cfg(test)]
pub(super) fn written(one: &Wide) -> Result<Vec<u8>, NotVectorised> {
    let mut w = Writer { encoder: Encoder::new(64), bytes: Vec::new(), skips: Vec::new() };
    w.body(one)?;
    Ok(w.bytes)
}

fn wide(n: u8) -> Register {
    Register::RAX + u32::from(n)
}

fn narrow(n: u8) -> Register {
    Register::EAX + u32::from(n)
}

fn xmm(n: u8) -> Register {
    Register::XMM0 + u32::from(n)
}

fn ymm(n: u8) -> Register {
    Register::YMM0 + u32::from(n)
}
