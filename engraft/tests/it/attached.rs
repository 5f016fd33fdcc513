//! `-p` and `rescue`: processes that run already are counted exactly and given back as they were, and never
//! notice.

mod elsewhere;
mod kept;
pub mod server;
mod several;
mod shown;
mod streams;

use crate::needs;
use crate::run::{engraft, folder, has_ours, must};
use serde_json::Value;
use server::{Observing, Server};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often the function `name` was entered.
fn entries(said: &Value, name: &str) -> u64 {
    let rows = said["functions"].as_array().expect("functions");
    let row = rows.iter().find(|row| row["name"] == name);
    row.and_then(|row| row["entries"].as_u64()).unwrap_or(0)
}

/// A loop that called a function went round as often, but for the moments at which it was attached to and
/// left.
#[track_caller]
fn check_loop(said: &Value, function: &str, called: &str) {
    let rows = said["loops"].as_array().expect("loops");
    let row = rows.iter().find(|row| row["function"] == function).expect("its loop ran");
    let (rounds, calls) = (row["iterations"].as_u64().expect("a number"), entries(said, called));
    assert!(calls > 1000 && rounds.abs_diff(calls) <= 1, "{rounds} rounds, {calls} calls");
}

const C: [&str; 3] = ["attached.c", "gcc", "-O1"];

#[track_caller]
fn server(folder: &Path) -> Server {
    let [source, compiler, flags] = C;
    Server::start(folder, source, compiler, flags)
}

#[test]
fn what_ran_between_the_two_moments_is_counted() {
    needs!("gcc");
    let place = folder();
    for flags in ["-O1", "-O2 -no-pie", "-Os"] {
        let mut server = Server::start(place.path(), C[0], C[1], flags);
        let plain: Vec<String> = ["1000", "2000"].map(|line| server.ask(line)).to_vec();
        let (before, own) = (server.memory(), server.own_constants());
        let mut counting = Observing::start(place.path(), &server, "count");
        assert!(server.own_constants() > own, "{flags}: what leads to the cases of its switch is changed");
        // The same answers, and no call that says that it was interrupted.
        assert_eq!(["1000", "2000"].map(|line| server.ask(line)).to_vec(), plain, "{flags}");
        assert!(plain[0].ends_with(" 0 0 0"), "{plain:?}");
        let said = counting.end(Some("-INT"));
        assert_eq!(server.ask("1000"), plain[0]);
        assert_eq!((entries(&said, "of_main"), entries(&said, "of_thread")), (3000, 12000), "{flags}");
        check_loop(&said, "spin", "of_spinning");
        let attach = &said["attach"];
        assert_eq!((&attach["pid"], &attach["threads"]), (&server.pid().into(), &8.into()));
        assert_eq!(attach["left"], Value::Null);
        let after = server.memory();
        assert_eq!(after.0, before.0, "{flags}");
        assert!(after.1 == before.1, "its code is as it was");
        assert_eq!(server.own_constants(), own, "{flags}: it has no memory that it had not before");
        server.end(true);
    }
}

#[test]
fn the_time_that_is_given_ends_it() {
    needs!("gcc");
    let place = folder();
    let server = server(place.path());
    let (pid, clock) = (server.pid(), Instant::now());
    let ran = engraft(place.path(), &format!("count -p {pid} --for 300ms -o rec.engraft"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    assert!(clock.elapsed() >= Duration::from_millis(300));
    let shown = engraft(place.path(), "show --json rec.engraft");
    let shown: Value = serde_json::from_str(&shown.stdout).expect("it is JSON");
    assert_eq!(shown["attach"]["pid"], pid);
    assert!(shown["run"]["command"][0].as_str().is_some_and(|name| name.ends_with("/server")));
    check_loop(&shown, "spin", "of_spinning");
}

/// Whoever may stand still for a while only, does so for no longer, or is not attached to.
#[test]
fn nobody_stands_still_for_longer_than_it_may() {
    needs!("gcc");
    let place = folder();
    let mut server = server(place.path());
    let (plain, before, pid) = (server.ask("1000"), server.memory(), server.pid());
    let mut ended = [0, 0];
    for most in ["1ns", "1us", "100us", "200us", "300us", "400us", "600us", "1ms", "10s"] {
        let command = format!("count -p {pid} --for 1ms --max-pause {most} --json=said -o rec");
        let ran = engraft(place.path(), &command);
        if ran.code == Some(2) {
            assert!(ran.stderr.contains("its threads stood still for "), "{most} {}", ran.stderr);
            assert!(ran.stderr.contains("hint: allow more by --max-pause"), "{most} {}", ran.stderr);
            ended[0] += 1;
        } else {
            assert_eq!(ran.code, Some(0), "{most} {}", ran.stderr);
            let said = std::fs::read_to_string(place.path().join("said")).expect("it is written");
            let said: Value = serde_json::from_str(&said).expect("it is JSON");
            let may = humantime(most);
            assert!(said["attach"]["pause_us"][0].as_u64().is_some_and(|us| us <= may), "{most} {said:#}");
            ended[1] += 1;
        }
        assert!(server.memory() == before, "{most}");
        assert_eq!(server.ask("1000"), plain, "{most}");
    }
    // The first and the last, at least.
    assert!(ended[0] > 0 && ended[1] > 0, "{ended:?}");
}

/// So many microseconds.
fn humantime(text: &str) -> u64 {
    let number = |unit: &str| text.strip_suffix(unit).and_then(|n| n.parse::<u64>().ok());
    let of = [("ns", 0), ("us", 1), ("ms", 1000), ("s", 1_000_000)];
    of.into_iter().find_map(|(unit, of)| Some(number(unit)? * of)).expect("a time")
}

#[test]
fn who_was_killed_leaves_a_process_that_can_be_rescued() {
    needs!("gcc");
    let place = folder();
    let mut server = server(place.path());
    let (plain, before) = (server.ask("1000"), server.memory());
    let pid = server.pid();
    let mut counting = Observing::start(place.path(), &server, "count");
    // Not as long as somebody is attached: he would not know that he counts no more.
    for command in [format!("rescue {pid}"), format!("count -p {pid} --for 10ms")] {
        let refused = engraft(place.path(), &command);
        assert_eq!(refused.code, Some(2));
        assert!(refused.stderr.contains("somebody is attached to process"), "{}", refused.stderr);
    }
    assert_eq!(server.ask("1000"), plain);
    counting.end(Some("-KILL"));
    assert_eq!(server.ask("1000"), plain);
    let listed: Value =
        serde_json::from_str(&engraft(place.path(), "rescue --list --json").stdout).expect("it is JSON");
    let listed = listed["attached"].as_array().expect("a list");
    assert!(listed.iter().any(|one| one["pid"] == pid && one["name"] == "server"), "{listed:?}");
    let again = engraft(place.path(), &format!("count -p {pid} --for 10ms"));
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains(&format!("`engraft rescue {pid}`")), "{}", again.stderr);
    let rescued = engraft(place.path(), &format!("rescue {pid}"));
    assert_eq!(rescued.code, Some(0), "{}", rescued.stderr);
    assert!(server.memory() == before);
    assert_eq!(server.ask("1000"), plain);
    let nothing = engraft(place.path(), &format!("rescue {pid}"));
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("nobody is attached"), "{}", nothing.stderr);
    // And it can be counted again.
    let mut counting = Observing::start(place.path(), &server, "count");
    assert_eq!(server.ask("1000"), plain);
    assert_eq!(entries(&counting.end(Some("-INT")), "of_main"), 1000);
}

#[test]
fn children_are_counted_and_given_back() {
    needs!("gcc");
    let place = folder();
    let mut server = server(place.path());
    let plain = server.ask("fork 500");
    let mut counting = Observing::in_background(place.path(), &server, "count");
    assert_eq!(server.ask("fork 500"), plain);
    let child = server.ask("leave");
    std::thread::park_timeout(Duration::from_millis(50));
    let said = counting.end(Some("-INT"));
    assert_eq!(entries(&said, "of_thread"), 2000);
    // Both, and what the child that stays has done.
    assert!(entries(&said, "of_main") >= 1000, "{said:#}");
    let maps = std::fs::read_to_string(format!("/proc/{child}/maps")).expect("it runs");
    assert!(!has_ours(&maps) && maps.contains("r-xp"), "{maps}");
    assert_eq!(server.ask("fork 500"), plain);
}

#[test]
fn of_a_process_that_ends_all_is_counted() {
    needs!("gcc");
    let place = folder();
    for ends_by_itself in [true, false] {
        let mut server = server(place.path());
        let mut counting = Observing::start(place.path(), &server, "count");
        server.ask("1000");
        server.end(ends_by_itself);
        let said = counting.end(None);
        assert_eq!((entries(&said, "of_main"), entries(&said, "of_thread")), (1000, 4000));
    }
}

#[test]
fn exceptions_are_caught_through_moved_code() {
    needs!("g++");
    let place = folder();
    let mut server = Server::start(place.path(), "thrown.cc", "g++", "-O2");
    let mut counting = Observing::start(place.path(), &server, "count");
    let depth = |line: String| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(words[1], "0", "rounds that went wrong");
        words[2].clone()
    };
    let attached: Vec<String> = (0..5).map(|_| depth(server.ask("x"))).collect();
    let said = counting.end(Some("-INT"));
    let plain = depth(server.ask("x"));
    assert_eq!(attached, vec![plain; 5], "how deep backtrace sees");
    assert!(entries(&said, "middle(long)") > 1000, "{said:#}");
}

#[test]
fn what_cannot_be_attached_to_is_named() {
    needs!("gcc");
    let place = folder();
    #[track_caller]
    fn refused(folder: &Path, pid: impl std::fmt::Display, why: &str, remedy: &str) {
        let ran = engraft(folder, &format!("count -p {pid} --for 10ms -o none.engraft"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains(why) && ran.stderr.contains(remedy), "{}", ran.stderr);
        assert!(!folder.join("none.engraft").exists());
    }
    let mut gone = Command::new("true").spawn().expect("it starts");
    let number = gone.id();
    std::thread::park_timeout(Duration::from_millis(100));
    refused(place.path(), number, "has ended already", "ps -e");
    gone.wait().expect("a child");
    refused(place.path(), number, &format!("there is no process {number}"), "ps -e");
    refused(place.path(), 2, "one of the kernel's", "");
    let server = server(place.path());
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let threads = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let thread = threads.max().expect("it has threads");
    refused(place.path(), thread, "is a thread of process", &format!("-p {}", server.pid()));
    let none = engraft(place.path(), &format!("count -p {} --for 10ms --modules nothing*", server.pid()));
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("no module is called nothing*"), "{}", none.stderr);
    let words = engraft(place.path(), "count -p 1 ./server");
    assert_eq!(words.code, Some(2));
}

#[test]
fn what_comes_meanwhile_is_named_and_libraries_may_go() {
    needs!("gcc");
    let place = folder();
    let source = "int of_library(int n) { return n * 3 + 1; }";
    std::fs::write(place.path().join("library.c"), source).expect("written");
    for name in ["early.so", "late.so"] {
        let mut gcc = Command::new("gcc");
        must(gcc.current_dir(place.path()).args(["-O1", "-shared", "-fPIC", "-o", name, "library.c"]));
    }
    let start = || Server::start(place.path(), "loads.c", "gcc", "-O1 -D_GNU_SOURCE");
    let mut server = start();
    let mut counting = Observing::start(place.path(), &server, "count");
    let said = ["call", "next", "cancel", "open"].map(|line| server.ask(line));
    assert_eq!(said, ["22", "1", "2", "16"]);
    let (said, warnings) = counting.end_with(Some("-INT"), 1);
    assert_eq!(entries(&said, "of_library"), 1, "the early one");
    assert!(warnings.contains("late.so was not counted: it was loaded after"), "{warnings}");
    assert_eq!(server.ask("call"), "22");

    // One that is unloaded meanwhile is not put back.
    let mut server = start();
    let mut counting = Observing::start(place.path(), &server, "count");
    assert_eq!(["call", "close"].map(|line| server.ask(line)), ["22", "0"]);
    assert_eq!(entries(&counting.end(Some("-INT")), "of_library"), 1);
    assert_eq!(server.ask("open"), "16");

    let mut server = start();
    let mut counting = Observing::start(place.path(), &server, "count");
    assert_eq!(server.ask("exec"), "another");
    assert_eq!(server.child.wait().expect("a child").code(), Some(0));
    counting.end(None);
}

#[test]
fn a_stopped_job_stays_stopped_and_signals_come() {
    needs!("gcc");
    let place = folder();
    let mut server = server(place.path());
    let plain = server.ask("1000");
    let signal = |which: &str| must(Command::new("kill").arg(which).arg(server.pid().to_string()));
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("it runs");
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).expect("a state")
    };
    signal("-STOP");
    let ran = engraft(place.path(), &format!("count -q -p {} --for 50ms -o a.engraft", server.pid()));
    assert_eq!((ran.code, state()), (Some(0), 'T'), "{}", ran.stderr);
    signal("-CONT");
    for _ in 0..4 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
        command.args(["count", "-q", "-p", &server.pid().to_string(), "--for", "50ms", "-o", "b.engraft"]);
        let mut counting = command.current_dir(place.path()).spawn().expect("it starts");
        while counting.try_wait().expect("a child").is_none() {
            signal("-USR1");
        }
        assert_eq!(counting.wait().expect("a child").code(), Some(0));
    }
    let after = server.ask("1000");
    assert_eq!(after.split(' ').next(), plain.split(' ').next());
    // They were handled.
    assert!(after.split(' ').nth(2).is_some_and(|n| n != "0"), "{after}");
}
