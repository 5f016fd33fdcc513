//! `engraft convert` for recordings of `values --full`: a table with a row for each call.

use super::Args;
use super::traces::{Target, target};
use crate::input::{self, Source};
use crate::output::{self, Answer, Hinted};
use anyhow::Context as _;
use profile::Format;
use profile::values::log::Log;
use profile::values::log::csv::{self, Choice, CsvError};
use std::path::Path;
use views::convert::{LoggedView, RowsView};

/// Makes CSV of a log; `None` if the only input is none.
///
/// # Errors
/// If it cannot be read or written, or something else is asked for than it can become.
pub fn convert(args: &Args) -> anyhow::Result<Option<Answer>> {
    let is_asked = !args.function.is_empty() || args.bits;
    let refused = || {
        let what = "--function and --bits are for one recording of `values --full` that becomes X.csv";
        Hinted::new(what, "record with `engraft values --full`").into()
    };
    let [path] = args.inputs.as_slice() else { return if is_asked { Err(refused()) } else { Ok(None) } };
    let source = match input::is_recording(path) {
        true => Some(Source::read(path)?),
        false => None,
    };
    let Some(log) = source.as_ref().and_then(Source::log) else {
        return if is_asked { Err(refused()) } else { Ok(None) };
    };
    if target(args) != Some(Target::Profile(Format::Csv)) {
        let what = format!("{} has the values of calls, which become CSV and nothing else", path.display());
        return Err(Hinted::new(what, "name the output X.csv").into());
    }
    output::refuse_replacing(&args.o, &[path])?;
    let tables = tables(log, path, &args.function)?;
    let thread = args.thread.and_then(|n| u32::try_from(n.get()).ok());
    let choice = Choice { has_bits: args.bits, thread };
    let (mut n_rows, mut unread) = (0, None);
    output::data(Some(&args.o), |w| {
        n_rows = csv::write(log, &tables, choice, w).map_err(|err| match err {
            CsvError::Write(err) => err,
            err => {
                let told = std::io::Error::other(err.to_string());
                unread = Some(err);
                told
            }
        })?;
        Ok(())
    })
    .map_err(|err| unread.take().map_or(err, anyhow::Error::from))
    .with_context(|| format!("cannot convert {}", path.display()))?;
    let logged = |n: &usize| LoggedView {
        function: log.tables.get(*n).map(|table| table.name.clone()).unwrap_or_default(),
        n_rows: log.n_rows(*n),
        n_bytes: log.n_bytes(*n),
    };
    let functions = tables.iter().map(logged).collect();
    let view = RowsView { schema: RowsView::SCHEMA, file: args.o.display().to_string(), n_rows, functions };
    args.output.print_beside_file(&args.o, &view)?;
    Ok(Some(Answer::Yes))
}

/// The tables of the functions with these names, or all.
fn tables(log: &Log, path: &Path, names: &[String]) -> anyhow::Result<Vec<usize>> {
    if names.is_empty() {
        return Ok((0..log.tables.len()).collect());
    }
    let mut all = Vec::new();
    for name in names {
        let of =
            (0..log.tables.len()).filter(|n| log.tables.get(*n).is_some_and(|table| table.name == *name));
        let before = all.len();
        all.extend(of);
        if all.len() == before {
            let known: Vec<&str> = log.tables.iter().take(10).map(|table| table.name.as_str()).collect();
            let what = format!("the log in {} has no row of {name}", path.display());
            return Err(Hinted::new(what, format!("it has those of {}", known.join(", "))).into());
        }
    }
    Ok(all)
}
