//! Which AVX2 instruction does, in each half of its registers, what an SSE instruction does in the whole of
//! its own.
//!
//! Not here: what takes its operands from both halves, or does something else in the upper one.
//!
//! Source: Intel SDM vol. 2, the pages of the instructions, "VEX.256 encoded version"; vol. 1, 14.1.1.

use iced_x86::Code;

/// How the operands of the wide form are those of the narrow one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// To; from: the same.
    Plain,
    /// To; from: to; to; from.
    Binary,
    /// To; from, with a mask in the first register: to; to; from; the mask.
    Blend,
    /// To; a number: to; to; the number.
    Shift,
    /// To; from, whose lower half is one number for all: to; to; from, of 16 bytes still.
    Count,
}

/// How a register that sums something up starts in its upper half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// With zeros.
    Zeros,
    /// As in its lower half: what is combined with itself is itself.
    Same,
}

/// The wide form of `code`.
pub fn wide(code: Code) -> Option<(Shape, Code)> {
    let all = [
        (Shape::Plain, PLAIN),
        (Shape::Binary, FLOATS),
        (Shape::Binary, INTEGERS),
        (Shape::Blend, BLEND),
        (Shape::Shift, SHIFT),
        (Shape::Count, COUNT),
    ];
    all.iter().find_map(|(shape, table)| {
        let found = table.iter().find(|(narrow, _)| *narrow == code)?;
        Some((*shape, found.1))
    })
}

/// The number of the wide form whose narrow form is `code`, where that has `number`: some say something of
/// each half.
pub fn number(code: Code, number: u8) -> u8 {
    match code {
        // The narrow form reads three bits, the wide one five.
        Code::Cmpps_xmm_xmmm128_imm8 | Code::Cmppd_xmm_xmmm128_imm8 => number & 7,
        Code::Shufpd_xmm_xmmm128_imm8 | Code::Blendpd_xmm_xmmm128_imm8 => (number & 3) * 0b101,
        Code::Blendps_xmm_xmmm128_imm8 => (number & 15) * 0b1_0001,
        _ => number,
    }
}

/// How two halves are combined of what `code` sums up, bit for bit the same in any order: how the upper one
/// starts, and by which wide instruction.
pub fn sum(code: Code) -> Option<(Start, Code)> {
    use Code as C;
    let (start, narrow) = match code {
        C::Paddb_xmm_xmmm128 | C::Psubb_xmm_xmmm128 => (Start::Zeros, C::Paddb_xmm_xmmm128),
        C::Paddw_xmm_xmmm128 | C::Psubw_xmm_xmmm128 => (Start::Zeros, C::Paddw_xmm_xmmm128),
        C::Paddd_xmm_xmmm128 | C::Psubd_xmm_xmmm128 => (Start::Zeros, C::Paddd_xmm_xmmm128),
        C::Paddq_xmm_xmmm128 | C::Psubq_xmm_xmmm128 => (Start::Zeros, C::Paddq_xmm_xmmm128),
        C::Pxor_xmm_xmmm128 | C::Xorps_xmm_xmmm128 | C::Xorpd_xmm_xmmm128 => {
            (Start::Zeros, C::Pxor_xmm_xmmm128)
        }
        C::Pand_xmm_xmmm128 | C::Andps_xmm_xmmm128 | C::Andpd_xmm_xmmm128 => {
            (Start::Same, C::Pand_xmm_xmmm128)
        }
        C::Por_xmm_xmmm128 | C::Orps_xmm_xmmm128 | C::Orpd_xmm_xmmm128 => (Start::Same, C::Por_xmm_xmmm128),
        C::Pminub_xmm_xmmm128
        | C::Pmaxub_xmm_xmmm128
        | C::Pminsw_xmm_xmmm128
        | C::Pmaxsw_xmm_xmmm128
        | C::Pminsb_xmm_xmmm128
        | C::Pmaxsb_xmm_xmmm128
        | C::Pminuw_xmm_xmmm128
        | C::Pmaxuw_xmm_xmmm128
        | C::Pminsd_xmm_xmmm128
        | C::Pmaxsd_xmm_xmmm128
        | C::Pminud_xmm_xmmm128
        | C::Pmaxud_xmm_xmmm128 => (Start::Same, code),
        _ => return None,
    };
    Some((start, wide(narrow)?.1))
}

/// Whether `code` adds or multiplies floats.
pub fn adds_floats(code: Code) -> bool {
    use Code as C;
    matches!(
        code,
        C::Addps_xmm_xmmm128
            | C::Addpd_xmm_xmmm128
            | C::Subps_xmm_xmmm128
            | C::Subpd_xmm_xmmm128
            | C::Mulps_xmm_xmmm128
            | C::Mulpd_xmm_xmmm128
    )
}

/// Whether `code` with one register twice gives the same, whatever was in it.
pub fn reads_nothing_of_itself(code: Code) -> bool {
    use Code as C;
    matches!(
        code,
        C::Pxor_xmm_xmmm128
            | C::Xorps_xmm_xmmm128
            | C::Xorpd_xmm_xmmm128
            | C::Pcmpeqb_xmm_xmmm128
            | C::Pcmpeqw_xmm_xmmm128
            | C::Pcmpeqd_xmm_xmmm128
            | C::Pcmpeqq_xmm_xmmm128
    )
}

/// Aligned moves become unaligned ones: two aligned places of 16 bytes are one of 32 that need not be.
const PLAIN: &[(Code, Code)] = &[
    (Code::Movups_xmm_xmmm128, Code::VEX_Vmovups_ymm_ymmm256),
    (Code::Movups_xmmm128_xmm, Code::VEX_Vmovups_ymmm256_ymm),
    (Code::Movaps_xmm_xmmm128, Code::VEX_Vmovups_ymm_ymmm256),
    (Code::Movaps_xmmm128_xmm, Code::VEX_Vmovups_ymmm256_ymm),
    (Code::Movupd_xmm_xmmm128, Code::VEX_Vmovupd_ymm_ymmm256),
    (Code::Movupd_xmmm128_xmm, Code::VEX_Vmovupd_ymmm256_ymm),
    (Code::Movapd_xmm_xmmm128, Code::VEX_Vmovupd_ymm_ymmm256),
    (Code::Movapd_xmmm128_xmm, Code::VEX_Vmovupd_ymmm256_ymm),
    (Code::Movdqu_xmm_xmmm128, Code::VEX_Vmovdqu_ymm_ymmm256),
    (Code::Movdqu_xmmm128_xmm, Code::VEX_Vmovdqu_ymmm256_ymm),
    (Code::Movdqa_xmm_xmmm128, Code::VEX_Vmovdqu_ymm_ymmm256),
    (Code::Movdqa_xmmm128_xmm, Code::VEX_Vmovdqu_ymmm256_ymm),
    (Code::Lddqu_xmm_m128, Code::VEX_Vlddqu_ymm_m256),
    (Code::Movshdup_xmm_xmmm128, Code::VEX_Vmovshdup_ymm_ymmm256),
    (Code::Movsldup_xmm_xmmm128, Code::VEX_Vmovsldup_ymm_ymmm256),
    (Code::Sqrtps_xmm_xmmm128, Code::VEX_Vsqrtps_ymm_ymmm256),
    (Code::Sqrtpd_xmm_xmmm128, Code::VEX_Vsqrtpd_ymm_ymmm256),
    (Code::Cvtdq2ps_xmm_xmmm128, Code::VEX_Vcvtdq2ps_ymm_ymmm256),
    (Code::Cvtps2dq_xmm_xmmm128, Code::VEX_Vcvtps2dq_ymm_ymmm256),
    (Code::Cvttps2dq_xmm_xmmm128, Code::VEX_Vcvttps2dq_ymm_ymmm256),
    (Code::Roundps_xmm_xmmm128_imm8, Code::VEX_Vroundps_ymm_ymmm256_imm8),
    (Code::Roundpd_xmm_xmmm128_imm8, Code::VEX_Vroundpd_ymm_ymmm256_imm8),
    (Code::Pabsb_xmm_xmmm128, Code::VEX_Vpabsb_ymm_ymmm256),
    (Code::Pabsw_xmm_xmmm128, Code::VEX_Vpabsw_ymm_ymmm256),
    (Code::Pabsd_xmm_xmmm128, Code::VEX_Vpabsd_ymm_ymmm256),
    (Code::Pshufd_xmm_xmmm128_imm8, Code::VEX_Vpshufd_ymm_ymmm256_imm8),
    (Code::Pshufhw_xmm_xmmm128_imm8, Code::VEX_Vpshufhw_ymm_ymmm256_imm8),
    (Code::Pshuflw_xmm_xmmm128_imm8, Code::VEX_Vpshuflw_ymm_ymmm256_imm8),
];

const FLOATS: &[(Code, Code)] = &[
    (Code::Addps_xmm_xmmm128, Code::VEX_Vaddps_ymm_ymm_ymmm256),
    (Code::Addpd_xmm_xmmm128, Code::VEX_Vaddpd_ymm_ymm_ymmm256),
    (Code::Subps_xmm_xmmm128, Code::VEX_Vsubps_ymm_ymm_ymmm256),
    (Code::Subpd_xmm_xmmm128, Code::VEX_Vsubpd_ymm_ymm_ymmm256),
    (Code::Mulps_xmm_xmmm128, Code::VEX_Vmulps_ymm_ymm_ymmm256),
    (Code::Mulpd_xmm_xmmm128, Code::VEX_Vmulpd_ymm_ymm_ymmm256),
    (Code::Divps_xmm_xmmm128, Code::VEX_Vdivps_ymm_ymm_ymmm256),
    (Code::Divpd_xmm_xmmm128, Code::VEX_Vdivpd_ymm_ymm_ymmm256),
    (Code::Minps_xmm_xmmm128, Code::VEX_Vminps_ymm_ymm_ymmm256),
    (Code::Minpd_xmm_xmmm128, Code::VEX_Vminpd_ymm_ymm_ymmm256),
    (Code::Maxps_xmm_xmmm128, Code::VEX_Vmaxps_ymm_ymm_ymmm256),
    (Code::Maxpd_xmm_xmmm128, Code::VEX_Vmaxpd_ymm_ymm_ymmm256),
    (Code::Addsubps_xmm_xmmm128, Code::VEX_Vaddsubps_ymm_ymm_ymmm256),
    (Code::Addsubpd_xmm_xmmm128, Code::VEX_Vaddsubpd_ymm_ymm_ymmm256),
    (Code::Haddps_xmm_xmmm128, Code::VEX_Vhaddps_ymm_ymm_ymmm256),
    (Code::Haddpd_xmm_xmmm128, Code::VEX_Vhaddpd_ymm_ymm_ymmm256),
    (Code::Hsubps_xmm_xmmm128, Code::VEX_Vhsubps_ymm_ymm_ymmm256),
    (Code::Hsubpd_xmm_xmmm128, Code::VEX_Vhsubpd_ymm_ymm_ymmm256),
    (Code::Andps_xmm_xmmm128, Code::VEX_Vandps_ymm_ymm_ymmm256),
    (Code::Andpd_xmm_xmmm128, Code::VEX_Vandpd_ymm_ymm_ymmm256),
    (Code::Andnps_xmm_xmmm128, Code::VEX_Vandnps_ymm_ymm_ymmm256),
    (Code::Andnpd_xmm_xmmm128, Code::VEX_Vandnpd_ymm_ymm_ymmm256),
    (Code::Orps_xmm_xmmm128, Code::VEX_Vorps_ymm_ymm_ymmm256),
    (Code::Orpd_xmm_xmmm128, Code::VEX_Vorpd_ymm_ymm_ymmm256),
    (Code::Xorps_xmm_xmmm128, Code::VEX_Vxorps_ymm_ymm_ymmm256),
    (Code::Xorpd_xmm_xmmm128, Code::VEX_Vxorpd_ymm_ymm_ymmm256),
    (Code::Unpcklps_xmm_xmmm128, Code::VEX_Vunpcklps_ymm_ymm_ymmm256),
    (Code::Unpcklpd_xmm_xmmm128, Code::VEX_Vunpcklpd_ymm_ymm_ymmm256),
    (Code::Unpckhps_xmm_xmmm128, Code::VEX_Vunpckhps_ymm_ymm_ymmm256),
    (Code::Unpckhpd_xmm_xmmm128, Code::VEX_Vunpckhpd_ymm_ymm_ymmm256),
    (Code::Cmpps_xmm_xmmm128_imm8, Code::VEX_Vcmpps_ymm_ymm_ymmm256_imm8),
    (Code::Cmppd_xmm_xmmm128_imm8, Code::VEX_Vcmppd_ymm_ymm_ymmm256_imm8),
    (Code::Shufps_xmm_xmmm128_imm8, Code::VEX_Vshufps_ymm_ymm_ymmm256_imm8),
    (Code::Shufpd_xmm_xmmm128_imm8, Code::VEX_Vshufpd_ymm_ymm_ymmm256_imm8),
    (Code::Blendps_xmm_xmmm128_imm8, Code::VEX_Vblendps_ymm_ymm_ymmm256_imm8),
    (Code::Blendpd_xmm_xmmm128_imm8, Code::VEX_Vblendpd_ymm_ymm_ymmm256_imm8),
];

const INTEGERS: &[(Code, Code)] = &[
    (Code::Paddb_xmm_xmmm128, Code::VEX_Vpaddb_ymm_ymm_ymmm256),
    (Code::Paddw_xmm_xmmm128, Code::VEX_Vpaddw_ymm_ymm_ymmm256),
    (Code::Paddd_xmm_xmmm128, Code::VEX_Vpaddd_ymm_ymm_ymmm256),
    (Code::Paddq_xmm_xmmm128, Code::VEX_Vpaddq_ymm_ymm_ymmm256),
    (Code::Psubb_xmm_xmmm128, Code::VEX_Vpsubb_ymm_ymm_ymmm256),
    (Code::Psubw_xmm_xmmm128, Code::VEX_Vpsubw_ymm_ymm_ymmm256),
    (Code::Psubd_xmm_xmmm128, Code::VEX_Vpsubd_ymm_ymm_ymmm256),
    (Code::Psubq_xmm_xmmm128, Code::VEX_Vpsubq_ymm_ymm_ymmm256),
    (Code::Paddsb_xmm_xmmm128, Code::VEX_Vpaddsb_ymm_ymm_ymmm256),
    (Code::Paddsw_xmm_xmmm128, Code::VEX_Vpaddsw_ymm_ymm_ymmm256),
    (Code::Paddusb_xmm_xmmm128, Code::VEX_Vpaddusb_ymm_ymm_ymmm256),
    (Code::Paddusw_xmm_xmmm128, Code::VEX_Vpaddusw_ymm_ymm_ymmm256),
    (Code::Psubsb_xmm_xmmm128, Code::VEX_Vpsubsb_ymm_ymm_ymmm256),
    (Code::Psubsw_xmm_xmmm128, Code::VEX_Vpsubsw_ymm_ymm_ymmm256),
    (Code::Psubusb_xmm_xmmm128, Code::VEX_Vpsubusb_ymm_ymm_ymmm256),
    (Code::Psubusw_xmm_xmmm128, Code::VEX_Vpsubusw_ymm_ymm_ymmm256),
    (Code::Pmullw_xmm_xmmm128, Code::VEX_Vpmullw_ymm_ymm_ymmm256),
    (Code::Pmulld_xmm_xmmm128, Code::VEX_Vpmulld_ymm_ymm_ymmm256),
    (Code::Pmulhw_xmm_xmmm128, Code::VEX_Vpmulhw_ymm_ymm_ymmm256),
    (Code::Pmulhuw_xmm_xmmm128, Code::VEX_Vpmulhuw_ymm_ymm_ymmm256),
    (Code::Pmulhrsw_xmm_xmmm128, Code::VEX_Vpmulhrsw_ymm_ymm_ymmm256),
    (Code::Pmuludq_xmm_xmmm128, Code::VEX_Vpmuludq_ymm_ymm_ymmm256),
    (Code::Pmuldq_xmm_xmmm128, Code::VEX_Vpmuldq_ymm_ymm_ymmm256),
    (Code::Pmaddwd_xmm_xmmm128, Code::VEX_Vpmaddwd_ymm_ymm_ymmm256),
    (Code::Pmaddubsw_xmm_xmmm128, Code::VEX_Vpmaddubsw_ymm_ymm_ymmm256),
    (Code::Psadbw_xmm_xmmm128, Code::VEX_Vpsadbw_ymm_ymm_ymmm256),
    (Code::Pavgb_xmm_xmmm128, Code::VEX_Vpavgb_ymm_ymm_ymmm256),
    (Code::Pavgw_xmm_xmmm128, Code::VEX_Vpavgw_ymm_ymm_ymmm256),
    (Code::Pand_xmm_xmmm128, Code::VEX_Vpand_ymm_ymm_ymmm256),
    (Code::Pandn_xmm_xmmm128, Code::VEX_Vpandn_ymm_ymm_ymmm256),
    (Code::Por_xmm_xmmm128, Code::VEX_Vpor_ymm_ymm_ymmm256),
    (Code::Pxor_xmm_xmmm128, Code::VEX_Vpxor_ymm_ymm_ymmm256),
    (Code::Pcmpeqb_xmm_xmmm128, Code::VEX_Vpcmpeqb_ymm_ymm_ymmm256),
    (Code::Pcmpeqw_xmm_xmmm128, Code::VEX_Vpcmpeqw_ymm_ymm_ymmm256),
    (Code::Pcmpeqd_xmm_xmmm128, Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256),
    (Code::Pcmpeqq_xmm_xmmm128, Code::VEX_Vpcmpeqq_ymm_ymm_ymmm256),
    (Code::Pcmpgtb_xmm_xmmm128, Code::VEX_Vpcmpgtb_ymm_ymm_ymmm256),
    (Code::Pcmpgtw_xmm_xmmm128, Code::VEX_Vpcmpgtw_ymm_ymm_ymmm256),
    (Code::Pcmpgtd_xmm_xmmm128, Code::VEX_Vpcmpgtd_ymm_ymm_ymmm256),
    (Code::Pcmpgtq_xmm_xmmm128, Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256),
    (Code::Pminub_xmm_xmmm128, Code::VEX_Vpminub_ymm_ymm_ymmm256),
    (Code::Pmaxub_xmm_xmmm128, Code::VEX_Vpmaxub_ymm_ymm_ymmm256),
    (Code::Pminsw_xmm_xmmm128, Code::VEX_Vpminsw_ymm_ymm_ymmm256),
    (Code::Pmaxsw_xmm_xmmm128, Code::VEX_Vpmaxsw_ymm_ymm_ymmm256),
    (Code::Pminsb_xmm_xmmm128, Code::VEX_Vpminsb_ymm_ymm_ymmm256),
    (Code::Pmaxsb_xmm_xmmm128, Code::VEX_Vpmaxsb_ymm_ymm_ymmm256),
    (Code::Pminuw_xmm_xmmm128, Code::VEX_Vpminuw_ymm_ymm_ymmm256),
    (Code::Pmaxuw_xmm_xmmm128, Code::VEX_Vpmaxuw_ymm_ymm_ymmm256),
    (Code::Pminsd_xmm_xmmm128, Code::VEX_Vpminsd_ymm_ymm_ymmm256),
    (Code::Pmaxsd_xmm_xmmm128, Code::VEX_Vpmaxsd_ymm_ymm_ymmm256),
    (Code::Pminud_xmm_xmmm128, Code::VEX_Vpminud_ymm_ymm_ymmm256),
    (Code::Pmaxud_xmm_xmmm128, Code::VEX_Vpmaxud_ymm_ymm_ymmm256),
    (Code::Packsswb_xmm_xmmm128, Code::VEX_Vpacksswb_ymm_ymm_ymmm256),
    (Code::Packssdw_xmm_xmmm128, Code::VEX_Vpackssdw_ymm_ymm_ymmm256),
    (Code::Packuswb_xmm_xmmm128, Code::VEX_Vpackuswb_ymm_ymm_ymmm256),
    (Code::Packusdw_xmm_xmmm128, Code::VEX_Vpackusdw_ymm_ymm_ymmm256),
    (Code::Punpcklbw_xmm_xmmm128, Code::VEX_Vpunpcklbw_ymm_ymm_ymmm256),
    (Code::Punpcklwd_xmm_xmmm128, Code::VEX_Vpunpcklwd_ymm_ymm_ymmm256),
    (Code::Punpckldq_xmm_xmmm128, Code::VEX_Vpunpckldq_ymm_ymm_ymmm256),
    (Code::Punpcklqdq_xmm_xmmm128, Code::VEX_Vpunpcklqdq_ymm_ymm_ymmm256),
    (Code::Punpckhbw_xmm_xmmm128, Code::VEX_Vpunpckhbw_ymm_ymm_ymmm256),
    (Code::Punpckhwd_xmm_xmmm128, Code::VEX_Vpunpckhwd_ymm_ymm_ymmm256),
    (Code::Punpckhdq_xmm_xmmm128, Code::VEX_Vpunpckhdq_ymm_ymm_ymmm256),
    (Code::Punpckhqdq_xmm_xmmm128, Code::VEX_Vpunpckhqdq_ymm_ymm_ymmm256),
    (Code::Pshufb_xmm_xmmm128, Code::VEX_Vpshufb_ymm_ymm_ymmm256),
    (Code::Psignb_xmm_xmmm128, Code::VEX_Vpsignb_ymm_ymm_ymmm256),
    (Code::Psignw_xmm_xmmm128, Code::VEX_Vpsignw_ymm_ymm_ymmm256),
    (Code::Psignd_xmm_xmmm128, Code::VEX_Vpsignd_ymm_ymm_ymmm256),
    (Code::Phaddw_xmm_xmmm128, Code::VEX_Vphaddw_ymm_ymm_ymmm256),
    (Code::Phaddd_xmm_xmmm128, Code::VEX_Vphaddd_ymm_ymm_ymmm256),
    (Code::Phaddsw_xmm_xmmm128, Code::VEX_Vphaddsw_ymm_ymm_ymmm256),
    (Code::Phsubw_xmm_xmmm128, Code::VEX_Vphsubw_ymm_ymm_ymmm256),
    (Code::Phsubd_xmm_xmmm128, Code::VEX_Vphsubd_ymm_ymm_ymmm256),
    (Code::Phsubsw_xmm_xmmm128, Code::VEX_Vphsubsw_ymm_ymm_ymmm256),
    (Code::Pblendw_xmm_xmmm128_imm8, Code::VEX_Vpblendw_ymm_ymm_ymmm256_imm8),
    (Code::Palignr_xmm_xmmm128_imm8, Code::VEX_Vpalignr_ymm_ymm_ymmm256_imm8),
];

const BLEND: &[(Code, Code)] = &[
    (Code::Pblendvb_xmm_xmmm128, Code::VEX_Vpblendvb_ymm_ymm_ymmm256_ymm),
    (Code::Blendvps_xmm_xmmm128, Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm),
    (Code::Blendvpd_xmm_xmmm128, Code::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm),
];

const SHIFT: &[(Code, Code)] = &[
    (Code::Psrlw_xmm_imm8, Code::VEX_Vpsrlw_ymm_ymm_imm8),
    (Code::Psrld_xmm_imm8, Code::VEX_Vpsrld_ymm_ymm_imm8),
    (Code::Psrlq_xmm_imm8, Code::VEX_Vpsrlq_ymm_ymm_imm8),
    (Code::Psraw_xmm_imm8, Code::VEX_Vpsraw_ymm_ymm_imm8),
    (Code::Psrad_xmm_imm8, Code::VEX_Vpsrad_ymm_ymm_imm8),
    (Code::Psllw_xmm_imm8, Code::VEX_Vpsllw_ymm_ymm_imm8),
    (Code::Pslld_xmm_imm8, Code::VEX_Vpslld_ymm_ymm_imm8),
    (Code::Psllq_xmm_imm8, Code::VEX_Vpsllq_ymm_ymm_imm8),
    (Code::Psrldq_xmm_imm8, Code::VEX_Vpsrldq_ymm_ymm_imm8),
    (Code::Pslldq_xmm_imm8, Code::VEX_Vpslldq_ymm_ymm_imm8),
];

const COUNT: &[(Code, Code)] = &[
    (Code::Psrlw_xmm_xmmm128, Code::VEX_Vpsrlw_ymm_ymm_xmmm128),
    (Code::Psrld_xmm_xmmm128, Code::VEX_Vpsrld_ymm_ymm_xmmm128),
    (Code::Psrlq_xmm_xmmm128, Code::VEX_Vpsrlq_ymm_ymm_xmmm128),
    (Code::Psraw_xmm_xmmm128, Code::VEX_Vpsraw_ymm_ymm_xmmm128),
    (Code::Psrad_xmm_xmmm128, Code::VEX_Vpsrad_ymm_ymm_xmmm128),
    (Code::Psllw_xmm_xmmm128, Code::VEX_Vpsllw_ymm_ymm_xmmm128),
    (Code::Pslld_xmm_xmmm128, Code::VEX_Vpslld_ymm_ymm_xmmm128),
    (Code::Psllq_xmm_xmmm128, Code::VEX_Vpsllq_ymm_ymm_xmmm128),
];
