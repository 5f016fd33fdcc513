//! What of a stream is kept: words that are not tell what is open where it is kept again.
//!
//! Where functions say when it is kept, that is exact: the way to the entry that ends it is told, and the way
//! to the entry that begins it is not.
#![warn(clippy::indexing_slicing)]

use super::Decoder;
use super::activation::Activation;
use super::signals::Next;
use crate::ids::FuncId;
use crate::recording::event::{Event, Head};
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

/// What of what events tell comes out.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) kept: Kept,
    /// Room for what is told and not kept.
    untold: Vec<u32>,
    /// Whether functions may be open of which nothing told.
    pub(super) is_cut: bool,
}

impl Decoder<'_> {
    /// The words that come next were taken apart from those before: room at the end of these need not have
    /// been an event's.
    pub fn begin_chunk(&mut self) {
        self.signals.is_unwritten = false;
    }

    /// Appends to `out` what `words` tell, the next of a chunk: where they are cut makes no difference.
    pub fn push(&mut self, words: &[u32], out: &mut Vec<u32>) {
        for &word in words {
            match self.reader.push(word) {
                Some(event @ (Event::Point(_) | Event::Entry { .. })) if self.filter.kept == Kept::Yes => {
                    self.tell(event, out);
                }
                Some(event) => self.take(event, out),
                None => {}
            }
        }
    }

    fn take(&mut self, event: Event, out: &mut Vec<u32>) {
        match event {
            Event::Unused => self.signals.is_unwritten = true,
            Event::Gap => {
                self.leave_all(Cause::RecordingEnd, out);
                self.stack.open.truncate(0);
                self.stack.parked.clear();
                self.next = Next::Onward;
                self.filter.is_cut = true;
                self.filter.kept = Kept::No;
            }
            Event::Pause => {
                self.filter.kept = match self.filter.kept {
                    Kept::Yes | Kept::Ends => Kept::Ends,
                    Kept::No | Kept::Begins => Kept::No,
                };
            }
            Event::Start => {
                self.filter.kept = match self.filter.kept {
                    Kept::Yes | Kept::Ends => Kept::Yes,
                    Kept::No | Kept::Begins => Kept::Begins,
                };
            }
            Event::Another => {
                self.leave_all(Cause::ThreadEnd, out);
                self.stack.open.truncate(0);
            }
            _ if self.filter.kept == Kept::Yes => self.tell(event, out),
            _ => self.take_unless_kept(event, out),
        }
    }

    /// Whether what is open was told.
    pub(super) fn is_told(&self) -> bool {
        matches!(self.filter.kept, Kept::Yes | Kept::Ends)
    }

    /// The stream ends here, perhaps in the middle of an event.
    pub(super) fn cut_off(&mut self, out: &mut Vec<u32>) {
        let is_entry = |head: Head| matches!(head, Head::Entry { .. });
        if self.is_at_turn() && self.reader.begun().is_some_and(|head| !is_entry(head)) {
            self.turn(self.stack.open.len(), out);
        }
    }

    /// Whether what is told next is the first that is kept, or that is not.
    fn is_at_turn(&self) -> bool {
        matches!(self.filter.kept, Kept::Ends | Kept::Begins)
    }

    /// The next event, where it may not be kept.
    fn take_unless_kept(&mut self, event: Event, out: &mut Vec<u32>) {
        // Only entries say where in what they tell the turn is.
        if self.is_at_turn() && !matches!(event, Event::Entry { .. }) {
            self.turn(self.stack.open.len(), out);
        }
        match self.filter.kept {
            Kept::Yes => self.tell(event, out),
            Kept::No => {
                let mut untold = std::mem::take(&mut self.filter.untold);
                self.tell(event, &mut untold);
                untold.clear();
                self.filter.untold = untold;
            }
            Kept::Ends | Kept::Begins => {
                let mut told = Vec::new();
                self.tell(event, &mut told);
                // The way to the entry, and what is told from it on.
                let entered = self.stack.open.last().map(|top| self.number_of(top));
                let enters = |symbol: &u32| entered.is_some_and(|func| Symbol(*symbol).is_entry_of(func));
                let n = told.iter().rposition(enters).unwrap_or(told.len());
                let (way, entered) = told.split_at(n);
                let n_below = self.stack.open.len().saturating_sub(usize::from(!entered.is_empty()));
                if self.filter.kept == Kept::Ends {
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
        if self.filter.kept == Kept::Ends {
            out.extend((0..n).map(|_| Symbol::exit(Cause::RecordingEnd).0));
            self.filter.kept = Kept::No;
        } else {
            let enter = |a| Symbol::enter(self.number_of(a)).from_outside().0;
            out.extend(self.stack.open.iter().take(n).map(enter));
            self.filter.kept = Kept::Yes;
        }
    }

    /// The number of its function.
    pub(super) fn number_of(&self, a: &Activation) -> FuncId {
        self.codes.func_id(a.function)
    }

    /// What is open is left, if that it is was told.
    fn leave_all(&self, cause: Cause, out: &mut Vec<u32>) {
        let n = if self.is_told() { self.stack.open.len() } else { 0 };
        out.extend((0..n).map(|_| Symbol::exit(cause).0));
    }
}
