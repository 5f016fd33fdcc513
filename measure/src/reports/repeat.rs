//! What is not the same in each of several runs: functions, blocks, edges, with the least and the largest
//! count.

use profile::{Count, Edge, Profile};
use program::{FuncId, Program, Va};
use std::collections::BTreeMap;

/// What is counted in a module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    Entry(Va),
    Block(Va),
    Edge(Edge),
}

impl Key {
    /// Its count. What was not counted in one run of several never ran in that.
    fn of(self, profile: &Profile) -> Count {
        let n = match self {
            Key::Entry(at) => profile.entered(at),
            Key::Block(at) => profile.block(at),
            Key::Edge(edge) => profile.edge(edge),
        };
        n.unwrap_or_default()
    }

    fn all(profile: &Profile) -> impl Iterator<Item = Key> {
        let entries = profile.entries.keys().map(|at| Key::Entry(*at));
        let blocks = profile.blocks.keys().map(|at| Key::Block(*at));
        entries.chain(blocks).chain(profile.edges.keys().map(|edge| Key::Edge(*edge)))
    }
}

/// Runs of the same program: all of the first one, and the counts that were others in another, run by run.
#[derive(Default)]
pub struct Repeats {
    n_runs: usize,
    first: Vec<Profile>,
    varied: BTreeMap<(usize, Key), Vec<Count>>,
}

impl Repeats {
    /// Adds a run.
    pub fn add(&mut self, profiles: &[Profile]) {
        let mut seen: Vec<Option<&Profile>> = vec![None; self.first.len()];
        for profile in profiles {
            let place = self.first.iter().position(|p| p.image.id == profile.image.id);
            let place = place.unwrap_or_else(|| {
                // One that was not loaded before, or it is the first run.
                let none = Profile { image: profile.image.clone(), ..Profile::default() };
                self.first.push(if self.n_runs == 0 { profile.clone() } else { none });
                seen.push(None);
                self.first.len() - 1
            });
            seen[place] = Some(profile);
        }
        let none = Profile::default();
        for (i, (first, now)) in self.first.iter().zip(seen).enumerate() {
            let now = now.unwrap_or(&none);
            for key in Key::all(first).chain(Key::all(now)) {
                let (before, n) = (key.of(first), key.of(now));
                let known = self.varied.get_mut(&(i, key));
                match known {
                    Some(counts) if counts.len() == self.n_runs => counts.push(n),
                    None if before != n => {
                        let mut counts = vec![before; self.n_runs];
                        counts.push(n);
                        self.varied.insert((i, key), counts);
                    }
                    _ => {}
                }
            }
        }
        self.n_runs += 1;
    }

    /// How many runs there were.
    pub fn n_runs(&self) -> usize {
        self.n_runs
    }

    /// What was not the same in each run, module by module: of those that are in `programs`.
    pub fn spreads<'a>(&'a self, programs: &'a [Program]) -> Vec<ModuleSpread<'a>> {
        let one = |(i, first): (usize, &'a Profile)| {
            let program = programs.iter().find(|p| Some(p.image.id) == first.image.id)?;
            Some(self.spread(i, first, program))
        };
        self.first.iter().enumerate().filter_map(one).collect()
    }

    fn spread<'a>(&self, i: usize, first: &'a Profile, program: &'a Program) -> ModuleSpread<'a> {
        let mut all = ModuleSpread {
            program,
            first,
            functions: Vec::new(),
            blocks: Vec::new(),
            edges: Vec::new(),
            n_within: 0,
        };
        let mut functions: BTreeMap<FuncId, Changes> = BTreeMap::new();
        let none = || Changes { instructions: vec![0; self.n_runs], entries: None };
        let from = (i, Key::Entry(Va(0)));
        for (&(_, key), counts) in self.varied.range(from..).take_while(|((of, _), _)| *of == i) {
            if !is_another(counts) {
                let is_same = |count: &Count| Some(count.n) == counts.first().map(|c| c.n);
                all.n_within += usize::from(!counts.iter().all(is_same));
                continue;
            }
            let count = spread(counts);
            match key {
                Key::Entry(entry) => {
                    if let Some(id) = program.function_at(entry) {
                        functions.entry(id).or_insert_with(none).entries = Some(count);
                    }
                }
                Key::Block(at) => {
                    let Some(func) = program.function_at(at) else { continue };
                    let len = program.block_from(at).map_or(0, |b| program.n_insns_run(b));
                    functions.entry(func).or_insert_with(none).add(counts, len);
                    all.blocks.push(BlockSpread { func, at, count });
                }
                Key::Edge(edge) => {
                    all.edges.push(EdgeSpread { func: program.function_at(edge.from), edge, count });
                }
            }
        }
        let of_function = |(func, changes): (FuncId, Changes)| changes.spread(func, first, program);
        all.functions = functions.into_iter().map(of_function).collect();
        all
    }
}

/// What was not the same in each run of a module. Two numbers are the least and the largest of all runs.
#[derive(Clone, Debug)]
pub struct ModuleSpread<'a> {
    /// The module.
    pub program: &'a Program,
    /// Its profile of the first run.
    pub first: &'a Profile,
    /// Functions that were not the same, in their order.
    pub functions: Vec<FunctionSpread>,
    /// Blocks that were not, by address.
    pub blocks: Vec<BlockSpread>,
    /// Edges that were not.
    pub edges: Vec<EdgeSpread>,
    /// Of how many entries, blocks and edges the numbers are not the same, but may be.
    pub n_within: usize,
}

/// A function that was not the same in each run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionSpread {
    /// The function.
    pub func: FuncId,
    /// How many instructions ran.
    pub instructions: (u64, u64),
    /// How often it was entered, where that is known.
    pub entries: Option<(u64, u64)>,
}

/// A block that did not run as often in each run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSpread {
    /// The function it is in.
    pub func: FuncId,
    /// Its start.
    pub at: Va,
    /// How often it ran.
    pub count: (u64, u64),
}

/// An edge that was not taken as often in each run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EdgeSpread {
    /// The function it is in, if that is known.
    pub func: Option<FuncId>,
    /// The edge.
    pub edge: Edge,
    /// How often it was taken.
    pub count: (u64, u64),
}

/// What a function did otherwise than in the first run.
struct Changes {
    /// Instructions more than in the first, run by run.
    instructions: Vec<i128>,
    /// How often it was entered, if not the same in each.
    entries: Option<(u64, u64)>,
}

impl Changes {
    /// Adds a block of `len` instructions that ran as often as `counts` say, run by run.
    fn add(&mut self, counts: &[Count], len: u64) {
        let before = counts.first().map_or(0, |count| count.n);
        for (sum, count) in self.instructions.iter_mut().zip(counts) {
            *sum += (i128::from(count.n) - i128::from(before)) * i128::from(len);
        }
    }

    /// The least and the largest of function `func`, which ran as `first` says in the first run.
    fn spread(self, func: FuncId, first: &Profile, program: &Program) -> FunctionSpread {
        let ran = |b| first.blocks.get(&program.block(b).start).map_or(0, |n| n * program.n_insns_run(b));
        let base: u64 = program.function(func).block_ids().map(ran).sum();
        let of_run = |change: &i128| u64::try_from((i128::from(base) + change).max(0)).unwrap_or(u64::MAX);
        let all = || self.instructions.iter().map(of_run);
        let same = || first.entries.get(&program.function(func).entry).map(|n| (*n, *n));
        FunctionSpread {
            func,
            instructions: (all().min().unwrap_or(0), all().max().unwrap_or(0)),
            entries: self.entries.or_else(same),
        }
    }
}

/// The least and the largest, as far as is known.
fn spread(counts: &[Count]) -> (u64, u64) {
    let all = || counts.iter().map(|count| count.n);
    (all().min().unwrap_or(0), all().max().unwrap_or(0))
}

/// Whether no number can be that of each run.
fn is_another(counts: &[Count]) -> bool {
    let least = counts.iter().map(|count| count.least).max();
    least > counts.iter().map(|count| count.most).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(blocks: &[(u64, u64)], edges: &[(u64, u64, u64)]) -> Profile {
        let edge = |&(from, to, n): &(u64, u64, u64)| (Edge { from: Va(from), to: Va(to) }, n);
        Profile {
            blocks: blocks.iter().map(|&(at, n)| (Va(at), n)).collect(),
            edges: edges.iter().map(edge).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn what_varies_has_a_count_a_run() {
        let mut repeats = Repeats::default();
        repeats.add(&[run(&[(1, 5), (2, 7)], &[(1, 2, 7)])]);
        repeats.add(&[run(&[(1, 5), (2, 8)], &[(1, 2, 7)])]);
        repeats.add(&[run(&[(1, 5), (2, 7)], &[])]);
        let edge = Key::Edge(Edge { from: Va(1), to: Va(2) });
        let exact = |counts: &[u64]| counts.iter().copied().map(Count::exact).collect::<Vec<_>>();
        let want = [((0, Key::Block(Va(2))), exact(&[7, 8, 7])), ((0, edge), exact(&[7, 7, 0]))];
        assert_eq!(repeats.varied, want.into());
        // A library that only a later run loads.
        let mut other = run(&[(9, 1)], &[]);
        other.image.id = Some(program::ImageId(9));
        repeats.add(&[run(&[(1, 5), (2, 7)], &[(1, 2, 7)]), other]);
        assert_eq!(repeats.varied.get(&(1, Key::Block(Va(9)))), Some(&exact(&[0, 0, 0, 1])));
        assert_eq!(repeats.varied.get(&(0, edge)), Some(&exact(&[7, 7, 0, 7])));
    }

    #[test]
    fn counts_are_others_if_no_number_can_be_that_of_each_run() {
        let of = |least, most| Count { n: least, least, most };
        for (counts, want) in [
            (&[of(5, 6), of(6, 6)][..], false),
            (&[of(5, 6), of(7, 7)], true),
            // Each two of them may be the same: the first and the last with 6, with 5 the first and the
            // second.
            (&[of(5, 6), of(5, 5), of(6, 6)], true),
            (&[of(5, 6), of(4, 6), of(6, 9)], false),
        ] {
            assert_eq!(is_another(counts), want, "{counts:?}");
        }
    }
}
