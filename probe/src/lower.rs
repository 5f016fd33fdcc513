//! The second phase: from a plan to code, and where it goes in what is moved.
//!
//! Not here: where points are and what a plan may ask for (`plan`), where code of ours ends up (`layout`).

pub mod counters;
pub mod entry_checks;
pub mod events;
pub mod exit_calls;
pub mod fork_calls;
pub mod indirect_calls;
mod loop_registers;
pub mod points;
pub mod vectorised;

use crate::error::RewriteError;
use crate::inserts::Inserts;
use crate::plan::{Counting, Plan};
use crate::select::Selection;
use counters::{BlockCounters, Counted};
use entry_checks::Entries;
use indirect_calls::IndirectCalls;
use program::{FlagLiveness, FuncId, Program, Va};

/// What the words of a thread's own memory hold, in this order: counters of blocks and edges, of direct
/// calls, the words of probes, and those of indirect calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    /// What each counter counts: they are the first words.
    pub counted: Vec<Counted>,
    /// The direct calls that are counted by themselves, ascending; their counters are the next.
    pub calls: Vec<Va>,
    /// The first word of each of the plan's probes.
    pub probes: Vec<u32>,
    /// The indirect calls whose targets are counted.
    pub indirect_calls: Option<IndirectCalls>,
    /// The functions that are counted as sparsely as the plan asks for; of others every block is. Ascending.
    pub sparse: Vec<FuncId>,
    /// How many words there are.
    pub n: u32,
}

/// What a plan comes to.
pub struct Lowered {
    /// What the thread's words hold.
    pub words: Words,
    /// Whether words are appended to a stream.
    pub has_events: bool,
    /// The direct calls, ascending, of stubs that are not moved: places behind them are known.
    pub stub_calls: Vec<Va>,
    /// Calls behind which another process may run, ascending.
    pub fork_calls: Vec<Va>,
    /// What entries meet first.
    pub entries: Entries,
    /// Where the counters of blocks are incremented.
    pub block_counters: BlockCounters,
    /// All other code.
    pub inserts: Inserts,
}

impl Lowered {
    /// What `plan` comes to in the functions that are moved.
    ///
    /// # Errors
    /// If it counts, and appends events, too: these words are the same ones. If probes cannot be put where
    /// they are wanted.
    pub fn compute(program: &Program, plan: &Plan, selection: &Selection) -> Result<Lowered, RewriteError> {
        let name = || program.image.name.clone();
        let refused = |why| RewriteError::Probes { name: name(), why };
        let not_moved = &selection.not_moved;
        let (counted, sparse) = counters::choose(program, &plan.counting, not_moved, &selection.springboards);
        let calls = match counted[..] {
            [] => Vec::new(),
            _ => counters::choose_calls(program, &plan.calls, not_moved, &sparse),
        };
        let has_events = plan.has_events();
        if has_events && !counted.is_empty() {
            return Err(RewriteError::CountsAndEvents { name: name() });
        }
        let first_call = u32::try_from(counted.len()).expect("ids are 32 bits");
        let n_counters = first_call + u32::try_from(calls.len()).expect("no more than instructions");
        let n_first = if has_events { events::WORDS } else { n_counters };
        let points::Lowered { mut inserts, calls: calls_of_tails, words: probes, n_words } =
            points::lower(program, plan, n_first, not_moved, &selection.jump_tables).map_err(refused)?;

        let flags = (!counted.is_empty() || plan.indirect_calls).then(|| FlagLiveness::compute(program));
        if let Some(flags) = &flags {
            counters::count_calls(program, flags, &calls, first_call, &mut inserts);
        }
        let indirect_calls = flags
            .as_ref()
            .filter(|_| plan.indirect_calls)
            .map(|flags| indirect_calls::choose(program, not_moved, flags, n_words, &mut inserts));
        let stub_calls = match plan.counting {
            Counting::Nothing => Vec::new(),
            _ => counters::mark_stub_calls(program, not_moved, &mut inserts),
        };
        events::write(program, &plan.events, &plan.from_inside, not_moved, &mut inserts)
            .map_err(|why| refused(vec![(0, why)]))?;
        let n_words = indirect_calls.as_ref().map_or(n_words, IndirectCalls::end);
        let entries = Entries::find(program, plan, selection, n_words > 0);
        if n_words > 0 {
            inserts.extend(entry_checks::in_front(program, &selection.springboards, &entries));
        }
        if let Some(flags) = flags.as_ref().filter(|_| n_words > 0) {
            counters::count_edges(program, flags, &counted, &mut inserts);
            exit_calls::note(program, not_moved, &mut inserts);
        }
        inserts.extend(calls_of_tails);
        let inserts = Inserts::of(program.blocks.len(), inserts);
        // Without words, nothing is another process's.
        let fork_calls = if n_words == 0 { Vec::new() } else { fork_calls::calls(program) };
        let block_counters = BlockCounters::new(program, &counted, flags);
        let words = Words { counted, calls, probes, indirect_calls, sparse, n: n_words };
        Ok(Lowered { words, has_events, stub_calls, fork_calls, entries, block_counters, inserts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assembled, function};
    use crate::{Event, EventAt};

    #[test]
    fn a_plan_that_counts_and_appends_events_is_refused() {
        let program = assembled(&[("_start", "call f\nhlt"), ("f", "ret")]);
        let events = {
            let block = program.entry_block(function(&program, "f")).expect("it has one");
            vec![Event { block, at: EventAt::Entry, word: 7, has_frame: false }]
        };
        let build = |plan: &Plan| {
            crate::Module::build(&program, plan, crate::Room::Behind).map(|module| module.words.n)
        };
        let recorded = Plan { events, ..Plan::NULL };
        assert!(build(&recorded).is_ok_and(|n| n > 0));
        let err = build(&Plan { counting: Counting::Blocks, ..recorded }).expect_err("it is refused");
        assert!(matches!(&err, RewriteError::CountsAndEvents { .. }), "{err}");
        assert_eq!(err.hint(), Some("make two modules of it, a plan each"));
    }
}
