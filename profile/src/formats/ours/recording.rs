//! A recording: the profiles of all images that one run was counted in, in one `.engraft` file.
//!
//! ```text
//! file     = magic version kind profiles (number: varint, that many times: profiles)? checksum
//! magic    = "ENGRAFT\0"
//! version  = u8, 1
//! kind     = u8, 'R' for a recording
//! profiles = number: varint, that many times: length: varint, a `.engraft` file of kind 'P'
//! checksum = u64, little-endian: XXH3 of all bytes before it
//! ```
//! The first profile is that of the executable; the images' names are the paths they were loaded from. Behind
//! the sums may stand the profiles of each thread.
#![warn(clippy::indexing_slicing)]

use crate::counts::Profile;
use crate::encoding::{Cursor, MAGIC, VERSION, put_bytes, varint};
use crate::formats::ours::engraft;
use crate::vocabulary::{Context, Format, ReadError};
use xxhash_rust::xxh3::xxh3_64;

/// How a raw recording starts: the memory that a counted program counted in. It is no profile yet: who knows
/// what the counters mean makes one of it.
pub const RAW_MAGIC: &[u8; 8] = b"ENGRAFT\x02";

/// Whether `bytes` start as a recording, of ours or of a counted program, perhaps of another version.
pub fn is_one(bytes: &[u8]) -> bool {
    let is_written = bytes.starts_with(MAGIC) && bytes.get(MAGIC.len() + 1) == Some(&b'R');
    is_written || bytes.starts_with(b"ENGRAFT") && matches!(bytes.get(7), Some(1..0x20))
}

/// Writes `profiles`, the executable's first.
pub fn write(profiles: &[Profile]) -> Vec<u8> {
    write_with_threads(profiles, &[])
}

/// Writes `profiles`, and behind them those of each thread.
pub fn write_with_threads(profiles: &[Profile], threads: &[Vec<Profile>]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend([VERSION, b'R']);
    let put = |out: &mut Vec<u8>, profiles: &[Profile]| {
        varint(out, profiles.len() as u64);
        for profile in profiles {
            put_bytes(out, &engraft::write(profile).bytes);
        }
    };
    put(&mut out, profiles);
    if !threads.is_empty() {
        varint(&mut out, threads.len() as u64);
        threads.iter().for_each(|thread| put(&mut out, thread));
    }
    let sum = xxh3_64(&out);
    out.extend(sum.to_le_bytes());
    out
}

/// The profile of the program of `context` among those of a recording of `n_bytes`; without a program, of the
/// executable.
///
/// # Errors
/// [`ReadError::NotInIt`] if there is none of that program, [`ReadError::Damaged`] if there is none at all.
pub fn choose(profiles: Vec<Profile>, context: &Context, n_bytes: usize) -> Result<Profile, ReadError> {
    let format = Format::Engraft;
    let Some(program) = context.program else {
        let what = "the recording is of no image".to_owned();
        return profiles.into_iter().next().ok_or(ReadError::Damaged { format, at: n_bytes, what });
    };
    let holds = profiles.iter().map(|p| p.image.name.clone()).collect();
    let found = profiles.into_iter().find(|p| p.image.id == Some(program.image.id));
    found.ok_or_else(|| ReadError::NotInIt { format, program: program.image.name.clone(), holds })
}

fn refuse_raw(file: &[u8]) -> Result<(), ReadError> {
    if file.starts_with(RAW_MAGIC) { Err(ReadError::Raw) } else { Ok(()) }
}

/// Reads all profiles of a recording.
///
/// # Errors
/// [`ReadError::Raw`] if it is what a counted program left, [`ReadError::Damaged`] if it is cut off, changed,
/// or of a version that we do not know.
pub fn parse(file: &[u8]) -> Result<Vec<Profile>, ReadError> {
    refuse_raw(file)?;
    list(&mut Cursor::open(file, b'R', "it is no recording")?)
}

/// Reads the profiles of each thread of a recording; none if they were not kept apart.
///
/// # Errors
/// As [`parse`].
pub fn threads(file: &[u8]) -> Result<Vec<Vec<Profile>>, ReadError> {
    refuse_raw(file)?;
    let mut c = Cursor::open(file, b'R', "it is no recording")?;
    list(&mut c)?;
    if c.is_at_end() {
        return Ok(Vec::new());
    }
    let n = c.varint()?;
    (0..n).map(|_| list(&mut c)).collect()
}

/// What is whole of a recording that is not: the profiles of some of its images.
#[derive(Debug)]
pub struct Whole {
    /// Those that are.
    pub profiles: Vec<Profile>,
    /// How many there were.
    pub n_images: u64,
}

/// What is whole of a recording that [`parse`] refuses.
pub fn whole_of(file: &[u8]) -> Option<Whole> {
    let mut c = Cursor::open_damaged(file, b'R')?;
    let n_images = c.varint().ok()?;
    let mut profiles = Vec::new();
    for _ in 0..n_images {
        let Ok(bytes) = c.bytes() else { break };
        profiles.extend(engraft::parse(bytes).ok());
    }
    Some(Whole { profiles, n_images })
}

fn list(c: &mut Cursor<'_>) -> Result<Vec<Profile>, ReadError> {
    let n = c.varint()?;
    (0..n).map(|_| engraft::parse(c.bytes()?)).collect()
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
        assert_eq!(threads(&write(&profiles)).unwrap(), Vec::<Vec<Profile>>::new());
        let apart = vec![vec![sample()], profiles.clone()];
        let file = write_with_threads(&profiles, &apart);
        assert_eq!((parse(&file).unwrap(), threads(&file).unwrap()), (profiles, apart));
    }

    #[test]
    fn a_raw_recording_is_refused_by_name() {
        let raw = [RAW_MAGIC, &[0; 200][..]].concat();
        assert!(is_one(&raw));
        assert!(matches!(parse(&raw), Err(ReadError::Raw)));
        assert!(matches!(threads(&raw), Err(ReadError::Raw)));
        assert!(matches!(crate::read(&raw, &Context::default()), Err(ReadError::Raw)));
        assert!(whole_of(&raw).is_none());
    }

    #[test]
    fn every_cut_off_or_changed_file_is_refused() {
        let whole = write(&[sample(), sample()]);
        // Where the first one ends.
        let one = write(&[sample()]).len() - 8;
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
            let left = whole_of(&whole[..len]).map_or(0, |w| w.profiles.len());
            assert_eq!(left, usize::from(len >= one) + usize::from(len >= whole.len() - 8), "{len} {one}");
        }
        for i in 0..whole.len() {
            let mut changed = whole.clone();
            changed[i] ^= 0x10;
            assert!(parse(&changed).is_err(), "{i}");
        }
    }
}
