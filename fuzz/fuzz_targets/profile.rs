//! Any bytes as a profile, of whatever format they look like, of a small program of the system.
#![no_main]

use std::sync::LazyLock;

static PROGRAM: LazyLock<program::Program> = LazyLock::new(|| {
    let image = program::Image::load("/bin/true".as_ref()).expect("every system has it");
    program::Program::analyze(image)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(err) = profile::read(bytes, &profile::Context::of(&PROGRAM)) {
        assert!(!err.to_string().contains('\n'), "{err}");
    }
});
