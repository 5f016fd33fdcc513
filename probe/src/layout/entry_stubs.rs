//! What control meets that comes from old code, behind the runtime: checks that do not stand in front of the
//! entry itself.
//!
//! Not here: those that do (`entry_checks`), what happens then (`arch`).

use crate::arch::Runtime;
use crate::arch::emit;
use crate::arch::shared::HomePage;
use crate::code::Side;
use crate::layout::link::Text;
use crate::layout::place::Placement;
use crate::lower::entry_checks::Entries;
use program::image::Kind;
use program::{Program, Va};

/// What is needed to know what an entry meets.
pub struct EntryStubs<'a> {
    /// The module.
    pub program: &'a Program,
    /// Where things are.
    pub placement: &'a Placement<'a>,
    /// What the checks lead to, if a thread has any words.
    pub runtime: Option<&'a Runtime>,
    /// The entries that are treated in a way of their own.
    pub entries: &'a Entries,
}

impl EntryStubs<'_> {
    /// Where who comes to the moved block that was at `at` goes; code that he meets first is appended to
    /// `text`.
    ///
    /// # Panics
    /// If the block is not moved.
    pub fn lead(&self, at: Va, text: &mut Text) -> Va {
        let (program, placement) = (self.program, self.placement);
        let checked = placement.sides.get(&(at, Side::Checked)).copied();
        let moved = checked.or_else(|| placement.outside(at));
        let to =
            moved.unwrap_or_else(|| panic!("the springboard at {at} leads to a block that is not moved"));
        let Some(runtime) = self.runtime else { return to };
        let mut to = to;
        let is_unchecked = self.entries.without_thread_pointer.binary_search(&at).is_ok();
        if is_unchecked && program.image.kind == Kind::SharedObject {
            // A resolver of a library that another thread than the first one loads.
            let (code, place) = emit::WITH_FIRST_COUNTERS;
            to = text.append(&code, [place], [to]);
        }
        if Some(at) == program.image.entry && program.image.kind != Kind::SharedObject {
            let (code, places) = emit::BY_WAY_OF;
            to = text.append(&code, places, [to, runtime.begin]);
        }
        let is_relied_on = self.entries.relied_on.binary_search(&at).is_ok();
        if !self.is_entry(at) || is_unchecked || is_relied_on || checked.is_some() {
            return to;
        }
        self.check(at, to, runtime, text)
    }

    /// Where who comes back to `at` from a call that old code made goes; what he meets first, `back`, is
    /// appended to `text`.
    pub fn lead_back(&self, at: Va, back: &emit::Return, text: &mut Text) -> Va {
        let to = self.placement.inside(at).or_else(|| self.placement.new_of(at));
        let to = to.unwrap_or_else(|| panic!("the springboard at {at} leads to code that is not moved"));
        let Some(runtime) = self.runtime else { return to };
        match back {
            emit::Return::FromCall(code, places) => text.append(code, *places, [to, runtime.returned]),
            emit::Return::FromKernel(code, places) => text.append(code, *places, [to, runtime.taken_over]),
        }
    }

    /// Whether the block at `at` is an entry of its function.
    fn is_entry(&self, at: Va) -> bool {
        let program = self.program;
        program.function_from(at).is_some()
            || program
                .block_from(at)
                .is_some_and(|b| program.function(program.block(b).func).entries.contains(&b))
    }

    /// Appends the checks before `to`, which was at `at`; returns where they start.
    fn check(&self, at: Va, mut to: Va, runtime: &Runtime, text: &mut Text) -> Va {
        let keeps = self.entries.called_by_not_moved.binary_search(&at).is_ok();
        let may_be_handler = self.entries.signal_handlers.binary_search(&at).is_ok();
        if keeps {
            let (code, place) = emit::RESTORE;
            let restore = text.append(&code, [place], [to]);
            to = match may_be_handler {
                true => {
                    let (code, places) = emit::CHECK_SAVED_SIGNAL;
                    text.append(&code, places, [restore, to, runtime.signal])
                }
                false => restore,
            };
        } else if may_be_handler {
            let (code, places) = emit::CHECK_SIGNAL;
            to = text.append(&code, places, [to, to, runtime.signal]);
        }
        let start = text.end();
        text.bytes.extend_from_slice(if keeps { &emit::SAVE } else { &[] });
        self.check_owner(to, runtime.slow, text);
        start
    }

    /// Appends a check of the owner before `to`, and whether a library has started.
    fn check_owner(&self, to: Va, slow: Va, text: &mut Text) {
        let owner = self.placement.counters.start.plus(crate::offset!(HomePage, owner));
        match self.placement.started {
            Some(started) => {
                let (code, [a, b, c, d, place]) = emit::check_started_owner(self.entries.by_base);
                // It counts from five bytes further.
                let started = Va(started.0.wrapping_sub(1));
                text.append(&code, [a, b, c, d, place], [owner, to, to, slow, started]);
            }
            None => {
                let (code, places) = emit::check_owner(self.entries.by_base);
                text.append(&code, places, [owner, to, to, slow]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::place::Room;
    use crate::module::Module;
    use crate::plan::Plan;
    use crate::testing::{compiled, listing};
    use expect_test::{Expect, expect};
    use program::Va;

    /// What the springboard of the function `name` leads to, in a program that is counted.
    fn check(name: &str, flags: &str, n_instructions: usize, want: &Expect) {
        let text = ".text\n.globl main\n.type main,@function\nmain: call f\nret\n.globl f\n.type f,@function\nf: mov $1,%eax\nmov $2,%eax\nret\n\
            .type own,@function\nown: mov $1,%eax\nmov $2,%eax\nret\n.data\n.quad own+5\n\
            .section .note.GNU-stack\n";
        let program = compiled(text, "s", flags);
        let module = Module::build(&program, &Plan::BLOCKS, Room::Behind).expect("it can be counted");
        let entry = match name {
            "_start" => program.image.entry.expect("it has one"),
            name => program.function(crate::testing::function(&program, name)).entry,
        };
        let patch = module.patches.iter().find(|p| p.at == entry).expect("it has a springboard");
        let mut decoder = program::arch::Decoder::new(&patch.new, entry);
        let to = decoder.next().and_then(|insn| insn.flow().target()).expect("a jump");
        let segments = module.to_segments().expect("it can be mapped");
        let from = usize::try_from(to.0 - segments.text_at).expect("in the text");
        let lines = listing(&segments.text[from..], Va(0), |_, _| String::new());
        let first: Vec<&str> =
            lines.lines().take(n_instructions).map(|l| l.split_once(": ").expect("offset").1).collect();
        // Distances to the runtime change with it.
        let kinds = first.iter().map(|l| l.split([' ', ',']).next().unwrap_or_default());
        want.assert_eq(&kinds.collect::<Vec<_>>().join(" "));
    }

    #[test]
    fn the_entry_point_goes_by_way_of_what_begins() {
        check("_start", "-no-pie", 2, &expect!["lea jmp"]);
    }

    #[test]
    fn a_library_asks_whether_it_has_started() {
        check("f", "-shared -Wl,-Bsymbolic", 8, &expect!["rdfsbase nopl cmpb je cmp jne lea cmp"]);
    }
}
