//! perf.data written byte by byte, since few machines have branch stacks: the same counts as of the text that
//! says the same.

use super::parse;
use crate::ReadError;
use crate::formats::perf::perf_script;
use crate::testing::{function, perf_file::PerfFile};
use program::{Program, Va};

/// f: 0 test, 2 je →9, 4 call g, 9 ret; g: 0 jmp f. Its build-id is abcd.
fn program() -> Program {
    let text = ".globl f\n.type f,@function\nf: test %edi,%edi\nje 1f\ncall g\n1: ret\n.size f,.-f\n\
                .type g,@function\ng: jmp f\n.size g,.-g\n";
    crate::testing::compile(text, "s", &["-nostdlib", "-shared", "-Wl,--build-id=0xabcd"])
}

/// Where the code segment lies: its address, length and place in the file.
fn code(program: &Program) -> (u64, u64, u64) {
    let s = program.image.segments.iter().find(|s| s.executable).expect("it has code");
    (s.range.start.0, s.range.end.since(s.range.start), s.offset.0)
}

#[test]
fn branch_stacks_say_what_the_text_of_them_says() {
    let program = program();
    let f = program.function(function(&program, "f")).entry.0;
    let g = program.function(function(&program, "g")).entry.0;
    let (start, len, offset) = code(&program);
    let bias = 0x5600_0000_0000u64;
    let b = |from: u64, to: u64, missed| (from + bias, to + bias, missed);
    let stack = [b(f + 2, f + 9, true), b(g, f, false), b(f + 4, g, false)];
    let file = PerfFile::new()
        .mapped(7, start + bias, len, offset, None, "/x/output")
        .sample(7, f + 9 + bias, &stack)
        .sample(7, f + 9 + bias, &stack);
    let stack_text: Vec<String> = stack
        .iter()
        .map(|(from, to, missed)| format!("{from:#x}/{to:#x}/{}/-/-/0", if *missed { 'M' } else { 'P' }))
        .collect();
    let line = format!("  a.out 7 1.5: cycles:u: {:x} {}\n", f + 9 + bias, stack_text.join(" "));
    let text = format!(
        "PERF_RECORD_MMAP2 7/7: [{:#x}({len:#x}) @ {offset:#x} fe:00 53 28]: r-xp /x/output\n{line}{line}",
        start + bias
    );
    let (got, lost) = parse(&file.bytes(), &program).unwrap();
    let (want, _) = perf_script::parse(text.as_bytes(), &program).unwrap();
    assert_eq!((&got, lost), (&want, vec![]));
    assert_eq!(got.calls[&(Va(f + 4), Va(g))], 2);
    assert_eq!(got.mispredicts.values().sum::<u64>(), 2);
}

#[test]
fn of_several_builds_of_one_name_the_build_id_chooses() {
    let program = program();
    let f = program.function(function(&program, "f")).entry.0;
    let g = program.function(function(&program, "g")).entry.0;
    let (start, len, offset) = code(&program);
    let call = [(f + 4, g, false)];
    let with = |ours: &[u8], theirs: &[u8]| {
        PerfFile::new()
            .mapped(7, start, len, offset, Some(ours), "/x/output")
            .mapped(8, start, len, offset, Some(theirs), "/x/output")
            .sample(7, g, &call)
            .sample(8, g, &call)
            .sample(8, g, &call)
            .bytes()
    };
    let calls = |bytes: &[u8]| parse(bytes, &program).unwrap().0.calls.values().sum::<u64>();
    assert_eq!(calls(&with(&[0xab, 0xcd], &[0xab, 0xce])), 1);
    assert_eq!(calls(&with(&[0xab, 0xce], &[0xab, 0xcd])), 2);
    let err = parse(&with(&[1], &[2]), &program).unwrap_err();
    assert!(matches!(err, ReadError::NotInIt { .. }), "{err}");
}

/// A program at a fixed address that calls a function thirty million times.
const LOOP: &str = ".globl _start\n.type _start,@function\n_start: mov $30000000,%ebx\n1: call leaf\ndec %ebx\njne 1b\n\
    mov $60,%eax\nxor %edi,%edi\nsyscall\n.size _start,.-_start\n.type leaf,@function\nleaf: mov $3,%ecx\n2: dec %ecx\n\
    jne 2b\nret\n.size leaf,.-leaf\n";

#[test]
fn what_perf_recorded_is_what_perf_script_prints_of_it() {
    let flags = ["-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x401000", "-Wl,--build-id=none"];
    let program = crate::testing::compile(LOOP, "s", &flags);
    // perf 6.1: `perf record -e cpu-clock:u -F 500 ./output`; then `perf script -F ip | sort | uniq -c`
    // printed 11 40100a, 1 40100c, 9 401017, 1 40101c, 7 40101e.
    let (profile, lost) = parse(include_bytes!("loop.data"), &program).unwrap();
    assert_eq!(lost, []);
    assert_eq!(profile.blocks, [(Va(0x40_1005), 12), (Va(0x40_1017), 9), (Va(0x40_101c), 8)].into());
    assert_eq!((profile.edges.len(), profile.exactness), (0, crate::Exactness::Sampled));
}

#[test]
fn what_asks_for_more_than_the_file_has_is_refused_with_the_place() {
    let program = program();
    let whole = PerfFile::new().bytes();
    #[track_caller]
    fn check(bytes: &[u8], program: &Program, at: usize, want: &str) {
        match parse(bytes, program).unwrap_err() {
            ReadError::Damaged { at: got, what, .. } => assert_eq!((got, what.as_str()), (at, want)),
            err => panic!("{err}"),
        }
    }
    let with = |at: usize, word: u64| {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        bytes
    };
    check(&with(16, 0), &program, 16, "attributes of events cannot be that long");
    check(&with(48, u64::MAX), &program, 40, "a table that the file is too short for");
    check(&with(104 + 112 + 8, 1 << 40), &program, 104 + 112, "a table that the file is too short for");
    // A table of features that is not there.
    check(&with(72, 1 << 12), &program, whole.len(), "it is cut off");
}
