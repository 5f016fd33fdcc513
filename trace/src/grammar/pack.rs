//! From streams of symbols to the sections of a packed file.

use crate::file::{Sections, section};
use crate::grammar::activations::{Activations, Compressor};
use crate::grammar::coder;
use crate::grammar::loaded::Loaded;
use crate::grammar::repair::Repair;
use crate::grammar::rules::Rules;
use crate::grammar::segments;
use crate::grammar::sequitur::Sequitur;
use crate::grammar::{Alphabet, Grammar};
use crate::ids::{FuncId, ThreadId};
use crate::search::columns;
use crate::symbol::Symbol;
use std::io::{self, Write};

/// How a grammar is made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Maker {
    /// By SEQUITUR, while the stream is read.
    #[default]
    Sequitur,
    /// By RePair, when all streams have been read: smaller, in more time and memory.
    Repair,
}

enum Making {
    Sequitur(Sequitur),
    Repair(Repair),
}

impl Compressor for Making {
    fn push(&mut self, symbols: &[u32]) {
        match self {
            Self::Sequitur(sequitur) => Compressor::push(sequitur, symbols),
            Self::Repair(repair) => repair.push(symbols),
        }
    }

    fn part(&mut self, symbols: &[u32]) -> u32 {
        match self {
            Self::Sequitur(sequitur) => sequitur.part(symbols),
            Self::Repair(repair) => repair.part(symbols),
        }
    }
}

/// Takes streams one after the other, symbol by symbol.
pub struct Builder {
    alphabet: Alphabet,
    activations: Activations,
    making: Making,
    threads: Vec<ThreadId>,
}

impl Builder {
    /// No stream yet.
    pub fn new(maker: Maker) -> Self {
        let (activations, making) = match maker {
            Maker::Sequitur => (Activations::default(), Making::Sequitur(Sequitur::new())),
            Maker::Repair => (Activations::without_rounds(), Making::Repair(Repair::default())),
        };
        Self { alphabet: Alphabet::default(), activations, making, threads: Vec::new() }
    }

    /// Takes the next symbol of the stream, which belongs to `func`.
    #[inline]
    pub fn push(&mut self, func: FuncId, symbol: Symbol) {
        let number = self.alphabet.number(func, symbol);
        self.activations.push(symbol, number, &mut self.making);
    }

    /// Ends the stream: it was that of `thread`.
    pub fn end(&mut self, thread: ThreadId) {
        self.activations.give(&mut self.making);
        match &mut self.making {
            Making::Sequitur(sequitur) => sequitur.end(),
            Making::Repair(repair) => repair.end(),
        }
        self.threads.push(thread);
    }

    /// Writes the sections.
    ///
    /// # Errors
    /// If they cannot be written, or could not be read again.
    pub fn finish<W: Write>(self, sections: &mut Sections<W>) -> io::Result<()> {
        drop(self.activations);
        let rules: Rules = match self.making {
            Making::Sequitur(sequitur) => sequitur.finish().in_order(),
            Making::Repair(repair) => repair.finish().in_order(),
        };
        let grammar = Grammar::new(rules, &self.alphabet, &self.threads);
        if !grammar.is_sane(&grammar.lengths(), &grammar.levels()) {
            return Err(io::Error::other("it has too many open functions to be packed: keep it as chunks"));
        }
        sections.write(&section(coder::GRAMMAR, &coder::write_grammar(&grammar)))?;
        sections.write(&section(columns::COLUMNS, &columns::write(&columns::of_grammar(&grammar))))?;
        let loaded = Loaded::new(grammar);
        sections.write(&section(segments::SEGMENTS, &loaded.segments.encode()))
    }
}
