//! Matching what equal hashes leave: pairs of blocks are scored by content, neighbours and order until the scores settle.
//!
//! Few candidates per block (those between the same matched neighbours in address order, next to matched blocks, of the
//! same rare reference or opcode hash), so the cost grows with the number of blocks. Scores spread along the edges, as
//! in similarity flooding; pairs that are each other's best are taken, the clearest first, and count as matched when
//! the next round is scored.
//!
//! Source: Melnik, Garcia-Molina, Rahm, "Similarity Flooding", ICDE 2002, for the idea of spreading; the rest is ours.

use super::body::{Body, NONE, count};
use super::pair::Pair;
use crate::relation::BlockMethod;
use std::collections::BTreeMap;

/// Candidates per block, at most.
const CANDIDATES: usize = 12;
/// Candidates that much worse than the best are dropped.
const HOPELESS: f32 = 0.3;
/// Neighbours looked at per block, at most.
const DEGREE: usize = 12;
/// What a pair must score in each round, and by how much it must be better than the next.
const ROUNDS: [(f32, f32); 6] =
    [(0.8, 0.1), (0.7, 0.06), (0.6, 0.04), (0.5, 0.02), (0.42, 0.01), (0.36, 0.0)];

/// A candidate: the old block, how alike the contents are, and the score so far.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    old: u32,
    content: f32,
    score: f32,
}

/// Contents of a function's free blocks, for comparing them in part.
#[derive(Default)]
struct Contents {
    /// Per block where its instructions start in `strong` and `weak`; one more at the end.
    at: Vec<u32>,
    /// Instructions as (strong token, weight), sorted within each block.
    strong: Vec<(u32, f32)>,
    /// Instructions' weak tokens, sorted within each block.
    weak: Vec<u32>,
    /// Per block: how much its content says, the sum of its tokens' weights.
    says: Vec<f32>,
}

impl Contents {
    fn range(&self, block: u32) -> std::ops::Range<usize> {
        self.at[block as usize] as usize..self.at[block as usize + 1] as usize
    }
}

/// Takes pairs of free blocks that fit best.
pub(crate) fn pass(pair: &mut Pair<'_>) {
    pass_while(pair, |_, _| true);
}

/// The same; asks `go_on`, with how many rounds were done, before each further one.
pub(crate) fn pass_while(pair: &mut Pair<'_>, go_on: impl Fn(&Pair<'_>, usize) -> bool) {
    if pair.of_new.iter().all(|&o| o != NONE) || pair.of_old.iter().all(|&n| n != NONE) {
        return;
    }
    let weights = weights(pair.old, pair.new);
    let old = contents(pair.old, &pair.of_old, &weights);
    let new = contents(pair.new, &pair.of_new, &weights);
    let mut buckets = Buckets::of(pair);
    let mut candidates: Vec<Vec<Candidate>> = vec![Vec::new(); pair.new.hash.len()];
    let mut seen: Vec<Vec<u32>> = vec![Vec::new(); pair.new.hash.len()];
    for (round, (threshold, margin)) in ROUNDS.into_iter().enumerate() {
        if round > 0 && !go_on(pair, round) {
            break;
        }
        buckets.forget_matched(pair);
        let expected = expected(pair);
        propose(pair, &buckets, &expected, &old, &new, &mut seen, &mut candidates);
        for _ in 0..2 {
            score(pair, &expected, &old, &new, &mut candidates);
        }
        take(pair, &candidates, threshold, margin);
    }
}

/// How much each strong token says: rare ones more, 0.15..=2.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^24, and only for weights")]
fn weights(old: &Body, new: &Body) -> Vec<(u32, f32)> {
    let all = |body: &Body| -> Vec<(u32, u32)> {
        let tokens = (0..body.n_blocks()).flat_map(|b| body.tokens(b));
        tokens.map(|t| (t.strong, t.reference)).collect()
    };
    let mut tokens = all(old);
    tokens.extend(all(new));
    tokens.sort_unstable();
    let total = (tokens.len() as f32).max(4.0).ln();
    tokens
        .chunk_by(|a, b| a.0 == b.0)
        .map(|same| {
            // A token that each side has once or twice is as rare as can be.
            let often = (same.len() as f32 / 2.0).max(1.0);
            let rare = (1.0 - often.ln() / total).max(0.1);
            (same[0].0, if same[0].1 == 0 { rare } else { 2.0 * rare })
        })
        .collect()
}

fn contents(body: &Body, matched: &[u32], weights: &[(u32, f32)]) -> Contents {
    let mut out = Contents { at: vec![0], ..Contents::default() };
    let weight = |t: u32| weights.binary_search_by_key(&t, |w| w.0).map_or(1.0, |i| weights[i].1);
    for (b, &other) in (0..).zip(matched) {
        let from = out.strong.len();
        if other == NONE {
            let tokens = body.tokens(b);
            out.strong.extend(tokens.iter().map(|t| (t.strong, weight(t.strong))));
            out.weak.extend(tokens.iter().map(|t| t.weak));
            out.strong[from..].sort_unstable_by_key(|s| s.0);
            out.weak[from..].sort_unstable();
        }
        out.says.push(out.strong[from..].iter().map(|s| s.1).sum());
        out.at.push(count(out.strong.len()));
    }
    out
}

/// How alike two blocks' contents are, 0..=1.
#[expect(clippy::cast_precision_loss, reason = "a block has far fewer than 2^24 instructions")]
fn likeness(old: &Contents, a: u32, new: &Contents, b: u32) -> f32 {
    let (x, y) = (&old.strong[old.range(a)], &new.strong[new.range(b)]);
    let (mut i, mut j, mut common) = (0, 0, 0.0);
    while let (Some(l), Some(r)) = (x.get(i), y.get(j)) {
        match l.0.cmp(&r.0) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                common += l.1;
                i += 1;
                j += 1;
            }
        }
    }
    let strong = 2.0 * common / (old.says[a as usize] + new.says[b as usize]).max(0.01);
    let (x, y) = (&old.weak[old.range(a)], &new.weak[new.range(b)]);
    let (mut i, mut j, mut common) = (0, 0, 0u32);
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
    let weak = 2.0 * common as f32 / ((x.len() + y.len()) as f32).max(1.0);
    0.65 * strong + 0.35 * weak
}

/// Where, by the matched blocks around it in address order, each new block should be found: a range of old positions and
/// the place in it.
struct Expected {
    low: Vec<u32>,
    high: Vec<u32>,
    place: Vec<f32>,
}

#[expect(clippy::cast_precision_loss, reason = "positions, and only for a closeness")]
fn expected(pair: &Pair<'_>) -> Expected {
    let n = pair.new.hash.len();
    let m = count(pair.old.hash.len());
    let mut out = Expected { low: vec![0; n], high: vec![m; n], place: vec![0.0; n] };
    let mut from = 0;
    while from < n {
        if pair.of_new[from] != NONE {
            from += 1;
            continue;
        }
        let to = (from..n).find(|&i| pair.of_new[i] != NONE).unwrap_or(n);
        let before = if from == 0 { NONE } else { pair.of_new[from - 1] };
        let after = if to == n { NONE } else { pair.of_new[to] };
        let low = if before == NONE { 0 } else { before + 1 };
        let high = if after == NONE { m } else { after };
        for i in from..to {
            let done = (i - from) as f32 / (to - from) as f32;
            if low <= high {
                out.low[i] = low;
                out.high[i] = high;
                out.place[i] = low as f32 + done * (high - low) as f32;
            } else {
                // The neighbours moved apart: near the one or the other.
                let near_before = i - from < to - i;
                out.low[i] = if near_before { low } else { high.saturating_sub(1) };
                out.high[i] = out.low[i] + 1;
                out.place[i] = out.low[i] as f32;
            }
        }
        from = to;
    }
    out
}

/// Free old blocks by rare reference and by opcodes.
struct Buckets {
    by_reference: BTreeMap<u32, Vec<u32>>,
    by_opcodes: BTreeMap<u64, Vec<u32>>,
    free: Vec<u32>,
}

impl Buckets {
    fn of(pair: &Pair<'_>) -> Buckets {
        let mut out =
            Buckets { by_reference: BTreeMap::new(), by_opcodes: BTreeMap::new(), free: Vec::new() };
        for old in (0..pair.old.n_blocks()).filter(|&b| pair.of_old[b as usize] == NONE) {
            out.by_opcodes.entry(pair.old.hash(old).four).or_default().push(old);
            for t in pair.old.tokens(old).iter().filter(|t| t.reference != 0) {
                let blocks = out.by_reference.entry(t.reference).or_default();
                if blocks.last() != Some(&old) {
                    blocks.push(old);
                }
            }
        }
        out
    }

    fn forget_matched(&mut self, pair: &Pair<'_>) {
        let free = |b: &u32| pair.of_old[*b as usize] == NONE;
        self.by_opcodes.values_mut().for_each(|v| v.retain(free));
        self.by_reference.values_mut().for_each(|v| v.retain(free));
        self.free = (0..pair.old.n_blocks()).filter(free).collect();
    }
}

/// The `n` entries of a sorted list that are nearest to `place`.
fn nearest(list: &[u32], place: f32, n: usize) -> impl Iterator<Item = u32> + '_ {
    #[expect(clippy::cast_precision_loss, reason = "positions, and only for a closeness")]
    let at = list.partition_point(|&x| (x as f32) < place);
    let (mut low, mut high) = (at, at);
    let mut left = n;
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        #[expect(clippy::cast_precision_loss, reason = "positions, and only for a closeness")]
        let down = low.checked_sub(1).and_then(|i| list.get(i)).map(|&x| (place - x as f32, x));
        #[expect(clippy::cast_precision_loss, reason = "positions, and only for a closeness")]
        let up = list.get(high).map(|&x| (x as f32 - place, x));
        match (down, up) {
            (Some((d, x)), up) if up.is_none_or(|u| d <= u.0) => {
                low -= 1;
                Some(x)
            }
            (_, Some((_, x))) => {
                high += 1;
                Some(x)
            }
            _ => None,
        }
    })
}

fn propose(
    pair: &Pair<'_>,
    buckets: &Buckets,
    expected: &Expected,
    old: &Contents,
    new: &Contents,
    seen: &mut [Vec<u32>],
    candidates: &mut [Vec<Candidate>],
) {
    let mut found: Vec<u32> = Vec::new();
    for b in 0..pair.new.n_blocks() {
        let (list, seen) = (&mut candidates[b as usize], &mut seen[b as usize]);
        if pair.of_new[b as usize] != NONE {
            list.clear();
            continue;
        }
        list.retain(|c| pair.of_old[c.old as usize] == NONE);
        found.clear();
        for forward in [true, false] {
            let links = if forward { pair.new.predecessors(b) } else { pair.new.successors(b) };
            for link in links.iter().take(DEGREE) {
                let to = pair.of_new[link.to as usize];
                if to != NONE {
                    let next = if forward { pair.old.successors(to) } else { pair.old.predecessors(to) };
                    found.extend(next.iter().take(DEGREE).map(|l| l.to));
                }
            }
        }
        // Dropped ones come back when a neighbour was matched since, not otherwise.
        let by_neighbour = found.len();
        let place = expected.place[b as usize];
        found.extend(nearest(&buckets.free, place, if seen.is_empty() { 8 } else { 5 }));
        if seen.is_empty()
            && let Some(same) = buckets.by_opcodes.get(&pair.new.hash(b).four)
        {
            found.extend(nearest(same, place, 6));
        }
        let references = if seen.is_empty() { 6 } else { 0 };
        for t in pair.new.tokens(b).iter().filter(|t| t.reference != 0).take(references) {
            if let Some(same) = buckets.by_reference.get(&t.reference) {
                found.extend(nearest(same, place, 4));
            }
        }
        for (i, &a) in found.iter().enumerate() {
            let again = i < by_neighbour && !list.iter().any(|c| c.old == a);
            if pair.is_free(a, b) && (again || !seen.contains(&a)) {
                seen.push(a);
                let content = likeness(old, a, new, b);
                list.push(Candidate { old: a, content, score: content });
            }
        }
        let best = list.iter().map(|c| c.score).fold(0.0, f32::max);
        list.retain(|c| c.score + HOPELESS >= best);
        if list.len() > CANDIDATES {
            list.sort_by(|x, y| y.score.total_cmp(&x.score).then(x.old.cmp(&y.old)));
            list.truncate(CANDIDATES);
        }
        list.sort_unstable_by_key(|c| c.old);
    }
}

/// How well two lists of neighbours go together, 0..=1.
#[expect(clippy::cast_precision_loss, reason = "degrees are small")]
fn agreement(pair: &Pair<'_>, candidates: &[Vec<Candidate>], a: u32, b: u32, forward: bool) -> f32 {
    let (left, right) = if forward {
        (pair.old.successors(a), pair.new.successors(b))
    } else {
        (pair.old.predecessors(a), pair.new.predecessors(b))
    };
    if left.is_empty() && right.is_empty() {
        return 1.0;
    }
    let mut sum = 0.0;
    for r in right.iter().take(DEGREE) {
        let to = pair.of_new[r.to as usize];
        let mut best = 0.0_f32;
        for l in left.iter().take(DEGREE) {
            let value = if to != NONE {
                if to == l.to { 1.0 } else { 0.0 }
            } else {
                // Sorted by the old block.
                let list = &candidates[r.to as usize];
                list.iter().find(|c| c.old >= l.to).filter(|c| c.old == l.to).map_or(0.0, |c| c.score)
            };
            if value > best {
                let same = if forward {
                    pair.same_edge(a, l.kind, b, r.kind)
                } else {
                    pair.same_edge(l.to, l.kind, r.to, r.kind)
                };
                best = best.max(if same { value } else { 0.8 * value });
            }
        }
        sum += best;
    }
    sum / left.len().min(DEGREE).max(right.len().min(DEGREE)) as f32
}

#[expect(clippy::cast_precision_loss, reason = "positions, and only for a closeness")]
fn score(
    pair: &Pair<'_>,
    expected: &Expected,
    old: &Contents,
    new: &Contents,
    candidates: &mut [Vec<Candidate>],
) {
    let mut next: Vec<f32> = Vec::new();
    for (b, list) in (0..).zip(&*candidates) {
        let at = b as usize;
        for c in list {
            let a = c.old;
            let before = agreement(pair, candidates, a, b, false);
            let after = agreement(pair, candidates, a, b, true);
            let inside = (expected.low[at]..expected.high[at]).contains(&a);
            let far = (a as f32 - expected.place[at]).abs();
            let order = if inside { 0.6 + 0.4 / (1.0 + 0.3 * far) } else { 0.4 / (1.0 + 0.1 * far) };
            let says = ((old.says[a as usize] + new.says[at]) / 2.0).min(6.0);
            next.push((says * c.content + 1.5 * before + 1.5 * after + 1.2 * order) / (says + 4.2));
        }
    }
    for (c, s) in candidates.iter_mut().flatten().zip(next) {
        c.score = s;
    }
}

/// How often a match of this score is right: measured against line tables on sqlite 3.38→3.46→3.49 and Lua 5.4.3→5.4.8
/// (0.35: 75 %, 0.5: 91 %, 0.6: 94 %, 0.7: 98 %, 0.8: 99 %).
pub(crate) fn confidence(score: f32) -> f32 {
    1.0 - 0.5 * (-6.5 * (score - 0.27).max(0.0)).exp()
}

/// Takes pairs that are each other's best and clearly so.
fn take(pair: &mut Pair<'_>, candidates: &[Vec<Candidate>], threshold: f32, margin: f32) {
    // Per old block: best and second best.
    let mut best = vec![(f32::MIN, f32::MIN); pair.old.hash.len()];
    let note = |b: &mut (f32, f32), score: f32| {
        if score > b.0 {
            *b = (score, b.0);
        } else if score > b.1 {
            b.1 = score;
        }
    };
    for c in candidates.iter().flatten() {
        note(&mut best[c.old as usize], c.score);
    }
    let mut found: Vec<(f32, u32, u32)> = Vec::new();
    for (b, list) in (0..).zip(candidates) {
        let mut of_new = (f32::MIN, f32::MIN);
        list.iter().for_each(|c| note(&mut of_new, c.score));
        for c in list.iter().filter(|c| c.score >= threshold) {
            let rival = |(first, second)| if c.score >= first { second } else { first };
            if c.score >= rival(of_new).max(rival(best[c.old as usize])) + margin {
                found.push((c.score, c.old, b));
            }
        }
    }
    found.sort_by(|x, y| y.0.total_cmp(&x.0).then(x.2.cmp(&y.2)).then(x.1.cmp(&y.1)));
    for (score, a, b) in found {
        if pair.is_free(a, b) {
            pair.set(a, b, BlockMethod::Aligned, confidence(score));
        }
    }
}
