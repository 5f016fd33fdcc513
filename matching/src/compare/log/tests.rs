//! Logs of small runs, and of random ones: nothing is lost, and equal activations are one.

use super::super::code::{Block, Function, Leads, Loop, NONE, Site, count};
use super::*;
use program::{BlockId, Va};
use trace::{Cause, Symbol};

/// Three functions of five blocks each: blocks 1 to 3 are a loop, block 2 one in that; block 4 of the first
/// two calls the next function twice.
pub fn code() -> Code {
    let mut code = Code::default();
    for function in 0..3 {
        let (first, first_loop) = (count(code.blocks.len()), count(code.loops.len()));
        for block in 0..5 {
            let sites = count(code.sites.len());
            if block == 4 && function < 2 {
                for n in 0..2 {
                    let at = Va(u64::from(0x1000 * function + n));
                    code.sites.push(Site { at, function, leads: Leads::To(function + 1), is_tail: false });
                }
            }
            let innermost = [NONE, first_loop, first_loop + 1, first_loop, NONE][block as usize];
            code.blocks.push(Block {
                at: Va(u64::from(0x1000 * function + 0x10 * block)),
                weight: 1 + block + 10 * function,
                has_padding: false,
                not_taken: (NONE, 0),
                innermost,
                is_header: block == 1 || block == 2,
                sites: sites..count(code.sites.len()),
                id: (0, BlockId(first + block)),
            });
        }
        for (n, blocks) in [vec![first + 1, first + 2, first + 3], vec![first + 2]].into_iter().enumerate() {
            code.loops.push(Loop {
                function,
                parent: if n == 0 { NONE } else { first_loop },
                depth: count(n) + 1,
                is_innermost: n == 1,
                header: Va(u64::from(0x1000 * function + 0x10 * (count(n) + 1))),
                blocks,
            });
        }
        code.functions.push(Function {
            blocks: first..first + 5,
            loops: first_loop..first_loop + 2,
            ..Function::default()
        });
    }
    code
}

const E: u32 = 0x8000_0000;

fn f(function: u32) -> u32 {
    0x4000_0000 | function
}

pub fn log_of(code: &Code, symbols: &[u32]) -> Log {
    let mut builder = Builder::new(code);
    builder.push(ThreadId(0), symbols);
    builder.finish()
}

/// What an activity did, as text: its function, then calls and rounds, each with what ran before it.
fn text(log: &Log, activity: u32) -> String {
    let of = &log.activities[activity as usize];
    let mut text = format!("{}x", of.times);
    for (token, sums) in of.tokens.iter().zip(log.all_sums(of)) {
        let what = match token.kind() {
            Kind::Rounds(of) => format!("L{of}*{}/{}={}", sums.heavy, sums.light, sums.inside),
            Kind::Call(call) => format!("#{}", log.calls[call as usize].activity),
        };
        text += &format!(" {} {what}", sums.gap);
    }
    text + &format!(" {}", log.sums(of, of.tokens.len()).expect("it has an end").gap)
}

#[test]
fn equal_activations_are_one_and_rounds_are_summed_up() {
    let code = code();
    // 0: block 0, then three rounds of the outer loop with 2, 0 and 1 of the inner one, then two calls.
    let calls = [&[f(1), 0, E][..], &[f(1), 0, E]].concat();
    let run = [&[f(0), 0, 1, 2, 2, 3, 1, 3, 1, 2, 3, 4][..], &calls, &[E]].concat();
    let log = log_of(&code, &run);
    assert_eq!(log.activities.len(), 3);
    assert_eq!(text(&log, 0), "2x 22");
    // Rounds of both loops: 3 and 3; what runs in them ends where block 4 begins.
    let inside = 2 + 3 + 3 + 4 + 2 + 4 + 2 + 3 + 4;
    assert_eq!(text(&log, 1), format!("1x 1 L0*6/3={inside} 5 #0 0 #0 0"));
    // The two calls are two sites.
    let sites: Vec<u32> = log.calls.iter().map(|call| call.site).collect();
    assert_eq!(sites, [0, 1, NONE]);
    assert_eq!(text(&log, 2), "1x 0 #1 0");
    assert_eq!(log.threads, [(ThreadId(0), 2)]);
}

#[test]
fn rounds_between_calls_are_one_event_and_what_is_behind_the_last_is_not_of_it() {
    let code = code();
    // Rounds of the inner loop, a call in it (from block 4, which is in no loop here), and rounds again.
    let run = [f(0), 1, 2, 2, 4, f(1), 0, E, 1, 2, 3, 1, 3, E];
    let log = log_of(&code, &run);
    assert_eq!(text(&log, 1), format!("1x 0 L0*3/1={} 5 #0 0 L0*3/2={} 0", 2 + 3 + 3, 2 + 3 + 4 + 2 + 4));
}

#[test]
fn a_stub_of_what_is_not_recorded_is_left_where_another_is_called_next() {
    let mut code = code();
    code.imports.push("elsewhere".into());
    code.functions[2].name = "here".into();
    for site in code.sites.iter_mut().filter(|site| site.function == 1) {
        (site.leads, site.is_tail) = (Leads::Import(0), true);
    }
    let tail = Symbol::exit(Cause::Tail).0;
    for next in [2, 1] {
        code.sites[1].leads = Leads::To(next);
        // 0 calls 1, which jumps to what is not recorded; 0 goes on in the same block, and calls another.
        let log = log_of(&code, &[f(0), 4, f(1), 4, tail, f(next), 0, E, E]);
        let main = &log.activities[log.activities.len() - 2];
        assert_eq!((main.tokens.len(), main.function), (2, 0), "{next}");
    }
    // The same stub, of what is recorded.
    code.imports[0] = "here".into();
    let log = log_of(&code, &[f(0), 4, f(1), 4, tail, f(2), 0, E, E]);
    assert_eq!(log.activities[log.activities.len() - 2].tokens.len(), 1);
}

#[test]
fn positions_are_the_symbols_where_events_are() {
    let code = code();
    let mut builder = Builder::new(&code).with_positions();
    // Rounds at 2 (in them, at 3, the inner loop's); calls at 6 and 9, and in the first of them rounds at 8.
    let calls = [&[f(1), 0, 2, E][..], &[f(1), 0, E]].concat();
    builder.push(ThreadId(0), &[&[f(0), 0, 1, 2, 3, 4][..], &calls, &[E]].concat());
    builder.push(ThreadId(1), &[f(2), 0, 1, E]);
    assert_eq!(builder.finish().positions, [vec![0, 2, 6, 8, 10], vec![0, 2]]);
}

#[test]
fn who_jumps_to_another_is_its_caller() {
    let code = code();
    let tail = Symbol::exit(Cause::Tail).0;
    // 0 calls 1, which jumps to 2, which returns to 0; then 0 calls 1 again, which jumps to what is unknown.
    let log = log_of(&code, &[f(0), 4, f(1), 4, tail, f(2), 0, E, f(1), 4, tail, 0, E]);
    let main = count(log.activities.len() - 2);
    assert_eq!(text(&log, main), "1x 5 #1 0 #2 1");
    assert_eq!(
        (text(&log, 0), text(&log, 1), text(&log, 2)),
        ("1x 21".into(), "1x 15 #0 0".into(), "1x 15".into())
    );
}

#[test]
fn long_loops_are_counted_and_not_kept() {
    let code = code();
    let mut run = vec![f(0), 1];
    for _ in 0..40_000 {
        run.extend([2, 3, 1]);
    }
    run.extend([4, E]);
    let log = log_of(&code, &run);
    let inside = 2 + 40_000 * (3 + 4 + 2);
    assert_eq!(text(&log, 0), format!("1x 0 L0*80001/40001={inside} 5"));
    let n: u64 = log
        .gaps
        .iter()
        .flat_map(|(_, gap)| gap.counts())
        .filter(|(block, ..)| *block == 2)
        .map(|of| of.2)
        .sum();
    assert_eq!(n, 40_000);
}

/// A random run of [`code`]: its symbols; and what ran: instructions, headers, calls, blocks.
fn random(seed: u64) -> (Vec<u32>, u64, u64, u64, [u64; 15]) {
    let mut dice = seed;
    let mut throw = |n: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        u32::try_from((dice >> 33) % n).expect("small")
    };
    let mut open: Vec<u32> = Vec::new();
    let mut run = Vec::new();
    let (mut insns, mut heads, mut calls, mut blocks) = (0, 0, 0, [0u64; 15]);
    for _ in 0..3000 {
        match throw(6) {
            0 if open.len() < 6 => {
                let function = throw(3);
                open.push(function);
                run.push(f(function));
                calls += 1;
            }
            1 if !open.is_empty() => {
                open.pop();
                run.push(E);
            }
            _ => {
                let Some(function) = open.last() else { continue };
                let block = throw(5);
                run.push(block);
                insns += u64::from(1 + block + 10 * function);
                heads += u64::from(block == 1 || block == 2);
                blocks[(5 * function + block) as usize] += 1;
            }
        }
    }
    (run, insns, heads, calls, blocks)
}

/// What is known is not seen: whether much of what came before is known, or nothing.
#[test]
fn however_much_is_known_the_log_is_the_same() {
    let mut code = code();
    // With branches, the padding behind one of which is told.
    for function in 0..3 {
        code.blocks[5 * function].not_taken = (count(5 * function + 1), 2);
        code.blocks[5 * function + 2].not_taken = (count(5 * function + 3), 0);
    }
    let tail = Symbol::exit(Cause::Tail).0;
    for seed in 1..40 {
        let mut run = random(seed).0;
        run.iter_mut().step_by(7).filter(|symbol| **symbol == E).for_each(|symbol| *symbol = tail);
        let log = |limits: Option<(usize, usize, usize)>| {
            let mut builder = Builder::new(&code).with_positions();
            if let Some((symbols, known, ids)) = limits {
                builder = builder.with_limits(symbols, known, ids);
            }
            builder.push(ThreadId(0), &run);
            let log = builder.finish();
            let all: Vec<String> = (0..count(log.activities.len())).map(|n| text(&log, n)).collect();
            let gaps = log.gaps.iter().map(|(key, gap)| format!("{key:?} {gap:?}")).collect::<Vec<_>>();
            (all, log.calls.clone(), log.positions.clone(), gaps)
        };
        let usual = log(None);
        for limits in [(3, 1 << 20, 1 << 12), (1 << 11, 0, 1 << 12), (1 << 11, 1 << 20, 1), (5, 3, 2)] {
            assert_eq!(log(Some(limits)), usual, "seed {seed}, {limits:?}");
        }
    }
}

#[test]
fn nothing_is_lost_of_random_runs() {
    let code = code();
    for seed in 1..60_u64 {
        let (run, insns, heads, calls, blocks) = random(seed);
        let log = log_of(&code, &run);
        let sums = || log.activities.iter().flat_map(|of| log.all_sums(of));
        assert_eq!(sums().map(|sums| sums.gap + sums.inside).sum::<u64>(), insns, "seed {seed}");
        assert_eq!(sums().map(|sums| sums.heavy).sum::<u64>(), heads, "seed {seed}");
        assert_eq!(log.gaps.iter().map(|(_, gap)| gap.insns).sum::<u64>(), insns, "seed {seed}");
        let n_calls: u64 = log.activities.iter().filter(|of| of.function != NONE).map(|of| of.times).sum();
        assert_eq!(n_calls, calls, "seed {seed}");
        let mut ran = [0u64; 15];
        for (block, what, n) in log.gaps.iter().flat_map(|(_, gap)| gap.counts()) {
            assert_eq!(what, Counted::Run);
            ran[block as usize] += n;
        }
        assert_eq!(ran, blocks, "seed {seed}");
    }
}
