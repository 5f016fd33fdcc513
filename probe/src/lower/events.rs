//! Events: words that moved code appends to its thread's stream where a plan says so.
//!
//! Not here: what they mean (crate `measure`), who takes them (crate `live`).
#![warn(clippy::indexing_slicing)]

use super::points::appending;
use crate::arch::shared::{EventsPage, word_at};
use crate::arch::snippet;
use crate::code::Insert;
use crate::inserts::{Spot, Written};
use crate::not_moved::NotMoved;
use crate::plan::{Event, EventAt, PlanError};
use program::arch::{RegSet, abi};
use program::{Conventions, EdgeKind, Program, Va};
use rayon::prelude::*;

/// Words of a thread's memory that events need: those of [`EventsPage`].
pub const WORDS: u32 = word_at(size_of::<EventsPage>());

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
        inserts.push(((block, Spot::FromInside(at)), Insert::default()));
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
        let written = written.map_err(|why| PlanError::Value { at: block.start, why })?;
        Ok(((event.block, spot), appending(written)))
    };
    let written: Result<Vec<Written>, PlanError> = events.par_iter().map(write).collect();
    inserts.extend(written?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::testing::{assembled, function, inserts};
    use expect_test::expect;

    #[test]
    fn each_event_is_appended_where_it_happens() {
        let program = assembled(&[
            ("_start", "call f\nhlt"),
            ("f", "call g\ntest %eax,%eax\nje 1f\nmov $1,%eax\n1: ret"),
            ("g", "ret"),
        ]);
        let f = function(&program, "f");
        let block = program.entry_block(f).expect("it has one");
        let at = program.block(block).start;
        let all = [EventAt::Entry, EventAt::Behind(at), EventAt::Taken, EventAt::Through];
        let event = |(word, &at): (u32, &EventAt)| Event { block, at, word, has_frame: word == 1 };
        let plan = Plan { events: (1..).zip(&all).map(event).collect(), ..Plan::NULL };
        expect![[r#"
            +0 Found
            00: lea 0x1f,%r11
            07: jmp 0xc # Slow
            +0 Checked
            00: rdfsbase %r11
            05: nopl (%rax)
            09: cmp %gs:0x11,%r11 # Owner
            11: jne 0xfffffffffffffff4
            +0 Outside
            00: addq $0x8,%gs:0x9 # Word(0)
            09: mov %gs:0x11,%r11 # Word(0)
            11: cmp %gs:0x19,%r11 # Word(1)
            19: jb 0x31
            1b: lea -0x80(%rsp),%rsp
            20: call 0x25 # Chunk
            25: lea 0x80(%rsp),%rsp
            2d: jne 0x0
            2f: jmp 0x3d
            31: movl $0x1,-0x8(%r11)
            39: mov %esp,-0x4(%r11)
            +0 After(+0x0)
            00: addq $0x4,%gs:0x9 # Word(0)
            09: mov %gs:0x11,%r11 # Word(0)
            11: cmp %gs:0x19,%r11 # Word(1)
            19: jb 0x31
            1b: lea -0x80(%rsp),%rsp
            20: call 0x25 # Chunk
            25: lea 0x80(%rsp),%rsp
            2d: jne 0x0
            2f: jmp 0x39
            31: movl $0x2,-0x4(%r11)
            +0 Taken
            00: addq $0x4,%gs:0x9 # Word(0)
            09: mov %gs:0x11,%r11 # Word(0)
            11: cmp %gs:0x19,%r11 # Word(1)
            19: jb 0x31
            1b: lea -0x80(%rsp),%rsp
            20: call 0x25 # Chunk
            25: lea 0x80(%rsp),%rsp
            2d: jne 0x0
            2f: jmp 0x39
            31: movl $0x3,-0x4(%r11)
            +0 Through
            00: addq $0x4,%gs:0x9 # Word(0)
            09: mov %gs:0x11,%rax # Word(0)
            11: cmp %gs:0x19,%rax # Word(1)
            19: jb 0x31
            1b: lea -0x80(%rsp),%rsp
            20: call 0x25 # Chunk
            25: lea 0x80(%rsp),%rsp
            2d: jne 0x0
            2f: jmp 0x38
            31: movl $0x4,-0x4(%rax)
        "#]]
        .assert_eq(&inserts(&program, &plan, f));
    }
}
