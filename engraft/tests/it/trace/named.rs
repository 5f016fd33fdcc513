//! Functions, blocks and positions of traces as people name them: the same in `query`, in `show`, and in what
//! other tools say of the file.

use crate::count::plain;
use crate::needs;
use crate::run::{Ran, built, compile, engraft, folder, must};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const US: &str = env!("CARGO_BIN_EXE_engraft");

/// Where `nm` says that a symbol is.
fn at(folder: &Path, file: &str, symbol: &str) -> u64 {
    let listing = must(Command::new("nm").arg(file).current_dir(folder));
    let line = listing.lines().find(|line| line.split(' ').nth(2) == Some(symbol));
    let hex = line.and_then(|line| line.split(' ').next());
    u64::from_str_radix(hex.unwrap_or_else(|| panic!("{symbol}: {listing}")), 16).expect("an address")
}

fn list(json: &Value) -> &[Value] {
    json.as_array().map_or(&[], Vec::as_slice)
}

/// Number and address of the blocks that a function has.
fn numbered(json: &Value) -> Vec<(u64, u64)> {
    let number = |block: &Value, key: &str| block[key].as_u64().expect("a number");
    list(&json["blocks"]).iter().map(|block| (number(block, "block"), number(block, "at"))).collect()
}

/// All symbols of the only thread.
fn symbols(folder: &Path) -> Vec<Value> {
    list(&engraft(folder, "query run.trace --at 0.. --json").json()["symbols"]).to_vec()
}

#[track_caller]
fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, Some(2), "{}{}", ran.stdout, ran.stderr);
    words.iter().for_each(|word| assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr));
}

/// With parts of the function before its entry, too.
#[test]
fn block_0_is_the_entry_and_the_others_follow_by_address_everywhere() {
    needs!("gcc", "g++", "nm");
    let place = folder();
    let to = place.path();
    compile(&to.join("pads"), "pads.cc", "-O2 -g -lstdc++");
    plain(to, &[US, "trace", "-q", "--no-cache", "--modules", "exe", "-o", "run.trace", "./pads"]);
    plain(to, &[US, "count", "-q", "--no-cache", "-o", "run.engraft", "./pads"]);
    let (entry, cold) = (at(to, "pads", "main"), at(to, "pads", "main.cold"));
    assert!(cold < entry, "the compiler has put it before");
    let shown = numbered(&engraft(to, "show pads function main --json").json());
    assert_eq!(shown.first(), Some(&(0, entry)));
    assert!(shown.iter().zip(0..).all(|((number, _), n)| *number == n), "{shown:?}");
    assert!(shown.iter().skip(1).is_sorted_by_key(|(_, at)| *at), "{shown:?}");
    assert!(shown.iter().any(|(_, at)| *at == cold), "{shown:?}");
    for what in ["run.engraft", "run.trace"] {
        let of_run = numbered(&engraft(to, &format!("show {what} function main --json")).json());
        assert_eq!(of_run, shown, "{what}");
    }
    let is_block = |s: &&Value| s["function"] == "main" && s["step"] == "B";
    let traced: Vec<(u64, u64)> = symbols(to)
        .iter()
        .filter(is_block)
        .map(|s| (s["block"].as_u64().expect("its number"), s["at"].as_u64().expect("where it is")))
        .collect();
    assert_eq!(traced.first(), Some(&(0, entry)));
    assert!(traced.iter().all(|block| shown.contains(block)), "{traced:?}");
    let count = |path: &str| engraft(to, &format!("query run.trace '{path}' --count")).ok();
    // `step` throws three times of twenty.
    assert_eq!(
        (count("main: 0"), count("main: entry"), count("main: exit")),
        ("1\n".into(), "1\n".into(), "1\n".into())
    );
    assert_eq!((count(&format!("main: {cold:#x}")), count("step: entry")), ("3\n".into(), "20\n".into()));
    // Two packed recordings are compared by these numbers.
    let text = engraft(to, "show pads function main").ok();
    assert!(text.contains(&format!("\n0 {entry:#x}  entry")), "{text}");
}

/// `same` is in the program and in its library.
fn twins(to: &Path) {
    let library = "__attribute__((noinline)) static int same(int n) { return n ? n * 3 : 1; }\n\
        int outer(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += same(i + sum); return sum; }";
    built(to, "libtwin.so", library, "-O1 -g -shared -fPIC");
    let program = "int outer(int n);\n\
        __attribute__((noinline)) static int same(int n) { return n > 2 ? n * 5 : 2; }\n\
        int main(void) { return (same(1) + same(3) + outer(4)) & 1; }";
    built(to, "twin", program, "-O1 -g -L. -ltwin -Wl,-rpath,.");
}

#[test]
fn modules_and_patterns_name_functions() {
    needs!("gcc", "nm");
    let place = folder();
    let to = place.path();
    twins(to);
    plain(to, &[US, "trace", "-q", "--no-cache", "-o", "run.trace", "./twin"]);
    plain(to, &[US, "count", "-q", "--no-cache", "-o", "run.engraft", "./twin"]);
    let count = |path: &str| engraft(to, &format!("query run.trace '{path}' --count"));
    assert_eq!(count("twin!same: entry").ok(), "2\n");
    assert_eq!(count("libtwin.so!same: entry").ok(), "4\n");
    // What the hint says can be said.
    let (own, other) = (at(to, "twin", "same"), at(to, "libtwin.so", "same"));
    let lines =
        [format!("'twin!same' is same at {own:#x}"), format!("'libtwin.so!same' is same at {other:#x}")];
    let lines = [lines[0].as_str(), lines[1].as_str()];
    refused(&count("same: entry"), &["2 functions are called 'same'", lines[0], lines[1]]);
    assert_eq!(count(&format!("libtwin.so!{other:#x}: 0")).ok(), "4\n");
    // Each that fits, a row.
    let rows = engraft(to, "query run.trace 'sa*: entry' --json").json();
    let all: BTreeSet<u64> = list(&rows["paths"]).iter().filter_map(|path| path["count"].as_u64()).collect();
    assert_eq!(all, BTreeSet::from([2, 4]), "{rows}");
    assert_eq!(count("libtwin.so!out*: entry").ok(), "1\n");
    refused(&count("nothing*: 0"), &["no function that was recorded matches 'nothing*'"]);
    // Of counts, too.
    let of = |name: &str| engraft(to, &format!("show run.engraft function {name} --json"));
    for (name, entry, n) in
        [("twin!same", own, 2), ("libtwin.so!same", other, 4), ("ou*", at(to, "libtwin.so", "outer"), 1)]
    {
        let shown = of(name).json();
        assert_eq!(
            (shown["at"].as_u64(), shown["blocks"][0]["count"].as_u64()),
            (Some(entry), Some(n)),
            "{name}"
        );
    }
    let lines = [format!("'twin!same' is at {own:#x}"), format!("'libtwin.so!same' is at {other:#x}")];
    refused(&of("same"), &["functions of 2 modules are called same", &lines[0], &lines[1]]);
    assert_eq!(engraft(to, "show twin function twin!sa* --json").json()["at"].as_u64(), Some(own));
}

#[test]
fn open_ranges_and_the_last_symbols_are_those_of_the_whole() {
    needs!("gcc");
    let place = folder();
    let to = place.path();
    twins(to);
    plain(to, &[US, "trace", "-q", "--no-cache", "-o", "run.trace", "./twin"]);
    for file in ["run.trace", "packed.trace"] {
        let n = engraft(to, &format!("query {file} --stats --json")).json();
        let n = n["n_symbols"].as_u64().expect("a number");
        let lines = |how: &str| engraft(to, &format!("query {file} {how}")).ok();
        let whole = lines(&format!("--at 0..{n}"));
        assert_eq!(whole.lines().count() as u64, n);
        let some = |range: std::ops::Range<u64>| -> String {
            let of = whole.lines().skip(usize::try_from(range.start).expect("small"));
            of.take(usize::try_from(range.end - range.start).expect("small"))
                .map(|l| format!("{l}\n"))
                .collect()
        };
        assert_eq!(lines("--at .."), whole);
        assert_eq!(lines("--at 7.."), some(7..n));
        assert_eq!(lines("--at ..7"), some(0..7));
        assert_eq!(lines("--tail 5"), some(n - 5..n));
        assert_eq!(lines("--tail 1000000"), whole);
        refused(&engraft(to, &format!("query {file} --at {}..", n + 1)), &["starts behind thread 0"]);
        if file == "run.trace" {
            engraft(to, "trace pack -q run.trace -o packed.trace").ok();
        }
    }
}

/// Without being asked for: the line of the source that a block starts at.
#[test]
fn lines_are_shown_where_the_program_has_them() {
    needs!("gcc");
    let place = folder();
    let to = place.path();
    twins(to);
    plain(to, &[US, "trace", "-q", "--no-cache", "-o", "run.trace", "./twin"]);
    let entries: BTreeMap<String, (Option<u64>, String)> = symbols(to)
        .iter()
        .filter(|s| s["block"] == 0)
        .map(|s| {
            let text = |key: &str| s[key].as_str().unwrap_or_default().to_owned();
            (text("function"), (s["line"].as_u64(), text("file")))
        })
        .collect();
    for (function, line) in [("main", 3), ("same", 1), ("outer", 2)] {
        let (got, file) = &entries[function];
        assert!(file.ends_with("/text.c"), "{function}: {file}");
        // `same` is the last one of both.
        assert_eq!(*got, Some(line), "{function}");
    }
    let text = engraft(to, "query run.trace 'main: entry' --context=0").ok();
    assert!(text.contains(" text.c:3"), "{text}");
    // Where the file is gone, nothing is said of that: no code was asked for.
    std::fs::remove_file(to.join("twin")).expect("it is there");
    engraft(to, "query run.trace --at ..7").ok();
}
