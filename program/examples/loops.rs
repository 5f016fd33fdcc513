//! Compares the loops of every function of files with their definition, taken word by word: `loops FILE…`.
//!
//! A loop is a strongly connected component that holds an edge; its entries are its blocks that an edge from
//! outside leads to, or where control enters; without them, the components of what is left are the loops
//! inside. Components are found by two depth-first searches (Kosaraju, as in Sharir, 1981), which shares
//! nothing with what `Loops` does.
//!
//! Prints a line a file; exits with an error that names the first function whose loops differ.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use program::{FuncId, Image, Loops, Program};
use std::collections::BTreeMap;

/// Loops by what they consist of: blocks, entries, the blocks of the loop around.
type Plain = BTreeMap<Vec<u32>, (Vec<u32>, Option<Vec<u32>>)>;

/// A function's graph: its blocks by position.
struct Graph {
    to: Vec<Vec<u32>>,
    from: Vec<Vec<u32>>,
    entered: Vec<bool>,
}

impl Graph {
    fn of(program: &Program, func: FuncId) -> Graph {
        let f = program.function(func);
        let first = f.blocks.start;
        let n = f.n_blocks();
        let mut graph = Graph { to: vec![Vec::new(); n], from: vec![Vec::new(); n], entered: vec![false; n] };
        for (i, b) in f.block_ids().enumerate() {
            graph.entered[i] = program.block(b).start == f.entry || f.entries.contains(&b);
            for e in program.successors(b) {
                graph.to[i].push(e.to.0 - first);
                graph.from[(e.to.0 - first) as usize].push(b.0 - first);
            }
        }
        // What nothing leads to from outside is entered at its lowest block.
        let all: Vec<u32> = f.block_ids().map(|b| b.0 - first).collect();
        for part in graph.components(&all, &vec![true; n]) {
            let held = |v: &u32| part.binary_search(v).is_ok();
            let led_to = part
                .iter()
                .any(|&v| graph.entered[v as usize] || graph.from[v as usize].iter().any(|p| !held(p)));
            if !led_to {
                graph.entered[part[0] as usize] = true;
            }
        }
        graph
    }

    /// The strongly connected components of `nodes`, which are those in `alive`; each sorted.
    fn components(&self, nodes: &[u32], alive: &[bool]) -> Vec<Vec<u32>> {
        let mut seen = vec![false; self.to.len()];
        let mut finished = Vec::with_capacity(nodes.len());
        for &root in nodes {
            let mut stack = vec![(root, 0)];
            if std::mem::replace(&mut seen[root as usize], true) {
                continue;
            }
            while let Some((v, next)) = stack.last_mut() {
                match self.to[*v as usize].get(*next) {
                    Some(&w) => {
                        *next += 1;
                        if alive[w as usize] && !std::mem::replace(&mut seen[w as usize], true) {
                            stack.push((w, 0));
                        }
                    }
                    None => {
                        finished.push(*v);
                        stack.pop();
                    }
                }
            }
        }
        let mut parts = Vec::new();
        for &root in finished.iter().rev() {
            if !std::mem::replace(&mut seen[root as usize], false) {
                continue;
            }
            let mut part = vec![root];
            let mut next = 0;
            while let Some(&v) = part.get(next) {
                next += 1;
                for &w in &self.from[v as usize] {
                    if alive[w as usize] && std::mem::replace(&mut seen[w as usize], false) {
                        part.push(w);
                    }
                }
            }
            part.sort_unstable();
            parts.push(part);
        }
        parts
    }

    fn loops(&self) -> Plain {
        let mut found = Plain::new();
        let all: Vec<u32> = (0..).take(self.to.len()).collect();
        let mut todo = vec![(all, None::<Vec<u32>>)];
        let mut alive = vec![false; self.to.len()];
        while let Some((nodes, around)) = todo.pop() {
            nodes.iter().for_each(|&v| alive[v as usize] = true);
            let parts = self.components(&nodes, &alive);
            nodes.iter().for_each(|&v| alive[v as usize] = false);
            for part in parts {
                let held = |v: &u32| part.binary_search(v).is_ok();
                if part.len() == 1 && !self.to[part[0] as usize].contains(&part[0]) {
                    continue;
                }
                let enters =
                    |v: &u32| self.entered[*v as usize] || self.from[*v as usize].iter().any(|p| !held(p));
                let (entries, rest): (Vec<u32>, Vec<u32>) = part.iter().partition(|v| enters(v));
                found.insert(part.clone(), (entries, around.clone()));
                todo.push((rest, Some(part)));
            }
        }
        found
    }
}

fn ours(program: &Program, func: FuncId, loops: &Loops) -> Plain {
    let first = program.function(func).blocks.start;
    let sorted = |blocks: &mut dyn Iterator<Item = program::BlockId>| {
        let mut all: Vec<u32> = blocks.map(|b| b.0 - first).collect();
        all.sort_unstable();
        all
    };
    let blocks = |l| sorted(&mut loops.blocks(l));
    loops.ids().map(|l| (blocks(l), (sorted(&mut loops.entries(l)), loops.parent(l).map(blocks)))).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args_os().skip(1) {
        let program = Program::analyze(Image::load(path.as_ref())?);
        let (mut n_loops, mut n_irreducible) = (0, 0);
        for func in program.func_ids() {
            let loops = Loops::compute(&program, func);
            if ours(&program, func, &loops) != Graph::of(&program, func).loops() {
                let name = program.function(func).name();
                return Err(format!("{}: the loops of {name} differ", path.to_string_lossy()).into());
            }
            n_loops += loops.len();
            n_irreducible += loops.ids().filter(|&l| loops.is_irreducible(l)).count();
        }
        println!(
            "{}: {} functions, {n_loops} loops, {n_irreducible} of them irreducible: all equal",
            path.to_string_lossy(),
            program.functions.len()
        );
    }
    Ok(())
}
