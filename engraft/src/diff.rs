//! `engraft diff`: what two runs executed otherwise: functions, loops, edges.

use crate::input;
use crate::output::{Answer, Hinted, Output};
use measure::loops;
use profile::{Count, Edge, Profile};
use program::{FuncId, Program, Va};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use views::{Table, View, cut, known, many};

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
    /// Blocks and edges of which the two have other numbers, but may have run as often: threads may have been
    /// stopped in the middle of one.
    #[serde(skip_serializing_if = "is_none")]
    n_blocks_within: usize,
    #[serde(skip_serializing_if = "is_none")]
    n_edges_within: usize,
}

fn is_none(n: &usize) -> bool {
    *n == 0
}

#[derive(Serialize)]
struct FunctionRow {
    module: String,
    name: String,
    at: u64,
    /// Instructions, and times it was called, in the first and the second run; the least and the most of
    /// each, where they may be off.
    instructions: (u64, u64),
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions_between: Option<Intervals>,
    entries: (Option<u64>, Option<u64>),
    #[serde(skip_serializing_if = "Option::is_none")]
    entries_between: Option<Intervals>,
}

#[derive(Serialize)]
struct LoopRow {
    module: String,
    function: String,
    at: u64,
    iterations: (u64, u64),
    #[serde(skip_serializing_if = "Option::is_none")]
    iterations_between: Option<Intervals>,
    entries: (Option<u64>, Option<u64>),
    #[serde(skip_serializing_if = "Option::is_none")]
    entries_between: Option<Intervals>,
}

#[derive(Serialize)]
struct EdgeRow {
    module: String,
    function: String,
    from: u64,
    to: u64,
    count: (u64, u64),
    #[serde(skip_serializing_if = "Option::is_none")]
    between: Option<Intervals>,
}

/// The intervals of two counts, if one of them may be off: of what is not known, nothing.
type Intervals = [Option<(u64, u64)>; 2];

/// Those of `counts`.
fn intervals(counts: (Option<Count>, Option<Count>)) -> Option<Intervals> {
    let is_off = |n: Option<Count>| n.is_some_and(|n| n.between().is_some());
    let whole = |n: Option<Count>| n.map(|n| (n.least, n.most));
    (is_off(counts.0) || is_off(counts.1)).then(|| [whole(counts.0), whole(counts.1)])
}

/// Both, as they are shown.
fn both(counts: (Option<u64>, Option<u64>), between: Option<Intervals>) -> (String, String) {
    let [a, b] = between.unwrap_or_default();
    let shown =
        |n: Option<u64>, between: Option<(u64, u64)>| known(n.map(|n| Count::of(n, between.as_ref())));
    (shown(counts.0, a), shown(counts.1, b))
}

fn of_both((a, b): (u64, u64)) -> (Option<u64>, Option<u64>) {
    (Some(a), Some(b))
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
        n_blocks_within: 0,
        n_edges_within: 0,
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
fn instructions(program: &Program, profile: &Profile, id: FuncId) -> Count {
    let ran = |b| {
        let count = profile.block(program.block(b).start).unwrap_or_default();
        count.times(program.n_insns_run(b))
    };
    program.function(id).block_ids().map(ran).fold(Count::default(), Count::plus)
}

impl DiffView {
    fn add(&mut self, program: &Program, a: &Profile, b: &Profile) {
        let module = input::module_name(a, program);
        let name = |id| input::spelt(program, id);
        for id in program.func_ids() {
            let at = program.function(id).entry;
            let ran = (instructions(program, a, id), instructions(program, b, id));
            self.instructions.0 = self.instructions.0.saturating_add(ran.0.n);
            self.instructions.1 = self.instructions.1.saturating_add(ran.1.n);
            let entries = (a.entered(at), b.entered(at));
            if ran.0.differs(ran.1) || differ(entries) {
                self.functions.push(FunctionRow {
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
            self.n_blocks += usize::from(differs);
            self.n_blocks_within += usize::from(a.n != b.n && !differs);
            self.n_blocks_first_alone += usize::from(a.least > 0 && b.most == 0);
            self.n_blocks_second_alone += usize::from(a.most == 0 && b.least > 0);
        }
        // An edge is not known where nothing of its function ran: then it did not, either.
        let edge =
            |p: &Profile, e: &Edge| p.edge(*e).or_else(|| (count(p, &e.from).most == 0).then(Count::default));
        for e in a.edges.keys().chain(b.edges.keys()).collect::<BTreeSet<_>>() {
            let (Some(a), Some(b)) = (edge(a, e), edge(b, e)) else { continue };
            if a.differs(b) {
                self.edges.push(EdgeRow {
                    module: module.clone(),
                    function: program.function_at(e.from).map_or_else(String::new, name),
                    from: e.from.0,
                    to: e.to.0,
                    count: (a.n, b.n),
                    between: intervals((Some(a), Some(b))),
                });
            } else {
                self.n_edges_within += usize::from(a.n != b.n);
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
                self.loops.push(LoopRow {
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
            let (first, second) = both(of_both(f.instructions), f.instructions_between);
            let (entries, then) = both(f.entries, f.entries_between);
            let (name, module) = (cut(&f.name), f.module.clone());
            t.row([signed(f.instructions), first, second, entries, then, name, module]);
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
                let (first, second) = both(of_both(l.iterations), l.iterations_between);
                let (entries, then) = both(l.entries, l.entries_between);
                let (at, function) = (Va(l.at).to_string(), cut(&l.function));
                t.row([signed(l.iterations), first, second, entries, then, at, function, l.module.clone()]);
            }
            t.text(w)?;
            more(w, self.loops.len())?;
        }
        if !self.edges.is_empty() {
            writeln!(w, "\nedges, by executions:")?;
            let mut t = Table::new(&["change>", "first>", "second>", "from>", "to>", "function", "module"]);
            for e in self.edges.iter().take(TOP) {
                let (first, second) = both(of_both(e.count), e.between);
                let (from, to) = (Va(e.from).to_string(), Va(e.to).to_string());
                t.row([signed(e.count), first, second, from, to, cut(&e.function), e.module.clone()]);
            }
            t.text(w)?;
            more(w, self.edges.len())?;
        }
        let within = match (self.n_blocks_within, self.n_edges_within) {
            (0, 0) => String::new(),
            (blocks, edges) => format!(
                "{} and {} may have run as often, or not: threads may have been stopped in the middle of a block\n",
                many(blocks, "block"),
                many(edges, "edge")
            ),
        };
        if self.is_empty() {
            let (a, b) = self.instructions;
            let instructions = if a == b { a.to_string() } else { format!("{a} and {b}") };
            let sure = if within.is_empty() { "" } else { ", as far as is known" };
            return write!(w, "both ran the same{sure}: {instructions} instructions\n{within}");
        }
        write!(
            w,
            "\n{} ran another number of times: {} in the first run alone, {} in the second; \
             {} instructions, then {}: {}\n{within}",
            many(self.n_blocks, "block"),
            self.n_blocks_first_alone,
            self.n_blocks_second_alone,
            self.instructions.0,
            self.instructions.1,
            signed(self.instructions)
        )
    }
}
