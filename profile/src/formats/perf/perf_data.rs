//! perf.data: what `perf record` writes, with branch stacks (`-b`, `-j any,u`) and without.
//!
//! With branch stacks the profile has edges and calls, else samples of blocks. Many programs may be in one
//! file: the one asked for is found by its build-id (in MMAP2 records or in the table of build-ids), else by
//! its file name.
//!
//! Not here: kernel samples, call chains, Intel PT.
//!
//! Source: Linux, `tools/perf/Documentation/perf.data-file-format.txt`; `include/uapi/linux/perf_event.h`,
//! PERF_RECORD_SAMPLE, for the order of a sample's fields.

use crate::counts::{Lost, Profile};
use crate::formats::perf::samples::{Branch, Samples};
use crate::vocabulary::{Format, ReadError};
use linux_perf_data::linux_perf_event_reader::{
    BranchSampleFormat, EventRecord, Mmap2FileId, RawEventRecord, ReadFormat, RecordType, SampleFormat,
};
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use program::{LiveVa, Program};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::rc::Rc;

/// Whether `bytes` start as such a file.
pub(crate) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP")
}

/// Reads samples of `program`.
///
/// # Errors
/// [`ReadError::Damaged`] if it is cut off or contradicts itself, [`ReadError::NotInIt`] if the program was
/// not mapped.
pub fn parse(bytes: &[u8], program: &Program) -> Result<(Profile, Vec<Lost>), ReadError> {
    check_tables(bytes).map_err(|(at, what)| ReadError::Damaged {
        format: Format::PerfData,
        at,
        what: what.to_owned(),
    })?;
    let place = Rc::new(Cell::new(0));
    let damaged = |what: String| {
        let at = usize::try_from(place.get()).unwrap_or(usize::MAX).min(bytes.len());
        // Messages of the reader may have several lines.
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        ReadError::Damaged { format: Format::PerfData, at, what }
    };
    let placed = Placed { inner: Cursor::new(bytes), place: Rc::clone(&place) };
    let reader = PerfFileReader::parse_file(placed).map_err(|err| damaged(err.to_string()))?;
    let PerfFileReader { mut perf_file, mut record_iter } = reader;
    let known: HashMap<Vec<u8>, Vec<u8>> = perf_file
        .build_ids()
        .map_err(|err| damaged(err.to_string()))?
        .into_values()
        .map(|dso| (dso.path, dso.build_id))
        .collect();
    let mut samples = Samples::of(program);
    while let Some(record) =
        record_iter.next_record(&mut perf_file).map_err(|err| damaged(err.to_string()))?
    {
        let PerfFileRecord::EventRecord { record, .. } = record else { continue };
        if record.record_type == RecordType::SAMPLE {
            let Some(sample) = Sample::of(&record) else {
                return Err(damaged("a sample is cut off".to_owned()));
            };
            // Only what ran in user mode.
            if record.misc & 7 == 2 {
                match sample.branches.as_slice() {
                    [] => samples.point(sample.pid, LiveVa(sample.ip)),
                    branches => samples.branches(sample.pid, branches),
                }
            }
            continue;
        }
        match record.parse().map_err(|err| damaged(err.to_string()))? {
            EventRecord::Mmap2(m) if m.protection & 4 != 0 => {
                let path = m.path.as_slice();
                let id = match &m.file_id {
                    Mmap2FileId::BuildId(id) => Some(id),
                    Mmap2FileId::InodeAndVersion(_) => known.get(&*path),
                };
                let live = m.address..m.address.saturating_add(m.length);
                samples.map(
                    m.pid,
                    live,
                    m.page_offset,
                    &String::from_utf8_lossy(&path),
                    id.map(Vec::as_slice),
                );
            }
            EventRecord::Mmap(m) if m.is_executable => {
                let path = m.path.as_slice();
                let live = m.address..m.address.saturating_add(m.length);
                let id = known.get(&*path).map(Vec::as_slice);
                samples.map(m.pid, live, m.page_offset, &String::from_utf8_lossy(&path), id);
            }
            EventRecord::Fork(f) => samples.fork(f.ppid, f.pid),
            _ => {}
        }
    }
    samples.finish(Format::PerfData)
}

/// A reader that knows its position, for messages.
struct Placed<'a> {
    inner: Cursor<&'a [u8]>,
    place: Rc<Cell<u64>>,
}

impl Read for Placed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(into)?;
        self.place.set(self.inner.position());
        Ok(n)
    }
}

impl Seek for Placed<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = self.inner.seek(to)?;
        self.place.set(at);
        Ok(at)
    }
}

/// Checks that no table is longer than the file: the reader allocates what the file asks for.
fn check_tables(bytes: &[u8]) -> Result<(), (usize, &'static str)> {
    if bytes.starts_with(b"2ELIFREP") {
        return Err((0, "it is of a big-endian machine"));
    }
    let cut = |at: usize| (at.min(bytes.len()), "it is cut off");
    let word = |at: usize| {
        let raw = at.checked_add(8).and_then(|end| bytes.get(at..end)).and_then(|w| w.try_into().ok());
        raw.map(u64::from_le_bytes).ok_or(cut(at))
    };
    // A place and a length, which stand at `at`; within the file.
    let section = |at: usize| {
        let (from, len) = (word(at)?, word(at.saturating_add(8))?);
        let range = usize::try_from(from).ok().zip(usize::try_from(len).ok());
        let range = range.and_then(|(from, len)| Some(from..from.checked_add(len)?));
        range.filter(|r| r.end <= bytes.len()).ok_or((at, "a table that the file is too short for"))
    };
    let attr_len = usize::try_from(word(16)?).unwrap_or(usize::MAX);
    // The first version of perf_event_attr, and the place of its ids.
    if !(64 + 16..=4096).contains(&attr_len) {
        return Err((16, "attributes of events cannot be that long"));
    }
    let (attrs, data, types) = (section(24)?, section(40)?, section(56)?);
    for table in [attrs, types] {
        for end in table.clone().step_by(attr_len).map(|from| from + attr_len).filter(|&end| end <= table.end)
        {
            section(end - 16)?;
        }
    }
    let mut at = data.end;
    for feature in 0..256usize {
        if word(72 + feature / 64 * 8)? >> (feature % 64) & 1 == 0 {
            continue;
        }
        let range = section(at)?;
        at += 16;
        if feature == EVENT_DESC {
            check_events(bytes.get(range.clone()).unwrap_or_default()).ok_or(cut(range.start))?;
        }
    }
    Ok(())
}

/// HEADER_EVENT_DESC: how many events and how long an attribute is; then of each its attribute, number of
/// ids, name, ids.
const EVENT_DESC: usize = 12;

fn check_events(bytes: &[u8]) -> Option<()> {
    let number = |at: usize| -> Option<usize> {
        let raw = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(raw)).ok()
    };
    let (n, attr_len) = (number(0)?, number(4)?);
    let mut at = 8usize;
    for _ in 0..n {
        at = at.checked_add(attr_len)?;
        let (n_ids, name_len) = (number(at)?, number(at.checked_add(4)?)?);
        at = at.checked_add(8)?.checked_add(name_len)?.checked_add(n_ids.checked_mul(8)?)?;
        if at > bytes.len() {
            return None;
        }
    }
    Some(())
}

/// What we need of a sample.
struct Sample {
    ip: u64,
    pid: i32,
    branches: Vec<Branch>,
}

impl Sample {
    /// Reads the fields up to the branch stack, in their order.
    fn of(record: &RawEventRecord) -> Option<Sample> {
        let bytes = record.data.as_slice();
        let mut at = 0usize;
        let mut word = || {
            let raw = bytes.get(at..at.checked_add(8)?)?;
            at += 8;
            Some(u64::from_le_bytes(raw.try_into().ok()?))
        };
        let info = &record.parse_info;
        let has = |field| info.sample_format.contains(field);
        let mut sample = Sample { ip: 0, pid: 0, branches: Vec::new() };
        if has(SampleFormat::IDENTIFIER) {
            word()?;
        }
        if has(SampleFormat::IP) {
            sample.ip = word()?;
        }
        if has(SampleFormat::TID) {
            let low = u32::try_from(word()? & 0xffff_ffff).ok()?;
            sample.pid = low.cast_signed();
        }
        let skipped = [
            SampleFormat::TIME,
            SampleFormat::ADDR,
            SampleFormat::ID,
            SampleFormat::STREAM_ID,
            SampleFormat::CPU,
            SampleFormat::PERIOD,
        ];
        for _ in skipped.into_iter().filter(|&f| has(f)) {
            word()?;
        }
        if has(SampleFormat::READ) {
            let first = word()?;
            let counts = |field| u64::from(info.read_format.contains(field));
            let times = counts(ReadFormat::TOTAL_TIME_ENABLED) + counts(ReadFormat::TOTAL_TIME_RUNNING);
            let per_value = 1 + counts(ReadFormat::ID);
            let group = info.read_format.contains(ReadFormat::GROUP);
            let rest = if group { times + first.checked_mul(per_value)? } else { times + per_value - 1 };
            for _ in 0..rest {
                word()?;
            }
        }
        if has(SampleFormat::CALLCHAIN) {
            for _ in 0..word()? {
                word()?;
            }
        }
        if has(SampleFormat::RAW) {
            // A size of 32 bits and that many bytes, together whole words.
            let first = word()?;
            let len = (first & 0xffff_ffff) + 4;
            for _ in 1..len.div_ceil(8) {
                word()?;
            }
        }
        if has(SampleFormat::BRANCH_STACK) {
            let n = word()?;
            if info.branch_sample_format.contains(BranchSampleFormat::HW_INDEX) {
                word()?;
            }
            for _ in 0..n {
                let (from, to, flags) = (word()?, word()?, word()?);
                sample.branches.push((LiveVa(from), LiveVa(to), flags & 1 == 1));
            }
        }
        Some(sample)
    }
}

#[cfg(test)]
mod tests;
