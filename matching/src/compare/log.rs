//! What a run did, as a log of events: calls, returns, and rounds of loops. Equal activations are one.
//!
//! ```text
//! thread: gap CALL f gap CALL g gap          an activation of f: gap ROUNDS of loop 3 gap CALL h gap
//! ```
//! An [`Activity`] is what activations of one function did that did the same: the same calls of the same
//! activities at the same sites, and rounds of the same loops in between. How often loops went round is not
//! in it, but summed up: between two calls, all rounds of the outermost loop that went round are one event.
//! So its size is that of what differs, not of the run.
//!
//! What ran between two events is counted by where these are ([`Gap`]), whatever the activation.
//!
//! Source: Chainsaw (2009), "Log-based event matching"; hash-consing: Ershov, CACM 1(8), 1958.

mod builder;
mod stretch;
#[cfg(test)]
pub(super) mod tests;

pub use builder::Builder;

use super::code::{Code, TracedModule};
use trace::ThreadId;

/// What stands in an activity: a call, or rounds of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(u32);

/// What a [`Token`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A call, by its number in [`Log::calls`].
    Call(u32),
    /// Rounds of this loop.
    Rounds(u32),
}

impl Token {
    const ROUNDS: u32 = 1 << 31;

    /// What it is.
    pub fn kind(self) -> Kind {
        match self.0 & Token::ROUNDS {
            0 => Kind::Call(self.0),
            _ => Kind::Rounds(self.0 & !Token::ROUNDS),
        }
    }
}

/// A call with what it came to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Called {
    /// Where; [`NONE`] if nobody knows.
    pub site: u32,
    /// The activity of the function that was called.
    pub activity: u32,
}

/// What goes with a token, in all activations together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Sums {
    /// Instructions between the token before and this one.
    pub gap: u64,
    /// Instructions in rounds.
    pub inside: u64,
    /// Rounds of loops that have loops in them.
    pub light: u64,
    /// Rounds of all loops.
    pub heavy: u64,
}

/// What activations of one function did that did the same.
#[derive(Clone, Debug)]
pub struct Activity {
    /// The function; [`NONE`]: a thread.
    pub function: u32,
    /// What they did, in order.
    pub tokens: Box<[Token]>,
    /// How many activations.
    pub times: u64,
    /// The tokens in numbers; one more for what is behind the last.
    sums: AllSums,
}

/// What goes with the tokens of an activity.
#[derive(Clone, Debug)]
enum AllSums {
    /// One by one.
    Each(Box<[Sums]>),
    /// Where there are many, which are much the same: by their numbers in [`Log::sums`].
    Numbered(Box<[u32]>),
}

/// An end of a gap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// Where the function is entered.
    Start,
    /// This call.
    Site(u32),
    /// A call of this function from a place that nobody knows.
    Called(u32),
    /// Rounds of this loop.
    Rounds(u32),
    /// Where the function is left.
    End,
}

/// What runs between two places of a function; between rounds and the same rounds, what runs in them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GapKey {
    /// The function.
    pub function: u32,
    /// Where it begins.
    pub from: Place,
    /// Where it ends.
    pub to: Place,
    /// Whether it is what runs in rounds.
    pub is_inside: bool,
}

/// What ran in a gap.
#[derive(Clone, Debug, Default)]
pub struct Gap {
    /// How often.
    pub times: u64,
    /// Instructions.
    pub insns: u64,
    /// By [`counter`], in order: how often.
    counts: Box<[(u32, u64)]>,
}

/// What is counted of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counted {
    /// That it ran.
    Run = 0,
    /// That the branch at its end was taken.
    Taken = 1,
    /// That the padding behind a branch ran that was not taken.
    Padding = 2,
}

fn counter(block: u32, what: Counted) -> u32 {
    3 * block + what as u32
}

impl Gap {
    /// By block: what, and how often.
    pub fn counts(&self) -> impl Iterator<Item = (u32, Counted, u64)> + '_ {
        self.counts.iter().map(|&(counter, n)| {
            let what = match counter % 3 {
                0 => Counted::Run,
                1 => Counted::Taken,
                _ => Counted::Padding,
            };
            (counter / 3, what, n)
        })
    }
}

/// The log of a run.
#[derive(Debug, Default)]
pub struct Log {
    /// What activations did. One that calls another has a larger number.
    pub activities: Vec<Activity>,
    /// Calls, as tokens number them.
    pub calls: Vec<Called>,
    /// By thread: the activity that is all of it.
    pub threads: Vec<(ThreadId, u32)>,
    /// By thread, if they are asked for: the number of the symbol where each event is, in the order of
    /// events, those of what was called behind the call.
    pub positions: Vec<Vec<u64>>,
    /// What ran between events.
    pub gaps: Vec<(GapKey, Gap)>,
    /// Blocks that are of no function, or of none that is known.
    pub n_unknown: u64,
    /// What activities with many tokens have of their sums.
    sums: Vec<Sums>,
}

impl Log {
    /// What goes with the token of this number in all activations of an activity, or is behind the last.
    pub fn sums(&self, activity: &Activity, token: usize) -> Option<Sums> {
        match &activity.sums {
            AllSums::Each(all) => all.get(token).copied(),
            AllSums::Numbered(all) => self.sums.get(*all.get(token)? as usize).copied(),
        }
    }

    /// The same of all tokens of an activity, and of what is behind the last.
    pub fn all_sums<'a>(&'a self, activity: &'a Activity) -> impl Iterator<Item = Sums> + 'a {
        (0..=activity.tokens.len()).filter_map(|token| self.sums(activity, token))
    }
}

/// One of the two runs.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// Its code.
    pub code: &'a Code,
    /// What it did.
    pub log: &'a Log,
    /// Its programs.
    pub modules: &'a [TracedModule<'a>],
}

impl Sums {
    fn add(&mut self, more: &Sums, times: u64) {
        self.gap += more.gap * times;
        self.inside += more.inside * times;
        self.light += more.light * times;
        self.heavy += more.heavy * times;
    }
}
