//! How much ran of each source line.
//!
//! An instruction is of the line that the line table has it in: of inlined code, the line in the function
//! that was inlined. What is of no known line is kept apart, so that all adds up to what ran.

use profile::Profile;
use profile::calls::Cuts;
use profile::flow;
use program::{Lines, Program, Va};
use std::collections::BTreeMap;

/// A line of a source file; `None` is code that is of none that is known.
pub type Line = Option<(String, u32)>;

/// How many instructions ran of each line of `program`, those of padding too where that is sure.
pub fn run(profile: &Profile, program: &Program) -> BTreeMap<Line, u64> {
    let lines = Lines::load(&program.image);
    let cuts = Cuts::of(profile, program);
    let mut sums: BTreeMap<Line, u64> = BTreeMap::new();
    // Most instructions are of the line of the one before.
    let mut last: (Line, u64) = (None, 0);
    let mut add = |at: Va, n: u64| {
        let line = lines.as_ref().and_then(|lines| lines.at(at)).filter(|(_, line)| *line > 0);
        let is_same = line == last.0.as_ref().map(|(file, line)| (file.as_str(), *line));
        if !is_same {
            let whole = line.map(|(file, line)| (file.to_owned(), line));
            let (line, n) = std::mem::replace(&mut last, (whole, 0));
            let sum = sums.entry(line).or_insert(0);
            *sum = sum.saturating_add(n);
        }
        last.1 = last.1.saturating_add(n);
    };
    for func in program.func_ids() {
        for block in program.function(func).block_ids() {
            let Some(&n) = profile.blocks.get(&program.block(block).start).filter(|n| **n > 0) else {
                continue;
            };
            program.insns(block).for_each(|insn| add(insn.at(), cuts.count(block, insn.at(), n)));
        }
        for (block, n) in flow::padding_run(program, func, profile, &cuts) {
            program.insns_in(&program.padding_behind(block)).for_each(|insn| add(insn.at(), n));
        }
    }
    let (line, n) = last;
    let sum = sums.entry(line).or_insert(0);
    *sum = sum.saturating_add(n);
    sums.retain(|_, n| *n > 0);
    sums
}
