//! What a matching achieved: rates after each stage, and why functions are left over.
//!
//! Source: BMAT, tables 3 to 5. Rates are of the new build, because that is where a profile goes.

use crate::relation::{BlockMethod, DataMethod, FunctionMethod, Level, Matching};
use program::{FuncId, Program};
use std::collections::{BTreeMap, BTreeSet};

/// How many functions, blocks or data objects were matched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rates {
    /// How many the old build has.
    pub n_old: usize,
    /// How many the new build has.
    pub n_new: usize,
    /// How many of the old build's are matched.
    pub matched_old: usize,
    /// How many of the new build's are matched.
    pub matched_new: usize,
    /// Of the new build's, matched by the end of each stage, in the order in which the stages run; the last
    /// is all.
    pub stages: Vec<(&'static str, usize)>,
}

/// Why a function has no counterpart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LeftOverReason {
    /// The other build's function of its name is matched to another one of its build.
    NameTaken(FuncId),
    /// The other build has a free function of its name, but no pass that may use it found them to be each
    /// other.
    NameFree(FuncId),
    /// The other build does not import it.
    NotImported,
    /// No function of the other build has its name, and none that is free is like it.
    NoSuchName,
    /// It has no name, and this many free functions of the other build have the same instructions.
    Ambiguous(usize),
    /// It has no name, and no free function of the other build is like it.
    Unlike,
}

/// A function without a counterpart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftOver {
    /// Its id in its own build.
    pub func: FuncId,
    /// The reason; ids are of its own build for [`LeftOverReason::NameTaken`], of the other build for
    /// [`LeftOverReason::NameFree`].
    pub why: LeftOverReason,
}

/// What a matching achieved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Functions.
    pub functions: Rates,
    /// Blocks.
    pub blocks: Rates,
    /// Data objects.
    pub data: Rates,
    /// Functions of the old build without a counterpart, by address.
    pub left_old: Vec<LeftOver>,
    /// Functions of the new build without a counterpart, by address.
    pub left_new: Vec<LeftOver>,
}

impl Report {
    /// Counts what `matching` says of `old` and `new`.
    pub fn of(matching: &Matching, old: &Program, new: &Program) -> Report {
        let function_pairs: Vec<_> = matching.functions.iter().map(|m| (m.old, m.new)).collect();
        Report {
            functions: rates(
                (old.functions.len(), new.functions.len()),
                matching
                    .functions
                    .iter()
                    .map(|m| (m.old.index(), m.new.index(), stage_of_function(m.method))),
                FUNCTION_STAGES,
            ),
            blocks: rates(
                (old.blocks.len(), new.blocks.len()),
                matching.blocks.iter().map(|m| (m.old.index(), m.new.index(), stage_of_block(m.method))),
                BLOCK_STAGES,
            ),
            data: rates(
                (old.data.len(), new.data.len()),
                matching.data.iter().map(|m| (m.old, m.new, stage_of_data(m.method))),
                DATA_STAGES,
            ),
            left_old: left_over(old, new, &function_pairs),
            left_new: left_over(new, old, &function_pairs.iter().map(|&(o, n)| (n, o)).collect::<Vec<_>>()),
        }
    }
}

const FUNCTION_STAGES: &[&str] = &[
    "pinned",
    "same name",
    "same name but for decorations",
    "same hash",
    "similar name",
    "neighbours, imports, strings",
    "order in the file",
];

fn stage_of_function(method: FunctionMethod) -> usize {
    match method {
        FunctionMethod::Pinned => 0,
        FunctionMethod::Name => 1,
        FunctionMethod::BareName | FunctionMethod::HierarchicalName => 2,
        FunctionMethod::Hash(_) => 3,
        FunctionMethod::SimilarName => 4,
        FunctionMethod::Neighbours => 5,
        FunctionMethod::Order => 6,
    }
}

const BLOCK_STAGES: &[&str] =
    &["pinned", "hash at level 1", "hash at all levels", "alignment", "control flow", "inlined in one build"];

fn stage_of_block(method: BlockMethod) -> usize {
    match method {
        BlockMethod::Pinned => 0,
        BlockMethod::Unique(Level::L0 | Level::L1) | BlockMethod::Propagated(Level::L0 | Level::L1) => 1,
        BlockMethod::Unique(_) | BlockMethod::Propagated(_) => 2,
        BlockMethod::Aligned => 3,
        BlockMethod::ControlFlow => 4,
        BlockMethod::Inlined => 5,
    }
}

const DATA_STAGES: &[&str] = &["same name", "same contents", "position", "references"];

fn stage_of_data(method: DataMethod) -> usize {
    match method {
        DataMethod::Name => 0,
        DataMethod::Hash => 1,
        DataMethod::Position => 2,
        DataMethod::Reference => 3,
    }
}

/// Counts pairs (old, new, stage). Something matched several times counts once, at its first stage.
fn rates(
    (n_old, n_new): (usize, usize),
    pairs: impl Iterator<Item = (usize, usize, usize)>,
    stages: &[&'static str],
) -> Rates {
    let mut matched_old = BTreeSet::new();
    let mut first_stage: BTreeMap<usize, usize> = BTreeMap::new();
    for (old, new, stage) in pairs {
        matched_old.insert(old);
        let first = first_stage.entry(new).or_insert(stage);
        *first = stage.min(*first);
    }
    let by = |stage: usize| first_stage.values().filter(|s| **s <= stage).count();
    Rates {
        n_old,
        n_new,
        matched_old: matched_old.len(),
        matched_new: first_stage.len(),
        stages: stages.iter().enumerate().map(|(i, name)| (*name, by(i))).collect(),
    }
}

/// The functions of `ours` that no pair (ours, theirs) holds.
fn left_over(ours: &Program, theirs: &Program, pairs: &[(FuncId, FuncId)]) -> Vec<LeftOver> {
    let taken: BTreeSet<FuncId> = pairs.iter().map(|p| p.0).collect();
    let ours_of: BTreeMap<FuncId, FuncId> = pairs.iter().map(|&(o, t)| (t, o)).collect();
    let mut named: BTreeMap<&str, FuncId> = BTreeMap::new();
    for id in theirs.func_ids() {
        for name in &theirs.function(id).names {
            named.entry(name).or_insert(id);
        }
    }
    let mut alike: BTreeMap<u64, usize> = BTreeMap::new();
    for id in theirs.func_ids().filter(|id| !ours_of.contains_key(id)) {
        *alike.entry(instructions(theirs, id)).or_insert(0) += 1;
    }
    let why = |id: FuncId| {
        let f = ours.function(id);
        if let Some(other) = f.names.iter().find_map(|name| named.get(&**name)) {
            return match ours_of.get(other) {
                Some(&instead) => LeftOverReason::NameTaken(instead),
                None => LeftOverReason::NameFree(*other),
            };
        }
        if f.import.is_some() {
            return LeftOverReason::NotImported;
        }
        if !f.names.is_empty() {
            return LeftOverReason::NoSuchName;
        }
        match alike.get(&instructions(ours, id)) {
            Some(&n) => LeftOverReason::Ambiguous(n),
            None => LeftOverReason::Unlike,
        }
    };
    ours.func_ids().filter(|id| !taken.contains(id)).map(|func| LeftOver { func, why: why(func) }).collect()
}

/// Equal for functions of the same operations in the same order.
fn instructions(program: &Program, id: FuncId) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for insn in program.function(id).block_ids().flat_map(|b| program.insns(b)) {
        hash.update(&insn.opcode().to_le_bytes());
    }
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relation::FunctionMatch;
    use crate::testing::{assemble, function};

    fn program(functions: &[(&str, &str)]) -> Program {
        let text = functions.iter().map(|(name, body)| {
            format!(".globl {name}\n.type {name}, @function\n{name}:\n{body}\nret\n.size {name}, .-{name}\n")
        });
        assemble(&text.collect::<String>())
    }

    #[test]
    fn a_left_over_function_says_where_its_name_went() {
        let old = program(&[("f", "nop"), ("g", "inc %eax"), ("h", "dec %eax")]);
        let new = program(&[("f", "nop"), ("g", "inc %eax"), ("i", "dec %eax")]);
        let at = |p: &Program, name: &str| function(p, name);
        let pair = FunctionMatch {
            old: at(&old, "f"),
            new: at(&new, "g"),
            method: FunctionMethod::Hash(Level::L1a),
            confidence: 0.5,
        };
        let matching = Matching { functions: vec![pair], ..Matching::default() };
        let report = Report::of(&matching, &old, &new);
        let why = |p: &Program, left: &[LeftOver], name: &str| {
            left.iter().find(|l| l.func == at(p, name)).map(|l| l.why)
        };
        assert_eq!(why(&new, &report.left_new, "f"), Some(LeftOverReason::NameTaken(at(&new, "g"))));
        assert_eq!(why(&old, &report.left_old, "g"), Some(LeftOverReason::NameTaken(at(&old, "f"))));
        assert_eq!(why(&new, &report.left_new, "i"), Some(LeftOverReason::NoSuchName));
        assert_eq!(why(&new, &report.left_new, "g"), None);
        assert_eq!((report.functions.matched_old, report.functions.matched_new), (1, 1));
    }

    #[test]
    fn rates_add_up_stage_by_stage_and_count_a_new_thing_once() {
        let rates = rates((3, 4), [(0, 0, 1), (1, 0, 0), (1, 2, 1), (2, 3, 2)].into_iter(), &["a", "b", "c"]);
        assert_eq!(rates.stages, [("a", 1), ("b", 2), ("c", 3)]);
        assert_eq!((rates.matched_old, rates.matched_new), (3, 3));
    }
}
