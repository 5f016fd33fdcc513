//! Several processes at once: by number, by name, with their children.

use super::server::Server;
use super::{C, entries, server};
use crate::needs;
use crate::run::{engraft, folder, has_ours};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What `count` says that is given `options`, while each of `servers` is asked; each time the same.
#[track_caller]
fn counted(folder: &Path, servers: &mut [Server], options: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
    command.current_dir(folder).args(["count", "--json=said.json", "-o", "rec.engraft"]);
    let mut child = command.args(options.split(' ')).stderr(Stdio::null()).spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(60);
    while !servers.iter().all(Server::is_attached) {
        assert!(Instant::now() < until, "they are not attached");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    let answers: Vec<String> = servers.iter_mut().map(|server| server.ask("1000")).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    crate::run::must(Command::new("kill").args(["-INT", &child.id().to_string()]));
    assert_eq!(child.wait().expect("a child").code(), Some(0));
    let text = std::fs::read_to_string(folder.join("said.json")).expect("it is written");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn processes_that_are_named_together_are_added_up() {
    needs!("gcc");
    let (place, other) = (folder(), folder());
    // Of two builds: each has functions of its own.
    let first = server(place.path());
    let again = Server::run(place.path(), "server");
    let mut servers = vec![first, again, Server::start(other.path(), C[0], C[1], "-O2")];
    let before: Vec<_> = servers.iter().map(Server::memory).collect();
    let pids: Vec<String> = servers.iter().map(|server| server.pid().to_string()).collect();
    let said = counted(place.path(), &mut servers, &format!("-p {}", pids.join(",")));
    let attach = said["attach"].as_array().expect("a list");
    let attached: Vec<String> = attach.iter().map(|one| one["pid"].to_string()).collect();
    assert_eq!(attached, pids);
    let of: u64 = {
        let rows = said["functions"].as_array().expect("functions");
        rows.iter().filter(|row| row["name"] == "of_main").filter_map(|row| row["entries"].as_u64()).sum()
    };
    assert_eq!((of, entries(&said, "of_main")), (3000, 2000), "{said:#}");
    let after: Vec<_> = servers.iter().map(Server::memory).collect();
    assert!(before == after);
    // If one of them cannot be attached to, none is changed.
    let none = engraft(place.path(), &format!("count -p {},2 --for 10ms -o none.engraft", pids.join(",")));
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("one of the kernel's"), "{}", none.stderr);
    assert!(servers.iter().map(Server::memory).collect::<Vec<_>>() == before);
}

#[test]
fn a_name_means_all_processes_that_bear_it_and_children_come_with_them() {
    needs!("gcc");
    let place = folder();
    let name = format!("srv{}", std::process::id());
    Server::build(place.path(), &name, C);
    let mut servers = vec![Server::run(place.path(), &name), Server::run(place.path(), &name)];
    let child = servers[0].ask("leave");
    let said = counted(place.path(), &mut servers, &format!("--name {name}"));
    // The child bears it, too.
    assert_eq!(said["attach"].as_array().map(Vec::len), Some(3), "{said:#}");
    assert_eq!(entries(&said, "of_thread"), 8000);
    let first = servers[0].pid();
    let mut one = servers.drain(..1).collect::<Vec<_>>();
    let said = counted(place.path(), &mut one, &format!("-p {first} --children"));
    let attached = said["attach"].as_array().expect("a list").iter().map(|one| one["pid"].to_string());
    assert_eq!(attached.collect::<Vec<_>>(), [first.to_string(), child.clone()]);
    // One that has ended, and is not buried, is no child any more.
    crate::run::must(Command::new("kill").args(["-KILL", &child]));
    let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).expect("nobody buries it");
    while !state().contains(") Z ") {
        std::thread::park_timeout(Duration::from_millis(2));
    }
    let said = counted(place.path(), &mut one, &format!("-p {first} --children"));
    assert_eq!(said["attach"]["pid"], first, "{said:#}");
    let none = engraft(place.path(), "count --name no-such-process --for 10ms");
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("no process is called no-such-process"), "{}", none.stderr);
}

/// What a process starts while it is observed is observed with it, as soon as it is ready; what it had
/// started before is not.
#[test]
fn who_comes_meanwhile_is_followed() {
    needs!("gcc");
    let place = folder();
    Server::build(place.path(), "server", C);
    let words = ["sh", "-c", "./server; ./server; exit 5"];
    let mut server = Server::within(place.path(), "server", &words);
    let shell = server.child.id();
    let mut command = Command::new(env!("CARGO_BIN_EXE_engraft"));
    command.current_dir(place.path()).args(["count", "--follow", "--json=said.json", "-o", "rec", "-p"]);
    let child = command.arg(shell.to_string()).stderr(Stdio::piped()).spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(60);
    let is_attached = || {
        let maps = std::fs::read_to_string(format!("/proc/{shell}/maps")).expect("it runs");
        maps.contains("memfd:engraft-code")
    };
    while !is_attached() {
        assert!(Instant::now() < until, "it is not attached");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    std::thread::park_timeout(Duration::from_millis(200));
    server.ask("1000");
    assert!(!server.is_attached(), "it was there before");
    assert_eq!(server.ask("exit"), "ready");
    server.find("server");
    while !server.is_attached() {
        assert!(Instant::now() < until, "it is not attached");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    server.ask("1000");
    crate::run::must(Command::new("kill").args(["-INT", &child.id().to_string()]));
    let out = child.wait_with_output().expect("a child");
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(place.path().join("said.json")).expect("it is written");
    let said: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(said["attach"].as_array().map(Vec::len), Some(2), "{said:#}");
    assert_eq!((entries(&said, "of_main"), entries(&said, "of_thread")), (1000, 4000));
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("it runs");
    assert!(!has_ours(&maps), "{maps}");
    drop(server.input.take());
    assert_eq!(server.child.wait().expect("a child").code(), Some(5));
}
