//! Samples as pprof reads them: with callers, and with what was inlined.

use super::named::NamedSamples;

/// As a file: of each event, samples and how many of it they stand for.
pub fn write(named: &NamedSamples<'_>) -> Vec<u8> {
    crate::formats::lines::pprof::with_callers(named)
}

#[cfg(test)]
mod tests {
    use super::super::testing::named;
    use std::io::Read as _;

    #[test]
    fn samples_have_the_names_of_their_frames() {
        let samples = super::super::tests::samples();
        let bytes = super::write(&named(&samples));
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).expect("it is gzipped");
        let has = |text: &str| plain.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        for name in ["start", "main", "inlined", "do_it", "a.c", "/bin/program", "cpu", "nanoseconds", "0a0b"]
        {
            assert!(has(name), "{name}");
        }
    }
}
