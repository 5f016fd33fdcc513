//! A loop that ran, as every verb shows it.

use crate::{address, counted, known};
use serde::Serialize;

/// A loop that ran.
#[derive(Clone, Debug, Serialize)]
pub struct LoopView {
    /// The file it is in.
    pub module: String,
    /// What people call its function.
    pub function: String,
    /// Its first header.
    pub at: u64,
    /// How many loops hold it, itself too.
    pub depth: u32,
    /// How often it went round.
    pub iterations: u64,
    /// How often it was entered.
    pub entries: Option<u64>,
    /// Iterations an entry, on average.
    pub trips: Option<f64>,
    /// How often it was left.
    pub exits: Option<u64>,
    /// The least and the most of each of these, where it may be off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations_between: Option<(u64, u64)>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries_between: Option<(u64, u64)>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trips_between: Option<(f64, f64)>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exits_between: Option<(u64, u64)>,
    /// Of its blocks, those of inner loops too.
    pub instructions: u64,
    /// Of all instructions, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl LoopView {
    /// What its columns are called, behind the first one.
    pub const HEADINGS: [&str; 8] =
        ["iterations>", "entries>", "per entry>", "exits>", "depth>", "loop>", "function", "module"];

    /// Those that a narrow page can do without.
    pub const SPARE: [&str; 2] = ["exits", "depth"];

    /// Its columns, behind the first one; `name` is its function's, as long as there is room.
    pub fn cells(&self, name: String) -> [String; 8] {
        let count = |n: Option<u64>, between: Option<(u64, u64)>| known(n.map(|n| counted(n, between)));
        let trips = match (self.trips, self.trips_between) {
            (_, Some((least, most))) => {
                let [least, most] = [least, most].map(|n| format!("{n:.1}"));
                if least == most { least } else { format!("{least}..{most}") }
            }
            (Some(n), None) => format!("{n:.1}"),
            (None, None) => known(None::<u64>),
        };
        [
            count(Some(self.iterations), self.iterations_between),
            count(self.entries, self.entries_between),
            trips,
            count(self.exits, self.exits_between),
            self.depth.to_string(),
            address(self.at),
            name,
            self.module.clone(),
        ]
    }
}
