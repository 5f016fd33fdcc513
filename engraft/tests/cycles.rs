//! `engraft ipc`: the cycles of calls are those of chains of known latency, within the error that is said. A
//! program of its own, since tests of one run side by side, and what runs beside changes the clock.
#![expect(dead_code, reason = "of what other tests use, this one uses a part")]

#[path = "it/run.rs"]
mod run;
#[path = "it/attached/server.rs"]
mod server;

use run::folder;
use serde_json::Value;
use server::Server;
use std::path::Path;

/// What `ipc` says of calls of `function`, each of so many cycles: whether the call in the middle has them
/// within its error, and whether the tool says that the machine was not steady. Else, the error is no more
/// than a twentieth.
#[track_caller]
fn has_cycles(folder: &Path, server: &Server, function: &str, cycles: f64) -> (bool, bool) {
    let (said, is_unsteady) = server.ipc(folder, &format!("{function} --calls 50"));
    let number = |call: &Value, of: &str| call[of].as_f64().expect("a number");
    let mut all: Vec<Value> = said["calls"].as_array().expect("a list").clone();
    assert_eq!(all.len(), 50);
    assert!(all.iter().all(|call| call["cycles_are"] == "estimated"));
    all.sort_by(|a, b| number(a, "cycles").total_cmp(&number(b, "cycles")));
    let (got, error) = (number(&all[25], "cycles"), number(&all[25], "error"));
    assert!(is_unsteady || error <= 0.05 * cycles, "{function}: {got} ± {error} cycles; {said}");
    ((got - cycles).abs() <= error, is_unsteady)
}

#[test]
fn cycles_are_those_of_chains_of_known_latency_within_the_error_that_is_said() {
    let place = folder();
    let mut server = Server::start(place.path(), "ipc.c", "gcc", "-O1 -lm");
    // One, four, twenty microseconds, or so.
    let mut held = Vec::new();
    for (function, cycles) in [("multiplies", 4080.0), ("chain", 16_000.0), ("adds", 80_000.0)] {
        // Where other tests run beside it, the tool says that the machine is not steady: tried again, nine
        // times at most.
        let mut n_steady = 0;
        for _ in 0..9 {
            let (holds, is_unsteady) = has_cycles(place.path(), &server, function, cycles);
            held.push((holds, is_unsteady));
            n_steady += u32::from(!is_unsteady);
            if n_steady == 3 {
                break;
            }
        }
    }
    // What is said holds with 95 %: of ten one may not. Where the tool says that the machine was not steady,
    // as it is while something else takes the processor, it holds more often than not.
    let n_of = |unsteady: bool| {
        let of = held.iter().filter(|(_, is_unsteady)| *is_unsteady == unsteady);
        (of.clone().filter(|(holds, _)| *holds).count(), of.count())
    };
    let (n_held, n) = n_of(false);
    assert!(n - n_held <= 1 + n / 10, "{held:?}");
    let (n_held, n) = n_of(true);
    assert!(n - n_held <= 1 + n / 2, "{held:?}");
    server.end(true);
}
