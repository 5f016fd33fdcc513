//! The driver: data, then functions, then the blocks of each matched pair.
//!
//! Source: BMAT, figure 2.

use crate::data::Data;
use crate::hash::{Hashes, Keys};
use crate::options::{Options, Pass};
use crate::relation::{BlockMatch, Matching};
use crate::{blocks, functions, inlined};
use program::Program;
use rayon::prelude::*;

impl Matching {
    /// Which parts of `old` and `new` are each other.
    pub fn compute(old: &Program, new: &Program, options: &Options) -> Matching {
        let (mut old_keys, mut new_keys) = rayon::join(|| Keys::compute(old), || Keys::compute(new));
        let mut data = Data::compute(old, new, options);
        Keys::join(&mut old_keys, &mut new_keys, &[], &data.matches());
        let (old_hashes, new_hashes) =
            rayon::join(|| Hashes::compute(old, &old_keys), || Hashes::compute(new, &new_keys));
        let (functions, pairs) =
            functions::compute((old, &old_keys, &old_hashes), (new, &new_keys, &new_hashes), options);
        data.refine(&pairs, &old_hashes, &new_hashes);
        drop((old_hashes, new_hashes));
        let data = data.matches();
        Keys::join(&mut old_keys, &mut new_keys, &functions, &data);
        let context = blocks::Context { old: &old_keys, new: &new_keys, options };
        let found: Vec<Vec<BlockMatch>> =
            functions.par_iter().map(|m| blocks::compute(old, m.old, new, m.new, &context)).collect();
        let mut blocks: Vec<BlockMatch> = found.into_iter().flatten().collect();
        // Stable: of the old blocks of a new one, the best stays first.
        blocks.sort_by_key(|m| m.new);
        if options.has(Pass::Inlined) {
            inlined::pass(old, new, &functions, &context, &mut blocks);
        }
        Matching { functions, blocks, data }
    }
}
