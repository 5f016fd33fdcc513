//! Searches in parts of streams: what occurs from an index on, before another.

use crate::ids::ThreadId;
use crate::search::automaton::Automaton;
use crate::search::path::Path;
use crate::search::{Found, Position, Scheme, Want};
use crate::trace::{SearchError, Trace};
use std::collections::BTreeMap;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// Indices of symbols, by stream; of other streams, nothing is looked at.
pub type Ranges = BTreeMap<ThreadId, Range<u64>>;

impl Trace {
    /// Searches as [`Trace::search_path`], for what has its last block in these ranges.
    ///
    /// # Errors
    /// If the file cannot be read, does not hold what the scheme works on, or the scheme does not follow
    /// calls.
    pub fn search_within(
        &self,
        path: &Path,
        want: Want,
        scheme: Option<Scheme>,
        ranges: &Ranges,
    ) -> Result<(Found, Scheme), SearchError> {
        let is_unpacked = matches!(scheme, Some(Scheme::Unpacked | Scheme::Chunks));
        if self.has_grammar() && !path.has_calls() && !is_unpacked {
            return self.search_grammar_within(&Automaton::new(path)?, want, scheme, ranges);
        }
        let mut found = Found::default();
        let is_in = |thread, index: u64| ranges.get(&thread).is_some_and(|range| range.contains(&index));
        let note = |thread, index| !is_in(thread, index) || found.note(want, thread, index);
        let used = self.each(path, want.thread(), scheme, note)?;
        Ok((found, used))
    }

    /// On the grammar: how often it occurs before each end of a range. Where each is asked for, all of them
    /// are found.
    fn search_grammar_within(
        &self,
        path: &Automaton,
        want: Want,
        scheme: Option<Scheme>,
        ranges: &Ranges,
    ) -> Result<(Found, Scheme), SearchError> {
        let mut found = Found::default();
        if !matches!(want, Want::Count | Want::First | Want::CountAndFirst | Want::PerThread) {
            let (all, used) = self.search(path, Want::All, scheme)?;
            let is_in = |p: &&Position| ranges.get(&p.thread).is_some_and(|range| range.contains(&p.index));
            all.all.iter().filter(is_in).all(|p| found.note(want, p.thread, p.index));
            return Ok((found, used));
        }
        let mut used = scheme.unwrap_or(Scheme::Segments);
        for (&thread, range) in ranges {
            let mut before = |index| {
                let (found, by) = self.search(path, Want::CountBefore(Position { thread, index }), scheme)?;
                used = by;
                Ok::<_, SearchError>(found.count)
            };
            let n = before(range.end)?.saturating_sub(before(range.start)?);
            found.add(want, thread, n);
            if n > 0 && found.first.is_none() && matches!(want, Want::First | Want::CountAndFirst) {
                // A stream starts with an entry, so an occurrence is never its first symbol.
                let at = Position { thread, index: range.start.saturating_sub(1) };
                found.first = self.search(path, Want::Next(at), scheme)?.0.first;
                if want == Want::First {
                    break;
                }
            }
        }
        Ok((found, used))
    }
}
