//! `replace --vectorise`: the packed loops of a function, run by wider instructions.

use super::{Args, found, micros, now_s, refused, view};
use crate::input;
use crate::output::Answer;
use session::{LoopFate, Replacement, RunningProgram, Standing};
use views::replace::{LoopView, ReplaceView};

/// What such a function is listed with.
const WITH: &str = "vectorised";

/// Has the loops of `function` vectorised that can be.
pub fn run(args: &Args, process: &RunningProgram, function: &str) -> anyhow::Result<Answer> {
    let (module, func) = found(process, function)?;
    let (made, loops) = Replacement::vectorised(process, &module, func).map_err(refused)?;
    let standing = Standing {
        function: input::spelt(&module.program, func),
        asked: function.to_owned(),
        module: module.path().display().to_string(),
        at: module.program.function(func).entry.0,
        with: WITH.to_owned(),
        symbol: None,
        to: made.to.0,
        original: made.original.0,
        since_s: now_s(),
    };
    let stopped = made.put_in(std::slice::from_ref(&standing)).map_err(refused)?;
    args.output.print(&ReplaceView {
        replaced: Some(vec![view(&standing, false)]),
        loops: Some(loops.into_iter().map(shown).collect()),
        pause_us: Some(micros(stopped.pause)),
        ..ReplaceView::of(args.pid)
    })?;
    Ok(Answer::Yes)
}

fn shown(fate: LoopFate) -> LoopView {
    LoopView {
        address: fate.at.to_string(),
        line: fate.line.map(|(file, line)| format!("{}:{line}", input::file_name(&file))),
        done: fate.why.is_none(),
        because: fate.why,
    }
}
