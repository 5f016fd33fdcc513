//! The first command that people type: a program behind a verb, no file named, and where the report goes.

use crate::needs;
use crate::run::{built, engraft, folder};
use std::path::Path;

/// A program that prints its arguments, a line each, and ends with 3.
const ECHOES: &str = "#include <stdio.h>\n\
    int main(int n, char **words) { for (int i = 1; i < n; i++) puts(words[i]); return 3; }";

fn place() -> tempfile::TempDir {
    let place = folder();
    built(place.path(), "echoes", ECHOES, "-O1");
    place
}

/// Names of the files that are there, but for the program and its source.
fn files(place: &Path) -> Vec<String> {
    let names = std::fs::read_dir(place).expect("there").map(|entry| entry.expect("read").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("ours")).collect();
    names.retain(|name| name != "echoes" && name != "text.c");
    names.sort();
    names
}

#[test]
fn a_program_follows_the_verb_and_its_options_are_its_own() {
    needs!("gcc");
    let place = place();
    for verb in ["count", "trace"] {
        for dashes in ["", "-- "] {
            let args =
                format!("{verb} --no-cache -q -o here {dashes}./echoes -l --json -q -o there --modules x");
            let ran = engraft(place.path(), &args);
            let said = "-l\n--json\n-q\n-o\nthere\n--modules\nx\n";
            assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(3), said, ""), "{args}");
            assert_eq!(files(place.path()), ["here"], "{args}");
            std::fs::remove_file(place.path().join("here")).expect("it is there");
        }
        // Its options say nothing of how we talk, and a second `--` is its own.
        let ran = engraft(place.path(), &format!("{verb} --no-cache -o here ./echoes -- --json -q"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "--\n--json\n-q\n"));
        assert!(ran.stderr.contains("here") && !ran.stderr.contains('{'), "{}", ran.stderr);
        let ran = engraft(place.path(), &format!("{verb} --json --no-cache -o here ./echoes a"));
        let last = ran.stderr.lines().last().unwrap_or_default();
        let schema = serde_json::from_str::<serde_json::Value>(last).expect("JSON is the last line");
        assert_eq!(
            (schema["schema"].as_str(), ran.stdout.as_str()),
            (Some(&*format!("engraft.{verb}/1")), "a\n")
        );
        std::fs::remove_file(place.path().join("here")).expect("it is there");
    }
    // What is no option is the program, also behind an option that takes one value.
    let ran = engraft(place.path(), "count --modules exe nosuch -- ./echoes");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("no program nosuch"), "{}", ran.stderr);
    assert!(ran.stderr.contains("taken for the program, not ./echoes"), "{}", ran.stderr);
}

#[test]
fn a_recording_without_a_name_keeps_the_one_before() {
    needs!("gcc");
    let place = place();
    for (verb, [new, old]) in [
        ("count", ["echoes.count.engraft", "echoes.count.old.engraft"]),
        ("trace", ["echoes.trace", "echoes.old.trace"]),
    ] {
        let read = |name: &str| std::fs::read(place.path().join(name)).expect("it is there");
        let mut before = None;
        for n in 1..4 {
            let words = vec!["word"; n].join(" ");
            let ran = engraft(place.path(), &format!("{verb} --no-cache ./echoes {words}"));
            assert_eq!(ran.code, Some(3), "{}", ran.stderr);
            assert!(ran.stderr.contains(new), "it is said where it is: {}", ran.stderr);
            if let Some(before) = before {
                assert!(read(old) == before, "{verb} {n}");
            }
            before = Some(read(new));
        }
        assert_eq!(files(place.path()), [old.min(new), old.max(new)]);
        // What is no recording is not replaced, whatever its name; the program is not run.
        for name in [new, old] {
            let kept = read(name);
            std::fs::write(place.path().join(name), "notes").expect("written");
            let ran = engraft(place.path(), &format!("{verb} --no-cache ./echoes word"));
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
            assert!(ran.stderr.contains(&format!("{name} is no recording")), "{}", ran.stderr);
            let ran = engraft(place.path(), &format!("{verb} --no-cache -o {name} ./echoes word"));
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
            assert_eq!(read(name), b"notes");
            std::fs::write(place.path().join(name), kept).expect("written");
        }
        [new, old]
            .iter()
            .for_each(|name| std::fs::remove_file(place.path().join(name)).expect("it is there"));
    }
    // What an instrumented program leaves by itself has another name.
    engraft(place.path(), "instrument echoes -o counting -q").ok();
    std::process::Command::new("./counting").current_dir(place.path()).output().expect("it runs");
    engraft(place.path(), "count --no-cache -q ./echoes");
    assert_eq!(files(place.path()), ["counting", "echoes.count.engraft", "echoes.engraft"]);
}

#[test]
fn what_is_not_named_is_the_newest_recording_here() {
    needs!("gcc");
    let place = place();
    for (args, want) in
        [("show", "no recording"), ("diff", "no two recordings"), ("show loops", "no recording")]
    {
        let ran = engraft(place.path(), args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args}");
        assert!(ran.stderr.contains(want), "{args}: {}", ran.stderr);
    }
    for (name, words) in [("z.engraft", "a"), ("m.engraft", "a b"), ("a.engraft", "a b c")] {
        engraft(place.path(), &format!("count --no-cache -q -o {name} ./echoes {words}"));
    }
    // The latest, whatever their names; what is no recording is left out.
    std::fs::write(place.path().join("later.engraft"), "notes").expect("written");
    let named = |args: &str, named: &str| {
        let (without, with) = (engraft(place.path(), args), engraft(place.path(), named));
        assert_eq!((without.code, &without.stdout), (with.code, &with.stdout), "{args}");
        without.stderr
    };
    assert_eq!(named("show", "show a.engraft"), "engraft: a.engraft, the newest recording here\n");
    for what in ["loops", "edges", "function main"] {
        assert!(named(&format!("show {what}"), &format!("show a.engraft {what}")).contains("a.engraft"));
    }
    let said = named("diff", "diff m.engraft a.engraft");
    assert_eq!(said, "engraft: m.engraft and a.engraft, the two newest recordings here\n");
    assert_eq!(named("show -q", "show a.engraft"), "");
    assert_eq!(named("diff --json", "diff m.engraft a.engraft --json"), "");
}

#[test]
fn a_report_as_json_goes_where_it_is_sent_and_never_to_the_program() {
    needs!("gcc");
    let place = place();
    for verb in ["count", "trace"] {
        let json = |args: &str| {
            let ran = engraft(place.path(), &format!("{verb} --no-cache -o rec {args} ./echoes a"));
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "a\n"), "{}", ran.stderr);
            let text = std::fs::read_to_string(place.path().join("it.json")).expect("it was written");
            let view: serde_json::Value = serde_json::from_str(&text).expect("it is JSON alone");
            assert_eq!(view["schema"], format!("engraft.{verb}/1"));
            std::fs::remove_file(place.path().join("it.json")).expect("it is there");
            ran.stderr
        };
        let text = json("--json=it.json");
        assert!(!text.is_empty() && !text.contains('{'), "the report is still for people: {text}");
        assert_eq!(json("-q --json=it.json"), "");
        for (args, want) in [
            ("--json=-", "standard output is the program's"),
            ("--json=/dev/stdout", "standard output is the program's"),
            ("--json=rec", "cannot be both the recording and the report"),
            ("--json=nowhere/it.json", "cannot write nowhere/it.json"),
            ("--json=echoes", "echoes is "),
        ] {
            let ran = engraft(place.path(), &format!("{verb} --no-cache -o rec {args} ./echoes a"));
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args} {}", ran.stderr);
            assert!(ran.stderr.contains(want), "{args}: {}", ran.stderr);
        }
        // The file needs its `=`: the next word is the program.
        let ran = engraft(place.path(), &format!("{verb} --json it.json ./echoes a"));
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("no program it.json was found"), "{}", ran.stderr);
        // What was asked for is said quietly, too.
        let ran = engraft(place.path(), &format!("{verb} --no-cache -q --json -o rec ./echoes a"));
        assert!(ran.stderr.lines().count() == 1 && ran.stderr.starts_with('{'), "{}", ran.stderr);
        std::fs::remove_file(place.path().join("rec")).expect("it is there");
    }
}
