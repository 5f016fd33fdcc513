//! Statistics against their definitions; `checks/statistics.py` holds them against Python's.

use super::*;
use crate::values::{Distribution, len_bytes};
use program::signature::Float;
use proptest::prelude::*;

const DOUBLE: Type = Type::Float(Float::Double);

fn of_counted(kind: &Type, words: &[u64]) -> Statistics {
    let mut all = Distribution::default();
    words.iter().for_each(|word| all.add(&word.to_le_bytes()[..len_bytes(kind)]));
    Statistics::of_counted(kind, &all.counted()).expect("they are numbers")
}

#[test]
fn statistics_are_what_their_names_say() {
    let words: Vec<u64> = [7.0, 1.0, 3.0, f64::NAN, 5.0, f64::INFINITY, 9.0].map(f64::to_bits).to_vec();
    let all = of_counted(&DOUBLE, &words);
    let of = all.of_finite.expect("some are finite");
    assert_eq!((all.n, all.n_nan, all.n_infinite, all.n_denormal), (5, 1, 1, 0));
    assert_eq!((of.min, of.max, of.mean), (Number::Float(1.0), Number::Float(9.0), 5.0));
    assert_eq!((of.d1, of.q1, of.median, of.q3, of.d9), (1.8, 3.0, 5.0, 7.0, 8.2));
    assert_eq!(of.deviation, 8f64.sqrt());
    let signed: Vec<u64> = [-1i32, -4, 2].map(|n| u64::from(n.cast_unsigned())).to_vec();
    let of =
        of_counted(&Type::Integer { bytes: 4, is_signed: true }, &signed).of_finite.expect("all are finite");
    assert_eq!((of.min, of.max, of.mean, of.median), (Number::Signed(-4), Number::Signed(2), -1.0, -1.0));
    let small = of_counted(&Type::Float(Float::Single), &[1, 0, 0x8000_0000, u64::from(f32::MAX.to_bits())]);
    assert_eq!((small.n, small.n_denormal), (4, 1));
    assert_eq!(of_counted(&DOUBLE, &[f64::NAN.to_bits()]).of_finite, None);
    assert_eq!(Statistics::of_counted(&Type::Pointer(Box::new(Type::Void)), &[]), None);
}

proptest! {
    /// By digits, from whatever is replayed: the same as when all are sorted.
    #[test]
    fn ranks_are_those_of_what_is_sorted(
        keys in proptest::collection::vec(prop_oneof![any::<u64>(), 0..9u64, (1 << 40)..(1u64 << 40) + 70_000], 1..80),
        ranks in proptest::collection::btree_set(0..80usize, 0..6),
    ) {
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        let ranks: Vec<u64> = ranks.into_iter().filter(|rank| *rank < keys.len()).map(|rank| rank as u64).collect();
        let range = (sorted[0], sorted[sorted.len() - 1]);
        let found = select(&ranks, range, |each| {
            keys.iter().for_each(|key| each(*key));
            Ok(())
        });
        let want: Vec<(u64, u64)> =
            ranks.iter().map(|rank| (*rank, sorted[usize::try_from(*rank).expect("small")])).collect();
        prop_assert_eq!(found.expect("nothing fails"), want);
    }

    /// Keys are in the order of numbers.
    #[test]
    fn keys_are_in_order(a in any::<u64>(), b in any::<u64>()) {
        for kind in [NumberKind::Unsigned, NumberKind::Signed(64), NumberKind::Double] {
            let (Read::Finite(x), Read::Finite(y)) = (kind.read(a), kind.read(b)) else { continue };
            let want = match (kind.number(x), kind.number(y)) {
                (Number::Unsigned(a), Number::Unsigned(b)) => a.cmp(&b),
                (Number::Signed(a), Number::Signed(b)) => a.cmp(&b),
                (Number::Float(a), Number::Float(b)) => a.total_cmp(&b),
                _ => panic!("of one kind"),
            };
            prop_assert_eq!(x.cmp(&y), want);
        }
    }
}
