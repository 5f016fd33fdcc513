//! What `engraft rescue` says.

use crate::{Table, View};
use serde::Serialize;
use std::io::{self, Write};

/// Processes that somebody is attached to, or that were given back.
#[derive(Debug, Serialize)]
pub struct RescueView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// Those that somebody is attached to, or was, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<Vec<AttachedView>>,
    /// Those that were given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_back: Option<Vec<GivenBackView>>,
}

impl RescueView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.rescue/1";
}

/// A process that somebody is attached to, or was.
#[derive(Debug, Serialize)]
pub struct AttachedView {
    /// Its number.
    pub pid: i32,
    /// What it is called.
    pub name: String,
}

/// A process that was given back.
#[derive(Debug, Serialize)]
pub struct GivenBackView {
    /// Its number.
    pub pid: i32,
    /// How long all its threads stood still.
    pub pause_us: u64,
    /// Why something of ours is in it still.
    pub left: Option<String>,
    /// What of new code stays for good, though nobody is led there; nothing, if none does.
    pub stays: Option<String>,
}

impl View for RescueView {
    fn table(&self) -> Table {
        if let Some(attached) = &self.attached {
            let mut table = Table::new(&["process>", "name"]);
            attached.iter().for_each(|one| table.row([one.pid.to_string(), one.name.clone()]));
            return table;
        }
        let mut table = Table::new(&["process>", "stopped for, µs>", "left"]);
        for one in self.given_back.iter().flatten() {
            let stays = one.stays.as_ref().map(|stays| format!("of what stood in for functions, {stays}"));
            let left = one.left.clone().or(stays).unwrap_or_else(|| "nothing".to_owned());
            table.row([one.pid.to_string(), one.pause_us.to_string(), left]);
        }
        table
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        if self.attached.as_ref().is_some_and(Vec::is_empty) {
            return writeln!(w, "nobody is attached to any process");
        }
        self.table().text(w)
    }
}
