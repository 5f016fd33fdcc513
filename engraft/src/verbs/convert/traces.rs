//! `engraft convert` for traces: from a plain one to a file of ours, and back. What else they are made of
//! and become: `branches`, `exports`.

use super::stores::stores;
use super::{Args, branches, exports};
use crate::input;
use crate::output::{self, Answer, Hinted};
use anyhow::Context as _;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use trace::import::RepackError;
use trace::{ImportError, Imported, Names, Stores, Trace, file, import, plain};
use tracing::info_span;
use views::convert::TraceView;

/// What to write, if the extension does not say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A profile.
    Profile(profile::Format),
    /// A trace of ours; of one, a plain one, unless it is kept in another way.
    Trace,
    /// Slices, as Chrome and Perfetto show them.
    Chrome,
}

/// Reads a target's name from the command line.
pub fn target_named(name: &str) -> Result<Target, String> {
    match name {
        "trace" => Ok(Target::Trace),
        "chrome" => Ok(Target::Chrome),
        name => output::format_named(name)
            .map(Target::Profile)
            .map_err(|_| format!("there are {}, trace, chrome", output::written_formats().join(", "))),
    }
}

/// What the output is to be: as asked for, else as its name says.
pub fn target(args: &Args) -> Option<Target> {
    let is_slices = || args.o.to_string_lossy().to_ascii_lowercase().ends_with(".trace.json");
    args.to
        .or_else(|| is_slices().then_some(Target::Chrome))
        .or_else(|| profile::Format::from_extension(&args.o).map(Target::Profile))
        .or_else(|| (is_named(&args.o, OURS) || is_named(&args.o, PLAIN)).then_some(Target::Trace))
}

/// What traces of ours are called, and plain ones.
const OURS: &str = "trace";
const PLAIN: &str = "trc";

fn is_named(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension))
}

/// The error for an output whose name says no format.
pub fn without_format(args: &Args) -> anyhow::Error {
    output::unnamed(&args.o, ", trace, chrome; plain traces end in .trc").into()
}

/// The error for what is no trace and was to become something that only traces do.
pub fn not_a_trace(args: &Args) -> anyhow::Error {
    if let Some((path, err)) = args.inputs.iter().find_map(|path| Some((path, path.metadata().err()?))) {
        return anyhow::Error::from(err).context(format!("cannot read {}", path.display()));
    }
    let inputs: Vec<String> = args.inputs.iter().map(|path| path.display().to_string()).collect();
    let what = match inputs.len() {
        1 => format!("{} is no trace", inputs.concat()),
        n => format!("{} are {n} files: what is to be made is made of one trace", inputs.join(", ")),
    };
    let hint = "traces are what `engraft trace` or `engraft convert` wrote, plain ones (X.trc), and what `perf script` prints of branches";
    Hinted::new(what, hint).into()
}

/// What is to be converted.
pub enum Conversion {
    /// A plain trace, from a file or a pipe.
    Plain,
    /// A trace of ours.
    Ours(Box<Trace>),
    /// One, to folded stacks, or a picture of them.
    Folded(Box<Trace>),
    /// One, to slices.
    Slices(Box<Trace>),
    /// What perf prints of branches.
    Branches,
}

/// Whether traces are meant, and which way.
pub fn conversion(args: &Args) -> anyhow::Result<Option<Conversion>> {
    let what = recognise(args)?;
    let is_drawn = matches!(what, Some(Conversion::Folded(_) | Conversion::Slices(_)));
    if !is_drawn && (args.at.is_some() || args.depth.is_some() || args.weight.is_some()) {
        let what = "--at, --depth and --weight are for one trace that becomes folded stacks, a flame graph or slices";
        return Err(Hinted::new(what, "name the output X.folded, X.svg or X.trace.json").into());
    }
    Ok(what)
}

fn recognise(args: &Args) -> anyhow::Result<Option<Conversion>> {
    let asked = args.meta.is_some() || !args.store.is_empty();
    let target = target(args);
    let [input] = args.inputs.as_slice() else {
        anyhow::ensure!(
            !asked,
            "--meta and --store are for one plain trace, {} files are given",
            args.inputs.len()
        );
        return Ok(None);
    };
    // What a pipe holds cannot be seen without taking it out: the output tells.
    let is_stdin = input == Path::new("-");
    let is_file = input.metadata().is_ok_and(|m| m.is_file());
    if is_stdin || !is_file {
        let is_pipe = is_stdin || input.exists() && !input.is_dir();
        let is_profile = matches!(target, Some(Target::Profile(_)));
        return if is_pipe && (asked || !is_profile) {
            becomes_ours(args, Conversion::Plain).map(Some)
        } else {
            Ok(None)
        };
    }
    let mut start = Vec::new();
    let file = File::open(input).with_context(|| format!("cannot read {}", input.display()))?;
    file.take(1 << 16).read_to_end(&mut start).with_context(|| format!("cannot read {}", input.display()))?;
    if file::is_one(&start) {
        let open = || Ok::<_, anyhow::Error>(Box::new(input::open(input)?));
        return Ok(match target {
            Some(Target::Profile(profile::Format::Folded | profile::Format::Svg)) => {
                Some(Conversion::Folded(open()?))
            }
            Some(Target::Chrome) => Some(Conversion::Slices(open()?)),
            // Its counts are wanted.
            Some(Target::Profile(_)) => None,
            None if args.store.is_empty() => return Err(without_format(args)),
            Some(Target::Trace) | None => Some(Conversion::Ours(open()?)),
        });
    }
    let is_of_traces = !matches!(target, Some(Target::Profile(_)));
    if is_of_traces && branches::is_one(&start) {
        return becomes_ours(args, Conversion::Branches).map(Some);
    }
    if asked || is_named(input, PLAIN) || is_of_traces && plain::is_one(&start) {
        return becomes_ours(args, Conversion::Plain).map(Some);
    }
    Ok(None)
}

/// Refuses outputs that are called something else than a trace of ours, for what becomes nothing but one.
fn becomes_ours(args: &Args, what: Conversion) -> anyhow::Result<Conversion> {
    let is_asked = !args.store.is_empty();
    match target(args) {
        None if !is_asked && output::is_standard_output(&args.o) => return Err(without_format(args)),
        Some(Target::Profile(profile::Format::Engraft)) if args.to.is_none() => return Ok(what),
        Some(Target::Profile(_) | Target::Chrome) => {}
        Some(Target::Trace) if args.to.is_none() && !is_asked && is_named(&args.o, PLAIN) => {}
        _ => return Ok(what),
    }
    let input = args.inputs.first().map_or_else(String::new, |path| path.display().to_string());
    let what = format!("{input} does not become {} at once", args.o.display());
    Err(Hinted::new(what, format!("make a trace of ours of it first: `engraft convert {input} -o X.trace`"))
        .into())
}

/// Converts a trace.
pub fn run(args: &Args, what: Conversion) -> anyhow::Result<Answer> {
    let read = args.inputs.iter().chain(&args.meta).map(std::path::PathBuf::as_path);
    output::refuse_replacing(&args.o, &read.collect::<Vec<_>>())?;
    let from = args.inputs.first().context("clap asks for one")?;
    let wrote = match what {
        _ if args.thread.is_some() && is_whole(args, &what) => {
            let what =
                format!("{} keeps all threads: --thread is for one that is taken out", args.o.display());
            return Err(Hinted::new(what, "name the output X.trc, X.folded, X.svg or X.trace.json").into());
        }
        Conversion::Plain => info_span!("import").in_scope(|| import_plain(args, from))?,
        Conversion::Ours(trace) if is_repacked(args) => {
            info_span!("pack").in_scope(|| repack(from, &args.o, &trace, stores(&args.store)?))?
        }
        Conversion::Ours(trace) => info_span!("export").in_scope(|| export_plain(args, from, &trace))?,
        Conversion::Branches => return branches::import(args, from),
        Conversion::Folded(trace) => {
            let is_picture = target(args) == Some(Target::Profile(profile::Format::Svg));
            return exports::folded(args, from, &trace, is_picture);
        }
        Conversion::Slices(trace) => return exports::chrome(args, from, &trace),
    };
    args.output.print_beside_file(&args.o, &wrote)?;
    Ok(Answer::Yes)
}

/// Whether a trace of ours becomes another one.
fn is_repacked(args: &Args) -> bool {
    !args.store.is_empty() || args.to.is_none() && is_named(&args.o, OURS)
}

/// Whether what is made has all threads.
fn is_whole(args: &Args, what: &Conversion) -> bool {
    match what {
        Conversion::Plain | Conversion::Branches => true,
        Conversion::Ours(_) => is_repacked(args),
        Conversion::Folded(_) | Conversion::Slices(_) => false,
    }
}

fn import_plain(args: &Args, from: &Path) -> anyhow::Result<TraceView> {
    let names = match &args.meta {
        None => Names::default(),
        Some(meta) => {
            let text = input::text(meta)?;
            Names::parse(&text).with_context(|| format!("{} is no table of names", meta.display()))?
        }
    };
    let is_stdin = from == Path::new("-");
    let input: Box<dyn Read> = match is_stdin {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(from).with_context(|| format!("cannot read {}", from.display()))?),
    };
    let stores = stores(&args.store)?;
    let mut result = None;
    output::data(Some(&args.o), |w| {
        match import::import(input, w, &names, stores) {
            Err(ImportError::Write(err)) => Err(err),
            imported => {
                // What is no trace leaves no file.
                let failed = imported.is_err();
                result = Some(imported);
                if failed { Err(io::Error::other("the input is no trace")) } else { Ok(()) }
            }
        }
    })
    .or_else(|err| if matches!(result, Some(Err(_))) { Ok(()) } else { Err(err) })?;
    let Imported { n_symbols, n_bytes } = result.context("it was written")?.map_err(|err| {
        let cause = std::error::Error::source(&err).map_or_else(String::new, |cause| format!(": {cause}"));
        let what = format!(
            "{} is no plain trace: {err}{cause}",
            if is_stdin { "standard input".into() } else { from.display().to_string() }
        );
        Hinted::new(what, "a plain trace has four bytes a symbol; `engraft help convert` has the codes")
    })?;
    Ok(TraceView { schema: TraceView::SCHEMA, file: args.o.display().to_string(), n_symbols, n_bytes })
}

/// Writes `trace`, which is the file `from`, to `to`, as it is kept in `stores`.
///
/// # Errors
/// If it cannot be read, packed or written.
pub fn repack(from: &Path, to: &Path, trace: &Trace, stores: Stores) -> anyhow::Result<TraceView> {
    let mut result = None;
    let wrote = output::data(Some(to), |w| match import::repack(trace, w, stores) {
        Err(RepackError::Write(err)) => Err(err),
        Err(err) => {
            result = Some(Err(err));
            Err(io::Error::other("the trace cannot be read"))
        }
        Ok(imported) => {
            result = Some(Ok(imported));
            Ok(())
        }
    });
    let Imported { n_symbols, n_bytes } = match result {
        Some(Err(RepackError::Read(err))) => return Err(input::unreadable(from, err)),
        Some(Err(err)) => return Err(err).with_context(|| format!("cannot pack {}", from.display())),
        Some(Ok(imported)) => {
            wrote?;
            imported
        }
        None => return wrote.and_then(|()| anyhow::bail!("nothing was written")),
    };
    Ok(TraceView { schema: TraceView::SCHEMA, file: to.display().to_string(), n_symbols, n_bytes })
}

fn export_plain(args: &Args, from: &Path, trace: &Trace) -> anyhow::Result<TraceView> {
    let wanted = match args.thread {
        Some(n) => Some(input::nth(from, trace, n)?.thread),
        None => {
            let threads = trace.threads().map_err(|err| input::unreadable(from, err))?;
            if threads.len() > 1 {
                let what =
                    format!("{} has {} threads; a plain trace holds one", from.display(), threads.len());
                return Err(Hinted::new(what, "say which with --thread N, counted from 1").into());
            }
            threads.first().map(|of| of.thread)
        }
    };
    let (mut n_symbols, mut failed) = (0, None);
    output::data(Some(&args.o), |w| {
        let read = trace.read(|thread, symbols| {
            if Some(thread) != wanted {
                return ControlFlow::Continue(());
            }
            n_symbols += symbols.len() as u64;
            plain::write(w, symbols).map_or_else(ControlFlow::Break, ControlFlow::Continue)
        });
        match read {
            Ok(None) => Ok(()),
            Ok(Some(err)) => Err(err),
            Err(err) => {
                failed = Some(err);
                Err(io::Error::other("the trace cannot be read"))
            }
        }
    })
    .map_err(|err| failed.map_or(err, |err| input::unreadable(from, err)))?;
    Ok(TraceView {
        schema: TraceView::SCHEMA,
        file: args.o.display().to_string(),
        n_symbols,
        n_bytes: 4 * n_symbols,
    })
}
