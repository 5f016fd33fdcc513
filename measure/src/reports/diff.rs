//! What two runs of a build executed otherwise: functions, loops, blocks, edges.
//!
//! A count differs if no number can be that of both runs: where threads may have been stopped, counts are
//! intervals.

use super::{count, loops};
use profile::calls::Cuts;
use profile::{Count, Edge, Profile};
use program::{BlockId, FuncId, Program, Va};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

/// A count of the first run and of the second, as far as each is known.
pub type Both = (Option<Count>, Option<Count>);

/// What two runs of a module executed otherwise.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// How many instructions ran in each.
    pub instructions: (u64, u64),
    /// Functions that differ, by address.
    pub functions: Vec<FunctionDiff>,
    /// Loops that differ, by header.
    pub loops: Vec<LoopDiff>,
    /// Edges that differ.
    pub edges: Vec<EdgeDiff>,
    /// How many blocks differ.
    pub n_blocks: usize,
    /// How many blocks ran in the first alone.
    pub n_blocks_first_alone: usize,
    /// How many blocks ran in the second alone.
    pub n_blocks_second_alone: usize,
    /// Of how many blocks the numbers are not the same, but may be.
    pub n_blocks_within: usize,
    /// The same of edges.
    pub n_edges_within: usize,
}

/// A function that differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionDiff {
    /// The function.
    pub func: FuncId,
    /// How many instructions ran.
    pub instructions: (Count, Count),
    /// How often it was entered.
    pub entries: Both,
}

/// A loop that differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopDiff {
    /// Its first header.
    pub header: BlockId,
    /// How often its headers ran.
    pub iterations: (Count, Count),
    /// How often it was entered from outside.
    pub entries: Both,
}

/// An edge that differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EdgeDiff {
    /// The edge.
    pub edge: Edge,
    /// How often it was taken.
    pub count: (Count, Count),
}

impl Diff {
    /// Of two runs of `program`.
    pub fn compute(program: &Program, first: &Profile, second: &Profile) -> Diff {
        let mut diff = Diff::default();
        diff.add_functions(program, first, second);
        diff.add_blocks(first, second);
        diff.add_edges(first, second);
        diff.add_loops(program, first, second);
        diff
    }

    fn add_functions(&mut self, program: &Program, a: &Profile, b: &Profile) {
        let cuts = [a, b].map(|profile| Cuts::of(profile, program));
        for func in program.func_ids() {
            let at = program.function(func).entry;
            let ran = (instructions(program, a, &cuts[0], func), instructions(program, b, &cuts[1], func));
            self.instructions.0 = self.instructions.0.saturating_add(ran.0.n);
            self.instructions.1 = self.instructions.1.saturating_add(ran.1.n);
            let entries = (a.entered(at), b.entered(at));
            if ran.0.differs(ran.1) || differ(entries) {
                self.functions.push(FunctionDiff { func, instructions: ran, entries });
            }
        }
    }

    fn add_blocks(&mut self, a: &Profile, b: &Profile) {
        for at in a.blocks.keys().chain(b.blocks.keys()).collect::<BTreeSet<_>>() {
            let (a, b) = (block(a, *at), block(b, *at));
            let differs = a.differs(b);
            self.n_blocks += usize::from(differs);
            self.n_blocks_within += usize::from(a.n != b.n && !differs);
            self.n_blocks_first_alone += usize::from(a.least > 0 && b.most == 0);
            self.n_blocks_second_alone += usize::from(a.most == 0 && b.least > 0);
        }
    }

    fn add_edges(&mut self, a: &Profile, b: &Profile) {
        // An edge is not known where nothing of its function ran: then it did not, either.
        let count =
            |p: &Profile, e: Edge| p.edge(e).or_else(|| (block(p, e.from).most == 0).then(Count::default));
        for &edge in a.edges.keys().chain(b.edges.keys()).collect::<BTreeSet<_>>() {
            let (Some(a), Some(b)) = (count(a, edge), count(b, edge)) else { continue };
            if a.differs(b) {
                self.edges.push(EdgeDiff { edge, count: (a, b) });
            } else {
                self.n_edges_within += usize::from(a.n != b.n);
            }
        }
    }

    fn add_loops(&mut self, program: &Program, a: &Profile, b: &Profile) {
        let runs = |p: &Profile| -> BTreeMap<_, _> {
            let cuts = Cuts::of(p, program);
            loops::runs(program, p, &cuts).into_iter().map(|run| (run.header, run)).collect()
        };
        let (first, second) = (runs(a), runs(b));
        for &header in first.keys().chain(second.keys()).collect::<BTreeSet<_>>() {
            let (a, b) = (first.get(&header), second.get(&header));
            let none = Count::default();
            let iterations = (a.map_or(none, |run| run.iterations), b.map_or(none, |run| run.iterations));
            let entries = (a.map_or(Some(none), |run| run.entries), b.map_or(Some(none), |run| run.entries));
            if iterations.0.differs(iterations.1) || differ(entries) {
                self.loops.push(LoopDiff { header, iterations, entries });
            }
        }
    }
}

/// Whether both are known, and cannot be the same.
fn differ(counts: Both) -> bool {
    counts.0.zip(counts.1).is_some_and(|(a, b)| a.differs(b))
}

/// What was not counted did not run.
fn block(profile: &Profile, at: Va) -> Count {
    profile.block(at).unwrap_or_default()
}

/// How many instructions of function `id` ran.
fn instructions(program: &Program, profile: &Profile, cuts: &Cuts, id: FuncId) -> Count {
    let ran = |b| {
        let count = block(profile, program.block(b).start);
        let [n, least, most] = [count.n, count.least, count.most].map(|n| cuts.instructions(program, b, n));
        Count { n, least, most }
    };
    let own = program.function(id).block_ids().map(ran).fold(Count::default(), Count::plus);
    own.plus(Count::exact(count::padding(profile, program, id).0))
}

/// Two recordings are not of the same build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TwoBuilds {
    /// Their executables are others: the names of both, the first's first.
    Executables(String, String),
    /// Modules of the same file name are others: the file name, and the name that the second has.
    Modules(OsString, String),
}

/// The modules of two recordings, each with its profile of both: an empty one where it ran in the other
/// alone. Those of the first come first, in their order.
///
/// # Errors
/// If a module is of two builds.
pub fn modules_of_both(
    first: Vec<Profile>,
    mut second: Vec<Profile>,
) -> Result<Vec<(Profile, Profile)>, TwoBuilds> {
    let file = |p: &Profile| Path::new(&p.image.name).file_name().unwrap_or_default().to_owned();
    let has = |all: &[Profile], one: &Profile| all.iter().any(|other| other.image.id == one.image.id);
    // The program comes first.
    if let (Some(one), Some(other)) = (first.first(), second.first())
        && !has(&second, one)
        && !has(&first, other)
        && file(one) != file(other)
    {
        return Err(TwoBuilds::Executables(one.image.name.clone(), other.image.name.clone()));
    }
    let none_of = |one: &Profile| Profile { image: one.image.clone(), ..Profile::default() };
    let mut both = Vec::new();
    for one in first {
        if let Some(at) = second.iter().position(|other| other.image.id == one.image.id) {
            both.push((one, second.swap_remove(at)));
        } else if let Some(other) = second.iter().find(|other| file(other) == file(&one)) {
            return Err(TwoBuilds::Modules(file(&one), other.image.name.clone()));
        } else {
            // It ran in the first alone.
            let none = none_of(&one);
            both.push((one, none));
        }
    }
    both.extend(second.into_iter().map(|other| (none_of(&other), other)));
    Ok(both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::ImageRef;
    use program::ImageId;

    fn run(blocks: &[(u64, u64)], edges: &[(u64, u64, u64)]) -> Profile {
        let edge = |&(from, to, n): &(u64, u64, u64)| (Edge { from: Va(from), to: Va(to) }, n);
        Profile {
            blocks: blocks.iter().map(|&(at, n)| (Va(at), n)).collect(),
            edges: edges.iter().map(edge).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn a_count_differs_if_no_number_can_be_that_of_both() {
        let mut first = run(&[(1, 5), (2, 7), (3, 1)], &[(1, 2, 4), (2, 3, 1)]);
        let second = run(&[(1, 6), (2, 9), (4, 1)], &[(1, 2, 5)]);
        first.intervals.blocks.insert(Va(1), (5, 6));
        first.intervals.edges.insert(Edge { from: Va(1), to: Va(2) }, (4, 5));
        let mut diff = Diff::default();
        diff.add_blocks(&first, &second);
        diff.add_edges(&first, &second);
        // 2, 3 and 4 differ; 1 may be the same.
        assert_eq!((diff.n_blocks, diff.n_blocks_within), (3, 1));
        assert_eq!((diff.n_blocks_first_alone, diff.n_blocks_second_alone), (1, 1));
        // Of the edge from 2 the second says nothing, though 2 ran.
        assert_eq!((diff.edges.len(), diff.n_edges_within), (0, 1));
        // Nothing of 2 ran: then the edge did not.
        let third = run(&[(1, 6)], &[(1, 2, 9)]);
        let mut diff = Diff::default();
        diff.add_edges(&first, &third);
        let rows: Vec<_> = diff.edges.iter().map(|e| (e.edge.from.0, e.count.0.n, e.count.1.n)).collect();
        assert_eq!(rows, [(1, 4, 9), (2, 1, 0)]);
    }

    #[test]
    fn modules_are_paired_by_what_they_are() {
        let of = |name: &str, id: u128| Profile {
            image: ImageRef { name: name.to_owned(), id: Some(ImageId(id)), build_id: None },
            ..Profile::default()
        };
        let names = |pairs: Vec<(Profile, Profile)>| {
            pairs.into_iter().map(|(a, b)| (a.image.name, b.image.name)).collect::<Vec<_>>()
        };
        let (first, second) = (vec![of("/a/p", 1), of("/l", 2)], vec![of("/b/p", 1), of("/m", 3)]);
        let want = [("/a/p", "/b/p"), ("/l", "/l"), ("/m", "/m")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(names(modules_of_both(first, second).expect("one build")), want);
        assert_eq!(
            modules_of_both(vec![of("/a/p", 1)], vec![of("/b/p", 4)]),
            Err(TwoBuilds::Modules("p".into(), "/b/p".to_owned()))
        );
        assert_eq!(
            modules_of_both(vec![of("/a/p", 1)], vec![of("/b/q", 4)]),
            Err(TwoBuilds::Executables("/a/p".to_owned(), "/b/q".to_owned()))
        );
    }
}
