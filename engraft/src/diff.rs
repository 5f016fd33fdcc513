//! `engraft diff`: what two runs executed otherwise: functions, loops, edges.

use crate::input;
use crate::out::{Answer, Hinted};
use crate::view::{Output, Table, View, cut, known, many};
use measure::loops;
use profile::{Edge, Profile};
use program::{FuncId, Program, Va};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    /// The build that both ran; profiles that are no recordings need it. Of recordings, only this module is looked at
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
        input::recording(path)?.ok_or_else(|| {
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

/// What two runs executed otherwise.
#[derive(Serialize)]
pub struct DiffView {
    schema: &'static str,
    first: String,
    second: String,
    /// Instructions that ran in each.
    instructions: (u64, u64),
    functions: Vec<FunctionRow>,
    loops: Vec<LoopRow>,
    edges: Vec<EdgeRow>,
    /// Blocks that ran another number of times, and those that one run alone came to.
    n_blocks: usize,
    n_blocks_first_alone: usize,
    n_blocks_second_alone: usize,
}

#[derive(Serialize)]
struct FunctionRow {
    module: String,
    name: String,
    at: u64,
    /// Instructions, and times it was called, in the first and the second run.
    instructions: (u64, u64),
    entries: (Option<u64>, Option<u64>),
}

#[derive(Serialize)]
struct LoopRow {
    module: String,
    function: String,
    at: u64,
    iterations: (u64, u64),
    entries: (Option<u64>, Option<u64>),
}

#[derive(Serialize)]
struct EdgeRow {
    module: String,
    function: String,
    from: u64,
    to: u64,
    count: (u64, u64),
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
        schema: "engraft.diff/1",
        first: first.display().to_string(),
        second: second.display().to_string(),
        instructions: (0, 0),
        functions: Vec::new(),
        loops: Vec::new(),
        edges: Vec::new(),
        n_blocks: 0,
        n_blocks_first_alone: 0,
        n_blocks_second_alone: 0,
    };
    for (program, a, b) in pairs {
        view.add(program, a, b);
    }
    by_change(&mut view.functions, |f| f.instructions, |f| (&f.module, f.at, 0));
    by_change(&mut view.loops, |l| l.iterations, |l| (&l.module, l.at, 0));
    by_change(&mut view.edges, |e| e.count, |e| (&e.module, e.from, e.to));
    view
}

/// How many instructions of function `id` ran.
fn instructions(program: &Program, profile: &Profile, id: FuncId) -> u64 {
    let ran = |b| {
        profile.blocks.get(&program.block(b).start).map_or(0, |n| n.saturating_mul(program.n_insns_run(b)))
    };
    program.function(id).block_ids().map(ran).fold(0, u64::saturating_add)
}

impl DiffView {
    fn add(&mut self, program: &Program, a: &Profile, b: &Profile) {
        let path = if a.image.name.is_empty() { &program.image.name } else { &a.image.name };
        let module = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name =
            |id| input::source_names(program, id).next().unwrap_or_else(|| program.function(id).name());
        for id in program.func_ids() {
            let at = program.function(id).entry;
            let ran = (instructions(program, a, id), instructions(program, b, id));
            self.instructions.0 = self.instructions.0.saturating_add(ran.0);
            self.instructions.1 = self.instructions.1.saturating_add(ran.1);
            let entries = (a.entries.get(&at).copied(), b.entries.get(&at).copied());
            let called = (entries.0.unwrap_or(0), entries.1.unwrap_or(0));
            let both_known = entries.0.is_some() && entries.1.is_some();
            if ran.0 != ran.1 || both_known && called.0 != called.1 {
                self.functions.push(FunctionRow {
                    module: module.clone(),
                    name: name(id),
                    at: at.0,
                    instructions: ran,
                    entries,
                });
            }
        }
        let count = |p: &Profile, at: &Va| p.blocks.get(at).copied().unwrap_or(0);
        for at in a.blocks.keys().chain(b.blocks.keys()).collect::<BTreeSet<_>>() {
            let (a, b) = (count(a, at), count(b, at));
            self.n_blocks += usize::from(a != b);
            self.n_blocks_first_alone += usize::from(a > 0 && b == 0);
            self.n_blocks_second_alone += usize::from(a == 0 && b > 0);
        }
        // An edge is not known where nothing of its function ran: then it did not, either.
        let edge =
            |p: &Profile, e: &Edge| p.edges.get(e).copied().or_else(|| (count(p, &e.from) == 0).then_some(0));
        for e in a.edges.keys().chain(b.edges.keys()).collect::<BTreeSet<_>>() {
            if let (Some(a), Some(b)) = (edge(a, e), edge(b, e))
                && a != b
            {
                let function = program.function_at(e.from).map_or_else(String::new, name);
                let row =
                    EdgeRow { module: module.clone(), function, from: e.from.0, to: e.to.0, count: (a, b) };
                self.edges.push(row);
            }
        }
        let runs = |p: &Profile| -> BTreeMap<_, _> {
            loops::runs(program, p).into_iter().map(|run| (run.header, run)).collect()
        };
        let (first, second) = (runs(a), runs(b));
        for header in first.keys().chain(second.keys()).collect::<BTreeSet<_>>() {
            let (a, b) = (first.get(header), second.get(header));
            let iterations = (a.map_or(0, |run| run.iterations), b.map_or(0, |run| run.iterations));
            let entries = (a.map_or(Some(0), |run| run.entries), b.map_or(Some(0), |run| run.entries));
            if iterations.0 != iterations.1 || entries.0 != entries.1 {
                let block = program.block(*header);
                let (function, at) = (name(block.func), block.start.0);
                self.loops.push(LoopRow { module: module.clone(), function, at, iterations, entries });
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.loops.is_empty() && self.edges.is_empty() && self.n_blocks == 0
    }
}

/// How many rows people want to see.
const TOP: usize = 12;

fn signed(counts: (u64, u64)) -> String {
    format!("{:+}", change(counts))
}

impl DiffView {
    fn functions(&self, n: usize) -> Table {
        let mut t = Table::new(&["change>", "first>", "second>", "entries>", "then>", "function", "module"]);
        for f in self.functions.iter().take(n) {
            t.row([
                signed(f.instructions),
                f.instructions.0.to_string(),
                f.instructions.1.to_string(),
                known(f.entries.0),
                known(f.entries.1),
                cut(&f.name),
                f.module.clone(),
            ]);
        }
        t
    }
}

impl View for DiffView {
    /// A row a function.
    fn table(&self) -> Table {
        self.functions(usize::MAX)
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        let more = |w: &mut dyn Write, n: usize| match n.checked_sub(TOP).filter(|n| *n > 0) {
            Some(n) => writeln!(w, "and {n} more: --json lists them"),
            None => Ok(()),
        };
        if !self.functions.is_empty() {
            writeln!(w, "functions, by instructions:")?;
            self.functions(TOP).text(w)?;
            more(w, self.functions.len())?;
        }
        if !self.loops.is_empty() {
            writeln!(w, "\nloops, by iterations:")?;
            let mut t = Table::new(&[
                "change>", "first>", "second>", "entries>", "then>", "loop>", "function", "module",
            ]);
            for l in self.loops.iter().take(TOP) {
                t.row([
                    signed(l.iterations),
                    l.iterations.0.to_string(),
                    l.iterations.1.to_string(),
                    known(l.entries.0),
                    known(l.entries.1),
                    Va(l.at).to_string(),
                    cut(&l.function),
                    l.module.clone(),
                ]);
            }
            t.text(w)?;
            more(w, self.loops.len())?;
        }
        if !self.edges.is_empty() {
            writeln!(w, "\nedges, by executions:")?;
            let mut t = Table::new(&["change>", "first>", "second>", "from>", "to>", "function", "module"]);
            for e in self.edges.iter().take(TOP) {
                t.row([
                    signed(e.count),
                    e.count.0.to_string(),
                    e.count.1.to_string(),
                    Va(e.from).to_string(),
                    Va(e.to).to_string(),
                    cut(&e.function),
                    e.module.clone(),
                ]);
            }
            t.text(w)?;
            more(w, self.edges.len())?;
        }
        if self.is_empty() {
            return writeln!(w, "both ran the same: {} instructions", self.instructions.0);
        }
        writeln!(
            w,
            "\n{} ran another number of times: {} in the first run alone, {} in the second; \
             {} instructions, then {}: {}",
            many(self.n_blocks, "block"),
            self.n_blocks_first_alone,
            self.n_blocks_second_alone,
            self.instructions.0,
            self.instructions.1,
            signed(self.instructions)
        )
    }
}
