//! What is appended is read from the file again, against what the events mean, written down by hand.

use super::*;
use crate::ids::{BlockId, FuncId, ThreadId};
use crate::recording::module_code::{Block, End, Function, PointPlace};
use crate::recording::window::When;
use crate::symbol::{Step, Symbol};
use crate::trace::Trace;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

const BASE: u32 = 100;

/// A function of three blocks: 0 goes to 1 or 2, each by a point; these return.
fn code() -> ModuleCode {
    let block = |at, end| Block { at, end, ..Block::default() };
    let blocks = vec![
        block(0x1000, End::To(vec![(BlockId(1), 1), (BlockId(2), 2)])),
        block(0x1010, End::Return),
        block(0x1020, End::Return),
    ];
    ModuleCode {
        key: 7,
        path: "/bin/program".into(),
        base: BASE,
        functions: vec![Function { name: "main".into(), blocks }],
        entries: vec![(0, BlockId(0))],
        points: vec![PointPlace::Way(0, BlockId(0), BlockId(1)), PointPlace::Way(0, BlockId(0), BlockId(2))],
        ..ModuleCode::default()
    }
}

/// The words of a call of the function that goes to block `to`.
fn call(to: u32) -> Vec<u8> {
    let mut words = Vec::new();
    Event::Entry { number: BASE, frame: None }.append_to(&mut words);
    Event::Point(BASE + to).append_to(&mut words);
    words
}

/// What it does.
fn ran(to: u32) -> [Step; 4] {
    [Step::Enter(FuncId(0)), Step::Block(BlockId(0)), Step::Block(BlockId(to)), Step::Exit]
}

fn all() -> Window {
    Window::new(When::default(), HashSet::new(), HashSet::new())
}

fn at(ms: u64) -> Timestamps {
    Timestamps::now(Duration::from_millis(ms))
}

/// What a finished file says of each thread.
fn read(bytes: &[u8]) -> BTreeMap<ThreadId, Vec<Symbol>> {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("it can be written");
    let trace = Trace::open(file).expect("it is a trace");
    assert_eq!(trace.cut(), None);
    let mut threads: BTreeMap<ThreadId, Vec<Symbol>> = BTreeMap::new();
    let done = trace.read(|thread, symbols| {
        threads.entry(thread).or_default().extend(symbols.iter().map(|code| Symbol(*code)));
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(done.expect("it can be read"), None);
    assert_eq!((trace.faults().n_astray, trace.faults().n_lost), (0, 0));
    threads
}

fn steps(symbols: &[Symbol]) -> Vec<Step> {
    symbols.iter().map(|symbol| symbol.step()).collect()
}

/// Records calls, each with its stream; the tail, if there is one, has so many bytes.
fn record(calls: &[(u32, u32)], tail: Option<usize>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let tail = tail.map(Tail::new);
    let mut recorder = Recorder::new(&mut bytes, &[code()], all(), tail).expect("it is memory");
    for (n, (stream, to)) in (0..).zip(calls) {
        recorder.append(*stream, &call(*to), at(n));
    }
    let ends: Vec<(u32, Cause)> = (0..3).map(|stream| (stream, Cause::ThreadEnd)).collect();
    recorder.finish(&ends).expect("it is memory");
    bytes
}

/// A thread of a process that runs already is in the middle of a function, which nothing has told of.
#[test]
fn streams_of_a_process_that_runs_already_begin_inside_of_functions() {
    let mut bytes = Vec::new();
    let recorder = Recorder::new(&mut bytes, &[code()], all(), None).expect("it is memory");
    let mut recorder = recorder.of_running();
    // That it has begun; the end of one that was under way; another.
    recorder.append(0, &[], at(0));
    let mut words = Vec::new();
    Event::Point(BASE + 1).append_to(&mut words);
    recorder.append(0, &words, at(1));
    recorder.append(0, &call(2), at(2));
    recorder.finish(&[(ThreadId(0).0, Cause::ThreadEnd)]).expect("it is memory");
    let threads = read(&bytes);
    let symbols = threads.get(&ThreadId(0)).expect("it is there");
    let mut want = vec![Step::Enter(FuncId(0)), Step::Block(BlockId(1)), Step::Exit];
    want.extend(ran(2));
    assert_eq!(steps(symbols), want);
    assert!(symbols.first().is_some_and(|first| *first == Symbol::enter(FuncId(0)).from_outside()));
}

proptest! {
    #[test]
    fn what_is_appended_is_what_is_read(calls in prop::collection::vec((0..3u32, 1..3u32), 1..60)) {
        let threads = read(&record(&calls, None));
        // Threads have numbers in the order in which their streams came.
        let mut streams: Vec<u32> = Vec::new();
        calls.iter().for_each(|(stream, _)| if !streams.contains(stream) { streams.push(*stream) });
        for (thread, stream) in (0..).map(ThreadId).zip(&streams) {
            let of_it = calls.iter().filter(|(of, _)| of == stream);
            let want: Vec<Step> = of_it.flat_map(|(_, to)| ran(*to)).collect();
            prop_assert_eq!(steps(threads.get(&thread).map_or(&[][..], Vec::as_slice)), want);
        }
        prop_assert_eq!(threads.len(), streams.len());
    }

    #[test]
    fn a_tail_keeps_the_last(calls in prop::collection::vec((0..1u32, 1..3u32), 1..60), most in 1..2000usize) {
        let threads = read(&record(&calls, Some(most)));
        let got = steps(&threads[&ThreadId(0)]);
        let want: Vec<Step> = calls.iter().flat_map(|(_, to)| ran(*to)).collect();
        prop_assert!(got.len() >= 4 && want.ends_with(&got), "{got:?}");
    }
}

#[test]
fn a_stream_that_another_thread_takes_over_is_two_threads() {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::new(&mut bytes, &[code()], all(), None).expect("it is memory");
    let mut words = call(1);
    Event::Another.append_to(&mut words);
    words.extend(call(2));
    recorder.append(5, &words, at(1));
    assert_eq!((recorder.n_threads(), recorder.n_bytes(), recorder.has_kept()), (2, 20, true));
    recorder.finish(&[(5, Cause::ProcessEnd)]).expect("it is memory");
    let threads = read(&bytes);
    assert_eq!(threads.values().map(|symbols| steps(symbols)).collect::<Vec<_>>(), [ran(1), ran(2)]);
}

/// A signal in block 2 ended the thread: it did not come back from there.
#[test]
fn the_last_events_say_where_a_thread_ended() {
    let ended = [Event::Ended { is_placed: false }];
    for tail in [None, Some(1 << 20)] {
        let mut bytes = Vec::new();
        let tail = tail.map(Tail::new);
        let mut recorder = Recorder::new(&mut bytes, &[code()], all(), tail).expect("it is memory");
        recorder.append(0, &call(2), at(1));
        recorder.append_last(0, &ended, Duration::from_millis(2));
        recorder.finish(&[(0, Cause::ProcessEnd)]).expect("it is memory");
        let symbols = &read(&bytes)[&ThreadId(0)];
        assert_eq!(steps(symbols), ran(2));
        assert_eq!(symbols.last().and_then(|symbol| symbol.cause()), Some(Cause::ProcessEnd));
    }
}

/// Takes so many bytes and no more.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.0.checked_sub(bytes.len()) else {
            return Err(io::ErrorKind::StorageFull.into());
        };
        self.0 = left;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_cannot_be_written_is_taken_and_said_in_the_end() {
    let mut recorder = Recorder::new(Full(1 << 10), &[code()], all(), None).expect("there is room");
    for n in 0..100 {
        recorder.append(0, &call(1 + u32::try_from(n % 2).expect("small")), at(n));
        recorder.add_module(&code());
    }
    assert_eq!((recorder.n_bytes(), recorder.n_threads()), (800, 1));
    let err = recorder.finish(&[(0, Cause::ThreadEnd)]).expect_err("there is no room");
    assert_eq!(err.kind(), io::ErrorKind::StorageFull);
}
