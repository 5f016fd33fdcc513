//! What `engraft doctor` says: what of the machine works.

use crate::{Table, View};
use serde::Serialize;

/// What was looked at.
#[derive(Debug, Serialize)]
pub struct DoctorView {
    /// What this object is, and which version of it.
    pub schema: &'static str,
    /// A row a thing.
    pub checks: Vec<Check>,
}

impl DoctorView {
    /// The schema that its JSON names.
    pub const SCHEMA: &str = "engraft.doctor/1";
}

/// One thing that verbs need.
#[derive(Debug, Serialize)]
pub struct Check {
    /// The thing.
    pub what: &'static str,
    /// The verbs that need it.
    pub verbs: &'static str,
    /// Whether these verbs work without it, too, though not as well.
    pub is_spare: bool,
    /// Whether it works.
    pub works: bool,
    /// Why, or why not.
    pub why: String,
}

impl View for DoctorView {
    fn table(&self) -> Table {
        let mut t = Table::new(&["works", "what", "for", "why"]).wrapped();
        for c in &self.checks {
            let works = if c.works { "yes" } else { "NO" };
            t.row([works.to_owned(), c.what.to_owned(), c.verbs.to_owned(), c.why.clone()]);
        }
        t
    }
}
