//! What is done with hostile bytes: one function a target, for libFuzzer (`fuzz_targets`) and for mutations
//! (`main`).
//!
//! A target returns if all is well, and panics if not.

pub mod seeds;

// What tests of `viewer` send, too.
#[path = "../../viewer/tests/hostile/client.rs"]
mod client;

use matching::compare::{Anchor, Asked, Builder, By, Code, Comparison, Side, TracedModule, Unsteady, Was};
use matching::{CarryOptions, Map, Matching, MergeOptions, Options, carry, merge, score};
use measure::{Placement, branches};
use probe::graft::{Graft, Meaning};
use probe::{Module, Old, Plan, Room};
use profile::perf_branches as perf;
use profile::recording::Recording;
use profile::{Context, Format, Profile};
use program::signature::dwarf::Signatures;
use program::{Bias, Image, Lines, LiveVa, Program, Va, arch::Decoder};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::LazyLock;
use trace::chunks::Codec;
use trace::decode::{Decoder as EventDecoder, ModuleCodes};
use trace::{
    Automaton, Balance, BlockId, Cause, FuncId, Names, Path, Position, Scheme, Stores, Symbol, ThreadId,
    Trace, Want,
};
use trace::{file, import, plain};
use xxhash_rust::xxh3::xxh3_64;

/// A target.
pub type Target = fn(&[u8]);

/// By name, with files that are whole.
pub fn targets() -> Vec<(&'static str, Target, fn() -> Vec<Vec<u8>>)> {
    vec![
        ("image", image, seeds::programs),
        ("program", program, seeds::programs),
        ("memory", memory, seeds::memories),
        ("graft", graft, seeds::programs),
        ("rewrite", rewrite, seeds::rewritten),
        ("decode", decode, seeds::code),
        ("profile", profile, seeds::profiles),
        ("recording", recording, seeds::recordings),
        ("map", map, seeds::maps),
        ("carry", carry_on, seeds::profiles),
        ("trace", trace_file, seeds::traces),
        ("events", events, seeds::events),
        ("names", names, seeds::names),
        ("path", path, seeds::paths),
        ("plain", plain_trace, seeds::plain),
        ("branches", branches, seeds::branches),
        ("compare", compared, seeds::runs),
        ("view", view, client::seeds),
    ]
}

const SOURCE: &str = "#include <stdio.h>\n#include <stdlib.h>\nint v; int (*f)(int);\n\
    __attribute__((noinline)) int g(int x) { if (x > 2) v = x; if (x == 77) abort(); return x + 1; }\n\
    __attribute__((noinline)) int pick(int x) { switch (x) { case 0: return 5; case 1: return puts(\"a\"); case 2: return 17;\n\
    case 3: return f(x); case 4: return -1; case 5: v = 3; break; default: return 2; } return x ^ v; }\n\
    int main(int n, char **a) { f = g; for (int i = 0; i < n; i++) v += g(i) + pick(i); return v; }\n";

/// Compiles a small program with gcc.
pub fn compile(source: &str, flags: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (from, to) = (folder.path().join("a.c"), folder.path().join("output"));
    std::fs::write(&from, source).expect("the temporary folder can be written");
    let done =
        Command::new("gcc").args(flags).arg("-o").arg(&to).arg(&from).status().expect("gcc is installed");
    assert!(done.success(), "gcc compiles it");
    std::fs::read(to).expect("gcc wrote it")
}

/// A program with symbols, relocations and lines.
pub static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
    let bytes = compile(SOURCE, &["-O1", "-g", "-Wl,--emit-relocs", "-Wl,--build-id=0xabcd"]);
    Program::analyze(Image::parse(bytes, "output").expect("gcc's output can be loaded"))
});

/// Another build of it.
pub static NEXT: LazyLock<Program> = LazyLock::new(|| {
    let source = SOURCE.replace("v = x;", "{ v = x; if (v & 8) puts(\"b\"); }");
    let bytes = compile(&source, &["-O2", "-g"]);
    Program::analyze(Image::parse(bytes, "output").expect("gcc's output can be loaded"))
});

static MATCHING: LazyLock<Matching> =
    LazyLock::new(|| Matching::compute(&PROGRAM, &NEXT, &Options::default()));

/// Any bytes as a request to `engraft view`: answered with a page of ours, or refused.
pub fn view(bytes: &[u8]) {
    client::request(bytes);
}

/// Any bytes as an ELF file: loaded or refused, with its lines, and what is said of its functions.
pub fn image(bytes: &[u8]) {
    if let Ok(image) = Image::parse(bytes.to_vec(), "fuzz") {
        let lines = Lines::load(&image);
        if let (Some(lines), Some(entry)) = (lines, image.entry) {
            lines.frames(entry);
        }
        if let Some(signatures) = Signatures::load(&image) {
            for at in image.symbols.iter().map(|symbol| symbol.at).chain(image.entry) {
                signatures.at(at, &[]);
            }
        }
    }
}

/// Any bytes as an ELF file, analysed: what the analysis promises holds.
pub fn program(bytes: &[u8]) {
    if let Ok(image) = Image::parse(bytes.to_vec(), "fuzz") {
        let violations = Program::analyze(image).verify();
        assert!(violations.is_empty(), "{violations:?}");
    }
}

/// Where the memory of a process begins that is made of any bytes.
pub const MEMORY: u64 = 0x10_0000;

/// Any bytes as what a process has of a module in memory: what the analysis promises holds.
pub fn memory(bytes: &[u8]) {
    let read = |at: LiveVa, to: &mut [u8]| {
        let from = at.0.checked_sub(MEMORY).and_then(|from| usize::try_from(from).ok());
        let there = from.and_then(|from| bytes.get(from..from.checked_add(to.len())?));
        there.inspect(|there| to.copy_from_slice(there)).is_some()
    };
    let _where = Image::extent_in_memory(LiveVa(MEMORY), |_| None, &read);
    if let Ok((image, _)) = Image::from_memory("fuzz", LiveVa(MEMORY), |_| None, &read) {
        let violations = Program::analyze(image).verify();
        assert!(violations.is_empty(), "{violations:?}");
    }
}

/// Any bytes as a shared object whose code is to run in a process: laid out and bound, or refused.
pub fn graft(bytes: &[u8]) {
    let Ok(graft) = Graft::of_library("fuzz", bytes) else { return };
    let at = LiveVa(MEMORY);
    if let Ok(grafted) = graft.place(at, |_| Ok(Meaning::At(LiveVa(8)))) {
        let is_within = |part: &probe::graft::Part| {
            at.0 <= part.at && part.at + part.bytes.len() as u64 <= at.0 + graft.len_bytes()
        };
        assert!(grafted.parts.iter().all(is_within), "{:?}", grafted.code);
    }
}

/// A program that can be analysed is rewritten, as a file and for a process, or refused.
pub fn rewrite(bytes: &[u8]) {
    let Ok(image) = Image::parse(bytes.to_vec(), "fuzz") else { return };
    let program = Program::analyze(image);
    for plan in [Plan::NULL, Placement::Edges.plan(&program)] {
        if let Ok(module) = Module::build(&program, &plan, Room::Behind) {
            let _ = (
                measure::notes(&module).write(),
                module.to_file(Old::Poisoned).map_err(|err| err.to_string()),
            );
        }
        if let Ok(module) = Module::build(&program, &plan, Room::Apart) {
            let _ = module.to_segments().map_err(|err| err.to_string());
        }
    }
}

/// Any bytes as instructions: operands, effects and text of each can be asked for.
pub fn decode(bytes: &[u8]) {
    for insn in Decoder::new(bytes, Va(0x1000)) {
        let _ =
            (insn.flow(), insn.operands().count(), insn.effects(), insn.refers_to(true), insn.to_string());
    }
}

/// With the checksum that our own files end in: without, damage would never get past it.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let body = bytes.get(..bytes.len().checked_sub(8)?)?;
    bytes.starts_with(b"ENGRAFT\0").then(|| [body, &xxh3_64(body).to_le_bytes()].concat())
}

fn read(bytes: &[u8]) -> Option<Profile> {
    let bytes = sealed(&with_sums(bytes)).unwrap_or_else(|| bytes.to_vec());
    match profile::read(&bytes, &Context::of(&PROGRAM)) {
        Ok(read) => Some(read.profile),
        Err(err) => {
            let said = err.to_string();
            assert!(!said.is_empty() && !said.contains('\n'), "{said:?}");
            None
        }
    }
}

/// Any bytes as a profile, of whatever format they look like; what can be read can be added up, scaled,
/// compared, and written in every format, and what was written is read.
pub fn profile(bytes: &[u8]) {
    let Some(read) = read(bytes) else { return };
    let mut twice = read.clone();
    twice.add(&read);
    twice.scale(0.3);
    let overlap = read.overlap(&twice);
    assert!((0.0..1.001).contains(&overlap), "{overlap}");
    for format in Format::all().filter(|f| f.is_written()) {
        let written =
            profile::write(&read, Some(&PROGRAM), format).expect("the program is at hand, with its lines");
        if format.is_read() && !written.bytes.is_empty() && read.total() > 0 {
            match profile::read(&written.bytes, &Context::of(&PROGRAM)) {
                Ok(_) => {}
                // A profile of another image, or one that has nothing to say in this format.
                Err(err) => {
                    assert!(written.count == 0 || read.image.id != Some(PROGRAM.image.id), "{format}: {err}")
                }
            }
        }
    }
}

/// Any bytes as a recording of a run, finished or as a counted program leaves it.
pub fn recording(bytes: &[u8]) {
    let bytes = sealed(&with_sums(bytes)).unwrap_or_else(|| bytes.to_vec());
    let read = match measure::raw_recording::is_one(&bytes) {
        true => measure::raw_recording::parse(&bytes).map(Recording::of),
        false => Recording::parse(&bytes),
    };
    let Ok(read) = read else { return };
    assert_eq!(Recording::parse(&read.write()).expect("we wrote it"), read);
    for module in &read.modules {
        let Ok(Some(excerpt)) = module.excerpt() else { continue };
        let Ok(program) = excerpt.into_program() else { continue };
        // Whatever it says, all that is shown of counts can be computed.
        let _ran = measure::reports::count::run(&module.profile, &program);
        let _kept = measure::excerpt(&program, &module.profile);
    }
}

/// The sections of a recording with the checksums that they should have, as far as they can be told apart.
fn with_sums(bytes: &[u8]) -> Vec<u8> {
    const HEAD: &[u8] = b"ENGRAFT\0\x02";
    let mut out = bytes.to_vec();
    let mut at = HEAD.len();
    while out.starts_with(HEAD) && out.get(at).is_some_and(|tag| *tag != 0) {
        let (mut len, mut shift, mut from) = (0usize, 0, at + 1);
        while let Some(&byte) = out.get(from).filter(|_| shift < 35) {
            (len, from) = (len | usize::from(byte & 0x7f) << shift, from + 1);
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let Some(body_end) = from.checked_add(len).filter(|end| end + 8 <= out.len()) else { break };
        let sum = xxh3_64(&out[at..body_end]);
        out[body_end..body_end + 8].copy_from_slice(&sum.to_le_bytes());
        at = body_end + 8;
    }
    out
}

/// Any text as a map of two builds; what can be read is written and read again, and is matched and carried
/// along.
pub fn map(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Map::parse(&text, &PROGRAM, &NEXT) {
        Ok(map) => {
            let again = Map::parse(&map.write(&PROGRAM, &NEXT), &PROGRAM, &NEXT);
            assert_eq!(again.expect("we wrote it"), map);
            carry(&PROGRAM, &NEXT, &map.matching, &seeds::counted(), &CarryOptions::default());
        }
        Err(err) => assert!(!err.to_string().contains('\n'), "{err}"),
    }
}

/// Any bytes as a profile that is carried to the next build, merged there and scored.
pub fn carry_on(bytes: &[u8]) {
    let Some(read) = read(bytes) else { return };
    let carried = carry(&PROGRAM, &NEXT, &MATCHING, &read, &CarryOptions::default()).profile;
    let merged = merge(&NEXT, &carried, &seeds::counted_next(), &MergeOptions::default());
    let backwards = merge(&NEXT, &seeds::counted_next(), &carried, &MergeOptions::default());
    for profile in [&merged, &backwards] {
        let s = score(&NEXT, &carried, profile);
        assert!((0.0..1.001).contains(&s.overlap_share), "{}", s.overlap_share);
        assert!((0.0..1.001).contains(&s.cc_share), "{}", s.cc_share);
    }
}

/// The names that a trace of `program` has, the functions of which are numbered as it numbers them.
fn names_of(program: &Program) -> Names {
    let mut names = Names::default();
    for func in program.func_ids() {
        let function = program.function(func);
        let at = |id| trace::names::Block { at: program.block(id).start.0, ..Default::default() };
        let blocks = (0..).map(BlockId).zip(function.block_ids().map(at)).collect();
        names.functions.insert(FuncId(func.0), trace::names::Function { name: function.name(), blocks });
    }
    names
}

/// Any symbols as runs of two builds: compared, in all ways. The first byte says of what they are made: of
/// any numbers, or of those that there are; whether lines are known; and whether it is one build.
pub fn compared(bytes: &[u8]) {
    let [how, bytes @ ..] = bytes else { return };
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let symbol = |word: u32| match (how & 1, word & 7) {
        (0, _) => Symbol(word),
        (_, 0..5) => Symbol::block(BlockId(word >> 3 & 15)),
        (_, 5) => Symbol::enter(FuncId(word >> 3 & 31)),
        (_, 6) if word & 8 == 0 => Symbol::enter(FuncId(word >> 4 & 31)).from_outside(),
        _ => Symbol::exit(if word & 16 == 0 { Cause::Return } else { Cause::Tail }),
    };
    let symbols: Vec<u32> = words.map(|word| symbol(word).0).collect();
    let halves = symbols.split_at(symbols.len() / 2);
    let programs = [&*PROGRAM, if how & 2 == 0 { &*NEXT } else { &*PROGRAM }];
    let modules = programs.map(|program| {
        let lines = if how & 4 == 0 { Lines::load(&program.image) } else { None };
        [TracedModule { first: FuncId(0), name: "output".into(), program, lines }]
    });
    let codes = [0, 1].map(|n: usize| Code::of(&names_of(programs[n]), &modules[n]));
    let log = |n: usize, symbols: &[u32]| {
        let mut builder = Builder::new(&codes[n]).with_positions();
        // Two threads, one of which goes on.
        let (first, second) = symbols.split_at(symbols.len() / 3);
        builder.push(ThreadId(0), first);
        builder.push(ThreadId(1), second);
        builder.finish()
    };
    let logs = [log(0, halves.0), log(1, halves.1)];
    let sides = [0, 1].map(|n: usize| Side { code: &codes[n], log: &logs[n], modules: &modules[n] });
    let mut was = Was::default();
    match how & 2 {
        0 => was.add([0, 0], &MATCHING, &PROGRAM, &NEXT),
        _ => was.add_itself([0, 0], &PROGRAM),
    }
    let unsteady = [Unsteady::default(), Unsteady::of(&[sides[1], sides[1]], &was)];
    let asked = Asked { unsteady: &unsteady, by: By::Metric(program::Metric::Total), wants_mixes: true };
    let found = Comparison::compute(&sides, &was, &asked);
    for n in [0, 1] {
        let (paired, all) = (found.paired[n], found.events[n]);
        assert!(paired.light <= all.light * 1.000_001 && paired.heavy <= all.heavy * 1.000_001, "more are paired");
    }
    let anchors = matching::compare::anchors(&sides, &was);
    let in_order = |a: &Anchor, b: &Anchor| {
        let [a, b] = [a.points[0], b.points[0]];
        a.thread != b.thread || a.index < b.index
    };
    assert!(anchors.windows(2).all(|two| in_order(&two[0], &two[1])), "anchors are in order");
    matching::compare::explained(&sides, &was, "main");
}

/// Symbols that a trace is read of; of few bytes it may have any number.
const MOST_READ: usize = 1 << 16;

/// Any bytes as a trace, as they are and with checksums that fit: refused, or read and searched in all ways.
pub fn trace_file(bytes: &[u8]) {
    for bytes in [Some(bytes.to_vec()), file::resealed(bytes)].into_iter().flatten() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&bytes).expect("there is room");
        let Ok(trace) = Trace::open(file) else { continue };
        let mut n_read = 0;
        let _damaged = trace.read(|_, symbols| {
            n_read += symbols.len();
            if n_read > MOST_READ { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let is_short = n_read <= MOST_READ;
        tell(&trace, is_short);
        for path in ["#1: 0 1", "#0: 0 .. 2", "#1: 0|1 1|2+ 3", "#1: 0 .. 1 .. 2|3", "#0: 0"] {
            search(&trace, &Path::parse(path, &Names::default()).expect("it is a path"), is_short);
        }
        if is_short {
            let through = Path::parse("#0: 0 {#1: 0 .. 1} 2", &Names::default()).expect("it is a path");
            for scheme in [Scheme::Unpacked, Scheme::Chunks] {
                let _damaged = trace.search_path(&through, Want::All, Some(scheme));
            }
            let _damaged = trace.count_by_caller(&through);
        }
    }
}

/// Asks for all but paths. What reads the whole trace is asked of a short one.
fn tell(trace: &Trace, is_short: bool) {
    if let Ok(names) = trace.names() {
        let text = Path::parse("main: 0 0x1004 .. a.c:1..9", &names);
        let _unknown =
            text.map(|path| trace.flow().map(|flow| flow.check(&path, &|func| names.function(func))));
    }
    let _damaged = (
        trace.threads(),
        trace.codes().map(|codes| codes.modules().count()),
        trace.paths(3, Some(FuncId(1))),
    );
    if is_short || !trace.is_recording() {
        let times = trace.times().ok().flatten();
        for thread in (0..2).map(ThreadId) {
            let at = times.as_ref().and_then(|times| times.index_at(thread, 700)).unwrap_or(9);
            let times = times.as_ref().and_then(|times| times.of(thread));
            let _when = times.map(|mut clock| [clock.at(3), clock.at(at)]);
            for start in [0, 33, at.saturating_sub(20), 1 << 40, u64::MAX - 5] {
                let mut n = 0;
                let _damaged = trace.expand(thread, start..start.saturating_add(60), |_| {
                    n += 1;
                    if n > 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
            }
        }
    }
    if is_short {
        let _damaged = (trace.stats(), trace.block_counts(None), trace.observed_flow(FuncId(1)));
    }
}

/// Searches a path: in what is not unpacked, whatever the length.
fn search(trace: &Trace, path: &Path, is_short: bool) {
    let automaton = Automaton::new(path).expect("it is small");
    let at = Position { thread: ThreadId(0), index: 41 };
    let far = Position { thread: ThreadId(1), index: u64::MAX };
    for scheme in [Scheme::Grammar, Scheme::Segments, Scheme::Columns] {
        for want in [
            Want::Count,
            Want::First,
            Want::CountAndFirst,
            Want::Nth(3),
            Want::Nth(u64::MAX),
            Want::Next(at),
            Want::Previous(at),
            Want::Previous(far),
            Want::CountBefore(far),
            Want::PerThread,
        ] {
            let _damaged = trace.search(&automaton, want, Some(scheme));
        }
    }
    if is_short
        || trace.load_grammar().is_ok()
            && trace.search(&automaton, Want::Count, Some(Scheme::Grammar)).is_ok()
    {
        let _damaged = trace.count_by_caller(path);
    }
    if is_short {
        let (mut counts, mut all) = (Vec::new(), Vec::new());
        for scheme in Scheme::ALL {
            counts.extend(trace.search(&automaton, Want::Count, Some(scheme)).map(|(found, _)| found.count));
            all.extend(
                trace.search(&automaton, Want::All, Some(scheme)).map(|(found, _)| found.all.len() as u64),
            );
            let ranges = [(ThreadId(0), 10..40), (ThreadId(1), 0..u64::MAX)].into();
            let _damaged = trace.search_within(path, Want::CountAndFirst, Some(scheme), &ranges);
        }
        assert!(all.len() <= counts.len());
    }
}

/// Any text as names of a plain trace; what can be read is written and read again.
pub fn names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Names::parse(&text) {
        Ok(names) => {
            let plain = [Symbol::enter(FuncId(0)), Symbol::block(BlockId(0)), Symbol::EXIT]
                .map(|symbol| symbol.0.to_le_bytes())
                .concat();
            let mut file = tempfile::tempfile().expect("a temporary file");
            let stores = Stores { grammar: None, chunks: Some(Codec::Zstd) };
            import::import(plain.as_slice(), &mut file, &names, stores).expect("there is room");
            let trace = Trace::open(file).expect("we wrote it");
            assert_eq!(trace.names().expect("we wrote it"), names);
        }
        Err(err) => assert!(!err.to_string().contains('\n'), "{err}"),
    }
}

/// Any text as a path, of functions and blocks with names and of such without; what can be read is searched.
pub fn path(bytes: &[u8]) {
    static NAMES: LazyLock<Names> = LazyLock::new(|| Names::parse(seeds::META).expect("it is right"));
    static RUN: LazyLock<Vec<u8>> = LazyLock::new(|| seeds::traces().swap_remove(0));
    let text = String::from_utf8_lossy(bytes);
    for names in [&*NAMES, &Names::default()] {
        match Path::parse(&text, names) {
            Ok(path) => {
                let mut file = tempfile::tempfile().expect("a temporary file");
                file.write_all(&RUN).expect("there is room");
                let trace = Trace::open(file).expect("it is whole");
                let counts: Vec<u64> = Scheme::ALL
                    .iter()
                    .filter_map(|&scheme| trace.search_path(&path, Want::Count, Some(scheme)).ok())
                    .map(|(found, _)| found.count)
                    .collect();
                assert!(counts.windows(2).all(|two| two[0] == two[1]), "{text:?}: {counts:?}");
            }
            Err(err) => assert!(!err.what.is_empty() && !err.hint.is_empty(), "{text:?}"),
        }
    }
}

/// Any bytes as a plain trace: refused, or packed and given back as it was.
pub fn plain_trace(bytes: &[u8]) {
    let mut file = tempfile::tempfile().expect("a temporary file");
    if import::import(bytes, &mut file, &Names::default(), Stores::PACKED).is_ok() {
        let trace = Trace::open(file).expect("we wrote it");
        let mut back = Vec::new();
        let read = trace.read(|_, symbols| {
            plain::write(&mut back, symbols).expect("there is memory");
            ControlFlow::<()>::Continue(())
        });
        assert!(read.expect("we wrote it").is_none() && back == bytes, "it is not what it was");
    }
}

/// Any text as what `perf script` prints of branches in [`PROGRAM`]: what is made of it is balanced.
pub fn branches(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let modules = [branches::Module { program: &*PROGRAM, first: FuncId(0) }];
    let (mut walker, mut bias) = (branches::Walker::new(&modules), None);
    let _is_one = perf::is_one(&text);
    for line in text.lines() {
        let place = |at: u64| {
            let bias: Option<Bias> = bias;
            Some(branches::ModuleVa { module: 0, at: bias?.to_image(LiveVa(at)) })
        };
        match perf::line(line) {
            None => {}
            Some(perf::Line::Mapped(mapped)) => bias = perf::bias(&PROGRAM, &mapped).or(bias),
            Some(perf::Line::Stack { branches, ip, .. }) => {
                walker.lose();
                branches.into_iter().for_each(|(from, to)| walker.branch(place(from), place(to), false));
                walker.seen_at(ip.and_then(place));
            }
            Some(perf::Line::Branch { from, to, is_interrupt, .. }) => {
                walker.branch(from.and_then(|p| place(p.at)), to.and_then(|p| place(p.at)), is_interrupt);
            }
            Some(perf::Line::Lost { .. } | perf::Line::Senseless { .. }) => walker.lose(),
        }
    }
    walker.finish();
    let mut balance = Balance::default();
    for code in walker.symbols {
        balance.push(Symbol(code)).expect("balanced");
    }
    balance.finish().expect("balanced");
}

/// A module and words of events, whatever they say: what comes out is balanced.
pub fn events(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return };
    let Some((code, words)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else { return };
    let Ok(code) = postcard::from_bytes(code) else { return };
    let codes = ModuleCodes::new(vec![code]);
    let words: Vec<u32> =
        words.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("four"))).collect();
    let (mut decoder, mut out) = (EventDecoder::new(&codes), Vec::new());
    decoder.push(&words, &mut out);
    decoder.finish(Cause::ProcessEnd, &mut out);
    let mut balance = Balance::default();
    for code in out {
        balance.push(Symbol(code)).expect("balanced");
    }
    balance.finish().expect("balanced");
}
