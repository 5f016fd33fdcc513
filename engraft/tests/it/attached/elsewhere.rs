//! Processes in namespaces and roots of their own, those that restrict or check themselves, and what else
//! programs do while somebody is attached to them.

use super::server::{Observing, Server};
use super::{C, entries};
use crate::run::{copy_program, engraft, folder, has_ours, must};
use crate::{needs, needs_mounts};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is answered to "1000".
const SUM: &str = "1830168";

/// The server that does something to itself.
#[track_caller]
fn build(folder: &Path) {
    Server::build(folder, "server", ["elsewhere.c", "gcc", "-O1 -DFACTOR=5"]);
}

/// Whether nothing of ours is in the process: no mapping, and no thread beside its own `n`.
#[track_caller]
fn is_clean(server: &Server, n: usize) {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("it runs");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs").count();
    assert_eq!((has_ours(&maps), tasks), (false, n), "{maps}");
}

/// Namespaces of processes, of users, of networks: the process has another number there, and the helper in
/// it, too; all of what was counted is there, also of children, who know nothing of our numbers.
#[test]
fn processes_in_namespaces_of_their_own_are_counted() {
    needs!("gcc", "unshare");
    needs_mounts!();
    let place = folder();
    Server::build(place.path(), "server", C);
    let program = place.path().join("server");
    let program = program.to_string_lossy();
    for words in ["-Urmpf --mount-proc --kill-child", "-Urn", "-Urpf --kill-child"] {
        let mut all: Vec<&str> = std::iter::once("unshare").chain(words.split(' ')).collect();
        all.push(&program);
        let mut server = Server::within(place.path(), "server", &all);
        let (plain, before) = (server.ask("fork 500"), server.memory());
        let mut counting = Observing::start(place.path(), &server, "count");
        assert_eq!(server.ask("fork 500"), plain, "{words}");
        let child = server.ask("leave");
        std::thread::park_timeout(Duration::from_millis(50));
        let said = counting.end(Some("-INT"));
        assert_eq!(said["attach"]["pid"], server.pid(), "{words}");
        assert_eq!(entries(&said, "of_thread"), 2000, "{words}");
        assert!(entries(&said, "of_main") >= 1000, "{words} {said:#}");
        assert!(server.memory() == before, "{words}");
        is_clean(&server, 8);
        assert_eq!(server.ask("fork 500"), plain, "{words} {child}");
        // One who was killed is helped there, too.
        let mut counting = Observing::start(place.path(), &server, "count");
        counting.end(Some("-KILL"));
        assert_eq!(engraft(place.path(), &format!("rescue {}", server.pid())).code, Some(0));
        assert!(server.memory() == before, "{words}");
        let mut tracing = Observing::start(place.path(), &server, "trace");
        assert_eq!(server.ask("1000").split(' ').nth(1), plain.split(' ').nth(1), "{words}");
        tracing.end(Some("-INT"));
        let ran = engraft(place.path(), "query rec.engraft 'of_thread: entry' --count");
        assert_eq!(ran.stdout.trim(), "4000", "{words} {}", ran.stderr);
        assert!(server.memory() == before, "{words}");
    }
}

/// What a process in a root of its own calls its files is what they are called, and its files are read: not
/// those that have these names here.
#[test]
fn files_of_another_root_are_those_of_the_process() {
    needs!("gcc", "unshare", "ldd", "chroot");
    needs_mounts!();
    let place = folder();
    let root = place.path().join("root");
    std::fs::create_dir_all(root.join("srv")).expect("it is ours");
    Server::build(&root.join("srv"), "server", ["elsewhere.c", "gcc", "-O1 -DFACTOR=5"]);
    let listed = must(Command::new("ldd").arg(root.join("srv/server")));
    for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("it is ours");
        copy_program(library, to);
    }
    let inner = root.to_string_lossy().into_owned();
    let words = ["unshare", "-Ur", "chroot", &inner, "/srv/server"];
    let mut server = Server::within(place.path(), "server", &words);
    let before = server.memory();
    let mut counting = Observing::start(place.path(), &server, "count");
    assert_eq!(server.ask("1000"), SUM);
    let said = counting.end(Some("-INT"));
    assert_eq!(entries(&said, "of_main"), 1000);
    assert!(server.memory() == before, "{}\n{}", before.0, server.memory().0);
    let modules = said["modules"].as_array().expect("modules").iter();
    let modules: Vec<&str> = modules.filter_map(|m| m.as_str().or(m["path"].as_str())).collect();
    assert!(modules.contains(&"/srv/server"), "{modules:?}");
    assert!(modules.iter().all(|path| !path.contains("/root/")), "{modules:?}");
    drop(server);

    // The same name means another file here: one with other code.
    let other = place.path().join("other");
    std::fs::create_dir(&other).expect("it is ours");
    build(&other);
    let flags = ["elsewhere.c", "gcc", "-O0 -DFACTOR=(n%7*3+n%5)"];
    Server::build(place.path(), "server", flags);
    let script = "mount --bind other/server server && exec ./server";
    let mut server = Server::within(place.path(), "server", &["unshare", "-Urm", "sh", "-c", script]);
    let before = server.memory();
    let mut counting = Observing::start(place.path(), &server, "count");
    assert_eq!(server.ask("1000"), SUM);
    assert_eq!(entries(&counting.end(Some("-INT")), "of_main"), 1000);
    assert!(server.memory() == before, "{}\n{}", before.0, server.memory().0);
    is_clean(&server, 1);
}

/// Nothing of ours makes a call in a process that would be ended for it.
#[test]
fn who_filters_its_calls_is_left_alone() {
    needs!("gcc");
    let place = folder();
    build(place.path());
    for how in ["kill", "errno", "trap", "strict"] {
        let mut server = Server::run(place.path(), "server");
        assert_eq!(server.ask(&format!("seccomp {how}")), "0");
        let before = server.memory();
        for verb in ["count", "trace", "values --calls of_main"] {
            let ran = engraft(place.path(), &format!("{verb} -p {} --for 10ms -o none", server.pid()));
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{how} {verb} {}", ran.stderr);
            assert!(ran.stderr.contains("filters its system calls (seccomp)"), "{}", ran.stderr);
            assert!(ran.stderr.contains("hint: start it under `engraft count`"), "{}", ran.stderr);
        }
        assert!(!place.path().join("none").exists());
        assert!(server.memory() == before, "{how}");
        is_clean(&server, 1);
        assert_eq!(server.ask("1000"), SUM, "{how}");
        drop(server.input.take());
        assert_eq!(server.child.wait().expect("a child").code(), Some(7), "{how}");
    }
}

/// Filters that came while it was observed keep nobody from giving it back: whoever may, suspends them.
#[test]
fn who_filters_its_calls_meanwhile_is_given_back() {
    needs!("gcc", "id");
    let place = folder();
    if must(Command::new("id").arg("-u")).trim() != "0" {
        return;
    }
    build(place.path());
    for how in ["kill", "errno", "trap", "strict"] {
        let mut server = Server::run(place.path(), "server");
        let before = server.memory();
        let mut counting = Observing::start(place.path(), &server, "count");
        assert_eq!(server.ask(&format!("seccomp {how}")), "0");
        assert_eq!(server.ask("1000"), SUM, "{how}");
        let said = counting.end(Some("-INT"));
        assert_eq!(entries(&said, "of_main"), 1000, "{how}");
        assert!(server.memory() == before, "{how}");
        assert_eq!(server.ask("1000"), SUM, "{how}");
        drop(server.input.take());
        assert_eq!(server.child.wait().expect("a child").code(), Some(7), "{how}");
    }
}

/// Code is changed in place: who looks sees it, for as long as it is.
#[test]
fn who_checks_its_own_code_sees_it_while_it_is_observed() {
    needs!("gcc");
    let place = folder();
    build(place.path());
    let mut server = Server::run(place.path(), "server");
    let plain = server.ask("check");
    for verb in ["count", "trace"] {
        let mut observing = Observing::start(place.path(), &server, verb);
        let meanwhile = server.ask("check");
        assert_eq!(server.ask("1000"), SUM);
        observing.end(Some("-INT"));
        assert!(meanwhile != plain && server.ask("check") == plain, "{verb}");
    }
}

/// Other programs are started, and are what they are; `exec` of one that has more rights gives it these.
#[test]
fn programs_that_are_started_meanwhile_run_as_ever() {
    needs!("gcc");
    let place = folder();
    build(place.path());
    let mut server = Server::run(place.path(), "server");
    let mut plain = || ["vfork", "spawn", "system", "1000"].map(|line| server.ask(line));
    let want = plain();
    assert_eq!(want, ["5", "43218", "6", SUM]);
    for verb in ["count", "trace"] {
        let before = server.memory();
        let mut observing = Observing::start(place.path(), &server, verb);
        let got = ["vfork", "spawn", "system", "1000"].map(|line| server.ask(line));
        let said = observing.end(Some("-INT"));
        assert_eq!(got, want, "{verb}");
        if verb == "count" {
            assert_eq!((entries(&said, "of_main"), entries(&said, "start")), (1000, 3));
        }
        // The heap grew, and `system` keeps what it needs.
        assert!(server.memory().1 == before.1, "{verb}");
        is_clean(&server, 1);
    }
}

/// What handlers of signals have left on a stack of theirs leads nowhere any more.
#[test]
fn stacks_on_which_signals_are_handled_hold_nothing() {
    needs!("gcc");
    let place = folder();
    build(place.path());
    let mut server = Server::run(place.path(), "server");
    let before = server.memory();
    for _ in 0..4 {
        assert_eq!(server.ask("alarms"), "0");
        let mut counting = Observing::start(place.path(), &server, "count");
        let number = |text: String| text.parse::<u64>().expect("a number");
        let first = number(server.ask("handled"));
        std::thread::park_timeout(Duration::from_millis(50));
        let last = number(server.ask("handled"));
        assert_eq!(server.ask("silence"), "0");
        let said = counting.end(Some("-INT"));
        assert_eq!(said["attach"]["left"], serde_json::Value::Null);
        assert!(last > first && entries(&said, "on_alarm") >= last - first, "{first} to {last}: {said:#}");
        is_clean(&server, 1);
        assert!(server.memory() == before);
    }
}

/// How `engraft count -p` of the server ends, which would else wait for ever: in time, and with one error.
#[track_caller]
fn ends_in_time(folder: &Path, server: &Server) -> Option<i32> {
    let words = ["20", env!("CARGO_BIN_EXE_engraft"), "count", "-o", "rec", "--for", "3ms", "-p"];
    let ran = Command::new("timeout").current_dir(folder).args(words).arg(server.pid().to_string()).output();
    let ran = ran.expect("it is installed");
    let said = String::from_utf8_lossy(&ran.stderr);
    let errors = said.lines().filter(|line| line.starts_with("engraft: ")).count();
    assert!(
        matches!((ran.status.code(), errors), (Some(0 | 1), 0) | (Some(2), 1)),
        "{:?} {said}",
        ran.status
    );
    ran.status.code()
}

/// An exec by one of several threads ends the others, and waits until whoever traces them has seen that; so
/// does whoever waits for the end of a process that was killed.
#[test]
fn who_execs_or_is_killed_at_any_moment_does_so() {
    needs!("gcc", "timeout");
    let place = folder();
    Server::build(place.path(), "execs", ["execs.c", "gcc", "-O1"]);
    let mut server = Server::run(place.path(), "execs");
    for _ in 0..30 {
        ends_in_time(place.path(), &server);
    }
    std::fs::write(place.path().join("over"), "").expect("written");
    assert_eq!(server.child.wait().expect("a child").code(), Some(7));
    Server::build(place.path(), "server", C);
    for n in 0..20 {
        let mut server = Server::run(place.path(), "server");
        std::thread::scope(|scope| {
            let attached = scope.spawn(|| ends_in_time(place.path(), &server));
            std::thread::park_timeout(Duration::from_millis(30 + 15 * n));
            must(Command::new("kill").args(["-KILL", &server.pid().to_string()]));
            attached.join().expect("it ends");
        });
        let ended = server.child.wait().expect("a child");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    }
}

/// A program that is owned by root, and has its rights for whoever starts it, gets them: we do not trace.
#[test]
fn a_program_with_more_rights_has_them_after_exec() {
    needs!("gcc", "setpriv", "chmod");
    if std::fs::metadata("/proc/self").map_or(1, |about| std::os::unix::fs::MetadataExt::uid(&about)) != 0 {
        return;
    }
    let place = folder();
    must(Command::new("chmod").arg("755").arg(place.path()));
    build(place.path());
    let source = "#include <stdio.h>\n#include <unistd.h>\n#include <sys/auxv.h>
        int main(void) { printf(\"%d %d %ld\\n\", getuid(), geteuid(), getauxval(AT_SECURE)); return 3; }";
    std::fs::write(place.path().join("who.c"), source).expect("written");
    must(Command::new("gcc").current_dir(place.path()).args(["-o", "who", "who.c"]));
    must(Command::new("chmod").current_dir(place.path()).args(["4755", "who"]));
    let program = place.path().join("server");
    let program = program.to_string_lossy();
    let words = ["setpriv", "--reuid", "65534", "--clear-groups", &program];
    let mut server = Server::within(place.path(), "server", &words);
    let mut counting = Observing::start(place.path(), &server, "count");
    assert_eq!(server.ask("1000"), SUM);
    let who = place.path().join("who");
    assert_eq!(server.ask(&format!("exec {}", who.display())), "65534 0 1");
    assert_eq!(server.child.wait().expect("a child").code(), Some(3));
    let (said, _) = counting.end_with(None, 0);
    assert_eq!(entries(&said, "of_main"), 1000, "what was counted before");
}

/// The process's disk is as full as it is; when ours is, the process is given back all the same.
#[test]
fn a_full_disk_is_said_and_the_process_is_given_back() {
    needs!("gcc", "unshare", "mount");
    needs_mounts!();
    let place = folder();
    build(place.path());
    std::fs::create_dir(place.path().join("full")).expect("it is ours");
    let script = "mount -t tmpfs -o size=16k none full && exec ./server";
    let mut server = Server::within(place.path(), "server", &["unshare", "-Urm", "sh", "-c", script]);
    let plain = server.ask("fill full/a");
    assert!(plain.ends_with("028") && plain.len() > 3, "{plain}");
    let mut counting = Observing::start(place.path(), &server, "count");
    assert_eq!([server.ask("fill full/a"), server.ask("1000")], [plain, SUM.to_owned()]);
    assert_eq!(entries(&counting.end(Some("-INT")), "of_main"), 1000);
    drop(server);

    if std::fs::metadata("/proc/self").map_or(1, |about| std::os::unix::fs::MetadataExt::uid(&about)) != 0 {
        return;
    }
    let mut server = Server::run(place.path(), "server");
    let before = server.memory();
    for verb in ["count", "values --calls of_main"] {
        let us = env!("CARGO_BIN_EXE_engraft");
        let script = format!(
            "mount -t tmpfs -o size=4k none full && cat /dev/zero > full/x
             exec {us} {verb} --no-cache -p {} -o full/rec",
            server.pid()
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).current_dir(place.path()).env("TMPDIR", place.path());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !server.is_attached() {
            assert!(std::time::Instant::now() < until, "it is not attached");
            std::thread::park_timeout(Duration::from_millis(2));
        }
        for _ in 0..50 {
            assert_eq!(server.ask("1000"), SUM);
        }
        must(Command::new("kill").args(["-INT", &child.id().to_string()]));
        let out = child.wait_with_output().expect("a child");
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        let said: Vec<&str> = said.lines().filter(|line| line.starts_with("engraft: ")).collect();
        let why = "engraft: cannot write full/rec: No space left on device; the recording is ";
        assert!(said.len() == 1 && said[0].starts_with(why), "{verb} {said:?}");
        assert!(server.memory() == before, "{verb}");
        is_clean(&server, 1);
        assert_eq!(server.ask("1000"), SUM);
    }
}
