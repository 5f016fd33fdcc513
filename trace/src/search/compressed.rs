//! Schemes 2 and 4: a path found on the rules of the grammar.
//!
//! What a symbol X makes is, level by level, `s0 E s1 E … E sk F t1 F … F tj`: the own blocks that it adds to
//! the function on top, to the one below, and so on, for the k functions that it leaves and the one that is
//! on top then; then those of the j functions that it enters and does not leave (`k` and `j` are its
//! [`Levels`]). What is entered and left within X adds occurrences, nothing else. So a rule is summed up by
//! the occurrences that are wholly in it, and k + 1 + j effects ([`Effects`]): the paper's internal, suffix
//! and prefix flags for each nesting level. The sequence of a thread is run through with a state for each
//! open function. Blocks are numbered over the whole program, so other functions' blocks have no effect, and
//! the paper's nil is not needed.
//!
//! Scheme 4 passes over segments of the sequences that do not have the function: with `entry` functions open,
//! a segment that pops k and pushes j keeps the first `entry − k` states and adds j new ones, whether k is 0
//! or not (see [`Levels`] for what the paper leaves open). Rules are summed up only when a segment needs
//! them.
//!
//! Source: Zhang and Gupta, Path Matching in Compressed Control Flow Traces, sections 4.2 and 4.4.

use crate::balance::Levels;
use crate::grammar::loaded::Loaded;
use crate::grammar::segments::{Segment, Wanted};
use crate::grammar::{Expansion, PIECE};
use crate::ids::{FuncId, ThreadId};
use crate::search::automaton::{Automaton, State};
use crate::search::effects::{EffectId, Effects, NOTHING};
use crate::search::scan::Scan;
use crate::search::{Found, Want};
use crate::symbol::Step;

/// A rule that has not been summed up.
const NEW: u32 = 0;
/// A symbol without a block of the function.
const IDLE: u32 = 1;

/// A search on a grammar.
struct Rules<'a> {
    loaded: &'a Loaded,
    effects: Effects,
    /// By symbol: [`NEW`], [`IDLE`], or where its effects start in `pieces`.
    at: Vec<u32>,
    pieces: Vec<EffectId>,
    /// By symbol: occurrences that are wholly in it.
    counts: Vec<u64>,
    done: Vec<EffectId>,
    open: Vec<EffectId>,
    todo: Vec<(u32, usize)>,
}

impl<'a> Rules<'a> {
    fn new(loaded: &'a Loaded, automaton: &Automaton) -> Self {
        let n = loaded.lengths.len();
        let mut this = Self {
            loaded,
            effects: Effects::new(automaton),
            at: vec![NEW; n],
            pieces: vec![NOTHING; 2],
            counts: vec![0; n],
            done: Vec::new(),
            open: Vec::new(),
            todo: Vec::new(),
        };
        for (i, terminal) in loaded.grammar.terminals.iter().enumerate() {
            this.at[i] = IDLE;
            if let Step::Block(block) = terminal.symbol.step()
                && terminal.func == automaton.func
            {
                let (effect, count) = this.effects.of_class(automaton.class(block));
                this.at[i] = u32::try_from(this.pieces.len()).expect("few");
                this.pieces.push(effect);
                this.counts[i] = count;
            }
        }
        this
    }

    /// Sums up a rule whose symbols are summed up.
    fn sum_up(&mut self, rule: usize) {
        let loaded = self.loaded;
        let body = loaded.grammar.body(rule);
        let symbol = loaded.grammar.terminals.len() + rule;
        if body.iter().all(|&s| self.at[s as usize] == IDLE) {
            self.at[symbol] = IDLE;
            return;
        }
        self.done.clear();
        self.open.clear();
        self.open.push(NOTHING);
        let mut count = 0;
        for &s in body {
            let Levels { pops, pushes } = loaded.levels[s as usize];
            let at = self.at[s as usize];
            if at == IDLE {
                (0..pops).for_each(|_| self.leave());
                self.open.extend((0..pushes).map(|_| NOTHING));
                continue;
            }
            count = u64::saturating_add(count, self.counts[s as usize]);
            for i in 0..=pops {
                let piece = self.pieces[(at + i) as usize];
                let top = self.open.last_mut().expect("a level is always open");
                let (effect, gained) = self.effects.then(*top, piece);
                *top = effect;
                count = count.saturating_add(gained);
                if i < pops {
                    self.leave();
                }
            }
            let entered = (at + pops + 1) as usize;
            self.open.extend_from_slice(&self.pieces[entered..entered + pushes as usize]);
        }
        self.counts[symbol] = count;
        self.at[symbol] = u32::try_from(self.pieces.len()).expect("the grammar is in memory");
        self.pieces.extend_from_slice(&self.done);
        self.pieces.extend_from_slice(&self.open);
    }

    #[inline]
    fn leave(&mut self) {
        if self.open.len() == 1 {
            self.done.push(std::mem::replace(&mut self.open[0], NOTHING));
        } else {
            self.open.pop();
        }
    }

    /// Sums up what `symbol` is made of, if that has not been done.
    fn need(&mut self, symbol: u32) {
        if self.at[symbol as usize] != NEW {
            return;
        }
        let n_terminals = self.loaded.grammar.terminals.len();
        self.todo.push((symbol, 0));
        while let Some((symbol, at)) = self.todo.last_mut() {
            let rule = *symbol as usize - n_terminals;
            match self.loaded.grammar.body(rule).get(*at) {
                Some(&child) => {
                    *at += 1;
                    if self.at[child as usize] == NEW {
                        self.todo.push((child, 0));
                    }
                }
                None => {
                    self.sum_up(rule);
                    self.todo.pop();
                }
            }
        }
    }

    /// Sums up all rules that these symbols are made of.
    fn sum_up_needed<'b>(&mut self, pieces: impl Iterator<Item = &'b [u32]>) {
        let mut is_needed = vec![false; self.loaded.lengths.len()];
        pieces.flatten().for_each(|&symbol| is_needed[symbol as usize] = true);
        let grammar = &self.loaded.grammar;
        let n_terminals = grammar.terminals.len();
        // What a rule is made of comes before it: one way to mark, the other to sum up.
        for rule in (0..grammar.n_rules()).rev() {
            if is_needed[n_terminals + rule] {
                grammar.body(rule).iter().for_each(|&s| is_needed[s as usize] = true);
            }
        }
        (0..grammar.n_rules())
            .filter(|rule| is_needed[n_terminals + rule])
            .for_each(|rule| self.sum_up(rule));
    }

    /// Occurrences that end in `symbol`, with these states before it, the top's last.
    fn ending_in(&self, symbol: u32, states: &[State]) -> u64 {
        let at = self.at[symbol as usize];
        if at == IDLE {
            return 0;
        }
        let pops = self.loaded.levels[symbol as usize].pops;
        let more = (0..=pops).zip(states.iter().rev());
        let more = more.map(|(i, &state)| self.effects.from(state, self.pieces[(at + i) as usize]).1);
        more.fold(self.counts[symbol as usize], u64::saturating_add)
    }

    /// The states behind `symbol`.
    fn advance(&self, symbol: u32, states: &mut Vec<State>) {
        let Levels { pops, pushes } = self.loaded.levels[symbol as usize];
        skip(states, Levels { pops, pushes: 0 });
        let at = self.at[symbol as usize];
        if at == IDLE {
            skip(states, Levels { pops: 0, pushes });
            return;
        }
        let top = states.last_mut().expect("skip leaves one");
        *top = self.effects.from(*top, self.pieces[(at + pops) as usize]).0;
        let entered = (at + pops + 1) as usize;
        let pieces = &self.pieces[entered..entered + pushes as usize];
        states.extend(pieces.iter().map(|&piece| self.effects.from(0, piece).0));
    }
}

/// Leaves and enters functions. The first state is that of no function: it is never taken away.
fn skip(states: &mut Vec<State>, levels: Levels) {
    let kept = states.len().saturating_sub(levels.pops as usize).max(1);
    states.truncate(kept);
    states.resize(kept + levels.pushes as usize, 0);
}

/// Schemes 2 and, with `skips`, 4.
pub fn search(loaded: &Loaded, automaton: &Automaton, want: Want, skips: bool) -> Found {
    let mut rules = Rules::new(loaded, automaton);
    let wanted = skips.then(|| loaded.segments.wanted(&loaded.grammar.terminals, automaton));
    // One that is asked for may come early: then rules are summed up when they are needed, too.
    if !want.ends_early() {
        let (mut needed, mut n_passed) = (Vec::new(), 0);
        for (sequence, segments) in loaded.grammar.sequences.iter().zip(&loaded.segments.of) {
            let mut start = 0;
            for segment in segments {
                let piece = &sequence.body[start..segment.end];
                start = segment.end;
                // What has begun before shows when it is searched.
                if passes(segment, wanted.as_ref(), automaton.func, || false) {
                    n_passed += 1;
                    continue;
                }
                needed.push(piece);
            }
        }
        // Of few segments, rules are summed up as they come; of almost all, all rules.
        if needed.is_empty() {
            return Found::default();
        } else if n_passed < needed.len() / 4 {
            (0..loaded.grammar.n_rules()).for_each(|rule| rules.sum_up(rule));
        } else if needed.len() > n_passed / 4 {
            rules.sum_up_needed(needed.into_iter());
        }
    }
    if let Want::Previous(at) = want {
        // How many there are before it says which one it is.
        let Found { count, .. } =
            walk(&mut rules, automaton, wanted.as_ref(), Want::CountBefore(at), Some(at.thread));
        return match count {
            0 => Found::default(),
            n => walk(&mut rules, automaton, wanted.as_ref(), Want::Nth(n), Some(at.thread)),
        };
    }
    walk(&mut rules, automaton, wanted.as_ref(), want, want.thread())
}

fn passes(
    segment: &Segment,
    wanted: Option<&Wanted>,
    func: FuncId,
    has_begun: impl FnOnce() -> bool,
) -> bool {
    wanted.is_some_and(|wanted| segment.is_passed(wanted, func, has_begun))
}

/// Schemes 1 and 3 where the symbols come from a grammar; its segments are the chunks.
pub fn search_expanded(
    loaded: &Loaded,
    path: &Automaton,
    thread: Option<ThreadId>,
    skips: bool,
    mut note: impl FnMut(ThreadId, u64) -> bool,
) {
    let terminals = &loaded.grammar.terminals;
    let wanted = loaded.segments.wanted(terminals, path);
    let is_asked = |of: ThreadId| thread.is_none_or(|asked| asked == of);
    let sequences = loaded.grammar.sequences.iter().zip(&loaded.segments.of);
    for (sequence, segments) in sequences.filter(|(s, _)| is_asked(s.thread)) {
        let mut scan = Scan::new(path);
        let mut expansion = Expansion::new(&loaded.grammar, &loaded.lengths);
        let mut start = 0;
        for segment in segments {
            let body = &sequence.body[start..segment.end];
            start = segment.end;
            if skips && segment.is_passed(&wanted, path.func, || scan.has_begun()) {
                scan.pass(segment.n_symbols, |other, states| segment.pass(terminals, path, other, states));
                continue;
            }
            expansion.start(body);
            loop {
                let symbols = expansion.next(PIECE);
                if symbols.is_empty() {
                    break;
                }
                if !scan.feed(symbols, |at| note(sequence.thread, at)) {
                    return;
                }
            }
        }
    }
}

/// Runs through the sequences, or that of one thread.
fn walk(
    rules: &mut Rules,
    automaton: &Automaton,
    wanted: Option<&Wanted>,
    want: Want,
    thread: Option<ThreadId>,
) -> Found {
    let loaded = rules.loaded;
    let mut found = Found::default();
    let sequences = loaded.grammar.sequences.iter().zip(&loaded.segments.of);
    for (sequence, segments) in sequences.filter(|(s, _)| thread.is_none_or(|t| t == s.thread)) {
        let mut states: Vec<State> = vec![0];
        let (mut index, mut start) = (0, 0);
        for segment in segments {
            let piece = &sequence.body[start..segment.end];
            start = segment.end;
            let has_begun = || states.iter().any(|&state| automaton.is_beyond_first(state));
            if passes(segment, wanted, automaton.func, has_begun) {
                segment.pass(&loaded.grammar.terminals, automaton, 0, &mut states);
                index = u64::saturating_add(index, segment.n_symbols);
                continue;
            }
            for &symbol in piece {
                rules.need(symbol);
                let n = rules.ending_in(symbol, &states);
                if !found.asks_where(want, n, index, loaded.lengths[symbol as usize]) {
                    found.add(want, sequence.thread, n);
                    rules.advance(symbol, &mut states);
                } else if !descend(rules, symbol, index, sequence.thread, want, &mut states, &mut found) {
                    return found;
                }
                index = index.saturating_add(loaded.lengths[symbol as usize]);
            }
        }
    }
    found
}

/// Notes the occurrences that end in `symbol`, which stands at `index`. Returns whether more are wanted.
fn descend(
    rules: &Rules,
    symbol: u32,
    mut index: u64,
    thread: ThreadId,
    want: Want,
    states: &mut Vec<State>,
    found: &mut Found,
) -> bool {
    let grammar = &rules.loaded.grammar;
    let symbol = [symbol];
    let mut open: Vec<&[u32]> = vec![&symbol];
    while let Some(body) = open.last_mut() {
        let Some((&symbol, rest)) = body.split_first() else {
            open.pop();
            continue;
        };
        *body = rest;
        let n = rules.ending_in(symbol, states);
        let len = rules.loaded.lengths[symbol as usize];
        match (symbol as usize).checked_sub(grammar.terminals.len()) {
            Some(rule) if found.asks_where(want, n, index, len) => {
                open.push(grammar.body(rule));
                continue;
            }
            Some(_) => found.add(want, thread, n),
            None if n > 0 && !found.note(want, thread, index) => return false,
            None => {}
        }
        rules.advance(symbol, states);
        index = index.saturating_add(len);
    }
    true
}
