//! Points of a process that runs, by which somebody is told each time that control comes there: breakpoints
//! at which nothing stops.
//!
//! ```text
//! the process: what registers hold, then a word, into a stream of the thread's own
//!   ─► our thread: empties the streams, full or not ─► whoever asked, in its own thread
//! ```
//! The point is in moved code: there is no trap, and nobody traces the process. It goes on while its client
//! is told, up to [`AHEAD`] batches and what the streams hold; then its threads wait for the client.
//!
//! Not here: a stop at the point, for which the thread would have to wait for an answer.
//!
//! Source: PADRONE, 2.1 (breakpoints and callbacks).
#![warn(clippy::indexing_slicing)]

use super::{Attached, ReadyProcess, RunningError, RunningProgram, Since};
use crate::choose::{ModuleFilter, Spellings};
use crate::module::{Instrumentation, Instrumented};
use crate::prepare::PrepareError;
use crate::record::{NAP, Taken};
use crate::store::Store;
use live::attach::{self, AttachError, GivenBack};
use live::{Arena, Stream};
use measure::Placement;
use measure::values::{Asked, AskedPlace, Code, Recorded, Stamping, What};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use trace::recording::event::Head;

/// Control came by at a point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passing {
    /// Which of the places that were asked for.
    pub place: usize,
    /// The thread: from 1, in the order in which threads were first seen.
    pub thread: u32,
    /// What was there, as it was asked for: a value of up to 8 bytes is one word, others are several.
    pub values: Vec<u64>,
}

/// What came of it.
pub struct Told {
    /// How many passings somebody was told of.
    pub n: u64,
    /// Whether passings were lost, because streams could not be emptied.
    pub has_lost: bool,
    /// What was done to the process.
    pub attached: Attached,
    /// How it was given back.
    pub given: GivenBack,
}

/// Why nobody is told of passings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassingsError {
    /// It cannot be attached to.
    #[error(transparent)]
    Running(RunningError),
    /// A place is not there, or nothing can be put there.
    #[error("{place} in process {pid} cannot be watched: {why}")]
    Place {
        /// The process.
        pid: i32,
        /// What was asked for.
        place: String,
        /// Why not.
        why: String,
    },
    /// What it appends cannot be taken.
    #[error("what process {pid} appends cannot be read")]
    Take {
        /// The process.
        pid: i32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It was not given back as it was.
    #[error("process {pid} was not given back as it was")]
    NotGivenBack {
        /// The process.
        pid: i32,
        /// Why.
        source: AttachError,
    },
}

impl PassingsError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<String> {
        match self {
            PassingsError::Running(err) => err.hint(),
            PassingsError::Place { pid, .. } => {
                Some(format!("`engraft show -p {pid} functions MODULE` lists functions"))
            }
            PassingsError::NotGivenBack { pid, source } => {
                source.hint().or_else(|| Some(format!("`engraft rescue {pid}` tries once more")))
            }
            PassingsError::Take { .. } => None,
        }
    }
}

/// How many batches of passings may be on their way to who is told.
const AHEAD: usize = 64;
/// After which time without a passing it is seen whether the process is there still.
const LOOK: Duration = Duration::from_millis(50);

/// Calls `told` in this thread for each time that process `pid` comes by at one of `places`, from now on, in
/// each thread's own order, until that says that it is enough, `how_long` is over, or the process has ended;
/// then gives the process back. `spellings` is how users spell functions.
///
/// # Errors
/// If a place is not there, or the process cannot be attached to: then it is as it was. If it cannot be given
/// back, or its passings cannot be read.
pub fn tell_passings(
    store: &Store,
    (pid, places): (i32, &[AskedPlace]),
    spellings: Spellings,
    how_long: Duration,
    told: &mut dyn FnMut(&Passing) -> ControlFlow<()>,
) -> Result<Told, PassingsError> {
    let asked = Asked { places: places.to_vec(), stamping: Stamping::None, ..Asked::default() };
    let asked =
        Instrumentation { values: Arc::new(asked), spellings, ..Instrumentation::new(Placement::Values) };
    let unseen =
        |place: &AskedPlace, why: String| PassingsError::Place { pid, place: place.place.clone(), why };
    let all = ModuleFilter::new(&["*"]);
    let program = RunningProgram::of(pid).map_err(PassingsError::Running)?;
    let mut process = ReadyProcess::new(store, &all, program, asked).map_err(|err| match (err, places) {
        (RunningError::Prepare(PrepareError::Nothing { what }), [first, ..]) => unseen(first, what),
        (err, _) => PassingsError::Running(err),
    })?;
    let codes: Vec<Code> = process.modules().filter_map(Instrumented::recorded_values).collect();
    for (n, place) in (0..).zip(places) {
        let mut records = codes.iter().flat_map(|code| &code.records);
        if !records.any(|one| one.what == What::Place && one.asked == n) {
            let why = codes.iter().flat_map(|code| &code.unseen).next();
            let why = why.map_or_else(|| "none of its modules has it".to_owned(), |one| one.why.clone());
            return Err(unseen(place, why));
        }
    }
    let sites = Sites::of(&codes);
    let (sends, receives) = sync_channel(AHEAD);
    let mut n = 0;
    let (entered, arena) = process.enter().map_err(PassingsError::Running)?;
    let taking = |is_done: &AtomicBool| {
        let mut taken = Taken::default();
        taken.failed = take(&arena, &sites, is_done, &sends, &mut taken).err();
        // Who waits for passings, waits no longer.
        drop(sends);
        taken
    };
    let done = process.appends_during(entered, &arena, taking, |_| n = tell(pid, receives, how_long, told));
    let (Since { attached, given, .. }, taken) = done.map_err(PassingsError::Running)?;
    let given = match given {
        Ok(given) => given,
        // What has ended, or is another program, needs nothing back.
        Err(_) if !attach::is_attached(pid) => GivenBack::default(),
        Err(source) => return Err(PassingsError::NotGivenBack { pid, source }),
    };
    match taken.failed {
        Some(source) => Err(PassingsError::Take { pid, source }),
        None => Ok(Told { n, has_lost: taken.n_lost > 0, attached, given }),
    }
}

/// Tells of what comes; of how many. Nobody receives any more then: whoever sends must not wait.
fn tell(
    pid: i32,
    receives: Receiver<Vec<Passing>>,
    how_long: Duration,
    told: &mut dyn FnMut(&Passing) -> ControlFlow<()>,
) -> u64 {
    let until = Instant::now() + how_long;
    let mut n = 0;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return n;
        }
        match receives.recv_timeout(left.min(LOOK)) {
            Ok(batch) => {
                for passing in &batch {
                    n += 1;
                    if told(passing).is_break() {
                        return n;
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) if attach::is_attached(pid) => {}
            Err(_) => return n,
        }
    }
}

/// The parts of a value: where each is in the record, in the value, and its length.
type Parts = Vec<(u32, u16, u8)>;

/// What the records of modules mean, and the number before that of the first of each.
struct Sites(Vec<(u32, Vec<Site>)>);

/// A record.
struct Site {
    place: usize,
    len: usize,
    values: Vec<Parts>,
}

impl Sites {
    fn of(codes: &[Code]) -> Sites {
        let site = |one: &Recorded| Site {
            place: one.asked as usize,
            len: one.len as usize,
            values: one.columns.iter().map(|column| column.parts.clone()).collect(),
        };
        let of = |code: &Code| (code.base, code.records.iter().map(site).collect());
        Sites(codes.iter().map(of).collect())
    }

    fn site(&self, word: u32) -> Option<&Site> {
        self.0.iter().find_map(|(base, sites)| {
            let n = word.wrapping_sub(*base).wrapping_sub(1);
            sites.get(n as usize)
        })
    }

    /// Adds the passings that `bytes` tells of to `all`; how many bytes these took. What is not written yet
    /// has no word, which is written last.
    fn read(&self, bytes: &[u8], threads: (&mut u32, &mut u32), all: &mut Vec<Passing>) -> usize {
        let (thread, n_threads) = threads;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && let Some(word) =
                rest.first_chunk().map(|word| u32::from_le_bytes(*word)).filter(|word| *word > 0)
        {
            let len = match self.site(word) {
                Some(site) => {
                    let Some(record) = rest.get(..site.len) else { return at };
                    let values = site.values.iter().flat_map(|parts| words(parts, record)).collect();
                    all.push(Passing { place: site.place, thread: *thread, values });
                    site.len
                }
                None => match Head::of(word) {
                    Head::Another => {
                        *n_threads += 1;
                        *thread = *n_threads;
                        4
                    }
                    Head::Signal if rest.len() >= 12 => 12,
                    _ => return at,
                },
            };
            at += len;
        }
        at
    }
}

/// The value of which these are the `parts`, in words of 8 bytes.
fn words(parts: &[(u32, u16, u8)], record: &[u8]) -> Vec<u64> {
    let ends = parts.iter().map(|&(_, at, len)| usize::from(at) + usize::from(len));
    let mut value = vec![0; ends.max().unwrap_or(0).next_multiple_of(8)];
    for &(from, at, len) in parts {
        let (from, at, len) = (from as usize, usize::from(at), usize::from(len));
        if let (Some(to), Some(bytes)) = (value.get_mut(at..at + len), record.get(from..from + len)) {
            to.copy_from_slice(bytes);
        }
    }
    let (words, _) = value.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// A thread's stream, read while it is written.
struct Reading<'a> {
    stream: Stream<'a>,
    thread: u32,
    /// How many bytes were read of what was not taken.
    n_read: usize,
}

/// Takes the streams of `arena` until `is_done`, and sends what they tell of, as long as somebody receives.
fn take(
    arena: &Arena,
    sites: &Sites,
    is_done: &AtomicBool,
    sends: &SyncSender<Vec<Passing>>,
    taken: &mut Taken,
) -> io::Result<()> {
    let (mut all, mut n_threads, mut bytes) = (Vec::<Reading<'_>>::new(), 0, Vec::new());
    let mut n_rounds_left = Stream::N_CHUNKS;
    loop {
        let was_done = is_done.load(Ordering::SeqCst);
        let mut batch = Vec::new();
        for k in all.len() as u64..arena.n_areas()? {
            n_threads += 1;
            all.push(Reading { stream: arena.stream(k)?, thread: n_threads, n_read: 0 });
        }
        let mut found = false;
        for one in &mut all {
            if one.stream.take(&mut bytes) {
                found = true;
                let new = bytes.get(one.n_read..).unwrap_or_default();
                sites.read(new, (&mut one.thread, &mut n_threads), &mut batch);
                one.n_read = one.n_read.saturating_sub(bytes.len());
            } else {
                one.stream.look(one.n_read as u64 / 4, &mut bytes)?;
                one.n_read += sites.read(&bytes, (&mut one.thread, &mut n_threads), &mut batch);
            }
        }
        let is_empty = batch.is_empty();
        // Nobody may be told any more; the program must not wait for that.
        let _received = if is_empty { Ok(()) } else { sends.send(batch) };
        n_rounds_left -= usize::from(was_done);
        if was_done && (!found || n_rounds_left == 0) {
            break;
        }
        if !found && is_empty {
            std::thread::park_timeout(NAP);
        }
    }
    taken.owners = arena.owners()?;
    taken.n_threads = all.len();
    for one in &all {
        taken.n_lost += u64::from(one.stream.has_lost()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites() -> Sites {
        let site = |place, len, values| Site { place, len, values };
        let both = vec![vec![(4, 0, 4)], vec![(8, 0, 8)]];
        Sites(vec![(0x1000, vec![site(0, 4, Vec::new()), site(1, 16, both)])])
    }

    fn read(words: &[u32]) -> (Vec<(usize, u32, Vec<u64>)>, usize) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut all = Vec::new();
        let n = sites().read(&bytes, (&mut 1, &mut 4), &mut all);
        (all.into_iter().map(|one| (one.place, one.thread, one.values)).collect(), n)
    }

    #[test]
    fn passings_are_read_up_to_what_is_not_written_yet() {
        let another = trace::recording::event::ANOTHER;
        let handler = trace::recording::event::HANDLER;
        let words = [0x1001, 0x1002, 7, 8, 9, handler, 0, 0, another, 0x1001, 0, 1, 2, 3, 0x1001];
        let want = vec![(0, 1, vec![]), (1, 1, vec![7, 9 << 32 | 8]), (0, 5, vec![])];
        assert_eq!(read(&words), (want, 40));
        // Its word is there, and the end of it is in no memory that was looked at.
        assert_eq!(read(&[0x1001, 0x1002, 7]), (vec![(0, 1, vec![])], 4));
        // Of a record that we do not know, nothing behind it is known.
        assert_eq!(read(&[0x2001, 0x1001]), (vec![], 0));
    }
}
