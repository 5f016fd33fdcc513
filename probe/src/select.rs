//! The first phase: which functions are moved, and what must follow them.
//!
//! Not here: what is put into them (`lower`), where they go (`layout`).

pub mod address_taken;
pub mod jump_tables;
pub mod movable;
pub mod plt;
pub mod restartable;
pub mod runtimes;
pub mod springboard;

use crate::not_moved::NotMoved;
use crate::plan::Plan;
use jump_tables::MovedTable;
use movable::Movable;
use program::{FuncId, Program, Va};
use springboard::{InProgress, Springboard};
use std::collections::BTreeSet;

/// What is moved, and how control comes to it.
pub struct Selection {
    /// Per function: why it is not moved; `None` if it is.
    pub not_moved: Vec<Option<NotMoved>>,
    /// The jump tables of moved functions, which are changed in place.
    pub jump_tables: Vec<MovedTable>,
    /// Addresses of blocks that data hold or code computes, ascending.
    pub address_taken: Vec<Va>,
    /// The jumps from old code to new.
    pub springboards: Vec<Springboard>,
}

impl Selection {
    /// What of `program` is moved for `plan`, if `is_running` in a process that runs; not the functions in
    /// `unwind_refused`, whose unwind tables could not be taken over.
    pub fn compute(
        program: &Program,
        plan: &Plan,
        is_running: bool,
        unwind_refused: &BTreeSet<FuncId>,
    ) -> Selection {
        let running = is_running.then(|| InProgress::find(program));
        let mut movable = movable::find(program, unwind_refused);
        if is_running {
            movable::keep_known_callers(program, &mut movable);
        }
        let is_of_some = !plan.replaced.is_empty() || !plan.alone.is_empty() || !plan.led.is_empty();
        if is_of_some {
            let replaced = plan.replaced.iter().map(|replaced| replaced.func);
            movable.keep_all_but(replaced.chain(plan.alone.iter().copied()));
        }
        let address_taken = springboard::addresses(program, &mut movable);
        // Probes of a plan would push a stub's jump to where its unwind rule says something else.
        let release = |movable: &mut Movable| {
            plan.probes.is_empty()
                && !is_of_some
                && plt::release(program, &address_taken, unwind_refused, movable)
        };
        release(&mut movable);
        let mut springboards = springboard::plan(program, &address_taken, running.as_ref(), &mut movable);
        if release(&mut movable) {
            // There was no room for one of their callers.
            springboards = springboard::plan(program, &address_taken, running.as_ref(), &mut movable);
        }
        let Movable { not_moved, mut jump_tables } = movable;
        jump_tables.retain(|t| not_moved.get(t.func.index()).is_some_and(Option::is_none));
        Selection { not_moved, jump_tables, address_taken, springboards }
    }
}
