//! What a recording keeps of a program's code: all that its counts are looked at with.

use probe::{Module, NotMoved};
use profile::{Profile, calls};
use program::{Callee, Excerpt, FuncId, Lines, Program, Remark, Va};
use std::collections::BTreeSet;

/// Of `program`: the functions that ran by `profile`, with their code and lines; those without counts which
/// they call or are called by, and the names of all others that have none.
pub fn excerpt(program: &Program, profile: &Profile) -> Excerpt {
    let ran = ran(program, profile);
    let not_moved = Module::not_moved(program);
    let why = |id: FuncId| not_moved.get(id.index()).copied().flatten();
    let entries: BTreeSet<Va> = ran.iter().map(|&id| program.function(id).entry).collect();
    let referred = calls::referred(program, &entries);
    let remark = |id: FuncId| Remark {
        is_referred: referred.contains(&program.function(id).entry),
        not_moved: why(id).map(|why| why.to_string()),
    };
    let others = program.func_ids().filter(|&id| why(id).is_some_and(|why| why != NotMoved::PltStub));
    Excerpt::of(program, &ran, others, remark, Lines::load(&program.image).as_ref())
}

/// Whether `program`, which may be an excerpt, has all that an excerpt of `profile` takes.
pub fn has_all_that_ran(program: &Program, profile: &Profile) -> bool {
    let may_have_run = |at: &&Va| profile.block(**at).is_some_and(|n| n.most > 0);
    let has_block = |at: &Va| program.block_from(*at).is_some();
    profile.blocks.keys().filter(may_have_run).all(has_block)
        && profile.entries.iter().filter(|(_, n)| **n > 0).all(|(at, _)| has_block(at))
        && ran(program, profile).into_iter().all(|id| program.function(id).n_blocks() > 0)
}

/// The functions of which a block may have run, and those without counts that they call, or that call them.
fn ran(program: &Program, profile: &Profile) -> BTreeSet<FuncId> {
    let may_have_run = |at: &Va| profile.block(*at).is_some_and(|n| n.most > 0);
    let blocks = profile.blocks.keys().filter(|at| may_have_run(at));
    let entries = profile.entries.iter().filter(|(_, n)| **n > 0).map(|(at, _)| at);
    let mut ran: BTreeSet<FuncId> = blocks.chain(entries).filter_map(|&at| program.function_at(at)).collect();
    let has_counts =
        |id: FuncId| program.blocks_of(id).iter().any(|block| profile.blocks.contains_key(&block.start));
    let called = program.calls.iter().filter_map(|call| match call.callee {
        Callee::Function(callee) if may_have_run(&program.block(call.block).start) => Some(callee),
        _ => None,
    });
    let called: Vec<FuncId> = called.filter(|&id| !has_counts(id)).collect();
    // Who called what ran, and has no counts, is sure to have run itself if nobody else can have.
    let was_entered =
        |callee: FuncId| profile.entered(program.function(callee).entry).is_some_and(|n| n.most > 0);
    let callers = program.calls.iter().filter_map(|call| match call.callee {
        Callee::Function(callee) if was_entered(callee) => Some(program.block(call.block).func),
        _ => None,
    });
    let callers: BTreeSet<FuncId> = callers.collect();
    ran.extend(called);
    ran.extend(callers.into_iter().filter(|&id| !has_counts(id)));
    ran
}
