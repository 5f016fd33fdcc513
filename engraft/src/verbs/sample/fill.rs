//! Where samples are: functions, loops, lines, and how well it was sampled.

use crate::input;
use crate::verbs::count::fill::run_view;
use measure::reports::sampled::{self, LoopSums, Sums, Who};
use profile::recording::Run;
use profile::samples::{Copied, Samples};
use program::{Lines, Program};
use std::collections::BTreeMap;
use std::path::Path;
use views::ratio;
use views::sample::{
    ChainsView, CopiedView, EventView, FunctionView, LineView, LoopView, SampleView, SumsView, ThreadView,
};

/// All that is said of `samples`, which are in `rec`; `programs` are their modules, by number, as far as they
/// are known.
pub fn view(rec: &Path, run: Option<&Run>, samples: &Samples, programs: &[Option<Program>]) -> SampleView {
    let quality = &samples.quality;
    let n = samples.len() as u64;
    let time: u64 = samples
        .iter()
        .filter(|sample| samples.events.get(sample.event as usize).is_some_and(|event| event.is_time))
        .fold(0, |sum, sample| sum.saturating_add(sample.period));
    let cost_share = quality.cost_ns.filter(|_| time > 0).map(|ns| ratio(ns.saturating_mul(n), time));
    let mut processes: Vec<u32> = samples.threads.iter().map(|thread| thread.process).collect();
    processes.sort_unstable();
    processes.dedup();
    SampleView {
        schema: SampleView::SCHEMA,
        run: run.map(run_view),
        recording: rec.display().to_string(),
        processes,
        seconds: std::time::Duration::from_nanos(quality.duration_ns).as_secs_f64(),
        hertz: Some(quality.hertz).filter(|n| *n > 0),
        samples: n,
        lost: quality.lost,
        cost_us: quality.cost_ns.map(|ns| std::time::Duration::from_nanos(ns).as_secs_f64() * 1e6),
        cost_share,
        chains: quality.has_chains.then_some(ChainsView {
            whole: quality.n_whole,
            later: quality.n_later,
            cut: quality.n_cut,
            copied: quality.copied.iter().map(copied).collect(),
        }),
        kernel: quality.has_kernel,
        threads: threads(samples),
        events: (0..).zip(&samples.events).map(|(n, _)| event(samples, n, programs)).collect(),
    }
}

fn copied(copied: &Copied) -> CopiedView {
    let Copied { bytes, hertz, samples } = *copied;
    CopiedView { bytes, hertz: Some(hertz).filter(|n| *n > 0), samples }
}

fn threads(samples: &Samples) -> Vec<ThreadView> {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for sample in samples.iter() {
        *counts.entry(sample.thread).or_default() += 1;
    }
    let mut all: Vec<ThreadView> = (0..)
        .zip(&samples.threads)
        .map(|(n, thread)| {
            let own = counts.get(&n).copied().unwrap_or(0);
            ThreadView {
                process: thread.process,
                thread: thread.number,
                name: thread.name.clone(),
                samples: own,
                share: ratio(own, samples.len() as u64),
            }
        })
        .collect();
    all.sort_by_key(|thread| (std::cmp::Reverse(thread.samples), thread.thread));
    all
}

fn event(samples: &Samples, n: u32, programs: &[Option<Program>]) -> EventView {
    let report = sampled::report(samples, n, programs);
    let all = report.all;
    let sums = |sums: Sums| SumsView {
        own: sums.own,
        self_share: ratio(sums.own_period, all.own_period),
        total: sums.total,
        total_share: ratio(sums.total_period, all.total_period),
    };
    let (name, is_time) = samples
        .events
        .get(n as usize)
        .map_or((String::new(), false), |event| (event.name.clone(), event.is_time));
    let functions = report.functions.into_iter().map(|(who, own)| {
        let (function, module, at) = called(&who, programs);
        FunctionView { function, module, at, sums: sums(own) }
    });
    let lines_of: Vec<Option<Lines>> =
        programs.iter().map(|program| program.as_ref().and_then(|p| Lines::load(&p.image))).collect();
    let loops = report.loops.into_iter().filter_map(|LoopSums { module, func, header, depth, sums: own }| {
        let program = programs.get(module)?.as_ref()?;
        let (function, name, _) = called(&Who::Function(module, func), programs);
        let at = program.block(header).start;
        let line = lines_of.get(module).and_then(Option::as_ref).and_then(|lines| lines.at(at));
        let line = line.map(|(file, line)| format!("{file}:{line}"));
        Some(LoopView { function, module: name, at: at.0, depth, line, sums: sums(own) })
    });
    let lines = report
        .lines
        .into_iter()
        .map(|((file, line), own)| LineView { line: format!("{file}:{line}"), sums: sums(own) });
    EventView {
        event: name,
        unit: if is_time { "ns" } else { "times" },
        samples: all.own,
        period: all.own_period,
        functions: functions.collect(),
        loops: loops.collect(),
        lines: lines.collect(),
    }
}

/// What people call a function and its module; its address there.
pub fn called(who: &Who, programs: &[Option<Program>]) -> (String, String, Option<u64>) {
    let program = |module: &usize| programs.get(*module).and_then(Option::as_ref);
    let module_name = |module: &usize| {
        program(module)
            .map_or_else(|| "[unknown]".to_owned(), |program| input::file_name(&program.image.name))
    };
    match who {
        Who::Function(module, func) => {
            let Some(program) = program(module) else {
                return ("[unknown]".into(), module_name(module), None);
            };
            (input::spelt(program, *func), module_name(module), Some(program.function(*func).entry.0))
        }
        Who::Module(module) => ("[code outside of functions]".to_owned(), module_name(module), None),
        Who::Kernel(name) if name.is_empty() => ("[unknown]".to_owned(), "[kernel]".to_owned(), None),
        Who::Kernel(name) => (name.to_string(), "[kernel]".to_owned(), None),
        Who::Named(name) => (name.to_string(), "[perf map]".to_owned(), None),
        Who::Unknown => ("[unknown]".to_owned(), "[unknown]".to_owned(), None),
    }
}
