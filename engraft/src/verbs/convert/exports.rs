//! `engraft convert` for traces: what other tools draw, folded stacks and slices of time.

use super::Args;
use crate::input;
use crate::output::{self, Answer, Hinted};
use crate::verbs::query::functions::Functions;
use program::{Program, Va};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use trace::chrome::{self, ChromeError, Slices};
use trace::folded::{FoldError, Folded};
use trace::{BlockId, FuncId, Names, Part, Trace};
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

/// Writes folded stacks.
pub fn folded(args: &Args, from: &Path, trace: &Trace) -> anyhow::Result<Answer> {
    let unreadable = |err| input::unreadable(from, err);
    let names = trace.names().map_err(unreadable)?;
    let part = part(args, from, trace)?;
    let (depth, weight) = (depth(args), args.weight.unwrap_or_default());
    let refused = |err| match err {
        FoldError::Read(err) => input::unreadable(from, err),
        err => {
            let what = format!("{} cannot be folded: {err}", from.display());
            Hinted::new(what, "say --depth N: what is called deeper counts for the function at that depth")
                .into()
        }
    };
    let folded = {
        let _span = info_span!("fold").entered();
        match weight {
            Weight::Blocks => Folded::of(trace, &part, depth, |_, _| 1),
            Weight::Instructions => {
                let insns = Instructions::of(args, from, trace, &names)?;
                let folded = Folded::of(trace, &part, depth, |func, block| insns.of_block(func, block));
                insns.finish(&names)?;
                folded
            }
        }
        .map_err(refused)?
    };
    let functions = Functions::new(&names);
    let called = |func| functions.called(func);
    folded.fits(&called).map_err(refused)?;
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

/// How many instructions blocks have.
struct Instructions {
    counts: Vec<Vec<Option<u64>>>,
    /// A block that ran, and is in none of the binaries.
    unknown: std::cell::Cell<Option<(FuncId, BlockId)>>,
}

impl Instructions {
    fn of(args: &Args, from: &Path, trace: &Trace, names: &Names) -> anyhow::Result<Instructions> {
        let flow = trace.flow().map_err(|err| input::unreadable(from, err))?;
        // By the number of the first function: the binary.
        let mut binaries: BTreeMap<FuncId, PathBuf> = BTreeMap::new();
        match (&args.binary, flow.modules.is_empty()) {
            (Some(binary), true) => drop(binaries.insert(FuncId(0), binary.clone())),
            (None, true) => {
                let what = format!("{} does not say which program it is of", from.display());
                return Err(Hinted::new(what, "say --binary BIN, or count blocks: `--weight blocks`").into());
            }
            (_, false) => {
                binaries.extend(flow.modules.iter().map(|m| (m.first, session::recorded_path(&m.path))));
            }
        }
        let mut counts: Vec<Vec<Option<u64>>> = Vec::new();
        let firsts: Vec<FuncId> = binaries.keys().copied().collect();
        for (n, (&first, path)) in binaries.iter().enumerate() {
            let end = firsts.get(n + 1).copied().unwrap_or(FuncId(u32::MAX));
            let program = match flow.modules.iter().find(|m| m.first == first) {
                Some(module) => Program::analyze(input::recorded_image(&module.path, module.key)?),
                None => input::program(path)?,
            };
            for (&func, function) in names.functions.range(first..end) {
                let last = function.blocks.keys().next_back().map_or(0, |n| n.index() + 1);
                let mut of: Vec<Option<u64>> = vec![None; last];
                for (&block, what) in &function.blocks {
                    let id = program.block_from(Va(what.at));
                    let n = id.map(|id| program.n_insns_run(id));
                    of.get_mut(block.index()).into_iter().for_each(|place| *place = n);
                }
                counts.resize(counts.len().max(func.index() + 1), Vec::new());
                counts.get_mut(func.index()).into_iter().for_each(|place| *place = std::mem::take(&mut of));
            }
        }
        Ok(Instructions { counts, unknown: std::cell::Cell::new(None) })
    }

    fn of_block(&self, func: FuncId, block: BlockId) -> u64 {
        let n = self.counts.get(func.index()).and_then(|of| of.get(block.index())).copied().flatten();
        n.unwrap_or_else(|| {
            self.unknown.set(Some((func, block)));
            0
        })
    }

    /// Refuses a trace of other binaries.
    fn finish(self, names: &Names) -> anyhow::Result<()> {
        let Some((func, block)) = self.unknown.get() else { return Ok(()) };
        let what = format!(
            "block {} of {} is in no binary that was given",
            block.0,
            Functions::new(names).called(func)
        );
        Err(Hinted::new(
            what,
            "say --binary with the build that was traced, or count blocks: `--weight blocks`",
        )
        .into())
    }
}
