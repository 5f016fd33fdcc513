//! `engraft doctor`: what works on this machine, and why not; tried, not guessed, where that is possible.

use crate::count;
use crate::output::{Answer, Output};
use std::path::Path;
use views::doctor::{Check, DoctorView};

/// Run as tests.
const EXAMPLES: &str = "\
Examples:
  $ engraft doctor
  $ engraft doctor --json";

/// Say what works on this machine, and why not
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    output: Output,
}

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let view = DoctorView { schema: DoctorView::SCHEMA, checks: checks() };
    args.output.print(&view)?;
    Ok(if view.checks.iter().all(|c| c.works) { Answer::Yes } else { Answer::No })
}

fn checks() -> Vec<Check> {
    let check = |what, verbs, found: Result<String, String>| {
        let works = found.is_ok();
        Check { what, verbs, works, why: found.unwrap_or_else(|why| why) }
    };
    vec![
        check(
            "reading binaries and profiles",
            "show match carry score convert",
            Ok("needs nothing of the machine".to_owned()),
        ),
        check("moving code", "instrument --null", Ok("needs nothing of the machine".to_owned())),
        check("counters of each thread's own", "count instrument", bases()),
        check("looking into a program before it starts", "count", tracing()),
        check("counting a program (`true`)", "count", count::try_out().map_err(|err| format!("{err:#}"))),
        check("keeping rewritten modules", "count", count::cache_folder().map_err(|err| format!("{err:#}"))),
    ]
}

fn bases() -> Result<String, String> {
    count::needs_proc()
        .map_err(|err| format!("{err}, so it is not known whether programs may set the base of gs"))?;
    match live::can_set_bases() {
        true => Ok("programs may set the base of gs (FSGSBASE)".to_owned()),
        false => Err("programs may not set the base of gs: that takes a processor with FSGSBASE (2012 or later) and Linux 5.9 or later, \
                      started without `nofsgsbase`"
            .to_owned()),
    }
}

/// Yama's setting, where there is one. Source: Linux, Documentation/admin-guide/LSM/Yama.rst.
fn tracing() -> Result<String, String> {
    count::needs_proc().map_err(|err| err.to_string())?;
    let path = Path::new("/proc/sys/kernel/yama/ptrace_scope");
    match std::fs::read_to_string(path).map(|text| text.trim().to_owned()) {
        Ok(scope) if scope == "3" => Err(format!(
            "ptrace is switched off until the next start of the machine ({} is 3)",
            path.display()
        )),
        Ok(scope) => Ok(format!("a parent may trace its child ({} is {scope})", path.display())),
        Err(_) => Ok("ptrace is not restricted by Yama".to_owned()),
    }
}
