//! Counts by caller, held against stacks that keep everything.

use crate::chunks::Codec;
use crate::ids::{BlockId, FuncId};
use crate::tests::{Rng, chunked, ends_with, opened, packed, random_path, random_stream, widened};
use crate::{Path, Step, Symbol};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Each activation keeps all its blocks, and who called it.
fn oracle(streams: &[Vec<u32>], path: &Path) -> BTreeMap<Option<FuncId>, u64> {
    let mut counts = BTreeMap::new();
    for stream in streams {
        let mut open: Vec<(FuncId, Option<FuncId>, Vec<BlockId>)> = Vec::new();
        for &code in stream {
            match Symbol(code).step() {
                Step::Enter(func) => open.push((func, open.last().map(|(caller, ..)| *caller), Vec::new())),
                Step::Exit => drop(open.pop()),
                Step::Block(block) => {
                    let (of, caller, own) = open.last_mut().expect("the stream is balanced");
                    own.push(block);
                    if *of == path.func && ends_with(own, path) {
                        *counts.entry(*caller).or_insert(0) += 1;
                    }
                }
            }
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn callers_are_those_on_the_stack(seed: u64, n in 1..600_usize, len in 1..6_usize) {
        let streams: Vec<_> = (0..1 + seed % 3).map(|i| random_stream(seed ^ (i << 20), n)).collect();
        let chunks = opened(&chunked(&streams, Codec::Zstd, 1 + n / 7)).expect("it is whole");
        let packed = opened(&packed(&streams)).expect("it is whole");
        let mut rng = Rng(seed ^ 0x1111);
        for _ in 0..10 {
            let (func, blocks) = random_path(&mut rng, &streams[0], len);
            for path in [Path::of(func, &blocks), widened(&mut rng, func, &blocks)] {
                let want = oracle(&streams, &path);
                for trace in [&chunks, &packed] {
                    let got = trace.count_by_caller(&path).expect("it is whole");
                    prop_assert_eq!(&got, &want, "{:?} in {:x?}", &path, &streams);
                }
            }
        }
    }
}
