//! Range expansion: the symbols of a stream from any index to any other, each with the function it is in.

use crate::file::ReadError;
use crate::ids::{FuncId, ThreadId};
use crate::symbol::{Step, Symbol};
use crate::trace::Trace;
use crate::trace::part::Part;
use std::ops::{ControlFlow, Range};

#[cfg(test)]
mod tests;

/// A symbol where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its index in the stream.
    pub index: u64,
    /// The function that is entered, left, or executes the block; `None` where a damaged stream has none
    /// open.
    pub func: Option<FuncId>,
    /// What is there.
    pub symbol: Symbol,
}

impl Trace {
    /// The symbols `range` of the stream of `thread`, one after the other, until `take` has enough; of a
    /// recording as it was taken, with all before them.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn expand<B>(
        &self,
        thread: ThreadId,
        range: Range<u64>,
        mut take: impl FnMut(Line) -> ControlFlow<B>,
    ) -> Result<Option<B>, ReadError> {
        if self.is_recording() {
            return self.expand_through(&Part { thread: Some(thread), range }, take);
        }
        let mut reader = self.read_from(thread, range.start)?;
        let mut outer = self.open_before(thread, range.start)?;
        // Functions that were entered in the range; and the one on top where there is none of them, once it
        // was asked for.
        let (mut open, mut below): (Vec<FuncId>, Option<Option<FuncId>>) = (Vec::new(), None);
        let mut index = range.start;
        while index < range.end {
            let wanted = range.end - index;
            let symbols = reader.next(usize::try_from(wanted).unwrap_or(usize::MAX).min(1 << 16))?;
            if symbols.is_empty() {
                break;
            }
            for &code in symbols.iter().take(usize::try_from(wanted).unwrap_or(usize::MAX)) {
                let symbol = Symbol(code);
                let func = match (symbol.step(), open.last(), below) {
                    (Step::Enter(func), ..) => {
                        open.push(func);
                        Some(func)
                    }
                    (_, Some(&top), _) => Some(top),
                    (_, None, Some(known)) => known,
                    (_, None, None) => *below.insert(outer.next()?),
                };
                if symbol.step() == Step::Exit && open.pop().is_none() {
                    below = None;
                }
                if let ControlFlow::Break(enough) = take(Line { index, func, symbol }) {
                    return Ok(Some(enough));
                }
                index += 1;
            }
        }
        Ok(None)
    }

    fn expand_through<B>(
        &self,
        part: &Part,
        mut take: impl FnMut(Line) -> ControlFlow<B>,
    ) -> Result<Option<B>, ReadError> {
        let mut open: Vec<FuncId> = Vec::new();
        self.read_part(part, |piece| {
            open.extend(piece.open);
            for (index, &code) in (piece.first..).zip(piece.symbols) {
                let symbol = Symbol(code);
                if let Step::Enter(func) = symbol.step() {
                    open.push(func);
                }
                let func = open.last().copied();
                if symbol.step() == Step::Exit {
                    open.pop();
                }
                take(Line { index, func, symbol })?;
            }
            ControlFlow::Continue(())
        })
    }
}
