//! Signatures of order against what they are defined to say; the paper's example; what is chosen against what
//! its rules choose, done the slow way; and runs, whose intervals are those of call trees.

use super::super::intervals::{Interval, Key, events};
use super::super::log::Side;
use super::super::log::tests::{code, log_of};
use super::super::{Intervals, Was, pairs, read};
use super::*;
use proptest::prelude::*;
use trace::{FuncId, Symbol};

/// The table of a log of so many events.
fn table(log: &[u32], n: usize, landmarks: &[usize]) -> OrdTable {
    let mut table = OrdTable::new(n, landmarks);
    log.iter().for_each(|of| table.see(*of as usize));
    table.end();
    table
}

fn all(n: usize) -> Vec<usize> {
    (0..n).collect()
}

/// Letters as events: A is 0.
fn letters(text: &str) -> Vec<u32> {
    text.bytes().map(|of| u32::from(of - b'A')).collect()
}

/// Events on the stack, the one that was seen last at the end.
fn stack(table: &OrdTable) -> String {
    let stack = &table.stacks[0];
    let down = std::iter::successors(stack.last(), |of| stack.below(*of));
    let found: Vec<u8> = down.map(|of| b'A' + u8::try_from(of).expect("few")).collect();
    found.into_iter().rev().map(char::from).collect()
}

/// Where two tables differ, as pairs of letters.
fn changed(before: &[u64], table: &OrdTable) -> String {
    let n = table.n_columns;
    let name = |at: usize| ['A', 'B', 'C'].get(at).copied().expect("three");
    let cells = before.iter().zip(&table.cells).enumerate().filter(|(_, (a, b))| a != b);
    cells.map(|(at, _)| format!("{}{} ", name(at / n), name(at % n))).collect()
}

/// "Ordering signatures example", step by step: what is on the stack, and which cells are changed.
#[test]
fn the_example_of_the_paper() {
    let mut table = OrdTable::new(3, &all(3));
    let steps = [
        ('A', "A", "AA "),
        ('B', "AB", "AB BA BB "),
        ('C', "ABC", "AC BC CA CB CC "),
        ('B', "ACB", "BB BC CB "),
        ('B', "ACB", "BB "),
        ('A', "CBA", "AA AB AC BA CA "),
    ];
    for (n, (event, on_stack, cells)) in steps.into_iter().enumerate() {
        let before = table.cells.clone();
        table.see(event as usize - 'A' as usize);
        assert_eq!((stack(&table), changed(&before, &table)), (on_stack.into(), cells.into()), "step {n}");
        // What has come behind what once is one number, and what has come before it another.
        if n == 2 {
            let cell = |row: usize, column: usize| table.row(row)[column];
            assert_eq!([cell(0, 1), cell(0, 2), cell(1, 2)], [cell(0, 1); 3]);
            assert_eq!([cell(1, 0), cell(2, 0), cell(2, 1)], [cell(1, 0); 3]);
            assert_ne!(cell(0, 1), cell(1, 0));
        }
    }
    let before = table.cells.clone();
    table.end();
    assert_eq!(changed(&before, &table), "AB AC BA BC CA CB ");
    assert_eq!([0, 1, 2].map(|of: usize| table.row(of)[of]), [2, 3, 1], "how often each comes");
    // Other events between them change nothing: X is D, and Y E.
    let more = self::table(&letters("ADEBCDDBEBEAD"), 5, &all(5));
    (0..3).for_each(|of| assert_eq!(more.row(of)[..3], *table.row(of), "{of}"));
    assert_eq!([3, 4].map(|of: usize| more.row(of)[of]), [4, 3]);
}

/// What a log has of two events alone.
fn only(log: &[u32], two: [usize; 2]) -> Vec<u32> {
    log.iter().copied().filter(|of| two.contains(&(*of as usize))).collect()
}

/// A log, and one in which some of it was moved.
fn two_logs(n_keys: u32) -> impl Strategy<Value = (Vec<u32>, Vec<u32>)> {
    let moves = prop::collection::vec((0usize..60, 0usize..60), 0..6);
    (prop::collection::vec(0..n_keys, 0..60), moves).prop_map(|(old, moves)| {
        let mut new = old.clone();
        for (from, to) in moves.into_iter().filter(|_| !old.is_empty()) {
            let moved = new.remove(from % old.len());
            new.insert(to % old.len(), moved);
        }
        (old, new)
    })
}

proptest! {
    /// "Two anchors have the same ordering signature iff they occur the same number of times and in the same
    /// order in both logs": whether all events are landmarks, or some.
    #[test]
    fn signatures_are_equal_where_counts_and_order_are(
        (old, new) in two_logs(7),
        landmarks in prop::sample::subsequence(all(7), 1..=7),
    ) {
        let of_new = new.iter().chain(&[0]).copied().collect::<Vec<u32>>();
        // One of which both logs have as many; and one in which one comes more often.
        for new in [new, of_new] {
            let tables = [table(&old, 7, &landmarks), table(&new, 7, &landmarks)];
            for of in old.iter().map(|of| *of as usize) {
                let columns = landmarks.iter().copied().enumerate();
                for (column, other) in columns.filter(|(_, of)| old.iter().any(|seen| *seen as usize == *of)) {
                    let is_same = tables[0].row(of)[column] == tables[1].row(of)[column];
                    prop_assert_eq!(is_same, only(&old, [of, other]) == only(&new, [of, other]));
                }
            }
        }
    }

    /// What is chosen is what the rules say, done without tables.
    #[test]
    fn what_is_paired_is_what_the_rules_pair((old, mut new) in two_logs(9), cut in 0usize..6) {
        new.truncate(new.len().saturating_sub(cut));
        let found = Matcher::new(9, MOST_CELLS).pairs([&old, &new]);
        prop_assert_eq!(found, by_the_rules(&old, &new));
    }

    #[test]
    fn what_is_paired_is_the_same_and_never_crosses(
        (old, mut new) in two_logs(20),
        cut in 0usize..6,
        most_cells in 1usize..80,
    ) {
        new.truncate(new.len().saturating_sub(cut));
        let light = [&old, &new].map(|log| {
            let all = (0u32..).zip(log).filter(|(_, key)| **key < 12);
            all.map(|(at, _)| at).collect::<Vec<u32>>()
        });
        let mut matcher = Matcher::new(20, most_cells);
        let found = matcher.in_two_passes([&old, &new], [&light[0], &light[1]]);
        prop_assert!(found.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
        prop_assert!(found.iter().all(|(x, y)| old[*x] == new[*y]));
        // What the first pass finds is kept.
        let of_light = matcher.in_two_passes(
            [&only_light(&old), &only_light(&new)],
            [&(0..len(&light[0])).collect::<Vec<u32>>(), &(0..len(&light[1])).collect::<Vec<u32>>()],
        );
        let kept: Pairs = of_light.iter().map(|(x, y)| (light[0][*x] as usize, light[1][*y] as usize)).collect();
        prop_assert!(kept.iter().all(|pair| found.contains(pair)));
        // All of what is the same.
        let itself = matcher.in_two_passes([&old, &old], [&light[0], &light[0]]);
        prop_assert_eq!(itself, (0..old.len()).map(|at| (at, at)).collect::<Pairs>());
    }
}

fn only_light(log: &[u32]) -> Vec<u32> {
    log.iter().copied().filter(|key| *key < 12).collect()
}

fn len(of: &[u32]) -> u32 {
    u32::try_from(of.len()).expect("few")
}

/// The rules, without tables: anchors by how many others come in the same order, each as far as it does with
/// all that were chosen before; then between neighbours.
fn by_the_rules(old: &[u32], new: &[u32]) -> Pairs {
    let mut keys: Vec<u32> = Vec::new();
    let times = |log: &[u32], key: u32| log.iter().filter(|of| **of == key).count();
    for key in old {
        if !keys.contains(key) && times(old, *key) == times(new, *key) {
            keys.push(*key);
        }
    }
    let in_order = |a: u32, b: u32| {
        let two = [a as usize, b as usize];
        only(old, two) == only(new, two)
    };
    let score = |key: u32| keys.iter().filter(|other| in_order(key, **other)).count();
    let mut ranked = keys.clone();
    ranked.sort_by_key(|key| Reverse(score(*key)));
    let mut chosen: Vec<u32> = Vec::new();
    for key in ranked {
        if chosen.iter().all(|other| in_order(key, *other)) {
            chosen.push(key);
        }
    }
    let at = |log: &[u32]| {
        let of = log.iter().enumerate().filter(|(_, key)| chosen.contains(key));
        of.map(|(at, _)| at).collect::<Vec<usize>>()
    };
    let found: Pairs = at(old).into_iter().zip(at(new)).collect();
    let mut all = found.clone();
    if !found.is_empty() {
        between([(0, old.len()), (0, new.len())], &found, |[(a, x), (b, y)]| {
            let inner = by_the_rules(&old[a..x], &new[b..y]);
            all.extend(inner.into_iter().map(|(i, j)| (i + a, j + b)));
        });
    }
    all.sort_unstable();
    all
}

#[test]
fn calls_whose_order_differs_are_paired_as_far_as_they_do_not_cross() {
    #[track_caller]
    fn check(old: &str, new: &str, want: &[(usize, usize)]) {
        let found = Matcher::new(26, MOST_CELLS).pairs([&letters(old), &letters(new)]);
        assert_eq!(found, want, "{old} {new}");
    }
    // f() + g(), in the order of the compiler: what the old log has first is kept.
    check("FRGS", "GSFR", &[(0, 2), (1, 3)]);
    // What comes more often in one log is paired where it does not.
    check("AXXBXC", "AXBXC", &[(0, 0), (3, 2), (4, 3), (5, 4)]);
    // The one that is in order with more.
    check("ABCD", "BCDA", &[(1, 0), (2, 1), (3, 2)]);
    check("AA", "A", &[]);
}

/// Of two runs: how much is paired, intervals, and how many instructions are in these; by signatures, and as
/// call trees.
type Compared = ([f64; 2], Vec<(Key, Interval)>, [f64; 2]);

fn compared(runs: [&[u32]; 2]) -> [Compared; 2] {
    let mut code = code();
    for (n, function) in code.functions.iter_mut().enumerate() {
        (function.bare, function.is_named) = (format!("f{n}").into(), true);
    }
    let logs = runs.map(|run| log_of(&code, run));
    let sides = logs.each_ref().map(|log| Side { code: &code, log, modules: &[] });
    // All is there in both.
    let was =
        Was { blocks: code.blocks.iter().map(|of| ((0, of.at), (0, of.at))).collect(), ..Was::default() };
    read(&sides, &was, |readings, roots| {
        [true, false].map(|is_flat| {
            let mut intervals = Intervals::new(readings);
            match is_flat {
                true => align(readings, roots, |aligned| intervals.add(&aligned)).expect("it is short"),
                false => pairs::align(readings, roots, usize::MAX, |aligned| intervals.add(&aligned)),
            }
            let share = |n: usize| intervals.paired[n].heavy / events(&sides[n]).heavy;
            ([share(0), share(1)], intervals.by_size(), intervals.lengths.map(|of| of.all))
        })
    })
}

/// A run of so many steps, drawn from a seed, without those whose number is one of `left`.
fn run(seed: u64, n: usize, left: &[usize]) -> Vec<u32> {
    let enter = |n: u32| Symbol::enter(FuncId(n)).0;
    let exit = Symbol::EXIT.0;
    let mut dice = seed;
    let mut step = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match dice >> 33 & 7 {
            0 => vec![1, 2, 2, 3],
            1 => vec![4, enter(1), 0, 4, enter(2), 1, 2, exit, 3, exit],
            2 => vec![4, enter(2), 0, exit],
            3 => vec![1, 2, 3, 1, 3],
            _ => vec![4, enter(1), 0, exit, enter(1), 2, exit],
        }
    };
    let all: Vec<Vec<u32>> = (0..n).map(|_| step()).collect();
    let kept = all.into_iter().enumerate().filter(|(at, _)| !left.contains(at)).flat_map(|(_, of)| of);
    [enter(0)].into_iter().chain(kept).chain([exit]).collect()
}

#[test]
fn a_run_and_itself_have_the_intervals_of_call_trees() {
    for seed in 1..20 {
        let run = run(seed, 60, &[]);
        let [flat, tree] = compared([&run, &run]);
        assert_eq!(flat.0, [1.0, 1.0], "all is paired");
        // By place: how often, and how many instructions.
        let places = |of: &Compared| {
            let all = of.1.iter().map(|(key, of)| {
                format!("{key:?} {:.4} {:.4} {:.4} {:?}", of.times, of.insns[0], of.insns[1], of.alone)
            });
            let mut all: Vec<String> = all.collect();
            all.sort();
            all
        };
        assert_eq!(places(&flat), places(&tree), "seed {seed}");
        assert!(flat.1.iter().all(|(_, of)| (of.sureness() - 1.0).abs() < 1e-9));
    }
}

#[test]
fn all_that_ran_is_in_intervals_of_runs_that_differ() {
    for seed in 1..20 {
        let [old, new] = [run(seed, 80, &[11, 30, 31]), run(seed, 80, &[4, 50])];
        let [flat, tree] = compared([&old, &new]);
        for n in [0, 1] {
            // Few names, whose numbers differ: little can be an anchor.
            assert!(flat.0[n] > 0.0 && flat.0[n] < 1.0, "seed {seed}: {:?}", flat.0);
            assert!((flat.2[n] - tree.2[n]).abs() < 1e-6, "seed {seed}: {:?} {:?}", flat.2, tree.2);
        }
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let run = run(1, 10, &[]);
    let code = code();
    let log = log_of(&code, &run);
    let side = Side { code: &code, log: &log, modules: &[] };
    read(&[side, side], &Was::default(), |readings, roots| {
        let n_events = u64::from(count_events(&readings[0], roots[0][0]));
        let at_most = |most: u64| align_at_most(most, readings, roots, |_| ());
        assert_eq!(at_most(n_events), Ok(()));
        let most = n_events - 1;
        let refused = at_most(most).expect_err("it is one too long");
        assert_eq!(refused, SignaturesError::TooLong { build: "old", n_events, most });
        assert_eq!(
            refused.to_string(),
            format!("signatures are of at most {most} events, and the old build's log has {n_events}")
        );
    });
}

fn count_events(reading: &Reading<'_>, root: u32) -> u32 {
    len(&log(reading, &flat(reading, root, &mut FxHashMap::default())).keys)
}
