//! Paths of a length, held against all that each activation executed.

use super::Paths;
use crate::chunks::Codec;
use crate::ids::{BlockId, FuncId};
use crate::tests::{chunked, opened, packed, random_stream};
use crate::{Step, Symbol};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Each activation keeps all its blocks; when it is left, they are cut up.
fn oracle(streams: &[Vec<u32>], len: usize) -> BTreeMap<FuncId, Paths> {
    let mut all: BTreeMap<FuncId, Paths> = BTreeMap::new();
    for stream in streams {
        let mut open: Vec<(FuncId, Vec<BlockId>)> = Vec::new();
        for &code in stream {
            match Symbol(code).step() {
                Step::Enter(func) => open.push((func, Vec::new())),
                Step::Block(block) => open.last_mut().expect("balanced").1.push(block),
                Step::Exit => {
                    let (func, own) = open.pop().expect("balanced");
                    for path in own.windows(len) {
                        *all.entry(func).or_default().entry(path.to_vec()).or_insert(0) += 1;
                    }
                }
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn paths_are_counted_as_they_were_executed(seed: u64, n in 1..900_usize, len in 1..12_usize) {
        let streams: Vec<_> = (0..1 + seed % 3).map(|i| random_stream(seed ^ (i << 20), n)).collect();
        let want = oracle(&streams, len);
        let files = [chunked(&streams, Codec::Zstd, 1 + n / 7), packed(&streams)];
        for file in files {
            let trace = opened(&file).expect("it is whole");
            prop_assert_eq!(&trace.paths(len, None).expect("it is whole"), &want, "{} in {:x?}", len, &streams);
            for func in (0..5).map(FuncId) {
                let of = want.get(&func).map(|paths| (func, paths.clone()));
                prop_assert_eq!(trace.paths(len, Some(func)).expect("it is whole"), of.into_iter().collect::<BTreeMap<_, _>>());
            }
        }
    }
}
