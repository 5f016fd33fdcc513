//! Who called whom in both builds, and what it cost in each.

use super::{Both, difference, times, whole};
use crate::{Table, View, look, many};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// The calls of both builds as one tree: functions that are the same stand in one row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CallTrees {
    /// What all cost, in instructions.
    pub total: Both<u64>,
    /// The rows: what is called stands behind its caller, the costliest first.
    pub tree: Vec<CallsRow>,
}

/// Calls along one way, in both builds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallsRow {
    /// Its number.
    pub id: usize,
    /// The number of the caller's row; `null`: there is none.
    pub under: Option<usize>,
    /// How many callers are above it.
    pub depth: usize,
    /// The function; `null`: it stands for others.
    pub function: Option<String>,
    /// The file that it is in.
    pub module: String,
    /// What it cost in the old build.
    pub old: CallsCost,
    /// And in the new one.
    pub new: CallsCost,
    /// How many ways of less than a ten thousandth of both builds it stands for.
    #[serde(default, skip_serializing_if = "is_none")]
    pub elided: u64,
}

/// What calls along one way cost in a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CallsCost {
    /// With all that they called.
    pub inclusive: u64,
    /// Without it.
    pub own: u64,
    /// How many there were.
    pub calls: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(n: &u64) -> bool {
    *n == 0
}

impl CallsRow {
    /// What it is called.
    pub fn name(&self) -> String {
        match &self.function {
            Some(name) => name.clone(),
            None => format!("({})", many(usize::try_from(self.elided).unwrap_or(usize::MAX), "narrow way")),
        }
    }

    /// By how much the new build has more, or less, with all that is called.
    pub fn by(&self) -> f64 {
        number(self.new.inclusive) - number(self.old.inclusive)
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of what runs are below 2^53")]
fn number(n: u64) -> f64 {
    n as f64
}

/// The calls of both builds.
#[derive(Debug, Serialize)]
pub struct CallTreesView<'a> {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The tree.
    #[serde(flatten)]
    pub trees: &'a CallTrees,
}

/// How many rows people see.
const TOP: usize = 40;

impl<'a> CallTreesView<'a> {
    /// The schema that its JSON names.
    pub const SCHEMA: &'static str = "engraft.compare-tree/1";

    /// Of this tree.
    pub fn of(trees: &'a CallTrees) -> CallTreesView<'a> {
        CallTreesView { schema: CallTreesView::SCHEMA, trees }
    }

    fn rows(rows: &[&CallsRow], is_indented: bool) -> Table {
        let mut t = Table::new(&[
            "difference>",
            "times>",
            "old>",
            "new>",
            "own>",
            "then>",
            "depth>",
            "function",
            "module",
        ])
        .with_spare(&["depth", "own", "then"]);
        for row in rows {
            let [old, new] = [row.old, row.new].map(|cost| number(cost.inclusive));
            let indent = if is_indented { "  ".repeat(row.depth) } else { String::new() };
            t.row([
                difference(old, new),
                if row.old.inclusive == 0 { "-".to_owned() } else { times(old, new) },
                whole(old),
                whole(new),
                row.old.own.to_string(),
                row.new.own.to_string(),
                row.depth.to_string(),
                indent + &row.name(),
                row.module.clone(),
            ]);
        }
        t
    }
}

impl View for CallTreesView<'_> {
    fn table(&self) -> Table {
        CallTreesView::rows(&self.trees.tree.iter().collect::<Vec<_>>(), false)
    }

    /// As a tree, unless rows are to be sorted or chosen by name: then it is none.
    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let look = look::look();
        if look.sort.is_some() || look.filter.is_some() {
            return self.table().text(w);
        }
        // What is above a row costs no less in either build, so it is among the costliest, too.
        let mut rows: Vec<&CallsRow> = self.trees.tree.iter().collect();
        let n = look.n_rows.unwrap_or(TOP).min(rows.len());
        rows.sort_by_key(|row| (std::cmp::Reverse(row.old.inclusive.max(row.new.inclusive)), row.id));
        rows.truncate(n);
        rows.sort_by_key(|row| row.id);
        CallTreesView::rows(&rows, true).whole(w)?;
        let more = self.trees.tree.len() - n;
        if more > 0 {
            writeln!(w, "and {more} more that cost less: -n {} shows all", self.trees.tree.len())?;
        }
        let Both { old, new } = &self.trees.total;
        writeln!(w, "{old} instructions in all, then {new}")
    }
}
