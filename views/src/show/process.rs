//! `show -p PID`: the modules of a process that runs on.

use crate::{Table, View, address, many};
use serde::Serialize;
use std::io::{self, Write};

/// A process's modules.
#[derive(Debug, Serialize)]
pub struct ProcessView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// The process.
    pub pid: i32,
    /// Its modules, the executable first, then by address.
    pub modules: Vec<ModuleView>,
}

impl ProcessView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.show/1";
}

/// A module, or code that is of none.
#[derive(Debug, Serialize)]
pub struct ModuleView {
    /// Its file, as the process names it; else what it is, in brackets.
    pub module: String,
    /// Where it begins in the process.
    pub at: u64,
    /// How much of the process's addresses it takes.
    pub len_bytes: u64,
    /// What became of its file: `there`, `deleted`, `replaced`, `none`.
    pub file: &'static str,
    /// What is known of it.
    #[serde(flatten)]
    pub known: Option<KnownView>,
    /// Why nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What is known of a module's code.
#[derive(Debug, Serialize)]
pub struct KnownView {
    /// From what: `file`, `memory`, `perf-map`.
    pub from: &'static str,
    /// What is added to an address of its file; 0 for code that has none.
    pub bias: u64,
    /// Identifies its code.
    pub image_id: String,
    /// Bytes of code.
    pub code_bytes: u64,
    /// How many functions.
    pub n_functions: usize,
    /// How many blocks.
    pub n_blocks: usize,
    /// How many edges.
    pub n_edges: usize,
    /// How many loops.
    pub n_loops: usize,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

impl View for ProcessView {
    fn table(&self) -> Table {
        let mut t = Table::new(&[
            "at>",
            "code>",
            "functions>",
            "blocks>",
            "edges>",
            "loops>",
            "from",
            "file",
            "module",
        ]);
        for m in &self.modules {
            let known = m.known.as_ref();
            let count = |n: fn(&KnownView) -> usize| known.map_or_else(String::new, |k| n(k).to_string());
            t.row([
                address(m.at),
                known.map_or_else(String::new, |k| k.code_bytes.to_string()),
                count(|k| k.n_functions),
                count(|k| k.n_blocks),
                count(|k| k.n_edges),
                count(|k| k.n_loops),
                known.map_or("not known", |k| k.from).into(),
                m.file.into(),
                m.module.clone(),
            ]);
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        writeln!(w, "process {}: {}", self.pid, many(self.modules.len(), "module"))?;
        self.table().text(w)?;
        for m in &self.modules {
            let notes = m.known.iter().flat_map(|k| &k.notes).chain(&m.why);
            notes.into_iter().try_for_each(|note| writeln!(w, "{}: {note}", m.module))?;
        }
        Ok(())
    }
}
