//! Functions with restartable sequences: the kernel knows these by their addresses.
//!
//! What a descriptor in data says is in the image. Where code alone makes one, it takes the address of a
//! place behind the signature: then that function stays, and so does all that it takes an address in, since
//! one of these addresses is the sequence's.
//!
//! Source: Linux, kernel/rseq.c (`rseq_ip_fixup`: a thread that is elsewhere loses its descriptor).
#![warn(clippy::indexing_slicing)]

use program::image::Restartable;
use program::{FuncId, Program, Va};
use rayon::prelude::*;
use std::collections::BTreeSet;

/// The functions that hold a part of a restartable sequence, what comes right before one, or the place where
/// one goes on that was interrupted.
pub fn functions(program: &Program) -> BTreeSet<FuncId> {
    let known = &program.image.restartable;
    let mut found: BTreeSet<FuncId> = known.described.iter().flat_map(|s| touched_by(program, s)).collect();
    let is_described = |at: &Va| known.described.iter().any(|s| s.abort == *at);
    let others: Vec<Va> = known.aborts.iter().copied().filter(|at| !is_described(at)).collect();
    if !others.is_empty() {
        found.extend(made_by_code(program, &others));
    }
    found
}

fn touched_by(program: &Program, sequence: &Restartable) -> impl Iterator<Item = FuncId> {
    let range = &sequence.range;
    // A thread between the instruction that tells the kernel and the first one would lose its descriptor, so
    // both stay.
    let before = Va(range.start.0.saturating_sub(1));
    let starts = program.blocks_in(range).iter().map(|&b| program.block(b).func);
    let places = [before, range.start, sequence.abort].into_iter().filter_map(|at| program.function_at(at));
    starts.chain(places).collect::<Vec<FuncId>>().into_iter()
}

/// The functions that take the address of one of `aborts`, sorted, and those that they take addresses in.
fn made_by_code(program: &Program, aborts: &[Va]) -> Vec<FuncId> {
    let absolute = !program.image.kind.is_relocated();
    let taken = |id: FuncId| {
        let insns = program.function(id).block_ids().flat_map(|b| program.insns(b));
        let all = insns.flat_map(|insn| insn.refers_to(absolute).into_iter().flatten());
        all.filter(|(_, size)| *size == 0).map(|(at, _)| at)
    };
    let touched = |id: FuncId| {
        let is_one = taken(id).any(|at| aborts.binary_search(&at).is_ok());
        let led_to = taken(id).filter(|_| is_one).filter_map(|at| program.function_at(at));
        led_to.chain(is_one.then_some(id)).collect::<Vec<FuncId>>()
    };
    let ids: Vec<FuncId> = program.func_ids().collect();
    ids.into_par_iter().flat_map_iter(touched).collect()
}
