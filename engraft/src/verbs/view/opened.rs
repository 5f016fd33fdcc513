//! Recordings that are looked at: found, opened when they are first asked for, and kept.

use super::reports::{self, Report, failed};
use crate::input::{self, Source};
use crate::output::Hinted;
use crate::verbs::sample::recorded::Recorded;
use crate::verbs::show::{self, CountedFunction};
use crate::verbs::{query, values};
use anyhow::Context as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;
use viewer::{Drawing, Failed, FlowGraph, Recordings};
use views::carry::CarryView;
use views::compare::kept::KeptComparison;
use views::compare::matrix::MatrixView;
use views::count::CountView;
use views::matches::MatchView;
use views::matches::explain::ExplainView;
use views::query::QueryView;
use views::query::hottest::HottestView;
use views::recordings::{RecordingRow, RecordingsView, What};
use views::sample::SampleView;
use views::show::costs::{CallTree, Ways};
use views::show::counts::CountsView;
use views::show::function::FunctionView;
use views::show::time::TimeView;
use views::values::ValuesView;

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
    valued: OnceLock<Result<Arc<ValuesView>, Failed>>,
    hottest: OnceLock<Result<Arc<HottestView>, Failed>>,
    sampled: OnceLock<Result<Arc<SampleView>, Failed>>,
    trees: Mutex<Vec<(String, Tree)>>,
    times: Mutex<Vec<(Shown, Arc<TimeView>)>>,
    report: Report,
}

/// How many symbols are shown on both sides of what was looked for in a trace.
const AROUND: u64 = 12;

/// How many of the most frequent paths are shown, of how many blocks each.
const PATHS: usize = 100;
const PATH_BLOCKS: usize = 3;

/// Which thread, and which part of it.
type Shown = (Option<usize>, Option<(u64, u64)>);

/// How many of these are kept.
const TIMES: usize = 16;

/// A tree of calls.
type Tree = Arc<CountsView<CallTree>>;

/// How many trees are kept of a recording: of one function, they are soon made again.
const TREES: usize = 6;

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
            valued: OnceLock::new(),
            hottest: OnceLock::new(),
            sampled: OnceLock::new(),
            trees: Mutex::default(),
            times: Mutex::default(),
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
    if let Some(recording) = source.sampled()? {
        let command = recording.run.map(|run| crate::verbs::count::fill::run_view(&run).command_line());
        return Ok(row(What::Samples, command));
    }
    if source.values()?.is_some() {
        return Ok(row(What::Values, None));
    }
    let run = source.needed_recording()?.run;
    let command = run.map(|run| crate::verbs::count::fill::run_view(&run).command_line());
    Ok(row(What::Counts, command))
}

/// The recording at `path` in a format of another tool.
fn exported(path: &Path, to: &str) -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("cannot make a folder for it")?;
    let file = folder.path().join("export");
    // By a process of its own, which says nothing here, and whose memory goes with it.
    let us = std::env::current_exe().context("cannot find engraft itself")?;
    let mut convert = Command::new(us);
    convert.args(["convert", "-q", "--to", to, "-o"]).arg(&file).arg("--").arg(path).stdin(Stdio::null());
    let done = convert.output().context("cannot start engraft convert")?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let mut lines = said.lines().map(|line| line.trim_start_matches("engraft: "));
        let what = lines.next().unwrap_or("it cannot be converted").to_owned();
        let hints: Vec<&str> = lines.map(|line| line.trim_start_matches("hint: ")).collect();
        return Err(Hinted::new(what, hints.join("\n")).into());
    }
    std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))
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

    fn valued(&self, n: usize) -> Result<Arc<ValuesView>, Failed> {
        let file = self.file(n)?;
        let open = || {
            let view = values::recorded(&file.path)?;
            view.map(Arc::new).with_context(|| format!("{} has no values", file.path.display()))
        };
        file.valued.get_or_init(|| open().map_err(|err| failed(&err))).clone()
    }

    fn plot(&self, n: usize, name: &str) -> Result<String, Failed> {
        show::plot::plot(&self.file(n)?.path, name).map_err(|err| failed(&err))
    }

    fn found(&self, n: usize, path: &str, nth: u64) -> Result<QueryView, Failed> {
        query::found(&self.file(n)?.path, path, nth, AROUND).map_err(|err| failed(&err))
    }

    fn hottest(&self, n: usize) -> Result<Arc<HottestView>, Failed> {
        let file = self.file(n)?;
        let find = || query::hottest(&file.path, PATH_BLOCKS, PATHS).map(Arc::new);
        file.hottest.get_or_init(|| find().map_err(|err| failed(&err))).clone()
    }

    fn exported(&self, n: usize, to: &str) -> Result<Vec<u8>, Failed> {
        exported(&self.file(n)?.path, to).map_err(|err| failed(&err))
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

    fn sampled(&self, n: usize) -> Result<Arc<SampleView>, Failed> {
        let file = self.file(n)?;
        let open = || {
            let recorded = Recorded::open(&file.path)?;
            let recorded =
                recorded.ok_or_else(|| anyhow::anyhow!("{} has no samples", file.path.display()))?;
            anyhow::Ok(Arc::new(recorded.view()))
        };
        file.sampled.get_or_init(|| open().map_err(|err| failed(&err))).clone()
    }

    fn tree(&self, n: usize, ways: Ways<'_>) -> Result<Tree, Failed> {
        let file = self.file(n)?;
        let key = format!("{ways:?}");
        // Who asks meanwhile waits for the first one: it takes long, and is asked for again and again.
        let mut kept = file.trees.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tree)) = kept.iter().find(|(of, _)| *of == key) {
            return Ok(tree.clone());
        }
        let tree = match (ways, kept.iter().find(|(of, _)| *of == format!("{:?}", Ways::All))) {
            (Ways::Inverted, Some((_, all))) => Ok(show::trees::inverted(all)),
            _ => show::trees::of(&file.path, ways),
        };
        let tree = Arc::new(tree.map_err(|err| failed(&err))?);
        if kept.len() >= TREES {
            // All that there is is asked for most.
            let is_of_one = |(of, _): &(String, Tree)| of != "All" && of != "Inverted";
            let oldest = kept.iter().position(is_of_one).unwrap_or_default();
            kept.remove(oldest);
        }
        kept.push((key, tree.clone()));
        Ok(tree)
    }

    fn time(
        &self,
        n: usize,
        thread: Option<usize>,
        between: Option<(u64, u64)>,
    ) -> Result<Arc<TimeView>, Failed> {
        let file = self.file(n)?;
        let mut kept = file.times.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, time)) = kept.iter().find(|(of, _)| *of == (thread, between)) {
            return Ok(time.clone());
        }
        let part = between.map(|(from, to)| show::time::Between { from, to });
        let asked = show::time::Asked { thread: thread.and_then(NonZeroUsize::new), between: part };
        let time = Arc::new(show::time::view(&file.path, asked).map_err(|err| failed(&err))?);
        if kept.len() >= TIMES {
            kept.remove(0);
        }
        kept.push(((thread, between), time.clone()));
        Ok(time)
    }
}
