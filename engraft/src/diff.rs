//! `engraft diff`: what two runs executed otherwise: functions, loops, edges.

use crate::input::{self, Source};
use crate::output::{Answer, Hinted, Output};
use measure::loops;
use profile::{Count, Edge, Profile};
use program::{FuncId, Program, Va};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use views::diff::{DiffView, EdgeRow, FunctionRow, Intervals, LoopRow};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft diff old.engraft old.engraft
  $ engraft diff old.callgrind old.callgrind --binary old --json";

/// Show what two runs of the same build executed otherwise: functions, loops, edges by change
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What the first run left: a recording of `engraft count`, or a profile in any format
    first: PathBuf,
    /// What the second run left
    second: PathBuf,
    /// The build that both ran; profiles that are no recordings need it. Of recordings, only this module is
    /// looked at
    #[arg(long, value_name = "BIN")]
    binary: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let pairs = match &args.binary {
        Some(binary) => {
            let program = input::program(binary)?;
            let read = |path: &Path| Ok::<_, anyhow::Error>(input::profile(path, Some(&program))?.profile);
            let (first, second) = (read(&args.first)?, read(&args.second)?);
            vec![(program, first, second)]
        }
        None => pairs(&args.first, &args.second)?,
    };
    let view = view(&args.first, &args.second, &pairs);
    args.output.print(&view)?;
    Ok(if view.is_empty() { Answer::Yes } else { Answer::No })
}

/// The modules of two recordings, each with its counts in both.
fn pairs(first: &Path, second: &Path) -> anyhow::Result<Vec<(Program, Profile, Profile)>> {
    let read = |path: &Path| {
        Source::read(path)?.recording()?.ok_or_else(|| {
            let hint = "name the build that was profiled with --binary";
            anyhow::Error::from(Hinted::new(
                format!("{} is no recording of `engraft count`", path.display()),
                hint,
            ))
        })
    };
    let (a, mut b) = (read(first)?, read(second)?);
    let file = |p: &Profile| Path::new(&p.image.name).file_name().unwrap_or_default().to_owned();
    let two_builds = |of: String, new: &str| {
        let what = format!("{} and {} are of two builds{of}", first.display(), second.display());
        let hint = format!(
            "carry the first one's counts to the build of the second, then hold them against each other:\n\
             `engraft carry OLD {new} --profile {0} -o carried.engraft`\n\
             `engraft diff carried.engraft {1} --binary {new}`",
            first.display(),
            second.display()
        );
        anyhow::Error::from(Hinted::new(what, hint))
    };
    let has = |all: &[Profile], one: &Profile| all.iter().any(|other| other.image.id == one.image.id);
    // The program comes first.
    if let (Some(one), Some(other)) = (a.first(), b.first())
        && !has(&b, one)
        && !has(&a, other)
        && file(one) != file(other)
    {
        return Err(two_builds(format!(", {} and {}", one.image.name, other.image.name), &other.image.name));
    }
    let mut found = Vec::new();
    for one in a {
        if let Some(at) = b.iter().position(|other| other.image.id == one.image.id) {
            found.push((one, b.swap_remove(at)));
        } else if let Some(other) = b.iter().find(|other| file(other) == file(&one)) {
            return Err(two_builds(format!(" of {}", file(&one).to_string_lossy()), &other.image.name));
        } else {
            // It ran in the first alone.
            let none = Profile { image: one.image.clone(), ..Profile::default() };
            found.push((one, none));
        }
    }
    found.extend(
        b.into_iter().map(|other| (Profile { image: other.image.clone(), ..Profile::default() }, other)),
    );
    let with_program = |(a, b): (Profile, Profile)| Ok((input::counted_program(&a)?, a, b));
    found.into_par_iter().map(with_program).collect()
}

/// Those of `counts`.
fn intervals(counts: (Option<Count>, Option<Count>)) -> Option<Intervals> {
    let is_off = |n: Option<Count>| n.is_some_and(|n| n.between().is_some());
    let whole = |n: Option<Count>| n.map(|n| (n.least, n.most));
    (is_off(counts.0) || is_off(counts.1)).then(|| [whole(counts.0), whole(counts.1)])
}

/// Whether both are known, and cannot be the same.
fn differ(counts: (Option<Count>, Option<Count>)) -> bool {
    counts.0.zip(counts.1).is_some_and(|(a, b)| a.differs(b))
}

fn numbers((a, b): (Option<Count>, Option<Count>)) -> (Option<u64>, Option<u64>) {
    (a.map(|n| n.n), b.map(|n| n.n))
}

fn change((a, b): (u64, u64)) -> i128 {
    i128::from(b) - i128::from(a)
}

/// The larger changes first.
fn by_change<T>(rows: &mut [T], of: impl Fn(&T) -> (u64, u64), at: impl Fn(&T) -> (&str, u64, u64)) {
    let size = |row: &T| change(of(row)).unsigned_abs();
    rows.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| at(a).cmp(&at(b))));
}

fn view(first: &Path, second: &Path, pairs: &[(Program, Profile, Profile)]) -> DiffView {
    let mut view = DiffView {
        schema: DiffView::SCHEMA,
        first: first.display().to_string(),
        second: second.display().to_string(),
        instructions: (0, 0),
        functions: Vec::new(),
        loops: Vec::new(),
        edges: Vec::new(),
        n_blocks: 0,
        n_blocks_first_alone: 0,
        n_blocks_second_alone: 0,
        n_blocks_within: 0,
        n_edges_within: 0,
    };
    for (program, a, b) in pairs {
        add(&mut view, program, a, b);
    }
    by_change(&mut view.functions, |f| f.instructions, |f| (&f.module, f.at, 0));
    by_change(&mut view.loops, |l| l.iterations, |l| (&l.module, l.at, 0));
    by_change(&mut view.edges, |e| e.count, |e| (&e.module, e.from, e.to));
    view
}

/// How many instructions of function `id` ran.
fn instructions(program: &Program, profile: &Profile, id: FuncId) -> Count {
    let ran = |b| {
        let count = profile.block(program.block(b).start).unwrap_or_default();
        count.times(program.n_insns_run(b))
    };
    program.function(id).block_ids().map(ran).fold(Count::default(), Count::plus)
}

/// Adds what differs in `program`.
fn add(view: &mut DiffView, program: &Program, a: &Profile, b: &Profile) {
    let module = input::module_name(a, program);
    let name = |id| input::spelt(program, id);
    for id in program.func_ids() {
        let at = program.function(id).entry;
        let ran = (instructions(program, a, id), instructions(program, b, id));
        view.instructions.0 = view.instructions.0.saturating_add(ran.0.n);
        view.instructions.1 = view.instructions.1.saturating_add(ran.1.n);
        let entries = (a.entered(at), b.entered(at));
        if ran.0.differs(ran.1) || differ(entries) {
            view.functions.push(FunctionRow {
                module: module.clone(),
                name: name(id),
                at: at.0,
                instructions: (ran.0.n, ran.1.n),
                instructions_between: intervals((Some(ran.0), Some(ran.1))),
                entries: numbers(entries),
                entries_between: intervals(entries),
            });
        }
    }
    let count = |p: &Profile, at: &Va| p.block(*at).unwrap_or_default();
    for at in a.blocks.keys().chain(b.blocks.keys()).collect::<BTreeSet<_>>() {
        let (a, b) = (count(a, at), count(b, at));
        let differs = a.differs(b);
        view.n_blocks += usize::from(differs);
        view.n_blocks_within += usize::from(a.n != b.n && !differs);
        view.n_blocks_first_alone += usize::from(a.least > 0 && b.most == 0);
        view.n_blocks_second_alone += usize::from(a.most == 0 && b.least > 0);
    }
    // An edge is not known where nothing of its function ran: then it did not, either.
    let edge =
        |p: &Profile, e: &Edge| p.edge(*e).or_else(|| (count(p, &e.from).most == 0).then(Count::default));
    for e in a.edges.keys().chain(b.edges.keys()).collect::<BTreeSet<_>>() {
        let (Some(a), Some(b)) = (edge(a, e), edge(b, e)) else { continue };
        if a.differs(b) {
            view.edges.push(EdgeRow {
                module: module.clone(),
                function: program.function_at(e.from).map_or_else(String::new, name),
                from: e.from.0,
                to: e.to.0,
                count: (a.n, b.n),
                between: intervals((Some(a), Some(b))),
            });
        } else {
            view.n_edges_within += usize::from(a.n != b.n);
        }
    }
    let runs = |p: &Profile| -> BTreeMap<_, _> {
        loops::runs(program, p).into_iter().map(|run| (run.header, run)).collect()
    };
    let (first, second) = (runs(a), runs(b));
    for header in first.keys().chain(second.keys()).collect::<BTreeSet<_>>() {
        let (a, b) = (first.get(header), second.get(header));
        let none = Count::default();
        let iterations = (a.map_or(none, |run| run.iterations), b.map_or(none, |run| run.iterations));
        let entries = (a.map_or(Some(none), |run| run.entries), b.map_or(Some(none), |run| run.entries));
        if iterations.0.differs(iterations.1) || differ(entries) {
            let block = program.block(*header);
            view.loops.push(LoopRow {
                module: module.clone(),
                function: name(block.func),
                at: block.start.0,
                iterations: (iterations.0.n, iterations.1.n),
                iterations_between: intervals((Some(iterations.0), Some(iterations.1))),
                entries: numbers(entries),
                entries_between: intervals(entries),
            });
        }
    }
}
