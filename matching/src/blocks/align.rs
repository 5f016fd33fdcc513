//! Matching what equal hashes leave: pairs of blocks are scored by content, neighbours and order until the
//! scores settle.
//!
//! Few candidates per block (those between the same matched neighbours in address order, next to matched
//! blocks, of the same rare reference or opcode hash), so the cost grows with the number of blocks. Scores
//! spread along the edges, as in similarity flooding; pairs that are each other's best are taken, the
//! clearest first, and count as matched when the next round is scored.
//!
//! Source: Melnik, Garcia-Molina, Rahm, "Similarity Flooding", ICDE 2002, for the idea of spreading; the rest
//! is ours.

use super::body::{Body, Link, NONE, count};
use super::pair::Pair;
use crate::relation::BlockMethod;
use program::EdgeKind;

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

/// The candidates of all new blocks, behind one another.
struct Table {
    /// Per new block where its candidates start; one more at the end.
    at: Vec<u32>,
    /// Sorted within each block.
    old: Vec<u32>,
    content: Vec<f32>,
    score: Vec<f32>,
    /// Per new block, bit `n` if one of its candidates is `n` modulo 64.
    mask: Vec<u64>,
}

impl Table {
    fn with_room(n_blocks: usize) -> Table {
        let mut at = Vec::with_capacity(n_blocks + 1);
        at.push(0);
        let room = n_blocks * CANDIDATES / 2;
        Table {
            at,
            old: Vec::with_capacity(room),
            content: Vec::with_capacity(room),
            score: Vec::with_capacity(room),
            mask: Vec::with_capacity(n_blocks),
        }
    }

    /// One without candidates.
    fn empty(n_blocks: usize) -> Table {
        Table { at: vec![0; n_blocks + 1], mask: vec![0; n_blocks], ..Table::with_room(0) }
    }

    /// Adds the candidates of the next block.
    fn push(&mut self, list: &[Candidate]) {
        let mut mask = 0;
        for c in list {
            self.old.push(c.old);
            self.content.push(c.content);
            self.score.push(c.score);
            mask |= 1 << (c.old % 64);
        }
        self.mask.push(mask);
        self.at.push(count(self.old.len()));
    }

    fn range(&self, block: u32) -> std::ops::Range<usize> {
        self.at[block as usize] as usize..self.at[block as usize + 1] as usize
    }

    fn of(&self, block: u32) -> impl Iterator<Item = Candidate> + '_ {
        self.range(block).map(|i| Candidate {
            old: self.old[i],
            content: self.content[i],
            score: self.score[i],
        })
    }
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
    /// Per block, a bit for each strong token and one for each weak one; several have the same.
    masks: Vec<(u64, u64)>,
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
    if pair.is_done() {
        return;
    }
    let weights = weights(pair.old, pair.new);
    let old = contents(pair.old, &pair.of_old, &weights);
    let new = contents(pair.new, &pair.of_new, &weights);
    let mut buckets = Buckets::of(pair);
    let mut table = Table::empty(pair.new.hash.len());
    let mut seen: Vec<Vec<u32>> = vec![Vec::new(); pair.new.hash.len()];
    for (round, (threshold, margin)) in ROUNDS.into_iter().enumerate() {
        if round > 0 && !go_on(pair, round) {
            break;
        }
        buckets.forget_matched(pair);
        let expected = expected(pair);
        table = propose(pair, &buckets, &expected, &old, &new, &mut seen, &table);
        for _ in 0..2 {
            table.score = score(pair, &expected, &old, &new, &table);
        }
        take(pair, &table, threshold, margin);
    }
}

/// How much each strong token says: rare ones more, 0.15..=2.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^24, and only for weights")]
fn weights(old: &Body, new: &Body) -> Vec<(u32, f32)> {
    // The token above its reference.
    let mut tokens: Vec<u64> = Vec::with_capacity(old.all_tokens().len() + new.all_tokens().len());
    for body in [old, new] {
        tokens.extend(body.all_tokens().iter().map(|t| u64::from(t.strong) << 32 | u64::from(t.reference)));
    }
    tokens.sort_unstable();
    let total = (tokens.len() as f32).max(4.0).ln();
    tokens
        .chunk_by(|a, b| a >> 32 == b >> 32)
        .map(|same| {
            // A token that each side has once or twice is as rare as can be.
            let rare =
                if same.len() <= 2 { 1.0 } else { (1.0 - (same.len() as f32 / 2.0).ln() / total).max(0.1) };
            let (strong, reference) = (same[0] >> 32, same[0] & u64::from(u32::MAX));
            (u32::try_from(strong).unwrap_or(0), if reference == 0 { rare } else { 2.0 * rare })
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
        let strong = out.strong[from..].iter().fold(0, |mask, s| mask | bit(s.0));
        let weak = out.weak[from..].iter().fold(0, |mask, &t| mask | bit(t));
        out.masks.push((strong, weak));
        out.says.push(out.strong[from..].iter().map(|s| s.1).sum());
        out.at.push(count(out.strong.len()));
    }
    out
}

/// One of 64 bits for a token.
fn bit(token: u32) -> u64 {
    1 << (token.wrapping_mul(0x9e37_79b9) >> 26)
}

/// How alike two blocks' contents are, 0..=1.
#[expect(clippy::cast_precision_loss, reason = "a block has far fewer than 2^24 instructions")]
fn likeness(old: &Contents, a: u32, new: &Contents, b: u32) -> f32 {
    let (left, right) = (old.masks[a as usize], new.masks[b as usize]);
    let (ra, rb) = (old.range(a), new.range(b));
    let lengths = ra.len() + rb.len();
    let mut common = 0.0;
    if left.0 & right.0 != 0 {
        let (mut x, mut y) = (&old.strong[ra.clone()], &new.strong[rb.clone()]);
        while let ([l, xs @ ..], [r, ys @ ..]) = (x, y) {
            common += if l.0 == r.0 { l.1 } else { 0.0 };
            (x, y) = (if l.0 <= r.0 { xs } else { x }, if r.0 <= l.0 { ys } else { y });
        }
    }
    let strong = 2.0 * common / (old.says[a as usize] + new.says[b as usize]).max(0.01);
    let mut common = 0u32;
    if left.1 & right.1 != 0 {
        let (mut x, mut y) = (&old.weak[ra], &new.weak[rb]);
        while let ([l, xs @ ..], [r, ys @ ..]) = (x, y) {
            common += u32::from(l == r);
            (x, y) = (if l <= r { xs } else { x }, if r <= l { ys } else { y });
        }
    }
    let weak = 2.0 * common as f32 / (lengths as f32).max(1.0);
    0.65 * strong + 0.35 * weak
}

/// What [`likeness`] is at most, by the lengths.
#[expect(clippy::cast_precision_loss, reason = "a block has far fewer than 2^24 instructions")]
fn most_alike(old: &Contents, a: u32, new: &Contents, b: u32) -> f32 {
    /// For what adding up in another order makes of a sum.
    const ROUNDING: f32 = 1e-3;
    let of = |x: f32, y: f32, least: f32| 2.0 * x.min(y) / (x + y).max(least);
    let (left, right) = (old.masks[a as usize], new.masks[b as usize]);
    let strong =
        if left.0 & right.0 == 0 { 0.0 } else { of(old.says[a as usize], new.says[b as usize], 0.01) };
    let weak = if left.1 & right.1 == 0 {
        0.0
    } else {
        of(old.range(a).len() as f32, new.range(b).len() as f32, 1.0)
    };
    0.65 * strong + 0.35 * weak + ROUNDING
}

/// Where, by the matched blocks around it in address order, each new block should be found: a range of old
/// positions and the place in it.
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

/// Free old blocks by rare reference and by opcodes: sorted, with what they are found by.
struct Buckets {
    by_reference: Vec<(u32, u32)>,
    by_opcodes: Vec<(u64, u32)>,
    free: Vec<u32>,
}

impl Buckets {
    fn of(pair: &Pair<'_>) -> Buckets {
        let mut out = Buckets { by_reference: Vec::new(), by_opcodes: Vec::new(), free: Vec::new() };
        for old in (0..pair.old.n_blocks()).filter(|&b| pair.of_old[b as usize] == NONE) {
            out.by_opcodes.push((pair.old.hash(old).four, old));
            let references = pair.old.tokens(old).iter().filter(|t| t.reference != 0);
            out.by_reference.extend(references.map(|t| (t.reference, old)));
        }
        out.by_opcodes.sort_unstable();
        out.by_reference.sort_unstable();
        out.by_reference.dedup();
        out
    }

    fn forget_matched(&mut self, pair: &Pair<'_>) {
        let is_free = |b: u32| pair.of_old[b as usize] == NONE;
        self.by_opcodes.retain(|e| is_free(e.1));
        self.by_reference.retain(|e| is_free(e.1));
        self.free = (0..pair.old.n_blocks()).filter(|&b| is_free(b)).collect();
    }
}

/// The entries of a sorted list that `key` finds.
fn found_by<K: Ord + Copy>(list: &[(K, u32)], key: K) -> &[(K, u32)] {
    let list = &list[list.partition_point(|e| e.0 < key)..];
    &list[..list.iter().take_while(|e| e.0 == key).count()]
}

/// The `n` entries of a list, sorted by block, that are nearest to `place`.
#[expect(clippy::cast_precision_loss, reason = "positions, and only for a closeness")]
fn nearest<T>(list: &[T], block: impl Fn(&T) -> u32, place: f32, n: usize, found: &mut Vec<u32>) {
    let at = list.partition_point(|x| (block(x) as f32) < place);
    let (mut low, mut high) = (at, at);
    for _ in 0..n {
        let down = low.checked_sub(1).map(|i| block(&list[i]));
        let up = list.get(high).map(&block);
        match (down, up) {
            (Some(x), up) if up.is_none_or(|u| place - x as f32 <= u as f32 - place) => {
                low -= 1;
                found.push(x);
            }
            (_, Some(x)) => {
                high += 1;
                found.push(x);
            }
            _ => break,
        }
    }
}

fn propose(
    pair: &Pair<'_>,
    buckets: &Buckets,
    expected: &Expected,
    old: &Contents,
    new: &Contents,
    seen: &mut [Vec<u32>],
    before: &Table,
) -> Table {
    let mut table = Table::with_room(pair.new.hash.len());
    let mut list: Vec<Candidate> = Vec::new();
    let (mut found, mut near): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    for b in 0..pair.new.n_blocks() {
        let seen = &mut seen[b as usize];
        list.clear();
        if pair.of_new[b as usize] != NONE {
            table.push(&list);
            continue;
        }
        list.extend(before.of(b).filter(|c| pair.of_old[c.old as usize] == NONE));
        let mut best = list.iter().map(|c| c.score).fold(0.0, f32::max);
        found.clear();
        near.clear();
        let place = expected.place[b as usize];
        let is_first = seen.is_empty();
        if is_first {
            // What is most alike comes first, so that of the others most need no close look.
            nearest(found_by(&buckets.by_opcodes, pair.new.hash(b).four), |e| e.1, place, 6, &mut found);
        }
        nearest(&buckets.free, |&x| x, place, if is_first { 8 } else { 5 }, &mut found);
        let references = if is_first { 6 } else { 0 };
        for t in pair.new.tokens(b).iter().filter(|t| t.reference != 0).take(references) {
            nearest(found_by(&buckets.by_reference, t.reference), |e| e.1, place, 4, &mut found);
        }
        // Dropped ones come back when a neighbour was matched since, not otherwise.
        for (links, forward) in [(pair.new.predecessors(b), true), (pair.new.successors(b), false)] {
            for link in links.iter().take(DEGREE) {
                let to = pair.of_new[link.to as usize];
                if to != NONE {
                    let next = if forward { pair.old.successors(to) } else { pair.old.predecessors(to) };
                    near.extend(next.iter().take(DEGREE).map(|l| l.to));
                }
            }
        }
        let mut add = |a: u32, again: bool, list: &mut Vec<Candidate>| {
            if pair.is_free(a, b) && (again && !list.iter().any(|c| c.old == a) || !seen.contains(&a)) {
                seen.push(a);
                // The last step would drop it.
                if most_alike(old, a, new, b) + HOPELESS < best {
                    return;
                }
                let content = likeness(old, a, new, b);
                best = best.max(content);
                list.push(Candidate { old: a, content, score: content });
            }
        };
        found.iter().for_each(|&a| add(a, false, &mut list));
        near.iter().for_each(|&a| add(a, true, &mut list));
        list.retain(|c| c.score + HOPELESS >= best);
        if list.len() > CANDIDATES {
            list.sort_by(|x, y| y.score.total_cmp(&x.score).then(x.old.cmp(&y.old)));
            list.truncate(CANDIDATES);
        }
        list.sort_unstable_by_key(|c| c.old);
        table.push(&list);
    }
    table
}

/// A neighbour of a new block, for all its candidates.
#[derive(Clone, Copy)]
struct Beside {
    link: Link,
    /// Its old block, or `NONE`: then its candidates.
    of: u32,
    from: u32,
    to: u32,
    mask: u64,
}

/// The first neighbours among `links`.
fn beside<'b>(
    pair: &Pair<'_>,
    table: &Table,
    links: &[Link],
    room: &'b mut [Beside; DEGREE],
) -> &'b [Beside] {
    for (slot, &link) in room.iter_mut().zip(links) {
        let i = link.to as usize;
        *slot =
            Beside { link, of: pair.of_new[i], from: table.at[i], to: table.at[i + 1], mask: table.mask[i] };
    }
    &room[..links.len().min(DEGREE)]
}

/// How well two lists of neighbours go together, 0..=1; `same` says whether two edges are of the same cause.
#[expect(clippy::cast_precision_loss, reason = "degrees are small")]
fn agreement(table: &Table, left: &[Link], right: &[Beside], same: impl Fn(&Link, &Link) -> bool) -> f32 {
    let left = &left[..left.len().min(DEGREE)];
    if left.is_empty() && right.is_empty() {
        return 1.0;
    }
    let mut sum = 0.0;
    for r in right {
        let mut best = 0.0_f32;
        let mut hold = |l: &Link, value: f32| {
            if value > best {
                best = best.max(if same(l, &r.link) { value } else { 0.8 * value });
            }
        };
        if r.of != NONE {
            left.iter().filter(|l| l.to == r.of).for_each(|l| hold(l, 1.0));
        } else if r.mask != 0 {
            let olds = &table.old[r.from as usize..r.to as usize];
            for l in left.iter().filter(|l| r.mask >> (l.to % 64) & 1 != 0) {
                if let Some(i) = olds.iter().position(|&old| old == l.to) {
                    hold(l, table.score[r.from as usize + i]);
                }
            }
        }
        sum += best;
    }
    sum / left.len().max(right.len()) as f32
}

/// The next scores of all candidates.
#[expect(clippy::cast_precision_loss, reason = "positions, and only for a closeness")]
fn score(pair: &Pair<'_>, expected: &Expected, old: &Contents, new: &Contents, table: &Table) -> Vec<f32> {
    let mut next: Vec<f32> = Vec::with_capacity(table.score.len());
    let nothing = Beside { link: Link { to: NONE, kind: EdgeKind::Jump }, of: NONE, from: 0, to: 0, mask: 0 };
    let (mut into, mut out) = ([nothing; DEGREE], [nothing; DEGREE]);
    for b in 0..pair.new.n_blocks() {
        let range = table.range(b);
        if range.is_empty() {
            continue;
        }
        let at = b as usize;
        let into = beside(pair, table, pair.new.predecessors(b), &mut into);
        let out = beside(pair, table, pair.new.successors(b), &mut out);
        for i in range {
            let a = table.old[i];
            let before = agreement(table, pair.old.predecessors(a), into, |l, r| {
                pair.same_edge(l.to, l.kind, r.to, r.kind)
            });
            let after =
                agreement(table, pair.old.successors(a), out, |l, r| pair.same_edge(a, l.kind, b, r.kind));
            let inside = (expected.low[at]..expected.high[at]).contains(&a);
            let far = (a as f32 - expected.place[at]).abs();
            let order = if inside { 0.6 + 0.4 / (1.0 + 0.3 * far) } else { 0.4 / (1.0 + 0.1 * far) };
            let says = ((old.says[a as usize] + new.says[at]) / 2.0).min(6.0);
            next.push((says * table.content[i] + 1.5 * before + 1.5 * after + 1.2 * order) / (says + 4.2));
        }
    }
    next
}

/// How often a match of this score is right: measured against line tables on sqlite 3.38→3.46→3.49 and Lua
/// 5.4.3→5.4.8 (0.35: 75 %, 0.5: 91 %, 0.6: 94 %, 0.7: 98 %, 0.8: 99 %).
pub(crate) fn confidence(score: f32) -> f32 {
    1.0 - 0.5 * (-6.5 * (score - 0.27).max(0.0)).exp()
}

/// Takes pairs that are each other's best and clearly so.
fn take(pair: &mut Pair<'_>, table: &Table, threshold: f32, margin: f32) {
    // Per old block: best and second best.
    let mut best = vec![(f32::MIN, f32::MIN); pair.old.hash.len()];
    let note = |b: &mut (f32, f32), score: f32| {
        if score > b.0 {
            *b = (score, b.0);
        } else if score > b.1 {
            b.1 = score;
        }
    };
    for (&old, &score) in table.old.iter().zip(&table.score) {
        note(&mut best[old as usize], score);
    }
    let mut found: Vec<(f32, u32, u32)> = Vec::new();
    for b in 0..pair.new.n_blocks() {
        let mut of_new = (f32::MIN, f32::MIN);
        table.of(b).for_each(|c| note(&mut of_new, c.score));
        for c in table.of(b).filter(|c| c.score >= threshold) {
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
