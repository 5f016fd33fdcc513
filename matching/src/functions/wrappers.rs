//! Functions whose body was moved into a new one that they jump to, or back.
//!
//! By content the old function is the new body; by who calls it, it is the wrapper that is left. The wrapper
//! is what callers know, what has the name, and what is entered as often: it wins, unless a
//! name that is unique in both builds found the body (GCC's clones: `f` became `f.isra.0`).

use super::State;
use super::side::Side;
use crate::relation::{FunctionMethod, OneToOne};
use program::{CallKind, Callee, FuncId};

/// Moves matches from bodies to their wrappers, in both directions.
pub fn run(state: &mut State<'_>) {
    for (o, n) in state.pairs.pairs().collect::<Vec<_>>() {
        if state.is_settled(n) {
            continue;
        }
        let to_old = |f: usize| state.pairs.old_of(f);
        let to_new = |f: usize| state.pairs.new_of(f);
        let in_new = wrapper(&state.new, n, &state.old, o, &to_new, &state.pairs, false);
        let in_old = || wrapper(&state.old, o, &state.new, n, &to_old, &state.pairs, true);
        if let Some(wrapper) = in_new.filter(|&w| state.allows(o, w)) {
            state.release(n);
            state.take(o, wrapper, FunctionMethod::Neighbours, 0.75);
        } else if let Some(wrapper) = in_old().filter(|&w| state.allows(w, n)) {
            state.release(n);
            state.take(wrapper, n, FunctionMethod::Neighbours, 0.75);
        }
    }
}

/// The free function of `here` that ends in a jump to `body`, is shorter, and is called by the counterparts
/// of most of those that call `whole` in the other build.
fn wrapper(
    here: &Side<'_>,
    body: usize,
    there: &Side<'_>,
    whole: usize,
    across: &dyn Fn(usize) -> Option<usize>,
    pairs: &OneToOne,
    here_is_old: bool,
) -> Option<usize> {
    /// Functions that more call are known by their content.
    const MOST: usize = 256;
    let mut callers = here.callers.of(body).to_vec();
    callers.dedup();
    if callers.len() > MOST {
        return None;
    }
    let is_free = |f: usize| match here_is_old {
        true => pairs.new_of(f).is_none(),
        false => pairs.old_of(f).is_none(),
    };
    let small = |f: usize| f != body && here.n_insns[f] < here.n_insns[body];
    callers.retain(|&c| is_free(c as usize) && small(c as usize) && jumps_to(here, c as usize, body));
    let [wrapper] = callers.as_slice() else { return None };
    let (mut through, mut directly) = (0, 0);
    let mut last = None;
    for &caller in there.callers.of(whole).iter().take(MOST) {
        if last.replace(caller) == Some(caller) || caller as usize == whole {
            continue;
        }
        let Some(counterpart) = across(caller as usize) else { continue };
        let calls = here.callees.of(counterpart);
        let direct = calls.iter().any(|&c| c as usize == body);
        match calls.contains(wrapper) {
            true => through += 2 - i32::from(direct),
            false => directly += 2 * i32::from(direct),
        }
    }
    (through >= 2 && through > directly).then_some(*wrapper as usize)
}

fn jumps_to(side: &Side<'_>, from: usize, to: usize) -> bool {
    side.program.functions[from].block_ids().any(|b| {
        side.program
            .calls_in(b)
            .iter()
            .any(|c| c.kind != CallKind::Call && c.callee == Callee::Function(FuncId::at(to)))
    })
}
