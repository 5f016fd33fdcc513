//! The driver: data, then functions, then the blocks of each matched pair.
//!
//! Source: BMAT, figure 2.

use crate::hash::Keys;
use crate::options::{Options, Pass};
use crate::relation::{BlockMatch, Matching};
use crate::{blocks, functions, inlined};
use program::Program;
use rayon::prelude::*;

impl Matching {
    /// Which parts of `old` and `new` are each other.
    pub fn compute(old: &Program, new: &Program, options: &Options) -> Matching {
        let (mut old_keys, mut new_keys) = rayon::join(|| Keys::compute(old), || Keys::compute(new));
        let (functions, _) = functions::compute((old, &old_keys), (new, &new_keys), options);
        Keys::join(&mut old_keys, &mut new_keys, &functions, &[]);
        let context = blocks::Context { old: &old_keys, new: &new_keys, options };
        let found: Vec<Vec<BlockMatch>> =
            functions.par_iter().map(|m| blocks::compute(old, m.old, new, m.new, &context)).collect();
        let mut blocks: Vec<BlockMatch> = found.into_iter().flatten().collect();
        // Stable: of the old blocks of a new one, the best stays first.
        blocks.sort_by_key(|m| m.new);
        if options.has(Pass::Inlined) {
            inlined::pass(old, new, &functions, &context, &mut blocks);
        }
        Matching { functions, blocks, data: Vec::new() }
    }
}
