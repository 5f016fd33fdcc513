//! Code of another file made to run in a process: laid out where there is room, and bound to what is there.
//!
//! ```text
//! file ─Graft::of_library, of_code→ Graft ─place(at, what names mean there)→ Grafted: parts to map
//! ```
//! Everything is bound at once, for the dynamic linker is not asked: it may hold a lock of its own at any
//! time.
//!
//! Not here: who knows what names mean in a process (crate `session`), how parts are mapped (crate `live`).
//!
//! Source: System V ABI, AMD64 supplement 1.0, 4.4 (relocation); U. Drepper, "ELF handling for thread-local
//! storage" 0.21, 4.3.6, 4.4.6.
#![warn(clippy::indexing_slicing)]

mod library;
#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;

use crate::arch::shared::PAGE;
use crate::arch::stand_in::{StandIn, To as Leads};
use crate::bytes::set_distance;
use crate::image::unwind;
use program::arch::RegSet;
use program::{Image, LiveVa, Va};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Code of a file, still at address 0 and bound to nothing.
#[derive(Clone, Debug)]
pub struct Graft {
    name: String,
    /// The file.
    bytes: Vec<u8>,
    /// By offset; each starts a page.
    parts: Vec<Part>,
    bindings: Vec<Binding>,
    names: Vec<Name>,
    /// What it defines, by name: offsets.
    defined: BTreeMap<Box<str>, u64>,
    /// Those of them that are functions, and entered where they are: not by what a resolver chooses.
    functions: BTreeSet<Box<str>>,
    /// Its code, and the search table of its unwind rows, if it has one.
    code: Range<u64>,
    unwind: Option<u64>,
    /// Which registers it changes, if that is known.
    changes: Option<RegSet>,
    /// Where memory of its own starts.
    data: u64,
}

/// Pages with the same rights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where: an offset, or an address in a process.
    pub at: u64,
    /// What is in it: whole pages.
    pub bytes: Vec<u8>,
    /// May be written.
    pub writable: bool,
    /// May be run.
    pub executable: bool,
}

impl Part {
    fn new(at: u64, mut bytes: Vec<u8>, len: u64, (writable, executable): (bool, bool)) -> Part {
        bytes.resize(usize::try_from(len.next_multiple_of(PAGE)).unwrap_or(usize::MAX), 0);
        Part { at, bytes, writable, executable }
    }

    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    fn has(&self, at: u64) -> bool {
        (self.at..self.end()).contains(&at)
    }
}

/// A name that somebody else gives a meaning.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name {
    /// What it is.
    pub name: Box<str>,
    /// Which version of it, if that matters.
    pub version: Option<Box<str>>,
    /// Nobody need have it: then it is 0.
    pub is_weak: bool,
    /// It is a variable of each thread's own.
    pub is_of_threads: bool,
}

/// What a name means in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// It is there.
    At(LiveVa),
    /// A thread has it so far from where its thread pointer leads; and, if that is known, in the memory that
    /// it has for module `module`, at `within`.
    InThread {
        /// The distance, mostly below 0.
        from_pointer: i64,
        /// The number that the dynamic linker knows its module by.
        module: Option<u64>,
        /// Where in the module's memory.
        within: u64,
    },
}

/// What a place is bound to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum To {
    /// An offset of its own.
    Own(u64),
    /// One of its names.
    Name(usize),
}

/// What is written to a place, 8 bytes: S is what it is bound to, A the addend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// S + A.
    Word,
    /// S + A from the thread pointer.
    FromThread,
    /// The number of the module that has S.
    Module,
    /// S + A in the memory that threads have of its module.
    WithinModule,
}

/// A place that is written once all is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Binding {
    at: u64,
    kind: Kind,
    to: To,
    addend: i64,
}

/// Why code of a file cannot be made to run in a process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraftError {
    /// It is no file of this kind, or damaged.
    #[error("{name} is not {what}: {why}")]
    NotOne {
        /// The file.
        name: String,
        /// What it should be, with an article.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// It has variables of each thread's own, for which running threads have no memory.
    #[error(
        "{name} defines variables of threads (thread-local storage), which threads that run have no room for"
    )]
    DefinesThreadData {
        /// The file.
        name: String,
    },
    /// It is to run something before all else.
    #[error("{name} has constructors, which nobody would run")]
    Constructors {
        /// The file.
        name: String,
    },
    /// It has a relocation that we do not know.
    #[error("{name} has relocation {kind} at {at:#x}, which is not known to us")]
    Relocation {
        /// The file.
        name: String,
        /// The offset.
        at: u64,
        /// Its number in the ABI.
        kind: u32,
    },
    /// Nobody gives a name a meaning.
    #[error("{name} needs {wanted}, which {why}")]
    Unbound {
        /// The file.
        name: String,
        /// The name.
        wanted: String,
        /// Why it has none.
        why: String,
    },
}

impl GraftError {
    /// What can be done about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            GraftError::NotOne { .. } => {
                Some("`gcc -shared -fPIC` makes one of a source; `ld -shared` of an object file")
            }
            GraftError::DefinesThreadData { .. } => {
                Some("declare them `extern`, so that the program's own are used, or keep them elsewhere")
            }
            GraftError::Constructors { .. } => {
                Some("have the function itself prepare what it needs, when it runs first")
            }
            GraftError::Unbound { .. } => {
                Some("what it needs must be in the process already: name it as the program does")
            }
            GraftError::Relocation { .. } => None,
        }
    }
}

/// Code as it is in a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grafted {
    /// What is to be mapped, by address.
    pub parts: Vec<Part>,
    /// Where its code is.
    pub code: Range<u64>,
    /// Where the search table of its unwind rows is, if it has one.
    pub unwind: Option<u64>,
}

impl Graft {
    /// Code that needs nothing and nobody: it starts with its first byte.
    pub fn of_code(name: &str, code: &[u8]) -> Graft {
        let len = code.len() as u64;
        Graft {
            name: name.to_owned(),
            bytes: Vec::new(),
            parts: vec![Part::new(0, code.to_vec(), len, (false, true))],
            bindings: Vec::new(),
            names: Vec::new(),
            defined: BTreeMap::new(),
            functions: BTreeSet::new(),
            code: 0..len,
            unwind: None,
            changes: None,
            data: 0,
        }
    }

    /// Code of ours, called `name`; what its slots are called is to be given a meaning.
    ///
    /// # Panics
    /// Never: its code says where its places are.
    pub fn of_stand_in(name: &str, made: &StandIn) -> Graft {
        let mut bytes = made.code.clone();
        bytes.resize(bytes.len().next_multiple_of(8), crate::arch::emit::TRAP);
        let slots_at = bytes.len();
        bytes.resize(slots_at + 8 * made.slots.len(), 0);
        let code = 0..made.code.len() as u64;
        let unwind = bytes.len() as u64;
        bytes.extend(unwind::of_code(&(Va(0)..Va(code.end)), &made.row, Va(unwind)));
        let data = (bytes.len() as u64).next_multiple_of(PAGE);
        for (at, end, to) in &made.places {
            let to = match to {
                Leads::Data(offset) => data + offset,
                Leads::Slot(n) => (slots_at + 8 * n) as u64,
            };
            set_distance(&mut bytes, *at, to.wrapping_sub(*end as u64));
        }
        let name_of =
            |slot: &&str| Name { name: (*slot).into(), version: None, is_weak: false, is_of_threads: false };
        let binding = |n: usize| Binding {
            at: (slots_at + 8 * n) as u64,
            kind: Kind::Word,
            to: To::Name(n),
            addend: 0,
        };
        let mut parts = vec![Part::new(0, bytes, data, (false, true))];
        if made.data_len > 0 {
            parts.push(Part::new(data, Vec::new(), made.data_len, (true, false)));
        }
        Graft {
            parts,
            bindings: (0..made.slots.len()).map(binding).collect(),
            names: made.slots.iter().map(name_of).collect(),
            code,
            unwind: Some(unwind),
            changes: Some(made.changes),
            data,
            ..Graft::of_code(name, &[])
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that it is from, if that is one.
    pub fn file(&self) -> Option<Image> {
        Image::parse(self.bytes.clone(), &self.name).ok()
    }

    /// How many bytes it takes up: whole pages.
    pub fn len_bytes(&self) -> u64 {
        self.parts.last().map_or(0, Part::end)
    }

    /// Which registers it changes, if that is known.
    pub fn changes(&self) -> Option<RegSet> {
        self.changes
    }

    /// Where memory of its own starts, of code of ours: an offset.
    pub fn data(&self) -> u64 {
        self.data
    }

    /// Where what it defines by this name is: an offset.
    pub fn defined(&self, name: &str) -> Option<u64> {
        self.defined.get(name).copied()
    }

    /// Where the function is that it defines by this name: an offset.
    pub fn function(&self, name: &str) -> Option<u64> {
        self.defined(name).filter(|_| self.functions.contains(name))
    }

    /// All names that it defines.
    pub fn defines(&self) -> impl Iterator<Item = &str> {
        self.defined.keys().map(|name| &**name)
    }

    /// It at `at`, where its names mean what `means` says; or why they mean nothing.
    ///
    /// # Errors
    /// If a name means nothing.
    pub fn place(
        &self,
        at: LiveVa,
        means: impl FnMut(&Name) -> Result<Meaning, String>,
    ) -> Result<Grafted, GraftError> {
        let meanings: Vec<_> = self.names.iter().map(means).collect();
        let mut parts = self.parts.clone();
        for binding in &self.bindings {
            let value = self.value(at, binding, &meanings)?;
            let part = parts.iter_mut().rev().find(|part| part.at <= binding.at);
            let place = part.and_then(|part| {
                let from = usize::try_from(binding.at - part.at).ok()?;
                part.bytes.get_mut(from..from.checked_add(value.len())?)
            });
            place
                .ok_or_else(|| self.damaged("a relocation is outside of what is loaded"))?
                .copy_from_slice(&value);
        }
        parts.iter_mut().for_each(|part| part.at += at.0);
        Ok(Grafted {
            parts,
            code: at.0 + self.code.start..at.0 + self.code.end,
            unwind: self.unwind.map(|unwind| at.0 + unwind),
        })
    }

    /// What is written where `binding` says.
    fn value(
        &self,
        base: LiveVa,
        binding: &Binding,
        meanings: &[Result<Meaning, String>],
    ) -> Result<[u8; 8], GraftError> {
        let Binding { kind, to, addend, .. } = *binding;
        let wanted = || match to {
            To::Name(n) => self.names.get(n).map_or_else(String::new, |name| name.name.to_string()),
            To::Own(offset) => format!("{offset:#x}"),
        };
        let meaning = match to {
            To::Own(offset) => Meaning::At(LiveVa(base.0.wrapping_add(offset))),
            To::Name(n) => match meanings.get(n) {
                Some(Ok(meaning)) => *meaning,
                Some(Err(_)) if self.names.get(n).is_some_and(|name| name.is_weak) => Meaning::At(LiveVa(0)),
                Some(Err(why)) => return Err(self.unbound(wanted(), why)),
                None => return Err(self.damaged("a relocation names no symbol")),
            },
        };
        match (kind, meaning) {
            (Kind::Word, Meaning::At(to)) => Ok(to.0.wrapping_add_signed(addend).to_le_bytes()),
            (Kind::FromThread, Meaning::InThread { from_pointer, .. }) => {
                Ok(from_pointer.wrapping_add(addend).to_le_bytes())
            }
            (Kind::Module, Meaning::InThread { module: Some(module), .. }) => Ok(module.to_le_bytes()),
            (Kind::WithinModule, Meaning::InThread { within, .. }) => {
                Ok(within.wrapping_add_signed(addend).to_le_bytes())
            }
            (Kind::Module, Meaning::InThread { module: None, .. }) => Err(self.unbound(
                wanted(),
                "is of a module whose number is not known: compile with -ftls-model=initial-exec",
            )),
            (_, Meaning::At(_)) => Err(self.unbound(wanted(), "is no variable of threads there")),
            (_, Meaning::InThread { .. }) => Err(self.unbound(wanted(), "is a variable of threads there")),
        }
    }

    fn unbound(&self, wanted: String, why: &str) -> GraftError {
        GraftError::Unbound { name: self.name.clone(), wanted, why: why.to_owned() }
    }

    fn damaged(&self, why: &str) -> GraftError {
        GraftError::NotOne { name: self.name.clone(), what: "whole", why: why.to_owned() }
    }
}
