//! What the two clients leave out.

use crate::{Server, client, folder, must, needs};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a step prints.
#[track_caller]
fn step(folder: &Path, server: &Server, words: &[&str]) -> String {
    must(client(folder, "tests/it/fixtures/steps.c").arg(server.pid()).args(words))
}

/// The oracles: the assembly that gcc makes of four lines, which is entered, goes round, and returns; and
/// objdump, which counts its bytes and instructions.
#[test]
fn a_graph_has_the_blocks_edges_and_loops_of_its_function() {
    needs!("gcc", "objdump");
    let place = folder();
    let server = Server::start(place.path());
    let said = step(place.path(), &server, &["cfg"]);
    assert!(!said.contains("elsewhere"), "it is linked where it is: {said}");
    let (mut n_bytes, mut n_instructions, mut in_loops, mut edges) = (0, 0, 0, Vec::new());
    for line in said.lines().filter(|line| line.starts_with("block ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |n: usize| words[n].parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(
            words[3],
            format!("{n_bytes:#x},").replace("0x0,", "0,"),
            "blocks follow each other: {said}"
        );
        n_bytes += number(4);
        n_instructions += number(6);
        in_loops += number(9);
    }
    edges.extend(said.lines().filter_map(|line| line.strip_prefix("edge ")));
    let program = place.path().join("server");
    let code =
        must(Command::new("objdump").args(["-d", "--no-show-raw-insn", "--disassemble=hot"]).arg(program));
    let addresses: Vec<u64> = code
        .lines()
        .filter_map(|line| line.trim_start().split_once(":\t"))
        .filter_map(|(at, _)| u64::from_str_radix(at, 16).ok())
        .collect();
    assert_eq!(n_instructions, addresses.len() as u64, "{said}\n{code}");
    // Its last instruction is `ret`, of one byte.
    assert_eq!(n_bytes, addresses[addresses.len() - 1] + 1 - addresses[0], "{said}\n{code}");
    assert!(in_loops == 1 && said.contains(", 1 blocks, depth 1, parent -1\n"), "{said}");
    assert!(edges.iter().any(|edge| edge.split_once(' ').is_some_and(|(from, to)| from == to)), "{said}");
}

/// Each round of its loop has as many instructions as objdump says that the loop has.
#[test]
fn calls_have_their_instructions_and_cycles() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path());
    let said = step(place.path(), &server, &["calls"]);
    let all: Vec<Option<u64>> =
        said.lines().map(|line| line.strip_suffix(" instructions, cycles")?.parse().ok()).collect();
    let [Some(first), _, _] = all[..] else { panic!("{said}") };
    // add, add, cmp, jne, a thousand times; a few before and behind.
    assert!((3000..=4010).contains(&first) && all.iter().all(|n| *n == Some(first)), "{said}");
    assert_eq!(server.result(), "1000");
    server.end();
}

/// The oracle is what the program says of its last result.
#[test]
fn a_function_is_replaced_by_bytes_or_a_library_and_taken_back() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path());
    let source = place.path().join("new.c");
    std::fs::write(&source, "long other(long n) { return n + 1; }\n").expect("written");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(place.path()).args(["-O1", "-shared", "-fPIC", "-o", "new.so"]);
    must(gcc.arg(source));
    assert_eq!(server.result(), "1000");
    assert_eq!(step(place.path(), &server, &["bytes"]), "1: hot by machine code\n");
    assert_eq!(server.result(), "42");
    // Whoever looks again sees that, and makes no second one.
    assert_eq!(step(place.path(), &server, &["profile"]), "samples\n");
    let again = client(place.path(), "tests/it/fixtures/steps.c").args([&server.pid(), "bytes"]).output();
    let again = String::from_utf8_lossy(&again.expect("it runs").stderr).into_owned();
    assert!(
        again.starts_with("5: process ") && again.contains(" functions that were replaced\nhint: "),
        "{again}"
    );
    assert_eq!(step(place.path(), &server, &["undo"]), "");
    assert_eq!(server.result(), "1000");
    assert_eq!(step(place.path(), &server, &["library", "./new.so", "other"]), "1: hot by new.so:other\n");
    assert_eq!(server.result(), "1001");
    assert_eq!(step(place.path(), &server, &["undo"]), "");
    assert_eq!(server.result(), "1000");
    server.end();
}

/// The oracle is the source: `hot` is called with 1000 each time.
#[test]
fn a_client_is_told_of_passings_until_it_has_enough() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path());
    let said = step(place.path(), &server, &["watch", "hot", "5"]);
    assert_eq!(said, "told of 5 and 5, 5000 in all\n");
    assert_eq!(server.result(), "1000");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("it runs");
    assert!(!maps.contains("memfd:engraft"), "{maps}");
    server.end();
}

/// Its stream is far from full then. The server asks for a line of so many bytes by `fgets(line, 64, stdin)`;
/// what that has in its first register is where the line goes, on the stack.
#[test]
fn a_client_is_told_of_a_single_passing_at_once() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path());
    let mut watch = client(place.path(), "tests/it/fixtures/steps.c");
    watch.args([&server.pid(), "watch", "fgets", "1"]).stdout(Stdio::piped());
    let (mut watch, since) = (watch.spawn().expect("it starts"), Instant::now());
    // Until it is attached, it is told of nothing; then of the first.
    while watch.try_wait().expect("a child").is_none() {
        assert!(since.elapsed() < Duration::from_secs(60), "it is not told");
        assert_eq!(server.result(), "1000");
    }
    let said = watch.wait_with_output().expect("it has ended").stdout;
    let said = String::from_utf8_lossy(&said);
    let line = said.strip_prefix("told of 1 and 1, ").and_then(|s| s.strip_suffix(" in all\n"));
    let line: u64 = line.and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("it runs");
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).expect("it has one");
    let (from, to) = stack.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
    let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).expect("an address"));
    assert!((from..to).contains(&line), "{line:#x} {from:#x} {to:#x}");
    server.end();
}
