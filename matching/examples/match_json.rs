//! Prints what `score-match.py` reads: the functions and blocks of NEW with what they were in OLD.
//!
//! `match_json OLD NEW [--without PASS]…`

use matching::{Matching, Options};
use program::{Image, Program};
use std::fmt::Write as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    let mut options = Options::all();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--without" => options = options.without(args.next().unwrap_or_default().parse()?),
            _ => files.push(arg),
        }
    }
    let [old, new] = files.as_slice() else {
        return Err("usage: match_json OLD NEW [--without PASS]…".into());
    };
    let old = Program::analyze(Image::load(old.as_ref())?);
    let new = Program::analyze(Image::load(new.as_ref())?);
    let m = Matching::compute(&old, &new, &options);
    let mut out = String::from("{\"functions\": [\n");
    for (i, f) in m.functions.iter().enumerate() {
        let (a, b) = (old.function(f.old), new.function(f.new));
        let comma = if i == 0 { "" } else { ",\n" };
        write!(
            out,
            "{comma}{{\"old\": {}, \"new\": {}, \"method\": \"{:?}\", \"confidence\": {:.3}}}",
            a.entry.0, b.entry.0, f.method, f.confidence
        )?;
    }
    out.push_str("\n], \"blocks\": [\n");
    for (i, b) in m.blocks.iter().enumerate() {
        let comma = if i == 0 { "" } else { ",\n" };
        write!(
            out,
            "{comma}{{\"old\": {}, \"new\": {}, \"method\": \"{:?}\", \"confidence\": {:.3}}}",
            old.block(b.old).start.0,
            new.block(b.new).start.0,
            b.method,
            b.confidence
        )?;
    }
    out.push_str("\n], \"data\": [\n");
    for (i, d) in m.data.iter().enumerate() {
        let comma = if i == 0 { "" } else { ",\n" };
        let (a, b) = (&old.data[d.old], &new.data[d.new]);
        write!(
            out,
            "{comma}{{\"old\": {}, \"new\": {}, \"method\": \"{:?}\"}}",
            a.range.start.0, b.range.start.0, d.method
        )?;
    }
    out.push_str("\n]}\n");
    std::io::Write::write_all(&mut std::io::stdout().lock(), out.as_bytes())?;
    Ok(())
}
