//! What the pages show, as whoever has the recordings gives it.

use std::sync::Arc;
use views::compare::kept::KeptComparison;
use views::count::CountView;
use views::recordings::RecordingsView;
use views::sample::SampleView;
use views::show::costs::{CallTree, Ways};
use views::show::counts::CountsView;
use views::show::function::FunctionView;
use views::show::time::TimeView;

/// Recordings that are looked at, numbered as [`Recordings::all`] lists them.
///
/// It is asked from several threads, and again for each page: what takes long is kept.
pub trait Recordings: Send + Sync {
    /// Which there are.
    fn all(&self) -> &RecordingsView;

    /// What recording `n` counted.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    fn counted(&self, n: usize) -> Result<Arc<CountView>, Failed>;

    /// A function of recording `n`, by its name or `MODULE!ADDRESS`.
    ///
    /// # Errors
    /// If there is none.
    fn function(&self, n: usize, name: &str) -> Result<FunctionView, Failed>;

    /// Its flow graph, as an SVG picture.
    ///
    /// # Errors
    /// If there is none.
    fn graph(&self, n: usize, name: &str) -> Result<String, Failed>;

    /// What recording `n` says of two builds.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    fn compared(&self, n: usize) -> Result<Arc<KeptComparison>, Failed>;

    /// Where the samples of recording `n` are.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    fn sampled(&self, n: usize) -> Result<Arc<SampleView>, Failed>;

    /// Who called whom in recording `n`, along these ways.
    ///
    /// # Errors
    /// If it cannot be read, does not know that, or there is no such function.
    fn tree(&self, n: usize, ways: Ways<'_>) -> Result<Arc<CountsView<CallTree>>, Failed>;

    /// What a thread of recording `n`, from 1 on, ran when, in a part of it; without one, the one that did
    /// most.
    ///
    /// # Errors
    /// If it cannot be read, does not know that, or there is no such thread or part.
    fn time(
        &self,
        n: usize,
        thread: Option<usize>,
        between: Option<(u64, u64)>,
    ) -> Result<Arc<TimeView>, Failed>;
}

/// Why something cannot be shown.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Failed {
    /// What failed, on what.
    pub what: String,
    /// What to do about it, a line each, if that is known.
    pub hint: Option<String>,
}
