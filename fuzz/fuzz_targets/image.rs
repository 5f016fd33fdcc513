//! Any bytes as an ELF file: loaded or refused, with its lines.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(image) = program::Image::parse(bytes.to_vec(), "fuzz") {
        let lines = program::Lines::load(&image);
        if let (Some(lines), Some(entry)) = (lines, image.entry) {
            lines.frames(entry);
        }
    }
});
