//! For tests: programs made by the system's gcc.

use crate::counts::{Edge, Exactness, ImageRef, Profile};
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
    }
}

pub mod perf_file;
