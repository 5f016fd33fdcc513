//! PADRONE's figure 5: a process that runs is sampled, its hot function found, and its calls measured.
//! `cargo run -p session --example hot_ipc -- PID`

use live::{Event, Rate, Wanted};
use program::Loops;
use session::{CallsWanted, Sampler, Store, measure_calls};
use std::error::Error;
use std::time::Duration;

/// What figure 6 shows, of process `pid`.
pub fn hot_ipc(pid: i32) -> Result<Vec<String>, Box<dyn Error>> {
    let wanted = Wanted { events: vec![Event::clock()], rate: Rate::Hertz(1000), chains: None };
    let sampled = Sampler::profile(&[pid], wanted, Duration::from_secs(1))?;
    let (module, at) = sampled.most_frequent().ok_or("it was on no processor")?;
    let func = module.program.function_at(at).ok_or("it is in no function")?;
    let function = module.program.function(func);
    let mut said = vec![format!("number of samples: {}; most frequent ip = {at}", sampled.samples.len())];
    said.push(format!("function address = {} ({})", function.entry, function.name()));
    let loops = Loops::compute(&module.program, func).len();
    said.push(format!("{} blocks, {loops} loops", function.block_ids().count()));
    let (store, name) = (Store::open(None, &std::env::temp_dir())?, function.name());
    let calls = CallsWanted::of(pid, &name, 10);
    let measured = measure_calls(&store, &calls, &|long| [std::thread::park_timeout(long)].len() == 1)?;
    let ipc = measured.ipc.ok_or("no call came back")?;
    said.extend(ipc.calls.iter().map(|call| format!("{name}: ipc = {:.6}", call.ipc().unwrap_or(f64::NAN))));
    Ok(said)
}

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args().nth(1).ok_or("name a process")?.parse()?;
    hot_ipc(pid)?.iter().for_each(|line| eprintln!("{line}"));
    Ok(())
}
