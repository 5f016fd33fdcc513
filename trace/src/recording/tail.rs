//! The last of a recording: what led to a crash.
//!
//! Invariant: what each stream had last is kept until it ends, however little the others leave of the room.

use crate::ids::ThreadId;
use crate::recording::event::{Event, Head, events};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

/// A section, with its stream and whether what it begins with is kept, and does not only tell what is open.
type TailSection = (ThreadId, bool, Vec<u8>);
/// When it was appended, and how many were pushed before it.
type TailOrder = (u64, u64);

/// The last sections of a recording, which have no more than so many bytes; but for those that are the last
/// of their streams.
#[derive(Debug)]
pub struct Tail {
    most: usize,
    n_bytes: usize,
    n_pushed: u64,
    older: BTreeMap<TailOrder, TailSection>,
    /// The last of each stream.
    newest: HashMap<ThreadId, (TailOrder, TailSection)>,
    /// Streams of which some are left out.
    cut: HashSet<ThreadId>,
    /// Streams whose next words only tell what is open.
    paused: HashSet<ThreadId>,
    /// What comes behind the last of a stream, and is kept as long.
    behind: BTreeMap<ThreadId, Vec<u8>>,
}

/// How many bytes of events make a section at most: what each stream has last is small then.
const PIECE: usize = 1 << 15;

impl Tail {
    /// Of at most so many bytes.
    pub fn new(most: usize) -> Tail {
        Tail {
            most,
            n_bytes: 0,
            n_pushed: 0,
            older: BTreeMap::new(),
            newest: HashMap::new(),
            cut: HashSet::new(),
            paused: HashSet::new(),
            behind: BTreeMap::new(),
        }
    }

    /// The pieces of the events `words` that are sections of their own: whole events, and each about as long.
    pub fn pieces(words: &[u8]) -> Vec<&[u8]> {
        // An event has up to 12 bytes.
        let n = words.len().div_ceil(PIECE - 12).max(1);
        let (mut pieces, mut from) = (Vec::new(), 0);
        for (start, head, _) in events(words) {
            let at = start + head.n_words();
            if 4 * (at - from) >= words.len().div_ceil(n) || 4 * at >= words.len() {
                pieces.push(words.get(4 * from..words.len().min(4 * at)).unwrap_or_default());
                from = at;
            }
        }
        if pieces.is_empty() { vec![words] } else { pieces }
    }

    /// Adds the next `words` of stream `k`, appended until `at_ns`, as sections that `pack` makes, and leaves
    /// out what was appended first.
    ///
    /// # Errors
    /// The first of `pack`.
    pub fn push(
        &mut self,
        k: ThreadId,
        at_ns: u64,
        words: &[u8],
        mut pack: impl FnMut(&[u8]) -> io::Result<Vec<u8>>,
    ) -> io::Result<()> {
        for piece in Tail::pieces(words) {
            let is_kept = !self.paused.contains(&k);
            self.follow(k, piece);
            self.push_section((k, is_kept, pack(piece)?), at_ns);
        }
        Ok(())
    }

    /// Whether what comes behind `words` is kept.
    fn follow(&mut self, k: ThreadId, words: &[u8]) {
        for (_, head, _) in events(words) {
            match head {
                Head::Gap | Head::Pause => _ = self.paused.insert(k),
                Head::Start => _ = self.paused.remove(&k),
                _ => {}
            }
        }
    }

    fn push_section(&mut self, piece: TailSection, at_ns: u64) {
        self.n_bytes += piece.2.len();
        self.n_pushed += 1;
        // Those of a stream stay in order.
        let k = piece.0;
        let at_ns = self.newest.get(&k).map_or(at_ns, |newest| at_ns.max(newest.0.0));
        if let Some((at, before)) = self.newest.insert(k, ((at_ns, self.n_pushed), piece)) {
            self.older.insert(at, before);
        }
        self.leave_out();
    }

    /// Adds a small section behind all that stream `k` had, without making room for it.
    pub fn append(&mut self, k: ThreadId, section: Vec<u8>) {
        self.behind.insert(k, section);
    }

    /// Stream `k` has ended: what it had last is left out like anything else.
    pub fn end(&mut self, k: ThreadId) {
        if let Some((at, last)) = self.newest.remove(&k) {
            self.older.insert(at, last);
        }
        self.paused.remove(&k);
        self.leave_out();
    }

    fn leave_out(&mut self) {
        while self.n_bytes > self.most
            && let Some((_, (k, _, oldest))) = self.older.pop_first()
        {
            self.n_bytes -= oldest.len();
            self.cut.insert(k);
        }
    }

    /// How many bytes it has, if these are more than there should be: what each stream had last needs more.
    pub fn excess(&self) -> Option<usize> {
        (self.n_bytes > self.most).then_some(self.n_bytes)
    }

    /// All of them in order, each with its stream. The first of a stream whose first ones were left out comes
    /// with a mark that says so, which goes before it.
    pub fn take(&mut self) -> impl Iterator<Item = (ThreadId, Option<&'static [Event]>, Vec<u8>)> {
        self.n_bytes = 0;
        let mut cut = std::mem::take(&mut self.cut);
        let mut all = std::mem::take(&mut self.older);
        all.extend(std::mem::take(&mut self.newest).into_values());
        let before = all.into_values().map(move |(k, is_kept, section)| {
            let mark: &'static [Event] = if is_kept { &[Event::Gap, Event::Start] } else { &[Event::Gap] };
            (k, cut.remove(&k).then_some(mark), section)
        });
        before.chain(std::mem::take(&mut self.behind).into_iter().map(|(k, section)| (k, None, section)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::event::{ENTRY, GAP, HAS_FRAME, PAUSE, START};

    /// Adds a section of a stream.
    fn push(tail: &mut Tail, k: u32, at_ns: u64, section: Vec<u8>) {
        tail.push_section((ThreadId(k), true, section), at_ns);
    }

    /// What is left, each with its stream and whether something before it is not.
    fn taken(tail: &mut Tail) -> Vec<(u32, bool, Vec<u8>)> {
        tail.take().map(|(k, mark, section)| (k.0, mark.is_some(), section)).collect()
    }

    #[test]
    fn what_has_ended_makes_room() {
        let mut tail = Tail::new(10);
        for n in 0..9u8 {
            push(&mut tail, n.into(), n.into(), vec![n; 3]);
            tail.end(ThreadId(n.into()));
        }
        assert_eq!(tail.excess(), None);
        let left: Vec<u32> = tail.take().map(|section| section.0.0).collect();
        assert_eq!(left, [6, 7, 8]);
    }

    #[test]
    fn a_tail_has_the_last() {
        let mut tail = Tail::new(10);
        for n in 0..6 {
            push(&mut tail, u32::from(n % 2), n.into(), vec![n; 3]);
        }
        assert_eq!(tail.excess(), None);
        let left = taken(&mut tail);
        assert_eq!(left, [(1, true, vec![3; 3]), (0, true, vec![4; 3]), (1, false, vec![5; 3])]);
    }

    #[test]
    fn what_idle_streams_had_last_is_old_and_stays() {
        let mut tail = Tail::new(10);
        for n in 0..4 {
            push(&mut tail, 0, 90 + u64::from(n), vec![n; 3]);
        }
        // Of a thread, they stay in order.
        push(&mut tail, 0, 1, vec![7; 1]);
        // Pushed last, but from long ago: two of one thread, one of another.
        for (k, n) in [(1, 4), (1, 5), (2, 6)] {
            push(&mut tail, k, 10, vec![n; 3]);
        }
        let left = taken(&mut tail);
        assert_eq!(
            left,
            [(1, true, vec![5; 3]), (2, false, vec![6; 3]), (0, true, vec![3; 3]), (0, false, vec![7; 1])]
        );
    }

    #[test]
    fn what_comes_behind_the_last_takes_the_place_of_nothing() {
        let mut tail = Tail::new(6);
        push(&mut tail, 1, 1, vec![1; 3]);
        push(&mut tail, 0, 9, vec![2; 3]);
        tail.append(ThreadId(1), vec![3; 5]);
        assert_eq!(
            taken(&mut tail),
            [(1, false, vec![1; 3]), (0, false, vec![2; 3]), (1, false, vec![3; 5])]
        );
    }

    #[test]
    fn the_last_section_is_kept_even_if_it_is_too_large() {
        let mut tail = Tail::new(10);
        push(&mut tail, 0, 1, vec![1; 3]);
        push(&mut tail, 0, 2, vec![2; 30]);
        assert_eq!(tail.excess(), Some(30));
        assert_eq!(taken(&mut tail), [(0, true, vec![2; 30])]);
    }

    /// A piece that begins between two marks only tells what is open.
    #[test]
    fn what_is_not_kept_stays_so() {
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let mark_of_second = |first: &[u32]| {
            let mut tail = Tail::new(8);
            for words in [first, &[5, 6]] {
                let pushed = tail.push(ThreadId(3), 0, &bytes(words), |words| Ok(words.to_vec()));
                pushed.expect("it is kept");
            }
            let left: Vec<_> = tail.take().collect();
            assert_eq!((left.len(), &left[0].2), (1, &bytes(&[5, 6])));
            left[0].1
        };
        assert_eq!(mark_of_second(&[1, 2]), Some([Event::Gap, Event::Start].as_slice()));
        assert_eq!(mark_of_second(&[1, PAUSE]), Some([Event::Gap].as_slice()));
        assert_eq!(mark_of_second(&[GAP, 1]), Some([Event::Gap].as_slice()));
        assert_eq!(mark_of_second(&[PAUSE, START]), Some([Event::Gap, Event::Start].as_slice()));
        // Words of an event's that look like it are not it.
        assert_eq!(mark_of_second(&[ENTRY | HAS_FRAME, PAUSE]), Some([Event::Gap, Event::Start].as_slice()));
    }

    #[test]
    fn pieces_are_whole_events_and_make_all() {
        let framed = [ENTRY | HAS_FRAME | 1, ENTRY | 3].map(u32::to_le_bytes).concat();
        let words = [vec![1, 0, 0, 0], framed.repeat(3 * PIECE / 8)].concat();
        let pieces = Tail::pieces(&words);
        assert_eq!(pieces.concat(), words);
        assert_eq!(pieces.len(), 4);
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
        assert!(pieces[1..].iter().all(|piece| piece.starts_with(&framed) && piece.len() > PIECE / 2));
        assert_eq!(Tail::pieces(&[]), [&[0u8; 0][..]]);
    }
}
