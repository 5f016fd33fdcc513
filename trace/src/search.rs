//! What is asked of a search, and what comes back. All schemes answer alike.

use crate::ids::ThreadId;

pub mod automaton;
pub(crate) mod callers;
pub(crate) mod calls;
pub(crate) mod columns;
pub(crate) mod compressed;
pub(crate) mod effects;
pub mod expand;
pub mod ngrams;
pub mod path;
pub mod scan;
pub mod within;

/// How much to find out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// How often the path occurs.
    Count,
    /// Where it occurs first.
    First,
    /// How often, and where first.
    CountAndFirst,
    /// Where it occurs, each time.
    All,
    /// Where it occurs for the n-th time, from 1; streams one after the other.
    Nth(u64),
    /// Where it occurs first behind this position, in the same stream.
    Next(Position),
    /// Where it occurs last before this position, in the same stream.
    Previous(Position),
    /// How often before this position, in the same stream.
    CountBefore(Position),
    /// How often in each stream.
    PerThread,
}

impl Want {
    /// The only stream that is looked at, if the others are of no account.
    pub(crate) fn thread(self) -> Option<ThreadId> {
        match self {
            Self::Next(at) | Self::Previous(at) | Self::CountBefore(at) => Some(at.thread),
            _ => None,
        }
    }

    /// Whether the search may end before the streams do.
    pub(crate) fn ends_early(self) -> bool {
        !matches!(self, Self::Count | Self::CountAndFirst | Self::All | Self::PerThread)
    }
}

/// How to search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Unpack everything, and run the vector-state automaton over it.
    Unpacked = 1,
    /// On the grammar's rules.
    Grammar = 2,
    /// Unpack the chunks that have the function.
    Chunks = 3,
    /// On the rules of those segments of the grammar that have the function.
    Segments = 4,
    /// On the columns: the blocks of each function by themselves.
    Columns = 5,
}

impl Scheme {
    /// All, in order.
    pub const ALL: [Self; 5] = [Self::Unpacked, Self::Grammar, Self::Chunks, Self::Segments, Self::Columns];

    /// The scheme of this number.
    pub fn numbered(n: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&scheme| scheme as u8 == n)
    }
}

/// The index of a symbol in the stream of a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// Which stream.
    pub thread: ThreadId,
    /// From 0.
    pub index: u64,
}

/// What was found; as much of it as was wanted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Found {
    /// How many occurrences. Where one alone is asked for, how many there are up to it, itself included; all,
    /// if it is not there.
    pub count: u64,
    /// The last block of the first occurrence, or of the one that is asked for; with [`Want::Count`] and its
    /// like, not all schemes know it.
    pub first: Option<Position>,
    /// Each one's last block, in order; with [`Want::All`] alone.
    pub all: Vec<Position>,
    /// Streams in which it occurs, and how often; with [`Want::PerThread`] alone.
    pub threads: Vec<(ThreadId, u64)>,
}

impl Found {
    /// Notes an occurrence. Returns whether more are wanted.
    #[inline]
    pub(crate) fn note(&mut self, want: Want, thread: ThreadId, index: u64) -> bool {
        let position = Position { thread, index };
        let (is_it, goes_on) = match want {
            Want::First => (true, false),
            Want::Nth(n) => (self.count + 1 == n, self.count + 1 < n),
            Want::Next(at) => (index > at.index, index <= at.index),
            Want::Previous(at) | Want::CountBefore(at) if index >= at.index => return false,
            Want::Previous(_) => (true, true),
            _ => (self.first.is_none(), true),
        };
        self.add(want, thread, 1);
        if is_it {
            self.first = Some(position);
        }
        if want == Want::All {
            self.all.push(position);
        }
        goes_on
    }

    /// Notes `n` occurrences somewhere in the stream, where it does not matter where.
    #[inline]
    pub(crate) fn add(&mut self, want: Want, thread: ThreadId, n: u64) {
        self.count = self.count.saturating_add(n);
        if want == Want::PerThread && n > 0 {
            match self.threads.last_mut().filter(|(last, _)| *last == thread) {
                Some((_, count)) => *count = count.saturating_add(n),
                None => self.threads.push((thread, n)),
            }
        }
    }

    /// Whether it matters where the `n` occurrences are that end in the `len` symbols from `index`.
    #[inline]
    pub(crate) fn asks_where(&self, want: Want, n: u64, index: u64, len: u64) -> bool {
        let end = index.saturating_add(len);
        n > 0
            && match want {
                Want::Count | Want::PerThread => false,
                Want::CountAndFirst => self.first.is_none(),
                Want::Nth(nth) => self.count.saturating_add(n) >= nth,
                Want::Next(at) => end > at.index.saturating_add(1),
                Want::Previous(at) | Want::CountBefore(at) => end > at.index,
                Want::First | Want::All => true,
            }
    }
}
