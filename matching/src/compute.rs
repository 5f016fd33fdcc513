//! The driver: data, then functions, then the blocks of each matched pair; or what a map says, and only the
//! rest found.
//!
//! Source: BMAT, figure 2.

use crate::blocks::{self, inlined};
use crate::data::Data;
use crate::functions::{self, call_sites, twins};
use crate::hash::{Hashes, Keys};
use crate::options::{Options, Pass};
use crate::relation::map::Map;
use crate::relation::{BlockMatch, BlockMethod, FunctionMatch, FunctionMethod, Matching};
use program::{BlockId, FuncId, Program};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

impl Matching {
    /// Which parts of `old` and `new` are each other.
    pub fn compute(old: &Program, new: &Program, options: &Options) -> Matching {
        let (mut old_keys, mut new_keys) = rayon::join(|| Keys::compute(old), || Keys::compute(new));
        let mut data = Data::compute(old, new, options);
        Keys::join(&mut old_keys, &mut new_keys, &[], &data.matches());
        let (old_hashes, new_hashes) =
            rayon::join(|| Hashes::compute(old, &old_keys), || Hashes::compute(new, &new_keys));
        let (mut functions, mut pairs) =
            functions::compute((old, &old_keys, &old_hashes), (new, &new_keys, &new_hashes), options);
        if options.has(Pass::Twins) {
            let allows = |o, n| options.allows(o, n);
            twins::settle((old, &old_hashes), (new, &new_hashes), allows, &mut functions, &mut pairs);
        }
        data.refine(&pairs, &old_hashes, &new_hashes);
        drop((old_hashes, new_hashes));
        Keys::join(&mut old_keys, &mut new_keys, &functions, &data.matches());
        let context = blocks::Context { old: &old_keys, new: &new_keys, options };
        let found: Vec<Vec<BlockMatch>> =
            functions.par_iter().map(|m| blocks::compute(old, m.old, new, m.new, &context)).collect();
        let mut blocks: Vec<BlockMatch> = found.into_iter().flatten().collect();
        // Stable: of the old blocks of a new one, the best stays first.
        blocks.sort_by_key(|m| m.new);
        if options.has(Pass::CallSites) {
            call_sites::pass(old, new, &mut functions, &context, &mut blocks);
        }
        if options.has(Pass::Inlined) {
            inlined::pass(old, new, &functions, |_| true, &context, &mut blocks);
        }
        obey(options, &mut blocks);
        data.refine_by_blocks(&blocks);
        Matching { functions, blocks, data: data.matches() }
    }

    /// The matching that `map` says, which must be of `old` and `new`: its lines as they stand, where no pin
    /// or forbid overrules them.
    ///
    /// Blocks go with their functions: those of two functions that the map does not match to each other are
    /// left out, unless they were inlined or pinned. Blocks of two functions about which it has no line are
    /// matched anew if the two were pinned, or one of them was something else's. A map of nothing but pins
    /// and forbids is obeyed by a matching made anew.
    pub fn of_map(old: &Program, new: &Program, map: &Map, options: &Options) -> Matching {
        let options = options.clone().with_map(map);
        let m = &map.matching;
        if m.functions.is_empty() && m.blocks.is_empty() && m.data.is_empty() {
            return Matching::compute(old, new, &options);
        }
        let functions = pinned(&m.functions, &options);
        let to_new: BTreeMap<FuncId, FuncId> = functions.iter().map(|f| (f.old, f.new)).collect();
        let owners = |b: &BlockMatch| (old.block(b.old).func, new.block(b.new).func);
        let own = |b: &&BlockMatch| b.method != BlockMethod::Inlined && b.method != BlockMethod::Pinned;
        let listed: BTreeSet<(FuncId, FuncId)> = m.blocks.iter().filter(own).map(owners).collect();
        // What blocks say of functions that are no longer each other.
        let stale = listed.iter().filter(|(from, to)| to_new.get(from) != Some(to));
        let (stale_old, stale_new): (BTreeSet<FuncId>, BTreeSet<FuncId>) = stale.copied().unzip();
        let anew = |f: &&FunctionMatch| {
            let changed = stale_old.contains(&f.old) || stale_new.contains(&f.new);
            !listed.contains(&(f.old, f.new)) && (changed || f.method == FunctionMethod::Pinned)
        };
        let fresh: Vec<FunctionMatch> = functions.iter().filter(anew).copied().collect();
        let (fresh_old, fresh_new): (BTreeSet<FuncId>, BTreeSet<FuncId>) =
            fresh.iter().map(|f| (f.old, f.new)).unzip();
        let mut blocks = m.blocks.clone();
        blocks.retain(|b| {
            let (from, to) = owners(b);
            match b.method {
                BlockMethod::Pinned => true,
                BlockMethod::Inlined => !fresh_old.contains(&from) && !fresh_new.contains(&to),
                _ => to_new.get(&from) == Some(&to),
            }
        });
        if !fresh.is_empty() {
            let (mut old_keys, mut new_keys) = rayon::join(|| Keys::compute(old), || Keys::compute(new));
            Keys::join(&mut old_keys, &mut new_keys, &functions, &m.data);
            let context = blocks::Context { old: &old_keys, new: &new_keys, options: &options };
            let found: Vec<Vec<BlockMatch>> =
                fresh.par_iter().map(|m| blocks::compute(old, m.old, new, m.new, &context)).collect();
            blocks.extend(found.into_iter().flatten());
            blocks.sort_by_key(|b| b.new);
            if options.has(Pass::Inlined) {
                let wanted = |f: &FunctionMatch| fresh_new.contains(&f.new);
                inlined::pass(old, new, &functions, wanted, &context, &mut blocks);
            }
        }
        obey(&options, &mut blocks);
        Matching { functions, blocks, data: m.data.clone() }
    }
}

/// `functions` without what pins and forbids of functions overrule, and with the pins; by new.
fn pinned(functions: &[FunctionMatch], options: &Options) -> Vec<FunctionMatch> {
    let (olds, news): (BTreeSet<FuncId>, BTreeSet<FuncId>) = options.pins().iter().copied().unzip();
    let stays =
        |f: &&FunctionMatch| !olds.contains(&f.old) && !news.contains(&f.new) && options.allows(f.old, f.new);
    let pin = |&(old, new)| FunctionMatch { old, new, method: FunctionMethod::Pinned, confidence: 1.0 };
    let mut out: Vec<FunctionMatch> =
        functions.iter().filter(stays).copied().chain(options.pins().iter().map(pin)).collect();
    out.sort_by_key(|f| f.new);
    out
}

/// Pinned blocks are each other and nothing else's, across functions too; forbidden ones are not.
fn obey(options: &Options, blocks: &mut Vec<BlockMatch>) {
    let (pins, forbids) = (options.block_pins(), options.block_forbids());
    if pins.is_empty() && forbids.is_empty() {
        return;
    }
    let (olds, news): (BTreeSet<BlockId>, BTreeSet<BlockId>) = pins.iter().copied().unzip();
    blocks.retain(|b| !olds.contains(&b.old) && !news.contains(&b.new) && !forbids.contains(&(b.old, b.new)));
    blocks.extend(pins.iter().map(|&(old, new)| BlockMatch {
        old,
        new,
        method: BlockMethod::Pinned,
        confidence: 1.0,
        share: 1.0,
        partial: false,
    }));
    blocks.sort_by_key(|b| b.new);
}
