//! Any bytes as an ELF file, analysed: what the analysis promises holds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(image) = program::Image::parse(bytes.to_vec(), "fuzz") {
        let violations = program::Program::analyze(image).verify();
        assert!(violations.is_empty(), "{violations:?}");
    }
});
