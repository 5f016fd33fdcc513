//! A grammar with what searches need of it, whatever the path: lengths, levels, segments.

use crate::balance::Levels;
use crate::file::Tag;
use crate::grammar::coder;
use crate::grammar::segments::{self, Segments};
use crate::grammar::{Grammar, Sequence};
use crate::ids::ThreadId;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A grammar with what searches need of it, whatever the path.
pub struct Loaded {
    /// The grammar.
    pub grammar: Grammar,
    /// How many terminals each symbol makes.
    pub lengths: Vec<u64>,
    /// What each symbol does to the stack.
    pub levels: Vec<Levels>,
    /// Segments of the sequences.
    pub segments: Segments,
    /// By thread, where in its stream each symbol of the sequence ends; made when it is asked for.
    ends: OnceLock<BTreeMap<ThreadId, Vec<u64>>>,
}

impl Loaded {
    /// Computes what searches need.
    pub fn new(grammar: Grammar) -> Self {
        let (lengths, levels) = (grammar.lengths(), grammar.levels());
        let segments = Segments::of_grammar(&grammar, &lengths, &levels);
        Self { grammar, lengths, levels, segments, ends: OnceLock::new() }
    }

    /// Reads the section of a grammar, and that of its segments; without the latter, they are computed.
    ///
    /// # Errors
    /// The tag of the section that makes no sense, and what about it.
    pub fn read(bytes: &[u8], segments: Option<&[u8]>) -> Result<Self, (Tag, &'static str)> {
        const GRAMMAR: (Tag, &str) = (coder::GRAMMAR, "the grammar");
        let grammar = coder::read_grammar(bytes).ok_or(GRAMMAR)?;
        let (lengths, levels) = (grammar.lengths(), grammar.levels());
        if !grammar.is_sane(&lengths, &levels) {
            return Err(GRAMMAR);
        }
        let segments = match segments {
            Some(bytes) => Segments::decode(bytes, &grammar, &lengths, &levels)
                .ok_or((segments::SEGMENTS, "the segments"))?,
            None => Segments::of_grammar(&grammar, &lengths, &levels),
        };
        Ok(Self { grammar, lengths, levels, segments, ends: OnceLock::new() })
    }

    /// Where in the stream of `thread` each symbol of its sequence ends.
    pub fn ends(&self, thread: ThreadId) -> &[u64] {
        let of = |s: &Sequence| {
            let sums = s.body.iter().scan(0_u64, |sum, &symbol| {
                *sum = sum.saturating_add(self.lengths[symbol as usize]);
                Some(*sum)
            });
            (s.thread, sums.collect())
        };
        let ends = self.ends.get_or_init(|| self.grammar.sequences.iter().map(of).collect());
        ends.get(&thread).map_or(&[], Vec::as_slice)
    }

    /// How many symbols a sequence makes.
    pub fn n_symbols(&self, sequence: &Sequence) -> u64 {
        sequence.body.iter().fold(0_u64, |sum, &s| sum.saturating_add(self.lengths[s as usize]))
    }
}
