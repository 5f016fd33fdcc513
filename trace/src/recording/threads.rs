//! Which thread of the trace events are of: the memory of a thread that has ended is another's later, which
//! says so when it comes.
//!
//! Invariant: each thread of the program has a number of its own in the trace; those of areas come in the
//! order in which these were seen.

use crate::ids::ThreadId;
use crate::recording::event::{Event, Head, events};
use std::collections::HashMap;

/// The threads that events came of so far.
#[derive(Default, Debug)]
pub struct Threads {
    /// By area: the number of the thread that has it, and whether what comes next is not kept, but tells what
    /// is open.
    now: HashMap<u32, (ThreadId, bool)>,
    /// Numbers of threads whose areas are others' by now.
    ended: Vec<ThreadId>,
    n: u32,
}

impl Threads {
    /// The number of the thread that has `area`.
    pub fn number(&mut self, area: u32) -> ThreadId {
        let n = &mut self.n;
        let new = || {
            let number = ThreadId(*n);
            *n += 1;
            (number, false)
        };
        self.now.entry(area).or_insert_with(new).0
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.n as usize
    }

    /// The threads whose areas are others' by now.
    pub fn ended(&self) -> &[ThreadId] {
        &self.ended
    }

    /// Cuts `words`, the next of `area`, where they are another thread's; `each` is told the number, and what
    /// it has.
    ///
    /// # Errors
    /// The first of `each`.
    pub fn cut<E>(
        &mut self,
        area: u32,
        words: &[u8],
        mut each: impl FnMut(ThreadId, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let number = self.number(area);
        let is_between = self.now.get(&area).is_some_and(|now| now.1);
        // Without a START to look for, the fourth is one of the others again.
        let marks = [Head::Another, Head::Gap, Head::Pause, if is_between { Head::Start } else { Head::Gap }];
        if !has_any(words, marks.map(Head::word)) {
            return each(number, words);
        }
        let mut from = 0;
        // What the next thread's words begin with.
        let mut mark: Vec<u8> = Vec::new();
        for (at, head, _) in events(words) {
            let now = self.now.entry(area).or_default();
            now.1 = matches!(head, Head::Gap | Head::Pause) || now.1 && head != Head::Start;
            if head == Head::Another {
                let own = words.get(4 * from..4 * at).unwrap_or_default();
                each(now.0, &[&mark, own].concat())?;
                self.ended.push(now.0);
                mark.clear();
                if now.1 {
                    Event::Pause.append_to(&mut mark);
                }
                now.0 = ThreadId(self.n);
                self.n += 1;
                from = at + 1;
            }
        }
        let number = self.number(area);
        each(number, &[&mark, words.get(4 * from..).unwrap_or_default()].concat())
    }
}

/// Whether one of `words` is one of `marks`. All that a program appends goes through here: without a way out
/// in the middle, many words are compared at once.
fn has_any(words: &[u8], marks: [u32; 4]) -> bool {
    let is_one =
        |w: &[u8; 4]| marks.iter().fold(false, |found, mark| found | (u32::from_le_bytes(*w) == *mark));
    let (words, _) = words.as_chunks::<4>();
    words.chunks(256).any(|words| words.iter().fold(false, |found, w| found | is_one(w)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::event::{ANOTHER, GAP, HANDLER, PAUSE, START, word};

    fn cut(threads: &mut Threads, area: u32, words: &[u32]) -> Vec<(u32, Vec<u32>)> {
        let mut all = Vec::new();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let each = |thread: ThreadId, bytes: &[u8]| {
            all.push((thread.0, (0..bytes.len() / 4).map(|n| word(bytes, n)).collect()));
            Ok::<(), ()>(())
        };
        threads.cut(area, &bytes, each).expect("it is told");
        all
    }

    #[test]
    fn each_thread_has_a_number() {
        let mut threads = Threads::default();
        assert_eq!(cut(&mut threads, 0, &[1, 2]), [(0, vec![1, 2])]);
        assert_eq!(cut(&mut threads, 5, &[3]), [(1, vec![3])]);
        let parts = cut(&mut threads, 5, &[4, ANOTHER, 5, ANOTHER, 6]);
        assert_eq!(parts, [(1, vec![4]), (2, vec![5]), (3, vec![6])]);
        assert_eq!(cut(&mut threads, 0, &[7]), [(0, vec![7])]);
        assert_eq!(cut(&mut threads, 6, &[8]), [(4, vec![8])]);
        assert_eq!(cut(&mut threads, 5, &[9]), [(3, vec![9])]);
        assert_eq!(threads.ended(), [ThreadId(1), ThreadId(2)]);
    }

    /// Words of an event's that look like it are not it.
    #[test]
    fn only_events_begin_a_thread() {
        let mut threads = Threads::default();
        let words = [HANDLER, ANOTHER, ANOTHER, 2];
        assert_eq!(cut(&mut threads, 0, &words), [(0, words.to_vec())]);
    }

    /// What tells what is open of a thread that comes while nothing is kept, is of that one.
    #[test]
    fn what_is_open_is_told_of_each() {
        let mut threads = Threads::default();
        let parts = cut(&mut threads, 0, &[1, GAP, 2, ANOTHER, 3, START, 4]);
        assert_eq!(parts, [(0, vec![1, GAP, 2]), (1, vec![PAUSE, 3, START, 4])]);
        assert_eq!(cut(&mut threads, 0, &[GAP, 5]), [(1, vec![GAP, 5])]);
        let parts = cut(&mut threads, 0, &[6, ANOTHER, 7]);
        assert_eq!(parts, [(1, vec![6]), (2, vec![PAUSE, 7])]);
        assert_eq!(cut(&mut threads, 0, &[8, START, ANOTHER, 9]), [(2, vec![8, START]), (3, vec![9])]);
    }
}
