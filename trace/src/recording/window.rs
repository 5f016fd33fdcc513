//! What of a run is kept: from a moment to another, from a function to another, while it is switched on.
//!
//! Events are taken in any case, so that the program runs on. Between two things that are kept there is a
//! mark ([`Event::Pause`]) and what is left out, which tells what is open, up to another mark
//! ([`Event::Start`]); where that is too much, the first event of it, a mark that says so ([`Event::Gap`]),
//! and the last of it.
//!
//! Functions open and close it for all threads, but nothing says what the others did at that moment. So
//! streams are looked at often, before what they hold is taken: what came to another stream since the look
//! before the one that shows an entry had begun may have come behind it, and what came until that is over may
//! have come before it. The first is kept where it is opened, the second where it is closed.
//!
//! Invariant: what ran inside is kept; of a stream, only words are taken that the next look cannot open any
//! more.

use crate::recording::event::{Event, Head, events, word};
use crate::recording::module_code::ModuleCode;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

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
    /// Entries of `from` and `to` that the last look has shown, with their streams, and where they are there.
    shown: Vec<(u32, u64, u32)>,
    streams: HashMap<u32, Stream>,
}

/// What is known of a stream. All places are numbers of words, from its first.
#[derive(Debug)]
struct Stream {
    n_taken: u64,
    /// Up to where it was looked at.
    n_seen: u64,
    /// How long it was when the last look began.
    n_now: u64,
    /// How long it was when the one before began.
    n_then: u64,
    clock: Turns,
    functions: Turns,
    /// The last of what was left out before the next word, and what came before that: it tells what is open.
    left_out: [Vec<u8>; 2],
    /// Whether anything of it was kept.
    has_begun: bool,
    /// Whether it is not kept, and the mark that says so is written.
    has_paused: bool,
    /// Whether nothing of what was left out is missing there.
    is_whole: bool,
}

/// From which words on a stream is kept, and not, in order.
#[derive(Debug)]
struct Turns {
    is_open: bool,
    next: VecDeque<(u64, bool)>,
}

impl Turns {
    fn new(is_open: bool) -> Turns {
        Turns { is_open, next: VecDeque::new() }
    }

    /// It is kept from `at` on, whatever was to be there; or not, from there on or what is known to be kept.
    fn push(&mut self, at: u64, is_open: bool) {
        while is_open && self.next.pop_back_if(|turn| turn.0 >= at).is_some() {}
        let last = self.next.back().copied();
        if last.map_or(self.is_open, |turn| turn.1) != is_open {
            self.next.push_back((at.max(last.map_or(0, |turn| turn.0)), is_open));
        }
    }

    /// Whether word `n` is kept, which comes next.
    fn reach(&mut self, n: u64) -> bool {
        while let Some((_, is_open)) = self.next.pop_front_if(|turn| turn.0 <= n) {
            self.is_open = is_open;
        }
        self.is_open
    }
}

/// So many bytes of what is left out are kept in mind at least, and at most twice as many.
const CONTEXT: usize = 1 << 16;

impl Window {
    /// That is open from the first entry of a function of `from` on, if there are any, up to one of `to`, and
    /// so on.
    pub fn new(when: When, from: HashSet<u32>, to: HashSet<u32>) -> Window {
        let is_inside = from.is_empty();
        let is_open = !when.is_paused && when.after.is_zero();
        Window { when, from, to, is_open, is_inside, shown: Vec::new(), streams: HashMap::new() }
    }

    /// Whether all is kept, whatever happens.
    pub fn is_all(&self) -> bool {
        let When { after, lasts, is_switched, .. } = self.when;
        after.is_zero() && lasts.is_none() && !is_switched && self.from.is_empty() && self.to.is_empty()
    }

    /// Whether streams must be looked at.
    pub fn looks(&self) -> bool {
        !self.from.is_empty() || !self.to.is_empty()
    }

    /// How many words of stream `k` were looked at that were not taken.
    pub fn n_seen(&self, k: u32) -> u64 {
        self.streams.get(&k).map_or(0, |stream| stream.n_seen - stream.n_taken)
    }

    /// Whether the next `n` words of stream `k` may be taken.
    pub fn may_take(&self, k: u32, n: u64) -> bool {
        let reaches = |stream: &Stream| stream.n_seen.min(stream.n_now) >= stream.n_taken + n;
        !self.looks() || self.streams.get(&k).is_some_and(reaches)
    }

    /// A look begins; how many words each stream holds that were not taken says `n_words`.
    pub fn begin(&mut self, n_streams: u32, n_words: impl Fn(u32) -> u64) {
        for k in 0..n_streams {
            self.streams.entry(k).and_modify(|stream| {
                stream.n_then = stream.n_now;
                stream.n_now = stream.n_now.max(stream.n_taken + n_words(k));
            });
        }
    }

    /// Looks at `words`, which stream `k` has behind those that were looked at. All of the first `n_whole`
    /// are there; of the others, zeros at the end may be written still.
    pub fn look(&mut self, k: u32, words: &[u8], n_whole: usize) {
        let (is_open, is_inside) = (self.is_open, self.is_inside);
        let stream = self.streams.entry(k).or_insert_with(|| Stream::new(is_open, is_inside));
        let n_words = words.len() / 4;
        let is_there = |n: &usize| word(words, *n) != 0;
        let end = (n_whole..n_words).rev().find(is_there).map_or(n_whole, |last| last + 1);
        let mut n = 0;
        for (at, head, _) in events(words).take_while(|(at, ..)| *at < end) {
            if let Head::Entry { number, .. } = head
                && (self.from.contains(&number) || self.to.contains(&number))
            {
                self.shown.push((k, stream.n_seen + at as u64, number));
            }
            n = at + head.n_words();
        }
        stream.n_seen += n.min(n_words) as u64;
    }

    /// What the streams hold from now on is kept, or not, by the clock, by the switch, which was turned
    /// `n_turns` times, and by what the look has shown that is just over; how many words each holds that were
    /// not taken says `n_words`.
    pub fn tick(&mut self, since: Duration, n_turns: usize, n_streams: u32, n_words: impl Fn(u32) -> u64) {
        let When { after, lasts, is_paused, .. } = self.when;
        let is_time = since >= after && lasts.is_none_or(|lasts| since.saturating_sub(after) < lasts);
        let is_open = is_time && is_paused == (n_turns % 2 == 1);
        if is_open == self.is_open && !self.looks() {
            return;
        }
        let mut ends = Vec::new();
        for k in 0..n_streams {
            let new = || Stream::new(self.is_open, self.is_inside);
            let stream = self.streams.entry(k).or_insert_with(new);
            ends.push(stream.n_now.max(stream.n_taken + n_words(k)));
        }
        if is_open != self.is_open {
            for (k, end) in (0..).zip(&ends) {
                self.streams.entry(k).and_modify(|stream| stream.clock.push(*end, is_open));
            }
            self.is_open = is_open;
        }
        // Which stream's were first, is not known: what may be open is.
        let mut shown = std::mem::take(&mut self.shown);
        let last: HashMap<u32, u32> = shown.iter().map(|&(k, _, entry)| (k, entry)).collect();
        shown.sort_by_key(|(k, ..)| last.get(k).is_some_and(|entry| self.from.contains(entry)));
        for (of, at, entry) in shown {
            let closes = self.is_inside && self.to.contains(&entry);
            if !closes && (self.is_inside || !self.from.contains(&entry)) {
                continue;
            }
            self.is_inside = !closes;
            for (k, end) in (0..).zip(&ends) {
                self.streams.entry(k).and_modify(|stream| {
                    let then = if closes { *end } else { stream.n_then };
                    stream.functions.push(if k == of { at } else { then }, !closes);
                });
            }
        }
    }

    /// Whether anything of stream `k` was kept.
    pub fn has_begun(&self, k: u32) -> bool {
        self.streams.get(&k).is_some_and(|stream| stream.has_begun)
    }

    /// Whether what stream `k` would have next was kept.
    pub fn is_open(&self, k: u32) -> bool {
        let Some(stream) = self.streams.get(&k) else { return self.is_open && self.is_inside };
        let ends = |turns: &Turns| turns.next.back().map_or(turns.is_open, |turn| turn.1);
        ends(&stream.clock) && ends(&stream.functions)
    }

    /// What is kept of the next `words` of stream `k`.
    pub fn keep(&mut self, k: u32, words: &[u8]) -> Vec<u8> {
        let (is_open, is_inside) = (self.is_open, self.is_inside);
        let stream = self.streams.entry(k).or_insert_with(|| Stream::new(is_open, is_inside));
        let mut kept = Vec::new();
        for (n, head, event) in events(words) {
            let at = stream.n_taken + n as u64;
            let is_kept = stream.clock.reach(at) & stream.functions.reach(at);
            if is_kept {
                let is_whole = std::mem::replace(&mut stream.is_whole, true);
                let has_paused = std::mem::take(&mut stream.has_paused);
                let [last, before] = &mut stream.left_out;
                if has_paused || !last.is_empty() {
                    match (is_whole, has_paused) {
                        (true, true) => {}
                        (true, false) => Event::Pause.append_to(&mut kept),
                        (false, _) => Event::Gap.append_to(&mut kept),
                    }
                    kept.append(before);
                    kept.append(last);
                    Event::Start.append_to(&mut kept);
                }
                stream.has_begun = true;
                kept.extend(event);
            } else if head == Head::Another {
                // What the thread before had open is nothing to this one, which is not kept from its first
                // event on.
                stream.left_out = [Vec::new(), Vec::new()];
                stream.is_whole = true;
                kept.extend(event);
                if stream.has_begun && !std::mem::replace(&mut stream.has_paused, true) {
                    Event::Pause.append_to(&mut kept);
                }
            } else if head != Head::Unused {
                // The way there is the last that is kept.
                if stream.has_begun && !stream.has_paused {
                    Event::Pause.append_to(&mut kept);
                    kept.extend(event);
                    stream.has_paused = true;
                } else {
                    let [last, before] = &mut stream.left_out;
                    if last.len() >= CONTEXT {
                        stream.is_whole &= before.is_empty();
                        *before = std::mem::take(last);
                    }
                    last.extend(event);
                }
            }
        }
        stream.n_taken += words.len() as u64 / 4;
        stream.n_seen = stream.n_seen.max(stream.n_taken);
        kept
    }
}

impl Stream {
    fn new(is_open: bool, is_inside: bool) -> Stream {
        // What the stream had before it was seen is left out, or kept, as what comes now.
        Stream {
            n_taken: 0,
            n_seen: 0,
            n_now: 0,
            n_then: 0,
            clock: Turns::new(is_open),
            functions: Turns::new(is_inside),
            left_out: [Vec::new(), Vec::new()],
            has_begun: false,
            has_paused: false,
            is_whole: true,
        }
    }
}

/// What the entries of functions with one of these names say, among the events of `codes`.
pub fn entries(codes: &[ModuleCode], is_called: impl Fn(&str) -> bool) -> HashSet<u32> {
    let of = |code: &ModuleCode| {
        let entries = (0u32..).zip(&code.entries);
        let is_one = |func: u32| code.functions.get(func as usize).is_some_and(|f| is_called(&f.name));
        entries.filter(|(_, (func, _))| is_one(*func)).map(|(n, _)| code.base + n).collect::<Vec<_>>()
    };
    codes.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::event::{ANOTHER, ENTRY, GAP, HANDLER, HAS_FRAME, PAUSE, START};

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
        let run = bytes(&[1, ENTRY | 5, 2, FRAMED, ENTRY | 7, 3, ENTRY | 7, 4, ENTRY | 5, 6, 0]);
        assert!(window.looks() && !window.may_take(0, 11) && window.keep(0, &[]).is_empty());
        window.begin(1, |_| 11);
        window.look(0, &run, 0);
        // What is zero may be written still.
        assert!(window.may_take(0, 10) && !window.may_take(0, 11));
        window.tick(Duration::ZERO, 0, 1, |_| 11);
        // What stands behind an entry with a frame is no entry.
        let want = bytes(&[
            PAUSE,
            1,
            START,
            ENTRY | 5,
            2,
            FRAMED,
            ENTRY | 7,
            3,
            PAUSE,
            ENTRY | 7,
            4,
            START,
            ENTRY | 5,
            6,
            0,
        ]);
        assert_eq!(window.keep(0, &run), want);
        assert!(!window.is_all() && window.keep(1, &bytes(&[8])) == bytes(&[8]));
    }

    /// How long two streams are; a look at each in order; how long they are then.
    fn looked(window: &mut Window, before: [u64; 2], words: [&[u32]; 2], behind: [u64; 2]) {
        (0..2).for_each(|k| drop(window.keep(k, &[])));
        window.begin(2, |k| before[k as usize]);
        for (k, words) in (0..).zip(words) {
            window.look(k, &bytes(words), words.len());
        }
        window.tick(Duration::ZERO, 0, 2, |k| behind[k as usize]);
    }

    #[test]
    fn all_that_may_have_run_inside_is_kept_of_other_threads() {
        let mut window = window(0, None, &[5], &[7]);
        // 12 and 13 came while the first look went on: behind the entry of 5, perhaps.
        looked(&mut window, [1, 1], [&[1], &[11, 12]], [1, 3]);
        assert!(window.may_take(1, 1) && !window.may_take(1, 2));
        looked(&mut window, [3, 3], [&[ENTRY | 5, 2], &[13]], [3, 4]);
        looked(&mut window, [5, 4], [&[3, ENTRY | 7, 4], &[14, 15]], [6, 6]);
        looked(&mut window, [7, 6], [&[5], &[16, 17]], [7, 7]);
        let main = bytes(&[1, ENTRY | 5, 2, 3, ENTRY | 7, 4, 5]);
        assert_eq!(window.keep(0, &main), bytes(&[PAUSE, 1, START, ENTRY | 5, 2, 3, PAUSE, ENTRY | 7]));
        let other = bytes(&[11, 12, 13, 14, 15, 16, 17]);
        // 16 was there when the look was over.
        assert_eq!(window.keep(1, &other), bytes(&[PAUSE, 11, START, 12, 13, 14, 15, 16, PAUSE, 17]));
    }

    #[test]
    fn what_opens_and_closes_at_once_in_several_threads_leaves_it_open() {
        let mut window = window(0, None, &[5], &[7]);
        looked(&mut window, [1, 1], [&[ENTRY | 5], &[11]], [1, 1]);
        // Whichever was first.
        looked(&mut window, [2, 2], [&[ENTRY | 5], &[ENTRY | 7]], [2, 2]);
        looked(&mut window, [3, 3], [&[3], &[12]], [3, 3]);
        assert_eq!(window.keep(0, &bytes(&[ENTRY | 5, ENTRY | 5, 3])), bytes(&[ENTRY | 5, ENTRY | 5, 3]));
        assert_eq!(window.keep(1, &bytes(&[11, ENTRY | 7, 12])), bytes(&[11, ENTRY | 7, 12]));
        // Shut and open between two looks: no other thread can be told to have been outside.
        looked(&mut window, [2, 1], [&[ENTRY | 7, ENTRY | 5], &[13]], [2, 1]);
        assert_eq!(window.keep(1, &bytes(&[13])), bytes(&[13]));
    }

    /// The last of what is too much to keep in mind tells what is open, and that something is missing.
    #[test]
    fn what_is_missing_is_said() {
        let mut window = window(0, None, &[], &[]);
        assert_eq!(window.keep(0, &bytes(&[1])), bytes(&[1]));
        window.tick(Duration::ZERO, 1, 1, |_| 0);
        let long: Vec<u32> = (2..).take(4 * CONTEXT / 4).collect();
        assert_eq!(window.keep(0, &bytes(&long)), bytes(&[PAUSE, 2]));
        window.tick(Duration::ZERO, 2, 1, |_| 0);
        let kept = window.keep(0, &bytes(&[7]));
        let n = kept.len() / 4;
        assert!((CONTEXT / 4..=2 * CONTEXT / 4 + 3).contains(&n), "{n}");
        assert_eq!((word(&kept, 0), word(&kept, n - 2), word(&kept, n - 1)), (GAP, START, 7));
        assert_eq!(word(&kept, n - 3), *long.last().expect("it is long"));
    }

    /// What comes while nothing is kept begins a thread in any case, of whose open functions the last one's
    /// say nothing.
    #[test]
    fn threads_that_are_left_out_begin() {
        let mut window = window(0, None, &[], &[]);
        assert_eq!(window.keep(0, &bytes(&[1])), bytes(&[1]));
        window.tick(Duration::ZERO, 1, 1, |_| 0);
        assert_eq!(window.keep(0, &bytes(&[ANOTHER, 2])), bytes(&[ANOTHER, PAUSE]));
        let long: Vec<u32> = (2..).take(4 * CONTEXT / 4).collect();
        assert!(window.keep(0, &bytes(&long)).is_empty());
        assert_eq!(window.keep(0, &bytes(&[ANOTHER, 3, 4])), bytes(&[ANOTHER]));
        window.tick(Duration::ZERO, 2, 1, |_| 0);
        assert_eq!(window.keep(0, &bytes(&[5])), bytes(&[3, 4, START, 5]));
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
            bytes(&[PAUSE, 1, 2, 3, 4, HANDLER, 6, 7, START, 8])
        );
        window.tick(Duration::from_secs(3), 1, 1, |_| 1);
        window.tick(Duration::from_secs(3), 2, 1, |_| 3);
        window.tick(Duration::from_secs(4), 2, 2, |_| 4);
        assert_eq!(window.keep(0, &bytes(&[1, 2, 3, 4, 5])), bytes(&[1, PAUSE, 2, 3, START, 4, PAUSE, 5]));
        assert!(
            window.keep(1, &bytes(&[1, 2, 3])) == bytes(&[1, 2, 3])
                && window.keep(1, &bytes(&[4, 5])) == bytes(&[4, PAUSE, 5])
                && !window.is_open(0)
        );
        assert!(window.keep(2, &bytes(&[1])).is_empty());
    }
}
