//! Programs made for tests.

use program::{Image, Program};

/// What gcc makes of `source`, in the language that `suffix` says, with `flags`.
pub fn compiled(source: &str, suffix: &str, flags: &str) -> Program {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, file) = (folder.path().join(format!("text.{suffix}")), folder.path().join("text"));
    std::fs::write(&text, source).expect("written");
    let mut gcc = std::process::Command::new("gcc");
    let made = gcc.args(flags.split_whitespace()).arg("-o").arg(&file).arg(&text).status();
    assert!(made.expect("gcc runs").success());
    Program::analyze_code(Image::load(&file).expect("an image"))
}
