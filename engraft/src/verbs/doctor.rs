//! `engraft doctor`: what works on this machine, and why not.

use crate::output::{Answer, Output};
use crate::verbs::count;
use views::doctor::{Check, DoctorView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft doctor
  $ engraft doctor --json";

/// Say what works on this machine, and why not
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let view = DoctorView { schema: DoctorView::SCHEMA, checks: checks() };
    args.output.print(&view)?;
    Ok(if view.checks.iter().all(|c| c.works || c.is_spare) { Answer::Yes } else { Answer::No })
}

fn checks() -> Vec<Check> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let check = |check: session::doctor::Check| {
        let works = check.found.is_ok();
        Check {
            what: check.what,
            verbs: check.verbs,
            is_spare: check.is_spare,
            works,
            why: check.found.unwrap_or_else(|why| why),
        }
    };
    let (cache, temporary) = (count::cache_folder(), std::env::temp_dir());
    session::doctor::checks(&search, cache.as_deref(), &temporary).into_iter().map(check).collect()
}
