//! For tests: programs made by the system's gcc.

use program::{FuncId, Image, Program};
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
