//! A path as a deterministic automaton over the blocks of its function; of a plain path, Knuth, Morris and
//! Pratt's.
//!
//! Blocks fall into classes: those that the path names have one each, all others share class 0. The state
//! after a block says which beginnings of the path end there; an occurrence ends wherever an accepting state
//! is reached.

use crate::ids::{BlockId, FuncId};
use crate::search::path::Path;
use std::collections::BTreeMap;

/// A state. 0 is where every activation starts.
pub type State = u16;

/// States that an automaton may have: paths with many gaps and alternatives could need more than memory.
const MOST_STATES: usize = 4096;

/// A path, ready to search.
#[derive(Debug)]
pub struct Automaton {
    /// The function that it belongs to.
    pub func: FuncId,
    plain: Option<Vec<BlockId>>,
    classes: BTreeMap<BlockId, u16>,
    dense: Vec<u16>,
    n_classes: usize,
    next: Vec<State>,
    accepts: Vec<bool>,
}

/// A path that needs too many states.
#[derive(Debug, thiserror::Error)]
#[error("the path has too many alternatives and gaps to be searched at once")]
pub struct TooWide;

impl Automaton {
    /// Makes the automaton of `path`.
    ///
    /// # Errors
    /// [`TooWide`] if it would have more than 4096 states; a plain path never has.
    pub fn new(path: &Path) -> Result<Self, TooWide> {
        let mut classes = BTreeMap::new();
        for &block in path.steps.iter().flat_map(|step| &step.blocks) {
            let n = u16::try_from(classes.len() + 1).map_err(|_| TooWide)?;
            classes.entry(block).or_insert(n);
        }
        let n_classes = classes.len() + 1;
        let n_steps = path.steps.len();
        // A set of positions as bits: position i says that the first i steps have been matched.
        let moved = |set: u128, class: u16| {
            let mut to = 1_u128;
            for (i, step) in path.steps.iter().enumerate() {
                let fits = step.blocks.iter().any(|block| classes.get(block) == Some(&class));
                let here = set >> i & 1 == 1;
                let again = step.repeats && set >> (i + 1) & 1 == 1;
                if fits && (here || again) {
                    to |= 1 << (i + 1);
                }
                if here && step.after_gap {
                    to |= 1 << i;
                }
            }
            to
        };
        let (mut sets, mut ids) = (vec![1_u128], BTreeMap::from([(1_u128, 0)]));
        let (mut next, mut accepts) = (Vec::new(), Vec::new());
        let mut done = 0;
        while let Some(&set) = sets.get(done) {
            done += 1;
            accepts.push(set >> n_steps & 1 == 1);
            for class in 0..n_classes {
                let to = moved(set, u16::try_from(class).map_err(|_| TooWide)?);
                let id = *ids.entry(to).or_insert_with(|| {
                    sets.push(to);
                    sets.len() - 1
                });
                if id >= MOST_STATES {
                    return Err(TooWide);
                }
                next.push(State::try_from(id).map_err(|_| TooWide)?);
            }
        }
        let last = classes.keys().next_back().map_or(0, |&block| block.index());
        let dense = (0..=last.min(0xffff))
            .map(|b| u32::try_from(b).ok().and_then(|b| classes.get(&BlockId(b))).copied().unwrap_or(0));
        Ok(Self {
            func: path.func,
            plain: path.plain(),
            dense: dense.collect(),
            classes,
            n_classes,
            next,
            accepts,
        })
    }

    /// The blocks of the path, if it is a plain one.
    pub fn plain(&self) -> Option<&[BlockId]> {
        self.plain.as_deref()
    }

    /// Whether more than the first block of a plain path has been executed; anything, of another path.
    pub fn is_beyond_first(&self, state: State) -> bool {
        let first = self.plain().and_then(<[BlockId]>::first);
        state != 0 && first.is_none_or(|&block| state != self.next(0, self.class(block)))
    }

    /// The class of a block of the function.
    #[inline]
    pub fn class(&self, block: BlockId) -> u16 {
        match self.dense.get(block.index()) {
            Some(&class) => class,
            None if block.0 > 0xffff => self.classes.get(&block).copied().unwrap_or(0),
            None => 0,
        }
    }

    /// The state behind a block of this class.
    #[inline]
    pub fn next(&self, state: State, class: u16) -> State {
        self.next[usize::from(state) * self.n_classes + usize::from(class)]
    }

    /// Whether an occurrence ends where this state is reached.
    #[inline]
    pub fn accepts(&self, state: State) -> bool {
        self.accepts[usize::from(state)]
    }

    /// How many states there are.
    pub fn n_states(&self) -> usize {
        self.accepts.len()
    }

    /// How many classes there are.
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::names::Names;

    /// Indices of last blocks, and the number of states.
    #[track_caller]
    fn check(path: &str, blocks: &[u32], expect: &[usize], n_states: usize) {
        let automaton = Path::parse(path, &Names::default()).map(|path| Automaton::new(&path));
        let automaton = automaton.expect("it is a path").expect("it is small");
        let mut state = 0;
        let found = blocks.iter().enumerate().filter(|(_, block)| {
            state = automaton.next(state, automaton.class(BlockId(**block)));
            automaton.accepts(state)
        });
        assert_eq!(found.map(|(i, _)| i).collect::<Vec<_>>(), expect, "{path}");
        assert_eq!(automaton.n_states(), n_states, "{path}");
    }

    #[test]
    fn overlapping_occurrences_are_all_found() {
        check("#0: 1 2 1", &[1, 2, 1, 2, 1, 1, 2, 3, 1], &[2, 4], 4);
        check("#0: 7", &[7, 7, 70000], &[0, 1], 2);
        check("#0: 70000 1", &[70000, 70000, 1], &[2], 3);
    }

    #[test]
    fn gaps_alternatives_and_repetitions_match_what_they_say() {
        check("#0: 1 .. 3", &[1, 2, 2, 3, 3, 1, 3], &[3, 4, 6], 3);
        check("#0: 1|2 3", &[1, 3, 2, 3, 3], &[1, 3], 3);
        check("#0: 1 2+ 3", &[1, 2, 2, 3, 1, 3, 2, 3], &[3], 4);
    }
}
