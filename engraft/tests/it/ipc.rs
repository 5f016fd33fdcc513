//! `engraft ipc`: the instructions of calls are those that callgrind counts. Of their cycles, see
//! tests/cycles.rs.

use crate::attached::server::Server;
use crate::needs;
use crate::run::{engraft, folder};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Has the C library take what any processor has: valgrind's has less than most.
const ANY_PROCESSOR: &str =
    "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX,-AVX_Fast_Unaligned_Load,-AVX512VL,-AVX512F,-RTM,-ERMS,-FSRM";

/// Instructions of `function` in so many rounds, as callgrind counts them.
#[track_caller]
fn in_rounds(folder: &Path, program: &str, function: &str, rounds: u64) -> u64 {
    let out = folder.join(format!("{function}.callgrind"));
    let mut valgrind = Command::new("env");
    valgrind.args([ANY_PROCESSOR, "valgrind"]);
    valgrind.args(["--tool=callgrind", "--collect-atstart=no", &format!("--toggle-collect={function}")]);
    valgrind.arg(format!("--callgrind-out-file={}", out.display()));
    let ran = valgrind.arg(folder.join(program)).arg(rounds.to_string()).output().expect("valgrind runs");
    assert_eq!(ran.status.code(), Some(7), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = std::fs::read_to_string(&out).expect("it is written");
    let total =
        text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    total.expect("there is a sum").trim().parse().expect("a number")
}

/// Instructions of a call of `function`, behind those that the dynamic linker has to do with.
#[track_caller]
fn by_callgrind(folder: &Path, program: &str, function: &str) -> u64 {
    in_rounds(folder, program, function, 3) - in_rounds(folder, program, function, 2)
}

#[track_caller]
fn calls(folder: &Path, server: &Server, words: &str) -> Vec<Value> {
    let (said, _) = server.ipc(folder, words);
    said["calls"].as_array().expect("a list").clone()
}

#[test]
fn instructions_are_those_that_callgrind_counts() {
    needs!("valgrind");
    let place = folder();
    for flags in ["-O1 -g -lm -Wl,-z,now", "-O2 -lm -fcf-protection=full -Wl,-z,lazy"] {
        Server::build(place.path(), "server", ["ipc.c", "gcc", flags]);
        let mut server = Server::within(place.path(), "server", &["env", ANY_PROCESSOR, "./server"]);
        for function in ["in_libraries", "in_libm", "chooses", "chain"] {
            let all = calls(place.path(), &server, &format!("{function} --calls 5"));
            let got: Vec<Option<u64>> = all.iter().map(|call| call["instructions"].as_u64()).collect();
            assert_eq!(
                got,
                vec![Some(by_callgrind(place.path(), "server", function)); 5],
                "{function} {flags}"
            );
        }
        // callgrind counts each byte; of a function with so few instructions, they can be counted by hand.
        let fills = calls(place.path(), &server, "fills --calls 1");
        assert!(fills[0]["instructions"].as_u64().is_some_and(|n| n < 12), "{fills:?}");
        server.end(true);
    }
}

#[test]
fn instances_of_loops_have_the_instructions_that_they_are_made_of() {
    let place = folder();
    let mut server = Server::start(place.path(), "ipc.c", "gcc", "-O1 -g -lm");
    for (words, instructions, iterations) in
        [("around_a_call --loop", 20 * 5, 20), ("nested --loop 1", 33, 3), ("nested --loop 2", 8, 4)]
    {
        let (said, _) = server.ipc(place.path(), &format!("{words} --calls 5"));
        assert_eq!(said["of"], "loop");
        let all = said["calls"].as_array().expect("a list");
        let got: Vec<_> =
            all.iter().map(|one| (one["instructions"].as_u64(), one["iterations"].as_u64())).collect();
        assert_eq!(got, vec![(Some(instructions), Some(iterations)); 5], "{words}");
    }
    // By its line, and by its address; the time of an instance is known, too.
    let by = |which: &str| calls(place.path(), &server, &format!("chain --loop {which} --calls 20"));
    let source = include_str!("fixtures/ipc.c");
    let line = source.lines().position(|line| line.starts_with("CHAIN(chain")).expect("it is there") + 1;
    let of_line = by(&format!("ipc.c:{line}"));
    let header = of_line[0]["header"].as_str().expect("an address").to_owned();
    let of_address = by(&header);
    for one in of_line.iter().chain(&of_address) {
        assert_eq!((one["header"].as_str(), one["iterations"].as_u64()), (Some(header.as_str()), Some(1000)));
        assert!(one["cycles"].as_f64().is_some_and(|cycles| cycles > 10_000.0), "{one}");
    }
    for (which, what) in [("9", "has no loop 9"), ("0", "--loop 0 is none"), ("x", "--loop x names no loop")]
    {
        let ran = engraft(place.path(), &format!("ipc chain --loop {which} -p {}", server.pid()));
        assert_eq!(ran.code, Some(2), "{which}");
        assert!(ran.stderr.contains(what), "{which}: {}", ran.stderr);
    }
    server.end(true);
}

#[test]
fn a_function_that_does_not_come_back_or_is_not_there_is_said() {
    let place = folder();
    let mut server = Server::start(place.path(), "ipc.c", "gcc", "-O1 -lm");
    let said = engraft(place.path(), &format!("ipc forever -p {} --for 200ms", server.pid()));
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("no call of forever in process"), "{}", said.stderr);
    let said = engraft(place.path(), &format!("ipc no_such_function -p {} --for 200ms", server.pid()));
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("is called no_such_function"), "{}", said.stderr);
    let said = engraft(place.path(), "ipc chain -p 999999999");
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("no process 999999999"), "{}", said.stderr);
    server.end(true);
}
