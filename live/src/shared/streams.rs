//! Streams of events: one a thread, a ring of chunks that its processes fill and we take.

use super::{Arena, MOST_STREAMS, PAGE, StreamsAt};
use crate::process::Limits;
use crate::sys::{SharedBytes, SharedWord};
use probe::arch::shared::{self, Capacity, EventsPage, Header, Mailbox};
use probe::offset;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

/// The events of one thread, as they come.
pub struct Stream<'a> {
    arena: &'a Arena,
    word: SharedWord,
    page: u64,
    events: SharedBytes,
    chunks: u64,
    /// The chunk that is full next.
    next: u64,
}

impl Stream<'_> {
    /// How many chunks may be full at once.
    #[expect(clippy::cast_possible_truncation, reason = "it is 8")]
    pub const N_CHUNKS: usize = shared::N_CHUNKS as usize;
    /// How many words each has.
    pub const N_WORDS: u64 = shared::CHUNK_LEN / 4;
    /// How many words more than there are may be counted, of which room was taken that is not used.
    pub const N_UNUSED: u64 = shared::CHUNK_ROOM / 4;

    /// Moves the next chunk to `events`, if it is full; whoever waits for its room, gets it.
    pub fn take(&mut self, events: &mut Vec<u8>) -> bool {
        let full = usize::try_from(offset!(EventsPage, full) + 4 * self.next).expect("small");
        if self.word.word(full).load(Ordering::SeqCst) == 0 {
            return false;
        }
        // Room that is taken and not used must say so: zeros are left.
        events.resize(place(1), 0);
        self.events.take(place(self.next), events);
        self.word.word(full).store(0, Ordering::SeqCst);
        self.word.wake_at(full);
        self.next = (self.next + 1) % shared::N_CHUNKS;
        true
    }

    /// How many chunks are full, and how many bytes of the next one are used.
    fn extent(&self) -> io::Result<(u64, u64)> {
        // In this order: whoever goes on to another chunk says first that the one before is full.
        let next = self.arena.word(self.page + offset!(EventsPage, next))?;
        let is_full = |n: &u64| self.is_full((self.next + n) % shared::N_CHUNKS);
        let n_full = (0..shared::N_CHUNKS).take_while(is_full).count() as u64;
        let chunk = (self.next + n_full) % shared::N_CHUNKS;
        let used = next.wrapping_sub(shared::ARENA + self.chunks + shared::CHUNK_LEN * chunk);
        // Room may be taken beyond the end, and is not used then; what is farther away is in another chunk.
        let is_here = used < shared::CHUNK_LEN + PAGE;
        Ok((n_full, if is_here { used.min(shared::CHUNK_LEN) & !3 } else { 0 }))
    }

    /// How many words are there that were not taken, those of chunks that are not used among them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn n_words(&self) -> io::Result<u64> {
        let (n_full, used) = self.extent()?;
        Ok((n_full * shared::CHUNK_LEN + used) / 4)
    }

    /// Moves what was not taken to `events`, from its word `from` on, and leaves it where it is; how many of
    /// these words are in chunks that are full. The others may not be written yet, and are zeros then; of an
    /// event, no word is there without those before.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&self, from: u64, events: &mut Vec<u8>) -> io::Result<usize> {
        events.clear();
        let (n_full, used) = self.extent()?;
        let (mut at, end) = (4 * from, n_full * shared::CHUNK_LEN + used);
        let mut bytes = Vec::new();
        while at < end {
            let (chunk, within) = (at / shared::CHUNK_LEN, at % shared::CHUNK_LEN);
            // Whole words of 8 bytes.
            let start = within & !7;
            let len = (end - chunk * shared::CHUNK_LEN).min(shared::CHUNK_LEN) - start;
            bytes.resize(usize::try_from(len.next_multiple_of(8)).map_err(io::Error::other)?, 0);
            let place = place((self.next + chunk) % shared::N_CHUNKS);
            self.events.look(place + usize::try_from(start).map_err(io::Error::other)?, &mut bytes);
            let of_these = usize::try_from(within - start).map_err(io::Error::other)?;
            let len = usize::try_from(len).map_err(io::Error::other)?;
            events.extend(bytes.get(of_these..len).unwrap_or_default());
            at = (chunk + 1) * shared::CHUNK_LEN;
        }
        let n_whole = (n_full * shared::CHUNK_LEN / 4).saturating_sub(from);
        usize::try_from(n_whole).map(|n| n.min(events.len() / 4)).map_err(io::Error::other)
    }

    /// What is in the next chunk, full or not: all that was not taken, when nobody appends any more. Where
    /// somebody does, what is not whole yet is zeros, or left out at the end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rest(&self) -> io::Result<Vec<u8>> {
        let (n_full, used) = self.extent()?;
        let len = if n_full > 0 { shared::CHUNK_LEN } else { used };
        let mut bytes = vec![0; usize::try_from(len.next_multiple_of(8)).map_err(io::Error::other)?];
        self.events.look(place(self.next), &mut bytes);
        bytes.truncate(usize::try_from(len).map_err(io::Error::other)?);
        Ok(bytes)
    }

    /// How often the thread had to wait until a chunk was taken.
    ///
    /// # Errors
    /// The kernel's.
    pub fn n_stalls(&self) -> io::Result<u64> {
        self.arena.word(self.page + offset!(EventsPage, stalls))
    }

    /// Whether events were lost, since nobody took them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn has_lost(&self) -> io::Result<bool> {
        Ok(self.arena.word(self.page + offset!(EventsPage, lost))? != 0)
    }

    fn is_full(&self, chunk: u64) -> bool {
        let full = usize::try_from(offset!(EventsPage, full) + 4 * chunk).expect("small");
        self.word.word(full).load(Ordering::SeqCst) != 0
    }
}

/// Where a chunk is among those of its stream.
fn place(chunk: u64) -> usize {
    usize::try_from(shared::CHUNK_LEN * chunk).expect("mapped")
}

/// Who appended to a stream last, and what is known of its end.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The process.
    pub process: u32,
    /// The thread, if it is known.
    pub thread: Option<u32>,
    /// Whether that runs still, as whatever program.
    pub runs: bool,
    /// Whether it is another program by now, which appends nothing.
    pub is_another: bool,
    /// Whether the thread was seen to have ended before its process.
    pub has_ended: bool,
    /// Whether it has ended the process by `exit`.
    pub has_left: bool,
}

impl Arena {
    /// Who appended to each stream last.
    ///
    /// # Errors
    /// The kernel's.
    pub fn owners(&self) -> io::Result<Vec<Owner>> {
        let owner = |(k, (pid, state)): (u64, (i32, u8))| {
            let runs = pid > 0 && super::areas::runs(pid);
            let maps = if runs {
                std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default()
            } else {
                Vec::new()
            };
            let has_it = || String::from_utf8_lossy(&maps).contains(&format!("/memfd:{} ", super::NAME));
            Owner {
                process: u32::try_from(pid).unwrap_or(0),
                thread: self.number(k).ok().filter(|number| *number != 0),
                runs,
                is_another: !maps.is_empty() && !has_it(),
                has_ended: state == 0,
                has_left: matches!(state, shared::HAS_ENDED | shared::IN_EXIT),
            }
        };
        Ok((0..).zip(self.areas()?).map(owner).collect())
    }

    /// The number of the thread that appends to stream `k`; 0: it is not known.
    fn number(&self, k: u64) -> io::Result<u32> {
        let at = self.streams.ok_or_else(|| io::Error::other("no events are recorded"))?;
        let mut number = [0; 4];
        self.file.read_exact_at(&mut number, at.pages + PAGE * k + offset!(EventsPage, number))?;
        Ok(u32::from_le_bytes(number))
    }

    /// Makes room for streams of events, one a thread, of modules with these keys: all modules of a thread
    /// append to one.
    ///
    /// # Errors
    /// As [`Arena::create`].
    pub fn for_events(keys: &[u128]) -> io::Result<Arena> {
        let (room, later) = room_for_streams();
        Arena::with(&[], room, later)?.with_streams(keys)
    }

    /// The same in `file`, as [`Arena::create_in`].
    ///
    /// # Errors
    /// As there.
    pub fn for_events_in(file: File, keys: &[u128]) -> io::Result<Arena> {
        let (room, later) = room_for_streams();
        Arena::within(file, &[], room, later)?.with_streams(keys)
    }

    /// Lays streams of events behind what is there, and a row a module over them.
    fn with_streams(mut self, keys: &[u128]) -> io::Result<Arena> {
        let n_areas = self.room.n_areas;
        let mut state = self.state();
        let pages = state.len.next_multiple_of(PAGE);
        let chunks = pages + PAGE * n_areas;
        let len = chunks + shared::CHUNK_LEN * shared::N_CHUNKS * n_areas;
        super::set_len(&self.file, len)?;
        self.file.write_all_at(&len.to_le_bytes(), offset!(Header, len_bytes))?;
        for k in 0..n_areas {
            let control = pages + PAGE * k;
            let base = shared::ARENA + chunks + shared::CHUNK_LEN * shared::N_CHUNKS * k;
            for (at, word) in [
                (offset!(EventsPage, next), base),
                (offset!(EventsPage, limit), base + shared::CHUNK_LEN - shared::CHUNK_ROOM),
                (offset!(EventsPage, base), base),
                (offset!(EventsPage, control), shared::ARENA + control),
                (offset!(EventsPage, taker), shared::ARENA + self.mailbox + offset!(Mailbox, owner)),
            ] {
                self.file.write_all_at(&word.to_le_bytes(), control + at)?;
            }
        }
        (state.len, state.mapped, state.max_len) = (len, len, len);
        drop(state);
        self.streams = Some(StreamsAt { pages, chunks });
        keys.iter().try_for_each(|key| self.add(*key, 0))?;
        Ok(self)
    }

    /// The stream of area `k`, from its first event on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stream(&self, k: u64) -> io::Result<Stream<'_>> {
        let at = self.streams.ok_or_else(|| io::Error::other("no events are recorded"))?;
        let page = at.pages + PAGE * k;
        let len = shared::CHUNK_LEN * shared::N_CHUNKS;
        let chunks = at.chunks + len * k;
        let word = SharedWord::map(&self.file, page)?;
        let events = SharedBytes::map(&self.file, chunks, len)?;
        Ok(Stream { arena: self, word, page, events, chunks, next: 0 })
    }
}

/// How many streams there may be, and how long the file may become beyond them.
fn room_for_streams() -> (Capacity, u64) {
    let stream = PAGE + shared::CHUNK_LEN * shared::N_CHUNKS;
    let (room, later) = Limits::ours().room(stream, 0);
    (Capacity { n_areas: room.n_areas.min(MOST_STREAMS), ..room }, later)
}
