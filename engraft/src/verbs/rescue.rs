//! `engraft rescue`: processes given back as they were, whose observer was killed.

use crate::output::{self, Answer, Hinted, Output};
use live::attach::{self, GivenBack};
use views::rescue::{AttachedView, GivenBackView, RescueView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft rescue --list
  $ engraft rescue --list --json";

/// Give a process back as it was, if whoever attached to it was killed
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The processes
    #[arg(required_unless_present = "list", value_name = "PID")]
    pids: Vec<i32>,
    /// List all processes that somebody is attached to, or was
    #[arg(long, conflicts_with = "pids")]
    list: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    session::needs_proc()?;
    if args.list {
        let n_hidden = attach::n_hidden();
        if n_hidden > 0 {
            let what = format!("{} could not be looked at", views::many(n_hidden, "process"));
            output::warn(&what, Some("they are other users': root sees all"));
        }
        let attached = attach::attached().into_iter().map(|pid| AttachedView { pid, name: name_of(pid) });
        let attached = Some(attached.collect());
        args.output.print(&RescueView { schema: RescueView::SCHEMA, attached, given_back: None })?;
        return Ok(Answer::Yes);
    }
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for &pid in &args.pids {
        match attach::rescue(pid) {
            Ok(GivenBack { stopped, left, stays, .. }) => all.push(GivenBackView {
                pid,
                pause_us: stopped.pause.as_micros().try_into().unwrap_or(u64::MAX),
                left,
                stays,
            }),
            Err(err) => failed.push(err),
        }
    }
    let is_whole = all.iter().all(|one| one.left.is_none());
    if failed.is_empty() || !all.is_empty() {
        let given_back = Some(all);
        args.output.print(&RescueView { schema: RescueView::SCHEMA, attached: None, given_back })?;
    }
    let mut failed = failed.into_iter().map(|err| {
        let hint = err.hint().unwrap_or_else(|| "`engraft rescue --list` lists those that can be".to_owned());
        Hinted::new(format!("{:#}", anyhow::Error::from(err)), hint)
    });
    let Some(last) = failed.next_back() else {
        return Ok(if is_whole { Answer::Yes } else { Answer::No });
    };
    failed.for_each(|err| output::warn(&err.to_string(), None));
    Err(last.into())
}

/// What process `pid` is called.
fn name_of(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}
