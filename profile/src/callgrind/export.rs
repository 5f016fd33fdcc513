//! Writing callgrind's format: instruction positions and jumps, as `--dump-instr=yes --collect-jumps=yes` has them.
//!
//! Costs of callees are 0: a profile does not know them. KCachegrind and callgrind_annotate show self costs.

use super::CREATOR;
use crate::counts::{Edge, Profile};
use crate::format::{Written, one_line};
use crate::losses::Losses;
use program::{BlockId, EdgeKind, Program, Va};
use std::fmt::Write as _;

/// Writes the counts of blocks as executions of their instructions, with calls and jumps.
pub fn write(profile: &Profile, program: &Program) -> Written {
    let mut out = Written::default();
    let mut lost = Losses::default();
    for (&at, &n) in profile.blocks.iter().filter(|(at, _)| program.block_from(**at).is_none()) {
        lost.add(&at.to_string(), "the program has no such block", n);
    }
    let has_count = |at: Va| {
        let block = program.block_at(at);
        block.is_some_and(|b| profile.blocks.contains_key(&program.block(b).start))
    };
    let edges = profile.edges.iter().map(|(e, n)| (e.from, *n));
    let called = profile.calls.iter().map(|((at, _), n)| (*at, *n));
    let left = profile.calls_out.iter().map(|(at, n)| (*at, *n));
    for (at, n) in edges.chain(called).chain(left).filter(|&(at, n)| n > 0 && !has_count(at)) {
        lost.add(&at.to_string(), "its block has no count", n);
    }
    let mut body = String::new();
    let mut total = 0u64;
    for func in program.func_ids() {
        let function = program.function(func);
        let counted: Vec<(BlockId, u64)> = function
            .block_ids()
            .filter_map(|b| Some((b, *profile.blocks.get(&program.block(b).start)?)))
            .collect();
        if counted.is_empty() {
            continue;
        }
        let _ = writeln!(body, "\nfl=???\nfn={}", one_line(&function.name()));
        out.n_functions += 1;
        for (id, n) in counted {
            out.count = out.count.saturating_add(n);
            for insn in program.insns(id) {
                total = total.saturating_add(n);
                let _ = writeln!(body, "{} 0 {n}", insn.at());
                calls(&mut body, profile, program, insn.at());
            }
            jumps(&mut body, profile, program, id, n);
        }
    }
    let name = if profile.image.name.is_empty() { &program.image.name } else { &profile.image.name };
    let name = one_line(name);
    let mut text = format!("# callgrind format\nversion: 1\n{CREATOR}\n");
    let _ = write!(
        text,
        "\npositions: instr line\nevents: Ir\nsummary: {total}\n\nob={name}\n{body}\ntotals: {total}\n"
    );
    out.bytes = text.into_bytes();
    out.lost = lost.into_list();
    out
}

fn calls(body: &mut String, profile: &Profile, program: &Program, at: Va) {
    for ((_, callee), n) in profile.calls.range((at, Va(0))..=(at, Va(u64::MAX))).filter(|(_, n)| **n > 0) {
        let name =
            program.function_at(*callee).map_or_else(|| callee.to_string(), |f| program.function(f).name());
        let _ = writeln!(body, "cfn={}\ncalls={n} {callee} 0\n{at} 0 0", one_line(&name));
    }
    if let Some(n) = profile.calls_out.get(&at).filter(|n| **n > 0) {
        let _ = writeln!(body, "cob=(outside) outside\ncfn=outside\ncalls={n} 0x0 0\n{at} 0 0");
    }
}

fn jumps(body: &mut String, profile: &Profile, program: &Program, id: BlockId, executed: u64) {
    let block = program.block(id);
    for e in program.successors(id) {
        let to = program.block(e.to).start;
        let Some(&n) = profile.edges.get(&Edge { from: block.start, to }).filter(|n| **n > 0) else {
            continue;
        };
        let at = block.last_insn();
        let _ = match e.kind {
            EdgeKind::FallThrough => Ok(()),
            EdgeKind::Taken => writeln!(body, "jcnd={n}/{executed} {to} 0\n{at} 0"),
            EdgeKind::Jump | EdgeKind::Table | EdgeKind::LandingPad => {
                writeln!(body, "jump={n} {to} 0\n{at} 0")
            }
        };
    }
}
