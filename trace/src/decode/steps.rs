//! What was found before: of a position and an event, where control goes from there without another event,
//! and what that is told by.
#![warn(clippy::indexing_slicing)]

use super::activation::Activation;
use crate::decode::region::Border;
use std::collections::HashSet;

/// Of a position and an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedStep {
    key: u64,
    /// Whether the event is of the function; else it comes to its silent end.
    pub(super) is_here: bool,
    pub(super) border: Option<Border>,
    /// Which symbols tell of the way.
    symbols: (u32, u32),
    /// Where the function is then, if it is elsewhere.
    to: Option<Activation>,
}

/// The steps that were of use last, in a table of fixed size.
#[derive(Debug, Default)]
pub(super) struct StepCache {
    table: Vec<Option<CachedStep>>,
    symbols: Vec<u32>,
    /// The steps that led to what was told last.
    pub(super) chain: Vec<CachedStep>,
    /// Functions that were left and points that came next, where nobody called the one who leads to the
    /// other.
    pub(super) orphans: HashSet<(usize, u32, u32)>,
}

/// Of the table.
const LEN: usize = 1 << 13;
/// With more symbols, all is forgotten.
const MOST_SYMBOLS: usize = 1 << 20;

impl StepCache {
    /// Forgets all if it is too much. What was got before is of no use then.
    pub(super) fn tidy(&mut self) {
        if self.table.is_empty() || self.symbols.len() > MOST_SYMBOLS {
            self.table.clear();
            self.table.resize(LEN, None);
            self.symbols.clear();
        }
    }

    fn place(key: u64) -> usize {
        usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51).unwrap_or_default()
    }

    /// That of a position and a word, if it is there.
    pub(super) fn get(&self, position: u32, word: u32) -> Option<CachedStep> {
        let key = u64::from(position) << 32 | u64::from(word);
        self.table.get(Self::place(key)).copied().flatten().filter(|step| step.key == key)
    }

    /// Notes how the function `from` goes: `walk` has it go there. Without a word, it is not kept for the
    /// next time.
    pub(super) fn put(
        &mut self,
        position: u32,
        word: Option<u32>,
        (is_here, border): (bool, Option<Border>),
        from: Activation,
        walk: impl FnOnce(&mut Activation, &mut Vec<u32>),
    ) -> CachedStep {
        let key = u64::from(position) << 32 | u64::from(word.unwrap_or_default());
        let first = self.symbols.len();
        let mut to = from;
        walk(&mut to, &mut self.symbols);
        let len = self.symbols.len() - first;
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let to = (len > 0 || (to.block, to.call) != (from.block, from.call)).then_some(to);
        let step = CachedStep { key, is_here, border, symbols: (narrow(first), narrow(len)), to };
        if word.is_some()
            && let Some(place) = self.table.get_mut(Self::place(key))
        {
            *place = Some(step);
        }
        step
    }

    /// Has a function go where it says.
    pub(super) fn follow(&self, step: &CachedStep, a: &mut Activation, out: &mut Vec<u32>) {
        let (first, len) = (step.symbols.0 as usize, step.symbols.1 as usize);
        out.extend_from_slice(self.symbols.get(first..first + len).unwrap_or_default());
        if let Some(to) = step.to {
            *a = Activation { is_awaited: a.is_awaited, is_handler: a.is_handler, frame: a.frame, ..to };
        }
    }
}
