//! Events: words that moved code appends to its thread's stream where a plan says so.
//!
//! Not here: what they mean (crate `measure`), who takes them (crate `live`).
#![warn(clippy::indexing_slicing)]

use crate::arch::snippet::{self, Place, Snippet};
use crate::code::{Code, Target, Text};
use crate::inserts::{Spot, Written};
use crate::not_moved::NotMoved;
use crate::plan::{Event, EventAt, PlanError};
use program::arch::{RegSet, abi};
use program::{Conventions, EdgeKind, Program, Va};
use rayon::prelude::*;

/// Words of a thread's memory that events need: one page.
pub const WORDS: u32 = 512;

/// Writes the code of `events`; the direct calls at `from_inside` come past those of entries.
///
/// # Errors
/// If the function of one stays, or one cannot be written; if no such call is there.
pub fn write(
    program: &Program,
    events: &[Event],
    from_inside: &[Va],
    not_moved: &[Option<NotMoved>],
    inserts: &mut Vec<Written>,
) -> Result<(), PlanError> {
    for &at in from_inside {
        let block = program.block_at(at).ok_or(PlanError::NoInstruction(at))?;
        if !program.is_direct_call(at) {
            return Err(PlanError::NoInstruction(at));
        }
        inserts.push(((block, Spot::FromInside(at)), Code::default()));
    }
    if events.is_empty() {
        return Ok(());
    }
    let (conventions, liveness) = Conventions::compute(program);
    let live_at = |event: &Event| -> (Spot, RegSet) {
        let block = event.block;
        let liveness = liveness.get(program.block(block).func.index());
        let live_in = || liveness.map_or(abi::ALL, |l| l.live_in(block));
        let behind = |at: Va| {
            let mut all =
                liveness.map(|l| l.before(program, &conventions, block)).unwrap_or_default().into_iter();
            let found = all.by_ref().any(|(insn, _)| insn == at);
            let next = all.next().map(|(_, live)| live);
            match (found, next, liveness) {
                (true, Some(live), _) => live,
                (true, None, Some(liveness)) => liveness.live_out(program, block),
                _ => abi::ALL,
            }
        };
        let over = |kind: EdgeKind| {
            let to = program.successors(block).iter().find(|edge| edge.kind == kind);
            to.zip(liveness).map_or(abi::ALL, |(edge, liveness)| liveness.live_in(edge.to))
        };
        match event.at {
            EventAt::Entry => (Spot::Outside, live_in()),
            EventAt::Start => (Spot::Before(program.block(block).start), live_in()),
            EventAt::Behind(at) => (Spot::After(at), behind(at)),
            EventAt::Taken => (Spot::Taken, over(EdgeKind::Taken)),
            EventAt::Through => (Spot::Through, over(EdgeKind::FallThrough)),
        }
    };
    let write = |event: &Event| {
        let (spot, live) = live_at(event);
        let block = program.block(event.block);
        if let Some(why) = not_moved.get(block.func.index()).copied().unwrap_or(Some(NotMoved::Incomplete)) {
            return Err(PlanError::NotMoved { function: program.function(block.func).name(), why });
        }
        let written = snippet::event(event.word, event.has_frame, live);
        let Snippet { bytes, places, stack } =
            written.map_err(|why| PlanError::Value { at: block.start, why })?;
        let target = |place| match place {
            Place::Word(n) => Target::Word(n),
            Place::At(to) => Target::Address(to),
            Place::Routine => Target::Chunk,
            Place::Owner => Target::Owner,
        };
        let places = places.into_iter().map(|(at, end, to)| (at, end, target(to))).collect();
        let text = Some(Box::new(Text { bytes, places, stack }));
        Ok(((event.block, spot), Code { text, increment: None }))
    };
    let written: Result<Vec<Written>, PlanError> = events.par_iter().map(write).collect();
    inserts.extend(written?);
    Ok(())
}
