//! Why a function is not moved.
//!
//! Not here: who finds that out (`movable`, `jump_tables`, `springboard`).

use std::fmt;

/// Why a function stays where it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NotMoved {
    /// A PLT stub: its unwind rule computes with its own address.
    PltStub,
    /// Found by its looks alone: it may be data.
    Uncertain,
    /// Some of its control flow is not understood.
    Incomplete,
    /// It calls into its own middle, to learn where it stands.
    ReadsItsAddress,
    /// A signal frame, which the kernel and debuggers know by its address or bytes.
    SignalFrame,
    /// It has a table of a form that cannot be changed in place, or shares one with a function that stays.
    Table,
    /// It holds an instruction that cannot be moved.
    FixedInstruction,
    /// There is no room at an entry for a jump to the moved code.
    NoRoom,
    /// Code whose runtime looks it up by its addresses: Go's, OCaml's, Haskell's, V8's.
    ChecksAddresses,
    /// Too much of the program is found by its looks alone to trust the rest.
    Strange,
    /// It has a part of a restartable sequence, which the kernel knows by its addresses.
    Restartable,
    /// Its unwind table holds what we do not know, so moved code would have none.
    Unwind,
    /// It calls what acts by where it is called from, which must be a module that ld.so has loaded.
    KnowsCaller,
    /// Others alone are wanted ([`crate::Plan::replaced`]).
    NotAsked,
}

impl NotMoved {
    /// All reasons.
    const ALL: [NotMoved; 14] = [
        NotMoved::PltStub,
        NotMoved::Uncertain,
        NotMoved::Incomplete,
        NotMoved::ReadsItsAddress,
        NotMoved::SignalFrame,
        NotMoved::Table,
        NotMoved::FixedInstruction,
        NotMoved::NoRoom,
        NotMoved::ChecksAddresses,
        NotMoved::Strange,
        NotMoved::Restartable,
        NotMoved::Unwind,
        NotMoved::KnowsCaller,
        NotMoved::NotAsked,
    ];

    /// The reason that a recording kept as `text`; one that only another version knows is none of ours.
    pub fn from_text(text: &str) -> Option<NotMoved> {
        NotMoved::ALL.into_iter().find(|why| why.to_string() == text)
    }
}

impl fmt::Display for NotMoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotMoved::PltStub => "PLT stub",
            NotMoved::Uncertain => "found by its looks alone",
            NotMoved::Incomplete => "control flow not understood",
            NotMoved::ReadsItsAddress => "reads its own address",
            NotMoved::SignalFrame => "signal frame",
            NotMoved::Table => "jump table that cannot be changed",
            NotMoved::FixedInstruction => "an instruction that cannot be moved",
            NotMoved::NoRoom => "no room for a jump at an entry",
            NotMoved::ChecksAddresses => "checks its own addresses",
            NotMoved::Strange => "most of the program is found by its looks alone",
            NotMoved::Restartable => "restartable sequence (rseq)",
            NotMoved::Unwind => "unwind table not understood",
            NotMoved::KnowsCaller => "calls dlsym, which acts by who calls it",
            NotMoved::NotAsked => "nobody asks for it",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_found_again_by_its_text() {
        for (n, why) in NotMoved::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, n, "a reason is missing before {why:?}");
            assert_eq!(NotMoved::from_text(&why.to_string()), Some(why));
        }
        assert_eq!(NotMoved::ALL.len(), NotMoved::NotAsked as usize + 1, "the last reason is missing");
        assert_eq!(NotMoved::from_text("another"), None);
    }
}
