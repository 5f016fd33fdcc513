//! What an instruction counts for in a mix.
//!
//! Each is in one category and one extension. A string instruction that is repeated is one, and reads and
//! writes one element. Memory on the stack is what is relative to the stack pointer, or to the frame pointer
//! of a function that has one; calls write a return address there, and returns read it.
//!
//! Source: Intel SDM vol. 2; categories as Intel's XED has them, where Chainsaw's paper does not say.

use super::{ControlFlow, Insn};
use crate::mix::{Metric, Mix};
use iced_x86::{
    ConditionCode, CpuidFeature, EncodingKind, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    OpAccess, OpKind, Register,
};

impl Insn {
    /// Adds it to `mix`; `keeps_frame`: its function has a frame pointer.
    pub fn add_to(&self, mix: &mut Mix, keeps_frame: bool) {
        mix.add(Metric::Total, 1);
        mix.add(Metric::Bytes, self.len_bytes() as u64);
        let category = self.category();
        mix.add(category, 1);
        mix.add(self.extension(), 1);
        match self.flow() {
            ControlFlow::Branch(_) => mix.add(Metric::ConditionalBranches, 1),
            ControlFlow::Jump(_) => mix.add(Metric::Jumps, 1),
            ControlFlow::JumpIndirect => {
                mix.add(Metric::Jumps, 1);
                mix.add(Metric::IndirectJumps, 1);
            }
            ControlFlow::Call(_) | ControlFlow::CallIndirect => mix.add(Metric::Calls, 1),
            _ => {}
        }
        self.add_vectors(mix);
        if !self.is_nop() {
            self.add_memory(mix, keeps_frame);
        }
    }

    /// Whether it has the frame pointer lead to the frame.
    pub(crate) fn makes_frame_pointer(&self) -> bool {
        let i = &self.0;
        i.mnemonic() == Mnemonic::Mov
            && i.op0_kind() == OpKind::Register
            && i.op0_register() == Register::RBP
            && i.op1_kind() == OpKind::Register
            && i.op1_register() == Register::RSP
    }

    fn add_memory(&self, mix: &mut Mix, keeps_frame: bool) {
        const READS: [Metric; 7] = [
            Metric::MemReads1,
            Metric::MemReads2,
            Metric::MemReads4,
            Metric::MemReads8,
            Metric::MemReads16,
            Metric::MemReads32,
            Metric::MemReads64,
        ];
        const WRITES: [Metric; 7] = [
            Metric::MemWrites1,
            Metric::MemWrites2,
            Metric::MemWrites4,
            Metric::MemWrites8,
            Metric::MemWrites16,
            Metric::MemWrites32,
            Metric::MemWrites64,
        ];
        let is_stack = |base: Register| {
            matches!(base, Register::RSP | Register::ESP)
                || keeps_frame && matches!(base, Register::RBP | Register::EBP)
        };
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info_options(&self.0, InstructionInfoOptions::NO_REGISTER_USAGE);
        let (mut loads, mut stores) = (false, false);
        for used in info.used_memory() {
            let (reads, writes) = match used.access() {
                OpAccess::None | OpAccess::NoMemAccess => continue,
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            };
            // Of what is repeated, it is not said there.
            let size = match used.memory_size().size() {
                0 => self.0.memory_size().size(),
                size => size,
            };
            let of_size = size.is_power_of_two().then(|| size.trailing_zeros() as usize);
            let on_stack = is_stack(used.base());
            if reads {
                mix.add(Metric::MemReads, 1);
                of_size.and_then(|n| READS.get(n)).into_iter().for_each(|metric| mix.add(*metric, 1));
                mix.add(Metric::StackReads, u64::from(on_stack));
            }
            if writes {
                mix.add(Metric::MemWrites, 1);
                of_size.and_then(|n| WRITES.get(n)).into_iter().for_each(|metric| mix.add(*metric, 1));
                mix.add(Metric::StackWrites, u64::from(on_stack));
            }
            loads |= reads && on_stack;
            stores |= writes && on_stack;
        }
        if self.moves_whole_register() {
            mix.add(Metric::SpillReloads, u64::from(loads));
            mix.add(Metric::SpillStores, u64::from(stores));
        }
    }

    /// Whether it is a plain move between a register and memory, as spills are.
    fn moves_whole_register(&self) -> bool {
        use Mnemonic as M;
        let is_move = matches!(
            self.0.mnemonic(),
            M::Mov
                | M::Movaps
                | M::Movups
                | M::Movapd
                | M::Movupd
                | M::Movdqa
                | M::Movdqu
                | M::Movss
                | M::Movsd
                | M::Movq
                | M::Vmovaps
                | M::Vmovups
                | M::Vmovapd
                | M::Vmovupd
                | M::Vmovdqa
                | M::Vmovdqu
                | M::Vmovss
                | M::Vmovsd
                | M::Vmovq
        );
        let is_register = |n| self.0.op_kind(n) == OpKind::Register;
        is_move
            && self.0.op_count() == 2
            && is_register(0) != is_register(1)
            && !self.has_immediate()
            && !self.0.is_string_instruction()
    }

    /// What of it is done with vectors: how wide, and whether with one number or several.
    fn add_vectors(&self, mix: &mut Mix) {
        let i = &self.0;
        let registers = (0..i.op_count()).filter(|&n| i.op_kind(n) == OpKind::Register);
        let widest = registers.map(|n| i.op_register(n)).filter(|reg| reg.is_vector_register());
        let Some(widest) = widest.map(Register::size).max() else { return };
        mix.add(Metric::Vectors, 1);
        if is_scalar(i.mnemonic()) {
            mix.add(Metric::Scalar, 1);
            let element = match i.memory_size().element_size() {
                0 if is_single(i.mnemonic()) => 4,
                0 => 8,
                size => size,
            };
            mix.add(Metric::VectorBytes, element as u64);
        } else {
            mix.add(Metric::Packed, u64::from(self.category() != Metric::DataTransfer));
            mix.add(Metric::VectorBytes, widest as u64);
        }
    }

    /// The only category that it is in.
    fn category(&self) -> Metric {
        use Mnemonic as M;
        let i = &self.0;
        let exchanges = i.mnemonic() == M::Xchg && (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
        match self.flow() {
            _ if i.has_lock_prefix() || exchanges => return Metric::Atomic,
            ControlFlow::Branch(_) => return Metric::CondBr,
            ControlFlow::Jump(_) | ControlFlow::JumpIndirect => return Metric::UncondBr,
            ControlFlow::Call(_) | ControlFlow::CallIndirect => return Metric::CallInsn,
            ControlFlow::Return => return Metric::Ret,
            ControlFlow::Stop | ControlFlow::Invalid => return Metric::System,
            ControlFlow::Next => {}
        }
        if self.is_nop() || self.is_landing_mark() || matches!(i.mnemonic(), M::Pause | M::Fnop) {
            return Metric::Nop;
        }
        if i.is_string_instruction() {
            return Metric::StringOp;
        }
        match self.extension() {
            Metric::ExtX87 => return Metric::X87,
            Metric::ExtMmx => return Metric::Mmx,
            _ => {}
        }
        let is_vector = (0..i.op_count())
            .any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_vector_register());
        if is_vector || matches!(i.mnemonic(), M::Vzeroupper | M::Vzeroall) {
            return match i.code().encoding() {
                _ if is_shuffle(i.mnemonic()) => Metric::Shuffle,
                EncodingKind::Legacy | EncodingKind::D3NOW => Metric::Sse,
                EncodingKind::EVEX => Metric::Avx512,
                _ => Metric::Avx,
            };
        }
        if i.condition_code() != ConditionCode::None {
            return if i.op_count() == 1 { Metric::Setcc } else { Metric::Cmov };
        }
        if self.reaches_outside() {
            return Metric::System;
        }
        of_integers(i.mnemonic())
    }

    /// The only extension of the instruction set that it is counted for.
    fn extension(&self) -> Metric {
        use CpuidFeature as F;
        let i = &self.0;
        if i.code().encoding() == EncodingKind::EVEX {
            return Metric::ExtAvx512;
        }
        let features = i.cpuid_features();
        let has = |feature: F| features.contains(&feature);
        match features.first() {
            _ if has(F::FMA) || has(F::FMA4) => Metric::ExtFma,
            _ if has(F::AES) || has(F::PCLMULQDQ) || has(F::SHA) || has(F::VAES) => Metric::ExtCrypto,
            Some(
                F::INTEL8086
                | F::INTEL186
                | F::INTEL286
                | F::INTEL386
                | F::INTEL486
                | F::X64
                | F::CMOV
                | F::CX8
                | F::CMPXCHG16B
                | F::MULTIBYTENOP
                | F::PAUSE
                | F::CET_IBT
                | F::TSC
                | F::CPUID
                | F::SYSCALL,
            ) => Metric::ExtBase,
            Some(F::FPU | F::FPU287 | F::FPU387) => Metric::ExtX87,
            Some(F::MMX) => Metric::ExtMmx,
            Some(F::SSE) => Metric::ExtSse,
            Some(F::SSE2) => Metric::ExtSse2,
            Some(F::SSE3 | F::SSSE3) => Metric::ExtSse3,
            Some(F::SSE4_1 | F::SSE4_2 | F::SSE4A) => Metric::ExtSse4,
            Some(F::AVX | F::F16C) => Metric::ExtAvx,
            Some(F::AVX2) => Metric::ExtAvx2,
            Some(F::BMI1 | F::BMI2 | F::POPCNT | F::LZCNT | F::ADX | F::MOVBE) => Metric::ExtBmi,
            Some(feature) if format!("{feature:?}").starts_with("AVX512") => Metric::ExtAvx512,
            _ => Metric::ExtOther,
        }
    }
}

/// The category of what works on integers.
fn of_integers(mnemonic: Mnemonic) -> Metric {
    use Mnemonic as M;
    match mnemonic {
        M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Xchg | M::Bswap | M::Movbe | M::Lahf | M::Sahf => {
            Metric::DataTransfer
        }
        M::Push | M::Pushf | M::Pushfq | M::Enter => Metric::Push,
        M::Pop | M::Popf | M::Popfq => Metric::Pop,
        M::Div | M::Idiv => Metric::Div,
        M::Add
        | M::Sub
        | M::Adc
        | M::Sbb
        | M::Inc
        | M::Dec
        | M::Neg
        | M::Cmp
        | M::Mul
        | M::Imul
        | M::Mulx
        | M::Adcx
        | M::Adox
        | M::Xadd
        | M::Cmpxchg
        | M::Cmpxchg8b
        | M::Cmpxchg16b => Metric::Binary,
        M::And | M::Or | M::Xor | M::Not | M::Test | M::Andn => Metric::Logical,
        M::Shl | M::Sal | M::Shr | M::Sar | M::Shld | M::Shrd | M::Shlx | M::Shrx | M::Sarx => Metric::Shift,
        M::Rol | M::Ror | M::Rcl | M::Rcr | M::Rorx => Metric::Rotate,
        M::Bt
        | M::Bts
        | M::Btr
        | M::Btc
        | M::Bsf
        | M::Bsr
        | M::Tzcnt
        | M::Lzcnt
        | M::Popcnt
        | M::Bextr
        | M::Bzhi
        | M::Pdep
        | M::Pext
        | M::Blsi
        | M::Blsr
        | M::Blsmsk
        | M::Crc32 => Metric::BitByte,
        M::Cbw | M::Cwde | M::Cdqe | M::Cwd | M::Cdq | M::Cqo => Metric::Convert,
        _ => Metric::Misc,
    }
}

/// Whether it calculates with, or moves, one floating-point number.
fn is_scalar(mnemonic: Mnemonic) -> bool {
    let name = name_of(mnemonic);
    let ends = |suffix: &str| name.ends_with(suffix);
    let name_start = name.strip_prefix('v').unwrap_or(&name);
    (ends("ss") || ends("sd")) && !name_start.starts_with('p')
        || name_start.starts_with("cvtsi2")
        || name_start.starts_with("cvtss2")
        || name_start.starts_with("cvtsd2")
        || name_start.starts_with("cvttss2")
        || name_start.starts_with("cvttsd2")
}

fn is_single(mnemonic: Mnemonic) -> bool {
    name_of(mnemonic).ends_with("ss")
}

/// Whether it puts parts of vectors elsewhere, and does nothing else.
fn is_shuffle(mnemonic: Mnemonic) -> bool {
    const STARTS: [&str; 17] = [
        "shuf",
        "pshuf",
        "unpck",
        "punpck",
        "perm",
        "blend",
        "pblend",
        "palignr",
        "insert",
        "pinsr",
        "extract",
        "pextr",
        "broadcast",
        "pbroadcast",
        "packss",
        "packus",
        "perm2",
    ];
    let name = name_of(mnemonic);
    let name = name.strip_prefix('v').unwrap_or(&name);
    STARTS.iter().any(|start| name.starts_with(start))
        || matches!(name, "movddup" | "movsldup" | "movshdup" | "movlhps" | "movhlps")
}

fn name_of(mnemonic: Mnemonic) -> String {
    format!("{mnemonic:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Va;
    use crate::arch::decode;

    fn mix(bytes: &[u8], keeps_frame: bool) -> Mix {
        let mut mix = Mix::default();
        decode(bytes, Va(0x1000)).expect("it is an instruction").add_to(&mut mix, keeps_frame);
        mix
    }

    /// The names of all metrics that are not 0, with how much there is of them, but for extensions.
    fn text(bytes: &[u8], keeps_frame: bool) -> String {
        let mix = mix(bytes, keeps_frame);
        let all = mix.iter().filter(|(metric, _)| !matches!(metric, Metric::Total | Metric::Bytes));
        let all = all.filter(|(metric, _)| !metric.name().starts_with("ext."));
        let all = all.map(|(metric, n)| {
            let name = metric.name().trim_start_matches("agg.");
            if n == 1 { name.to_owned() } else { format!("{name}={n}") }
        });
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn instructions_are_in_one_category_and_say_what_they_read_and_write() {
        for (bytes, want) in [
            // mov 8(%rsp),%rax; mov %eax,(%rdi); mov %al,-1(%rbp)
            (&[0x48, 0x8b, 0x44, 0x24, 8][..], "mem_reads mem_reads8 stack_reads cat.DATAXFER spill.reloads"),
            (&[0x89, 0x07], "mem_writes mem_writes4 cat.DATAXFER"),
            (&[0x88, 0x45, 0xff], "mem_writes mem_writes1 cat.DATAXFER"),
            // add %eax,(%rdi); lock add %eax,(%rdi); xchg %eax,(%rdi)
            (&[0x01, 0x07], "mem_reads mem_reads4 mem_writes mem_writes4 cat.BINARY"),
            (&[0xf0, 0x01, 0x07], "mem_reads mem_reads4 mem_writes mem_writes4 cat.ATOMIC"),
            (&[0x87, 0x07], "mem_reads mem_reads4 mem_writes mem_writes4 cat.ATOMIC"),
            // push %rbx; pop %rbx; call; ret; jmp *%rax; jne; cmove; sete %al
            (&[0x53], "mem_writes mem_writes8 stack_writes cat.PUSH"),
            (&[0x5b], "mem_reads mem_reads8 stack_reads cat.POP"),
            (&[0xe8, 0, 0, 0, 0], "mem_writes mem_writes8 stack_writes calls cat.CALL"),
            (&[0xc3], "mem_reads mem_reads8 stack_reads cat.RET"),
            (&[0xff, 0xe0], "jmps indir_jmps cat.UNCOND_BR"),
            (&[0x75, 0], "cond_br cat.COND_BR"),
            (&[0x0f, 0x44, 0xc1], "cat.CMOV"),
            (&[0x0f, 0x94, 0xc0], "cat.SETCC"),
            // idiv %ecx; lea 8(%rdi),%rax; nopl (%rax); endbr64; rep stos %al; cltq
            (&[0xf7, 0xf9], "cat.DIV"),
            (&[0x48, 0x8d, 0x47, 8], "cat.MISC"),
            (&[0x0f, 0x1f, 0x00], "cat.NOP"),
            (&[0xf3, 0x0f, 0x1e, 0xfa], "cat.NOP"),
            (&[0xf3, 0xaa], "mem_writes mem_writes1 cat.STRING"),
            (&[0x48, 0x98], "cat.CONVERT"),
            // addsd (%rdi),%xmm0; addps %xmm1,%xmm0; vaddps %ymm1,%ymm0,%ymm0; pshufd; fadd; paddd %mm
            (&[0xf2, 0x0f, 0x58, 0x07], "mem_reads mem_reads8 cat.SSE vec.total vec.bytes=8 vec.scalar"),
            (&[0x0f, 0x58, 0xc1], "cat.SSE vec.total vec.bytes=16 vec.packed"),
            (&[0xc5, 0xfc, 0x58, 0xc1], "cat.AVX vec.total vec.bytes=32 vec.packed"),
            (&[0x66, 0x0f, 0x70, 0xc1, 0], "cat.SHUFFLE vec.total vec.bytes=16 vec.packed"),
            (&[0xd8, 0xc1], "cat.X87_ALU"),
            (&[0x0f, 0xfe, 0xc1], "cat.MMX"),
            // movaps %xmm0,16(%rsp)
            (
                &[0x0f, 0x29, 0x44, 0x24, 0x10],
                "mem_writes mem_writes16 stack_writes cat.SSE vec.total vec.bytes=16 vec.packed spill.stores",
            ),
        ] {
            assert_eq!(text(bytes, false), want, "{bytes:x?}");
        }
        // mov %al,-1(%rbp), where rbp is the frame pointer
        let want = "mem_writes mem_writes1 stack_writes cat.DATAXFER spill.stores";
        assert_eq!(text(&[0x88, 0x45, 0xff], true), want);
    }

    #[test]
    fn extensions_are_those_of_the_manual() {
        for (bytes, want) in [
            (&[0x01, 0x07][..], Metric::ExtBase),
            (&[0xd8, 0xc1], Metric::ExtX87),
            (&[0x0f, 0xfe, 0xc1], Metric::ExtMmx),
            (&[0x0f, 0x58, 0xc1], Metric::ExtSse),
            (&[0xf2, 0x0f, 0x58, 0x07], Metric::ExtSse2),
            (&[0xc5, 0xfc, 0x58, 0xc1], Metric::ExtAvx),
            // vpaddd %ymm1,%ymm0,%ymm0; vfmadd213ps %ymm; andn %eax,%eax,%eax; aesenc; vaddps %zmm
            (&[0xc5, 0xfd, 0xfe, 0xc1], Metric::ExtAvx2),
            (&[0xc4, 0xe2, 0x7d, 0xa8, 0xc1], Metric::ExtFma),
            (&[0xc4, 0xe2, 0x78, 0xf2, 0xc0], Metric::ExtBmi),
            (&[0x66, 0x0f, 0x38, 0xdc, 0xc1], Metric::ExtCrypto),
            (&[0x62, 0xf1, 0x7c, 0x48, 0x58, 0xc1], Metric::ExtAvx512),
        ] {
            assert_eq!(mix(bytes, false).get(want), 1, "{bytes:x?}");
            let n = Metric::ALL.iter().filter(|metric| metric.name().starts_with("ext."));
            assert_eq!(n.map(|metric| mix(bytes, false).get(*metric)).sum::<u64>(), 1, "{bytes:x?}");
        }
    }
}
