//! Matching the handlers of a dispatch: blocks at the same place of two tables of labels are each other.
//!
//! An interpreter's handlers look alike and move about, but their numbers stay: the tables are aligned as
//! sequences, by how alike the labelled blocks are, so that numbers may come and go between. Where numbers
//! were dealt anew, aligned blocks are not alike, and the tables say nothing.
//!
//! Source: Needleman and Wunsch, 1970, for the alignment.

use super::body::{Body, NONE};
use super::pair::Pair;
use crate::relation::BlockMethod;
use std::collections::BTreeMap;

/// Longer tables are left to other passes; the cost is a table's length times the other's.
const MOST_LABELS: usize = 1024;
/// Tables looked at in one function.
const MOST_TABLES: usize = 24;
/// What a place without a counterpart costs.
const GAP: f32 = 0.25;
/// What is taken off the likeness of two labels: unlike ones together cost less than two gaps.
const UNLIKE: f32 = 0.3;
/// How much more alike aligned labels must be than any two are on average: 0 no more, 1 equal. Gaps count as
/// not at all.
const LEAST: f64 = 0.35;
/// Of the labels of the other table, how many each is compared with to know how alike any two are.
const SAMPLE: usize = 24;

/// Labels that stand at the same place of two tables, old and new.
type Labels = Vec<(u32, u32)>;

/// Takes the labels of tables that align well.
pub(crate) fn pass(pair: &mut Pair<'_>) {
    let (old, new) = (&pair.old.tables, &pair.new.tables);
    let fit = |t: &&Vec<u32>| t.len() <= MOST_LABELS;
    let mut found: Vec<(f64, usize, usize, Labels)> = Vec::new();
    for (i, x) in old.iter().take(MOST_TABLES).enumerate().filter(|(_, t)| fit(t)) {
        for (j, y) in new.iter().take(MOST_TABLES).enumerate().filter(|(_, t)| fit(t)) {
            if x.len().max(y.len()) > 2 * x.len().min(y.len()) {
                continue;
            }
            let (alike, labels) = align(pair.old, x, pair.new, y);
            if alike >= LEAST {
                found.push((alike, i, j, labels));
            }
        }
    }
    found.sort_by(|x, y| y.0.total_cmp(&x.0).then((x.1, x.2).cmp(&(y.1, y.2))));
    let (mut used_old, mut used_new) = (vec![false; old.len()], vec![false; new.len()]);
    for (_, i, j, labels) in found {
        if used_old[i] || used_new[j] {
            continue;
        }
        (used_old[i], used_new[j]) = (true, true);
        take(pair, &labels);
    }
}

/// How alike two labels are, 0..=1.
fn likeness(old: &Body, a: u32, new: &Body, b: u32) -> f32 {
    let (x, y) = (old.hash(a), new.hash(b));
    if x.fine == y.fine {
        return 1.0;
    }
    if x.one == y.one {
        return 0.95;
    }
    let families = |body: &Body, at: u32| -> Vec<u32> {
        let mut all: Vec<u32> = body.tokens(at).iter().take(64).map(|t| t.weak).collect();
        all.sort_unstable();
        all
    };
    let (x, y) = (families(old, a), families(new, b));
    let (mut i, mut j, mut common) = (0, 0, 0_u16);
    while let (Some(l), Some(r)) = (x.get(i), y.get(j)) {
        match l.cmp(r) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                common += 1;
                i += 1;
                j += 1;
            }
        }
    }
    let total = u16::try_from(x.len() + y.len()).unwrap_or(u16::MAX).max(1);
    0.9 * 2.0 * f32::from(common) / f32::from(total)
}

/// The best alignment of two tables: how clear it is, and the pairs.
fn align(old: &Body, x: &[u32], new: &Body, y: &[u32]) -> (f64, Labels) {
    let width = y.len() + 1;
    let mut known: BTreeMap<(u32, u32), f32> = BTreeMap::new();
    let mut alike = vec![0.0_f32; x.len() * y.len()];
    let (mut total, mut looked_at) = (0.0_f64, 0_u32);
    for (i, &a) in x.iter().enumerate() {
        for (j, &b) in y.iter().enumerate() {
            // Places that are far apart in both tables are not each other's.
            if i.abs_diff(j) <= 16 + x.len().abs_diff(y.len()) {
                alike[i * y.len() + j] = *known.entry((a, b)).or_insert_with(|| likeness(old, a, new, b));
            }
        }
    }
    let mut best = vec![0.0_f32; (x.len() + 1) * width];
    for j in 1..width {
        best[j] = best[j - 1] - GAP;
    }
    for i in 1..=x.len() {
        best[i * width] = best[(i - 1) * width] - GAP;
        for j in 1..width {
            let both = best[(i - 1) * width + j - 1] + alike[(i - 1) * y.len() + j - 1] - UNLIKE;
            let one = best[(i - 1) * width + j].max(best[i * width + j - 1]) - GAP;
            best[i * width + j] = both.max(one);
        }
    }
    let (mut i, mut j, mut sum, mut pairs) = (x.len(), y.len(), 0.0, Vec::new());
    while i > 0 && j > 0 {
        let same = alike[(i - 1) * y.len() + j - 1];
        let here = best[i * width + j];
        if here <= best[(i - 1) * width + j - 1] + same - UNLIKE {
            (i, j) = (i - 1, j - 1);
            sum += same;
            pairs.push((x[i], y[j]));
        } else if here <= best[(i - 1) * width + j] - GAP {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    let most = u16::try_from(x.len().max(y.len())).unwrap_or(u16::MAX).max(1);
    // Any two: a sample, spread evenly.
    for (i, &a) in x.iter().enumerate() {
        for &b in y.iter().skip(i % 4).step_by(y.len().div_ceil(SAMPLE)) {
            total += f64::from(*known.entry((a, b)).or_insert_with(|| likeness(old, a, new, b)));
            looked_at += 1;
        }
    }
    let any = total / f64::from(looked_at.max(1));
    let aligned = f64::from(sum / f32::from(most));
    // Where all labels are alike, equal ones still say that nothing was dealt anew.
    let clear = if aligned > 0.98 { 1.0 } else { (aligned - any) / (1.0 - any).max(0.01) };
    (clear, pairs)
}

/// Matches labels that stand together in more places than each with any other.
fn take(pair: &mut Pair<'_>, labels: &[(u32, u32)]) {
    let mut votes: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for &both in labels {
        *votes.entry(both).or_default() += 1;
    }
    // Per label its best counterpart; of equal ones none.
    let mut of_old: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let mut of_new: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for (&(a, b), &n) in &votes {
        for (best, at, to) in [(&mut of_old, a, b), (&mut of_new, b, a)] {
            let slot = best.entry(at).or_insert((to, 0));
            match n.cmp(&slot.1) {
                std::cmp::Ordering::Greater => *slot = (to, n),
                std::cmp::Ordering::Equal => slot.0 = NONE,
                std::cmp::Ordering::Less => {}
            }
        }
    }
    for (&a, &(b, _)) in &of_old {
        if b != NONE && of_new.get(&b).is_some_and(|back| back.0 == a) && pair.is_free(a, b) {
            let sure = likeness(pair.old, a, pair.new, b);
            pair.set(a, b, BlockMethod::Aligned, 0.8 + 0.18 * sure);
        }
    }
}
