//! Times the parts of the analysis of a file on one thread: `cargo run --release -p program --example analyze
//! -- FILE…`.
//!
//! Prints for each file, in milliseconds of processor time: loading, blocks and edges, loops, liveness; then
//! how many blocks begin with all arithmetic flags dead, and with how many general registers dead. With
//! `VERIFY` set, also what the verifier finds.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use program::arch::abi;
use program::{Conventions, Image, Loops, Program};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global()?;
    for path in std::env::args_os().skip(1) {
        let start = Instant::now();
        let image = Image::load(path.as_ref())?;
        let code: u64 = image.code_ranges().iter().map(|r| r.end.since(r.start)).sum();
        let loaded = Instant::now();
        let program = Program::analyze(image);
        let analyzed = Instant::now();
        let n_loops: usize = program.func_ids().map(|f| Loops::compute(&program, f).len()).sum();
        let looped = Instant::now();
        let (_, live) = Conventions::compute(&program);
        let done = Instant::now();
        let ms = |a: Instant, b: Instant| b.duration_since(a).as_secs_f64() * 1e3;
        println!(
            "{}: load {:.1} cfg {:.1} loops {:.1} liveness {:.1} ms; {code} bytes of code, {:.1} MB/s; {} blocks, {n_loops} loops",
            path.to_string_lossy(),
            ms(start, loaded),
            ms(loaded, analyzed),
            ms(analyzed, looped),
            ms(looped, done),
            code as f64 / 1e3 / ms(start, done),
            program.blocks.len(),
        );
        if std::env::var_os("VERIFY").is_some() {
            let violations = program.verify();
            violations.iter().take(20).for_each(|v| println!("  {v}"));
            println!("  {} promises broken", violations.len());
        }
        let (mut flags, mut free) = (0usize, [0usize; 4]);
        for l in &live {
            for b in program.function(l.func).block_ids() {
                let dead = abi::ALL.minus(l.live_in(b));
                flags += usize::from(dead.holds(abi::FLAGS));
                let general = dead.both(abi::GENERAL).len();
                free[usize::try_from(general).unwrap_or(3).min(3)] += 1;
            }
        }
        let share = |n: usize| 100.0 * n as f64 / program.blocks.len().max(1) as f64;
        println!(
            "  flags dead {:.1} %; general registers dead: none {:.1} %, one {:.1} %, two {:.1} %, more {:.1} %",
            share(flags),
            share(free[0]),
            share(free[1]),
            share(free[2]),
            share(free[3])
        );
    }
    Ok(())
}
