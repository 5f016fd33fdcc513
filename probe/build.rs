//! Compiles the runtime's routines in Rust (`src/arch/x86_64/runtime/*.rs` of [`ROUTINES`]) to assembly,
//! which is joined to the runtime's own.
//!
//! They run inside programs, at whatever address, where nothing of ours is linked and no vector register may
//! change: so what would need a relocation, a call or such a register is refused here, as far as the text
//! shows it. The object that rustc makes of the same goes beside it: a test of the runtime reads that, and
//! compares its bytes with what the text became.
//!
//! What it costs: 0.3 s a routine when that changes; raw pointers in place of slices, whose bounds bring in a
//! panic; no loops that become `memset`; and some instructions more than by hand.

use std::path::Path;
use std::process::Command;

/// Routines in Rust, each a file and a function of this name.
const ROUTINES: &[&str] = &["join_callees"];

fn main() {
    let from = Path::new("src/arch/x86_64");
    let out = std::env::var("OUT_DIR").expect("cargo says where to write");
    println!("cargo::rerun-if-changed={}", from.join("shared.rs").display());
    for name in ROUTINES {
        let file = from.join("runtime").join(name).with_extension("rs");
        println!("cargo::rerun-if-changed={}", file.display());
        let to = Path::new(&out).join(name).with_extension("s");
        let rustc = std::env::var("RUSTC").expect("cargo says how to compile");
        let done = Command::new(rustc)
            .args(["--edition=2024", "--crate-type=lib", "-Copt-level=s", "-Cpanic=abort", "-Awarnings"])
            .args(["-Cno-vectorize-loops", "-Cno-vectorize-slp", "-Crelocation-model=pic"])
            .args(["-Coverflow-checks=off", "-Cforce-unwind-tables=no", "-Cllvm-args=-x86-asm-syntax=intel"])
            .arg(&file)
            .arg(format!("--emit=asm={},obj={}", to.display(), to.with_extension("o").display()))
            .status()
            .expect("rustc can be run");
        assert!(done.success(), "{} does not compile", file.display());
        let text = std::fs::read_to_string(&to).expect("it was just written");
        std::fs::write(&to, routine(name, &text)).expect("it can be written again");
    }
}

/// The code of the function `name` in `text`, with labels that are its own.
fn routine(name: &str, text: &str) -> String {
    let mut code = String::new();
    let from = text.lines().skip_while(|line| *line != format!("{name}:")).skip(1);
    for line in from.take_while(|line| !line.starts_with(".Lfunc_end")) {
        let line = line.split('#').next().unwrap_or_default().trim_end();
        let word = line.split_whitespace().next().unwrap_or_default();
        let is_label = word.starts_with(".L") && word.ends_with(':');
        if word.is_empty() {
            continue;
        }
        // Whatever else a directive did, be it data, alignment or another section, would be lost.
        assert!(is_label || !word.starts_with('.'), "{name}: `{line}` is no instruction");
        let jumps = word.starts_with('j');
        // Vector registers, those of x87 and its instructions, masks, and what needs a relocation.
        let refused = ["mm", "st(", "rip", "call", "{", "@"].iter().find(|what| line.contains(**what));
        let is_plain = refused.is_none() && !word.starts_with(['f', 'k', 'v']);
        assert!(is_plain, "{name}: `{line}` cannot run inside a program");
        assert!(!jumps || line.contains(".L"), "{name}: `{line}` leads out of it");
        code += &line.replace(".LBB", &format!(".Lengraft_rust_{name}_"));
        code.push('\n');
    }
    assert!(code.contains("ret"), "rustc wrote no function {name}");
    code
}
