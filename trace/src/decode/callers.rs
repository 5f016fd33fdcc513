//! Which functions were open before a stream that begins in the middle, of those that nothing tells of: who
//! may have called what is left.
#![warn(clippy::indexing_slicing)]

use super::activation::Activation;
use super::module_codes::ModuleFunction;
use super::steps::CachedStep;
use super::{Decoder, Found, NotFound, Observation};
use crate::decode::region::Border;
use crate::symbol::Symbol;

/// So many callers are asked, at most; so many of them one in another.
const MOST_CALLERS: usize = 256;
const MOST_NESTED: usize = 4;
impl Decoder<'_> {
    /// Where all that is open was left, and what is told is nowhere that is known: the functions below it,
    /// from which control comes there. They are entered from outside, in the calls that what was left comes
    /// back from.
    pub(super) fn find_caller(&mut self, observed: Observation, out: &mut Vec<u32>) -> Option<Found> {
        let left = self.stack.open.first()?.function;
        let Observation::Point(word) = observed else { return None };
        if self.steps.orphans.contains(&(left.module, left.func, word)) {
            return None;
        }
        let Some(below) = self.below(left, observed) else {
            self.steps.orphans.insert((left.module, left.func, word));
            return None;
        };
        self.settle(0, false, out);
        let n_left = self.stack.open.leave_from(0);
        out.extend((0..n_left).map(|_| Symbol::EXIT.0));
        for one in below {
            self.enter(one, true, out);
        }
        self.find(observed).ok()
    }

    /// The nearest functions, from the lowest, that `left` may have returned to, and that lead to what is
    /// told. If that is in none of them, but in what they call next, others that call the same may have been
    /// there: then only those that nobody else can be are.
    fn below(&mut self, left: ModuleFunction, observed: Observation) -> Option<Vec<Activation>> {
        let codes = self.codes;
        let open = std::mem::take(&mut self.stack.open);
        let (mut found, mut leads_inside) = (None, Vec::<Vec<Activation>>::new());
        let mut n_asked = 0;
        // What may be open, each with what it was called by first.
        let mut level: Vec<Vec<Activation>> = vec![Vec::new()];
        'levels: for _ in 0..MOST_NESTED {
            let mut next = Vec::new();
            for above in std::mem::take(&mut level) {
                let of = above.first().map_or(left, |a| a.function);
                for &(of, block, call) in codes.callers(of) {
                    n_asked += 1;
                    if n_asked > MOST_CALLERS {
                        leads_inside.clear();
                        break 'levels;
                    }
                    let mut caller = Activation::at(of, block, None);
                    let mut all = above.clone();
                    match all.first_mut() {
                        // What it called is behind its own call, and returns to it.
                        Some(first) => (first.is_awaited, caller.call, caller.has_come) = (true, call, true),
                        None => caller.returned(block, call),
                    }
                    all.insert(0, caller);
                    self.stack.open = all.into();
                    match self.find(observed) {
                        Ok(way) if way.n_open > 0 => {
                            let goes_in =
                                |step: &CachedStep| matches!(step.border, Some(Border::Call { .. }));
                            let is_inside = self.steps.chain.iter().take(way.n_ends).any(goes_in);
                            let all = std::mem::take(&mut self.stack.open).into_all();
                            if is_inside {
                                leads_inside.push(all);
                            } else {
                                found = Some(all);
                                break 'levels;
                            }
                        }
                        Err(NotFound::RanOut) => next.push(std::mem::take(&mut self.stack.open).into_all()),
                        _ => {}
                    }
                }
            }
            level = next;
        }
        // Others may have been there that were not asked.
        if !level.is_empty() || codes.misses_callers() {
            leads_inside.clear();
        }
        self.stack.open = open;
        let lowest = |all: &Vec<Activation>| all.first().map(|a| a.function);
        let first = leads_inside.first().and_then(lowest);
        let is_sure = leads_inside.iter().all(|all| lowest(all) == first);
        found.or_else(|| leads_inside.into_iter().next().filter(|_| is_sure))
    }
}
