//! Many builds on many inputs, each against one of the builds, or against the best.

use super::fill::Sums;
use super::gate::Looked;
use super::record::{Alike, Input, Run, differences};
use super::{Args, fill};
use crate::output::{Answer, Hinted};
use matching::compare::{Asked, By};
use serde::Deserialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use views::compare::matrix::{MatrixRow, MatrixView};
use views::compare::{Both, CompareView, RunsView};

/// The file that says what is compared. Paths are from where it is.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Matrix {
    /// The builds.
    builds: Vec<Build>,
    /// What they are given.
    inputs: Vec<Given>,
    /// The name of the build that the others are compared with; without one, the one with least of the
    /// metric.
    against: Option<String>,
    /// What the shell runs before each run.
    setup: Option<String>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Build {
    name: String,
    path: PathBuf,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Given {
    name: String,
    /// Arguments.
    #[serde(default)]
    args: Vec<String>,
    /// The file that is standard input.
    stdin: Option<PathBuf>,
}

fn wrong(path: &Path, what: &str, hint: &str) -> anyhow::Error {
    Hinted::new(format!("{}: {what}", path.display()), hint.to_owned()).into()
}

impl Matrix {
    fn read(path: &Path) -> anyhow::Result<Matrix> {
        let text = crate::input::text(path)?;
        let matrix: Matrix = toml::from_str(&text).map_err(|err| {
            let hint = "it has [[builds]] with name and path, [[inputs]] with name, args and stdin, \
                        against and setup; see `engraft help compare`";
            wrong(path, &err.to_string(), hint)
        })?;
        if matrix.builds.len() < 2 || matrix.inputs.is_empty() {
            return Err(wrong(path, "there is nothing to compare", "name two builds and an input at least"));
        }
        for (what, names) in [
            ("builds", matrix.builds.iter().map(|of| &of.name).collect::<Vec<_>>()),
            ("inputs", matrix.inputs.iter().map(|of| &of.name).collect()),
        ] {
            if let Some((_, name)) =
                names.iter().enumerate().find(|(n, name)| names.iter().take(*n).any(|of| of == *name))
            {
                return Err(wrong(path, &format!("two {what} are called {name}"), "give each its own name"));
            }
        }
        let is_known = |name: &String| matrix.builds.iter().any(|build| build.name == *name);
        if let Some(name) = matrix.against.as_ref().filter(|name| !is_known(name)) {
            return Err(wrong(
                path,
                &format!("no build is called {name}"),
                "name one of [[builds]], or none",
            ));
        }
        Ok(matrix)
    }
}

/// Runs all builds on all inputs, and compares them.
///
/// # Errors
/// If the file cannot be read, or a build cannot be run.
pub fn run(args: &Args, path: &Path) -> anyhow::Result<Answer> {
    let matrix = Matrix::read(path)?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let paths: Vec<PathBuf> = matrix.builds.iter().map(|build| found(folder, &build.path)).collect();
    let mut rows = Vec::new();
    for given in &matrix.inputs {
        let words: Vec<_> = given.args.iter().map(Into::into).collect();
        let input = match &given.stdin {
            Some(file) => Input::File(folder.join(file)),
            None => Input::Nothing,
        };
        let setup = matrix.setup.as_deref().map(OsStr::new);
        let named = paths.iter().map(PathBuf::as_path).collect();
        let programs = Alike::new(named, &words, input, setup)?;
        let runs: Vec<Run> =
            (0..paths.len()).map(|n| programs.record(n, 0)).collect::<anyhow::Result<_>>()?;
        rows.extend(compared(args, &matrix, given, &runs)?);
    }
    let view = MatrixView { schema: MatrixView::SCHEMA, metric: args.metric.clone(), rows };
    args.output.print(&view)?;
    let is_alike = view.rows.iter().all(|row| row.runs.are_alike());
    Ok(if is_alike && !view.rows.iter().any(|row| row.fails) { Answer::Yes } else { Answer::No })
}

/// A path of the file, or the name of a program.
fn found(folder: &Path, path: &Path) -> PathBuf {
    if path.components().count() > 1 { folder.join(path) } else { path.to_owned() }
}

/// One input: each build against that which all are compared with.
fn compared(args: &Args, matrix: &Matrix, given: &Given, runs: &[Run]) -> anyhow::Result<Vec<MatrixRow>> {
    let recorded = runs.iter().map(|run| super::Recorded::read(&run.trace));
    let recorded: Vec<super::Recorded> = recorded.collect::<anyhow::Result<_>>()?;
    let all: Vec<_> = runs.iter().map(|run| run.trace.as_path()).zip(&recorded).collect();
    let read = super::read(&all, false)?;
    let compare = |old: usize, new: usize, is_asked: bool| -> anyhow::Result<(CompareView, RunsView, bool)> {
        let [Some(a), Some(b)] = [read.get(old), read.get(new)] else { anyhow::bail!("a run is missing") };
        let sides = [a.side(), b.side()];
        let by = By::Metric(super::told_by(args));
        let wants_mixes = args.fail_if.is_some();
        let asked = Asked { unsteady: &Default::default(), by, wants_mixes };
        let found = super::by_scheme(args.scheme, &sides, &super::was(a, b), &asked)?;
        let alike = differences(&[&runs[old], &runs[new]], 1)?;
        let none = Sums::default();
        let steady = <[matching::compare::Unsteady; 2]>::default();
        let view = fill::view(args, None, (&sides, &steady), &found, &none);
        let fails = is_asked && super::fails(args, &Looked::new(&view, (&sides, &steady), &found, &none));
        Ok((view, alike, fails))
    };
    let by_name = |name: &String| matrix.builds.iter().position(|build| build.name == *name);
    let against = match matrix.against.as_ref().and_then(by_name) {
        Some(against) => against,
        None => {
            let metric = |n: usize| -> anyhow::Result<f64> {
                Ok(fill::amount(&compare(0, n, false)?.0.totals.new, &args.metric))
            };
            let all: Vec<f64> = (0..runs.len()).map(metric).collect::<anyhow::Result<_>>()?;
            (0..all.len()).min_by(|a, b| all[*a].total_cmp(&all[*b])).unwrap_or_default()
        }
    };
    let row = |(n, build): (usize, &Build)| -> anyhow::Result<MatrixRow> {
        let (view, runs, fails) = compare(against, n, true)?;
        let amount = |all| fill::amount(all, &args.metric);
        Ok(MatrixRow {
            input: given.name.clone(),
            old: matrix.builds[against].name.clone(),
            new: build.name.clone(),
            amount: Both { old: amount(&view.totals.old), new: amount(&view.totals.new) },
            matched: view.matched.clone(),
            largest: view.outliers.first().cloned(),
            fails,
            runs,
            totals: view.totals,
            functions: view.functions,
        })
    };
    matrix.builds.iter().enumerate().filter(|(n, _)| *n != against).map(row).collect()
}
