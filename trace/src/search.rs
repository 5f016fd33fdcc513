//! What is asked of a search, and what comes back. All schemes answer alike.

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
    pub thread: u32,
    /// From 0.
    pub index: u64,
}

/// What was found; as much of it as was wanted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Found {
    /// How many occurrences. With [`Want::First`], 1 stands for some.
    pub count: u64,
    /// The first one's last block; with [`Want::Count`], not all schemes know it.
    pub first: Option<Position>,
    /// Each one's last block, in order; with [`Want::All`] alone.
    pub all: Vec<Position>,
}

impl Found {
    /// Notes an occurrence. Returns whether more are wanted.
    #[inline]
    pub(crate) fn note(&mut self, want: Want, thread: u32, index: u64) -> bool {
        self.count += 1;
        let position = Position { thread, index };
        self.first.get_or_insert(position);
        if want == Want::All {
            self.all.push(position);
        }
        want != Want::First
    }
}
