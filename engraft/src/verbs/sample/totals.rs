//! `engraft sample --total`: how often events came, by thread.

use super::{Args, events, refused};
use crate::output::{self, Answer};
use crate::verbs::attached;
use crate::verbs::count::{find, passed_on};
use live::{AskedToEnd, End, Total, Totals, Unit};
use session::Sampler;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use views::sample::totals::{ThreadTotalView, TotalView, TotalsView};

/// Counts the events of processes that run already, or of a program to its end.
pub(super) fn run(args: &Args) -> anyhow::Result<Answer> {
    let events = events(args)?;
    args.output.refuse_unfit(&[])?;
    let (mut totals, names, took, answer);
    if args.processes.are_meant() {
        let pids = args.processes.looked_at()?;
        let asked_to_end = AskedToEnd::keep()?;
        let ends: Vec<End> = pids.iter().copied().map(End::of).collect();
        totals = Totals::start(&pids, &events).map_err(refused)?;
        let clock = Instant::now();
        names = pids.iter().flat_map(|pid| names_of(*pid)).collect();
        output::pause_progress();
        attached::say_attached(&pids, args.how_long);
        let _why = asked_to_end.wait(&ends, args.how_long);
        output::resume_progress();
        (took, answer) = (clock.elapsed(), Answer::Yes);
    } else {
        let target = find(&args.command)?;
        let (name, rest) = args.command.split();
        let started = Sampler::at_start(&target, name, rest)?;
        totals = Totals::start(&[started.pid()], &events).map_err(refused)?;
        names = names_of(started.pid()).into_iter().collect();
        let clock = Instant::now();
        output::pause_progress();
        let ended = live::wait(&mut started.let_go()?)?;
        output::resume_progress();
        (took, answer) = (clock.elapsed(), Answer::Status(passed_on(ended.status)));
    }
    args.output.print(&view(totals.read()?, &names, took))?;
    Ok(answer)
}

/// The threads of process `pid` with their names.
fn names_of(pid: i32) -> Vec<(u32, String)> {
    session::threads_of(pid)
}

fn view(totals: Vec<Total>, names: &BTreeMap<u32, String>, took: Duration) -> TotalsView {
    let of = |total: Total| {
        let own = total.threads.iter().map(|(_, _, n)| *n).fold(0u64, u64::saturating_add);
        let thread = |&(process, thread, total): &(u32, u32, u64)| ThreadTotalView {
            process,
            thread,
            name: names.get(&thread).cloned().unwrap_or_default(),
            total,
        };
        let mut threads: Vec<ThreadTotalView> = total.threads.iter().map(thread).collect();
        threads.sort_by_key(|one| (std::cmp::Reverse(one.total), one.thread));
        TotalView {
            event: total.event.name.clone(),
            unit: if total.event.unit() == Unit::Nanoseconds { "ns" } else { "times" },
            total: own.saturating_add(total.meanwhile),
            threads,
            meanwhile: total.meanwhile,
        }
    };
    TotalsView {
        schema: TotalsView::SCHEMA,
        seconds: took.as_secs_f64(),
        totals: totals.into_iter().map(of).collect(),
    }
}
