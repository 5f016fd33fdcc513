//! `engraft sample --live` on a terminal: what it shows, what keys do, and that the terminal is as it was in
//! the end, whatever ends it.

use crate::attached::server::Server;
use crate::needs;
use crate::run::{compile, engraft, folder};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const US: &str = env!("CARGO_BIN_EXE_engraft");

/// A shell on a terminal of its own.
struct Shell {
    child: Child,
    keys: ChildStdin,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Shell {
    /// Which runs `line` in `folder`, and says then how the terminal is.
    fn run(folder: &Path, line: &str) -> Shell {
        let line = format!("stty cols 100 rows 20; stty -a > before; {line}; stty -a > after; echo all-done");
        let mut child = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script runs");
        let keys = child.stdin.take().expect("a pipe");
        let mut output = child.stdout.take().expect("a pipe");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                into.lock().expect("nobody panicked").extend_from_slice(&bytes[..n]);
            }
        });
        Shell { child, keys, seen }
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("nobody panicked")).into_owned()
    }

    /// Waits until `what` was written, and gives what stands behind the last of it.
    #[track_caller]
    fn until(&self, what: &str) -> String {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let seen = self.seen();
            if let Some((_, rest)) = seen.rsplit_once(what) {
                return rest.to_owned();
            }
            assert!(Instant::now() < end, "no {what} in {seen:?}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Waits until the terminal shows `what`.
    #[track_caller]
    fn shows(&self, what: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let lines = shown(&self.seen());
            if lines.iter().any(|line| line.contains(what)) {
                return;
            }
            assert!(Instant::now() < end, "no {what} in {lines:#?}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("it listens");
    }

    /// What was written behind the view; the terminal must be as it was before.
    #[track_caller]
    fn end(mut self, folder: &Path) -> String {
        self.until("all-done");
        let rest = self.until(LEAVES);
        let how = |name| std::fs::read_to_string(folder.join(name)).expect("stty wrote it");
        assert_eq!(how("after"), how("before"));
        assert!(rest.contains("\x1b[?25h") || self.seen().contains("\x1b[?25h"), "the cursor is back");
        let ended = self.child.wait().expect("it ends");
        assert!(ended.success(), "{ended}");
        rest
    }
}

/// What a terminal of 20 lines shows that gets `text`: where the cursor is moved to and what is written
/// there; looks are left out.
fn shown(text: &str) -> Vec<String> {
    let mut cells = vec![vec![' '; 100]; 20];
    let (mut row, mut column) = (0, 0);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(sequence) = rest.strip_prefix("\x1b[") {
            let Some(n) = sequence.find(|c: char| c.is_ascii_alphabetic()) else { break };
            let (numbers, end) = sequence.split_at(n);
            if (numbers, &end[..1]) == ("?1049", "h") {
                cells = vec![vec![' '; 100]; 20];
            }
            if let Some((to_row, to_column)) = numbers.split_once(';').filter(|_| end.starts_with('H')) {
                let number = |text: &str| text.parse::<usize>().expect("a number") - 1;
                (row, column) = (number(to_row), number(to_column));
            }
            rest = &end[1..];
            continue;
        }
        match c {
            '\r' => column = 0,
            '\n' => row = (row + 1).min(19),
            c => {
                if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = c;
                }
                column += 1;
            }
        }
        rest = &rest[c.len_utf8()..];
    }
    cells.into_iter().map(|line| line.into_iter().collect()).collect()
}

/// What has the terminal show what it showed before.
const LEAVES: &str = "\x1b[?1049l";

fn server(folder: &Path) -> Server {
    let mut server = Server::start(folder, "sampled.c", "gcc", "-O2 -ldl");
    assert_eq!(server.ask("thread"), "thread");
    server
}

#[test]
fn a_process_is_shown_and_keys_do_what_they_say() {
    needs!("gcc", "script", "stty");
    let place = folder();
    let mut server = server(place.path());
    let line = format!("{US} sample --live -p {} -o rec.engraft", server.pid());
    let mut shell = Shell::run(place.path(), &line);
    let first = shell.until("\x1b[?1049h");
    assert!(!first.contains("all-done"), "{first:?}");
    // Once the program is analysed.
    shell.shows("of_thread");
    shell.shows("the last 10 s");
    shell.press("w");
    shell.shows("since the start");
    shell.press("p");
    shell.shows("paused");
    shell.press("p");
    shell.press("\r");
    // Its loop counts in memory.
    shell.shows("Esc");
    shell.shows("(%rsp)");
    shell.press("\x1b");
    shell.shows("choose  Enter");
    shell.press("q");
    let report = shell.end(place.path());
    assert!(report.contains("of_thread") && report.contains("recording: rec.engraft"), "{report:?}");
    assert!(place.path().join("rec.engraft").exists());
    server.end(true);
}

#[test]
fn the_terminal_is_as_it_was_whatever_ends_the_view() {
    needs!("gcc", "script", "stty");
    let place = folder();
    for how in ["signal", "the process", "the time"] {
        let mut server = server(place.path());
        let long = if how == "the time" { "--for 2s" } else { "" };
        let us = format!("{US} sample --live {long} -p {} -o rec.engraft", server.pid());
        let shell = Shell::run(place.path(), &format!("sh -c 'echo $$ > pid; exec {us}'"));
        shell.shows("the last 10 s");
        match how {
            "signal" => {
                let pid = std::fs::read_to_string(place.path().join("pid")).expect("it was written");
                crate::run::must(Command::new("kill").args(["-TERM", pid.trim()]));
            }
            "the process" => drop(server.input.take()),
            _ => {}
        }
        let report = shell.end(place.path());
        assert!(report.contains("recording: rec.engraft"), "{how}: {report:?}");
        if how != "the process" {
            assert_eq!(server.ask("thread"), "thread", "{how}: it goes on");
            server.end(true);
        }
    }
}

#[test]
fn a_program_that_is_started_writes_where_it_should() {
    needs!("gcc", "script", "stty");
    let place = folder();
    compile(&place.path().join("shares"), "shares.c", "-O2 -pthread");
    let line = format!("{US} sample --live -o rec.engraft ./shares 1 2500 > out 2> err; echo $? > status");
    let mut shell = Shell::run(place.path(), &line);
    shell.shows("spin_19");
    // It goes on when nobody looks any more.
    shell.press("q");
    shell.end(place.path());
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).expect("it was written");
    assert_eq!(read("status"), "3\n");
    assert_eq!(read("out").lines().filter(|line| line.starts_with("spin_")).count(), 20, "{}", read("out"));
    assert_eq!(read("out").lines().count(), 20, "{}", read("out"));
    assert!(read("err").contains("recording: rec.engraft"), "{}", read("err"));
}

#[test]
fn where_it_cannot_be_shown_it_is_refused() {
    needs!("gcc", "script", "stty");
    let place = folder();
    let own = std::process::id();
    let refused = engraft(place.path(), &format!("sample --live -p {own}"));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
    assert!(
        refused.stderr.contains("needs a terminal") && refused.stderr.contains("hint: "),
        "{}",
        refused.stderr
    );
    // The program would write over it; it does not run.
    let shell = Shell::run(place.path(), &format!("{US} sample --live touch ran"));
    shell.until("all-done");
    let said = shell.seen();
    assert!(said.contains("> FILE 2> FILE") && said.contains("-p PID") && !said.contains(LEAVES), "{said:?}");
    assert!(!place.path().join("ran").exists());
}
