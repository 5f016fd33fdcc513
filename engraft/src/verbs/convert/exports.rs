//! `engraft convert` for traces: what other tools draw, folded stacks and slices of time.

use super::Args;
use crate::input::{self, Instructions};
use crate::output::{self, Answer, Hinted};
use crate::verbs::query::functions::Functions;
use anyhow::Context as _;
use profile::flame;
use std::io;
use std::path::Path;
use trace::chrome::{self, ChromeError, Slices};
use trace::folded::Folded;
use trace::{CallTree, Names, Part, Trace, TreeError};
use tracing::info_span;
use views::convert::{SlicesView, StacksView};

/// What a stack counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, clap::ValueEnum)]
pub enum Weight {
    /// Blocks executed.
    #[default]
    Blocks,
    /// Instructions executed; they are counted in the binaries, which must be at hand.
    Instructions,
}

/// Slices that viewers in browsers open without trouble.
const MANY_SLICES: u64 = 5_000_000;

/// The part that is asked for.
fn part(args: &Args, from: &Path, trace: &Trace) -> anyhow::Result<Part> {
    if args.thread.is_none() && args.at.is_none() {
        return Ok(Part::ALL);
    }
    let asked = args.thread.map(|n| input::nth(from, trace, n)).transpose()?.map(|of| of.thread);
    let Some(span) = args.at else { return Ok(Part { thread: asked, ..Part::ALL }) };
    let threads = trace.threads().map_err(|err| input::unreadable(from, err))?;
    if let (None, [_, _, ..]) = (asked, threads.as_slice()) {
        let what = format!("{} has {} threads: which is meant by --at", from.display(), threads.len());
        return Err(Hinted::new(what, "say --thread N, counted from 1").into());
    }
    let (of, range) = span.of(from, trace, asked)?;
    Ok(Part { thread: Some(of.thread), range })
}

fn depth(args: &Args) -> usize {
    args.depth.map_or(usize::MAX, |n| n.get())
}

fn too_large(from: &Path, err: &dyn std::fmt::Display) -> anyhow::Error {
    let what = format!("{} cannot be folded: {err}", from.display());
    Hinted::new(what, "say --depth N: what is called deeper counts for the function at that depth").into()
}

/// Writes folded stacks, or draws them.
pub fn folded(args: &Args, from: &Path, trace: &Trace, is_picture: bool) -> anyhow::Result<Answer> {
    let stacks = Stacks {
        from,
        trace,
        names: trace.names().map_err(|err| input::unreadable(from, err))?,
        part: part(args, from, trace)?,
        depth: depth(args),
        weight: match (args.weight, is_picture) {
            (Some(weight), _) => weight,
            // Pictures have what `show` has, where that is known.
            (None, true) if args.binary.is_some() || has_modules(from, trace)? => Weight::Instructions,
            (None, _) => Weight::Blocks,
        },
        binary: args.binary.as_deref(),
    };
    let tree = stacks.tree()?;
    match is_picture {
        true => {
            let svg = stacks.picture(&tree)?;
            output::data(Some(&args.o), |w| w.write_all(&svg))?;
        }
        false => {
            let _span = info_span!("write").entered();
            output::data(Some(&args.o), |w| stacks.write(&tree, w))?;
        }
    }
    args.output.print_beside_file(
        &args.o,
        &StacksView {
            schema: StacksView::SCHEMA,
            file: args.o.display().to_string(),
            n_stacks: Folded::of(&tree).n_stacks(),
            total: tree.total(),
            unit: stacks.weight.unit(),
        },
    )?;
    Ok(Answer::Yes)
}

/// The flame graph of a whole trace: of instructions, if it knows its programs.
///
/// # Errors
/// If it cannot be read, or is too large.
pub fn flame_graph(from: &Path) -> anyhow::Result<Vec<u8>> {
    let trace = &input::open(from)?;
    let names = trace.names().map_err(|err| input::unreadable(from, err))?;
    let weight = if has_modules(from, trace)? { Weight::Instructions } else { Weight::Blocks };
    let stacks = Stacks { from, trace, names, part: Part::ALL, depth: usize::MAX, weight, binary: None };
    stacks.picture(&stacks.tree()?)
}

/// Whether a trace says which programs it is of.
fn has_modules(from: &Path, trace: &Trace) -> anyhow::Result<bool> {
    Ok(!trace.flow().map_err(|err| input::unreadable(from, err))?.modules.is_empty())
}

/// Stacks that are asked for.
struct Stacks<'a> {
    from: &'a Path,
    trace: &'a Trace,
    names: Names,
    part: Part,
    depth: usize,
    weight: Weight,
    binary: Option<&'a Path>,
}

impl Stacks<'_> {
    fn tree(&self) -> anyhow::Result<CallTree> {
        let _span = info_span!("fold").entered();
        let Stacks { from, trace, names, part, depth, .. } = self;
        let tree = match self.weight {
            Weight::Blocks => CallTree::of(trace, part, *depth, |_, _, _| 1),
            Weight::Instructions => {
                let insns = Instructions::of(self.binary, from, trace, names)?;
                let weight = |func, before, block| insns.of_block(func, before, block);
                let tree = CallTree::of(trace, part, *depth, weight);
                let functions = Functions::new(names);
                insns.finish(&|func| functions.called(func))?;
                tree
            }
        };
        let tree = tree.map_err(|err| match err {
            TreeError::Read(err) => input::unreadable(from, err),
            err => too_large(from, &err),
        })?;
        let functions = Functions::new(names);
        let fits = Folded::of(&tree).fits(&|func| functions.called(func));
        fits.map_err(|err| too_large(from, &err))?;
        Ok(tree)
    }

    fn write(&self, tree: &CallTree, w: &mut dyn io::Write) -> io::Result<()> {
        let functions = Functions::new(&self.names);
        Folded::of(tree).write(w, &|func| functions.called(func))
    }

    fn picture(&self, tree: &CallTree) -> anyhow::Result<Vec<u8>> {
        let _span = info_span!("draw").entered();
        let mut text = Vec::new();
        self.write(tree, &mut text)?;
        let unit = self.weight.unit();
        let caption = flame::Caption {
            title: format!("{}: {unit}, by calls", input::file_name(&self.from.to_string_lossy())),
            subtitle: "exact: every call of the trace, alike ones made one".to_owned(),
            unit: unit.to_owned(),
        };
        let drawn = flame::draw(&String::from_utf8_lossy(&text), &caption);
        drawn.with_context(|| format!("there is nothing to draw: nothing in {} ran", self.from.display()))
    }
}

impl Weight {
    fn unit(self) -> &'static str {
        match self {
            Weight::Blocks => "blocks",
            Weight::Instructions => "instructions",
        }
    }
}

/// Writes slices.
pub fn chrome(args: &Args, from: &Path, trace: &Trace) -> anyhow::Result<Answer> {
    let unreadable = |err| input::unreadable(from, err);
    if args.weight.is_some() {
        let what = "slices have no weight, they have times";
        return Err(Hinted::new(what, "leave --weight out, or write folded stacks: `-o X.folded`").into());
    }
    let names = trace.names().map_err(unreadable)?;
    let part = part(args, from, trace)?;
    let times = info_span!("times").in_scope(|| trace.times()).map_err(unreadable)?;
    if times.is_none() {
        let what = format!("{} has no times: a symbol is shown as a microsecond", from.display());
        output::warn(&what, Some("recordings of `engraft trace` have times"));
    }
    let functions = Functions::new(&names);
    let called = |func| functions.called(func);
    let mut failed = None;
    let mut slices = Slices::default();
    let _span = info_span!("write").entered();
    output::data(Some(&args.o), |w| {
        match chrome::write(trace, &part, depth(args), &called, times.as_ref(), w) {
            Ok(written) => {
                slices = written;
                Ok(())
            }
            Err(ChromeError::Write(err)) => Err(err),
            Err(ChromeError::Read(err)) => {
                failed = Some(err);
                Err(io::Error::other("the trace cannot be read"))
            }
            Err(err) => Err(io::Error::other(err)),
        }
    })
    .map_err(|err| failed.map_or(err, unreadable))?;
    if slices.n_calls > MANY_SLICES {
        let what = format!("{} has {} calls: more than browsers open", args.o.display(), slices.n_calls);
        output::warn(&what, Some("bound it: --depth N leaves deeper calls out, --at I..J takes a part"));
    }
    args.output.print_beside_file(
        &args.o,
        &SlicesView {
            schema: SlicesView::SCHEMA,
            file: args.o.display().to_string(),
            n_calls: slices.n_calls,
            n_deeper: slices.n_deeper,
            unit: if times.is_some() { "time" } else { "symbols" },
        },
    )?;
    Ok(Answer::Yes)
}
