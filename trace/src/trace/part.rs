//! A part of a trace, read piece by piece: of one thread or all, from a symbol on, with the functions that
//! are open there.

use crate::file::ReadError;
use crate::grammar::PIECE;
use crate::ids::{FuncId, ThreadId};
use crate::symbol::{Step, Symbol};
use crate::trace::Trace;
use std::ops::{ControlFlow, Range};

/// Which symbols of which streams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The only stream; `None`: all of them.
    pub thread: Option<ThreadId>,
    /// Indices of symbols in each stream.
    pub range: Range<u64>,
}

impl Part {
    /// Everything.
    pub const ALL: Self = Self { thread: None, range: 0..u64::MAX };

    /// Whether streams are read from their start.
    fn is_from_start(&self) -> bool {
        self.range.start == 0
    }
}

/// Symbols of a stream that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The stream.
    pub thread: ThreadId,
    /// The index of the first symbol.
    pub first: u64,
    /// Of the first piece of a stream: the functions that are open before it, the outermost first. Else
    /// empty.
    pub open: &'a [FuncId],
    /// The symbols.
    pub symbols: &'a [u32],
}

impl Trace {
    /// Reads a part, stream by stream, until `take` has enough.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_part<B>(
        &self,
        part: &Part,
        mut take: impl FnMut(Piece<'_>) -> ControlFlow<B>,
    ) -> Result<Option<B>, ReadError> {
        if part.is_from_start() || self.is_recording() {
            return self.read_through(part, take);
        }
        for of in self.threads()? {
            if part.thread.is_some_and(|asked| asked != of.thread) || part.range.start >= of.n_symbols {
                continue;
            }
            let mut reader = self.read_from(of.thread, part.range.start)?;
            let mut open = self.open_at(of.thread, part.range.start)?;
            let mut first = part.range.start;
            while first < part.range.end {
                let wanted = usize::try_from(part.range.end - first).unwrap_or(usize::MAX);
                let symbols = reader.next(wanted.min(PIECE))?;
                let symbols = symbols.get(..wanted).unwrap_or(symbols);
                if symbols.is_empty() {
                    break;
                }
                let piece = Piece { thread: of.thread, first, open: &open, symbols };
                if let ControlFlow::Break(enough) = take(piece) {
                    return Ok(Some(enough));
                }
                first += symbols.len() as u64;
                open.clear();
            }
        }
        Ok(None)
    }

    /// The same, from the start of each stream on.
    fn read_through<B>(
        &self,
        part: &Part,
        mut take: impl FnMut(Piece<'_>) -> ControlFlow<B>,
    ) -> Result<Option<B>, ReadError> {
        let (mut of, mut index, mut open) = (None, 0_u64, Vec::new());
        let done = self.read(|thread, symbols| {
            if part.thread.is_some_and(|asked| asked != thread) {
                return ControlFlow::Continue(());
            }
            if of.replace(thread) != Some(thread) {
                index = 0;
                open.clear();
            }
            let place = |at: u64| usize::try_from(at.saturating_sub(index)).unwrap_or(usize::MAX);
            let (start, end) = (place(part.range.start).min(symbols.len()), place(part.range.end));
            let (passed, wanted) = symbols.split_at(start);
            for &code in passed {
                match Symbol(code).step() {
                    Step::Enter(func) => open.push(func),
                    Step::Exit => drop(open.pop()),
                    Step::Block(_) => {}
                }
            }
            let first = index + start as u64;
            index += symbols.len() as u64;
            let wanted = wanted.get(..end.saturating_sub(start)).unwrap_or(wanted);
            if !wanted.is_empty() {
                take(Piece { thread, first, open: &open, symbols: wanted }).map_break(Some)?;
                open.clear();
            }
            let is_over = part.thread.is_some() && index >= part.range.end;
            if is_over { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
        })?;
        Ok(done.flatten())
    }
}

#[cfg(test)]
mod tests {
    use crate::file::import::{Stores, import};
    use crate::file::names::Names;
    use crate::ids::FuncId;
    use crate::trace::Trace;
    use crate::trace::part::Part;
    use std::io::{Seek as _, Write as _};
    use std::ops::ControlFlow;

    #[test]
    fn what_is_open_before_a_part_was_entered_before_it_and_not_left() {
        let (f, e) = (|i: u32| 0x4000_0000 + i, 0x8000_0000);
        let run = [f(1), 0, f(2), 0, f(3), 1, e, 1, f(3), e, e, 2, f(2), 0, e, e];
        let bytes: Vec<u8> = run.iter().flat_map(|code| code.to_le_bytes()).collect();
        for stores in [Stores::PACKED, Stores { grammar: None, chunks: Some(crate::chunks::Codec::Zstd) }] {
            let mut file = tempfile::tempfile().expect("a file");
            let mut packed = Vec::new();
            import(bytes.as_slice(), &mut packed, &Names::default(), stores).expect("it is a trace");
            file.write_all(&packed).and_then(|()| file.rewind()).expect("it is a file");
            let trace = Trace::open(file).expect("it is a trace");
            for (start, end) in (0..=run.len()).flat_map(|i| (i..=run.len()).map(move |j| (i, j))) {
                let part = Part { thread: None, range: start as u64..end as u64 };
                let (mut got, mut open) = (Vec::<u32>::new(), None);
                let read = trace.read_part(&part, |piece| {
                    open.get_or_insert_with(|| piece.open.to_vec());
                    assert_eq!(piece.first, (start + got.len()) as u64);
                    got.extend(piece.symbols);
                    ControlFlow::<()>::Continue(())
                });
                assert_eq!(read.expect("it is whole"), None);
                assert_eq!(got, run[start..end]);
                let mut want = Vec::new();
                for &code in &run[..start] {
                    match code {
                        0x8000_0000 => drop(want.pop()),
                        0x4000_0000.. => want.push(FuncId(code - 0x4000_0000)),
                        _ => {}
                    }
                }
                assert_eq!(open.unwrap_or_else(|| want.clone()), want, "{start}..{end}");
            }
        }
    }
}
