//! PADRONE's figure 7: the hot function of a process that runs is replaced by machine code of ours.
//! `cargo run -p session --example replace_hot -- PID CODE`

use live::{Event, Rate, Wanted};
use probe::graft::Graft;
use session::{Replacement, RunningProgram, Sampler};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// Has the code in the file `code` stand in for the hot function of process `pid`; the function.
pub fn replace_hot(pid: i32, code: &Path) -> Result<String, Box<dyn Error>> {
    let wanted = Wanted { events: vec![Event::clock()], rate: Rate::Hertz(1000), chains: None };
    let sampled = Sampler::profile(&[pid], wanted, Duration::from_secs(1))?;
    let (hot, at) = sampled.most_frequent().ok_or("it was on no processor")?;
    let process = RunningProgram::of(pid)?;
    let n = process.module_paths().position(|path| path == hot.path).ok_or("its module is gone")?;
    let module = process.module(n)?;
    let func = module.program.function_at(at).ok_or("it is in no function")?;
    let graft = Graft::of_code(&code.display().to_string(), &std::fs::read(code)?);
    Replacement::new(&process, &module, func, &graft, None)?.put_in(&[])?;
    Ok(module.program.function(func).name())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (pid, code) = words.next().zip(words.next()).ok_or("name a process and a file")?;
    eprintln!("{} is replaced", replace_hot(pid.parse()?, code.as_ref())?);
    Ok(())
}
