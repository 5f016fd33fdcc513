//! The last phase: what a rewritten module has besides its old segments, and what its tables say.
//!
//! ```text
//!  old segments              springboards over entries, tables changed in place
//!  counters   (RW, zero)     one word a block
//!  text       (RX)           the pieces, in the order of their old addresses
//!  tables     (R)            program headers, search table, unwind rows, language-specific data
//! ```

pub mod dynamic;
pub mod file;
pub mod lsda;
pub mod program_headers;
pub mod running;
pub mod segments;
pub mod symbols;
pub mod unwind;

use crate::arch::shared::PAGE;
use crate::layout::link::Text;
use program::Va;
use std::ops::Range;
use unwind::Unwind;

/// What a module has besides its old segments.
pub struct NewSegments {
    /// Where the first thread's counters are, with the page in front of them.
    pub counters: Range<Va>,
    /// The moved code, and the runtime.
    pub text: Text,
    /// Where the tables are: program headers first, the rest a page further on.
    pub tables: Va,
    /// The unwind tables, and names of moved code for the dynamic linker.
    pub unwind: Unwind,
    /// What a recording starts with that the module makes by itself, and the notes that go into it.
    pub notes: Option<Vec<u8>>,
}

impl NewSegments {
    /// Where the unwind tables are.
    pub fn unwind_at(&self) -> Va {
        self.tables.plus(PAGE)
    }

    /// Where the notes go, if there are any: behind the unwind tables.
    pub fn notes_at(&self) -> Va {
        self.unwind_at().plus(self.unwind.bytes.len().next_multiple_of(8) as u64)
    }

    /// All tables but the program headers.
    pub fn tables_behind_headers(&self) -> Vec<u8> {
        let mut bytes = self.unwind.bytes.clone();
        if let Some(notes) = &self.notes {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes.extend(notes);
        }
        bytes
    }
}
