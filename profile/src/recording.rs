//! A recording: the profiles of all images that one run was counted in, in one `.engraft` file.
//!
//! ```text
//! file     = magic version kind profiles checksum
//! magic    = "ENGRAFT\0"
//! version  = u8, 1
//! kind     = u8, 'R' for a recording
//! profiles = number: varint, that many times: length: varint, a `.engraft` file of kind 'P'
//! checksum = u64, little-endian: XXH3 of all bytes before it
//! ```
//! The first profile is that of the executable; the images' names are the paths they were loaded from.
#![warn(clippy::indexing_slicing)]

use crate::counters;
use crate::counts::Profile;
use crate::engraft::{self, Cursor, MAGIC, VERSION, put_bytes, varint};
use crate::format::ReadError;
use xxhash_rust::xxh3::xxh3_64;

/// Whether `bytes` start as a recording, of ours or of a counted program.
pub fn is_one(bytes: &[u8]) -> bool {
    counters::is_one(bytes) || bytes.starts_with(MAGIC) && bytes.get(MAGIC.len() + 1) == Some(&b'R')
}

/// Writes `profiles`, the executable's first.
pub fn write(profiles: &[Profile]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend([VERSION, b'R']);
    varint(&mut out, profiles.len() as u64);
    for profile in profiles {
        put_bytes(&mut out, &engraft::write(profile).bytes);
    }
    let sum = xxh3_64(&out);
    out.extend(sum.to_le_bytes());
    out
}

/// Reads all profiles of a recording.
///
/// # Errors
/// [`ReadError::Damaged`] if it is cut off, changed, or of a version that we do not know.
pub fn parse(file: &[u8]) -> Result<Vec<Profile>, ReadError> {
    if counters::is_one(file) {
        return counters::parse(file);
    }
    let mut c = Cursor::open(file, b'R', "it is no recording")?;
    let n = c.varint()?;
    let mut profiles = Vec::new();
    for _ in 0..n {
        profiles.push(engraft::parse(c.bytes()?)?);
    }
    Ok(profiles)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may fail")]
mod tests {
    use super::*;
    use crate::testing::sample;

    #[test]
    fn reading_undoes_writing() {
        let mut other = sample();
        other.image.name = "/usr/lib/libother.so".to_owned();
        let profiles = vec![sample(), other];
        assert_eq!(parse(&write(&profiles)).unwrap(), profiles);
        assert_eq!(parse(&write(&[])).unwrap(), []);
    }

    #[test]
    fn every_cut_off_or_changed_file_is_refused() {
        let whole = write(&[sample()]);
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
        }
        for i in 0..whole.len() {
            let mut changed = whole.clone();
            changed[i] ^= 0x10;
            assert!(parse(&changed).is_err(), "{i}");
        }
    }
}
