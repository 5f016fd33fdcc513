//! A loop that ran, as every verb shows it.

use super::{known, ratio};
use crate::input;
use measure::loops::LoopRun;
use profile::Count;
use program::{Program, Va};
use serde::Serialize;

/// A loop that ran.
#[derive(Serialize)]
pub struct LoopView {
    /// The file it is in.
    pub module: String,
    /// What people call its function.
    pub function: String,
    /// Its first header.
    pub at: u64,
    depth: u32,
    iterations: u64,
    entries: Option<u64>,
    trips: Option<f64>,
    exits: Option<u64>,
    /// The least and the most of each of these, where it may be off.
    #[serde(skip_serializing_if = "Option::is_none")]
    iterations_between: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries_between: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trips_between: Option<(f64, f64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exits_between: Option<(u64, u64)>,
    /// Of its blocks, those of inner loops too.
    pub instructions: u64,
    /// Of all instructions, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl LoopView {
    /// Of one of `program`.
    pub fn of(run: &LoopRun, module: String, program: &Program) -> LoopView {
        let between = |n: Option<Count>| n.and_then(Count::between);
        // How often it went round each time is no number if it may not have been entered.
        let entered = run.entries.filter(|n| n.least > 0);
        let rounds = run.iterations;
        let trips = entered.map(|n| (ratio(rounds.least, n.most), ratio(rounds.most, n.least)));
        let is_off = rounds.between().is_some() || between(run.entries).is_some();
        LoopView {
            module,
            function: input::spelt(program, run.func),
            at: program.block(run.header).start.0,
            depth: run.depth,
            iterations: rounds.n,
            entries: run.entries.map(|n| n.n),
            trips: entered.map(|n| ratio(rounds.n, n.n)),
            exits: run.exits.map(|n| n.n),
            iterations_between: rounds.between(),
            entries_between: between(run.entries),
            trips_between: trips.filter(|_| is_off),
            exits_between: between(run.exits),
            instructions: run.instructions,
            share: None,
        }
    }

    /// What its columns are called, behind the first one.
    pub const HEADINGS: [&str; 8] =
        ["iterations>", "entries>", "trips>", "exits>", "depth>", "loop>", "function", "module"];

    /// Its columns, behind the first one; `name` is its function's, as long as there is room.
    pub fn cells(&self, name: String) -> [String; 8] {
        let count =
            |n: Option<u64>, between: Option<(u64, u64)>| known(n.map(|n| Count::of(n, between.as_ref())));
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
            Va(self.at).to_string(),
            name,
            self.module.clone(),
        ]
    }
}
