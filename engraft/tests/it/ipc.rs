//! `engraft ipc`: the instructions of calls are those that callgrind counts, the cycles those of a chain of
//! known latency.

use crate::attached::server::Server;
use crate::needs;
use crate::run::{engraft, folder};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Instructions of `function` in so many rounds, as callgrind counts them.
#[track_caller]
fn in_rounds(folder: &Path, program: &str, function: &str, rounds: u64) -> u64 {
    let out = folder.join(format!("{function}.callgrind"));
    let mut valgrind = Command::new("valgrind");
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
    let said = engraft(folder, &format!("ipc {words} --json -p {}", server.pid())).json();
    assert_eq!(said["schema"], "engraft.ipc/1");
    said["calls"].as_array().expect("a list").clone()
}

#[test]
fn instructions_are_those_that_callgrind_counts() {
    needs!("valgrind");
    let place = folder();
    for flags in ["-O1 -g -Wl,-z,now", "-O2 -fcf-protection=full -Wl,-z,lazy"] {
        let mut server = Server::start(place.path(), "ipc.c", "gcc", flags);
        for function in ["in_libraries", "chooses", "chain"] {
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
fn cycles_are_those_of_a_chain_of_known_latency() {
    let place = folder();
    let mut server = Server::start(place.path(), "ipc.c", "gcc", "-O1");
    let all = calls(place.path(), &server, "chain --calls 50");
    let cycles: Vec<f64> = all.iter().filter_map(|call| call["cycles"].as_f64()).collect();
    assert_eq!((all.len(), cycles.len()), (50, 50));
    assert!(all.iter().all(|call| call["cycles_are"] == "estimated"));
    let mut sorted = cycles.clone();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted[25];
    let error = all[0]["error"].as_f64().expect("a number");
    // Where other tests run beside it, the clock of the core is not the same all the time.
    assert!((middle - 16_000.0).abs() < 1600.0_f64.max(2.0 * error), "{middle} cycles ± {error}, not 16,000");
    server.end(true);
}

#[test]
fn a_function_that_does_not_come_back_or_is_not_there_is_said() {
    let place = folder();
    let mut server = Server::start(place.path(), "ipc.c", "gcc", "-O1");
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
