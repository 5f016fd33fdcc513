//! Scheme 1: the vector-state automaton over symbols as they were executed. Scheme 3 lets it skip chunks.
//!
//! The state is a vector: one [`State`] for each open activation of the function, and how many others are
//! open above it. An entry appends to it, an exit takes away, a block moves the last. So calls do not
//! interrupt a path, and each activation of a recursive function has its own.
//!
//! Most symbols need not be looked at one by one: where no activation is open, all up to the next entry of
//! the function; above an activation, all that cannot leave as many functions as are open above it. What is
//! left is sorted without branches: the own blocks of activations, one behind the other, a mark between
//! activations. To do so 64 symbols, or 16, are made bits of entries and exits (`kinds`) and sums of these;
//! own blocks are where the sum is that of the activation, while it is open, which a carry says that runs
//! from entries of the function to the exits that end them. In these a plain path is looked for by comparing
//! 16 places at once with each of its blocks; other paths are followed by their automaton.
//!
//! Source: Zhang and Gupta, Path Matching in Compressed Control Flow Traces, sections 4.1 and 4.3 (the levels
//! that section 4.3 leaves open are those of [`Levels`]); to pass over what does not matter is ours.

use crate::balance::Levels;
use crate::ids::BlockId;
use crate::search::automaton::{Automaton, State};
use crate::search::path::MOST_STEPS;
use crate::symbol::{Step, Symbol};
use kinds::{BLOCK, GROUP, Kinds, at_level, kinds};

mod kinds;

/// The state of an activation of another function: the paper's −1.
const OTHER: State = State::MAX;

/// Symbols after which own blocks are searched: they stay in the cache.
const PIECE: usize = 1 << 12;
/// Room for own blocks. They are searched when half of it is taken: more than a piece and a path do not come
/// at once.
const ROOM: usize = 1 << 14;
const _: () = assert!(PIECE + MOST_STEPS + BLOCK < ROOM / 2);

/// A search through one stream.
pub struct Scan<'a> {
    automaton: &'a Automaton,
    /// The blocks of a plain path.
    plain: Option<&'a [BlockId]>,
    /// Activations of the function that are open, but the innermost: their states, and how many functions are
    /// open from each on to the next.
    below: Vec<(State, usize)>,
    /// How many functions are open from the innermost activation on, itself included; 0 if there is none.
    depth: usize,
    /// The state of the innermost, if the path is not plain.
    state: State,
    own: Box<Own>,
    index: u64,
}

/// Own blocks of activations, each activation behind a code that is no block.
struct Own {
    codes: [u32; ROOM],
    /// Where they stand in the piece.
    places: [u16; ROOM],
    n: usize,
    /// How many of these have their codes already.
    n_fetched: usize,
    /// The first that are of earlier pieces.
    n_before: usize,
}

/// So many of a block are added one by one.
const MOST_SPARSE: usize = 12;

/// Which of four are set, one behind the other, 16 bits each.
static SET: [u64; 16] = set();

const fn set() -> [u64; 16] {
    let mut all = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        let (mut n, mut k) = (0, 0);
        while k < 4 {
            if bits >> k & 1 == 1 {
                all[bits] |= k << (16 * n);
                n += 1;
            }
            k += 1;
        }
        bits += 1;
    }
    all
}

impl Own {
    fn push(&mut self, code: u32, place: u16) {
        (self.codes[self.n], self.places[self.n]) = (code, place);
        self.n += 1;
        self.n_fetched = self.n;
    }

    /// Adds the places of a block from `start` on whose bits are set.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is meant for four places, and small for a bit's number"
    )]
    fn add(&mut self, bits: u64, start: u16) {
        let n_set = bits.count_ones() as usize;
        let to = self.places[self.n..].first_chunk_mut::<{ BLOCK + 4 }>().expect("there is room for a piece");
        self.n += n_set;
        if n_set <= MOST_SPARSE {
            let mut bits = bits;
            for to in &mut to[..n_set] {
                *to = start + bits.trailing_zeros() as u16;
                bits &= bits - 1;
            }
            return;
        }
        let mut n = 0;
        for four in (0..BLOCK).step_by(4) {
            let set = (bits >> four & 0xf) as usize;
            let places = SET[set] + (u64::from(start) + four as u64) * 0x0001_0001_0001_0001;
            // Four at once; those behind the last that is set are written over.
            for (k, to) in (0..).zip(&mut to[n..n + 4]) {
                *to = (places >> (16 * k)) as u16;
            }
            n += set.count_ones() as usize;
        }
    }

    /// Fetches the codes of what was added.
    #[inline(always)]
    fn fetch(&mut self, piece: &[u32]) {
        let new = self.n_fetched..self.n;
        for (code, &place) in self.codes[new.clone()].iter_mut().zip(&self.places[new]) {
            *code = piece[usize::from(place)];
        }
        self.n_fetched = self.n;
    }

    /// The blocks of the innermost activation, at most the last `most`.
    fn last(&self, most: usize) -> &[u32] {
        let all = &self.codes[self.n.saturating_sub(most)..self.n];
        let start = all.iter().rposition(|&code| !Symbol(code).is_block()).map_or(0, |mark| mark + 1);
        &all[start..]
    }

    /// Tells `found` where occurrences of `path` end, and forgets all but what others may begin in.
    #[inline(always)]
    fn search(&mut self, path: &[BlockId], mut found: impl FnMut(u16) -> bool) -> bool {
        let before = path.len() - 1;
        let mut end = self.n_before.max(before);
        while end < self.n {
            let mut fits = [u32::MAX; GROUP];
            let starts = self.codes[end - before..].windows(GROUP);
            for (codes, &block) in starts.zip(path) {
                for (fits, &code) in fits.iter_mut().zip(codes) {
                    *fits &= if code == block.0 { u32::MAX } else { 0 };
                }
                if fits.iter().fold(0, |any, fits| any | fits) == 0 {
                    break;
                }
            }
            let bits = (0..).zip(&fits).fold(0, |bits, (i, fits)| bits | fits & 1 << i);
            // Behind the last there may be anything.
            let mut bits = bits & u32::MAX >> (32 - (self.n - end).min(GROUP));
            while bits != 0 {
                if !found(self.places[end + bits.trailing_zeros() as usize]) {
                    return false;
                }
                bits &= bits - 1;
            }
            end += GROUP;
        }
        let kept = before.min(self.n);
        self.codes.copy_within(self.n - kept..self.n, 0);
        (self.n, self.n_fetched, self.n_before) = (kept, kept, kept);
        true
    }
}

impl<'a> Scan<'a> {
    /// Starts at the beginning of a stream.
    pub fn new(automaton: &'a Automaton) -> Self {
        let own = Own { codes: [0; ROOM], places: [0; ROOM], n: 0, n_fetched: 0, n_before: 0 };
        Self {
            automaton,
            plain: automaton.plain(),
            below: Vec::new(),
            depth: 0,
            state: 0,
            own: Box::new(own),
            index: 0,
        }
    }

    /// Takes the next symbols; `found` is told the index of the last block of each occurrence, and says
    /// whether to go on. Returns whether it did.
    pub fn feed(&mut self, symbols: &[u32], mut found: impl FnMut(u64) -> bool) -> bool {
        for piece in symbols.chunks(PIECE) {
            if !self.take(piece, &mut found) {
                return false;
            }
            self.index += piece.len() as u64;
        }
        true
    }

    fn take(&mut self, piece: &[u32], found: &mut impl FnMut(u64) -> bool) -> bool {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            #[expect(unsafe_code, reason = "to call what needs features of the processor")]
            // SAFETY: it has them.
            return unsafe { self.take_wide(piece, found) };
        }
        self.take_any(piece, found)
    }

    /// The same, with vectors twice as wide.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn take_wide(&mut self, piece: &[u32], found: &mut impl FnMut(u64) -> bool) -> bool {
        self.take_any(piece, found)
    }

    #[inline(always)]
    fn take_any(&mut self, piece: &[u32], found: &mut impl FnMut(u64) -> bool) -> bool {
        let func = self.automaton.func;
        let (blocks, rest) = piece.as_chunks::<BLOCK>();
        for (block, start) in blocks.iter().zip((0..).step_by(BLOCK)) {
            if self.depth == 0 && !block.iter().fold(false, |any, &c| any | Symbol(c).is_entry_of(func)) {
                continue;
            }
            let all = kinds(block, func);
            if self.passes(all) || self.sort(block, all, start) {
                continue;
            }
            for (n, (group, start)) in
                block.as_chunks::<GROUP>().0.iter().zip((start..).step_by(GROUP)).enumerate()
            {
                let kinds = all.group(n);
                if !self.passes(kinds)
                    && !self.sort(group, kinds, start)
                    && !self.follow(piece, (start..).zip(group), found)
                {
                    return false;
                }
            }
        }
        let start = u16::try_from(piece.len() - rest.len()).expect("a piece is short");
        self.follow(piece, (start..).zip(rest), found) && self.search_own(piece, found)
    }

    /// Searches the own blocks so far, and forgets them.
    #[inline(always)]
    fn search_own(&mut self, piece: &[u32], found: &mut impl FnMut(u64) -> bool) -> bool {
        let index = self.index;
        self.own.fetch(piece);
        match self.plain {
            Some(path) => self.own.search(path, |place| found(index + u64::from(place))),
            None => true,
        }
    }

    /// Passes over symbols, if none of them can be an own block of an activation.
    #[inline(always)]
    fn passes(&mut self, kinds: Kinds) -> bool {
        if kinds.own != 0 || self.depth != 0 && self.depth <= kinds.exits.count_ones() as usize + 1 {
            return false;
        }
        if self.depth != 0 {
            self.depth = self.depth.wrapping_add_signed(kinds.more() as isize);
        }
        true
    }

    /// Sorts whole groups, if a plain path is searched, and no activation is entered in one, or left for one,
    /// and all have as many functions below them.
    #[inline(always)]
    fn sort(&mut self, symbols: &[u32], kinds: Kinds, start: u16) -> bool {
        let Kinds { entries, own, exits } = kinds;
        if self.plain.is_none() || self.depth > exits.count_ones() as usize + 1 {
            return false;
        }
        // How many functions are open in the activation, if none is at the start.
        let level = match self.depth {
            0 => {
                let first = own & own.wrapping_neg();
                let before = first | first.wrapping_sub(1);
                Kinds { entries: entries & before, own, exits: exits & before }.more()
            }
            depth => 1 - i32::try_from(depth).expect("no more than symbols are left"),
        };
        let level = i8::try_from(level).expect("a block is short");
        // Behind which so many are open, and one less.
        let (mut at, mut below, mut more) = (0, 0, 0_i8);
        for (n, group) in symbols.as_chunks::<GROUP>().0.iter().enumerate() {
            let (at_of, below_of) = at_level(group, more, level);
            at |= u64::from(at_of) << (n * GROUP);
            below |= u64::from(below_of) << (n * GROUP);
            more += i8::try_from(kinds.group(n).more()).expect("a group is short");
        }
        if own & !at != 0 {
            return false;
        }
        // It is open behind an entry of its own, and where it was open before, but not behind an exit to one
        // less.
        let closes = below & exits;
        let (stays, opens) = (u128::from(!closes), u128::from(own));
        let carries = stays ^ opens ^ (stays + opens + u128::from(self.depth > 0));
        let is_open = u64::try_from(carries & u128::from(u64::MAX)).expect("64 bits");
        if closes & is_open != 0 && !self.below.is_empty() {
            return false;
        }
        self.own.add(own | at & is_open & !entries & !exits, start);
        let is_open_then = carries >> symbols.len() & 1 == 1;
        self.depth = if is_open_then { usize::try_from(1 + more - level).expect("it is open") } else { 0 };
        true
    }

    /// Takes symbols one by one.
    fn follow<'s>(
        &mut self,
        piece: &[u32],
        symbols: impl Iterator<Item = (u16, &'s u32)>,
        found: &mut impl FnMut(u64) -> bool,
    ) -> bool {
        let automaton = self.automaton;
        self.own.fetch(piece);
        for (place, &code) in symbols {
            match Symbol(code).step() {
                Step::Block(_) if self.depth != 1 => {}
                Step::Block(_) if self.plain.is_some() => self.own.push(code, place),
                Step::Block(block) => {
                    self.state = automaton.next(self.state, automaton.class(block));
                    if automaton.accepts(self.state) && !found(self.index + u64::from(place)) {
                        return false;
                    }
                }
                Step::Enter(func) if func == automaton.func => {
                    if self.depth > 0 {
                        self.below.push((self.innermost(), self.depth));
                    }
                    self.open(0);
                    self.depth = 1;
                }
                Step::Enter(_) if self.depth > 0 => self.depth += 1,
                Step::Exit if self.depth > 1 => self.depth -= 1,
                Step::Exit if self.depth == 1 => {
                    self.depth = 0;
                    if let Some((state, depth)) = self.below.pop() {
                        self.open(state);
                        self.depth = depth;
                    }
                }
                Step::Enter(_) | Step::Exit => {}
            }
            // Each activation that is gone back to brings back what it left.
            if self.own.n > ROOM / 2 && !self.search_own(piece, found) {
                return false;
            }
        }
        true
    }

    /// The state of the innermost activation.
    fn innermost(&self) -> State {
        let Some(path) = self.plain else { return self.state };
        let automaton = self.automaton;
        let blocks = self.own.last(path.len());
        blocks.iter().fold(0, |state, &block| automaton.next(state, automaton.class(BlockId(block))))
    }

    /// Whether an open activation has executed two blocks that a plain path begins with, or more.
    pub fn has_begun(&self) -> bool {
        let innermost = (self.depth > 0).then(|| self.innermost());
        let mut states = self.below.iter().map(|below| below.0).chain(innermost);
        states.any(|state| self.automaton.is_beyond_first(state))
    }

    /// Makes an activation in this state the innermost.
    fn open(&mut self, state: State) {
        self.state = state;
        let Some(path) = self.plain else { return };
        self.own.push(Symbol::enter(self.automaton.func).0, 0);
        // What a plain path's state says is how much of the path has been matched: so much was executed.
        let automaton = self.automaton;
        let (mut reached, mut n) = (0, 0);
        while reached != state && n < path.len() {
            reached = automaton.next(reached, automaton.class(path[n]));
            n += 1;
        }
        // The whole of it was found before.
        let blocks = if n == path.len() { &path[1..] } else { &path[..n] };
        blocks.iter().for_each(|block| self.own.push(block.0, 0));
    }

    /// Passes over symbols in which the function neither is entered nor executes a block.
    pub fn skip(&mut self, n_symbols: u64, levels: Levels) {
        self.pass(n_symbols, |_, states| {
            states.truncate(states.len().saturating_sub(levels.pops as usize).max(1));
            states.resize(states.len() + levels.pushes as usize, OTHER);
        });
    }

    /// Passes over symbols; `pass(OTHER, states)` brings the states behind them, the top's last and one more
    /// below all. Functions below the outermost activation are not among them.
    pub fn pass(&mut self, n_symbols: u64, pass: impl FnOnce(State, &mut Vec<State>)) {
        let mut states = vec![OTHER];
        let innermost = (self.depth > 0).then(|| (self.innermost(), self.depth));
        // What it was told by has been searched.
        (self.own.n, self.own.n_fetched, self.own.n_before) = (0, 0, 0);
        for (state, depth) in self.below.drain(..).chain(innermost) {
            states.push(state);
            states.extend((1..depth).map(|_| OTHER));
        }
        pass(OTHER, &mut states);
        for state in states {
            match self.below.last_mut() {
                _ if state != OTHER => self.below.push((state, 1)),
                Some((_, depth)) => *depth += 1,
                None => {}
            }
        }
        self.depth = 0;
        if let Some((state, depth)) = self.below.pop() {
            self.open(state);
            self.depth = depth;
        }
        self.index += n_symbols;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FuncId;
    use crate::search::path::Path;
    use crate::tests::{Rng, oracle_of, random_path, random_stream, widened};
    use proptest::prelude::*;

    /// Some symbols of a random stream, and behind some of its blocks long loops, and deep calls of other
    /// functions.
    fn stretched(rng: &mut Rng, stream: &[u32]) -> Vec<u32> {
        let mut out = Vec::new();
        for &code in stream {
            out.push(code);
            if !Symbol(code).is_block() {
                continue;
            }
            match rng.below(40) {
                0 => (0..rng.below(300)).for_each(|_| out.push(rng.below(3))),
                1 => {
                    let n = rng.below(200);
                    let called = Symbol::enter(FuncId(9)).from_outside().0;
                    (0..n).for_each(|i| out.push(if i % 3 == 1 { 1 } else { called }));
                    (0..n).filter(|i| i % 3 != 1).for_each(|_| out.push(Symbol::EXIT.0));
                }
                _ => {}
            }
        }
        out
    }

    /// However much is passed over, what began before goes on behind it.
    #[test]
    fn what_began_goes_on_behind_many_pieces() {
        let blocks: Vec<u32> = (0..100).collect();
        let path: Vec<BlockId> = blocks.iter().copied().map(BlockId).collect();
        let automaton = Automaton::new(&Path::of(FuncId(5), &path)).expect("it is small");
        let (begin, end) = (
            [&[Symbol::enter(FuncId(5)).0], &blocks[..98], &[Symbol::enter(FuncId(6)).0]].concat(),
            [Symbol::EXIT.0, 98, 99],
        );
        let mut scan = Scan::new(&automaton);
        assert!(scan.feed(&begin, |_| false));
        (0..ROOM as u64).for_each(|_| scan.skip(1000, Levels::default()));
        let mut found = Vec::new();
        scan.feed(&end, |index| {
            found.push(index);
            true
        });
        assert_eq!(found, [begin.len() as u64 + 1000 * ROOM as u64 + 2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_passed_over_does_not_matter(seed: u64, n in 1..2000_usize, len in 1..33_usize, most in 1..9000_u32) {
            let mut rng = Rng(seed | 1);
            let stream = stretched(&mut rng, &random_stream(seed, n));
            let (func, blocks) = random_path(&mut rng, &stream, len);
            for path in [Path::of(func, &blocks), widened(&mut rng, func, &blocks)] {
                let automaton = Automaton::new(&path).expect("it is small");
                let (mut scan, mut got, mut rest) = (Scan::new(&automaton), Vec::new(), stream.as_slice());
                while !rest.is_empty() {
                    let (piece, behind) = rest.split_at(rest.len().min(1 + rng.below(most) as usize));
                    rest = behind;
                    scan.feed(piece, |index| {
                        got.push(index);
                        true
                    });
                    // Nothing is passed over, but the states are taken out and put back.
                    scan.pass(0, |_, _| {});
                }
                prop_assert_eq!(&got, &oracle_of(&stream, &path), "{:?}", path);
            }
        }
    }
}
