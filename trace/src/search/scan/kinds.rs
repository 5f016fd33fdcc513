//! What kinds of symbols there are in a block, a bit each: all that a scan asks of most of them.
//!
//! Here, and where the scan is compiled once more for processors with AVX2, is the only unsafe code of this
//! crate: without vectors it takes three times as long, and what compilers make of plain loops changes with
//! each.

use crate::ids::FuncId;

/// Symbols in a group.
pub const GROUP: usize = 16;
/// Symbols in a block.
pub const BLOCK: usize = 64;

/// Kinds of up to 64 symbols, a bit each, the first one's lowest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kinds {
    /// Entries of functions.
    pub entries: u64,
    /// Those among them of the function that is asked for.
    pub own: u64,
    /// Exits.
    pub exits: u64,
}

impl Kinds {
    /// Those of group `n`.
    #[inline(always)]
    pub fn group(self, n: usize) -> Kinds {
        let of = |all: u64| all >> (n * GROUP) & ((1 << GROUP) - 1);
        Kinds { entries: of(self.entries), own: of(self.own), exits: of(self.exits) }
    }

    /// How many more functions are open behind them.
    #[inline(always)]
    pub fn more(self) -> i32 {
        self.entries.count_ones().cast_signed() - self.exits.count_ones().cast_signed()
    }
}

/// The kinds of a block.
#[inline(always)]
pub fn kinds(block: &[u32; BLOCK], func: FuncId) -> Kinds {
    let mut all = Kinds::default();
    for (group, at) in block.as_chunks::<GROUP>().0.iter().zip((0..).step_by(GROUP)) {
        let (entries, own, exits) = of_group(group, func);
        all.entries |= u64::from(entries) << at;
        all.own |= u64::from(own) << at;
        all.exits |= u64::from(exits) << at;
    }
    all
}

/// Behind which symbols of a group `level` functions are open, and behind which one less, if `before` are
/// before it.
#[inline(always)]
pub fn at_level(group: &[u32; GROUP], before: i8, level: i8) -> (u16, u16) {
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "to call what needs a feature of the processor")]
    // SAFETY: every x86-64 processor has SSE2 (System V ABI, AMD64 supplement 1.0, table 3.1).
    return unsafe { vectors::at_level(group, before, level) };
    #[cfg(not(target_arch = "x86_64"))]
    one_by_one::at_level(group, before, level)
}

#[inline(always)]
fn of_group(group: &[u32; GROUP], func: FuncId) -> (u16, u16, u16) {
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "to call what needs a feature of the processor")]
    // SAFETY: as above.
    return unsafe { vectors::of_group(group, func) };
    #[cfg(not(target_arch = "x86_64"))]
    one_by_one::of_group(group, func)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod one_by_one {
    use super::GROUP;
    use crate::ids::FuncId;
    use crate::symbol::{Step, Symbol};

    fn bits(group: &[u32; GROUP], mut is_one: impl FnMut(Step) -> bool) -> u16 {
        (0..).zip(group).fold(0, |bits, (n, &code)| bits | u16::from(is_one(Symbol(code).step())) << n)
    }

    pub fn of_group(group: &[u32; GROUP], func: FuncId) -> (u16, u16, u16) {
        let entries = bits(group, |step| matches!(step, Step::Enter(_)));
        (entries, bits(group, |step| step == Step::Enter(func)), bits(group, |step| step == Step::Exit))
    }

    pub fn at_level(group: &[u32; GROUP], before: i8, level: i8) -> (u16, u16) {
        let is_at = |level: i8| {
            let mut now = before;
            bits(group, |step| {
                now += match step {
                    Step::Enter(_) => 1,
                    Step::Exit => -1,
                    Step::Block(_) => 0,
                };
                now == level
            })
        };
        (is_at(level), is_at(level - 1))
    }
}

#[cfg(target_arch = "x86_64")]
mod vectors {
    use super::GROUP;
    use crate::ids::FuncId;
    use crate::symbol::Symbol;
    use std::arch::x86_64::{
        __m128i, _mm_add_epi8, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_cmpeq_epi32,
        _mm_cmpgt_epi8, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set_epi32, _mm_set1_epi8,
        _mm_set1_epi32, _mm_setzero_si128, _mm_slli_epi32, _mm_slli_si128, _mm_sub_epi8,
    };

    /// A byte each of what is made of four codes at a time, with the sign of what it is made of.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn bytes(group: &[u32; GROUP], each: impl Fn(__m128i) -> __m128i) -> __m128i {
        let (fours, _none) = group.as_chunks::<4>();
        let four = |i: usize| {
            let [a, b, c, d] = fours[i].map(u32::cast_signed);
            each(_mm_set_epi32(d, c, b, a))
        };
        _mm_packs_epi16(_mm_packs_epi32(four(0), four(1)), _mm_packs_epi32(four(2), four(3)))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn signs(bytes: __m128i) -> u16 {
        u16::try_from(_mm_movemask_epi8(bytes)).expect("sixteen bits")
    }

    /// The highest bit is an exit's, the one below it, alone, an entry's.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn entries(group: &[u32; GROUP]) -> __m128i {
        bytes(group, |codes| _mm_andnot_si128(codes, _mm_slli_epi32::<1>(codes)))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn exits(group: &[u32; GROUP]) -> __m128i {
        bytes(group, |codes| codes)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub fn of_group(group: &[u32; GROUP], func: FuncId) -> (u16, u16, u16) {
        let all = |code: u32| _mm_set1_epi32(code.cast_signed());
        let mark = Symbol::enter(FuncId(0)).from_outside().0 & !Symbol::enter(FuncId(0)).0;
        let (unmarked, entry) = (all(!mark), all(Symbol::enter(func).0));
        let own = bytes(group, |codes| _mm_cmpeq_epi32(_mm_and_si128(codes, unmarked), entry));
        (signs(entries(group)), signs(own), signs(exits(group)))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub fn at_level(group: &[u32; GROUP], before: i8, level: i8) -> (u16, u16) {
        let is_one = |bytes: __m128i| _mm_cmpgt_epi8(_mm_setzero_si128(), bytes);
        // What is set is minus one.
        let steps = _mm_sub_epi8(is_one(exits(group)), is_one(entries(group)));
        // Each the sum of itself and all before.
        let sums = _mm_add_epi8(steps, _mm_slli_si128::<1>(steps));
        let sums = _mm_add_epi8(sums, _mm_slli_si128::<2>(sums));
        let sums = _mm_add_epi8(sums, _mm_slli_si128::<4>(sums));
        let sums = _mm_add_epi8(sums, _mm_slli_si128::<8>(sums));
        let is_at = |level: i8| signs(_mm_cmpeq_epi8(sums, _mm_set1_epi8(level)));
        let level = level.wrapping_sub(before);
        (is_at(level), is_at(level.wrapping_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::{Cause, Symbol};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn kinds_are_what_symbols_say_one_by_one(codes in prop::array::uniform16(0..8_usize), level in -9..9_i8, before in -9..9_i8) {
            let marked = Symbol::enter(FuncId(3)).from_outside();
            let other = Symbol::enter(FuncId(0)).from_outside();
            let (exit, no_symbol) = (Symbol::exit(Cause::Exec), Symbol(3 << 30));
            let group = codes.map(|i| [Symbol(0), Symbol(3), Symbol::EXIT, Symbol::enter(FuncId(3)), marked, other, exit, no_symbol][i].0);
            prop_assert_eq!(of_group(&group, FuncId(3)), one_by_one::of_group(&group, FuncId(3)));
            prop_assert_eq!(at_level(&group, before, level), one_by_one::at_level(&group, before, level));
        }
    }

    #[test]
    fn groups_are_parts_of_blocks() {
        let mut block = [0; BLOCK];
        (block[17], block[18], block[63]) =
            (Symbol::enter(FuncId(3)).0, Symbol::enter(FuncId(4)).0, Symbol::EXIT.0);
        let all = kinds(&block, FuncId(3));
        assert_eq!(all, Kinds { entries: 3 << 17, own: 1 << 17, exits: 1 << 63 });
        assert_eq!(all.group(1), Kinds { entries: 6, own: 2, exits: 0 });
        assert_eq!((all.more(), all.group(1).more(), all.group(3).more()), (1, 2, -1));
    }
}
