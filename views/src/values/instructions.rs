//! Instructions that were recorded for what they are: what is divided by, where indirect calls and jumps
//! lead, how much string instructions take, which accesses are not aligned.

use super::{AddressView, grouped, several};
use crate::Table;
use crate::table::cells::{ratio, share};
use serde::Serialize;
use std::io::{self, Write};

/// How many of a kind are printed.
const TOP: usize = 20;

/// An instruction.
#[derive(Debug, Serialize)]
pub struct InstructionView {
    /// `divisor`, `target`, `size` (how many elements a string instruction takes), or `access` (of memory).
    pub kind: &'static str,
    /// The function, and how far from its start.
    pub place: String,
    /// The file.
    pub module: String,
    /// Where in it.
    pub address: u64,
    /// How often it ran.
    pub executions: u64,
    /// How many different values there were; at least, if they are more than 65,536.
    pub distinct: u64,
    /// Those that came most; none of accesses.
    pub top: Vec<TargetView>,
    /// The length of an element in bytes, of sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub element: Option<u8>,
    /// How many bytes are read or written, of accesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u8>,
    /// Of these: how often the address was no multiple of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misaligned: Option<u64>,
    /// And how often part of it was in another line of 64 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<u64>,
}

/// A value of an instruction: a number, or where it leads.
#[derive(Debug, Serialize)]
pub struct TargetView {
    /// The number, or the function there.
    pub value: String,
    /// Where that is, of targets whose file is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<AddressView>,
    /// How often it came.
    pub count: u64,
}

/// Prints them, by kind.
pub(super) fn text(all: &[InstructionView], w: &mut dyn Write) -> io::Result<()> {
    let mut is_first = true;
    for (kind, what, of) in [
        ("divisor", "what is divided by", "divisor"),
        ("target", "where indirect calls and jumps lead", "target"),
        ("size", "how many elements string instructions take", "elements"),
    ] {
        let rows: Vec<&InstructionView> = all.iter().filter(|one| one.kind == kind).collect();
        if rows.is_empty() {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            writeln!(w)?;
        }
        writeln!(w, "{what}:")?;
        let mut t = Table::new(&["times>", "different>", of, "share>", "where"]);
        for one in rows {
            let Some(top) = one.top.first() else { continue };
            let value = match one.element {
                Some(element) => format!("{} of {} each", top.value, several(element.into(), "byte")),
                None => top.value.clone(),
            };
            let part = share(ratio(top.count, one.executions));
            t.row([grouped(one.executions), grouped(one.distinct), value, part, one.place.clone()]);
        }
        // The table says how many of its rows it leaves out.
        t.top(TOP, w)?;
    }
    let accesses: Vec<&InstructionView> = all.iter().filter(|one| one.kind == "access").collect();
    if accesses.is_empty() {
        return Ok(());
    }
    if !is_first {
        writeln!(w)?;
    }
    let total = |of: &dyn Fn(&InstructionView) -> u64| accesses.iter().map(|one| of(one)).sum::<u64>();
    let misaligned = total(&|one| one.misaligned.unwrap_or(0));
    writeln!(
        w,
        "{} times memory was read or written, by {}: {} not aligned, {} over the end of a line",
        grouped(total(&|one| one.executions)),
        several(accesses.len() as u64, "instruction"),
        grouped(misaligned),
        grouped(total(&|one| one.split.unwrap_or(0))),
    )?;
    let mut rows: Vec<&InstructionView> =
        accesses.into_iter().filter(|one| one.misaligned.unwrap_or(0) > 0).collect();
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_by_key(|one| std::cmp::Reverse((one.split, one.misaligned)));
    let mut t = Table::new(&["times>", "bytes>", "not aligned>", "over a line>", "where"]);
    for one in rows {
        let part = |n: Option<u64>| share(ratio(n.unwrap_or(0), one.executions));
        let width = one.width.unwrap_or(0).to_string();
        t.row([grouped(one.executions), width, part(one.misaligned), part(one.split), one.place.clone()]);
    }
    t.top(TOP, w)
}
