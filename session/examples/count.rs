//! Counts a program: `cargo run -p session --example count -- PROGRAM ARGS`.

use session::{CountedRun, Instrumentation, ModuleFilter, Modules, Placement, Prepared, Store};
use std::error::Error;
use std::ffi::OsString;

/// The profiles of the modules of the program that `command` starts, after its end.
pub fn count(command: &[OsString]) -> Result<Vec<profile::Profile>, Box<dyn Error>> {
    let (name, args) = command.split_first().ok_or("name a program")?;
    let (store, wanted) = (Store::open(None, &std::env::temp_dir())?, ModuleFilter::new(&["all"]));
    let target = session::find(name, "/usr/bin:/bin".as_ref())?;
    let modules = Modules::of(&store, &target)?;
    let prepared = Prepared::new(&store, &wanted, modules, Instrumentation::new(Placement::Edges))?;
    Ok(CountedRun::new(prepared, &target, name, args)?.collect(false)?.profiles)
}

fn main() -> Result<(), Box<dyn Error>> {
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    for profile in count(&command)? {
        let n_ran = profile.blocks.values().filter(|n| **n > 0).count();
        eprintln!("{}: {n_ran} of {} blocks ran", profile.image.name, profile.blocks.len());
    }
    Ok(())
}
