//! Which code goes where: by block, and by the spot in it.

use crate::code::Insert;
use program::{BlockId, Va};

/// Where in a block code goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Spot {
    /// In front of the block, for exceptions that are raised in the block that starts here.
    Pad(Va),
    /// In front of the block: where checks in front of it lead that find something.
    Found,
    /// Behind that, for who comes from old code.
    Checked,
    /// In front of the block, for who comes from outside of the function.
    Outside,
    /// Before this instruction of it.
    Before(Va),
    /// Behind this instruction of it.
    After(Va),
    /// Where the block's last instruction branches to, if it does.
    Taken,
    /// Where the block's jump goes to the block that starts here.
    Table(Va),
    /// At its end, if control runs on.
    Through,
    /// Nothing: its call at this address comes as from inside of what it calls.
    FromInside(Va),
}

impl Spot {
    /// Whether it is in front of the block.
    pub fn is_in_front(self) -> bool {
        matches!(self, Spot::Pad(_) | Spot::Found | Spot::Checked | Spot::Outside)
    }
}

/// Code, and where it goes.
pub type Written = ((BlockId, Spot), Insert);

/// The code of each block, by spot.
#[derive(Default, Debug)]
pub struct Inserts {
    all: Vec<(Spot, Insert)>,
    /// Where those of each block start, and where the last ones end; nothing if there are none.
    first: Vec<u32>,
}

impl Inserts {
    /// For a program of `n_blocks`. What goes to the same spot stands there in this order.
    pub fn of(n_blocks: usize, mut written: Vec<Written>) -> Inserts {
        if written.is_empty() {
            return Inserts::default();
        }
        if written.is_sorted_by_key(|w| w.0.0) {
            written.chunk_by_mut(|a, b| a.0.0 == b.0.0).for_each(|block| block.sort_by_key(|w| w.0));
        } else {
            written.sort_by_key(|w| w.0);
        }
        let mut all: Vec<(Spot, Insert)> = Vec::with_capacity(written.len());
        let mut first = Vec::with_capacity(n_blocks + 1);
        let mut before = None;
        for (key, code) in written {
            match all.last_mut() {
                Some(last) if before == Some(key) => last.1.append(code),
                _ => {
                    let n = u32::try_from(all.len()).expect("no more than edges and blocks");
                    first.resize((key.0.index() + 1).max(first.len()), n);
                    all.push((key.1, code));
                }
            }
            before = Some(key);
        }
        first.resize(n_blocks + 1, u32::try_from(all.len()).expect("no more than edges and blocks"));
        Inserts { all, first }
    }

    /// Those of `block`.
    pub fn in_block(&self, block: BlockId) -> &[(Spot, Insert)] {
        if self.first.is_empty() {
            return &[];
        }
        let at =
            |n: usize| *self.first.get(n).expect("a start for each block, and the last one's end") as usize;
        self.all.get(at(block.index())..at(block.index() + 1)).expect("starts ascend")
    }
}
