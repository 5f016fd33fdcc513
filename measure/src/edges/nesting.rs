//! How deep blocks lie in loops, and which edges close one: quickly, and for a guess at how often they run.
//!
//! Invariant: without the edges that go back there is no cycle.
//!
//! Source: R. Tarjan, "Testing Flow Graph Reducibility", JCSS 1974; P. Havlak, "Nesting of Reducible and
//! Irreducible Loops", TOPLAS 1997: of a loop with several entries, the one that was visited first is the
//! header.
//!
//! Not here: the loops that are reported, which do not depend on an order of visits (`program::Loops`).

use program::{BlockId, FuncId, Program};

const NONE: u32 = u32::MAX;

/// What is found of one function; its room is used again.
#[derive(Default)]
pub(crate) struct Nesting {
    /// Per block: how many loops hold it.
    pub depths: Vec<u32>,
    /// Per edge: whether it goes back to a block that the search is still in.
    pub is_back: Vec<bool>,
    /// Where each block's edges start, and the last ones end; where they lead.
    first_out: Vec<u32>,
    to: Vec<u32>,
    /// The same by target, with the edge and where it comes from.
    first_in: Vec<u32>,
    from: Vec<(u32, u32)>,
    /// Per block: its number in the search, and the last below it; blocks by number.
    number: Vec<u32>,
    last: Vec<u32>,
    order: Vec<u32>,
    open: Vec<(u32, u32)>,
    /// Per block: the header of a loop that holds it, itself at first; the innermost one.
    up: Vec<u32>,
    around: Vec<u32>,
    body: Vec<u32>,
}

fn fill<T: Copy>(all: &mut Vec<T>, n: usize, what: T) {
    all.clear();
    all.resize(n, what);
}

fn count(n: usize) -> u32 {
    u32::try_from(n).expect("ids are 32 bits")
}

impl Nesting {
    /// Of the function `id`, which control enters at the blocks `is_root`.
    pub(crate) fn find(&mut self, program: &Program, id: FuncId, is_root: &[bool]) {
        let (blocks, edges) = (program.blocks_of(id), program.edges_of(id));
        let n = blocks.len();
        fill(&mut self.depths, n, 0);
        fill(&mut self.is_back, edges.len(), false);
        // A cycle goes back at least once in any order of the blocks.
        if !edges.iter().any(|e| e.to <= e.from) {
            return;
        }
        let first = program.function(id).blocks.start;
        let place = |b: BlockId| b.0 - first;
        let first_edge = blocks.first().map_or(0, |b| b.first_edge.0);
        self.first_out.clear();
        self.first_out.extend(blocks.iter().map(|b| b.first_edge.0 - first_edge));
        self.first_out.push(count(edges.len()));
        self.to.clear();
        self.to.extend(edges.iter().map(|e| place(e.to)));
        self.search(n, is_root);
        if !self.is_back.contains(&true) {
            return;
        }
        fill(&mut self.first_in, n + 1, 0);
        for &to in &self.to {
            self.first_in[to as usize] += 1;
        }
        let mut sum = 0;
        for first in &mut self.first_in {
            sum += *first;
            *first = sum;
        }
        fill(&mut self.from, edges.len(), (0, 0));
        // From the end of each block's part to its start.
        for (k, e) in (0..).zip(edges) {
            let at = &mut self.first_in[place(e.to) as usize];
            *at -= 1;
            self.from[*at as usize] = (k, place(e.from));
        }
        self.up.clear();
        self.up.extend(0..count(n));
        fill(&mut self.around, n, NONE);
        for i in (0..n).rev() {
            self.collapse(self.order[i]);
        }
        for &b in &self.order {
            let around = self.around[b as usize];
            self.depths[b as usize] += if around == NONE { 0 } else { self.depths[around as usize] };
        }
    }

    /// Depth first, from the roots and then from what they do not reach.
    fn search(&mut self, n: usize, is_root: &[bool]) {
        fill(&mut self.number, n, NONE);
        // Until the search has left a block, nothing is below it.
        fill(&mut self.last, n, NONE);
        self.order.clear();
        let roots = (0..count(n)).filter(|&b| is_root[b as usize]).chain(0..count(n));
        for root in roots {
            if self.number[root as usize] != NONE {
                continue;
            }
            self.visit(root);
            while let Some((b, next)) = self.open.last_mut() {
                let (from, k) = (*b as usize, *next);
                if k == self.first_out[from + 1] {
                    self.last[from] = count(self.order.len()) - 1;
                    self.open.pop();
                    continue;
                }
                *next += 1;
                let to = self.to[k as usize];
                if self.number[to as usize] == NONE {
                    self.visit(to);
                } else if self.last[to as usize] == NONE {
                    self.is_back[k as usize] = true;
                }
            }
        }
    }

    fn visit(&mut self, b: u32) {
        self.number[b as usize] = count(self.order.len());
        self.order.push(b);
        self.open.push((b, self.first_out[b as usize]));
    }

    fn header(&mut self, mut b: u32) -> u32 {
        while self.up[b as usize] != b {
            self.up[b as usize] = self.up[self.up[b as usize] as usize];
            b = self.up[b as usize];
        }
        b
    }

    /// Makes one of the loop whose header is `head`, if it is one.
    fn collapse(&mut self, head: u32) {
        self.body.clear();
        let into = |all: &[u32], b: u32| all[b as usize] as usize..all[b as usize + 1] as usize;
        let mut is_head = false;
        for i in into(&self.first_in, head) {
            let (edge, from) = self.from[i];
            if self.is_back[edge as usize] {
                is_head = true;
                self.take(head, from);
            }
        }
        let mut done = 0;
        while let Some(&b) = self.body.get(done) {
            done += 1;
            for i in into(&self.first_in, b) {
                let (edge, from) = self.from[i];
                if !self.is_back[edge as usize] {
                    self.take(head, from);
                }
            }
        }
        self.depths[head as usize] = u32::from(is_head);
        for i in 0..self.body.len() {
            let b = self.body[i] as usize;
            self.up[b] = head;
        }
    }

    /// Adds what stands for `b` to the loop of `head`, if the search came to it from there.
    fn take(&mut self, head: u32, b: u32) {
        let b = self.header(b);
        let number = self.number[b as usize];
        let is_below = number > self.number[head as usize] && number <= self.last[head as usize];
        if is_below && self.around[b as usize] == NONE {
            self.around[b as usize] = head;
            self.body.push(b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::{Image, Loops};

    /// Where loops have one entry, all ways to find them find the same.
    #[test]
    fn depths_are_those_of_reducible_loops() {
        let path = std::env::current_exe().expect("a test runs");
        let program = Program::analyze_code(Image::load(&path).expect("an image"));
        let mut nesting = Nesting::default();
        let mut n_loops = 0;
        for id in program.func_ids() {
            let loops = Loops::compute(&program, id);
            let is_root: Vec<bool> =
                program.function(id).block_ids().map(|b| Some(b) == program.entry_block(id)).collect();
            nesting.find(&program, id, &is_root);
            let is_one = loops.ids().all(|l| !loops.is_irreducible(l));
            if !is_one || !program.function(id).entries.is_empty() {
                continue;
            }
            n_loops += loops.len();
            for (b, depth) in program.function(id).block_ids().zip(&nesting.depths) {
                assert_eq!(
                    loops.block_depth(b),
                    *depth,
                    "{} in {}",
                    program.block(b).start,
                    program.function(id).name()
                );
            }
        }
        assert!(n_loops > 500, "{n_loops}");
    }
}
