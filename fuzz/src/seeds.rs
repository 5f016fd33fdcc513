//! Whole files to begin with: of every format that is read.

use crate::{MATCHING, NEXT, PROGRAM, SOURCE, compile};
use matching::Map;
use measure::recorded_points::{Scope, plan};
use profile::recording::{self, Recording};
use profile::{Edge, Format, ImageRef, Profile, write};
use program::{FuncId, Image, Program};
use trace::chunks::Codec;
use trace::file::Sections;
use trace::flow::{FlowGraphs, Module, Successors};
use trace::import::{Around, import_streams};
use trace::recording::event::{Event, SignalPlace};
use trace::recording::module_code::ModuleCode;
use trace::recording::sections::{Packer, code_section, ends_section};
use trace::times::Times;
use trace::{Cause, Maker, Names, Stores, Symbol, ThreadId};

// Written byte by byte there, for the tests of that format.
#[path = "../../profile/src/testing/perf_file.rs"]
#[allow(dead_code, reason = "a helper of the tests of `profile`, of which not all is needed")]
mod perf_file;

/// The function of this name.
fn function(program: &Program, name: &str) -> FuncId {
    let named = |f: &FuncId| program.function(*f).names.iter().any(|n| &**n == name);
    program.func_ids().find(named).expect("the program has that function")
}

/// A profile with something in every table.
fn counts_of(program: &Program) -> Profile {
    let mut profile = Profile { image: ImageRef::of(&program.image), ..Profile::default() };
    for (k, name) in ["main", "g", "pick"].into_iter().enumerate() {
        let f = function(program, name);
        profile.entries.insert(program.function(f).entry, 3);
        for id in program.function(f).block_ids() {
            let from = program.block(id).start;
            profile.blocks.insert(from, 3 + k as u64);
            for e in program.successors(id) {
                let edge = Edge { from, to: program.block(e.to).start };
                profile.edges.insert(edge, 2);
                profile.mispredicts.insert(edge, 1);
            }
            for c in program.calls_in(id) {
                profile.calls.insert((c.at, program.function(function(program, "g")).entry), 3);
                profile.calls_out.insert(c.at, 1);
            }
        }
    }
    profile
}

/// A profile of the first build.
pub fn counted() -> Profile {
    counts_of(&PROGRAM)
}

/// A profile of the second.
pub fn counted_next() -> Profile {
    counts_of(&NEXT)
}

/// A file of every format that is read, small and whole.
pub fn profiles() -> Vec<Vec<u8>> {
    let (program, profile) = (&*PROGRAM, counted());
    let both = Format::all().filter(|f| f.is_written() && f.is_read());
    let mut files: Vec<Vec<u8>> =
        both.map(|f| write(&profile, Some(program), f).expect("the program has lines").bytes).collect();
    let s = program.image.segments.iter().find(|s| s.executable).expect("it has code");
    let &(call, callee) = profile.calls.keys().next().expect("main calls g");
    let (from, to) = (call.0, callee.0);
    let mapped = format!(
        "PERF_RECORD_MMAP2 7/7: [{:#x}(0x1000) @ {:#x} fe:00 53 28]: r-xp /x/output\n",
        s.range.start.0, s.offset.0
    );
    let stack = format!("{from:#x}/{to:#x}/M/-/-/3 {from:#x}/{to:#x}/P/-/-/3");
    files.push(format!("{mapped}  a.out 7 1.5: cycles:u: {to:x} {stack}\n").into_bytes());
    files.push(format!("{mapped}  a.out 7 1.5: cycles:u: {to:x} g+0x0 (/x/output)\n").into_bytes());
    let (from_start, branches) = (s.range.start.0, [(from, to, true), (from, to, false)]);
    let file = || perf_file::PerfFile::new().mapped(7, from_start, 0x1000, s.offset.0, None, "/x/output");
    files.push(file().sample(7, to, &branches).bytes());
    files.push(file().sample(7, to, &[]).bytes());
    files.push(b"no_lbr cycles\n1 g 0 5\n1 main 1 2\n".to_vec());
    let main = program.function(function(program, "main")).entry;
    let at = call.0.wrapping_sub(main.0);
    files.push(format!("boltedcollection\n1 main {at:x} 1 g 0 0 5\n0 [unknown] 0 1 g 0 0 5\n").into_bytes());
    files.push(
        b"---\nheader:\n  profile-version: 1\n  binary-name: 'x'\n  profile-flags: [ lbr ]\nfunctions:\n  - name: g\n    \
          fid: 1\n    exec: 3\n    blocks:\n      - bid: 0\n        hash: 0x10000\n        succ: [ { bid: 1, cnt: 3 } ]\n      \
          - bid: 1\n        calls: [ { off: 0x1, fid: 1, cnt: 1 } ]\n...\n"
            .to_vec(),
    );
    files
}

/// Recordings of one image and of several.
pub fn recordings() -> Vec<Vec<u8>> {
    let with_code = recording::Module::new(counted(), Some(&measure::excerpt(&PROGRAM, &counted())));
    let alone = Recording { modules: vec![with_code], ..Recording::default() };
    let of_two = Recording::of([counted(), counted_next()]);
    vec![Recording::of([counted()]).write(), of_two.write(), alone.write()]
}

/// A map of the two builds, with lines of a person's.
pub fn maps() -> Vec<Vec<u8>> {
    let found = Map { matching: MATCHING.clone(), ..Map::default() };
    let text = found.write(&PROGRAM, &NEXT);
    let edited = format!("{text}pin main main\nforbid g pick # not these\n");
    vec![text.into_bytes(), edited.into_bytes()]
}

/// Small programs.
pub fn programs() -> Vec<Vec<u8>> {
    let small = "void _start(void) { for (int i = 0; i < 9; i++) __asm__ volatile(\"\" :: \"r\"(i)); __builtin_trap(); }\n";
    [&["-O2", "-nostdlib", "-static", "-g"][..], &["-O1", "-nostdlib", "-shared", "-fPIC"][..]]
        .iter()
        .map(|flags| compile(small, flags))
        .collect()
}

/// The same as the dynamic linker finds them in memory, and a program that it has relocations for.
pub fn memories() -> Vec<Vec<u8>> {
    let mut all = programs();
    all.push(compile(SOURCE, &["-O2", "-pie", "-fPIE", "-s"]));
    let memory = |bytes: Vec<u8>| {
        let image = Image::parse(bytes, "output").expect("gcc's output can be loaded");
        let first = image.segments.first().expect("it loads something").range.start;
        let mut memory = Vec::new();
        for s in &image.segments {
            let at = usize::try_from(s.range.start.since(first)).expect("it is small");
            memory.resize(at.max(memory.len()), 0);
            memory.extend(image.bytes_from(s.range.start).unwrap_or_default());
        }
        memory
    };
    all.into_iter().map(memory).collect()
}

/// Programs and a library with stubs, a switch, functions in data and calls of all kinds.
pub fn rewritten() -> Vec<Vec<u8>> {
    let all = [&["-O2"][..], &["-O1", "-no-pie", "-s"], &["-O0", "-shared", "-fPIC", "-fcf-protection=full"]];
    all.iter().map(|flags| compile(SOURCE, flags)).collect()
}

/// Code of a real program.
pub fn code() -> Vec<Vec<u8>> {
    let code = |p: &Program| -> Vec<u8> {
        let f = p.function(function(p, "pick"));
        p.image.bytes_from(f.entry).unwrap_or_default().iter().take(200).copied().collect()
    };
    vec![code(&PROGRAM), code(&NEXT)]
}

/// What is recorded of the program, and words of a stream, which mean something but come in any order.
fn recorded() -> (ModuleCode, Vec<u32>) {
    let not_moved = probe::Module::not_moved(&PROGRAM);
    let scope = Scope { not_moved: &not_moved, libc: false, is_recorded: &|_| true, tells: &|_| false };
    let (_, code) = plan(&PROGRAM, 7, 0, scope, None).expect("it is small");
    let mut words = Vec::new();
    for n in 0..200u32 {
        let numbers = code.numbers();
        let number = numbers.start + n * 7 % u32::try_from(numbers.len()).expect("few");
        let of_entry = code.base + n % u32::try_from(code.entries.len()).expect("few");
        let point = Event::Point(number);
        let events = match n % 9 {
            0 | 4 => vec![Event::Entry { number: of_entry, frame: None }],
            1 => vec![Event::Entry { number, frame: Some(0x7fff_0000 - 64 * n) }],
            2 if n > 150 => vec![Event::Signal { key: code.key, place: SignalPlace::At(n) }],
            3 if n > 180 => vec![Event::Gap, point, Event::Start],
            5 if n > 180 => vec![Event::Pause, point, Event::Start],
            _ => vec![point],
        };
        words.extend(events.into_iter().flat_map(Event::words));
    }
    (code, words)
}

/// A module's code and words of events, as [`crate::events`] reads them.
pub fn events() -> Vec<Vec<u8>> {
    let (code, words) = recorded();
    let code = postcard::to_stdvec(&code).expect("there is memory");
    let len = u32::try_from(code.len()).expect("it is small");
    vec![
        [&len.to_le_bytes()[..], &code, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()]
            .concat(),
    ]
}

/// Names of the functions and blocks of [`traces`].
pub const META: &str = "0 0 0x1000 main a.c:1\n0 1 0x1004 main a.c:?\n0 2 0x1008 main a.c:3\n1 0 0x1100 ns::g(int, [T; 4]) b.h:7\n\
    1 1 0x1104 ns::g(int, [T; 4]) b.h:8\n1 2 0x1108 ns::g(int, [T; 4]) b.h:9\n1 3 0x110c ns::g(int, [T; 4]) a.c:9\n";

/// Names of a plain trace, as text.
pub fn names() -> Vec<Vec<u8>> {
    vec![META.as_bytes().to_vec()]
}

/// Paths in all forms.
pub fn paths() -> Vec<Vec<u8>> {
    let all = [
        "main: 0 2",
        "#1: 0 1|2+ .. 3",
        "0x1104: 0x1100 1",
        "ns::g: b.h:7..9 a.c:9",
        "main: 0 {ns::g: 0 .. 1|2} {#1: 3} 2",
        "main: 0 .. {g: {main: 0} 1+} 2|1 2",
    ];
    all.map(|path| path.as_bytes().to_vec()).into()
}

/// A plain trace.
pub fn plain() -> Vec<Vec<u8>> {
    let f = |n| Symbol::enter(trace::FuncId(n));
    let b = |n| Symbol::block(trace::BlockId(n));
    let e = Symbol::EXIT;
    let loops = [b(1), b(1), b(2), f(1), b(0), e, b(1), b(1), b(2), f(1), b(0), e];
    let run =
        [&[f(0), b(0)][..], &loops, &[f(1), b(0), f(0), b(0)], &loops, &[e, e], &loops, &[b(1 << 19), e]]
            .concat();
    vec![run.iter().flat_map(|symbol| symbol.0.to_le_bytes()).collect()]
}

/// Two runs, one behind the other: of numbers that there are, and of any.
pub fn runs() -> Vec<Vec<u8>> {
    let word = |word: u32| word.to_le_bytes();
    let run = |seed: u32| {
        let step = move |n: u32| match n % 9 {
            0 => 5 | (n / 9 % 7 * seed) << 3,
            8 => 7,
            4 if n % 4 == seed % 4 => 7 | 1 << 4,
            _ => (n % 6) << 3,
        };
        (0..400).map(step)
    };
    let numbers = run(1).chain(run(3)).flat_map(word).collect::<Vec<u8>>();
    let modes = [1u8, 3, 5, 7].map(|how| [&[how][..], &numbers].concat());
    let any = plain().into_iter().map(|plain| [&[0][..], &plain, &plain].concat());
    modes.into_iter().chain(any).collect()
}

/// What `perf script` prints of branches of the first build: a stack, and what a processor trace says.
pub fn branches() -> Vec<Vec<u8>> {
    let program = &*PROGRAM;
    let s = program.image.segments.iter().find(|s| s.executable).expect("it has code");
    let moved = 0x5600_0000_0000_u64;
    let live = |at: u64| at + moved;
    let mapped = format!(
        "a.out 77/78 7084.3: PERF_RECORD_MMAP2 77/77: [{:#x}(0x1000) @ {:#x} fe:00 53 28]: r-xp /x/output\n",
        live(s.range.start.0),
        s.offset.0
    );
    let (main, g) = (function(program, "main"), function(program, "g"));
    let calls = program.function(main).block_ids().flat_map(|id| program.calls_in(id));
    let at = calls.map(|c| c.at.0).next().expect("main calls");
    let ends = program
        .function(g)
        .block_ids()
        .map(|id| program.block(id).last_insn().0)
        .max()
        .expect("it has blocks");
    let entry = program.function(g).entry.0;
    let (at, entry, ret, behind) = (live(at), live(entry), live(ends), live(at + 5));
    let pair = |from: u64, to: u64| format!("{from:#x}/{to:#x}/P/-/-/1");
    let stack =
        format!("a.out 77/78 7084.301: {behind:x} {} {}\n", pair(ret, behind), pair(at, entry)).repeat(3);
    let branch = |what: &str, from: u64, to: u64| {
        format!(
            "a.out 77/78 [001] 7084.301999: 1 branches:uH: {what} {from:x} main+0x3 (/x/output) => {to:x} g+0x0 (/x/output)\n"
        )
    };
    let error = "instruction trace error type 1 time 7084.302 cpu 1 pid 77 tid 78 ip 0x56250dc1e13d code 7: Overflow packet\n";
    let end = format!(
        "a.out 77/78 [001] 7084.4: 1 branches:uH: tr end syscall {ret:x} g+0x9 (/x/output) => 0 [unknown] ([unknown])\n"
    );
    let trace = [
        branch("call", at, entry),
        branch("return", ret, behind),
        error.to_owned(),
        branch("call", at, entry),
        end,
    ]
    .concat();
    vec![format!("{mapped}{stack}").into_bytes(), format!("{mapped}{trace}{stack}").into_bytes()]
}

/// Traces: packed in each way, and a recording.
pub fn traces() -> Vec<Vec<u8>> {
    let mut symbols = Vec::new();
    for n in 0..30 {
        symbols.extend([
            Symbol::enter(trace::FuncId(0)),
            Symbol::block(trace::BlockId(0)),
            Symbol::enter(trace::FuncId(1)),
            Symbol::block(trace::BlockId(0)),
            Symbol::block(trace::BlockId(1 + n % 3)),
        ]);
        symbols.extend([Symbol::EXIT, Symbol::block(trace::BlockId(2)), Symbol::EXIT]);
    }
    let codes: Vec<u32> = symbols.iter().map(|symbol| symbol.0).collect();
    let names = Names::parse(META).expect("it is right");
    let follow = |to: &[u32]| Successors {
        leaves: to.is_empty(),
        to: to.iter().copied().map(trace::BlockId).collect(),
        ..Successors::default()
    };
    let flow = FlowGraphs {
        modules: vec![Module { first: trace::FuncId(0), key: 7, path: "/x/output".to_owned() }],
        functions: [
            (trace::FuncId(0), vec![follow(&[2]), follow(&[]), follow(&[])]),
            (trace::FuncId(1), vec![follow(&[1, 2, 3]); 4]),
        ]
        .into(),
    };
    let mut times = Times::default();
    for (thread, index, ns) in [(0, 0, 5), (0, 100, 900), (0, 240, 2000), (1, 0, 100), (1, 200, 1500)] {
        times.note(ThreadId(thread), index, ns);
    }
    let stored = |grammar, chunks| {
        let mut file = Vec::new();
        let around = Around { names: &names, flow: &flow, times: &times };
        let streams = [(ThreadId(0), codes.as_slice()), (ThreadId(1), &codes[8..])];
        import_streams(streams.into_iter(), &mut file, around, Stores { grammar, chunks })
            .expect("it is a trace");
        file
    };
    let (code, words) = recorded();
    let mut file = Vec::new();
    let mut sections = Sections::create(&mut file).expect("there is memory");
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut packer = Packer::new().expect("there is memory");
    for section in
        [code_section(&code), packer.section(ThreadId(0), 5, &bytes), packer.section(ThreadId(1), 9, &bytes)]
    {
        sections.write(&section.expect("there is memory")).expect("there is memory");
    }
    sections.write(&ends_section(&[(ThreadId(0), Cause::ProcessEnd)])).expect("there is memory");
    sections.finish().expect("there is memory");
    vec![
        stored(Some(Maker::Sequitur), None),
        stored(Some(Maker::Repair), Some(Codec::Zlib)),
        stored(None, Some(Codec::Zstd)),
        file,
    ]
}
