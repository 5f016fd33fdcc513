//! Draws a function: `draw FILE NAME [instructions|counts] >PICTURE.svg`. `counts` makes some up, to see how they look.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use program::layout::{Counts, Style, svg};
use program::{Image, Program};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, name, mode @ ..] = args.as_slice() else { return Err("usage: draw FILE NAME".into()) };
    let program = Program::analyze(Image::load(file.as_ref())?);
    let func = program.func_ids().find(|&f| program.function(f).name() == *name).ok_or("no such function")?;
    let style = Style { instructions: mode.iter().any(|m| m == "instructions") };
    let made_up = |n: u32| Some(if n.is_multiple_of(3) { 0 } else { u64::from(n) * u64::from(n) });
    let counts = Counts { block: &|b| made_up(b.0), edge: &|e| made_up(e.0) };
    let counts = mode.iter().any(|m| m == "counts").then_some(&counts);
    print!("{}", svg(&program, func, style, counts));
    Ok(())
}
