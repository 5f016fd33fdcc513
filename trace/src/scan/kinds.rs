//! What kinds of symbols there are in a group, two bits each: all that a scan asks of most of them.
//!
//! The only unsafe code of this crate: without vectors it takes three times as long, and what compilers make of plain loops changes
//! with each.

use crate::symbol::Symbol;

/// Symbols in a group.
pub const GROUP: usize = 16;

/// A block.
pub const BLOCK: usize = 0;
/// An entry of another function.
pub const ENTRY: usize = 1;
/// An exit.
pub const EXIT: usize = 2;
/// An entry of the function that is asked for.
pub const OWN_ENTRY: usize = 3;

/// The kinds of a group, those of the first symbol lowest; a code that is no symbol is of any kind.
#[inline]
pub fn kinds(group: &[u32; GROUP], func: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "to call what needs a feature of the processor")]
    // SAFETY: every x86-64 processor has SSE2 (System V ABI, AMD64 supplement 1.0, table 3.1).
    return unsafe { vectors::kinds(group, func) };
    #[cfg(not(target_arch = "x86_64"))]
    one_by_one(group, func)
}

#[cfg(not(target_arch = "x86_64"))]
fn one_by_one(group: &[u32; GROUP], func: u32) -> u32 {
    let kind = |code: u32| code >> 30 | if Symbol(code).is_entry_of(func) { 2 } else { 0 };
    group.iter().rev().fold(0, |kinds, &code| kinds << 2 | kind(code))
}

#[cfg(target_arch = "x86_64")]
mod vectors {
    use super::{GROUP, Symbol};
    use std::arch::x86_64::{
        _mm_and_si128, _mm_cmpeq_epi32, _mm_cvtsi128_si32, _mm_or_si128, _mm_packs_epi32, _mm_packus_epi16,
        _mm_set_epi32, _mm_set1_epi32, _mm_srli_epi16, _mm_srli_epi32,
    };

    #[inline]
    #[target_feature(enable = "sse2")]
    pub fn kinds(group: &[u32; GROUP], func: u32) -> u32 {
        let all = |code: u32| _mm_set1_epi32(code.cast_signed());
        let mark = Symbol::enter(0).from_outside().0 & !Symbol::enter(0).0;
        let (unmarked, entry, own) = (all(!mark), all(Symbol::enter(func).0), all(2));
        let (fours, _none) = group.as_chunks::<4>();
        let kinds_of = |i: usize| {
            let [a, b, c, d] = fours[i].map(u32::cast_signed);
            let codes = _mm_set_epi32(d, c, b, a);
            let is_own = _mm_cmpeq_epi32(_mm_and_si128(codes, unmarked), entry);
            _mm_or_si128(_mm_srli_epi32::<30>(codes), _mm_and_si128(is_own, own))
        };
        let (first, second) =
            (_mm_packs_epi32(kinds_of(0), kinds_of(1)), _mm_packs_epi32(kinds_of(2), kinds_of(3)));
        // A byte each; two, then four of them next to each other in the lowest bits of each lane.
        let ones = _mm_packus_epi16(first, second);
        let twos = _mm_or_si128(ones, _mm_srli_epi16::<6>(ones));
        let fours = _mm_and_si128(_mm_or_si128(twos, _mm_srli_epi32::<12>(twos)), all(0xff));
        let words = _mm_packs_epi32(fours, fours);
        _mm_cvtsi128_si32(_mm_packus_epi16(words, words)).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::{Cause, Step};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn kinds_are_what_symbols_say_one_by_one(codes in prop::array::uniform16(0..7_usize)) {
            let marked = Symbol::enter(3).from_outside();
            let other = Symbol::enter(0).from_outside();
            let exit = Symbol::exit(Cause::Exec);
            let group = codes.map(|i| [Symbol(0), Symbol(3), Symbol::EXIT, Symbol::enter(3), marked, other, exit][i].0);
            let kind = |&code: &u32| match Symbol(code).step() {
                Step::Block(_) => "00",
                Step::Enter(3) => "11",
                Step::Enter(_) => "01",
                Step::Exit => "10",
            };
            let want: String = group.iter().rev().map(kind).collect();
            prop_assert_eq!(format!("{:032b}", kinds(&group, 3)), want);
        }
    }
}
