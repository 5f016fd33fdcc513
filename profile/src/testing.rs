//! For tests: programs made by the system's gcc.

use crate::counts::{Edge, Exactness, ImageRef, Intervals, Profile};
use program::{FuncId, Image, ImageId, Program, Va};
use std::process::Command;

/// Assembles AT&T text into a shared object and analyses it.
#[track_caller]
pub fn assemble(text: &str) -> Program {
    compile(text, "s", &["-nostdlib", "-shared", "-Wl,-z,noseparate-code"])
}

/// Compiles one file with gcc.
#[track_caller]
pub fn compile(text: &str, extension: &str, flags: &[&str]) -> Program {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join(format!("input.{extension}"));
    let binary = folder.path().join("output");
    std::fs::write(&source, text).expect("the temporary folder can be written");
    let done = Command::new("gcc")
        .args(flags)
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .output()
        .expect("gcc is installed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Program::analyze(Image::load(&binary).expect("gcc's output can be loaded"))
}

/// The function of this name.
#[track_caller]
pub fn function(program: &Program, name: &str) -> FuncId {
    let found = program.func_ids().find(|&f| program.function(f).names.iter().any(|n| &**n == name));
    found.unwrap_or_else(|| panic!("no function {name}"))
}

/// A profile with something in every table.
pub fn sample() -> Profile {
    let edge = |from, to| Edge { from: Va(from), to: Va(to) };
    Profile {
        image: ImageRef {
            name: "a.out".to_owned(),
            id: Some(ImageId(0x1234)),
            build_id: Some(vec![0xab, 0xcd]),
        },
        exactness: Exactness::Exact,
        entries: [(Va(0x1000), 7), (Va(0x1_0000_2000), 1)].into(),
        blocks: [(Va(0x1000), 9), (Va(0x1010), 0), (Va(0xffff_ffff_8000_0000), u64::MAX)].into(),
        edges: [(edge(0x1000, 0x1010), 2), (edge(0x1010, 0x1000), 300)].into(),
        mispredicts: [(edge(0x1010, 0x1000), 5)].into(),
        calls: [((Va(0x1004), Va(0x1_0000_2000)), 1), ((Va(0x1014), Va(0x1000)), 6)].into(),
        calls_out: [(Va(0x1018), 128)].into(),
        intervals: Intervals::default(),
        calls_beyond: [].into(),
    }
}

/// What the formats of branches are tested on, at a fixed address. `f`, 0x401000: 0 test, 2 je →9, 4 call g,
/// 9 ret; `g`, 0x40100a: jmp f; `_start`, 0x40100c: call f, then hlt at 0x401011.
#[track_caller]
pub fn branching() -> Program {
    let text = ".globl f\n.type f,@function\nf: test %edi,%edi\nje 1f\ncall g\n1: ret\n.size f,.-f\n.globl g\n\
                .type g,@function\ng: jmp f\n.size g,.-g\n.globl _start\n.type _start,@function\n_start: call f\nhlt\n\
                .size _start,.-_start\n";
    compile(
        text,
        "s",
        &["-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x401000", "-Wl,--build-id=none", "-Wl,-q"],
    )
}

/// What llvm-bolt reads of `profile`, sorted.
pub fn as_fdata(profile: &Profile, program: &Program) -> Vec<String> {
    let text =
        String::from_utf8(crate::formats::bolt::fdata::write(profile, program).bytes).expect("it is text");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// What perf2bolt 19.1.7 makes of two runs of `_start` into `f`, which calls `g`, which jumps to `f`, which
/// returns: `perf2bolt output -p s.preagg -pa -o o.fdata`, sorted. [`RUNS`] is s.preagg.
pub const PERF2BOLT: [&str; 5] =
    ["0 [unknown] 0 1 f 0 0 2", "1 f 2 1 f 4 0 2", "1 f 2 1 f 9 2 2", "1 f 4 1 g 0 0 2", "1 g 0 1 f 0 0 2"];

/// The samples that [`PERF2BOLT`] was made of.
pub const RUNS: &str = "B 401009 401011 2 0\nF 401009 401009 2\nB 401002 401009 2 2\nF 401000 401002 2\nB 40100a 401000 2 0\n\
    F 40100a 40100a 2\nB 401004 40100a 2 0\nF 401000 401004 2\nB X:0 401000 2 0\n";

pub mod perf_file;
