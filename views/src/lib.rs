//! What the verbs say: data as text for people, JSON for programs, CSV for spreadsheets.
//!
//! Invariant: a view is what `--json` prints, field by field, and says its schema; it is stable. Types of the
//! libraries are not serialized: they change, views do not. Fields that only the text needs are skipped.
//!
//! Not here: where a view's values come from (each verb makes its own), and where they go (the command's
//! `output`). Nothing is computed, and no file is read.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod attach;
pub mod cache;
pub mod carry;
pub mod chart;
mod columns;
pub mod compare;
pub mod convert;
pub mod count;
mod death;
pub mod diff;
pub mod doctor;
pub mod instrument;
pub mod ipc;
mod look;
pub mod matches;
pub mod query;
pub mod recordings;
pub mod replace;
pub mod rescue;
pub mod sample;
pub mod show;
mod table;
pub mod trace;
pub mod values;

pub use death::DeathView;
pub use look::{Like, Look, NoColumn, wrap};
pub use table::Table;
pub use table::cells::{
    Between, address, counted, cut, fits, grouped, known, many, percent, ratio, share, share_if_any, size,
};

use serde::Serialize;
use std::io::{self, Write};

/// Data that can be shown in all forms.
pub trait View: Serialize {
    /// The rows that a spreadsheet gets.
    fn table(&self) -> Table;

    /// What people read: the table, unless there is more to say.
    ///
    /// # Errors
    /// If `w` cannot be written.
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        self.table().text(w)
    }

    /// One object on a line, as `engraft help json` describes it.
    ///
    /// # Errors
    /// If `w` cannot be written.
    fn json(&self, w: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *w, self)?;
        writeln!(w)
    }

    /// The table, comma-separated.
    ///
    /// # Errors
    /// If `w` cannot be written.
    fn csv(&self, w: &mut dyn Write) -> io::Result<()> {
        self.table().csv(w)
    }
}
