//! Random traces, held against a search that is slow and plainly right.

use crate::grammar::{Grammar, Sequence, Terminal};
use crate::ids::{BlockId, FuncId, ThreadId};
use crate::trace::NAMES;
use crate::*;
use chunks::Codec;
use grammar::{coder, pack, segments};
use proptest::prelude::*;
use search::columns;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::ops::ControlFlow;

/// A balanced stream: recursion, repeated bodies, several exits at once (as `longjmp` makes them), entries in
/// the middle.
pub(crate) fn random_stream(seed: u64, n: usize) -> Vec<u32> {
    let mut rng = Rng(seed | 1);
    let n_funcs = 1 + rng.below(5);
    let n_blocks = 1 + rng.below(6);
    let deepest = 1 + rng.below(12) as usize;
    let (mut out, mut depth): (Vec<u32>, usize) = (Vec::new(), 0);
    while out.len() < n {
        match rng.below(12) {
            0 | 1 if depth < deepest => {
                out.push(Symbol::enter(FuncId(rng.below(n_funcs))).0);
                depth += 1;
                if rng.below(8) > 0 {
                    out.push(0);
                }
            }
            2 if depth > 1 => {
                out.push(Symbol::EXIT.0);
                depth -= 1;
            }
            3 if depth > 3 && rng.below(6) == 0 => {
                let jumped = 1 + rng.below(3);
                (0..jumped).for_each(|_| out.push(Symbol::EXIT.0));
                depth -= jumped as usize;
            }
            4 | 5 if out.len() > 8 => {
                // What ran before runs again, as far as it fits.
                let from = rng.below(u32::try_from(out.len()).expect("short")) as usize;
                let len = 1 + rng.below(60) as usize;
                let again = out[from..(from + len).min(out.len())].to_vec();
                for code in again {
                    match Symbol(code).step() {
                        Step::Enter(_) if depth < deepest => depth += 1,
                        Step::Exit if depth > 1 => depth -= 1,
                        Step::Block(_) if depth > 0 => {}
                        _ => break,
                    }
                    out.push(code);
                }
            }
            _ if depth > 0 => out.push(rng.below(n_blocks)),
            _ => {
                out.push(Symbol::enter(FuncId(rng.below(n_funcs))).0);
                depth += 1;
            }
        }
    }
    (0..depth).for_each(|_| out.push(Symbol::EXIT.0));
    out
}

pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).expect("31 bits") % n
    }
}

/// Each activation keeps all its blocks; a path occurs wherever they end with it.
fn oracle(streams: &[Vec<u32>], path: &Path) -> Vec<Position> {
    let of = |(thread, stream): (usize, &Vec<u32>)| {
        let thread = ThreadId(u32::try_from(thread).expect("few"));
        oracle_of(stream, path).into_iter().map(move |index| Position { thread, index }).collect::<Vec<_>>()
    };
    streams.iter().enumerate().flat_map(of).collect()
}

pub(crate) fn oracle_of(stream: &[u32], path: &Path) -> Vec<u64> {
    let mut open: Vec<(FuncId, Vec<BlockId>)> = Vec::new();
    let mut found = Vec::new();
    for (index, &code) in (0..).zip(stream) {
        match Symbol(code).step() {
            Step::Enter(func) => open.push((func, Vec::new())),
            Step::Exit => drop(open.pop()),
            Step::Block(block) => {
                let Some((func, own)) = open.last_mut() else { continue };
                own.push(block);
                if *func == path.func && ends_with(own, path) {
                    found.push(index);
                }
            }
        }
    }
    found
}

/// Whether blocks end with a path: from its last step on, which beginnings of the blocks may stand before
/// what has been matched.
pub(crate) fn ends_with(blocks: &[BlockId], path: &Path) -> bool {
    let mut ends: BTreeSet<usize> = [blocks.len()].into();
    for step in path.steps.iter().rev() {
        let mut starts = BTreeSet::new();
        let mut todo: Vec<usize> = ends.into_iter().collect();
        while let Some(start) = todo.pop().and_then(|end| end.checked_sub(1)) {
            if step.blocks.contains(&blocks[start]) && starts.insert(start) && step.repeats {
                todo.push(start);
            }
        }
        if let (true, Some(&last)) = (step.after_gap, starts.last()) {
            starts = (0..=last).collect();
        }
        ends = starts;
    }
    !ends.is_empty()
}

/// A path with a gap, alternatives and repetition that starts and ends as a plain one does.
pub(crate) fn widened(rng: &mut Rng, FuncId(func): FuncId, blocks: &[BlockId]) -> Path {
    let (first, last) = (blocks[0].0, blocks[blocks.len() - 1].0);
    let text = match rng.below(5) {
        0 => format!("#{func}: {first} .. {last}"),
        1 => format!("#{func}: {first}|{last}+"),
        2 => format!("#{func}: {first} 0|1|2+ {last}"),
        3 => format!("#{func}: {first} .. {last} .. 0|{first}"),
        _ => format!("#{func}: {first} .. 0|1+ {last}"),
    };
    Path::parse(&text, &Names::default()).expect("it is a path")
}

/// A path of length `len` that runs somewhere in the stream, or almost.
pub(crate) fn random_path(rng: &mut Rng, stream: &[u32], len: usize) -> (FuncId, Vec<BlockId>) {
    let mut open: Vec<(FuncId, Vec<BlockId>)> = Vec::new();
    let stop = rng.below(u32::try_from(stream.len()).expect("short")) as usize;
    let mut best = (FuncId(0), vec![BlockId(0)]);
    for &code in &stream[..=stop] {
        match Symbol(code).step() {
            Step::Enter(func) => open.push((func, Vec::new())),
            Step::Exit => best = open.pop().expect("balanced"),
            Step::Block(block) => open.last_mut().expect("balanced").1.push(block),
        }
    }
    let (func, mut blocks) = open.pop().unwrap_or(best);
    blocks = blocks.split_off(blocks.len().saturating_sub(len));
    if blocks.is_empty() {
        blocks.push(BlockId(0));
    }
    if rng.below(10) == 0 {
        let at = rng.below(u32::try_from(blocks.len()).expect("short")) as usize;
        blocks[at] = BlockId(rng.below(6));
    }
    (func, blocks)
}

pub(crate) fn opened(bytes: &[u8]) -> Result<Trace, ReadError> {
    let mut file = tempfile::tempfile().expect("there is room");
    file.write_all(bytes).expect("there is room");
    Trace::open(file)
}

/// A file of several streams in chunks of `len` symbols, as a recorder writes it: the chunks of the streams
/// mixed.
pub(crate) fn chunked(streams: &[Vec<u32>], codec: Codec, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sections = file::Sections::create(&mut out).expect("a vector takes all");
    let number = |i: usize| ThreadId(u32::try_from(i).expect("few"));
    let mut open: Vec<_> =
        (0..streams.len()).map(|i| chunks::Stream::new(number(i), codec).with_chunks_of(len)).collect();
    let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
    for i in 0..longest {
        for (stream, open) in streams.iter().zip(&mut open) {
            let Some(&code) = stream.get(i) else { continue };
            if let Some(chunk) = open.push(Symbol(code)).expect("it is balanced") {
                sections.write(&chunk).expect("a vector takes all");
            }
        }
    }
    open.iter_mut()
        .filter_map(chunks::Stream::flush)
        .for_each(|chunk| sections.write(&chunk).expect("a vector takes all"));
    sections.finish().expect("a vector takes all");
    out
}

/// The same streams as a packed file.
pub(crate) fn packed(streams: &[Vec<u32>]) -> Vec<u8> {
    packed_by(Maker::Sequitur, streams)
}

fn packed_by(maker: Maker, streams: &[Vec<u32>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sections = file::Sections::create(&mut out).expect("a vector takes all");
    let mut builder = pack::Builder::new(maker);
    for (thread, stream) in (0..).map(ThreadId).zip(streams) {
        let mut balance = Balance::default();
        for &code in stream {
            let func = balance.push(Symbol(code)).expect("it is balanced");
            builder.push(func, Symbol(code));
        }
        builder.end(thread);
    }
    builder.finish(&mut sections).expect("a vector takes all");
    sections.finish().expect("a vector takes all");
    out
}

pub(crate) fn symbols_of(trace: &Trace) -> Vec<(ThreadId, Vec<u32>)> {
    let mut all: Vec<(ThreadId, Vec<u32>)> = Vec::new();
    let end = trace.read(|thread, symbols| {
        match all.last_mut().filter(|(last, _)| *last == thread) {
            Some((_, stream)) => stream.extend(symbols),
            None => all.push((thread, symbols.to_vec())),
        }
        ControlFlow::<()>::Continue(())
    });
    assert!(end.expect("it is whole").is_none());
    all
}

/// Every scheme finds what the oracle finds.
fn check_search(trace: &Trace, schemes: &[Scheme], streams: &[Vec<u32>], path: &Path) {
    let want = oracle(streams, path);
    let automaton = Automaton::new(path).expect("it is small");
    for &scheme in schemes {
        let search = |want| trace.search(&automaton, want, Some(scheme)).expect("the file has it").0;
        let what = format!("scheme {scheme:?}, {path:?} in {streams:x?}");
        assert_eq!(search(Want::Count).count, want.len() as u64, "{what}");
        let both = search(Want::CountAndFirst);
        assert_eq!((both.count, both.first), (want.len() as u64, want.first().copied()), "{what}");
        assert_eq!(search(Want::First).first, want.first().copied(), "{what}");
        assert_eq!(search(Want::All).all, want, "{what}");
        for n in [1, 2, want.len() / 2, want.len(), want.len() + 1] {
            let nth = n.checked_sub(1).and_then(|i| want.get(i)).copied();
            assert_eq!(search(Want::Nth(n as u64)).first, nth, "{n}th, {what}");
        }
        for (thread, stream) in (0..).map(ThreadId).zip(streams) {
            let here = || want.iter().filter(|p| p.thread == thread).copied();
            let found = search(Want::PerThread).threads;
            let n = found.iter().find(|(t, _)| *t == thread).map_or(0, |(_, n)| *n);
            assert_eq!(n, here().count() as u64, "in {thread:?}, {what}");
            let near = here().nth(here().count() / 2).map_or(0, |p| p.index);
            for index in [0, near, near + 1, stream.len() as u64 / 2, stream.len() as u64 - 1] {
                let at = Position { thread, index };
                let what = format!("{at:?}, {what}");
                assert_eq!(search(Want::Next(at)).first, here().find(|p| p.index > index), "next {what}");
                let before = here().filter(|p| p.index < index);
                assert_eq!(search(Want::Previous(at)).first, before.clone().next_back(), "previous {what}");
                assert_eq!(search(Want::CountBefore(at)).count, before.count() as u64, "before {what}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_store_gives_back_every_symbol(seed: u64, n in 1..400_usize) {
        let streams = [random_stream(seed, n), random_stream(seed ^ 0x77, n / 2 + 1)];
        let archived = packed_by(Maker::Repair, &streams);
        let files = [chunked(&streams, Codec::Zlib, 50), chunked(&streams, Codec::Zstd, 50), packed(&streams), archived];
        for file in files {
            let trace = opened(&file).expect("it is whole");
            prop_assert_eq!(symbols_of(&trace), vec![(ThreadId(0), streams[0].clone()), (ThreadId(1), streams[1].clone())]);
        }
    }

    #[test]
    fn all_schemes_find_what_a_naive_search_finds(seed: u64, n in 1..600_usize, len in 1..33_usize) {
        let streams: Vec<_> = (0..1 + seed % 3).map(|i| random_stream(seed ^ (i << 20), n)).collect();
        let chunks = opened(&chunked(&streams, Codec::Zstd, 1 + n / 7)).expect("it is whole");
        let maker = if seed % 4 == 0 { Maker::Repair } else { Maker::Sequitur };
        let packed = opened(&packed_by(maker, &streams)).expect("it is whole");
        let mut rng = Rng(seed ^ 0x5555);
        for _ in 0..5 {
            let (func, blocks) = random_path(&mut rng, &streams[0], len);
            for path in [Path::of(func, &blocks), widened(&mut rng, func, &blocks)] {
                check_search(&chunks, &[Scheme::Unpacked, Scheme::Chunks], &streams, &path);
                check_search(&packed, &Scheme::ALL, &streams, &path);
            }
        }
    }

    #[test]
    fn a_recording_that_is_packed_holds_the_same(seed: u64, n in 1..300_usize) {
        let streams = [random_stream(seed, n), random_stream(seed ^ 0x77, n)];
        let recorded = opened(&chunked(&streams, Codec::Zstd, 40)).expect("it is whole");
        let mut packed_again = Vec::new();
        import::repack(&recorded, &mut packed_again, Stores::PACKED).expect("it is whole");
        prop_assert_eq!(&packed_again, &packed(&streams));
        let mut chunks = Vec::new();
        let stores = Stores { grammar: None, chunks: Some(Codec::Zlib) };
        import::repack(&opened(&packed_again).expect("it is whole"), &mut chunks, stores).expect("it is whole");
        prop_assert_eq!(symbols_of(&opened(&chunks).expect("it is whole")), symbols_of(&recorded));
    }

    #[test]
    fn damaged_files_are_refused_or_read_up_to_the_damage(seed: u64, n in 1..300_usize, at: u32, byte: u8, kind in 0..3_usize) {
        let streams = [random_stream(seed, n), random_stream(seed ^ 0x77, n)];
        let mut file = match kind {
            0 => chunked(&streams, Codec::Zlib, 40),
            1 => chunked(&streams, Codec::Zstd, 40),
            _ => packed(&streams),
        };
        let at = at as usize % file.len();
        file[at] ^= byte.max(1);
        use_up(&file);
        // The same behind the checksums: what a section says need not be true.
        if let Some(file) = file::resealed(&file) {
            use_up(&file);
        }
    }
}

/// Asks everything of a file that may be damaged; only what it answers with is of no account.
fn use_up(file: &[u8]) {
    let Ok(trace) = opened(file) else { return };
    let automaton = Automaton::new(&Path::of(FuncId(0), &[0, 1].map(BlockId))).expect("it is plain");
    let _damaged = (
        trace.names(),
        trace.threads(),
        trace.stats(),
        trace.count_by_caller(&Path::of(FuncId(0), &[0, 1].map(BlockId))),
    );
    let same = diff::Pairing::new(&Names::default(), &Names::default());
    let _damaged = diff::first(&trace, &trace, ThreadId(0), &same);
    let _damaged = trace.expand(ThreadId(0), 20..60, |_| ControlFlow::<()>::Continue(()));
    let _damaged = trace.paths(3, None);
    let through = Path::parse("#0: 0 {#1: 0} 1", &Names::default()).expect("it is a path");
    let _damaged = (trace.search_path(&through, Want::All, None), trace.count_by_caller(&through));
    for scheme in Scheme::ALL {
        let at = Position { thread: ThreadId(0), index: 30 };
        for want in [Want::Count, Want::First, Want::All, Want::Nth(3), Want::Next(at), Want::Previous(at)] {
            let _damaged = trace.search(&automaton, want, Some(scheme));
        }
    }
}

/// What is passed over is passed over by what heads and indices say: a bit of them that has changed is seen,
/// or makes no difference.
#[test]
fn no_changed_bit_has_chunks_passed_over() {
    let stream = random_stream(11, 300);
    let file = chunked(std::slice::from_ref(&stream), Codec::Zlib, 64);
    let whole = opened(&file).expect("it is whole");
    let paths: Vec<Automaton> = (0..4)
        .map(FuncId)
        .map(|func| Automaton::new(&Path::of(func, &[0].map(BlockId))).expect("a path"))
        .collect();
    let counts = |trace: &Trace| -> Result<Vec<u64>, _> {
        let count =
            |path| trace.search(path, Want::CountAndFirst, Some(Scheme::Chunks)).map(|found| found.0.count);
        paths.iter().map(count).collect()
    };
    let want = counts(&whole).expect("it is whole");
    assert!(want.iter().sum::<u64>() > 0);
    let mut n_seen = 0;
    for (n, bit) in (0..file.len()).flat_map(|n| (0..8).map(move |bit| (n, bit))) {
        let mut changed = file.clone();
        changed[n] ^= 1 << bit;
        match opened(&changed) {
            Ok(trace) if trace.cut().is_none() => match counts(&trace) {
                Ok(got) => assert_eq!(got, want, "byte {n}, bit {bit}"),
                Err(_) => n_seen += 1,
            },
            _ => n_seen += 1,
        }
    }
    assert!(n_seen > file.len());
}

#[test]
fn a_cut_file_has_every_chunk_that_was_complete() {
    let stream = random_stream(7, 400);
    let file = chunked(std::slice::from_ref(&stream), Codec::Zstd, 64);
    let mut longest = 0;
    for n in 0..file.len() {
        let Ok(trace) = opened(&file[..n]) else {
            assert!(n < 16, "cut at {n}");
            continue;
        };
        assert!(trace.cut().is_some(), "cut at {n}");
        let mut got = Vec::new();
        let read = trace.read(|_, symbols| {
            got.extend_from_slice(symbols);
            ControlFlow::<()>::Continue(())
        });
        // Before the first chunk is complete, nothing is known.
        assert!(read.is_ok() != matches!(read, Err(ReadError::Cut { .. })), "cut at {n}");
        assert_eq!(read.is_ok(), !got.is_empty(), "cut at {n}");
        assert!(stream.starts_with(&got) && (got.len().is_multiple_of(64) || got == stream), "cut at {n}");
        assert!(got.len() >= longest, "cut at {n}");
        longest = got.len();
    }
    // Only what says that the file is whole was missing.
    assert_eq!(longest, stream.len());
}

/// What is asked of a packed file, as text; `None` where it gives an error.
fn answers(trace: &Trace, path: &Path) -> Vec<Option<String>> {
    let mut all = Vec::new();
    fn say<T: std::fmt::Debug, E>(all: &mut Vec<Option<String>>, answer: Result<T, E>) {
        all.push(answer.ok().map(|answer| format!("{answer:?}")));
    }
    let automaton = Automaton::new(path).expect("it is small");
    let at = Position { thread: ThreadId(0), index: 200 };
    for scheme in [None].into_iter().chain(Scheme::ALL.map(Some)) {
        for want in
            [Want::Count, Want::CountAndFirst, Want::All, Want::Nth(2), Want::Next(at), Want::PerThread]
        {
            say(&mut all, trace.search(&automaton, want, scheme).map(|(found, _)| found));
        }
    }
    let mut symbols = Vec::new();
    let read = trace.read(|thread, piece| {
        symbols.push((thread, piece.to_vec()));
        ControlFlow::<()>::Continue(())
    });
    say(&mut all, read.map(|_| symbols));
    say(&mut all, trace.threads());
    say(&mut all, trace.stats());
    say(&mut all, trace.block_counts(None));
    say(&mut all, trace.paths(2, None));
    say(&mut all, trace.count_by_caller(path));
    say(&mut all, trace.open_at(ThreadId(0), 200));
    all
}

/// A packed file that is cut gives errors, or the answers of the whole one; what its grammar tells as soon as
/// that is complete.
#[test]
fn a_cut_packed_file_answers_as_the_whole_one_or_not_at_all() {
    let streams = [random_stream(7, 400), random_stream(8, 300)];
    let mut rng = Rng(5);
    let (func, blocks) = random_path(&mut rng, &streams[0], 2);
    for path in [Path::of(func, &blocks), widened(&mut rng, func, &blocks)] {
        let file = packed(&streams);
        let whole = answers(&opened(&file).expect("it is whole"), &path);
        assert!(whole.iter().all(Option::is_some), "{whole:?}");
        let mut n_answered = BTreeSet::new();
        for n in 16..file.len() {
            let trace = opened(&file[..n]).expect("where its sections are is known");
            let got = answers(&trace, &path);
            for (i, (got, want)) in got.iter().zip(&whole).enumerate() {
                assert!(got.is_none() || got == want, "cut at {n}, question {i}: {got:?}, not {want:?}");
            }
            n_answered.insert(got.iter().flatten().count());
        }
        // Nothing; all but what columns count, by the grammar alone; all.
        assert_eq!(n_answered.into_iter().collect::<Vec<_>>(), [0, whole.len() - 6, whole.len()]);
    }
}

/// Whatever byte of a packed file is damaged: it is refused, or answers as before.
#[test]
fn a_damaged_packed_file_answers_as_before_or_not_at_all() {
    let stream = random_stream(9, 300);
    let path = Path::of(FuncId(0), &[0].map(BlockId));
    let file = packed(&[stream]);
    let whole = answers(&opened(&file).expect("it is whole"), &path);
    for at in 0..file.len() {
        let mut file = file.clone();
        file[at] ^= 0x10;
        let Ok(trace) = opened(&file) else { continue };
        for (i, (got, want)) in answers(&trace, &path).iter().zip(&whole).enumerate() {
            assert!(got.is_none() || got == want, "damaged at {at}, question {i}: {got:?}, not {want:?}");
        }
    }
}

/// A grammar whose rules are each twice the one before, over `start`; with a checksum, as a file.
fn doubled(terminals: &[Terminal], start: &[u32], n: u32) -> Vec<u8> {
    let n_terminals = u32::try_from(terminals.len()).expect("few");
    let mut bodies = start.to_vec();
    let mut ends = vec![u32::try_from(start.len()).expect("short")];
    for rule in 0..n {
        bodies.extend([n_terminals + rule; 2]);
        ends.push(u32::try_from(bodies.len()).expect("short"));
    }
    let sequences = vec![Sequence { thread: ThreadId(0), body: vec![n_terminals + n; 2] }];
    let grammar = Grammar { terminals: terminals.to_vec(), bodies, ends, sequences };
    let mut out = Vec::new();
    let mut sections = file::Sections::create(&mut out).expect("a vector takes all");
    sections
        .write(&file::section(coder::GRAMMAR, &coder::write_grammar(&grammar)))
        .expect("a vector takes all");
    sections.finish().expect("a vector takes all");
    out
}

/// Few bytes may stand for more symbols than there is time for, or more open functions than there is memory
/// for.
#[test]
fn grammars_that_grow_beyond_measure_are_refused() {
    let terminal = |func, symbol| Terminal { func, symbol };
    let terminals = [
        terminal(FuncId(0), Symbol::block(BlockId(0))),
        terminal(FuncId(0), Symbol::enter(FuncId(0))),
        terminal(Terminal::NO_FUNC, Symbol::EXIT),
    ];
    let [block, enter, exit] = [0, 1, 2];
    let automaton =
        Automaton::new(&Path::parse("#0: 0 .. 0", &Names::default()).expect("a path")).expect("small");
    let counted = |start: &[u32], n| {
        let trace = opened(&doubled(&terminals, start, n)).expect("its sections are whole");
        let found = trace.search(&automaton, Want::Count, Some(Scheme::Grammar));
        found.map(|(found, _)| found.count).map_err(|err| err.to_string())
    };
    let refused = Err("it is damaged: the grammar at byte 0x28".to_owned());
    // Calls that return, so many that their number does not fit 32 bits; each block but the first of each
    // ends the path.
    assert_eq!(counted(&[enter, block, block, block, exit], 40), Ok(2 << 41));
    for n in [45, 63, 64, 200] {
        assert_eq!(counted(&[enter, block, block, block, exit], n), refused, "{n}");
    }
    // Calls that do not return, and returns from nothing.
    for start in [[enter, block], [exit, exit]] {
        assert_eq!(counted(&start, 4), Ok(0));
        for n in [27, 40, 100] {
            assert_eq!(counted(&start, n), refused, "{n}");
        }
    }
}

/// The occurrences of a path with gaps that begin before a rule are more than its length, and add up over
/// rules.
#[test]
fn occurrences_beyond_32_bits_are_counted() {
    let terminal = |func, symbol| Terminal { func, symbol };
    let terminals = [
        terminal(FuncId(0), Symbol::block(BlockId(1))),
        terminal(FuncId(0), Symbol::block(BlockId(3))),
        terminal(FuncId(0), Symbol::enter(FuncId(0))),
    ];
    // One activation: block 1, then 3 for 2^34 times.
    let n_terminals = 3;
    let mut bodies = vec![1, 1];
    let mut ends = vec![2];
    for rule in 0..33 {
        bodies.extend([n_terminals + rule; 2]);
        ends.push(u32::try_from(bodies.len()).expect("short"));
    }
    let sequences = vec![Sequence { thread: ThreadId(0), body: vec![2, 0, n_terminals + 33] }];
    let grammar = Grammar { terminals: terminals.to_vec(), bodies, ends, sequences };
    let mut out = Vec::new();
    let mut sections = file::Sections::create(&mut out).expect("a vector takes all");
    for (tag, bytes) in [
        (coder::GRAMMAR, coder::write_grammar(&grammar)),
        (columns::COLUMNS, columns::write(&columns::of_grammar(&grammar))),
    ] {
        sections.write(&file::section(tag, &bytes)).expect("a vector takes all");
    }
    sections.finish().expect("a vector takes all");
    let trace = opened(&out).expect("it is whole");
    let path = Path::parse("#0: 1 .. 3", &Names::default()).expect("it is a path");
    let automaton = Automaton::new(&path).expect("it is small");
    for scheme in [Scheme::Grammar, Scheme::Segments, Scheme::Columns] {
        assert_eq!(
            trace.search(&automaton, Want::Count, Some(scheme)).expect("it is whole").0.count,
            1 << 34
        );
    }
    let first = trace.search(&automaton, Want::CountAndFirst, None).expect("it is whole");
    assert_eq!((first.0.count, first.0.first), (1 << 34, Some(Position { thread: ThreadId(0), index: 2 })));
    assert_eq!(first.1, Scheme::Segments);
    assert_eq!(trace.count_by_caller(&path).expect("it is whole"), [(None, 1 << 34)].into());
}

/// What is said to be how it was searched is how.
#[test]
fn the_scheme_that_is_told_is_the_one_that_was_used() {
    let stream = random_stream(3, 300);
    let trace = opened(&packed(&[stream])).expect("it is whole");
    let used = |func, want, scheme| {
        let automaton = Automaton::new(&Path::of(FuncId(func), &[0].map(BlockId))).expect("it is plain");
        trace.search(&automaton, want, scheme).expect("it is whole").1
    };
    assert_eq!(used(0, Want::Count, None), Scheme::Columns);
    assert_eq!(used(0, Want::Count, Some(Scheme::Columns)), Scheme::Columns);
    assert_eq!(used(0, Want::All, Some(Scheme::Columns)), Scheme::Segments);
    // That it does not occur, columns know.
    assert_eq!(used(99, Want::All, Some(Scheme::Columns)), Scheme::Columns);
    assert_eq!(used(0, Want::First, Some(Scheme::Grammar)), Scheme::Grammar);
}

/// A few bytes that unpack to very many are refused, wherever they stand.
#[test]
fn what_unpacks_to_more_than_makes_sense_is_refused() {
    let stream = random_stream(3, 300);
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).expect("there is memory");
    assert!(bomb.len() < 8 << 10 && file::unpacked(&bomb, 64 << 20).is_some());
    assert!(file::unpacked(&bomb, (64 << 20) - 1).is_none() && file::unpacked_words(&bomb).is_none());
    let with = |tag, bytes: &[u8]| {
        let whole = packed(std::slice::from_ref(&stream));
        let mut out = whole[..16].to_vec();
        out.extend(file::section(tag, bytes));
        out.extend(&whole[16..]);
        opened(&out).expect("its sections are whole")
    };
    assert!(with(NAMES, &bomb).names().is_err());
    assert!(with(flow::FLOW, &bomb).flow().is_err());
    assert!(with(segments::SEGMENTS, &bomb).load_grammar().is_err());
    assert!(with(*b"CODE", &bomb).codes().is_err());
    assert!(with(*b"JUNK", &bomb).load_grammar().is_ok());
}

#[test]
fn foreign_files_and_other_versions_are_named() {
    let says = |file: &[u8]| opened(file).err().map(|err| err.to_string());
    assert_eq!(says(b"\x7fELF and so on, and so on"), Some("it is no trace of engraft".to_owned()));
    let mut file = chunked(&[random_stream(1, 50)], Codec::Zstd, 64);
    file[8] = 1;
    assert_eq!(says(&file), Some("it is a trace of version 1; this engraft reads version 2".to_owned()));
}

/// What is all the same takes next to no bytes, and is read all the same.
#[test]
fn many_equal_threads_are_packed() {
    let one: Vec<u32> =
        [Symbol::enter(FuncId(7)), Symbol::block(BlockId(0)), Symbol::EXIT].map(|symbol| symbol.0).to_vec();
    let file = packed(&vec![one; 50_000]);
    let trace = opened(&file).expect("it is whole");
    assert_eq!(trace.block_counts(None).expect("it can be read"), [((FuncId(7), BlockId(0)), 50_000)].into());
    let path = Automaton::new(&Path::of(FuncId(7), &[0].map(BlockId))).expect("it is short");
    for scheme in [Scheme::Grammar, Scheme::Columns] {
        let found = trace.search(&path, Want::Count, Some(scheme)).expect("it can be read").0;
        assert_eq!(found.count, 50_000, "{scheme:?}");
    }
}

/// Numbers that only a damaged file has take no room.
#[test]
fn huge_numbers_are_counted_too() {
    let (func, block) = (FuncId((1 << 29) - 5), BlockId((1 << 28) - 5));
    let one = [Symbol::enter(func), Symbol::block(BlockId(0)), Symbol::block(block), Symbol::EXIT];
    let stream: Vec<u32> = one.iter().map(|symbol| symbol.0).collect();
    let file = chunked(&[stream.repeat(2)], Codec::Zstd, 64);
    let counts = opened(&file).expect("it is whole").block_counts(None).expect("it can be read");
    assert_eq!(counts, [((func, BlockId(0)), 2), ((func, block), 2)].into());
}
