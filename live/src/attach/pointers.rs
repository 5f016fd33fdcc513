//! Where threads, and signal handlers' ways back, go on: from old code to moved code, and from there back.

use super::journal::PutIn;

/// Where a thread that is stopped at `at` goes on in moved code, by way of which routine, if by any; `None`
/// if it goes on where it is.
pub(super) fn taken_to(modules: &[PutIn], at: u64) -> Option<(u64, Option<u64>)> {
    let module = modules.iter().find(|module| module.old().contains(&at))?;
    let old = u32::try_from(at - module.live(module.running.old_at)).ok()?;
    let new = module.running.taken_to(old)?;
    let routine = module.running.taken_over.map(|at| module.live(at));
    Some((module.text().start + u64::from(new), routine))
}

/// Where a thread goes on in old code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Back {
    /// Where it is: not in moved code.
    Here,
    /// There.
    At(u64),
    /// It has to go on a little first: it is in code of ours, between two instructions of the program's.
    Within,
    /// It is in a routine of ours, which ends by itself.
    InRoutine,
}

/// Where a thread that is stopped at `at` goes on in old code.
pub(super) fn given_back(modules: &[PutIn], at: u64) -> Back {
    let Some(module) = modules.iter().find(|module| module.text().contains(&at)) else { return Back::Here };
    let new = u32::try_from(at - module.text().start).ok();
    match new.and_then(|new| module.running.given_back(new)) {
        Some(old) => Back::At(module.live(module.running.old_at) + u64::from(old)),
        None if module.segments.runtime_at.is_some_and(|runtime| at >= module.live(runtime)) => {
            Back::InRoutine
        }
        None => Back::Within,
    }
}
