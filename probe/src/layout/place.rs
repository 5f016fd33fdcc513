//! Where each piece of moved code stands.

use crate::layout::piece::Piece;
use program::Va;

/// A piece at its place.
pub struct Placed<'a> {
    /// The piece.
    pub piece: &'a Piece,
    /// Its address.
    pub at: Va,
}

impl Placed<'_> {
    /// Where what was at `old` now is.
    pub fn map(&self, old: Va) -> Va {
        self.at.plus(u64::from(self.piece.offset_of(old)))
    }
}
