//! The source lines of functions that ran, taken from debug information.
#![warn(clippy::indexing_slicing)]

use super::Excerpt;
use crate::addr::Va;
use crate::ids::FuncId;
use crate::lines::{Frame, Lines};
use crate::model::Program;
use crate::recorded_lines::{RecordedLines, Rows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Source lines of functions that ran in some run, all of one image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownLines {
    image: u128,
    /// By entry: the functions whose lines are here.
    functions: BTreeSet<u64>,
    lines: RecordedLines,
}

impl KnownLines {
    /// Those in `excerpt`.
    pub fn of(excerpt: &Excerpt) -> KnownLines {
        let has_code = excerpt.functions.iter().filter(|(_, part)| !part.blocks.is_empty());
        let functions = has_code.map(|(entry, _)| *entry).collect();
        KnownLines { image: excerpt.image.id, functions, lines: excerpt.lines.clone() }
    }

    /// Adds those of `other`, if it is of the same image.
    pub fn add(&mut self, other: &KnownLines) {
        if self.image == other.image {
            self.functions.extend(&other.functions);
            self.lines = self.lines.with(&other.lines);
        }
    }

    /// The lines of the functions `ran` of `program`, if they are all among its own.
    pub fn lines(self, program: &Program, ran: &BTreeSet<FuncId>) -> Option<Lines> {
        let has = |id: &FuncId| self.functions.contains(&program.function(*id).entry.0);
        let has_all = program.image.id.0 == self.image && ran.iter().all(has);
        has_all.then(|| Lines::recorded(self.lines))
    }
}

/// Of all instructions of the functions `ran`: where what is known changes, and where a stretch of a function
/// starts.
pub(super) fn lines_of(program: &Program, ran: &BTreeSet<FuncId>, lines: &Lines) -> RecordedLines {
    let mut rows = Rows::default();
    for &id in ran {
        let mut before: Option<(Va, Vec<Frame>)> = None;
        for b in program.function(id).block_ids() {
            let block = program.block(b);
            // What stands between two stretches may be another function's.
            before = before.filter(|(end, _)| *end == block.start);
            if before.as_ref().is_none_or(|(_, frames)| frames.is_empty())
                && lines.knows_nothing_of(&block.range())
            {
                if before.is_none() {
                    rows.add(block.start.0, std::iter::empty());
                }
                before = Some((block.end_va(), Vec::new()));
                continue;
            }
            for insn in program.insns(b) {
                let frames = lines.frames(insn.at());
                // What declares them is not kept.
                let is_same =
                    |before: &Vec<Frame>| before.iter().map(Frame::told).eq(frames.iter().map(Frame::told));
                if !before.as_ref().is_some_and(|(_, before)| is_same(before)) {
                    rows.add(insn.at().0, frames.iter().map(Frame::told));
                    before = Some((block.end_va(), frames));
                }
            }
            before = before.map(|(_, frames)| (block.end_va(), frames));
        }
    }
    rows.finish()
}
