//! `engraft convert` of what `perf script` prints of branches: a trace of what ran, as far as that says.

use super::Args;
use super::stores::stores;
use crate::input;
use crate::output::{self, Answer, Hinted};
use anyhow::Context as _;
use measure::branches::{self, Faults, Module, ModuleVa, Walker};
use profile::perf_branches::{self as perf, Line, ThreadTime};
use program::{Bias, Lines, LiveVa, Program};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use trace::import::{Around, import_streams};
use trace::{FlowGraphs, Imported, ThreadId, Times, flow};
use tracing::info_span;
use views::convert::BranchesView;
use views::many;

/// Whether a file that starts so is such a text.
pub fn is_one(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && perf::is_one(&String::from_utf8_lossy(bytes))
}

/// Each line of the text, one after the other.
fn each_line(path: &Path, mut take: impl FnMut(Line<'_>)) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", path.display());
    let mut from = BufReader::new(File::open(path).with_context(failed)?);
    let mut bytes = Vec::new();
    while from.read_until(b'\n', &mut bytes).with_context(failed)? > 0 {
        let text = String::from_utf8_lossy(&bytes);
        perf::line(text.trim_end_matches('\n')).into_iter().for_each(&mut take);
        bytes.clear();
    }
    Ok(())
}

/// The files that the text names, in order; with their build-ids, where it has them.
#[derive(Default)]
struct Named {
    paths: Vec<(String, Option<Vec<u8>>)>,
    known: BTreeSet<String>,
}

impl Named {
    fn add(&mut self, path: &str, build_id: Option<&[u8]>) {
        // Not `[vdso]`, not the kernel.
        if path.starts_with('/') && self.known.insert(path.to_owned()) {
            self.paths.push((path.to_owned(), build_id.map(<[u8]>::to_vec)));
        }
    }
}

/// The programs that are at hand, and which of the text's files each is.
struct Programs {
    all: Vec<Program>,
    paths: Vec<PathBuf>,
    by_name: HashMap<String, usize>,
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn load(args: &Args, from: &Path, named: &Named) -> anyhow::Result<Programs> {
    let mut programs = Programs { all: Vec::new(), paths: Vec::new(), by_name: HashMap::new() };
    let given = args.binary.as_deref().map(input::program).transpose()?;
    let given_name = args.binary.as_ref().and_then(|path| path.file_name()?.to_str().map(str::to_owned));
    let mut given = given;
    for (path, build_id) in &named.paths {
        let is_same = |program: &Program| is_build(program, build_id.as_deref());
        if let Some(program) = given.take_if(|program| {
            is_same(program) == Some(true)
                || is_same(program).is_none() && given_name.as_deref() == Some(file_name(path))
        }) {
            programs.by_name.insert(path.clone(), programs.all.len());
            programs.paths.extend(args.binary.clone());
            programs.all.push(program);
            continue;
        }
        let file = Path::new(path);
        if args.binary.is_some() && args.modules.is_empty() || !is_wanted(args, file) || !file.is_file() {
            continue;
        }
        let program = input::program(file)?;
        if is_same(&program) == Some(false) {
            let what = format!("{path} is not the build that ran any more: it is left out");
            output::warn(&what, Some("say --binary with the build that ran"));
            continue;
        }
        programs.by_name.insert(path.clone(), programs.all.len());
        programs.paths.push(file.to_owned());
        programs.all.push(program);
    }
    let names: Vec<&str> = named.paths.iter().take(8).map(|(path, _)| path.as_str()).collect();
    let of = match names.is_empty() {
        true => "names no files".to_owned(),
        false => format!("is of {}", names.join(", ")),
    };
    if given.is_some() {
        let binary = args.binary.as_deref().unwrap_or(Path::new("")).display();
        // A program at fixed addresses needs no mapping.
        match given.filter(|program| named.paths.is_empty() && !program.image.kind.is_relocated()) {
            Some(program) => {
                programs.paths.extend(args.binary.clone());
                programs.all.push(program);
            }
            None => {
                let what = format!("{} has no {binary}: it {of}", from.display());
                let hint = "print the files, too: `perf script --show-mmap-events …`";
                return Err(Hinted::new(what, hint).into());
            }
        }
    }
    if programs.all.is_empty() {
        let what = format!("{} {of}, and none of them can be used", from.display());
        let hint = "say --binary BIN with the build that ran, and print the files, too: `perf script --show-mmap-events …`";
        return Err(Hinted::new(what, hint).into());
    }
    Ok(programs)
}

fn is_wanted(args: &Args, path: &Path) -> bool {
    let all = ["all".to_owned()];
    let modules = if args.modules.is_empty() { &all[..] } else { &args.modules };
    session::ModuleFilter::new(modules).has_library(path)
}

/// Whether the program has a build-id; `None` if one of the two is not known.
fn is_build(program: &Program, build_id: Option<&[u8]>) -> Option<bool> {
    let (theirs, ours) = (build_id?, program.image.build_id.as_deref()?);
    // perf pads build-ids to 20 bytes.
    Some(theirs.starts_with(ours) && theirs.iter().skip(ours.len()).all(|b| *b == 0))
}

/// Where a file lies; if it is one of the programs, which, and how far it was moved.
type Map = (Range<u64>, Option<(usize, Bias)>);

/// Where files lie in processes.
struct Maps<'a> {
    programs: &'a Programs,
    of: HashMap<i32, Vec<Map>>,
    /// Where a file lies for which there is no mapping, by a symbol in it.
    by_symbol: HashMap<usize, Bias>,
    /// Addresses of symbols, by program.
    symbols: HashMap<usize, HashMap<&'a str, u64>>,
}

impl<'a> Maps<'a> {
    fn add(&mut self, mapped: &profile::perf_script::Mapped<'_>) {
        let module = self.programs.by_name.get(mapped.path).copied();
        let bias = module.and_then(|m| Some((m, perf::bias(self.programs.all.get(m)?, mapped)?)));
        let live = &mapped.live;
        let list = self.of.entry(mapped.pid).or_default();
        list.retain(|(range, _)| range.end <= live.start || live.end <= range.start);
        list.push((live.clone(), bias));
    }

    /// The place of an address, if it is in one of the programs.
    fn place(
        &mut self,
        who: ThreadTime,
        at: u64,
        said: Option<&perf::BranchAddress<'_>>,
    ) -> Option<ModuleVa> {
        let live = LiveVa(at);
        let pid = who.pid.or(who.tid).filter(|pid| self.of.contains_key(pid));
        let pid = pid.or_else(|| self.of.keys().copied().next().filter(|_| self.of.len() == 1));
        if let Some(maps) = pid.and_then(|pid| self.of.get(&pid)) {
            let (module, bias) = maps.iter().rev().find(|(range, _)| range.contains(&at))?.1?;
            return Some(ModuleVa { module, at: bias.to_image(live) });
        }
        let module = match said.and_then(|place| place.file) {
            Some(file) => self.programs.by_name.get(file).copied()?,
            // The only one, at fixed addresses.
            None if self.programs.by_name.is_empty() => 0,
            None => return None,
        };
        let program = self.programs.all.get(module)?;
        if !program.image.kind.is_relocated() {
            return Some(ModuleVa { module, at: program::Va(at) });
        }
        if !self.by_symbol.contains_key(&module) {
            let (name, offset) = said?.symbol?;
            let symbols = self.symbols.entry(module).or_insert_with(|| {
                program.image.symbols.iter().map(|symbol| (&*symbol.name, symbol.at.0)).collect()
            });
            let start = *symbols.get(name)?;
            let bias = Bias::between(program::Va(start), LiveVa(at.checked_sub(offset)?));
            // Else another symbol of this name is meant.
            if !bias.to_live(program::Va(0)).0.is_multiple_of(PAGE) {
                return None;
            }
            self.by_symbol.insert(module, bias);
        }
        let bias = self.by_symbol.get(&module)?;
        Some(ModuleVa { module, at: bias.to_image(live) })
    }
}

const PAGE: u64 = 0x1000;
/// Addresses from here on are the kernel's.
const KERNEL: u64 = 1 << 63;
/// So many symbols may have one time.
const SYMBOLS_A_TIME: u64 = 256;

/// A thread of the text.
struct Thread<'a> {
    walker: Walker<'a>,
    /// The symbols that it had when its time was noted last.
    timed: Option<u64>,
}

/// The threads of the text, in the order in which they come.
struct Threads<'a> {
    modules: &'a [Module<'a>],
    numbers: HashMap<(Option<i32>, Option<i32>), usize>,
    all: Vec<Thread<'a>>,
    times: Times,
    start_ns: Option<u64>,
    n_branches: u64,
}

impl<'a> Threads<'a> {
    fn of(&mut self, who: ThreadTime) -> (ThreadId, &mut Thread<'a>) {
        // Where processes are not told, threads are.
        let n = self.all.len();
        let number = *self.numbers.entry((who.pid.filter(|_| who.tid.is_none()), who.tid)).or_insert(n);
        if number == n {
            self.all.push(Thread { walker: Walker::new(self.modules), timed: None });
        }
        (
            ThreadId(u32::try_from(number).unwrap_or(u32::MAX)),
            self.all.get_mut(number).expect("it was made above"),
        )
    }

    /// Notes the time of what comes next.
    fn time(&mut self, who: ThreadTime, is_exact: bool) {
        let Some(ns) = who.time_ns else { return };
        let since = ns.saturating_sub(*self.start_ns.get_or_insert(ns));
        let (number, thread) = self.of(who);
        let index = thread.walker.symbols.len() as u64;
        if is_exact || thread.timed.is_none_or(|timed| index - timed >= SYMBOLS_A_TIME) {
            thread.timed = Some(index);
            self.times.note(number, index, since);
        }
    }
}

/// What is wrong with a line.
const SENSELESS: &str = "with addresses where no code can be, or times that are none";

fn said(n: u64, from: &Path) -> String {
    let lines = many(usize::try_from(n).unwrap_or(usize::MAX), "line");
    format!("{} has {lines} of branches", from.display())
}

/// Makes a trace of the text at `from`.
pub fn import(args: &Args, from: &Path) -> anyhow::Result<Answer> {
    if args.meta.is_some() {
        let what = format!("{} is what perf prints: --meta is for plain traces", from.display());
        return Err(Hinted::new(what, "leave it out: names come from the binaries").into());
    }
    let mut named = Named::default();
    let _span = info_span!("import").entered();
    each_line(from, |line| match line {
        Line::Mapped(mapped) => named.add(mapped.path, mapped.build_id.as_deref()),
        Line::Branch { from, to, .. } => {
            let files = [from, to].into_iter().flatten().filter_map(|place| place.file);
            files.for_each(|file| named.add(file, None));
        }
        _ => {}
    })?;
    let programs = load(args, from, &named)?;
    let modules = branches::modules(&programs.all);
    let mut maps =
        Maps { programs: &programs, of: HashMap::new(), by_symbol: HashMap::new(), symbols: HashMap::new() };
    let mut threads = Threads {
        modules: &modules,
        numbers: HashMap::new(),
        all: Vec::new(),
        times: Times::default(),
        start_ns: None,
        n_branches: 0,
    };
    let n_senseless = walk(from, &mut maps, &mut threads)?;
    let mut faults = Faults::default();
    for thread in &mut threads.all {
        thread.walker.finish();
        faults.n_astray += thread.walker.faults.n_astray;
        faults.n_gaps += thread.walker.faults.n_gaps;
    }
    refuse_nothing(from, &programs, &threads, n_senseless)?;
    warn_of_faults(from, &faults, threads.n_branches, n_senseless);
    let imported = write(args, &programs, &threads)?;
    let view = BranchesView {
        schema: BranchesView::SCHEMA,
        file: args.o.display().to_string(),
        n_symbols: imported.n_symbols,
        n_bytes: imported.n_bytes,
        n_branches: threads.n_branches,
        n_threads: threads.all.len(),
        n_gaps: faults.n_gaps,
        n_astray: faults.n_astray,
        n_senseless,
        modules: programs.paths.iter().map(|path| path.display().to_string()).collect(),
    };
    args.output.print_beside_file(&args.o, &view)?;
    Ok(Answer::Yes)
}

/// Follows the branches of all threads; returns how many lines say what cannot be.
fn walk(from: &Path, maps: &mut Maps<'_>, threads: &mut Threads<'_>) -> anyhow::Result<u64> {
    let mut n_senseless = 0;
    each_line(from, |line| match line {
        Line::Mapped(mapped) => maps.add(&mapped),
        Line::Stack { who, branches, ip } => {
            threads.n_branches += branches.len() as u64;
            let ip = ip.and_then(|ip| maps.place(who, ip, None));
            threads.of(who).1.walker.lose();
            for (from, to) in branches {
                let places = (maps.place(who, from, None), maps.place(who, to, None));
                threads.of(who).1.walker.branch(places.0, places.1, to >= KERNEL);
            }
            threads.of(who).1.walker.seen_at(ip);
            threads.time(who, true);
        }
        Line::Branch { who, from, to, is_interrupt } => {
            threads.n_branches += 1;
            threads.time(who, false);
            let mut place =
                |place: Option<perf::BranchAddress<'_>>| place.and_then(|p| maps.place(who, p.at, Some(&p)));
            let is_interrupt = is_interrupt || to.is_some_and(|to| to.at >= KERNEL);
            let (from, to) = (place(from), place(to));
            threads.of(who).1.walker.branch(from, to, is_interrupt);
        }
        Line::Lost { who } => threads.of(who).1.walker.lose(),
        Line::Senseless { who } => {
            n_senseless += 1;
            threads.of(who).1.walker.lose();
        }
    })?;
    Ok(n_senseless)
}

/// Refuses a text of which nothing is of a program.
fn refuse_nothing(
    from: &Path,
    programs: &Programs,
    threads: &Threads<'_>,
    n_senseless: u64,
) -> Result<(), Hinted> {
    if threads.all.iter().any(|thread| !thread.walker.symbols.is_empty()) {
        return Ok(());
    }
    if n_senseless > 0 {
        let what = format!("{} {SENSELESS}, and no other is of a program", said(n_senseless, from));
        return Err(Hinted::new(what, "print it again: `perf script` writes no such lines"));
    }
    let paths: Vec<String> = programs.paths.iter().map(|path| path.display().to_string()).collect();
    let what = format!("no branch in {} is of {}", from.display(), paths.join(", "));
    let hint = "print where the files lay, too: `perf script --show-mmap-events …`";
    Err(Hinted::new(what, hint))
}

/// Says what of the text was not understood, or does not fit the code.
fn warn_of_faults(from: &Path, faults: &Faults, n_branches: u64, n_senseless: u64) {
    if n_senseless > 0 {
        output::warn(
            &format!("{} {SENSELESS}", said(n_senseless, from)),
            Some("each is a gap: what ran there is not known"),
        );
    }
    if faults.n_astray > 0 {
        let what = format!("{} of {} branches do not fit the code", faults.n_astray, n_branches);
        output::warn(
            &what,
            Some("is it the build that ran? Code that changes while it runs does not fit, either"),
        );
    }
}

fn write(args: &Args, programs: &Programs, threads: &Threads<'_>) -> anyhow::Result<Imported> {
    let lines: Vec<Option<Lines>> = programs.all.iter().map(|program| Lines::load(&program.image)).collect();
    let names = branches::names(threads.modules, |module, at| {
        let (file, line) = lines.get(module)?.as_ref()?.at(at)?;
        Some((file.to_owned(), line))
    });
    let module = |(module, path): (&Module<'_>, &PathBuf)| flow::Module {
        first: module.first,
        key: measure::recorded_points::key(probe::file_key(&module.program.image)),
        path: path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string(),
    };
    let flow = FlowGraphs {
        modules: threads.modules.iter().zip(&programs.paths).map(module).collect(),
        functions: branches::follows(threads.modules),
    };
    let around = Around { names: &names, flow: &flow, times: &threads.times };
    let streams = (0..).map(ThreadId).zip(threads.all.iter().map(|thread| thread.walker.symbols.as_slice()));
    let stores = stores(&args.store)?;
    let mut result = None;
    let wrote = output::data(Some(&args.o), |w| {
        match import_streams(streams.filter(|(_, symbols)| !symbols.is_empty()), w, around, stores) {
            Err(trace::ImportError::Write(err)) => Err(err),
            imported => {
                let failed = imported.is_err();
                result = Some(imported);
                if failed { Err(io::Error::other("what was made is no trace")) } else { Ok(()) }
            }
        }
    });
    match result {
        Some(Ok(imported)) => wrote.map(|()| imported),
        Some(Err(err)) => Err(err.into()),
        None => wrote.and_then(|()| anyhow::bail!("nothing was written")),
    }
}
