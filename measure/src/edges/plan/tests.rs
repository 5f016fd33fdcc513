//! Walks through the flow of a compiled program, counted as they go, against what follows from the counters.

use super::*;
use crate::testing::compiled;
use probe::{Counted, Module, Room};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

const TEXT: &str = "
    volatile int sink;
    int classify(int n) { switch (n & 7) { case 0: return 3; case 1: n++; case 2: sink += n; break; case 5: sink--;
        case 6: n *= 3; break; default: if (n < 0) return -1; } return n + sink; }
    int sums(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) { if (a[i] == 77) continue;
        for (int j = i; j > 0; j >>= 1) { if (a[j] & 1) s += a[j]; else if (s > 1000 && a[j] != 5) s ^= j; }
        if (s == 12345) break; } return s; }
    int search(int *a, int n, int key) { int l = 0; while (l < n) { int m = (l + n) / 2;
        if (a[m] == key) return m; if (a[m] < key) l = m + 1; else n = m; } return -1; }
    int main(int n, char **v) { int a[64]; for (int i = 0; i < 64; i++) a[i] = i * n;
        return classify(sums(a, 64)) + search(a, 64, n * 7); }";

/// Numbers that repeat from run to run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

/// How often walks came through each block and edge: they start at entries of functions, and mostly take the
/// first way, or mostly the last. Of each function, `n_stopped` more stop after some steps.
fn walk(
    program: &Program,
    often_first: u64,
    n_stopped: u64,
) -> (HashMap<BlockId, u64>, HashMap<EdgeId, u64>) {
    let (mut blocks, mut edges) = (HashMap::new(), HashMap::new());
    let mut dice = Dice(often_first);
    for id in program.func_ids() {
        let Some(entry) = program.entry_block(id) else { continue };
        for n in 0..50 + n_stopped {
            let mut at = entry;
            let n_steps = if n < 50 { u64::MAX } else { dice.roll() % 30 };
            for step in 0.. {
                *blocks.entry(at).or_insert(0) += 1;
                let ways: Vec<EdgeId> =
                    program.edge_ids(at).filter(|e| program.edge(*e).kind != EdgeKind::LandingPad).collect();
                let way = match dice.roll() % 10 {
                    n if n < often_first => ways.first(),
                    9 => ways.get(usize::try_from(dice.roll()).expect("31 bits") % ways.len().max(1)),
                    _ => ways.last(),
                };
                let Some(&way) = way.filter(|_| step < n_steps) else { break };
                *edges.entry(way).or_insert(0) += 1;
                at = program.edge(way).to;
            }
        }
    }
    (blocks, edges)
}

/// What follows from the counters of `plan`, and how often they are incremented.
fn completed(
    program: &Program,
    plan: &Plan,
    blocks: &HashMap<BlockId, u64>,
    edges: &HashMap<EdgeId, u64>,
    n_stopped: u64,
) -> (Profile, u64) {
    let module = Module::build(program, plan, Room::Behind).expect("it can be moved");
    let count = |one: &Counted| match one {
        Counted::Block(b) => blocks.get(b).copied().unwrap_or(0),
        Counted::Edge(e) => edges.get(e).copied().unwrap_or(0),
    };
    let mut counters: Vec<u64> = module.words.counted.iter().map(count).collect();
    let n_all = counters.iter().sum();
    // No walk stops between a block's start and its calls.
    let calls = module.words.calls.iter().map(|at| program.block_at(*at).and_then(|b| blocks.get(&b)));
    counters.extend(calls.map(|n| n.copied().unwrap_or(0)));
    (crate::notes(&module).profile(&counters, &[], n_stopped), n_all)
}

/// Walks that stop anywhere: what follows is between the least and the most that is said, and exact where
/// nothing is said.
#[test]
fn counts_are_within_their_intervals_wherever_threads_stop() {
    // Counts in all, those with an interval, and those that are not what follows.
    let mut seen = [0; 3];
    for flags in ["-O0", "-O2", "-Os -fno-jump-tables"] {
        let program = compiled(TEXT, "c", flags);
        for (n_stopped, often_first) in [(1, 1), (1, 8), (3, 8)] {
            let (blocks, edges) = walk(&program, often_first, n_stopped);
            let plan = plan(&program, None);
            let (got, _) = completed(&program, &plan, &blocks, &edges, n_stopped);
            let mut hold = |n: u64, interval: Option<&(u64, u64)>, want: u64, what: &str| {
                let (least, most) = interval.copied().unwrap_or((n, n));
                assert!(least <= want && want <= most, "{flags} {what}: {least}..{most} ({n}), not {want}");
                assert!(most - least <= n_stopped, "{flags} {what}: {least}..{most}");
                let is_off = u64::from(n != want);
                seen = [seen[0] + 1, seen[1] + u64::from(interval.is_some()), seen[2] + is_off];
            };
            for (at, &n) in &got.blocks {
                let block = program.block_from(*at).expect("it is one");
                let want = blocks.get(&block).copied().unwrap_or(0);
                let is_stub = program.function(program.block(block).func).import.is_some();
                if !is_stub {
                    hold(n, got.intervals.blocks.get(at), want, &format!("block {at}"));
                }
            }
            for (edge, &n) in &got.edges {
                let ends = |e: &EdgeId| {
                    let e = program.edge(*e);
                    (program.block(e.from).start, program.block(e.to).start) == (edge.from, edge.to)
                };
                let want = edges.iter().filter(|(e, _)| ends(e)).map(|(_, n)| n).sum();
                hold(n, got.intervals.edges.get(edge), want, &format!("edge {edge:?}"));
            }
        }
    }
    let [all, intervals, off] = seen;
    assert!(off > 50 && intervals > off && intervals * 4 < all * 3, "{seen:?}");
}

#[test]
fn all_counts_follow_wherever_counters_stand() {
    let mut increments = [0; 3];
    for flags in ["-O0", "-O1", "-O2", "-O3 -no-pie", "-Os -fno-jump-tables"] {
        let program = compiled(TEXT, "c", flags);
        let every = Plan::BLOCKS;
        for often_first in [1, 8] {
            let (blocks, edges) = walk(&program, often_first, 0);
            let (want, n_all) = completed(&program, &every, &blocks, &edges, 0);
            let (guessed, n_guessed) = completed(&program, &plan(&program, None), &blocks, &edges, 0);
            let (known, n_known) = completed(&program, &plan(&program, Some(&guessed)), &blocks, &edges, 0);
            assert!(want.blocks.values().sum::<u64>() > 1000, "{flags}");
            assert_eq!((&guessed.blocks, &known.blocks), (&want.blocks, &want.blocks), "{flags}");
            assert_eq!((&guessed.edges, &guessed.entries), (&known.edges, &known.entries), "{flags}");
            for (e, n) in &edges {
                let edge = program.edge(*e);
                let start = |b: BlockId| program.block(b).start;
                let all = program.edge_ids(edge.from).filter(|o| program.edge(*o).to == edge.to);
                let sum: u64 = all.filter_map(|o| edges.get(&o)).sum();
                let got = known.edges.get(&profile::Edge { from: start(edge.from), to: start(edge.to) });
                assert_eq!(got, Some(&sum), "{flags}: {} to {}, {n} times", start(edge.from), start(edge.to));
            }
            increments = [increments[0] + n_all, increments[1] + n_guessed, increments[2] + n_known];
        }
    }
    // A jump around a counter counts as half an increment, so that the difference may be small.
    let [all, guessed, known] = increments;
    assert!(known < guessed && guessed < all * 2 / 3, "{increments:?}");
}

/// Functions by how their blocks end, and where they lead from there, as assembly text.
fn assembly(functions: &[Vec<(u8, u8)>]) -> String {
    let mut text = String::new();
    for (f, blocks) in functions.iter().enumerate() {
        text += &format!(".globl f{f}\n.type f{f},@function\nf{f}:\n");
        for (i, (end, to)) in blocks.iter().enumerate() {
            let to = format!(".L{f}_{}", usize::from(*to) % blocks.len());
            let end = match end {
                0..3 => format!("jne {to}"),
                3 => format!("jmp {to}"),
                4 => "ret".to_owned(),
                5 => "call f0".to_owned(),
                _ => String::new(),
            };
            text += &format!(".L{f}_{i}: add $1, %eax\nlea 8(%rax), %rdx\n{end}\n");
        }
        text += &format!("ret\n.size f{f}, .-f{f}\n");
    }
    text
}

/// How often blocks and edges of `func` were on walks from its entry to where it ends, and how many walks
/// came there: they turn as `dice` says.
fn walk_to_the_end(
    program: &Program,
    func: FuncId,
    dice: &mut Dice,
    blocks: &mut HashMap<BlockId, u64>,
    edges: &mut HashMap<EdgeId, u64>,
) -> u64 {
    let Some(entry) = program.entry_block(func) else { return 0 };
    let mut n_walks = 0;
    for _ in 0..30 {
        let (mut at, mut steps) = (entry, Vec::new());
        // Some never end.
        for _ in 0..200 {
            let ways: Vec<EdgeId> = program.edge_ids(at).collect();
            let Some(n) = dice.roll().checked_rem(ways.len() as u64) else {
                steps.iter().for_each(|e| *edges.entry(*e).or_insert(0) += 1);
                steps.iter().for_each(|e| *blocks.entry(program.edge(*e).to).or_insert(0) += 1);
                *blocks.entry(entry).or_insert(0) += 1;
                n_walks += 1;
                break;
            };
            let way = ways[usize::try_from(n).expect("31 bits")];
            steps.push(way);
            at = program.edge(way).to;
        }
    }
    n_walks
}

/// Whatever the graph: the counters of the plan say how often walks came through each block and each edge.
#[test]
fn what_is_planned_is_completed_on_any_graph() {
    let function = proptest::collection::vec((0..7u8, any::<u8>()), 1..12);
    let functions = (proptest::collection::vec(function, 1..12), any::<u64>());
    let config = Config { cases: 16, failure_persistence: None, ..Config::default() };
    let n_edges = Cell::new(0);
    let ran = TestRunner::new(config).run(&functions, |(functions, seed)| {
        let program = compiled(&assembly(&functions), "s", "-shared -nostdlib");
        let mut dice = Dice(seed);
        let (mut blocks, mut edges, mut entries) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        // A stub runs as often as it is called; the walks call nothing.
        let is_stub = |func: FuncId| program.function(func).import.is_some();
        for func in program.func_ids().filter(|func| !is_stub(*func)) {
            let n = walk_to_the_end(&program, func, &mut dice, &mut blocks, &mut edges);
            entries.insert(program.function(func).entry, n);
        }
        let (got, _) = completed(&program, &plan(&program, None), &blocks, &edges, 0);
        for (at, n) in &got.blocks {
            let block = program.block_from(*at).expect("it is one");
            if is_stub(program.block(block).func) {
                continue;
            }
            prop_assert_eq!(*n, blocks.get(&block).copied().unwrap_or(0), "block {}", at);
        }
        for (at, n) in &entries {
            prop_assert!(got.entries.get(at).is_none_or(|got| got == n), "entry {}, {} times", at, n);
        }
        // Two edges between the same blocks are one in a profile.
        let mut want = BTreeMap::new();
        for (e, n) in &edges {
            let [from, to] = [program.edge(*e).from, program.edge(*e).to].map(|b| program.block(b).start);
            *want.entry(profile::Edge { from, to }).or_insert(0) += n;
        }
        for (edge, n) in want.iter().filter(|(edge, _)| got.blocks.contains_key(&edge.from)) {
            prop_assert_eq!(got.edges.get(edge), Some(n), "{:?}", edge);
            n_edges.set(n_edges.get() + 1);
        }
        Ok(())
    });
    ran.unwrap_or_else(|err| panic!("{err}"));
    // Of some hundreds, as a rule: that they are few would mean that nothing is tried.
    assert!(n_edges.get() > 40, "{}", n_edges.get());
}
