//! `engraft values --auto`, and what is advised: what instructions do is what the program counts of itself,
//! and what was planted is found.

use crate::needs;
use crate::run::{engraft, folder, must};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[track_caller]
fn build(folder: &Path, source: &str, flags: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(source);
    let mut command = Command::new("gcc");
    command.current_dir(folder).arg(source).args(flags.split_whitespace()).args(["-o", "watched", "-lm"]);
    must(&mut command);
}

/// What `values` says with these options; the run is as without.
#[track_caller]
fn recorded(folder: &Path, options: &str) -> Value {
    let want = Command::new(folder.join("watched")).output().expect("it runs");
    let ran = engraft(folder, &format!("values --json=said.json -o all.engraft {options} ./watched"));
    let printed = (ran.stdout.as_bytes(), ran.code);
    assert_eq!(printed, (want.stdout.as_slice(), want.status.code()), "{}", ran.stderr);
    let said = std::fs::read_to_string(folder.join("said.json")).expect("it is written");
    serde_json::from_str(&said).expect("it is JSON")
}

#[test]
fn what_instructions_do_is_what_the_program_counts() {
    needs!("gcc");
    let place = folder();
    for flags in ["-O0", "-O2"] {
        build(place.path(), "watched.c", &format!("{flags} -w"));
        let said = recorded(place.path(), "--auto");
        let rows = said["instructions"].as_array().expect("instructions");
        let printed = must(Command::new(place.path().join("watched")).current_dir(place.path()));
        for line in printed.lines() {
            let [kind, function, value, count] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let count: u64 = count.parse().expect("a number");
            let is_it = |row: &&Value| {
                let starts =
                    row["place"].as_str().is_some_and(|place| place.starts_with(&format!("{function}+")));
                // Without optimisation, arguments lie in memory, too.
                starts && row["kind"] == kind && (kind != "access" || row["misaligned"] != 0)
            };
            let mut here = rows.iter().filter(is_it);
            let row = here.next().unwrap_or_else(|| panic!("{flags}: no {kind} of {function} in {said:#}"));
            assert!(here.next().is_none(), "{flags}: {function} has one {kind}");
            let got = match value {
                "misaligned" | "split" => row[value].as_u64(),
                "times" => row["executions"].as_u64(),
                _ => {
                    let mut top = row["top"].as_array().expect("values").iter();
                    top.find(|one| one["value"] == value).and_then(|one| one["count"].as_u64())
                }
            };
            assert_eq!(got, Some(count), "{flags}: {line} in {row:#}");
        }
        let element = |row: &&Value| row["kind"] == "size" && row["element"] == 2;
        assert_eq!(rows.iter().filter(element).count(), 1);
    }
}

#[test]
fn what_is_planted_is_advised_and_nothing_else() {
    needs!("gcc");
    let place = folder();
    let options = "--full --auto --loop thrice --calls root --calls scaled --calls narrow";
    let kinds = |said: &Value| -> BTreeSet<(String, String)> {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let function = |text: &str| text.split('+').next().unwrap_or_default().to_owned();
        let all = said["advice"].as_array().expect("advice").iter();
        all.map(|one| (text(&one["kind"]), function(&text(&one["function"])))).collect()
    };
    build(place.path(), "advised.c", "-O2 -g -fno-builtin -DPLANTED");
    let said = recorded(place.path(), options);
    let want = [
        ("copy", "memcpy"),
        ("divisor", "shares"),
        ("float", "narrow"),
        ("memoise", "root"),
        ("specialise", "scaled"),
        ("unroll", "thrice"),
    ];
    let want = want.map(|(kind, function)| (kind.to_owned(), function.to_owned()));
    assert_eq!(kinds(&said), BTreeSet::from(want), "{said:#}");
    let first = &said["advice"][0];
    assert!(first["kind"] == "memoise" && first["gain_s"].as_f64() > Some(1e-3), "{first:#}");
    build(place.path(), "advised.c", "-O2 -g -fno-builtin");
    let said = recorded(place.path(), options);
    assert_eq!(kinds(&said), BTreeSet::new(), "{said:#}");
}
