//! The source lines of functions that ran, taken from debug information.
#![warn(clippy::indexing_slicing)]

use crate::ids::FuncId;
use crate::lines::{Frame, Lines};
use crate::model::Program;
use crate::recorded_lines::{RecordedLines, Rows};
use std::collections::BTreeSet;

/// Of all instructions of the functions `ran`.
pub(super) fn lines_of(program: &Program, ran: &BTreeSet<FuncId>, lines: &Lines) -> RecordedLines {
    let mut rows = Rows::default();
    for &id in ran {
        for b in program.function(id).block_ids() {
            let mut before: Option<Vec<Frame>> = None;
            for insn in program.insns(b) {
                let frames = lines.frames(insn.at());
                // What declares them is not kept.
                let is_same =
                    |before: &Vec<Frame>| before.iter().map(Frame::told).eq(frames.iter().map(Frame::told));
                if !before.as_ref().is_some_and(is_same) {
                    rows.add(insn.at().0, frames.iter().map(Frame::told));
                    before = Some(frames);
                }
            }
        }
    }
    rows.finish()
}
