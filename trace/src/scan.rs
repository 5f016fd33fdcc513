//! Scheme 1: the vector-state automaton over symbols as they were executed. Scheme 3 lets it skip chunks.
//!
//! The state is a vector: one [`State`] for each open activation, [`OTHER`] for those of other functions. An entry appends one,
//! an exit takes the last away, a block moves the last. So calls do not interrupt a path, and each activation of a recursive
//! function has its own.
//!
//! Source: Zhang and Gupta, Path Matching in Compressed Control Flow Traces, sections 4.1 and 4.3 (the levels that section 4.3 leaves
//! open are those of [`Levels`]).

use crate::automaton::{Automaton, State};
use crate::balance::Levels;
use crate::symbol::{Step, Symbol};

/// The state of an activation of another function: the paper's −1.
const OTHER: State = State::MAX;

/// A search through one stream.
pub struct Scan<'a> {
    automaton: &'a Automaton,
    stack: Vec<State>,
    top: State,
    index: u64,
}

impl<'a> Scan<'a> {
    /// Starts at the beginning of a stream.
    pub fn new(automaton: &'a Automaton) -> Self {
        Self { automaton, stack: Vec::new(), top: OTHER, index: 0 }
    }

    /// Takes the next symbols; `found` is told the index of the last block of each occurrence, and says whether to go on.
    /// Returns whether it did.
    #[inline]
    pub fn feed(&mut self, symbols: &[u32], mut found: impl FnMut(u64) -> bool) -> bool {
        let (automaton, enter) = (self.automaton, Symbol::enter(self.automaton.func));
        let mut rest = symbols.iter();
        while let Some(&code) = rest.next() {
            let symbol = Symbol(code);
            if symbol.is_block() {
                if self.top != OTHER {
                    self.top = automaton.next(self.top, automaton.class(code));
                    if automaton.accepts(self.top) {
                        let at = self.index + (symbols.len() - rest.len() - 1) as u64;
                        if !found(at) {
                            return false;
                        }
                    }
                }
            } else if symbol.step() == Step::Exit {
                self.top = self.stack.pop().unwrap_or(OTHER);
            } else {
                self.stack.push(self.top);
                self.top = if symbol == enter || symbol.plain() == enter { 0 } else { OTHER };
            }
        }
        self.index += symbols.len() as u64;
        true
    }

    /// Passes over symbols in which the function neither is entered nor executes a block.
    pub fn skip(&mut self, n_symbols: u64, levels: Levels) {
        self.stack.push(self.top);
        let kept = self.stack.len().saturating_sub(levels.pops as usize);
        self.stack.truncate(kept);
        self.stack.resize(kept + levels.pushes as usize, OTHER);
        self.top = self.stack.pop().unwrap_or(OTHER);
        self.index += n_symbols;
    }

    /// Passes over symbols; `pass(OTHER, states)` brings the states behind them, the top's last and one more below all.
    pub fn pass(&mut self, n_symbols: u64, pass: impl FnOnce(State, &mut Vec<State>)) {
        self.stack.push(self.top);
        pass(OTHER, &mut self.stack);
        self.top = self.stack.pop().unwrap_or(OTHER);
        self.index += n_symbols;
    }
}
