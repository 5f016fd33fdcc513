//! `trace -p` and `values -p`: what threads of a process that runs already append is taken from the moment at
//! which it is attached to, and nobody waits for us when we are gone.

use super::server::{Observing, Server};
use super::{C, server};
use crate::needs;
use crate::run::{engraft, folder};
use std::time::{Duration, Instant};

/// How often `path` occurs in the trace that was recorded.
#[track_caller]
fn count(folder: &std::path::Path, path: &str) -> u64 {
    let ran = engraft(folder, &format!("query rec.engraft '{path}' --count"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout.trim().parse().expect("a number")
}

#[test]
fn what_ran_between_the_two_moments_is_traced() {
    needs!("gcc");
    let place = folder();
    for flags in ["-O1", "-O2 -no-pie"] {
        let mut server = Server::start(place.path(), C[0], C[1], flags);
        let (plain, before) = (server.ask("1000"), server.memory());
        let mut tracing = Observing::start(place.path(), &server, "trace");
        assert_eq!(server.ask("1000"), plain, "{flags}");
        let said = tracing.end(Some("-INT"));
        assert_eq!(said["attach"]["pid"], server.pid());
        assert!(server.memory() == before, "{flags}");
        assert_eq!(server.ask("1000"), plain);
        for (path, n) in [("of_main: entry", 1000), ("of_thread: entry", 4000), ("of_main: exit", 1000)] {
            assert_eq!(count(place.path(), path), n, "{path} {flags}");
        }
        // A loop that ran at both moments.
        let (calls, back) =
            (count(place.path(), "of_spinning: entry"), count(place.path(), "of_spinning: exit"));
        assert!(calls > 1000 && calls.abs_diff(back) <= 1, "{calls} {back}");
    }
}

#[test]
fn values_of_a_process_that_runs_are_those_of_its_calls() {
    needs!("gcc");
    let place = folder();
    let mut server = server(place.path());
    let (plain, before) = (server.ask("1000"), server.memory());
    let options = [
        "--calls",
        "long of_main(long n);",
        "--calls",
        "long of_thread(long n);",
        "--loop",
        "work",
        "--no-ticks",
    ];
    let mut taking = Observing::with(place.path(), &server, "values", &options);
    assert_eq!(server.ask("1000"), plain);
    let said = taking.end(Some("-INT"));
    assert!(server.memory() == before);
    let calls = said["calls"].as_array().expect("calls");
    let of = |name: &str| calls.iter().find(|one| one["function"] == name).expect("it was called");
    for (name, n) in [("of_main", 1000), ("of_thread", 4000)] {
        assert_eq!((&of(name)["calls"], &of(name)["results"]), (&n.into(), &n.into()), "{name}");
    }
    let first = &of("of_main")["arguments"][0];
    assert_eq!(
        (&first["statistics"]["min"], &first["statistics"]["max"]),
        (&0.into(), &999.into()),
        "{first:#}"
    );
    let loops = said["loops"].as_array().expect("loops");
    // One instance each of the four threads: the loops around them were entered before.
    let inner = loops.iter().filter(|one| one["instances"] == 4).count();
    assert_eq!(inner, 1, "{loops:#?}");
    assert_eq!(server.ask("1000"), plain);
}

/// Threads that append all the time wait for room; when nobody is left who makes some, they go on.
#[test]
fn who_was_killed_while_streams_are_full_leaves_a_process_that_goes_on() {
    needs!("gcc");
    let place = folder();
    for verb in ["trace", "values"] {
        let mut server = server(place.path());
        let (plain, before) = (server.ask("1000"), server.memory());
        let options: &[&str] = if verb == "values" { &["--calls", "of_*"] } else { &[] };
        let mut observing = Observing::with(place.path(), &server, verb, options);
        std::thread::park_timeout(Duration::from_millis(100));
        observing.end(Some("-KILL"));
        for _ in 0..3 {
            assert_eq!(server.ask("1000"), plain, "{verb}");
        }
        let rescued = engraft(place.path(), &format!("rescue {}", server.pid()));
        assert_eq!(rescued.code, Some(0), "{}", rescued.stderr);
        assert!(server.memory() == before, "{verb}");
        assert_eq!(server.ask("1000"), plain);
    }
}

#[test]
fn of_a_process_that_ends_all_is_traced() {
    needs!("gcc");
    let place = folder();
    for ends_by_itself in [true, false] {
        let mut server = server(place.path());
        let mut tracing = Observing::start(place.path(), &server, "trace");
        server.ask("1000");
        server.end(ends_by_itself);
        tracing.end(None);
        assert_eq!(
            (count(place.path(), "of_main: entry"), count(place.path(), "of_thread: entry")),
            (1000, 4000)
        );
    }
}

/// What is kept of a trace is chosen as of a program that is started.
#[test]
fn the_last_of_a_process_is_kept_or_what_comes_from_a_function_on() {
    needs!("gcc");
    let place = folder();
    let mut server = server(place.path());
    let mut tracing = Observing::with(place.path(), &server, "trace", &["--last", "64K"]);
    server.ask("1000");
    std::thread::park_timeout(Duration::from_millis(50));
    tracing.end(Some("-INT"));
    assert!(count(place.path(), "of_spinning: entry") > 100);
    let mut tracing = Observing::with(place.path(), &server, "trace", &["--from", "of_main"]);
    server.ask("100");
    tracing.end(Some("-INT"));
    assert_eq!(count(place.path(), "of_main: entry"), 100);
    let clock = Instant::now();
    let ran = engraft(place.path(), &format!("trace -q -p {} --for 200ms -o short.trace", server.pid()));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(clock.elapsed() >= Duration::from_millis(200));
}
