//! `engraft match` on two builds of one program, against what their symbols say.

use crate::needs;
use crate::run::{callgrind, engraft, folder, must, pair};
use std::process::Command;

#[test]
fn functions_of_one_name_are_each_other_and_a_new_one_is_nobody() {
    let view = engraft(pair(), "match old new --json").json();
    let rows = view["functions"].as_array().expect("a list");
    let of = |name: &str| rows.iter().find(|f| f["new_name"] == name);
    for name in ["main", "hash", "add", "kind", "by_count"] {
        let found = of(name).unwrap_or_else(|| panic!("{name} is not matched"));
        assert_eq!(found["old_name"], name);
        assert_eq!(found["method"], "name");
    }
    assert!(of("fold").is_none(), "fold is new in release 2");
    let left = view["unmatched_new"].as_array().expect("a list");
    assert!(left.iter().any(|l| l["name"] == "fold"), "{left:?}");
}

#[test]
fn a_build_matches_itself_block_by_block() {
    let view = engraft(pair(), "match old old --json").json();
    let blocks = view["blocks"].as_array().expect("a list");
    let n = usize::try_from(view["rates"]["blocks"]["n_new"].as_u64().expect("a number")).expect("small");
    assert!(blocks.iter().all(|b| b["old"] == b["new"]), "a block is not itself");
    let left = view["unmatched_new"].as_array().expect("a list");
    let left: usize =
        left.iter().filter_map(|l| l["n_blocks"].as_u64()).map(|n| usize::try_from(n).expect("small")).sum();
    assert_eq!(blocks.len(), n - left, "a block of a matched function is left over");
}

#[test]
fn explain_shows_both_versions_of_each_block() {
    let text = engraft(pair(), "match old new --explain add").ok();
    assert!(text.starts_with("old  add at 0x"), "{text}");
    let fold = engraft(pair(), "match old new --explain fold").ok();
    assert!(fold.starts_with("old  has no counterpart") && fold.contains("\nonly in new\n"), "{fold}");
    assert!(text.contains("confidence"), "{text}");
    let view = engraft(pair(), "match old new --explain add --json").json();
    let rows = view["rows"].as_array().expect("a list");
    let shown: Vec<_> = rows.iter().filter_map(|r| r["new"]["at"].as_u64()).collect();
    let nm = must(Command::new("nm").args(["-S", "new"]).current_dir(pair()));
    let line = nm.lines().find(|l| l.ends_with(" add")).expect("it is in the source");
    let number = |text: &str| u64::from_str_radix(text, 16).expect("nm prints hexadecimal numbers");
    let (start, len) = (number(&line[..16]), number(&line[17..33]));
    assert!(shown.iter().all(|at| (start..start + len).contains(at)), "{shown:x?} in {line}");
    let both = rows.iter().filter(|r| r["new"].is_object() && r["old"].is_object()).count();
    assert!(both > 3, "{both} blocks of add are matched");
}

#[test]
fn nothing_in_common_is_the_answer_no() {
    let to = folder();
    std::fs::write(to.path().join("a.s"), ".globl f\n.type f,@function\nf: ret\n.size f,.-f\n")
        .expect("it is ours");
    std::fs::write(to.path().join("b.s"), ".globl g\n.type g,@function\ng: ud2\nud2\n.size g,.-g\n")
        .expect("it is ours");
    for name in ["a", "b"] {
        must(
            Command::new("gcc")
                .args(["-nostdlib", "-shared", "-o", name, &format!("{name}.s")])
                .current_dir(to.path()),
        );
    }
    assert_eq!(engraft(to.path(), "match a b").code, Some(1));
    assert_eq!(engraft(to.path(), "match a a").code, Some(0));
}

#[test]
fn a_pass_that_is_switched_off_finds_nothing() {
    let ran = engraft(pair(), "match old new --without names --json");
    // Data have a method of that name too, so look at functions alone.
    let (_, functions) = ran.stdout.split_once("\"functions\":[").expect("it lists functions");
    let (functions, _) = functions.split_once("\"blocks\":[").expect("blocks come next");
    assert!(functions.contains("\"method\":") && !functions.contains("\"method\":\"name\""), "{functions}");
    let ran = engraft(pair(), "match old new --without nmaes");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("no pass is named \"nmaes\"; there are"), "{}", ran.stderr);
}

/// A map of `pair()` in a folder of its own, with `edit` applied to its text.
fn edited(edit: impl FnOnce(String) -> String) -> (tempfile::TempDir, String) {
    let to = folder();
    for name in ["old", "new"] {
        std::fs::copy(pair().join(name), to.path().join(name)).expect("both are there");
    }
    engraft(to.path(), "match old new -o pair.map").ok();
    let text = std::fs::read_to_string(to.path().join("pair.map")).expect("it was written");
    let text = edit(text);
    std::fs::write(to.path().join("pair.map"), &text).expect("it is ours");
    (to, text)
}

/// Address of a function, as `nm` has it.
fn address(binary: &str, name: &str) -> u64 {
    let nm = must(Command::new("nm").arg(binary).current_dir(pair()));
    let line = nm.lines().find(|l| l.split_whitespace().last() == Some(name)).expect("it is in the source");
    u64::from_str_radix(&line[..16], 16).expect("nm prints hexadecimal numbers")
}

#[test]
fn pins_and_forbids_of_a_map_are_obeyed_and_shown() {
    let (kind, fold) = (address("old", "kind"), address("new", "fold"));
    let lines = format!("pin kind fold\nforbid add add\npin block {kind:#x} {fold:#x}\n");
    let (to, _) = edited(|text| text + &lines);
    let view = engraft(to.path(), "match old new --with pair.map -o again.map --json").json();
    let rows = view["functions"].as_array().expect("a list");
    let fold_row = rows.iter().find(|f| f["new_name"] == "fold").expect("it is pinned");
    assert_eq!((&fold_row["old_name"], &fold_row["method"]), (&"kind".into(), &"pinned".into()));
    assert!(!rows.iter().any(|f| f["old_name"] == "add" && f["new_name"] == "add"), "{rows:?}");
    assert!(!rows.iter().any(|f| f["new_name"] == "kind"), "{rows:?}");
    let blocks = view["blocks"].as_array().expect("a list");
    let at_fold: Vec<_> = blocks.iter().filter(|b| b["new"] == fold).collect();
    assert_eq!(at_fold.len(), 1, "{at_fold:?}");
    assert_eq!((&at_fold[0]["old"], &at_fold[0]["method"]), (&kind.into(), &"pinned".into()));
    let said = engraft(to.path(), "match old new --with pair.map").ok();
    assert_eq!(said.matches(" pinned ").count(), 2, "functions and blocks: {said}");
    // What was said is kept, and says the same.
    let again = std::fs::read_to_string(to.path().join("again.map")).expect("it was written");
    assert!(lines.lines().all(|l| again.lines().any(|a| a == l)), "{again}");
    let second = engraft(to.path(), "match old new --with again.map --json").json();
    assert_eq!(second, view);
}

#[test]
fn carry_goes_along_pins_and_edited_lines_of_one_map() {
    needs!("valgrind");
    // `hash` is deleted by hand, which a pin of other functions must not undo; nor must the deletion undo the
    // pin.
    let without_hash = |text: &str| -> String {
        text.lines().filter(|l| !l.starts_with("match hash ")).map(|l| format!("{l}\n")).collect()
    };
    let (to, text) = edited(|text| text);
    callgrind(to.path(), "old");
    let carried = |name: &str, map: &str| -> Vec<String> {
        std::fs::write(to.path().join("edited.map"), map).expect("it is ours");
        engraft(to.path(), "carry old new --profile old.callgrind --map edited.map -o out.fdata").ok();
        let out = std::fs::read_to_string(to.path().join("out.fdata")).expect("it was written");
        let inside = format!("1 {name}/");
        out.lines().filter(|l| l.starts_with(&inside)).map(str::to_owned).collect()
    };
    let (deleted, pin) = (without_hash(&text), "pin kind fold\n");
    let both = deleted.clone() + pin;
    for name in ["hash", "fold"] {
        let (plain, changed) = (carried(name, &text), carried(name, &both));
        let alone = if name == "hash" { &deleted } else { &(text.clone() + pin) };
        assert_ne!(changed, plain, "{name} is carried as if nothing had been edited");
        assert_eq!(changed, carried(name, alone), "{name}");
    }
}

#[test]
fn a_map_that_cannot_be_obeyed_is_refused_with_its_line() {
    let main = address("new", "main");
    let inside = main + 1;
    for (lines, why) in [
        ("pin kind fold\npin kind kind\n", "pins the old one to another: \"pin kind kind\""),
        ("pin kind fold\npin add fold\n", "pins another to the new one: \"pin add fold\""),
        ("pin kind fold\nforbid kind fold\n", "pins the same two: \"forbid kind fold\""),
        ("\npin kind nobody\n", "the new build has no function nobody: \"pin kind nobody\""),
        (&format!("\npin kind {inside:#x}\n"), &format!("main holds it, which starts at {main:#x}: ")),
        ("\npin block 0x10 0x10\n", "the old build has no block at 0x10: "),
    ] {
        let (to, text) = edited(|text| text + lines);
        let line = format!("line {} of the map: ", text.lines().count());
        let ran = engraft(to.path(), "match old new --with pair.map");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{lines}");
        assert!(ran.stderr.contains(&line) && ran.stderr.contains(why), "{} for {line}{why}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
}

#[test]
fn match_lines_that_are_not_found_anew_are_told() {
    let (to, _) = edited(|text| text.replace("match kind kind ", "match kind fold "));
    let ran = engraft(to.path(), "match old new --with pair.map --json");
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("1 `match` line of the map not found anew"), "{}", ran.stderr);
}
