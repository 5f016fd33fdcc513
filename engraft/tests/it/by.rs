//! Where a recording's instructions went: `show REC --by line`, `file`, `module`.

use crate::needs;
use crate::run::{compile, engraft, folder};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What callgrind counts of each line of `source`, without what is called there.
fn counted(place: &Path, source: &str) -> BTreeMap<u64, u64> {
    let words = ["-q", "--tool=callgrind", "--compress-pos=no", "--compress-strings=no"];
    let mut valgrind = Command::new("valgrind");
    valgrind.args(words).args(["--callgrind-out-file=lines.out", "./old"]).current_dir(place);
    let ran = valgrind.output().expect("valgrind runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let out = std::fs::read_to_string(place.join("lines.out")).expect("written");
    let mut found = BTreeMap::new();
    let (mut is_in_it, mut is_of_call) = (false, false);
    for line in out.lines() {
        if let Some(file) = ["fl=", "fi=", "fe="].iter().find_map(|key| line.strip_prefix(key)) {
            is_in_it = file.rsplit('/').next() == Some(source);
        } else if line.starts_with("calls=") {
            is_of_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            let mut numbers = line.split(' ').map(|n| n.parse::<u64>().expect("a number"));
            let (at, n) = (numbers.next().expect("a line"), numbers.next().expect("a cost"));
            if is_in_it && !std::mem::take(&mut is_of_call) {
                *found.entry(at).or_insert(0) += n;
            }
            is_of_call = false;
        }
    }
    found
}

fn rows(place: &Path, file: &str, key: &str) -> (u64, Vec<Value>) {
    let view = engraft(place, &format!("show {file} --by {key} --json")).json();
    let rows = view[format!("{key}s")].as_array().unwrap_or_else(|| panic!("{view}")).clone();
    (view["instructions"].as_u64().expect("a number"), rows)
}

#[test]
fn lines_cost_what_callgrind_counts_and_all_adds_up_to_what_show_has() {
    needs!("gcc", "valgrind");
    let place = folder();
    let place = place.path();
    compile(&place.join("old"), "calls.c", "-O1 -g -fno-inline -fno-optimize-sibling-calls");
    engraft(place, "count -q --no-cache -o old.engraft ./old");
    engraft(place, "trace -q --no-cache --modules exe -o old.trace ./old");
    let mut want = counted(place, "calls.c");
    // callgrind gives what stubs of libraries execute to the line that calls them; and which way a branch
    // went, past padding or not, counts of blocks do not always tell: that is of no line.
    let text = include_str!("fixtures/calls.c");
    let is_apart = |line: &u64| {
        let line = text.lines().nth(usize::try_from(*line - 1).expect("small")).unwrap_or_default();
        line.contains("printf(") || line.contains("__asm__")
    };
    want.retain(|line, _| !is_apart(line));
    assert!(want.len() > 8, "{want:?}");
    for file in ["old.engraft", "old.trace"] {
        let total = engraft(place, &format!("show {file} --json")).json()["instructions"].as_u64();
        for key in ["line", "file", "module"] {
            let (all, rows) = rows(place, file, key);
            let sum: u64 = rows.iter().filter_map(|row| row["instructions"].as_u64()).sum();
            assert_eq!((Some(all), Some(sum)), (total, total), "{file} by {key}");
            let csv = engraft(place, &format!("show {file} --by {key} --format csv")).ok();
            let cells = csv.lines().skip(1).filter_map(|row| row.split(',').nth(1)?.parse::<u64>().ok());
            assert_eq!(Some(cells.sum()), total, "{csv}");
        }
        let (_, lines) = rows(place, file, "line");
        let of_source = |row: &&Value| row["file"].as_str().is_some_and(|file| file.ends_with("calls.c"));
        let got = lines.iter().filter(of_source);
        let got = got.filter_map(|row| Some((row["line"].as_u64()?, row["instructions"].as_u64()?)));
        let got = got.filter(|(line, _)| !is_apart(line));
        assert_eq!(got.collect::<BTreeMap<_, _>>(), want, "{file}");
    }
    let by = |key: &str| engraft(place, &format!("show old.engraft {key}")).ok();
    assert_eq!(by("--by function"), by(""));
    assert!(by("--by line").contains("calls.c:") && by("--by line").contains("(no line known)"));
    // A recording stands alone.
    let lines = by("--by line");
    std::fs::remove_file(place.join("old")).expect("it is there");
    assert_eq!(by("--by line"), lines);
    for args in ["old.engraft loops --by line", "old.engraft --by lines"] {
        assert_eq!(engraft(place, &format!("show {args}")).code, Some(2), "{args}");
    }
}

/// Each block's share, by the counts themselves; the text of the source; where loops are.
#[test]
fn a_function_is_shown_with_its_source_and_its_hottest_block() {
    needs!("gcc");
    let place = folder();
    let place = place.path();
    let source = "int main(void) {\n    volatile int s = 0;\n    for (int i = 0; i < 100; i++)\n        s += i; // the sum\n    return 0;\n}\n";
    std::fs::write(place.join("sums.c"), source).expect("written");
    crate::run::must(Command::new("gcc").args(["-O0", "-g", "-o", "old", "sums.c"]).current_dir(place));
    engraft(place, "count -q --no-cache -o old.engraft ./old");
    let view = engraft(place, "show old.engraft function main --json").json();
    let blocks = view["blocks"].as_array().expect("a list");
    let n = |block: &Value| {
        let len = block["instructions"].as_array().map_or(0, Vec::len) as u64;
        block["count"].as_u64().expect("it is counted") * len
    };
    let all: u64 = blocks.iter().map(n).sum();
    for block in blocks {
        let share = block["share"].as_f64().expect("a share");
        assert!((share - n(block) as f64 / all as f64).abs() < 1e-9, "{block}");
        for i in block["instructions"].as_array().expect("a list") {
            let line = i["line"].as_str().and_then(|line| line.rsplit(':').next()?.parse::<usize>().ok());
            let want = line.and_then(|line| source.lines().nth(line - 1)).map(str::trim);
            assert!(i["source"].is_null() || i["source"].as_str() == want, "{i}");
        }
        assert!(!block["instructions"][0]["source"].is_null(), "{block}");
    }
    let hottest = blocks.iter().max_by_key(|block| n(block)).expect("it has blocks");
    let text = engraft(place, "show old.engraft function main").ok();
    let marked: Vec<&str> = text.lines().filter(|line| line.ends_with("  hottest")).collect();
    let (id, at) =
        (hottest["block"].as_u64().expect("a number"), hottest["at"].as_u64().expect("an address"));
    assert!(marked.len() == 1 && marked[0].starts_with(&format!("{id} {at:#x}  ")), "{text}");
    assert!(text.contains("  ; sums.c:4: s += i; // the sum\n"), "{text}");
    assert!(text.contains("  loop header at sums.c:3  depth 1  101 ×"), "{text}");
    // Without the source, and without counts.
    std::fs::remove_file(place.join("sums.c")).expect("it is there");
    let text = engraft(place, "show old.engraft function main").ok();
    assert!(text.contains("  ; sums.c:4\n"), "{text}");
    assert!(!engraft(place, "show old function main").ok().contains("hottest"));
}
