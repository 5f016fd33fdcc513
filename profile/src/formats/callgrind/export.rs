//! Writing callgrind's format: instruction positions, lines, jumps and calls, as `--dump-instr=yes
//! --collect-jumps=yes` has them.
//!
//! What is called costs what it and all that it calls executed, in shares by number of calls, as gprof has
//! it: a profile does not know which call cost how much. Of calls that close a cycle the caller pays nothing.
//! What other images executed is not known.
//!
//! Source: the valgrind manual, "Callgrind Format Specification"; S. Graham and others, "gprof: a Call Graph
//! Execution Profiler", 1982, 4.

use super::CREATOR;
use crate::complete::calls::{self, Cuts};
use crate::complete::flow;
use crate::counts::{Beyond, Edge, Profile};
use crate::losses::{self, Losses};
use crate::vocabulary::{Written, one_line};
use program::{BlockId, EdgeKind, FuncId, Lines, Program, Va};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Writes the counts of blocks as executions of their instructions, with calls and jumps.
pub fn write(profile: &Profile, program: &Program) -> Written {
    let (image, total) = image(profile, program);
    Written { bytes: file(&image.bytes, total), ..image }
}

/// The head and the end, around `images`, which executed `total` instructions.
pub(crate) fn file(images: &[u8], total: u64) -> Vec<u8> {
    let head = format!(
        "# callgrind format\nversion: 1\n{CREATOR}\n\npositions: instr line\nevents: Ir\nsummary: {total}\n"
    );
    [head.as_bytes(), images, format!("\ntotals: {total}\n").as_bytes()].concat()
}

/// What stands between head and end of one image, and how many instructions it executed.
pub(crate) fn image(profile: &Profile, program: &Program) -> (Written, u64) {
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
    let made = calls::made(profile, program);
    let cuts = Cuts::of(profile, program);
    let calls = Calls::of(&made, profile, program, &cuts);
    let lines = Lines::load(&program.image);
    let mut body = Body { text: String::new(), file: String::new(), lines: lines.as_ref() };
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
        body.function(&function.name(), function.entry);
        out.n_functions += 1;
        for (id, whole) in counted {
            let mut n = whole;
            out.count = out.count.saturating_add(n);
            for insn in program.insns(id) {
                total = total.saturating_add(n);
                let line = body.at(insn.at());
                let _ = writeln!(body.text, "{} {line} {n}", insn.at());
                for call in calls.from.get(&insn.at()).into_iter().flatten().filter(|c| c.n > 0) {
                    body.call(program, &calls, insn.at(), line, call);
                }
                if let Some(&n) = profile.calls_out.get(&insn.at()).filter(|n| **n > 0) {
                    body.left(profile, insn.at(), line, n);
                }
                n = cuts.count(id, insn.end(), whole);
            }
            body.jumps(profile, program, id, n);
        }
        for (id, n) in flow::padding_run(program, func, profile, &cuts) {
            for insn in program.insns_in(&program.padding_behind(id)) {
                total = total.saturating_add(n);
                let line = body.at(insn.at());
                let _ = writeln!(body.text, "{} {line} {n}", insn.at());
            }
        }
    }
    let name = if profile.image.name.is_empty() { &program.image.name } else { &profile.image.name };
    let name = one_line(name);
    out.bytes = format!("\nob={name}\n{}\n", body.text).into_bytes();
    out.lost = lost.into_list();
    let in_doubt = made.iter().filter(|call| call.to.is_some()).filter_map(|call| call.n.between());
    out.lost.extend(losses::calls_in_doubt(in_doubt));
    (out, total)
}

/// The records of functions, as they are written.
struct Body<'a> {
    text: String,
    /// The file that the next lines are in.
    file: String,
    lines: Option<&'a Lines>,
}

/// The name of a file that is not known.
const NO_FILE: &str = "???";

impl Body<'_> {
    fn place(&self, at: Va) -> (String, u32) {
        let known = self.lines.and_then(|lines| lines.at(at));
        known.map_or_else(|| (NO_FILE.to_owned(), 0), |(file, line)| (one_line(file), line))
    }

    fn function(&mut self, name: &str, entry: Va) {
        self.file = self.place(entry).0;
        let _ = writeln!(self.text, "\nfl={}\nfn={}", self.file, one_line(name));
    }

    /// The line of the instruction at `at`; says its file if that is another than before.
    fn at(&mut self, at: Va) -> u32 {
        let (file, line) = self.place(at);
        if line > 0 && file != self.file {
            let _ = writeln!(self.text, "fi={file}");
            self.file = file;
        }
        line
    }

    fn call(&mut self, program: &Program, calls: &Calls, at: Va, line: u32, call: &CallCost) {
        let callee = program.function_at(call.to);
        let name = callee.map_or_else(|| call.to.to_string(), |f| program.function(f).name());
        let (file, start) = self.place(call.to);
        let cost = calls.cost(call);
        let _ = writeln!(
            self.text,
            "cfi={file}\ncfn={}\ncalls={} {} {start}\n{at} {line} {cost}",
            one_line(&name),
            call.n,
            call.to
        );
    }

    /// Calls out of the image: of what they led to, no more is known than where it is.
    fn left(&mut self, profile: &Profile, at: Va, line: u32, n: u64) {
        let mut rest = n;
        let first = (at, Beyond::Image(String::new(), Va(0)));
        for ((_, to), &n) in profile.calls_beyond.range(first..).take_while(|((site, _), _)| *site == at) {
            let (object, to) = match to {
                Beyond::Image(name, to) => (one_line(name), *to),
                Beyond::Process(to) => ("???".to_owned(), Va(*to)),
                Beyond::Unknown => continue,
            };
            let n = n.min(rest);
            rest -= n;
            if n > 0 {
                let _ = writeln!(
                    self.text,
                    "cob={object}\ncfi={NO_FILE}\ncfn={to}\ncalls={n} {to} 0\n{at} {line} 0"
                );
            }
        }
        if rest > 0 {
            let _ =
                writeln!(self.text, "cob=(outside) outside\ncfn=outside\ncalls={rest} 0x0 0\n{at} {line} 0");
        }
    }

    fn jumps(&mut self, profile: &Profile, program: &Program, id: BlockId, executed: u64) {
        let block = program.block(id);
        for e in program.successors(id) {
            let to = program.block(e.to).start;
            let Some(&n) = profile.edges.get(&Edge { from: block.start, to }).filter(|n| **n > 0) else {
                continue;
            };
            let at = block.last_insn();
            let (line, there) = (self.place(at).1, self.place(to).1);
            // Both ways of a branch to the next instruction have one count: who jumped there is not known.
            let is_either = e.kind == EdgeKind::Taken
                && program.successors(id).iter().any(|other| other.to == e.to && other.kind != e.kind);
            let _ = match e.kind {
                EdgeKind::FallThrough => Ok(()),
                EdgeKind::Taken if is_either => Ok(()),
                EdgeKind::Taken => writeln!(self.text, "jcnd={n}/{executed} {to} {there}\n{at} {line}"),
                EdgeKind::Jump | EdgeKind::Table | EdgeKind::LandingPad => {
                    writeln!(self.text, "jump={n} {to} {there}\n{at} {line}")
                }
            };
        }
    }
}

/// Calls from one instruction to one place.
struct CallCost {
    to: Va,
    n: u64,
    callee: Option<FuncId>,
    /// Whether what is called has called the caller.
    is_back: bool,
}

/// All calls, by instruction, with their inclusive cost.
struct Calls {
    from: BTreeMap<Va, Vec<CallCost>>,
    /// For each function, its inclusive cost, and how often others called it.
    costs: Vec<(u64, u64)>,
}

impl Calls {
    fn of(made: &[calls::CallMade], profile: &Profile, program: &Program, cuts: &Cuts) -> Calls {
        let mut from: BTreeMap<Va, Vec<CallCost>> = BTreeMap::new();
        for call in made {
            if let Some(to) = call.to {
                let callee = program.function_at(to);
                from.entry(call.at).or_default().push(CallCost { to, n: call.n.n, callee, is_back: false });
            }
        }
        let mut calls = Calls { from, costs: vec![(0, 0); program.functions.len()] };
        calls.add_costs(profile, program, cuts);
        calls
    }

    /// What `call` cost.
    fn cost(&self, call: &CallCost) -> u64 {
        let Some(&(cost, n)) = call.callee.filter(|_| !call.is_back).map(|f| &self.costs[f.index()]) else {
            return 0;
        };
        let share = u128::from(cost) * u128::from(call.n) / u128::from(n.max(call.n).max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn add_costs(&mut self, profile: &Profile, program: &Program, cuts: &Cuts) {
        let n = program.functions.len();
        let mut out: Vec<Vec<(usize, Va, usize)>> = vec![Vec::new(); n];
        let mut is_called = vec![false; n];
        for (&at, made) in &self.from {
            let Some(caller) = program.function_at(at) else { continue };
            for (k, call) in made.iter().enumerate().filter(|(_, call)| call.n > 0) {
                if let Some(callee) = call.callee {
                    out[caller.index()].push((callee.index(), at, k));
                    is_called[callee.index()] = true;
                }
            }
        }
        // Callees before callers, but for calls that lead back on the way: first from what nobody calls.
        let mut state = vec![0u8; n];
        let mut order = Vec::with_capacity(n);
        let mut back: Vec<(Va, usize)> = Vec::new();
        for root in (0..n).filter(|&f| !is_called[f]).chain(0..n) {
            if state[root] != 0 {
                continue;
            }
            state[root] = 1;
            let mut way = vec![(root, 0)];
            while let Some((f, next)) = way.last_mut() {
                let Some(&(to, at, k)) = out[*f].get(*next) else {
                    state[*f] = 2;
                    order.push(*f);
                    way.pop();
                    continue;
                };
                *next += 1;
                match state[to] {
                    0 => {
                        state[to] = 1;
                        way.push((to, 0));
                    }
                    1 => back.push((at, k)),
                    _ => {}
                }
            }
        }
        for (at, k) in back {
            if let Some(call) = self.from.get_mut(&at).and_then(|made| made.get_mut(k)) {
                call.is_back = true;
            }
        }
        let (mut forward, mut backward) = (vec![0u64; n], vec![0u64; n]);
        for call in self.from.values().flatten() {
            if let Some(f) = call.callee {
                let sum = if call.is_back { &mut backward } else { &mut forward };
                sum[f.index()] = sum[f.index()].saturating_add(call.n);
            }
        }
        for f in order {
            let id = FuncId::at(f);
            let own = |b: BlockId| {
                let block = program.block(b);
                let n = profile.blocks.get(&block.start).copied().unwrap_or(0);
                cuts.own_instructions(program, b, n)
            };
            let function = program.function(id);
            let mut cost = function.block_ids().map(own).fold(0, u64::saturating_add);
            for &(_, at, k) in &out[f] {
                let call = self.from.get(&at).and_then(|made| made.get(k));
                cost = cost.saturating_add(call.map_or(0, |call| self.cost(call)));
            }
            // Of who calls it through pointers, or from outside, only this is known.
            let entered = profile.entries.get(&function.entry).copied().unwrap_or(0);
            self.costs[f] = (cost, entered.saturating_sub(backward[f]).max(forward[f]));
        }
    }
}
