//! Moved code at its place: the distances that were left open, filled in.
//!
//! Invariant: a distance leads where its code says, or the module is not made: what is nowhere is a promise
//! of ours that is broken.

use crate::arch::Runtime;
use crate::arch::emit;
use crate::arch::shared::HomePage;
use crate::bytes::set_distance;
use crate::code::Target;
use crate::layout::place::Placement;
use crate::plan::{Action, Plan};
use program::{Program, Va};

/// The new code of a module, from its first byte on.
pub struct Text {
    /// Where it starts.
    pub at: Va,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Text {
    /// The code of all pieces, of the routines of `plan`, and of the stubs of ours; the runtime is to stand
    /// behind them.
    ///
    /// # Panics
    /// If something leads to what is nowhere.
    pub fn link(
        program: &Program,
        plan: &Plan,
        placement: &Placement<'_>,
        runtime: Option<&Runtime>,
    ) -> Text {
        let len = placement.text.end.since(placement.text.start);
        let len = usize::try_from(len).expect("a module spans less than 2 GiB");
        let mut text = Text { at: placement.text.start, bytes: vec![emit::TRAP; len] };
        for p in &placement.pieces {
            let room = text.put(p.at, &p.piece.bytes);
            for fixup in &p.piece.fixups {
                let end = p.at.plus(u64::from(fixup.end));
                let to = destination(program, fixup.to, placement, runtime).unwrap_or_else(|| {
                    panic!("{:?}, which the code at {end} leads to, is nowhere", fixup.to)
                });
                set_distance(room, fixup.at as usize, to.since(end));
            }
        }
        text.put(placement.plt_direct.start(), &placement.plt_direct.code());
        for (&at, probe) in placement.routines.iter().zip(&plan.probes) {
            if let Action::Call(_, routine) = &probe.action {
                text.put(at, &routine.code);
            }
        }
        for ((at, made), replaced) in placement.keepers.iter().zip(&plan.replaced) {
            if !replaced.keeps.is_empty() {
                let room = text.put(*at, &made.code);
                set_distance(room, made.call, replaced.to.since(at.plus(made.call as u64 + 4)));
            }
        }
        text
    }

    /// Where its next byte will be.
    pub fn end(&self) -> Va {
        self.at.plus(self.bytes.len() as u64)
    }

    /// Has it go on at `at`, which is not before its end.
    pub fn fill_to(&mut self, at: Va) {
        self.bytes.resize(self.offset(at), emit::TRAP);
    }

    /// Appends code whose distances at `places`, four bytes each, count from behind them and lead to
    /// `targets`; returns its address.
    pub fn append<const N: usize>(&mut self, code: &[u8], places: [usize; N], targets: [Va; N]) -> Va {
        let at = self.end();
        let from = self.bytes.len();
        self.bytes.extend(code);
        for (place, to) in places.into_iter().zip(targets) {
            set_distance(&mut self.bytes, from + place, to.since(at.plus(place as u64 + 4)));
        }
        at
    }

    /// Writes `code` over what is at `at`; returns it.
    pub fn put(&mut self, at: Va, code: &[u8]) -> &mut [u8] {
        let from = self.offset(at);
        let room = self.bytes.get_mut(from..from + code.len()).expect("it was made that long");
        room.copy_from_slice(code);
        room
    }

    fn offset(&self, at: Va) -> usize {
        usize::try_from(at.since(self.at)).expect("within the text")
    }
}

/// Where `target` is; `None` if there is no such thing in the module, or it is the old code of a moved block,
/// where nothing is counted.
fn destination(
    program: &Program,
    target: Target,
    placement: &Placement<'_>,
    runtime: Option<&Runtime>,
) -> Option<Va> {
    // What is not moved is where it was. So is padding, where control runs on if a call returns that is not
    // to, and the middle of an instruction: nothing there is known to run.
    let unmoved = |old| (!placement.is_moved_block(program, old)).then_some(old);
    let elsewhere = |old| placement.plt_direct.of(old).or_else(|| unmoved(old));
    match target {
        Target::Code(old) => placement.outside(old).or_else(|| elsewhere(old)),
        Target::Inside(old) => placement.inside(old).or_else(|| elsewhere(old)),
        Target::Address(to) => Some(to),
        Target::Text => Some(placement.text.start),
        Target::TextEnd => Some(placement.text.end),
        Target::Routine(n) => placement.routines.get(n as usize).copied(),
        Target::Owner => runtime.map(|_| placement.counters.start.plus(crate::offset!(HomePage, owner))),
        Target::Counter(n) | Target::Word(n) => placement.word(n),
        Target::Started => placement.started,
        Target::Slow => runtime.map(|r| r.slow),
        Target::Leave => runtime.map(|r| r.leave),
        Target::Vforked => runtime.map(|r| r.vforked),
        Target::Abort => runtime.map(|r| r.abort),
        Target::Cancel => runtime.map(|r| r.cancel),
        Target::Back => runtime.map(|r| r.back),
        Target::Chunk => runtime.map(|r| r.chunk),
        Target::Signal => runtime.map(|r| r.signal),
        Target::IndirectCall => runtime.map(|r| r.callee),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::piece;
    use crate::layout::place::Room;
    use crate::lower::Lowered;
    use crate::select::Selection;
    use crate::testing::{assembled, listing};
    use expect_test::expect;
    use std::collections::BTreeSet;

    const TARGETS: [Target; 14] = [
        Target::Counter(3),
        Target::Word(3),
        Target::IndirectCall,
        Target::Chunk,
        Target::Routine(0),
        Target::Started,
        Target::Signal,
        Target::Owner,
        Target::Slow,
        Target::Leave,
        Target::Vforked,
        Target::Abort,
        Target::Back,
        Target::Cancel,
    ];

    #[test]
    fn what_is_not_in_the_module_is_nowhere() {
        let program = assembled(&[("_start", "call f\nhlt"), ("f", "ret")]);
        let selection = Selection::compute(&program, &Plan::NULL, false, &BTreeSet::new());
        let lowered = Lowered::compute(&program, &Plan::NULL, &selection).expect("nothing is wanted");
        let pieces = piece::pieces(&program, &selection, &lowered);
        let placement = Placement::compute(&program, &Plan::NULL, Room::Behind, &lowered, 2, &pieces);
        let placement = placement.expect("there is room");
        for target in TARGETS {
            assert_eq!(destination(&program, target, &placement, None), None, "{target:?}");
        }
        // What is not moved is where it was; so is data.
        let at = Va(0x402000);
        for target in [Target::Code(at), Target::Inside(at), Target::Address(at)] {
            assert_eq!(destination(&program, target, &placement, None), Some(at));
        }
    }

    #[test]
    fn what_leads_into_an_instruction_leads_to_the_old_one() {
        let wide = "mov $0x90909090,%eax\nret";
        let atomic = "test %eax,%eax\nlock incl (%rdi)\nret";
        for (f, g, at) in [(wide, "jmp f+1", 1), (wide, "call f+1\nret", 1), (atomic, "jmp f+3", 3)] {
            let program = assembled(&[("_start", "call f\ncall g\nhlt"), ("f", f), ("g", g)]);
            let selection = Selection::compute(&program, &Plan::NULL, false, &BTreeSet::new());
            let lowered = Lowered::compute(&program, &Plan::NULL, &selection).expect("nothing is wanted");
            let pieces = piece::pieces(&program, &selection, &lowered);
            let placement = Placement::compute(&program, &Plan::NULL, Room::Behind, &lowered, 3, &pieces);
            let placement = placement.expect("there is room");
            let to = program.function(crate::testing::function(&program, "f")).entry.plus(at);
            let is_one = |fixup: &&crate::code::Fixup| matches!(fixup.to, Target::Code(at) if at == to);
            assert_eq!(pieces.iter().flat_map(|p| &p.fixups).filter(is_one).count(), 1, "{g}");
            assert_eq!(destination(&program, Target::Code(to), &placement, None), Some(to), "{g}");
        }
    }

    #[test]
    fn a_moved_block_that_is_not_found_is_nowhere() {
        let program = assembled(&[("_start", "call f\nhlt"), ("f", "ret")]);
        let selection = Selection::compute(&program, &Plan::NULL, false, &BTreeSet::new());
        let lowered = Lowered::compute(&program, &Plan::NULL, &selection).expect("nothing is wanted");
        let mut pieces = piece::pieces(&program, &selection, &lowered);
        for piece in &mut pieces {
            piece.blocks.clear();
        }
        let placement = Placement::compute(&program, &Plan::NULL, Room::Behind, &lowered, 2, &pieces);
        let placement = placement.expect("there is room");
        for at in program.blocks.iter().map(|b| b.start) {
            for target in [Target::Code(at), Target::Inside(at)] {
                assert_eq!(destination(&program, target, &placement, None), None, "{target:?}");
            }
        }
    }

    #[test]
    fn a_module_whose_code_leads_nowhere_is_not_made() {
        let program = assembled(&[("_start", "call f\nhlt"), ("f", "ret")]);
        let selection = Selection::compute(&program, &Plan::NULL, false, &BTreeSet::new());
        let lowered = Lowered::compute(&program, &Plan::NULL, &selection).expect("nothing is wanted");
        let mut pieces = piece::pieces(&program, &selection, &lowered);
        let fixup = pieces[0].fixups.first_mut().expect("it calls");
        fixup.to = Target::Slow;
        let link = std::panic::catch_unwind(|| {
            let placement = Placement::compute(&program, &Plan::NULL, Room::Behind, &lowered, 2, &pieces);
            Text::link(&program, &Plan::NULL, &placement.expect("there is room"), None).bytes.len()
        });
        let why = link.expect_err("it is refused");
        expect!["Slow, which the code at 0x403005 leads to, is nowhere"]
            .assert_eq(why.downcast_ref::<String>().expect("a message"));
    }

    #[test]
    fn distances_lead_where_things_are() {
        let program = assembled(&[("_start", "call f\njmp g"), ("f", "lea g(%rip),%rax\nret"), ("g", "hlt")]);
        let selection = Selection::compute(&program, &Plan::NULL, false, &BTreeSet::new());
        let lowered = Lowered::compute(&program, &Plan::NULL, &selection).expect("nothing is wanted");
        let pieces = piece::pieces(&program, &selection, &lowered);
        let placement = Placement::compute(&program, &Plan::NULL, Room::Behind, &lowered, 3, &pieces);
        let text = Text::link(&program, &Plan::NULL, &placement.expect("there is room"), None);
        expect![[r#"
            00: call 0x403010
            05: jmp 0x401020
            0a: int3
            0b: int3
            0c: int3
            0d: int3
            0e: int3
            0f: int3
            10: lea 0x401020,%rax
            17: ret
            18: int3
            19: int3
            1a: int3
            1b: int3
            1c: int3
            1d: int3
            1e: int3
            1f: int3
        "#]]
        .assert_eq(&listing(&text.bytes, text.at, |_, _| String::new()));
    }
}
