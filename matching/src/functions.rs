//! Which function became which.
//!
//! Invariant: one to one. A pass takes what is free on both sides. The only one that takes a match back
//! (`wrappers`) leaves those that a name found which no other function of either build has.
//!
//! Source: BMAT, section 2.1; from `rounds` on past it.

pub(crate) mod call_sites;
mod features;
mod hashes;
mod named;
mod pointer_tables;
mod rounds;
mod side;
pub(crate) mod twins;
mod wrappers;

use crate::hash::{Hashes, Keys};
use crate::options::{Options, Pass};
use crate::relation::{FunctionMatch, FunctionMethod, OneToOne};
use program::{FuncId, Program};
use side::Side;

/// What has been found so far.
struct State<'a> {
    old: Side<'a>,
    new: Side<'a>,
    options: &'a Options,
    pairs: OneToOne,
    how: Vec<Option<(FunctionMethod, f32)>>,
    /// By new: whether a name found it that is unique in both builds.
    by_unique_name: Vec<bool>,
}

impl State<'_> {
    /// Whether two functions may match: the stub of an import matches that import's stub only.
    fn allows(&self, old: usize, new: usize) -> bool {
        self.old.program.functions[old].import == self.new.program.functions[new].import
            && self.options.allows(FuncId::at(old), FuncId::at(new))
    }
    /// Records a pair, if both are free and may match; answers whether it did.
    fn take(&mut self, old: usize, new: usize, method: FunctionMethod, confidence: f32) -> bool {
        let allowed = method == FunctionMethod::Pinned || self.allows(old, new);
        let taken = allowed && self.pairs.insert(old, new);
        if taken {
            self.how[new] = Some((method, confidence));
        }
        taken
    }
    /// Likewise, of two functions that alone have a name in common.
    fn take_unique(&mut self, old: usize, new: usize, method: FunctionMethod, confidence: f32) {
        self.by_unique_name[new] |= self.take(old, new, method, confidence);
    }
    /// Whether no other pass may match `new` otherwise.
    fn is_settled(&self, new: usize) -> bool {
        self.by_unique_name[new]
            || matches!(self.how[new], Some((FunctionMethod::Name | FunctionMethod::Pinned, _)))
    }
    /// Undoes the match of `new`.
    ///
    /// # Panics
    /// If it is settled.
    fn release(&mut self, new: usize) {
        assert!(!self.is_settled(new), "what a unique name found is taken back: {new}");
        self.pairs.remove(new);
        self.how[new] = None;
    }
    fn old_is_free(&self, old: usize) -> bool {
        self.pairs.new_of(old).is_none()
    }
    fn new_is_free(&self, new: usize) -> bool {
        self.pairs.old_of(new).is_none()
    }
    fn free_old(&self) -> Vec<usize> {
        (0..self.old.len()).filter(|&f| self.old_is_free(f)).collect()
    }
    fn free_new(&self) -> Vec<usize> {
        (0..self.new.len()).filter(|&f| self.new_is_free(f)).collect()
    }
}

/// The matched functions, by new, and the same as a table.
pub fn compute(
    old: (&Program, &Keys, &Hashes),
    new: (&Program, &Keys, &Hashes),
    options: &Options,
) -> (Vec<FunctionMatch>, OneToOne) {
    let ((old, old_keys, old_hashes), (new, new_keys, new_hashes)) = (old, new);
    let (old, new) = rayon::join(|| Side::compute(old, old_hashes), || Side::compute(new, new_hashes));
    let pairs = OneToOne::new(old.len(), new.len());
    let (how, by_unique_name) = (vec![None; new.len()], vec![false; new.len()]);
    let mut state = State { old, new, options, pairs, how, by_unique_name };
    for &(o, n) in options.pins() {
        state.take(o.index(), n.index(), FunctionMethod::Pinned, 1.0);
    }
    if options.has(Pass::Names) {
        named::exact(&mut state);
    }
    if options.has(Pass::BareNames) {
        named::bare(&mut state);
    }
    if options.has(Pass::HierarchicalNames) {
        named::hierarchical(&mut state);
    }
    if options.has(Pass::Hashes) {
        hashes::unique(&mut state);
    }
    if options.has(Pass::SimilarNames) {
        named::similar(&mut state);
    }
    if [Pass::Features, Pass::Neighbours, Pass::Order].iter().any(|&p| options.has(p)) {
        rounds::run(&mut state, old_keys, new_keys);
    }
    if options.has(Pass::Neighbours) {
        wrappers::run(&mut state);
        pointer_tables::run(&mut state);
    }
    let found = state
        .pairs
        .pairs()
        .filter_map(|(old, new)| {
            let (method, confidence) = state.how[new]?;
            Some(FunctionMatch { old: FuncId::at(old), new: FuncId::at(new), method, confidence })
        })
        .collect();
    (found, state.pairs)
}

#[cfg(test)]
mod tests;
