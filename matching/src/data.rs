//! Which data object became which.
//!
//! Before code, because matched data make operands equal: by name, by contents, by position between matched
//! neighbours. After functions were matched, once more, past the paper: what matched code refers to at the
//! same place, and what matched tables point to at the same place, is each other; then by position again.
//!
//! Invariant: one to one; an object only ever goes to a free one of the same sort of section.
//!
//! Source: BMAT, 2.2. We differ in hashing a pointer to a string or to a named function as what it points to.

use crate::hash::{Hashes, combine, content_key, name_key};
use crate::names;
use crate::options::{Options, Pass};
use crate::relation::{BlockMatch, BlockMethod, DataMatch, DataMethod, OneToOne};
use program::arch::Operand;
use program::image::RelocationTo;
use program::{BlockId, DataKind, DataObject, Instructions, Program, Va};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// What has been found so far.
#[derive(Debug)]
pub struct Data<'a> {
    old: &'a Program,
    new: &'a Program,
    options: &'a Options,
    /// Which is which.
    pub pairs: OneToOne,
    how: Vec<DataMethod>,
}

impl<'a> Data<'a> {
    /// By name, contents and position.
    pub fn compute(old: &'a Program, new: &'a Program, options: &'a Options) -> Data<'a> {
        let pairs = OneToOne::new(old.data.len(), new.data.len());
        let how = vec![DataMethod::Name; new.data.len()];
        let mut data = Data { old, new, options, pairs, how };
        if options.has(Pass::DataNames) {
            data.by_name();
        }
        if options.has(Pass::DataHashes) {
            data.by_hash();
        }
        if options.has(Pass::DataPosition) {
            data.by_position(true);
        }
        data
    }

    /// By references, once functions are matched; then by position again.
    pub fn refine(&mut self, functions: &OneToOne, old_hashes: &Hashes, new_hashes: &Hashes) {
        if self.options.has(Pass::DataReferences) {
            let mut votes = self.votes_of_code(functions, old_hashes, new_hashes);
            for _ in 0..4 {
                self.votes_of_tables(&mut votes);
                if self.elect(&votes) == 0 {
                    break;
                }
            }
        }
        if self.options.has(Pass::DataPosition) {
            self.by_position(false);
        }
    }

    /// By references of matched blocks, once blocks are matched; then by position again.
    pub fn refine_by_blocks(&mut self, blocks: &[BlockMatch]) {
        if !self.options.has(Pass::DataReferences) {
            return;
        }
        let mut votes = self.votes_of_blocks(blocks);
        for _ in 0..4 {
            if self.elect(&votes) == 0 {
                break;
            }
            self.votes_of_tables(&mut votes);
        }
        if self.options.has(Pass::DataPosition) {
            self.by_position(false);
        }
    }

    /// Pairs, by new.
    pub fn matches(&self) -> Vec<DataMatch> {
        self.pairs.pairs().map(|(old, new)| DataMatch { old, new, method: self.how[new] }).collect()
    }

    fn take(&mut self, old: usize, new: usize, method: DataMethod) -> bool {
        let fits = region(self.old, &self.old.data[old]) == region(self.new, &self.new.data[new]);
        let taken = fits && self.pairs.insert(old, new);
        if taken {
            self.how[new] = method;
        }
        taken
    }

    fn by_name(&mut self) {
        let key = |d: &DataObject| d.name.as_deref().filter(|n| !names::is_label(n)).map(|n| n.to_owned());
        let bare = |d: &DataObject| key(d).map(|n| names::bare(&n).name.into_owned());
        self.by_key(key, DataMethod::Name);
        self.by_key(bare, DataMethod::Name);
    }

    /// Equal keys: alone on both sides, or as many on both, in the file's order.
    fn by_key<K: Ord + Send>(&mut self, key: impl Fn(&DataObject) -> Option<K> + Sync, method: DataMethod) {
        let mut groups: BTreeMap<K, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (i, d) in self.old.data.iter().enumerate().filter(|(i, _)| self.pairs.new_of(*i).is_none()) {
            if let Some(k) = key(d) {
                groups.entry(k).or_default().0.push(i);
            }
        }
        for (i, d) in self.new.data.iter().enumerate().filter(|(i, _)| self.pairs.old_of(*i).is_none()) {
            if let Some(k) = key(d) {
                groups.entry(k).or_default().1.push(i);
            }
        }
        for (a, b) in groups.into_values().filter(|(a, b)| a.len() == b.len()) {
            for (o, n) in a.into_iter().zip(b) {
                self.take(o, n, method);
            }
        }
    }

    fn by_hash(&mut self) {
        let (old, new) = rayon::join(|| hashes(self.old), || hashes(self.new));
        let mut all: Vec<(u64, bool, usize)> = Vec::new();
        for (hashes, is_new) in [(&old, false), (&new, true)] {
            for (i, h) in hashes.iter().enumerate() {
                let free = match is_new {
                    true => self.pairs.old_of(i).is_none(),
                    false => self.pairs.new_of(i).is_none(),
                };
                if let (Some(h), true) = (h, free) {
                    all.push((*h, is_new, i));
                }
            }
        }
        all.par_sort_unstable();
        for run in all.chunk_by(|a, b| a.0 == b.0) {
            if let [(_, false, o), (_, true, n)] = run {
                self.take(*o, *n, DataMethod::Hash);
            }
        }
    }

    /// What stands between matched neighbours: as many on both sides and each of its counterpart's kind and
    /// size; or, unless `strict`, from either end as long as kinds and sizes are equal, and single ones of
    /// similar size.
    fn by_position(&mut self, strict: bool) {
        let matched: Vec<(usize, usize)> = self.pairs.pairs().collect();
        let n_old = self.old.data.len();
        let n_new = self.new.data.len();
        let ends = [(n_old, n_new)];
        let mut last: Option<(usize, usize)> = None;
        let mut gaps = Vec::new();
        for &(o, n) in matched.iter().chain(&ends) {
            let (from_old, from_new) = last.map_or((0, 0), |(o, n)| (o + 1, n + 1));
            let free = |range: std::ops::Range<usize>| {
                range.clone().all(|i| self.pairs.new_of(i).is_none()).then_some(range)
            };
            if n > from_new
                && o > from_old
                && let Some(old) = free(from_old..o)
            {
                gaps.push((old, from_new..n));
            }
            last = Some((o, n));
        }
        for (old, new) in gaps {
            let (a, b): (Vec<usize>, Vec<usize>) = (old.collect(), new.collect());
            let same = |data: &Self, o: usize, n: usize| {
                let (x, y) = (&data.old.data[o], &data.new.data[n]);
                x.kind == y.kind && len(x) == len(y) && region(data.old, x) == region(data.new, y)
            };
            if a.len() == b.len() && a.iter().zip(&b).all(|(&o, &n)| same(self, o, n)) {
                for (&o, &n) in a.iter().zip(&b) {
                    self.take(o, n, DataMethod::Position);
                }
                continue;
            }
            if strict {
                continue;
            }
            if let ([o], [n]) = (a.as_slice(), b.as_slice()) {
                let (x, y) = (&self.old.data[*o], &self.new.data[*n]);
                if x.kind == y.kind && len(x).min(len(y)) * 2 > len(x).max(len(y)) {
                    self.take(*o, *n, DataMethod::Position);
                }
                continue;
            }
            // Strings of one length that differ are as likely new ones.
            let solid = |data: &Self, o: usize, n: usize| {
                same(data, o, n) && data.old.data[o].kind != DataKind::String && len(&data.old.data[o]) >= 8
            };
            let front = a.iter().zip(&b).take_while(|&(&o, &n)| solid(self, o, n)).count();
            let back = a[front..].iter().rev().zip(b[front..].iter().rev());
            let back = back.take_while(|&(&o, &n)| solid(self, o, n)).count();
            for i in 0..front {
                self.take(a[i], b[i], DataMethod::Position);
            }
            for i in 1..=back {
                self.take(a[a.len() - i], b[b.len() - i], DataMethod::Position);
            }
        }
    }

    /// How often matched functions refer to an old and a new object at the same place of the same block.
    fn votes_of_code(&self, functions: &OneToOne, old: &Hashes, new: &Hashes) -> Votes {
        let pairs: Vec<(usize, usize)> = functions.pairs().collect();
        let found: Vec<Vec<(u32, u32)>> = pairs
            .par_iter()
            .map_init(Default::default, |(x, y): &mut (Vec<_>, Vec<_>), &(o, n)| {
                let mut votes = Vec::new();
                let (mut in_old, mut in_new) = (self.old.instructions(), self.new.instructions());
                for (a, b) in same_blocks(self.old, o, old, self.new, n, new) {
                    references(self.old, &mut in_old, a, x);
                    if x.iter().all(|&(i, _)| self.pairs.new_of(i).is_some()) {
                        continue;
                    }
                    references(self.new, &mut in_new, b, y);
                    if x.len() != y.len() {
                        continue;
                    }
                    for (&(i, at_old), &(j, at_new)) in x.iter().zip(&*y) {
                        if at_old == at_new && self.is_open(i, j) {
                            votes.push((id(i), id(j)));
                        }
                    }
                }
                votes
            })
            .collect();
        let mut votes = Votes::new();
        for pair in found.into_iter().flatten() {
            *votes.entry(pair).or_default() += 1;
        }
        votes
    }

    /// How often matched blocks refer to an old and a new object at the same place between references to what
    /// is matched.
    fn votes_of_blocks(&self, blocks: &[BlockMatch]) -> Votes {
        /// Blocks that are less sure say nothing of what they refer to.
        const SURE: f32 = 0.9;
        /// A block of more references is initialising something; the cost is their product.
        const MOST: usize = 64;
        let sure = |m: &&BlockMatch| !m.partial && m.confidence >= SURE && m.method != BlockMethod::Inlined;
        let open = |list: &[(usize, u64)], of: &dyn Fn(usize) -> bool| list.iter().any(|&(i, _)| of(i));
        let found: Vec<Vec<(u32, u32)>> = blocks
            .par_iter()
            .filter(sure)
            .map(|m| {
                let (mut x, mut y) = (Vec::new(), Vec::new());
                references(self.old, &mut self.old.instructions(), m.old, &mut x);
                if x.len() > MOST || !open(&x, &|i| self.pairs.new_of(i).is_none()) {
                    return Vec::new();
                }
                references(self.new, &mut self.new.instructions(), m.new, &mut y);
                if y.len() > MOST || !open(&y, &|j| self.pairs.old_of(j).is_none()) {
                    return Vec::new();
                }
                self.aligned(&x, &y)
            })
            .collect();
        let mut votes = Votes::new();
        for pair in found.into_iter().flatten() {
            *votes.entry(pair).or_default() += 1;
        }
        votes
    }

    /// Open objects at the same place of two lists of references: between references to matched objects,
    /// which are aligned by their longest common subsequence, as many on both sides, each at its
    /// counterpart's offset.
    fn aligned(&self, x: &[(usize, u64)], y: &[(usize, u64)]) -> Vec<(u32, u32)> {
        let equal = |i: usize, j: usize| self.pairs.new_of(x[i].0) == Some(y[j].0) && x[i].1 == y[j].1;
        let width = y.len() + 1;
        let mut longest = vec![0_u16; (x.len() + 1) * width];
        for i in (0..x.len()).rev() {
            for j in (0..y.len()).rev() {
                let both = longest[(i + 1) * width + j + 1] + 1;
                let one = longest[(i + 1) * width + j].max(longest[i * width + j + 1]);
                longest[i * width + j] = if equal(i, j) { both } else { one };
            }
        }
        let (mut i, mut j) = (0, 0);
        let (mut from, mut out) = ((0, 0), Vec::new());
        let mut between = |(i, j): (usize, usize), (to_i, to_j): (usize, usize)| {
            let (a, b) = (&x[i..to_i], &y[j..to_j]);
            let same = |((p, at), (q, to)): (&(usize, u64), &(usize, u64))| at == to && self.is_open(*p, *q);
            if a.len() == b.len() && a.iter().zip(b).all(same) {
                out.extend(a.iter().zip(b).map(|(p, q)| (id(p.0), id(q.0))));
            }
        };
        while i < x.len() && j < y.len() {
            if equal(i, j) {
                between(from, (i, j));
                (i, j) = (i + 1, j + 1);
                from = (i, j);
            } else if longest[i * width + j] == longest[(i + 1) * width + j] {
                i += 1;
            } else {
                j += 1;
            }
        }
        between(from, (x.len(), y.len()));
        out
    }

    fn is_open(&self, old: usize, new: usize) -> bool {
        self.pairs.new_of(old).is_none() && self.pairs.old_of(new).is_none()
    }

    /// The same for the words of matched tables.
    fn votes_of_tables(&self, votes: &mut Votes) {
        let mut more = Votes::new();
        for (o, n) in self.pairs.pairs() {
            let (x, y) = (&self.old.data[o], &self.new.data[n]);
            if len(x) != len(y) || x.kind == DataKind::String || x.kind == DataKind::Zero {
                continue;
            }
            for step in (0..len(x)).step_by(8).take(4096) {
                let to = |p: &Program, d: &DataObject| {
                    let to = pointer(p, d.range.start.plus(step))?;
                    let i = p.data_at(to)?;
                    Some((i, to.since(p.data[i].range.start)))
                };
                if let (Some((i, a)), Some((j, b))) = (to(self.old, x), to(self.new, y))
                    && a == b
                    && self.is_open(i, j)
                {
                    *more.entry((id(i), id(j))).or_default() += 1;
                }
            }
        }
        for (pair, n) in more {
            let v = votes.entry(pair).or_default();
            *v = (*v).max(n);
        }
    }

    /// Takes the pairs that have most votes on both sides by far; answers how many.
    fn elect(&mut self, votes: &Votes) -> usize {
        #[derive(Clone, Copy, Default)]
        struct Best {
            of: u32,
            votes: u32,
            next: u32,
        }
        let mut old = vec![Best::default(); self.old.data.len()];
        let mut new = vec![Best::default(); self.new.data.len()];
        for (&(o, n), &count) in votes {
            if !self.is_open(o as usize, n as usize) {
                continue;
            }
            for (best, other) in [(&mut old[o as usize], n), (&mut new[n as usize], o)] {
                if count > best.votes {
                    *best = Best { of: other, votes: count, next: best.votes };
                } else {
                    best.next = best.next.max(count);
                }
            }
        }
        let mut taken = 0;
        for (n, &b) in new.iter().enumerate() {
            let a = old.get(b.of as usize).copied().unwrap_or_default();
            if b.votes == 0 || a.of as usize != n || a.votes <= 2 * a.next || b.votes <= 2 * b.next {
                continue;
            }
            let (x, y) = (&self.old.data[b.of as usize], &self.new.data[n]);
            // A single voice for things that look different is not enough.
            let alike = x.kind == y.kind && len(x).min(len(y)) * 2 >= len(x).max(len(y));
            if (alike || b.votes >= 3) && (x.kind == DataKind::String) == (y.kind == DataKind::String) {
                taken += usize::from(self.take(b.of as usize, n, DataMethod::Reference));
            }
        }
        taken
    }
}

/// How often two objects were referred to at the same place.
type Votes = BTreeMap<(u32, u32), u32>;

fn id(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn len(d: &DataObject) -> u64 {
    d.range.end.since(d.range.start)
}

/// What sort of memory an object is in.
fn region(program: &Program, d: &DataObject) -> (bool, bool) {
    let writable = program.image.segment_at(d.range.start).is_some_and(|s| s.writable);
    (writable, d.kind == DataKind::Zero)
}

/// The blocks of two functions that are surely each other: all in order where the functions are the same at
/// level 3, else those whose hash at level 3 is alone in both.
fn same_blocks(
    old: &Program,
    o: usize,
    old_hashes: &Hashes,
    new: &Program,
    n: usize,
    new_hashes: &Hashes,
) -> Vec<(BlockId, BlockId)> {
    let (a, b) = (&old.functions[o], &new.functions[n]);
    let at = crate::relation::Level::L3;
    if a.n_blocks() == b.n_blocks() && old_hashes.functions[o].at(at) == new_hashes.functions[n].at(at) {
        return a.block_ids().zip(b.block_ids()).collect();
    }
    let sorted = |f: &program::Function, h: &Hashes| {
        let mut all: Vec<(u32, BlockId)> = f.block_ids().map(|b| (h.three[b.index()], b)).collect();
        all.sort_unstable();
        let alone = all.chunk_by(|x, y| x.0 == y.0).filter(|run| run.len() == 1).map(|run| run[0]);
        alone.collect::<Vec<_>>()
    };
    let (x, y) = (sorted(a, old_hashes), sorted(b, new_hashes));
    x.iter()
        .filter_map(|&(hash, from)| {
            let i = y.binary_search_by_key(&hash, |e| e.0).ok()?;
            Some((from, y[i].1))
        })
        .collect()
}

/// The objects that a block's instructions refer to, with the offset in each, in order.
fn references(program: &Program, insns: &mut Instructions<'_>, block: BlockId, out: &mut Vec<(usize, u64)>) {
    out.clear();
    let fixed = !program.image.kind.is_relocated();
    let mut add = |at: Va| {
        if let Some(d) = program.data_at(at) {
            out.push((d, at.since(program.data[d].range.start)));
        }
    };
    insns.seek(block);
    loop {
        // Where addresses are relative, most instructions are known to have none without a close look.
        if !fixed && let Some((at, quick)) = insns.quick() {
            quick.place(at).into_iter().for_each(&mut add);
            continue;
        }
        let Some(insn) = insns.next() else { break };
        for operand in insn.operands_in(fixed) {
            match operand {
                Operand::Place { at, .. } => add(at),
                Operand::Imm(value) if fixed && insn.has_immediate() => add(Va(value.cast_unsigned())),
                _ => {}
            }
        }
    }
}

/// The address in the word at `at`, if it is one.
fn pointer(program: &Program, at: Va) -> Option<Va> {
    match program.image.relocation_at(at).map(|r| &r.to) {
        Some(RelocationTo::Address(to) | RelocationTo::Symbol(_, Some(to))) => Some(*to),
        Some(_) => None,
        None if program.image.kind.is_relocated() => None,
        None => {
            let word = program.image.bytes_from(at)?.first_chunk::<8>()?;
            let to = Va(u64::from_le_bytes(*word));
            program.image.segment_at(to).map(|_| to)
        }
    }
}

/// Hashes of contents, relocated words left out; `None` for what has none, or says too little.
fn hashes(program: &Program) -> Vec<Option<u64>> {
    program.data.par_iter().map(|d| hash(program, d)).collect()
}

fn hash(program: &Program, d: &DataObject) -> Option<u64> {
    /// Bytes of an object that are looked at.
    const MOST: usize = 1 << 16;
    if matches!(d.kind, DataKind::Zero | DataKind::JumpTable) {
        return None;
    }
    let bytes = program.image.bytes_in(&d.range)?;
    let shown = &bytes[..bytes.len().min(MOST)];
    let (writable, _) = region(program, d);
    let mut hash = combine(len(d), u64::from(writable) * 2 + u64::from(d.kind == DataKind::String));
    if d.kind == DataKind::String {
        return (shown.len() > 1).then(|| combine(hash, content_key(shown)));
    }
    let mut known = 0;
    let mut at = d.range.start;
    for word in shown.chunks(8) {
        let relocation = program.image.relocation_at(at).map(|r| &r.to);
        let part = match relocation {
            Some(RelocationTo::Symbol(name, _)) => {
                known += 8;
                name_key(name)
            }
            Some(RelocationTo::Address(to) | RelocationTo::Resolver(to)) => pointee(program, *to, &mut known),
            Some(RelocationTo::Other) => 1,
            None => match pointer(program, at) {
                Some(to) if word.len() == 8 => pointee(program, to, &mut known),
                _ => {
                    known += word.iter().filter(|&&b| b != 0).count();
                    content_key(word)
                }
            },
        };
        hash = combine(hash, part);
        at = at.plus(8);
    }
    // Zeros and small numbers are found anywhere.
    let enough = if writable { 6 } else { 2 };
    (known >= enough).then_some(hash)
}

/// What a pointer points to, as far as builds agree on it.
fn pointee(program: &Program, to: Va, known: &mut usize) -> u64 {
    if let Some(f) = program.function_from(to) {
        let f = program.function(f);
        return match f.import.as_ref().or(f.names.first()) {
            Some(name) => {
                *known += 8;
                name_key(&names::bare(name).name)
            }
            None => 2,
        };
    }
    if let Some(d) = program.data_at(to) {
        let d = &program.data[d];
        if d.kind == DataKind::String
            && let Some(text) = program.image.bytes_in(&(to..d.range.end))
        {
            *known += 8;
            return content_key(text);
        }
    }
    3
}

#[cfg(test)]
mod tests;
