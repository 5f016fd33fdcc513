//! What the report of `count` says of what was not counted: functions, libraries, other programs.

use crate::needs;
use crate::run::{built, engraft, folder};
use serde_json::Value;
use std::path::Path;

/// The report of `count` with `options` on `command`.
#[track_caller]
fn reported(folder: &Path, options: &str, command: &str) -> Value {
    let ran = engraft(folder, &format!("count --no-cache --json {options} -o run.engraft -- {command}"));
    serde_json::from_str(ran.stderr.lines().next_back().unwrap_or_default()).expect("it is JSON")
}

/// `main` reads its own address, so that it stays, and is called by the C library alone: that it ran follows
/// from what it called. Of `where`, which stays, too, nobody knows.
#[test]
fn what_ran_without_counts_is_told_from_what_may_have() {
    needs!("gcc");
    let place = folder();
    let text = "#include <stdio.h>
        static long s;
        __attribute__((noinline, noclone)) static void step(long n) { s += n; }
        __attribute__((noinline, used)) static long where(void) {
          long p; asm volatile(\"call 1f\\n1: pop %0\" : \"=r\"(p)); return p; }
        int main(int c, char **v) { long p;
          asm volatile(\"sub $128,%%rsp\\ncall 1f\\n1: pop %0\\nadd $128,%%rsp\" : \"=r\"(p));
          for (long i = 0; i < 1000; i++) step(i);
          if (c > 100) printf(\"%ld\\n\", where());
          return 0; }";
    built(place.path(), "own", text, "-O1");
    let report = reported(place.path(), "", "./own");
    let names = |key: &str| {
        let rows = report[key].as_array().expect("a list").iter();
        rows.map(|row| (row["name"].as_str(), row["why"].as_str())).collect::<Vec<_>>()
    };
    let why = Some("reads its own address");
    assert_eq!(names("uncounted"), [(Some("main"), why)], "{report}");
    assert_eq!(names("unknown"), [(Some("where"), why)], "{report}");
    let text = engraft(place.path(), "count --no-cache -o run.engraft -- ./own").stderr;
    for line in [
        "not counted: 1 function, 6 instructions at least: reads its own address: main",
        "not counted if it ran, which is not known: 1 function: reads its own address: where",
        "at least 6 more ran there, whether 1 other function ran is not known; recording: run.engraft",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    built(place.path(), "all", "int main(void) { return 0; }", "-O1");
    let text = engraft(place.path(), "count --no-cache -o run.engraft -- ./all").stderr;
    assert!(
        text.contains(" modules: all that is known") || text.contains(" module: all that is known"),
        "{text}"
    );
}

/// The option that the report names counts the C library, and then it is not named any more.
#[test]
fn libraries_that_were_not_looked_at_are_named_with_what_counts_them() {
    needs!("gcc");
    let place = folder();
    built(place.path(), "old", "int main(void) { return 0; }", "-O1");
    for first in ["all", "exe"] {
        let report = reported(place.path(), &format!("--modules {first}"), "./old");
        let left = report["left_out"].as_array().expect("a list");
        let names: Vec<_> = left.iter().filter_map(|l| l["module"].as_str()).collect();
        assert_eq!(names.len(), 2, "{report}");
        assert!(names[0].starts_with("libc.") && names[1].starts_with("ld-"), "{report}");
        assert!(left[1]["option"].is_null(), "{report}");
        let option = left[0]["option"].as_str().expect("it can be counted");
        let report = reported(place.path(), option, "./old");
        let left = report["left_out"].as_array().expect("a list");
        assert_eq!((left.len(), &left[0]["module"]), (1, &names[1].into()), "{option}: {report}");
        let counted = report["modules"].as_array().expect("a list").iter();
        assert!(counted.filter_map(|m| m["path"].as_str()).any(|path| path.ends_with(names[0])), "{report}");
    }
    let text = engraft(place.path(), "count --no-cache -o run.engraft -- ./old").stderr;
    let last = text.lines().next_back().unwrap_or_default();
    assert!(last.starts_with("not looked at: libc.") && last.contains("`--modules all,libc.so.6`"), "{text}");
}

/// A shell that starts seven programs, one of which starts another, and forks twice without; a program that
/// becomes another.
#[test]
fn other_programs_that_were_started_are_counted_and_named() {
    needs!("gcc", "sh", "env");
    let place = folder();
    let text = "for i in 1 2 3; do ./old; ./old; done; (:; :); x=$(echo); env ./old; exit 3";
    std::fs::write(place.path().join("seven"), text).expect("written");
    built(place.path(), "old", "int main(void) { return 0; }", "-O1");
    let n = |report: &Value| report["others"]["n"].as_u64();
    for (command, want) in
        [("sh seven", Some(8)), ("env ./old", Some(1)), ("./old", None), ("sh -c ':; (:); exit'", None)]
    {
        let report = reported(place.path(), "", command);
        assert_eq!(n(&report), want, "{command}: {}", report["others"]);
        assert_eq!(report["others"].is_null(), want.is_none(), "{command}");
        assert!(want.is_none() || report["others"]["is_least"] == false, "{command}");
        assert!(reported(place.path(), "--follow", command)["others"].is_null(), "{command}");
    }
    let ran = engraft(place.path(), "count --no-cache -o run.engraft -- sh seven");
    let line = "8 other programs that it started";
    assert!(ran.code == Some(3) && ran.stderr.contains(line), "{}", ran.stderr);
    let last = ran.stderr.lines().next_back().unwrap_or_default();
    assert!(last.contains("`--follow` counts them, too"), "{last}");
    // More of them than there is room for records at once.
    let many = "i=0; while [ $i -lt 1500 ]; do ./old; i=$((i + 1)); done";
    std::fs::write(place.path().join("many"), many).expect("written");
    assert_eq!(n(&reported(place.path(), "", "sh many")), Some(1500));
}

/// What reports say is called by one word in all of them: headings of tables, of all views.
#[test]
fn one_thing_has_one_word() {
    // What is not said, and what is said in its place.
    let others = [
        ("trips", "per entry"),
        ("rounds", "iterations"),
        ("invocations", "entries"),
        ("visits", "entries"),
        ("hits", "count"),
        ("percent", "share"),
        ("address", "at"),
        ("file name", "file"),
        ("library", "module"),
        ("routine", "function"),
        ("bb", "block"),
    ];
    let mut waiting = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../views/src")];
    let (mut wrong, mut n_headings) = (Vec::new(), 0);
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let inside = std::fs::read_dir(&path).expect("it can be read");
            waiting.extend(inside.map(|entry| entry.expect("it can be read").path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("it can be read");
        // What stands in an array behind these.
        for (at, mark) in ["Table::new(&[", "HEADINGS: ["].iter().flat_map(|mark| text.match_indices(mark)) {
            let rest = text[at + mark.len()..].trim_start_matches(|c: char| c != '"');
            let list = rest.split(']').next().unwrap_or_default();
            for heading in list.split('"').skip(1).step_by(2) {
                n_headings += 1;
                let word = heading.trim_end_matches('>');
                let other = others.iter().find(|(no, _)| *no == word);
                wrong.extend(other.map(|(_, yes)| format!("{}: {word}: say {yes}", path.display())));
            }
        }
    }
    assert!(n_headings > 60, "{n_headings}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
