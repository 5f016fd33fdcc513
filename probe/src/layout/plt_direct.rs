//! Calls of the module's own functions through its linkage table, as of all that a library exports unless it
//! is linked otherwise: another module may define what is called so, which the dynamic linker decides.
//!
//! Moved code calls a stub of ours in place of the one of the table: where the slot leads to the old
//! function, control goes to the moved one at once, as of a direct call; else to where the slot leads.
//! Without it, each such call would go by way of two places of old code.
//!
//! Invariant: r11 and the flags, which ours uses, are free at a stub: the dynamic linker may run there.

use crate::arch::emit;
use crate::bytes::set_distance;
use program::image::RelocationTo;
use program::{Program, Va};

/// Stubs that stand one behind another, in the order of those of the table.
pub struct PltDirect {
    at: Va,
    all: Vec<DirectStub>,
}

/// One for a function of the module.
struct DirectStub {
    /// The stub of the table.
    stub: Va,
    slot: Va,
    /// The function, and where it is moved to.
    old: Va,
    new: Va,
}

impl PltDirect {
    /// Those of `program` for what is `moved` to somewhere, from `at` on. Stubs that are moved themselves
    /// have none.
    pub fn find(program: &Program, at: Va, moved: impl Fn(Va) -> Option<Va>) -> PltDirect {
        let of = |stub: &program::image::PltStub| {
            let slot = stub.slot?;
            let old = match program.image.relocation_at(slot)?.to {
                RelocationTo::Symbol(_, Some(to)) => to,
                _ => return None,
            };
            program.function_from(old)?;
            let stub = stub.range.start;
            moved(stub).is_none().then_some(DirectStub { stub, slot, old, new: moved(old)? })
        };
        let mut all: Vec<DirectStub> = program.image.plt.iter().filter_map(of).collect();
        all.sort_unstable_by_key(|s| s.stub);
        PltDirect { at, all }
    }

    /// Where they start.
    pub fn start(&self) -> Va {
        self.at
    }

    /// Where they end.
    pub fn end(&self) -> Va {
        self.at.plus((self.all.len() * emit::OWN_STUB.0.len()) as u64)
    }

    /// Ours in place of the one at `stub`.
    pub fn of(&self, stub: Va) -> Option<Va> {
        let n = self.all.binary_search_by_key(&stub, |s| s.stub).ok()?;
        Some(self.at.plus((n * emit::OWN_STUB.0.len()) as u64))
    }

    /// Their code.
    pub fn code(&self) -> Vec<u8> {
        let (empty, places) = emit::OWN_STUB;
        let mut code = Vec::with_capacity(self.all.len() * empty.len());
        for one in &self.all {
            let (mut bytes, at) = (empty, self.at.plus(code.len() as u64));
            for (place, to) in places.into_iter().zip([one.old, one.slot, one.new, one.slot]) {
                set_distance(&mut bytes, place, to.since(at.plus(place as u64 + 4)));
            }
            code.extend(bytes);
        }
        code
    }

    /// Where they are, if there are any.
    pub fn range(&self) -> Option<std::ops::Range<Va>> {
        (!self.all.is_empty()).then(|| self.at..self.end())
    }
}
