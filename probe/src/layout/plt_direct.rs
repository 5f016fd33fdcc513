//! Calls of the module's own functions through its PLT, as of all that a library exports unless it
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{binutils, compiled, function, listing};

    const TEXT: &str = "int a(int); int other(int); int b(int n) { return a(n) + other(n); }
        int a(int n) { return n ? b(n - 1) : 0; }";

    #[test]
    fn a_stub_goes_to_the_moved_function_if_its_slot_leads_there() {
        let program = compiled(TEXT, "c", "-O1 -fno-inline -shared -fPIC -Wl,-z,lazy");
        let entry = |name| program.function(function(&program, name)).entry;
        let moved = |old: Va| ["a", "b"].map(entry).contains(&old).then(|| old.plus(0x7_0000));
        let at = Va(0x10_0000);
        let stubs = PltDirect::find(&program, at, moved);
        // By readelf: where the slot of each is.
        let relocations = binutils("readelf", &["-rW"], program.image.file_bytes());
        let slot = |name: &str| {
            let line = relocations
                .lines()
                .find(|line| line.contains("JUMP_SLO") && line.contains(&format!(" {name} + 0")));
            let at = line.and_then(|line| line.split_whitespace().next()).expect("it has a slot");
            u64::from_str_radix(at, 16).expect("a number")
        };
        let mut want = Vec::new();
        for stub in program.image.plt.iter().filter(|stub| stub.slot.is_some()) {
            let Some(name) = ["a", "b"].into_iter().find(|name| stub.slot == Some(Va(slot(name)))) else {
                assert_eq!(stubs.of(stub.range.start), None);
                continue;
            };
            let here = stubs.of(stub.range.start).expect("it has one");
            want.push((here, name));
        }
        assert_eq!((want.len(), stubs.range()), (2, Some(at..at.plus(64))));
        let code = stubs.code();
        for (here, name) in want {
            let from = usize::try_from(here.since(at)).expect("small");
            let text = listing(&code[from..from + 32], here, |_, _| String::new());
            let text: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
            let (old, slot) = (entry(name), slot(name));
            let insns = [
                format!("lea {old},%r11"),
                format!("cmp %r11,{slot:#x}"),
                format!("je {}", old.plus(0x7_0000)),
                format!("jmpq *{slot:#x}"),
            ];
            assert_eq!(text[..4], insns);
        }
    }

    #[test]
    fn without_stubs_there_is_no_code() {
        let program = compiled(TEXT, "c", "-O1 -shared -fPIC");
        let none = PltDirect::find(&program, Va(0x10_0000), |_| None);
        assert_eq!((none.code().len(), none.range(), none.start()), (0, None, none.end()));
    }
}
