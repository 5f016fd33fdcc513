//! Folded stacks: what flame graph tools read (inferno, flamegraph.pl, speedscope).
//!
//! ```text
//! luaV_execute;luaV_equalobj 15000       outermost first, `;` between frames, then instructions executed, or
//!                                        samples
//! ```
//! Of samples of instructions the numbers are samples: they add up to what was taken. Those of a block are
//! spread over its instructions evenly, since a profile counts blocks.
//!
//! A frame is a function; where DWARF is there, the functions that were inlined stand behind the one they
//! were inlined into. Callers are not in it: a profile of counts does not know them. So it is only written:
//! names lead back to no block.

use crate::complete::calls::Cuts;
use crate::complete::flow;
use crate::counts::Profile;
use crate::formats::lines::source::{BlockSource, counted_blocks};
use crate::losses::Losses;
use crate::vocabulary::Written;
use program::{Lines, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Whether a text starts as such a file.
pub(crate) fn is_one(text: &str) -> bool {
    let line = text.lines().find(|l| !l.is_empty());
    let fields = line.and_then(|l| l.rsplit_once(' '));
    fields.is_some_and(|(stack, n)| stack.contains(';') && !stack.contains(' ') && n.parse::<u64>().is_ok())
}

/// Writes the instructions executed, by function and inlined function.
pub fn write(profile: &Profile, program: &Program) -> Written {
    let lines = Lines::load(&program.image);
    let mut lost = Losses::default();
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    let mut functions = BTreeSet::new();
    let mut count = 0u64;
    let samples = profile.is_of_points();
    let cuts = Cuts::of(profile, program);
    for (id, n) in counted_blocks(profile, program, &mut lost) {
        let func = program.block(id).func;
        functions.insert(func);
        count = count.saturating_add(n);
        let outer = frame(&program.function(func).name());
        let insns = BlockSource::of(program, lines.as_ref(), id).insns;
        let n_insns = insns.len() as u128;
        let at = program.insns(id).map(|insn| insn.at());
        for ((i, insn), at) in (0_u128..).zip(insns).zip(at) {
            let n = match samples {
                true => spread(n, i, n_insns),
                false => cuts.count(id, at, n),
            };
            // The outermost frame is the function itself: the symbol's name is the better one for clones.
            let inlined = insn.iter().rev().skip(1).filter_map(|f| f.function.as_deref());
            let stack = inlined.fold(outer.clone(), |stack, name| stack + ";" + &frame(name));
            let sum = stacks.entry(stack).or_insert(0);
            *sum = sum.saturating_add(n);
        }
    }
    // What is between blocks is of no line.
    for func in functions.iter().copied().filter(|_| !samples) {
        let padding = flow::padding_run(program, func, profile, &cuts).into_iter();
        let ran = padding.map(|(b, n)| n.saturating_mul(program.n_insns_in(&program.padding_behind(b))));
        let sum = stacks.entry(frame(&program.function(func).name())).or_insert(0);
        *sum = ran.fold(*sum, u64::saturating_add);
    }
    let mut text = String::new();
    for (stack, n) in stacks.iter().filter(|(_, n)| **n > 0) {
        let _ = writeln!(text, "{stack} {n}");
    }
    Written { bytes: text.into_bytes(), n_functions: functions.len(), count, lost: lost.into_list() }
}

/// The part of `n` that the `i`th of `of` gets; the parts add up to `n`.
fn spread(n: u64, i: u128, of: u128) -> u64 {
    let up_to = |i: u128| u128::from(n) * i / of.max(1);
    u64::try_from(up_to(i + 1) - up_to(i)).unwrap_or(n)
}

/// A name without what separates frames.
pub(crate) fn frame(name: &str) -> String {
    name.replace([';', '\n'], ":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::compile;

    #[test]
    fn instructions_go_to_the_function_and_to_what_is_inlined_in_it() {
        let text = "volatile int v;\nstatic inline __attribute__((always_inline)) void in(int x) { v = x; v = x; }\n\
                    __attribute__((noinline)) void out(int x) { in(x); v = 1; }\nint main(void) { out(1); return 0; }\n";
        let program = compile(text, "c", &["-O1", "-g"]);
        let out = crate::testing::function(&program, "out");
        let entry = program.function(out).entry;
        let profile = Profile { blocks: [(entry, 10)].into(), ..Profile::default() };
        let written = String::from_utf8(write(&profile, &program).bytes).unwrap();
        let n_insns = u64::from(program.block(program.block_from(entry).unwrap()).n_insns);
        let totals: Vec<(&str, u64)> = written
            .lines()
            .map(|l| l.rsplit_once(' ').unwrap())
            .map(|(s, n)| (s, n.parse().unwrap()))
            .collect();
        assert_eq!(totals.iter().map(|(s, _)| *s).collect::<Vec<_>>(), ["out", "out;in"]);
        assert_eq!(totals.iter().map(|(_, n)| n).sum::<u64>(), n_insns * 10);
        assert_eq!(totals[1].1, 20, "two stores were inlined");
    }

    /// One sample is one, however long its block is.
    #[test]
    fn samples_add_up_to_what_was_taken() {
        let program = compile(
            "int f(int *p, int n) { p[0] = n; p[1] = n; p[2] = n; return n; } int main(void) { return 0; }",
            "c",
            &["-O1"],
        );
        let entry = program.function(crate::testing::function(&program, "f")).entry;
        let of = |exactness, n| Profile { blocks: [(entry, n)].into(), exactness, ..Profile::default() };
        let n_insns = u64::from(program.block(program.block_from(entry).unwrap()).n_insns);
        for (exactness, n, want) in [
            (crate::Exactness::Sampled, 1, 1),
            (crate::Exactness::Sampled, 25, 25),
            (crate::Exactness::Sampled, u64::MAX, u64::MAX),
            (crate::Exactness::Exact, 25, 25 * n_insns),
        ] {
            let text = String::from_utf8(write(&of(exactness, n), &program).bytes).unwrap();
            let sum: u64 = text.lines().map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
            assert_eq!(sum, want, "{text}");
        }
    }
}
