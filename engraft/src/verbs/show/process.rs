//! `show -p PID`: the modules of a process that runs on, what is in one of them, and one function of it.
//!
//! Not here: how modules are found and read (`session`, `process.rs`).

use super::{Args, Request, Subject, function, loops, print_program};
use crate::input::{self, Sources};
use crate::output::{self, Answer, Hinted};
use live::Mapping;
use program::{FuncId, LiveVa, Loops, Program};
use session::{FileState, ProcessImage, ProcessModule, ProcessModuleError, ProcessModules, Whence};
use std::path::Path;
use tracing::info_span;
use views::show::function::LiveView;
use views::show::process::{KnownView, ModuleView, ProcessView};

/// A module of a process, analysed.
struct Known {
    program: Program,
    bias: program::Bias,
    whence: Whence,
}

/// Where code is, in a process; or what it is called.
enum Place<'n> {
    At(LiveVa),
    Called(&'n str),
}

/// Shows what is asked for of process `pid`.
pub fn run(args: &Args, pid: i32) -> anyhow::Result<Answer> {
    session::needs_proc()?;
    let (what, name) = words(args, pid)?;
    let process = ProcessModules::of(pid).map_err(|err| hinted(err.into()))?;
    match (what, name) {
        (None, _) => args.output.print_to(args.o.as_ref(), &view(&process, args.memory)?)?,
        (Some(Subject::Function), name) => function_of(args, &process, name.unwrap_or_default())?,
        (Some(what), name) => {
            let module = match name {
                Some(name) => only(&process, named(&process, name), name)?,
                None => process.all.first().ok_or_else(|| no_modules(pid))?,
            };
            let known = known(&process, module, args.memory, true).map_err(hinted)?;
            let of = Some(Path::new(&module.name));
            let wanted = Request { binary: of, what: Some(what), name: None, counts: None };
            print_program(args, &wanted, &known.program, None)?;
        }
    }
    Ok(Answer::Yes)
}

/// The words behind the options: what is asked for, and of which function or module.
fn words(args: &Args, pid: i32) -> anyhow::Result<(Option<Subject>, Option<&str>)> {
    let usage = format!(
        "say `show -p {pid}`, `show -p {pid} function ADDRESS`, or functions, loops, tables, gaps, data or \
         cfg, and a module"
    );
    if let Some(more) = &args.name {
        return Err(Hinted::new(format!("{more:?} is one word too many"), usage).into());
    }
    let Some(word) = args.binary.as_deref() else { return Ok((None, None)) };
    let what = word.to_str().and_then(|word| <Subject as clap::ValueEnum>::from_str(word, false).ok());
    match (what, args.what.as_deref()) {
        (None, _) => {
            Err(Hinted::new(format!("there is no {:?} of a process to show", word.display()), usage).into())
        }
        (Some(Subject::Function), None) => Err(Hinted::new("no function is named", usage).into()),
        (Some(what), _) if what.is_of_counts() || what.is_of_recordings() => {
            Err(Hinted::new(format!("{} are of recordings, not of a process", word.display()), usage).into())
        }
        (Some(what), _) if what != Subject::Function && (args.svg || args.dot || args.liveness) => {
            Err(Hinted::new("--svg, --dot and --liveness show one function", usage).into())
        }
        (what, name) => Ok((what, name)),
    }
}

/// The error with its remedy, if there is one.
fn hinted(err: ProcessModuleError) -> anyhow::Error {
    match err.hint() {
        Some(hint) => Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint).into(),
        None => err.into(),
    }
}

fn no_modules(pid: i32) -> anyhow::Error {
    let hint = format!("/proc/{pid}/maps says what it has mapped");
    Hinted::new(format!("process {pid} has no code mapped"), hint).into()
}

/// Analyses `module`, with its data if that is wanted.
fn known(
    process: &ProcessModules,
    module: &ProcessModule,
    of_memory: bool,
    with_data: bool,
) -> Result<Known, ProcessModuleError> {
    let ProcessImage { image, bias, whence } =
        info_span!("load").in_scope(|| process.image(module, of_memory))?;
    let _span = info_span!("analyze").entered();
    let program = if with_data { Program::analyze(image) } else { Program::analyze_code(image) };
    Ok(Known { program, bias, whence })
}

fn whence(whence: Whence) -> &'static str {
    match whence {
        Whence::File => "file",
        Whence::Memory => "memory",
        Whence::PerfMap => "perf-map",
    }
}

fn file(state: FileState) -> &'static str {
    match state {
        FileState::There => "there",
        FileState::Deleted => "deleted",
        FileState::Replaced => "replaced",
        FileState::None => "none",
    }
}

/// All modules, each analysed.
fn view(process: &ProcessModules, of_memory: bool) -> anyhow::Result<ProcessView> {
    let mut modules = Vec::new();
    for module in &process.all {
        let (known, why) = match known(process, module, of_memory, false) {
            Ok(known) => (Some(known), None),
            // Nothing of it is known any more.
            Err(err @ (ProcessModuleError::Ended { .. } | ProcessModuleError::Look(_))) => {
                return Err(hinted(err));
            }
            Err(err) => (None, Some(format!("{:#}", anyhow::Error::from(err)))),
        };
        modules.push(ModuleView {
            module: module.name.clone(),
            at: module.range.start.0,
            len_bytes: module.range.end.0.saturating_sub(module.range.start.0),
            file: file(module.file),
            known: known.as_ref().map(known_view),
            why,
        });
    }
    Ok(ProcessView { schema: ProcessView::SCHEMA, pid: process.pid(), modules })
}

fn known_view(Known { program, bias, whence: from }: &Known) -> KnownView {
    let image = &program.image;
    KnownView {
        from: whence(*from),
        bias: bias.to_live(program::Va(0)).0,
        image_id: image.id.to_string(),
        code_bytes: image.code_ranges().iter().map(|r| r.end.since(r.start)).sum(),
        n_functions: program.functions.len(),
        n_blocks: program.blocks.len(),
        n_edges: program.edges.len(),
        n_loops: loops::of_all(program).iter().map(Loops::len).sum(),
        notes: image.notes.clone(),
    }
}

/// Modules that are called so: by path, by file name, or as `show -p` lists them.
fn named<'p>(process: &'p ProcessModules, name: &str) -> Vec<&'p ProcessModule> {
    let is_it = |m: &&ProcessModule| m.name == name || input::file_name(&m.name) == name;
    process.all.iter().filter(is_it).collect()
}

/// The only one of `modules`, which are called `name`.
fn only<'p>(
    process: &ProcessModules,
    modules: Vec<&'p ProcessModule>,
    name: &str,
) -> anyhow::Result<&'p ProcessModule> {
    let pid = process.pid();
    match modules.as_slice() {
        [only] => Ok(only),
        [] => {
            let hint = format!("`engraft show -p {pid}` lists its modules");
            Err(Hinted::new(format!("process {pid} has no module that is called {name}"), hint).into())
        }
        several => {
            let all: Vec<&str> = several.iter().map(|m| &*m.name).collect();
            let what = format!("{} modules of process {pid} are called {name}", several.len());
            Err(Hinted::new(what, format!("say which:\n{}", all.join("\n"))).into())
        }
    }
}

/// Shows the function that `asked` names, or that is at that address of the process.
fn function_of(args: &Args, process: &ProcessModules, asked: &str) -> anyhow::Result<()> {
    let (module, id, known) = match place(asked) {
        Place::At(at) => at_address(args, process, at)?,
        Place::Called(name) => by_name(args, process, name)?,
    };
    let Known { program, bias, whence: from } = &known;
    let to = args.o.as_ref();
    if args.svg || args.dot {
        let picture = super::drawn(args, program, id, None);
        return output::data(to.map(std::path::PathBuf::as_path), |w| w.write_all(picture.as_bytes()));
    }
    let mut sources = Sources::of(Path::new(&module.name));
    let mut view = function::view(program, id, args.liveness, None, &mut sources);
    let at = bias.to_live(program.function(id).entry).0;
    view.live = Some(LiveView { pid: process.pid(), at, from: whence(*from) });
    args.output.print_to(to, &view)
}

/// `live:0x7f12` and `0x7f12` are addresses of the process; `MODULE!0x12` is one of a module's file.
fn place(asked: &str) -> Place<'_> {
    let text = asked.strip_prefix("live:").unwrap_or(asked);
    match text.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16)) {
        Some(Ok(at)) => Place::At(LiveVa(at)),
        _ => Place::Called(asked),
    }
}

type Found<'p> = (&'p ProcessModule, FuncId, Known);

fn at_address<'p>(args: &Args, process: &'p ProcessModules, at: LiveVa) -> anyhow::Result<Found<'p>> {
    let pid = process.pid();
    let lists = format!("`engraft show -p {pid}` lists its modules");
    let Some(mapping) = process.mapping_at(at) else {
        let hint = format!("{lists}; an address of a module's file is `MODULE!0x…`");
        return Err(Hinted::new(format!("{at} is in nothing that process {pid} has mapped"), hint).into());
    };
    let is_data = |of: &str| {
        let hint = format!("{lists}; functions are where these have code");
        anyhow::Error::from(Hinted::new(format!("{at} of process {pid} is data: it is in {of}"), hint))
    };
    let Some(module) = process.module_at(at) else {
        if mapping.executable {
            let err = ProcessModuleError::Undescribed { pid, at: mapping.range.start };
            return Err(hinted(err));
        }
        return Err(is_data(&called(mapping)));
    };
    let known = known(process, module, args.memory, true).map_err(hinted)?;
    let va = known.bias.to_image(at);
    if !known.program.image.is_code(va) {
        return Err(is_data(&module.name));
    }
    let id = input::function(&known.program, &va.to_string())?;
    Ok((module, id, known))
}

/// What a mapping that is of no module is.
fn called(mapping: &Mapping) -> String {
    let path = mapping.path.as_ref().map(|path| path.display().to_string());
    path.or_else(|| mapping.name.clone()).unwrap_or_else(|| "memory of no file".to_owned())
}

/// The function of this name: of the only module that has it.
fn by_name<'p>(args: &Args, process: &'p ProcessModules, asked: &str) -> anyhow::Result<Found<'p>> {
    let of_one = asked.split_once('!').map(|(module, name)| (named(process, module), name));
    let (modules, name) = match of_one {
        Some((modules, name)) if !modules.is_empty() => (modules, name),
        _ => (process.all.iter().collect(), asked),
    };
    let mut found: Vec<Found<'p>> = Vec::new();
    let (mut refused, mut observed) = (None, None);
    // Most modules do not have a symbol of this name: they need not be analysed.
    for is_symbol in [true, false] {
        for module in &modules {
            let image = match process.image(module, args.memory) {
                Ok(image) => image,
                Err(err @ (ProcessModuleError::Ended { .. } | ProcessModuleError::Look(_))) => {
                    return Err(hinted(err));
                }
                Err(err) => {
                    let is_observed = matches!(err, ProcessModuleError::Observed { .. });
                    let why = if is_observed { &mut observed } else { &mut refused };
                    why.get_or_insert_with(|| hinted(err));
                    continue;
                }
            };
            let ProcessImage { image, bias, whence } = image;
            if is_symbol && !image.symbols.iter().any(|s| *s.name == *name) {
                continue;
            }
            let program = info_span!("analyze").in_scope(|| Program::analyze(image));
            match input::function(&program, name) {
                Ok(id) => found.push((module, id, Known { program, bias, whence })),
                Err(err) => {
                    refused.get_or_insert(err);
                }
            }
        }
        if !found.is_empty() {
            break;
        }
    }
    if found.len() > 1 {
        let listed = found.iter().map(|(module, id, known)| {
            let f = known.program.function(*id);
            let file = input::file_name(&module.name);
            format!("'{file}!{}' is at {}", f.name(), known.bias.to_live(f.entry))
        });
        let listed: Vec<String> = listed.collect();
        let what = format!("functions of {} modules are called {name}", found.len());
        return Err(Hinted::new(what, format!("say which:\n{}", listed.join("\n"))).into());
    }
    match (found.pop(), modules.as_slice()) {
        (Some(found), _) => Ok(found),
        (None, _) if observed.is_some() => Err(observed.unwrap_or_else(|| no_modules(process.pid()))),
        (None, [_]) => Err(refused.unwrap_or_else(|| no_modules(process.pid()))),
        (None, _) => {
            let pid = process.pid();
            let hint = format!(
                "`engraft show -p {pid} functions MODULE` lists those of a module\n\
                 an address such as live:0x401136 does too"
            );
            Err(Hinted::new(format!("no function of process {pid} is called {name}"), hint).into())
        }
    }
}
