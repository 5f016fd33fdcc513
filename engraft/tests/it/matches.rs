//! `engraft match` on two builds of one program, against what their symbols say.

use crate::run::{engraft, folder, must, pair};
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
