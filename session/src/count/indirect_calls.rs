//! Where indirect calls led, of a run: out of the memory shared with it.

use crate::module::Instrumented;
use crate::run::Maps;
use live::Arena;
use measure::edges::indirect_calls::{Callees, Found};
use profile::Profile;
use std::io;
use std::ops::Range;

/// What is known of the calls of one module.
pub(super) struct IndirectCalls<'a> {
    module: &'a Instrumented,
    all: &'a [&'a Instrumented],
    arena: &'a Arena,
    /// Its calls and their words, if they are counted.
    callees: Option<(&'a Callees, Range<u64>)>,
    found: Found,
    maps: &'a Maps,
}

impl<'a> IndirectCalls<'a> {
    /// Of `module`, one of `all` in `arena`: nothing yet.
    pub(super) fn of(
        module: &'a Instrumented,
        all: &'a [&'a Instrumented],
        arena: &'a Arena,
        maps: &'a Maps,
    ) -> IndirectCalls<'a> {
        let callees = module.notes.callees.as_ref().filter(|c| !c.sites.is_empty());
        let words = |c: &Callees| u64::from(c.first)..u64::from(c.first) + c.n_words();
        let callees = callees.map(|c| (c, words(c)));
        IndirectCalls { module, all, arena, callees, found: Found::new(), maps }
    }

    /// Adds those of area `k`; to `profile`, too, if there is one for it.
    pub(super) fn add(&mut self, k: u64, profile: Option<&mut Profile>) -> io::Result<()> {
        let Some((callees, words)) = &self.callees else { return Ok(()) };
        let copies = self.arena.words(self.module.key, words, k)?;
        match profile {
            None => copies.iter().for_each(|words| callees.add(words, &mut self.found)),
            Some(profile) => {
                let mut own = Found::new();
                copies.iter().for_each(|words| callees.add(words, &mut own));
                self.tell_of(&own, profile);
                for (call, n) in own {
                    let sum = self.found.entry(call).or_insert(0);
                    *sum = sum.saturating_add(n);
                }
            }
        }
        Ok(())
    }

    /// Adds all of them to `profile`.
    pub(super) fn tell(&self, profile: &mut Profile) {
        self.tell_of(&self.found, profile);
    }

    fn tell_of(&self, found: &Found, profile: &mut Profile) {
        let Some((callees, _)) = &self.callees else { return };
        callees.tell(found, profile, |row| {
            let key = self.arena.key(row)?;
            let of = self.all.iter().find(|c| c.key == key)?;
            Some((of.path.display().to_string(), of.notes.callees.as_ref()?.old.start))
        });
        self.maps.name(profile);
    }
}
