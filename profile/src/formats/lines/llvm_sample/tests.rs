//! Held against llvm-profdata 19: the text that it prints of the same counts.

use super::*;
use crate::testing::{compile, function};

/// `llvm-profdata merge --sample --text` of these counts, written by hand: offsets are lines behind the
/// function's.
const MERGED: &str = include_str!("merged.prof");

/// Executions by line of the program that the tests of lcov have; those of the braces are those of the
/// function's end.
const BY_LINE: [(u32, u64); 10] =
    [(2, 10), (4, 5), (5, 5), (6, 10), (7, 1), (9, 11), (10, 10), (11, 5), (12, 1), (13, 1)];

fn counted() -> (Program, Profile) {
    let program = compile(crate::formats::lines::lcov::tests::SOURCE, "c", &["-O0", "-g"]);
    let lines = Lines::load(&program.image).unwrap();
    let (main, odd) = (function(&program, "main"), function(&program, "odd"));
    let mut profile = Profile { exactness: Exactness::Inferred, ..Profile::default() };
    profile.image = ImageRef::of(&program.image);
    for b in [main, odd].into_iter().flat_map(|f| program.function(f).block_ids()) {
        let start = program.block(b).start;
        let line = lines.frames(start)[0].line.unwrap();
        let count = BY_LINE.iter().find(|(l, _)| *l == line).expect("the line has code").1;
        profile.blocks.insert(start, count);
        for call in program.calls_in(b) {
            profile.calls.insert((call.at, program.function(odd).entry), 10);
        }
    }
    profile.entries = [(program.function(main).entry, 1), (program.function(odd).entry, 10)].into();
    (program, profile)
}

#[test]
fn what_is_written_is_what_llvm_profdata_prints() {
    let (program, profile) = counted();
    let written = write(&profile, &program).unwrap();
    assert_eq!(String::from_utf8(written.bytes).unwrap(), MERGED);
    assert_eq!((written.n_functions, written.lost), (2, vec![]));
}

#[test]
fn what_llvm_profdata_printed_is_read() {
    let (program, profile) = counted();
    assert!(is_one(MERGED));
    let (read, lost) = parse(MERGED.as_bytes(), &program).unwrap();
    assert_eq!((&read.entries, lost), (&profile.entries, vec![]));
    assert_eq!(read.blocks, profile.blocks);
    // Discriminators, checksums and functions of other programs are no errors.
    let more = MERGED.replace(" 2: 5\n", " 2.1: 5\n 2: 3\n !CFGChecksum: 42\n") + "other:7:1\n 1: 7\n";
    let (read, lost) = parse(more.as_bytes(), &program).unwrap();
    assert_eq!(read.blocks, profile.blocks);
    let lost: Vec<_> = lost.iter().map(|l| (l.what.as_str(), l.count)).collect();
    assert_eq!(lost, [("other", 7)]);
}

#[test]
fn an_inlined_function_is_a_body_of_its_own() {
    let text = "int v;\nstatic inline __attribute__((always_inline)) void in(int x) {\n    v = x;\n}\n\
                __attribute__((noinline)) void out(int x) {\n    v = 1;\n    in(x);\n}\nint main(void) { out(1); return 0; }\n";
    let program = compile(text, "c", &["-O0", "-g"]);
    let out = program.function(function(&program, "out"));
    let blocks = program.func_ids().find(|&f| program.function(f).entry == out.entry).unwrap();
    let blocks = program.function(blocks).block_ids().map(|b| (program.block(b).start, 4)).collect();
    let profile = Profile { blocks, ..Profile::default() };
    let got = String::from_utf8(write(&profile, &program).unwrap().bytes).unwrap();
    // llvm-profgen's form: the call's line, the callee and its total, then its lines a blank further in.
    let inlined = got.split_once(" 2: in:").expect("inlined two lines behind").1;
    assert!(got.starts_with("out:") && inlined.contains("\n  1: 4\n"), "{got}");
    let (read, _) = parse(got.as_bytes(), &program).unwrap();
    assert_eq!(read.blocks, profile.blocks);
}

#[test]
fn lines_that_are_no_records_are_refused() {
    let (program, _) = counted();
    for (text, want) in [
        ("main:1:1\n x: 3\n", "line 2 is no prof record: \" x: 3\""),
        ("main:1:1\n 3:\n", "line 2 is no prof record: \" 3:\""),
        ("main:1\n", "line 1 is no prof record: \"main:1\""),
        (" 1: 3\n", "line 1 is no prof record: \" 1: 3\""),
    ] {
        assert_eq!(parse(text.as_bytes(), &program).unwrap_err().to_string(), want);
    }
}
