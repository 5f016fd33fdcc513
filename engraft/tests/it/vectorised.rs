//! `engraft replace --vectorise`: loops of packed instructions run by wider ones while their program runs on,
//! and nobody notices but by the clock.

use crate::attached::server::Server;
use crate::needs;
use crate::run::{Ran, engraft, folder, has_ours};
use serde_json::Value;
use std::path::Path;

/// Loops that are done; the gain of each is what `checks/vectorise.py` prints.
const DONE: [&str; 12] = [
    "scale",
    "saxpy",
    "middle",
    "add",
    "sum",
    "xors",
    "matches",
    "threshold",
    "inverse",
    "largest",
    "average",
    "mix",
];

/// Loops that are refused, and a part of the reason.
const REFUSED: [(&str, &str); 8] = [
    ("float_sum", "a sum of floats would be added in another order"),
    ("prefix", "each iteration needs what the one before left in xmm"),
    ("scalar", "works on one value, not on a vector"),
    ("strided", "advances by 32 bytes an iteration, not by 16"),
    ("calls", "it calls something"),
    ("branches", "blocks"),
    ("gathers", "loads an index or an address"),
    ("halves", "moves or converts half a vector"),
];

/// How many elements the loops run over: fewer than a vector, with and without a rest, and many.
const LENGTHS: [u32; 12] = [0, 1, 3, 16, 17, 31, 32, 64, 100, 147, 777, 4096];

fn replace(folder: &Path, server: &Server, rest: &str) -> Ran {
    engraft(folder, &format!("replace {rest} -p {}", server.pid()))
}

/// What all loops come to, at each length.
fn checksums(server: &mut Server) -> Vec<String> {
    LENGTHS.iter().map(|n| server.ask(&format!("all {n}"))).collect()
}

/// Whether this processor has what is needed: else it is said.
#[track_caller]
fn has_avx2(folder: &Path, server: &Server) -> bool {
    let has = std::arch::is_x86_feature_detected!("avx2");
    if !has {
        let ran = replace(folder, server, "scale --vectorise");
        assert_eq!(ran.code, Some(2), "{}", ran.stdout);
        assert!(ran.stderr.contains("this processor has no AVX2"), "{}", ran.stderr);
    }
    has
}

/// While a thread of the program works with all of them, each is vectorised and taken back.
#[test]
fn packed_loops_are_vectorised_and_taken_back() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path(), "vectorised.c", "gcc", "-O2 -g");
    if !has_avx2(place.path(), &server) {
        return;
    }
    let plain = checksums(&mut server);
    let before = server.memory();
    for name in DONE {
        let said = replace(place.path(), &server, &format!("{name} --vectorise --json")).ok();
        let said: Value = serde_json::from_str(&said).expect("it is JSON");
        let loops = said["loops"].as_array().unwrap_or_else(|| panic!("{name}: {said}"));
        let is_done = |one: &&Value| one["done"] == true;
        assert_eq!(loops.iter().filter(is_done).count(), 1, "{name}: {said}");
        for one in loops {
            let is_address = one["address"].as_str().is_some_and(|at| at.starts_with("0x"));
            let is_line = one["line"].as_str().is_some_and(|line| line.starts_with("vectorised.c:"));
            assert!(is_address && is_line, "{name}: {one}");
            assert_eq!(one["because"].is_null(), one["done"] == true, "{name}: {one}");
        }
        assert_eq!(checksums(&mut server), plain, "{name}");
        assert_eq!(server.ask("wrong 0"), "0", "{name}");
        let listed = replace(place.path(), &server, "--list").ok();
        assert!(listed.contains(name) && listed.contains("vectorised"), "{listed}");
        let undone = replace(place.path(), &server, &format!("{name} --undo"));
        assert_eq!(undone.code, Some(0), "{name}: {} {}", undone.stdout, undone.stderr);
        assert_eq!(checksums(&mut server), plain, "{name}, taken back");
        let after = server.memory();
        assert!(after.1 == before.1, "{name}: its code is as it was");
        assert_eq!(others(&after.0), others(&before.0), "{name}");
    }
    // And by whoever comes later, if the command was killed.
    let said = replace(place.path(), &server, "mix --vectorise").ok();
    assert!(said.contains("innermost loops of mix are vectorised in process"), "{said}");
    assert!(said.contains("is vectorised\n") && said.contains("stays as it is: `"), "{said}");
    engraft(place.path(), &format!("rescue {}", server.pid())).ok();
    let after = server.memory();
    assert!(after.1 == before.1, "its code is as it was");
    assert_eq!(others(&after.0), others(&before.0));
    assert_eq!(server.ask("wrong 0"), "0");
    server.end(true);
}

/// Who is in a loop that goes on, in a function that does not come back, is led out of what stands at its
/// entry.
#[test]
fn a_loop_that_goes_on_is_vectorised_and_taken_back() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path(), "vectorised.c", "gcc", "-O2 -g");
    if !has_avx2(place.path(), &server) {
        return;
    }
    let before = server.memory();
    for _ in 0..10 {
        assert_eq!(server.ask("rounds 1"), "1");
        replace(place.path(), &server, "rounds --vectorise").ok();
        let undone = replace(place.path(), &server, "rounds --undo");
        assert_eq!(undone.code, Some(0), "{} {}", undone.stdout, undone.stderr);
        let after = server.memory();
        assert!(after.1 == before.1 && !has_ours(&after.0), "its code is as it was");
        assert_eq!(server.ask("rounds 0"), "1", "all of it is written");
    }
    assert_eq!(server.ask("wrong 0"), "0");
    server.end(true);
}

/// What is mapped but for the program's own file, whose pages the kernel lists in parts.
fn others(maps: &str) -> Vec<&str> {
    maps.lines().filter(|line| !line.ends_with("/server")).collect()
}

/// All others are refused, each with its reason, and nothing is touched.
#[test]
fn other_loops_are_refused_with_the_reason() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path(), "vectorised.c", "gcc", "-O2 -g");
    if !has_avx2(place.path(), &server) {
        return;
    }
    let before = server.memory();
    for (name, why) in REFUSED {
        let ran = replace(place.path(), &server, &format!("{name} --vectorise"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{name}: {}", ran.stderr);
        let says = format!("no loop of {name} can be vectorised: that at 0x");
        assert!(ran.stderr.contains(&says) && ran.stderr.contains(why), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains("vectorised.c:"), "{name}: {}", ran.stderr);
    }
    for words in ["scale --vectorise --memo", "scale --vectorise --trial 1s", "--list --vectorise"] {
        let ran = replace(place.path(), &server, words);
        assert_eq!(ran.code, Some(2), "{words}: {}", ran.stdout);
        assert!(ran.stderr.contains("cannot be used with"), "{words}: {}", ran.stderr);
    }
    let ran = replace(place.path(), &server, "nothing --vectorise");
    assert!(ran.stderr.contains("no loop of nothing can be vectorised: it has none"), "{}", ran.stderr);
    assert!(server.memory() == before);
    assert_eq!(server.ask("wrong 0"), "0");
    server.end(true);
}
