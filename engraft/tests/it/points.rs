//! Probes at all kinds of points: they see what the program says of itself, and the program does not see
//! them.

use crate::needs;
use crate::run::{compile, engraft, folder, put_program};
use measure::Placement;
use measure::kept::{Keeps, Kept, Watch};
use measure::raw_recording;
use probe::{Action, Module, Old, Plan, Point, Probe, Room, Routine, Sink, Value, general_register};
use profile::Edge;
use program::{BlockEnd, CallKind, Callee, EdgeKind, FuncId, Image, Program};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, Output};

fn program(path: &Path) -> Program {
    Program::analyze(Image::load(path).expect("a program"))
}

fn run(folder: &Path, file: &str, args: &[&str]) -> Output {
    let out = folder.join("out.engraft");
    let _was_there = std::fs::remove_file(&out);
    Command::new(folder.join(file)).args(args).env("ENGRAFT_OUT", out).output().expect("it runs")
}

/// Writes `program` with `plan` as `to`; probes that cannot be put in are left out, and returned.
fn write(program: &Program, plan: &Plan, to: &Path) -> (Vec<Probe>, Vec<Probe>) {
    let mut plan = plan.clone();
    let mut left_out = Vec::new();
    let module = loop {
        match Module::build(program, &plan, Room::Behind) {
            Ok(module) => break module,
            Err(probe::RewriteError::Probes { why, .. }) => {
                assert!(left_out.is_empty(), "{why:?}");
                why.iter().rev().for_each(|(n, _)| left_out.push(plan.probes.remove(*n)));
            }
            Err(err) => panic!("{err}"),
        }
    };
    let mut module = module;
    let mut notes = measure::notes(&module);
    let watch = |(probe, &word): (&Probe, &u32)| {
        let keeps = match probe.action {
            Action::Keep(_, Sink::Ring(len)) => Keeps::Ring(len),
            Action::Keep(_, Sink::Histogram) => Keeps::Histogram,
            _ => Keeps::Count,
        };
        Watch { what: format!("{:?}", probe.point), word, keeps }
    };
    notes.watches = plan.probes.iter().zip(&module.words.probes).map(watch).collect();
    module.set_notes("points.engraft", &notes.write());
    put_program(to, module.to_file(Old::Poisoned).expect("a file"));
    (plan.probes, left_out)
}

fn count(point: Point) -> Probe {
    Probe { point, action: Action::Count }
}

/// Counts every edge and every block, and holds one against the other.
#[track_caller]
fn check_flow(folder: &Path, binary: &Path, args: &[&str], least: usize) {
    let program = program(binary);
    let not_moved = Module::not_moved(&program);
    // With probes of a plan, PLT stubs stay.
    let is_moved = |f: &FuncId| not_moved[f.index()].is_none() && program.function(*f).import.is_none();
    let moved: Vec<_> = program.func_ids().filter(is_moved).collect();
    let blocks = || moved.iter().flat_map(|f| program.function(*f).block_ids());
    let edges = blocks().flat_map(|b| program.edge_ids(b)).map(|e| count(Point::Edge(e)));
    let entries = moved.iter().map(|f| count(Point::Entry(*f)));
    let plan = Plan { probes: edges.chain(entries).collect(), ..Plan::BLOCKS };
    let (probes, left_out) = write(&program, &plan, &folder.join("edges"));
    let (want, got) =
        (Command::new(binary).args(args).output().expect("it runs"), run(folder, "edges", args));
    assert_eq!((&got.stdout, &got.stderr, got.status), (&want.stdout, &want.stderr, want.status));

    let file = std::fs::read(folder.join("out.engraft")).expect("a recording");
    let profile = raw_recording::parse(&file).expect("readable").remove(0);
    let seen = raw_recording::seen(&file).expect("readable");
    let mut by_edge = HashMap::new();
    let mut by_entry = HashMap::new();
    for (probe, seen) in probes.iter().zip(seen) {
        let Kept::Count(n) = seen.kept else { panic!("{seen:?}") };
        match probe.point {
            Point::Edge(e) => by_edge.insert(e, n).is_none(),
            Point::Entry(f) => by_entry.insert(f, n).is_none(),
            _ => unreachable!("no other was asked for"),
        };
    }
    let mut into: BTreeMap<_, u64> = BTreeMap::new();
    for (e, n) in &by_edge {
        *into.entry(program.edge(*e).to).or_default() += n;
    }
    let mut n_checked = 0;
    for b in blocks() {
        let block = program.block(b);
        let ran = profile.blocks[&block.start];
        let function = program.function(block.func);
        let known = |e| by_edge.contains_key(&e);
        let has_all_in = blocks()
            .filter(|from| program.successors(*from).iter().any(|e| e.to == b))
            .all(|from| program.edge_ids(from).filter(|e| program.edge(*e).to == b).all(known));
        let is_other_entry = function.entries.contains(&b) && program.entry_block(block.func) != Some(b);
        if ran > 0 && has_all_in && !is_other_entry {
            let entered = match program.entry_block(block.func) == Some(b) {
                true => by_entry[&block.func],
                false => 0,
            };
            let came = into.get(&b).copied().unwrap_or(0) + entered;
            assert_eq!(came, ran, "into {} of {}", block.start, function.name());
            n_checked += 1;
        }
        let calls = program.calls_in(b);
        let out: Vec<_> = program.edge_ids(b).collect();
        let is_closed = matches!(block.end, BlockEnd::Branch | BlockEnd::Jump | BlockEnd::Switch | BlockEnd::FallThrough)
                && calls.is_empty()
            // Its system call does not return.
            && function.name() != "_Exit"
                && !out.is_empty();
        if ran > 0 && is_closed && out.iter().all(|e| known(*e)) {
            let left: u64 = out.iter().map(|e| by_edge[e]).sum();
            assert_eq!(left, ran, "out of {} of {}", block.start, function.name());
            n_checked += 1;
        }
        assert!(calls.iter().all(|c| c.kind != CallKind::FallThrough) || !is_closed);
    }
    assert!(n_checked >= least, "{n_checked} equations, {} points left out", left_out.len());
    // Pads and tables are among them.
    assert!(left_out.len() * 20 <= probes.len(), "{} of {}", left_out.len(), probes.len());
}

#[test]
fn edges_add_up_to_blocks() {
    needs!("g++", "gzip");
    for flags in ["-O0", "-O1", "-O2", "-O2 -no-pie -fno-PIE", "-O3 -static"] {
        let place = folder();
        let binary = place.path().join("points");
        compile(&binary, "points.cc", &format!("{flags} -lstdc++"));
        check_flow(place.path(), &binary, &[], 60);
    }
    let place = folder();
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/points.rs");
    check_flow(place.path(), Path::new("/usr/bin/gzip"), &["-9c", text], 400);
}

/// Counts sparsely, and every block and edge besides, in one run: what follows must be what was counted.
#[track_caller]
fn check_follows(folder: &Path, binary: &Path, args: &[&str], least: usize) {
    let program = program(binary);
    let not_moved = Module::not_moved(&program);
    let is_moved = |f: &FuncId| not_moved[f.index()].is_none() && program.function(*f).import.is_none();
    let moved: Vec<_> = program.func_ids().filter(is_moved).collect();
    let blocks = || moved.iter().flat_map(|f| program.function(*f).block_ids());
    let is_here = |e: &program::EdgeId| !matches!(program.edge(*e).kind, EdgeKind::LandingPad);
    let edges = blocks().flat_map(|b| program.edge_ids(b)).filter(is_here).map(|e| count(Point::Edge(e)));
    let probes = blocks().map(|b| count(Point::Block(b))).chain(edges).collect();
    let plan = Plan { probes, ..Placement::Edges.plan(&program) };
    let (probes, _) = write(&program, &plan, &folder.join("edges"));
    let (want, got) =
        (Command::new(binary).args(args).output().expect("it runs"), run(folder, "edges", args));
    assert_eq!((&got.stdout, &got.stderr, got.status), (&want.stdout, &want.stderr, want.status));

    let file = std::fs::read(folder.join("out.engraft")).expect("a recording");
    let profile = raw_recording::parse(&file).expect("readable").remove(0);
    let mut by_edge: BTreeMap<Edge, u64> = BTreeMap::new();
    let (mut n_blocks, mut n_edges) = (0, 0);
    for (probe, seen) in probes.iter().zip(raw_recording::seen(&file).expect("readable")) {
        let Kept::Count(n) = seen.kept else { panic!("{seen:?}") };
        match probe.point {
            Point::Block(b) => {
                let block = program.block(b);
                let name = program.function(block.func).name();
                assert_eq!(profile.blocks.get(&block.start), Some(&n), "{} of {name}", block.start);
                n_blocks += usize::from(n > 0);
            }
            Point::Edge(e) => {
                let start = |b| program.block(b).start;
                let edge = program.edge(e);
                // Of two edges between the same blocks, the sum.
                *by_edge.entry(Edge { from: start(edge.from), to: start(edge.to) }).or_default() += n;
            }
            _ => unreachable!("no other was asked for"),
        }
    }
    for (edge, n) in by_edge {
        // Edges of tables that cannot be told apart do not follow, either.
        let Some(follows) = profile.edges.get(&edge) else { continue };
        let name = program.function(program.function_at(edge.from).expect("it has one")).name();
        assert_eq!(*follows, n, "{edge:?} of {name}");
        n_edges += usize::from(n > 0);
    }
    assert!(n_blocks >= least && n_edges >= least, "{n_blocks} blocks, {n_edges} edges");
}

#[test]
fn what_has_no_counter_follows() {
    needs!("g++", "gzip");
    for flags in ["-O0", "-O1", "-O2", "-O2 -no-pie -fno-PIE", "-O3 -static"] {
        let place = folder();
        let binary = place.path().join("points");
        compile(&binary, "points.cc", &format!("{flags} -lstdc++"));
        check_follows(place.path(), &binary, &[], 40);
    }
    let place = folder();
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/points.rs");
    check_follows(place.path(), Path::new("/usr/bin/gzip"), &["-9c", text], 350);
}

/// The lines that the program printed: a name and a number.
fn said(out: &[u8]) -> BTreeMap<String, u64> {
    let text = String::from_utf8_lossy(out).into_owned();
    let lines = text.lines().filter_map(|l| l.split_once(' '));
    lines.filter_map(|(name, n)| Some((name.to_owned(), n.parse().ok()?))).collect()
}

#[test]
fn edges_to_cases_and_pads_are_told_apart() {
    needs!("g++");
    for flags in ["-O1", "-O2", "-O2 -no-pie -fno-PIE", "-O2 -static"] {
        let place = folder();
        let binary = place.path().join("points");
        compile(&binary, "points.cc", &format!("{flags} -lstdc++"));
        let program = program(&binary);
        let named = |name: &str| {
            let is_it = |f: &FuncId| program.function(*f).names.iter().any(|n| **n == *name);
            program.func_ids().find(is_it).expect("it is there")
        };
        let edges = |name: &str, kind: EdgeKind| {
            let blocks = program.function(named(name)).block_ids();
            let edges = blocks.flat_map(|b| program.edge_ids(b)).filter(|e| program.edge(*e).kind == kind);
            edges.map(|e| count(Point::Edge(e))).collect::<Vec<_>>()
        };
        let (cases, pads) = (edges("pick", EdgeKind::Table), edges("lands", EdgeKind::LandingPad));
        let points = [Point::Entry(named("fib")), Point::Exit(named("fib"))].map(count);
        let plan = Plan { probes: [&cases[..], &pads[..], &points].concat(), ..Plan::NULL };
        let (_, left_out) = write(&program, &plan, &place.path().join("edges"));
        assert_eq!(left_out, []);
        let ran = run(place.path(), "edges", &[]);
        let said = said(&ran.stdout);
        let file = std::fs::read(place.path().join("out.engraft")).expect("a recording");
        let seen: Vec<u64> = raw_recording::seen(&file)
            .expect("readable")
            .into_iter()
            .map(|seen| if let Kept::Count(n) = seen.kept { n } else { panic!("{seen:?}") })
            .collect();
        let (of_cases, rest) = seen.split_at(cases.len());
        let (of_pads, rest) = rest.split_at(pads.len());
        // The third case is also fallen into.
        let mut want: Vec<u64> = (0..8).map(|k| said[&format!("case{k}")]).collect();
        want[3] -= want[2];
        want.sort_unstable();
        let mut got: Vec<u64> = of_cases.to_vec();
        got.sort_unstable();
        assert_eq!(got, want, "{flags}");
        let mut got: Vec<u64> = of_pads.iter().copied().filter(|n| *n > 0).collect();
        got.sort_unstable();
        let mut want = vec![said["landed1"], said["landed2"]];
        want.sort_unstable();
        assert_eq!(got, want, "{flags}: {seen:?}");
        // Compilers turn one of the two calls of itself into a loop, or not.
        assert!(rest[0] <= said["fibs"] && rest[0] == rest[1] && rest[0] > 500, "{rest:?} {said:?}");
        if flags == "-O1" {
            assert_eq!(rest[0], said["fibs"]);
        }
    }
}

#[test]
fn plans_are_files() {
    needs!("g++");
    let place = folder();
    compile(&place.path().join("points"), "points.cc", "-O1 -lstdc++");
    let program = program(&place.path().join("points"));
    let total = program.func_ids().find(|f| program.function(*f).name() == "total").expect("it is there");
    let block = program
        .function(total)
        .block_ids()
        .find(|b| program.successors(*b).iter().any(|e| e.to == *b))
        .expect("a loop of one block");
    let header = program.block(block).start;
    let adds =
        program.insns(block).find(|i| i.operands().any(|o| matches!(o, program::arch::Operand::Mem { .. })));
    let adds = adds.expect("it reads memory").at();
    let plan = format!(
        "# of the program's own numbers\n\
         entry total ring rsi 16\n\
         entry total histogram rsi\n\
         loop-entry {header} count\n\
         back-edge {header} count\n\
         loop-exit {header} count\n\
         before {adds} ring memory 4   # 96, 97, 98, 99\n\
         before {adds} ring address 2\n\
         exit total last rax\n\
         entry fib ring time 1024\n"
    );
    std::fs::write(place.path().join("all.plan"), plan).expect("written");
    engraft(place.path(), "instrument points -o new --plan all.plan -q").ok();
    let want = Command::new(place.path().join("points")).output().expect("it runs");
    let got = run(place.path(), "new", &[]);
    assert_eq!((&got.stdout, got.status.code()), (&want.stdout, Some(3)));
    let shown = engraft(place.path(), "show --counts out.engraft --json").json();
    let at = |n: usize, what: &str| shown["points"][n][what].clone();
    assert_eq!(at(0, "values"), serde_json::json!([[0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]]));
    let histogram = at(1, "histogram");
    assert_eq!([0, 4, 5, 6, 7].map(|n: usize| histogram[n].as_u64()), [1, 1, 2, 3, 4].map(Some));
    assert_eq!(
        (at(2, "executions"), at(3, "executions"), at(4, "executions")),
        (10.into(), 540.into(), 10.into())
    );
    assert_eq!(at(5, "values"), serde_json::json!([[96, 97, 98, 99]]));
    let places = at(6, "values");
    assert_eq!(places[0][1].as_u64().zip(places[0][0].as_u64()).map(|(b, a)| b - a), Some(8));
    assert_eq!((at(7, "executions"), at(7, "values")), (11.into(), serde_json::json!([[4950]])));
    let times: Vec<u64> = serde_json::from_value(at(8, "values")[0].clone()).expect("numbers");
    assert!(times.len() == 1024 && times.is_sorted() && times[0] > 0, "{times:?}");

    for (plan, line) in [
        ("entry total count\nentry no count", "bad.plan: line 2: no function of"),
        ("before total+1000000 count", "no instruction of a function starts at"),
        ("entry total ring rsi 1000000000000", "1 to 65536 words"),
        ("entry total", "line 1: no action is named"),
        ("before 0x1 count", "no instruction of a function starts at 0x1"),
        ("entry total last xmm0", "\"xmm0\" is no value"),
        ("entry total ring rsi 3", "a power of two; not 3"),
        ("entry total last memory", "no memory operand"),
        ("edge main main count", "no edge leads from"),
        ("sometimes total count", "\"sometimes\" is no point"),
        ("", "asks for nothing"),
    ] {
        std::fs::write(place.path().join("bad.plan"), plan).expect("written");
        let ran = engraft(place.path(), "instrument points -o bad --plan bad.plan");
        assert_eq!(ran.code, Some(2), "{plan}");
        assert!(ran.stderr.contains(line), "{plan}: {}", ran.stderr);
        assert_eq!(ran.stderr.matches("no function").count(), line.matches("no function").count(), "{plan}");
        assert!(!place.path().join("bad").exists());
    }
}

/// A jump out of a function is made a call, so that its result is seen: exceptions and `longjmp` pass, rings
/// of functions that jump to each other for ever need no more of the stack.
#[test]
fn whoever_called_is_seen_to_get_control_back() {
    needs!("g++");
    let place = folder();
    let folder = place.path();
    compile(&folder.join("returns"), "returns.cpp", "-O2 -lstdc++");
    let plain = Command::new(folder.join("returns")).output().expect("it runs");
    let printed = String::from_utf8(plain.stdout.clone()).expect("text");
    // Name, calls, returns.
    let rows = printed.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let want: Vec<(&str, u64)> = rows.take(5).map(|row| (row[0], row[2].parse().expect("one"))).collect();
    // Several at one place.
    let lines = |(name, _): &(&str, u64)| format!("return {name} count\nreturn {name} last rax\n");
    std::fs::write(folder.join("plan"), want.iter().map(lines).collect::<String>()).expect("written");
    engraft(folder, "instrument returns -o watched --plan plan -q").ok();
    let ran = run(folder, "watched", &[]);
    assert_eq!((ran.stdout, ran.stderr, ran.status), (plain.stdout, plain.stderr, plain.status));
    let shown = engraft(folder, "show --counts out.engraft --json").json();
    let seen = shown["points"].as_array().expect("there are points").chunks(2);
    for ((name, n), rows) in want.iter().zip(seen) {
        // The last of a ring returns, too, but where it is the first: each of 800 times of 20,000. The ring
        // that ring_b begins is the one more.
        let n = if *name == "ring_a" { 2 * n - 800 + 1 } else { *n };
        assert_eq!(rows.iter().map(|row| &row["executions"]).collect::<Vec<_>>(), [n, n], "{name}");
    }
}

/// Code that spoils all that a routine may: `xor %eax,%eax` and so on for every register that calls lose.
fn spoils() -> Routine {
    let mut code = vec![0x65, 0x48, 0xff, 0x06]; // incq %gs:(%rsi)
    for op in [0xc0, 0xc9, 0xd2, 0xf6, 0xff] {
        code.extend([0x31, op]); // xor of the registers from before the 64 bits
    }
    for op in [0xc0, 0xc9, 0xd2, 0xdb] {
        code.extend([0x45, 0x31, op]); // and of r8 to r11
    }
    code.push(0xc3);
    Routine { code, words: 1 }
}

/// What is kept behind a call of fork is kept apart for the child, from its first value on.
#[test]
fn behind_fork_a_child_keeps_its_own() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("forks"), "forks.c", "-O1 -pthread -DN=10");
    let program = program(&place.path().join("forks"));
    let is_fork = |f| program.function(f).import.as_deref() == Some("fork");
    let mut calls = program.calls.iter().filter(|c| match c.callee {
        Callee::Function(f) => is_fork(f),
        _ => false,
    });
    let call = calls.next().expect("there is one");
    let rax = Value::Register(general_register("rax").expect("it is one"));
    let probe = Probe { point: Point::After(call.at), action: Action::Keep(rax, Sink::Ring(64)) };
    let plan = Plan { probes: vec![probe], ..Plan::NULL };
    let (_, left_out) = write(&program, &plan, &place.path().join("new"));
    assert_eq!(left_out, []);
    run(place.path(), "new", &[]);
    let file = std::fs::read(place.path().join("out.engraft")).expect("a recording");
    let seen = raw_recording::seen(&file).expect("readable");
    let Some(Kept::Ring(rings)) = seen.first().map(|s| &s.kept) else { panic!("{seen:?}") };
    // The first process has the numbers of its twenty children.
    let (n, values) = rings.iter().max_by_key(|r| r.0).expect("the first process, at least");
    assert!(*n == 20 && !values.contains(&0), "{rings:?}");
}

/// Every kind of probe at every instruction of a program that looks at everything.
#[test]
fn no_probe_can_be_noticed() {
    needs!("gcc", "g++");
    for (source, flags) in [
        ("canary.c", "-O1"),
        ("canary.c", "-O2 -no-pie"),
        ("canary.c", "-O1 -static"),
        ("points.cc", "-O2 -lstdc++"),
    ] {
        let place = folder();
        let binary = place.path().join("old");
        compile(&binary, source, flags);
        let program = program(&binary);
        let want = Command::new(&binary).output().expect("it runs");
        let not_moved = Module::not_moved(&program);
        let mine = |name: &str| name == "main" || !name.starts_with('_') && program.functions.len() < 200;
        let blocks: Vec<_> = program
            .func_ids()
            .filter(|f| not_moved[f.index()].is_none() && mine(&program.function(*f).name()))
            .flat_map(|f| program.function(f).block_ids())
            .collect();
        let insns: Vec<_> = blocks.iter().flat_map(|b| program.insns(*b)).map(|i| i.at()).collect();
        let register = |name| Value::Register(general_register(name).expect("it is one"));
        let actions = [
            Action::Count,
            Action::Keep(Value::Flags, Sink::Ring(16)),
            Action::Keep(Value::Flags, Sink::Last),
            Action::Keep(Value::Time, Sink::Histogram),
            Action::Keep(register("rsp"), Sink::Last),
            Action::Keep(register("rax"), Sink::Ring(2)),
            Action::Keep(register("rdi"), Sink::Histogram),
            Action::Keep(Value::Memory, Sink::Ring(4)),
            Action::Keep(Value::Address, Sink::Histogram),
            Action::Call(register("rdx"), spoils()),
            Action::Call(Value::Memory, spoils()),
        ];
        for action in actions {
            let before = insns.iter().map(|at| Point::Before(*at));
            let points = before.chain(insns.iter().map(|at| Point::After(*at)));
            let probes = points.map(|point| Probe { point, action: action.clone() }).collect();
            let (put, _) = write(&program, &Plan { probes, ..Plan::NULL }, &place.path().join("new"));
            assert!(put.len() * 20 > insns.len(), "{action:?}: {} of {}", put.len(), insns.len());
            let got = run(place.path(), "new", &[]);
            assert_eq!((&got.stdout, got.status), (&want.stdout, want.status), "{source} {flags} {action:?}");
            let file = std::fs::read(place.path().join("out.engraft")).expect("a recording");
            let seen = raw_recording::seen(&file).expect("readable");
            let hit = seen.iter().filter(|s| match &s.kept {
                Kept::Count(n) => *n > 0,
                Kept::Histogram(all) => all.iter().any(|n| *n > 0),
                Kept::Ring(all) => !all.is_empty(),
                Kept::Last(_) => false,
            });
            assert!(hit.count() * 4 > put.len(), "{action:?} {seen:?}");
        }
    }
}

/// A program that looks at its stack while probes have moved the stack pointer.
#[test]
fn stacks_are_seen_whole_from_within_probes() {
    needs!("gcc");
    let place = folder();
    let binary = place.path().join("profiled");
    compile(&binary, "profiled.c", "-O1");
    let want = Command::new(&binary).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&want.stdout), "whole\n");
    let program = program(&binary);
    let hot = program.func_ids().filter(|f| ["hot", "framed"].contains(&&*program.function(*f).name()));
    let insns: Vec<_> = hot
        .flat_map(|f| program.function(f).block_ids())
        .flat_map(|b| program.insns(b))
        .map(|i| i.at())
        .collect();
    let register = |name| Value::Register(general_register(name).expect("it is one"));
    for action in [Action::Keep(Value::Flags, Sink::Ring(16)), Action::Keep(register("rsp"), Sink::Histogram)]
    {
        let before = insns.iter().map(|at| Point::Before(*at));
        let points = before.chain(insns.iter().map(|at| Point::After(*at)));
        let probes = points.map(|point| Probe { point, action: action.clone() }).collect();
        write(&program, &Plan { probes, ..Plan::NULL }, &place.path().join("new"));
        let got = run(place.path(), "new", &[]);
        assert_eq!((&got.stdout, got.status), (&want.stdout, want.status), "{action:?}");
    }
}
