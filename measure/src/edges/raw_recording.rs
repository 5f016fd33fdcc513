//! Counters as a program leaves them: memory of a run that was counted, and notes that say what each counter
//! means.
//!
//! ```text
//! recording = Header Row* owner* extent* Interrupted* state* (notes | counters)*
//! extent    = offset of the counters of row m in area k, at 8 (m · room + k) of the extents; 0: none
//! state     = a byte an area, what is known of its thread: MAY_RUN or ABORTS, it may have been stopped in
//!             the middle of a block
//! ```
//! [`probe::arch::shared`] declares it. An area is a thread's; the counts of a run are their sum. What
//! counters mean stands in the notes (`notes`). A running program may be read too.
//!
//! Invariant: a block has a count only if it was counted; a counted block that never ran has the count zero.
#![warn(clippy::indexing_slicing)]

use super::indirect_calls;
use super::notes::Notes;
use crate::kept::Seen;
use probe::arch::shared::{ABORTS, ARENA_MAGIC, Header, Interrupted, KEY_ROW, MAY_RUN, N_INTERRUPTED, Row};
use probe::offset;
use profile::recording::{Recording, Whole};
use profile::{Format, Profile, ReadError};
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::mem::offset_of;
use std::ops::Range;

// The two crates do not see each other.
const _: () = assert!(ARENA_MAGIC == u64::from_le_bytes(*profile::recording::RAW_MAGIC));

/// Whether `bytes` start as what a counted program writes.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&ARENA_MAGIC.to_le_bytes())
}

/// The profiles of all images that were counted, as far as the run has come. Copies of an image whose notes
/// are the same count together; an image that was counted in two ways has two profiles.
///
/// # Errors
/// [`ReadError::Damaged`] if it is cut off or its tables lead outside of it.
pub fn parse(file: &[u8]) -> Result<Vec<Profile>, ReadError> {
    let tables = Tables::of(file)?;
    let groups = tables.groups(false)?;
    groups.iter().map(|group| tables.profile(group, &groups, 0..tables.n_areas)).collect()
}

/// What a counted program could not count, or not write down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// How often threads had to count together, so that counts may be lost.
    pub n_shared: u64,
    /// How often there was no room to write down where code was interrupted for good, or gone on with.
    pub n_unknown: u64,
}

/// The same of the recording `file`; nothing of one of another kind, or whose head is cut off.
pub fn faults(file: &[u8]) -> Faults {
    let Some(tables) = is_one(file).then(|| Tables::of(file).ok()).flatten() else {
        return Faults::default();
    };
    let word = |at| tables.word(at).unwrap_or(0);
    Faults { n_shared: word(offset!(Header, n_shared)), n_unknown: word(offset!(Header, n_unknown)) }
}

/// What is whole of a recording that [`parse`] refuses.
pub fn whole_of(file: &[u8]) -> Option<Whole> {
    let tables = Tables::of(file).ok()?;
    let groups = tables.groups(true).ok()?;
    let whole = groups.iter().filter_map(|group| tables.profile(group, &groups, 0..tables.n_areas).ok());
    Some(Whole { recording: Recording::of(whole), n_images: tables.n_rows })
}

/// The same as [`parse`], area by area: an area is a thread; one that ends leaves it to the next with the
/// same thread pointer.
///
/// # Errors
/// As [`parse`].
pub fn threads(file: &[u8]) -> Result<Vec<Vec<Profile>>, ReadError> {
    let tables = Tables::of(file)?;
    let groups = tables.groups(false)?;
    (0..tables.n_areas)
        .map(|k| groups.iter().map(|group| tables.profile(group, &groups, k..k + 1)).collect())
        .collect()
}

/// A recording's tables.
struct Tables<'a> {
    file: &'a [u8],
    n_rows: u64,
    n_areas: u64,
    max_areas: u64,
    extents_at: u64,
    /// How many bytes may still be taken from it: in an honest one, no two tables overlap.
    left: Cell<u64>,
}

/// An image, and the rows that count it.
struct Group {
    notes: Notes,
    rows: Vec<u64>,
}

impl<'a> Tables<'a> {
    fn of(file: &'a [u8]) -> Result<Tables<'a>, ReadError> {
        let left = Cell::new((file.len() as u64).saturating_mul(8));
        let mut tables = Tables { file, n_rows: 0, n_areas: 0, max_areas: 0, extents_at: 0, left };
        tables.n_rows = tables.word(offset!(Header, n_rows))? & u64::from(u32::MAX);
        tables.n_areas = tables.word(offset!(Header, n_areas))?;
        tables.max_areas = tables.word(offset!(Header, max_areas))?;
        tables.extents_at = tables.word(offset!(Header, extents_at))?;
        if tables.n_areas > tables.max_areas || tables.max_areas > 1 << 20 || tables.n_rows > 1 << 20 {
            return Err(damaged(
                offset!(Header, n_areas),
                "it says that it has more areas than there is room for",
            ));
        }
        Ok(tables)
    }

    fn bytes(&self, at: u64, len: u64) -> Result<&'a [u8], ReadError> {
        let from = usize::try_from(at).ok();
        let range = from.and_then(|from| Some(from..from.checked_add(usize::try_from(len).ok()?)?));
        range.and_then(|r| self.file.get(r)).ok_or_else(|| damaged(at, "it is cut off"))
    }

    fn word(&self, at: u64) -> Result<u64, ReadError> {
        Ok(self.bytes(at, 8)?.first_chunk().map_or(0, |w| u64::from_le_bytes(*w)))
    }

    /// Takes `n` words at `at` into account.
    fn take(&self, at: u64, n: u64) -> Result<(), ReadError> {
        let left = self.left.get().checked_sub(n.saturating_mul(8));
        self.left.set(left.ok_or_else(|| damaged(at, "its tables overlap"))?);
        Ok(())
    }

    /// The images that were counted, in the order of their first rows; with `skips`, without those whose
    /// notes are not whole. The same notes are read once.
    fn groups(&self, skips: bool) -> Result<Vec<Group>, ReadError> {
        let mut places: HashMap<(u64, u64), usize> = HashMap::new();
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        for m in 0..self.n_rows {
            let mut add = || -> Result<usize, ReadError> {
                let row = Header::LEN + Row::LEN * m;
                let (at, len) =
                    (self.word(row + offset!(Row, notes_at))?, self.word(row + offset!(Row, notes_len))?);
                let place = match places.entry((at, len)) {
                    Slot::Occupied(there) => return Ok(*there.get()),
                    Slot::Vacant(place) => place,
                };
                let bytes = self.bytes(at, len)?;
                self.take(at, len.div_ceil(8))?;
                let n = match known.entry(bytes) {
                    Slot::Occupied(there) => *there.get(),
                    Slot::Vacant(none) => {
                        groups.push(Group { notes: Notes::parse(bytes)?, rows: Vec::new() });
                        *none.insert(groups.len() - 1)
                    }
                };
                Ok(*place.insert(n))
            };
            match add() {
                Ok(n) => groups.get_mut(n).expect("it was pushed").rows.push(m),
                Err(_) if skips => {}
                Err(err) => return Err(err),
            }
        }
        Ok(groups)
    }

    /// Where the words of `group` are in the areas `areas`.
    fn extents(&self, group: &Group, areas: Range<u64>) -> Result<Vec<u64>, ReadError> {
        let mut extents = Vec::new();
        for &m in &group.rows {
            for k in areas.clone() {
                let at = self.extents_at.saturating_add(8 * (m * self.max_areas + k));
                extents.extend(Some(self.word(at)?).filter(|extent| *extent != 0));
            }
        }
        Ok(extents)
    }

    /// The words `from..from + n` of those at `extent`.
    fn words(&self, extent: u64, from: u64, n: u64) -> Result<impl Iterator<Item = u64>, ReadError> {
        let at = extent.saturating_add(from.saturating_mul(8));
        self.take(at, n)?;
        let area = self.bytes(at, n.saturating_mul(8))?;
        Ok(area.chunks_exact(8).map(|n| n.first_chunk().map_or(0, |n| u64::from_le_bytes(*n))))
    }

    /// Where the moved code of `group` was left otherwise than its flow says, and how often.
    fn stops(&self, group: &Group) -> Result<Vec<(u64, i64)>, ReadError> {
        let at = self.word(offset!(Header, interrupted_at))?;
        if at == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.bytes(at, Interrupted::LEN * N_INTERRUPTED)?;
        Ok(group.rows.iter().flat_map(|&row| stops(bytes, row)).collect())
    }

    /// How many threads that counted in `areas` may have been stopped in the middle of a block.
    fn n_stopped(&self, areas: Range<u64>) -> Result<u64, ReadError> {
        let at = self.word(offset!(Header, states_at))?;
        if at == 0 {
            return Ok(0);
        }
        let states = self.bytes(at, self.n_areas)?;
        let may_run = |state| matches!(state, MAY_RUN | ABORTS);
        let own = (0..).zip(states).filter(|(k, state)| areas.contains(k) && may_run(**state)).count();
        let lost =
            self.word(offset!(Header, n_stopped))?.saturating_add(self.word(offset!(Header, n_shared))?);
        Ok(lost.saturating_add(own as u64))
    }

    /// What `group` counted in `areas`, together.
    fn profile(&self, group: &Group, groups: &[Group], areas: Range<u64>) -> Result<Profile, ReadError> {
        // They are of all areas.
        let stops = if areas == (0..self.n_areas) { self.stops(group)? } else { Vec::new() };
        let n_stopped = self.n_stopped(areas.clone())?;
        let n = group.notes.n_counters();
        self.take(0, n as u64)?;
        let mut counts = vec![0u64; n];
        for extent in self.extents(group, areas.clone())? {
            let area = self.words(extent, 0, n as u64)?;
            add_area(&mut counts, area);
        }
        let mut profile = group.notes.profile(&counts, &stops, n_stopped);
        if let Some(callees) = &group.notes.callees {
            let mut found = indirect_calls::Found::new();
            for extent in self.extents(group, areas)? {
                let words = self.words(extent, u64::from(callees.first), callees.n_words())?;
                callees.add(&words.collect::<Vec<_>>(), &mut found);
            }
            callees.tell(&found, &mut profile, |row| {
                let of = groups.iter().find(|g| g.rows.contains(&u64::from(row)))?;
                Some((of.notes.image.name.clone(), of.notes.callees.as_ref()?.old.start))
            });
        }
        Ok(profile)
    }
}

/// Adds the counts of an area to `sums`. A count is exact: only words that no counter holds can reach the end
/// of what a `u64` holds, and then the sum stays there.
pub fn add_area(sums: &mut [u64], area: impl IntoIterator<Item = u64>) {
    sums.iter_mut().zip(area).for_each(|(sum, n)| *sum = sum.saturating_add(n));
}

/// Those of `stops` that are of `row`: offset in its moved code, how often it was left there.
pub fn stops(stops: &[u8], row: u64) -> impl Iterator<Item = (u64, i64)> {
    const LEN: usize = size_of::<Interrupted>();
    let word = |stop: &[u8; LEN], at: usize| {
        stop.get(at..).and_then(|b| b.first_chunk()).map_or(0, |w| u64::from_le_bytes(*w))
    };
    let key = move |stop| word(stop, offset_of!(Interrupted, key));
    let n = move |stop| word(stop, offset_of!(Interrupted, n)).cast_signed();
    let all = stops.as_chunks().0.iter().map(move |stop| (key(stop), n(stop)));
    all.filter(move |(key, n)| *n != 0 && key >> KEY_ROW == row + 1)
        .map(|(key, n)| (key & ((1 << KEY_ROW) - 1), n))
}

fn damaged(at: u64, what: &str) -> ReadError {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    ReadError::Damaged { format: Format::Engraft, at, what: what.to_owned() }
}

/// What was seen at the points of a plan; nothing if the recording is of another kind.
///
/// # Errors
/// As [`parse`].
pub fn seen(file: &[u8]) -> Result<Vec<Seen>, ReadError> {
    if !is_one(file) {
        return Ok(Vec::new());
    }
    let tables = Tables::of(file)?;
    let mut all = Vec::new();
    for group in tables.groups(false)? {
        let extents = tables.extents(&group, 0..tables.n_areas)?;
        for watch in group.notes.watches {
            let words = |&extent: &u64| -> Result<Vec<u64>, ReadError> {
                Ok(tables.words(extent, u64::from(watch.word), watch.keeps.n_words())?.collect())
            };
            let threads = extents.iter().map(words).collect::<Result<Vec<_>, _>>()?;
            let kept = watch.keeps.read(&threads);
            all.push(Seen { image: group.notes.image.clone(), what: watch.what, kept });
        }
    }
    Ok(all)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may fail")]
mod tests {
    use super::*;
    use crate::edges::notes::{Flows, FunctionFlow, Node, Sum, Way};
    use crate::kept::{Keeps, Kept, Watch};
    use profile::{ImageRef, Intervals};
    use program::ImageId;
    use program::Va;
    use smallvec::{SmallVec, smallvec};

    fn image() -> ImageRef {
        let (id, build_id) = (Some(ImageId(0x1234)), Some(vec![0xab, 0xcd]));
        ImageRef { name: "a.out".to_owned(), id, build_id }
    }

    fn way(to: u32) -> SmallVec<[Way; 2]> {
        smallvec![Way { to, is_counted: false }]
    }

    fn notes() -> Notes {
        Notes {
            image: image(),
            ends_are_taken: false,
            functions: Flows::from_iter([FunctionFlow {
                entry: Va(0x1000),
                is_whole: true,
                blocks: vec![
                    Node { start: Va(0x1000), is_counted: true, enters: true, leaves: true, ways: way(2) },
                    Node { start: Va(0x1040), is_counted: true, enters: false, leaves: false, ways: way(0) },
                    Node { start: Va(0x1010), is_counted: true, enters: false, leaves: false, ways: way(0) },
                ],
            }]),
            sums: vec![Sum { at: Va(0x900), blocks: vec![(0, 0), (2, 1)], ..Sum::default() }],
            watches: vec![
                Watch { what: "entry f ring".to_owned(), word: 3, keeps: Keeps::Ring(2) },
                Watch { what: "exit f".to_owned(), word: 6, keeps: Keeps::Count },
            ],
            positions: vec![5, 1, 0],
            callees: None,
        }
    }

    /// A recording with one row and two areas, written down word by word.
    fn raw<const N: usize>(counts: [[u64; N]; 2]) -> Vec<u8> {
        let notes = notes().write();
        let mut file = vec![0; 512];
        let mut put = |at: usize, n: u64| file[at..at + 8].copy_from_slice(&n.to_le_bytes());
        put(0, ARENA_MAGIC);
        put(8, 1 | 77 << 32); // the lock is held
        put(16, 2);
        put(32, 4);
        put(48, 256);
        put(128 + 16, 4096);
        put(128 + 24, 512);
        put(128 + 32, notes.len() as u64);
        put(256, 512 + notes.len() as u64);
        put(256 + 8, 512 + notes.len() as u64 + 8 * N as u64);
        file.extend(notes);
        file.extend(counts.iter().flatten().flat_map(|n| n.to_le_bytes()));
        file
    }

    #[test]
    fn areas_are_summed_up_and_entries_told() {
        let profile = &parse(&raw([[10, 2, 3], [5, 1, 0]])).unwrap()[0];
        assert_eq!(profile.blocks.values().copied().collect::<Vec<_>>(), [18, 15, 3, 3]);
        assert_eq!(profile.entries[&Va(0x900)], 18);
        assert_eq!(profile.entries[&Va(0x1000)], 15 - 3 - 3);
        assert_eq!(profile.image, image());
    }

    /// One of the threads may have been stopped, and another one whose area went to somebody else.
    #[test]
    fn states_say_who_may_have_been_stopped() {
        let mut file = raw([[10, 2, 3], [5, 1, 0]]);
        assert_eq!(parse(&file).unwrap()[0].intervals, Intervals::default());
        file[104..112].copy_from_slice(&400u64.to_le_bytes());
        file[112] = 1;
        file[400..402].copy_from_slice(&[2, 1]);
        let n_stopped = |profiles: &[Profile]| profiles[0].intervals.n_stopped;
        assert_eq!(n_stopped(&parse(&file).unwrap()), 2);
        let areas = threads(&file).unwrap();
        assert_eq!((n_stopped(&areas[0]), n_stopped(&areas[1])), (1, 2));
        // Every block is counted: only how often it was called may be off, and the stub.
        let intervals = &parse(&file).unwrap()[0].intervals;
        assert_eq!(intervals.blocks.keys().copied().collect::<Vec<_>>(), [Va(0x900)]);
        file[96] = 7;
        assert_eq!(faults(&file), Faults { n_shared: 0, n_unknown: 7 });
        assert_eq!(faults(b"ENGRAFT"), Faults::default());
    }

    #[test]
    fn copies_count_together_and_rows_that_share_all_are_refused() {
        let one = raw([[10, 2, 3], [5, 1, 0]]);
        // Two rows: where the extents of the second one are, those of the first stand again.
        let mut two = one.clone();
        two[8] = 2;
        two.copy_within(128..192, 192);
        two.copy_within(256..272, 256 + 32);
        let profiles = parse(&two).unwrap();
        assert_eq!(profiles.len(), 1);
        assert_eq!(profiles[0].blocks[&Va(0x1000)], 30);
        // 2^20 rows and as many extents, all the same.
        let n = 1 << 20;
        let mut many = vec![0; 128 + 64 * n + 8 * n];
        many[..128].copy_from_slice(&one[..128]);
        let at = many.len() as u64;
        let mut put = |at: usize, n: u64| many[at..at + 8].copy_from_slice(&n.to_le_bytes());
        put(8, n as u64);
        put(16, 1);
        put(32, 1);
        put(48, 128 + 64 * n as u64);
        let mut long = notes();
        let blocks = (0..100_000).map(|at| Node {
            start: Va(at),
            is_counted: true,
            enters: false,
            leaves: true,
            ways: SmallVec::new(),
        });
        let flow = FunctionFlow { entry: Va(0x1000), is_whole: true, blocks: blocks.collect() };
        long.functions = Flows::from_iter([flow]);
        let long = long.write();
        for m in 0..n {
            put(128 + 64 * m + 24, at);
            put(128 + 64 * m + 32, long.len() as u64);
            put(128 + 64 * n + 8 * m, at + long.len() as u64);
        }
        many.extend(long);
        many.resize(many.len() + 800_000, 0xff);
        assert!(parse(&many).is_err());
        assert!(threads(&many).is_err());
    }

    #[test]
    fn counts_without_end_do_not_overflow() {
        let profile = &parse(&raw([[10, u64::MAX, 3], [u64::MAX, u64::MAX, u64::MAX]])).unwrap()[0];
        assert_eq!(profile.blocks[&Va(0x1000)], u64::MAX);
    }

    #[test]
    fn rings_are_read_in_order() {
        let seen = seen(&raw([[10, 2, 3, 3, 7, 8, 5], [5, 1, 0, 0, 0, 0, 9]])).unwrap();
        assert_eq!(seen[0].kept, Kept::Ring(vec![(3, vec![8, 7])]));
        assert_eq!(seen[1].kept, Kept::Count(5 + 9));
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
