//! `engraft carry`: a profile of one build becomes a profile of a later one.

use crate::input;
use crate::out::Answer;
use crate::view::{Output, Table, View, share};
use matching::{CarryOptions, CarryReport, LossReason, Matching, Options, carry};
use profile::Written;
use program::Program;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use tracing::info_span;

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft carry old new --profile old.callgrind -o new.fdata
  $ engraft carry old new --profile old.callgrind -o new.engraft --json";

/// Carry a profile of OLD to NEW, and on to every later build named
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The build that the profile is of
    old: PathBuf,
    /// The builds after it, in order; the result is a profile of the last
    #[arg(required = true)]
    new: Vec<PathBuf>,
    /// Profile of OLD, in any format that can be read
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// Where to write the carried profile; its extension says the format
    #[arg(short, value_name = "FILE")]
    o: PathBuf,
    /// Write it in this format, whatever the extension
    #[arg(long, value_name = "FORMAT", value_parser = input::format_named)]
    to: Option<profile::Format>,
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let mut old = input::program(&args.old)?;
    input::output_format(&args.o, args.to)?;
    let mut counts = input::profile(&args.profile, Some(&old))?.profile;
    let mut steps = Vec::new();
    for path in &args.new {
        let new = input::program(path)?;
        let matching = info_span!("match").in_scope(|| Matching::compute(&old, &new, &Options::all()));
        let carried =
            info_span!("carry").in_scope(|| carry(&old, &new, &matching, &counts, &CarryOptions::default()));
        steps.push(step(&old, &new, &carried.report));
        (old, counts) = (new, carried.profile);
    }
    let written = input::write_profile(&args.o, args.to, &counts, Some(&old))?;
    let view = CarryView {
        schema: "engraft.carry/1",
        profile: args.profile.display().to_string(),
        steps,
        written: written_view(&args.o, &written),
    };
    args.output.print(&view)?;
    Ok(if written.n_functions == 0 { Answer::No } else { Answer::Yes })
}

/// What became of a profile.
#[derive(Serialize)]
pub struct CarryView {
    schema: &'static str,
    profile: String,
    steps: Vec<StepView>,
    written: WrittenView,
}

#[derive(Serialize)]
struct StepView {
    old: String,
    new: String,
    old_count: u64,
    carried_count: u64,
    carried_share: f64,
    new_count: u64,
    changed_count: u64,
    n_functions_ran: usize,
    n_functions_carried: usize,
    n_new_functions: usize,
    lost: Vec<LossView>,
}

#[derive(Serialize)]
struct LossView {
    function: Option<String>,
    why: &'static str,
    count: u64,
    n_blocks: usize,
}

/// What a profile's file holds, and what it could not hold.
#[derive(Serialize)]
pub struct WrittenView {
    file: String,
    n_functions: usize,
    count: u64,
    left_out: Vec<LeftOutView>,
}

#[derive(Serialize)]
struct LeftOutView {
    what: String,
    why: String,
    count: u64,
}

fn step(old: &Program, new: &Program, report: &CarryReport) -> StepView {
    #[expect(clippy::cast_precision_loss, reason = "a share is for comparing")]
    let carried_share = report.carried_count as f64 / report.old_count.max(1) as f64;
    StepView {
        old: old.image.name.clone(),
        new: new.image.name.clone(),
        old_count: report.old_count,
        carried_count: report.carried_count,
        carried_share,
        new_count: report.new_count,
        changed_count: report.changed_count,
        n_functions_ran: report.n_functions_ran,
        n_functions_carried: report.n_functions_carried,
        n_new_functions: report.n_new_functions,
        lost: report
            .losses
            .iter()
            .map(|l| LossView {
                function: l.old.map(|f| old.function(f).name()),
                why: match l.reason {
                    LossReason::NotInOld => "OLD has no place for these records",
                    LossReason::FunctionUnmatched => "the function has no counterpart",
                    LossReason::BlockUnmatched => "blocks without a counterpart",
                },
                count: l.count,
                n_blocks: l.n_blocks,
            })
            .collect(),
    }
}

/// What was written to `file`.
pub fn written_view(file: &std::path::Path, written: &Written) -> WrittenView {
    WrittenView {
        file: file.display().to_string(),
        n_functions: written.n_functions,
        count: written.count,
        left_out: written
            .lost
            .iter()
            .map(|l| LeftOutView { what: l.what.clone(), why: l.why.clone(), count: l.count })
            .collect(),
    }
}

impl WrittenView {
    /// For people: the file, and the largest of what is not in it.
    pub fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        writeln!(w, "wrote {}: {} functions", self.file, self.n_functions)?;
        if self.left_out.is_empty() {
            return Ok(());
        }
        writeln!(w, "\nnot in the file:")?;
        let mut t = Table::new(&["count>", "what", "why"]);
        for l in self.left_out.iter().take(LISTED) {
            t.row([l.count.to_string(), l.what.clone(), l.why.clone()]);
        }
        t.text(w)?;
        more(w, self.left_out.len())
    }
}

/// How many losses people get to read; JSON has all of them.
const LISTED: usize = 10;

fn more(w: &mut dyn Write, n: usize) -> io::Result<()> {
    if n > LISTED { writeln!(w, "and {} more: --json lists them", n - LISTED) } else { Ok(()) }
}

impl View for CarryView {
    /// A row a loss.
    fn table(&self) -> Table {
        let mut t = Table::new(&["old", "new", "function", "count>", "blocks>", "why"]);
        for s in &self.steps {
            for l in &s.lost {
                t.row([
                    s.old.clone(),
                    s.new.clone(),
                    l.function.clone().unwrap_or_default(),
                    l.count.to_string(),
                    l.n_blocks.to_string(),
                    l.why.into(),
                ]);
            }
        }
        t
    }

    fn text(&self, w: &mut dyn Write) -> io::Result<()> {
        for s in &self.steps {
            writeln!(w, "{} → {}", s.old, s.new)?;
            writeln!(
                w,
                "  {} of {} functions that ran are there; {} of the executions of blocks",
                s.n_functions_carried,
                s.n_functions_ran,
                share(s.carried_share)
            )?;
            if s.n_new_functions > 0 {
                writeln!(w, "  {} new functions have counts from their callers", s.n_new_functions)?;
            }
            if !s.lost.is_empty() {
                writeln!(w, "  lost:")?;
                let mut t = Table::new(&["", "count>", "blocks>", "function", "why"]);
                for l in s.lost.iter().take(LISTED) {
                    let function = l.function.clone().unwrap_or_default();
                    t.row([
                        String::new(),
                        l.count.to_string(),
                        l.n_blocks.to_string(),
                        function,
                        l.why.into(),
                    ]);
                }
                t.text(w)?;
                more(w, s.lost.len())?;
            }
            writeln!(w)?;
        }
        self.written.text(w)
    }
}
