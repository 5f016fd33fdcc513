//! Which memory an instruction reads and writes, and what else it depends on or changes beside registers.

use super::{Insn, Operand, Reg};
use crate::addr::Va;
use iced_x86::{InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register};

/// Memory that an instruction reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryUse {
    /// The place, if the instruction alone says which.
    pub place: Option<Va>,
    /// The register its address counts from.
    pub base: Option<Reg>,
    /// Whether another register is added.
    pub is_indexed: bool,
    /// What is added, in bytes.
    pub disp: i64,
    /// `fs` or `gs`, if named.
    pub segment: Option<Reg>,
    /// Whether it is written.
    pub is_written: bool,
}

impl Insn {
    /// The memory that it reads or writes, the stack by pushes and calls included.
    pub fn memory_uses(&self) -> Vec<MemoryUse> {
        let i = &self.0;
        if self.is_nop() {
            return Vec::new();
        }
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info_options(i, InstructionInfoOptions::NO_REGISTER_USAGE);
        let one = |used: &iced_x86::UsedMemory| {
            let is_written = match used.access() {
                OpAccess::None | OpAccess::NoMemAccess => return None,
                OpAccess::Read | OpAccess::CondRead => false,
                _ => true,
            };
            // The decoder has added up what counts from `rip`.
            let has_registers = used.base() != Register::None || used.index() != Register::None;
            let is_relative = i.is_ip_rel_memory_operand() && !has_registers;
            Some(MemoryUse {
                place: is_relative.then(|| Va(used.displacement())),
                base: Reg::of(used.base()),
                is_indexed: used.index() != Register::None,
                disp: used.displacement().cast_signed(),
                segment: Reg::of(used.segment())
                    .filter(|_| matches!(used.segment(), Register::FS | Register::GS)),
                is_written,
            })
        };
        info.used_memory().iter().filter_map(one).collect()
    }

    /// Whether what it does depends on, or changes, something that is in no register and no memory: the
    /// kernel, clocks, the processor's number, how numbers are rounded.
    pub fn reaches_outside(&self) -> bool {
        use Mnemonic as M;
        let i = &self.0;
        matches!(
            i.mnemonic(),
            M::Syscall
                | M::Sysenter
                | M::Int
                | M::Int1
                | M::Int3
                | M::Ud2
                | M::Hlt
                | M::In
                | M::Out
                | M::Rdtsc
                | M::Rdtscp
                | M::Rdpmc
                | M::Rdpid
                | M::Rdrand
                | M::Rdseed
                | M::Cpuid
                | M::Xgetbv
                | M::Ldmxcsr
                | M::Vldmxcsr
                | M::Fldcw
                | M::Fldenv
                | M::Frstor
                | M::Fxrstor
                | M::Xrstor
                | M::Wrfsbase
                | M::Wrgsbase
                | M::Xbegin
        )
    }

    /// Of a string instruction that is repeated as often as a register says, and does not stop before: that
    /// register, and how many bytes one time takes.
    pub fn repeats(&self) -> Option<(Reg, u8)> {
        let i = &self.0;
        let element = match i.mnemonic() {
            _ if !i.has_rep_prefix() => None,
            Mnemonic::Movsb | Mnemonic::Stosb | Mnemonic::Lodsb => Some(1),
            Mnemonic::Movsw | Mnemonic::Stosw | Mnemonic::Lodsw => Some(2),
            Mnemonic::Movsd | Mnemonic::Stosd | Mnemonic::Lodsd if i.is_string_instruction() => Some(4),
            Mnemonic::Movsq | Mnemonic::Stosq | Mnemonic::Lodsq => Some(8),
            _ => None,
        };
        element.map(|element| (Reg::general(1), element))
    }

    /// Whether it is a division of numbers with a sign.
    pub fn divides_signed(&self) -> bool {
        self.0.mnemonic() == Mnemonic::Idiv
    }

    /// What an integer division divides by.
    pub fn divisor(&self) -> Option<Operand> {
        let is_division = matches!(self.0.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
        (is_division && matches!(self.0.op0_kind(), OpKind::Register | OpKind::Memory))
            .then(|| self.operand(0))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::decode;

    fn insn(bytes: &[u8]) -> Insn {
        decode(bytes, Va(0x1000)).expect("it is an instruction")
    }

    #[test]
    fn memory_is_known_with_how_it_is_used() {
        let of = |bytes: &[u8]| insn(bytes).memory_uses();
        // mov %rax,0x10(%rsp)
        let [used] = of(&[0x48, 0x89, 0x44, 0x24, 0x10])[..] else { panic!("one") };
        assert_eq!((used.base, used.disp, used.is_written), (Some(Reg::general(4)), 0x10, true));
        // mov 0x20(%rip),%rax
        let [used] = of(&[0x48, 0x8b, 0x05, 0x20, 0, 0, 0])[..] else { panic!("one") };
        assert_eq!((used.place, used.base, used.is_written), (Some(Va(0x1027)), None, false));
        // mov %fs:0x28,%rax
        let [used] = of(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0])[..] else { panic!("one") };
        assert_eq!((used.segment.is_some(), used.disp, used.is_written), (true, 0x28, false));
        // push %rbx; rep stos; add %eax,(%rdi,%rcx,4); lea 8(%rdi),%rax; nopl (%rax)
        assert!(of(&[0x53])[0].is_written && of(&[0xf3, 0xaa])[0].is_written);
        assert!(of(&[0x01, 0x04, 0x8f])[0].is_written && of(&[0x01, 0x04, 0x8f])[0].is_indexed);
        assert!(of(&[0x48, 0x8d, 0x47, 0x08]).is_empty() && of(&[0x0f, 0x1f, 0x00]).is_empty());
    }

    #[test]
    fn divisions_say_by_what() {
        // div %ecx; idivq 8(%rsp); imul %ecx
        assert_eq!(insn(&[0xf7, 0xf1]).divisor(), Some(Operand::Reg(Reg::general(1), 4)));
        let memory = insn(&[0x48, 0xf7, 0x7c, 0x24, 0x08]).divisor();
        assert!(matches!(memory, Some(Operand::Mem { disp: 8, size: 8, .. })), "{memory:?}");
        assert_eq!(insn(&[0xf7, 0xe9]).divisor(), None);
        assert!(insn(&[0x0f, 0x31]).reaches_outside() && !insn(&[0xf7, 0xf1]).reaches_outside());
    }
}
