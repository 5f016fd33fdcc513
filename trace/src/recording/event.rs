//! Events: what moved code appends while a program runs, as words.
//!
//! ```text
//! word = 0                       nothing: room that was taken and not used
//!      | 1 i frame?              entry i, the stack pointer's low half behind it if the second bit is set
//!      | 001 i frame             point i, which control may have come to from any depth
//!      | 000 i                   another point i
//!      | 000 and 29 bits set, key at
//!                                a signal came `at` bytes into the moved code of module `key` (0: elsewhere;
//!                                `at` all ones: in our own code; highest bit set: in a call there); its
//!                                handler is entered next. `key` all ones: the handler that was entered last
//!                                returns to where it changed the context to, outside of moved code; all ones
//!                                but the last bit: the signal whose mark comes before this one ended the
//!                                thread there
//!      | 000 and 29 bits set,
//!        less 1                  what came before is left out (a gap); up to the next start, words tell only
//!                                what is open
//!        less 2                  what comes next is kept (a start)
//!        less 3                  what comes next is another thread's: not in files, where it has a stream of
//!                                its own
//!        less 4                  what comes next, up to the next start, is not kept; nothing is missing
//!                                before it (a pause)
//! ```
//! The bits are the highest of the word. An entry or a point has the number that `code` gives it.
//!
//! Invariant: here alone is known which bits mean what. [`Head`] reads and writes the first word of an event,
//! [`Event`] all of it.
#![warn(clippy::indexing_slicing)]

/// Bits of an entry's word.
pub(crate) const ENTRY: u32 = 1 << 31;
/// Of an entry with a frame.
pub(crate) const HAS_FRAME: u32 = 1 << 30;
/// Of a point that control may come to from any depth.
pub(crate) const FROM_ANYWHERE: u32 = 1 << 29;
/// Numbers are below this, less the marks.
pub const LIMIT: u32 = 1 << 29;
/// A signal came; its handler is entered next. Two words follow.
pub const HANDLER: u32 = LIMIT - 1;
pub(crate) const GAP: u32 = LIMIT - 2;
pub(crate) const START: u32 = LIMIT - 3;
/// What comes next is another thread's.
pub const ANOTHER: u32 = LIMIT - 4;
pub(crate) const PAUSE: u32 = LIMIT - 5;
/// In place of where a signal came: in our own code.
pub const NO_PLACE: u32 = u32::MAX;
/// Of where a signal came: in what the call there has come to.
pub const IN_CALL: u32 = 1 << 31;
/// In place of the module: a handler does not return to where its signal came.
pub const REDIRECTED: u32 = u32::MAX;
/// In place of the module: a signal ended the thread; in place of where: 1 if that is what the signal before
/// tells, 0 if nobody knows.
pub(crate) const ENDED: u32 = u32::MAX - 1;

/// The most words that an event has.
pub const MOST_WORDS: usize = 3;

/// The first word of an event: what it is, and how many words it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// Room that was taken and not used.
    Unused,
    /// An entry; whether a frame follows.
    Entry {
        /// Its number, as of its module.
        number: u32,
        /// Whether the stack pointer's low half follows.
        has_frame: bool,
    },
    /// A point that control may have come to from any depth. A frame follows.
    FarPoint(u32),
    /// Another point.
    Point(u32),
    /// What signals did. Two words follow.
    Signal,
    /// What came before is left out.
    Gap,
    /// What comes next is kept.
    Start,
    /// What comes next is another thread's.
    Another,
    /// What comes next is not kept.
    Pause,
}

impl Head {
    /// What a word says that is the first of an event.
    #[inline]
    pub fn of(word: u32) -> Head {
        // Most words are points: they are told apart first.
        if (1..PAUSE).contains(&word) {
            return Head::Point(word);
        }
        if word & ENTRY != 0 {
            return Head::Entry { number: word & (LIMIT - 1), has_frame: word & HAS_FRAME != 0 };
        }
        match word {
            0 => Head::Unused,
            HANDLER => Head::Signal,
            GAP => Head::Gap,
            START => Head::Start,
            ANOTHER => Head::Another,
            PAUSE => Head::Pause,
            _ if word & FROM_ANYWHERE != 0 => Head::FarPoint(word & (LIMIT - 1)),
            _ => Head::Point(word),
        }
    }

    /// The word that says so.
    #[inline]
    pub const fn word(self) -> u32 {
        match self {
            Head::Unused => 0,
            Head::Entry { number, has_frame } => ENTRY | number | if has_frame { HAS_FRAME } else { 0 },
            Head::FarPoint(number) => FROM_ANYWHERE | number,
            Head::Point(number) => number,
            Head::Signal => HANDLER,
            Head::Gap => GAP,
            Head::Start => START,
            Head::Another => ANOTHER,
            Head::Pause => PAUSE,
        }
    }

    /// How many words the event has that begins so.
    #[inline]
    pub const fn n_words(self) -> usize {
        match self {
            Head::Signal => 3,
            Head::Entry { has_frame: true, .. } | Head::FarPoint(_) => 2,
            _ => 1,
        }
    }
}

/// Where in moved code a signal came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalPlace {
    /// In our own code.
    Ours,
    /// So many bytes into the moved code of the module.
    At(u32),
    /// In what a call so many bytes into it has come to.
    InCall(u32),
}

/// An event, or a mark between events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Room that was taken and not used.
    Unused,
    /// An entry was entered, with this stack pointer's low half if it tells that.
    Entry {
        /// Its number, as of its module.
        number: u32,
        /// The stack pointer's low half.
        frame: Option<u32>,
    },
    /// Control came to a point, perhaps from another depth.
    FarPoint {
        /// Its number, as of its module.
        number: u32,
        /// The stack pointer's low half.
        frame: u32,
    },
    /// Control came to another point of this number.
    Point(u32),
    /// A signal came, and its handler is entered next.
    Signal {
        /// The module; 0: elsewhere.
        key: u32,
        /// Where in its moved code.
        place: SignalPlace,
    },
    /// The signal handler that was entered last returns to where it changed the context to.
    Redirected,
    /// A signal ended the thread; where the signal before this one came, if that is known.
    Ended {
        /// Whether it is.
        is_placed: bool,
    },
    /// What came before is left out; up to the next start, events tell only what is open.
    Gap,
    /// What comes next is kept.
    Start,
    /// What comes next is another thread's.
    Another,
    /// What comes next, up to the next start, is not kept; nothing is missing before it.
    Pause,
}

impl Event {
    /// The event of these words, of which a word that is not there counts as 0.
    #[inline]
    pub fn of(head: u32, second: u32, third: u32) -> Event {
        match Head::of(head) {
            Head::Unused => Event::Unused,
            Head::Entry { number, has_frame } => Event::Entry { number, frame: has_frame.then_some(second) },
            Head::FarPoint(number) => Event::FarPoint { number, frame: second },
            Head::Point(number) => Event::Point(number),
            Head::Signal => match second {
                REDIRECTED => Event::Redirected,
                ENDED => Event::Ended { is_placed: third != 0 },
                key => Event::Signal { key, place: SignalPlace::of(third) },
            },
            Head::Gap => Event::Gap,
            Head::Start => Event::Start,
            Head::Another => Event::Another,
            Head::Pause => Event::Pause,
        }
    }

    /// Its first word.
    pub fn head(self) -> Head {
        match self {
            Event::Unused => Head::Unused,
            Event::Entry { number, frame } => Head::Entry { number, has_frame: frame.is_some() },
            Event::FarPoint { number, .. } => Head::FarPoint(number),
            Event::Point(number) => Head::Point(number),
            Event::Signal { .. } | Event::Redirected | Event::Ended { .. } => Head::Signal,
            Event::Gap => Head::Gap,
            Event::Start => Head::Start,
            Event::Another => Head::Another,
            Event::Pause => Head::Pause,
        }
    }

    /// Its words.
    pub fn words(self) -> impl Iterator<Item = u32> {
        let head = self.head();
        let [second, third] = match self {
            Event::Entry { frame, .. } => [frame.unwrap_or_default(), 0],
            Event::FarPoint { frame, .. } => [frame, 0],
            Event::Signal { key, place } => [key, place.word()],
            Event::Redirected => [REDIRECTED, 0],
            Event::Ended { is_placed } => [ENDED, u32::from(is_placed)],
            _ => [0, 0],
        };
        [head.word(), second, third].into_iter().take(head.n_words())
    }

    /// Appends its words, little-endian.
    pub fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.words().flat_map(u32::to_le_bytes));
    }
}

impl SignalPlace {
    fn of(word: u32) -> SignalPlace {
        match word {
            NO_PLACE => SignalPlace::Ours,
            _ if word & IN_CALL != 0 => SignalPlace::InCall(word & !IN_CALL),
            _ => SignalPlace::At(word),
        }
    }

    fn word(self) -> u32 {
        match self {
            SignalPlace::Ours => NO_PLACE,
            SignalPlace::At(at) => at,
            SignalPlace::InCall(at) => at | IN_CALL,
        }
    }
}

/// Reads events word by word: the words of one may come in several pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    /// The first words of an event whose others have not come yet.
    begun: [u32; MOST_WORDS - 1],
    n_begun: usize,
}

impl Reader {
    /// Takes the next word; the event that it completes.
    #[inline]
    pub fn push(&mut self, word: u32) -> Option<Event> {
        if self.n_begun == 0 {
            match Head::of(word) {
                Head::Point(number) => return Some(Event::Point(number)),
                Head::Entry { number, has_frame: false } => {
                    return Some(Event::Entry { number, frame: None });
                }
                _ => {}
            }
        }
        self.push_any(word)
    }

    fn push_any(&mut self, word: u32) -> Option<Event> {
        match (self.n_begun, self.begun) {
            (0, _) if Head::of(word).n_words() == 1 => Some(Event::of(word, 0, 0)),
            (1, [head, _]) if Head::of(head).n_words() == 2 => {
                self.n_begun = 0;
                Some(Event::of(head, word, 0))
            }
            (2, [head, second]) => {
                self.n_begun = 0;
                Some(Event::of(head, second, word))
            }
            (n, _) => {
                self.begun.get_mut(n).into_iter().for_each(|begun| *begun = word);
                self.n_begun += 1;
                None
            }
        }
    }

    /// The first word of an event whose others have not come, if there is one.
    pub fn begun(&self) -> Option<Head> {
        let [head, _] = self.begun;
        (self.n_begun > 0).then(|| Head::of(head))
    }
}

/// The word at `n` of `words` (u32, little-endian); 0 behind them.
pub(crate) fn word(words: &[u8], n: usize) -> u32 {
    words.get(4 * n..4 * n + 4).and_then(|w| w.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w))
}

/// The events of `words` (u32, little-endian), each with the place of its first word and its bytes: of the
/// last, words may be missing.
pub fn events(words: &[u8]) -> impl Iterator<Item = (usize, Head, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = words.get(4 * at..)?;
        let head = Head::of(u32::from_le_bytes(*rest.first_chunk()?));
        let place = at;
        at += head.n_words();
        Some((place, head, rest.get(..4 * head.n_words()).unwrap_or(rest)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_event() -> impl Strategy<Value = Event> {
        let number = 1..PAUSE;
        let place = prop_oneof![
            Just(SignalPlace::Ours),
            (0..IN_CALL).prop_map(SignalPlace::At),
            (0..IN_CALL - 1).prop_map(SignalPlace::InCall),
        ];
        prop_oneof![
            Just(Event::Unused),
            (0..LIMIT, any::<Option<u32>>()).prop_map(|(number, frame)| Event::Entry { number, frame }),
            (0..LIMIT, any::<u32>()).prop_map(|(number, frame)| Event::FarPoint { number, frame }),
            number.prop_map(Event::Point),
            (0..ENDED, place).prop_map(|(key, place)| Event::Signal { key, place }),
            Just(Event::Redirected),
            any::<bool>().prop_map(|is_placed| Event::Ended { is_placed }),
            Just(Event::Gap),
            Just(Event::Start),
            Just(Event::Another),
            Just(Event::Pause),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(all in proptest::collection::vec(any_event(), 0..20)) {
            let words: Vec<u32> = all.iter().flat_map(|event| event.words()).collect();
            let mut reader = Reader::default();
            let read: Vec<Event> = words.iter().filter_map(|word| reader.push(*word)).collect();
            prop_assert_eq!(&read, &all);
            prop_assert_eq!(reader.begun(), None);
            let mut bytes = Vec::new();
            all.iter().for_each(|event| event.append_to(&mut bytes));
            let heads: Vec<Head> = events(&bytes).map(|(_, head, _)| head).collect();
            prop_assert_eq!(heads, all.iter().map(|event| event.head()).collect::<Vec<_>>());
            let cut: Vec<&[u8]> = events(&bytes).map(|(_, _, bytes)| bytes).collect();
            prop_assert_eq!(cut.concat(), bytes);
        }
    }

    /// The words as the head of this file has them.
    #[test]
    fn words_are_those_of_the_format() {
        let check = |event: Event, want: &[u32]| {
            assert_eq!(event.words().collect::<Vec<_>>(), want, "{event:?}");
        };
        check(Event::Unused, &[0]);
        check(Event::Entry { number: 5, frame: None }, &[0x8000_0005]);
        check(Event::Entry { number: 5, frame: Some(7) }, &[0xc000_0005, 7]);
        check(Event::FarPoint { number: 5, frame: 7 }, &[0x2000_0005, 7]);
        check(Event::Point(5), &[5]);
        check(Event::Signal { key: 9, place: SignalPlace::At(8) }, &[0x1fff_ffff, 9, 8]);
        check(Event::Signal { key: 9, place: SignalPlace::InCall(8) }, &[0x1fff_ffff, 9, 0x8000_0008]);
        check(Event::Signal { key: 0, place: SignalPlace::Ours }, &[0x1fff_ffff, 0, u32::MAX]);
        check(Event::Redirected, &[0x1fff_ffff, u32::MAX, 0]);
        check(Event::Ended { is_placed: true }, &[0x1fff_ffff, u32::MAX - 1, 1]);
        check(Event::Gap, &[0x1fff_fffe]);
        check(Event::Start, &[0x1fff_fffd]);
        check(Event::Another, &[0x1fff_fffc]);
        check(Event::Pause, &[0x1fff_fffb]);
    }

    #[test]
    fn the_last_event_may_be_cut() {
        let mut bytes = Vec::new();
        Event::Point(1).append_to(&mut bytes);
        Event::Signal { key: 9, place: SignalPlace::At(8) }.append_to(&mut bytes);
        let lengths: Vec<usize> =
            events(bytes.get(..12).expect("there are sixteen")).map(|(_, _, bytes)| bytes.len()).collect();
        assert_eq!(lengths, [4, 8]);
        let mut reader = Reader::default();
        assert_eq!(reader.push(Head::FarPoint(3).word()), None);
        assert_eq!(reader.begun(), Some(Head::FarPoint(3)));
    }
}
