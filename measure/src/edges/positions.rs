//! Where moved code belongs to in the flow of its functions: whoever leaves it there for good, leaves the
//! flow at that node.
//!
//! ```text
//! positions = position*
//! position  = bytes from the one before: varint, 0 (no node) or 1 + functions from the one before, signed:
//!             varint, then 32 · node + 2 · n_called + is_start from the one before, signed: varint
//! ```
//! A position holds up to the next one. Nodes are those of `notes::FunctionFlow`: 2 i is the head of its
//! block i, where its counter has not been incremented yet, 2 i + 1 its end.
//!
//! Invariant: positions come in the order of the moved code.
#![warn(clippy::indexing_slicing)]

use profile::ReadError;
use profile::encoding::{Cursor, unzigzag, varint, zigzag};

/// From where on moved code belongs to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Offset in the moved code.
    pub at: u32,
    /// The function, by position in the notes, and its node; nothing for what belongs to none.
    pub node: Option<(u32, u32)>,
    /// Whether a block without a counter starts here: who is at its first byte has not run it, and is at its
    /// head.
    pub is_start: bool,
    /// How many of the block's calls whose places are known (`Sum::blocks`) stand before; 15 are more, too.
    pub n_called: u32,
}

/// A node of a function, by position in the notes, and how many of the block's calls have been made there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The function.
    pub function: u32,
    /// The node.
    pub node: u32,
    /// How many of those whose positions are known.
    pub n_called: u32,
}

/// No more calls of a block are told apart.
const MOST_CALLED: u32 = 15;

/// Writes them.
pub fn write(positions: &[Position]) -> Vec<u8> {
    let mut out = Vec::with_capacity(positions.len() * 4);
    let (mut at, mut function, mut node) = (0, 0, 0);
    for place in positions {
        varint(&mut out, u64::from(place.at - at));
        at = place.at;
        match place.node {
            None => out.push(0),
            Some((f, n)) => {
                varint(&mut out, zigzag(i64::from(f) - function) + 1);
                let n_called = i64::from(place.n_called.min(MOST_CALLED));
                let coded = 32 * i64::from(n) + 2 * n_called + i64::from(place.is_start);
                varint(&mut out, zigzag(coded - node));
                (function, node) = (i64::from(f), coded);
            }
        }
    }
    out
}

/// The nodes at these offsets in the moved code.
///
/// # Errors
/// [`ReadError::Damaged`] if they are cut off.
pub fn find(bytes: &[u8], offsets: &[u64]) -> Result<Vec<Option<Found>>, ReadError> {
    let mut order: Vec<usize> = (0..offsets.len()).collect();
    order.sort_by_key(|&i| offsets.get(i));
    let mut found = vec![None; offsets.len()];
    let mut waiting = order.into_iter().peekable();
    let mut c = Cursor::within(bytes);
    let (mut at, mut function, mut node) = (0u64, 0i64, 0i64);
    let mut here = None;
    loop {
        let next = match c.is_at_end() {
            true => u64::MAX,
            false => at.saturating_add(c.varint()?),
        };
        while let Some(i) = waiting.next_if(|&i| offsets.get(i).is_some_and(|o| *o < next)) {
            if let Some(place) = found.get_mut(i) {
                let is_first = offsets.get(i) == Some(&at);
                *place = here.map(|(found, is_start): (Found, bool)| match is_start && is_first {
                    true => Found { node: found.node & !1, ..found },
                    false => found,
                });
            }
        }
        if next == u64::MAX || waiting.peek().is_none() {
            return Ok(found);
        }
        at = next;
        here = match c.varint()? {
            0 => None,
            n => {
                function = function.wrapping_add(unzigzag(n - 1));
                node = node.wrapping_add(unzigzag(c.varint()?));
                let [function, n] = [function, node >> 5].map(|n| u32::try_from(n).ok());
                let n_called = u32::try_from(node >> 1 & i64::from(MOST_CALLED)).unwrap_or(0);
                function.zip(n).map(|(function, n)| (Found { function, node: n, n_called }, node & 1 == 1))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever stands in a recording: an answer for each offset, or an error.
        #[test]
        fn bytes_that_are_no_positions_do_no_harm(bytes: Vec<u8>, offsets: Vec<u64>) {
            if let Ok(found) = find(&bytes, &offsets) {
                prop_assert_eq!(found.len(), offsets.len());
            }
        }
    }

    #[test]
    fn what_was_written_is_found() {
        let positions: Vec<Position> =
            [(0, None), (16, Some((3, 7))), (17, Some((3, 0))), (1000, None), (1004, Some((0, 901)))]
                .map(|(at, node)| Position {
                    at,
                    node,
                    is_start: at == 1004,
                    n_called: if at == 16 { 3 } else { 0 },
                })
                .into();
        let bytes = write(&positions);
        let want = |at: u64| match at {
            1004 => Some((0, 900)),
            _ => positions.iter().rfind(|p| u64::from(p.at) <= at).and_then(|p| p.node),
        };
        let want = |at: u64| {
            want(at).map(|(function, node)| Found { function, node, n_called: if node == 7 { 3 } else { 0 } })
        };
        let offsets: Vec<u64> = (0..1100).rev().collect();
        let found = find(&bytes, &offsets).expect("it was written");
        for (at, got) in offsets.iter().zip(found) {
            assert_eq!(got, want(*at), "{at}");
        }
        assert!(find(bytes.get(..bytes.len() - 1).expect("longer"), &[2000]).is_err());
        assert_eq!(find(&[], &[5]).ok(), Some(vec![None]));
    }
}
