//! `show REC --by line`, `file`, `module`: where a recording's instructions went; `caller`, `thread`: whose
//! values there were.

use super::counts::Image;
use crate::input;
use measure::reports::lines;
use profile::values::log::Part;
use rayon::prelude::*;
use std::collections::BTreeMap;
use views::ratio;
use views::show::by::{By, Row, Rows};
use views::show::counts::{CountsView, SCHEMA};

/// By what instructions are summed up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Key {
    /// A row a function
    Function,
    /// A row a source line
    Line,
    /// A row a source file
    File,
    /// A row an executable or library
    Module,
    /// Of calls that `values --full` recorded: those that were made at each place
    Caller,
    /// Of the same: those of each thread
    Thread,
}

impl Key {
    /// What rows of a log have in common, if it is of these.
    pub fn part(self) -> Option<Part> {
        match self {
            Key::Caller => Some(Part::Caller),
            Key::Thread => Some(Part::Thread),
            _ => None,
        }
    }
}

/// Instructions of `images`, by `key`; `total` is what a trace of them knows to have run: what the counts of
/// blocks do not tell, which is padding behind branches, is of no line.
pub fn view(images: &[Image], key: Key, total: Option<u64>) -> CountsView<By> {
    let each: Vec<_> = images.par_iter().map(|(program, profile)| lines::run(profile, program)).collect();
    let mut sums: BTreeMap<(String, Option<String>, Option<u32>), u64> = BTreeMap::new();
    for ((program, profile), found) in images.iter().zip(each) {
        let module = input::module_name(profile, program);
        for (place, n) in found {
            let (file, line) = place.unzip();
            let place = match key {
                Key::Line => (module.clone(), file, line),
                Key::File => (module.clone(), file, None),
                _ => (module.clone(), None, None),
            };
            add(&mut sums, place, n);
        }
    }
    let counted = sums.values().fold(0, |sum: u64, n| sum.saturating_add(*n));
    if let (Some(more), Some((program, profile))) =
        (total.and_then(|total| total.checked_sub(counted)).filter(|n| *n > 0), images.first())
    {
        add(&mut sums, (input::module_name(profile, program), None, None), more);
    }
    let instructions = counted.max(total.unwrap_or(0));
    let row = |((module, file, line), n)| Row {
        module,
        file,
        line,
        instructions: n,
        share: ratio(n, instructions),
    };
    let mut rows: Vec<Row> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.instructions));
    let rows = match key {
        Key::Line => Rows::Lines(rows),
        Key::File => Rows::Files(rows),
        _ => Rows::Modules(rows),
    };
    CountsView { schema: SCHEMA, rows: By { instructions, rows } }
}

fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K, n: u64) {
    let sum = sums.entry(key).or_insert(0);
    *sum = sum.saturating_add(n);
}
