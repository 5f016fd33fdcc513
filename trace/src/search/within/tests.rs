//! Searches in ranges, held against all occurrences of which those are taken.

use super::Ranges;
use crate::chunks::Codec;
use crate::ids::ThreadId;
use crate::tests::{Rng, chunked, opened, oracle_of, packed, random_path, random_stream, widened};
use crate::{Path, Position, Scheme, Want};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_occurs_in_ranges_is_what_occurs_and_is_in_them(seed: u64, n in 1..600_usize, len in 1..4_usize) {
        let streams: Vec<_> = (0..1 + seed % 3).map(|i| random_stream(seed ^ (i << 20), n)).collect();
        let chunks = opened(&chunked(&streams, Codec::Zstd, 1 + n / 7)).expect("it is whole");
        let packed = opened(&packed(&streams)).expect("it is whole");
        let mut rng = Rng(seed ^ 0x4444);
        for _ in 0..3 {
            let mut ranges = Ranges::new();
            for (thread, stream) in (0..).map(ThreadId).zip(&streams) {
                let len = u32::try_from(stream.len()).expect("short");
                let (a, b) = (rng.below(len + 1), rng.below(len + 1));
                if a != b && rng.below(4) > 0 {
                    ranges.insert(thread, u64::from(a.min(b))..u64::from(a.max(b)));
                }
            }
            let (func, blocks) = random_path(&mut rng, &streams[0], len);
            for path in [Path::of(func, &blocks), widened(&mut rng, func, &blocks)] {
                let all = |(thread, range): (&ThreadId, &std::ops::Range<u64>)| {
                    let at = oracle_of(&streams[thread.index()], &path).into_iter();
                    let at = at.filter(|index| range.contains(index));
                    at.map(|index| Position { thread: *thread, index }).collect::<Vec<_>>()
                };
                let want: Vec<Position> = ranges.iter().flat_map(all).collect();
                let of_chunks = [None, Some(Scheme::Unpacked), Some(Scheme::Chunks)].map(|scheme| (&chunks, scheme));
                let of_packed = [None].into_iter().chain(Scheme::ALL.map(Some)).map(|scheme| (&packed, scheme));
                for (trace, scheme) in of_chunks.into_iter().chain(of_packed) {
                    let search = |want| trace.search_within(&path, want, scheme, &ranges).expect("it is whole").0;
                    let what = format!("{scheme:?}, {path:?} within {ranges:?} of {streams:x?}");
                    prop_assert_eq!(search(Want::Count).count, want.len() as u64, "{}", &what);
                    prop_assert_eq!(search(Want::First).first, want.first().copied(), "{}", &what);
                    let both = search(Want::CountAndFirst);
                    prop_assert_eq!((both.count, both.first), (want.len() as u64, want.first().copied()), "{}", &what);
                    prop_assert_eq!(&search(Want::All).all, &want, "{}", &what);
                    prop_assert_eq!(search(Want::Nth(2)).first, want.get(1).copied(), "{}", &what);
                    let each = search(Want::PerThread).threads;
                    prop_assert_eq!(each.iter().map(|(_, n)| n).sum::<u64>(), want.len() as u64, "{}", &what);
                }
            }
        }
    }
}
