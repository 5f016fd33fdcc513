//! Reports that `--json` wrote: of `match`, `carry` and `compare --matrix`, and the builds that they name.

use crate::input;
use crate::output::{self, Hinted};
use crate::verbs::matches;
use anyhow::Context as _;
use matching::{Matching, Options};
use program::Program;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use viewer::Failed;
use views::carry::CarryView;
use views::compare::matrix::MatrixView;
use views::matches::explain::ExplainView;
use views::matches::{BuildView, MatchView};
use views::recordings::What;

/// What the file at `path` reports, if it is a report that there are pages for. It begins with its schema.
pub fn what(path: &Path) -> Option<What> {
    const LONGEST: u64 = 64;
    let mut start = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut start).ok()?;
    let text = String::from_utf8_lossy(&start);
    // With or without spaces: people look at such files, and other tools write them anew.
    let text = text.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"schema\"")?.trim_start();
    let schema = text.strip_prefix(':')?.trim_start().strip_prefix('"')?.split('"').next()?;
    match schema {
        MatchView::SCHEMA => Some(What::Match),
        CarryView::SCHEMA => Some(What::Carry),
        MatrixView::SCHEMA => Some(What::Matrix),
        _ => None,
    }
}

/// Why something is not shown, as it is said on the command line.
pub fn failed(err: &anyhow::Error) -> Failed {
    Failed { what: format!("{err:#}"), hint: output::hint(err) }
}

/// A report, once it was asked for.
#[derive(Default)]
pub struct Report {
    matched: OnceLock<Result<Arc<MatchView>, Failed>>,
    carried: OnceLock<Result<Arc<CarryView>, Failed>>,
    matrix: OnceLock<Result<Arc<MatrixView>, Failed>>,
    builds: OnceLock<Result<Builds, Failed>>,
}

/// Two builds, matched as the report has it.
struct Builds {
    old: Program,
    new: Program,
    matching: Matching,
}

/// Reads the report at `path`.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Arc<T>, Failed> {
    let open = || {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let report: T = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no whole report", path.display()))?;
        anyhow::Ok(Arc::new(report))
    };
    open().map_err(|err| failed(&err))
}

impl Report {
    /// That of `match` at `path`.
    pub fn matched(&self, path: &Path) -> Result<Arc<MatchView>, Failed> {
        self.matched.get_or_init(|| read(path)).clone()
    }

    /// That of `carry` at `path`.
    pub fn carried(&self, path: &Path) -> Result<Arc<CarryView>, Failed> {
        self.carried.get_or_init(|| read(path)).clone()
    }

    /// That of `compare --matrix` at `path`.
    pub fn matrix(&self, path: &Path) -> Result<Arc<MatrixView>, Failed> {
        self.matrix.get_or_init(|| read(path)).clone()
    }

    /// A function of the builds that the report of `match` at `path` names, block by block.
    pub fn explained(&self, path: &Path, name: &str) -> Result<ExplainView, Failed> {
        let report = self.matched(path)?;
        let open = || builds(&report, path).map_err(|err| failed(&err));
        let builds = self.builds.get_or_init(open).as_ref().map_err(Clone::clone)?;
        matches::explained(&builds.old, &builds.new, &builds.matching, name).map_err(|err| failed(&err))
    }
}

/// Analyses the builds that a report names, and matches them again: it has no code.
fn builds(report: &MatchView, path: &Path) -> anyhow::Result<Builds> {
    let open = |build: &BuildView| {
        // Named from where `match` ran: here, else beside the report.
        let named = PathBuf::from(&build.binary);
        let beside = path.parent().unwrap_or(Path::new("")).join(&named);
        let program = input::program(if named.exists() { &named } else { &beside })?;
        if program.image.id.to_string() != build.image_id {
            let what = format!("{} is not the build that the report is of", build.binary);
            return Err(Hinted::new(what, "match the builds again, and look at that").into());
        }
        anyhow::Ok(program)
    };
    let (old, new) = (open(&report.old)?, open(&report.new)?);
    let matching = Matching::compute(&old, &new, &Options::all());
    Ok(Builds { old, new, matching })
}
