//! Functions by name: exact, bare, hierarchical, similar.
//!
//! Where several functions share a name (statics of several files, instances of one generic), content, file
//! and neighbours in the call graph decide among them, and order where those are silent.
//!
//! Source: BMAT, 2.1. We differ in taking decorations off before names are compared.

use super::State;
use super::side::{alike, context};
use crate::names::{self, Part};
use crate::relation::{FunctionMethod, Level};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Old and new functions of one name.
type Group = (Vec<usize>, Vec<usize>);

/// Largest group (old × new) whose pairs are all looked at.
const ALL_PAIRS: usize = 1 << 14;

/// Matches functions of the same symbol.
pub fn exact(state: &mut State<'_>) {
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    let (old, new) = (state.old.program, state.new.program);
    for f in 0..old.functions.len() {
        for name in old.functions[f].names.iter().filter(|n| !names::is_label(n)) {
            groups.entry(name).or_default().0.push(f);
        }
    }
    for f in 0..new.functions.len() {
        for name in new.functions[f].names.iter().filter(|n| !names::is_label(n)) {
            groups.entry(name).or_default().1.push(f);
        }
    }
    // A function's first name is its own; further ones are aliases, which move between functions.
    let (single, several): (Vec<Group>, Vec<Group>) = groups
        .into_values()
        .filter(|(a, b)| !a.is_empty() && !b.is_empty())
        .partition(|(a, b)| a.len() == 1 && b.len() == 1);
    let firsts = |(a, b): &&Group| {
        let (x, y) = (&old.functions[a[0]].names, &new.functions[b[0]].names);
        x.first() == y.first()
    };
    for (a, b) in single.iter().filter(firsts) {
        state.take(a[0], b[0], FunctionMethod::Name, 1.0);
    }
    for (a, b) in &single {
        state.take(a[0], b[0], FunctionMethod::Name, 1.0);
    }
    assign(state, several, FunctionMethod::Name, 0.0);
}

/// Matches functions of the same symbol but for decorations.
pub fn bare(state: &mut State<'_>) {
    by_key(state, names::without_crates, FunctionMethod::BareName, 0.25);
    by_key(state, |n| Some(bare_key(n, true)), FunctionMethod::BareName, 0.25);
    // What was cut off in one build and is whole in the other: only where nothing else has the name.
    let split = |side: &super::Side<'_>, free: &[usize]| {
        free.iter().any(|&f| side.program.functions[f].names.first().is_some_and(|n| n.contains(".part")))
    };
    if !split(&state.old, &state.free_old()) && !split(&state.new, &state.free_new()) {
        return;
    }
    let whole = |n: &str| Some(bare_key(n, false)).filter(|k| !k.is_empty());
    let old = keys(state.old.program, &state.free_old(), whole);
    let new = keys(state.new.program, &state.free_new(), whole);
    let groups = groups(state, &old, &new);
    for (a, b) in groups.into_iter().filter(|(a, b)| a.len() == 1 && b.len() == 1) {
        state.take(a[0], b[0], FunctionMethod::BareName, 0.8);
    }
}

/// Matches functions of the same path without parameters, then without the arguments of generics.
pub fn hierarchical(state: &mut State<'_>) {
    for erase in [false, true] {
        let key = |n: &str| {
            let path = names::hierarchical(n)?;
            Some(if erase { names::erased(&path) } else { path })
        };
        by_key(state, key, FunctionMethod::HierarchicalName, if erase { 0.5 } else { 0.25 });
    }
}

/// Matches functions whose names are a few characters apart, if most blocks match.
pub fn similar(state: &mut State<'_>) {
    /// Share of matching code that is asked for.
    const ENOUGH: f32 = 0.5;
    /// Functions whose names share an end; more say nothing and would cost too much.
    const MOST: usize = 48;
    let key = |n: &str| names::hierarchical(n).or_else(|| Some(bare_key(n, true)));
    let old = keys(state.old.program, &state.free_old(), key);
    let new = keys(state.new.program, &state.free_new(), key);
    // A few edits leave the start, or the end, or both as they were.
    let half_names = |name: &str| -> Vec<(bool, String)> {
        let chars: Vec<char> = name.chars().collect();
        let n = (chars.len() / 2).clamp(3, 24);
        if chars.len() < 4 {
            return Vec::new();
        }
        vec![(false, chars[..n].iter().collect()), (true, chars[chars.len() - n..].iter().collect())]
    };
    let mut buckets: BTreeMap<(bool, String), Vec<(usize, &str)>> = BTreeMap::new();
    for (name, f) in &old {
        for end in half_names(name) {
            buckets.entry(end).or_default().push((*f, name));
        }
    }
    let (a, b) = (&state.old, &state.new);
    let mut candidates: Vec<(f32, usize, usize, usize)> = new
        .par_iter()
        .flat_map_iter(|(name, n)| {
            let mut similar: Vec<(usize, usize)> = half_names(name)
                .into_iter()
                .filter_map(|end| buckets.get(&end))
                .filter(|bucket| bucket.len() <= MOST)
                .flatten()
                .filter_map(|&(o, other)| Some((o, names::distance(other, name, 2.max(name.len() / 5))?)))
                .collect();
            similar.sort_unstable();
            similar.dedup_by_key(|(o, _)| *o);
            similar.into_iter().map(|(o, d)| (alike(a, o, b, *n), d, o, *n)).collect::<Vec<_>>()
        })
        .filter(|c| c.0 >= ENOUGH)
        .collect();
    candidates.sort_by(|x, y| y.0.total_cmp(&x.0).then((x.1, x.2, x.3).cmp(&(y.1, y.2, y.3))));
    for (share, _, o, n) in candidates {
        state.take(o, n, FunctionMethod::SimilarName, 0.5 + share * 0.4);
    }
}

fn bare_key(name: &str, with_part: bool) -> String {
    let b = names::bare(name);
    match b.part {
        Part::Whole => b.name.into_owned(),
        Part::Split if with_part => format!("{}.part", b.name),
        Part::Split => b.name.into_owned(),
        Part::Cold => format!("{}.cold", b.name),
    }
}

/// The key of the preferred name of each of `funcs`, sorted by key, then function.
fn keys(
    program: &program::Program,
    funcs: &[usize],
    key: impl Fn(&str) -> Option<String> + Sync,
) -> Vec<(String, usize)> {
    let mut out: Vec<(String, usize)> = funcs
        .par_iter()
        .filter_map(|&f| {
            let name = program.functions[f].names.first()?;
            if names::is_label(name) {
                return None;
            }
            Some((key(name)?, f))
        })
        .collect();
    out.par_sort();
    out
}

fn groups(state: &State<'_>, old: &[(String, usize)], new: &[(String, usize)]) -> Vec<Group> {
    let mut out = Vec::new();
    let mut rest = old;
    for chunk in new.chunk_by(|a, b| a.0 == b.0) {
        let key = &chunk[0].0;
        rest = &rest[rest.partition_point(|(k, _)| k < key)..];
        let same = &rest[..rest.partition_point(|(k, _)| k <= key)];
        let a: Vec<usize> = same.iter().map(|&(_, f)| f).filter(|&f| state.old_is_free(f)).collect();
        let b: Vec<usize> = chunk.iter().map(|&(_, f)| f).filter(|&f| state.new_is_free(f)).collect();
        if !a.is_empty() && !b.is_empty() {
            out.push((a, b));
        }
    }
    out
}

/// Matches free functions of the same key. One that no other function has, free or not, is settled by it.
fn by_key(
    state: &mut State<'_>,
    key: impl Fn(&str) -> Option<String> + Sync,
    method: FunctionMethod,
    least: f32,
) {
    let all = |side: &super::Side<'_>| keys(side.program, &(0..side.len()).collect::<Vec<_>>(), &key);
    let (old, new) = (all(&state.old), all(&state.new));
    let (single, several): (Vec<Group>, Vec<Group>) =
        groups(state, &old, &new).into_iter().partition(|(a, b)| a.len() == 1 && b.len() == 1);
    let alone = |keys: &[(String, usize)], len: usize| {
        let mut alone = vec![false; len];
        for chunk in keys.chunk_by(|a, b| a.0 == b.0).filter(|c| c.len() == 1) {
            alone[chunk[0].1] = true;
        }
        alone
    };
    let (old_alone, new_alone) = (alone(&old, state.old.len()), alone(&new, state.new.len()));
    for (a, b) in single {
        match old_alone[a[0]] && new_alone[b[0]] {
            true => state.take_unique(a[0], b[0], method, 0.97),
            false => _ = state.take(a[0], b[0], method, 0.97),
        }
    }
    assign(state, several, method, least);
}

/// Pairs the functions of each group one to one, the surest first. A pair below `least` is left apart, unless
/// the group has as many old as new functions.
fn assign(state: &mut State<'_>, groups: Vec<Group>, method: FunctionMethod, least: f32) {
    // Twice: what the first round found is context for the second.
    for last in [false, true] {
        let scored: Vec<Vec<(f32, usize, usize)>> =
            groups.par_iter().map(|g| score_group(state, g, last, least)).collect();
        for mut pairs in scored {
            pairs.sort_by(|x, y| y.0.total_cmp(&x.0).then((x.2, x.1).cmp(&(y.2, y.1))));
            for (score, o, n) in pairs {
                state.take(o, n, method, (0.6 + score * 0.08).clamp(0.6, 0.98));
            }
        }
    }
}

/// Scores of the pairs that may be taken; in the first round only those that nothing contradicts.
fn score_group(state: &State<'_>, group: &Group, last: bool, least: f32) -> Vec<(f32, usize, usize)> {
    let a: Vec<usize> = group.0.iter().copied().filter(|&f| state.old_is_free(f)).collect();
    let b: Vec<usize> = group.1.iter().copied().filter(|&f| state.new_is_free(f)).collect();
    let all = a.len() * b.len() <= ALL_PAIRS;
    let even = group.0.len() == group.1.len();
    let hash = |side: &super::Side<'_>, f: usize, level| side.hashes.functions[f].at(level);
    let mut out = Vec::new();
    let mut by_hash: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    if !all {
        for &o in &a {
            by_hash.entry(hash(&state.old, o, Level::L3)).or_default().push(o);
        }
    }
    for (rank, &n) in b.iter().enumerate() {
        let candidates: Vec<usize> = if all {
            a.clone()
        } else {
            let same = by_hash.get(&hash(&state.new, n, Level::L3));
            same.map_or_else(Vec::new, |s| s.iter().copied().take(64).collect())
        };
        for o in candidates {
            let equal = |level| hash(&state.old, o, level) == hash(&state.new, n, level);
            let content = match () {
                () if equal(Level::L0) => 1.3,
                () if equal(Level::L1) => 1.2,
                () => alike(&state.old, o, &state.new, n),
            };
            let (agree, disagree) = context(&state.old, o, &state.new, n, &state.pairs);
            let share = match agree + disagree {
                0 => 0.5,
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                total => agree as f32 / total as f32,
            };
            let file = f32::from(u8::from(state.old.file[o] != 0 && state.old.file[o] == state.new.file[n]));
            if !even && content + share * 0.3 < least {
                continue;
            }
            if !last && (content < 0.8 && file == 0.0 || share < 0.5) {
                continue;
            }
            let straight = f32::from(u8::from(a.get(rank) == Some(&o)));
            out.push((content * 2.0 + share + file * 2.0 + straight * 0.01, o, n));
        }
    }
    out
}
