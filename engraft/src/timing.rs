//! How long each step took (`--time`), and which one is being done, for who waits longer than a second.
//!
//! Both come from the spans that the libraries open with [`tracing`]; nothing is measured twice.

use crate::output;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::span;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// Starts to watch. Call [`Watch::finish`] when the verb is done.
pub fn watch(time: bool, quiet: bool) -> Watch {
    let steps = Arc::new(Steps::default());
    let progress = !quiet && std::io::stderr().is_terminal();
    if time || progress {
        let subscriber = Registry::default().with(Recorder { steps: Arc::clone(&steps) });
        // It is the only one in this process, so it can be set.
        let _ = tracing::subscriber::set_global_default(subscriber);
    }
    let ticker = progress.then(|| {
        let steps = Arc::clone(&steps);
        std::thread::spawn(move || steps.tick())
    });
    Watch { steps, ticker, time }
}

/// What [`watch`] started.
pub struct Watch {
    steps: Arc<Steps>,
    ticker: Option<JoinHandle<()>>,
    time: bool,
}

impl Watch {
    /// Takes the progress line away, and prints the times if they were asked for.
    pub fn finish(self) {
        self.steps.lock().done = true;
        self.steps.changed.notify_all();
        if let Some(ticker) = self.ticker {
            let _panicked = ticker.join();
        }
        if self.time {
            let text = self.steps.lock().tree();
            output::say(text.trim_end());
        }
    }
}

/// The steps so far, shared between the threads that do them and the one that shows them.
#[derive(Default)]
struct Steps {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Time spent and number of times, by path of names; in the order in which they began.
    spent: BTreeMap<Vec<&'static str>, (usize, Duration, u64)>,
    /// Paths of the steps being done.
    open: Vec<Vec<&'static str>>,
    done: bool,
}

impl Steps {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the step being done on the terminal's current line, from the first second on.
    fn tick(&self) {
        let started = Instant::now();
        let mut shown = false;
        let mut state = self.lock();
        while !state.done {
            let wait = Duration::from_millis(if shown { 250 } else { 1000 });
            state =
                self.changed.wait_timeout(state, wait).map(|(s, _)| s).unwrap_or_else(|e| e.into_inner().0);
            if state.done || started.elapsed() < Duration::from_secs(1) {
                continue;
            }
            if let Some(path) = state.open.last() {
                output::show_progress(format_args!(
                    "{} … {} s",
                    path.join(" › "),
                    started.elapsed().as_secs()
                ));
                shown = true;
            }
        }
        output::erase_progress();
    }
}

impl State {
    /// One line a step, indented under the step that it is a part of.
    fn tree(&self) -> String {
        let mut rows: Vec<_> = self.spent.iter().collect();
        // A step's place is that of the first of each of its ancestors.
        let order = |path: &[&'static str]| -> Vec<usize> {
            (1..=path.len()).map(|n| self.spent.get(&path[..n]).map_or(0, |s| s.0)).collect()
        };
        rows.sort_by_cached_key(|(path, _)| order(path));
        let mut text = String::new();
        for (path, (_, spent, times)) in rows {
            let name = path.last().copied().unwrap_or_default();
            let indent = "  ".repeat(path.len() - 1);
            let times = if *times > 1 { format!("  × {times}") } else { String::new() };
            let _ = writeln!(text, "{:>9.1} ms  {indent}{name}{times}", 1e3 * spent.as_secs_f64());
        }
        text
    }
}

/// Writes down when spans are entered and left.
struct Recorder {
    steps: Arc<Steps>,
}

/// In a span's extensions: its path of names, and when it was entered.
struct Entered {
    path: Vec<&'static str>,
    at: Option<Instant>,
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, _: &span::Attributes<'_>, id: &span::Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let path: Vec<_> = span.scope().from_root().map(|s| s.name()).collect();
        let mut state = self.steps.lock();
        let n = state.spent.len();
        state.spent.entry(path.clone()).or_insert((n, Duration::ZERO, 0)).2 += 1;
        drop(state);
        span.extensions_mut().insert(Entered { path, at: None });
    }

    fn on_enter(&self, id: &span::Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        if let Some(entered) = span.extensions_mut().get_mut::<Entered>() {
            entered.at = Some(Instant::now());
            self.steps.lock().open.push(entered.path.clone());
        }
    }

    fn on_exit(&self, id: &span::Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        if let Some(entered) = span.extensions_mut().get_mut::<Entered>() {
            let mut state = self.steps.lock();
            if let Some(at) = entered.at.take()
                && let Some(spent) = state.spent.get_mut(&entered.path)
            {
                spent.1 += at.elapsed();
            }
            if let Some(i) = state.open.iter().rposition(|p| *p == entered.path) {
                state.open.remove(i);
            }
            // A program may run now, whose terminal it is, too.
            if state.open.is_empty() {
                output::erase_progress();
            }
        }
    }
}
