//! Nests of loops that both builds went round, taken apart: what one round of a loop does is an interval
//! where both builds have as many rounds of it, but for the first or last that one of them has peeled off,
//! or one has a whole number of rounds for each of the other, which has unrolled or vectorised it. Other
//! loops belong to the loop around them.
//!
//! How often a loop goes round in a nest is known as the mean of all times that the nest was gone through.

use super::code::NONE;
use super::items::Reading;
use super::log::{Counted, Gap};
use std::collections::BTreeMap;

/// What the loops with one key did, each time that a nest was gone through.
#[derive(Clone, Debug, Default, PartialEq)]
struct Own {
    /// Instructions in no loop in it.
    insns: f64,
    /// By loop: rounds.
    rounds: Vec<(u32, f64)>,
    /// The key of the loop around it; [`NONE`] of the outermost.
    parent: u32,
}

impl Own {
    fn add_rounds(&mut self, of: u32, n: f64) {
        match self.rounds.iter_mut().find(|(known, _)| *known == of) {
            Some((_, sum)) => *sum += n,
            None => self.rounds.push((of, n)),
        }
    }

    fn all(&self) -> f64 {
        self.rounds.iter().map(|(_, n)| n).sum()
    }

    /// The loop that goes round most often, and how often that is.
    fn main(&self) -> (u32, f64) {
        let most = self.rounds.iter().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        most.copied().unwrap_or((NONE, 0.0))
    }
}

/// What a side did in a nest, by the keys of its loops.
#[derive(Clone, Debug, Default)]
pub struct Nest(BTreeMap<u32, Own>);

#[expect(clippy::cast_precision_loss, reason = "counts up to 2⁵³ are exact")]
fn number(n: u64) -> f64 {
    n as f64
}

impl Nest {
    /// Of what ran in rounds of a nest of `reading`, the outermost loop of which has the key `root`.
    pub fn of(reading: &Reading<'_>, gap: &Gap, root: u32) -> Nest {
        let code = reading.side.code;
        let key = |of: u32| reading.keys.loops[reading.n].get(of as usize).copied().unwrap_or(root);
        let mut nest: BTreeMap<u32, Own> = BTreeMap::new();
        for (block, what, n) in gap.counts() {
            let Some(of) = code.blocks.get(block as usize) else { continue };
            let innermost = key(of.innermost);
            let own = nest.entry(innermost).or_insert_with(|| {
                let around = |of: &u32| code.loops.get(*of as usize).map(|of| of.parent);
                let mut parents = std::iter::successors(Some(of.innermost), around).map(key);
                let parent = parents.find(|key| *key != innermost);
                Own { parent: parent.filter(|_| innermost != root).unwrap_or(NONE), ..Own::default() }
            });
            let n = number(n) / number(gap.times.max(1));
            match what {
                Counted::Run => own.insns += f64::from(of.weight) * n,
                Counted::Padding => own.insns += f64::from(of.not_taken.1) * n,
                Counted::Taken => {}
            }
            if what == Counted::Run && of.is_header {
                own.add_rounds(of.innermost, n);
            }
        }
        Nest(nest)
    }

    /// Adds what is in `other`, so many times.
    pub fn add(&mut self, other: &Nest, times: f64) {
        for (key, more) in &other.0 {
            let own = self.0.entry(*key).or_insert_with(|| Own { parent: more.parent, ..Own::default() });
            own.insns += more.insns * times;
            for (of, n) in &more.rounds {
                own.add_rounds(*of, n * times);
            }
        }
    }

    fn insns(&self) -> f64 {
        self.0.values().map(|own| own.insns).sum()
    }

    /// How many loops are around this one, here.
    fn depth(&self, key: u32) -> usize {
        let parent = |key: &u32| self.0.get(key).map(|own| own.parent).filter(|key| *key != NONE);
        // Parents of inlined loops may lead in a circle.
        std::iter::successors(Some(key), parent).take(self.0.len()).count()
    }
}

/// A part of a nest that is compared by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The keys of its loops.
    pub keys: Vec<u32>,
    /// The loop of each side; [`NONE`]: all of the nest.
    pub loops: [u32; 2],
    /// How often they went round, each time that the nest was gone through.
    pub rounds: [f64; 2],
    /// How many intervals it is, each time; 0 if the nest is one.
    pub n: f64,
    /// Instructions, each time.
    pub insns: [f64; 2],
}

/// How many rounds of the loops with `key` are points of both sides, each time that the nest is gone through;
/// 0 if they are not.
fn points(nests: [&Nest; 2], key: u32) -> f64 {
    let [Some(a), Some(b)] = nests.map(|nest| nest.0.get(&key)) else { return 0.0 };
    // How often they were come to, at most.
    let around = |nest: &Nest, own: &Own| nest.0.get(&own.parent).map_or(1.0, Own::all).max(1.0);
    let entries = around(nests[0], a).max(around(nests[1], b)) + 1e-9;
    let (more, fewer) = if a.all() >= b.all() { (a, b) } else { (b, a) };
    if more.all() - fewer.all() <= entries {
        return fewer.all();
    }
    // What is left over of the rounds that are several at once is gone round one by one.
    let main = fewer.main().1;
    let rest = fewer.all() - main;
    let times = ((more.all() - rest) / main).round();
    let is_whole = times >= 2.0 && (more.all() - rest - times * main).abs() <= times * entries;
    if main > 0.0 && is_whole { fewer.all() } else { 0.0 }
}

/// What both sides did in a nest, in parts that can be compared.
pub fn apart(nests: [&Nest; 2]) -> Vec<Piece> {
    let mut keys: Vec<u32> = nests.iter().flat_map(|nest| nest.0.keys().copied()).collect();
    keys.sort_unstable();
    keys.dedup();
    // The innermost first: those that are no points belong to what is around them.
    keys.sort_by_cached_key(|key| std::cmp::Reverse(nests.map(|nest| nest.depth(*key)).into_iter().max()));
    let mut whole = Piece { keys: Vec::new(), loops: [NONE; 2], rounds: [0.0; 2], n: 0.0, insns: [0.0; 2] };
    // By key and side: instructions of what is in it and no piece, and the keys of that.
    let mut inner: BTreeMap<u32, Vec<(usize, u32, f64)>> = BTreeMap::new();
    let mut pieces = Vec::new();
    for key in keys {
        let mut parts = inner.remove(&key).unwrap_or_default();
        let own = |n: usize| nests[n].0.get(&key).map(|own| (n, key, own.insns));
        parts.extend([own(0), own(1)].into_iter().flatten());
        let n = points(nests, key);
        if n == 0.0 {
            for (side, of, insns) in parts {
                let parent = nests[side].0.get(&key).map_or(NONE, |own| own.parent);
                let is_there = parent != key && nests[side].depth(parent) < nests[side].depth(key);
                match is_there && nests[side].0.contains_key(&parent) {
                    true => inner.entry(parent).or_default().push((side, of, insns)),
                    false => whole.take(side, of, insns),
                }
            }
            continue;
        }
        let of = |side: usize| nests[side].0.get(&key);
        let loops = [0, 1].map(|side: usize| of(side).map_or(NONE, |own| own.main().0));
        let rounds = [0, 1].map(|side: usize| of(side).map_or(0.0, Own::all));
        let mut piece = Piece { keys: Vec::new(), loops, rounds, n, insns: [0.0; 2] };
        parts.into_iter().for_each(|(side, of, insns)| piece.take(side, of, insns));
        pieces.push(piece);
    }
    // What comes to a loop that was a piece already.
    for (side, of, insns) in inner.into_values().flatten() {
        whole.take(side, of, insns);
    }
    if !whole.keys.is_empty() {
        pieces.push(whole);
    }
    debug_assert!(
        [0, 1].into_iter().all(|side: usize| {
            let sum: f64 = pieces.iter().map(|piece| piece.insns[side]).sum();
            (sum - nests[side].insns()).abs() <= 1e-6 * sum.max(1.0)
        }),
        "each instruction is in one piece"
    );
    pieces
}

impl Piece {
    fn take(&mut self, side: usize, key: u32, insns: f64) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
        self.insns[side] += insns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A nest of loops: key, parent, instructions, rounds of each.
    fn nest(loops: &[(u32, u32, f64, &[f64])]) -> Nest {
        let of = |&(key, parent, insns, rounds): &(u32, u32, f64, &[f64])| {
            let rounds = (key * 10..).zip(rounds.iter().copied()).collect();
            (key, Own { insns, rounds, parent })
        };
        Nest(loops.iter().map(of).collect())
    }

    fn piece(pieces: &[Piece], key: u32) -> &Piece {
        pieces.iter().find(|piece| piece.keys.contains(&key)).expect("each key is in a piece")
    }

    #[test]
    fn an_inner_loop_that_goes_round_as_often_is_a_piece_of_its_own() {
        let old = nest(&[(1, NONE, 100.0, &[10.0]), (2, 1, 5000.0, &[500.0])]);
        let new = nest(&[(1, NONE, 80.0, &[10.0]), (2, 1, 4000.0, &[490.0])]);
        let pieces = apart([&old, &new]);
        // The inner one was rotated: one round fewer each time that it is come to.
        assert_eq!((piece(&pieces, 2).n, piece(&pieces, 2).insns), (490.0, [5000.0, 4000.0]));
        assert_eq!((piece(&pieces, 1).n, piece(&pieces, 1).insns), (10.0, [100.0, 80.0]));
    }

    #[test]
    fn a_loop_that_does_another_number_of_rounds_belongs_to_the_one_around_it() {
        let old = nest(&[(1, NONE, 100.0, &[10.0]), (2, 1, 5000.0, &[500.0])]);
        let new = nest(&[(1, NONE, 80.0, &[10.0]), (2, 1, 4000.0, &[371.0])]);
        let pieces = apart([&old, &new]);
        assert_eq!(pieces.len(), 1);
        assert_eq!((pieces[0].n, pieces[0].insns, pieces[0].rounds), (10.0, [5100.0, 4080.0], [10.0, 10.0]));
        // Nor is there one around it.
        let pieces = apart([&nest(&[(2, 1, 5000.0, &[500.0])]), &nest(&[(2, 1, 4000.0, &[371.0])])]);
        assert_eq!((pieces.len(), pieces[0].n, pieces[0].loops), (1, 0.0, [NONE; 2]));
    }

    #[test]
    fn rounds_of_an_unrolled_loop_and_of_its_rest_are_points() {
        let old = nest(&[(7, NONE, 1000.0, &[103.0])]);
        let new = nest(&[(7, NONE, 500.0, &[25.0, 3.0])]);
        for nests in [[&old, &new], [&new, &old]] {
            assert_eq!(apart(nests)[0].n, 28.0);
        }
        // Not a whole number of them.
        let new = nest(&[(7, NONE, 500.0, &[40.0, 3.0])]);
        assert_eq!(apart([&old, &new])[0].n, 0.0);
    }

    #[test]
    fn what_one_build_alone_has_belongs_to_what_is_around_it() {
        let old = nest(&[(1, NONE, 100.0, &[10.0]), (3, 1, 60.0, &[20.0]), (4, 3, 7.0, &[40.0])]);
        let new = nest(&[(1, NONE, 90.0, &[10.0])]);
        let pieces = apart([&old, &new]);
        assert_eq!((pieces.len(), pieces[0].n, pieces[0].insns), (1, 10.0, [167.0, 90.0]));
    }

    #[test]
    fn nothing_is_lost_where_parents_lead_in_a_circle() {
        let old = nest(&[(1, 2, 100.0, &[1.0]), (2, 1, 60.0, &[2.0])]);
        let new = nest(&[(1, NONE, 90.0, &[50.0])]);
        let pieces = apart([&old, &new]);
        let sum: f64 = pieces.iter().map(|piece| piece.insns[0]).sum();
        assert_eq!(sum, 160.0);
    }
}
