//! Functions by the hashes of all their blocks, at falling strictness.
//!
//! Source: BMAT, 3.3 and 3.4 (passes 0, 1, 3, 1a, 5, 3a; trial matching at the fuzzy levels).

use super::State;
use super::side::alike;
use crate::relation::{FunctionMethod, Level};
use std::collections::BTreeMap;

/// The passes, in order; how many instructions a function must have; how much of its blocks must match.
const PASSES: [(Level, u32, f32, f32); 6] = [
    (Level::L0, 6, 0.0, 0.99),
    (Level::L1, 8, 0.0, 0.98),
    (Level::L3, 12, 0.3, 0.95),
    (Level::L1a, 40, 0.5, 0.9),
    (Level::L5, 30, 0.5, 0.9),
    (Level::L3a, 60, 0.6, 0.85),
];

/// Functions whose hash nobody else has, on either side.
pub fn unique(state: &mut State<'_>) {
    for (level, least, share, confidence) in PASSES {
        let mut groups: BTreeMap<u64, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for f in state.free_old() {
            groups.entry(state.old.hashes.functions[f].at(level)).or_default().0.push(f);
        }
        for f in state.free_new() {
            groups.entry(state.new.hashes.functions[f].at(level)).or_default().1.push(f);
        }
        for (a, b) in groups.into_values() {
            let ([o], [n]) = (a.as_slice(), b.as_slice()) else { continue };
            if state.new.n_insns[*n] < least || state.old.n_insns[*o] < least {
                continue;
            }
            // Two names that differ say that it may be another function: then more must be the same.
            let named = state.old.is_named(*o) && state.new.is_named(*n);
            if share > 0.0 || named {
                let alike = alike(&state.old, *o, &state.new, *n);
                if alike < share + if named { 0.3 } else { 0.0 } || named && state.new.n_insns[*n] < 24 {
                    continue;
                }
            }
            state.take(*o, *n, FunctionMethod::Hash(level), confidence);
        }
    }
}
