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
