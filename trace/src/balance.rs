//! The promise of every trace, checked symbol by symbol: what is entered is left, in order, and blocks belong
//! to an open function.
//!
//! A stream may hold several roots one after the other. [`Balance`] also measures what a piece of a stream
//! does to the stack: [`Levels`], which the paper's `entryLevel`, `exitLevel` and `smallestEndLevel` come
//! from.

use crate::ids::FuncId;
use crate::symbol::{Step, Symbol};

/// Why a stream is no trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unbalanced {
    /// A code that is none.
    #[error("symbol {index} is {code:#010x}: no entry, block or exit")]
    NotASymbol {
        /// Its index in the stream.
        index: u64,
        /// What is there.
        code: u32,
    },
    /// A function is left, or a block executed, though none is open.
    #[error("symbol {index} is {what}, but no function is open there")]
    NothingOpen {
        /// Its index in the stream.
        index: u64,
        /// An exit or a block.
        what: &'static str,
    },
    /// The stream ends in open functions.
    #[error("the trace ends after {index} symbols with {n_open} functions that were not left")]
    LeftOpen {
        /// How long the stream is.
        index: u64,
        /// How many functions are open there.
        n_open: usize,
    },
}

/// What a piece of a stream does to the stack of open functions.
///
/// The paper's `smallestEndLevel` means two things when it is 0 (no exit at all; the exit of main), and its
/// `entryLevel` is never set. Here both are defined: with `entry` functions open before the piece, `pops` of
/// them are left in it, and `pushes` that are entered in it are still open behind it. So its smallest level
/// is `entry - pops`, its exit level `entry - pops + pushes`, and a state vector that skips the piece keeps
/// `entry - pops` entries and gets `pushes` new ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Levels {
    /// How many functions that were open before it are left in it.
    pub pops: u32,
    /// How many functions that are entered in it are open behind it.
    pub pushes: u32,
}

impl Levels {
    /// Those of the piece followed by `next`.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let cut = next.pops.min(self.pushes);
        Self {
            pops: self.pops.saturating_add(next.pops - cut),
            pushes: (self.pushes - cut).saturating_add(next.pushes),
        }
    }

    /// Those of one symbol.
    #[must_use]
    pub fn of(symbol: Symbol) -> Self {
        match symbol.step() {
            Step::Enter(_) => Self { pops: 0, pushes: 1 },
            Step::Block(_) => Self::default(),
            Step::Exit => Self { pops: 1, pushes: 0 },
        }
    }
}

/// The open functions of a stream, as far as it has been read.
#[derive(Clone, Default, Debug)]
pub struct Balance {
    open: Vec<FuncId>,
    index: u64,
    lowest: usize,
    at_mark: usize,
}

impl Balance {
    /// Takes the next symbol, and says whose it is: the function that is entered, left, or executes the
    /// block.
    ///
    /// # Errors
    /// If it cannot stand here.
    #[inline]
    pub fn push(&mut self, symbol: Symbol) -> Result<FuncId, Unbalanced> {
        let index = self.index;
        if !symbol.is_valid() {
            return Err(Unbalanced::NotASymbol { index, code: symbol.0 });
        }
        let func = match symbol.step() {
            Step::Enter(func) => {
                self.open.push(func);
                func
            }
            Step::Block(_) => *self.open.last().ok_or(Unbalanced::NothingOpen { index, what: "a block" })?,
            Step::Exit => {
                let func = self.open.pop().ok_or(Unbalanced::NothingOpen { index, what: "an exit" })?;
                self.lowest = self.lowest.min(self.open.len());
                func
            }
        };
        self.index += 1;
        Ok(func)
    }

    /// How many symbols it has taken.
    pub fn n_symbols(&self) -> u64 {
        self.index
    }

    /// The open functions, the outermost first.
    pub fn open(&self) -> &[FuncId] {
        &self.open
    }

    /// What the symbols since the last call did to the stack.
    pub fn levels_since(&mut self) -> Levels {
        let n = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let levels = Levels { pops: n(self.at_mark - self.lowest), pushes: n(self.open.len() - self.lowest) };
        (self.at_mark, self.lowest) = (self.open.len(), self.open.len());
        levels
    }

    /// Checks that the stream may end here.
    ///
    /// # Errors
    /// If functions are open.
    pub fn finish(&self) -> Result<(), Unbalanced> {
        match self.open.len() {
            0 => Ok(()),
            n_open => Err(Unbalanced::LeftOpen { index: self.index, n_open }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(codes: &[u32], expect: &str) {
        let mut balance = Balance::default();
        let result =
            codes.iter().try_for_each(|&c| balance.push(Symbol(c)).map(drop)).and_then(|()| balance.finish());
        assert_eq!(result.map_or_else(|err| err.to_string(), |()| "balanced".to_owned()), expect);
    }

    #[test]
    fn errors_name_the_position() {
        let (f, e) = (0x4000_0001, 0x8000_0000);
        check(&[f, 0, f, 0, e, 1, e, f, e], "balanced");
        check(&[f, 0, e, e], "symbol 3 is an exit, but no function is open there");
        check(&[f, 0, e, 0], "symbol 3 is a block, but no function is open there");
        check(&[f, 0, f], "the trace ends after 3 symbols with 2 functions that were not left");
        check(&[f, 0x3000_0000], "symbol 1 is 0x30000000: no entry, block or exit");
    }

    #[test]
    fn levels_of_pieces_add_up() {
        let codes = [0x4000_0001, 0, 0x4000_0002, 0x8000_0000, 0x8000_0000, 0x4000_0001, 0x4000_0001];
        let mut balance = Balance::default();
        let mut sum = Levels::default();
        for code in codes {
            balance.push(Symbol(code)).expect("it is a trace");
            let one = balance.levels_since();
            assert_eq!(one, Levels::of(Symbol(code)));
            sum = sum.then(one);
        }
        assert_eq!(sum, Levels { pops: 0, pushes: 2 });
        assert_eq!(
            Levels { pops: 1, pushes: 2 }.then(Levels { pops: 4, pushes: 1 }),
            Levels { pops: 3, pushes: 1 }
        );
    }
}
