//! Which function became which.
//!
//! Invariant: one to one. Exact names come first, and what they took is never given to another.
//!
//! Source: BMAT, section 2.1.

use crate::options::{Options, Pass};
use crate::relation::{FunctionMatch, FunctionMethod, OneToOne};
use program::{FuncId, Program};
use std::collections::BTreeMap;

/// Functions that are each other, by new, and the same as a table.
pub fn compute(old: &Program, new: &Program, options: &Options) -> (Vec<FunctionMatch>, OneToOne) {
    let mut pairs = OneToOne::new(old.functions.len(), new.functions.len());
    let mut found = Vec::new();
    if options.has(Pass::Names) {
        let mut by_name: BTreeMap<&str, Vec<FuncId>> = BTreeMap::new();
        for id in old.func_ids() {
            for name in &old.function(id).names {
                by_name.entry(name).or_default().push(id);
            }
        }
        // Several statics of one name stand in the files' order, which changes least.
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for id in new.func_ids() {
            for name in &new.function(id).names {
                let n = seen.entry(name).or_default();
                let at = *n;
                *n += 1;
                let Some(&from) = by_name.get(&**name).and_then(|ids| ids.get(at)) else { continue };
                if pairs.insert(from.index(), id.index()) {
                    found.push(FunctionMatch {
                        old: from,
                        new: id,
                        method: FunctionMethod::Name,
                        confidence: 1.0,
                    });
                }
            }
        }
    }
    found.sort_by_key(|m| m.new);
    (found, pairs)
}
