//! The closing line of the integration tests: how many were skipped for want of a tool. Cargo runs this after
//! `it`.

use std::path::Path;

fn main() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("skipped");
    let list = std::fs::read_to_string(&path).unwrap_or_default();
    let mut tools: Vec<&str> = list.lines().filter_map(|line| line.split(" needs ").nth(1)).collect();
    let n_skipped = tools.len();
    tools.sort_unstable();
    tools.dedup();
    let _none = std::fs::remove_file(path);
    let missing = if tools.is_empty() { String::new() } else { format!(" (missing: {})", tools.join(", ")) };
    let line = format!("needs: {n_skipped} integration tests skipped{missing}\n");
    std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("cargo reads what tests print");
}
