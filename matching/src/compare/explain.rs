//! How it was found out what in a function of one build is what in the other: call by call, loop by loop.

use super::intervals::At;
use super::items::{Item, Reading};
use super::keys::How;
use super::log::Place;
use super::pairs::Aligned;
use std::collections::BTreeMap;

/// A call or a loop of a function in both builds.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// Where it is, in each build that has it.
    pub at: [Option<At>; 2],
    /// How it was found out that they are one.
    pub how: How,
    /// How often it was come to in each build.
    pub times: [f64; 2],
    /// How often one was paired with the other.
    pub paired: f64,
}

/// What is gathered of the activities of a function.
pub struct Explaining<'a> {
    readings: &'a [Reading<'a>; 2],
    name: &'a str,
    /// By key.
    found: BTreeMap<u32, Explained>,
}

impl<'a> Explaining<'a> {
    /// Of the function with this bare name.
    pub fn new(readings: &'a [Reading<'a>; 2], name: &'a str) -> Explaining<'a> {
        Explaining { readings, name, found: BTreeMap::new() }
    }

    /// Adds two activities, if they are of the function.
    pub fn add(&mut self, aligned: &Aligned) {
        let is_asked = |n: usize| {
            let side = self.readings[n].side;
            let function = side.log.activities.get(aligned.activities[n] as usize).map(|of| of.function);
            let function = function.and_then(|of| side.code.functions.get(of as usize));
            function.is_some_and(|of| *of.bare == *self.name)
        };
        if !is_asked(0) && !is_asked(1) {
            return;
        }
        for n in [0, 1] {
            for item in aligned.items[n].iter().filter(|item| item.is_event()) {
                let at = (self.function(n, item), self.readings[n].place(item));
                let how = self.how(n, at.1);
                let row = self.found.entry(item.key).or_insert(Explained {
                    at: [None; 2],
                    how,
                    times: [0.0; 2],
                    paired: 0.0,
                });
                row.at[n].get_or_insert(at);
                row.times[n] += aligned.times;
                // What the new build says is surer: it was looked for in the old one.
                row.how = if n == 1 { how } else { row.how };
            }
        }
        for (x, _) in &aligned.pairs {
            let row = aligned.items[0].get(*x).and_then(|item| self.found.get_mut(&item.key));
            row.into_iter().for_each(|row| row.paired += aligned.times);
        }
    }

    /// What was gathered, by where it is in the old build, then in the new one.
    pub fn finish(self) -> Vec<Explained> {
        let mut all: Vec<Explained> = self.found.into_values().collect();
        all.sort_by_key(|row| (row.at[0].is_none(), row.at));
        all
    }

    fn function(&self, n: usize, item: &Item) -> u32 {
        let activity = self.readings[n].side.log.activities.get(item.activity as usize);
        activity.map_or(super::code::NONE, |of| of.function)
    }

    fn how(&self, n: usize, place: Place) -> How {
        let keys = self.readings[n].keys;
        match place {
            Place::Site(site) => keys.how_site(n, site),
            Place::Rounds(of) => keys.how_loop(n, of),
            Place::Start | Place::Called(_) | Place::End => How::Names,
        }
    }
}
