//! Ranges, held against the stream itself with a stack over all that is before them.

use crate::chunks::Codec;
use crate::ids::ThreadId;
use crate::tests::{Rng, chunked, opened, packed, random_stream};
use crate::{Line, Step, Symbol};
use proptest::prelude::*;
use std::ops::ControlFlow;

fn oracle(stream: &[u32]) -> Vec<Line> {
    let mut open = Vec::new();
    let line = |(index, &code): (usize, &u32)| {
        let symbol = Symbol(code);
        if let Step::Enter(func) = symbol.step() {
            open.push(func);
        }
        let func = open.last().copied();
        if symbol.step() == Step::Exit {
            open.pop();
        }
        Line { index: index as u64, func, symbol }
    };
    stream.iter().enumerate().map(line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_have_their_symbols_and_functions(seed: u64, n in 1..600_usize) {
        let streams: Vec<_> = (0..1 + seed % 3).map(|i| random_stream(seed ^ (i << 20), n)).collect();
        let chunks = opened(&chunked(&streams, Codec::Zstd, 1 + n / 7)).expect("it is whole");
        let packed = opened(&packed(&streams)).expect("it is whole");
        let mut rng = Rng(seed ^ 0x2222);
        for (thread, stream) in (0..).map(ThreadId).zip(&streams) {
            let want = oracle(stream);
            let len = u32::try_from(stream.len()).expect("short");
            for i in 0..12 {
                let (a, b) = (rng.below(len + 1), rng.below(len + 1));
                let (start, end) = if i == 0 { (0, len) } else { (a.min(b), a.max(b)) };
                for trace in [&chunks, &packed] {
                    let mut got = Vec::new();
                    let end_of = trace.expand(thread, start.into()..end.into(), |line| {
                        got.push(line);
                        ControlFlow::<()>::Continue(())
                    });
                    prop_assert!(end_of.expect("it is whole").is_none());
                    prop_assert_eq!(&got, &want[start as usize..end as usize], "{}..{} of {:x?}", start, end, stream);
                }
            }
        }
    }
}

#[test]
fn nothing_is_behind_the_end_or_in_other_threads() {
    let stream = random_stream(3, 50);
    let n = stream.len() as u64;
    let trace = opened(&packed(&[stream])).expect("it is whole");
    let count = |thread: u32, range| {
        let mut n = 0;
        let take = |_| {
            n += 1;
            ControlFlow::<()>::Continue(())
        };
        trace.expand(ThreadId(thread), range, take).expect("it is whole");
        n
    };
    assert_eq!([count(0, n..n + 5), count(0, n - 1..n + 5), count(1, 0..5)], [0, 1, 0]);
}
