//! What is not the same in each of several runs: functions, blocks, edges, with the least and the largest
//! count.

use crate::input;
use profile::{Count, Edge, Profile};
use program::{FuncId, Program, Va};
use std::collections::BTreeMap;
use views::count::repeat::{BlockSpread, EdgeSpread, FunctionSpread, RepeatView};

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

    /// What is said of them.
    pub fn view(&self, programs: &[Program]) -> RepeatView {
        let mut view = RepeatView {
            runs: self.n_runs,
            functions: Vec::new(),
            blocks: Vec::new(),
            edges: Vec::new(),
            n_within: 0,
        };
        for (i, first) in self.first.iter().enumerate() {
            if let Some(program) = programs.iter().find(|p| Some(p.image.id) == first.image.id) {
                self.add_module(&mut view, i, first, program);
            }
        }
        let spread = |(least, most): (u64, u64)| std::cmp::Reverse(most - least);
        view.functions.sort_by_key(|f| (spread(f.instructions), f.at));
        view.blocks.sort_by_key(|b| (spread(b.count), b.at));
        view.edges.sort_by_key(|e| (spread(e.count), e.from, e.to));
        view
    }

    fn add_module(&self, view: &mut RepeatView, i: usize, first: &Profile, program: &Program) {
        let module = input::module_name(first, program);
        let name = |id: FuncId| input::spelt(program, id);
        let at = |at: Va| program.function_at(at);
        let mut functions: BTreeMap<FuncId, Changes> = BTreeMap::new();
        let none = || Changes { instructions: vec![0; self.n_runs], entries: None };
        let from = (i, Key::Entry(Va(0)));
        for (&(_, key), counts) in self.varied.range(from..).take_while(|((of, _), _)| *of == i) {
            if !is_another(counts) {
                view.n_within +=
                    usize::from(counts.iter().any(|count| Some(count.n) != counts.first().map(|c| c.n)));
                continue;
            }
            let spread = spread(counts);
            match key {
                Key::Entry(entry) => {
                    if let Some(id) = at(entry) {
                        functions.entry(id).or_insert_with(none).entries = Some(spread);
                    }
                }
                Key::Block(start) => {
                    let Some(id) = at(start) else { continue };
                    let len = program.block_from(start).map_or(0, |b| program.n_insns_run(b));
                    let changes = &mut functions.entry(id).or_insert_with(none).instructions;
                    let before = counts.first().map_or(0, |count| count.n);
                    for (sum, count) in changes.iter_mut().zip(counts) {
                        *sum += (i128::from(count.n) - i128::from(before)) * i128::from(len);
                    }
                    let (module, function) = (module.clone(), name(id));
                    view.blocks.push(BlockSpread { module, function, at: start.0, count: spread });
                }
                Key::Edge(Edge { from, to }) => {
                    let (module, function) = (module.clone(), at(from).map_or_else(String::new, name));
                    view.edges.push(EdgeSpread { module, function, from: from.0, to: to.0, count: spread });
                }
            }
        }
        for (id, Changes { instructions, entries }) in functions {
            let ran = |b| first.blocks.get(&program.block(b).start).map_or(0, |n| n * program.n_insns_run(b));
            let base: u64 = program.function(id).block_ids().map(ran).sum();
            let all: Vec<u64> = instructions
                .iter()
                .map(|change| u64::try_from((i128::from(base) + change).max(0)).unwrap_or(u64::MAX))
                .collect();
            let entry = program.function(id).entry;
            let same = || first.entries.get(&entry).map(|n| (*n, *n));
            view.functions.push(FunctionSpread {
                module: module.clone(),
                name: name(id),
                at: entry.0,
                instructions: (
                    all.iter().min().copied().unwrap_or(0),
                    all.iter().max().copied().unwrap_or(0),
                ),
                entries: entries.or_else(same),
            });
        }
    }
}

/// What a function did otherwise than in the first run.
struct Changes {
    /// Instructions more than in the first, run by run.
    instructions: Vec<i128>,
    /// How often it was entered, if not the same in each.
    entries: Option<(u64, u64)>,
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
