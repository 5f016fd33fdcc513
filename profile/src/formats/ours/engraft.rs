//! Engraft's own format, `.engraft`: all that a [`Profile`] holds, small and exact.
//!
//! ```text
//! file      = magic version kind image exactness table* end checksum
//! magic     = "ENGRAFT\0"
//! version   = u8, 1
//! kind      = u8, 'P' for a profile
//! image     = name: bytes, id: bytes (16, little-endian, or none), build-id: bytes (or none)
//! exactness = u8: 0 exact, 1 sampled, 2 inferred
//! table     = tag: u8, length in bytes: varint, rows: varint, column*
//! end       = u8, 0
//! checksum  = u64, little-endian: XXH3 of all bytes before it
//! bytes     = length: varint, that many bytes
//! varint    = LEB128, unsigned; signed numbers zigzagged (0, -1, 1, -2 …)
//! ```
//! A table is stored column by column; rows are sorted by the first address, then the second. The first
//! column is the difference from the row before; a second address is the signed difference from the first.
//!
//! | tag | rows | columns |
//! | --- | --- | --- |
//! | `e` | entries | address, count |
//! | `b` | blocks | address, count |
//! | `g` | edges | from, to, count |
//! | `m` | mispredictions of edges | from, to, count |
//! | `c` | calls | calling instruction, callee, count |
//! | `o` | calls that leave the image | calling instruction, count |
//! | `x` | where those led | names: number, bytes each; rows: calling instruction, where: below; count |
//! | `s` | one, if threads may have been stopped in the middle of a block | 0, how many |
//! | `E`, `B`, `G` | entries, blocks, edges whose counts may be off | as `e`, `b`, `g`: the least it may be |
//! | `F`, `C`, `H` | the same ones | the most |
//!
//! Where a call led (`x`): 0 and an address in the process, 1 where nothing is known, or 2 + the number of a
//! name, and an address.
//!
//! A reader skips tables whose tag it does not know. A change that old readers would misread raises the
//! version.
#![warn(clippy::indexing_slicing)]

use crate::counts::{Beyond, Edge, Exactness, ImageRef, Profile};
use crate::encoding::{Cursor, MAGIC, VERSION, put_bytes, varint};
use crate::vocabulary::{ReadError, Written};
use program::{ImageId, Va};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64;

/// Writes all of `profile`.
pub fn write(profile: &Profile) -> Written {
    let mut out = MAGIC.to_vec();
    out.extend([VERSION, b'P']);
    put_bytes(&mut out, profile.image.name.as_bytes());
    put_bytes(&mut out, &profile.image.id.map(|id| id.0.to_le_bytes().to_vec()).unwrap_or_default());
    put_bytes(&mut out, profile.image.build_id.as_deref().unwrap_or_default());
    out.push(match profile.exactness {
        Exactness::Exact => 0,
        Exactness::Sampled => 1,
        Exactness::Inferred => 2,
    });
    let (intervals, edge) = (&profile.intervals, |(e, n): (&Edge, &u64)| (e.from, Some(e.to), *n));
    let place = |(at, n): (&Va, &u64)| (*at, None, *n);
    table(&mut out, b'e', profile.entries.len(), profile.entries.iter().map(place));
    table(&mut out, b'b', profile.blocks.len(), profile.blocks.iter().map(place));
    table(&mut out, b'g', profile.edges.len(), profile.edges.iter().map(edge));
    table(&mut out, b'm', profile.mispredicts.len(), profile.mispredicts.iter().map(edge));
    let call = |((at, callee), n): (&(Va, Va), &u64)| (*at, Some(*callee), *n);
    table(&mut out, b'c', profile.calls.len(), profile.calls.iter().map(call));
    table(&mut out, b'o', profile.calls_out.len(), profile.calls_out.iter().map(place));
    beyond(&mut out, &profile.calls_beyond);
    if intervals.n_stopped > 0 {
        table(&mut out, b's', 1, std::iter::once((Va(0), None, intervals.n_stopped)));
    }
    for (tags, all) in [(*b"EF", &intervals.entries), (*b"BC", &intervals.blocks)] {
        table(&mut out, tags[0], all.len(), all.iter().map(|(at, n)| (*at, None, n.0)));
        table(&mut out, tags[1], all.len(), all.iter().map(|(at, n)| (*at, None, n.1)));
    }
    let all = &intervals.edges;
    table(&mut out, b'G', all.len(), all.iter().map(|(e, n)| (e.from, Some(e.to), n.0)));
    table(&mut out, b'H', all.len(), all.iter().map(|(e, n)| (e.from, Some(e.to), n.1)));
    out.push(0);
    let sum = xxh3_64(&out);
    out.extend(sum.to_le_bytes());
    Written { bytes: out, n_functions: profile.entries.len(), count: profile.total(), lost: Vec::new() }
}

/// A row: an address, perhaps a second one, a count.
type Row = (Va, Option<Va>, u64);

fn table(out: &mut Vec<u8>, tag: u8, n: usize, rows: impl Iterator<Item = Row> + Clone) {
    if n == 0 {
        return;
    }
    let mut body = Vec::with_capacity(2 * n);
    varint(&mut body, n as u64);
    let mut before = Va(0);
    for (at, ..) in rows.clone() {
        varint(&mut body, at.since(before));
        before = at;
    }
    for (at, to, _) in rows.clone() {
        let Some(to) = to else { break };
        let difference = to.since(at).cast_signed();
        varint(&mut body, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
    }
    for (.., count) in rows {
        varint(&mut body, count);
    }
    out.push(tag);
    put_bytes(out, &body);
}

/// Where calls that leave the image led.
fn beyond(out: &mut Vec<u8>, calls: &BTreeMap<(Va, Beyond), u64>) {
    if calls.is_empty() {
        return;
    }
    let name = |to: &Beyond| match to {
        Beyond::Image(name, _) => Some(name.clone()),
        Beyond::Process(_) | Beyond::Unknown => None,
    };
    let names: BTreeSet<String> = calls.keys().filter_map(|(_, to)| name(to)).collect();
    let names: Vec<String> = names.into_iter().collect();
    let mut body = Vec::new();
    varint(&mut body, names.len() as u64);
    names.iter().for_each(|name| put_bytes(&mut body, name.as_bytes()));
    varint(&mut body, calls.len() as u64);
    for ((at, to), n) in calls {
        varint(&mut body, at.0);
        match to {
            Beyond::Process(to) => {
                varint(&mut body, 0);
                varint(&mut body, *to);
            }
            Beyond::Unknown => varint(&mut body, 1),
            Beyond::Image(name, to) => {
                let n = names.binary_search(name).expect("all are among them");
                varint(&mut body, n as u64 + 2);
                varint(&mut body, to.0);
            }
        }
        varint(&mut body, *n);
    }
    out.push(b'x');
    put_bytes(out, &body);
}

fn read_beyond(c: &mut Cursor<'_>) -> Result<BTreeMap<(Va, Beyond), u64>, ReadError> {
    let mut names = Vec::new();
    for _ in 0..c.varint()? {
        names.push(String::from_utf8_lossy(c.bytes()?).into_owned());
    }
    let mut calls = BTreeMap::new();
    for _ in 0..c.varint()? {
        let at = Va(c.varint()?);
        let to = match c.varint()? {
            0 => Beyond::Process(c.varint()?),
            1 => Beyond::Unknown,
            n => {
                let name = usize::try_from(n - 2).ok().and_then(|n| names.get(n));
                let name = name.ok_or_else(|| c.damaged("an image has no name"))?.clone();
                Beyond::Image(name, Va(c.varint()?))
            }
        };
        calls.insert((at, to), c.varint()?);
    }
    Ok(calls)
}

/// Reads one.
///
/// # Errors
/// [`ReadError::Damaged`] if it is cut off, changed, or of a version that we do not know.
pub fn parse(file: &[u8]) -> Result<Profile, ReadError> {
    let mut c = Cursor::open(file, b'P', "it is no profile")?;
    let name = String::from_utf8_lossy(c.bytes()?).into_owned();
    let id = match c.bytes()? {
        [] => None,
        id => {
            let id = id.try_into().map_err(|_| c.damaged("an image id has 16 bytes"))?;
            Some(ImageId(u128::from_le_bytes(id)))
        }
    };
    let build_id = Some(c.bytes()?.to_vec()).filter(|b| !b.is_empty());
    let exactness = match c.byte()? {
        0 => Exactness::Exact,
        1 => Exactness::Sampled,
        2 => Exactness::Inferred,
        n => return Err(c.damaged(&format!("{n} is no exactness"))),
    };
    let mut profile = Profile { image: ImageRef { name, id, build_id }, exactness, ..Profile::default() };
    loop {
        let tag = c.byte()?;
        if tag == 0 {
            return Ok(profile);
        }
        let len = c.len()?;
        let end = c.at().saturating_add(len);
        if TAGS.contains(&tag) {
            read_table(&mut c, tag, &mut profile)?;
            if c.at() != end {
                return Err(c.damaged("a table is not as long as it says"));
            }
        } else if tag == b'x' {
            profile.calls_beyond = read_beyond(&mut c)?;
            if c.at() != end {
                return Err(c.damaged("a table is not as long as it says"));
            }
        } else {
            c.take(len)?;
        }
    }
}

/// All tables.
const TAGS: &[u8] = b"ebgmcosEFBCGH";

fn read_table(c: &mut Cursor, tag: u8, profile: &mut Profile) -> Result<(), ReadError> {
    let n = c.len()?;
    let first = c.column(n)?;
    let second = if matches!(tag, b'g' | b'm' | b'c' | b'G' | b'H') { c.column(n)? } else { Vec::new() };
    let counts = c.column(n)?;
    let mut at = Va(0);
    for (i, (difference, count)) in first.into_iter().zip(counts).enumerate() {
        at = at.plus(difference);
        let to = second.get(i).map(|&z| at.plus((z >> 1) ^ (z & 1).wrapping_neg()));
        let intervals = &mut profile.intervals;
        let least = |interval: &mut (u64, u64)| interval.0 = count;
        let most = |interval: &mut (u64, u64)| interval.1 = count;
        match (tag, to) {
            (b's', _) => intervals.n_stopped = count,
            (b'E', _) => least(intervals.entries.entry(at).or_default()),
            (b'F', _) => most(intervals.entries.entry(at).or_default()),
            (b'B', _) => least(intervals.blocks.entry(at).or_default()),
            (b'C', _) => most(intervals.blocks.entry(at).or_default()),
            (b'G', Some(to)) => least(intervals.edges.entry(Edge { from: at, to }).or_default()),
            (b'H', Some(to)) => most(intervals.edges.entry(Edge { from: at, to }).or_default()),
            _ => {}
        }
        match (tag, to) {
            (b's' | b'E' | b'F' | b'B' | b'C' | b'G' | b'H', _) => None,
            (b'e', _) => profile.entries.insert(at, count),
            (b'b', _) => profile.blocks.insert(at, count),
            (b'o', _) => profile.calls_out.insert(at, count),
            (b'g', Some(to)) => profile.edges.insert(Edge { from: at, to }, count),
            (b'm', Some(to)) => profile.mispredicts.insert(Edge { from: at, to }, count),
            (_, Some(to)) => profile.calls.insert((at, to), count),
            (_, None) => None,
        };
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may fail")]
mod tests {
    use super::*;
    use crate::counts::Intervals;
    use crate::testing::sample;
    use proptest::prelude::*;

    #[test]
    fn a_file_of_version_1_is_read_as_it_was_written() {
        let golden = include_bytes!("engraft/profile-v1.engraft");
        assert_eq!(parse(golden).unwrap(), sample());
        assert_eq!(write(&sample()).bytes, golden, "the format changed: raise VERSION, keep the old file");
    }

    #[test]
    fn where_calls_led_is_read_as_it_was_written() {
        let mut profile = sample();
        let image = |name: &str, at| Beyond::Image(name.to_owned(), Va(at));
        for (at, to, n) in [
            (0x1140, image("/lib/b.so", 0x77), 3),
            (0x1140, image("/lib/a.so", 0x70), 4),
            (0x1140, Beyond::Unknown, 5),
            (0x1180, Beyond::Process(u64::MAX), u64::MAX),
            (0x1180, image("/lib/a.so", 0x70), 0),
        ] {
            profile.calls_beyond.insert((Va(at), to), n);
        }
        let file = write(&profile).bytes;
        assert_eq!(parse(&file).unwrap(), profile);
        for len in 0..file.len() {
            assert!(parse(&file[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn every_cut_off_or_changed_file_is_refused() {
        let whole = write(&sample()).bytes;
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
        }
        for i in 0..whole.len() {
            let mut changed = whole.clone();
            changed[i] ^= 0x10;
            assert!(parse(&changed).is_err(), "{i}");
        }
    }

    #[test]
    fn tables_that_we_do_not_know_are_skipped() {
        let mut file = write(&sample()).bytes;
        file.truncate(file.len() - 9);
        file.extend([b'z', 3, 9, 9, 9, 0]);
        let sum = xxh3_64(&file);
        file.extend(sum.to_le_bytes());
        assert_eq!(parse(&file).unwrap(), sample());
    }

    fn map() -> impl Strategy<Value = BTreeMap<u64, u64>> {
        proptest::collection::btree_map(any::<u64>(), any::<u64>(), 0..20)
    }

    fn pairs() -> impl Strategy<Value = BTreeMap<(u64, u64), u64>> {
        proptest::collection::btree_map(any::<(u64, u64)>(), any::<u64>(), 0..20)
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(e in map(), b in map(), g in pairs(), c in pairs(), id in any::<Option<u128>>()) {
            let profile = Profile {
                image: ImageRef { name: "x".to_owned(), id: id.map(ImageId), build_id: None },
                exactness: Exactness::Sampled,
                entries: e.into_iter().map(|(a, n)| (Va(a), n)).collect(),
                blocks: b.into_iter().map(|(a, n)| (Va(a), n)).collect(),
                edges: g.into_iter().map(|((a, z), n)| (Edge { from: Va(a), to: Va(z) }, n)).collect(),
                calls: c.into_iter().map(|((a, z), n)| ((Va(a), Va(z)), n)).collect(),
                ..Profile::default()
            };
            let mut profile = profile;
            let interval = |n: &u64| (n / 2, *n);
            profile.intervals = Intervals {
                n_stopped: profile.blocks.len() as u64,
                entries: profile.entries.iter().map(|(at, n)| (*at, interval(n))).collect(),
                blocks: profile.blocks.iter().map(|(at, n)| (*at, interval(n))).collect(),
                edges: profile.edges.iter().map(|(e, n)| (*e, interval(n))).collect(),
                calls: BTreeMap::new(),
            };
            prop_assert_eq!(&parse(&write(&profile).bytes).unwrap(), &profile);
            prop_assert_eq!(crate::formats::ours::json::parse(&crate::formats::ours::json::write(&profile).bytes).unwrap().intervals, profile.intervals);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut file = MAGIC.to_vec();
            file.extend([VERSION, b'P']);
            file.extend(&bytes);
            let sum = xxh3_64(&file);
            file.extend(sum.to_le_bytes());
            let _ = parse(&file);
        }
    }
}
