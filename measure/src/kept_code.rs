//! What a recording keeps of a program's code: all that its counts are looked at with.

use probe::{Module, NotMoved};
use profile::{Profile, calls};
use program::{Callee, Catalogue, Excerpt, ExcerptError, FuncId, Image, Lines, Program, Remark, Va};
use std::collections::BTreeSet;

/// Of `program`: the functions that ran by `profile`, with their code and lines; those without counts which
/// they call or are called by, and the names of all others that have none.
pub fn excerpt(program: &Program, profile: &Profile) -> Excerpt {
    excerpt_with(program, profile, |_| Lines::load(&program.image))
}

/// The same, with the source lines that `lines` gives of the functions that ran.
pub fn excerpt_with(
    program: &Program,
    profile: &Profile,
    lines: impl FnOnce(&BTreeSet<FuncId>) -> Option<Lines>,
) -> Excerpt {
    let ran = ran(program, profile);
    let not_moved = Module::not_moved(program);
    let why = |id: FuncId| not_moved.get(id.index()).copied().flatten();
    let entries: BTreeSet<Va> = ran.iter().map(|&id| program.function(id).entry).collect();
    let referred = calls::referred(program, &entries);
    let remark = |id: FuncId| Remark {
        is_referred: referred.contains(&program.function(id).entry),
        not_moved: why(id).map(|why| why.to_string()),
    };
    let others = program.func_ids().filter(|&id| why(id).is_some_and(|why| why != NotMoved::PltStub));
    Excerpt::of(program, &ran, others, remark, lines(&ran).as_ref())
}

/// What excerpts are taken from without `program`, of which `not_moved` says what has no counts.
pub fn catalogue(program: &Program, not_moved: &[Option<NotMoved>]) -> Catalogue {
    let entries: BTreeSet<Va> = program.functions.iter().map(|function| function.entry).collect();
    let referred = calls::referred(program, &entries);
    let why = |id: FuncId| not_moved.get(id.index()).copied().flatten();
    Catalogue::of(program, |id| Remark {
        is_referred: referred.contains(&program.function(id).entry),
        not_moved: why(id).map(|why| why.to_string()),
    })
}

/// Of the program that `catalogue` was made of, all functions that an excerpt of `profile` may take: those of
/// which a block may have run, and those without counts.
///
/// # Errors
/// If it is not the catalogue of `image`.
pub fn that_may_have_run(
    catalogue: &Catalogue,
    image: &Image,
    profile: &Profile,
) -> Result<Program, ExcerptError> {
    let n = catalogue.n_functions() as usize;
    let (mut has_run, mut has_counts) = (vec![false; n], vec![false; n]);
    let mark = |marks: &mut Vec<bool>, function: u32| {
        if let Some(mark) = marks.get_mut(function as usize) {
            *mark = true;
        }
    };
    let mut ranges = catalogue.ranges().iter().peekable();
    for (&at, &n) in &profile.blocks {
        while ranges.next_if(|(range, _)| range.end <= at).is_some() {}
        let Some((_, function)) = ranges.peek().filter(|(range, _)| range.contains(&at)) else { continue };
        mark(&mut has_counts, *function);
        if n > 0 || profile.intervals.blocks.get(&at).is_some_and(|between| between.1 > 0) {
            mark(&mut has_run, *function);
        }
    }
    for (at, _) in profile.entries.that_ran() {
        let n = catalogue.ranges().partition_point(|(range, _)| range.end <= at);
        if let Some((_, function)) = catalogue.ranges().get(n).filter(|(range, _)| range.contains(&at)) {
            mark(&mut has_run, *function);
        }
    }
    let may_matter = |(n, (has_run, has_counts)): (u32, (&bool, &bool))| {
        (*has_run || !has_counts || !catalogue.is_moved(n)).then_some(n)
    };
    let wanted = (0..).zip(has_run.iter().zip(&has_counts)).filter_map(may_matter).collect();
    catalogue.take(image, &wanted)
}

/// The functions of which a block may have run, and those without counts that they call, or that call them.
fn ran(program: &Program, profile: &Profile) -> BTreeSet<FuncId> {
    let may_have_run = |at: &Va| profile.block(*at).is_some_and(|n| n.most > 0);
    let off = profile.intervals.blocks.keys().copied();
    let blocks = profile.blocks.that_ran().map(|(at, _)| at).chain(off).filter(may_have_run);
    let entries = profile.entries.that_ran().map(|(at, _)| at);
    let mut ran: BTreeSet<FuncId> = blocks.chain(entries).filter_map(|at| program.function_at(at)).collect();
    // Of an excerpt, what can be counted and has no blocks was left out: it has counts.
    let is_left_out = |id: FuncId| {
        program.function(id).n_blocks() == 0 && program.remark(id).is_some_and(|r| r.not_moved.is_none())
    };
    let has_counts = |id: FuncId| {
        is_left_out(id) || program.blocks_of(id).iter().any(|block| profile.blocks.contains_key(&block.start))
    };
    let called = program.calls.iter().filter_map(|call| match call.callee {
        Callee::Function(callee) if may_have_run(&program.block(call.block).start) => Some(callee),
        _ => None,
    });
    let called: Vec<FuncId> = called.filter(|&id| !has_counts(id)).collect();
    // Who called what ran, and has no counts, is sure to have run itself if nobody else can have.
    let was_entered =
        |callee: FuncId| profile.entered(program.function(callee).entry).is_some_and(|n| n.most > 0);
    let callers = program.calls.iter().filter_map(|call| match call.callee {
        Callee::Function(callee) if was_entered(callee) => Some(program.block(call.block).func),
        _ => None,
    });
    let callers: BTreeSet<FuncId> = callers.collect();
    ran.extend(called);
    ran.extend(callers.into_iter().filter(|&id| !has_counts(id)));
    ran
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::compiled;
    use program::KnownLines;
    use std::io::Write as _;

    const SOURCE: &str = "\
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int leaf(int x) { return x * 3; }
__attribute__((noinline)) int first(int x) { return x > 2 ? leaf(x) : abs(x - 7); }
__attribute__((noinline)) int second(int x) { if (x > 9) exit(leaf(x)); return first(x) + leaf(x); }
__attribute__((noinline)) int third(int x) { return x ? second(x - 1) + third(x - 1) : puts(\"x\"); }
int (*volatile by_address)(int) = first;
int main(int argc, char **argv) { return by_address(argc) + third(argc) + atoi(argv[0]); }
";

    /// A profile of `program` in which some functions ran, some did not, and of some nothing is known.
    fn profile(program: &Program, mut seed: u64) -> Profile {
        let mut profile = Profile::default();
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 61
        };
        for function in &program.functions {
            match next() {
                0 | 1 => continue,
                ran => {
                    let n = if ran < 5 { 0 } else { ran };
                    for id in function.block_ids() {
                        profile.blocks.insert(program.block(id).start, if next() < 4 { n } else { 0 });
                    }
                    profile.entries.insert(function.entry, if next() < 4 { n } else { 0 });
                }
            }
            if next() == 0 {
                profile.intervals.blocks.insert(function.entry, (0, 1));
            }
        }
        profile
    }

    /// What the whole program says is what its catalogue says.
    #[test]
    fn an_excerpt_is_the_same_with_and_without_the_program() {
        let mut n_with_lines = 0;
        for flags in ["-O2 -g", "-O0 -no-pie", "-O1 -fcf-protection=full -static"] {
            let program = compiled(SOURCE, "c", flags);
            let catalogue = catalogue(&program, &Module::not_moved(&program));
            let written = catalogue.into_bytes();
            let mut file = tempfile::tempfile().expect("a temporary file");
            file.write_all(&written).expect("written");
            let in_memory = Catalogue::parse(written).expect("it was written so");
            let in_file = Catalogue::open(file).expect("it was written so");
            for seed in 0..40 {
                let profile = profile(&program, seed);
                let catalogue = if seed % 2 == 0 { &in_memory } else { &in_file };
                let part = that_may_have_run(catalogue, &program.image, &profile).expect("it is whole");
                assert!(part.functions.len() < program.functions.len() || seed > 0);
                let lines = || Lines::load(&program.image);
                let taken = excerpt_with(&part, &profile, |_| lines());
                assert!(taken == excerpt(&program, &profile), "{flags}, seed {seed}");
                assert!(!taken.has_lines() || flags.contains("-g"), "{flags}, seed {seed}");
                n_with_lines += usize::from(taken.has_lines());
                // What was kept once is as good as what debug information says.
                let again = excerpt_with(&part, &profile, |ran| KnownLines::of(&taken).lines(&part, ran));
                assert!(taken == again, "{flags}, seed {seed}");
            }
        }
        assert!(n_with_lines > 20, "{n_with_lines}");
    }

    #[test]
    fn a_catalogue_that_is_cut_off_or_changed_gives_no_functions_or_fails() {
        let program = compiled(SOURCE, "c", "-O1");
        let whole = catalogue(&program, &Module::not_moved(&program)).into_bytes();
        let all: BTreeSet<u32> = (0..).take(program.functions.len()).collect();
        for len in 0..whole.len() {
            let Some(cut) = Catalogue::parse(whole[..len].to_vec()) else { continue };
            assert!(cut.take(&program.image, &all).is_err(), "{len} of {}", whole.len());
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            let Some(changed) = Catalogue::parse(changed) else { continue };
            assert!(changed.take(&program.image, &all).is_err(), "{at} of {}", whole.len());
        }
        let whole = Catalogue::parse(whole).expect("it was written so");
        assert!(whole.take(&program.image, &all).is_ok());
    }
}
