//! The driver: data, then functions, then the blocks of each matched pair.
//!
//! Source: BMAT, figure 2.

use crate::hash::Keys;
use crate::options::Options;
use crate::relation::{BlockMatch, Matching, OneToOne};
use crate::{blocks, functions};
use program::Program;
use rayon::prelude::*;

/// What is matched already, for those who compare code: operands that refer to matched things are equal.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Which passes run.
    pub options: &'a Options,
    /// Functions, by [`FuncId`].
    pub functions: &'a OneToOne,
    /// Data, by index into [`Program::data`].
    pub data: &'a OneToOne,
}

impl Matching {
    /// Which parts of `old` and `new` are each other.
    pub fn compute(old: &Program, new: &Program, options: &Options) -> Matching {
        let data = OneToOne::new(old.data.len(), new.data.len());
        let (functions, pairs) = functions::compute(old, new, options);
        let _ = Context { options, functions: &pairs, data: &data };
        let (mut old_keys, mut new_keys) = rayon::join(|| Keys::compute(old), || Keys::compute(new));
        Keys::join(&mut old_keys, &mut new_keys, &functions, &[]);
        let context = blocks::Context { old: &old_keys, new: &new_keys, options };
        let found: Vec<Vec<BlockMatch>> =
            functions.par_iter().map(|m| blocks::compute(old, m.old, new, m.new, &context)).collect();
        let mut blocks: Vec<BlockMatch> = found.into_iter().flatten().collect();
        // Stable: of the old blocks of a new one, the best stays first.
        blocks.sort_by_key(|m| m.new);
        Matching { functions, blocks, data: Vec::new() }
    }
}
