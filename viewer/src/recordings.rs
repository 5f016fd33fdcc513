//! What the pages show, as whoever has the recordings gives it.

use std::sync::Arc;
use views::carry::CarryView;
use views::compare::kept::KeptComparison;
use views::compare::matrix::MatrixView;
use views::count::CountView;
use views::matches::MatchView;
use views::matches::explain::ExplainView;
use views::query::QueryView;
use views::query::hottest::HottestView;
use views::recordings::RecordingsView;
use views::sample::SampleView;
use views::show::costs::{CallTree, Ways};
use views::show::counts::CountsView;
use views::show::function::FunctionView;
use views::show::time::TimeView;
use views::values::ValuesView;

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
    fn counted(&self, n: usize) -> Result<Arc<CountView>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// A function of recording `n`, by its name or `MODULE!ADDRESS`.
    ///
    /// # Errors
    /// If there is none.
    fn function(&self, n: usize, _name: &str) -> Result<FunctionView, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// Its flow graph, as an SVG picture.
    ///
    /// # Errors
    /// If there is none.
    fn graph(&self, n: usize, _name: &str, _drawing: &Drawing<'_>) -> Result<FlowGraph, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// What values recording `n` has.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    fn valued(&self, n: usize) -> Result<Arc<ValuesView>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// Pictures of the values of a function of recording `n`, and of its loops, as SVG.
    ///
    /// # Errors
    /// If there is nothing to be drawn.
    fn plot(&self, n: usize, _name: &str) -> Result<String, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// Where a path of blocks occurs in recording `n` for the `nth` time, from 1, how often it does, and what
    /// is around it.
    ///
    /// # Errors
    /// If it is no trace, or that is no path of it.
    fn found(&self, n: usize, _path: &str, _nth: u64) -> Result<QueryView, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// The paths that recording `n` has most often.
    ///
    /// # Errors
    /// If it is no trace.
    fn hottest(&self, n: usize) -> Result<Arc<HottestView>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// Which function and block became which, as recording `n` says.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    fn matched(&self, n: usize) -> Result<Arc<MatchView>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// A function of both builds of recording `n`, block by block, by its name or address.
    ///
    /// # Errors
    /// If there is none, or the builds are not there as they were.
    fn explained(&self, n: usize, _name: &str) -> Result<ExplainView, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// What became of a profile, as recording `n` says.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    fn carried(&self, n: usize) -> Result<Arc<CarryView>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// What recording `n` says of many builds on many inputs.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    fn matrix(&self, n: usize) -> Result<Arc<MatrixView>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// Recording `n` in a format of another tool, as `engraft convert --to` names it.
    ///
    /// # Errors
    /// If it cannot be read, or has not what that format needs.
    fn exported(&self, n: usize, _to: &str) -> Result<Vec<u8>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// What recording `n` says of two builds.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    fn compared(&self, n: usize) -> Result<Arc<KeptComparison>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// Where the samples of recording `n` are.
    ///
    /// # Errors
    /// If it cannot be read, or is of something else.
    fn sampled(&self, n: usize) -> Result<Arc<SampleView>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// Who called whom in recording `n`, along these ways.
    ///
    /// # Errors
    /// If it cannot be read, does not know that, or there is no such function.
    fn tree(&self, n: usize, _ways: Ways<'_>) -> Result<Arc<CountsView<CallTree>>, Failed> {
        Err(Failed::of_another_kind(n))
    }

    /// What a thread of recording `n`, from 1 on, ran when, in a part of it; without one, the one that did
    /// most.
    ///
    /// # Errors
    /// If it cannot be read, does not know that, or there is no such thread or part.
    fn time(
        &self,
        n: usize,
        _thread: Option<usize>,
        _between: Option<(u64, u64)>,
    ) -> Result<Arc<TimeView>, Failed> {
        Err(Failed::of_another_kind(n))
    }
}

/// How a flow graph is drawn.
#[derive(Clone, Copy, Default, Debug)]
pub struct Drawing<'a> {
    /// Functions of more blocks than these are drawn folded to what ran; none without it.
    pub most: Option<usize>,
    /// Where boxes lead: this, `#b` and the number of their first block. Then they are called `g` and the
    /// number of their node.
    pub links: Option<&'a str>,
}

/// A flow graph.
#[derive(Debug)]
pub struct FlowGraph {
    /// Drawn as an SVG picture.
    pub svg: String,
    /// Whether some of its nodes are several blocks.
    pub is_folded: bool,
    /// The node of each block, by the numbers of these.
    pub node_of: Vec<Option<u32>>,
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

impl Failed {
    /// What is asked of a recording that holds something else.
    fn of_another_kind(n: usize) -> Failed {
        Failed { what: format!("recording {n} is of something else"), hint: None }
    }
}
