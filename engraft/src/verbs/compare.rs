//! `engraft compare`: what two builds of a program did on one input, between the same points.

mod fill;

use crate::input::names::near;
use crate::input::{file_name, open, recorded_image, unreadable};
use crate::output::{self, Answer, Hinted, Output, Rows};
use matching::compare::expression::{Expression, Value};
use matching::compare::{Builder, Code, Comparison, Log, Side, TracedModule, block_starts};
use matching::{Matching, Options};
use program::{Lines, Program};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use trace::Trace;
use tracing::info_span;
use views::compare::CompareView;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft compare old.trace new.trace
  $ engraft compare old.trace new.trace --metric dyn.agg.mem_reads
  $ engraft compare old.trace new.trace --fail-if 'dyn.agg.total > 1.01'";

/// Compare what two builds of a program did on one input: function by function, and between the same points
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A trace of the old build: what `engraft trace` wrote
    old: PathBuf,
    /// A trace of the new build, with the same input
    new: PathBuf,
    /// What functions are sorted by: `dyn.agg.total` are instructions that ran, `stat.` those of the code
    /// that ran, once; `calls`
    #[arg(long, value_name = "METRIC", default_value = "dyn.agg.total", value_parser = metric)]
    metric: String,
    /// Print all metrics of this function
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Answer no (exit code 1) if this holds, or is not known; NAME is the new build's metric over the old
    /// one's, old.NAME and new.NAME are those of one build, any(function, …) and any(interval, …) ask for
    /// one of them
    #[arg(long, value_name = "EXPR", value_parser = Expression::parse)]
    fail_if: Option<Expression>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    rows: Rows,
}

fn metric(text: &str) -> Result<String, String> {
    match matching::compare::expression::is_known(text) {
        true => Ok(text.to_owned()),
        false => {
            Err("there is no such metric; dyn.agg.total, dyn.agg.mem_reads, dyn.cat.DIV are some".to_owned())
        }
    }
}

/// A trace with its programs.
struct Recorded {
    trace: Trace,
    /// By module: where its functions begin, what it is called, and itself.
    programs: Vec<(trace::FuncId, String, Program)>,
    names: trace::Names,
}

impl Recorded {
    fn read(path: &Path) -> anyhow::Result<Recorded> {
        let trace = open(path)?;
        let names = trace.names().map_err(|err| unreadable(path, err))?;
        let flow = trace.flow().map_err(|err| unreadable(path, err))?;
        if flow.modules.is_empty() {
            let what = format!("{} does not say which program it is of", path.display());
            return Err(Hinted::new(what, "compare what `engraft trace` recorded").into());
        }
        let program = |module: &trace::flow::Module| {
            let image = recorded_image(&module.path, module.key)?;
            let name = file_name(&module.path);
            let program = info_span!("analyze").in_scope(|| Program::analyze(image));
            anyhow::Ok((module.first, name, program))
        };
        let programs = flow.modules.iter().map(program).collect::<Result<_, _>>()?;
        Ok(Recorded { trace, programs, names })
    }

    fn modules(&self) -> Vec<TracedModule<'_>> {
        self.programs
            .iter()
            .map(|(first, name, program)| TracedModule {
                first: *first,
                name: name.clone(),
                program,
                lines: Lines::load(&program.image),
            })
            .collect()
    }

    fn log(&self, path: &Path, code: &Code) -> anyhow::Result<Log> {
        let mut builder = Builder::new(code);
        let read = self.trace.read(|thread, symbols| {
            builder.push(thread, symbols);
            ControlFlow::<()>::Continue(())
        });
        read.map_err(|err| unreadable(path, err))?;
        Ok(builder.finish())
    }
}

/// Says that no function of this name ran in both builds, and which ones are called alike.
fn no_function(name: &str, view: &CompareView) -> anyhow::Error {
    let alike = near(view.functions.iter().map(|row| row.name.as_str()), name);
    let hint = match alike.is_empty() {
        true => "`engraft compare` without --function lists them".to_owned(),
        false => format!("perhaps {}", alike.join(", ")),
    };
    Hinted::new(format!("no function {name} ran in both builds"), hint).into()
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let (old, new) = (Recorded::read(&args.old)?, Recorded::read(&args.new)?);
    let modules = [old.modules(), new.modules()];
    let codes = [Code::of(&old.names, &modules[0]), Code::of(&new.names, &modules[1])];
    let span = info_span!("read").entered();
    let (a, b) = rayon::join(|| old.log(&args.old, &codes[0]), || new.log(&args.new, &codes[1]));
    let logs = [a?, b?];
    drop(span);
    let [first, second] = [&old, &new].map(|of| of.programs.first().map(|(.., program)| program));
    let has_lines = modules.iter().all(|all| all.first().is_some_and(|module| module.lines.is_some()));
    let was = match (first, second) {
        (Some(old), Some(new)) if !has_lines => {
            let matching = info_span!("match").in_scope(|| Matching::compute(old, new, &Options::default()));
            block_starts(&matching, old, new)
        }
        _ => HashMap::new(),
    };
    let side = |n: usize| Side { code: &codes[n], log: &logs[n], modules: &modules[n] };
    let sides = [side(0), side(1)];
    let found = info_span!("compare").in_scope(|| Comparison::compute(&sides, &was));
    for (path, log) in [(&args.old, &logs[0]), (&args.new, &logs[1])] {
        if log.n_unknown > 0 {
            let what =
                format!("{}: {} blocks are of no function, and left out", path.display(), log.n_unknown);
            output::warn(&what, Some("record the run again: what was read may be damaged"));
        }
    }
    let view = fill::view(args, &sides, &found);
    match &args.function {
        None => args.output.print(&view)?,
        Some(name) => match fill::function(name, &view) {
            Some(function) => args.output.print(&function)?,
            None => return Err(no_function(name, &view)),
        },
    }
    let Some(expression) = &args.fail_if else { return Ok(Answer::Yes) };
    Ok(match expression.value(&fill::Looked::new(&view)) {
        Value::Truth(false) => Answer::Yes,
        Value::Truth(true) | Value::Number(_) => Answer::No,
        Value::Unknown => {
            output::warn(
                "whether --fail-if holds is not known: something was divided by 0, or did not run",
                None,
            );
            Answer::No
        }
    })
}
