//! What a trace is made of: functions entered, blocks executed, functions left.
//!
//! ```text
//! 0x4000_0000 | i   F_i: function i is entered
//! j < 0x4000_0000   B_j: block j of the function on top of the stack of open functions
//! 0x8000_0000       E: the function on top is left
//! ```
//! Two marks that a recorder sets and a plain file does not have: `0x2000_0000` on an entry says that it came
//! from outside (a callback, a handler, the middle of a run), the low bits of an exit say its [`Cause`]. No
//! search looks at them.

use crate::ids::{BlockId, FuncId};

/// One step of a run. Ordered and compared as its code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symbol(pub u32);

/// What a [`Symbol`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// This function is entered.
    Enter(FuncId),
    /// This block of the function on top of the stack is executed.
    Block(BlockId),
    /// The function on top of the stack is left.
    Exit,
}

/// Why a function was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It returned.
    Return = 0,
    /// It jumped to another function, which takes its place.
    Tail = 1,
    /// An exception passed through it.
    Exception = 2,
    /// `longjmp` passed over it.
    Longjmp = 3,
    /// The process ended in it.
    ProcessEnd = 4,
    /// Its thread was cancelled or ended in it.
    ThreadEnd = 5,
    /// The recording ended in it.
    RecordingEnd = 6,
    /// `exec` replaced the program.
    Exec = 7,
}

impl Cause {
    /// All, in order.
    pub const ALL: [Self; 8] = [
        Self::Return,
        Self::Tail,
        Self::Exception,
        Self::Longjmp,
        Self::ProcessEnd,
        Self::ThreadEnd,
        Self::RecordingEnd,
        Self::Exec,
    ];

    /// The one with this number.
    pub fn numbered(n: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| *cause as u64 == n)
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Tail => "tail",
            Self::Exception => "exception",
            Self::Longjmp => "longjmp",
            Self::ProcessEnd => "process end",
            Self::ThreadEnd => "thread end",
            Self::RecordingEnd => "recording end",
            Self::Exec => "exec",
        }
    }
}

const ENTER: u32 = 0x4000_0000;
const EXIT: u32 = 0x8000_0000;
const FROM_OUTSIDE: u32 = 0x2000_0000;

impl Symbol {
    /// E, with no cause but that it returned.
    pub const EXIT: Self = Self(EXIT);
    /// How many functions and blocks there may be.
    pub const LIMIT: u32 = FROM_OUTSIDE;

    /// F of function `func`, which is below [`Symbol::LIMIT`].
    #[inline]
    pub fn enter(func: FuncId) -> Self {
        Self(ENTER | func.0 & (FROM_OUTSIDE - 1))
    }

    /// B of block `block`, which is below [`Symbol::LIMIT`].
    pub fn block(block: BlockId) -> Self {
        Self(block.0 & (FROM_OUTSIDE - 1))
    }

    /// E for a reason.
    pub fn exit(cause: Cause) -> Self {
        Self(EXIT | cause as u32)
    }

    /// The same entry, marked as one that none of the functions on the stack made.
    #[inline]
    #[must_use]
    pub fn from_outside(self) -> Self {
        Self(self.0 | FROM_OUTSIDE)
    }

    /// Whether it is an entry with that mark.
    pub fn is_from_outside(self) -> bool {
        self.0 & (EXIT | ENTER | FROM_OUTSIDE) == ENTER | FROM_OUTSIDE
    }

    /// Why a function is left; `None` of what is no exit.
    pub fn cause(self) -> Option<Cause> {
        let has = |cause: &Cause| Self::exit(*cause) == self;
        Cause::ALL.into_iter().find(has)
    }

    /// What it says. A code that is none, which [`Symbol::is_valid`] tells, comes out as one of its
    /// neighbours.
    #[inline]
    pub fn step(self) -> Step {
        if self.0 & EXIT != 0 {
            Step::Exit
        } else if self.0 & ENTER != 0 {
            Step::Enter(FuncId(self.0 & (FROM_OUTSIDE - 1)))
        } else {
            Step::Block(BlockId(self.0))
        }
    }

    /// Whether it is a block: the question that a scan asks most.
    #[inline]
    pub fn is_block(self) -> bool {
        self.0 < ENTER
    }

    /// Whether it is an entry, of whatever function.
    #[inline]
    pub fn is_entry(self) -> bool {
        self.0 >> 30 == ENTER >> 30
    }

    /// Whether it is an entry of this function, which is below [`Symbol::LIMIT`].
    #[inline]
    pub fn is_entry_of(self, func: FuncId) -> bool {
        self.0 & !FROM_OUTSIDE == ENTER | func.0
    }

    /// Whether it is an exit.
    #[inline]
    pub fn is_exit(self) -> bool {
        self.0 & EXIT != 0
    }

    /// Whether this is the code of a symbol.
    pub fn is_valid(self) -> bool {
        if self.0 & EXIT != 0 {
            self.0 <= EXIT | Cause::Exec as u32
        } else {
            self.0 & ENTER != 0 || self.0 < Self::LIMIT
        }
    }

    /// The same without marks, as plain files have it.
    #[must_use]
    pub fn plain(self) -> Self {
        match self.step() {
            Step::Enter(func) => Self::enter(func),
            Step::Block(_) => self,
            Step::Exit => Self::EXIT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_plain_files() {
        assert_eq!(Symbol::enter(FuncId(5)).0, 0x4000_0005);
        assert_eq!(Symbol::block(BlockId(7)).0, 7);
        assert_eq!(Symbol::EXIT.0, 0x8000_0000);
        assert_eq!(Symbol::enter(FuncId(5)).from_outside().step(), Step::Enter(FuncId(5)));
        assert_eq!(Symbol::exit(Cause::Longjmp).plain(), Symbol::EXIT);
        assert_eq!(Symbol::enter(FuncId(5)).from_outside().plain(), Symbol::enter(FuncId(5)));
    }

    #[test]
    fn what_is_no_symbol_is_known() {
        for code in [0x2000_0000, 0x3fff_ffff, 0x8000_0008, 0xffff_ffff, 0xc000_0000] {
            assert!(!Symbol(code).is_valid(), "{code:#x}");
        }
    }
}
