//! A comparison as a file keeps it: all that is said of two runs, and the code that ran in them.

use super::parts::{IntervalRow, IntervalsView, OutlierView, RanBlock};
use super::tables::{LoopRow, LoopsView, ModuleRow, ModulesView};
use super::times::BothTimes;
use super::trees::CallTrees;
use super::{Amount, Both, CompareView};
use serde::{Deserialize, Serialize};

/// All that is kept of a comparison.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptComparison {
    /// What is said of all of it.
    pub comparison: CompareView,
    /// The metric that functions are sorted by.
    pub metric: String,
    /// All intervals, those with most instructions first.
    pub intervals: Vec<IntervalRow>,
    /// Loops.
    #[serde(default)]
    pub loops: Vec<LoopRow>,
    /// Modules.
    #[serde(default)]
    pub modules: Vec<ModuleRow>,
    /// Blocks that ran, with how often they did in all.
    pub code: Both<Vec<RanBlock>>,
    /// By outlier: which blocks ran in it, as `code` has them, and how often.
    pub ran: Vec<Both<Vec<(usize, Amount)>>>,
    /// Who called whom.
    #[serde(default)]
    pub trees: Option<CallTrees>,
    /// What ran when.
    #[serde(default)]
    pub times: Option<BothTimes>,
}

impl KeptComparison {
    /// The comparison, told by the metric that it was told by.
    pub fn into_view(mut self) -> CompareView {
        self.comparison.metric = self.metric;
        self.comparison
    }

    /// All intervals.
    pub fn into_intervals(self) -> IntervalsView {
        IntervalsView { schema: IntervalsView::SCHEMA, intervals: self.intervals }
    }

    /// All loops.
    pub fn into_loops(self) -> LoopsView {
        LoopsView { schema: LoopsView::SCHEMA, loops: self.loops, metric: self.metric }
    }

    /// All modules.
    pub fn into_modules(self) -> ModulesView {
        ModulesView { schema: ModulesView::SCHEMA, modules: self.modules, metric: self.metric }
    }

    /// Outlier `n`, from 1 on, with its code; nothing if there are not so many.
    pub fn outlier(&self, n: usize) -> Option<OutlierView> {
        let at = n.checked_sub(1)?;
        let interval = self.comparison.outliers.get(at)?.clone();
        let ran = self.ran.get(at)?;
        let blocks = |code: &[RanBlock], ran: &[(usize, Amount)]| {
            let block =
                |&(block, runs): &(usize, Amount)| Some(RanBlock { runs, ..code.get(block)?.clone() });
            let mut blocks: Vec<RanBlock> = ran.iter().filter_map(block).collect();
            blocks.sort_by_key(|block| block.at);
            blocks
        };
        let blocks = Both { old: blocks(&self.code.old, &ran.old), new: blocks(&self.code.new, &ran.new) };
        Some(OutlierView { schema: OutlierView::SCHEMA, n, interval, blocks })
    }
}
