//! Random traces, held against a search that is slow and plainly right.

use crate::*;
use chunks::Codec;
use proptest::prelude::*;
use std::io::Write as _;
use std::ops::ControlFlow;

/// A balanced stream: recursion, repeated bodies, several exits at once (as `longjmp` makes them), entries in the middle.
pub(crate) fn random_stream(seed: u64, n: usize) -> Vec<u32> {
    let mut rng = Rng(seed | 1);
    let n_funcs = 1 + rng.below(5);
    let n_blocks = 1 + rng.below(6);
    let deepest = 1 + rng.below(12) as usize;
    let (mut out, mut depth): (Vec<u32>, usize) = (Vec::new(), 0);
    while out.len() < n {
        match rng.below(12) {
            0 | 1 if depth < deepest => {
                out.push(Symbol::enter(rng.below(n_funcs)).0);
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
                out.push(Symbol::enter(rng.below(n_funcs)).0);
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
fn oracle(streams: &[Vec<u32>], func: u32, blocks: &[u32]) -> Vec<Position> {
    let of = |(thread, stream): (usize, &Vec<u32>)| {
        let thread = u32::try_from(thread).expect("few");
        oracle_of(stream, func, blocks)
            .into_iter()
            .map(move |index| Position { thread, index })
            .collect::<Vec<_>>()
    };
    streams.iter().enumerate().flat_map(of).collect()
}

fn oracle_of(stream: &[u32], func: u32, blocks: &[u32]) -> Vec<u64> {
    let mut open: Vec<(u32, Vec<u32>)> = Vec::new();
    let mut found = Vec::new();
    for (index, &code) in stream.iter().enumerate() {
        match Symbol(code).step() {
            Step::Enter(func) => open.push((func, Vec::new())),
            Step::Exit => drop(open.pop()),
            Step::Block(block) => {
                let (of, own) = open.last_mut().expect("the stream is balanced");
                own.push(block);
                if *of == func && own.ends_with(blocks) {
                    found.push(index as u64);
                }
            }
        }
    }
    found
}

/// A path of length `len` that runs somewhere in the stream, or almost.
pub(crate) fn random_path(rng: &mut Rng, stream: &[u32], len: usize) -> (u32, Vec<u32>) {
    let mut open: Vec<(u32, Vec<u32>)> = Vec::new();
    let stop = rng.below(u32::try_from(stream.len()).expect("short")) as usize;
    let mut best = (0, vec![0]);
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
        blocks.push(0);
    }
    if rng.below(10) == 0 {
        let at = rng.below(u32::try_from(blocks.len()).expect("short")) as usize;
        blocks[at] = rng.below(6);
    }
    (func, blocks)
}

pub(crate) fn opened(bytes: &[u8]) -> Result<Trace, ReadError> {
    let mut file = tempfile::tempfile().expect("there is room");
    file.write_all(bytes).expect("there is room");
    Trace::open(file)
}

/// A file of several streams in chunks of `len` symbols, as a recorder writes it: the chunks of the streams mixed.
pub(crate) fn chunked(streams: &[Vec<u32>], codec: Codec, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sections = file::Sections::create(&mut out).expect("a vector takes all");
    let number = |i: usize| u32::try_from(i).expect("few");
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
    for (thread, stream) in (0..).zip(streams) {
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

pub(crate) fn symbols_of(trace: &Trace) -> Vec<(u32, Vec<u32>)> {
    let mut all: Vec<(u32, Vec<u32>)> = Vec::new();
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

const PACKED: [Scheme; 5] = Scheme::ALL;

/// Every scheme finds what the oracle finds.
fn check_search(trace: &Trace, schemes: &[Scheme], streams: &[Vec<u32>], func: u32, blocks: &[u32]) {
    let want = oracle(streams, func, blocks);
    let automaton = Automaton::new(&Path::of(func, blocks)).expect("it is plain");
    for &scheme in schemes {
        let search = |want| trace.search(&automaton, want, Some(scheme)).expect("the file has it").0;
        let what = format!("scheme {scheme:?}, #{func}: {blocks:?} in {streams:x?}");
        assert_eq!(search(Want::Count).count, want.len() as u64, "{what}");
        assert_eq!(search(Want::First).first, want.first().copied(), "{what}");
        assert_eq!(search(Want::All).all, want, "{what}");
        for n in [1, 2, want.len() / 2, want.len(), want.len() + 1] {
            let nth = n.checked_sub(1).and_then(|i| want.get(i)).copied();
            assert_eq!(search(Want::Nth(n as u64)).first, nth, "{n}th, {what}");
        }
        for (thread, stream) in (0..).zip(streams) {
            let here = || want.iter().filter(|p| p.thread == thread).copied();
            let found = search(Want::PerThread).threads;
            let n = found.iter().find(|(t, _)| *t == thread).map_or(0, |(_, n)| *n);
            assert_eq!(n, here().count() as u64, "in thread {thread}, {what}");
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
            prop_assert_eq!(symbols_of(&trace), vec![(0, streams[0].clone()), (1, streams[1].clone())]);
        }
    }

    #[test]
    fn all_schemes_find_what_a_naive_search_finds(seed: u64, n in 1..600_usize, len in 1..33_usize) {
        let streams: Vec<_> = (0..1 + seed % 3).map(|i| random_stream(seed ^ (i << 20), n)).collect();
        let chunks = opened(&chunked(&streams, Codec::Zstd, 1 + n / 7)).expect("it is whole");
        let maker = if seed % 4 == 0 { Maker::Repair } else { Maker::Sequitur };
        let packed = opened(&packed_by(maker, &streams)).expect("it is whole");
        let mut rng = Rng(seed ^ 0x5555);
        for _ in 0..10 {
            let (func, blocks) = random_path(&mut rng, &streams[0], len);
            check_search(&chunks, &[Scheme::Unpacked, Scheme::Chunks], &streams, func, &blocks);
            check_search(&packed, &PACKED, &streams, func, &blocks);
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
        if let Some(file) = with_right_checksums(&file) {
            use_up(&file);
        }
    }
}

/// Asks everything of a file that may be damaged; only what it answers with is of no account.
fn use_up(file: &[u8]) {
    let Ok(trace) = opened(file) else { return };
    let automaton = Automaton::new(&Path::of(0, &[0, 1])).expect("it is plain");
    let _damaged =
        (trace.names(), trace.threads(), trace.stats(), trace.count_by_caller(&Path::of(0, &[0, 1])));
    let same = divergence::Pairing::new(&Names::default(), &Names::default());
    let _damaged = divergence::first(&trace, &trace, 0, &same);
    let _damaged = trace.expand(0, 20..60, |_| ControlFlow::<()>::Continue(()));
    let _damaged = trace.paths(3, None);
    let through = Path::parse("#0: 0 {#1: 0} 1", &Names::default()).expect("it is a path");
    let _damaged = (trace.search_path(&through, Want::All, None), trace.count_by_caller(&through));
    for scheme in Scheme::ALL {
        let at = Position { thread: 0, index: 30 };
        for want in [Want::Count, Want::First, Want::All, Want::Nth(3), Want::Next(at), Want::Previous(at)] {
            let _damaged = trace.search(&automaton, want, Some(scheme));
        }
    }
}

/// The sections of `file`, as far as they can be told apart, with checksums that fit.
fn with_right_checksums(file: &[u8]) -> Option<Vec<u8>> {
    let (start, mut rest) = file.split_at_checked(16)?;
    let mut out = start.to_vec();
    while let Some((head, behind)) = rest.split_at_checked(24) {
        let len = usize::try_from(u64::from_le_bytes(head[8..16].try_into().ok()?)).ok()?;
        let (payload, behind) = behind.split_at_checked(len)?;
        out.extend(file::section(head[..4].try_into().ok()?, payload));
        rest = behind;
    }
    Some(out)
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
        let got = symbols_of(&trace).pop().map_or_else(Vec::new, |(_, symbols)| symbols);
        assert!(stream.starts_with(&got) && (got.len().is_multiple_of(64) || got == stream), "cut at {n}");
        assert!(got.len() >= longest, "cut at {n}");
        longest = got.len();
    }
    // Only what says that the file is whole was missing.
    assert_eq!(longest, stream.len());
    let packed = packed(&[stream]);
    for n in 0..packed.len() {
        use_up(&packed[..n]);
    }
}

#[test]
fn foreign_files_and_other_versions_are_named() {
    let says = |file: &[u8]| opened(file).err().map(|err| err.to_string());
    assert_eq!(says(b"\x7fELF and so on, and so on"), Some("it is no trace of engraft".to_owned()));
    let mut file = chunked(&[random_stream(1, 50)], Codec::Zstd, 64);
    file[8] = 2;
    assert_eq!(says(&file), Some("it is a trace of version 2; this engraft reads version 1".to_owned()));
}

/// Numbers that only a damaged file has take no room.
#[test]
fn huge_numbers_are_counted_too() {
    let (func, block) = ((1 << 29) - 5, (1 << 28) - 5);
    let one = [Symbol::enter(func), Symbol::block(0), Symbol::block(block), Symbol::EXIT];
    let stream: Vec<u32> = one.iter().map(|symbol| symbol.0).collect();
    let file = chunked(&[stream.repeat(2)], Codec::Zstd, 64);
    let counts = opened(&file).expect("it is whole").block_counts(None).expect("it can be read");
    assert_eq!(counts, [((func, 0), 2), ((func, block), 2)].into());
}
