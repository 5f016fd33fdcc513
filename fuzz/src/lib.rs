//! What is done with hostile bytes: one function a target, for libFuzzer (`fuzz_targets`) and for mutations (`main`).
//!
//! A target returns if all is well, and panics if not.

pub mod seeds;

use matching::{CarryOptions, Map, Matching, MergeOptions, Options, carry, merge, score};
use profile::{Context, Format, Profile, recording};
use program::{Image, Lines, Program, Va, arch::Decoder};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::LazyLock;
use trace::decode::{Codes, Decoder as EventDecoder};
use trace::{Automaton, Balance, Cause, Path, Scheme, Symbol, Trace, Want, file};
use xxhash_rust::xxh3::xxh3_64;

/// A target.
pub type Target = fn(&[u8]);

/// By name, with files that are whole.
pub fn targets() -> Vec<(&'static str, Target, fn() -> Vec<Vec<u8>>)> {
    vec![
        ("image", image, seeds::programs),
        ("program", program, seeds::programs),
        ("decode", decode, seeds::code),
        ("profile", profile, seeds::profiles),
        ("recording", recording, seeds::recordings),
        ("map", map, seeds::maps),
        ("carry", carry_on, seeds::profiles),
        ("trace", trace_file, seeds::traces),
        ("events", events, seeds::events),
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
    let done = Command::new("gcc").args(flags).arg("-o").arg(&to).arg(&from).status().expect("gcc is installed");
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

/// Any bytes as an ELF file: loaded or refused, with its lines.
pub fn image(bytes: &[u8]) {
    if let Ok(image) = Image::parse(bytes.to_vec(), "fuzz") {
        let lines = Lines::load(&image);
        if let (Some(lines), Some(entry)) = (lines, image.entry) {
            lines.frames(entry);
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

/// Any bytes as instructions: operands, effects and text of each can be asked for.
pub fn decode(bytes: &[u8]) {
    for insn in Decoder::new(bytes, Va(0x1000)) {
        let _ = (insn.flow(), insn.operands().count(), insn.effects(), insn.refers_to(true), insn.to_string());
    }
}

/// With the checksum that our own files end in: without, damage would never get past it.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let body = bytes.get(..bytes.len().checked_sub(8)?)?;
    bytes.starts_with(b"ENGRAFT\0").then(|| [body, &xxh3_64(body).to_le_bytes()].concat())
}

fn read(bytes: &[u8]) -> Option<Profile> {
    let bytes = sealed(bytes).unwrap_or_else(|| bytes.to_vec());
    match profile::read(&bytes, &Context::of(&PROGRAM)) {
        Ok(read) => Some(read.profile),
        Err(err) => {
            let said = err.to_string();
            assert!(!said.is_empty() && !said.contains('\n'), "{said:?}");
            None
        }
    }
}

/// Any bytes as a profile, of whatever format they look like; what can be read can be added up, scaled, compared, and
/// written in every format, and what was written is read.
pub fn profile(bytes: &[u8]) {
    let Some(read) = read(bytes) else { return };
    let mut twice = read.clone();
    twice.add(&read);
    twice.scale(0.3);
    let overlap = read.overlap(&twice);
    assert!((0.0..1.001).contains(&overlap), "{overlap}");
    for format in Format::all().filter(|f| f.is_written()) {
        let written = profile::write(&read, Some(&PROGRAM), format).expect("the program is at hand, with its lines");
        if format.is_read() && !written.bytes.is_empty() && read.total() > 0 {
            match profile::read(&written.bytes, &Context::of(&PROGRAM)) {
                Ok(_) => {}
                // A profile of another image, or one that has nothing to say in this format.
                Err(err) => assert!(written.count == 0 || read.image.id != Some(PROGRAM.image.id), "{format}: {err}"),
            }
        }
    }
}

/// Any bytes as a recording of a run.
pub fn recording(bytes: &[u8]) {
    let bytes = sealed(bytes).unwrap_or_else(|| bytes.to_vec());
    if let Ok(profiles) = recording::parse(&bytes) {
        assert_eq!(recording::parse(&recording::write(&profiles)).expect("we wrote it"), profiles);
    }
}

/// Any text as a map of two builds; what can be read is written and read again, and is matched and carried along.
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

/// The sections of a trace, as far as they can be told apart, with checksums that fit.
fn resealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (start, mut rest) = bytes.split_at_checked(16)?;
    let mut out = start.to_vec();
    while let Some((head, behind)) = rest.split_at_checked(24) {
        let len = usize::try_from(u64::from_le_bytes(head[8..16].try_into().ok()?)).ok()?;
        let (payload, behind) = behind.split_at_checked(len)?;
        out.extend(file::section(head[..4].try_into().ok()?, payload));
        rest = behind;
    }
    Some(out)
}

/// Any bytes as a trace, as they are and with checksums that fit: refused, or read, balanced, searched.
pub fn trace_file(bytes: &[u8]) {
    for bytes in [Some(bytes.to_vec()), resealed(bytes)].into_iter().flatten() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&bytes).expect("there is room");
        let Ok(trace) = Trace::open(file) else { continue };
        let mut n_read = 0;
        let _damaged = trace.read(|_, symbols| {
            n_read += symbols.len();
            // A grammar of a few bytes may stand for any number of symbols.
            if n_read > 1 << 16 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if n_read > 1 << 16 {
            continue;
        }
        let _stats = (trace.stats(), trace.block_counts(None), trace.threads(), trace.codes().map(|codes| codes.modules().count()));
        let automaton = Automaton::new(&Path::of(1, &[0, 1])).expect("it is plain");
        for scheme in Scheme::ALL {
            for want in [Want::Count, Want::First, Want::All] {
                let _damaged = trace.search(&automaton, want, Some(scheme));
            }
        }
    }
}

/// A module and words of events, whatever they say: what comes out is balanced.
pub fn events(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return };
    let Some((code, words)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else { return };
    let Ok(code) = postcard::from_bytes(code) else { return };
    let codes = Codes::new(vec![code]);
    let words: Vec<u32> = words.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("four"))).collect();
    let (mut decoder, mut out) = (EventDecoder::new(&codes), Vec::new());
    decoder.push(&words, &mut out);
    decoder.finish(Cause::ProcessEnd, &mut out);
    let mut balance = Balance::default();
    for code in out {
        balance.push(Symbol(code)).expect("balanced");
    }
    balance.finish().expect("balanced");
}
