//! Functions without names: rounds of mutual best, the surest first, each round with the context that the
//! last one made.
//!
//! A pair is worth what its words are worth that both functions have, against those that one lacks. It is
//! taken if it is the best for both by a margin and above the threshold; thresholds fall when nothing more is
//! found, and rise again when something was. What stays below the last threshold is taken for new.
//!
//! Invariant: near-linear. Candidates come from an index of words, rare ones first, so many for each
//! function.
//!
//! Not here: what words there are (`features`).

use super::State;
use super::features::{self, Build, ContextUse, Kind};
use crate::hash::Keys;
use crate::options::Pass;
use crate::relation::FunctionMethod;
use program::Va;
use rayon::prelude::*;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Words are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxhash_rust::xxh3::xxh3_64(bytes);
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Table<T> = HashMap<u64, T, BuildHasherDefault<Identity>>;

/// Thresholds, the surest first: share of words in common; how far ahead of the next best.
const LEVELS: [(f32, f32); 6] =
    [(0.85, 0.04), (0.7, 0.04), (0.6, 0.04), (0.5, 0.05), (0.42, 0.06), (0.34, 0.08)];
/// Least worth of common words, in bits.
const LEAST_BITS: f32 = 14.0;
/// Rounds at most.
const MOST_ROUNDS: usize = 80;
/// A word that more free functions have finds no candidates.
const COMMON: usize = 96;
/// Entries of the index looked at for one function.
const MOST_VISITS: usize = 1500;
/// Candidates scored in full for one function, from each of content and context.
const MOST_CANDIDATES: usize = 8;
/// Matched functions looked at to learn how common words are.
const SAMPLE: usize = 3000;

/// The functions of one side that were free when the rounds began, with their content.
struct FreeFunctions {
    funcs: Vec<usize>,
    words: Vec<Vec<u64>>,
    /// How rare each of the words is, in bits.
    bits: Vec<Vec<f32>>,
}

impl FreeFunctions {
    /// Those that are still free, by their place here.
    fn slots(&self, is_free: impl Fn(usize) -> bool) -> Vec<u32> {
        let all = self.funcs.iter().enumerate().filter(|&(_, &f)| is_free(f));
        all.map(|(s, _)| u32::try_from(s).unwrap_or(u32::MAX)).collect()
    }
}

/// What a pair has in common by content, and what is missing on either side.
#[derive(Clone, Copy)]
struct ContentScore {
    old: u32,
    shared: f32,
    missing: f32,
}

/// An index of words: the slots of the old functions that have them.
struct Index {
    slots: Table<(u32, u32)>,
    list: Vec<u32>,
}

impl Index {
    fn new(words: &[Vec<u64>]) -> Index {
        let mut all: Vec<(u64, u32)> = words
            .par_iter()
            .enumerate()
            .flat_map_iter(|(slot, list)| {
                list.iter().map(move |&w| (w, u32::try_from(slot).unwrap_or(u32::MAX)))
            })
            .collect();
        all.par_sort_unstable();
        let mut slots = Table::default();
        let mut list = Vec::with_capacity(all.len());
        for run in all.chunk_by(|a, b| a.0 == b.0) {
            let from = u32::try_from(list.len()).unwrap_or(u32::MAX);
            list.extend(run.iter().map(|r| r.1));
            slots.insert(run[0].0, (from, u32::try_from(run.len()).unwrap_or(u32::MAX)));
        }
        Index { slots, list }
    }
    fn get(&self, word: u64) -> &[u32] {
        match self.slots.get(&word) {
            Some(&(from, len)) => &self.list[from as usize..(from + len) as usize],
            None => &[],
        }
    }
}

/// How rare words are, in bits.
struct Rarity {
    bits: Table<f32>,
    most: f32,
}

impl Rarity {
    fn of(&self, word: u64) -> f32 {
        self.bits.get(&word).copied().unwrap_or(self.most)
    }
}

/// The content of the free functions of both sides.
struct Content {
    old: FreeFunctions,
    new: FreeFunctions,
    /// For each new slot, the old slots most like it by content.
    candidates_by_content: Vec<Vec<u32>>,
    /// For each new slot, the likenesses that were worked out, by old slot.
    known: Vec<Vec<ContentScore>>,
}

/// A pair with its score.
#[derive(Clone, Copy)]
struct Scored {
    old: u32,
    new: u32,
    share: f32,
    bits: f32,
    /// The worth of what is shared, less that of what is missing.
    net: f32,
    content: f32,
    order: bool,
    context: f32,
    context_missing: f32,
}

/// Runs until nothing more is sure enough.
pub fn run(state: &mut State<'_>, old_keys: &Keys, new_keys: &Keys) {
    let (old_pointers, new_pointers) =
        rayon::join(|| features::pointers(state.old.program), || features::pointers(state.new.program));
    let mut content = read(state, old_keys, new_keys, &old_pointers, &new_pointers);
    let what =
        ContextUse { graph: state.options.has(Pass::Neighbours), order: state.options.has(Pass::Order) };
    let mut level = 0;
    for _ in 0..MOST_ROUNDS {
        let Some(&(least, margin)) = LEVELS.get(level) else { break };
        let (free, scored) = round(state, &mut content, &old_pointers, &new_pointers, what);
        let n = take(state, &content, &scored, least, margin);
        tracing::debug!(level, n, free, candidates = scored.len(), "round");
        // A handful among many changes little: no need to begin anew.
        level = match () {
            () if n * 100 > free => 0,
            () if n * 400 > free => level,
            () => level + 1,
        };
    }
}

fn read(
    state: &State<'_>,
    old_keys: &Keys,
    new_keys: &Keys,
    old_pointers: &[Vec<Va>],
    new_pointers: &[Vec<Va>],
) -> Content {
    let keep = |w: &u64| {
        state.options.has(Pass::Features) || !matches!(Kind::of(*w), Kind::Reference | Kind::Beside)
    };
    let bag = |funcs: Vec<usize>, side, keys, pointers_to| {
        let mut words = features::content(side, keys, pointers_to, &funcs);
        words.par_iter_mut().for_each(|list| list.retain(keep));
        FreeFunctions { bits: Vec::new(), funcs, words }
    };
    let mut old = bag(state.free_old(), &state.old, old_keys, old_pointers);
    let mut new = bag(state.free_new(), &state.new, new_keys, new_pointers);
    // Of words that are common in the program but rare among what is free, matched functions know.
    let matched: Vec<usize> = (0..state.old.len()).filter(|&f| !state.old_is_free(f)).collect();
    let step = matched.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<usize> = matched.iter().copied().step_by(step).collect();
    let mut sampled = features::content(&state.old, old_keys, old_pointers, &sample);
    let index = Index::new(&old.words);
    let new_index = Index::new(&new.words);
    let wanted = |w: &u64| index.slots.contains_key(w) || new_index.slots.contains_key(w);
    sampled.par_iter_mut().for_each(|list| list.retain(wanted));
    let sample_index = Index::new(&sampled);
    let n = state.old.len().max(state.new.len()).max(2);
    let mut rarity = Rarity { bits: Table::default(), most: bits(n, 1) };
    for (&word, &(_, len)) in &new_index.slots {
        let here = index.slots.get(&word).map_or(0, |s| s.1).max(len) as usize;
        let there = sample_index.slots.get(&word).map_or(0, |s| s.1) as usize * step;
        rarity.bits.insert(word, bits(n, here + there));
    }
    for (&word, &(_, len)) in &index.slots {
        let there = sample_index.slots.get(&word).map_or(0, |s| s.1) as usize * step;
        rarity.bits.entry(word).or_insert_with(|| bits(n, len as usize + there));
    }
    for bag in [&mut old, &mut new] {
        bag.bits = bag.words.par_iter().map(|list| list.iter().map(|&w| rarity.of(w)).collect()).collect();
    }
    let candidates_by_content = new
        .words
        .par_iter()
        .map_init(
            || vec![0.0_f32; old.funcs.len()],
            |acc, list| candidates(acc, list, &index, |w| rarity.of(w)),
        )
        .collect();
    let known = vec![Vec::new(); new.funcs.len()];
    Content { old, new, candidates_by_content, known }
}

#[expect(clippy::cast_precision_loss, reason = "a logarithm of a count")]
fn bits(n: usize, with: usize) -> f32 {
    (n as f32 / with.max(1) as f32).log2().max(0.1)
}

/// The old slots that share the most with `list`, by words, rare ones first.
fn candidates(acc: &mut [f32], list: &[u64], index: &Index, rarity: impl Fn(u64) -> f32) -> Vec<u32> {
    let mut by_length: Vec<(usize, u64)> =
        list.iter().map(|&w| (index.get(w).len(), w)).filter(|&(len, _)| len > 0 && len <= COMMON).collect();
    by_length.sort_unstable();
    let mut touched = Vec::new();
    let mut visits = 0;
    for (len, word) in by_length {
        visits += len;
        if visits > MOST_VISITS {
            break;
        }
        let worth = Kind::of(word).worth().0 * rarity(word);
        for &slot in index.get(word) {
            let a = &mut acc[slot as usize];
            if *a == 0.0 {
                touched.push(slot);
            }
            *a += worth;
        }
    }
    touched.sort_unstable_by(|&x, &y| acc[y as usize].total_cmp(&acc[x as usize]).then(x.cmp(&y)));
    for &slot in &touched {
        acc[slot as usize] = 0.0;
    }
    touched.truncate(MOST_CANDIDATES);
    touched
}

/// What two sorted lists share, what is missing on either side, and how much of what is shared is order; by
/// worth.
fn compare(a: &[u64], b: &[u64], rarity: impl Fn(u64, usize, usize) -> f32) -> (f32, f32, f32) {
    let (mut shared, mut missing, mut order) = (0.0, 0.0, 0.0);
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let (x, y) = (a.get(i).copied().unwrap_or(u64::MAX), b.get(j).copied().unwrap_or(u64::MAX));
        let word = x.min(y);
        let kind = Kind::of(word);
        let (gain, loss) = kind.worth();
        let bits = rarity(word, if x == word { i } else { usize::MAX }, j);
        if x == y {
            shared += gain * bits;
            if kind >= Kind::Near {
                order += gain * bits;
            }
        } else {
            missing += loss * bits;
        }
        i += usize::from(x == word);
        j += usize::from(y == word);
    }
    (shared, missing, order)
}

impl Content {
    fn own(&self, old: u32, new: u32) -> ContentScore {
        let (a, b) = (&self.old.bits[old as usize], &self.new.bits[new as usize]);
        let bits = |_, i: usize, j: usize| a.get(i).or_else(|| b.get(j)).copied().unwrap_or(0.0);
        let (shared, missing, _) =
            compare(&self.old.words[old as usize], &self.new.words[new as usize], bits);
        ContentScore { old, shared, missing }
    }
}

/// Scores the likely pairs of all free functions.
fn round(
    state: &State<'_>,
    content: &mut Content,
    old_pointers: &[Vec<Va>],
    new_pointers: &[Vec<Va>],
    what: ContextUse,
) -> (usize, Vec<Scored>) {
    let old_slots = content.old.slots(|f| state.old_is_free(f));
    let new_slots = content.new.slots(|f| state.new_is_free(f));
    let funcs = |bag: &FreeFunctions, slots: &[u32]| -> Vec<usize> {
        slots.iter().map(|&s| bag.funcs[s as usize]).collect()
    };
    let old_around = features::around(
        &state.old,
        Build::Old,
        &state.pairs,
        old_pointers,
        &funcs(&content.old, &old_slots),
        what,
    );
    let new_around = features::around(
        &state.new,
        Build::New,
        &state.pairs,
        new_pointers,
        &funcs(&content.new, &new_slots),
        what,
    );
    let index = Index::new(&old_around);
    let new_index = Index::new(&new_around);
    let n = state.old.len().max(state.new.len()).max(2);
    let rarity = |w: u64| {
        let len = |i: &Index| i.slots.get(&w).map_or(0, |s| s.1) as usize;
        bits(n, len(&index).max(len(&new_index)))
    };
    // Position among the free ones, by slot.
    let mut position = vec![u32::MAX; content.old.funcs.len()];
    for (i, &s) in old_slots.iter().enumerate() {
        position[s as usize] = u32::try_from(i).unwrap_or(u32::MAX);
    }
    let here: &Content = content;
    let found: Vec<(Vec<ContentScore>, Vec<Scored>)> = new_slots
        .par_iter()
        .zip(&new_around)
        .map_init(
            || vec![0.0_f32; old_slots.len()],
            |acc, (&new, around)| {
                let found = candidates(acc, around, &index, rarity);
                let mut slots: Vec<u32> = found.iter().map(|&i| old_slots[i as usize]).collect();
                let by_content = here.candidates_by_content[new as usize].iter();
                slots.extend(by_content.filter(|&&s| position[s as usize] != u32::MAX));
                slots.sort_unstable();
                slots.dedup();
                let known = &here.known[new as usize];
                let owns: Vec<ContentScore> = slots
                    .into_iter()
                    .map(|old| match known.binary_search_by_key(&old, |o| o.old) {
                        Ok(i) => known[i],
                        Err(_) => here.own(old, new),
                    })
                    .collect();
                let scored = owns.iter().map(|&own| {
                    let old_around = &old_around[position[own.old as usize] as usize];
                    score(own, new, compare(old_around, around, |w, _, _| rarity(w)))
                });
                let scored = scored.collect();
                (owns, scored)
            },
        )
        .collect();
    let mut all = Vec::new();
    for (&new, (owns, scored)) in new_slots.iter().zip(found) {
        content.known[new as usize] = owns;
        all.extend(scored);
    }
    (new_slots.len(), all)
}

fn score(own: ContentScore, new: u32, (context, context_missing, order): (f32, f32, f32)) -> Scored {
    let shared = own.shared + context;
    let share = |s: f32, m: f32| if s > 0.0 { 2.0 * s / (2.0 * s + m) } else { 0.0 };
    Scored {
        old: own.old,
        new,
        share: share(shared, own.missing + context_missing),
        bits: shared,
        net: shared - 0.5 * (own.missing + context_missing),
        content: share(own.shared, own.missing),
        order: order * 2.0 > shared,
        context,
        context_missing,
    }
}

/// Whether one function is so much longer that it may be a part of the other, or hold it.
fn unlike_in_size(a: u32, b: u32) -> bool {
    10 * u64::from(a.min(b)) < 6 * u64::from(a.max(b))
}

/// Takes the pairs that are the best for both sides by a margin.
fn take(state: &mut State<'_>, content: &Content, scored: &[Scored], least: f32, margin: f32) -> usize {
    #[derive(Clone, Copy)]
    struct Best {
        at: Option<usize>,
        net: f32,
        next: f32,
    }
    let none = Best { at: None, net: f32::MIN, next: f32::MIN };
    let mut old = vec![none; content.old.funcs.len()];
    let mut new = vec![none; content.new.funcs.len()];
    for (i, s) in scored.iter().enumerate() {
        for best in [&mut old[s.old as usize], &mut new[s.new as usize]] {
            if s.net > best.net {
                best.next = best.net;
                best.net = s.net;
                best.at = Some(i);
            } else if s.net > best.next {
                best.next = s.net;
            }
        }
    }
    let mut n = 0;
    for (i, s) in scored.iter().enumerate() {
        let (a, b) = (old[s.old as usize], new[s.new as usize]);
        if a.at != Some(i) || b.at != Some(i) || s.share < least || s.bits < LEAST_BITS {
            continue;
        }
        if s.net - a.next.max(b.next) < margin {
            continue;
        }
        let (o, f) = (content.old.funcs[s.old as usize], content.new.funcs[s.new as usize]);
        if state.old.is_named(o) && state.new.is_named(f) && (s.share < 0.6 || s.content < 0.55) {
            continue;
        }
        if unlike_in_size(state.old.n_insns[o], state.new.n_insns[f])
            && s.share < 0.6
            && (s.share < 0.45 || s.context < 4.0 * s.context_missing)
        {
            continue;
        }
        let method = if s.order { FunctionMethod::Order } else { FunctionMethod::Neighbours };
        let confidence = (0.5 + s.share * 0.5).min(0.98);
        n += usize::from(state.take(o, f, method, confidence));
    }
    n
}
