//! What is written is read back; what a person wrote wrong is refused with its line.

use super::*;
use crate::options::Options;
use crate::testing::{compile, function};

const OLD: &str = "__attribute__((noinline)) int twice(int x) { return x * 2 + 1; }
__attribute__((noinline)) int thrice(int x) { return x * 3 + 7; }
int main(int n, char **v) { return twice(n) + thrice(n); }";
const NEW: &str = "__attribute__((noinline)) int twice(int x) { return x * 2 + 1; }
__attribute__((noinline)) int treble(int x) { return x * 5 - 7; }
int main(int n, char **v) { return twice(n) + treble(n) + 1; }";

fn programs() -> (Program, Program) {
    (compile(OLD, "c", &["-O1"]), compile(NEW, "c", &["-O1"]))
}

#[test]
fn a_map_is_read_as_it_was_written() {
    let (old, new) = programs();
    let matching = Matching::compute(&old, &new, &Options::all());
    assert!(!matching.functions.is_empty() && !matching.blocks.is_empty());
    let pins = vec![(function(&old, "thrice"), function(&new, "treble"))];
    let forbids = vec![(function(&old, "twice"), function(&new, "treble"))];
    let map = Map { pins, forbids, matching };
    let text = map.write(&old, &new);
    assert_eq!(Map::parse(&text, &old, &new).as_ref(), Ok(&map), "{text}");
    let commented = text.replace('\n', "   # why not\n\n");
    assert_eq!(Map::parse(&commented, &old, &new), Ok(map));
}

#[test]
fn a_map_of_other_builds_is_refused_with_both_named() {
    let (old, new) = programs();
    let text = Map::default().write(&old, &new);
    let error = Map::parse(&text, &new, &new).unwrap_err().to_string();
    for part in [old.image.id.to_string(), new.image.id.to_string(), new.image.name.clone()] {
        assert!(error.contains(&part), "{error}");
    }
}

#[test]
fn lines_that_say_nothing_are_refused() {
    let (old, new) = programs();
    let head = Map::default().write(&old, &new);
    for (line, why) in [
        ("join twice twice", "a line begins with"),
        ("pin twice", "an old and a new part"),
        ("pin nobody twice", "the old build has no such function"),
        ("pin twice 0x1", "the new build has no such function"),
        ("match twice twice guess 1", "no such method"),
        ("match twice twice name 1.5", "a number from 0 to 1"),
        ("block 0x1 0x2 unique-1 1 1", "no block of the old build"),
    ] {
        let error = Map::parse(&format!("{head}{line}\n"), &old, &new).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("line 4") && error.contains(line), "{error}");
    }
    assert_eq!(Map::parse("", &old, &new), Err(MapError::Head));
}

#[test]
fn pins_and_forbids_are_obeyed() {
    let (old, new) = programs();
    let head = Map::default().write(&old, &new);
    let text = format!("{head}pin thrice treble\nforbid twice twice\n");
    let map = Map::parse(&text, &old, &new).unwrap();
    let m = Matching::compute(&old, &new, &Options::all().with_map(&map));
    let of = |name| m.functions.iter().find(|f| f.new == function(&new, name));
    let pinned = of("treble").unwrap();
    assert_eq!((pinned.old, pinned.method), (function(&old, "thrice"), FunctionMethod::Pinned));
    assert_ne!(of("twice").map(|f| f.old), Some(function(&old, "twice")));
    assert_eq!(of("main").map(|f| f.old), Some(function(&old, "main")));
}
