//! From streams of symbols to the sections of a packed file.

use crate::activations::Activations;
use crate::coder;
use crate::columns;
use crate::compressed::Loaded;
use crate::file::{Sections, section};
use crate::grammar::{Alphabet, Grammar};
use crate::sequitur::Sequitur;
use crate::symbol::Symbol;
use std::io::{self, Write};

/// What the section of the grammar is called.
pub(crate) const GRAMMAR: [u8; 4] = *b"GRAM";

/// What the section of its segments is called.
pub(crate) const SEGMENTS: [u8; 4] = *b"SEGM";

/// What the section of the columns is called.
pub(crate) const COLUMNS: [u8; 4] = *b"COLS";

/// Takes streams one after the other, symbol by symbol.
#[derive(Default)]
pub struct Builder {
    alphabet: Alphabet,
    activations: Activations,
    sequitur: Sequitur,
    threads: Vec<u32>,
}

impl Builder {
    /// Takes the next symbol of the stream, which belongs to `func`.
    #[inline]
    pub fn push(&mut self, func: u32, symbol: Symbol) {
        let number = self.alphabet.number(func, symbol);
        self.activations.push(symbol, number, &mut self.sequitur);
    }

    /// Ends the stream: it was that of `thread`.
    pub fn end(&mut self, thread: u32) {
        self.activations.give(&mut self.sequitur);
        self.sequitur.end();
        self.threads.push(thread);
    }

    /// Writes the sections.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn finish<W: Write>(self, sections: &mut Sections<W>) -> io::Result<()> {
        let grammar = Grammar::new(self.sequitur.finish().in_order(), &self.alphabet, &self.threads);
        sections.write(&section(GRAMMAR, &coder::write_grammar(&grammar)))?;
        sections.write(&section(COLUMNS, &columns::write(&columns::of_grammar(&grammar))))?;
        let loaded = Loaded::new(grammar);
        sections.write(&section(SEGMENTS, &loaded.segments.encode()))
    }
}
