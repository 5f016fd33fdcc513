//! How floating-point numbers are calculated with: the bits of MXCSR, and code that asks for them cheaply.
//!
//! Reading MXCSR takes some 4 ns on Zen 5, an addition less than one. So what rounds is asked by adding.
//!
//! Source: Intel SDM vol. 1, 10.2.3 (MXCSR), 4.8.4 (rounding), 11.5 (its flags are sticky).

use super::{Assembler, Label, Written, at, nowhere};
use iced_x86::{Code, Instruction, Register};

/// What MXCSR is when a program starts.
pub const DEFAULT: u32 = 0x1f80;
/// Its exception flags.
pub const FLAGS: u32 = 0x3f;
/// The flag that says that a result was rounded.
pub const INEXACT: u32 = 0x20;
/// What decides on results: how they are rounded, and what becomes of tiny ones.
const ROUNDING: u32 = 0x6000;
const TINY: [u32; 2] = [0x8000, 0x40];

/// MXCSR in each mode of calculation, the one in which programs start first; no exception is raised in any.
pub fn modes() -> impl Iterator<Item = u32> {
    let tiny = |n: u32| TINY.into_iter().enumerate().filter(move |(bit, _)| n >> bit & 1 != 0);
    let tiny = move |n| tiny(n).map(|(_, bit)| bit).sum::<u32>();
    (0..4).flat_map(move |rounding| (0..4).map(move |n| DEFAULT | rounding << 13 | tiny(n)))
}

/// Whether that mode rounds to the nearest number.
pub fn is_nearest(mxcsr: u32) -> bool {
    mxcsr & ROUNDING == 0
}

/// What 1 is added to: three quarters, and one quarter, of the distance from 1 to the next number.
const PARTS: [f64; 2] = [0.75 * f64::EPSILON, 0.25 * f64::EPSILON];
/// What comes of it by rounding to nearest, and in no other mode.
const SUMS: [f64; 2] = [1.0 + f64::EPSILON, 1.0];

impl Assembler {
    /// Has the flag [`INEXACT`] be raised; goes to `other` if results are not rounded to nearest.
    pub(super) fn round(&mut self, other: Option<Label>) -> Written {
        use Register::{R10D, RSP, XMM15};
        let kept = at(RSP, -24);
        let (one, parts, sums) = (self.constant([1.0; 2]), self.constant(PARTS), self.constant(SUMS));
        self.put(Instruction::with2(Code::Movups_xmmm128_xmm, kept, XMM15)?)?;
        self.put_to_label(Instruction::with2(Code::Movaps_xmm_xmmm128, XMM15, nowhere())?, one)?;
        self.put_to_label(Instruction::with2(Code::Addpd_xmm_xmmm128, XMM15, nowhere())?, parts)?;
        if other.is_some() {
            self.put_to_label(Instruction::with2(Code::Pcmpeqd_xmm_xmmm128, XMM15, nowhere())?, sums)?;
            self.put(Instruction::with2(Code::Movmskps_r32_xmm, R10D, XMM15)?)?;
        }
        self.put(Instruction::with2(Code::Movups_xmm_xmmm128, XMM15, kept)?)?;
        if let Some(other) = other {
            self.with_number(Code::Cmp_rm32_imm8, R10D, 0b1111)?;
            self.jump(Code::Jne_rel32_64, other)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn modes_are_all_there_are() {
        let all: BTreeSet<u32> = modes().collect();
        assert_eq!(all.len(), 16);
        assert_eq!(modes().next(), Some(DEFAULT));
        assert_eq!(all.iter().filter(|mode| is_nearest(**mode)).count(), 4);
        assert!(all.iter().all(|mode| mode & !(ROUNDING | 0x8040) == DEFAULT));
    }
}
