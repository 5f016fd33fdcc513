//! A module rewritten as a file, which counts by itself.

use crate::module::{ModuleError, explained, written_path};
use measure::plan_text::Points;
use probe::{Module, Plan, RewriteError, Room};
use program::Program;
use std::path::Path;

/// Why a module is not rewritten as a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstrumentError {
    /// Lines of a plan ask for what cannot be.
    #[error("{}", lines.join("\n"))]
    Plan {
        /// The lines, and why not.
        lines: Vec<String>,
    },
    /// There is no room for the first call of ours.
    #[error("{image} has no room for DT_INIT, where our code would start")]
    NoInit {
        /// The file.
        image: String,
    },
    /// It cannot be rewritten.
    #[error(transparent)]
    Module(#[from] ModuleError),
}

/// The module of `program`, which was read from `path`, with `points` in its moved code and with what its
/// counters mean; it records to a file that is called after `path`.
///
/// # Errors
/// If it cannot be rewritten, or the points are nowhere.
pub fn instrument<'p>(
    program: &'p Program,
    path: &Path,
    points: &Points,
) -> Result<Module<'p>, InstrumentError> {
    // Who runs the file, and on which kernel, is not known.
    let plan = Plan { old_kernels: true, ..points.plan.clone() };
    let built = Module::build(program, &plan, Room::Behind);
    let mut module = built.map_err(|err| match err {
        RewriteError::Probes { why, .. } if !points.lines.is_empty() => {
            let lines = why.iter().filter_map(|(n, why)| {
                points.lines.get(*n).map(|(line, what)| format!("line {line}, `{what}`: {why}"))
            });
            InstrumentError::Plan { lines: lines.collect() }
        }
        err => explained(&program.image, err.into()).into(),
    })?;
    if points.plan.is_null() {
        return Ok(module);
    }
    if !module.can_start() {
        return Err(InstrumentError::NoInit { image: program.image.name.clone() });
    }
    let mut notes = measure::notes(&module);
    notes.watches = points.watches(&module.words.probes);
    notes.image.name = written_path(&path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    module.set_notes(&format!("{name}.engraft"), &notes.write());
    Ok(module)
}
