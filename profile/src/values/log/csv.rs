//! A log as CSV: a row a call, or a time that control came to a place.
//!
//! ```text
//! function,thread,index,caller,ARGUMENT…,result,ticks
//! ```
//! There is a column for each name that an argument of some function has, in order of appearance; where a
//! function has none of that name, its cell is empty, as are those of what is not known. An argument that is
//! called like another column has `argument.` in front. A caller is the module's file name, `!`, and the
//! address of the call in it; `live:` and the return address where that is not known.
//!
//! Source: RFC 4180.

use super::{Ended, Field, Log, Part, Table};
use crate::values::len_bytes;
use crate::vocabulary::ReadError;
use program::signature::{Type, text};
use std::collections::HashMap;
use std::io::{self, Write};

/// The columns that every log has.
const FIRST: [&str; 4] = ["function", "thread", "index", "caller"];
const LAST: [&str; 2] = ["result", "ticks"];

/// What is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Choice {
    /// Whether floating-point numbers are written as their bits, hexadecimal.
    pub has_bits: bool,
    /// The thread, from 1; `None`: all.
    pub thread: Option<u32>,
}

/// Why it could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Nothing can be written there.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Writes these `tables` of `log`, one behind the other; how many rows.
///
/// # Errors
/// If the log is damaged, or those of `to`.
pub fn write(log: &Log, tables: &[usize], choice: Choice, to: &mut dyn Write) -> Result<u64, CsvError> {
    let of = |n: &usize| log.tables.get(*n);
    let mut names: Vec<&str> = Vec::new();
    for field in tables.iter().filter_map(of).flat_map(|table| &table.arguments) {
        if !names.contains(&field.name.as_str()) {
            names.push(&field.name);
        }
    }
    let mut csv = csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(to);
    let is_taken = |name: &str| FIRST.contains(&name) || LAST.contains(&name);
    let header = names.iter().map(|name| match is_taken(name) {
        true => format!("argument.{name}"),
        false => (*name).to_owned(),
    });
    let all: Vec<String> =
        FIRST.map(str::to_owned).into_iter().chain(header).chain(LAST.map(str::to_owned)).collect();
    csv.write_record(&all).map_err(io::Error::from)?;
    let callers: HashMap<u64, String> = log.callers.iter().map(|(live, at)| (*live, spelt(at))).collect();
    let mut n_rows = 0;
    for &n in tables {
        if let Some(table) = log.tables.get(n) {
            n_rows += of_table(log, (n, table), choice, &names, &callers, &mut csv)?;
        }
    }
    csv.flush()?;
    Ok(n_rows)
}

fn spelt(at: &crate::values::Address) -> String {
    format!("{}!{:#x}", at.module.rsplit('/').next().unwrap_or_default(), at.at)
}

/// Writes the rows of a table; how many.
fn of_table<W: Write>(
    log: &Log,
    (n, table): (usize, &Table),
    choice: Choice,
    names: &[&str],
    callers: &HashMap<u64, String>,
    csv: &mut csv::Writer<W>,
) -> Result<u64, CsvError> {
    let all = [Part::Thread, Part::Index, Part::Caller, Part::Ended, Part::Ticks];
    let parts: Vec<Part> = all.into_iter().chain(table.fields().map(|(part, _)| part)).collect();
    // Of each column, what is in it, if the function has it. A name that several arguments have means the
    // first: unnamed ones have names of their own.
    let column = |name: &&str| {
        let at = table.arguments.iter().position(|field| field.name == **name)?;
        Some((Part::Argument(at), table.arguments.get(at)?))
    };
    let columns: Vec<Option<(Part, &Field)>> = names.iter().map(column).collect();
    let (mut bytes, mut n_rows) = (Vec::new(), 0);
    for block in log.blocks(n, &parts) {
        let block = block?;
        for row in 0..block.n_rows() {
            let thread = block.word(Part::Thread, row);
            if choice.thread.is_some_and(|wanted| u64::from(wanted) != thread) {
                continue;
            }
            n_rows += 1;
            let mut cell = |text: &str| csv.write_field(text).map_err(io::Error::from);
            cell(&table.name)?;
            cell(&thread.to_string())?;
            cell(&block.word(Part::Index, row).to_string())?;
            let caller = block.word(Part::Caller, row);
            match callers.get(&caller) {
                _ if table.is_place => cell("")?,
                Some(known) => cell(known)?,
                None => cell(&format!("live:{caller:#x}"))?,
            }
            let has_result = block.ended(row) == Ended::Result;
            let result = table.result.as_ref().filter(|_| has_result).map(|field| (Part::Result, field));
            for value in columns.iter().copied().chain([result]) {
                match value {
                    Some((part, field)) => {
                        block.bytes(part, row, len_bytes(&field.kind), &mut bytes);
                        cell(&shown(&field.kind, &bytes, choice.has_bits))?;
                    }
                    None => cell("")?,
                }
            }
            match table.has_times && has_result {
                true => cell(&block.word(Part::Ticks, row).to_string())?,
                false => cell("")?,
            }
            csv.write_record(None::<&[u8]>).map_err(io::Error::from)?;
        }
    }
    Ok(n_rows)
}

/// A value, a floating-point number perhaps by its bits, and so several of them.
fn shown(kind: &Type, bytes: &[u8], has_bits: bool) -> String {
    match has_bits && is_of_floats(kind) {
        true => text::bits(kind, bytes),
        false => text::text(kind, bytes),
    }
}

fn is_of_floats(kind: &Type) -> bool {
    match kind {
        Type::Float(_) => true,
        Type::Complex(of) => is_of_floats(of),
        Type::Vector { of, .. } | Type::Array { of, .. } => is_of_floats(of),
        _ => false,
    }
}
