//! Names and extensions, what is no profile, what a format has no place for; and every format cut off and
//! changed at every byte.

use super::*;
use crate::testing::function;
use crate::testing::perf_file::PerfFile;
use proptest::prelude::*;
use std::path::Path;

#[test]
fn extensions_and_names_lead_to_formats() {
    for (path, want) in [
        ("a.fdata", Some(Format::Fdata)),
        ("/x/b.ENGRAFT", Some(Format::Engraft)),
        ("c.json", Some(Format::Json)),
        ("csv", None),
        ("d.c", None),
        ("", None),
    ] {
        assert_eq!(Format::from_extension(Path::new(path)), want, "{path}");
    }
    assert!(Format::all().all(|f| Format::named(f.name()) == Some(f)));
}

#[test]
fn what_a_format_has_no_place_for_is_said() {
    #[track_caller]
    fn check(format: Format, want: &[&str]) {
        let program = crate::testing::assemble(".globl f\n.type f,@function\nf: ret\n.size f,.-f\n");
        let written = write(&crate::testing::sample(), Some(&program), format).unwrap();
        let said = written.lost.iter().map(|l| format!("{} {}", l.count, l.what));
        let said: Vec<_> = said.filter(|l| !l.contains("0x") && !l.ends_with(" blocks")).collect();
        assert_eq!(said, want, "{format}");
    }
    let all = ["302 2 edges", "135 3 calls", "8 2 entries of functions", "5 1 mispredicted edges"];
    for format in [Format::Csv, Format::Pprof, Format::Folded] {
        check(format, &all);
    }
    check(Format::Callgrind, &all[3..]);
    check(Format::Engraft, &[]);
    check(Format::Json, &[]);
}

/// f: 0 test, 2 je →9, 4 call g, 9 call *8(%rax), c ret; g: 0 ret.
const CALLING: &str = ".globl f\n.type f,@function\nf: test %edi,%edi\nje 1f\ncall g\n1: call *8(%rax)\nret\n.size f,.-f\n\
    .type g,@function\ng: ret\n.size g,.-g\n";

#[test]
fn counts_that_a_format_of_branches_or_lines_cannot_say_are_said_to_be_left_out() {
    let program = crate::testing::assemble(CALLING);
    let entry = |name| program.function(function(&program, name)).entry;
    let (f, g) = (entry("f"), entry("g"));
    let edge = |a, b| crate::Edge { from: f.plus(a), to: f.plus(b) };
    #[track_caller]
    fn check(program: &Program, profile: &Profile, format: Format, want: &[(&str, u64)]) {
        let written = write(profile, Some(program), format).unwrap();
        let said: Vec<_> = written.lost.iter().map(|l| (l.why.as_str(), l.count)).collect();
        assert_eq!(said, want, "{format}");
    }
    let alone = "a block's count without a way in or out has no record";
    // A block in the middle of which nothing else is known.
    let middle = Profile { blocks: [(f, 9), (f.plus(4), 5), (g, 2)].into(), ..Profile::default() };
    check(&program, &middle, Format::Fdata, &[(alone, 5)]);
    check(&program, &middle, Format::Preagg, &[(alone, 9), (alone, 5), (alone, 2)]);
    check(&program, &middle, Format::Callgrind, &[]);
    // What follows from branches is no loss; that falling through was mispredicted is one.
    let misses = Profile {
        blocks: [(f, 9), (f.plus(4), 5), (f.plus(9), 9)].into(),
        edges: [(edge(0, 4), 5), (edge(0, 9), 4), (edge(4, 9), 5)].into(),
        mispredicts: [(edge(0, 4), 3), (edge(0, 9), 2)].into(),
        ..Profile::default()
    };
    check(&program, &misses, Format::Fdata, &[]);
    check(&program, &misses, Format::Preagg, &[("the format has mispredictions of taken branches alone", 3)]);
    // Samples and calls do not go together.
    let samples = Profile {
        blocks: [(f, 9)].into(),
        calls: [((f.plus(4), g), 4)].into(),
        calls_out: [(f.plus(9), 7)].into(),
        exactness: crate::Exactness::Sampled,
        ..Profile::default()
    };
    check(&program, &samples, Format::Fdata, &[("samples have no counts of calls", 11)]);
    // `f+4` and `f+9` are in blocks that have no count.
    check(
        &program,
        &samples,
        Format::Callgrind,
        &[("its block has no count", 4), ("its block has no count", 7)],
    );
}

#[test]
fn names_from_files_do_not_end_lines() {
    let program = crate::testing::assemble(CALLING);
    let mut profile = Profile { blocks: [(program.functions[0].entry, 9)].into(), ..Profile::default() };
    profile.image.name = "a\nb\u{1b}[2J".to_owned();
    let written =
        String::from_utf8(write(&profile, Some(&program), Format::Callgrind).unwrap().bytes).unwrap();
    assert!(written.contains("\nob=a?b?[2J\n"), "{written}");
    profile.image.id = Some(ImageId(7));
    let err =
        read(&write(&profile, None, Format::Engraft).unwrap().bytes, &Context::of(&program)).unwrap_err();
    assert!(err.to_string().starts_with("the profile is of a?b?[2J (000"), "{err}");
    let script = b"PERF_RECORD_MMAP2 7/7: [0x1000(0x1000) @ 0 fe:00 54 0]: r-xp /bin/o\x1b[2J\n";
    let err = read(script, &Context::of(&program)).unwrap_err().to_string();
    assert!(err.ends_with("it is of /bin/o?[2J"), "{err}");
}

#[test]
fn a_first_line_of_any_length_is_recognised() {
    for len in [10, 4_000, 5_000, 100_000] {
        let name = "x".repeat(len);
        let fdata = format!("1 {name} 0 1 {name} 9 0 3\n1 f 0 1 f 9 0 3\n");
        assert_eq!(Format::recognise(fdata.as_bytes()), Some(Format::Fdata), "{len}");
    }
    assert_eq!(Format::recognise("x".repeat(3 << 20).as_bytes()), None);
}

#[test]
fn what_is_no_profile_is_refused_with_its_start() {
    for (bytes, start) in [(&b"\x7fELF\x02"[..], "\\u{7f}ELF\\u{2}"), (b"", ""), (b"hello\n", "hello\\n")] {
        let want = format!("the profile is of no known format: it starts with \"{start}\"");
        assert_eq!(read(bytes, &Context::default()).unwrap_err().to_string(), want);
    }
}

/// A program with lines, and a profile of it with something in every table.
fn counted() -> (Program, Profile) {
    let text = "int v;\n__attribute__((noinline)) int g(int x) { if (x > 2) v = x; return x + 1; }\n\
                int main(int n, char **a) { for (int i = 0; i < n; i++) v += g(i); return v; }\n";
    let program = crate::testing::compile(text, "c", &["-O1", "-g", "-Wl,--emit-relocs"]);
    let (main, g) = (function(&program, "main"), function(&program, "g"));
    let mut profile = Profile { image: crate::ImageRef::of(&program.image), ..Profile::default() };
    for f in [main, g] {
        profile.entries.insert(program.function(f).entry, 3);
        for id in program.function(f).block_ids() {
            let from = program.block(id).start;
            profile.blocks.insert(from, 3);
            for e in program.successors(id) {
                profile.edges.insert(crate::Edge { from, to: program.block(e.to).start }, 2);
            }
            for c in program.calls_in(id) {
                profile.calls.insert((c.at, program.function(g).entry), 3);
            }
        }
    }
    (program, profile)
}

/// A file of every format that is read, small and whole.
fn files(program: &Program, profile: &Profile) -> Vec<(Format, Vec<u8>)> {
    let both = Format::all().filter(|f| f.is_written() && f.is_read());
    let mut files: Vec<_> = both.map(|f| (f, write(profile, Some(program), f).unwrap().bytes)).collect();
    let s = program.image.segments.iter().find(|s| s.executable).unwrap();
    let &(call, callee) = profile.calls.keys().next().expect("main calls g");
    let (from, to) = (call.0, callee.0);
    let script = format!(
        "PERF_RECORD_MMAP2 7/7: [{:#x}(0x1000) @ {:#x} fe:00 53 28]: r-xp /x/output\n  a.out 7 1.5: cycles:u: {to:x} \
         {from:#x}/{to:#x}/M/-/-/3 {from:#x}/{to:#x}/P/-/-/3\n",
        s.range.start.0, s.offset.0
    );
    files.push((Format::PerfScript, script.into_bytes()));
    let file = PerfFile::new().mapped(7, s.range.start.0, 0x1000, s.offset.0, None, "/x/output").sample(
        7,
        to,
        &[(from, to, true), (from, to, false)],
    );
    files.push((Format::PerfData, file.bytes()));
    files.push((Format::Fdata, b"no_lbr cycles\n1 g 0 5\n1 main 1 2\n".to_vec()));
    let main = program.function(function(program, "main")).entry;
    let bolted =
        format!("boltedcollection\n1 main {:x} 1 g 0 0 5\n0 [unknown] 0 1 g 0 0 5\n", call.since(main));
    files.push((Format::Fdata, bolted.into_bytes()));
    let yaml = "---\nheader:\n  profile-version: 1\n  binary-name: 'x'\n  profile-flags: [ lbr ]\nfunctions:\n  - name: g\n    \
                fid: 1\n    exec: 3\n    blocks:\n      - bid: 0\n        hash: 0x10000\n        succ: [ { bid: 1, cnt: 3 } ]\n      \
                - bid: 1\n        calls: [ { off: 0x1, fid: 1, cnt: 1 } ]\n...\n";
    files.push((Format::BoltYaml, yaml.as_bytes().to_vec()));
    files
}

/// Reads what is no whole file: it may be one by chance, but what is said of it is one line that says where,
/// or what it is instead.
#[track_caller]
fn tried(format: Format, bytes: &[u8], program: &Program, what: &str) {
    let Err(err) = read(bytes, &Context::of(program)) else { return };
    let said = err.to_string();
    assert!(!said.is_empty() && !said.contains('\n'), "{format} {what}: {said:?}");
    match err {
        ReadError::BadLine { line, .. } => {
            let n_lines = bytes.split(|b| *b == b'\n').count();
            assert!((1..=n_lines + 1).contains(&line), "{format} {what}: {said}");
        }
        ReadError::Damaged { at, .. } => assert!(at <= bytes.len(), "{format} {what}: {said}"),
        _ => {}
    }
}

#[test]
fn every_format_is_recognised_and_read() {
    let (program, profile) = counted();
    for (format, bytes) in files(&program, &profile) {
        assert_eq!(Format::recognise(&bytes), Some(format));
        let got = read(&bytes, &Context::of(&program)).unwrap_or_else(|err| panic!("{format}: {err}"));
        assert!(got.profile.total() > 0, "{format}");
    }
}

#[test]
fn no_format_panics_when_it_is_cut_off_or_a_byte_is_changed() {
    let (program, profile) = counted();
    for (format, whole) in files(&program, &profile) {
        for len in 0..whole.len() {
            tried(format, &whole[..len], &program, &format!("cut off at {len}"));
        }
        for i in 0..whole.len() {
            for value in [0, 0xff, b'9', b'-', b' ', whole[i] ^ 1, whole[i] ^ 0x80] {
                let mut changed = whole.clone();
                changed[i] = value;
                tried(format, &changed, &program, &format!("byte {i} made {value:#x}"));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn no_format_panics_when_pieces_change_places(from in any::<usize>(), len in 1..64usize, to in any::<usize>(), value in any::<u8>()) {
        static COUNTED: std::sync::OnceLock<(Program, Profile)> = std::sync::OnceLock::new();
        let (program, profile) = COUNTED.get_or_init(counted);
        for (format, whole) in files(program, profile) {
            let from = from % whole.len();
            let piece: Vec<u8> = whole[from..].iter().take(len).copied().collect();
            let to = to % whole.len();
            let changed = [&whole[..to], &piece, &[value], &whole[to..]].concat();
            tried(format, &changed, program, &format!("{len} bytes from {from} put in at {to}"));
        }
    }
}
