//! Where counters stand in a program, and what that relies on.

use crate::edges::{plan, returns};
use probe::Plan;
use profile::Profile;
use program::Program;

/// Whether plans rely on what the C library's function of this `name` does: another of this name may do
/// something else.
pub fn relies_on(name: &str) -> bool {
    program::libc::does(name, program::libc::COMES_BACK.with(program::libc::SELF_CONTAINED))
}

/// Where counters stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// As few as can be, so that every block's and every edge's count follows.
    Edges,
    /// One in every block, nothing inferred: the oracle for the other.
    Blocks,
    /// Nowhere: code is moved, no more.
    Nowhere,
    /// Nowhere, but events are recorded ([`crate::recorded_points::plan`]).
    Events,
    /// Nowhere, but values are recorded ([`crate::values::plan`]).
    Values,
}

impl Placement {
    /// Whether something is appended to streams.
    pub fn has_streams(self) -> bool {
        matches!(self, Placement::Events | Placement::Values)
    }

    /// What is to be put into the code of `program`.
    pub fn plan(self, program: &Program) -> Plan {
        match self {
            Placement::Edges => plan::plan(program, None),
            Placement::Blocks => {
                let calls = plan::counted_calls(program, &returns::Returns::of(program));
                Plan { calls, ..Plan::BLOCKS }
            }
            Placement::Nowhere | Placement::Events | Placement::Values => Plan::NULL,
        }
    }
}

/// Counters for [`Placement::Edges`] where they are incremented least often if `program` runs again as it ran
/// `earlier`.
pub fn plan_like(program: &Program, earlier: &Profile) -> Plan {
    plan::plan(program, Some(earlier))
}
