//! What of a run is kept: from a moment to another, from a function to another, while it is switched on; the last of it.
//!
//! Events are taken in any case, so that the program runs on. Before what is kept behind something that is not, there is a mark ([`GAP`]), and the
//! last of what is left out, which tells what is open ([`START`]).

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;
use trace::events::{Code, ENTRY, FROM_ANYWHERE, GAP, HANDLER, HAS_FRAME, LIMIT, START};

/// From when on, how long, and whether somebody switches.
#[derive(Clone, Copy, Default, Debug)]
pub struct When {
    /// Since the recording began.
    pub after: Duration,
    /// So long, from then on.
    pub lasts: Option<Duration>,
    /// Whether a signal starts it and stops it.
    pub is_switched: bool,
    /// Whether it waits for the first.
    pub is_paused: bool,
}

/// What of a run is kept.
#[derive(Debug)]
pub struct Window {
    when: When,
    from: HashSet<u32>,
    to: HashSet<u32>,
    /// Whether the clock and the switch have it kept.
    is_open: bool,
    /// Whether functions have.
    is_inside: bool,
    streams: HashMap<u32, Stream>,
}

/// What is known of a stream.
#[derive(Debug, Default)]
struct Stream {
    n_taken: u64,
    /// From which words on it is kept, and not, in order.
    turns: VecDeque<(u64, bool)>,
    is_open: bool,
    /// The last of what was left out before the next word, and what came before that: it tells what is open.
    left_out: [Vec<u8>; 2],
}

/// So many bytes of what is left out are kept in mind at least, and at most twice as many.
const CONTEXT: usize = 1 << 16;

impl Window {
    /// That is open from the first entry of a function of `from` on, if there are any, up to one of `to`, and so on.
    pub fn new(when: When, from: HashSet<u32>, to: HashSet<u32>) -> Window {
        let is_inside = from.is_empty();
        let is_open = !when.is_paused && when.after.is_zero();
        Window { when, from, to, is_open, is_inside, streams: HashMap::new() }
    }

    /// Whether all is kept, whatever happens.
    pub fn is_all(&self) -> bool {
        let When { after, lasts, is_switched, .. } = self.when;
        after.is_zero() && lasts.is_none() && !is_switched && self.from.is_empty() && self.to.is_empty()
    }

    /// Whether what the streams hold from now on is kept, by the clock and the switch, which was turned `n_turns` times; how many words
    /// each holds until now says `n_words`.
    pub fn tick(&mut self, since: Duration, n_turns: usize, n_streams: u32, n_words: impl Fn(u32) -> u64) {
        let When { after, lasts, is_paused, .. } = self.when;
        let is_time = since >= after && lasts.is_none_or(|lasts| since.saturating_sub(after) < lasts);
        let is_open = is_time && is_paused == (n_turns % 2 == 1);
        if is_open != self.is_open {
            for k in 0..n_streams {
                let stream = self.streams.entry(k).or_insert_with(|| Stream::new(self.is_open));
                stream.turns.push_back((stream.n_taken + n_words(k), is_open));
            }
            self.is_open = is_open;
        }
    }

    /// What is kept of the next `words` of stream `k`.
    pub fn keep(&mut self, k: u32, words: &[u8]) -> Vec<u8> {
        let stream = self.streams.entry(k).or_insert_with(|| Stream::new(self.is_open));
        let word = |n: usize| {
            words.get(4 * n..4 * n + 4).and_then(|w| w.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w))
        };
        let mut kept = Vec::new();
        let (mut n, n_words) = (0, words.len() / 4);
        while n < n_words {
            let head = word(n);
            let len = match head {
                HANDLER => 3,
                _ if head & (ENTRY | HAS_FRAME) == ENTRY | HAS_FRAME => 2,
                _ if head & (ENTRY | FROM_ANYWHERE) == FROM_ANYWHERE => 2,
                _ => 1,
            };
            while let Some((at, is_open)) =
                stream.turns.front().copied().filter(|turn| turn.0 <= stream.n_taken + n as u64)
            {
                debug_assert!(at <= stream.n_taken + n as u64);
                stream.is_open = is_open;
                stream.turns.pop_front();
            }
            if head & ENTRY != 0 {
                let entry = head & (LIMIT - 1);
                if self.is_inside && self.to.contains(&entry) {
                    self.is_inside = false;
                } else if !self.is_inside && self.from.contains(&entry) {
                    self.is_inside = true;
                }
            }
            let end = (n + len).min(n_words);
            if stream.is_open && self.is_inside {
                let [last, before] = &mut stream.left_out;
                if !last.is_empty() {
                    kept.extend(GAP.to_le_bytes());
                    kept.append(before);
                    kept.append(last);
                    kept.extend(START.to_le_bytes());
                }
                kept.extend(words.get(4 * n..4 * end).unwrap_or_default());
            } else if head != 0 {
                let [last, before] = &mut stream.left_out;
                if last.len() >= CONTEXT {
                    *before = std::mem::take(last);
                }
                last.extend(words.get(4 * n..4 * end).unwrap_or_default());
            }
            n = end;
        }
        stream.n_taken += n_words as u64;
        kept
    }
}

impl Stream {
    fn new(is_open: bool) -> Stream {
        // What the stream had before it was seen is left out.
        Stream { is_open, ..Stream::default() }
    }
}

/// What the entries of functions with one of these names say, among the events of `codes`.
pub fn entries(codes: &[Code], is_called: impl Fn(&str) -> bool) -> HashSet<u32> {
    let of = |code: &Code| {
        let entries = (0u32..).zip(&code.entries);
        let is_one = |func: u32| code.functions.get(func as usize).is_some_and(|f| is_called(&f.name));
        entries.filter(|(_, (func, _))| is_one(*func)).map(|(n, _)| code.base + n).collect::<Vec<_>>()
    };
    codes.iter().flat_map(of).collect()
}

/// The last sections of a recording, which have no more than so many bytes.
#[derive(Debug)]
pub struct Ring {
    most: usize,
    n_bytes: usize,
    sections: VecDeque<(u32, Vec<u8>)>,
    /// Streams of which some are left out.
    cut: HashSet<u32>,
}

impl Ring {
    /// Of at most so many bytes.
    pub fn new(most: usize) -> Ring {
        Ring { most, n_bytes: 0, sections: VecDeque::new(), cut: HashSet::new() }
    }

    /// Adds a section of a stream, and leaves out the oldest.
    pub fn push(&mut self, k: u32, section: Vec<u8>) {
        self.n_bytes += section.len();
        self.sections.push_back((k, section));
        while self.n_bytes > self.most
            && let Some((k, oldest)) = self.sections.pop_front()
        {
            self.n_bytes -= oldest.len();
            self.cut.insert(k);
        }
    }

    /// All of them in order, each with its stream, and whether the stream's first ones were left out before it.
    pub fn take(&mut self) -> impl Iterator<Item = (u32, bool, Vec<u8>)> {
        self.n_bytes = 0;
        let mut cut = std::mem::take(&mut self.cut);
        std::mem::take(&mut self.sections).into_iter().map(move |(k, section)| (k, cut.remove(&k), section))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMED: u32 = ENTRY | HAS_FRAME | 9;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn window(after: u64, lasts: Option<u64>, from: &[u32], to: &[u32]) -> Window {
        let set = |all: &[u32]| all.iter().copied().collect();
        let (after, lasts) = (Duration::from_secs(after), lasts.map(Duration::from_secs));
        Window::new(When { after, lasts, is_switched: true, is_paused: false }, set(from), set(to))
    }

    #[test]
    fn functions_open_and_close_it() {
        let mut window = window(0, None, &[5], &[7]);
        let run = bytes(&[1, ENTRY | 5, 2, FRAMED, ENTRY | 7, 3, ENTRY | 7, 4, ENTRY | 5, 6]);
        // What stands behind an entry with a frame is no entry.
        let want = bytes(&[
            GAP,
            1,
            START,
            ENTRY | 5,
            2,
            FRAMED,
            ENTRY | 7,
            3,
            GAP,
            ENTRY | 7,
            4,
            START,
            ENTRY | 5,
            6,
        ]);
        assert_eq!(window.keep(0, &run), want);
        assert!(!window.is_all() && window.keep(1, &bytes(&[8])) == bytes(&[8]));
    }

    #[test]
    fn the_clock_and_the_switch_cut_where_streams_are() {
        let mut window = window(2, Some(2), &[], &[]);
        window.tick(Duration::from_secs(1), 0, 1, |_| 10);
        assert!(window.keep(0, &bytes(&[1, 2, 3])).is_empty());
        // Two words are there that were not taken yet; the second belongs to the first.
        window.tick(Duration::from_secs(2), 0, 1, |_| 2);
        assert_eq!(
            window.keep(0, &bytes(&[4, HANDLER, 6, 7, 8])),
            bytes(&[GAP, 1, 2, 3, 4, HANDLER, 6, 7, START, 8])
        );
        window.tick(Duration::from_secs(3), 1, 1, |_| 1);
        window.tick(Duration::from_secs(3), 2, 1, |_| 3);
        window.tick(Duration::from_secs(4), 2, 2, |_| 4);
        assert_eq!(window.keep(0, &bytes(&[1, 2, 3, 4, 5])), bytes(&[1, GAP, 2, 3, START, 4]));
        assert!(
            window.keep(1, &bytes(&[1, 2, 3])) == bytes(&[1, 2, 3])
                && window.keep(1, &bytes(&[4, 5])) == bytes(&[4])
        );
        assert!(window.keep(2, &bytes(&[1])).is_empty());
    }

    #[test]
    fn a_ring_has_the_last() {
        let mut ring = Ring::new(10);
        for n in 0..6 {
            ring.push(u32::from(n % 2), vec![n; 3]);
        }
        let left: Vec<_> = ring.take().collect();
        assert_eq!(left, [(1, true, vec![3; 3]), (0, true, vec![4; 3]), (1, false, vec![5; 3])]);
    }
}
