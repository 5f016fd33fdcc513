//! How often a path occurs by who called its function, on the grammar, in one pass. Where there is none,
//! `calls` does it.
//!
//! Who called an activation is the function below it on the stack. A rule is summed up level by level, as in
//! `compressed`; each level also has the occurrences in the activation itself, and those in activations that
//! it called. When a function is left that the rule entered, it is known who it is: what it called is counted
//! for it, as often as the rule runs.

use crate::grammar::loaded::Loaded;
use crate::ids::FuncId;
use crate::search::automaton::Automaton;
use crate::search::columns::runs;
use crate::search::effects::{EffectId, Effects, NOTHING};
use crate::symbol::{Step, Symbol};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// An activation, as far as a piece of the trace shows it.
#[derive(Clone, Copy)]
struct Level {
    /// Whose it is, if it is entered in the piece.
    func: Option<FuncId>,
    effect: EffectId,
    /// Occurrences in it that are wholly in the piece.
    own: u64,
    /// Occurrences in activations that it called in the piece.
    called: u64,
}

const EMPTY: Level = Level { func: None, effect: NOTHING, own: 0, called: 0 };

struct Counts<'a> {
    effects: Effects,
    /// By symbol, where in `pieces` its levels begin. What has no occurrence and leaves the stack as it is
    /// shares the first.
    at: Vec<u32>,
    pieces: Vec<Level>,
    done: Vec<Level>,
    open: Vec<Level>,
    counts: BTreeMap<Option<FuncId>, u64>,
    loaded: &'a Loaded,
}

impl Counts<'_> {
    fn terminal(&mut self, automaton: &Automaton, func: FuncId, symbol: Symbol) {
        let start = u32::try_from(self.pieces.len()).expect("the grammar is in memory");
        match symbol.step() {
            Step::Block(block) if func == automaton.func => {
                let (effect, own) = self.effects.of_class(automaton.class(block));
                self.pieces.push(Level { effect, own, ..EMPTY });
            }
            Step::Block(_) => return self.at.push(0),
            Step::Enter(func) => self.pieces.extend([EMPTY, Level { func: Some(func), ..EMPTY }]),
            Step::Exit => self.pieces.extend([EMPTY; 2]),
        }
        self.at.push(start);
    }

    /// Runs through a body; what it leaves open, and who was below, is in `done` and `open`.
    fn run(&mut self, body: &[u32], n_runs: u64) {
        self.done.clear();
        self.open.clear();
        self.open.push(EMPTY);
        for &symbol in body {
            let levels = self.loaded.levels[symbol as usize];
            let (at, pops) = (self.at[symbol as usize] as usize, levels.pops as usize);
            for i in 0..=pops {
                let piece = self.pieces[at + i];
                let top = self.open.last_mut().expect("a level is always open");
                let (effect, gained) = self.effects.then(top.effect, piece.effect);
                top.effect = effect;
                top.own = top.own.saturating_add(piece.own).saturating_add(gained);
                top.called = top.called.saturating_add(piece.called);
                if i < pops {
                    self.leave(n_runs);
                }
            }
            let entered = at + pops + 1;
            self.open.extend_from_slice(&self.pieces[entered..entered + levels.pushes as usize]);
        }
    }

    fn leave(&mut self, n_runs: u64) {
        if let [below] = self.open.as_mut_slice() {
            self.done.push(std::mem::replace(below, EMPTY));
            return;
        }
        let Some(left) = self.open.pop() else { return };
        self.count(left.func, left.called.saturating_mul(n_runs));
        if let Some(below) = self.open.last_mut() {
            below.called = below.called.saturating_add(left.own);
        }
    }

    fn count(&mut self, caller: Option<FuncId>, n: u64) {
        if n > 0 {
            let count = self.counts.entry(caller).or_insert(0);
            *count = count.saturating_add(n);
        }
    }
}

/// Counts on the grammar.
pub fn of_grammar(loaded: &Loaded, automaton: &Automaton) -> BTreeMap<Option<FuncId>, u64> {
    let grammar = &loaded.grammar;
    let mut counts = Counts {
        effects: Effects::new(automaton),
        at: Vec::with_capacity(loaded.lengths.len()),
        pieces: vec![EMPTY],
        done: Vec::new(),
        open: Vec::new(),
        counts: BTreeMap::new(),
        loaded,
    };
    for terminal in &grammar.terminals {
        counts.terminal(automaton, terminal.func, terminal.symbol);
    }
    for (rule, n_runs) in runs(grammar).into_iter().enumerate() {
        counts.run(grammar.body(rule), n_runs);
        let is_empty = |l: &Level| l.own == 0 && l.called == 0 && l.effect == NOTHING;
        if counts.done.is_empty() && counts.open.len() == 1 && counts.open.iter().all(is_empty) {
            counts.at.push(0);
            continue;
        }
        // A level left below the rule has no name here; who it was is known where it was entered.
        counts.at.push(u32::try_from(counts.pieces.len()).expect("the grammar is in memory"));
        counts.pieces.extend_from_slice(&counts.done);
        counts.pieces.extend_from_slice(&counts.open);
    }
    for sequence in &grammar.sequences {
        counts.run(&sequence.body, 1);
        // What a cut trace leaves open has been executed all the same.
        while counts.open.len() > 1 {
            counts.leave(1);
        }
        let roots = counts.open.iter().fold(0_u64, |sum, level| sum.saturating_add(level.called));
        counts.count(None, roots);
    }
    counts.counts
}
