//! Recordings that are looked at: found, opened when they are first asked for, and kept.

use super::reports::{self, Report, failed};
use crate::input::{self, Source};
use crate::output::Hinted;
use crate::verbs::show::{self, CountedFunction};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;
use viewer::{Drawing, Failed, FlowGraph, Recordings};
use views::carry::CarryView;
use views::compare::kept::KeptComparison;
use views::compare::matrix::MatrixView;
use views::count::CountView;
use views::matches::MatchView;
use views::matches::explain::ExplainView;
use views::recordings::{RecordingRow, RecordingsView, What};
use views::show::function::FunctionView;

/// Recordings, with what was read of them.
pub struct Opened {
    list: RecordingsView,
    files: Vec<File>,
    /// Where sources may be.
    sources: Vec<PathBuf>,
    /// The function that was asked for last: its page asks for its code, then for its graph.
    last: Mutex<Option<Last>>,
}

/// A function of a recording, by its name.
struct Last {
    n: usize,
    name: String,
    function: Arc<CountedFunction>,
}

/// What was read of a recording, once that was asked for.
struct File {
    path: PathBuf,
    counted: OnceLock<Result<Arc<CountView>, Failed>>,
    compared: OnceLock<Result<Arc<KeptComparison>, Failed>>,
    report: Report,
}

impl Opened {
    /// Those at `paths`.
    ///
    /// # Errors
    /// If one cannot be read, or there is no page for what it is.
    pub fn named(paths: &[PathBuf]) -> anyhow::Result<Opened> {
        let rows = paths.iter().map(|path| Ok((row(path)?, path.clone())));
        Ok(Opened::of(rows.collect::<anyhow::Result<_>>()?))
    }

    /// Those in this folder, the newest first. What there is no page for is left out.
    pub fn here() -> Opened {
        let names = std::fs::read_dir(".").into_iter().flatten().flatten();
        let names = names.map(|entry| PathBuf::from(entry.file_name()));
        let is_one = |path: &PathBuf| {
            let ends = path.extension().is_some_and(|end| end == "engraft" || end == "trace");
            let is_report =
                path.extension().is_some_and(|end| end == "json") && reports::what(path).is_some();
            is_report
                || ends && (input::is_recording(path) || input::is_trace(path) || input::is_comparison(path))
        };
        let mut found: Vec<(SystemTime, PathBuf)> =
            names.filter(is_one).filter_map(|path| Some((written(&path)?, path))).collect();
        found.sort();
        let rows = found.into_iter().rev().filter_map(|(_, path)| Some((row(&path).ok()?, path)));
        Opened::of(rows.collect())
    }

    fn of(all: Vec<(RecordingRow, PathBuf)>) -> Opened {
        let (recordings, paths): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let file = |path| File {
            path,
            counted: OnceLock::new(),
            compared: OnceLock::new(),
            report: Report::default(),
        };
        Opened {
            list: RecordingsView { schema: RecordingsView::SCHEMA, recordings },
            files: paths.into_iter().map(file).collect(),
            sources: Vec::new(),
            last: Mutex::new(None),
        }
    }

    /// With sources below these folders, and none from elsewhere.
    pub fn with_sources(self, folders: Vec<PathBuf>) -> Opened {
        Opened { sources: folders, ..self }
    }

    /// Function `name` of recording `n`.
    fn one(&self, n: usize, name: &str) -> Result<Arc<CountedFunction>, Failed> {
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = last().as_ref().filter(|last| last.n == n && last.name == name) {
            return Ok(found.function.clone());
        }
        let opened = CountedFunction::open(&self.file(n)?.path, name).map_err(|err| failed(&err))?;
        let function = Arc::new(opened);
        *last() = Some(Last { n, name: name.to_owned(), function: function.clone() });
        Ok(function)
    }

    fn file(&self, n: usize) -> Result<&File, Failed> {
        self.files.get(n).ok_or_else(|| Failed { what: format!("there is no recording {n}"), hint: None })
    }
}

/// When it was written.
fn written(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// What is at `path`.
///
/// # Errors
/// If it cannot be read, or there is no page for what it is.
fn row(path: &Path) -> anyhow::Result<RecordingRow> {
    let time = |at| humantime::format_rfc3339_seconds(at).to_string();
    let row = |what, command| RecordingRow {
        recording: path.display().to_string(),
        what,
        command,
        written: written(path).map(time),
    };
    if input::is_comparison(path) {
        return Ok(row(What::Comparison, None));
    }
    if input::is_trace(path) {
        return Ok(row(What::Trace, None));
    }
    if let Some(what) = reports::what(path) {
        return Ok(row(what, None));
    }
    let source = Source::read(path)?;
    let has_none = |what: &str| {
        let what = format!("{} has {what}, which there is no page for yet", path.display());
        Hinted::new(what, format!("`engraft show {}` shows them", path.display()))
    };
    if source.sampled()?.is_some() {
        return Err(has_none("samples").into());
    }
    if source.values()?.is_some() {
        return Err(has_none("values of calls").into());
    }
    let run = source.needed_recording()?.run;
    let command = run.map(|run| crate::verbs::count::fill::run_view(&run).command_line());
    Ok(row(What::Counts, command))
}

impl Recordings for Opened {
    fn all(&self) -> &RecordingsView {
        &self.list
    }

    fn counted(&self, n: usize) -> Result<Arc<CountView>, Failed> {
        let file = self.file(n)?;
        let open = || show::report(&file.path).map(Arc::new).map_err(|err| failed(&err));
        file.counted.get_or_init(open).clone()
    }

    fn function(&self, n: usize, name: &str) -> Result<FunctionView, Failed> {
        Ok(self.one(n, name)?.view(&self.file(n)?.path, &self.sources))
    }

    fn graph(&self, n: usize, name: &str, drawing: &Drawing<'_>) -> Result<FlowGraph, Failed> {
        Ok(self.one(n, name)?.graph(drawing))
    }

    fn matched(&self, n: usize) -> Result<Arc<MatchView>, Failed> {
        let file = self.file(n)?;
        file.report.matched(&file.path)
    }

    fn explained(&self, n: usize, name: &str) -> Result<ExplainView, Failed> {
        let file = self.file(n)?;
        file.report.explained(&file.path, name)
    }

    fn carried(&self, n: usize) -> Result<Arc<CarryView>, Failed> {
        let file = self.file(n)?;
        file.report.carried(&file.path)
    }

    fn matrix(&self, n: usize) -> Result<Arc<MatrixView>, Failed> {
        let file = self.file(n)?;
        file.report.matrix(&file.path)
    }

    fn compared(&self, n: usize) -> Result<Arc<KeptComparison>, Failed> {
        let file = self.file(n)?;
        let open = || {
            let mut kept = input::comparison(&file.path)?;
            kept.comparison.metric.clone_from(&kept.metric);
            anyhow::Ok(Arc::new(kept))
        };
        file.compared.get_or_init(|| open().map_err(|err| failed(&err))).clone()
    }
}
