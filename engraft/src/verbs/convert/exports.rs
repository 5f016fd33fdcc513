//! `engraft convert` for traces: what other tools draw, folded stacks and slices of time.

use super::Args;
use crate::input::{self, Instructions};
use crate::output::{self, Answer, Hinted};
use crate::verbs::query::functions::Functions;
use std::io;
use std::path::Path;
use trace::chrome::{self, ChromeError, Slices};
use trace::folded::Folded;
use trace::{CallTree, Part, Trace, TreeError};
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

/// A trace that has no tree of calls.
pub fn refused(from: &Path, err: TreeError) -> anyhow::Error {
    match err {
        TreeError::Read(err) => input::unreadable(from, err),
        err => too_large(from, &err),
    }
}

fn too_large(from: &Path, err: &dyn std::fmt::Display) -> anyhow::Error {
    let what = format!("{} cannot be folded: {err}", from.display());
    Hinted::new(what, "say --depth N: what is called deeper counts for the function at that depth").into()
}

/// Writes folded stacks.
pub fn folded(args: &Args, from: &Path, trace: &Trace) -> anyhow::Result<Answer> {
    let unreadable = |err| input::unreadable(from, err);
    let names = trace.names().map_err(unreadable)?;
    let part = part(args, from, trace)?;
    let (depth, weight) = (depth(args), args.weight.unwrap_or_default());
    let functions = Functions::new(&names);
    let called = |func| functions.called(func);
    let tree = {
        let _span = info_span!("fold").entered();
        match weight {
            Weight::Blocks => CallTree::of(trace, &part, depth, |_, _, _| 1),
            Weight::Instructions => {
                let insns = Instructions::of(args.binary.as_deref(), from, trace, &names)?;
                let tree = CallTree::of(trace, &part, depth, |func, before, block| {
                    insns.of_block(func, before, block)
                });
                insns.finish(&called)?;
                tree
            }
        }
        .map_err(|err| refused(from, err))?
    };
    let folded = Folded::of(&tree);
    folded.fits(&called).map_err(|err| too_large(from, &err))?;
    info_span!("write").in_scope(|| output::data(Some(&args.o), |w| folded.write(w, &called)))?;
    args.output.print_beside_file(
        &args.o,
        &StacksView {
            schema: StacksView::SCHEMA,
            file: args.o.display().to_string(),
            n_stacks: folded.n_stacks(),
            total: folded.total(),
            unit: match weight {
                Weight::Blocks => "blocks",
                Weight::Instructions => "instructions",
            },
        },
    )?;
    Ok(Answer::Yes)
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
