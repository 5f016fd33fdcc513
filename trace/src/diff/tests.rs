//! Divergences, held against the two streams side by side.

use super::{Alone, Pairing, alone, first};
use crate::chunks::Codec;
use crate::ids::{BlockId, FuncId, ThreadId};
use crate::tests::{Rng, chunked, opened, packed, random_stream};
use crate::{Cause, Names, Step, Symbol};
use proptest::prelude::*;
use std::collections::BTreeMap;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_differ_where_their_symbols_do(seed: u64, n in 2..600_usize, kind in 0..4) {
        let mut rng = Rng(seed ^ 0x4444);
        let one = random_stream(seed, n);
        let mut other = one.clone();
        let at = rng.below(u32::try_from(one.len()).expect("short")) as usize;
        match (kind, Symbol(one[at]).step()) {
            // Another block, another function; why a function is left is no difference.
            (0, Step::Block(block)) => other[at] = block.0 + 1,
            (0, Step::Enter(func)) => other[at] = Symbol::enter(FuncId(func.0 + 1)).0,
            (0, Step::Exit) => other[at] = Symbol::exit(Cause::Tail).0,
            // Longer by a root; nothing; something else behind a common start.
            (1, _) => other.extend([Symbol::enter(FuncId(0)).0, 0, Symbol::EXIT.0]),
            (2, _) => {}
            _ => other = random_stream(seed ^ 0x10, n),
        }
        let plain = |code: Option<&u32>| code.map(|&code| Symbol(code).plain());
        let longest = one.len().max(other.len());
        let want = (0..longest).find(|&i| plain(one.get(i)) != plain(other.get(i))).map(|i| i as u64);
        let by_number = Pairing::new(&Names::default(), &Names::default());
        for a in [packed(std::slice::from_ref(&one)), chunked(std::slice::from_ref(&one), Codec::Zstd, 1 + n / 7)] {
            for b in [packed(std::slice::from_ref(&other)), chunked(std::slice::from_ref(&other), Codec::Zstd, 1 + n / 5)] {
                let (a, b) = (opened(&a).expect("it is whole"), opened(&b).expect("it is whole"));
                prop_assert_eq!(first(&a, &b, ThreadId(0), &by_number).expect("both are whole"), want, "{:x?} {:x?}", one, other);
                prop_assert_eq!(first(&b, &a, ThreadId(0), &by_number).expect("both are whole"), want);
            }
        }
    }
}

#[test]
fn functions_are_paired_by_name() {
    let names = |text: &str| Names::parse(text).expect("it is right");
    let a = names("0 0 0x10 main a.c:1\n1 0 0x20 f a.c:1\n2 0 0x30 f b.c:1\n3 0 0x40 gone a.c:1\n");
    let b = names("5 0 0x10 f a.c:1\n6 0 0x20 main a.c:1\n7 0 0x30 f b.c:1\n8 0 0x40 f c.c:1\n");
    let pairing = Pairing::new(&a, &b);
    assert_eq!(
        [5, 6, 7, 8].map(|func| pairing.of_second(FuncId(func)).map(|func| func.0)),
        [Some(1), Some(0), Some(2), None]
    );
    assert!(!pairing.is_by_number() && Pairing::new(&a, &a).is_by_number());
    let trace = |funcs: [u32; 2]| {
        let [f, g] = funcs.map(|func| Symbol::enter(FuncId(func)).0);
        opened(&packed(&[vec![f, 0, g, 0, Symbol::EXIT.0, 1, Symbol::EXIT.0]])).expect("it is whole")
    };
    let differs =
        |one, other| first(&trace(one), &trace(other), ThreadId(0), &pairing).expect("both are whole");
    assert_eq!(differs([0, 2], [6, 7]), None);
    assert_eq!(differs([0, 2], [6, 5]), Some(2));
    assert_eq!(differs([0, 3], [6, 8]), Some(2));
}

#[test]
fn paths_of_one_alone_are_listed_by_how_often() {
    let names = |text: &str| Names::parse(text).expect("it is right");
    let a = names("0 0 0x10 main a.c:1\n1 0 0x20 f a.c:1\n2 0 0x30 old a.c:1\n");
    let b = names("0 0 0x10 f a.c:1\n1 0 0x20 main a.c:1\n2 0 0x30 new a.c:1\n");
    let paths = |list: &[(u32, &[u32], u64)]| {
        let mut all: BTreeMap<FuncId, BTreeMap<Vec<BlockId>, u64>> = BTreeMap::new();
        for (func, blocks, n) in list {
            all.entry(FuncId(*func)).or_default().insert(blocks.iter().copied().map(BlockId).collect(), *n);
        }
        all
    };
    let one = paths(&[(0, &[1, 2], 9), (0, &[2, 3], 1), (1, &[0, 1], 4), (2, &[0, 1], 2)]);
    let other = paths(&[(1, &[1, 2], 3), (1, &[2, 4], 5), (0, &[0, 1], 4), (2, &[0, 1], 2)]);
    let is = |is_second, func, blocks: &[u32], count| Alone {
        is_second,
        func: FuncId(func),
        blocks: blocks.iter().copied().map(BlockId).collect(),
        count,
    };
    let want = [
        is(true, 1, &[2, 4], 5),
        is(false, 2, &[0, 1], 2),
        is(true, 2, &[0, 1], 2),
        is(false, 0, &[2, 3], 1),
    ];
    assert_eq!(alone(&one, &other, &Pairing::new(&a, &b)), want);
}
