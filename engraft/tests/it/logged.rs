//! `engraft values --full`: the log has a row for each call, as the program tells it, and is read as far as
//! it was written.

use crate::needs;
use crate::run::{compile, engraft, folder, must};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CALLS: &str =
    "double scaled(double x, int n); long depth(long n); int by(const void *a, const void *b);";

/// The program and its library.
fn compiled(folder: &Path) {
    compile(&folder.join("liblogged.so"), "calls_logged.c", "-O1 -DLIBRARY -shared -fPIC");
    let link = format!("-O1 -fno-optimize-sibling-calls -L{0} -llogged -Wl,-rpath,{0}", folder.display());
    compile(&folder.join("logged"), "calls_logged.c", &link);
}

/// Where a file calls these functions, as objdump has it: `FILE!0xADDRESS`.
fn calls_of(folder: &Path, file: &str) -> BTreeSet<String> {
    let listing = must(Command::new("objdump").arg("-d").arg(folder.join(file)));
    let is_call = |line: &&str| {
        line.contains("call ")
            && ["<scaled>", "<scaled@plt>", "<depth>"].iter().any(|name| line.contains(name))
    };
    let address = |line: &str| format!("{file}!0x{}", line.split(':').next().unwrap_or_default().trim());
    listing.lines().filter(is_call).map(address).collect()
}

/// What the program prints, and the table of its log. Of a library that is gone before anybody has looked
/// where it is, callers have no names: on a busy machine, this program may be that short, and is run again.
fn logged(folder: &Path) -> (String, String) {
    let mut found = None;
    for _ in 0..5 {
        let mut ran = Command::new(env!("CARGO_BIN_EXE_engraft"));
        ran.args(["values", "--no-cache", "-q", "--full", "-o", "all.engraft", "--calls", CALLS, "./logged"]);
        let ran = ran.current_dir(folder).output().expect("it runs");
        let want = String::from_utf8(ran.stdout).expect("text");
        assert_eq!((ran.status.code(), String::from_utf8_lossy(&ran.stderr).as_ref()), (Some(1), ""));
        let made = engraft(folder, "convert all.engraft -o all.csv --bits --json");
        assert_eq!(made.json()["n_rows"], 2006 + 101 + want.matches("by,").count());
        let text = std::fs::read_to_string(folder.join("all.csv")).expect("it is written");
        if !found.insert((want, text)).1.contains("live:") {
            break;
        }
    }
    found.expect("it was run")
}

/// Each call is a row, with its arguments, result, and where it was made: from the program, from a library,
/// from within itself, from the C library.
#[test]
fn each_call_is_a_row() {
    needs!("gcc", "objdump");
    let place = folder();
    let folder = place.path();
    compiled(folder);
    let (want, text) = logged(folder);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("function,thread,index,caller,x,n,a,b,result,ticks"));
    let (mut got, mut callers) = (BTreeSet::new(), BTreeMap::<String, BTreeSet<String>>::new());
    let mut n_timed = 0;
    for line in lines {
        let [function, thread, index, caller, x, n, a, b, result, ticks] =
            line.split(',').collect::<Vec<_>>()[..]
        else {
            panic!("{line}")
        };
        assert_eq!(thread, "1");
        // Of a short call on a busy machine, nothing may be left of what was measured, less its cost.
        assert!(ticks.parse::<u64>().is_ok_and(|ticks| ticks < 1 << 40), "{line}");
        n_timed += usize::from(ticks != "0");
        let arguments =
            [x, n, a, b].into_iter().filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(",");
        assert!(got.insert(format!("{function},{index},{arguments},{result}")), "{line} is there twice");
        callers.entry(function.to_owned()).or_default().insert(caller.to_owned());
    }
    assert!(n_timed * 2 > got.len(), "{n_timed} of {} calls took time", got.len());
    assert_eq!(got, want.lines().map(str::to_owned).collect());
    let from_libc = callers.remove("by").expect("it is called");
    assert!(from_libc.iter().all(|caller| caller.starts_with("libc.so.6!0x")), "{from_libc:?}");
    let want = ["logged", "liblogged.so"].iter().flat_map(|file| calls_of(folder, file)).collect();
    assert_eq!(callers.into_values().flatten().collect::<BTreeSet<_>>(), want);
    // One function alone has its own columns; what is no log becomes none.
    engraft(folder, "convert all.engraft -o depth.csv --function depth");
    let depth = std::fs::read_to_string(folder.join("depth.csv")).expect("it is written");
    assert_eq!(depth.lines().next(), Some("function,thread,index,caller,n,result,ticks"));
    assert_eq!(depth.lines().count(), 102);
    let ran = engraft(folder, "convert all.engraft -o depth.csv --function shallow");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("has no row of shallow"), "{}", ran.stderr);
    let ran = engraft(folder, "convert all.engraft -o all.fdata");
    assert!(ran.stderr.contains("become CSV and nothing else"), "{}", ran.stderr);
}

/// The first, the last, one in some: these have rows, all are counted.
/// Calls that a condition leaves out are counted, and those that it does not are recorded, within one that is
/// left out, too: as the program tells them.
#[test]
fn conditions_choose_calls_by_their_arguments() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compiled(folder);
    for options in ["", "--full", "--no-results"] {
        let run = format!(
            "values --no-cache --json=said.json -o all.engraft {options} --if 'n > 2 && n != 77' --calls '{CALLS}' ./logged"
        );
        let want = engraft(folder, &run).stdout;
        let said = std::fs::read_to_string(folder.join("said.json")).expect("it is written");
        let said: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
        for (function, place) in [("depth", 2), ("scaled", 3)] {
            let lines = want.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let n = |line: &Vec<&str>| line[place].parse::<i64>().expect("a number");
            let all: Vec<i64> = lines.filter(|line| line[0] == function).map(|line| n(&line)).collect();
            let chosen = all.iter().filter(|n| **n > 2 && **n != 77).count();
            let rows = said["calls"].as_array().expect("rows");
            let row = rows.iter().find(|row| row["function"] == function).expect("it is there");
            let (calls, left_out) = (row["calls"].as_u64(), row["left_out"].as_u64());
            let ends: u64 = ["results", "left", "open"].iter().filter_map(|end| row[end].as_u64()).sum();
            assert_eq!(
                (calls, left_out),
                (Some(chosen as u64), Some((all.len() - chosen) as u64)),
                "{row:#}"
            );
            assert!(chosen > 0 && chosen < all.len(), "{function} shows both");
            assert_eq!(ends, if options == "--no-results" { 0 } else { chosen as u64 }, "{row:#}");
        }
        let by = said["calls"].as_array().and_then(|rows| rows.iter().find(|row| row["function"] == "by"));
        let n_by = want.lines().filter(|line| line.starts_with("by,")).count() as u64;
        let by = by.expect("it has no such argument");
        assert_eq!((by["calls"].as_u64(), by["left_out"].as_u64()), (Some(n_by), Some(0)));
    }
    let refused = engraft(folder, "values -o no.engraft --if 'n >' --calls depth ./logged");
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("--if n >: at \"\", there should be an argument's name"),
        "{}",
        refused.stderr
    );
    let warned = engraft(folder, "values -o no.engraft --if 'm > 3' --calls 'long depth(long n);' ./logged");
    assert!(warned.stderr.contains("no call that was asked for has numbers called m"), "{}", warned.stderr);
}

/// Put together by caller and by thread, calls are those of the table's rows.
#[test]
fn calls_are_put_together_by_who_made_them() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compiled(folder);
    engraft(folder, &format!("values --no-cache -q --full -o all.engraft --calls '{CALLS}' ./logged"));
    engraft(folder, "convert all.engraft -o all.csv");
    let text = std::fs::read_to_string(folder.join("all.csv")).expect("it is written");
    let (mut callers, mut threads) = (BTreeMap::<[String; 3], u64>::new(), BTreeMap::new());
    for line in text.lines().skip(1) {
        let [function, thread, _, caller, x, n, ..] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        // `depth` and `scaled` have an `n`, what `by` compares is elsewhere each time.
        let first = if function == "scaled" { x } else { n };
        if !first.is_empty() {
            *callers.entry([function, caller, first].map(str::to_owned)).or_default() += 1;
        }
        *threads.entry([function, thread].map(str::to_owned)).or_insert(0) += 1;
    }
    let show = |by: &str| engraft(folder, &format!("show all.engraft --by {by} --json")).json();
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let mut got = BTreeMap::new();
    for row in show("caller")["calls"].as_array().expect("rows") {
        let at = &row["caller"];
        let file = text(&at["module"]).rsplit('/').next().unwrap_or_default().to_owned();
        // A library that was gone before anybody looked has no name, in the table either.
        let mark = if file == "live" { ':' } else { '!' };
        let caller = format!("{file}{mark}{:#x}", at["address"].as_u64().expect("a number"));
        let column = &row["arguments"][0];
        for one in column["top"].as_array().expect("values").iter().filter(|_| row["function"] != "by") {
            let key = [text(&row["function"]), caller.clone(), text(&one["value"])];
            assert_eq!(got.insert(key, one["count"].as_u64().expect("a number")), None);
        }
    }
    assert_eq!(got, callers);
    let all = show("thread");
    let rows = all["calls"].as_array().expect("rows").iter();
    let got: BTreeMap<[String; 2], u64> = rows
        .map(|row| {
            ([text(&row["function"]), row["thread"].to_string()], row["calls"].as_u64().expect("a number"))
        })
        .collect();
    assert_eq!(got, threads);
    let plain = engraft(folder, &format!("values --no-cache -q -o plain.engraft --calls '{CALLS}' ./logged"));
    assert_eq!(plain.code, Some(1));
    let refused = engraft(folder, "show plain.engraft --by caller");
    assert!(refused.code == Some(2) && refused.stderr.contains("has no log of calls"), "{}", refused.stderr);
}

#[test]
fn some_calls_have_rows_and_all_are_counted() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compiled(folder);
    for (which, indexes) in [
        ("--first", (1..=3).collect::<Vec<u64>>()),
        ("--last", vec![2004, 2005, 2006]),
        ("--every", (0..669).map(|n| 3 * n + 1).collect()),
    ] {
        let mut ran = Command::new(env!("CARGO_BIN_EXE_engraft"));
        ran.args([
            "values",
            "--no-cache",
            "-q",
            "--json=said.json",
            "--full",
            which,
            "3",
            "-o",
            "some.engraft",
        ]);
        let ran = ran.args(["--calls", CALLS, "./logged"]).current_dir(folder).output().expect("it runs");
        assert_eq!(ran.status.code(), Some(1), "{which}");
        let said = std::fs::read_to_string(folder.join("said.json")).expect("it is written");
        let said: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
        assert_eq!(said["calls"][0]["calls"], 2006, "{which}");
        engraft(folder, "convert some.engraft -o some.csv --function scaled");
        let text = std::fs::read_to_string(folder.join("some.csv")).expect("it is written");
        let index =
            |line: &str| line.split(',').nth(2).and_then(|cell| cell.parse::<u64>().ok()).expect("a number");
        assert_eq!(text.lines().skip(1).map(index).collect::<Vec<_>>(), indexes, "{which}");
    }
    let ran = engraft(folder, "show some.engraft reuse");
    assert!(ran.stderr.contains("has one call in 3"), "{}", ran.stderr);
}

/// Of the rows of `scaled`, in order: its arguments.
fn arguments(folder: &Path) -> Vec<String> {
    engraft(folder, "convert all.engraft -o scaled.csv --function scaled");
    let text = std::fs::read_to_string(folder.join("scaled.csv")).expect("it is written");
    let arguments = |line: &str| line.split(',').skip(4).take(2).collect::<Vec<_>>().join(", ");
    text.lines().skip(1).map(arguments).collect()
}

/// How often tables would have had a result, and how soon arguments come again, is what its rows say; they
/// are drawn.
#[test]
fn calls_that_come_again_are_told_and_drawn() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compiled(folder);
    let mut ran = Command::new(env!("CARGO_BIN_EXE_engraft"));
    ran.args(["values", "--no-cache", "-q", "--full", "-o", "all.engraft", "--calls", CALLS, "./logged"]);
    assert_eq!(ran.current_dir(folder).output().expect("it runs").status.code(), Some(1));
    let all = arguments(folder);
    let said = engraft(folder, "show all.engraft reuse scaled --json").json();
    let of = &said["functions"][0];
    let different: BTreeSet<&String> = all.iter().collect();
    assert_eq!(of["calls"], all.len());
    assert_eq!(of["distinct"], different.len());
    for (n, table) in of["tables"].as_array().expect("tables").iter().enumerate() {
        let (mut kept, mut n_hits) = (std::collections::VecDeque::new(), 0u32);
        for one in &all {
            if let Some(at) = kept.iter().position(|known| known == one) {
                n_hits += 1;
                kept.remove(at);
            }
            kept.push_front(one.clone());
            kept.truncate(1 << n);
        }
        let share = f64::from(n_hits) / f64::from(u32::try_from(all.len()).expect("few"));
        // JSON is read by a parser that may be off by the last bit.
        let full = table["full"].as_f64().expect("a share");
        assert_eq!(
            (table["entries"].as_u64(), (full - share).abs() < 1e-12),
            (Some(1 << n), true),
            "{full} {share}"
        );
        assert_eq!(table["ways_8"].is_null(), n < 3);
    }
    let first = &of["frequent"][0];
    let words =
        first["arguments"].as_array().expect("arguments").iter().map(|word| word.as_str().expect("text"));
    let words = words.collect::<Vec<_>>().join(", ");
    let places: Vec<usize> = (0..all.len()).filter(|n| all[*n] == words).collect();
    assert_eq!(first["count"], places.len());
    let distances: Vec<usize> = places.windows(2).map(|two| two[1] - two[0]).collect();
    let (min, max) = (distances.iter().min().expect("some"), distances.iter().max().expect("some"));
    let said = |what: &str| first["distance"][what].as_f64().expect("a number");
    assert_eq!((said("min").to_string(), said("max").to_string()), (min.to_string(), max.to_string()));
    let picture = engraft(folder, "show all.engraft --plot scaled").ok();
    for part in ["x of scaled at each call", "distance (calls)", "8 ways", "result (double)"] {
        assert!(picture.contains(part), "{part}");
    }
    let ran = engraft(folder, "show all.engraft --plot main");
    assert!(ran.stderr.contains("has no call of main with its arguments"), "{}", ran.stderr);
    let ran = engraft(folder, "show logged reuse");
    assert!(ran.stderr.contains("reuse is what a log of calls tells"), "{}", ran.stderr);
}

/// What is recorded where a function jumps to another stands behind a call then, and leaves alone what its
/// callers know it not to write.
#[test]
fn what_callers_keep_across_a_jump_is_left_alone() {
    needs!("gcc");
    let place = folder();
    compile(&place.path().join("jumper"), "jumper.c", "-O1");
    let alone = must(&mut Command::new(place.path().join("jumper")));
    for how in ["", "--full", "--full --no-times", "--no-results"] {
        let calls =
            "--calls 'long ends(long x);' --calls 'long jumps(long x);' --calls 'long branches(long x);'";
        let ran =
            engraft(place.path(), &format!("values --no-cache -q {how} -o j.engraft {calls} -- ./jumper"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), alone.as_str()), "{how}: {}", ran.stderr);
        let shown = engraft(place.path(), "show j.engraft --json").stdout;
        let said: serde_json::Value = serde_json::from_str(&shown).expect("it is JSON");
        let calls = said["calls"].as_array().expect("functions").iter();
        let mut calls: Vec<_> =
            calls.filter_map(|of| Some((of["function"].as_str()?, &of["calls"]))).collect();
        calls.sort_unstable_by_key(|of| of.0);
        assert_eq!(
            calls,
            [("branches", &300.into()), ("ends", &450.into()), ("jumps", &300.into())],
            "{how}"
        );
    }
}

/// Whoever writes the log is killed: what was written is read, and it is said that the rest is missing.
#[test]
fn a_log_whose_writer_was_killed_is_read_up_to_there() {
    needs!("gcc");
    let place = folder();
    let folder = place.path();
    compiled(folder);
    let mut ran = Command::new(env!("CARGO_BIN_EXE_engraft"));
    ran.args([
        "values",
        "--no-cache",
        "-q",
        "--full",
        "-o",
        "cut.engraft",
        "--calls",
        CALLS,
        "./logged",
        "forever",
    ]);
    let ran = ran.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    let mut ran = ran.spawn().expect("it starts");
    let (log, clock) = (folder.join("cut.engraft"), Instant::now());
    while log.metadata().map_or(0, |there| there.len()) < 100_000 {
        assert!(clock.elapsed() < Duration::from_secs(120), "it writes nothing");
        std::thread::yield_now();
    }
    ran.kill().expect("it runs");
    ran.wait().expect("it is over");
    let shown = engraft(folder, "show cut.engraft --json");
    assert!(
        shown.stderr.contains("was cut off: what its run did last is missing, and where calls were made"),
        "{}",
        shown.stderr
    );
    let said: serde_json::Value = serde_json::from_str(&shown.stdout).expect("it is JSON");
    let calls = said["calls"][0]["calls"].as_u64().expect("a number");
    assert_eq!((said["calls"][0]["function"].as_str(), calls >= 1000), (Some("scaled"), true));
    let made = engraft(folder, "convert cut.engraft -o cut.csv");
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let text = std::fs::read_to_string(folder.join("cut.csv")).expect("it is written");
    assert_eq!(text.lines().count() as u64, calls + 1);
    for (n, line) in (0..).zip(text.lines().skip(1)) {
        let cells: Vec<&str> = line.split(',').collect();
        let [_, _, index, caller, x, times, result, _] = cells[..] else { panic!("{line}") };
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let want_x = f64::from(n) * 0.1;
        assert_eq!((number(index), number(x)), (f64::from(n + 1), want_x), "{line}");
        assert_eq!((number(times), number(result)), (f64::from(n % 7), want_x * f64::from(n % 7)), "{line}");
        assert!(caller.starts_with("live:0x"), "{line}");
    }
}
