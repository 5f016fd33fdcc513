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
    let (a, b) = (function(&old, "main"), function(&new, "main"));
    let first = |p: &Program, f| p.function(f).block_ids().next().unwrap();
    let second = |p: &Program, f| p.function(f).block_ids().nth(1).unwrap_or_else(|| first(p, f));
    let block_pins = vec![(first(&old, a), first(&new, b))];
    let block_forbids = vec![(first(&old, pins[0].0), second(&new, b))];
    let map = Map { pins, forbids, block_pins, block_forbids, matching };
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
    let (two, three) =
        (old.function(function(&old, "twice")).entry, old.function(function(&old, "thrice")).entry);
    for (line, why) in [
        ("join twice twice", "a line begins with"),
        ("pin twice", "what is wanted is pin OLD NEW"),
        ("pin twice twice 1", "what is wanted is pin OLD NEW"),
        ("pin nobody twice", "the old build has no function nobody"),
        ("pin twice 0x1", "the new build has no function at 0x1"),
        ("match twice twice guess 1", "no such method"),
        ("match twice twice name 1.5", "a number from 0 to 1"),
        ("match twice twice name NaN", "a number from 0 to 1"),
        ("block 0x1 0x2 unique-1 1 1", "the old build has no block at 0x1"),
        (&format!("pin block {two} 0x2"), "the new build has no block at 0x2"),
        (&format!("pin {} twice", two.plus(1)), &format!("twice holds it, which starts at {two}")),
        (&format!("pin block {} 0x2", two.plus(1)), &format!("the one that holds it starts at {two}")),
        ("pin block twice 0x2", "no block twice: an address"),
        ("data 0x1 0x2 hash", "the old build has no data object that starts at 0x1"),
    ] {
        let error = Map::parse(&format!("{head}{line}\n"), &old, &new).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("line 4") && error.contains(line), "{error}");
    }
    let there = new.function(function(&new, "twice")).entry;
    for (first, second, why) in [
        ("pin twice twice", "pin twice treble", "line 4 pins the old one to another"),
        ("pin twice twice", "pin thrice twice", "line 4 pins another to the new one"),
        ("pin twice twice", "forbid twice twice", "line 4 pins the same two"),
        ("forbid twice twice", "pin twice twice", "line 4 forbids the same two"),
        ("match twice twice name 1", "match twice treble name 1", "line 4 matches the old function already"),
        ("match twice twice name 1", "match thrice twice name 1", "line 4 matches the new function already"),
        (
            &format!("pin block {two} {there}"),
            &format!("pin block {three} {there}"),
            "line 4 pins another to the new one",
        ),
        (
            &format!("block {two} {there} aligned 1 1"),
            &format!("block {two} {there} unique-1 1 0.5"),
            "line 4 matches the two already",
        ),
    ] {
        let error = Map::parse(&format!("{head}{first}\n{second}\n"), &old, &new).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("line 5") && error.contains(second), "{error}");
    }
    let twice = format!("{head}pin twice twice\npin twice twice\n");
    assert_eq!(Map::parse(&twice, &old, &new).map(|m| m.pins.len()), Ok(1));
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

#[test]
fn pinned_and_forbidden_blocks_are_obeyed() {
    let (old, new) = programs();
    let head = Map::default().write(&old, &new);
    let entry = |p: &Program, name: &str| p.function(function(p, name)).entry;
    let (from, to) = (entry(&old, "thrice"), entry(&new, "main"));
    let twice = (entry(&old, "twice"), entry(&new, "twice"));
    let text = format!("{head}pin block {from} {to}\nforbid block {} {}\n", twice.0, twice.1);
    let map = Map::parse(&text, &old, &new).unwrap();
    let m = Matching::compute(&old, &new, &Options::all().with_map(&map));
    let of = |at| m.blocks.iter().filter(|b| new.block(b.new).start == at).collect::<Vec<_>>();
    let pinned: Vec<_> = of(to).iter().map(|b| (old.block(b.old).start, b.method)).collect();
    assert_eq!(pinned, [(from, BlockMethod::Pinned)]);
    assert!(of(twice.1).iter().all(|b| old.block(b.old).start != twice.0), "{:?}", of(twice.1));
}

#[test]
fn pins_and_edits_of_one_map_both_stand() {
    let (old, new) = programs();
    let matching = Matching::compute(&old, &new, &Options::all());
    let plain = Map { matching: matching.clone(), ..Map::default() };
    assert_eq!(Matching::of_map(&old, &new, &plain, &Options::all()), matching);
    // `twice` is deleted by hand, `thrice` is pinned: the one stays away, the other comes with its blocks.
    let (twice, treble) = (function(&new, "twice"), function(&new, "treble"));
    let mut map = plain;
    map.matching.functions.retain(|f| f.new != twice && f.new != treble);
    map.matching.blocks.retain(|b| new.block(b.new).func != treble);
    map.pins.push((function(&old, "thrice"), treble));
    let m = Matching::of_map(&old, &new, &map, &Options::all());
    assert!(!m.functions.iter().any(|f| f.new == twice));
    assert!(!m.blocks.iter().any(|b| new.block(b.new).func == twice));
    let method = m.functions.iter().find(|f| f.new == treble).map(|f| f.method);
    assert_eq!(method, Some(FunctionMethod::Pinned));
    assert!(m.blocks.iter().any(|b| new.block(b.new).func == treble));
    assert!(m.blocks.iter().any(|b| new.block(b.new).func == function(&new, "main")));
}
