//! What a process keeps where only it knows of: below stack pointers, on stacks of its own making, in
//! signals.

use super::entries;
use super::server::{Observing, Server};
use crate::needs;
use crate::run::{engraft, folder, has_ours, must};
use std::os::unix::fs::FileExt as _;
use std::process::Command;

/// What leaf functions keep below their stack pointers while they are in the kernel; and real-time signals.
#[test]
fn what_is_kept_below_a_stack_pointer_is_kept_and_each_signal_comes() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path(), "kept.c", "gcc", "-O1");
    for _ in 0..5 {
        let mut counting = Observing::start(place.path(), &server, "count");
        assert_eq!(server.ask("x"), "0 0", "while they waited, it was attached to");
        assert_eq!(server.ask("x"), "0 0");
        let said = counting.end(Some("-INT"));
        assert_eq!(said["attach"]["left"], serde_json::Value::Null);
        assert!(entries(&said, "handle") > 0);
        assert_eq!(server.ask("x"), "0 0", "while they waited, it was given back");
    }
    server.input = None;
    assert_eq!(server.child.wait().expect("a child").code(), Some(7));
}

/// Stacks that the program has made itself, side by side, while the first one waits.
#[test]
fn coroutines_go_on_on_their_own_stacks() {
    needs!("gcc");
    let place = folder();
    for flags in ["-O0", "-O2"] {
        let mut server = Server::start(place.path(), "coroutines.c", "gcc", flags);
        let wrong = |line: String| line.split(' ').nth(1).map(str::to_owned);
        assert_eq!(wrong(server.ask("x")).as_deref(), Some("0"));
        for _ in 0..5 {
            let mut counting = Observing::start(place.path(), &server, "count");
            assert_eq!(wrong(server.ask("x")).as_deref(), Some("0"), "{flags}, attached");
            let said = counting.end(Some("-INT"));
            // A hundred rounds of each of eight, thirteen calls deep.
            assert!(entries(&said, "down") >= 99 * 8 * 13, "{said:#}");
            assert_eq!(said["attach"]["left"], serde_json::Value::Null);
            assert_eq!(wrong(server.ask("x")).as_deref(), Some("0"), "{flags}, given back");
        }
        server.input = None;
        assert_eq!(
            server.child.wait().expect("a child").code(),
            Some(7),
            "home from the first stack, {flags}"
        );
    }
}

/// The rest of a process is given back when its first thread is no more; nobody can be told where its code is
/// then.
#[test]
fn a_process_without_its_first_thread_is_given_back() {
    needs!("gcc");
    let place = folder();
    let mut server = Server::start(place.path(), "first_ends.c", "gcc", "-O1");
    let mut counting = Observing::start(place.path(), &server, "count");
    assert_eq!(server.ask("leave"), "100");
    let tasks = format!("/proc/{}/task", server.pid());
    let state = || std::fs::read_to_string(format!("{tasks}/{}/stat", server.pid())).expect("it is there");
    while !state().contains(") Z ") {
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    assert_eq!(server.ask("x"), "200");
    assert_eq!(entries(&counting.end(Some("-INT")), "of_answer"), 200);
    let other = std::fs::read_dir(&tasks).expect("it runs").filter_map(|task| {
        std::fs::read_to_string(task.ok()?.path().join("maps")).ok().filter(|maps| !maps.is_empty())
    });
    let maps = other.collect::<Vec<_>>();
    assert!(maps.len() == 1 && !has_ours(&maps[0]), "{maps:?}");
    assert_eq!(server.ask("x"), "300");
    let again = engraft(place.path(), &format!("count -p {} --for 10ms", server.pid()));
    assert_eq!(again.code, Some(2));
    assert!(
        again.stderr.contains("the first thread of process") && again.stderr.contains("hint: "),
        "{}",
        again.stderr
    );
    server.input = None;
    assert_eq!(server.child.wait().expect("a child").code(), Some(7));
}

/// What a debugger or the kernel has put into its code is known by where it is.
#[test]
fn breakpoints_of_others_are_not_moved() {
    needs!("gcc", "nm");
    let place = folder();
    let mut server = Server::start(place.path(), "attached.c", "gcc", "-O1");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("it runs");
    let base = maps.split('-').next().and_then(|at| u64::from_str_radix(at, 16).ok()).expect("an address");
    let names = must(Command::new("nm").arg(place.path().join("server")));
    let at = names.lines().find_map(|line| line.strip_suffix(" T of_handler")).expect("it has the function");
    let at = base + u64::from_str_radix(at, 16).expect("an address");
    let path = format!("/proc/{}/mem", server.pid());
    let memory = std::fs::File::options().read(true).write(true).open(path).expect("it runs");
    let mut before = [0; 1];
    memory.read_exact_at(&mut before, at).expect("it is mapped");
    memory.write_all_at(&[0xcc], at).expect("we may");
    let ran = engraft(place.path(), &format!("count -p {} --for 10ms -o none.engraft", server.pid()));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("at live:{at:#x} is not what")), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: take it away first"), "{}", ran.stderr);
    memory.write_all_at(&before, at).expect("we may");
    let ran = engraft(place.path(), &format!("count -p {} --for 10ms -o some.engraft", server.pid()));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    server.end(true);
}
