//! What a programmer could do about values.

use super::{AddressView, grouped, short};
use crate::Table;
use serde::Serialize;
use std::io::{self, Write};

/// How many are printed.
const TOP: usize = 20;

/// What could be done, and the numbers that it rests on.
#[derive(Debug, Serialize)]
pub struct AdviceView {
    /// `unroll`, `specialise`, `memoise`, `divisor`, `copy` or `float`.
    pub kind: &'static str,
    /// With which function, or what in it.
    pub function: String,
    /// Where.
    pub at: Option<AddressView>,
    /// The line there, where it is known.
    pub line: Option<u32>,
    /// How many seconds shorter the run would have been, where that is known.
    pub gain_s: Option<f64>,
    /// How often it was done.
    pub executions: u64,
    /// The numbers.
    pub because: String,
}

/// Prints what is advised.
pub(super) fn text(all: &[AdviceView], w: &mut dyn Write) -> io::Result<()> {
    writeln!(w, "advice:")?;
    let mut t = Table::new(&["gain>", "times>", "what", "where", "because"]);
    for one in all {
        let place = match &one.at {
            Some(AddressView { name: Some(name), .. }) if *name != one.function => {
                format!("{} in {name}", one.function)
            }
            _ => one.function.clone(),
        };
        let place = one.line.map_or_else(|| place.clone(), |line| format!("{place} (line {line})"));
        let gain = one.gain_s.map_or_else(|| "?".to_owned(), |gain_s| format!("{} s", short(gain_s)));
        t.row([gain, grouped(one.executions), one.kind.to_owned(), place, one.because.clone()]);
    }
    // The table says how many of its rows it leaves out.
    t.top(TOP, w)
}
