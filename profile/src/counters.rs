//! Counters as a program leaves them: memory of a run that was counted, and notes that say what each counter means.
//!
//! ```text
//! recording = header rows owners extents (notes | counters)*
//! header    = 128 bytes; words at: 0 magic, 8 number of rows (4 bytes), 16 number of areas, 32 room for areas, 48 offset of the extents
//! row       = 64 bytes at 128 + 64 m: key (16 bytes), length of the counters, offset of the notes, their length
//! extent    = offset of the counters of row m in area k, at 8 (m · room + k) of the extents; 0: none
//! notes     = magic version kind profile n: varint, start*, n: varint, entry*, n: varint, sum*, checksum
//! profile   = bytes: a `.engraft` file of kind 'P' without counts, for the image
//! start     = of counter 0, 1 …'s block: signed varint, from the one before
//! entry     = address: signed varint from the one before, counter: varint, n: varint, counter: varint*
//! sum       = address: signed varint from the one before, n: varint, counter: varint*
//! ```
//! An area is a thread's; the counts of a run are their sum. A function was entered as often as an entry's first counter says, less
//! the counters that follow it: blocks whose only way on leads back there. The block at a sum's address, a stub of the linkage table, ran as often as those that call it.
//! A running program may be read too.
//!
//! Invariant: a block has a count only if it was counted; a counted block that never ran has the count zero.
#![warn(clippy::indexing_slicing)]

use crate::counts::{Exactness, ImageRef, Profile};
use crate::engraft::{self, Cursor, MAGIC, VERSION, put_bytes, varint};
use crate::format::{Format, ReadError};
use program::Va;
use xxhash_rust::xxh3::xxh3_64;

/// First word of a recording that a counted program writes.
pub const RAW_MAGIC: u64 = u64::from_le_bytes(*b"ENGRAFT\x02");
/// Offset of the number of rows, 4 bytes.
pub const N_ROWS: u64 = 8;
/// Offset of the number of areas in use.
pub const N_AREAS: u64 = 16;
/// Offset of the number of areas there is room for.
pub const MAX_AREAS: u64 = 32;
/// Offset of the offset of the extents.
pub const EXTENTS_AT: u64 = 48;
/// Offset of the first row.
pub const ROWS_AT: u64 = 128;
/// Bytes a row.
pub const ROW_LEN: u64 = 64;

/// What the counters of one image mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notes {
    /// The image.
    pub image: ImageRef,
    /// Starts of the blocks, by counter.
    pub blocks: Vec<Va>,
    /// Functions whose entries can be told.
    pub entries: Vec<Entry>,
    /// Functions of one block that have no counter, and run as often as the blocks of these counters together.
    pub sums: Vec<(Va, Vec<u32>)>,
}

/// How often a function was entered: a counter less others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The function.
    pub at: Va,
    /// The counter of its first block.
    pub first: u32,
    /// Counters of the blocks that lead back there and nowhere else.
    pub again: Vec<u32>,
}

impl Notes {
    /// The profile that `counts`, one a counter, stand for.
    pub fn profile(&self, counts: &[u64]) -> Profile {
        let count = |n: u32| counts.get(n as usize).copied().unwrap_or(0);
        let entered = |e: &Entry| count(e.first).saturating_sub(e.again.iter().map(|&n| count(n)).sum());
        let sum = |all: &[u32]| all.iter().fold(0u64, |sum, &n| sum.saturating_add(count(n)));
        let sums: Vec<(Va, u64)> = self.sums.iter().map(|(at, all)| (*at, sum(all))).collect();
        let blocks = self.blocks.iter().zip(counts).map(|(at, n)| (*at, *n));
        Profile {
            image: self.image.clone(),
            exactness: Exactness::Exact,
            blocks: blocks.chain(sums.iter().copied()).collect(),
            entries: self.entries.iter().map(|e| (e.at, entered(e))).chain(sums).collect(),
            ..Profile::default()
        }
    }

    /// Writes them.
    pub fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([VERSION, b'N']);
        let empty = Profile { image: self.image.clone(), ..Profile::default() };
        put_bytes(&mut out, &engraft::write(&empty).bytes);
        let mut before = Va(0);
        let mut address = |out: &mut Vec<u8>, at: Va| {
            let step = at.since(before).cast_signed();
            varint(out, ((step << 1) ^ (step >> 63)).cast_unsigned());
            before = at;
        };
        varint(&mut out, self.blocks.len() as u64);
        self.blocks.iter().for_each(|&at| address(&mut out, at));
        varint(&mut out, self.entries.len() as u64);
        for entry in &self.entries {
            address(&mut out, entry.at);
            varint(&mut out, u64::from(entry.first));
            varint(&mut out, entry.again.len() as u64);
            entry.again.iter().for_each(|&n| varint(&mut out, u64::from(n)));
        }
        varint(&mut out, self.sums.len() as u64);
        for (at, all) in &self.sums {
            address(&mut out, *at);
            varint(&mut out, all.len() as u64);
            all.iter().for_each(|&n| varint(&mut out, u64::from(n)));
        }
        let sum = xxh3_64(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] if they are cut off, changed, or of a version that we do not know.
    pub fn parse(file: &[u8]) -> Result<Notes, ReadError> {
        let mut c = Cursor::open(file, b'N', "these are no notes")?;
        let image = engraft::parse(c.bytes()?)?.image;
        let mut before = Va(0);
        let mut address = |c: &mut Cursor<'_>| -> Result<Va, ReadError> {
            let n = c.varint()?;
            before = before.plus((n >> 1) ^ (n & 1).wrapping_neg());
            Ok(before)
        };
        let counter = |c: &mut Cursor<'_>| Ok(u32::try_from(c.varint()?).unwrap_or(u32::MAX));
        let n_blocks = c.varint()?;
        let mut blocks = Vec::new();
        for _ in 0..n_blocks {
            blocks.push(address(&mut c)?);
        }
        let n_entries = c.varint()?;
        let mut entries = Vec::new();
        for _ in 0..n_entries {
            let at = address(&mut c)?;
            let first = counter(&mut c)?;
            let n = c.varint()?;
            let again = (0..n).map(|_| counter(&mut c)).collect::<Result<_, ReadError>>()?;
            entries.push(Entry { at, first, again });
        }
        let n_sums = c.varint()?;
        let mut sums = Vec::new();
        for _ in 0..n_sums {
            let at = address(&mut c)?;
            let n = c.varint()?;
            sums.push((at, (0..n).map(|_| counter(&mut c)).collect::<Result<_, ReadError>>()?));
        }
        Ok(Notes { image, blocks, entries, sums })
    }
}

/// Whether `bytes` start as what a counted program writes.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&RAW_MAGIC.to_le_bytes())
}

/// The profiles of all images that were counted, as far as the run has come.
///
/// # Errors
/// [`ReadError::Damaged`] if it is cut off or its tables lead outside of it.
pub fn parse(file: &[u8]) -> Result<Vec<Profile>, ReadError> {
    profiles(file, None)
}

/// The same, area by area.
///
/// # Errors
/// As [`parse`].
pub fn parse_areas(file: &[u8]) -> Result<Vec<Vec<Profile>>, ReadError> {
    let n = file.get(16..24).and_then(<[u8]>::first_chunk).map_or(0, |w| u64::from_le_bytes(*w));
    let max = file.get(32..40).and_then(<[u8]>::first_chunk).map_or(0, |w| u64::from_le_bytes(*w));
    (0..n.min(max).min(1 << 20)).map(|k| profiles(file, Some(k))).collect()
}

/// Of all areas, or of one.
fn profiles(file: &[u8], only: Option<u64>) -> Result<Vec<Profile>, ReadError> {
    let damaged = |at: u64, what: &str| ReadError::Damaged {
        format: Format::Engraft,
        at: usize::try_from(at).unwrap_or(usize::MAX),
        what: what.to_owned(),
    };
    let bytes = |at: u64, len: u64| {
        let from = usize::try_from(at).ok();
        let range = from.and_then(|from| Some(from..from.checked_add(usize::try_from(len).ok()?)?));
        range.and_then(|r| file.get(r)).ok_or_else(|| damaged(at, "it is cut off"))
    };
    let word = |at: u64| Ok(bytes(at, 8)?.first_chunk().map_or(0, |w| u64::from_le_bytes(*w)));
    let n_rows = word(N_ROWS)? & u64::from(u32::MAX);
    let (n_areas, max_areas, extents_at) = (word(N_AREAS)?, word(MAX_AREAS)?, word(EXTENTS_AT)?);
    if n_areas > max_areas || max_areas > 1 << 20 || n_rows > 1 << 20 {
        return Err(damaged(N_AREAS, "it says that it has more areas than there is room for"));
    }
    let mut profiles = Vec::new();
    for m in 0..n_rows {
        let row = ROWS_AT + ROW_LEN * m;
        let notes = Notes::parse(bytes(word(row + 24)?, word(row + 32)?)?)?;
        let mut counts = vec![0u64; notes.blocks.len()];
        for k in (0..n_areas).filter(|k| only.is_none_or(|only| only == *k)) {
            let extent = word(extents_at.saturating_add(8 * (m * max_areas + k)))?;
            if extent == 0 {
                continue;
            }
            let area = bytes(extent, 8 * counts.len() as u64)?;
            for (sum, n) in counts.iter_mut().zip(area.chunks_exact(8)) {
                *sum = sum.saturating_add(n.first_chunk().map_or(0, |n| u64::from_le_bytes(*n)));
            }
        }
        profiles.push(notes.profile(&counts));
    }
    Ok(profiles)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may fail")]
mod tests {
    use super::*;
    use crate::testing::sample;

    fn notes() -> Notes {
        Notes {
            image: sample().image,
            blocks: vec![Va(0x1000), Va(0x1040), Va(0x1010)],
            entries: vec![Entry { at: Va(0x1000), first: 0, again: vec![2, 1] }],
            sums: vec![(Va(0x900), vec![0, 2])],
        }
    }

    /// A recording with one row and two areas, written down word by word.
    fn raw(counts: [[u64; 3]; 2]) -> Vec<u8> {
        let notes = notes().write();
        let mut file = vec![0; 512];
        let mut put = |at: usize, n: u64| file[at..at + 8].copy_from_slice(&n.to_le_bytes());
        put(0, RAW_MAGIC);
        put(8, 1 | 77 << 32); // the lock is held
        put(16, 2);
        put(32, 4);
        put(48, 256);
        put(128 + 16, 4096);
        put(128 + 24, 512);
        put(128 + 32, notes.len() as u64);
        put(256, 512 + notes.len() as u64);
        put(256 + 8, 512 + notes.len() as u64 + 24);
        file.extend(notes);
        file.extend(counts.iter().flatten().flat_map(|n| n.to_le_bytes()));
        file
    }

    #[test]
    fn notes_are_read_as_they_were_written() {
        assert_eq!(Notes::parse(&notes().write()).unwrap(), notes());
    }

    #[test]
    fn areas_are_summed_up_and_entries_told() {
        let profile = &parse(&raw([[10, 2, 3], [5, 1, 0]])).unwrap()[0];
        assert_eq!(profile.blocks.values().copied().collect::<Vec<_>>(), [18, 15, 3, 3]);
        assert_eq!(profile.entries[&Va(0x900)], 18);
        assert_eq!(profile.entries[&Va(0x1000)], 15 - 3 - 3);
        assert_eq!(profile.image, sample().image);
    }

    #[test]
    fn cut_off_or_changed_recordings_are_refused_or_read() {
        let whole = raw([[1, 2, 3], [4, 5, 6]]);
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
        }
        for i in 0..whole.len() {
            let mut changed = whole.clone();
            changed[i] ^= 0x81;
            let _either = parse(&changed);
        }
    }
}
