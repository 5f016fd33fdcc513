//! Any text as a map of a small program of the system to itself.
#![no_main]

use std::sync::LazyLock;

static PROGRAM: LazyLock<program::Program> = LazyLock::new(|| {
    let image = program::Image::load("/bin/true".as_ref()).expect("every system has it");
    program::Program::analyze(image)
});

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _map = matching::Map::parse(text, &PROGRAM, &PROGRAM);
});
