//! `query` on small traces that are made here, held against what a slow search of the plain trace says.

use crate::run::{engraft, folder};
use std::fmt::Write as _;
use std::path::Path;

pub const ENTER: u32 = 0x4000_0000;
pub const EXIT: u32 = 0x8000_0000;

/// Names of the functions, each with four blocks.
pub const FUNCTIONS: [&str; 3] = ["main", "parse", "hash"];

/// A run: `main` calls the two others, they each other and themselves; the same for the same seed.
pub fn random_run(seed: u64, n: usize) -> Vec<u32> {
    let mut state = seed;
    let mut below = |n: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 40).expect("24 bits") % n
    };
    let (mut run, mut depth) = (vec![ENTER, 0], 1);
    while run.len() < n {
        match below(8) {
            0 if depth < 9 => {
                run.extend([ENTER + 1 + below(2), 0]);
                depth += 1;
            }
            1 if depth > 1 => {
                run.push(EXIT);
                depth -= 1;
            }
            _ => run.push(below(4)),
        }
    }
    run.extend(std::iter::repeat_n(EXIT, depth));
    run
}

/// Writes a run as `NAME.trc`, with names, and converts it to `NAME.trace`.
pub fn written(to: &Path, name: &str, run: &[u32], store: &str) {
    let bytes: Vec<u8> = run.iter().flat_map(|code| code.to_le_bytes()).collect();
    std::fs::write(to.join(format!("{name}.trc")), bytes).expect("written");
    let mut meta = String::new();
    for (f, function) in FUNCTIONS.iter().enumerate() {
        for b in 0..4 {
            let at = 0x1000 + 0x100 * f + 8 * b;
            writeln!(meta, "{f} {b} {at:#x} {function} words.c:{}", 10 * f + b + 1)
                .expect("a string takes all");
        }
    }
    std::fs::write(to.join("names.meta"), meta).expect("written");
    engraft(to, &format!("convert -q {name}.trc --meta names.meta -o {name}.trace --store {store}")).ok();
}

/// Where a path ends, and in an activation that who called.
fn occurrences(run: &[u32], func: u32, blocks: &[u32]) -> Vec<(usize, Option<u32>)> {
    let mut open: Vec<(u32, Vec<u32>)> = Vec::new();
    let mut found = Vec::new();
    for (index, &code) in run.iter().enumerate() {
        match code {
            EXIT => drop(open.pop()),
            ENTER.. => open.push((code - ENTER, Vec::new())),
            _ => {
                let caller = open.iter().rev().nth(1).map(|(func, _)| *func);
                let (of, own) = open.last_mut().expect("the run is balanced");
                own.push(code);
                if *of == func && own.ends_with(blocks) {
                    found.push((index, caller));
                }
            }
        }
    }
    found
}

#[test]
fn single_occurrences_and_callers_are_those_of_the_plain_trace() {
    let place = folder();
    let run = random_run(7, 3000);
    written(place.path(), "packed", &run, "packed");
    written(place.path(), "chunks", &run, "zstd");
    let want = occurrences(&run, 2, &[1, 2]);
    assert!(want.len() > 20, "{}", want.len());
    for file in ["packed", "chunks"] {
        let ask = |how: &str| engraft(place.path(), &format!("query {file}.trace 'hash: 1 2' {how}"));
        for n in [1, 2, want.len() / 2, want.len()] {
            let (at, _) = want[n - 1];
            assert_eq!(ask(&format!("--nth {n}")).ok(), format!("{at}\n"));
            if n > 1 {
                assert_eq!(ask(&format!("--previous {at}")).ok(), format!("{}\n", want[n - 2].0));
                assert_eq!(ask(&format!("--next {}", at - 1)).ok(), format!("{at}\n"));
                assert_eq!(ask(&format!("--next 0:{}", want[n - 2].0)).ok(), format!("{at}\n"));
            }
        }
        let none = ask(&format!("--nth {}", want.len() + 1));
        assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""));
        assert!(
            none.stderr.contains(&format!("the trace has {} occurrences", want.len())),
            "{}",
            none.stderr
        );
        assert_eq!(ask(&format!("--previous {}", want[0].0)).code, Some(1));
        let callers = ask("--per-caller --json").json();
        for (id, function) in (0..).zip(FUNCTIONS) {
            let n = want.iter().filter(|(_, caller)| *caller == Some(id)).count();
            let rows = callers["callers"].as_array().expect("a list");
            let got = rows
                .iter()
                .find(|row| row["function"] == function)
                .map_or(0, |row| row["count"].as_u64().expect("a count"));
            assert_eq!(got, n as u64, "{function} in {callers}");
        }
        assert_eq!(ask("--per-thread --format csv").ok(), format!("thread,count\n0,{}\n", want.len()));
    }
}

/// The run as `--at` prints it, with names and lines.
fn lines(run: &[u32]) -> Vec<String> {
    let mut open: Vec<usize> = Vec::new();
    let line = |(index, &code): (usize, &u32)| match code {
        EXIT => format!("{index} E {}", FUNCTIONS[open.pop().expect("the run is balanced")]),
        ENTER.. => {
            open.push((code - ENTER) as usize);
            format!("{index} F {}", FUNCTIONS[(code - ENTER) as usize])
        }
        b => {
            let f = *open.last().expect("the run is balanced");
            let at = 0x1000 + 0x100 * f + 8 * b as usize;
            format!("{index} B {} {b} {at:#x} words.c:{}", FUNCTIONS[f], 10 * f + b as usize + 1)
        }
    };
    run.iter().enumerate().map(line).collect()
}

#[test]
fn ranges_and_contexts_of_query_are_the_plain_trace() {
    let place = folder();
    let run = random_run(11, 900);
    written(place.path(), "packed", &run, "packed");
    written(place.path(), "chunks", &run, "zlib");
    let want = lines(&run);
    let n = run.len();
    for file in ["packed", "chunks"] {
        for (i, j) in [(0, n), (0, 1), (n - 1, n), (400, 460), (n / 2, n)] {
            let got = engraft(place.path(), &format!("query {file}.trace --at {i}..{j}")).ok();
            assert_eq!(got.lines().collect::<Vec<_>>(), want[i..j], "{i}..{j}");
        }
        let json = engraft(place.path(), &format!("query {file}.trace --at 400..460 --json")).json();
        for (symbol, want) in json["symbols"].as_array().expect("a list").iter().zip(&want[400..460]) {
            let text = |key: &str| symbol[key].as_str().unwrap_or_default().to_owned();
            assert!(want.starts_with(&format!("{} {} {}", symbol["index"], text("step"), text("function"))));
        }
        let at = occurrences(&run, 1, &[3, 1])[2].0;
        let got = engraft(place.path(), &format!("query {file}.trace 'parse: 3 1' --nth 3 --context=2")).ok();
        let marked = (at - 2..=at + 2).map(|i| format!("{} {}\n", if i == at { '>' } else { ' ' }, want[i]));
        assert_eq!(got, marked.collect::<String>());
        let first = engraft(place.path(), &format!("query {file}.trace 'main: 0' --context")).ok();
        let shown = first.split_once('\n').expect("it has lines").1;
        assert!(shown.starts_with("  0 F main\n> 1 B main 0 0x1000 words.c:1\n"), "{first}");
        assert_eq!(shown.lines().count(), 7, "{first}");
    }
}

#[test]
fn the_hottest_paths_of_query_are_those_counted_one_by_one() {
    let place = folder();
    let run = random_run(5, 2000);
    written(place.path(), "packed", &run, "packed");
    written(place.path(), "chunks", &run, "zstd");
    // All paths of two blocks there can be.
    let mut want: Vec<_> = (0..3_u32)
        .flat_map(|f| (0..16).map(move |i| (f, i / 4, i % 4)))
        .map(|(f, a, b)| (occurrences(&run, f, &[a, b]).len(), f, a, b))
        .filter(|(n, ..)| *n > 0)
        .collect();
    want.sort_by_key(|&(n, f, a, b)| (std::cmp::Reverse(n), f, a, b));
    let row = |(n, f, a, b): &(usize, u32, u32, u32)| format!("{n},{},{a} {b}\n", FUNCTIONS[*f as usize]);
    for file in ["packed", "chunks"] {
        let ask = |how: &str| {
            engraft(place.path(), &format!("query {file}.trace {how} --format csv")).ok().replacen(
                "count,function,path\n",
                "",
                1,
            )
        };
        assert_eq!(ask("--hottest 1000"), want.iter().map(row).collect::<String>());
        assert_eq!(ask("--hottest 5"), want[..5].iter().map(row).collect::<String>());
        let of = want.iter().filter(|(_, f, ..)| *f == 1);
        assert_eq!(ask("parse --hottest 3"), of.take(3).map(row).collect::<String>());
        let longer = ask("hash --hottest 1 --length 3");
        let blocks: Vec<u32> = longer
            .trim()
            .rsplit(',')
            .next()
            .into_iter()
            .flat_map(str::split_whitespace)
            .map(|b| b.parse().expect("a block"))
            .collect();
        assert!(longer.starts_with(&format!("{},hash,", occurrences(&run, 2, &blocks).len())), "{longer}");
    }
}

/// Where `parse: 1 {hash: 2 2} 3` ends: for each open activation its last block, and since then, whether it
/// called `hash` with 2 2 in it.
fn through_calls(run: &[u32]) -> Vec<usize> {
    let mut open: Vec<(u32, Vec<u32>, bool)> = Vec::new();
    let mut found = Vec::new();
    for (index, &code) in run.iter().enumerate() {
        match code {
            EXIT => {
                let (func, own, _) = open.pop().expect("the run is balanced");
                if let Some(caller) = open.last_mut() {
                    caller.2 |= func == 2 && own.windows(2).any(|two| two == [2, 2]);
                }
            }
            ENTER.. => open.push((code - ENTER, Vec::new(), false)),
            _ => {
                let (func, own, called) = open.last_mut().expect("the run is balanced");
                if *func == 1 && own.last() == Some(&1) && code == 3 && *called {
                    found.push(index);
                }
                own.push(code);
                *called = false;
            }
        }
    }
    found
}

#[test]
fn paths_of_query_go_through_calls() {
    let place = folder();
    let run = random_run(3, 60_000);
    written(place.path(), "packed", &run, "packed");
    written(place.path(), "chunks", &run, "zstd");
    let want = through_calls(&run);
    assert!(want.len() > 10, "{}", want.len());
    for file in ["packed", "chunks"] {
        let ask = |how: &str| {
            engraft(place.path(), &format!("query {file}.trace 'parse: 1 {{hash: 2 2}} 3' {how}"))
        };
        let all: String = want.iter().map(|at| format!("{at}\n")).collect();
        for how in ["--all", "--all --scheme 1", "--all --scheme 3"] {
            assert_eq!(ask(how).ok(), all, "{how}");
        }
        assert_eq!(ask("--count").ok(), format!("{}\n", want.len()));
        assert_eq!(ask("--nth 4").ok(), format!("{}\n", want[3]));
        assert_eq!(ask("--per-caller --json").json()["count"], want.len());
        let view = ask("--json").json();
        assert_eq!(view["steps"][1]["calls"][0]["function"], "hash");
        let ran = ask("--scheme 2");
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("hint: leave --scheme out, or say 1 or 3"), "{}", ran.stderr);
    }
}

/// The paths of two blocks of each function.
fn pairs(run: &[u32]) -> std::collections::BTreeMap<(u32, u32, u32), usize> {
    let mut all = std::collections::BTreeMap::new();
    for (f, a, b) in (0..48).map(|i| (i / 16, i / 4 % 4, i % 4)) {
        let n = occurrences(run, f, &[a, b]).len();
        if n > 0 {
            all.insert((f, a, b), n);
        }
    }
    all
}

#[test]
fn runs_that_query_compares_differ_where_they_were_made_to() {
    let place = folder();
    // Few enough symbols that not all paths are taken.
    let (one, mut other) = (random_run(9, 120), random_run(9, 70));
    let at = (50..).find(|&i| one[i] < 3).expect("there is a block");
    other[at] += 1;
    written(place.path(), "a", &one, "packed");
    written(place.path(), "b", &other, "zstd");
    let ran = engraft(place.path(), "query --diff a.trace b.trace --json");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""));
    let view: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let divergence = &view["divergences"][0];
    assert_eq!((&divergence["index"], &divergence["thread"]), (&at.into(), &0.into()));
    assert_eq!(
        (&divergence["first"][0]["block"], &divergence["second"][0]["block"]),
        (&one[at].into(), &other[at].into())
    );
    assert_eq!(divergence["before"][0]["index"], at - 5);
    let (in_one, in_other) = (pairs(&one), pairs(&other));
    let mut want: Vec<String> = Vec::new();
    for (name, these, those) in [("a.trace", &in_one, &in_other), ("b.trace", &in_other, &in_one)] {
        let alone = these.iter().filter(|(path, _)| !those.contains_key(path));
        want.extend(alone.map(|((f, a, b), n)| format!("{name},{n},{},{a} {b}", FUNCTIONS[*f as usize])));
    }
    want.sort();
    assert!(!want.is_empty());
    let rows = |args: &str| {
        let ran = engraft(place.path(), &format!("query --diff a.trace b.trace {args} --format csv"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""));
        let mut rows: Vec<String> = ran.stdout.lines().skip(1).map(str::to_owned).collect();
        rows.sort();
        rows
    };
    assert_eq!(rows(""), want);
    for function in FUNCTIONS {
        let of: Vec<_> = want.iter().filter(|row| row.contains(&format!(",{function},"))).cloned().collect();
        assert_eq!(rows(function), of);
    }
    let text = engraft(place.path(), "query --diff a.trace b.trace --context=1").stdout;
    let (a, b) = (lines(&one), lines(&other));
    let shown = format!(
        "thread 0 differs from symbol {at} on\n  {}\na.trace:\n> {}\n  {}\nb.trace:\n> {}\n  {}\n",
        a[at - 1],
        a[at],
        a[at + 1],
        b[at],
        b[at + 1]
    );
    assert!(text.starts_with(&shown), "{text}\nis not\n{shown}");
    assert_eq!(engraft(place.path(), "query --diff a.trace a.trace").ok(), "the runs are the same\n");
}

/// Symbols of C++ and Rust, each with two blocks.
const DECORATED: [(&str, &str); 6] = [
    ("main", "main"),
    ("_ZNK2ns3Box3getEi", "ns::Box::get(int) const"),
    ("_ZN2ns3Row3putEv", "ns::Row::put()"),
    ("_ZN5other3Row3putEv", "other::Row::put()"),
    ("_RNvNtCs4lUfJ5g3poj_5tokio4task5spawn", "tokio::task::spawn"),
    ("_ZNK2ns3Box3getEi@plt", "ns::Box::get(int) const@plt"),
];

#[test]
fn functions_of_query_go_by_the_names_of_their_source() {
    let place = folder();
    let call = |f: u32| [ENTER + f, 0, 1, EXIT];
    let run = [&[ENTER, 0][..], &call(1), &[1], &call(2), &call(3), &call(4), &call(5), &[EXIT]].concat();
    let bytes: Vec<u8> = run.iter().flat_map(|code| code.to_le_bytes()).collect();
    std::fs::write(place.path().join("run.trc"), bytes).expect("written");
    let blocks = (0..).zip(DECORATED).flat_map(|(f, (symbol, _))| {
        (0..2).map(move |b| format!("{f} {b} {:#x} {symbol} a.cc:?\n", 0x1000 + 0x10 * f + b))
    });
    std::fs::write(place.path().join("run.meta"), blocks.collect::<String>()).expect("written");
    engraft(place.path(), "convert -q run.trc --meta run.meta -o run.trace").ok();
    let ask = |args: &str| engraft(place.path(), &format!("query run.trace {args}"));
    let number = |name: &str| ask(&format!("'{name}: 0' --json")).json()["function_id"].clone();
    for (f, (symbol, name)) in (0..).zip(DECORATED) {
        assert_eq!((number(symbol), number(name)), (f.into(), f.into()), "{name}");
    }
    for (name, f) in
        [("ns::Box::get", 1), ("Box::get", 1), ("get(int)", 1), ("ns::Row::put", 2), ("spawn", 4)]
    {
        assert_eq!(number(name), f, "{name}");
    }
    assert_eq!(ask("'main: 0 {Box::get: 0 1} 1; task::spawn: 0' --count").ok(), "1\n1\n");
    for (args, says) in [
        ("'Row::put: 0'", "hint: #2 is ns::Row::put() at 0x1020\nhint: #3 is other::Row::put() at 0x1030\n"),
        ("'main: 0 {put: 0} 1'", "2 functions are called 'put'"),
        ("'ns::Box::gte: 0'", "the nearest name is 'ns::Box::get(int) const'"),
        ("'Box::get: 7'", "ns::Box::get(int) const has no block 7"),
        ("spwan --hottest 1", "the nearest name is 'tokio::task::spawn'"),
    ] {
        let ran = ask(args);
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{args}: {}", ran.stderr);
    }
    // People read those names, programs have both.
    assert_eq!(ask("get --hottest 1").ok().lines().last(), Some("    1  ns::Box::get(int) const  0 1"));
    assert_eq!(ask("--at 2..3").ok(), "2 F ns::Box::get(int) const\n");
    let json = ask("--at 0..3 --json").json();
    assert_eq!(json["symbols"][2]["function"], DECORATED[1].0);
    assert_eq!(json["symbols"][2]["source_name"], DECORATED[1].1);
    assert_eq!(json["symbols"][0].get("source_name"), None);
    let stacks = engraft(place.path(), "convert run.trace -q -o - --to folded").ok();
    assert!(stacks.contains("main;tokio::task::spawn 2\n"), "{stacks}");
    let slices = engraft(place.path(), "convert run.trace -q -o - --to chrome").ok();
    assert!(slices.contains("\"name\":\"ns::Row::put()\""), "{slices}");
}

/// Each says what is wrong, and what is nearest to it.
#[test]
fn bad_positions_of_query_are_named() {
    let place = folder();
    written(place.path(), "run", &random_run(1, 100), "packed");
    for (args, says) in [
        ("'main: 0' --nth 0", "--nth"),
        ("'main: 0' --next x", "a position is INDEX or THREAD:INDEX"),
        ("'main: 0' --next 100000", "its symbols are numbered from 0 to "),
        ("'main: 0' --previous 3:1", "the threads are 0; the nearest is 0"),
        ("'main: 0 {hsh: 1} 1'", "the nearest name is 'hash'"),
        ("'main: 0 {hash: 9} 1'", "the nearest is block 3"),
        ("'main: 0 {hash: 1}'", "say which is executed behind the call"),
        ("--diff", "say `query --diff A B [FUNCTION]`"),
        ("run.trace mian --diff", "the nearest name is 'main'"),
        ("--diff nothing.trace", "cannot read nothing.trace"),
        ("'main: 0' --length 3", "required"),
        ("--hottest 0", "it is a number from 1 on"),
        ("mian --hottest 3", "the nearest name is 'main'"),
        ("main --hottest 3 --length 65", "paths have 1 to 64 blocks"),
        ("--at 5..5", "a range is I..J"),
        ("--at 90..5000", "symbols: say 90.."),
        ("--at 0..5 --thread 1", "the threads are 0; the nearest is 0"),
        ("'main: 0' --first --per-thread", "cannot be used with"),
        ("'main: 0' --thread 7", "the threads are 0; the nearest is 0"),
    ] {
        let ran = engraft(place.path(), &format!("query run.trace {args}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args}");
        assert!(ran.stderr.contains(says), "{args}: {}", ran.stderr);
    }
}

/// Lines `PATH COUNT FIRST` of a slow search.
#[test]
fn several_paths_are_answered_as_each_alone() {
    let place = folder();
    let run = random_run(13, 2000);
    written(place.path(), "packed", &run, "packed");
    written(place.path(), "chunks", &run, "zstd");
    let paths = [(0, vec![1, 2]), (2, vec![0, 3, 3]), (1, vec![2]), (2, vec![3, 3, 3, 3, 3, 3, 3, 3, 3])];
    let text: Vec<String> = paths
        .iter()
        .map(|(f, blocks)| {
            let blocks: Vec<String> = blocks.iter().map(u32::to_string).collect();
            format!("{}: {}", FUNCTIONS[*f as usize], blocks.join(" "))
        })
        .collect();
    let want: Vec<_> = paths.iter().map(|(f, blocks)| occurrences(&run, *f, blocks)).collect();
    assert!(want[3].is_empty() && want[..3].iter().all(|all| !all.is_empty()));
    for file in ["packed", "chunks"] {
        let ask =
            |how: &str| engraft(place.path(), &format!("query {file}.trace '{}' {how} -q", text.join("; ")));
        let counts: String = want.iter().map(|all| format!("{}\n", all.len())).collect();
        assert_eq!(ask("--count").ok(), counts);
        let first = want.iter().map(|all| all.first().map_or("-\n".to_owned(), |p| format!("{}\n", p.0)));
        assert_eq!(ask("--first").ok(), first.collect::<String>());
        let all = (1..).zip(&want).flat_map(|(n, all)| all.iter().map(move |p| format!("{n} {}\n", p.0)));
        assert_eq!(ask("--all").ok(), all.collect::<String>());
        let json = ask("--json").json();
        for (n, all) in want.iter().enumerate() {
            assert_eq!(json["paths"][n]["count"], all.len());
        }
        let ran = ask("--per-thread");
        assert!(ran.code == Some(2) && ran.stderr.contains("one by one"), "{}", ran.stderr);
    }
}

#[test]
fn lines_in_paths_stand_for_their_blocks() {
    let place = folder();
    let run = random_run(17, 2000);
    written(place.path(), "run", &run, "packed");
    let ask = |path: &str| engraft(place.path(), &format!("query run.trace '{path}' --count"));
    // Block b of function f is of line 10 f + b + 1.
    for (lines, blocks) in [
        ("hash: words.c:22", "hash: 1"),
        ("hash: words.c:22..23 words.c:24", "hash: 1|2 3"),
        ("parse: 0 words.c:1..99+ 2", "parse: 0 0|1|2|3+ 2"),
        ("parse: words.c:12|3 .. words.c:11", "parse: 1|3 .. 0"),
    ] {
        assert_eq!(ask(lines).ok(), ask(blocks).ok(), "{lines}");
    }
    for (path, says) in [
        ("hash: words.c:7", "the nearest line of it with code is words.c:21"),
        ("hash: other.c:22", "it is of words.c:21"),
        ("hash: 1 words.c:22.. 3", "a block is its number in the function"),
    ] {
        let ran = ask(path);
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{path}: {}", ran.stderr);
    }
    // What does not follow in this run is said, and is no error.
    let small = [ENTER, 0, 1, 2, 1, 3, EXIT];
    written(place.path(), "small", &small, "packed");
    let ran = engraft(place.path(), "query small.trace 'main: 2 3' --count");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "0\n"));
    let says = "in this run, block 3 of main does not follow block 2\nhint: block 2 leads to 1; the shortest way is '2 1 3'";
    assert!(ran.stderr.contains(says), "{}", ran.stderr);
}

/// Where a section's head stands in a packed file.
fn section(file: &[u8], tag: &[u8; 4]) -> usize {
    file.windows(4).position(|bytes| bytes == tag).expect("the file has it")
}

/// A count is that of the whole trace, or there is none.
#[test]
fn cut_and_damaged_packed_traces_are_not_counted_as_empty() {
    let place = folder();
    let run = random_run(19, 3000);
    written(place.path(), "run", &run, "packed");
    let file = std::fs::read(place.path().join("run.trace")).expect("written");
    let want = format!("{}\n", occurrences(&run, 2, &[1, 2]).len());
    let ask = |bytes: &[u8], how: &str| {
        std::fs::write(place.path().join("p.trace"), bytes).expect("written");
        engraft(place.path(), &format!("query p.trace '#2: 1 2' --count {how}"))
    };
    let [grammar, columns, segments] = [b"GRAM", b"COLS", b"SEGM"].map(|tag| section(&file, tag));
    let mut damaged = file.clone();
    damaged[grammar + 5] ^= 1;
    for bytes in [&file[..16], &file[..grammar + 10], &file[..grammar + 40], &file[..columns - 1], &damaged] {
        let ran = ask(bytes, "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{} bytes", bytes.len());
        let how = if bytes.len() < file.len() { "cut off at byte" } else { "damaged at byte" };
        let says = ["p.trace", how, "before its first symbols are complete", "hint: record it"];
        assert!(says.iter().all(|part| ran.stderr.contains(part)), "{}", ran.stderr);
    }
    // What is whole before it is told, and what is behind it is not taken for a part of it.
    let mut damaged = file.clone();
    damaged[columns + 5] ^= 1;
    let behind = [file.as_slice(), &file[..30]].concat();
    for (bytes, says) in [
        (&damaged, format!("p.trace is damaged at byte {columns:#x}")),
        (&behind, "30 bytes behind its end".into()),
    ] {
        let ran = ask(bytes, "");
        assert_eq!((ran.code, &ran.stdout), (Some(0), &want), "{says}");
        assert!(ran.stderr.contains(&says), "{}", ran.stderr);
    }
    // The grammar is enough.
    for n in [columns, columns + 30, segments, segments + 30] {
        for how in ["", "--scheme 1", "--scheme 2", "--scheme 3", "--scheme 4"] {
            let ran = ask(&file[..n], how);
            assert_eq!((ran.code, &ran.stdout), (Some(0), &want), "{n} bytes, {how}: {}", ran.stderr);
            assert!(ran.stderr.contains("cut off"), "{}", ran.stderr);
        }
    }
    let ran = ask(&file[..columns], "--scheme 5");
    assert!(ran.code == Some(2) && ran.stderr.contains("scheme 5 works on columns"), "{}", ran.stderr);
}

/// A count of nothing is an answer; what is said of the way it was found is so.
#[test]
fn counts_end_with_0_and_name_the_scheme_that_was_used() {
    let place = folder();
    // Block 3 of `main` follows no other.
    let run = [ENTER, 0, 1, 2, 1, ENTER + 1, 0, EXIT, EXIT];
    written(place.path(), "run", &run, "packed");
    let ask = |args: &str| engraft(place.path(), &format!("query run.trace {args} -q"));
    for paths in ["'main: 2 3'", "'main: 2 3; main: 1 3'"] {
        for how in ["", "--json"] {
            assert_eq!(ask(&format!("{paths} --count {how}")).code, Some(0), "{paths} {how}");
            assert_eq!(ask(&format!("{paths} --first {how}")).code, Some(1), "{paths} {how}");
            assert_eq!(ask(&format!("{paths} {how}")).code, Some(1), "{paths} {how}");
        }
    }
    let scheme = |how: &str| ask(&format!("'main: 1' --json {how}")).json()["scheme"].clone();
    assert_eq!([scheme("--count"), scheme("--count --scheme 5"), scheme("--count --scheme 2")], [5, 5, 2]);
    assert_eq!([scheme("--scheme 5"), scheme("--all --scheme 5"), scheme("--first --scheme 1")], [4, 4, 1]);
    let stats = ask("--stats --json").json();
    assert_eq!((&stats["n_unbalanced"], &stats["n_open"]), (&0.into(), &0.into()));
    assert!(ask("--stats").ok().contains("symbols out of balance"), "it is not said");
}

/// Paths that are words of their own are told apart as those in one are: by what stands between them.
#[test]
fn several_paths_need_something_between_them() {
    let place = folder();
    let run = [ENTER, 0, 1, 2, 1, ENTER + 1, 0, EXIT, EXIT];
    written(place.path(), "run", &run, "packed");
    let ask = |args: &str| engraft(place.path(), &format!("query run.trace {args} --count -q"));
    for one in ["main: 1 2", "'main: 1' 2", "main: 1 '{#1: 0}' 2", "main: 1 {#1: 0} 2"] {
        assert!(ask(one).code == Some(0), "{one}: {}", ask(one).stderr);
    }
    for two in ["'main: 1 2;' '#1: 0'", "'main: 1 2' ';' '#1: 0'", "'main: 1 2; #1: 0'"] {
        assert_eq!((ask(two).code, ask(two).stdout.as_str()), (Some(0), "1\n1\n"), "{two}");
    }
    let got = ask("'main: 1 2' '#1: 0'");
    assert!(got.code == Some(2) && got.stderr.contains("put `;` between"), "{}", got.stderr);
}
