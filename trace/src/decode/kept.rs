//! What of a stream is kept: words that are not tell what is open where it is kept again.
//!
//! Where functions say when it is kept, that is exact: the way to the entry that ends it is told, and the way
//! to the entry that begins it is not.
#![warn(clippy::indexing_slicing)]

use super::Decoder;
use super::activation::Activation;
use crate::recording::event::{ANOTHER, ENTRY, GAP, PAUSE, START};
use crate::symbol::{Cause, Symbol};

/// Whether what comes is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Kept {
    #[default]
    Yes,
    /// What is told next is the first that is not.
    Ends,
    No,
    /// What is told next is the first that is.
    Begins,
}

impl Decoder<'_> {
    /// Appends to `out` what `words` tell.
    pub fn push(&mut self, words: &[u32], out: &mut Vec<u32>) {
        // What is left of a chunk at its end is room, too.
        self.is_unwritten = false;
        for &word in words {
            match (word, self.rest.is_empty()) {
                (GAP, true) => {
                    self.leave_all(Cause::RecordingEnd, out);
                    self.open.clear();
                    self.parked.clear();
                    (self.is_handler, self.is_elsewhere, self.is_cut) = (false, false, true);
                    self.kept = Kept::No;
                }
                (PAUSE, true) => {
                    self.kept = match self.kept {
                        Kept::Yes | Kept::Ends => Kept::Ends,
                        Kept::No | Kept::Begins => Kept::No,
                    };
                }
                (START, true) => {
                    self.kept = match self.kept {
                        Kept::Yes | Kept::Ends => Kept::Yes,
                        Kept::No | Kept::Begins => Kept::Begins,
                    };
                }
                (ANOTHER, true) => {
                    self.leave_all(Cause::ThreadEnd, out);
                    self.open.clear();
                }
                _ => self.word(word, out),
            }
        }
    }

    /// Whether what is open was told.
    pub(super) fn is_told(&self) -> bool {
        matches!(self.kept, Kept::Yes | Kept::Ends)
    }

    fn word(&mut self, word: u32, out: &mut Vec<u32>) {
        let is_first = self.rest.is_empty();
        let is_room = is_first && word == 0;
        // An event of several words has begun with an entry, if that is a turn.
        if matches!(self.kept, Kept::Ends | Kept::Begins) && is_first && !is_room && word & ENTRY == 0 {
            self.turn(self.open.len(), out);
        }
        match self.kept {
            Kept::Yes => self.next(word, out),
            Kept::No => {
                let mut untold = std::mem::take(&mut self.untold);
                self.next(word, &mut untold);
                untold.clear();
                self.untold = untold;
            }
            Kept::Ends | Kept::Begins => {
                let mut told = Vec::new();
                self.next(word, &mut told);
                if !self.rest.is_empty() || is_room {
                    return;
                }
                // The way to the entry, and what is told from it on.
                let entered = self.open.last().map(|top| self.number_of(top));
                let enters = |symbol: &u32| entered.is_some_and(|func| Symbol(*symbol).is_entry_of(func));
                let n = told.iter().rposition(enters).unwrap_or(told.len());
                let (way, entered) = told.split_at(n);
                let n_below = self.open.len().saturating_sub(usize::from(!entered.is_empty()));
                if self.kept == Kept::Ends {
                    out.extend(way);
                    self.turn(n_below, out);
                } else {
                    self.turn(n_below, out);
                    out.extend(entered);
                }
            }
        }
    }

    /// What is kept ends or begins, while `n` functions are open that were entered before.
    fn turn(&mut self, n: usize, out: &mut Vec<u32>) {
        if self.kept == Kept::Ends {
            out.extend((0..n).map(|_| Symbol::exit(Cause::RecordingEnd).0));
            self.kept = Kept::No;
        } else {
            let enter = |a| Symbol::enter(self.number_of(a)).from_outside().0;
            out.extend(self.open.iter().take(n).map(enter));
            self.kept = Kept::Yes;
        }
    }

    /// The number of its function.
    pub(super) fn number_of(&self, a: &Activation) -> u32 {
        self.codes.first.get(a.of.module).copied().unwrap_or_default().saturating_add(a.of.func)
    }

    /// What is open is left, if that it is was told.
    fn leave_all(&self, cause: Cause, out: &mut Vec<u32>) {
        let n = if self.is_told() { self.open.len() } else { 0 };
        out.extend((0..n).map(|_| Symbol::exit(cause).0));
    }
}
