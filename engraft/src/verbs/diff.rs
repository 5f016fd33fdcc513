//! `engraft diff`: what two runs executed otherwise: functions, loops, edges.

use crate::input::{self, Source};
use crate::output::{Answer, Hinted, Output, Rows};
use measure::reports::diff::{self, Both, Diff, TwoBuilds};
use profile::recording::{Module, Recording};
use profile::{Count, Profile};
use program::Program;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use views::diff::{DiffView, EdgeRow, FunctionRow, Intervals, LoopRow, relative};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft diff old.engraft old.engraft
  $ engraft diff old.callgrind old.callgrind --binary old --json";

/// Show what two runs of the same build executed otherwise: functions, loops, edges by change
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// What the first run left: a recording of `engraft count`, or a profile in any format [default: the
    /// older of the two newest recordings here]
    #[arg(requires = "second")]
    first: Option<PathBuf>,
    /// What the second run left [default: the newest recording here]
    second: Option<PathBuf>,
    /// The build that both ran; profiles that are no recordings need it. Of recordings, only this module is
    /// looked at
    #[arg(long, value_name = "BIN")]
    binary: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    rows: Rows,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (first, second) = match (&args.first, &args.second) {
        (Some(first), Some(second)) => (first.clone(), second.clone()),
        _ => input::the_newest_two()?,
    };
    let pairs = match &args.binary {
        Some(binary) => {
            let program = input::program(binary)?;
            let read = |path: &Path| Ok::<_, anyhow::Error>(input::profile(path, Some(&program))?.profile);
            let (a, b) = (read(&first)?, read(&second)?);
            vec![(program, a, b)]
        }
        None => pairs(&first, &second)?,
    };
    let view = view(&first, &second, &pairs);
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
    let (one, other) = (read(first)?, read(second)?);
    let profiles = |of: &Recording| of.modules.iter().map(|module| module.profile.clone()).collect();
    let found = diff::modules_of_both(profiles(&one), profiles(&other)).map_err(|err| match err {
        TwoBuilds::Executables(old, new) => two_builds(format!(", {old} and {new}"), &new),
        TwoBuilds::Modules(file, new) => two_builds(format!(" of {}", file.to_string_lossy()), &new),
    })?;
    let with_program = |(a, b): (Profile, Profile)| {
        let both = one.modules.iter().chain(&other.modules);
        let of_it: Vec<&Module> = both.filter(|module| module.profile.image.id == a.image.id).collect();
        Ok((input::kept_program(&of_it)?, a, b))
    };
    found.into_par_iter().map(with_program).collect()
}

/// Those of `counts`.
fn intervals(counts: Both) -> Option<Intervals> {
    let is_off = |n: Option<Count>| n.is_some_and(|n| n.between().is_some());
    let whole = |n: Option<Count>| n.map(|n| (n.least, n.most));
    (is_off(counts.0) || is_off(counts.1)).then(|| [whole(counts.0), whole(counts.1)])
}

fn numbers((a, b): Both) -> (Option<u64>, Option<u64>) {
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
        change_share: None,
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
    view.change_share = relative(view.instructions);
    by_change(&mut view.functions, |f| f.instructions, |f| (&f.module, f.at, 0));
    by_change(&mut view.loops, |l| l.iterations, |l| (&l.module, l.at, 0));
    by_change(&mut view.edges, |e| e.count, |e| (&e.module, e.from, e.to));
    view
}

/// Adds what differs in `program`.
fn add(view: &mut DiffView, program: &Program, a: &Profile, b: &Profile) {
    let module = input::module_name(a, program);
    let name = |id| input::spelt(program, id);
    let found = Diff::compute(program, a, b);
    view.instructions.0 = view.instructions.0.saturating_add(found.instructions.0);
    view.instructions.1 = view.instructions.1.saturating_add(found.instructions.1);
    view.n_blocks += found.n_blocks;
    view.n_blocks_first_alone += found.n_blocks_first_alone;
    view.n_blocks_second_alone += found.n_blocks_second_alone;
    view.n_blocks_within += found.n_blocks_within;
    view.n_edges_within += found.n_edges_within;
    let known = |(a, b): (Count, Count)| (Some(a), Some(b));
    view.functions.extend(found.functions.iter().map(|f| FunctionRow {
        module: module.clone(),
        name: name(f.func),
        at: program.function(f.func).entry.0,
        instructions: (f.instructions.0.n, f.instructions.1.n),
        change_share: relative((f.instructions.0.n, f.instructions.1.n)),
        instructions_between: intervals(known(f.instructions)),
        entries: numbers(f.entries),
        entries_between: intervals(f.entries),
    }));
    view.edges.extend(found.edges.iter().map(|e| EdgeRow {
        module: module.clone(),
        function: program.function_at(e.edge.from).map_or_else(String::new, name),
        from: e.edge.from.0,
        to: e.edge.to.0,
        count: (e.count.0.n, e.count.1.n),
        change_share: relative((e.count.0.n, e.count.1.n)),
        between: intervals(known(e.count)),
    }));
    view.loops.extend(found.loops.iter().map(|l| LoopRow {
        module: module.clone(),
        function: name(program.block(l.header).func),
        at: program.block(l.header).start.0,
        iterations: (l.iterations.0.n, l.iterations.1.n),
        change_share: relative((l.iterations.0.n, l.iterations.1.n)),
        iterations_between: intervals(known(l.iterations)),
        entries: numbers(l.entries),
        entries_between: intervals(l.entries),
    }));
}
